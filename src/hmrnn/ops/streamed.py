"""What a stream remembers from step to step, so that a layer that copies does no work at all."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hmrnn.ops.interface import LayerWeights, State


class Streamed(State):
    """A state that streaming gave, with what it need not compute again as long as states and weights stay as they are.

    Any other state made from it, by ``_replace`` or ``detach`` too, is one without. Changes are noticed as autograd
    notices them: not those by ``.data``, by NumPy, by a fused optimizer or by a CUDA graph.
    """

    on_copy: Tensor | None = None
    """(B, L-1): the detectors' pre-activations if their layers copied now."""
    versions: tuple[int, ...] = ()


def streamed(state: State, on_copy: Tensor, weights: Sequence[LayerWeights]) -> Streamed:
    new = Streamed(*state)
    new.on_copy, new.versions = on_copy, _versions(state, weights)
    return new


def known_on_copy(state: State, weights: Sequence[LayerWeights]) -> Tensor | None:
    """``on_copy`` of a state, if nothing has changed that it depends on; in inference mode nobody would notice."""
    if any(h.is_inference() for h in state.h[1:-1]):
        return None
    if not isinstance(state, Streamed) or state.versions != _versions(state, weights):
        return None
    return state.on_copy


def _versions(state: State, weights: Sequence[LayerWeights]) -> tuple[int, ...]:
    """What changes when the tensors do that the detectors of copying layers read."""
    read = (a for h, w in zip(state.h[1:-1], weights[1:-1]) for a in (h, w.U, w.b))
    return tuple(number for a in read for number in (a.data_ptr(), 0 if a.is_inference() else a._version))
