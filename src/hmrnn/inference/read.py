"""A network and sequences of symbols -> what it found in each, as a Segmentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.models import LanguageModel, evaluating
from hmrnn.ops import State


def segment(
    network: LanguageModel,
    indices: Sequence[int] | np.ndarray,
    symbols: Sequence[str],
    *,
    chunk: int = 512,
    progress: Callable[[int, int], None] | None = None,
) -> Segmentation:
    """Read a sequence from the zero state and say what the network found in it.

    Args:
        network: the model; it runs where its parameters are, in ``eval()``, and is left as it was.
        indices: (T,) the symbols as the network takes them.
        symbols: T strings, the same symbols as they are shown.
        chunk: steps at a time, which bounds the memory; the state is carried over, so the result is the same.
        progress: is told how many steps of how many are done.
    """
    return segment_many(network, [indices], [symbols], chunk=chunk, progress=progress)[0]


def segment_many(
    network: LanguageModel,
    indices: Sequence[Sequence[int] | np.ndarray],
    symbols: Sequence[Sequence[str]],
    *,
    batch: int = 32,
    chunk: int = 512,
    progress: Callable[[int, int], None] | None = None,
) -> list[Segmentation]:
    """As :func:`segment`, each sequence by itself, ``batch`` of similar length side by side."""
    if not isinstance(network.rnn, HMLSTM):
        raise InputError(
            f"a network without detectors finds no segments; got model.rnn {network.config.rnn}, train hm-lstm instead"
        )
    if batch < 1 or chunk < 1:
        raise InputError(f"batch and chunk must be at least 1; got {batch} and {chunk}")
    sequences = [
        _checked(sequence, shown, network.num_symbols) for sequence, shown in zip(indices, symbols, strict=True)
    ]
    found: dict[int, Segmentation] = {}
    read, total = 0, sum(map(len, sequences))
    with evaluating(network), torch.no_grad():
        for places in by_length(sequences, batch):
            group = [sequences[place] for place in places]
            steps = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(sequence) for sequence in group])  # (T, B)
            parts = []
            for part in _read(network, steps.to(network.embedding.weight.device), chunk):
                parts.append(part)
                if progress is not None:
                    progress(read + sum(min(len(parts) * chunk, len(sequence)) for sequence in group), total)
            read += sum(map(len, group))
            whole = [torch.cat(pieces).numpy() for pieces in zip(*parts)]  # padding changes nothing before it
            for b, place in enumerate(places):
                boundaries, probabilities, operations, norms, after = (a[: len(sequences[place]), b] for a in whole)
                bits = np.concatenate([np.full(1, np.nan, np.float32), after[:-1]])
                found[place] = Segmentation(tuple(symbols[place]), boundaries, probabilities, operations, norms, bits)
    return [found[place] for place in range(len(sequences))]


def by_length(sequences: Sequence[Any], batch: int) -> Iterator[list[int]]:
    """The places of all sequences, ``batch`` of similar length at a time."""
    order = sorted(range(len(sequences)), key=lambda place: len(sequences[place]))
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def _read(network: LanguageModel, steps: Tensor, chunk: int) -> Iterator[tuple[Tensor, ...]]:
    """Boundaries, probabilities, operations, norms and the bits of the symbol after each step, (chunk, B, ...)."""
    state: State | None = None
    for start in range(0, len(steps), chunk):
        now = steps[start : start + chunk]
        logits, out, state = network(now, state)
        following = torch.cat([steps[start + 1 : start + chunk + 1], steps[:1]])[: len(now)]  # nothing follows the last
        bits = F.cross_entropy(logits.float().flatten(0, 1), following.flatten(), reduction="none") / math.log(2)
        norms = torch.stack([h.float().norm(dim=-1) for h in out.hidden], dim=2)  # (chunk, B, L)
        part = (out.boundaries > 0.5, out.probabilities.float(), out.operations, norms, bits.view_as(now))
        yield tuple(a.cpu() for a in part)


def _checked(indices: Sequence[int] | np.ndarray, symbols: Sequence[str], num_symbols: int) -> np.ndarray:
    sequence = np.asarray(indices)
    if sequence.ndim != 1 or sequence.dtype.kind not in "iu" or len(sequence) == 0:
        raise InputError(f"indices must be a sequence of one or more whole numbers; got {sequence.dtype} of shape "
                         f"{sequence.shape}")  # fmt: skip
    if len(sequence) != len(symbols):
        raise InputError(f"symbols must hold one string per index, {len(sequence)}; got {len(symbols)}")
    if sequence.min() < 0 or sequence.max() >= num_symbols:
        raise InputError(f"indices must lie between 0 and {num_symbols - 1}; "
                         f"got {sequence.min()} to {sequence.max()}")  # fmt: skip
    return sequence.astype(np.int64)
