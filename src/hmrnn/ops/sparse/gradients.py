"""The gradients of weights and input in the sparse engine: one product per matrix over all events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.interface import LayerWeights
from hmrnn.ops.sparse.layer import Layer
from hmrnn.ops.sparse.log import Events, multiply, pick


def input_gradient(layer: Layer, shape: torch.Size) -> Tensor:
    """The gradient of W·x + b of the first layer (T, B, R), or of its table (symbols, R)."""
    call, events, ds = layer.call, layer.events, layer.ds
    where = None if call.active is None else events.index(events.times * call.B + events.rows)
    if layer.above is not None:
        ds[:, 4 * layer.H :] = pick(layer.d_rows().flatten(0, 1), where)
    if call.indices is not None:
        return ds.new_zeros(shape).index_add_(0, pick(call.indices.flatten(), where), ds)
    if where is None:
        return ds.view(shape)
    return ds.new_zeros(call.T * call.B, shape[-1]).index_copy_(0, where, ds).view(shape)


def weight_gradients(layer: Layer, needs: Sequence[bool]) -> list[Tensor | None]:
    """The weight gradients of one layer, in the order of :class:`LayerWeights`; None for those not wanted.

    W and b of the first layer are None, too: autograd computes them from the gradient of W·x + b.
    """
    w, H, above, below, events = layer.w, layer.H, layer.above, layer.below, layer.events
    wanted = dict(zip(LayerWeights._fields, needs))
    ds, d = layer.ds[:, : 4 * H], dict(layer.d_norm)
    if wanted["U"]:
        dU = ds if w.gain_U is None else _joined(layer.dU, ds)
        previous = slice(len(ds)) if events.previous is None else events.previous
        d["U"] = _matrix_gradient(layer, w.U, dU, events, previous, events.current[:-1], None)
    if wanted["W"] and below is not None:
        dW = pick(ds, layer.fed) if w.gain_W is None else _joined(layer.dW, ds)
        read = pick(layer.below_events, layer.fed)
        seen = None
        if layer.call.seen is not None:
            seen = pick(layer.call.seen[layer.l - 1].index_select(0, events.index(events.rows)), layer.fed)
        d["W"] = _matrix_gradient(layer, w.W, dW, below.events, read, below.events.current[1:], layer.z_below, seen)
    if wanted["b"] and below is not None:
        d["b"] = torch.cat([ds.sum(0), *([] if above is None else [layer.d_rows().sum((0, 1))])])
    if w.D2 is not None:
        d["d2"] = layer.ds_z.sum().reshape(1)
        d["D2"] = layer.ds_z.reshape(1, -1) @ F.gelu(events.detector)
    if wanted["V"] and above is not None and w.V is not None:
        dV = pick(ds[:, layer.v :], layer.gated) if w.gain_V is None else _joined(layer.dV, ds)
        read = layer.above_events[layer.gated]
        d["V"] = _matrix_gradient(layer, w.V, dV, above.events, read, above.events.current[:-1], layer.gate)
    return [d.get(name) for name in LayerWeights._fields]


def _matrix_gradient(
    layer: Layer,
    matrix: Tensor,
    d: Tensor,
    source: Events,
    read: Tensor | slice,
    current: np.ndarray,
    gate: Tensor | None,
    seen: Tensor | None = None,
) -> Tensor:
    """The gradient of a matrix.

    Its gate rows were multiplied with h · ``seen`` of the events ``read``; ``d`` is the gradient of those products. The
    detector's rows read h of the events ``current`` (T, B) at every step, times ``gate``.
    """
    result, h = torch.zeros_like(matrix), source.h(slice(None))
    right = pick(h, read) if seen is None else pick(h, read) * seen
    multiply(d.t(), right.to(layer.lower), out=result[4 * layer.H - d.shape[1] : 4 * layer.H])
    if layer.detects:
        d_rows = layer.d_rows() if gate is None else layer.d_rows() * gate[..., None]
        per_event = h.new_zeros(len(h), d_rows.shape[-1])
        per_event.index_add_(0, source.index(current.ravel()), d_rows.flatten(0, 1))
        torch.mm(per_event.t(), h, out=result[4 * layer.H :])
    return result


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    """The parts of all steps as one tensor in order of time; ``parts`` has the last step first."""
    return torch.cat([like[:0], *reversed(parts)])
