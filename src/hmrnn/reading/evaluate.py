"""How well a model predicts a text or strokes: bits or log-likelihood, boundary rates, and the updates saved."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.gold import Found
from hmrnn.config import ModelConfig
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.batches import StrokeBatches
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.text.lines import LineBatches, Lines
from hmrnn.kinds.text.words.ends import HeadScores
from hmrnn.nn.context import Told
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.output import changes
from hmrnn.nn.predictor import Predictor
from hmrnn.ops import State, states
from hmrnn.reading.batches import Batch, Batches
from hmrnn.reading.conditions import encode
from hmrnn.reading.read import DIVERGED, Read, read

if TYPE_CHECKING:
    from hmrnn.kinds.strokes.network import HandwritingModel
    from hmrnn.kinds.text.network import LanguageModel

Progress = Callable[[int, int], None]
MOST_BITS = 1e6
"""The most bits per symbol that are still taken for a prediction: beyond it, every probability is 0."""


class _Savings:
    updates: tuple[float, ...]

    @property
    def saved(self) -> float:
        """Share of a dense RNN's updates that were not made (the paper's 335 instead of 810 is 0.59)."""
        return 1 - sum(self.updates) / len(self.updates)


@dataclasses.dataclass(frozen=True)
class Evaluation(_Savings):
    """The result of a model on a text."""

    symbols: int
    """Symbols predicted: all but the first that was read."""
    bits: float
    """Bits per symbol (per character, for text read as characters)."""
    rates: tuple[float, ...]
    """How often each detector fired, per symbol."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did not COPY; 1 with soft boundaries, which skip nothing."""
    multiply_adds: float
    """Multiply-adds per symbol, with the output module (see :func:`hmrnn.nn.cost.multiply_adds`)."""


@dataclasses.dataclass(frozen=True)
class StrokeEvaluation(_Savings):
    """The result of a model on sequences of points."""

    sequences: int
    points: int
    """Points predicted: all but the first of each sequence."""
    log_likelihood: float
    """Nats per sequence, in normalised coordinates; higher is better. The paper's measure for handwriting."""
    rates: tuple[float, ...]
    """How often each detector fired, per point."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did not COPY; 1 with soft boundaries, which skip nothing."""
    multiply_adds: float
    """Multiply-adds per point, with the output module."""

    @property
    def per_point(self) -> float:
        """Nats per predicted point."""
        return self.log_likelihood * self.sequences / self.points


R = TypeVar("R", bound=Evaluation | StrokeEvaluation)


def finite(result: R) -> R:
    """``result``; InputError if the model that it is of does not predict finite probabilities."""
    good = result.bits <= MOST_BITS if isinstance(result, Evaluation) else math.isfinite(result.log_likelihood)
    if not good:
        raise InputError(DIVERGED)
    return result


class Sums:
    """Totals on the device in double precision: steps, nats, multiply-adds, boundaries per detector, layer updates."""

    def __init__(self, model: Predictor) -> None:
        self.model = model
        count = 3 + model.rnn.num_boundaries + model.rnn.num_layers
        with torch.inference_mode(False):  # so that it can be added to in any mode
            self.values = torch.zeros(count, dtype=torch.float64, device=next(model.parameters()).device)

    def add(self, found: Read, nats: Tensor, counted: Tensor) -> None:
        """Add the steps of a chunk that are ``counted`` (T, B); ``nats`` (T, B) is their surprise."""
        weight = counted[..., None].double()  # (T, B, 1)
        self.values += torch.cat([
            counted.sum()[None].double(),
            torch.where(counted, nats, 0.0).double().sum()[None],
            (multiply_adds(self.model, found.output, found.before).double() * counted).sum()[None],
            (found.output.boundaries.double() * weight).sum((0, 1)),
            (changes(found.output, self.model.rnn) * weight).sum((0, 1)),
        ])  # fmt: skip

    def result(self, world: int = 1) -> tuple[int, float, tuple[tuple[float, ...], tuple[float, ...], float]]:
        """Steps and nats, then rates, updates and multiply-adds per step; summed over ``world`` processes."""
        if world > 1:
            torch.distributed.all_reduce(self.values)
        count, nats, products, *rest = self.values.tolist()
        shares = tuple(value / count for value in rest)
        detectors = self.model.rnn.num_boundaries
        return int(count), nats, (shares[:detectors], shares[detectors:], products / count)


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
    progress: Progress | None = None,
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
        state = states.keep(state, (starts > 0).tolist())
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
    count, nats, work = total.result(world)
    return Evaluation(count, nats / count / math.log(2), *work)


def find(model: LanguageModel, symbols: np.ndarray, **how: Any) -> Found:
    """Where the detectors fired in a text, and how surprising each symbol was; options of :func:`read_text`."""
    T, levels = len(symbols), model.rnn.num_boundaries
    if levels == 0:
        raise InputError("this model has no boundary detectors, so it finds no segments to compare with gold ends")
    found = Found(np.zeros((T, levels), bool), *np.full((2, T), math.nan, np.float32))
    head = None if model.segments is None else HeadScores(model, symbols)
    for at, counted, targets, here in read_text(model, symbols, **how):
        found.boundaries[at[counted]] = here.boundaries.cpu().numpy()[counted]
        for bits, nats in (
            (found.surprise, -here.prediction.log_prob(targets)),
            (found.expected, here.prediction.entropy()),
        ):
            bits[at[counted] + 1] = nats.cpu().numpy()[counted] / math.log(2)
        if head is not None:
            head.add(here.output.hidden, at, counted)  # type: ignore[arg-type]
    return found if head is None else found._replace(words=head.words())


