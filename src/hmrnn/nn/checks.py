"""Checks of the arguments of modules. Each raises InputError: what was expected, what was given, what to do."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Protocol, SupportsIndex, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.ops import State
from hmrnn.ops.interface import autocast_dtype

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
    def parameter(self) -> Tensor:
        """One of the parameters, whose dtype and device all have."""
        ...


def check_input(rnn: Network, x: Tensor, embedding: Tensor | None, sequence: bool) -> None:
    """Check shape, dtype and device of x (T, B, size), or (B, size) if not ``sequence``, and of the embedding."""
    b = rnn.parameter
    if not isinstance(x, Tensor):
        if isinstance(x, PackedSequence):  # HMLSTM.forward unpacks it before this check
            raise InputError("x must be a tensor here; got a PackedSequence: pad it, and give lengths")
        raise InputError(f"x must be a tensor{' or a PackedSequence' if sequence else ''}; got {type(x).__name__}")
    if x.is_nested:
        raise InputError("x must not be a nested tensor; pad it with x.to_padded_tensor(0.0), and give lengths")
    check_dense("x", x)
    shape = "B" if not sequence else "B, T" if rnn.batch_first else "T, B"
    shape += f", {rnn.input_size}" if embedding is None else ""
    wanted = shape.count(",") + 1
    if x.dim() != wanted or (embedding is None and x.shape[-1] != rnn.input_size):
        one = x.dim() == wanted - 1 and (embedding is not None or x.shape[-1] == rnn.input_size)
        hint = "; for one sequence, add the batch dimension with x.unsqueeze" if one else ""
        if embedding is None and not x.is_floating_point():
            hint = "; for symbols give their vectors, as of nn.Embedding, or their table as embedding="
        raise InputError(f"x must have shape ({shape}); got {tuple(x.shape)}{hint}")
    if sequence and (x.shape[0] == 0 or x.shape[1] == 0):
        raise InputError(f"x must hold at least one step and one sequence; got shape {tuple(x.shape)}")
    if x.device != b.device:
        raise InputError(f"x is on {x.device} but the parameters are on {b.device}; use .to(...)")
    if embedding is not None:
        if x.dtype not in (torch.int64, torch.int32):
            raise InputError(f"x must hold symbol indices (int64 or int32) when embedding is given; got {x.dtype}")
        if not isinstance(embedding, Tensor):
            found = type(embedding).__name__
            raise InputError(f"embedding must be a tensor, such as .weight of an nn.Embedding; got {found}")
        if embedding.dim() != 2 or embedding.shape[1] != rnn.input_size:
            raise InputError(f"embedding must have shape (symbols, {rnn.input_size}); got {tuple(embedding.shape)}")
        check_kind("embedding", embedding, b)
    else:
        check_kind("x", x, b)


def unbatched(rnn: Network, x: Tensor, embedding: Tensor | None) -> bool:
    """Whether x is one sequence without a batch dimension: (T, size), or symbols (T,)."""
    if not isinstance(x, Tensor):
        return False
    return x.dim() == 1 if embedding is not None else x.dim() == 2 and x.shape[1] == rnn.input_size


def check_unbatched(rnn: Network, state: State | None, boundaries: Tensor | None) -> None:
    """Check that state and boundaries, given with an x without a batch dimension, have none either."""
    if isinstance(state, State) and state.z.dim() != 1:
        raise InputError(
            f"x has no batch dimension, so state must have none: state.z of shape ({rnn.num_boundaries},); got "
            f"{tuple(state.z.shape)}"
        )
    if isinstance(boundaries, Tensor) and boundaries.dim() != 2:
        raise InputError(
            f"x has no batch dimension, so boundaries must have shape (T, {rnn.num_boundaries}); got "
            f"{tuple(boundaries.shape)}"
        )


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
        if not _within(x, 0, last):
            _refuse("x", x, 0, last, f"hold symbol indices from 0 to {last}, one per row of embedding", lengths)
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
    if not _within(a, -limit, limit):
        rule = f"be finite and at most {limit:g} in size" + (" with layer_norm, which squares it" if layer_norm else "")
        _refuse(name, a, -limit, limit, rule, lengths)


def check_range(name: str, z: Tensor, lengths: Tensor | None = None, nan: bool = False) -> None:
    """Boundaries must lie between 0 and 1; ``nan``: or be NaN, which leaves the decision to the detector."""
    if not _within(z, -ROUNDING, 1 + ROUNDING):
        _refuse(name, z, -ROUNDING, 1 + ROUNDING, "lie between 0 and 1", lengths, nan)


def readable(a: Tensor) -> bool:
    """Whether the values of a tensor can be looked at now."""
    if a.is_meta or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if not a.is_cuda:
        return True
    with torch.cuda.device(a.device):
        return not torch.cuda.is_current_stream_capturing()


def _within(a: Tensor, low: float, high: float) -> bool:
    """Whether all values lie between ``low`` and ``high``; False if one is NaN."""
    if a.numel() == 0:
        return True
    least, most = a.detach().aminmax()
    return low <= least.item() and most.item() <= high


def _refuse(
    name: str, a: Tensor, low: float, high: float, rule: str, lengths: Tensor | None = None, nan: bool = False
) -> None:
    """Raise InputError for the first value of ``a``, (T, B, size), (T, B) or (B, size), that is out of range, if any.

    Padding may hold anything; ``nan``: NaN is in range.
    """
    wrong = ~((a >= low) & (a <= high))
    if nan:
        wrong &= ~a.isnan()
    steps = a.dim() == 3 or not a.is_floating_point()
    if lengths is not None and steps:
        padding = torch.arange(len(a), device=a.device)[:, None] >= lengths  # (T, B)
        wrong &= ~(padding[..., None] if a.dim() == 3 else padding)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        t, b, k = place if a.dim() == 3 else (*place, -1) if steps else (-1, *place)
        where = f"step {t} of sequence {b}" if steps else f"{'row' if name == 'embedding' else 'sequence'} {b}"
        value = a[tuple(place)].item()
        got = f"{value:g} in {where}, at position {k}" if a.is_floating_point() else f"{value} in {where}"
        raise InputError(f"{name} must {rule}; got {got}")


def check_state(rnn: Network, state: State, B: int) -> None:
    """Check shapes, dtypes and devices of a state of B sequences."""
    if not isinstance(state, State):
        raise InputError(
            f"state must be None or an hmrnn.State, as a pass or rnn.initial_state(B) returns it; got "
            f"{type(state).__name__}"
        )
    sizes = {"h": rnn.hidden_sizes, "c": getattr(rnn, "cell_sizes", rnn.hidden_sizes)}
    for name, tensors in (("h", state.h), ("c", state.c)):
        expected = [(B, size) for size in sizes[name]]
        if [a.shape for a in tensors] != expected:
            shapes = [tuple(a.shape) for a in tensors]
            fits = [shape[-1:] for shape in shapes] == [shape[-1:] for shape in expected]
            hint = "; a state belongs to its sequences: start others from None" if fits else ""
            raise InputError(f"state.{name} must hold tensors of shapes {expected}; got {shapes}{hint}")
    parameter = rnn.parameter
    for name, a in (("z", state.z), ("pending", state.pending)):
        if a is not None and a.shape != (B, rnn.num_boundaries):
            raise InputError(f"state.{name} must have shape ({B}, {rnn.num_boundaries}); got {tuple(a.shape)}")
    device, dtype = parameter.device, parameter.dtype
    for a in (*state.h, *state.c, state.z, *(() if state.pending is None else (state.pending,))):
        if a.device != device or a.dtype != dtype or a.layout != torch.strided:
            check_kind("state", a, parameter)


def check_lengths(lengths: Tensor | Sequence[int] | None, T: int, B: int, device: torch.device) -> Tensor | None:
    """``lengths`` as an int64 tensor on ``device``; they must be B whole numbers from 1 to T, if they can be read."""
    if lengths is None:
        return None
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"lengths must be {B} whole numbers, one per sequence; got {lengths!r}") from error
    check_dense("lengths", lengths)
    whole = lengths.dtype != torch.bool and not lengths.is_floating_point() and not lengths.is_complex()
    if lengths.dim() != 1 or len(lengths) != B or not whole:
        raise InputError(
            f"lengths must be {B} whole numbers, one per sequence; got shape {tuple(lengths.shape)} of {lengths.dtype}"
        )
    lengths = lengths.to(torch.int64)  # int8 could not be compared with a T of 300
    if readable(lengths) and (bool((lengths < 1).any()) or bool((lengths > T).any())):
        raise InputError(f"lengths must lie between 1 and T = {T}; got {lengths.tolist()}")
    return lengths.to(device)


def check_boundaries(rnn: Network, boundaries: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """``boundaries`` in the dtype of the parameters; their shape must be (*shape, L-1)."""
    if boundaries is None:
        return None
    if not isinstance(boundaries, Tensor):
        raise InputError(f"boundaries must be None or a tensor; got {type(boundaries).__name__}")
    expected = (*shape, rnn.num_boundaries)
    if tuple(boundaries.shape) != expected:
        order = "B" if len(shape) == 1 else "B, T" if rnn.batch_first else "T, B"
        raise InputError(f"boundaries must have shape ({order}, detectors) = {expected}; got {tuple(boundaries.shape)}")
    parameter = rnn.parameter
    boundaries = boundaries.to(parameter.dtype)
    check_kind("boundaries", boundaries, parameter)
    return boundaries


def check_dense(name: str, value: Tensor) -> None:
    """Check that ``value`` is no sparse tensor."""
    if value.layout != torch.strided:
        raise InputError(f"{name} must be a dense tensor; got {value.layout}, use .to_dense()")


def check_kind(name: str, value: Tensor, parameter: Tensor) -> None:
    """Check that ``value`` is dense, on the parameter's device, and of its dtype; autocast takes others but float64."""
    check_dense(name, value)
    if value.device != parameter.device:
        raise InputError(f"{name} is on {value.device} but the parameters are on {parameter.device}; use .to(...)")
    if value.dtype != parameter.dtype:
        castable = value.is_floating_point() and value.dtype != torch.float64
        if not (castable and autocast_dtype(parameter.device) is not None):
            raise InputError(f"{name} is {value.dtype} but the parameters are {parameter.dtype}; use .to(...)")


