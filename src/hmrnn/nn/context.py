"""Context: what a model reads beside the sequence, a condition and the time, as input or as initial state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hmrnn.config import ModelConfig
from hmrnn.errors import InputError
from hmrnn.ops import State


class Condition(NamedTuple):
    """What is known of each of B sequences beforehand: a class or numbers, and the time."""

    value: Tensor | None = None
    """(B,) indices of classes, or (B, numbers)."""
    clock: Tensor | None = None
    """(B,): the steps before the chunk (``model.time`` elapsed; zeros if None), or from its first step to the end of
    the sequence (left)."""
    text: Tensor | None = None
    """(B, U) int64: what each sequence says, for a network with a window over it; 0 after its end."""

    def after(self, steps: int, time: str) -> Condition:
        """The same after ``steps`` more steps."""
        if time == "none" or (time == "left" and self.clock is None):
            return self
        before = torch.zeros(1) if self.clock is None else self.clock
        return self._replace(clock=before - steps if time == "left" else before + steps)

    def chosen(self, rows: Sequence[int]) -> Condition:
        """The condition of some of the sequences; one that all share stays as it is."""
        return Condition(*(a[list(rows)] if a is not None and a.shape[0] > 1 else a for a in self))

    def expanded(self, B: int) -> Condition:
        """The condition of one sequence, for B sequences."""  # not by len(a), which a trace takes for a constant
        return Condition(*(a.expand(B, *a.shape[1:]) if a is not None and a.shape[0] == 1 else a for a in self))


class Context(nn.Module):
    """The condition as a vector v, and the time, for the recurrent network of a model.

    v is a row of ``embedding`` for a class, or a linear map of the numbers. As input it stands beside x at every step;
    as initial state it gives h = tanh(A v) and c = C v of every layer.
    """

    def __init__(self, config: ModelConfig, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.config = config
        self.used = config.conditioned or config.time != "none"
        size = config.condition_size
        self.embedding = nn.Embedding(len(config.classes), size) if config.classes else None
        self.linear = nn.Linear(config.condition_numbers, size) if config.condition_numbers else None
        starts = hidden_sizes if config.conditioned and config.condition != "input" else ()
        self.h = nn.ModuleList(nn.Linear(size, layer) for layer in starts)  # A
        self.c = nn.ModuleList(nn.Linear(size, layer) for layer in starts)  # C

    def vector(self, condition: Condition, B: int) -> Tensor | None:
        """(B, condition_size): the condition as a vector; None if there is none."""
        given, m = condition.value, self.config
        if not m.conditioned:
            if given is not None:
                raise InputError("this model was trained without a condition; leave it out")
            return None
        what = f"one of {', '.join(m.classes[:10])}" if m.classes else f"{m.condition_numbers} numbers"
        if given is None:
            raise InputError(f"this model was trained with a condition; give one: {what}")
        shape = (B,) if m.classes else (B, m.condition_numbers)
        if tuple(given.shape) != shape:
            raise InputError(f"condition must have shape {shape}, {what} for each sequence; got {tuple(given.shape)}")
        if self.embedding is not None:
            return self.embedding(given)
        assert self.linear is not None
        return self.linear(given.to(self.linear.weight))

    def forward(self, x: Tensor, condition: Condition) -> Tensor:
        """x (T, B, size) with the condition and the time beside it: (T, B, size + :func:`extra_size`)."""
        T, B = x.shape[:2]
        parts, vector = [x], self.vector(condition, B)
        if vector is not None and self.config.condition != "state":
            parts.append(vector.to(x.dtype).expand(T, -1, -1))
        if self.config.time != "none":
            parts.append(self._time(condition.clock, T, B, x))
        return torch.cat(parts, dim=-1) if len(parts) > 1 else x

    def _time(self, clock: Tensor | None, T: int, B: int, x: Tensor) -> Tensor:
        """(T, B, 1): the logarithm of 1 + the time at each step."""
        left = self.config.time == "left"
        if left and clock is None:
            raise InputError("this model reads how many steps are left; give the length of the sequence")
        steps = torch.arange(T, device=x.device)[:, None]
        start = torch.zeros(1, device=x.device) if clock is None else clock.to(x.device)
        count = (start - steps).clamp(min=0) if left else start + steps  # (T, B or 1)
        return torch.log1p(count.to(x.dtype)).expand(T, B)[..., None]

    def initial_state(self, rnn: Any, condition: Condition, B: int) -> State:
        """The state that sequences start from."""
        state: State = rnn.initial_state(B)
        if not len(self.h):
            return state
        vector = self.vector(condition, B)
        h = tuple(torch.tanh(layer(vector)).to(old.dtype) for layer, old in zip(self.h, state.h))
        c = tuple(layer(vector).to(old.dtype) for layer, old in zip(self.c, state.c))
        return state._replace(h=h, c=c)


def extra_size(config: ModelConfig) -> int:
    """The numbers that stand beside the input of a model at every step."""
    condition = config.condition_size if config.conditioned and config.condition != "state" else 0
    return condition + (config.time != "none")
