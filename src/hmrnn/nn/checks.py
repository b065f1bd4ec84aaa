"""Checks of what a module is given. Each raises InputError with what was expected, what came and what to do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Protocol, SupportsIndex, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.ops import State
from hmrnn.ops.interface import autocast_dtype

LARGEST, LARGEST_NORMALISED = 1e31, 1e15
"""Of numbers in size, without and with layer norm: what float32 can multiply by a row of weights, or also square."""

ROUNDING = 1e-3
"""How far beyond 0 and 1 a boundary may lie: one that is computed, as soft ones are, may be off by its last digit."""


class Network(Protocol):
    """What the checks ask of a recurrent network."""

    input_size: int
    hidden_sizes: tuple[int, ...]
    num_boundaries: int
    batch_first: bool

    def parameters(self) -> Iterator[nn.Parameter]: ...


def check_input(rnn: Network, x: Tensor, embedding: Tensor | None, sequence: bool) -> None:
    b = next(rnn.parameters())
    if not isinstance(x, Tensor):
        if isinstance(x, PackedSequence):  # which an HMLSTM has unpacked by now
            raise InputError("x must be a tensor here; got a PackedSequence: pad it, and give lengths")
        raise InputError(f"x must be a tensor{' or a PackedSequence' if sequence else ''}; got {type(x).__name__}")
    shape = "B" if not sequence else "B, T" if rnn.batch_first else "T, B"
    shape += f", {rnn.input_size}" if embedding is None else ""
    wanted = shape.count(",") + 1
    if x.dim() != wanted or (embedding is None and x.shape[-1] != rnn.input_size):
        hint = "; for one sequence, add the batch dimension with x.unsqueeze" if x.dim() == wanted - 1 else ""
        raise InputError(f"x must have shape ({shape}); got {tuple(x.shape)}{hint}")
    if sequence and (x.shape[0] == 0 or x.shape[1] == 0):
        raise InputError(f"x must hold at least one step and one sequence; got shape {tuple(x.shape)}")
    if x.device != b.device:
        raise InputError(f"x is on {x.device} but the parameters are on {b.device}; use .to(...)")
    if embedding is not None:
        if x.dtype not in (torch.int64, torch.int32):
            raise InputError(f"x must hold symbol indices (int64 or int32) when embedding is given; got {x.dtype}")
        if embedding.dim() != 2 or embedding.shape[1] != rnn.input_size:
            raise InputError(f"embedding must have shape (symbols, {rnn.input_size}); got {tuple(embedding.shape)}")
        check_kind("embedding", embedding, b)
    else:
        check_kind("x", x, b)


def check_values(
    x: Tensor, state: State | None, boundaries: Tensor | None, layer_norm: bool, lengths: Tensor | None = None
) -> Callable[[], None]:
    """See :func:`check_numbers`; a boundary that is NaN is left to the detector."""
    numbers = {"x": x} if x.is_floating_point() else {}
    decided: dict[str, Tensor] = {}
    if state is not None:
        for name, tensors in (("h", state.h), ("c", state.c)):
            numbers |= {f"state.{name}[{l}]": a for l, a in enumerate(tensors)}
        gates = {"state.z": state.z, "state.pending": state.pending}
        decided |= {name: a for name, a in gates.items() if a is not None and a.numel() > 0}
    if boundaries is not None and boundaries.numel() > 0:
        decided["boundaries"] = boundaries.detach()
    return check_numbers(numbers, decided, layer_norm, lengths)


def _nothing() -> None:
    """There was nothing to complain of."""


@torch.no_grad()
def check_numbers(
    numbers: Mapping[str, Tensor], boundaries: Mapping[str, Tensor], layer_norm: bool, lengths: Tensor | None = None
) -> Callable[[], None]:
    """``numbers`` must be finite and small enough for all that is made of them, ``boundaries`` lie between 0 and 1.

    All are (T, B, size) or (B, size); what lies in the padding does not count, and "boundaries" may hold NaN. On a CPU
    the error comes at once. A GPU is not waited for: call what is returned when the work has been launched, and it says
    what was found meanwhile. Nobody looks while a graph is captured, a function compiled or transformed by torch.func,
    whose numbers stand for many; and on the device meta there are none.
    """
    first = next(iter({**numbers, **boundaries}.values()))
    if first.is_meta or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return _nothing
    if first.is_cuda and _capturing(first.device):
        return _nothing
    limit = LARGEST_NORMALISED if layer_norm else LARGEST
    beyond = [_beyond(name, z) for name, z in boundaries.items()]
    tensors = [a.detach() for a in (*numbers.values(), *beyond)]
    bounds = [limit] * len(numbers) + [ROUNDING] * len(beyond)

    def complain() -> None:
        size = f"be finite and at most {limit:g} in size" + (" with layer_norm, which squares it" if layer_norm else "")
        for name, a in numbers.items():
            _find(name, a, ~(a.abs() <= limit), size, lengths)
        for (name, z), far in zip(boundaries.items(), beyond):
            _find(name, z, ~(far.abs() <= ROUNDING), "lie between 0 and 1", lengths)

    if first.is_cuda:
        return _heard_later(tensors, bounds, complain)
    norms: Sequence[Tensor] = torch._foreach_norm(tensors) if len(tensors) > 1 else [torch.linalg.vector_norm(*tensors)]
    if not all(float(norm) <= bound for norm, bound in zip(norms, bounds)):  # a norm may be, while no number is
        complain()
    return _nothing


def _heard_later(tensors: list[Tensor], bounds: list[float], complain: Callable[[], None]) -> Callable[[], None]:
    """Have the GPU compare sizes with bounds; what is returned waits for that, and for nothing launched after it."""
    with torch.cuda.device(tensors[0].device):
        largest = torch._foreach_norm(tensors, torch.inf)
        worst = torch.stack([a.float() for a in torch._foreach_div(largest, bounds)]).max()
        found = worst.to("cpu", non_blocking=True)
        seen = torch.cuda.Event()
        seen.record()

    def settle() -> None:
        seen.synchronize()
        if not float(found) <= 1:  # which holds for NaN, too
            complain()

    return settle


def _capturing(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def _beyond(name: str, z: Tensor) -> Tensor:
    """How far boundaries lie outside of 0 to 1."""
    if name == "boundaries":
        z = z.nan_to_num(0.0, posinf=torch.inf, neginf=-torch.inf)
    return z - z.clamp(0, 1)


def _find(name: str, a: Tensor, wrong: Tensor, rule: str, lengths: Tensor | None) -> None:
    """Complain of the first number of ``a`` that is wrong, if there is one that counts."""
    if lengths is not None and a.dim() == 3:
        wrong = wrong & (torch.arange(len(a), device=a.device)[:, None] < lengths)[..., None]
    if bool(wrong.any()):
        *when, b, k = wrong.nonzero()[0].tolist()
        where = f"step {when[0]} of sequence {b}" if when else f"sequence {b}"
        raise InputError(f"{name} must {rule}; got {a[*when, b, k].item():g} in {where}, at position {k}")


def check_state(rnn: Network, state: State, B: int) -> None:
    if not isinstance(state, State):
        raise InputError(f"state must be None or an hmrnn.State, as a pass returns it; got {type(state).__name__}")
    expected = [(B, size) for size in rnn.hidden_sizes]
    for name, tensors in (("h", state.h), ("c", state.c)):
        shapes = [tuple(a.shape) for a in tensors]
        if shapes != expected:
            raise InputError(f"state.{name} must hold tensors of shapes {expected}; got {shapes}")
    parameter = next(rnn.parameters())
    for name, a in (("z", state.z), ("pending", state.pending)):
        if a is not None and tuple(a.shape) != (B, rnn.num_boundaries):
            raise InputError(f"state.{name} must have shape ({B}, {rnn.num_boundaries}); got {tuple(a.shape)}")
    for a in (*state.h, *state.c, state.z, *(() if state.pending is None else (state.pending,))):
        check_kind("state", a, parameter)


def check_lengths(lengths: Tensor | Sequence[int] | None, T: int, B: int, device: torch.device) -> Tensor | None:
    if lengths is None:
        return None
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"lengths must be {B} whole numbers, one per sequence; got {lengths!r}") from error
    whole = lengths.dtype != torch.bool and not lengths.is_floating_point() and not lengths.is_complex()
    if lengths.dim() != 1 or len(lengths) != B or not whole:
        raise InputError(
            f"lengths must be {B} whole numbers, one per sequence; got shape {tuple(lengths.shape)} of {lengths.dtype}"
        )
    lengths = lengths.to(torch.int64)  # which holds T, too
    if bool((lengths < 1).any()) or bool((lengths > T).any()):
        raise InputError(f"lengths must lie between 1 and T = {T}; got {lengths.tolist()}")
    return lengths.to(device)


def check_boundaries(rnn: Network, boundaries: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    if boundaries is None:
        return None
    if not isinstance(boundaries, Tensor):
        raise InputError(f"boundaries must be None or a tensor; got {type(boundaries).__name__}")
    expected = (*shape, rnn.num_boundaries)
    if tuple(boundaries.shape) != expected:
        order = "B" if len(shape) == 1 else "B, T" if rnn.batch_first else "T, B"
        raise InputError(f"boundaries must have shape ({order}, detectors) = {expected}; got {tuple(boundaries.shape)}")
    parameter = next(rnn.parameters())
    boundaries = boundaries.to(parameter.dtype)
    check_kind("boundaries", boundaries, parameter)
    return boundaries


def check_kind(name: str, value: Tensor, parameter: Tensor) -> None:
    """``value`` must have the parameter's device and dtype; autocast converts the floating dtypes below float64."""
    if value.device != parameter.device:
        raise InputError(f"{name} is on {value.device} but the parameters are on {parameter.device}; use .to(...)")
    if value.dtype != parameter.dtype:
        castable = value.is_floating_point() and value.dtype != torch.float64
        if not (castable and autocast_dtype(parameter.device) is not None):
            raise InputError(f"{name} is {value.dtype} but the parameters are {parameter.dtype}; use .to(...)")


