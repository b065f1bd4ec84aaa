"""How well a language model predicts a text or lines: bits per symbol, boundary rates, and the updates saved."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.config.checks import Count, Natural
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.text.gold import Found
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.words.ends import HeadScores
from hmrnn.nn.checks import argument
from hmrnn.ops import State
from hmrnn.reading.read import Read, check_detectors, read
from hmrnn.reading.score import Score, Sums

MOST_BITS = 1e6
"""The most bits per symbol that are still taken for a prediction: beyond it, every probability is 0."""


@dataclasses.dataclass(frozen=True)
class Evaluation(Score):
    """The result of a model on a text."""

    symbols: int
    """Symbols predicted: all but the first that was read."""
    bits: float
    """Bits per symbol (per character, for text read as characters)."""

    @property
    def finite(self) -> bool:
        return self.bits <= MOST_BITS


class Piece(NamedTuple):
    """A chunk of a text that is read in streams."""

    at: np.ndarray
    """(T, B): positions in the text."""
    counted: np.ndarray
    """(T, B) bool: False beyond the end of a stream."""
    targets: Tensor
    """(T, B): the symbols that follow."""
    read: Read


def read_text(
    model: LanguageModel,
    symbols: np.ndarray,
    *,
    streams: int = 1,
    warmup: int = 0,
    prime: int = 0,
    chunk: int = 100,
    precision: str = "float32",
    gradient: bool = False,
    progress: Progress = None,
    share: tuple[int, int] = (0, 1),
) -> Iterator[Piece]:
    """Read a text; every position but the last is counted once.

    With one stream the state is carried across the whole text. With several, the text is cut into as many equal parts,
    read side by side; each part but the first is preceded by ``warmup`` symbols of its left context, read but not
    counted, and neither are the first ``prime`` symbols of the text. ``share`` = (rank, world) lets each process of a
    group take every world-th stream.
    """
    n = len(symbols) - 1
    if n < 1:
        raise InputError(f"a text to evaluate must hold at least 2 symbols; got {len(symbols)}")
    streams, warmup = cut(n, streams, warmup, chunk)
    length = -(-n // streams)
    starts = np.arange(streams)[share[0] :: share[1]] * length
    if len(starts) == 0:
        return

    def positions(begin: int, end: int) -> Iterator[np.ndarray]:
        for first in range(begin, end, chunk):
            yield starts + np.arange(first, min(first + chunk, end))[:, None]  # (T, B)

    def inputs(begin: int, end: int) -> Iterator[Tensor]:
        return (model.as_input(symbols[at.clip(0, n - 1)]) for at in positions(begin, end))

    state: State | None = None
    for warm in read(model, inputs(-warmup, 0), precision=precision):
        state = warm.state
    if state is not None:  # the first stream has no left context: it starts from zero
        state = state.keep((starts > 0).tolist())
    chunks = read(model, inputs(0, length), state, precision=precision, gradient=gradient)
    for at, found in zip(positions(0, length), chunks):
        inside = at.clip(0, n - 1)
        yield Piece(inside, (at < n) & (at >= prime - 1), model.as_input(symbols[inside + 1]), found)
        if progress is not None:
            progress(int(at[-1, 0] - starts[0]) + 1, length)


def evaluate(model: LanguageModel, symbols: np.ndarray, *, share: tuple[int, int] = (0, 1), **how: Any) -> Evaluation:
    """Read ``symbols`` and predict each one from those before it; the options are those of :func:`read_text`."""
    total = Sums(model)
    for piece in read_text(model, symbols, share=share, **how):
        counted = torch.from_numpy(piece.counted).to(piece.targets.device)
        total.add(piece.read, -piece.read.prediction.log_prob(piece.targets), counted)
    return evaluation(total, share[1])


def evaluation(total: Sums, world: int = 1) -> Evaluation:
    """The evaluation of a text from its totals."""
    count, (nats,), work = total.result(world)
    return Evaluation(*work, count, nats / count / math.log(2))


def find(model: LanguageModel, symbols: np.ndarray, **how: Any) -> Found:
    """Where the detectors fired in a text, and how surprising each symbol was; options of :func:`read_text`."""
    T, levels = len(symbols), model.rnn.num_boundaries
    check_detectors(model)
    found = Found(np.zeros((T, levels), bool), *np.full((2, T), math.nan, np.float32))
    for at, counted, targets, here in read_text(model, symbols, **how):
        found.boundaries[at[counted]] = here.boundaries.cpu().numpy()[counted]
        for bits, nats in (
            (found.surprise, -here.prediction.log_prob(targets)),
            (found.expected, here.prediction.entropy()),
        ):
            bits[at[counted] + 1] = nats.cpu().numpy()[counted] / math.log(2)
    if model.rnn.late:
        found.boundaries[:-1] = found.boundaries[1:].copy()
    return found if model.segments is None else found._replace(words=HeadScores(model, [symbols]).words()[0])


def cut(count: int, streams: int, warmup: int, chunk: int = 100) -> tuple[int, int]:
    """The number of streams and the warm-up of each, for a text of which ``count`` symbols are predicted.

    At most ``streams``: none is shorter than its warm-up or a chunk. A single stream has no warm-up.
    """
    argument("streams", streams, Count), argument("warmup", warmup, Natural)
    streams = max(1, min(streams, count // max(1, warmup, chunk)))
    streams = -(-count // -(-count // streams))  # parts of equal length may need fewer
    return streams, warmup if streams > 1 else 0