def cut(count: int, streams: int, warmup: int, chunk: int = 100) -> tuple[int, int]:
    """The number of streams and the warm-up of each, for a text of which ``count`` symbols are predicted.

    At most ``streams``: none is shorter than its warm-up or a chunk. A single stream has no warm-up.
    """
    if streams < 1 or warmup < 0:
        raise InputError(f"streams must be at least 1 and warmup at least 0; got {streams} and {warmup}")
    streams = max(1, min(streams, count // max(1, warmup, chunk)))
    streams = -(-count // -(-count // streams))  # parts of equal length may need fewer
    return streams, warmup if streams > 1 else 0


def to_tensors(batch: Batch, device: torch.device, columns: slice = slice(None)) -> tuple[Tensor, ...]:
    """Inputs and targets (T, B, ...), counted steps (B,) and, if there are conditions, these: (B,) or (1, B, numbers).

    Of some rows; copied to a GPU without waiting for it.
    """
    arrays = [batch.inputs[:, columns], batch.targets[:, columns], batch.counted[columns]]
    if batch.conditions is not None:
        chosen = batch.conditions[columns]
        arrays.append(chosen if chosen.ndim == 1 else chosen[None])
    tensors = [torch.tensor(a) for a in arrays]
    if device.type == "cuda":
        tensors = [a.pin_memory().to(device, non_blocking=True) for a in tensors]
    return tuple(tensors)


def unpack(batch: tuple[Tensor, ...], config: ModelConfig) -> tuple[Tensor, Tensor, Tensor, Told]:
    """Inputs, targets (with halts, if the model predicts them), what is counted (T, B), and what the model is told."""
    inputs, targets, counted, *rest = batch
    steps = torch.arange(len(inputs), device=inputs.device)[:, None]  # (T, 1)
    if config.halt:
        targets = torch.cat([targets, (steps == counted - 1)[..., None].to(targets)], dim=-1)
    condition = rest[0] if rest else None
    condition = condition[0] if condition is not None and condition.dim() == 3 else condition
    return inputs, targets, steps < counted, Told(condition, counted if config.time == "left" else None)


def _read_all(
    model: Predictor,
    batches: Batches,
    share: tuple[int, int],
    *,
    precision: str = "float32",
    progress: Progress | None = None,
) -> Sums:
    """The totals over every world-th of the batches, ``share`` = (rank, world); each sequence is read from its start.

    ``precision`` is that of :func:`hmrnn.reading.read.read`; ``progress`` is called with the batches read, and all.
    """
    total = Sums(model)
    mine = range(share[0], len(batches), share[1])
    for done, index in enumerate(mine, start=1):
        batch = to_tensors(batches.batch(0, index), total.values.device)
        inputs, targets, counted, told = unpack(batch, model.config)
        for found in read(model, [inputs], precision=precision, told=told if model.context is not None else None):
            total.add(found, -found.prediction.log_prob(targets), counted)
        if progress is not None:
            progress(done, len(mine))
    return total


def evaluate_strokes(
    model: HandwritingModel,
    strokes: Strokes,
    scale: Scale,
    *,
    batch_size: int = 32,
    share: tuple[int, int] = (0, 1),
    **how: Any,
) -> StrokeEvaluation:
    """Read every sequence from its start and predict each point from those before it.

    A model that predicts halts is measured with them. Conditions are those of the strokes; without them, those that
    :func:`hmrnn.nn.predictor.telling` says. ``share`` = (rank, world) lets each process of a group take every world-th
    batch; the sums are then added up. ``how`` may hold ``precision`` and ``progress``.
    """
    conditions = None
    if model.config.conditioned and strokes.conditions is not None:
        conditions = encode(strokes.conditions, model.config)
    elif model.config.conditioned and model.told.condition is not None:
        conditions = model.told.condition.expand(len(strokes), *model.told.condition.shape[1:]).cpu().numpy()
    batches = StrokeBatches(strokes, scale, batch_size, conditions=conditions)
    points, nats, work = _read_all(model, batches, share, **how).result(share[1])
    return StrokeEvaluation(len(strokes), points, -nats / len(strokes), *work)


def evaluate_lines(
    model: LanguageModel, lines: Lines, end: int, *, batch_size: int = 32, share: tuple[int, int] = (0, 1), **how: Any
) -> Evaluation:
    """Read every line by itself and predict each symbol, the first one and the line end, ``end``, included.

    The other arguments are those of :func:`evaluate_strokes`.
    """
    batches = LineBatches(lines, end, model.config, batch_size)
    return evaluation(_read_all(model, batches, share, **how), share[1])
