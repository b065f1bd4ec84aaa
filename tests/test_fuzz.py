"""Damaged files from a fixed seed: what comes out is the package's own error, or a use of what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import attack
import fuzz


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_damaged_input_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    outcome = attack.attack(fuzz.TARGETS[name](tmp_path), 80, seed=1)
    assert outcome.inputs == 80
    assert outcome.refused > 16
