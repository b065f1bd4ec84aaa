"""The backward pass of the sparse engine: the gradients of the reference, multiplying only for rows that changed.

A COPY row passes the gradients of h and c on unchanged. Its gradient of z is a dot product (copies.py), and that of its
detector a rank-one term. Weight gradients are computed after the loop (gradients.py). ``dh`` is the gradient of h, etc.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights
from hmrnn.ops.sparse.gradients import input_gradient, weight_gradients
from hmrnn.ops.sparse.layer import Layer
from hmrnn.ops.sparse.log import (
    Call,
    Log,
)


def backward(
    call: Call,
    logs: Sequence[Log],
    first_shape: torch.Size,
    s_z: Tensor,  # (T, B, L-1)
    saved: Sequence[Any],
    grads: Sequence[Tensor | None],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of W·x + b of the first layer, forced boundaries, slope, initial z, pending, h and c, and all weights.

    ``saved`` holds the weights and then the logs' tensors; ``grads`` are those of the outputs of ``_forward``.
    """
    L, fields = len(logs), len(LayerWeights._fields)
    flat = iter(saved[L * fields :])
    layers: list[Layer] = []
    for l, log in enumerate(logs):
        w = LayerWeights(*saved[l * fields : (l + 1) * fields])
        layers.append(Layer(l, call, w, log, flat, grads[l], grads[L + 3 + l], grads[2 * L + 3 + l]))
    for below, above in itertools.pairwise(layers):
        below.above, above.below = above, below
    for l, layer in enumerate(layers[:-1]):
        of_detector = (*grads[L : L + 3], *grads[3 * L + 3 :])
        layer.prepare_detector(s_z[..., l], *(None if d is None else d[..., l] for d in of_detector))
    for layer in layers:
        layer.prepare_events()

    for t in reversed(range(call.T)):
        for layer in reversed(layers):
            layer.step(t)

    d_forced = d_slope = d_z = d_pending = None
    if needs[1] and L > 1 and call.forced is not None and not call.options.straight_through:
        taken = torch.from_numpy(~np.isnan(call.forced)).to(s_z.device)
        taken = taken if call.active is None else taken & call.active[..., None]
        d_forced = torch.stack([layer.d_forced for layer in layers[:-1]], dim=-1) * taken
    if needs[2] and isinstance(call.slope, Tensor):
        d_slope = sum((layer.ds_z * layer.s_z).sum() for layer in layers[:-1]) / call.slope
    if needs[3] and L > 1:
        d_z = torch.stack([layer.dz for layer in layers[:-1]], dim=-1)
    if needs[4] and L > 1:
        d_pending = torch.stack([layer.d_gate for layer in layers[:-1]], dim=-1)
    d_weights = [d for l, layer in enumerate(layers) for d in weight_gradients(layer, needs[5 + 2 * L + l * fields :])]
    d_states = [layer.dh for layer in layers] + [layer.dc for layer in layers]
    d_first = input_gradient(layers[0], first_shape) if needs[0] else None
    for layer in layers:
        layer.below = layer.above = None  # without reference cycles the memory is freed at once
    return [d_first, d_forced, d_slope, d_z, d_pending, *d_states, *d_weights]
