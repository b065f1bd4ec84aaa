"""``hmrnn train labels|tags|pairs|numbers`` and ``hmrnn predict``: from a file to a run, its report and its answers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import hmrnn
import tiny

SMALL = (
    "--model.hidden-size", "6", "--model.num-layers", "2", "--model.embedding-size", "4", "--model.output-size", "6",
    "--train.epochs", "2", "--train.batch-size", "8", "--train.device", "cpu", "--train.threads", "1",
)  # fmt: skip
FILES = {
    "labels": ("spam.tsv", "".join(f"{'ab' * k}\tham\n{'cd' * k}\tspam\n" for k in range(1, 11))),
    "tags": ("words.conll", "the D\ncat N\nsat V\n\na D\ndog N\n\n" * 6),
    "pairs": ("sounds.jsonl", "".join(json.dumps({"source": "ab" * k, "target": ["A", "B"] * k}) + "\n"
                                      for k in range(1, 13))),
    "numbers": ("lengths.tsv", "".join(f"{'ab' * k}\t{2 * k}\n" for k in range(1, 13))),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind, with its report."""
    folder = tmp_path_factory.mktemp("runs")
    for kind, (name, text) in FILES.items():
        (folder / name).write_text(text)
        assert tiny.hmrnn("train", kind, folder / name, "--out", folder / kind, *SMALL) == 0
    return folder


def test_runs_have_metrics_and_a_report(runs: Path) -> None:
    for kind in FILES:
        lines = [json.loads(line) for line in (runs / kind / "metrics.jsonl").read_text().splitlines()]
        valid = [line for line in lines if line["event"] == "valid"]
        assert len(valid) == 2
        assert all(0 <= line["error"] <= (1 if kind != "numbers" else 9) for line in valid)
        page = (runs / kind / "report.html").read_text()
        assert "of the validation part" in page
        assert "<h2>Decisions</h2>" in page
        assert (" are right" in page) == (kind != "numbers")
        assert ("; always &#x27;" in page and "the most frequent: " in page) == (kind in ("labels", "tags"))
        assert ("<h2>Answers</h2>" in page) == (kind in ("labels", "tags"))
        assert ("R² " in page and "of the variance left there" in page) == (kind == "numbers")
        assert page.count('title="100.0%"') >= 1  # the segment that decided most
        assert (" from " in page.split("<h2>Decisions</h2>")[1]) == (kind in ("tags", "pairs"))


@pytest.mark.parametrize("kind", FILES)
def test_answers_to_the_training_file(runs: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.hmrnn("predict", "-m", runs / kind, runs / FILES[kind][0]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == (20 if kind == "labels" else 12)
    assert ("MAE" if kind == "numbers" else "are right") in err
    assert ("the most frequent: 50.00%" in err) == (kind == "labels")
    assert ("the most frequent: " in err) == (kind in ("labels", "tags"))
    assert tiny.hmrnn("predict", "-m", runs / kind, runs / FILES[kind][0], "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(one) >= {"answer", "probabilities", "levels"} for one in found)
    assert tiny.hmrnn("predict", "-m", runs / kind, runs / FILES[kind][0], "--explain") == 0
    out = capsys.readouterr().out
    assert out.count("answer  ") == out.count("segments  ") == len(found)
    assert out.count(" from ") == (0 if kind in ("labels", "numbers") else sum(len(one["answer"]) for one in found))


def test_numbers_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{k},{t * k},{t}\n" for k in range(8) for t in range(3 + k % 3)]
    (tmp_path / "steps.csv").write_text("series,x,number\n" + "".join(rows))
    assert tiny.hmrnn("train", "numbers", tmp_path / "steps.csv", "--out", tmp_path / "run", *SMALL) == 0
    assert "R² " in (tmp_path / "run" / "report.html").read_text()
    capsys.readouterr()
    assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "steps.csv") == 0
    out, err = capsys.readouterr()
    found = [line.split("\t") for line in out.splitlines()]
    assert [len(line[0].split()) for line in found] == [3 + k % 3 for k in range(8)]
    assert float(found[0][1]) > 0
    assert f"of {len(rows)} answers" in err
    (tmp_path / "same.csv").write_text("series,x,number\n1,0,2\n1,1,2\n1,2,2\n")
    assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "same.csv") == 0
    assert "of 3 answers" in capsys.readouterr().err
    assert tiny.hmrnn("export", "-m", tmp_path / "run", "--out", tmp_path / "half", "--half") == 0
    assert " nats per answer after " in (tmp_path / "half" / "README.md").read_text()
    for answer in (2, 2.0):  # of a table alone, whose column is constant, one number is that of all steps
        (tmp_path / "one.jsonl").write_text(json.dumps({"series": [[0], [1]], "number": answer}))
        assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "one.jsonl") == 2


