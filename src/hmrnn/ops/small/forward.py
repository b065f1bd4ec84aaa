"""The recurrence of small layers on a CPU: every row is computed at every step, in as few and short calls as possible.

Small layers in small batches are multiplied in less time than it takes to find the rows that move. So each layer makes
one product per step, of [W U V] with the gated h below, its own h and the gated h above, and COPY is a copy at the end.
Nearly all is NumPy's, whose calls take half as long as torch's; large products are torch's. The backward pass is
written by hand; what does not depend on later steps is computed for several steps at once. Outputs and gradients are
those of the reference for boundaries of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.estimators import DRAWN, hard_sigmoid
from hmrnn.ops.interface import (
    LayerWeights,
    Options,
    Result,
    State,
    Symbols,
    autocast_dtype,
    check_dtype,
    first_only,
)
from hmrnn.ops.reference import normalise
from hmrnn.ops.small import backward, backward_norm
from hmrnn.ops.small.layer import Layer, NormalisedLayer, link, unlink
from hmrnn.ops.small.track import Call, Track, rows

SMALL = 128
"""Units up to which a layer counts as small."""

AT_ONCE, AT_ONCE_NORMALISED = 8192, 4096
"""Sequences times units up to which dense products are faster than the sparse engine, without and with layer norm."""


def why_not(weights: Sequence[LayerWeights], options: Options, drops: bool = False) -> str | None:
    """Why :func:`hmlstm` cannot run these layers; None if it can. ``drops``: there are masks of zoneout or dropout."""
    if weights[0].D1 is not None:
        return "it has no detectors with a hidden layer"
    if options.zoneout > 0 or drops:
        return "it has neither zoneout nor dropout"
    if options.boundary not in ("step", "sample"):
        return 'it takes boundary="step" and "sample" only'
    if weights[0].b.dtype not in (torch.float32, torch.float64):
        return "it takes float32 and float64 only"
    return "it has no autocast" if autocast_dtype(weights[0].b.device) is not None else None


def most_sequences(weights: Sequence[LayerWeights]) -> int:
    """The largest batch that these layers compute faster here than in the sparse engine; 0 if they are too large."""
    units = max(w.hidden_size for w in weights)
    return 0 if units > SMALL else (AT_ONCE if weights[0].gain_U is None else AT_ONCE_NORMALISED) // units


def suits(weights: Sequence[LayerWeights], options: Options, batch: int, drops: bool = False) -> bool:
    """Whether :func:`hmlstm` can run these layers, and no other code runs them faster in such a batch.

    One sequence that is only read is left to :mod:`hmrnn.ops.single`.
    """
    learn = torch.is_grad_enabled() and any(a is not None and a.requires_grad for w in weights for a in w)
    return (learn or batch > 1) and batch <= most_sequences(weights) and why_not(weights, options, drops) is None


def hmlstm(
    inputs: Tensor | Symbols,  # (T, B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,  # (B,)
    boundaries: Tensor | None = None,  # (T, B, L-1), NaN: not forced
    noise: Tensor | None = None,  # (T, B, L-1)
) -> Result:
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`. All boundaries, forced and in the state too, must be 0 or 1."""
    first = weights[0]
    check_dtype(state, first.b.dtype)
    x = inputs.indices if isinstance(inputs, Symbols) else inputs
    active, forced = None, None if boundaries is None else boundaries.detach()
    if lengths is not None and (lengths < len(x)).any():
        active = (torch.arange(len(x), device=x.device)[:, None] < lengths)[..., None]  # (T, B, 1)
        x = x.masked_fill(~active[..., 0] if isinstance(inputs, Symbols) else ~active, 0)
        forced = None if forced is None else forced.masked_fill(~active, 0)
    read = F.linear(inputs.embedding if isinstance(inputs, Symbols) else x, first.W)
    read = normalise(read.flatten(0, -2), first.gain_W).unflatten(0, read.shape[:-1]) + first.b
    if isinstance(inputs, Symbols):
        read = F.embedding(x, read)
    pending = state.z if state.pending is None else state.pending
    mask = None if active is None else active[..., 0].to(first.b.dtype)
    slope = options.slope.item() if isinstance(options.slope, Tensor) else options.slope
    # cloned for the backward pass: the caller may reuse these buffers before it runs
    drawn = noise.clone() if noise is not None and options.boundary in DRAWN else None
    call = Call(options, slope, drawn, mask, None if forced is None else forced.clone())
    L = len(weights)
    flat = [a for w in weights for a in w]
    outputs = _Small.apply(call, read, boundaries, options.slope, state.z, pending, *state.h, *state.c, *flat)
    hidden, (z, probabilities, last, gates), ends = outputs[:L], outputs[L : L + 4], outputs[L + 4 :]
    if mask is not None:
        hidden = tuple(h * mask[..., None] for h in hidden)
    return Result(
        hidden, z, probabilities,
        State(ends[:L], ends[L:], last, gates if options.gate == "pending" else None),
    )  # fmt: skip


