"""Runs on lines and on strokes that end: they learn the condition and the end, resume exactly, and generation stops."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.config import Config
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData
from hmrnn.nn.context import Condition
from hmrnn.nn.predictor import conditioned
from hmrnn.pretrained.load import load
from hmrnn.reading.vocabulary import Vocabulary
from refusals import refused

VOCABULARY = Vocabulary("characters", tuple("\n abcdefgh"))


def corpus(count: int = 240) -> Corpus:
    """Lines of class a repeat abc, lines of class b repeat de; one to three times."""
    draw = np.random.default_rng(0)
    rows = draw.choice(["a", "b"], count).tolist()
    lines = ["".join([{"a": "abc", "b": "de"}[row]] * draw.integers(1, 4)) for row in rows]
    ends = [0, 180, 210, count]
    parts = [VOCABULARY.encode("".join(line + "\n" for line in lines[a:b])) for a, b in itertools.pairwise(ends)]
    return Corpus("tiny", VOCABULARY, *parts, {}, conditions=tuple(rows))


def config(**changes: Any) -> Config:
    made = tiny.config(hidden_size=(16,), num_layers=2, embedding_size=6, output_size=16, batch_size=12, **changes)
    return dataclasses.replace(made, data=TextData(format="lines"))


def trained(directory: Path, chosen: Config) -> TextModel:
    tiny.run(directory, chosen, text=corpus())
    model = load(directory)
    assert isinstance(model, TextModel)
    return model


def test_a_run_learns_the_condition_and_the_end(tmp_path: Path) -> None:
    model = trained(tmp_path / "run", config(epochs=4, learning_rate=0.03, condition="both"))
    assert model.config.model.classes == ("a", "b")
    written = model.generate([""] * 8, 40, seed=1, condition=["a", "b"] * 4)
    assert all(line.startswith("abc") for line in written[::2])
    assert all(line.startswith("de") for line in written[1::2])
    assert max(map(len, written)) < 40  # they end by themselves
    assert not any("\n" in line for line in written)
    assert "".join(model.stream("ab", 40, seed=2, condition="a")).startswith("c")
    fits, differs = (model.score("abcabc", condition=which).bits for which in "ab")
    assert fits + 1 < differs
    assert model.segment("abcabc", condition="a").bits[0] < model.segment("abcabc", condition="b").bits[0]
    lines = ["abcabc", "dede", "abc"]
    many = model.segment_many(lines, batch=2, condition=["a", "b", "a"])
    for line, which, found in zip(lines, "aba", many):
        alone = model.segment(line, condition=which)
        np.testing.assert_allclose(found.bits, alone.bits, atol=1e-5)
        assert found.ends(1) == alone.ends(1)
    bits = [found and found.bits for found in model.score_lines(iter(lines), condition=["a", "b", "a"])]
    assert bits == [model.score(line, condition=which).bits for line, which in zip(lines, "aba")]
    assert bits[::2] == [found and found.bits for found in model.score_lines(lines[::2], condition="a")]
    assert model.segment_many([], condition=[]) == list(model.score_lines([], condition=[])) == []
    one, other = (model.embed("abc", condition=which).symbols for which in "ab")
    assert not np.allclose(one, other)
    with refused():
        list(model.score_lines(lines, condition=["a", "b"]))
    for bad in (None, "c", ["a", "b", "a"]):
        with refused():
            model.generate(["", ""], 5, condition=bad)


def test_a_run_is_measured_over_every_symbol_and_line_end(tmp_path: Path) -> None:
    trainer = tiny.trainer(config(), corpus())
    measured = trainer.validate().measure
    model, nats, count = trainer.model.eval(), 0.0, 0
    lines, rows = corpus().lines["valid"]
    for symbols, row in zip(lines, rows or ()):
        line = torch.from_numpy(symbols[1:].astype(np.int64))[:, None]
        read = torch.cat([torch.zeros(1, 1, dtype=torch.int64), line[:-1]])
        prediction, _, _ = model.predict(read, condition=Condition(torch.tensor([int(row == "b")])))
        nats -= prediction.log_prob(line).sum().item()
        count += len(line)
    assert measured == pytest.approx(nats / count / math.log(2), rel=1e-6)


def test_a_model_that_is_told_the_length_keeps_to_it(tmp_path: Path) -> None:
    chosen = config(epochs=6, patience=9, learning_rate=0.03, time="left")
    model = trained(tmp_path / "run", chosen)
    for length in (4, 7, 10):
        assert [len(line) for line in model.generate(["", ""], length, temperature=0, condition=["a", "a"])] == [
            length - 1
        ] * 2


def test_lines_of_strokes_halt(tmp_path: Path) -> None:
    data = tiny_strokes.corpus(train=24)
    rows = [tuple("xy"[k % 2] for k in range(len(part))) for part in (data.train, data.valid, data.test)]
    parts = [dataclasses.replace(part, conditions=row) for part, row in zip((data.train, data.valid, data.test), rows)]
    data = dataclasses.replace(data, train=parts[0], valid=parts[1], test=parts[2])
    chosen = tiny_strokes.config(epochs=3, halt=True, learning_rate=0.03)
    trainer = tiny.trainer(chosen, data)  # type: ignore[arg-type]
    assert trainer.config.model.classes == ("x", "y")
    before = trainer.validate().measure
    for _ in range(3 * trainer.task.chunks):
        trainer.step()
    assert trainer.validate().measure < before
    checkpoint.write(tmp_path / "model", trainer.snapshot(training=False))
    model = load(tmp_path / "model")
    lines = model.sheet(6, 400, seed=1, condition=list("xyxyxy"))
    assert max(map(len, lines)) < 400
    assert len({len(line) for line in lines}) > 1
    assert model.score(parts[1]).sequences == len(parts[1])
    assert (
        model.score(np.array(parts[1][0]), condition="x").log_likelihood
        != model.score(np.array(parts[1][0]), condition="y").log_likelihood
    )
    with refused():
        model.generate(10)


def test_what_is_refused() -> None:
    with refused("model.time"):
        tiny.config(time="left").check()


def test_a_model_of_lines_is_fine_tuned_on_lines(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", config(epochs=1), text=dataclasses.replace(corpus(), conditions=()))
    model = load(tmp_path / "run")
    tuned = model.finetune("abx\n" * 100, epochs=1, device="cpu")
    assert isinstance(tuned, TextModel)
    assert tuned.config.data.format == "lines"
    assert tuned.vocabulary.symbols == (*VOCABULARY.symbols, "x")
    assert tuned.end == 0


def test_a_model_that_is_told_the_time_left_scores_and_embeds_lines(tmp_path: Path) -> None:
    model = trained(tmp_path / "run", config(epochs=1, time="left", classes=("a", "b")))
    with conditioned(model.network, model.as_condition("a")):
        [found] = model.score_lines(["abcabc"])
        assert model.embed("abcabc").symbols.shape[0] == 6
    assert found is not None
    assert found.bits == pytest.approx(model.score("abcabc", condition="a").bits)


def test_lines_of_a_file_are_evaluated_under_a_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = trained(tmp_path / "run", config(epochs=1, time="left"))
    (tmp_path / "new.txt").write_text("abcabc\n\nabc")
    flags = ("evaluate", "-m", tmp_path / "run", "--file", tmp_path / "new.txt", "--json")
    assert tiny.hmrnn(*flags, "--condition", "a") == 0
    found = json.loads(capsys.readouterr().out)
    bits = np.concatenate([model.segment(f"{line}\n", condition="a").bits for line in ("abcabc", "abc")])
    assert (found["lines"], found["symbols"]) == (2, len(bits))
    for more in ((), ("--condition", "a", "--boundaries")):
        assert tiny.hmrnn(*flags, *more) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_list_of_numbers_has_one_for_each_text_where_a_condition_is_one_number() -> None:
    chosen = tiny.changed(config(), condition_numbers=1)
    network = LanguageModel(len(VOCABULARY), chosen.model)
    model = TextModel(network, VOCABULARY, chosen)
    lines, alone = ["abc", "de"], [model.score("abc", condition=0.1).bits, model.score("de", condition=[0.9]).bits]
    many = model.segment_many(lines, condition=[0.1, 0.9])
    assert [found.bits.mean() for found in many] == pytest.approx(alone, rel=1e-5)
    assert [found and found.bits for found in model.score_lines(lines, condition=[0.1, 0.9])] == alone
    for given in (np.array(0.1), torch.tensor(0.1), np.float32(0.1), np.array([0.1])):
        assert model.score("abc", condition=given).bits == pytest.approx(alone[0], rel=1e-6)  # type: ignore[arg-type]
    for both in (np.array([0.1, 0.9]), torch.tensor([[0.1], [0.9]]), [np.array(0.1), np.array([0.9])]):
        found = [one and one.bits for one in model.score_lines(lines, condition=both)]  # type: ignore[arg-type]
        assert found == pytest.approx(alone, rel=1e-6)
    with refused():
        model.segment_many(lines, condition=[0.1, 0.5, 0.9])


@pytest.mark.parametrize("more", [["--data.condition", "people.csv:country"], ["--model.time", "left"]])
def test_train_writes_a_report_of_lines(more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ["Norway", "Spain"] * 30
    Path("names.txt").write_text("".join({"Norway": "kjell", "Spain": "maria"}[row] + "\n" for row in rows))
    Path("people.csv").write_text("id,country\n" + "".join(f"{k},{row}\n" for k, row in enumerate(rows)))
    small = ("--model.hidden-size", "4", "--model.num-layers", "2", "--train.epochs", "1", "--train.device", "cpu")
    assert tiny.hmrnn("train", "names.txt", "--data.format", "lines", "--out", "run", *small, *more) == 0
    page = Path("run/report.html").read_text()
    assert "level 1" in page
    assert ("Norway: " in page) == (more[0] == "--data.condition")
    flags = ("train", "names.txt", "--out", "run", "--resume", "--train.epochs", "2", "--no-report")
    assert tiny.hmrnn(*flags) == 0  # as train says at its end: the format is the run's
    assert json.loads(Path("run/config.json").read_bytes())["train"]["epochs"] == 2
    for preset in ("ptb", "words", "labels"):
        assert tiny.hmrnn("train", preset, "names.txt", *flags[2:]) == 2
