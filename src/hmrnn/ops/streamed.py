"""What a stream remembers from step to step, so that a layer that copies does no work at all."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from hmrnn.ops.interface import LayerWeights, State


class Streamed(State):
    """A state that streaming gave, with products that hold as long as states and weights stay as they are.

    Any other state made from it, by ``_replace``, ``detach`` or a copy too, is one without. Changes are noticed as
    autograd notices them: not those by ``.data``, by NumPy, by a fused optimizer or by a CUDA graph.
    """

    on_copy: Tensor | None = None
    """(B, L-1): U·h + b in the detectors' rows."""
    down: tuple[Tensor | None, ...] = ()
    """For each layer but the top one V·h of the layer above, (B, R), where it is known."""
    seen: tuple[tuple[weakref.ref[Tensor], tuple[int, int]], ...] = ()
    """The tensors that this was computed from, as they were then."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Streamed, tuple(self)


def streamed(state: State, on_copy: Tensor, down: Sequence[Tensor | None], weights: Sequence[LayerWeights]) -> Streamed:
    new = Streamed(*state)
    new.on_copy, new.down = on_copy, tuple(down)
    new.seen = tuple((weakref.ref(a), _version(a)) for a in _read(new, weights))
    return new


def remembered(state: State, weights: Sequence[LayerWeights]) -> Streamed | None:
    """The state, if it has products and nothing has changed that they depend on.

    None in inference mode, where changes of tensors cannot be noticed.
    """
    if any(h.is_inference() for h in state.h[1:]) or not isinstance(state, Streamed) or state.on_copy is None:
        return None
    same = (
        # itself, as a weight that is computed anew for every use may lie where the last one lay
        ref() is a and version == _version(a)
        for (ref, version), a in zip(state.seen, _read(state, weights), strict=True)
    )
    return state if all(same) else None


def _read(state: Streamed, weights: Sequence[LayerWeights]) -> Iterator[Tensor]:
    """The tensors that the products were made of."""
    for h, w in zip(state.h[1:-1], weights[1:-1]):
        yield from (h, w.U, w.b)
    for h, w, down in zip(state.h[1:], weights, state.down):
        if down is not None:
            yield from (a for a in (h, w.V, w.gain_V) if a is not None)


def _version(a: Tensor) -> tuple[int, int]:
    """What changes when a tensor does."""
    return a.data_ptr(), 0 if a.is_inference() else a._version