class _Small(torch.autograd.Function):
    """The recurrence given W·x + b of the first layer."""

    @staticmethod
    def forward(ctx: Any, call: Call, first: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
        fields = len(LayerWeights._fields)
        L = (len(tensors) - 4) // (2 + fields)
        z, pending, h, c = tensors[2], tensors[3], tensors[4 : 4 + L], tensors[4 + L : 4 + 2 * L]
        flat = tensors[4 + 2 * L :]
        weights = [LayerWeights(*of_layer) for of_layer in zip(*[iter(flat)] * fields)]
        with np.errstate(all="ignore"):
            tracks = forward(call, first, weights, State(h, c, z, pending))
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*flat, *(a for track in tracks for a in track))
        lower = tracks[:-1]
        T, B = first.shape[:2]
        empty = z.new_empty(T, B, 0)
        all_z = torch.cat([empty, *(track.z[1:, :, None] for track in lower)], dim=2)
        s_z = torch.cat([empty, *(track.s[:, -1, :, None] for track in lower)], dim=2)
        probabilities = hard_sigmoid(s_z, call.slope)
        if call.active is not None:
            all_z, probabilities = all_z * call.active[..., None], probabilities * call.active[..., None]
        ends = [torch.stack([a[-1] for a in of], 1) for of in zip(*((t.z, t.gate) for t in lower))]
        last, gates = ends or (z.clone(), z.clone())
        states = [track.hc[-1].transpose(1, 2).clone(memory_format=torch.contiguous_format) for track in tracks]
        return (
            *(rows(track.hc[1:, 0]) for track in tracks), all_z, probabilities, last, gates,
            *(h for h, _ in states), *(c for _, c in states),
        )  # fmt: skip

    @staticmethod
    @first_only('engine "auto" gives first derivatives only; for create_graph=True use engine="reference"')
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        L, fields = (len(grads) - 4) // 3, len(LayerWeights._fields)
        saved = ctx.saved_tensors
        weights = [LayerWeights(*of_layer) for of_layer in zip(*[iter(saved[: fields * L])] * fields)]
        tracks = [Track(*of_layer) for of_layer in zip(*[iter(saved[fields * L :])] * len(Track._fields))]
        with np.errstate(all="ignore"):
            kind = backward.Layer if weights[0].gain_U is None else backward_norm.NormalisedLayer
            return (None, *backward.backward(kind, ctx.call, weights, tracks, grads, ctx.needs_input_grad[1:]))


