"""The page of a handwriting model: the segments of a drawing, and lines as they are written."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from msgspec import Meta

from hmrnn.analysis.record import rounded
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.model import MOST_POINTS, StrokeModel
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.kinds.strokes.transcripts import TranscriptModel
from hmrnn.kinds.strokes.write import draw_line, scribble
from hmrnn.nn.context import Condition
from hmrnn.nn.predictor import conditioned
from hmrnn.reading.page import Action, Page, Part, Parts, Request, Seed
from hmrnn.reading.read import follow, read

LONGEST = 10_000  # how many times longer than the strokes of a drawing a step may be
CHUNK, WRITTEN = 64, 16  # points that are read, and written, at a time
Length = Annotated[float, Meta(ge=-1e6, le=1e6)]
Says = Annotated[str, Meta(max_length=60)]


class DrawingRequest(Request, kw_only=True):
    """A drawing as steps: Δx, Δy (y downwards), and 1 where the pen is lifted after the point."""

    bounds: ClassVar = {"steps": "points"}
    steps: Annotated[list[tuple[Length, Length, Literal[0, 1]]], Meta(min_length=2)]
    says: Says = ""
    """What is drawn, for a model that writes texts."""


class LineRequest(Request, kw_only=True):
    """A line of handwriting to generate, by a model that writes texts: of ``text``, in the hand of ``style``."""

    bounds: ClassVar = {"points": "points"}
    text: Says = ""
    style: DrawingRequest | None = None
    points: Annotated[int, Meta(ge=1)] = 400
    bias: Annotated[float, Meta(ge=0, le=10)] = 0.5
    seed: Seed = None


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


class StrokePage(Page):
    static = Path(__file__).parent / "static"
    model: StrokeModel

    def read(self, wanted: DrawingRequest) -> Parts:
        """What the network finds in a drawing; a symbol is a point, shown as in ``model.segment``."""
        network, scale = self.model.network, self.model.scale
        points = network.as_input(scale.encode(fit(np.asarray(wanted.steps), scale)))[:, None]  # (T, 1, 3)
        given = self._told(wanted.says, wanted.condition, len(points))
        for found, _ in follow(network, points.split(CHUNK), scale.pieces, condition=given):
            yield Part(found)
        return {}

    def _told(self, text: str, condition: str | None, steps: int) -> Condition:
        """What the network is told of a line; InputError if it is to have a text and there is none."""
        if self.model.network.window is None:
            return self.model.as_condition(condition, steps=steps)
        return self.model.to_write(self.model.as_texts([text] if text.strip() else []), condition)

    def write(self, wanted: LineRequest) -> Parts:
        """A line that the network generates, the same as the model's for a seed, with what its layers did.

        Of a text, each part has the letters that its points belong to.
        """
        network, scale, style = self.model.network, self.model.scale, wanted.style
        first = np.zeros((1, 3)) if style is None else fit(np.asarray(style.steps), scale)
        before = "" if style is None else f"{style.says.strip()} "
        given = self._told(before + wanted.text if wanted.text.strip() else "", wanted.condition, wanted.points)
        points = min(wanted.points, MOST_POINTS * len(wanted.text)) if network.window else wanted.points
        start = network.as_input(scale.encode(first))[:, None]  # each line begins with the step (0, 0)
        [made] = read(network, [start], condition=given)
        drawn = draw_line(network, start, points, seed=wanted.seed, condition=given, bias=wanted.bias)
        chunks = (
            network.as_input(np.stack(some)) for some in iter(lambda: list(itertools.islice(drawn, WRITTEN)), [])
        )  # each (n, 1, 3)
        written, more = [], dict[str, Any]()
        shown, place = network.letters(start, given) if network.window else (None, None)
        after = given.after(len(first), network.config.time)
        for found, each in follow(network, chunks, scale.pieces, made.state, condition=after):
            written.append(scale.decode(each.steps[:, 0].cpu().numpy()))
            if shown is not None:
                last, (shown, place) = shown[-1:], network.letters(each.steps, given, place)
                shown = shown.clamp(min=last)
                letters = torch.cat([last, shown[:-1]])[:, 0] - len(before)
                more = {"letters": letters.clamp(min=0).tolist()}
            yield Part(found, more={"steps": rounded(written[-1]), **more})
        with conditioned(network, given):
            warning = scribble(network, scale, [np.concatenate(written)])
        return {} if warning is None else {"warning": warning}

    def about(self) -> dict[str, Any]:
        return {"writes": self.model.network.window is not None}

    actions: ClassVar = {
        "read": Action(read, DrawingRequest),
        "segmentation": Action(read, DrawingRequest, "whole"),
        "write": Action(write, LineRequest),
    }


class TranscriptPage(Page):
    """What a drawing says, on the page of strokes."""

    static, folder = StrokePage.static, "strokes"
    model: TranscriptModel

    def read(self, wanted: DrawingRequest) -> Parts:
        line = fit(np.asarray(wanted.steps), self.model.scale)
        [found] = self.model.predict([line])
        return found._asdict()
        yield

    actions: ClassVar = {"read": Action(read, DrawingRequest)}
