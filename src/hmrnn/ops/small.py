"""The recurrence of small layers on a CPU: every row is computed at every step, in as few and short calls as possible.

Small layers in small batches are multiplied in less time than it takes to find the rows that move. So each layer makes
one product per step, of [W U V] with the gated h below, its own h and the gated h above (with layer norm one for
each matrix), and COPY is a linear interpolation with weight 0. Products are torch's, whose library is the faster one;
nearly all else is NumPy's, whose calls take half as long. The backward pass is written by hand; what does not depend
on later steps is computed for several steps at once. Outputs and gradients are those of the reference for boundaries
of 0 and 1.
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
from hmrnn.ops.reference import LAYER_NORM_EPS, normalise
from hmrnn.ops.small_backward import backward
from hmrnn.ops.small_track import Call, Track, centred, rows

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
    if lengths is not None:
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
            return (None, *backward(ctx.call, weights, tracks, grads, ctx.needs_input_grad[1:]))


class _Layer:
    """One layer during the forward loop: its buffers, and views of them for every step."""

    def __init__(self, w: LayerWeights, first: Tensor | None, h: Tensor, c: Tensor, T: int) -> None:
        B, H, R = len(h), w.hidden_size, len(w.b)
        self.H, self.w = H, w
        parts = [*([] if first is not None else [w.W]), w.U, *([] if w.V is None else [w.V])]
        self.matrix = torch.cat(parts, dim=1)  # (R, K)
        self.track_x = h.new_empty(T, self.matrix.shape[1], B)
        views = [list(a.numpy()) for a in self.track_x.split([a.shape[1] for a in parts], dim=1)]
        self.x_below = None if first is not None else views.pop(0)
        self.x_own, *rest = views
        self.x_above = rest[0] if rest else None
        # the pre-activations, at first b, or W·x + b in the first layer
        self.track_s = h.new_empty(T, R, B).copy_(w.b[:, None] if first is None else first.transpose(1, 2))
        gates = self.track_s[:, : 4 * H].unflatten(1, (4, H)).numpy()
        self.gates = list(zip(gates, gates[:, :3], *(gates[:, k] for k in range(4))))
        self.s_gates, self.s_z = (list(a.numpy()) for a in (self.track_s[:, : 4 * H], self.track_s[:, 4 * H :]))
        self.track_hc = h.new_empty(T + 1, 2, H, B)
        self.track_hc[0, 0], self.track_hc[0, 1] = h.t(), c.t()
        self.h, self.c = (list(self.track_hc[:, k].numpy()) for k in range(2))
        self.x, self.s, self.hc_tensors = (a.unbind() for a in (self.track_x, self.track_s, self.track_hc))
        self.new, self.spare = h.new_empty(2, H, B), h.new_empty(H, B).numpy()
        self.new_h, self.new_c = self.new.numpy()
        self.norms: dict[str, Tensor] = {}
        if w.gain_U is None or w.gain_c is None or w.bias_c is None:  # sigmoid(s) = (tanh(s/2) + 1) / 2
            self.matrix[: 3 * H] /= 2
            self.track_s[:, : 3 * H] /= 2
            return
        self.gain_c, self.bias_c, self.mean_c = w.gain_c[:, None].numpy(), w.bias_c[:, None].numpy(), _mean(w.gain_c)
        self.matrix_z, self.mean, self.part = (
            self.matrix[4 * H :],
            _mean(w.b[: 4 * H]),
            np.empty((4 * H, B), self.spare.dtype),
        )
        self.contributions = {}
        for name, matrix in (("W", w.W if first is None else None), ("U", w.U), ("V", w.V)):
            if matrix is not None:
                self.norms[name] = h.new_empty(T, 4 * H + 1, B)
                products, arrays = self.norms[name][:, : 4 * H].unbind(), list(self.norms[name].numpy())
                gain = getattr(w, f"gain_{name}")[:, None].numpy()
                self.contributions[name] = (centred(w, name), gain, products, arrays)
        self.norms["c"] = h.new_empty(T, H + 1, B)
        self.norm_c = list(self.norms["c"].numpy())

    def step(
        self,
        t: int,
        below: np.ndarray | None,  # (size, B); None in the first layer
        fed: np.ndarray | None,  # (B,); None: all rows read the layer below
        unflushed: np.ndarray | None,  # (B,) 0 on FLUSH; None: no row flushes
        moves: Tensor | None,  # (B,) 0 on COPY; None: no row copies
        above: np.ndarray | None,
        gate: np.ndarray | None,
    ) -> None:
        """Equations 2-7."""
        np.copyto(self.x_own[t], self.h[t])
        if self.x_below is not None and below is not None:
            _write_gated(below, fed, self.x_below[t])
        if self.x_above is not None and above is not None:
            _write_gated(above, gate, self.x_above[t])
        gates, sigmoids, f, i, o, g = self.gates[t]
        if self.norms:
            self._normalised(t, below, fed, above, gate)
            np.multiply(sigmoids, 0.5, out=sigmoids)
        else:
            self.s[t].addmm_(self.matrix, self.x[t])
        np.tanh(gates, out=gates)
        np.multiply(sigmoids, 0.5, out=sigmoids)
        np.add(sigmoids, 0.5, out=sigmoids)
        h, c = (self.h[t + 1], self.c[t + 1]) if moves is None else (self.new_h, self.new_c)
        kept = np.multiply(f, self.c[t], out=self.spare)
        if unflushed is not None:
            np.multiply(kept, unflushed, out=kept)
        np.multiply(i, g, out=c)
        np.add(c, kept, out=c)
        np.tanh(self._normal_cell(t, c, moves) if self.norms else c, out=h)
        np.multiply(h, o, out=h)
        if moves is not None:
            torch.lerp(self.hc_tensors[t], self.new, moves, out=self.hc_tensors[t + 1])

    def _normalised(
        self,
        t: int,
        below: np.ndarray | None,
        fed: np.ndarray | None,
        above: np.ndarray | None,
        gate: np.ndarray | None,
    ) -> None:
        """Equation 4 with layer norm of each contribution."""
        sources = {"W": (below, fed), "U": (self.h[t], None), "V": (above, gate)}
        s, part = self.s_gates[t], self.part
        for name, (matrix, gain, products, arrays) in self.contributions.items():
            h, factor = sources[name]
            torch.mm(matrix, torch.from_numpy(h), out=products[t])
            normal = _normalise(arrays[t], self.mean)
            np.multiply(normal, gain, out=part)
            np.add(s, part if factor is None else np.multiply(part, factor, out=part), out=s)
        if self.w.has_detector:
            self.s[t][4 * self.H :].addmm_(self.matrix_z, self.x[t])

    def _normal_cell(self, t: int, c: np.ndarray, moves: Tensor | None) -> np.ndarray:
        """The cell after this step, layer-normalised."""
        if moves is not None:
            c = torch.lerp(self.hc_tensors[t][1], self.new[1], moves).numpy()
        np.subtract(c, self.mean_c @ c, out=self.norm_c[t][:-1])
        np.multiply(_normalise(self.norm_c[t], self.mean_c), self.gain_c, out=self.spare)
        return np.add(self.spare, self.bias_c, out=self.spare)


def _write_gated(h: np.ndarray, factor: np.ndarray | None, out: np.ndarray) -> None:
    """Write h (size, B) times a factor (B,), if there is one, to ``out``."""
    if factor is None:
        np.copyto(out, h)
    else:
        np.multiply(h, factor, out=out)


def _normalise(a: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Divide all rows of ``a`` but the last by their standard deviation, whose inverse is written to the last row.

    The mean of each column must be 0. Return the rows that were divided.
    """
    centred, inverse = a[:-1], a[-1]
    np.divide(1, np.sqrt(mean @ (centred * centred) + LAYER_NORM_EPS, out=inverse), out=inverse)
    return np.multiply(centred, inverse, out=centred)


