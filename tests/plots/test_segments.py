"""The figure of coloured segments: a block per segment and line, the text once per level."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from matplotlib.patches import FancyBboxPatch

from hmrnn import Segmentation
from hmrnn.plots.text import figure3, segments
from refusals import refused


def found(text: str, ends: list[set[int]]) -> Segmentation:
    boundaries = np.array([[t + 1 in level for level in ends] for t in range(len(text))])
    shape = (len(text), len(ends))
    operations = np.zeros((len(text), len(ends) + 1), np.int64)
    norms = np.ones((len(text), len(ends) + 1), np.float32)
    return Segmentation(
        tuple(text), boundaries, np.full(shape, 0.5, np.float32), operations, norms, np.ones(len(text), np.float32)
    )


def test_a_block_per_segment_and_the_text_per_level() -> None:
    figure = segments(found("the cat sat\n", [{4, 8}, {8}]))
    (axes,) = figure.axes
    assert sum(isinstance(patch, FancyBboxPatch) for patch in axes.patches) == 3 + 2
    shown = [text.get_text() for text in axes.texts]
    assert shown.count("level 1") == shown.count("level 2") == 1
    assert "".join(text for text in shown if not text.startswith("level")) == "thecatsat⏎" * 2
    first, second = axes.patches[:2]
    assert first.get_facecolor() != second.get_facecolor()


def test_segments_go_on_in_the_next_line() -> None:
    figure = segments(found("abcdef", [{5}]), columns=3)
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    assert len(widths) == 3  # abc, de and f
    assert widths[0] > widths[1] > widths[2]


def test_tokens_stand_beside_each_other() -> None:
    tokens = dataclasses.replace(found("abcdef", [{3}]), symbols=("C4", "E4", "G4", "F#4", "A4", "C5"))
    figure = segments(tokens, columns=14)  # four tokens of three characters
    boxes = [text.get_window_extent() for text in figure.axes[0].texts[1:]]
    rows = [boxes[:4], boxes[4:]]
    assert all(a.x1 < b.x0 for row in rows for a, b in itertools.pairwise(row))
    assert boxes[4].x0 < boxes[3].x0


def test_too_large_for_a_figure() -> None:
    tokens = dataclasses.replace(found("a" * 2000, [{1}]), symbols=("w" * 50,) * 2000)
    for draw in (segments, figure3):
        with refused():
            draw(tokens if draw is segments else found("a" * 50_000, [{1}]))
