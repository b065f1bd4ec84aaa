"""Equations 2-9 a second time, and random problems to run them on.

Nothing here is taken from the package but the names of its parameters. All sequences of a batch go step by step, and in
each step layer by layer; the three operations stand side by side, weighed by how far the condition of each holds, so
that a gradient flows through every use of z.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hmrnn.ops import LayerWeights, Options, Result, State, Symbols
from hmrnn.ops.estimators import DRAWN

Array = NDArray[np.float64]
UPDATE, COPY, FLUSH = 0, 1, 2


def sigm(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def layer_norm(v: Array, gain: Array, bias: Array | float = 0.0) -> Array:
    return (v - v.mean()) / np.sqrt(((v - v.mean()) ** 2).mean() + 1e-5) * gain + bias


def straight(p: Tensor, value: Tensor) -> Tensor:
    return p + (value - p).detach()


def normed(v: Tensor, gain: Tensor | None, bias: Tensor | float = 0.0) -> Tensor:
    if gain is None:
        return v
    gates, rest = v[:, : len(gain)], v[:, len(gain) :]
    away = gates - gates.mean(1, keepdim=True)
    return torch.cat([gain * away / (away**2).mean(1, keepdim=True).add(1e-5).sqrt() + bias, rest], 1)


def polynomial(
    x: Tensor | Symbols,  # (T, B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,
    boundaries: Tensor | None = None,  # NaN leaves one free
    noise: Tensor | None = None,
    kept: Sequence[Tensor] | None = None,
    seen: Sequence[Tensor] | None = None,
    operations: list[Tensor] | None = None,  # where those of each step are written down
) -> Result:
    x = x.embedding[x.indices] if isinstance(x, Symbols) else x
    cell, h, c, z = options.variant, list(state.h), list(state.c), list(state.z.split(1, 1))
    gates = list((state.z if state.pending is None else state.pending).split(1, 1))
    one, found, top = torch.ones_like(state.c[0][:, :1]), [], len(weights) - 1
    for t, below in enumerate(x):
        live = one > 0 if lengths is None else t < lengths[:, None]
        before, zb, step, done = (h, c, z, gates), one, [], []
        old, (h, c, z, gates) = h, map(list, before)
        for l, w in enumerate(weights):
            zp, fed = z[l] if l < top else 0 * one, zb if cell.copy else one
            rows, visible = 4 * h[l].shape[1], below * (seen[l - 1] if seen and l > 0 else 1)
            up = torch.cat([visible @ w.W[:rows].T, below @ w.W[rows:].T], 1)
            s = normed(old[l] @ w.U.T, w.gain_U) + fed * normed(up, w.gain_W) + w.b  # (4)-(7)
            read = [old[l], fed * below]
            if w.V is not None:
                pending = zp if cell.flush else gates[l]
                gate = {"boundary": zp, "always": one, "pending": pending}[cell.top_down]
                s = s + gate * normed(old[l + 1] @ w.V.T, w.gain_V)
                read.insert(1, gate * old[l + 1])
            f, i, o, g = s[:, :rows].chunk(4, 1)
            erased, new = zp if cell.flush else 0 * one, i.sigmoid() * g.tanh()
            done.append(torch.where(erased > 0.5, FLUSH, torch.where(fed > 0.5, UPDATE, COPY)))
            share = torch.stack([(1 - erased) * (1 - fed), (1 - erased) * fed, erased])  # COPY, UPDATE, FLUSH
            moved = (share * torch.stack([c[l], f.sigmoid() * c[l] + new, new])).sum(0)  # (2)
            stays = kept[l][t].double() if kept else options.zoneout
            c[l] = stays * c[l] + (1 - stays) * moved
            squashed = o.sigmoid() * (c[l] if w.gain_c is None else normed(c[l], w.gain_c, w.bias_c)).tanh()
            h[l] = (share * torch.stack([h[l], squashed, squashed])).sum(0)  # (3)
            if l < top:
                said = s[:, -1:]
                if w.D1 is not None:
                    units = torch.cat(read, 1) @ w.D1.T + w.d1
                    said = (units * (1 + (units / 2**0.5).erf()) / 2) @ w.D2.T + w.d2
                p = ((options.slope * said + 1) / 2).clamp(0, 1)  # (8), (9)
                u = noise[t, :, l, None] if cell.boundary in DRAWN else one / 2
                free = p if cell.boundary == "soft" else straight(p, (p > u).double())
                if cell.boundary == "gumbel":  # the odds of z̃ over those of the noise, to the power 1/temperature
                    q = p.clamp(0.01, 0.99)
                    odds = (q * (1 - u) / (u * (1 - q))) ** (1 / options.temperature)
                    free = straight(odds / (1 + odds), free)
                elif cell.boundary == "reinforce":
                    free = free.detach()
                free = (1 - share[0]) * free if cell.on_copy == "hold" else free
                if boundaries is not None:
                    forced = boundaries[t, :, l, None]
                    taken = straight(free, forced.nan_to_num()) if options.straight_through else forced
                    free = torch.where(forced.isnan(), free, taken)
                zb = z[l] = free
                gates[l] = free + (1 - free) * share[0] * gates[l]
                step += [p, free]
            below = h[l]
        found.append([torch.where(live, a, 0) for a in (*h, *step)])
        h, c, z, gates = (
            [torch.where(live, *pair) for pair in zip(new, old)] for new, old in zip((h, c, z, gates), before)
        )
        if operations is not None:
            operations.append(torch.where(live, torch.cat(done, 1), COPY))
    whole = [torch.stack(parts) for parts in zip(*found)]
    none = state.z.new_zeros(*x.shape[:2], 0)
    said, decided = (torch.cat([none, *whole[top + 1 + k :: 2]], -1) for k in (0, 1))
    end = State(tuple(h), tuple(c), torch.cat([none[0], *z], 1), None if state.pending is None else torch.cat(gates, 1))
    return Result(tuple(whole[: top + 1]), decided, said, end)


def random_weights(
    input_size: int,
    sizes: Sequence[int],
    layer_norm: bool,
    detector: float = 1.0,
    dtype: torch.dtype = torch.float64,
    top_down: bool = True,
    detector_hidden: int = 0,
) -> list[LayerWeights]:
    """Weights of which no entry is special; ``detector`` scales the detectors' rows, gains lie around 1."""
    weights = []
    for l, size in enumerate(sizes):
        top = l == len(sizes) - 1
        rows = 4 * size + (not top and not detector_hidden)
        below, above = (input_size, *sizes)[l], None if top else sizes[l + 1]
        matrices = {"U": size, "W": below} | ({"V": above} if above is not None and top_down else {})
        w = {name: torch.randn(rows, n, dtype=dtype) / n**0.5 for name, n in matrices.items()}
        w["b"] = 0.3 * torch.randn(rows, dtype=dtype)
        if layer_norm:
            w |= {f"gain_{name}": 1 + 0.3 * torch.randn(4 * size, dtype=dtype) for name in matrices}
            w |= {"gain_c": 1 + 0.3 * torch.randn(size, dtype=dtype), "bias_c": 0.3 * torch.randn(size, dtype=dtype)}
        if not top and detector_hidden:
            read = sum(matrices.values())
            w["D1"] = 2 * torch.randn(detector_hidden, read, dtype=dtype) / read**0.5
            w["d1"] = 0.3 * torch.randn(detector_hidden, dtype=dtype)
            w["D2"] = 2 * detector * torch.randn(1, detector_hidden, dtype=dtype) / detector_hidden**0.5
            w["d2"] = 0.3 * detector * torch.randn(1, dtype=dtype)
        elif not top:
            for name in ("b", *matrices):
                w[name][-1] *= detector
        weights.append(LayerWeights(**w))
    return weights


def random_state(sizes: Sequence[int], batch: int, dtype: torch.dtype = torch.float64) -> State:
    """A state in mid-sequence: h and c non-zero, boundaries 0 and 1 by turns over the sequences and the layers."""
    h, c = (tuple(torch.randn(batch, size, dtype=dtype) for size in sizes) for _ in range(2))
    z = (torch.arange(batch)[:, None] + torch.arange(len(sizes) - 1)) % 2
    return State(h, c, z.to(dtype))
