"""``hmrnn train labels|tags|pairs|numbers`` and ``hmrnn predict``: from a file to a run, its report and its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hmrnn
import tiny

SMALL = (
    "--model.hidden-size 6 --model.num-layers 2 --model.embedding-size 4 --model.output-size 6 --train.epochs 2 "
    "--train.batch-size 8 --train.device cpu --train.threads 1 --train.cool-down 0"
)
FILES = {
    "labels": ("spam.tsv", "".join(f"{'ab' * k}\tham\n{'cd' * k}\tspam\n" for k in range(1, 11))),
    "tags": ("words.conll", "the D\ncat N\nsat V\n\na D\ndog N\n\n" * 6),
    "pairs": ("sounds.jsonl", "".join(json.dumps({"source": "ab" * k, "target": ["A", "B"] * k}) + "\n"
                                      for k in range(1, 13))),
    "numbers": ("lengths.tsv", "".join(f"{'ab' * k}\t{2 * k}\n" for k in range(1, 13))),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file and a run of each kind, with its report."""
    folder = tmp_path_factory.mktemp("runs")
    for kind, (name, text) in FILES.items():
        (folder / name).write_text(text)
        assert tiny.hmrnn(f"train {kind} {folder / name} --out {folder / kind} {SMALL}") == 0
    return folder


