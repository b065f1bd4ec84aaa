"""Checks of the arguments of modules. Each raises InputError: what was expected, what was given, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor

from hmrnn.config.checks import Count, checked
from hmrnn.errors import InputError
from hmrnn.ops import autocast_dtype
from hmrnn.ops.interface import within

Sizes = Annotated[tuple[Count, ...], Meta(min_length=1)]
"""The sizes of layers."""
LARGEST, LARGEST_NORMALISED = 1e31, 1e15
"""Largest absolute values that float32 can multiply by a row of weights, and with layer norm also square."""

ROUNDING = 1e-3
"""How far outside of 0 and 1 a boundary may lie, as computed ("soft") boundaries are rounded."""


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


def readable(a: Tensor) -> bool:
    """Whether the values of a tensor can be looked at now."""
    if a.is_meta or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if not a.is_cuda:
        return True
    with torch.cuda.device(a.device):
        return not torch.cuda.is_current_stream_capturing()


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


def argument(name: str, value: Any, kind: Any) -> Any:
    """``value`` as a type with bounds has it, also for arrays; InputError about ``name`` if the type forbids it."""
    return checked(name, _plain(value), kind)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [*map(_plain, value)] if isinstance(value, Iterable) and not isinstance(value, str) else value
