"""Handwriting as an animated GIF: more ink in every frame, all of it in the last, and it begins again."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tiny_strokes
from hmrnn.kinds.strokes.drawing import save_drawing
from hmrnn.kinds.strokes.gif import SECONDS, STAYS, gif
from hmrnn.kinds.strokes.ink import Sheet
from refusals import refused

LINES = list(tiny_strokes.strokes(3))
DOT = np.array([[0, 0, 0], [10, 0, 0], [0, 5, 1], [4, 4, 1], [3, 0, 0], [3, 3, 1]], float)  # a hook, a dot, a dash


def frames(content: bytes) -> tuple[list[np.ndarray], list[int]]:
    """Every picture as it is shown (height, width, 3), and for how many milliseconds."""
    file = Image.open(io.BytesIO(content))
    assert file.format == "GIF"
    pictures, times = [], []
    for k in range(getattr(file, "n_frames", 1)):
        file.seek(k)
        pictures.append(np.asarray(file.convert("RGB")).astype(int))
        times.append(int(file.info["duration"]))
    return pictures, times


def inked(picture: np.ndarray) -> np.ndarray:
    """Where the picture is blue rather than white or grey."""
    return picture[..., 2] - picture[..., 0] > 20


def places(sheet: Sheet, shape: tuple[int, ...], strokes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The pixels (rows, columns) of points of a sheet."""
    points = np.concatenate(strokes) * shape[1] / sheet.width
    return points[:, 1].astype(int), points[:, 0].astype(int)


@pytest.mark.parametrize("lines", [LINES, LINES[:1], [DOT]], ids=["sheet", "line", "dot"])
def test_it_ends_in_the_whole_picture(lines: list[np.ndarray]) -> None:
    pictures, _ = frames(gif(lines, seconds=2))
    assert len(pictures) > 2
    first, last = pictures[0], pictures[-1]
    assert (first == 255).all()
    sheet = Sheet(lines)
    assert last.shape[0] / last.shape[1] == pytest.approx(sheet.height / sheet.width, rel=0.01)
    at = places(sheet, last.shape, [stroke for line in sheet.lines for stroke in line.ink])
    assert inked(last)[at].all()  # every point has its ink
    assert 0.001 < inked(last).mean() < 0.3  # and most of the paper has none


def test_ink_is_only_added_and_in_every_frame() -> None:
    pictures, _ = frames(gif(LINES, seconds=1))
    darkness = [765 - picture.sum(axis=-1) for picture in pictures]
    for before, after in itertools.pairwise(darkness):
        assert (after >= before).all()
        assert after.sum() > before.sum()


def test_the_whole_picture_does_not_depend_on_the_steps() -> None:
    """A stroke that is written in several goes has no gaps."""
    few, many = (frames(gif(LINES, seconds=seconds))[0] for seconds in (0.1, 8))
    assert len(few) < len(many)
    assert np.array_equal(few[-1], many[-1])


def test_lines_are_written_side_by_side_from_their_beginning() -> None:
    pictures, _ = frames(gif(LINES, seconds=2))
    half = inked(pictures[len(pictures) // 2])
    sheet = Sheet(LINES)
    for line in sheet.lines:
        begin, end = (places(sheet, half.shape, [stroke])[0:2] for stroke in (line.ink[0], line.ink[-1]))
        assert half[begin[0][0], begin[1][0]]
        assert not half[end[0][-1], end[1][-1]]


def test_it_takes_its_time_then_stays_and_begins_again() -> None:
    content = gif(LINES, seconds=0.5)
    _, times = frames(content)
    assert sum(times[:-1]) == pytest.approx(500, abs=60)
    assert times[-1] == 1000 * STAYS
    assert Image.open(io.BytesIO(content)).info["loop"] == 0  # for ever


def test_long_lines_have_a_bounded_number_of_frames() -> None:
    wave = np.column_stack([np.full(3000, 1.0), np.sin(np.arange(3000)), np.arange(3000) % 50 == 49])
    pictures, _ = frames(gif([wave], seconds=60))
    assert len(pictures) == 100


def test_a_tall_sheet_is_made_narrow() -> None:
    tall = np.array([[0, 0, 0], [1, 4000, 0], [1, 4000, 1]], float)
    last = frames(gif([tall] * 3, seconds=1))[0][-1]
    assert last.shape[0] == 2000
    assert inked(last).any()


def test_the_prime_is_grey_and_there_from_the_beginning() -> None:
    pictures, _ = frames(gif(LINES[:2], prime=LINES[2], seconds=1))
    sheet = Sheet(LINES[:2], LINES[2])
    for picture in (pictures[0], pictures[-1]):
        grey = (picture[..., 0] == picture[..., 1]) & (picture[..., 0] < 200)
        shown = grey | inked(picture)
        for line in sheet.lines:
            assert shown[places(sheet, picture.shape, line.prime)].all()
    assert not inked(pictures[0]).any()
    assert inked(pictures[-1]).any()


def test_the_name_of_a_file_decides_and_the_same_lines_give_the_same_file(tmp_path: Path) -> None:
    line = LINES[:1]
    assert save_drawing(line, tmp_path / "a.gif").read_bytes() == gif(line, seconds=SECONDS)
    assert save_drawing(line, tmp_path / "b.gif", seconds=2).read_bytes() == gif(line, seconds=2)


@pytest.mark.parametrize("seconds", [0, -1, 601, float("nan"), float("inf")])
def test_no_time_at_all_or_for_ever_is_refused(seconds: float) -> None:
    with refused():
        gif(LINES, seconds=seconds)


def test_nothing_is_not_drawn(tmp_path: Path) -> None:
    with refused():
        save_drawing([np.array([[0, 0, 1], [5, 5, 1.0]])], tmp_path / "a.gif")
    with refused():
        save_drawing(LINES, tmp_path / "nowhere" / "a.gif")
    assert not list(tmp_path.iterdir())