def positive(name: str, value: SupportsIndex) -> int:
    """``value`` as an int, from whatever is a whole number (NumPy's, too) and no truth value."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise InputError(f"{name} must be a whole number of at least 1; got {value!r}")
    return number


def numbers(given: Mapping[str, object], kind: type[Integral] | type[Real]) -> None:
    """All that is given (None is not) must be of this kind."""
    for name, value in given.items():
        if value is not None and not isinstance(value, kind):
            raise InputError(f"{name} must be a {'whole ' if kind is Integral else ''}number; got {value!r}")


def truth(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False; got {value!r}")
    return value


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def layer_sizes(hidden_size: SupportsIndex | Iterable[SupportsIndex], num_layers: int) -> tuple[int, ...]:
    """One size per layer, from one size for all or a sequence of them."""
    listed = isinstance(hidden_size, Iterable) and getattr(hidden_size, "ndim", 1) > 0  # an array may be one number
    sizes = tuple(cast(Iterable[SupportsIndex], hidden_size)) if listed else (cast(SupportsIndex, hidden_size),)
    if len(sizes) == 1:
        sizes = sizes * num_layers
    if len(sizes) != num_layers:
        raise InputError(f"hidden_size must be one number or {num_layers}, one per layer; got {len(sizes)}: {sizes}")
    return tuple(positive("hidden_size", size) for size in sizes)
