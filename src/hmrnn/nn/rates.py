"""Boundary rates: where detectors start, and a loss that keeps them near their targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.nn.output import Lengths, Output

WIDEST, BELOW_ZERO = 8.0, -0.05
"""``search_biases`` searches from -WIDEST to WIDEST, or to BELOW_ZERO where a positive bias does harm."""


def rate_loss(out: Output, rates: Sequence[float], lengths: Lengths = None) -> Tensor:
    """Σ (rate - target)² over the detectors: added to the loss of a task, it keeps them from falling silent.

    Its gradient reaches the detectors through z; with ``boundary="reinforce"`` z has none. The presets of ``hmrnn
    train`` that hold rates have a weight of 0.2.

    Args:
        out: the output of an HMLSTM for sequences with a batch dimension.
        rates: for each level, the lowest first, the share of the steps at which a segment should end.
        lengths: (B,) as given to the network; not needed if ``out.hidden`` is packed.

    Example::

        >>> rnn = hmrnn.HMLSTM(10, 20, layer_norm=True)
        >>> x = torch.randn(50, 4, 10)
        >>> hmrnn.nn.start_at_rates(rnn, (0.5, 0.25), x)
        >>> out, state = rnn(x)
        >>> loss = out.hidden[0].pow(2).mean() + 0.2 * hmrnn.nn.rate_loss(out, (0.5, 0.25))
    """
    found = _rates(out, lengths)
    return distance(found, _checked(rates, len(found)))


def distance(rates: Tensor, targets: Sequence[float | Tensor]) -> Tensor:
    """Σ (rate - target)²; ``rates`` has a row per target: one rate, or those of two directions."""
    return sum(((rate - target) ** 2 for rate, target in zip(rates, targets)), start=rates.new_zeros(())).sum()


def start_at_rates(rnn: Any, rates: Sequence[float], x: Tensor | PackedSequence, lengths: Lengths = None) -> None:
    """Set the biases of the detectors of an HMLSTM so that they fire at these rates on x, before training.

    Fresh detectors fire at rates that depend on the seed. ``rates`` has a number per level, the lowest first; both
    directions of a bidirectional network get the same.
    """
    targets = _checked(rates, rnn.num_boundaries) * (len(rnn.detector_biases()) // max(1, rnn.num_boundaries))
    search_biases(rnn, lambda: _rates(rnn(x, lengths=lengths)[0], lengths).movedim(-1, 0).flatten(), targets)


@torch.no_grad()
def search_biases(rnn: Any, measured: Callable[[], Tensor], targets: Sequence[float]) -> None:
    """Set the detectors' biases so that they fire at rates ``targets``; ``measured`` gives the present rates.

    A detector's rate grows with its bias, so bisection finds the bias. The lowest detector comes first, as the input of
    the others depends on it; of two directions, both at once. With layer norm, biases above the first detector stay
    below zero, even if the rates are then lower: with a positive bias a detector fires while its layer is still all
    zeros, where layer norm multiplies gradients by 316 at every step.
    """
    levels = rnn.num_boundaries
    for level in range(levels):
        alike = range(level, len(targets), levels)  # the detectors of this level, one per direction
        low = dict.fromkeys(alike, -WIDEST)
        high = dict.fromkeys(alike, BELOW_ZERO if level > 0 and rnn.layer_norm else WIDEST)
        for _ in range(12):
            middle = {l: (low[l] + high[l]) / 2 for l in alike}
            for l in alike:
                rnn.detector_biases()[l][-1] = middle[l]
            rates = measured()
            for l in alike:
                (low if rates[l] < targets[l] else high)[l] = middle[l]


def _rates(out: Output, lengths: Lengths) -> Tensor:
    """(L-1,), or (L-1, 2) of two directions: the share of the steps, padding aside, at which each detector fired."""
    z, h = out.boundaries, out.hidden[0]
    if isinstance(h, PackedSequence):
        return z.sum((0, 1)) / len(h.data)
    if h.dim() != 3:
        raise InputError(f"rates need a batch dimension; got hidden of shape {tuple(h.shape)}")
    return z.mean((0, 1)) if lengths is None else z.sum((0, 1)) / torch.as_tensor(lengths).sum().to(z.device)


def _checked(rates: Sequence[float], levels: int) -> list[float]:
    given = [float(rate) for rate in rates] if isinstance(rates, Iterable) else []
    if len(given) != levels or not all(0 < rate < 1 for rate in given):
        raise InputError(f"rates must hold a number between 0 and 1 for each of {levels} detectors; got {rates}")
    return given
