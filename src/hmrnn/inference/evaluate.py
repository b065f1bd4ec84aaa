"""Bits per character, boundary rates and the updates saved, over a text of any length."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.analysis.gold import Found
from hmrnn.errors import InputError
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.models import LanguageModel, evaluating
from hmrnn.nn.output import Output, changes
from hmrnn.ops import State, states


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a model makes of a text."""

    symbols: int
    """Symbols predicted: all but the first."""
    bits: float
    """Bits per symbol (per character, for text read as characters)."""
    rates: tuple[float, ...]
    """How often each detector fired."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did UPDATE or FLUSH; with soft boundaries, which leave nothing out, 1."""
    multiply_adds: float
    """Multiply-adds per symbol, with the output module (see :func:`hmrnn.nn.cost.multiply_adds`)."""

    @property
    def saved(self) -> float:
        """Share of a dense RNN's updates that were not made (the paper's 335 instead of 810 is 0.59)."""
        return 1 - sum(self.updates) / len(self.updates)


def evaluate(
    network: LanguageModel,
    symbols: np.ndarray,
    *,
    streams: int = 1,
    warmup: int = 0,
    chunk: int = 100,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
    share: tuple[int, int] = (0, 1),
) -> Evaluation:
    """Read ``symbols`` and predict each one from those before it.

    With one stream the state is carried across the whole text. With several, the text is cut into as many equal parts,
    read side by side; each part but the first is preceded by ``warmup`` symbols of its left context, read but not
    counted. Every symbol but the first is counted exactly once either way.

    ``share`` = (rank, world) lets each process of a group take every world-th stream; the sums are then added up.
    """
    total = Sums(network)
    read_through(
        network, symbols, total.add, streams=streams, warmup=warmup, chunk=chunk, precision=precision,
        progress=progress, share=share,
    )  # fmt: skip
    if share[1] > 1:
        torch.distributed.all_reduce(total.values)
    return total.evaluation()


Note = Callable[[np.ndarray, Tensor, Tensor, Output, Tensor], None]
"""Is told of each chunk: positions in the text (T, B), the logits (T, B, symbols) and the losses (T, B; nats) of
predicting the symbols that follow, what the network gave, and which positions count (T, B)."""


def read_through(
    network: LanguageModel,
    symbols: np.ndarray,
    note: Note,
    *,
    streams: int = 1,
    warmup: int = 0,
    chunk: int = 100,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Read a text as :func:`evaluate` does, and tell ``note`` what came; every position but the last counts once."""
    n = len(symbols) - 1
    if n < 1:
        raise InputError(f"a text to evaluate must hold at least 2 symbols; got {len(symbols)}")
    streams, warmup = cut(n, streams, warmup, chunk)
    length = -(-n // streams)
    rank, world = share
    starts = np.arange(streams)[rank::world] * length
    if len(starts) > 0:
        with evaluating(network), torch.inference_mode():
            _read(network, symbols, starts, length, warmup, chunk, precision, note, progress)


def find(
    network: LanguageModel,
    symbols: np.ndarray,
    *,
    streams: int = 1,
    warmup: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Read ``symbols`` as :func:`evaluate` does; where the detectors fired, and how surprising each symbol was."""
    T, levels = len(symbols), network.rnn.num_boundaries
    if levels == 0:
        raise InputError("this model has no boundary detectors, so it finds no segments to compare with gold ends")
    found = Found(np.zeros((T, levels), bool), *np.full((2, T), math.nan, np.float32))

    def note(at: np.ndarray, logits: Tensor, losses: Tensor, out: Output, counted: Tensor) -> None:
        inside = counted.cpu().numpy()
        found.boundaries[at[inside]] = (out.boundaries > 0.5).cpu().numpy()[inside]
        for bits, nats in ((found.surprise, losses), (found.expected, entropy(logits))):
            bits[at[inside] + 1] = nats.cpu().numpy()[inside] / math.log(2)

    read_through(network, symbols, note, streams=streams, warmup=warmup, progress=progress)
    return found


def cut(count: int, streams: int, warmup: int, chunk: int = 100) -> tuple[int, int]:
    """Into how many parts a text of which ``count`` symbols are predicted is cut, and how many warm each of them up.

    At most as many as asked for: no part is shorter than its warm-up or a chunk, and one that is alone has none.
    """
    if streams < 1 or warmup < 0:
        raise InputError(f"streams must be at least 1 and warmup at least 0; got {streams} and {warmup}")
    streams = max(1, min(streams, count // max(1, warmup, chunk)))
    streams = -(-count // -(-count // streams))  # equal parts may be full before all are needed
    return streams, warmup if streams > 1 else 0


def entropy(logits: Tensor) -> Tensor:
    """The surprise that a prediction (..., symbols) expects: nats, (...)."""
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


class Sums:
    """Totals, on the device and in double precision: count, bits, boundaries per detector, updates per layer."""

    def __init__(self, network: LanguageModel) -> None:
        self.network, self.rnn = network, network.rnn
        self.before: State | None = None  # of the next chunk: the boundaries that the last one ended with
        self.num_boundaries: int = network.rnn.num_boundaries
        count = 3 + self.num_boundaries + network.rnn.num_layers
        self.values = torch.zeros(count, dtype=torch.float64, device=network.softmax.weight.device)

    def add(self, at: np.ndarray, logits: Tensor, losses: Tensor, out: Output, counted: Tensor) -> None:
        weight = counted[..., None].double()  # (T, B, 1)
        self.values += torch.cat([
            counted.sum()[None].double(),
            (losses.double() * counted).sum()[None] / math.log(2),
            (multiply_adds(self.network, out, self.before).double() * counted).sum()[None],
            (out.boundaries.double() * weight).sum((0, 1)),
            (changes(out, self.rnn) * weight).sum((0, 1)),
        ])  # fmt: skip
        self.before = State((), (), out.boundaries[-1].detach())

    def evaluation(self) -> Evaluation:
        count, bits, products, *rest = self.values.tolist()
        shares = tuple(value / count for value in rest)
        rates, updates = shares[: self.num_boundaries], shares[self.num_boundaries :]
        return Evaluation(int(count), bits / count, rates, updates, products / count)


def _read(
    network: LanguageModel,
    symbols: np.ndarray,
    starts: np.ndarray,
    length: int,
    warmup: int,
    chunk: int,
    precision: str,
    note: Note,
    progress: Callable[[int, int], None] | None,
) -> None:
    device = network.softmax.weight.device
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    state: State | None = None
    n = len(symbols) - 1
    for begin in [*range(-warmup, 0, chunk), *range(0, length, chunk)]:
        end = min(begin + chunk, 0 if begin < 0 else length)
        at = starts[None, :] + np.arange(begin, end)[:, None]  # (T, B) positions in the text
        inside = (at >= 0) & (at < n)
        at = at.clip(0, n - 1)
        inputs, targets = (torch.from_numpy(symbols[at + k].astype(np.int64)).to(device) for k in (0, 1))
        with autocast:
            logits, out, state = network(inputs, state)
        if begin < 0:
            if end == 0:  # the first part has no left context: it starts from zero
                state = states.keep(state, (starts > 0).tolist())
            continue
        logits = logits.float()
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        note(at, logits, losses, out, torch.from_numpy(inside).to(device))
        if progress is not None:
            progress(min(end, length), length)
