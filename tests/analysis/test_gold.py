"""Gold ends of a file of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hmrnn.analysis import gold
from refusals import refused


def perfect(ends: list[int], length: int) -> gold.Found:
    """Two levels: one found everything, the other nothing."""
    boundaries = np.zeros((length, 2), bool)
    boundaries[np.array(ends) - 1, 0] = True
    return gold.Found(boundaries, *np.zeros((2, length), np.float32))


def test_gold_ends_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ends.txt"
    path.write_text("7\n\n3  # a comment\n# another\n7\n")
    assert gold.read_ends(path, 10).tolist() == [3, 7]
    row = gold.against_ends(perfect([3, 7], 10), gold.read_ends(path, 10))[0]
    assert row.scores[0].f1 == 1
    for bad in ("0", "3\n11", "x", "# none", "9" * 5000):
        path.write_text(bad)
        with refused():
            gold.read_ends(path, 10)
    with refused():
        gold.read_ends(tmp_path / "none", 10)


def test_an_endless_file_of_gold_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmrnn.utils.inputs.LARGEST", 1 << 20)
    with refused():
        gold.read_ends("/dev/zero", 10)
