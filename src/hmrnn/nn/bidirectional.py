"""BidirectionalHMLSTM: one HM-LSTM per direction, for ``HMLSTM(..., bidirectional=True)``; stacks of networks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.output import Output, pack_like, unpack
from hmrnn.ops import LayerWeights, Options, State, streaming


class States(NamedTuple):
    """The states of a bidirectional network: a pair, one per direction."""

    forward: State  # after the last step of each sequence
    reverse: State  # after its first step, which the reverse direction reads last

    def apply(self, function: Callable[[Tensor], Tensor]) -> States:
        """The states with ``function`` applied to each tensor."""
        return States(self.forward.apply(function), self.reverse.apply(function))

    def detach(self) -> States:
        """The same values without their graph."""
        return self.apply(torch.Tensor.detach)

    def to(self, *args: Any, **kwargs: Any) -> States:
        """The states on another device or in another dtype, as by ``torch.Tensor.to``."""
        return self.apply(lambda a: a.to(*args, **kwargs))


torch.serialization.add_safe_globals([State, States])  # so that torch.load reads a state that was saved


def reverse_steps(a: Tensor, lengths: Tensor | Sequence[int] | None = None, batch_first: bool = False) -> Tensor:
    """``a``, (T, B, ...), or (B, T, ...) with ``batch_first``, with the steps of each sequence in reverse order.

    Padding stays where it is. Without ``lengths`` there is none, and ``a`` may have no batch dimension: (T, ...).
    """
    time = int(batch_first)
    if lengths is None:
        return a.flip(time)
    ends = torch.as_tensor(lengths, device=a.device).long()
    steps = torch.arange(a.shape[time], device=a.device)[:, None]
    source = torch.where(steps < ends, ends - 1 - steps, steps)  # (T, B)
    source = source.T if batch_first else source
    return a.gather(time, source.view(*source.shape, *[1] * (a.dim() - 2)).expand(a.shape))


class _ForwardDirection(HMLSTM):
    """The network of the forward direction, whose ``__dict__`` it shares; a call of it reads in both directions.

    torch finds submodules by ``getattr`` (``get_submodule``, ``torch.func.functional_call``), and it calls ``forward``.
    So ``rnn.forward``, the name of a submodule and of a method, must serve as both.
    """

    __slots__ = ("both",)
    both: Callable[..., Any]

    def __init__(self, rnn: BidirectionalHMLSTM) -> None:
        object.__setattr__(self, "__dict__", rnn.directions[0].__dict__)
        object.__setattr__(self, "both", functools.partial(type(rnn).forward, rnn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.both(*args, **kwargs)


def _of_both(name: str) -> Any:
    """An attribute that both directions have: it is read from the forward one and set in both."""

    def get(rnn: BidirectionalHMLSTM) -> Any:
        return getattr(rnn.directions[0], name)

    def set_both(rnn: BidirectionalHMLSTM, value: Any) -> None:
        for direction in rnn.directions:
            setattr(direction, name, value)

    return property(get, set_both)


class BidirectionalHMLSTM(HMLSTM):
    """Two HM-LSTMs that read a sequence from its first step to its last and from its last to its first.

    ``HMLSTM(..., bidirectional=True)`` makes one; the arguments are those of :class:`hmrnn.HMLSTM`. The two networks,
    ``rnn.forward`` and ``rnn.reverse``, share no parameters: their names start with ``forward.`` and ``reverse.``.
    Options such as ``batch_first``, ``engine`` and ``slope`` are those of both, and are set in both.

    Inputs: as of HMLSTM, except
        - **state**: a pair of states. The reverse direction starts from its own at the last step of each sequence.
        - **boundaries**: (T, B, L-1, 2), forced in the forward direction and in the reverse one.

    Outputs: out, state
        - **out.hidden**: L tensors (T, B, 2 H_l), ``rnn.output_sizes``: h of the forward direction, then of the reverse
          one, which has read the sequence from its end to this step.
        - **out.boundaries**, **out.probabilities**: (T, B, L-1, 2), and **out.operations**: (T, B, L, 2); the last axis
          is the direction. A boundary of the reverse direction ends a segment that is read backwards: the segment
          begins at this step.
        - **state**: :class:`States`, a pair: of the forward direction after the last step, of the reverse direction
          after the first.

    The whole sequence has to be there, so there is no ``step``.

    Example::

        >>> rnn = hmrnn.HMLSTM(10, (20, 30), num_layers=2, bidirectional=True)
        >>> out, (forward, reverse) = rnn(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> [tuple(h.shape) for h in out.hidden], tuple(out.boundaries.shape), tuple(reverse.h[1].shape)
        ([(50, 4, 40), (50, 4, 60)], (50, 4, 1, 2), (4, 30))
    """

    reverse: HMLSTM

    def __init__(self, *args: Any, bidirectional: bool = True, **options: Any) -> None:
        nn.Module.__init__(self)
        if checks.truth("bidirectional", bidirectional) is False:
            raise InputError("a BidirectionalHMLSTM reads in both directions; make an HMLSTM for one")
        self._modules["forward"] = HMLSTM(*args, **options)
        self._modules["reverse"] = HMLSTM(*args, **options)
        self.__dict__["forward"] = _ForwardDirection(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "forward"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__["forward"] = _ForwardDirection(self)

    @property
    def directions(self) -> tuple[HMLSTM, HMLSTM]:
        """The networks of the forward and of the reverse direction."""
        return cast(HMLSTM, self._modules["forward"]), cast(HMLSTM, self._modules["reverse"])

    @property
    def output_sizes(self) -> tuple[int, ...]:
        return tuple(2 * size for size in self.hidden_sizes)

    def reset_parameters(self) -> None:
        for direction in self.directions:
            direction.reset_parameters()

    def set_detector_bias(self, values: Sequence[float]) -> None:
        for direction in self.directions:
            direction.set_detector_bias(values)

    def detector_biases(self) -> list[nn.Parameter]:
        """As of HMLSTM: those of the forward direction, then those of the reverse one."""
        return [bias for direction in self.directions for bias in direction.detector_biases()]

    def layers(self) -> list[LayerWeights]:
        """The parameters of each layer of the forward direction, then of the reverse one."""
        return [weights for direction in self.directions for weights in direction.layers()]

    def options(self) -> Options:
        return self.directions[0].options()

    @property
    def parameter(self) -> Tensor:
        return self.directions[0].parameter

    def initial_state(self, batch_size: int) -> States:  # type: ignore[override]
        """The states that both directions start from: zeros."""
        one, other = (direction.initial_state(batch_size) for direction in self.directions)
        return States(one, other)

    def forward(  # type: ignore[override]
        self,
        x: Tensor | PackedSequence,
        state: tuple[State, State] | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        boundaries: Tensor | None = None,
        *,
        embedding: Tensor | None = None,
    ) -> tuple[Output, States]:
        packed = x if isinstance(x, PackedSequence) else None
        x, lengths = unpack(x, lengths, self.batch_first)
        one, other = self.directions
        first, second = _pair(state)
        alone = packed is None and checks.unbatched(self, x, embedding)
        ahead, back = _per_direction(boundaries, alone)
        batch_first = self.batch_first and not alone

        out, end = one(x, first, lengths, ahead, embedding=embedding)  # checks all of them before they are reversed
        steps = (None if a is None else reverse_steps(a, lengths, batch_first) for a in (x, back))
        turned, start = other(next(steps), second, lengths, next(steps), embedding=embedding)

        def joined(name: str) -> Tensor:
            return torch.stack([getattr(out, name), reverse_steps(getattr(turned, name), lengths, batch_first)], dim=-1)

        hidden: tuple[Any, ...] = tuple(
            torch.cat([h, reverse_steps(r, lengths, batch_first)], dim=-1) for h, r in zip(out.hidden, turned.hidden)
        )
        if packed is not None:
            hidden = tuple(pack_like(h, packed, self.batch_first) for h in hidden)
        others = (joined(name) for name in ("boundaries", "probabilities", "operations"))
        return type(out)(hidden, *others), States(end, start)

    def step(self, x: Tensor, state: State | None = None, boundaries: Tensor | None = None) -> streaming.Step:
        raise InputError(
            "a bidirectional network has no step: it reads a sequence from its end, too; give it the whole sequence"
        )

    def extra_repr(self) -> str:
        return f"{self.directions[0].extra_repr()}, bidirectional=True"

    def __repr__(self) -> str:
        return f"HMLSTM({self.extra_repr()})" if type(self) is BidirectionalHMLSTM else super().__repr__()


for _name in (
    "input_size", "num_layers", "num_boundaries", "hidden_sizes", "layer_norm", "boundary", "on_copy", "flush", "copy",
    "top_down", "detector_hidden", "batch_first", "weight_drop", "dropout", "zoneout", "engine", "rates",
    "check_values", "slope", "temperature", "a", "tau",
):  # fmt: skip
    setattr(BidirectionalHMLSTM, _name, _of_both(_name))
HMLSTM._bidirectional = BidirectionalHMLSTM


def one_way(model: nn.Module) -> list[HMLSTM]:
    """Every HM-LSTM in ``model`` that reads in one direction; of a bidirectional network, the two it consists of."""
    found = (module for module in model.modules() if isinstance(module, HMLSTM))
    return [module for module in found if not isinstance(module, BidirectionalHMLSTM)]


def _pair(state: tuple[State, State] | None) -> tuple[State | None, State | None]:
    """The states that the two directions start from."""
    if state is None:
        return None, None
    if isinstance(state, State) or not isinstance(state, (tuple, list)) or len(state) != 2:
        got = f"{len(state)} of them" if type(state) in (tuple, list) else type(state).__name__
        raise InputError(
            f"state must be None or a pair of hmrnn.State, of the forward direction and of the reverse one; got {got}"
        )
    return state[0], state[1]


def _per_direction(boundaries: Tensor | None, alone: bool) -> tuple[Tensor | None, Tensor | None]:
    """The forced boundaries of the two directions; ``alone``: of one sequence, without a batch dimension."""
    if boundaries is None:
        return None, None
    if not isinstance(boundaries, Tensor):
        raise InputError(f"boundaries must be None or a tensor; got {type(boundaries).__name__}")
    if boundaries.dim() != (3 if alone else 4) or boundaries.shape[-1] != 2:
        raise InputError(
            f"boundaries must have the shape of out.boundaries, ({'T' if alone else 'T, B'}, L-1, 2), the last axis "
            f"for the direction; got {tuple(boundaries.shape)}"
        )
    return boundaries[..., 0], boundaries[..., 1]


class Stack(nn.Module):
    """Whole networks on top of each other: each reads h of all layers of the one below, side by side, at every step.

    Args:
        networks: the networks, the lowest first, such as bidirectional ones. The ``input_size`` of each but the first
            must be ``sum(below.output_sizes)``; all must agree in ``batch_first``.

    Inputs: x, states, lengths, boundaries
        - **x**, **lengths**, **embedding**: as of the networks; packed sequences, too.
        - **states**: a state per network, or None.
        - **boundaries**: forced boundaries per network, each a tensor or None; or None.

    Outputs: outs, states
        - **outs**: a tuple of :class:`hmrnn.Output`, one per network. ``outs[-1].hidden`` goes to a read-out.
        - **states**: a tuple of states, one per network.

    Example::

        >>> low = hmrnn.HMLSTM(10, 20, 2, bidirectional=True)
        >>> stack = hmrnn.nn.Stack([low, hmrnn.HMLSTM(sum(low.output_sizes), 30, 2, bidirectional=True)])
        >>> outs, states = stack(torch.randn(50, 4, 10))
        >>> stack.output_sizes, tuple(outs[-1].hidden[0].shape)
        ((60, 60), (50, 4, 60))
    """

    def __init__(self, networks: Sequence[HMLSTM]) -> None:
        super().__init__()
        if not networks:
            raise InputError("networks must hold at least one network")
        for below, above in itertools.pairwise(networks):
            if above.input_size != sum(below.output_sizes):
                raise InputError(
                    f"each network of a stack must have the input_size sum(below.output_sizes) = "
                    f"{sum(below.output_sizes)}; got {above.input_size}"
                )
            if above.batch_first != below.batch_first:
                raise InputError("the networks of a stack must agree in batch_first")
        self.networks = nn.ModuleList(networks)

    @property
    def output_sizes(self) -> tuple[int, ...]:
        """The sizes of ``outs[-1].hidden``."""
        return cast(HMLSTM, self.networks[-1]).output_sizes

    def forward(
        self,
        x: Tensor | PackedSequence,
        states: Sequence[Any] | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        boundaries: Sequence[Tensor | None] | None = None,
        *,
        embedding: Tensor | None = None,
    ) -> tuple[tuple[Output, ...], tuple[Any, ...]]:
        count = len(self.networks)
        for name, given in (("states", states), ("boundaries", boundaries)):
            if given is not None and len(given) != count:
                raise InputError(f"{name} must be None or hold {count}, one per network; got {len(given)}")
        outs: list[Output] = []
        ends: list[Any] = []
        for k, network in enumerate(self.networks):
            state = None if states is None else states[k]
            forced = None if boundaries is None else boundaries[k]
            out, end = network(x, state, lengths, forced, embedding=embedding)
            outs.append(out)
            ends.append(end)
            x, embedding = side_by_side(out.hidden), None
        return tuple(outs), tuple(ends)


def side_by_side(hidden: Sequence[Any]) -> Any:
    """h of all layers in one tensor, (..., sum of sizes); packed if they are packed."""
    if isinstance(hidden[0], PackedSequence):
        return hidden[0]._replace(data=torch.cat([h.data for h in hidden], dim=-1))
    return torch.cat(list(hidden), dim=-1)
