"""The recurrence of a single sequence on a CPU without gradients, in NumPy.

With a batch of one, a step is a few products of matrices with vectors, which take less time than the overhead of torch
calls; that of NumPy calls is smaller. As in the sparse engine, a layer that copies does no work, and V·h is computed
once per change of h.

Single steps are in :mod:`hmrnn.ops.single.step`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.estimators import DRAWN, hard_sigmoid
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols
from hmrnn.ops.single.layer import Loop
from hmrnn.ops.single.plan import Streamed, plan_for


def why_not(
    inputs: Tensor | Symbols,
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    lengths: Tensor | None,
    boundaries: Tensor | None,
    noise: Tensor | None,
) -> str | None:
    """Why :func:`hmlstm` cannot take these arguments; None if it can."""
    x = inputs.indices if isinstance(inputs, Symbols) else inputs
    source = inputs.embedding if isinstance(inputs, Symbols) else inputs
    states = (*state.h, *state.c, state.z, state.pending)
    given = [source, *states, boundaries, options.slope, *(a for w in weights for a in w)]
    if x.shape[1] != 1 or lengths is not None:
        return "it takes one sequence without padding"
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or source.dtype not in (torch.float32, torch.float64):
        return "it runs on a CPU in float32 or float64, without autocast"
    if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in given):
        return "it has no gradients"
    if options.boundary == "soft" or (noise is not None and options.boundary in DRAWN):
        return "it has neither soft nor sampled boundaries"
    return None


def hmlstm(
    inputs: Tensor | Symbols,  # (T, 1, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None = None,  # (T, 1, L-1), NaN: not forced
) -> Result:
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`. :func:`why_not` must be None, and all boundaries 0 or 1."""
    plan = plan_for(weights, options, state)
    products, rows = plan.read(inputs)
    T = len(rows)
    layers = plan.take(T)
    top = len(layers) - 1
    for layer, h, c in zip(layers, state.h, state.c):
        layer.load(layer.start(h, c))
    places = [torch.empty(T + 1, layer.H, dtype=plan.dtype) for layer in layers]  # h before t = 0, and where it moves
    writes: list[np.ndarray] = [place.numpy() for place in places]
    for place, layer in zip(writes, layers):
        place[0] = layer.h
    moved, s_z, z = [], [], []
    forced: list[list[float]] = [[math.nan] * top] * T if boundaries is None else boundaries[:, 0].tolist()
    gates = state.pending if options.gate == "pending" and state.pending is not None else state.z
    slope = float(options.slope)
    loop = Loop(layers, options)
    loop.z, loop.gates = ([v > 0.5 for v in a[0].tolist()] for a in (state.z, gates))
    with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity pass on
        for t in range(T):
            loop.advance(products[rows[t]], forced[t], slope)
            for place, layer in zip(writes, layers):
                if layer.moved:
                    place[t + 1] = layer.h
            moved.append([layer.moved for layer in layers])
            s_z.append(loop.s_z)
            z.append(loop.z.copy())

    last_moves = np.maximum.accumulate(np.where(moved, np.arange(1, T + 1)[:, None], 0))  # (T, L), 0: before t = 0
    hidden = [place[torch.from_numpy(at)][:, None] for place, at in zip(places, last_moves.T)]
    probabilities = hard_sigmoid(torch.tensor(s_z, dtype=plan.dtype).reshape(T, top), options.slope)[:, None]
    last = [torch.tensor([of], dtype=plan.dtype).reshape(1, top) for of in (loop.z, loop.gates)]
    new = Streamed(
        tuple(layer.as_tensor.clone() for layer in layers),
        tuple(torch.from_numpy(layer.c[None].copy()) for layer in layers),
        *(last if options.gate == "pending" else last[:1]),
    )
    new.cache = plan
    plan.free.append(layers)
    found = torch.tensor(z, dtype=plan.dtype).reshape(T, 1, top)
    return Result(tuple(hidden), found, probabilities, new)
