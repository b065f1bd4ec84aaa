"""Functions of states: split and join, convert to and from named tensors, copy, and reset."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hmrnn.ops import State


def split(state: State | None, parts: int) -> list[State | None]:
    """The states of ``parts`` equal shares of the batch."""
    if state is None:
        return [None] * parts
    return [state.apply(lambda a, k=k: a.chunk(parts)[k]) for k in range(len(state.z.chunk(parts)))]  # type: ignore[misc]


def named(state: State | None) -> dict[str, Tensor]:
    """The tensors of a state by their names in checkpoints."""
    if state is None:
        return {}
    pending = () if state.pending is None else (state.pending,)
    groups = (("h", state.h), ("c", state.c), ("z", (state.z,)), ("pending", pending))
    return {f"{kind}.{l}": a for kind, group in groups for l, a in enumerate(group)}


def keep(state: State, kept: Sequence[bool]) -> State:
    """The state with zeros for the sequences that are not kept."""
    mask = torch.tensor(kept, device=state.z.device)[:, None]
    return state.apply(lambda a: torch.where(mask, a, 0))


def copy(target: State, source: State, good: Tensor) -> None:
    """Copy ``source`` into the tensors of ``target`` in place, where ``good`` is true."""
    for mine, theirs in zip(named(target).values(), named(source).values(), strict=True):
        mine.copy_(torch.where(good, theirs, mine))


def join(states: list[State]) -> State:
    """The inverse of :func:`split`."""
    h, c = (tuple(torch.cat(parts) for parts in zip(*(getattr(s, kind) for s in states))) for kind in "hc")
    pending = [s.pending for s in states if s.pending is not None]
    return State(h, c, torch.cat([s.z for s in states]), torch.cat(pending) if pending else None)


def in_dtype(dtype: torch.dtype, state: State) -> State:
    """The state in ``dtype``, that of the parameters; under autocast the cuda engine returns h in a lower precision."""
    return state if state.z.dtype == state.h[0].dtype == dtype else state.apply(lambda a: a.to(dtype))