def test_series(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"2020-{t},{t % 5 + 0.5},{t * t % 7}\n" for t in range(60)]
    (tmp_path / "power.csv").write_text("time,load,temp\n" + "".join(rows))
    how = ("--data.ahead", "3", "--data.window", "12", *SMALL, "--train.cool-down", "0")
    assert tiny.hmrnn("train", "series", tmp_path / "power.csv", "--out", tmp_path / "run", *how) == 0
    out, err = capsys.readouterr()
    assert "series of 2 channel(s) (load, temp), the next 3 step(s)" in out + err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "of the squared error of no change" in page
    assert page.count("right would be ") == 1  # the validation part is one stretch
    assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "power.csv") == 0
    table = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["series", "step", "load", "temp", "load ±", "temp ±"]
    assert [line[:2] for line in table[1:]] == [["1", "1"], ["1", "2"], ["1", "3"]]
    (tmp_path / "turned.csv").write_text("series,temp,load\n" + "".join(
        f"{name},{t * t % 7},{t % 5 + 0.5}\n" for name in "ab" for t in range(60)
    ))  # fmt: skip
    assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "turned.csv") == 0
    both = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[1:] for line in both] == 2 * [line[1:] for line in table[1:]]
    assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "power.csv", "--json") == 0
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [f"{one[0]:.6g}" for one in found["answer"]] == [line[2] for line in table[1:]]
    assert len(found["levels"][0]["ends"]) >= 1
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n3\n"))
    assert tiny.hmrnn("predict", "-m", tmp_path / "run") == 2
    out, err = capsys.readouterr()
    assert "2 channels" in err
    assert not out
    (tmp_path / "gap.csv").write_text("load,temp\n1,2\n,3\n")
    assert tiny.hmrnn("predict", "-m", tmp_path / "run", tmp_path / "gap.csv") == 2
    assert "column load must hold numbers; got ''" in capsys.readouterr().err
    half = ("train", "series", tmp_path / "power.csv", "--out", tmp_path / "half", *how, "--train.epochs", "1")
    assert tiny.hmrnn(*half, "--no-report") == 0
    again = ("train", "series", tmp_path / "power.csv", "--out", tmp_path / "half", "--resume", "--train.epochs", "2")
    assert tiny.hmrnn(*again) == 0
    one, other = (sorted((tmp_path / name).glob("last-*"))[-1] / "model.safetensors" for name in ("run", "half"))
    assert one.read_bytes() == other.read_bytes()
    assert hmrnn.HMForecaster.load(tmp_path / "run").window == 12
    for flags, message in (
        (["--model.bidirectional"], "--model.bidirectional"),
        (["--model.attend", "segments"], "--model.attend"),
        (["--data.window", "1"], "hmrnn: --data."),
        (["--data.ahead", "30"], "can only be learned from 32 or more"),
    ):
        run = ("train", "series", tmp_path / "power.csv", "--out", tmp_path / "bad", "--data.ahead", "10", *SMALL)
        assert tiny.hmrnn(*run, *flags) == 2
        assert message in capsys.readouterr().err


def test_standard_input(runs: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("abab\ncd\n"))
    assert tiny.hmrnn("predict", "-m", runs / "labels") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows] == ["abab", "cd"]
    assert all(row[0] in ("ham", "spam") and 0 <= float(row[1]) <= 1 for row in rows)
    monkeypatch.setattr("sys.stdin", io.StringIO("the dog\n"))
    assert tiny.hmrnn("predict", "-m", runs / "tags", "-") == 0
    assert len(capsys.readouterr().out.split("\t")[0].split()) == 2
    assert tiny.hmrnn("predict", "-m", runs / "tags", "the dog") == 2
    assert "the dog" in capsys.readouterr().err


