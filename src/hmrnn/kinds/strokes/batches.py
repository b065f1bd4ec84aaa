"""Padded batches of pen strokes: lines of similar length together, every line once per epoch, few distinct shapes."""

from __future__ import annotations

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.strokes.strokes import FEWEST, Scale, Strokes
from hmrnn.kinds.strokes.window import encode_texts
from hmrnn.reading.batches import Batches
from hmrnn.reading.conditions import encode


class StrokeBatches(Batches):
    """Batches of normalised lines (T, B, 3) float32; each point but the first is predicted.

    What a model is told beside them is as ``model`` says. With ``model.halt`` the targets have a fourth number, 1 for
    the last point of a line. ``conditions`` take the place of those of the strokes.
    """

    def __init__(
        self,
        strokes: Strokes,
        scale: Scale,
        batch_size: int,
        model: StrokeModelConfig,
        *,
        seed: int | None = None,
        conditions: np.ndarray | None = None,
    ) -> None:
        if conditions is None and model.conditioned:
            if not strokes.conditions:
                raise InputError("this model is trained with a condition, and the lines have none; give one")
            conditions = encode(strokes.conditions, model)
        texts = None
        if model.window != "none" and strokes.texts:
            texts = encode_texts(strokes.texts, model.alphabet, replace=True)
        super().__init__(strokes.lengths - 1, batch_size, seed, conditions, texts)
        if len(strokes) == 0 or strokes.lengths.min() < FEWEST:
            short = [name for name, length in zip(strokes.names, strokes.lengths) if length < FEWEST]
            got = f"line {short[0]} has fewer; leave it out" if short else "there is no line"
            raise InputError(f"batches need lines of at least {FEWEST} points, one to read and one to predict; {got}")
        self.strokes, self.scale, self.halt = strokes, scale, model.halt

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        steps = self.scale.encode(self.strokes[index])
        inputs, targets = steps[:-1], steps[1:]
        if self.halt:
            targets = np.concatenate([targets, np.arange(len(inputs), 0, -1)[:, None] == 1], axis=1, dtype=steps.dtype)
        return inputs, targets
