"""One time step without gradients: rows of a layer that copy do no work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops import reference, single
from hmrnn.ops.estimators import hard_sigmoid
from hmrnn.ops.interface import LayerWeights, Options, State
from hmrnn.ops.reference import next_gate, normalise, squash_cell
from hmrnn.ops.streamed import remembered, streamed


class Step(NamedTuple):
    """The result of one step."""

    state: State
    changed: Tensor  # (B, L) bool: True for UPDATE and FLUSH
    probabilities: Tensor  # (B, L-1)


@torch.no_grad()
def step(
    x: Tensor,  # (B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None = None,  # (B, L-1), NaN: not forced
) -> Step:
    """Equations 2-9 for one time step. With "soft" boundaries every row changes.

    Nothing is sampled: with "sample", z is 1 if its probability is above 0.5.
    """
    if options.detector_hidden:
        return _reference_step(x, weights, state, options, boundaries)
    if single.can_step(x, weights, state, options, boundaries):  # faster, and equal up to rounding
        return Step(*single.step(x, weights, state, options, boundaries))
    top, ones = len(weights) - 1, state.z.new_ones(len(x))
    h, c, z = list(state.h), list(state.c), state.z.clone()
    pending = None
    if options.gate == "pending":
        pending = (state.z if state.pending is None else state.pending).clone()
    known = remembered(state, weights)
    copied = torch.zeros_like(z) if known is None or known.on_copy is None else known.on_copy.clone()
    down: list[Tensor | None] = [None] * top if known is None or not known.down else list(known.down)
    if known is None:
        for l in range(1, top):  # the first layer never copies
            copied[:, l] = _on_copy(weights[l], h[l])
    probabilities = torch.empty_like(z)
    changed: list[Tensor] = []
    below, z_below = x, ones  # h⁰ = x, z⁰ = 1

    for l, w in enumerate(weights):
        fed = z_below if options.copy else ones
        flush = state.z[:, l] if l < top and options.flush else torch.zeros_like(ones)
        gate = _gate(state, pending, options, l) if w.V is not None else None
        changed.append((flush + fed) > 0)
        moving = changed[l].tolist()
        rows = slice(None) if all(moving) else changed[l].nonzero()[:, 0]
        s_z = copied[:, l].clone() if l < top else None
        if s_z is not None and w.V is not None and gate is not None and not all(moving) and bool(gate.any()):
            s_z += gate * (state.h[l + 1] @ w.V[-1] if down[l] is None else down[l][:, -1])  # type: ignore[index]
        if any(moving):
            from_above = None
            if gate is not None and _matters(shared := _shared(gate[rows])):
                product = down[l]
                if product is None or not isinstance(rows, slice):
                    product = normalise(F.linear(state.h[l + 1][rows], w.V), w.gain_V)  # type: ignore[arg-type]
                    down[l] = product if isinstance(rows, slice) else down[l]
                from_above = _times(shared, product)
            h_new, c_new, s_moved = _move(
                w, h[l][rows], c[l][rows], _shared(flush[rows]), below[rows], _shared(fed[rows]), from_above,
                options.zoneout,
            )  # fmt: skip
            h[l], c[l] = _put(h[l], rows, h_new), _put(c[l], rows, c_new)
            if l > 0 and not options.of_the_paper:
                down[l - 1] = None
            if s_z is not None:
                s_z[rows] = s_moved
            if 0 < l < top:
                copied[rows, l] = _on_copy(w, h_new)
        if s_z is not None:
            probabilities[:, l] = z_new = hard_sigmoid(s_z, options.slope)
            if options.boundary != "soft":
                z_new = (z_new > 0.5).to(z.dtype)
            if options.on_copy == "hold":
                z_new = z_new * (flush + (1 - flush) * fed)
            if boundaries is not None:
                z_new = torch.where(boundaries[:, l].isnan(), z_new, boundaries[:, l])
            if pending is not None:
                pending[:, l] = next_gate(pending[:, l], z_new, fed)
            z[:, l] = z_new
            below, z_below = h[l], z_new
    if options.of_the_paper:
        down = []  # FLUSH reads V·h right after h above changed: nothing to reuse
    new = streamed(State(tuple(h), tuple(c), z, pending), copied, down, weights)
    return Step(new, torch.stack(changed, dim=1), probabilities)


def _reference_step(
    x: Tensor, weights: Sequence[LayerWeights], state: State, options: Options, boundaries: Tensor | None
) -> Step:
    """One step of the reference engine."""
    forced = None if boundaries is None else boundaries[None]
    result = reference.hmlstm(x[None], weights, state, options, boundaries=forced)
    fed = F.pad(result.state.z, (1, 0), value=1.0)  # (B, L)
    moved = fed + F.pad(state.z, (0, 1)) if options.flush else fed
    return Step(result.state, (moved > 0) | (not options.copy), result.probabilities[0])


def _gate(state: State, pending: Tensor | None, options: Options, l: int) -> Tensor:
    """(B,): the gate of layer l's top-down input at this step."""
    if options.gate == "always":
        return torch.ones_like(state.z[:, l])
    return (state.z if pending is None else pending)[:, l]


