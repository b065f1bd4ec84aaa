"""Checks of the arguments of modules. Each raises InputError: what was expected, what was given, what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, InitVar
from typing import Annotated, Any, Protocol, cast

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.config.checks import Count, checked, types_of
from hmrnn.errors import InputError
from hmrnn.nn.output import Lengths, Output, as_given, unpack
from hmrnn.ops import State, autocast_dtype
from hmrnn.ops.interface import within

Sizes = Annotated[tuple[Count, ...], Meta(min_length=1)]
"""The sizes of layers."""
LARGEST, LARGEST_NORMALISED = 1e31, 1e15
"""Largest absolute values that float32 can multiply by a row of weights, and with layer norm also square."""

ROUNDING = 1e-3
"""How far outside of 0 and 1 a boundary may lie, as computed ("soft") boundaries are rounded."""


class Network(Protocol):
    """The attributes of a recurrent network that the checks read."""

    input_size: int
    hidden_sizes: tuple[int, ...]
    num_boundaries: int
    batch_first: bool
    layer_norm: bool
    check_values: bool

    @property
    def parameter(self) -> Tensor: ...
    def initial_state(self, batch_size: int) -> State: ...


def check_pass(
    rnn: Network,
    x: Tensor,
    state: State | None,
    lengths: Tensor | Sequence[int] | None = None,
    boundaries: Tensor | None = None,
    embedding: Tensor | None = None,
    *,
    sequence: bool = True,
) -> tuple[Tensor, State, Tensor | None, Tensor | None]:
    """x, state, lengths and boundaries, with T before B, of a pass over sequences, or of a step if not ``sequence``."""
    check_input(rnn, x, embedding, sequence)
    boundaries = check_boundaries(rnn, boundaries, x.shape[: 1 + sequence])
    if sequence and rnn.batch_first:
        x = x.transpose(0, 1)
        boundaries = None if boundaries is None else boundaries.transpose(0, 1)
    B = x.shape[int(sequence)]
    state = rnn.initial_state(B) if state is None else state
    check_state(rnn, state, B)
    lengths = check_lengths(lengths, len(x), B, x.device)
    check_values(rnn, x, state, boundaries, lengths, embedding)
    return x, state, lengths, boundaries


def check_sequences(
    rnn: Network,
    x: Tensor | PackedSequence,
    state: State | None,
    lengths: Lengths,
    boundaries: Tensor | None,
    embedding: Tensor | None,
) -> tuple[bool, Tensor, State, Tensor | None, Tensor | None]:
    """:func:`check_pass` of what ``forward`` is given; before it, whether that is one sequence without a batch."""
    packed = isinstance(x, PackedSequence)
    x, lengths = unpack(x, lengths, rnn.batch_first)
    alone = not packed and unbatched(rnn, x, embedding)
    if alone:
        if lengths is not None:
            raise InputError("lengths must be None when x has no batch dimension; leave out the steps beyond the end")
        batch = 0 if rnn.batch_first else 1
        x = x.unsqueeze(batch)
        state = state.apply(lambda a: a.unsqueeze(0)) if isinstance(state, State) else state
        boundaries = boundaries.unsqueeze(batch) if isinstance(boundaries, Tensor) else boundaries
    return alone, *check_pass(rnn, x, state, lengths, boundaries, embedding)


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


def check_input(rnn: Network, x: Tensor, embedding: Tensor | None, sequence: bool) -> None:
    """Check shape, dtype and device of x (T, B, size), or (B, size) if not ``sequence``, and of the embedding."""
    order = "B" if not sequence else "BT" if rnn.batch_first else "TB"
    if embedding is None:
        check_tensor("x", x, (*order, rnn.input_size), rnn.parameter)
    else:
        check_tensor("x", x, order)
        check_device("x", x, rnn.parameter)
        if x.dtype not in (torch.int64, torch.int32):
            raise InputError(f"x must hold symbol indices (int64 or int32) when embedding is given; got {x.dtype}")
        check_tensor("embedding", embedding, ("symbols", rnn.input_size), rnn.parameter)
    if sequence and 0 in x.shape[:2]:
        raise InputError(f"x must hold at least one step and one sequence; got shape {tuple(x.shape)}")


def unbatched(rnn: Network, x: Tensor, embedding: Tensor | None) -> bool:
    """Whether x is one sequence without a batch dimension: (T, size), or symbols (T,)."""
    if not isinstance(x, Tensor):
        return False
    return x.dim() == 1 if embedding is not None else x.dim() == 2 and x.shape[1] == rnn.input_size


def check_values(
    rnn: Network,
    x: Tensor,
    state: State | None,
    boundaries: Tensor | None = None,
    lengths: Tensor | None = None,
    embedding: Tensor | None = None,
) -> None:
    """Check the values of what a pass is given, beyond shapes and dtypes.

    Forced boundaries must lie between 0 and 1. On a CPU x or the embedding must be finite and not too large, and
    symbols must be rows of the embedding; one reduction each finds that. With ``rnn.check_values`` this holds on every
    device, and for the state, too. Padding is not checked. To check waits for a GPU. Where values cannot be read
    (``torch.compile``, ``torch.func``, CUDA graphs, the device meta) they are not checked.
    """
    looks = rnn.check_values or x.device.type == "cpu"
    if not (looks or boundaries is not None) or not readable(x):
        return
    if boundaries is not None:
        check_range("boundaries", boundaries, lengths, nan=True)
    if looks and embedding is None:
        check_size("x", x, rnn.layer_norm, lengths)
    elif looks and embedding is not None:
        last = len(embedding) - 1
        _check_within("x", x, 0, last, f"hold symbol indices from 0 to {last}, one per row of embedding", lengths)
        check_size("embedding", embedding, rnn.layer_norm)
    if rnn.check_values and state is not None:
        for name, group in (("h", state.h), ("c", state.c)):
            for l, a in enumerate(group):
                check_size(f"state.{name}[{l}]", a, rnn.layer_norm)
        check_range("state.z", state.z)
        if state.pending is not None:
            check_range("state.pending", state.pending)


def check_size(name: str, a: Tensor, layer_norm: bool, lengths: Tensor | None = None) -> None:
    """Numbers must be finite and small enough to be multiplied by weights and, with layer norm, squared."""
    limit = LARGEST_NORMALISED if layer_norm else LARGEST
    rule = f"be finite and at most {limit:g} in size" + " with layer_norm, which squares it" * layer_norm
    _check_within(name, a, -limit, limit, rule, lengths)


def check_range(name: str, z: Tensor, lengths: Tensor | None = None, nan: bool = False) -> None:
    """Boundaries must lie between 0 and 1; ``nan``: or be NaN, which leaves the decision to the detector."""
    _check_within(name, z, -ROUNDING, 1 + ROUNDING, "lie between 0 and 1", lengths, nan)


def readable(a: Tensor) -> bool:
    """Whether the values of a tensor can be looked at now."""
    if a.is_meta or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if not a.is_cuda:
        return True
    with torch.cuda.device(a.device):
        return not torch.cuda.is_current_stream_capturing()


def _check_within(
    name: str, a: Tensor, low: float, high: float, rule: str, lengths: Tensor | None = None, nan: bool = False
) -> None:
    """InputError about the first value of ``a``, (T, B, size), (T, B) or (B, size), that is out of range.

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
    steps = a.dim() == 3 or not a.is_floating_point()
    if lengths is not None and steps:
        padding = ~within(lengths, len(a))  # (T, B)
        wrong &= ~(padding[..., None] if a.dim() == 3 else padding)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        axes = ("step", "sequence", "position")[: a.dim()] if steps else ("row", "position")
        where = ", ".join(f"{axis} {k}" for axis, k in zip(axes, place))
        raise InputError(f"{name} must {rule}; got {a[tuple(place)].item():.10g} at {where}")


