"""Lines of handwriting drawn from a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from torch import Tensor

from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.strokes.mixture import POINT_SIZE, Halting, StrokeMixture
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.nn.checks import argument
from hmrnn.nn.context import Condition
from hmrnn.reading.read import Reader, read
from hmrnn.reading.sample import check_room, draw, seeded

LARGEST_STEP = 1000.0
"""The largest step of the pen, in deviations of the training steps; beyond it the model has lost control."""
MOST = 1000
"""The largest bias and temperature of strokes; 1/MOST is the smallest temperature above 0."""
MOST_LIFTS, FEWEST = 0.4, 20
"""A model that expects pen-ups after more than this share of the points has learned nothing: people lift the pen after
a tenth of the points or fewer, an untrained network expects it after half. Judged from at least FEWEST points."""
READ, READ_LINES = 500, 8
"""The points of a line, and the lines, from which that is judged."""


def write(
    model: HandwritingModel,
    scale: Scale,
    points: int,
    *,
    samples: int = 1,
    bias: float = 0.0,
    temperature: float = 1.0,
    prime: np.ndarray | None = None,
    seed: int | None = None,
    condition: Condition | None = None,
    progress: Progress = None,
) -> list[np.ndarray]:
    """Lines of handwriting, each (points, 3): Δx, Δy and 1 after the last point of a stroke, in the units of the data.

    A model that predicts halts ends each line by itself, after at most ``points``.

    Args:
        model: the network; it runs as in ``eval()``.
        scale: the scale of its training data.
        points: the length of each line, or the largest length.
        samples: the number of lines.
        bias: 0 varies as the training data do, larger values write neater (Graves, 2013, section 5.4).
        temperature: below 1 safer, above 1 wilder.
        prime: (n, 3) steps of a real line to read first; the lines continue it, and do not contain it.
        seed: the same seed gives the same lines; None gives different ones each time.
        condition: the condition and the time of the lines, for a model that takes them.
        progress: called with the points that are drawn, and ``points``.
    """
    check_room(model, samples, points, "points")
    argument("points", points, Count)
    check_strokes(bias, temperature)
    if prime is not None and (prime.ndim != 2 or prime.shape[1] != 3 or len(prime) == 0):
        raise InputError(f"prime must have shape (n, 3) with at least one point; got {prime.shape}")
    read_first = np.zeros((1, 3)) if prime is None else prime  # a line begins with the step (0, 0)
    start = model.as_input(scale.encode(read_first))[:, None].expand(-1, samples, -1)  # (n, B, 3)
    drawn: list[np.ndarray] = []
    for step in draw_line(model, start, points, seed=seed, condition=condition, bias=bias, temperature=temperature):
        drawn.append(step)
        if progress is not None:
            progress(len(drawn), points)
    steps = np.stack(drawn, axis=1)  # (B, points, 3)
    return [scale.decode(line[np.isfinite(line[:, 0])]) for line in steps]


def draw_line(
    model: HandwritingModel, start: Tensor, points: int, *, seed: int | None, condition: Condition | None, **how: Any
) -> Iterator[np.ndarray]:
    """The steps (B, 3) of lines that follow ``start`` (n, B, 3), as the network reads them; at most ``points``.

    A line that has ended by itself has NaN.
    """
    over, reader = np.zeros(start.shape[1], bool), Reader(model, start.shape[1], condition)
    for step in itertools.islice(draw(reader, start, seeded(seed), **how), points):
        found = check_jump(step[:, :POINT_SIZE], how.get("temperature", 1.0)).numpy().copy()
        found[over] = np.nan
        yield found
        if model.config.halt and (step[:, POINT_SIZE - 1 :] > 0).any():
            over |= model.ends(step, reader.state, condition).numpy()
            if over.all():
                return


def check_strokes(bias: float, temperature: float) -> None:
    """InputError unless strokes can be drawn with this bias and temperature."""
    for name, value in (("bias", bias), ("temperature", temperature)):
        argument(name, value, Annotated[float, Meta(ge=0, le=MOST)])
    if 0 < temperature < 1 / MOST:
        raise InputError(f"temperature must be 0 or at least {1 / MOST:g}; got {temperature}")


def check_jump(step: Tensor, temperature: float = 1.0) -> Tensor:
    """The drawn steps (B, 3); InputError if one is too large for a network to read."""
    largest = float(step[:, :2].abs().max())
    if largest > LARGEST_STEP:
        reason = "this model is untrained or has diverged; use another checkpoint, or a higher bias"
        if temperature > 1:
            reason = f"temperature {temperature:g} is too much for this model; lower it"
        raise InputError(f"the pen jumped by {largest:.3g} deviations of the training steps: {reason}")
    return step


def scribble(model: HandwritingModel, scale: Scale, lines: list[np.ndarray]) -> str | None:
    """A warning if the model that wrote ``lines`` has not learned when to lift the pen; else None.

    It is judged by what the model expects: in the lines, a bias or a low temperature may hide it.
    """
    shortest = min([READ, *map(len, lines)])
    points = np.stack([line[:shortest] for line in lines[:READ_LINES]], axis=1)  # (T, B, 3): some, to save memory
    if points[..., 0].size < FEWEST:
        return None
    [found] = read(model, [model.as_input(scale.encode(points))])
    assert isinstance(found.prediction, StrokeMixture | Halting)
    lifts = float(found.prediction.pen.sigmoid().mean())
    if lifts <= MOST_LIFTS:
        return None
    return (
        f"this model expects the pen to be lifted after {lifts:.0%} of the points, which is scribble: it is untrained "
        "or has diverged; train it longer, or use another checkpoint"
    )