@pytest.fixture
def runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place as working directory."""
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(run: Path) -> bytes:
    """Those of its newest state."""
    return (sorted(run.glob("last-*"))[-1] / "model.safetensors").read_bytes()


def table(shown: str) -> list[list[str]]:
    return [line.split("\t") for line in shown.splitlines()]


def test_runs_have_metrics_and_a_report(runs: Path) -> None:
    for kind in FILES:
        lines = [json.loads(line) for line in (runs / kind / "metrics.jsonl").read_text().splitlines()]
        valid = [line for line in lines if line["event"] == "valid"]
        assert len(valid) == 2
        assert all(0 <= line["error"] <= (1 if kind != "numbers" else 9) for line in valid)
        page = (runs / kind / "report.html").read_text()
        assert "<h2>Decisions</h2>" in page
        assert ("<h2>Answers</h2>" in page) == (kind in ("labels", "tags"))
        assert ("R² " in page) == (kind == "numbers")
        assert page.count('title="100.0%"') >= 1  # the segment that decided most
        assert (" from " in page.split("<h2>Decisions</h2>")[1]) == (kind in ("tags", "pairs"))


@pytest.mark.parametrize("kind", FILES)
def test_answers_to_the_training_file(runs: Path, kind: str, command: tiny.Command) -> None:
    line = f"predict -m {kind} {FILES[kind][0]}"
    assert len(command(line).splitlines()) == (20 if kind == "labels" else 12)
    assert ("MAE" in command.err) == (kind == "numbers")
    assert ("the most frequent: " in command.err) == (kind in ("labels", "tags"))
    found = command.lines(f"{line} --json")
    assert all(set(one) >= {"answer", "probabilities", "levels"} for one in found)
    out = command(f"{line} --explain")
    assert out.count("answer  ") == out.count("segments  ") == len(found)
    assert out.count(" from ") == (0 if kind in ("labels", "numbers") else sum(len(one["answer"]) for one in found))


def test_numbers_of_steps(empty: None, command: tiny.Command) -> None:
    rows = [f"{k},{t * k},{t}\n" for k in range(8) for t in range(3 + k % 3)]
    Path("steps.csv").write_text("series,x,number\n" + "".join(rows))
    command(f"train numbers steps.csv --out run {SMALL}")
    assert "R² " in Path("run/report.html").read_text()
    found = table(command("predict -m run steps.csv"))
    assert [len(line[0].split()) for line in found] == [3 + k % 3 for k in range(8)]
    assert float(found[0][1]) > 0
    assert f"of {len(rows)} answers" in command.err
    Path("same.csv").write_text("series,x,number\n1,0,2\n1,1,2\n1,2,2\n")
    command("predict -m run same.csv")
    assert "of 3 answers" in command.err
    command("export -m run --out half --half")
    assert " nats per answer after " in Path("half/README.md").read_text()
    for answer in (2, 2.0):  # of a table alone, whose column is constant, one number is that of all steps
        Path("one.jsonl").write_text(json.dumps({"series": [[0], [1]], "number": answer}))
        command.refused("predict -m run one.jsonl")


def test_series(empty: None, monkeypatch: Any, command: tiny.Command) -> None:
    rows = [f"2020-{t},{t % 5 + 0.5},{t * t % 7}\n" for t in range(60)]
    Path("power.csv").write_text("time,load,temp\n" + "".join(rows))
    how = f"--data.ahead 3 --data.window 12 {SMALL}"
    command(f"train series power.csv --out run {how}")
    assert "(load, temp)" in command.out + command.err
    assert Path("run/report.html").read_text().count("right would be ") == 1  # the validation part is one stretch
    shown = table(command("predict -m run power.csv"))
    assert shown[0] == ["series", "step", "load", "temp", "load ±", "temp ±"]
    assert [line[:2] for line in shown[1:]] == [["1", "1"], ["1", "2"], ["1", "3"]]
    turned = [f"{name},{t * t % 7},{t % 5 + 0.5}\n" for name in "ab" for t in range(60)]
    Path("turned.csv").write_text("series,temp,load\n" + "".join(turned))
    both = table(command("predict -m run turned.csv"))
    assert [line[1:] for line in both[1:]] == 2 * [line[1:] for line in shown[1:]]
    (found,) = command.lines("predict -m run power.csv --json")
    assert [f"{one[0]:.6g}" for one in found["answer"]] == [line[2] for line in shown[1:]]
    assert len(found["levels"][0]["ends"]) >= 1
    tiny.stdin(monkeypatch, "1\n2\n3\n")
    assert "2 channels" in command.refused("predict -m run")
    Path("gap.csv").write_text("load,temp\n1,2\n,3\n")
    assert "column load" in command.refused("predict -m run gap.csv")
    command(f"train series power.csv --out half {how} --train.epochs 1 --no-report")
    command("train series power.csv --out half --resume --train.epochs 2 --no-report")
    assert weights(Path("run")) == weights(Path("half"))
    assert hmrnn.HMForecaster.load("run").window == 12
    for flag in ("--model.bidirectional", "--model.attend segments", "--data.window 1", "--data.ahead 30"):
        said = command.refused(f"train series power.csv --out bad --data.ahead 10 {SMALL} {flag}")
        assert flag.split()[0] in said or "32" in said, said


def test_standard_input(runs: Path, monkeypatch: Any, command: tiny.Command) -> None:
    tiny.stdin(monkeypatch, "abab\ncd\n")
    rows = table(command("predict -m labels"))
    assert [row[2] for row in rows] == ["abab", "cd"]
    assert all(row[0] in ("ham", "spam") and 0 <= float(row[1]) <= 1 for row in rows)
    tiny.stdin(monkeypatch, "the dog\n")
    assert len(command("predict -m tags -").split("\t")[0].split()) == 2
    assert "the dog" in command.refused("predict -m tags 'the dog'")


@pytest.mark.parametrize("kind", FILES)
def test_a_run_resumes_exactly(runs: Path, tmp_path: Path, kind: str) -> None:
    line = f"train {kind} {FILES[kind][0]} --out {tmp_path} --no-report"
    assert tiny.hmrnn(f"{line} {SMALL} --train.epochs 1") == 0
    assert tiny.hmrnn(f"{line} --resume --train.epochs 2") == 0
    assert weights(tmp_path) == weights(runs / kind)


def test_other_commands_point_to_predict(runs: Path, command: tiny.Command) -> None:
    for line in ("segment -m labels abc", "generate -m labels ab", "evaluate -m labels"):
        assert "hmrnn predict" in command.refused(line)
    assert "english-small" in command.refused("predict -m english-small spam.tsv")
    command.refused("train labels spam.tsv --from labels --out tuned")
    command("export -m tags --out exported")
    command("predict -m exported words.conll")


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("labels", "--data.ahead 5"),
        ("labels", "--detectors.pull-weight 1"),
        ("labels", "--model.level 2 --model.attend segments"),
        ("tags", "--model.rnn hrnn"),
        ("labels", "--model.crf"),
        ("pairs", "--model.read-out max"),
        ("tags", "--model.attend segments"),
    ],
)
def test_bad_flags(runs: Path, kind: str, flags: str, command: tiny.Command) -> None:
    assert flags.split()[0] in command.refused(f"train {kind} {FILES[kind][0]} --out refused {SMALL} {flags}")
    assert not Path("refused").exists()


BAD = {
    "one.tsv": ("train labels", "ab\tx\ncd\tx\n", "one.tsv"),
    "gap.tsv": ("train labels", "ab\tx\n\ty\n", "sequence 2 of gap.tsv"),
    "new.tsv": ("predict -m labels", "ab\teggs\n", "'eggs'"),
    "new.txt": ("predict -m tags", "the good film\n", ".txt file"),
    "named.tsv": ("predict -m labels", "review\tsentiment\nab\tham\n", "'sentiment'"),
    "series.jsonl": ("predict -m labels", '{"text": "ab"}\n{"series": [1, 2]}\n', "sequence 2 of "),
    "empty.txt": ("predict -m labels", "\n", "empty.txt"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(runs: Path, name: str, command: tiny.Command) -> None:
    line, content, named = BAD[name]
    Path(name).write_text(content)
    assert named in command.refused(f"{line} {name}" + f" --out refused {SMALL}" * line.startswith("train"))
    assert not Path("refused").exists()
