"""One time step of a single sequence on a CPU, in NumPy; :mod:`hmrnn.ops.streaming` calls it for a batch of one.

A step of small layers takes less time than the checks of its arguments. So a state that comes from a step carries a
:class:`Stream`, and the next step checks only whether anything has changed since: :func:`go_on`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options, State
from hmrnn.ops.single.layer import Loop, Memory
from hmrnn.ops.single.plan import Plan, Streamed, plan_for

Stepped = tuple[Streamed, Tensor, Tensor]
"""The new state, which layers changed (1, L), and the detectors' z̃ (1, L-1)."""

ORDINARY = 1e18
"""Σx² below which the values of x need no further check."""


class Given(NamedTuple):
    """Values of the boundaries that a step is given."""

    z: list[float]
    gates: list[float]  # of the top-down input
    forced: list[float]  # NaN: not forced


def _given(state: State, boundaries: Tensor | None) -> Given | None:
    """The boundaries given to a step; None if one is not 0, 1 or NaN."""
    (z,) = state.z.tolist()
    (gates,) = (z,) if state.pending is None else state.pending.tolist()
    (forced,) = ([math.nan] * len(z),) if boundaries is None else boundaries.tolist()
    binary = all(v in (0, 1) or v != v for v in (*z, *gates, *forced))
    return Given(z, gates, forced) if binary else None


def given_to_step(
    x: Tensor,
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None,
) -> Given | None:
    """The boundaries given to :func:`step`, or None if it cannot take these arguments."""
    if (
        len(x) != 1
        or x.dtype != weights[0].b.dtype
        or x.dtype not in (torch.float32, torch.float64)
        or x.device.type != "cpu"
        or options.boundary == "soft"
        or torch.compiler.is_compiling()
    ):
        return None
    return _given(state, boundaries)


@torch.no_grad()
def step(x: Tensor, weights: Sequence[LayerWeights], state: State, options: Options, given: Given) -> Stepped:
    """One time step, equations 2-9; ``x`` is (1, size)."""
    # in inference mode, too, new tensors must count their changes, by which products are known to be valid
    with torch.inference_mode(False):
        plan = plan_for(weights, options, state)
        state = state.apply(lambda a: a.clone() if a.is_inference() else a)
        layers = plan.take(0)
        memory = [layer.start(h, c) for layer, h, c in zip(layers, state.h, state.c)]
        plan.free.append(layers)
        return _advance(x.detach(), state, plan, memory, given)


def go_on(
    x: Tensor,  # (1, size)
    state: Streamed,
    boundaries: Tensor | None,  # (1, L-1), NaN: not forced
    tensors: list[Tensor],
    settings: tuple[object, ...],
) -> Stepped | None:
    """The step after the one that ``state`` comes from; None if anything but x has changed or needs to be checked.

    ``tensors`` are the weights as :func:`ordered` gives them, ``settings`` those of :class:`Options`.
    """
    stream = state.cache
    if (
        not isinstance(stream, Stream)
        or torch.compiler.is_compiling()
        or type(x) is not Tensor
        or x.shape != (1, stream.plan.input_size)
        or x.dtype != stream.plan.dtype
        or not x.is_cpu
        or [a._version for a in state.h] != stream.versions
        or not stream.plan.fits(tensors, settings)
    ):
        return None
    x = x.detach()
    values = x.numpy()
    ordinary = np.vdot(values, values) < ORDINARY
    if boundaries is not None and (
        not isinstance(boundaries, Tensor) or boundaries.shape != state.z.shape or not boundaries.is_cpu
    ):
        return None
    given = _given(state, boundaries)
    if given is None or not ordinary:
        return None
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext():
        return _advance(x, state, stream.plan, stream.memory, given)


def _advance(x: Tensor, state: State, plan: Plan, memory: Sequence[Memory], given: Given) -> Stepped:
    layers, slope = plan.take(1), plan.slope
    for layer, of_layer in zip(layers, memory):
        layer.load(of_layer)
    loop = Loop(layers, plan.options)
    loop.z, loop.gates = [v > 0.5 for v in given.z], [v > 0.5 for v in given.gates]
    with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity pass on
        loop.advance(layers[0].read(x), given.forced, slope)
    h, c, memory = list(state.h), list(state.c), list(memory)
    moved = tuple(layer.moved for layer in layers)
    for l, layer in enumerate(layers):
        new_h = layer.h.copy() if moved[l] else memory[l].h
        if moved[l]:
            h[l], c[l] = torch.from_numpy(new_h[None]), torch.from_numpy(layer.c[None])
        memory[l] = Memory(new_h, layer.c, layer.on_copy, layer.down, layer.down_rows)
    linear = [min(max((slope * s_z + 1) / 2, 0.0), 1.0) for s_z in loop.s_z]
    of_detectors = np.array([*loop.z, *linear, *loop.gates], layers[0].dtype).reshape(3, 1, loop.top)
    z, probabilities, pending = torch.from_numpy(of_detectors).unbind()
    new = Streamed(tuple(h), tuple(c), z, pending if loop.gate == "pending" else None)
    new.cache = Stream(plan, memory, [a._version for a in h])
    plan.free.append(layers)
    return new, plan.changed(moved), probabilities


class Stream(NamedTuple):
    """What a :class:`Streamed` state of one sequence carries to the next step."""

    plan: Plan
    memory: list[Memory]
    versions: list[int]  # of h
