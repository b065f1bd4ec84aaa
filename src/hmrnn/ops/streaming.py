"""One time step without a gradient, row by row: a layer that copies does no work at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.boundary import decide, hard_sigmoid
from hmrnn.ops.interface import LayerWeights, Options, State
from hmrnn.ops.reference import normalise, squash_cell


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
    noise: Tensor | None = None,  # (B, L-1)
    boundaries: Tensor | None = None,  # (B, L-1), NaN where free
) -> Step:
    """Equations 2-9 for one time step. With "soft" boundaries every row changes, as those equations have it."""
    top = len(weights) - 1
    h, c, z = list(state.h), list(state.c), state.z.clone()
    copied = state.copied
    if copied is None:
        copied = torch.stack([_on_copy(w, h_l) for w, h_l in zip(weights[:top], h)], dim=1) if top else z
    copied = copied.clone()
    probabilities = hard_sigmoid(copied, options.slope)  # what COPY would say; rows that change are overwritten below
    changed: list[Tensor] = []
    below, z_below = x, torch.ones_like(c[0][:, 0])

    for l, w in enumerate(weights):
        z_here = state.z[:, l] if l < top else torch.zeros_like(z_below)
        changed.append((z_here > 0) | (z_below > 0))
        count = int(changed[l].sum())
        if count > 0:
            rows = slice(None) if count == len(x) else changed[l].nonzero()[:, 0]
            above = state.h[l + 1][rows] if l < top else None
            h_new, c_new, s_z = _move(
                w, h[l][rows], c[l][rows], z_here[rows, None], below[rows], z_below[rows, None], above
            )
            h[l], c[l] = _put(h[l], rows, h_new), _put(c[l], rows, c_new)
            if l < top:
                probabilities[rows, l] = hard_sigmoid(s_z, options.slope)
                copied[rows, l] = _on_copy(w, h_new)
        if l < top:
            z_new = decide(probabilities[:, l], options.boundary, None if noise is None else noise[:, l])
            if options.on_copy == "hold":
                z_new = z_new * (z_here + (1 - z_here) * z_below)
            if boundaries is not None:
                z_new = torch.where(boundaries[:, l].isnan(), z_new, boundaries[:, l])
            z[:, l] = z_new
            below, z_below = h[l], z[:, l]
    return Step(State(tuple(h), tuple(c), z, copied), torch.stack(changed, dim=1), probabilities)


def _put(current: Tensor, rows: slice | Tensor, new: Tensor) -> Tensor:
    """``current`` with some rows replaced; the tensor itself is left alone."""
    return new if isinstance(rows, slice) else current.index_copy(0, rows, new)


def _on_copy(w: LayerWeights, h: Tensor) -> Tensor:
    """(B,): what COPY leaves of the detector's row of equation 4, the recurrent contribution and the bias."""
    return (F.linear(h, w.U[-1:]) + w.b[-1:])[:, 0]


def _move(
    w: LayerWeights, h: Tensor, c: Tensor, z: Tensor, below: Tensor, z_below: Tensor, above: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """UPDATE or FLUSH of the rows that change: their h, c and the detector's pre-activation."""
    s = normalise(F.linear(h, w.U), w.gain_U) + w.b
    if bool((z_below > 0).any()):
        s = s + z_below * normalise(F.linear(below, w.W), w.gain_W)
    if w.V is not None and above is not None and bool((z > 0).any()):
        s = s + z * normalise(F.linear(above, w.V), w.gain_V)
    f, i, o, g = (s[:, k * w.hidden_size : (k + 1) * w.hidden_size] for k in range(4))
    keep = 1 - z
    alpha, beta, gamma = z + keep * z_below, keep * z_below, keep * (1 - z_below)
    c_new = alpha * torch.sigmoid(i) * torch.tanh(g) + (beta * torch.sigmoid(f) + gamma) * c
    h_new = alpha * torch.sigmoid(o) * squash_cell(c_new, w) + gamma * h
    return h_new, c_new, s[:, -1]