def check_state(rnn: Network, state: State, B: int) -> None:
    """Check shapes, dtypes and devices of a state of B sequences."""
    if not isinstance(state, State):
        raise InputError(f"state must be None or an hmrnn.State, as a pass returns it; got {type(state).__name__}")
    sizes = {"h": rnn.hidden_sizes, "c": getattr(rnn, "cell_sizes", rnn.hidden_sizes)}
    for name, tensors in (("h", state.h), ("c", state.c)):
        if len(tensors) != len(sizes[name]):
            raise InputError(
                f"state.{name} must hold a tensor for each of {len(sizes[name])} layers; got {len(tensors)}"
            )
        for l, (a, size) in enumerate(zip(tensors, sizes[name])):
            check_tensor(f"state.{name}[{l}]", a, (B, size), rnn.parameter)
    for name, gate in (("z", state.z), ("pending", state.pending)):
        if gate is not None:
            check_tensor(f"state.{name}", gate, (B, rnn.num_boundaries), rnn.parameter)


def check_lengths(lengths: Tensor | Sequence[int] | None, T: int, B: int, device: torch.device) -> Tensor | None:
    """``lengths`` as an int64 tensor on ``device``; they must be B whole numbers from 1 to T, if they can be read."""
    if lengths is None:
        return None
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"lengths must be {B} whole numbers, one per sequence; got {lengths!r}") from error
    check_tensor("lengths", lengths, (B,))
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise InputError(f"lengths must be {B} whole numbers, one per sequence; got {lengths.dtype}")
    lengths = lengths.to(torch.int64)  # int8 could not be compared with a T of 300
    if readable(lengths) and (bool((lengths < 1).any()) or bool((lengths > T).any())):
        raise InputError(f"lengths must lie between 1 and T = {T}; got {lengths.tolist()}")
    return lengths.to(device)


