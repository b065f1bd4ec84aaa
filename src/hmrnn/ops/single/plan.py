"""The weights of a network made ready for a single sequence, and used again while nothing has changed.

A state that comes from :mod:`hmrnn.ops.single` or :mod:`hmrnn.ops.single.step` carries the plan it was computed with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options, State, Symbols, autocast_dtype
from hmrnn.ops.single.layer import Layer, Prepared

SETTLED = 256
"""Steps after which a plan makes copies that save time in all that follow."""

TABLE = 1 << 22
"""Elements up to which W·embedding + b of all symbols is kept."""


class Streamed(State):
    """The state of one sequence after a pass or a step, with what the next one can use again.

    A state made from it by ``_replace``, ``detach`` or a copy has none of that. Changes of tensors are detected by
    autograd's version counters, which do not count changes by ``.data``, NumPy, a fused optimizer or a CUDA graph.
    """

    cache: Any = None
    """A :class:`Plan`, or after a step a ``Stream`` of :mod:`hmrnn.ops.single.step`."""

    def apply(self, function: Callable[[Tensor], Tensor]) -> State:
        """The state with ``function`` applied to each tensor; the plan stays, as it depends on none."""
        new = Streamed(*super().apply(function))
        new.cache = getattr(self.cache, "plan", self.cache)
        return new

    def detach(self) -> State:
        """The same values alone: nothing is remembered."""
        return State(*self).detach()

    def __reduce__(self) -> tuple[Any, ...]:
        return State, tuple(self)  # which torch.load reads


class Plan:
    """The layers of a network, made ready for steps, and what they were made from."""

    def __init__(self, weights: Sequence[LayerWeights], options: Options, tensors: list[Tensor]) -> None:
        self.options, self.settings, self.tensors = options, options.settings, tensors
        self.slope, self.lower = float(options.slope), autocast_dtype(weights[0].b.device)
        self.input_size, self.dtype = weights[0].W.shape[1], weights[0].b.dtype
        # changes of tensors that were made in inference mode are not counted: then there is nothing to reuse
        self.reusable = not any(a.is_inference() for a in tensors)
        self.addresses = [a.data_ptr() for a in tensors]
        self.versions = [a._version for a in tensors] if self.reusable else []
        self.prepared = [Prepared(w, self.lower) for w in weights]
        self.free: list[list[Layer]] = []  # threads that run at once take different ones
        self.patterns: dict[tuple[bool, ...], np.ndarray] = {}
        self.steps = 0
        self.table: tuple[Tensor, int, int, np.ndarray] | None = None

    def fits(self, tensors: list[Tensor], settings: tuple[object, ...]) -> bool:
        """Whether the layers are those of ``tensors``, unchanged, and of ``settings``."""
        return (
            self.reusable
            and len(tensors) == len(self.tensors)
            and all(map(operator.is_, tensors, self.tensors))
            and [a.data_ptr() for a in tensors] == self.addresses
            and [a._version for a in tensors] == self.versions
            and settings == self.settings
            and (torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None) == self.lower
        )

    def take(self, steps: int) -> list[Layer]:
        """Layers for so many steps, which no other thread uses until they are appended to ``free``."""
        if self.steps < SETTLED <= self.steps + steps:
            with torch.inference_mode(False):
                for of_layer in self.prepared:
                    of_layer.settle()
        self.steps += steps
        try:
            return self.free.pop()
        except IndexError:
            with torch.inference_mode(False):  # outside that mode, too, products are written into these layers
                return [Layer(of_layer, self.options.zoneout) for of_layer in self.prepared]

    def changed(self, moved: tuple[bool, ...]) -> Tensor:
        """(1, L) bool."""
        if moved not in self.patterns:
            self.patterns[moved] = np.array([moved])
        return torch.from_numpy(self.patterns[moved].copy())

    def read(self, inputs: Tensor | Symbols) -> tuple[np.ndarray, Sequence[int]]:
        """W·x + b of the first layer for distinct inputs, and for each step the row that it reads."""
        first = self.prepared[0]
        if not isinstance(inputs, Symbols):
            return first.first(inputs[:, 0].detach()), range(len(inputs))
        indices, embedding = inputs.indices[:, 0], inputs.embedding
        size = len(embedding) * len(first.b)
        if self.steps < SETTLED or size > TABLE or embedding.is_inference():
            occurring, rows = np.unique(indices.numpy(), return_inverse=True)
            return first.first(F.embedding(torch.from_numpy(occurring), embedding.detach())), rows.tolist()
        made_from = (embedding, embedding.data_ptr(), embedding._version)
        table = self.table  # another thread may replace it
        if table is None or table[0] is not embedding or table[1:3] != made_from[1:]:
            self.table = table = (*made_from, first.first(embedding.detach()))
        return table[3], indices.tolist()


def ordered(weights: Sequence[LayerWeights], options: Options) -> list[Tensor]:
    """The tensors that steps depend on: the slope, all U, all W and so on."""
    slope = [options.slope] if isinstance(options.slope, Tensor) else []
    return slope + [a for of_name in zip(*weights) for a in of_name if a is not None]


def plan_for(weights: Sequence[LayerWeights], options: Options, state: State) -> Plan:
    """The plan that the state carries, if it is still valid, otherwise a new one."""
    known = state.cache if isinstance(state, Streamed) else None
    known = getattr(known, "plan", known)
    tensors = ordered(weights, options)
    if isinstance(known, Plan) and known.slope == float(options.slope) and known.fits(tensors, options.settings):
        return known
    with torch.inference_mode(False), torch.no_grad():
        return Plan(weights, options, tensors)
