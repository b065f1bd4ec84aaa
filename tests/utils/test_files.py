"""Files that are written whole or not at all: what is there before stays until then, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import attack
from hmrnn.kinds.strokes.drawing import save_drawing
from hmrnn.utils import files
from refusals import refused


def test_a_file_takes_the_place_of_another_when_it_is_complete_and_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    assert files.write(path, b"old") == path
    done: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("fsync"), sync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b)))
    with files.replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert done == ["fsync", "replace"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_file_that_is_not_completed_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    path = files.write(tmp_path / "a.txt", b"old")

    def half() -> None:
        with files.replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises((KeyboardInterrupt, OSError)):
        half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_until_then_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with files.replacing(tmp_path / "a.txt", temporary=tmp_path / "work" / "whole") as file:
        file.write(b"new")
        assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert not list((tmp_path / "work").iterdir())


def test_with_advice_it_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "a.svg"
    with pytest.raises(NotADirectoryError):
        files.write(below, b"")
    with refused():
        files.write(below, b"", advice="think")
    with refused():
        files.write(tmp_path / "nowhere" / "a.svg", b"", advice=files.ADVICE)


def test_a_picture_below_a_file(tmp_path: Path) -> None:
    """Clearing up fails there, too, and must not hide why."""
    (tmp_path / "file").write_text("")
    with refused():
        save_drawing([np.array([[0, 0, 0], [1, 1, 1.0]])], tmp_path / "file" / "a.svg")


def test_content_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert files.content(path, 5, 5) == b"12345"
    assert files.content(path, 4) is None
    assert files.content(path, 9, 6) is None
    with pytest.raises(OSError, match="not a regular file"):
        files.content(tmp_path, 5)
    os.truncate(path, 1 << 33)  # no bytes on the disk
    with attack.bounded_memory(), pytest.raises(OSError, match="8,589,934,592"):
        files.content(path, 1 << 40)
