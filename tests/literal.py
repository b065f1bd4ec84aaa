"""Equations 2-9 a second time: NumPy float64, loops over t, sequence and layer, an ``if`` per operation, no polynomial.

Nothing here is taken from the package but the names of its parameters. Below it: random problems to run it on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hmrnn.ops import LayerWeights, State

Array = NDArray[np.float64]
UPDATE, COPY, FLUSH = 0, 1, 2


@dataclasses.dataclass
class Literal:
    hidden: list[Array]  # L of (T, B, H_l)
    boundaries: Array  # (T, B, L-1)
    probabilities: Array  # (T, B, L-1)
    operations: Array  # (T, B, L)
    h: list[Array]  # L of (B, H_l)
    c: list[Array]
    z: Array  # (B, L-1)
    pending: Array | None = None  # (B, L-1)


def sigm(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def hard_sigm(v: float, a: float) -> float:
    return max(0.0, min(1.0, (a * v + 1) / 2))


def layer_norm(v: Array, gain: Array, bias: Array | float = 0.0) -> Array:
    return (v - v.mean()) / np.sqrt(((v - v.mean()) ** 2).mean() + 1e-5) * gain + bias


def contribution(matrix: Array, vector: Array, gain: Array | None) -> Array:
    s = matrix @ vector
    if gain is not None:
        s[: len(gain)] = layer_norm(s[: len(gain)], gain)
    return s


def forward(
    x: Array,  # (T, B, size)
    layers: Sequence[dict[str, Array]],
    h: Sequence[Array],
    c: Sequence[Array],
    z: Array,
    *,
    a: float = 1.0,
    boundary: str = "step",
    on_copy: str = "evaluate",
    flush: bool = True,
    top_down: str = "boundary",
    copy: bool = True,
    pending: Array | None = None,
    lengths: Sequence[int] | None = None,
    forced: Array | None = None,
    noise: Array | None = None,
) -> Literal:
    """A whole sequence; NaN in ``forced`` leaves a boundary free."""
    T, B, L = x.shape[0], x.shape[1], len(layers)
    sizes = [w["U"].shape[1] for w in layers]
    out = Literal(
        hidden=[np.zeros((T, B, size)) for size in sizes],
        boundaries=np.zeros((T, B, L - 1)),
        probabilities=np.zeros((T, B, L - 1)),
        operations=np.full((T, B, L), COPY),
        h=[a.copy() for a in h],
        c=[a.copy() for a in c],
        z=z.copy(),
        pending=(z if pending is None else pending).copy(),
    )
    for t in range(T):
        for n in range(B):
            if lengths is not None and t >= lengths[n]:
                continue
            before_h, before_c, before_z = [a[n].copy() for a in out.h], [a[n].copy() for a in out.c], out.z[n].copy()
            before_pending = out.pending[n].copy()
            below, z_below = x[t, n], 1.0
            for l, w in enumerate(layers):
                top, H = l == L - 1, sizes[l]
                z_before = 0.0 if top else before_z[l]
                if not copy:
                    z_below = 1.0
                gate = z_before  # of the top-down input
                if top or top_down == "none":
                    gate = 0.0
                elif top_down == "always":
                    gate = 1.0
                elif top_down == "pending" and not flush:  # with FLUSH a layer moves right after its boundary
                    gate = before_pending[l]

                # (4)-(7)
                s = contribution(w["U"], before_h[l], w.get("gain_U")) + w["b"]
                if gate != 0:
                    s = s + gate * contribution(w["V"], before_h[l + 1], w.get("gain_V"))
                if z_below != 0:
                    s = s + z_below * contribution(w["W"], below, w.get("gain_W"))
                f, i, o, g = sigm(s[:H]), sigm(s[H : 2 * H]), sigm(s[2 * H : 3 * H]), np.tanh(s[3 * H : 4 * H])

                # (2)
                if not flush:
                    z_before = 0.0
                if boundary == "soft":  # each operation to the degree that its condition holds
                    flushed, update, copied = z_before, (1 - z_before) * z_below, (1 - z_before) * (1 - z_below)
                    c_new = flushed * (i * g) + update * (f * before_c[l] + i * g) + copied * before_c[l]
                    operation = FLUSH if z_before > 0.5 else UPDATE if z_below > 0.5 else COPY
                elif z_before == 0 and z_below == 1:
                    operation, copied = UPDATE, 0.0
                    c_new = f * before_c[l] + i * g
                elif z_before == 0 and z_below == 0:
                    operation, copied = COPY, 1.0
                    c_new = before_c[l]
                else:
                    operation, copied = FLUSH, 0.0
                    c_new = i * g

                # (3)
                cell = layer_norm(c_new, w["gain_c"], w["bias_c"]) if "gain_c" in w else c_new
                if boundary == "soft":
                    h_new = (1 - copied) * o * np.tanh(cell) + copied * before_h[l]
                elif operation == COPY:
                    h_new = before_h[l]
                else:
                    h_new = o * np.tanh(cell)

                out.h[l][n], out.c[l][n], out.hidden[l][t, n] = h_new, c_new, h_new
                out.operations[t, n, l] = operation
                read, below = below, h_new
                if top:
                    continue

                # (8), (9)
                s_z = s[4 * H] if "D1" not in w else None
                if s_z is None:  # a detector with a hidden layer reads the same, gated as for the rows of U, V and W
                    parts = [before_h[l], *([gate * before_h[l + 1]] if "V" in w else []), z_below * read]
                    units = w["D1"] @ np.concatenate(parts) + w["d1"]
                    erf = np.array([math.erf(v / math.sqrt(2)) for v in units])
                    s_z = (w["D2"] @ (0.5 * units * (1 + erf)) + w["d2"])[0]
                p = hard_sigm(s_z, a)
                if boundary == "soft":
                    z_new = p
                elif boundary in ("sample", "gumbel", "reinforce") and noise is not None:
                    z_new = 1.0 if noise[t, n, l] < p else 0.0
                else:
                    z_new = 1.0 if p > 0.5 else 0.0
                if on_copy == "hold":
                    z_new = (1 - copied) * z_new
                if forced is not None and not np.isnan(forced[t, n, l]):
                    z_new = forced[t, n, l]
                out.probabilities[t, n, l], out.boundaries[t, n, l], out.z[n, l] = p, z_new, z_new
                # a boundary opens the pending gate; otherwise a layer that moves closes it
                out.pending[n, l] = z_new + (1 - z_new) * copied * before_pending[l]
                z_below = z_new
    return out


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


def run(x: Tensor, weights: Sequence[LayerWeights], state: State, **options: object) -> Literal:
    """:func:`forward` on torch tensors."""
    arrays = {k: v.detach().numpy() if isinstance(v, Tensor) else v for k, v in options.items()}
    layers = [{k: v.detach().numpy() for k, v in w._asdict().items() if v is not None} for w in weights]
    h, c = ([a.detach().numpy() for a in part] for part in (state.h, state.c))
    if state.pending is not None:
        arrays["pending"] = state.pending.detach().numpy()
    return forward(x.detach().numpy(), layers, h, c, state.z.detach().numpy(), **arrays)
