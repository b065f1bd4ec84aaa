"""Checks of what a module is given. Each raises InputError with what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops import State

if TYPE_CHECKING:
    from hmrnn.networks import RNN

LARGEST, LARGEST_NORMALISED = 1e31, 1e15
"""Of x in size, without and with layer normalisation: what float32 can multiply by a row of weights, or also square."""


def check_input(rnn: RNN, x: Tensor, embedding: Tensor | None, sequence: bool) -> None:
    b = next(rnn.parameters())
    if not isinstance(x, Tensor):
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


def check_values(x: Tensor, lengths: Tensor | None, layer_norm: bool) -> None:
    """What counts of ``x``, (T, B, size) or (B, size), must be finite and small enough for all that is made of it.

    Looked at on a CPU alone: a GPU would have to be waited for.
    """
    if x.device.type != "cpu" or not x.is_floating_point() or x.numel() == 0 or torch.compiler.is_compiling():
        return
    limit = LARGEST_NORMALISED if layer_norm else LARGEST
    low, high = (float(value) for value in torch.aminmax(x.detach()))
    if -limit <= low and high <= limit:  # neither holds for NaN
        return
    wrong = ~(x.abs() <= limit)  # (..., B, size)
    if lengths is not None:
        wrong &= (torch.arange(len(x))[:, None] < lengths)[..., None]
    if bool(wrong.any()):
        *when, b, k = wrong.nonzero()[0].tolist()
        where = f"step {when[0]} of sequence {b}" if when else f"sequence {b}"
        reason = f"at most {limit:g} in size" + (" with layer_norm, which squares it" if layer_norm else "")
        raise InputError(f"x must be finite and {reason}; got {x[*when, b, k].item():g} in {where}, at position {k}")


def check_state(rnn: RNN, state: State, B: int) -> None:
    if not isinstance(state, State):
        raise InputError(f"state must be None or an hmrnn.State, as a pass returns it; got {type(state).__name__}")
    expected = [(B, size) for size in rnn.hidden_sizes]
    for name, tensors in (("h", state.h), ("c", state.c)):
        shapes = [tuple(a.shape) for a in tensors]
        if shapes != expected:
            raise InputError(f"state.{name} must hold tensors of shapes {expected}; got {shapes}")
    if tuple(state.z.shape) != (B, rnn.num_boundaries):
        raise InputError(f"state.z must have shape ({B}, {rnn.num_boundaries}); got {tuple(state.z.shape)}")
    parameter = next(rnn.parameters())
    for a in (*state.h, *state.c, state.z):
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
    if bool((lengths < 1).any()) or bool((lengths > T).any()):
        raise InputError(f"lengths must lie between 1 and T = {T}; got {lengths.tolist()}")
    return lengths.to(device)


def check_boundaries(rnn: RNN, boundaries: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    if boundaries is None:
        return None
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
        if not (castable and torch.is_autocast_enabled(parameter.device.type)):
            raise InputError(f"{name} is {value.dtype} but the parameters are {parameter.dtype}; use .to(...)")


def positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1; got {value!r}")
    return value


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def layer_sizes(hidden_size: int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    """One size per layer, from one size for all or a sequence of them."""
    sizes = tuple(hidden_size) if isinstance(hidden_size, Iterable) else (hidden_size,)
    if len(sizes) == 1:
        sizes = sizes * num_layers
    if len(sizes) != num_layers:
        raise InputError(f"hidden_size must be one number or {num_layers}, one per layer; got {len(sizes)}: {sizes}")
    return tuple(positive("hidden_size", size) for size in sizes)
