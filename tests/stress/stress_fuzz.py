"""Damaged files, command lines and requests: ten thousand of each kind, or as many as HMRNN_FUZZ_MINUTES allow."""

from __future__ import annotations

import dataclasses
import os
import resource
from pathlib import Path

import page_fuzz
import pytest
from pages import BYTES, CHARACTERS, opened, save
from recorded import Record

import attack
import fuzz
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import open_shelf

INPUTS = int(os.environ.get("HMRNN_FUZZ_INPUTS", "10000"))
SECONDS = 60 * float(os.environ.get("HMRNN_FUZZ_MINUTES", "inf")) / (len(fuzz.TARGETS) + 1)
SEED = int(os.environ.get("HMRNN_FUZZ_SEED", "20000"))


def note(record: Record, outcome: attack.Outcome, before: int) -> None:
    assert outcome.inputs
    record["inputs"] = outcome.inputs
    record["used"] = outcome.taken
    record["refused in one line"] = outcome.refused
    record["kinds of refusal"] = len(outcome.reasons)
    record["growth of peak memory, MB"] = round((peak() - before) / 1024, 1)
    record["seed"] = SEED
    for reason in sorted(outcome.reasons)[:200]:
        record.say(f"refused: {reason}")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_fuzz(record: Record, tmp_path: Path, name: str) -> None:
    """Damaged files: only the package's own error comes out, within 1 GB of memory and 20 seconds for each."""
    target, before = fuzz.TARGETS[name](tmp_path), peak()
    note(record, attack.attack(target, INPUTS, SEED, SECONDS), before)


def test_fuzz_requests(record: Record, tmp_path: Path) -> None:
    """Damaged requests to the page: an answer that its interface describes, within 1 GB and 20 seconds for each."""
    for k, (name, reads) in enumerate({"a": CHARACTERS, "b": BYTES}.items()):
        save(tmp_path / name, reads, k)
    save(tmp_path / "pen", Scale((0.5, 0.0), (2.0, 3.0)), 2, "strokes")
    shelf = open_shelf([tmp_path / name for name in ("a", "a", "b", "pen")])
    limits = dataclasses.replace(Limits(), text=100, length=20, points=20, body=4000)
    before = peak()
    with opened(shelf, limits) as client:
        outcome = attack.attack(page_fuzz.requests(client), INPUTS, SEED, SECONDS)
    note(record, outcome, before)
