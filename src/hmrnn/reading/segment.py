"""A model and sequences -> the Segmentation of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.scores import ends_of
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.predictor import Predictor
from hmrnn.reading.read import DIVERGED, read


class Ends(Protocol):
    """Finds the ends of the segments of level 1 of a sequence (T, ...) in the place of the lowest detector."""

    def add(self, hidden: Sequence[Tensor], at: np.ndarray, counted: np.ndarray) -> None:
        """Take h of all layers (n, 1, H_l) after the steps ``at`` (n, 1), of those that are ``counted`` (n, 1)."""
        ...

    def words(self) -> np.ndarray:
        """(T,) bool: whether a segment ends after each step."""
        ...

    def chances(self) -> np.ndarray:
        """(T,): the probability that one ends there."""
        ...


def move_back(of_levels: np.ndarray, ahead: float | None = None) -> None:
    """Move what a late lowest detector gave (T, levels) back by one step; ``ahead`` is the next value, if known."""
    of_levels[:-1, 0] = of_levels[1:, 0].copy()
    if ahead is not None:
        of_levels[-1, 0] = ahead


def ends_of_levels(boundaries: np.ndarray, first: int = 0, late: int = 0) -> list[list[int]]:
    """Where segments of each level end by boundaries (T, levels): the number of steps before each cut.

    ``first`` are the steps before these. The lowest detector fires ``late`` steps after the end of a segment.
    """
    return [(ends_of(level) + first - late * (l == 0)).tolist() for l, level in enumerate(boundaries.T)]


def segment_many(
    model: Predictor,
    sequences: Sequence[Sequence[int] | np.ndarray],
    symbols: Sequence[Sequence[str]],
    *,
    batch: int = 32,
    chunk: int = 512,
    prime: Sequence[int] | np.ndarray = (),
    ends: Callable[[np.ndarray], Ends] | None = None,
    late: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Segmentation]:
    """Read each sequence by itself from the zero state, and report what the network found in it.

    Sequences are indices (T,) of the symbols of a text, or normalised points (T, 3); ``symbols`` are T strings of each,
    the steps as they are displayed. ``batch`` of similar length are read side by side, ``chunk`` steps per pass, which
    bounds the memory and changes no result. ``progress`` is called with the steps done and their total. The bits of
    points are -log2 of densities in normalised coordinates, and may be negative.

    ``prime`` are steps that are read before every sequence, and are not part of the result. ``ends`` is called with
    each sequence, the prime before it; what it gives decides where the segments of level 1 end. ``late`` is the number
    of steps (0 or 1) by which the lowest detector fires after the end of a segment; its ends are moved back by as many.
    By :func:`hmrnn.nn.predictor.telling` a model may be told one condition for all sequences, or one each.
    """
    if not model.rnn.num_boundaries and model.config.rnn not in ("hm-lstm", "hrnn"):
        raise InputError(
            "a network without detectors finds no segments; train hm-lstm instead",
            setting="model.rnn",
            value=model.config.rnn,
        )
    if not model.rnn.num_boundaries and ends is not None:
        raise InputError("segments by the head take the place of the lowest detector; train two or more layers")
    if batch < 1 or chunk < 1:
        raise InputError(f"batch and chunk must be at least 1; got {batch} and {chunk}")
    inputs = [_checked(model, sequence, shown) for sequence, shown in zip(sequences, symbols, strict=True)]
    found: dict[int, Segmentation] = {}
    done, total, first = 0, sum(map(len, inputs)), len(prime)
    if first:
        before = model.as_input(np.asarray(prime))
        inputs = [torch.cat([before, sequence]) for sequence in inputs]
    for places in _by_length(inputs, batch):
        group = [inputs[place] for place in places]
        steps = torch.nn.utils.rnn.pad_sequence(group)  # (T, B, ...)
        following = steps.roll(-1, dims=0)  # nothing follows the last
        finders = [] if ends is None else [ends(each.cpu().numpy()) for each in group]
        parts = []
        left = torch.tensor([len(sequence) for sequence in group]) if model.config.time == "left" else None
        told = model.told.chosen(places)._replace(clock=left)
        for k, found_here in enumerate(read(model, steps.split(chunk), told=told), start=1):
            nats = -found_here.prediction.log_prob(following[(k - 1) * chunk : k * chunk])
            out = found_here.output
            part = (
                found_here.boundaries, out.probabilities.float(), out.operations, found_here.norms, nats,
                multiply_adds(model, out, found_here.before),
            )  # fmt: skip
            parts.append([a.cpu() for a in part])
            if not bool(nats.isfinite().all()):
                raise InputError(DIVERGED)
            for b, finder in enumerate(finders):
                at = np.arange((k - 1) * chunk, (k - 1) * chunk + len(nats))[:, None]
                mine = [cast(Tensor, h)[:, b : b + 1] for h in out.hidden]
                finder.add(mine, at.clip(max=len(group[b]) - 1), at < len(group[b]))
            if progress is not None:
                progress(done + sum(max(0, min(k * chunk, len(sequence)) - first) for sequence in group), total)
        done += sum(len(sequence) - first for sequence in group)
        whole = [torch.cat(pieces).numpy() for pieces in zip(*parts)]
        for b, place in enumerate(places):
            # Padding comes last: nothing before it depends on it.
            T = len(inputs[place])
            bits = np.concatenate([np.full(1, np.nan, np.float32), whole[4][: T - 1, b] / math.log(2)])[first:]
            boundaries, probabilities, operations, norms, _, products = (a[first:T, b].copy() for a in whole)
            if finders:
                boundaries[:, 0], probabilities[:, 0] = finders[b].words()[first:], finders[b].chances()[first:]
            elif late:
                move_back(boundaries)
                move_back(probabilities)
            shown = tuple(symbols[place])
            found[place] = Segmentation(shown, boundaries, probabilities, operations, norms, bits, products)
    return [found[place] for place in range(len(inputs))]


def _by_length(sequences: Sequence[Tensor], batch: int) -> Iterator[list[int]]:
    """The places of all sequences, ``batch`` of similar length at a time."""
    order = sorted(range(len(sequences)), key=lambda place: len(sequences[place]))
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def _checked(model: Predictor, sequence: Sequence[int] | np.ndarray, symbols: Sequence[str]) -> Tensor:
    array = np.asarray(sequence)
    if array.ndim == 0 or len(array) == 0 or array.shape[1:] != model.step_shape:
        expected = ", ".join(map(str, ("T", *model.step_shape)))
        raise InputError(f"a sequence must have shape ({expected}) with T at least 1; got {array.shape}")
    if len(array) != len(symbols):
        raise InputError(f"symbols must hold one string per step, {len(array)}; got {len(symbols)}")
    return model.as_input(array)
