"""One time step without gradients: rows of a layer that copy do no work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.estimators import hard_sigmoid
from hmrnn.ops.interface import LayerWeights, Options, State
from hmrnn.ops.reference import next_gate, normalise, squash_cell
from hmrnn.ops.single import step as single_step


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
    given = single_step.given_to_step(x, weights, state, options, boundaries)
    if given is not None:  # faster, and equal up to rounding
        return Step(*single_step.step(x, weights, state, options, given))
    top, ones = len(weights) - 1, state.z.new_ones(len(x))
    h, c, z = list(state.h), list(state.c), state.z.clone()
    pending = None
    if options.gate == "pending":
        pending = (state.z if state.pending is None else state.pending).clone()
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
        s_z = _on_copy(w, state.h[l]) if l < top else None  # (B, K) the detector's rows of equation 4
        if s_z is not None and gate is not None and not all(moving) and bool(gate.any()):
            s_z += gate[:, None] * F.linear(state.h[l + 1], w.detector_rows("V"))
        if any(moving):
            from_above = None
            if gate is not None and _matters(shared := _shared(gate[rows])):
                from_above = _times(shared, _product(w, "V", state.h[l + 1][rows]))
            h_new, c_new, s_moved = _move(
                w, h[l][rows], c[l][rows], _shared(flush[rows]), below[rows], _shared(fed[rows]), from_above,
                options.zoneout,
            )  # fmt: skip
            h[l], c[l] = _put(h[l], rows, h_new), _put(c[l], rows, c_new)
            if s_z is not None:
                s_z = _put(s_z, rows, s_moved)
        if s_z is not None:
            probabilities[:, l] = z_new = hard_sigmoid(w.detect(s_z).to(z.dtype), options.slope)
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
    return Step(State(tuple(h), tuple(c), z, pending), torch.stack(changed, dim=1), probabilities)


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
    """(B, K): U·h + b in the detector's rows, which is all of equation 4 on COPY."""
    return F.linear(h, w.detector_rows("U"), w.b[-1:] if w.d1 is None else w.d1).to(w.b.dtype)


def _product(w: LayerWeights, name: str, h: Tensor) -> Tensor:
    """(n, R): U, W or V times h, normalised, and the rows of the detector's hidden layer if it has one."""
    s = normalise(F.linear(h, getattr(w, name)), getattr(w, f"gain_{name}"))
    return s if w.D1 is None else torch.cat([s, F.linear(h, w.detector_rows(name)).to(s.dtype)], dim=1)


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
    """UPDATE or FLUSH of n rows: their new h and c, and the detector's rows of equation 4 (n, K)."""
    s = _product(w, "U", h) + (w.b if w.d1 is None else torch.cat([w.b, w.d1]))
    if _matters(z_below):
        s = s + _times(z_below, _product(w, "W", below))
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
    return h_new, c_new, s[:, 4 * H :]


def _matters(z: Tensor | float) -> bool:
    return isinstance(z, Tensor) or z != 0


def _times(z: Tensor | float, a: Tensor) -> Tensor:
    """z·a; ``a`` itself if z is the number 1."""
    return z * a if isinstance(z, Tensor) or z != 1 else a
