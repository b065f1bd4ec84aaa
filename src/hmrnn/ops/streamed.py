"""Streamed: a state with cached products, so that a layer that copies does no work in the next step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from hmrnn.ops.interface import LayerWeights, State


class Streamed(State):
    """The state after a streaming step, with products that are valid until its tensors or the weights change.

    A state made from it, for example by ``_replace``, ``detach`` or a copy, has no products. Changes are detected by
    autograd's version counters, which do not count changes by ``.data``, NumPy, a fused optimizer or a CUDA graph.
    """

    cache: Any = None
    """:class:`Products`; or a ``Plan`` of :mod:`hmrnn.ops.single_plan`, alone or with the products of one sequence."""

    def apply(self, function: Callable[[Tensor], Tensor]) -> State:
        """The state with ``function`` applied to each tensor; of the cache the plan stays, as it depends on none."""
        new = Streamed(*super().apply(function))
        if not isinstance(self.cache, Products):
            new.cache = getattr(self.cache, "plan", self.cache)
        return new

    def detach(self) -> State:
        """The same values alone: nothing is remembered."""
        return State(*self).detach()

    def __reduce__(self) -> tuple[Any, ...]:
        return State, tuple(self)  # which torch.load reads


class Products(NamedTuple):
    """The products of a batch."""

    on_copy: Tensor
    """(B, L-1, K): U·h + b in the detectors' rows."""
    down: tuple[Tensor | None, ...]
    """For each layer but the top one V·h of the layer above (B, R), or None if it was not computed."""
    sources: tuple[tuple[weakref.ref[Tensor], tuple[int, int]], ...]
    """The tensors that the products were computed from, with their versions."""


def streamed(state: State, on_copy: Tensor, down: Sequence[Tensor | None], weights: Sequence[LayerWeights]) -> Streamed:
    """``state`` with the products ``on_copy`` and ``down``."""
    new = Streamed(*state)
    sources = tuple((weakref.ref(a), version(a)) for a in _sources(new, down, weights))
    new.cache = Products(on_copy, tuple(down), sources)
    return new


def remembered(state: State, weights: Sequence[LayerWeights]) -> Products | None:
    """The products of the state if they are valid, otherwise None.

    Always None for tensors of inference mode, whose changes are not counted.
    """
    if not isinstance(state, Streamed) or any(h.is_inference() for h in state.h[1:]):
        return None
    known = state.cache
    if not isinstance(known, Products):
        return None
    same = (
        # the same object: a weight that is computed for every call may have the address of the last one
        ref() is a and old == version(a) and not a.is_inference()
        for (ref, old), a in zip(known.sources, _sources(state, known.down, weights), strict=True)
    )
    return known if all(same) else None


def _sources(state: State, down: Sequence[Tensor | None], weights: Sequence[LayerWeights]) -> Iterator[Tensor]:
    """The tensors that the products of ``state`` depend on."""
    for h, w in zip(state.h[1:-1], weights[1:-1]):
        yield from (a for a in (h, w.U, w.b, w.D1, w.d1) if a is not None)
    for h, w, product in zip(state.h[1:], weights, down):
        if product is not None:
            yield from (a for a in (h, w.V, w.gain_V, w.D1) if a is not None)


def version(a: Tensor) -> tuple[int, int]:
    """A value that changes whenever autograd counts a change of the tensor."""
    return a.data_ptr(), 0 if a.is_inference() else a._version
