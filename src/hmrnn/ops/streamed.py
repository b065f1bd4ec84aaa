"""What a stream remembers from step to step, so that a layer that copies does no work at all."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from hmrnn.ops.interface import LayerWeights, State


class Streamed(State):
    """A state that streaming gave, with what it need not compute again as long as states and weights stay as they are.

    Any other state made from it, by ``_replace``, ``detach`` or a copy too, is one without. Changes are noticed as
    autograd notices them: not those by ``.data``, by NumPy, by a fused optimizer or by a CUDA graph.
    """

    on_copy: Tensor | None = None
    """(B, L-1): the detectors' pre-activations if their layers copied now."""
    seen: tuple[tuple[weakref.ref[Tensor], tuple[int, int]], ...] = ()
    """The tensors that this was computed from, as they were then."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Streamed, tuple(self)


def streamed(state: State, on_copy: Tensor, weights: Sequence[LayerWeights]) -> Streamed:
    new = Streamed(*state)
    new.on_copy, new.seen = on_copy, tuple((weakref.ref(a), _version(a)) for a in _read(state, weights))
    return new


def known_on_copy(state: State, weights: Sequence[LayerWeights]) -> Tensor | None:
    """``on_copy`` of a state, if nothing has changed that it depends on; in inference mode nobody would notice."""
    if any(h.is_inference() for h in state.h[1:-1]) or not isinstance(state, Streamed) or state.on_copy is None:
        return None
    same = (
        # itself, as a weight that is computed anew for every use may lie where the last one lay
        ref() is a and version == _version(a)
        for (ref, version), a in zip(state.seen, _read(state, weights), strict=True)
    )
    return state.on_copy if all(same) else None


def _read(state: State, weights: Sequence[LayerWeights]) -> Iterator[Tensor]:
    """The tensors that the detectors of copying layers read."""
    for h, w in zip(state.h[1:-1], weights[1:-1]):
        yield from (h, w.U, w.b)


def _version(a: Tensor) -> tuple[int, int]:
    """What changes when a tensor does."""
    return a.data_ptr(), 0 if a.is_inference() else a._version
