"""Vectors of a sequence: the states of the layers at its symbols, at the ends of its segments, and their mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.nn.predictor import Predictor
from hmrnn.reading.read import follow, on_time

CHUNK = 512
"""Steps per pass, which bounds the memory; the result does not depend on it."""


@dataclasses.dataclass(frozen=True)
class Embedding:
    """The states of a network of L layers of H_1, ..., H_L units in a text of T symbols, as float32 arrays."""

    symbols: np.ndarray
    """(T, H_1 + ... + H_L): h of all layers after each symbol, the lowest layer first."""
    segments: tuple[np.ndarray, ...]
    """Of each level l, (segments, H_l+1): h of the layer above after the last symbol of each segment."""
    ends: tuple[list[int], ...]
    """Where the segments of each level end, as :meth:`hmrnn.Segmentation.ends` gives them."""

    @property
    def text(self) -> np.ndarray:
        """(H_1 + ... + H_L,): the mean of the vectors of all symbols."""
        mean: np.ndarray = self.symbols.mean(axis=0)
        return mean


def embed(model: Predictor, sequence: np.ndarray, counts: np.ndarray, *, prime: int = 0, late: int = 0) -> Embedding:
    """Read a sequence from the zero state and collect the states of its layers.

    Args:
        model: runs on the device of its parameters, as in ``eval()``.
        sequence: indices of symbols; the first ``prime`` of them are read, and are no part of the result.
        counts: (T,): how many of the others each symbol of the result stands for; it has the state after the last.
        late: steps by which the lowest detector fires after the end of a segment.
    """
    hidden, parts = [], []
    for found, made in follow(model, model.as_input(sequence)[:, None].split(CHUNK), lambda steps: [""] * len(steps)):
        hidden.append([h[:, 0].float().cpu() for h in made.output.hidden])  # type: ignore[call-overload, union-attr]
        parts.append(found)
    at = prime + (counts.cumsum() - 1).clip(0)
    layers = [torch.cat(each).numpy()[at] for each in zip(*hidden)]
    whole = Segmentation.join(on_time(parts, late))[prime:].regroup([""] * len(counts), counts)
    ends = tuple(whole.ends(level) for level in range(1, whole.levels + 1))
    segments = tuple(above[np.array(e) - 1] for above, e in zip(layers[1:], ends))
    return Embedding(np.concatenate(layers, axis=1), segments, ends)