def positive(name: str, value: SupportsIndex, least: int = 1) -> int:
    """``value`` as an int; it must be a whole number of at least ``least`` (NumPy's are, a bool is not)."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return number


def read_sizes(name: str, sizes: Any) -> tuple[int, ...]:
    """The sizes of the layers that a read-out reads, ``rnn.output_sizes``."""
    if not isinstance(sizes, Iterable):
        raise InputError(f"{name} must hold a size for each layer, as rnn.output_sizes does; got {sizes!r}")
    return tuple(positive(name, size) for size in sizes)


def not_negative(name: str, value: SupportsIndex) -> int:
    """``value`` as an int of at least 0."""
    return positive(name, value, least=0)


def numbers(given: Mapping[str, object], kind: type[Integral] | type[Real]) -> None:
    """Check that every value that is not None is a number of this kind."""
    for name, value in given.items():
        if value is not None and not isinstance(value, kind):
            raise InputError(f"{name} must be a {'whole ' if kind is Integral else ''}number; got {value!r}")


def truth(name: str, value: bool) -> bool:
    """``value``; it must be True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False; got {value!r}")
    return value


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """``value``; it must be one of ``allowed``."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def layer_sizes(hidden_size: SupportsIndex | Iterable[SupportsIndex], num_layers: int) -> tuple[int, ...]:
    """One size per layer, from one size for all layers or a sequence of sizes."""
    listed = isinstance(hidden_size, Iterable) and getattr(hidden_size, "ndim", 1) > 0  # a 0-d array is Iterable, too
    sizes = tuple(cast(Iterable[SupportsIndex], hidden_size)) if listed else (cast(SupportsIndex, hidden_size),)
    if len(sizes) == 1:
        sizes = sizes * num_layers
    if len(sizes) != num_layers:
        got = f"{len(sizes)}: {sizes}" + (f"; give num_layers={len(sizes)}" if sizes else "")
        raise InputError(f"hidden_size must be one number or {num_layers}, one per layer; got {got}")
    return tuple(positive("hidden_size", size) for size in sizes)
