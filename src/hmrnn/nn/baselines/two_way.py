"""TwoWay: a baseline for each direction, as ``HMLSTM(bidirectional=True)`` has an HM-LSTM for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.bidirectional import States, reverse_steps
from hmrnn.nn.output import Output


class TwoWay(nn.Module):
    """Two baselines that read a sequence from its first step to its last and from its last to its first.

    ``out.hidden[l]`` is (T, B, 2 H_l): h of the forward direction, then of the reverse one. The state is a pair.
    """

    num_boundaries = 0
    layer_norm = False

    def __init__(self, make: Callable[[], Baseline]) -> None:
        super().__init__()
        self.ahead, self.back = make(), make()

    @property
    def directions(self) -> tuple[Baseline, Baseline]:
        return self.ahead, self.back

    def forward(
        self, x: Tensor, state: Any = None, lengths: Tensor | None = None, *, embedding: Tensor | None = None
    ) -> tuple[Output, States]:
        first, second = state or (None, None)
        out, end = self.ahead(x, first, lengths, embedding=embedding)
        turned, start = self.back(reverse_steps(x, lengths), second, lengths, embedding=embedding)
        hidden = tuple(torch.cat([h, reverse_steps(r, lengths)], dim=-1) for h, r in zip(out.hidden, turned.hidden))
        return Output(hidden, out.boundaries, out.probabilities, out.operations), States(end, start)

    @property
    def output_sizes(self) -> tuple[int, ...]:
        return tuple(2 * size for size in self.ahead.hidden_sizes)


def _of_both(name: str) -> property:
    """An attribute that both directions have: it is read from the forward one and set in both."""

    def set_both(rnn: TwoWay, value: Any) -> None:
        for direction in rnn.directions:
            setattr(direction, name, value)

    return property(lambda rnn: getattr(rnn.ahead, name), set_both)


for _name in ("input_size", "num_layers", "hidden_sizes", "weight_drop", "dropout", "slope", "engine", "check_values"):
    setattr(TwoWay, _name, _of_both(_name))
