"""One time step without a gradient, row by row: a layer that copies does no work at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops import reference, single
from hmrnn.ops.estimators import hard_sigmoid
from hmrnn.ops.interface import LayerWeights, Options, State
from hmrnn.ops.reference import normalise, squash_cell
from hmrnn.ops.streamed import known_on_copy, streamed


class Step(NamedTuple):
    """The state after one step, and which rows of which layers changed to get there."""

    state: State
    changed: Tensor  # (B, L) bool: True where the layer did UPDATE or FLUSH
    probabilities: Tensor  # (B, L-1)


@torch.no_grad()
def step(
    x: Tensor,  # (B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None = None,  # (B, L-1), NaN where free
) -> Step:
    """Equations 2-9 for one time step. With "soft" boundaries every row changes, as those equations have it.

    Nothing is drawn: of "sample" the likelier state is taken.
    """
    if not options.of_the_paper:
        return _reference_step(x, weights, state, options, boundaries)
    if single.can_step(x, weights, state, options, boundaries):  # the same up to rounding, sooner
        return Step(*single.step(x, weights, state, options, boundaries))
    top = len(weights) - 1
    h, c, z = list(state.h), list(state.c), state.z.clone()
    known = known_on_copy(state, weights)
    copied = torch.zeros_like(z) if known is None else known.clone()
    if known is None:
        for l in range(1, top):  # the first layer never copies
            copied[:, l] = _on_copy(weights[l], h[l])
    probabilities = hard_sigmoid(copied, options.slope)  # what COPY would say; rows that change are overwritten below
    changed: list[Tensor] = []
    below, z_below = x, z.new_ones(len(x))  # h⁰ = x, z⁰ = 1

    for l, w in enumerate(weights):
        z_here = state.z[:, l] if l < top else z.new_zeros(len(x))
        changed.append((z_here + z_below) > 0)
        moving = changed[l].tolist()
        if any(moving):
            rows = slice(None) if all(moving) else changed[l].nonzero()[:, 0]
            h_new, c_new, s_z = _move(
                w, h[l][rows], c[l][rows], _shared(z_here[rows]), below[rows], _shared(z_below[rows]),
                above=state.h[l + 1][rows] if l < top else None,
                zoneout=options.zoneout,
            )  # fmt: skip
            h[l], c[l] = _put(h[l], rows, h_new), _put(c[l], rows, c_new)
            if l < top:
                probabilities[rows, l] = hard_sigmoid(s_z, options.slope)
            if 0 < l < top:
                copied[rows, l] = _on_copy(w, h_new)
        if l < top:
            z_new = probabilities[:, l]
            if options.boundary != "soft":
                z_new = (z_new > 0.5).to(z.dtype)
            if options.on_copy == "hold":
                z_new = z_new * (z_here + (1 - z_here) * z_below)
            if boundaries is not None:
                z_new = torch.where(boundaries[:, l].isnan(), z_new, boundaries[:, l])
            z[:, l] = z_new
            below, z_below = h[l], z_new
    new = streamed(State(tuple(h), tuple(c), z), copied, weights)
    return Step(new, torch.stack(changed, dim=1), probabilities)


def _reference_step(
    x: Tensor, weights: Sequence[LayerWeights], state: State, options: Options, boundaries: Tensor | None
) -> Step:
    forced = None if boundaries is None else boundaries[None]
    result = reference.hmlstm(x[None], weights, state, options, boundaries=forced)
    moved = torch.nn.functional.pad(result.state.z, (1, 0), value=1.0)  # (B, L)
    if options.flush:
        moved = moved + torch.nn.functional.pad(state.z, (0, 1))
    changed = (moved > 0) | (not options.copy)
    return Step(result.state, changed, result.probabilities[0])


def _shared(z: Tensor) -> Tensor | float:
    """The value that all rows have, if it is the same; (n, 1) otherwise."""
    values = z.tolist()
    return float(values[0]) if len(set(values)) == 1 else z[:, None]


def _put(current: Tensor, rows: slice | Tensor, new: Tensor) -> Tensor:
    """``current`` with some rows replaced; the tensor itself is left alone."""
    return new if isinstance(rows, slice) else current.index_copy(0, rows, new)


def _on_copy(w: LayerWeights, h: Tensor) -> Tensor:
    """(B,): what COPY leaves of the detector's row of equation 4, the recurrent contribution and the bias."""
    return F.linear(h, w.U[-1:], w.b[-1:])[:, 0].to(w.b.dtype)


def _move(
    w: LayerWeights,
    h: Tensor,  # (n, H)
    c: Tensor,  # (n, H)
    z: Tensor | float,  # (n, 1), or that of all rows
    below: Tensor,  # (n, size)
    z_below: Tensor | float,  # (n, 1), or that of all rows
    above: Tensor | None,  # (n, H above)
    zoneout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """UPDATE or FLUSH of the rows that change: their h, c and the detector's pre-activation."""
    s = F.linear(h, w.U, w.b).to(w.b.dtype) if w.gain_U is None else normalise(F.linear(h, w.U), w.gain_U) + w.b
    if _matters(z_below):
        s = s + _times(z_below, normalise(F.linear(below, w.W), w.gain_W))
    if w.V is not None and above is not None and _matters(z):
        s = s + _times(z, normalise(F.linear(above, w.V), w.gain_V))
    H, keep = w.hidden_size, 1 - z
    f, i, o = torch.sigmoid(s[:, : 3 * H]).split(H, dim=1)
    alpha, beta, gamma = z + keep * z_below, keep * z_below, keep * (1 - z_below)
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
    """z·a, at no cost where z is 1."""
    return z * a if isinstance(z, Tensor) or z != 1 else a
