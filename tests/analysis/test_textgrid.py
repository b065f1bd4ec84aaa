"""The example that writes segments with times for Praat and ELAN."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import hmrnn
import tiny


def test_segments_are_written_with_the_times_of_their_symbols(tmp_path: Path) -> None:
    example = tiny.script(tiny.ROOT / "examples" / "textgrid.py")
    text, model = 'The "boats" came back.', hmrnn.load("novel-small")
    ends = [0.25 * (k + 1) for k in range(len(text))]
    with open(tmp_path / "symbols.csv", "w", newline="") as file:
        csv.writer(file).writerows(zip(text, ends))
    for name in ("out.TextGrid", "out.csv"):
        example.main("novel-small", str(tmp_path / "symbols.csv"), str(tmp_path / name))
    found = model.segment(text)
    grid = (tmp_path / "out.TextGrid").read_text()
    tiers = re.split(r"item \[\d+\]:\n", grid)[1:]
    assert len(tiers) == found.levels == 2
    with open(tmp_path / "out.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    for level, tier in enumerate(tiers, start=1):
        intervals = re.findall(r'xmin = (\S+)\nxmax = (\S+)\ntext = "(.*)"\n', tier)
        spans = [(0.25 * start, 0.25 * end) for start, end in found.spans(level)]
        assert [(float(start), float(end)) for start, end, _ in intervals] == spans
        assert [label.replace('""', '"') for *_, label in intervals] == found.segments(level)
        assert [(float(row["start"]), float(row["end"])) for row in rows if row["level"] == str(level)] == spans
    with pytest.raises(ValueError, match="times"):
        example.timed(found, ends[1:])
