"""The network of HMSegmenter, and the batches it is trained on."""

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

FLOOR = 0.1  # smallest deviation of a Gaussian, in deviations of the series: a narrower one would fit the noise
_PACE = 0.15  # learning rate of the detectors' rows, relative to that of all other weights
_SLOPE = 0.3  # slope of the detectors: they have a gradient where |s_z| < 1/0.3
_REACH = 1.0, 1.0, 3.0  # largest sum of absolute weights of a detector's rows in U, V and W
_CHUNKS = 4  # fewest chunks of a stream, so that training sees states that were carried over


class Network(nn.Module):
    """An HM-LSTM that reads each step and its change from the one before, with a mixture density head per level."""

    def __init__(
        self,
        channels: int,
        hidden_size: int | Sequence[int],
        levels: int,
        *,
        mixtures: int,
        on_copy: OnCopy,
    ) -> None:
        super().__init__()
        self.rnn = HMLSTM(3 * channels, hidden_size, levels + 1, on_copy=on_copy)
        self.rnn.set_detector_bias((0.5,))  # training begins with a boundary at every step
        self.rnn.slope = _SLOPE
        with torch.no_grad():
            for U, V in zip(self.rnn.U, self.rnn.V):
                U[-1], V[-1] = 0.0, 0.0
            self.rnn.W[0][-1], self.rnn.W[0][-1, -channels:] = 0.0, 1.0  # the lowest detector starts from |change|
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
        """Log-densities (levels, len(following), B) of ``following``, the steps after x (T, B, C); output and state.

        ``before`` (1, B, C) is the step before the first; beyond ``lengths`` (B,) is padding.
        """
        change = torch.diff(x, dim=0, prepend=before)
        out, state = self.rnn(torch.cat([x, change, change.abs()], dim=-1), state, lengths)
        T = len(following)
        numbers = [
            head(torch.cat([h[:T] for h in out.hidden[l:]], dim=-1)) for l, head in enumerate(self.heads, start=1)
        ]
        predictions = [GaussianMixture.from_vector(vector, self.mixtures, FLOOR) for vector in numbers]
        return torch.stack([prediction.log_prob(following) for prediction in predictions]), out, state

    @torch.no_grad()
    def detectors(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The rows of U, V and W of each detector, the lowest first."""
        return [(U[-1], V[-1], W[-1]) for U, V, W in zip(self.rnn.U, self.rnn.V, self.rnn.W)]

    @torch.no_grad()
    def restrain(self, before: Sequence[Sequence[Tensor]]) -> None:
        """Slow down the last update of the detectors' rows, from ``before``, and bound their size.

        The gradient always asks for more boundaries. Without a bound the rows would grow against the bias, which
        :meth:`lead` lowers, until every detector is outside of the range where it has a gradient.
        """
        for l, (rows, olds) in enumerate(zip(self.detectors(), before)):
            for row, old, reach in zip(
                rows, olds, _REACH if l else (*_REACH[:2], math.inf)
            ):  # the lowest reads the series, not h
                row.copy_(old.lerp(row, _PACE))
                row.mul_((reach / row.abs().sum()).clamp(max=1))

    @torch.no_grad()
    def lead(self, rates: np.ndarray, targets: np.ndarray, step: float) -> None:
        """Move the bias of every detector by at most ``step`` towards its target rate."""
        for b, rate, target in zip(self.rnn.b, rates, targets):
            b[-1] += step * (target - rate) / max(target, rate)


class Streams:
    """Series joined end to end and cut into up to ``batch_size`` equal streams, read ``length`` steps at a time.

    A stream holds at least ``_CHUNKS`` chunks and ``span`` steps, if the series are long enough: the state is carried
    from chunk to chunk within a stream.
    """

    def __init__(self, series: Sequence[np.ndarray], batch_size: int, length: int, span: float) -> None:
        self.whole, self.length = np.concatenate(series), length
        spare = len(self.whole) - length - 2
        if spare < length:
            raise InputError(
                f"the series hold {len(self.whole)} steps, but length {length} needs at least {2 * length + 2}; give "
                "more, or lower length"
            )
        fewest = length * max(_CHUNKS, math.ceil(min(span, spare) / length))  # steps of a stream
        self.count = min(batch_size, max(1, spare // fewest))
        self.part = spare // self.count
        self.chunks = self.part // length

    def __getitem__(self, where: tuple[int, int]) -> np.ndarray:
        """(length + 2, B, C): a chunk with the step before and the step after it, all shifted by ``where[1]`` steps."""
        chunk, shift = where
        starts = np.arange(self.count) * self.part + chunk * self.length + shift
        return self.whole[starts[None, :] + np.arange(self.length + 2)[:, None]]