def _shared(z: Tensor) -> Tensor | float:
    """One number if all rows have the same value; otherwise the values as (n, 1)."""
    values = z.tolist()
    return float(values[0]) if len(set(values)) == 1 else z[:, None]


def _put(current: Tensor, rows: slice | Tensor, new: Tensor) -> Tensor:
    """A copy of ``current`` with some rows replaced by ``new``."""
    return new if isinstance(rows, slice) else current.index_copy(0, rows, new)


def _on_copy(w: LayerWeights, h: Tensor) -> Tensor:
    """(B,): U·h + b in the detector's row, which is all of equation 4 on COPY."""
    return F.linear(h, w.U[-1:], w.b[-1:])[:, 0].to(w.b.dtype)


def _move(
    w: LayerWeights,
    h: Tensor,  # (n, H)
    c: Tensor,  # (n, H)
    flush: Tensor | float,  # (n, 1), or one number for all rows
    below: Tensor,  # (n, size)
    z_below: Tensor | float,  # (n, 1), or one number for all rows
    from_above: Tensor | None,  # (n, R) V·h times its gate
    zoneout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """UPDATE or FLUSH of n rows: their new h and c, and the detector's pre-activation (n,)."""
    s = F.linear(h, w.U, w.b).to(w.b.dtype) if w.gain_U is None else normalise(F.linear(h, w.U), w.gain_U) + w.b
    if _matters(z_below):
        s = s + _times(z_below, normalise(F.linear(below, w.W), w.gain_W))
    if from_above is not None:
        s = s + from_above
    H, keep = w.hidden_size, 1 - flush
    f, i, o = torch.sigmoid(s[:, : 3 * H]).split(H, dim=1)
    alpha, beta, gamma = flush + keep * z_below, keep * z_below, keep * (1 - z_below)
    c_new = _times(alpha, i * torch.tanh(s[:, 3 * H : 4 * H]))
    if _matters(beta):
        c_new = c_new + _times(beta, f * c)
    if _matters(gamma):
        c_new = c_new + _times(gamma, c)
    if zoneout > 0:
        c_new = zoneout * c + (1 - zoneout) * c_new
    h_new = _times(alpha, o * squash_cell(c_new, w))
    if _matters(gamma):
        h_new = h_new + _times(gamma, h)
    return h_new, c_new, s[:, -1]


def _matters(z: Tensor | float) -> bool:
    return isinstance(z, Tensor) or z != 0


def _times(z: Tensor | float, a: Tensor) -> Tensor:
    """z·a; ``a`` itself if z is the number 1."""
    return z * a if isinstance(z, Tensor) or z != 1 else a