@pytest.mark.parametrize("kind", FILES)
def test_a_run_resumes_exactly(runs: Path, tmp_path: Path, kind: str) -> None:
    text = runs / FILES[kind][0]
    first = ("train", kind, text, "--out", tmp_path / "run", *SMALL, "--train.cool-down", "0", "--no-report")
    assert tiny.hmrnn(*first, "--train.epochs", "1") == 0
    assert tiny.hmrnn("train", kind, text, "--out", tmp_path / "run", "--resume", "--train.epochs", "2") == 0
    whole = ("train", kind, text, "--out", tmp_path / "whole", *SMALL, "--train.cool-down", "0", "--no-report")
    assert tiny.hmrnn(*whole) == 0
    one, other = (sorted((tmp_path / name).glob("last-*"))[-1] / "model.safetensors" for name in ("run", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_other_commands_point_to_predict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (("segment", "abc"), ("generate", "ab"), ("evaluate",)):
        assert tiny.hmrnn(command[0], "-m", runs / "labels", *command[1:]) == 2
        assert "for hmrnn predict, not" in capsys.readouterr().err
    assert tiny.hmrnn("predict", "-m", "english-small", runs / FILES["labels"][0]) == 2
    assert "english-small is a model of text" in capsys.readouterr().err
    again = runs / FILES["labels"][0]
    assert tiny.hmrnn("train", "labels", again, "--from", runs / "labels", "--out", runs / "tuned") == 2
    assert "cannot be trained further" in capsys.readouterr().err
    assert tiny.hmrnn("export", "-m", runs / "tags", "--out", runs / "exported") == 0
    assert tiny.hmrnn("predict", "-m", runs / "exported", runs / FILES["tags"][0]) == 0


BAD: list[tuple[str, list[str], str]] = [
    ("labels", ["--data.ahead", "5"], "--data.ahead"),
    ("labels", ["--detectors.pull-weight", "1"], "hmrnn: unknown option --detectors.pull-weight"),
    ("labels", ["--model.attend", "segments", "--model.level", "2"], "hmrnn: --model.level 2"),
    ("tags", ["--model.rnn", "hrnn"], "hmrnn: --model.rnn"),
    ("labels", ["--model.crf"], "--model.crf"),
    ("pairs", ["--model.read-out", "max"], "--model.read-out"),
    ("tags", ["--model.attend", "segments"], "--model.attend"),
]


@pytest.mark.parametrize(("kind", "flags", "message"), BAD, ids=[row[-1][:20] for row in BAD])
def test_bad_flags(runs: Path, kind: str, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = runs / "refused"
    assert tiny.hmrnn("train", kind, runs / FILES[kind][0], "--out", out, *SMALL, *flags) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_bad_files(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.tsv").write_text("ab\tx\ncd\tx\n")
    assert tiny.hmrnn("train", "labels", tmp_path / "one.tsv", "--out", tmp_path / "run", *SMALL) == 2
    assert "one.tsv" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    (tmp_path / "new.tsv").write_text("ab\teggs\n")
    assert tiny.hmrnn("predict", "-m", runs / "labels", tmp_path / "new.tsv") == 2
    assert "'eggs'" in capsys.readouterr().err
    (tmp_path / "new.txt").write_text("the good film\n")
    assert tiny.hmrnn("predict", "-m", runs / "tags", tmp_path / "new.txt") == 2
    assert ".txt file" in capsys.readouterr().err
    (tmp_path / "named.tsv").write_text("review\tsentiment\nab\tham\n")
    assert tiny.hmrnn("predict", "-m", runs / "labels", tmp_path / "named.tsv") == 2
    assert "only its first row has the label 'sentiment'" in capsys.readouterr().err
    (tmp_path / "gap.tsv").write_text("ab\tx\n\ty\n")
    assert tiny.hmrnn("train", "labels", tmp_path / "gap.tsv", "--out", tmp_path / "run", *SMALL) == 2
    assert "sequence 2 of gap.tsv" in capsys.readouterr().err
    (tmp_path / "series.jsonl").write_text('{"text": "ab"}\n{"series": [1, 2]}\n')
    assert tiny.hmrnn("predict", "-m", runs / "labels", tmp_path / "series.jsonl") == 2
    assert "sequence 2 of " in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("\n")
    assert tiny.hmrnn("predict", "-m", runs / "labels", tmp_path / "empty.txt") == 2
    assert "holds no sequences" in capsys.readouterr().err
