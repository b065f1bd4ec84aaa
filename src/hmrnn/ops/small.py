"""The recurrence of small layers on a CPU: every row is computed at every step, in as few torch calls as possible.

Small layers in small batches are multiplied in less time than it takes to find the rows that move. So each layer makes
one product per step, of [W U V] with the gated h below, its own h and the gated h above (with layer norm one for
each matrix), and COPY is a linear interpolation with weight 0. The backward pass is written by hand; what does not
depend on later steps is computed for many steps at once. Outputs and gradients are those of the reference for
boundaries of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from hmrnn.ops.small_track import Call, Track

SMALL, SMALL_NORMALISED = 128, 64
"""Units up to which a layer counts as small, without and with layer norm."""

AT_ONCE, AT_ONCE_NORMALISED = 4096, 2048
"""Sequences times units up to which dense products are faster than the sparse engine, without and with layer norm."""


def why_not(weights: Sequence[LayerWeights], options: Options, kept: object = None, seen: object = None) -> str | None:
    """Why :func:`hmlstm` cannot take these arguments; None if it can."""
    if weights[0].D1 is not None:
        return "it has no detectors with a hidden layer"
    if options.zoneout > 0 or kept is not None or seen is not None:
        return "it has neither zoneout nor dropout"
    if options.boundary not in ("step", "sample"):
        return 'it takes boundary="step" and "sample" only'
    return "it has no autocast" if autocast_dtype(weights[0].b.device) is not None else None


def suits(weights: Sequence[LayerWeights], batch: int) -> bool:
    """Whether the layers are small, and the batch, too; one sequence that is only read has faster code."""
    learn = torch.is_grad_enabled() and any(a is not None and a.requires_grad for w in weights for a in w)
    units, plain = max(w.hidden_size for w in weights), weights[0].gain_U is None
    limit, at_once = (SMALL, AT_ONCE) if plain else (SMALL_NORMALISED, AT_ONCE_NORMALISED)
    return (learn or batch > 1) and units <= limit and batch * units <= at_once


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
    mask = None if active is None else active.to(first.b.dtype)
    slope = options.slope.item() if isinstance(options.slope, Tensor) else options.slope
    # cloned for the backward pass: the caller may reuse these buffers before it runs
    drawn = noise.clone() if noise is not None and options.boundary in DRAWN else None
    call = Call(options, slope, drawn, mask, None if forced is None else forced.clone())
    L = len(weights)
    flat = [a for w in weights for a in w]
    outputs = _Small.apply(call, read, boundaries, options.slope, state.z, pending, *state.h, *state.c, *flat)
    hidden, (z, probabilities, last, gates), ends = outputs[:L], outputs[L : L + 4], outputs[L + 4 :]
    if active is not None:
        hidden = tuple(h * mask for h in hidden)
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
        tracks = forward(call, first, weights, State(h, c, z, pending))
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*flat, *(a for track in tracks for a in track))
        lower = tracks[:-1]
        T, B = first.shape[:2]
        empty = z.new_empty(T, B, 0)
        all_z = torch.cat([empty, *(track.z[1:] for track in lower)], dim=2)
        s_z = torch.cat([empty, *(track.s[..., -1:] for track in lower)], dim=2)
        probabilities = hard_sigmoid(s_z, call.slope)
        if call.active is not None:
            all_z, probabilities = all_z * call.active, probabilities * call.active
        ends = [torch.cat([z[:, :0], *(a[-1] for a in of)], 1) for of in zip(*((t.z, t.gate) for t in lower))]
        last, gates = ends or (z.clone(), z.clone())
        return (
            *(track.h[1:].clone() for track in tracks), all_z, probabilities, last, gates,
            *(track.h[-1].clone() for track in tracks), *(track.c[-1].clone() for track in tracks),
        )  # fmt: skip

    @staticmethod
    @first_only('engine "auto" gives first derivatives only; for create_graph=True use engine="reference"')
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        L, fields = (len(grads) - 4) // 3, len(LayerWeights._fields)
        saved = ctx.saved_tensors
        weights = [LayerWeights(*of_layer) for of_layer in zip(*[iter(saved[: fields * L])] * fields)]
        tracks = [Track(*of_layer) for of_layer in zip(*[iter(saved[fields * L :])] * len(Track._fields))]
        return (None, *backward(ctx.call, weights, tracks, grads, ctx.needs_input_grad[1:]))


class _Layer:
    """One layer during the forward loop: views of its buffers for every step."""

    def __init__(self, w: LayerWeights, lowest: bool, h: Tensor, c: Tensor, T: int) -> None:
        B, H, R = len(h), w.hidden_size, len(w.b)
        self.H, self.w = H, w
        parts = [*([] if lowest else [w.W]), w.U, *([] if w.V is None else [w.V])]
        self.matrix = torch.cat(parts, dim=1).t().contiguous()  # (K, R)
        self.x = h.new_empty(B, len(self.matrix))
        views = list(self.x.split([a.shape[1] for a in parts], dim=1))
        self.x_below = None if lowest else views.pop(0)
        self.x_own, *rest = views
        self.x_above = rest[0] if rest else None
        self.s = h.new_empty(B, R)
        self.sigmoids, self.g, self.s_z = self.s[:, : 3 * H], self.s[:, 3 * H : 4 * H], self.s[:, 4 * H :]
        self.f, self.i, self.o = self.sigmoids.split(H, dim=1)
        self.new, self.spare = h.new_empty(B, H), h.new_empty(B, H)
        self.track_h, self.track_c = h.new_empty(T + 1, B, H), h.new_empty(T + 1, B, H)
        self.track_h[0], self.track_c[0] = h, c
        self.track_s = h.new_empty(T, B, R)
        self.raw: dict[str, Tensor] = {}  # (T, B, 4H): with layer norm, the products before it
        if w.gain_U is not None:
            of = {"U": w.U, "W": None if lowest else w.W, "V": w.V}
            self.raw = {name: h.new_empty(T, B, 4 * H) for name, matrix in of.items() if matrix is not None}
            self.matrices = {name: of[name][: 4 * H].t().contiguous() for name in self.raw}  # type: ignore[index]
            self.raw_steps = {name: a.unbind() for name, a in self.raw.items()}
            self.gates, self.matrix_z = self.s[:, : 4 * H], self.matrix[:, 4 * H :]
        self.h, self.c, self.all_s = self.track_h.unbind(), self.track_c.unbind(), self.track_s.unbind()

    def step(
        self,
        t: int,
        first: Tensor | None,  # (B, R) W·x + b in the first layer
        below: Tensor | None,  # (B, size) in the others
        fed: Tensor | None,  # (B, 1); None: all rows read the layer below
        unflushed: Tensor | None,  # (B, 1) 0 on FLUSH; None: no row flushes
        moves: Tensor | None,  # (B, 1) 0 on COPY; None: no row copies
        above: Tensor | None,
        gate: Tensor | None,
    ) -> None:
        """Equations 2-7."""
        h, c, new = self.h[t], self.c[t], self.new
        self.x_own.copy_(h)
        if self.x_below is not None and below is not None:
            self.x_below.copy_(below) if fed is None else torch.mul(below, fed, out=self.x_below)
        if self.x_above is not None and above is not None:
            self.x_above.copy_(above) if gate is None else torch.mul(above, gate, out=self.x_above)
        if self.raw:
            self._normalised(t, self.w.b if first is None else first, below, fed, above, gate)
        else:
            torch.addmm(self.w.b if first is None else first, self.x, self.matrix, out=self.s)
        self.sigmoids.sigmoid_()
        self.g.tanh_()
        kept = c if unflushed is None else torch.mul(c, unflushed, out=self.spare)
        if moves is None:
            torch.addcmul(torch.mul(self.i, self.g, out=new), self.f, kept, out=self.c[t + 1])
            torch.mul(self.o, self._squash(t, new), out=self.h[t + 1])
        else:
            torch.mul(self.i, self.g, out=new).addcmul_(self.f, kept)
            torch.lerp(c, new, moves, out=self.c[t + 1])
            self._squash(t, new).mul_(self.o)
            torch.lerp(h, new, moves, out=self.h[t + 1])
        self.all_s[t].copy_(self.s)

    def _normalised(
        self, t: int, b: Tensor, below: Tensor | None, fed: Tensor | None, above: Tensor | None, gate: Tensor | None
    ) -> None:
        """Equation 4 with layer norm of each contribution."""
        H = self.H
        self.s.copy_(b)
        for name, h, factor in (("U", self.h[t], None), ("W", below, fed), ("V", above, gate)):
            if name in self.raw and h is not None:
                raw = torch.mm(h, self.matrices[name], out=self.raw_steps[name][t])
                normal = F.layer_norm(raw, (4 * H,), getattr(self.w, f"gain_{name}"), eps=LAYER_NORM_EPS)
                self.gates.add_(normal) if factor is None else self.gates.addcmul_(normal, factor)
        if self.w.has_detector:
            self.s_z.addmm_(self.x, self.matrix_z)

    def _squash(self, t: int, out: Tensor) -> Tensor:
        """tanh of the new cell, layer-normalised first where the layer has a gain for it."""
        c = self.c[t + 1]
        if self.w.gain_c is not None:
            c = F.layer_norm(c, (self.H,), self.w.gain_c, self.w.bias_c, eps=LAYER_NORM_EPS)
        return torch.tanh(c, out=out)


def forward(call: Call, first: Tensor, weights: Sequence[LayerWeights], state: State) -> list[Track]:
    """Equations 2-9 for all steps."""
    T, B = first.shape[:2]
    options, top, dtype = call.options, len(weights) - 1, first.dtype
    layers = [_Layer(w, l == 0, h, c, T) for l, (w, h, c) in enumerate(zip(weights, state.h, state.c))]
    start = state.pending if options.gate == "pending" and state.pending is not None else state.z
    z, gates = (first.new_ones(top, T + 1, B, 1) for _ in range(2))
    z[:, 0], gates[:, 0] = state.z.t()[..., None], start.t()[..., None]
    gates = gates if options.gate == "pending" else torch.ones_like(z) if options.gate == "always" else z
    forced = free = None
    if call.forced is not None:
        free = call.forced.isnan().permute(2, 0, 1)[..., None]
        forced = call.forced.to(dtype).permute(2, 0, 1)[..., None]
        all_forced = not bool(free.any())
        z[:, 1:] = forced
    threshold = None if call.noise is None else 2 * call.noise.permute(2, 0, 1)[..., None]
    active = None if call.active is None else call.active.unbind()
    everyone = first.new_ones(T, B, 1) if call.active is None else call.active
    fed_track = [everyone if l == 0 or not options.copy else torch.empty_like(everyone) for l in range(len(weights))]
    fed_steps = [a.unbind() for a in fed_track]
    views = [[a[l].unbind() for l in range(top)] for a in (z, gates)]
    one = first.new_ones(())

    for t, read in enumerate(first.unbind()):
        here = None if active is None else active[t]
        fed: Tensor | None = here
        for l, layer in enumerate(layers):
            if l > 0 and not options.copy:
                fed = here
            elif l > 0 and fed is not None:
                fed_steps[l][t].copy_(fed)
            unflushed, moves = None, fed
            if options.flush and l < top:
                flush = views[0][l][t] if here is None else views[0][l][t] * here
                unflushed = 1 - flush
                moves = None if fed is None else torch.maximum(fed, flush)
            above, gate = (layers[l + 1].h[t], views[1][l][t]) if l < top else (None, None)
            layer.step(
                t, read if l == 0 else None, None if l == 0 else layers[l - 1].h[t + 1], fed, unflushed, moves,
                above, None if options.gate == "always" else gate,
            )  # fmt: skip
            if l == top:
                break
            # (8), (9): the boundary; (a·s_z + 1) / 2 > 1/2
            z_t = views[0][l][t + 1]
            if forced is None or not all_forced:
                torch.gt(
                    torch.add(one, layer.s_z, alpha=call.slope), 1.0 if threshold is None else threshold[l, t], out=z_t
                )
                if options.on_copy == "hold" and moves is not None:
                    z_t.mul_(moves)
                if forced is not None and free is not None:
                    torch.where(free[l, t], z_t, forced[l, t], out=z_t)
            now = z_t if here is None else z_t * here
            if options.gate == "pending":
                gate_t = views[1][l][t + 1]
                still = torch.zeros_like(now) if fed is None else views[1][l][t] * (1 - fed)
                torch.maximum(z_t, still, out=gate_t)
                if here is not None:
                    torch.where(here > 0, gate_t, views[1][l][t], out=gate_t)
            if here is not None:
                torch.where(here > 0, z_t, views[0][l][t], out=z_t)
            fed = now

    tracks = []
    for l, layer in enumerate(layers):
        own, gate = (z[l], gates[l]) if l < top else (z.new_empty(0),) * 2
        flushed = torch.zeros_like(fed_track[l])
        if options.flush and l < top:
            flushed = own[:-1] if call.active is None else own[:-1] * call.active
        raw = [layer.raw.get(name, z.new_empty(0)) for name in "WUV"]
        tracks.append(Track(layer.track_h, layer.track_c, layer.track_s, fed_track[l], flushed, own, gate, *raw))
    return tracks
