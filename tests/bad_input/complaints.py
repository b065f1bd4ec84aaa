"""A command that must be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny

FLAGS = tiny.flags(tiny.config(epochs=1, batch_size=16, length=10))
BEST = "runs/story/best-00000005"


def tree(directory: Path) -> dict[str, bytes | None]:
    found = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in found}


def complaint(work: Path, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must be refused; what it said."""
    before = tree(work)
    status = tiny.hmrnn(*arguments)
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert err.startswith("hmrnn: ")
    assert "Traceback" not in err
    assert tree(work) == before
    return err.removeprefix("hmrnn: ").strip()
