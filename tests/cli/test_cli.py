"""The commands as people use them: from a text file to a model, its segments, its texts and its figures."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import hmrnn
import tiny
from hmrnn import checkpoint
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.settings import TextData
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer


@pytest.fixture(scope="module")
def work(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a text and, in runs/story, a model trained on it."""
    copy = shutil.copytree(trained, tmp_path_factory.mktemp("work"), dirs_exist_ok=True)
    with tiny.story(copy) as work:
        yield work


def test_train_shows_and_keeps_what_it_does(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = work / "runs" / "shown"
    flags = tiny.flags(tiny.config(epochs=1, length=10, batch_size=16))
    assert tiny.hmrnn("train", "story.txt", "--out", out, *flags, "--report") == 0
    text, err = capsys.readouterr()
    assert err == ""
    lines = text.splitlines()
    assert lines[0] == "story.txt: 810 symbols to train on, 9 distinct"
    assert lines[1].startswith("model: layers of 6, 5, 4; ")
    assert re.search(r" parameters; engine \w+ on cpu$", lines[1])
    assert lines[2] == f"run: {out}"
    assert "bits/char" in lines[3]
    assert "chars/s, boundary rates z1=0." in lines[3]
    (validation,) = (line for line in lines if line.startswith("epoch 1.00  validation "))
    assert validation.endswith("(best so far)")
    assert lines[-3].startswith("1 epoch done; best validation ")
    assert lines[-2] == f"report: {out / 'report.html'}"
    assert re.fullmatch(rf"try: hmrnn segment -m {out} '[a-h ]+'", lines[-1])  # words of the story itself
    metrics = [line["event"] for line in read_metrics(out / "metrics.jsonl")]
    assert len(lines) == 3 + len(metrics) + 3
    # the defaults of the preset, the flags, and the name of the file for a run without --out
    stored = RunDirectory(work / "runs" / "story").config()
    assert stored.data == TextData(path=("story.txt",))
    assert (stored.model, stored.train) == (tiny.config().model, tiny.config(epochs=1, batch_size=16, length=10).train)


def test_a_network_without_detectors_is_tried_by_what_it_can_do(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = tiny.flags(tiny.config(epochs=1, length=10, batch_size=16, rnn="lstm"))
    assert tiny.hmrnn("train", "story.txt", "--out", "plain", *flags) == 0
    assert capsys.readouterr().out.endswith("try: hmrnn generate -m plain\n")


def test_evaluate(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = hmrnn.load(work / "runs" / "story")
    text = (work / "story.txt").read_text()
    expected = model.score(text[-45:])
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--streams", 1) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == [
        "story.txt, test part: 44 symbols predicted, one stream",
        f"bits per character  {expected.bits:.4f}",
    ]
    assert f"updates saved  {expected.saved:.1%}" in out
    assert out.splitlines()[-1] == f"multiply-adds per character  {expected.multiply_adds:,.0f}"
    assert " instead of 810)" in out

    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--split", "valid", "--streams", 1, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    expected = model.score(text[810:855])
    assert record["bits"] == pytest.approx(expected.bits)
    assert record["rates"] == pytest.approx(list(expected.rates))
    assert (record["symbols"], record["text"]) == (44, "story.txt, valid part")

    (work / "new.txt").write_text("abc de fgh " * 9)
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--file", "new.txt", "--symbols", 50, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["bits"] == pytest.approx(model.score(("abc de fgh " * 9)[:50]).bits)
    assert (record["streams"], record["warmup"]) == (1, 0)  # too short to be cut
    several = ("evaluate", "-m", "runs/story", "--split", "train", "--warmup", 200)
    assert tiny.hmrnn(*several, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["symbols"], record["streams"], record["warmup"]) == (809, 4, 200)
    assert tiny.hmrnn(*several) == 0
    assert capsys.readouterr().out.startswith(
        "story.txt, train part: 809 symbols predicted, 4 streams, each but the first after 200 symbols of warm-up\n"
    )
    for flag in (("--split", "test"), ("--path", "new.txt")):
        assert tiny.hmrnn("evaluate", "-m", "runs/story", "--file", "new.txt", *flag) == 2
        assert f"{flag[0]} cannot be combined with --file" in capsys.readouterr().err


def test_evaluate_a_corpus_that_has_moved(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "moved.txt").write_text((work / "story.txt").read_text())
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--path", "moved.txt", "--json") == 0
    there = json.loads(capsys.readouterr().out)
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--json") == 0
    assert {**json.loads(capsys.readouterr().out), "text": "moved.txt, test part"} == there


def test_segment(work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = hmrnn.load(work / "runs" / "story").segment("abc de fgh")
    assert tiny.hmrnn("segment", "-m", "runs/story", "abc de fgh") == 0
    plain = capsys.readouterr().out
    assert plain == f"{expected.render(width=80)}\n{expected.updates()}\n"
    assert "\x1b" not in plain
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc de fgh\n"))  # as echo writes it
    assert tiny.hmrnn("segment", "--model", "runs/story") == 0
    assert capsys.readouterr().out == plain
    (work / "text.txt").write_text("abc de fgh\n")
    assert tiny.hmrnn("segment", "-m", "runs/story", "--file", "text.txt", "--json") == 0
    assert json.loads(capsys.readouterr().out) == expected.to_dict()
    assert tiny.hmrnn("segment", "-m", "runs/story", "abc de fgh", "--width", 5) == 0
    assert capsys.readouterr().out.startswith(expected.render(width=5))


def test_generate(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in (1, 1, 2):
        assert tiny.hmrnn("generate", "-m", "runs/story", "abc ", "--length", 60, "--seed", seed) == 0
        outputs.append(capsys.readouterr().out)
    model = hmrnn.load(work / "runs" / "story")
    assert outputs[0] == "abc " + model.generate("abc ", 60, temperature=0.8, seed=1) + "\n"
    assert outputs[0] == outputs[1] != outputs[2]
    assert [len(text) for text in outputs] == [4 + 60 + 1] * 3
    arguments = ("generate", "-m", "runs/story", "--length", 9, "--temperature", 0)
    assert tiny.hmrnn(*arguments) == 0
    likeliest = capsys.readouterr().out
    assert tiny.hmrnn(*arguments[:-1], 1.5, "--top-k", 1) == 0
    assert capsys.readouterr().out == likeliest
    assert tiny.hmrnn(*arguments[:-1], 1.5, "--top-p", 1e-9) == 0
    assert capsys.readouterr().out == likeliest


@pytest.mark.parametrize(("figure", "suffix"), [("3", "svg"), ("4", "png"), ("curves", "pdf")])
def test_plot(work: Path, capsys: pytest.CaptureFixture[str], figure: str, suffix: str) -> None:
    out = work / f"figure.{suffix}"
    text = [] if figure == "curves" else ["abc de fgh"]
    assert tiny.hmrnn("plot", "-m", "runs/story", *text, "--figure", figure, "--out", out) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_bytes().startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix])


def test_files_that_are_no_prose_are_asked_about(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("dna.fasta.gz", "headers, which .* --data.format lines"), ("a b.csv", "labels.* 'a b.csv'")):
        (work / name).write_text("story")
        for command in ("train", "data"):
            assert tiny.hmrnn(command, name) == 2
            assert re.search(said, capsys.readouterr().err)
    (work / "a.conllu").write_text(9 * ("1\tthe\tthe\tDET" + 6 * "\t_" + "\n2\tcat\tcat\tNOUN" + 6 * "\t_" + "\n\n"))
    assert tiny.hmrnn("data", "a.conllu") == 0
    assert "sequences" in capsys.readouterr().out


def test_bytes(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "greek.txt").write_text("αβγ δε\n" * 60)
    flags = tiny.flags(tiny.config(epochs=1, length=10, batch_size=16))
    assert tiny.hmrnn("train", "greek.txt", "--data.bytes", *flags, "--report") == 0
    out = capsys.readouterr().out
    assert re.search(r"bits/byte, .* bytes/s", out)
    assert len(re.findall("validation .* bits per byte", out)) == 2
    assert "char" not in out
    assert "validation, bits per byte" in (work / "runs" / "greek" / "report.html").read_text()
    assert tiny.hmrnn("generate", "-m", "runs/greek", "αβ", "--length", 30, "--seed", 1) == 0
    assert capsys.readouterr().out.startswith("αβ")
    assert tiny.hmrnn("segment", "-m", "runs/greek", "αβ", "--json") == 0
    assert json.loads(capsys.readouterr().out)["symbols"] == ["\\xce", "\\xb1", "\\xce", "\\xb2"]


@pytest.mark.parametrize(
    ("changes", "limit"), [({"cool_down": 0.5}, "epochs"), ({"epochs": 9, "min_improvement": 9.0}, "divisions")]
)
def test_a_finished_run_says_what_lets_it_go_on(
    work: Path, changes: dict[str, float], limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny.config(**({"epochs": 1, "length": 10, "batch_size": 16, "divisions": 0} | changes))
    run = ("train", "story.txt", "--out", f"runs/{limit}")
    assert tiny.hmrnn(*run, *tiny.flags(config)) == 0
    assert "to train further" not in capsys.readouterr().out
    assert tiny.hmrnn(*run, "--resume", "--no-report") == 0
    said = capsys.readouterr()
    assert f", in runs/{limit}; to train further, raise --train.{limit}\n" in said.out
    assert "note" not in said.err
    assert tiny.hmrnn(*run, "--resume", "--no-report", f"--train.{limit}", 2) == 0
    said = capsys.readouterr()
    assert "to train further" not in said.out
    note = "note: the schedule of the learning rate (--train.cool-down) now goes over 2 epochs instead of 1, and jumps"
    assert (note in said.err) == (limit == "epochs")


def test_a_signal_saves_and_says_how_to_go_on(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run then ends as if nothing had been."""
    number, out, update = signal.SIGINT, tmp_path / "a run", Trainer.step
    config = tiny.config(epochs=1000, log_every=1, estimator="sample", length=10, batch_size=16)

    def interrupted(trainer: Trainer) -> None:
        update(trainer)
        if trainer.progress.step == 7:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert tiny.hmrnn("train", "story.txt", "--out", out, *tiny.flags(config)) == 128 + number
    text, err = capsys.readouterr()
    assert err == ""
    *_, said, again = text.splitlines()
    step = RunDirectory(out).newest_progress()["step"]
    assert step == 7
    assert said == f"stopped by {number.name} at step {step}; everything is saved. Resume with:"
    program, *arguments = shlex.split(again)
    assert program == "hmrnn"
    epochs = step // 5 + 1
    assert tiny.hmrnn(*arguments, "--train.epochs", epochs) == 0
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=epochs))
    tiny.run(tmp_path / "whole", config, text=load_corpus(TextData(path=("story.txt",))))
    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(out)
    assert whole["metrics"] == parts["metrics"]
    name = f"last-{5 * epochs:08d}/model.safetensors"
    assert whole[name] == parts[name]


def test_a_run_whose_output_nobody_reads_stops_and_loses_nothing(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under | head."""
    config = tiny.config(epochs=1000, log_every=1, length=10, batch_size=16)
    end, begin = os.pipe()

    def head() -> None:
        with open(end) as lines:
            next(line for line in lines if "bits/char" in line)

    reader = threading.Thread(target=head)
    reader.start()
    with open(begin, "w", buffering=1) as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        status = tiny.hmrnn("train", "story.txt", "--out", tmp_path, *tiny.flags(config))
    reader.join()
    assert status == 128 + signal.SIGTERM
    why, stopped, again = capsys.readouterr().err.splitlines()
    assert why == "hmrnn: the output cannot be written (Broken pipe), so training stops"
    step = RunDirectory(tmp_path).newest_progress()["step"]
    assert stopped == f"stopped by SIGTERM at step {step}; everything is saved. Resume with:"
    assert "--resume" in again


def test_training_does_not_start_where_its_output_cannot_be_written(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert tiny.hmrnn("train", "story.txt", "--out", tmp_path / "run", *tiny.flags(tiny.config())) == 2
    said = "hmrnn: the output cannot be written (No space left on device), so training does not start\n"
    assert capsys.readouterr().err == said


def test_the_model_of_the_command_line_is_that_of_python(work: Path) -> None:
    model = hmrnn.load("runs/story")
    weights = checkpoint.read(checkpoint.find(Path("runs/story"))).weights
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.network.state_dict().items())
    assert model.vocabulary.decode(model.vocabulary.encode("abc")) == "abc"