def check_boundaries(rnn: Network, boundaries: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """``boundaries`` in the dtype of the parameters; their shape must be (*shape, L-1)."""
    if isinstance(boundaries, Tensor):
        boundaries = boundaries.to(rnn.parameter.dtype)
    if boundaries is not None:
        check_tensor("boundaries", boundaries, (*shape, rnn.num_boundaries), rnn.parameter)
    return boundaries


def argument(name: str, value: Any, kind: Any) -> Any:
    """``value`` as a type with bounds has it, also for arrays; InputError about ``name`` if the type forbids it."""
    return checked(name, _plain(value), kind)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [*map(_plain, value)] if isinstance(value, Iterable) and not isinstance(value, str) else value


def layer_sizes(hidden_size: Any, num_layers: int) -> tuple[int, ...]:
    """One size per layer, from one size for all layers or a sequence of sizes."""
    found = argument("hidden_size", hidden_size, Count | Sizes)
    sizes: tuple[int, ...] = found if isinstance(found, tuple) else (found,)
    if len(sizes) not in (1, num_layers):
        raise InputError(f"expected one number or {num_layers}, one per layer", setting="hidden_size", value=str(sizes))
    return sizes if len(sizes) == num_layers else sizes * num_layers


def arguments(kind: type[Recurrent]) -> dict[str, Any]:
    """The type of each argument of a dataclass."""
    return {field.name: types_of(kind)[field.name] for field in dataclasses.fields(kind) if field.init}


@dataclasses.dataclass(eq=False, repr=False)
class Recurrent(nn.Module):
    """The base of recurrent networks: each is a dataclass whose fields are its arguments, checked by their types."""

    _: KW_ONLY
    device: InitVar[torch.device | str | int | None] = None
    dtype: InitVar[torch.dtype | None] = None

    def __post_init__(self, device: torch.device | str | int | None, dtype: torch.dtype | None) -> None:
        nn.Module.__init__(self)
        self._made: dict[str, Any] = {"device": device, "dtype": dtype}
        for name, kind in arguments(type(self)).items():
            setattr(self, name, argument(name, getattr(self, name), kind))

    def read(
        self, x: Tensor, state: State, lengths: Tensor | None, boundaries: Tensor | None, embedding: Tensor | None
    ) -> tuple[Output, State]:
        """``forward`` of x (T, B, ...) and the rest after all checks."""
        raise NotImplementedError

    def forward(
        self,
        x: Any,
        state: State | None = None,
        lengths: Lengths = None,
        boundaries: Tensor | None = None,
        *,
        embedding: Tensor | None = None,
    ) -> Any:
        packed = x if isinstance(x, PackedSequence) else None
        rnn = cast(Any, self)
        alone, x, state, lengths, boundaries = check_sequences(rnn, x, state, lengths, boundaries, embedding)
        out, end = self.read(x, state, lengths, boundaries, embedding)
        return as_given(out, rnn.batch_first, packed, alone), end.apply(lambda a: a.squeeze(0)) if alone else end

    def extra_repr(self) -> str:
        """The arguments that have no default, and those that differ from theirs."""
        fields = sorted(
            (field for field in dataclasses.fields(self) if field.init), key=lambda field: bool(field.kw_only)
        )
        given = [(field.name, getattr(self, field.name), field.default) for field in fields]
        return ", ".join(
            repr(value) if default is dataclasses.MISSING else f"{name}={value!r}"
            for name, value, default in given
            if value != default
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


for _name in ("device", "dtype"):  # which the defaults of an InitVar leave
    delattr(Recurrent, _name)
