"""Bidirectional: a network per direction, as ``HMLSTM(..., bidirectional=True)`` makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.nn.output import Output, at_steps
from hmrnn.nn.recurrent import Network, Pass
from hmrnn.ops import State, Symbols


class States(NamedTuple):
    """The states of a bidirectional network: a pair, one per direction."""

    ahead: State  # after the last step of each sequence
    back: State  # after its first step, which is read last

    def apply(self, function: Callable[[Tensor], Tensor]) -> States:
        """The states with ``function`` applied to each tensor."""
        return States(self.ahead.apply(function), self.back.apply(function))

    def detach(self) -> States:
        """The same values without their graph."""
        return self.apply(torch.Tensor.detach)

    def to(self, *args: Any, **kwargs: Any) -> States:
        """The states on another device or in another dtype, as by ``torch.Tensor.to``."""
        return self.apply(lambda a: a.to(*args, **kwargs))


torch.serialization.add_safe_globals([State, States])  # so that torch.load reads a state that was saved


def reverse_steps(a: Any, lengths: Tensor | Sequence[int] | None = None) -> Any:
    """``a`` (T, B, ...) with the steps of each sequence in reverse order; padding stays where it is."""
    if isinstance(a, Symbols):
        return Symbols(reverse_steps(a.indices, lengths), a.embedding)
    if a is None or lengths is None:
        return a if a is None else a.flip(0)
    ends = torch.as_tensor(lengths, device=a.device).long()
    steps = torch.arange(len(a), device=a.device)[:, None]
    return at_steps(a, torch.where(steps < ends, ends - 1 - steps, steps))


class Bidirectional(Network):
    """Two networks that read a sequence from its first step to its last and from its last to its first.

    ``HMLSTM(..., bidirectional=True)`` makes one of two HM-LSTMs, which share no parameters. Options that both have,
    such as ``batch_first``, ``engine`` and ``slope``, are read from the first and set in both.

    Args:
        ahead, back: the networks, made alike; the names of their parameters start with ``ahead.`` and ``back.``.

    Inputs: as of the networks, except
        - **state**: a pair of states. The network that reads back starts from its own at the last step of each
          sequence.
        - **boundaries**: (T, B, L-1, 2), forced in the first network and in the second.

    Outputs: out, state
        - **out.hidden**: L tensors (T, B, 2 H_l), ``rnn.output_sizes``: h of the first network, then of the one that
          reads back, which has read the sequence from its end to this step.
        - **out.boundaries**, **out.probabilities**: (T, B, L-1, 2), and **out.operations**: (T, B, L, 2); the last axis
          is the direction. A boundary of the network that reads back ends a segment that is read backwards: the segment
          begins at this step.
        - **state**: :class:`States`, a pair: of the first network after the last step, of the other after the first.

    The whole sequence has to be there, so there is no ``step``.

    Example::

        >>> rnn = hmrnn.HMLSTM(10, (20, 30), num_layers=2, bidirectional=True)
        >>> out, (ahead, back) = rnn(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> [tuple(h.shape) for h in out.hidden], tuple(out.boundaries.shape), tuple(back.h[1].shape)
        ([(50, 4, 40), (50, 4, 60)], (50, 4, 1, 2), (4, 30))
    """

    def __init__(self, ahead: nn.Module, back: nn.Module) -> None:
        super().__init__()
        self.ahead: Any = ahead
        self.back: Any = back

    def _arguments(self) -> dict[str, Any]:
        return {**self.ahead._arguments(), "bidirectional": True}

    @property
    def directions(self) -> tuple[Any, Any]:
        return self.ahead, self.back

    @property
    def boundary_shape(self) -> tuple[int, ...]:
        return (self.num_boundaries, 2)  # the last axis is the direction

    @property
    def output_sizes(self) -> tuple[int, ...]:
        return tuple(2 * size for size in self.directions[0].hidden_sizes)

    def reset_parameters(self) -> None:
        for direction in self.directions:
            direction.reset_parameters()

    def set_detector_bias(self, values: Sequence[float]) -> None:
        for direction in self.directions:
            direction.set_detector_bias(values)

    def detector_biases(self) -> list[nn.Parameter]:
        """As of HMLSTM: those of the first network, then those of the one that reads back."""
        return [bias for direction in self.directions for bias in direction.detector_biases()]

    def multiply_adds(self, out: Output, before: Any = None, looked_up: bool = False) -> Tensor:
        """As of HMLSTM, of both directions."""
        ahead = out.apply(lambda a: a[..., 0], hidden=out.hidden)
        back = out.apply(lambda a: a[..., 1].flip(0), hidden=out.hidden)  # in the order in which it read the steps
        found: list[Tensor] = [
            one.multiply_adds(part, before, looked_up) for one, part in zip(self.directions, (ahead, back))
        ]
        return found[0] + found[1].flip(0)

    def initial_state(self, batch_size: int) -> States:
        """The states that both networks start from: zeros."""
        return States(*(direction.initial_state(batch_size) for direction in self.directions))

    def as_state(self, state: Any) -> States:
        if isinstance(state, State) or not isinstance(state, (tuple, list)) or len(state) != 2:
            got = f"{len(state)} of them" if type(state) in (tuple, list) else type(state).__name__
            raise InputError(f"state must be None or a pair of hmrnn.State, one per direction; got {got}")
        return States(*map(self.ahead.as_state, state))

    def check_state(self, state: States, B: int) -> None:
        for direction, one in zip(self.directions, state):
            direction.check_state(one, B)

    def read(self, given: Pass) -> tuple[Output, States]:
        x, state, lengths, boundaries = given
        ahead, back = (None, None) if boundaries is None else boundaries.unbind(-1)
        out, end = self.ahead.read(Pass(x, state.ahead, lengths, ahead))
        reverse = partial(reverse_steps, lengths=lengths)
        turned, start = self.back.read(Pass(reverse(x), state.back, lengths, reverse(back)))
        hidden = [torch.cat([h, reverse(r)], dim=-1) for h, r in zip(out.hidden, turned.hidden)]
        both = out.apply(lambda a, b: torch.stack([a, reverse(b)], dim=-1), turned, hidden=hidden)
        return both, States(end, start)


def _of_both(name: str) -> property:
    """An attribute that both networks have: it is read from the first and set in both."""

    def set_both(rnn: Bidirectional, value: Any) -> None:
        for direction in rnn.directions:
            setattr(direction, name, value)

    return property(lambda rnn: getattr(rnn.ahead, name), set_both)


for _name in (
    "input_size", "num_layers", "num_boundaries", "hidden_sizes", "layer_norm", "variant", "on_copy",
    "batch_first", "boundary", "a", "weight_drop", "dropout", "zoneout", "engine", "check_values", "slope",
    "temperature", "engine_for", "settable", "late", "default_gain",
):  # fmt: skip
    setattr(Bidirectional, _name, _of_both(_name))


def side_by_side(hidden: Sequence[Any]) -> Any:
    """h of all layers in one tensor, (..., sum of sizes); packed if they are packed."""
    if isinstance(hidden[0], PackedSequence):
        return hidden[0]._replace(data=torch.cat([h.data for h in hidden], dim=-1))
    return torch.cat(list(hidden), dim=-1)
