"""A model of strokes and a request -> the slices of an answer, as in :mod:`hmrnn.web.parts`."""

from __future__ import annotations

import math
import time

import numpy as np

from hmrnn.analysis.record import rounded
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.mixture import POINT_SIZE
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.kinds.strokes.write import check_jump, scribble
from hmrnn.nn.predictor import telling
from hmrnn.reading.read import Reader
from hmrnn.reading.read import read as read_chunks
from hmrnn.reading.sample import seeded
from hmrnn.web.bodies import Part
from hmrnn.web.parts import CHUNK, SLICE, Chunk, Chunks, Rows, found_in, last_line, line
from hmrnn.web.work import Slices

LONGEST = 10_000  # how many times longer than the strokes of a drawing a step may be


def fit(steps: np.ndarray, scale: Scale) -> np.ndarray:
    """Steps (T, 3) of a drawing, scaled to the data of the model: the root mean square of those with the pen down."""
    steps = np.array(steps, np.float64).reshape(-1, 3)
    steps[0, :2] = 0  # the position of the drawing does not matter
    down = steps[1:][steps[:-1, 2] < 0.5, :2]
    largest = float(np.abs(down).max(initial=0.0))
    if largest == 0:
        raise InputError("a drawing needs a stroke of two points or more in different places; got none")
    if np.abs(steps[:, :2]).max() > LONGEST * largest:
        raise InputError(f"a step of the drawing is more than {LONGEST:,} times as long as those with the pen down")
    length = math.sqrt(np.square(down / largest).mean())
    steps[:, :2] = steps[:, :2] / largest * (math.sqrt(np.square(scale.deviation).mean()) / length)
    return steps.astype(np.float32)


def read_strokes(model: StrokeModel, drawing: np.ndarray, condition: str | None = None) -> Chunks:
    """What the network finds in a drawing; a symbol is a point, shown as in ``model.segment``."""
    steps = fit(drawing, model.scale)
    points = model.network.as_input(model.scale.encode(steps))[:, None]  # (T, 1, 3)
    following = points.roll(-1, dims=0).split(CHUNK)  # nothing follows the last point
    bits, told = [math.nan], model.tell(condition, steps=len(points))
    for k, made in enumerate(read_chunks(model.network, points.split(CHUNK), told=told)):
        here = steps[k * CHUNK : (k + 1) * CHUNK]
        bits += (-made.prediction.log_prob(following[k])[:, 0] / math.log(2)).tolist()
        found = found_in(model, model.scale.pieces(here), made, bits[: len(here)])
        yield Chunk(found, line(Part(k * CHUNK, found.record())), made.state, None)
        bits = bits[len(here) :]


def write_strokes(
    model: StrokeModel, points: int, *, bias: float, seed: int | None, condition: str | None = None
) -> Slices:
    """A line that the network generates; the same as ``model.generate`` for a seed, with what its layers did."""
    began = time.monotonic()
    generator = seeded(seed)
    told = model.tell(condition, steps=points)
    reader = Reader(model.network, told=told)
    reader.read(model.network.as_input(model.scale.encode(np.zeros((1, 3)))))  # each line begins with the step (0, 0)
    rows = Rows(reader)
    steps: list[np.ndarray] = []
    written: list[np.ndarray] = []
    slice_began, position, ended = time.monotonic(), 0, False
    while not ended:
        step = reader.predict().sample(generator, bias=bias)  # (1, 3), or (1, 4) with a halt
        drawn = check_jump(step[:, :POINT_SIZE]).numpy()
        ended = position == points - 1 or (model.config.model.halt and bool(step[0, POINT_SIZE] > 0))
        reader.read(model.network.as_input(drawn))
        rows.add(math.nan)
        steps.append(model.scale.decode(drawn)[0])
        if time.monotonic() - slice_began > SLICE or ended:
            found = rows.found(model.scale.pieces(np.stack(steps)))
            part = Part(position + 1 - len(steps), found.record(), steps=rounded(np.stack(steps)))
            yield line(part)
            written += steps
            steps = []
            slice_began = time.monotonic()
        position += 1
    with telling(model.network, told):
        warning = scribble(model.network, model.scale, [np.stack(written)])
    yield last_line(position, began, warning)
