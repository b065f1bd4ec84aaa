"""The scripts in benchmarks/: what they count, print and write."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_page_names_every_script_and_no_other() -> None:
    page, scripts = (BENCHMARKS / "README.md").read_text(), {path.name for path in BENCHMARKS.glob("*.py")}
    assert set(re.findall(r"^\| `(\w+\.py)` \|", page, re.MULTILINE)) == scripts
    assert set(re.findall(r"python benchmarks/(\S+)", page)) <= scripts


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where the CPU has no bfloat16 of its own
def test_flips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """float32 turns no decision at this size; bfloat16 turns some, and others follow from them."""
    flips = tiny.script(BENCHMARKS / "flips.py")
    monkeypatch.setattr(flips, "ENGINES", {"cpu": {"float32": "sparse", "bf16": "sparse"}})
    monkeypatch.setattr(flips, "load_corpus", lambda config: tiny.corpus(valid=3000))
    tiny.run(tmp_path / "run", tiny.config(epochs=1, on_copy="hold"))
    shape = ["--hidden", "24", "--batch", "100", "--steps", "15", "--draws", "2"]
    monkeypatch.setattr(sys, "argv", ["flips", *shape, "--model", str(tmp_path / "run"), "--out", str(tmp_path / "a")])
    flips.main()
    assert "free: disagree" in capsys.readouterr().out
    record = json.loads((tmp_path / "a.json").read_text())
    found = {(m["weights"], m["precision"]): m for m in record["measurements"]}
    names = ("fresh", "fresh, layer norm", "trained, run")
    assert list(found) == [(name, precision) for name in names for precision in ("float32", "bf16")]
    for (_, precision), m in found.items():
        assert (m["decisions"], m["sequences"]) == (3000, 200)
        if precision == "float32":
            assert m["one_step_flip_rates"] == m["free_running_disagreement"] == [0.0, 0.0]
            assert m["largest_error_of_probability"] < 1e-5
            assert m["sequences_without_a_flip"] == 200
            assert m["median_steps_before_first_flip"] is None
    for name in names[:2]:
        m = found[name, "bf16"]
        assert 1e-4 < m["largest_error_of_probability"] < 0.1
        assert 0 < sum(m["one_step_flip_rates"]) < 0.1
        assert 0 < sum(m["free_running_disagreement"]) < 0.5
        assert m["sequences_without_a_flip"] < 200


def test_flips_are_counted_from_their_first_step() -> None:
    flips = tiny.script(BENCHMARKS / "flips.py")
    exact = flips.Exact(None, torch.ones(4, 3, 2), None, None)
    free = torch.zeros(4, 3, 2, dtype=torch.bool)
    free[1, 0, 1] = free[3, 0, 0] = free[0, 2, 0] = True
    found = flips.Flips("fresh", "sparse", "float32")
    found.add(exact, torch.zeros_like(free), free, 0.1)
    found.add(exact, free, torch.zeros_like(free), 0.0)
    assert found.first == [1, 4, 0, 4, 4, 4]
    record = found.to_dict()
    assert record["sequences_without_a_flip"] == 4
    assert record["boundary_rates"] == [1.0, 1.0]
    assert record["free_running_disagreement"] == record["one_step_flip_rates"] == [2 / 24, 1 / 24]
    assert record["median_steps_before_first_flip"] is None


def test_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    length, started = tiny.script(BENCHMARKS / "length.py"), list[list[str]]()

    def here(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """What the process of one length prints, from this one."""
        started.append(command[2:])
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", command[1:])
            length.main()
        return subprocess.CompletedProcess(command, 0, capsys.readouterr().out)

    monkeypatch.setenv("HMRNN_COMMIT", "a1b2c3d")  # or git would be asked, by a process, too
    monkeypatch.setattr(length.subprocess, "run", here)
    shape = ["--hidden", "8", "--batch", "2"]
    monkeypatch.setattr(sys, "argv", ["length", "--lengths", "100,200", *shape, "--out", str(tmp_path / "length")])
    length.main()
    assert [command[:6] for command in started] == [["--one", steps, *shape] for steps in ("100", "200")]
    assert "µs a step" in capsys.readouterr().out
    record = json.loads((tmp_path / "length.json").read_text())
    assert record["case"] == "B=2 H=8, 3 layers, layer norm, float32 on cpu"
    for m, steps in zip(record["measurements"], (100, 200), strict=True):
        assert m["steps"] == steps
        assert m["training_s"] > 0
        assert m["evaluation_s"] > 0
        assert m["evaluation_peak_mib"] > 50


def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A server of its own is asked, and ended."""
    page = tiny.script(BENCHMARKS / "page.py")
    tiny.run(tmp_path / "run", tiny.config(epochs=1))
    (tmp_path / "text.txt").write_text(tiny.text(50))
    monkeypatch.setattr(page, "TEXT", tmp_path / "text.txt")
    options = ["--model", tmp_path / "run", "--lengths", "10,80", "--repeats", "2", "--out", tmp_path / "page"]
    monkeypatch.setattr(sys, "argv", ["page", *map(str, options)])
    page.main()
    assert "a symbol more, ms" in capsys.readouterr().out
    measured = json.loads((tmp_path / "page.json").read_text())["measured"]
    assert [m["symbols"] for m in measured] == [10, 80]
    for m in measured:
        assert 0 < m["first_s"] <= m["whole_s"]
        assert m["one_more_s"] > 0


def test_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A row per network, with the scores of the held-out sentences."""
    tasks = tiny.script(BENCHMARKS / "tasks.py")
    (tmp_path / "tags.txt").write_text("the O\ncat Thing\nsat O\n. O\n" * 10)
    small = ["--hidden-size", "4", "--num-layers", "2", "--epochs", "1", "--tokens", "--out", str(tmp_path / "rows")]
    monkeypatch.setattr(sys, "argv", ["tasks", "tags", str(tmp_path / "tags.txt"), *small])
    tasks.main()
    assert "span_f1" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [row["rnn"] for row in rows] == ["hm-lstm", "lstm"]
    assert all(row["all_outside"] == 0.75 and 0 <= row["accuracy"] <= 1 for row in rows)


def test_stream_frontier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tiny.script(BENCHMARKS / "stream_frontier.py")
    monkeypatch.setattr(script, "LSTMS", [4])
    monkeypatch.setattr(script, "HIERARCHIES", [(4, 6, 6)])
    threads = str(torch.get_num_threads())
    given = ["--steps", "8", "--repeats", "2", "--threads", threads, "--out", str(tmp_path / "a")]
    monkeypatch.setattr(sys, "argv", ["stream_frontier", *given])
    script.main()
    record = json.loads((tmp_path / "a.json").read_text())
    assert [row["model"] for row in record["found"]] == ["LN-LSTM 3x4", "LN-HM-LSTM 4/6/6"]
    assert all(len(row["all_ms"]) == 2 for row in record["found"])
