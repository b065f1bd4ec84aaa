"""What recurrent networks have in common: their arguments, the forms of their input, and what is checked of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, InitVar
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from hmrnn.config.checks import Count, Share, types_of
from hmrnn.errors import InputError
from hmrnn.nn.checks import Sizes, argument
from hmrnn.nn.output import Lengths, Output, as_given
from hmrnn.nn.shared import Shared
from hmrnn.ops import State, Symbols, autocast_dtype
from hmrnn.ops.interface import readable, within

T = TypeVar("T")
LARGEST, LARGEST_NORMALISED = 1e31, 1e15
"""Largest absolute values that float32 can multiply by a row of weights, and with layer norm also square."""

ROUNDING = 1e-3
"""How far outside of 0 and 1 a boundary may lie, as computed ("soft") boundaries are rounded."""


class Pass(NamedTuple):
    """What a network reads, after all checks, with T before B."""

    x: Any
    """(T, B, size), or :class:`hmrnn.ops.Symbols`."""
    state: Any
    lengths: Tensor | None = None
    boundaries: Tensor | None = None


class Network(Shared):
    """The base of recurrent networks of one and of two directions."""

    input_size: int
    hidden_sizes: tuple[int, ...]
    num_boundaries = 0
    batch_first = False
    layer_norm = False
    check_values = False
    settable = False
    """Whether the detectors can be given rates; not if a text gives the boundaries."""
    late = 0
    """Steps by which the lowest detector fires after the end of a segment; settings may make it later."""
    default_gain = 1.0
    """Of U and V with layer norm, at the start of ``hmrnn train``."""

    @property
    def output_sizes(self) -> tuple[int, ...]:
        """The sizes of ``out.hidden``, the lowest layer first."""
        return self.hidden_sizes

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        """The sizes of ``state.c``, the lowest layer first."""
        return self.hidden_sizes

    @property
    def boundary_shape(self) -> tuple[int, ...]:
        """The shape of the boundaries of one step of one sequence."""
        return (self.num_boundaries,)

    @property
    def parameter(self) -> Tensor:
        """One of the parameters, whose dtype and device all have."""
        return next(self.parameters())

    def initial_state(self, batch_size: int) -> Any:
        """The state at the start of a sequence: zeros."""
        p = self.parameter
        h, c = (tuple(p.new_zeros(batch_size, n) for n in sizes) for sizes in (self.hidden_sizes, self.cell_sizes))
        return State(h, c, p.new_zeros(batch_size, self.num_boundaries))

    def forward(
        self,
        x: Any,
        state: Any = None,
        lengths: Lengths = None,
        boundaries: Tensor | None = None,
        *,
        embedding: Tensor | None = None,
    ) -> Any:
        packed = x if isinstance(x, PackedSequence) else None
        alone = packed is None and isinstance(x, Tensor) and x.dim() == (2 if embedding is None else 1)
        alone = alone and (embedding is not None or x.shape[1] == self.input_size)
        if lengths is not None and (alone or packed is not None):
            raise InputError("lengths must be None for a PackedSequence, which has its own, and for x without a batch")
        if packed is not None:
            x, lengths = pad_packed_sequence(packed, self.batch_first)
        if alone:
            batch = 0 if self.batch_first else 1
            x = x.unsqueeze(batch)
            state = None if state is None else self.as_state(state).apply(lambda a: a.unsqueeze(0))
            boundaries = boundaries.unsqueeze(batch) if isinstance(boundaries, Tensor) else boundaries
        out, end = self.read(self.checked(x, state, lengths, boundaries, embedding))
        return as_given(out, self.batch_first, packed, alone), end.apply(lambda a: a.squeeze(0)) if alone else end

    def read(self, given: Pass) -> tuple[Output, Any]:
        """``forward`` of what was checked."""
        raise NotImplementedError

    def checked(
        self,
        x: Tensor,
        state: Any,
        lengths: Lengths = None,
        boundaries: Tensor | None = None,
        embedding: Tensor | None = None,
        order: str = "",
    ) -> Pass:
        """What is to be read, after checks; ``order``: the axes before the last one, "B" of a single step.

        Shapes, dtypes and devices are checked, and that forced boundaries lie between 0 and 1. On a CPU x or the
        embedding must be finite and not too large, and symbols must be rows of the embedding; one reduction each finds
        that. With ``check_values`` this holds on every device, and for the state, too. Padding is not checked. To check
        waits for a GPU. Where values cannot be read (``torch.compile``, ``torch.func``, CUDA graphs, the device meta)
        they are not checked.
        """
        order, like = order or ("BT" if self.batch_first else "TB"), self.parameter
        if embedding is None:
            check_tensor("x", x, (*order, self.input_size), like)
        else:
            check_tensor("x", x, order)
            check_symbols(x, like)
            check_tensor("embedding", embedding, ("symbols", self.input_size), like)
        if len(order) > 1:
            check_some(x)
        if boundaries is not None:
            boundaries = boundaries.to(like.dtype) if isinstance(boundaries, Tensor) else boundaries
            check_tensor("boundaries", boundaries, (*x.shape[: len(order)], *self.boundary_shape), like)
        if order == "BT":
            x = x.transpose(0, 1)
            boundaries = None if boundaries is None else boundaries.transpose(0, 1)
        B = x.shape[len(order) - 1]
        state = self.initial_state(B) if state is None else self.as_state(state)
        self.check_state(state, B)
        lengths = check_lengths(lengths, len(x), B, x.device)
        if boundaries is not None and readable(x):
            check_range("boundaries", boundaries, lengths, nan=True)
        self.check_numbers(x, embedding, lengths)
        return Pass(x if embedding is None else Symbols(x, embedding), state, lengths, boundaries)

    def check_numbers(self, x: Tensor, embedding: Tensor | None, lengths: Tensor | None) -> None:
        """Check the values of x (T, B, size), or of symbols (T, B) and their embedding."""
        if not (self.check_values or x.device.type == "cpu") or not readable(x):
            return
        if embedding is None:
            check_size("x", x, self.layer_norm, lengths)
        else:
            last = len(embedding) - 1
            rule = f"hold symbol indices from 0 to {last}, one per row of embedding"
            check_within("x", x, 0, last, rule, lengths)
            check_size("embedding", embedding, self.layer_norm)

    def as_state(self, state: Any) -> Any:
        """``state`` as a state of this network, whose tensors are not checked yet."""
        if not isinstance(state, State):
            raise InputError(f"state must be None or an hmrnn.State, as a pass returns it; got {type(state).__name__}")
        return state

    def check_state(self, state: Any, B: int) -> None:
        """Check the tensors of a state of B sequences."""
        for name, tensors, sizes in (("h", state.h, self.hidden_sizes), ("c", state.c, self.cell_sizes)):
            if len(tensors) != len(sizes):
                raise InputError(f"state.{name} must hold a tensor for each of {len(sizes)} layers; got {len(tensors)}")
            for l, (a, size) in enumerate(zip(tensors, sizes)):
                self.check_part(f"state.{name}[{l}]", a, (B, size))
        for name, gate in (("z", state.z), ("pending", state.pending)):
            if gate is not None:
                self.check_part(f"state.{name}", gate, (B, self.num_boundaries), gate=True)

    def check_part(self, name: str, a: Any, shape: tuple[int, ...], gate: bool = False) -> None:
        """Check a tensor of a state and, with ``check_values``, its numbers; those of a ``gate`` are 0 to 1."""
        check_tensor(name, a, shape, self.parameter)
        if self.check_values and readable(a):
            if gate:
                check_range(name, a)
            else:
                check_size(name, a, self.layer_norm)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(dataclasses.field,))
def declared(kind: type[T]) -> type[T]:
    """Decorator of a class whose own fields are keyword arguments."""
    return dataclasses.dataclass(eq=False, repr=False, kw_only=True)(kind)


def arguments(kind: type[Recurrent]) -> dict[str, Any]:
    """The type of each argument of a dataclass."""
    return {field.name: types_of(kind)[field.name] for field in dataclasses.fields(kind) if field.init}


@dataclasses.dataclass(eq=False, repr=False)
class Recurrent(Network):
    """A recurrent network of one direction: a dataclass whose fields are its arguments, checked by their types."""

    input_size: Count
    hidden_size: Count | Sizes
    _: KW_ONLY
    check_values: bool = False
    device: InitVar[torch.device | str | int | None] = None
    dtype: InitVar[torch.dtype | None] = None

    def __post_init__(self, device: torch.device | str | int | None, dtype: torch.dtype | None) -> None:
        nn.Module.__init__(self)
        self._made: dict[str, Any] = {"device": device, "dtype": dtype}
        for name, kind in arguments(type(self)).items():
            setattr(self, name, argument(name, getattr(self, name), kind))

    def _arguments(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}

    def extra_repr(self) -> str:
        """The arguments that have no default, and those that differ from theirs."""
        given = [(f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self) if f.init]
        return ", ".join(
            repr(value) if default is dataclasses.MISSING else f"{name}={value!r}"
            for name, value, default in given
            if value != default
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


for _name in ("device", "dtype"):  # which the defaults of an InitVar leave
    delattr(Recurrent, _name)


@dataclasses.dataclass(eq=False, repr=False)
class Stacked(Recurrent):
    """A stack of recurrent layers of their own sizes, with h of every layer as the output."""

    num_layers: Count = 3
    _: KW_ONLY
    weight_drop: Share = 0.0
    dropout: Share = 0.0

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        sizes = self.hidden_size if isinstance(self.hidden_size, tuple) else (self.hidden_size,)
        if len(sizes) not in (1, self.num_layers):
            wanted = f"expected one number or {self.num_layers}, one per layer"
            raise InputError(wanted, setting="hidden_size", value=str(sizes))
        self.hidden_sizes = sizes if len(sizes) == self.num_layers else sizes * self.num_layers
        self._below = (self.input_size, *self.hidden_sizes[:-1])


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """``eval()`` within a block; afterwards every module has the mode that it had before."""
    modes = {module: module.training for module in network.modules()}
    if any(modes.values()):
        network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            if module.training != training:  # setting an attribute of a module takes long
                module.training = training


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context in which products are computed in ``precision``: float32 or bf16."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


def check_tensor(name: str, value: object, shape: Sequence[int | str], like: Tensor | None = None) -> None:
    """Check that ``value`` is a dense tensor of this shape, where a name stands for any length.

    With ``like``, a parameter, it must be on its device and of its dtype; autocast takes others but float64.
    """
    got = type(value).__name__
    if isinstance(value, Tensor):
        fits = value.dim() == len(shape)
        fits = fits and all(isinstance(wanted, str) or wanted == n for wanted, n in zip(shape, value.shape))
        plain = value.layout == torch.strided and not value.is_nested
        got = "" if fits and plain else f"shape {tuple(value.shape)}" if plain else f"a tensor that is {value.layout}"
    if got or not isinstance(value, Tensor):
        raise InputError(f"{name} must be a dense tensor of shape ({', '.join(map(str, shape))}); got {got}")
    if like is not None:
        check_device(name, value, like)
        castable = value.is_floating_point() and value.dtype != torch.float64
        if value.dtype != like.dtype and not (castable and autocast_dtype(like.device) is not None):
            raise InputError(f"{name} is {value.dtype} but the parameters are {like.dtype}; use .to(...)")


def check_device(name: str, value: Tensor, like: Tensor) -> None:
    """Check that ``value`` is on the device of ``like``."""
    if value.device != like.device:
        raise InputError(f"{name} is on {value.device} but the parameters are on {like.device}; use .to(...)")


def check_some(x: Tensor) -> None:
    """Check that there is at least one step of one sequence."""
    if 0 in x.shape:
        raise InputError(f"x must hold at least one step and one sequence; got shape {tuple(x.shape)}")


def check_symbols(x: Tensor, like: Tensor) -> None:
    """Check dtype and device of symbols, which are indices of an embedding."""
    check_device("x", x, like)
    if x.dtype not in (torch.int64, torch.int32):
        raise InputError(f"x must hold symbol indices (int64 or int32) when embedding is given; got {x.dtype}")


def check_size(name: str, a: Tensor, layer_norm: bool, lengths: Tensor | None = None) -> None:
    """Numbers must be finite and small enough to be multiplied by weights and, with layer norm, squared."""
    limit = LARGEST_NORMALISED if layer_norm else LARGEST
    rule = f"be finite and at most {limit:g} in size" + " with layer_norm, which squares it" * layer_norm
    check_within(name, a, -limit, limit, rule, lengths)


def check_range(name: str, z: Tensor, lengths: Tensor | None = None, nan: bool = False) -> None:
    """Boundaries must lie between 0 and 1; ``nan``: or be NaN, which leaves the decision to the detector."""
    check_within(name, z, -ROUNDING, 1 + ROUNDING, "lie between 0 and 1", lengths, nan)


def check_within(
    name: str, a: Tensor, low: float, high: float, rule: str, lengths: Tensor | None = None, nan: bool = False
) -> None:
    """InputError about the first value of ``a``, (T, B, ...) or (B, size), that is out of range.

    Padding may hold anything; ``nan``: NaN is in range.
    """
    if a.numel() == 0:
        return
    least, most = a.detach().aminmax()
    if low <= least.item() and most.item() <= high:  # False if one is NaN
        return
    wrong = ~((a >= low) & (a <= high))
    if nan:
        wrong &= ~a.isnan()
    steps = a.dim() > 2 or not a.is_floating_point()
    if lengths is not None and steps:
        wrong &= within(lengths, len(a)).view(*a.shape[:2], *[1] * (a.dim() - 2))
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        axes = ("step", "sequence", "position", "direction") if steps else ("row", "position")
        where = ", ".join(f"{axis} {k}" for axis, k in zip(axes, place))
        raise InputError(f"{name} must {rule}; got {a[tuple(place)].item():.10g} at {where}")


def check_lengths(lengths: Tensor | Sequence[int] | None, T: int, B: int, device: torch.device) -> Tensor | None:
    """``lengths`` as an int64 tensor on ``device``; they must be B whole numbers from 1 to T, if they can be read."""
    if lengths is None:
        return None
    try:
        given = torch.as_tensor(lengths)
        whole = given.dtype != torch.bool and not given.is_floating_point() and not given.is_complex()
    except (TypeError, ValueError, RuntimeError):
        whole = False
    if not whole:
        raise InputError(f"lengths must be {B} whole numbers, one per sequence; got {lengths!r}")
    check_tensor("lengths", given, (B,))
    lengths = given.to(torch.int64)  # int8 could not be compared with a T of 300
    if readable(lengths) and (bool((lengths < 1).any()) or bool((lengths > T).any())):
        raise InputError(f"lengths must lie between 1 and T = {T}; got {lengths.tolist()}")
    return lengths.to(device)