def _mean(like: Tensor) -> np.ndarray:
    """The vector whose dot product with a column is the column's mean."""
    return np.full(len(like), 1 / len(like), like.numpy().dtype)


def forward(call: Call, first: Tensor, weights: Sequence[LayerWeights], state: State) -> list[Track]:
    """Equations 2-9 for all steps."""
    T, B = first.shape[:2]
    options, L, top = call.options, len(weights), len(weights) - 1
    given = zip(weights, state.h, state.c)
    layers = [_Layer(w, first if l == 0 else None, h, c, T) for l, (w, h, c) in enumerate(given)]
    all_z, all_gates = (first.new_ones(top, T + 1, B).numpy() for _ in range(2))
    all_z[:, 0] = state.z.t().numpy()
    if options.gate == "pending":
        all_gates[:, 0] = (state.z if state.pending is None else state.pending).t().numpy()
    elif options.gate != "always":
        all_gates = all_z
    fed, unflushed, moves = (first.new_ones(L, T, B).numpy() for _ in range(3))
    forced = threshold = here = active = None
    free = np.ones((T, B, top), dtype=bool)
    if call.active is not None:
        fed[:] = active = call.active.numpy()
    if call.forced is not None:
        forced, free = call.forced.to(first.dtype).numpy(), call.forced.isnan().numpy()
    decides: list[list[bool]] = np.any(free, axis=1).tolist()  # whether the detector decides for any sequence
    if call.noise is not None:
        threshold = (2 * call.noise).numpy()

    for t in range(T):
        here = None if active is None else active[t]
        for l, layer in enumerate(layers):
            copies, flushes = l > 0 and options.copy, l < top and options.flush
            if copies:  # where the layer below has ended a segment, and never in the padding
                np.multiply(fed[0, t], all_z[l - 1, t + 1], out=fed[l, t])
            if flushes:
                flush = all_z[l, t] * fed[0, t]
                np.subtract(1, flush, out=unflushed[l, t])
                np.maximum(fed[l, t], flush, out=moves[l, t])
            partial = copies or here is not None
            layer.step(
                t,
                None if l == 0 else layers[l - 1].h[t + 1],
                fed[l, t] if partial else None,
                unflushed[l, t] if flushes else None,
                torch.from_numpy((moves if flushes else fed)[l, t]) if partial else None,
                layers[l + 1].h[t] if l < top else None,
                all_gates[l, t] if l < top and options.gate != "always" else None,
            )
            if l == top:
                break
            # (8), (9): the boundary; (a·s_z + 1) / 2 > 1/2
            z = all_z[l, t + 1]
            if decides[t][l]:
                z[:] = call.slope * layer.s_z[t][0] + 1 > (1 if threshold is None else threshold[t, :, l])
                if options.on_copy == "hold" and copies:
                    z *= (moves if flushes else fed)[l, t]
            if forced is not None:
                np.copyto(z, forced[t, :, l], where=~free[t, :, l])
            if options.gate == "pending":
                gate = np.maximum(z, all_gates[l, t] * (1 - fed[l, t]), out=all_gates[l, t + 1])
                if here is not None:
                    np.copyto(gate, all_gates[l, t], where=here == 0)
            if here is not None:
                np.copyto(z, all_z[l, t], where=here == 0)

    tracks = []
    for l, layer in enumerate(layers):
        masks = [fed[l], 1 - unflushed[l], *((all_z[l], all_gates[l]) if l < top else (np.empty(0),) * 2)]
        norms = [layer.norms.get(name, first.new_empty(0)) for name in "WUVc"]
        tracks.append(
            Track(layer.track_hc, layer.track_s, layer.track_x, *(torch.from_numpy(a) for a in masks), *norms)
        )
    return tracks
