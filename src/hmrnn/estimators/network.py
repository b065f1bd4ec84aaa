"""The network behind HMSegmenter, and the series as it reads them in training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hmrnn.errors import InputError
from hmrnn.nn.distributions import GaussianMixture
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.output import Output
from hmrnn.ops import State
from hmrnn.ops.estimators import OnCopy

_FLOOR = 0.1  # no deviation is smaller, in units of the series' own: a narrower Gaussian would learn the noise by heart
_PACE = 0.15  # of the detectors' rows, where all other weights have 1
_SLOPE = 0.3  # the range where detectors have a gradient is wide, ±1/0.3
_REACH = 1.0, 1.0, 3.0  # how far h of its own layer, of the one above and of the one below can move a detector


class Network(nn.Module):
    """An HM-LSTM that reads steps with their changes, and a mixture density head for every level."""

    def __init__(
        self,
        channels: int,
        hidden_size: int | Sequence[int],
        levels: int,
        *,
        mixtures: int,
        on_copy: OnCopy,
        device: torch.device,
    ) -> None:
        super().__init__()
        engine = "reference" if device.type == "cpu" else "auto"  # at these sizes it trains fastest on a CPU
        self.rnn = HMLSTM(3 * channels, hidden_size, levels + 1, on_copy=on_copy, engine=engine)
        self.rnn.set_detector_bias((0.5,))  # at first every step is a segment
        self.rnn.slope = _SLOPE
        with torch.no_grad():
            for U, V in zip(self.rnn.U, self.rnn.V):
                U[-1], V[-1] = 0.0, 0.0
            self.rnn.W[0][-1], self.rnn.W[0][-1, -channels:] = 0.0, 1.0  # the lowest sees large changes, to begin with
        self.channels, self.mixtures = channels, mixtures
        sizes = self.rnn.hidden_sizes
        numbers = mixtures * (1 + 2 * channels)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(sum(sizes[l:]), sizes[l]), nn.Tanh(), nn.Linear(sizes[l], numbers))
            for l in range(1, levels + 1)
        )

    def forward(
        self, x: Tensor, before: Tensor, following: Tensor, state: State | None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Output, State]:
        """Log-densities (levels, len(following), B) of the steps after each of x (T, B, C), output and state.

        ``before`` (1, B, C) is the step before the first; what comes after the ``lengths`` (B,) is padding.
        """
        change = torch.diff(x, dim=0, prepend=before)
        out, state = self.rnn(torch.cat([x, change, change.abs()], dim=-1), state, lengths)
        T = len(following)
        numbers = [
            head(torch.cat([h[:T] for h in out.hidden[l:]], dim=-1)) for l, head in enumerate(self.heads, start=1)
        ]
        predictions = [GaussianMixture.from_vector(vector, self.mixtures, _FLOOR) for vector in numbers]
        return torch.stack([prediction.log_prob(following) for prediction in predictions]), out, state

    @torch.no_grad()
    def detectors(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The rows of U, V and W that belong to each detector, the lowest first."""
        return [(U[-1], V[-1], W[-1]) for U, V, W in zip(self.rnn.U, self.rnn.V, self.rnn.W)]

    @torch.no_grad()
    def restrain(self, before: Sequence[Sequence[Tensor]]) -> None:
        """Let the detectors' rows go but a part of the way from ``before``, and not reach too far.

        The gradient asks for more boundaries everywhere. Unbounded, it would raise pre-activations by what is common to
        all h, against the bias that :meth:`lead` lowers, until no detector was left in the range that has a gradient.
        """
        for l, (rows, olds) in enumerate(zip(self.detectors(), before)):
            for row, old, reach in zip(rows, olds, _REACH if l else (*_REACH[:2], math.inf)):  # the lowest reads no h
                row.copy_(old.lerp(row, _PACE))
                row.mul_((reach / row.abs().sum()).clamp(max=1))

    @torch.no_grad()
    def lead(self, rates: np.ndarray, targets: np.ndarray, step: float) -> None:
        """Move the bias of every detector towards the rate it should have, by ``step`` at most."""
        for b, rate, target in zip(self.rnn.b, rates, targets):
            b[-1] += step * (target - rate) / max(target, rate)


class Streams:
    """Series in a row, cut into parts that are read side by side, ``length`` steps at a time."""

    def __init__(self, series: Sequence[np.ndarray], batch_size: int, length: int) -> None:
        self.whole, self.length = np.concatenate(series), length
        spare = len(self.whole) - length - 2
        if spare < length:
            raise InputError(
                f"the series hold {len(self.whole)} steps, but length {length} needs at least {2 * length + 2}; give "
                "more, or lower length"
            )
        self.count = min(batch_size, spare // length)
        self.part = spare // self.count
        self.chunks = self.part // length

    def __getitem__(self, where: tuple[int, int]) -> np.ndarray:
        """(length + 2, B, C): a chunk with a step before and one after it, all shifted by less than ``length``."""
        chunk, shift = where
        starts = np.arange(self.count) * self.part + chunk * self.length + shift
        return self.whole[starts[None, :] + np.arange(self.length + 2)[:, None]]
