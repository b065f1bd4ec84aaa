"""The scripts in benchmarks/: what they count, print and write."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tiny

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_page_names_every_script_and_no_other() -> None:
    page, scripts = (BENCHMARKS / "README.md").read_text(), {path.name for path in BENCHMARKS.glob("*.py")}
    assert set(re.findall(r"^\| `(\w+\.py)` \|", page, re.MULTILINE)) == scripts
    assert set(re.findall(r"python benchmarks/(\S+)", page)) <= scripts


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_every_script_explains_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    if "argparse" in path.read_text():
        with pytest.raises(SystemExit, match="0"):
            tiny.script(path).main()
        assert "usage:" in capsys.readouterr().out


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


def test_movements_of_the_pen_are_a_text() -> None:
    """Right twice, on in that direction, down, a lift, a long way back without ink, one step down."""
    steps = [
        (0, 0, 0),
        (1, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
        (0, 0, 0),
        (0, 1, 0),
        (0, 1, 0),
        (0, 1, 1),
        (-9, 0, 0),
        (0, 1, 1),
    ]
    text, ends = tiny.script(BENCHMARKS / "letters.py").movements(np.array(steps, float))
    assert list(zip(text, ends)) == [("a", 5), ("b", 8), ("k", 9), ("b", 10)]
