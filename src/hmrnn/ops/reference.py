"""The recurrence as the paper writes it: plain torch, any device, any dtype. The truth for every test.

The choice between UPDATE, COPY and FLUSH is a polynomial in the boundary states, not a branch, so that autograd sends
the straight-through gradient through every use of z: the two gated contributions and the choice itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.estimators import decide, hard_sigmoid, straight_through
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols, within

LAYER_NORM_EPS = 1e-5


def normalise(s: Tensor, gain: Tensor | None) -> Tensor:
    """Layer normalisation over the 4H gate rows of one contribution; the detector's row stays as it is."""
    if gain is None:
        return s
    rows = gain.shape[0]
    gates = F.layer_norm(s[:, :rows].to(gain.dtype), (rows,), gain, eps=LAYER_NORM_EPS)
    return torch.cat([gates, s[:, rows:].to(gates.dtype)], dim=1)


def squash_cell(c: Tensor, w: LayerWeights) -> Tensor:
    """tanh of the cell, layer-normalised first where the layer has a gain for it."""
    if w.gain_c is not None:
        c = F.layer_norm(c, (w.hidden_size,), w.gain_c, w.bias_c, eps=LAYER_NORM_EPS)
    return torch.tanh(c)


def layer_step(
    w: LayerWeights,
    h: Tensor,  # (B, H)        h of this layer, one step ago
    c: Tensor,  # (B, H)        c of this layer, one step ago
    z: Tensor,  # (B, 1)        boundary of this layer, one step ago; zeros in the top layer
    below: Tensor,  # (B, size)     h of the layer below, now
    z_below: Tensor,  # (B, 1)        boundary of the layer below, now
    above: Tensor | None,  # (B, H above)  h of the layer above, one step ago
    options: Options,
    noise: Tensor | None = None,  # (B, 1)  uniform, for boundaries that are drawn
    forced: Tensor | None = None,  # (B, 1)  a boundary to take; NaN where the detector decides
    kept: Tensor | None = None,  # (B, H)  zoneout: ones for units that keep their c; options.zoneout of all if None
    seen: Tensor | None = None,  # (B, size)  dropout: what the gates see of the layer below, as factors; None: all
    pending: Tensor | None = None,  # (B, 1)  gate of the top-down input with top_down="pending"
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """One layer, one time step (equation 1): the new h, c and, where the layer has a detector, z and z̃."""
    cell = options.variant
    if not cell.copy:
        z_below = torch.ones_like(z_below)

    # (5), (6), (7): the recurrent, the top-down and the bottom-up contribution
    if seen is None:
        read = F.linear(below, w.W)
    else:
        gates = 4 * w.hidden_size
        read = torch.cat([F.linear(below * seen, w.W[:gates]), F.linear(below, w.W[gates:])], dim=1)
    s = normalise(F.linear(h, w.U), w.gain_U) + z_below * normalise(read, w.gain_W) + w.b
    if w.V is not None:
        assert above is not None
        gate = torch.ones_like(z) if cell.gate == "always" else z if pending is None else pending
        s = s + gate * normalise(F.linear(above, w.V), w.gain_V)

    # (4): gates, proposal and the detector's pre-activation
    f, i, o, g, s_z = s.split([w.hidden_size] * 4 + [s.shape[1] - 4 * w.hidden_size], dim=1)
    f, i, o, g = torch.sigmoid(f), torch.sigmoid(i), torch.sigmoid(o), torch.tanh(g)
    if w.D1 is not None and w.D2 is not None:  # a detector with a hidden layer reads what the paper's reads
        read_by_detector = [h, z_below * below] if w.V is None or above is None else [h, gate * above, z_below * below]
        units = F.gelu(F.linear(torch.cat(read_by_detector, dim=1), w.D1, w.d1))
        s_z = F.linear(units, w.D2, w.d2).to(w.b.dtype)

    # (2), (3): FLUSH where z, UPDATE where only z_below, COPY where neither
    erase = z if cell.flush else torch.zeros_like(z)
    keep = 1 - erase
    alpha, beta, gamma = erase + keep * z_below, keep * z_below, keep * (1 - z_below)
    c_new = alpha * i * g + beta * f * c + gamma * c
    if kept is not None or options.zoneout > 0:
        share = options.zoneout if kept is None else kept
        c_new = share * c + (1 - share) * c_new
    h_new = alpha * o * squash_cell(c_new, w) + gamma * h
    if not w.has_detector:
        return h_new, c_new, None, None

    # (8), (9): the boundary
    probability = hard_sigmoid(s_z, options.slope)
    z_new = decide(probability, cell.boundary, noise, options.temperature)
    if cell.on_copy == "hold":  # a layer that read nothing ends nothing
        z_new = alpha * z_new
    if forced is not None:
        given = straight_through(z_new, forced) if options.straight_through else forced
        z_new = torch.where(forced.isnan(), z_new, given)
    return h_new, c_new, z_new, probability


def next_gate(pending: Tensor, z: Tensor, z_below: Tensor) -> Tensor:
    """The gate of the top-down input at the next step with top_down="pending", from the boundaries of this step.

    A boundary opens it, and a step at which the layer moves, which is where z_below is 1, closes it.
    """
    return z + (1 - z) * (1 - z_below) * pending


def hmlstm(
    inputs: Tensor | Symbols,  # (T, B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,  # (B,)
    boundaries: Tensor | None = None,  # (T, B, L-1), NaN where free
    noise: Tensor | None = None,  # (T, B, L-1)
    kept: Sequence[Tensor] | None = None,  # L of (T, B, H_l)
    seen: Sequence[Tensor] | None = None,  # L-1 of (B, H_l)
) -> Result:
    """The whole sequence, one step and one layer after the other."""
    x = inputs.indices if isinstance(inputs, Symbols) else inputs
    top = len(weights) - 1
    active = None
    if lengths is not None:  # whatever the padding holds, nothing of it is read
        active = within(lengths, len(x))  # (T, B)
        x = x.masked_fill(~active if isinstance(inputs, Symbols) else ~active[..., None], 0)
        boundaries = None if boundaries is None else boundaries.masked_fill(~active[..., None], 0)
    if isinstance(inputs, Symbols):
        x = F.embedding(x, inputs.embedding)
    h, c, z = list(state.h), list(state.c), list(state.z[..., None].unbind(1))
    gates: list[Tensor] | None = None
    if options.variant.gate == "pending":
        gates = list((state.z if state.pending is None else state.pending)[..., None].unbind(1))
    hidden: list[list[Tensor]] = [[] for _ in weights]
    all_z: list[Tensor] = []
    all_probabilities: list[Tensor] = []

    for t, below in enumerate(x.unbind()):  # h⁰ = x; the gradient of x[t] would have T steps for each t
        z_below = torch.ones_like(c[0][:, :1])  # z⁰ = 1
        previous_h = list(h)
        probabilities: list[Tensor] = []
        for l, w in enumerate(weights):
            z_here = z[l] if l < top else torch.zeros_like(z_below)
            h_new, c_new, z_new, probability = layer_step(
                w, h[l], c[l], z_here, below, z_below,
                above=previous_h[l + 1] if l < top else None,
                options=options,
                noise=None if noise is None else noise[t, :, l : l + 1],
                forced=None if boundaries is None or l == top else boundaries[t, :, l : l + 1],
                kept=None if kept is None else kept[l][t].to(c[l].dtype),
                seen=None if seen is None or l == 0 else seen[l - 1],
                pending=None if gates is None or l == top else gates[l],
            )  # fmt: skip
            if active is not None:  # past its end a sequence stands still
                here = active[t, :, None]
                h_new, c_new = torch.where(here, h_new, h[l]), torch.where(here, c_new, c[l])
                hidden[l].append(h_new * here)
            else:
                hidden[l].append(h_new)
            h[l], c[l], below = h_new, c_new, h_new
            if z_new is not None and probability is not None:
                if gates is not None:
                    gate = next_gate(gates[l], z_new, z_below)
                    gates[l] = gate if active is None else torch.where(active[t, :, None], gate, gates[l])
                z_below = z_new
                z[l] = z_new if active is None else torch.where(active[t, :, None], z_new, z[l])
                probabilities.append(probability)
        if top > 0:
            row = torch.cat(z, dim=1)
            all_z.append(row if active is None else row * active[t, :, None])
            all_probabilities.append(torch.cat(probabilities, dim=1))

    empty = state.z.new_zeros(x.shape[0], x.shape[1], 0)
    stacked = torch.stack(all_probabilities) if top > 0 else empty
    return Result(
        hidden=tuple(torch.stack(steps) for steps in hidden),
        boundaries=torch.stack(all_z) if top > 0 else empty,
        probabilities=stacked if active is None else stacked * active[..., None],
        state=State(
            tuple(h),
            tuple(c),
            torch.cat(z, dim=1) if top > 0 else state.z,
            pending=None if gates is None else torch.cat(gates, dim=1) if top > 0 else state.z,
        ),
    )