def forward(call: Call, first: Tensor, weights: Sequence[LayerWeights], state: State) -> list[Track]:
    """Equations 2-9 for all steps."""
    T, B = first.shape[:2]
    options, L, top = call.options, len(weights), len(weights) - 1
    top_down = options.gate
    kind = Layer if weights[0].gain_U is None else NormalisedLayer
    given = zip(weights, state.h, state.c)
    layers = [kind(w, first if l == 0 else None, h, c, T) for l, (w, h, c) in enumerate(given)]
    link(layers)
    all_z, all_gates = (first.new_ones(top, T + 1, B).numpy() for _ in range(2))
    all_z[:, 0] = state.z.t().numpy()
    if top_down == "pending":
        all_gates[:, 0] = (state.z if state.pending is None else state.pending).t().numpy()
    elif top_down != "always":
        all_gates = all_z
    fed, unflushed = [first.new_ones(T, B).numpy() for _ in weights], first.new_ones(L, T, B).numpy()
    forced = ended = None
    free = np.ones((T, B, top), dtype=bool)
    shortest = T
    if call.active is not None:
        fed = [call.active.numpy().copy() for _ in weights]
        ended = fed[0] == 0
        shortest = int(ended.any(axis=1).argmax())
    elif options.copy:  # where the layer below has ended a segment
        fed[1:] = (z[1:] for z in all_z)
    if call.forced is not None:
        forced, free = call.forced.to(first.dtype).numpy(), call.forced.isnan().numpy()
    decides: list[list[bool]] = np.any(free, axis=1).tolist()  # whether the detector decides for any sequence
    threshold = np.ones((T, B, top), all_z.dtype) if call.noise is None else (2 * call.noise).numpy()
    one, slope = (np.array(a, all_z.dtype) for a in (1.0, call.slope))
    z_steps, gate_steps, fed_steps = ([list(of_layer) for of_layer in a] for a in (all_z, all_gates, fed))

    for t in range(T):
        past = ended[t] if ended is not None and t >= shortest else None  # the sequences that have ended
        for l, layer in enumerate(layers):
            copies, flushes = l > 0 and options.copy, l < top and options.flush
            moves, flush = fed_steps[l][t], None
            if copies and ended is not None:  # never in the padding
                np.multiply(fed_steps[0][t], z_steps[l - 1][t + 1], out=moves)
            if flushes:
                flush = z_steps[l][t] * fed_steps[0][t]
                moves = np.maximum(moves, flush)
                flush = np.subtract(one, flush, out=unflushed[l, t])
            partial = copies or past is not None
            layer.step(
                t,
                fed_steps[l][t] if partial else None,
                flush,
                np.logical_not(moves) if partial else None,
                gate_steps[l][t] if l < top and top_down != "always" else None,
            )
            if l == top:
                break
            # (8), (9): the boundary; (a·s_z + 1) / 2 > 1/2
            z = z_steps[l][t + 1]
            if decides[t][l]:
                np.greater(np.add(np.multiply(slope, layer.s_z[t], out=z), one, out=z), threshold[t, :, l], out=z)
                if options.on_copy == "hold" and copies:
                    z *= moves
            if forced is not None:
                np.copyto(z, forced[t, :, l], where=~free[t, :, l])
            if top_down == "pending":
                gate = gate_steps[l][t + 1]
                np.multiply(gate_steps[l][t], np.subtract(one, fed_steps[l][t], out=gate), out=gate)
                np.maximum(z, gate, out=gate)
                if past is not None:
                    np.copyto(gate, gate_steps[l][t], where=past)
            if past is not None:
                np.copyto(z, z_steps[l][t], where=past)

    tracks = []
    for l, layer in enumerate(layers):
        masks = [fed[l], 1 - unflushed[l], *((all_z[l], all_gates[l]) if l < top else (np.empty(0),) * 2)]
        norms = layer.norms()
        tracks.append(
            Track(
                layer.track_hc, layer.track_s, layer.track_x, *(torch.from_numpy(a) for a in masks),
                *(norms.get(name, first.new_empty(0)) for name in "WUVc"),
            )
        )  # fmt: skip
    unlink(layers)
    return tracks
