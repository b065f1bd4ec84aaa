"""Strokes as pictures: what lies where, self-contained SVG, animation, and refusal to draw nothing."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tiny_strokes
from hmrnn.kinds.strokes import ink
from hmrnn.kinds.strokes.drawing import save_drawing
from hmrnn.kinds.strokes.figures import writing
from refusals import refused

SVG = "{http://www.w3.org/2000/svg}"
LINE = np.array([[0, 0, 0], [10, 0, 0], [0, 5, 1], [4, 4, 1], [3, 0, 0], [3, 3, 1]], float)  # a hook, a dot, a dash


def paths(text: str, kind: str = "ink") -> list[np.ndarray]:
    """The points of the paths of a class, in the order of the document."""
    found = [element for element in ET.fromstring(text).iter(f"{SVG}path") if element.get("class") == kind]
    return [np.array(re.findall(r"(-?[\d.]+),(-?[\d.]+)", element.get("d", "")), float) for element in found]


def test_strokes_are_split_where_the_pen_is_lifted() -> None:
    parts = ink.polylines(LINE)
    assert [part.tolist() for part in parts] == [
        [[0, 0], [10, 0], [10, 5]], [[14, 9]], [[17, 9], [20, 12]],
    ]  # fmt: skip
    assert len(ink.polylines(LINE[:5])) == 3  # a stroke that is not finished counts, too


def test_svg_shows_every_point_inside_the_picture() -> None:
    lines = list(tiny_strokes.strokes(3))
    text = ink.svg(lines)
    drawn = paths(text)
    assert sum(map(len, drawn)) >= sum(map(len, lines))
    root = ET.fromstring(text)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    points = np.concatenate(drawn)
    assert (points > 0).all()
    assert (points[:, 0] < width).all()
    assert (points[:, 1] < height).all()
    first, scale = ink.polylines(lines[0])[0], width / ink.Sheet(lines).width
    moves = scale * np.diff(first, axis=0)  # y stays downwards
    np.testing.assert_allclose(np.diff(drawn[0], axis=0), moves, atol=0.011)


def test_strokes_may_be_in_any_unit() -> None:
    tiny_units = [line * [1e-3, 1e-3, 1] for line in tiny_strokes.strokes(2)]
    assert ink.svg(tiny_units) == ink.svg(list(tiny_strokes.strokes(2)))


def test_lines_do_not_overlap() -> None:
    sheet = ink.Sheet(list(tiny_strokes.strokes(4)))
    spans = [np.concatenate(line.ink)[:, 1] for line in sheet.lines]
    for above, below in itertools.pairwise(spans):
        assert above.max() < below.min()


def test_a_dot_is_drawn() -> None:
    dot = paths(ink.svg([LINE]))[1]
    assert len(dot) == 2
    assert (dot[0] == dot[1]).all()


def test_the_prime_comes_before_each_line_in_its_place() -> None:
    sheet = ink.Sheet([LINE, LINE], prime=LINE)
    for line in sheet.lines:
        np.testing.assert_allclose(line.ink[0][0] - line.prime[-1][-1], LINE[0, :2])
    assert len(paths(ink.svg([LINE, LINE], prime=LINE), "prime")) == 6


def test_animation_writes_one_stroke_after_the_other() -> None:
    text = ink.svg([LINE], seconds=6)
    times = [tuple(map(float, pair)) for pair in re.findall(r"duration:([\d.]+)s;animation-delay:([\d.]+)s", text)]
    assert times == [(3, 0), (1, 3), (2, 4)]
    assert "@keyframes" in text
    assert "animation" not in ink.svg([LINE])


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_svg_needs_nothing_from_elsewhere(seconds: float) -> None:
    text = ink.svg([LINE], seconds=seconds)
    assert not re.search(r"href|src=|url\(|@import|<script", text)
    assert re.findall(r'"(https?://[^"]*)"', text) == ["http://www.w3.org/2000/svg"]


def test_png_and_svg_have_the_same_proportions() -> None:
    figure = writing([LINE])
    sheet = ink.Sheet([LINE])
    width, height = figure.get_size_inches()
    assert width / height == pytest.approx(sheet.width / sheet.height, rel=1e-6)
    drawn = sum(len(collection.get_segments()) for collection in figure.axes[0].collections)
    assert drawn == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (np.array([[0, 0, 0], [np.nan, 0, 1.0]]), "not finite"),
        (np.array([[0, 0, 0], [np.inf, 0, 1.0]]), "not finite"),
        (np.array([[0, 0, 1], [5, 5, 1], [5, 0, 1.0]]), "empty picture"),
        (np.array([[0, 0, 0], [0, 0, 0], [0, 0, 1.0]]), "empty picture"),
    ],
    ids=["nan", "infinity", "pen always up", "no movement"],
)
def test_nothing_is_not_drawn(line: np.ndarray, message: str, tmp_path: Path) -> None:
    with refused():
        save_drawing([LINE, line], tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with refused():
        save_drawing([LINE], tmp_path / "a.txt")
    with refused():
        save_drawing([LINE], tmp_path / "a.png", seconds=3)
    with refused():
        save_drawing([LINE], tmp_path / "nowhere" / "a.svg")
    with refused():
        ink.svg([])
