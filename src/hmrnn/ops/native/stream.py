"""Steps that follow each other: states that carry the packed weights, so that little is checked anew."""

from __future__ import annotations

import ctypes
import itertools
import operator
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import Options, State, Step
from hmrnn.ops.native.structs import ESTIMATORS, LIST, POINTER, Weights, new_call, plain

ORDINARY = 1e18  # sum of squares below which the values of x need no further check


class Streamed(State):
    """A state with the packed weights of the pass or step that it comes from, for the next one.

    A state made from it by ``_replace``, ``detach`` or a copy has none. Changes of weights are noticed by autograd's
    version counters, which do not count changes by ``.data``, NumPy or a fused optimizer.
    """

    cache: Weights | None = None
    flow: _Flow | None = None
    memory: Tensor  # what a flow has written: all tensors of this state are parts of it

    def detach(self) -> State:
        """The same values alone: nothing is remembered."""
        return State(*self).detach()

    def __reduce__(self) -> tuple[Any, ...]:
        return State, tuple(self)  # which torch.load reads


class _Flow:
    """Steps of one network that follow each other: nothing is checked again that cannot have changed."""

    def __init__(self, weights: Weights, tensors: list[Tensor], options: Options, settings: object, B: int) -> None:
        self.weights, self.tensors, self.settings, self.B = weights, tensors, settings, B
        self.busy = threading.Lock()  # of the call, which a step fills in
        self.versions = [(a.data_ptr(), a._version) for a in tensors]
        self.input_shape = (B, weights.tensors[0].W.shape[1])
        sizes = [w.hidden_size for w in weights.tensors]
        self.L, D = len(sizes), len(sizes) - 1
        pends = options.variant.gate == "pending"
        self.shapes = [(B, size) for size in sizes] * 2 + [(B, D)] * (3 if pends else 2)
        self.parts = [B * size for _, size in self.shapes]
        self.call = call = new_call(weights, options, 1, B)
        call.estimator = ESTIMATORS["step"]  # nothing is drawn
        # h and c of all layers, before the step and after it
        self.before, self.after = ((POINTER * (2 * self.L))() for _ in range(2))
        half = self.L * ctypes.sizeof(POINTER)
        call.h0, call.c0 = (ctypes.cast(ctypes.addressof(self.before) + at, LIST) for at in (0, half))
        call.h, call.c = (ctypes.cast(ctypes.addressof(self.after) + at, LIST) for at in (0, half))
        call.hidden = call.h
        self.size = weights.dtype.itemsize
        starts = itertools.accumulate(self.parts, initial=0)
        self.offsets = [start * self.size for start in starts]

    def fits(self, tensors: list[Tensor], settings: object) -> bool:
        """Whether the network is as it was."""
        return (
            len(tensors) == len(self.tensors)
            and all(map(operator.is_, tensors, self.tensors))
            and [(a.data_ptr(), a._version) for a in tensors] == self.versions
            and settings == self.settings
        )

    def step(self, x: Tensor, state: Streamed, forced: Tensor | None) -> Step:
        call, L, offsets = self.call, self.L, self.offsets
        memory = torch.empty(offsets[-1] // self.size, dtype=self.weights.dtype)
        moved = torch.empty(self.B, L, dtype=torch.bool)
        was, now = state.memory.data_ptr(), memory.data_ptr()
        for i in range(2 * L):
            self.before[i], self.after[i] = was + offsets[i], now + offsets[i]
        call.z0, call.z = was + offsets[2 * L], now + offsets[2 * L]
        call.boundaries, call.probabilities = call.z, now + offsets[-2]
        call.pending0, call.pending = was + offsets[2 * L + 1], now + offsets[2 * L + 1]
        call.x, call.forced, call.moved = x.data_ptr(), None if forced is None else forced.data_ptr(), moved.data_ptr()
        self.weights.run(call)
        return self.read(memory, moved)

    def read(self, memory: Tensor, moved: Tensor) -> Step:
        """The step whose numbers ``memory`` holds."""
        parts = [a.view(shape) for a, shape in zip(memory.split(self.parts), self.shapes)]
        new = Streamed(tuple(parts[: self.L]), tuple(parts[self.L : 2 * self.L]), *parts[2 * self.L : -1])
        new.cache, new.flow, new.memory = self.weights, self, memory
        return Step(new, moved, parts[-1])


def flowing(made: Step, tensors: list[Tensor], options: Options, settings: object) -> Step:
    """A first step, ready to be followed by :func:`go_on`; ``tensors`` and ``settings`` are all that its network is."""
    state = made.state
    if torch.compiler.is_compiling():
        return made
    if not isinstance(state, Streamed) or state.cache is None or any(a.is_inference() for a in (*tensors, state.z)):
        return made
    if not {*map(id, state.cache.given)} <= {*map(id, tensors)}:  # some are computed anew for each step
        return made
    flow = _Flow(state.cache, tensors, options, settings, len(state.z))
    last = () if state.pending is None else (state.pending,)
    memory = torch.cat([a.flatten() for a in (*state.h, *state.c, state.z, *last, made.probabilities)])
    return flow.read(memory, made.changed)


def go_on(x: Tensor, state: State, forced: Tensor | None, tensors: list[Tensor], settings: object) -> Step | None:
    """The step after the one that ``state`` comes from; None if something but x has changed or needs to be checked."""
    if not isinstance(state, Streamed) or state.flow is None:
        return None
    flow = state.flow
    if (
        torch.compiler.is_compiling()
        or type(x) is not Tensor
        or x.shape != flow.input_shape
        or x.dtype != flow.weights.dtype
        or not x.is_cpu
        or not flow.fits(tensors, settings)
        or state.memory._version
        or torch.is_inference_mode_enabled()
    ):
        return None
    x = plain(x)
    values = x.numpy().ravel()
    if not np.vdot(values, values) < ORDINARY:
        return None
    if forced is not None:
        if forced.shape != state.z.shape or forced.dtype != x.dtype or not forced.is_cpu:
            return None
        forced = plain(forced)
        if not all(v in (0, 1) or v != v for v in forced.flatten().tolist()):
            return None
    if not flow.busy.acquire(blocking=False):  # another thread goes on from the same step
        return None
    try:
        return flow.step(x, state, forced)
    finally:
        flow.busy.release()
