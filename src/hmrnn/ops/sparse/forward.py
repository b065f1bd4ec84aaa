"""The sparse engine: the recurrence in plain torch on any device, without work for layers that copy.

A change of h in one row is an *event*. U·h of the layer and V·h for the layer below are computed once per event and
reused until the next one; W·h is computed for the rows that read it. The log for the backward pass has one row per
event, so memory grows with the number of events. Gradients are exactly those of the reference.

W·x of the first layer is computed for all steps before the loop, with ordinary autograd; for symbols it is a table with
one row per symbol. Under autocast all products are in the lower precision, and everything else keeps the dtype of the
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
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
from hmrnn.ops.sparse.backward import backward
from hmrnn.ops.sparse.log import Call, Log, Matrix, Move, add, clear, index_tensor, multiply, pick, put, replaced

CHUNK = 64  # steps whose W·x is computed at once if no gradient is wanted


def hmlstm(
    inputs: Tensor | Symbols,  # (T, B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,  # (B,)
    boundaries: Tensor | None = None,  # (T, B, L-1), NaN: not forced
    noise: Tensor | None = None,  # (T, B, L-1)
    kept: Sequence[Tensor] | None = None,  # L of (T, B, H_l)
    seen: Sequence[Tensor] | None = None,  # L-1 of (B, H_l)
) -> Result:
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`. All boundaries, forced and in the state too, must be 0 or 1."""
    if options.boundary == "soft":
        raise InputError('engine "sparse" takes boundaries of 0 and 1 only, not "soft" ones; use engine="reference"')
    device, dtype = weights[0].b.device, weights[0].b.dtype
    check_dtype(state, dtype)
    pending = None
    if options.gate == "pending":
        pending = state.z if state.pending is None else state.pending
        _check_binary("state.pending", pending)
    _check_binary("state.z", state.z)
    x, indices = (inputs.embedding, inputs.indices) if isinstance(inputs, Symbols) else (inputs, None)
    T, B = x.shape[:2] if indices is None else indices.shape
    active, forced = None, None if boundaries is None else boundaries.detach()
    if lengths is not None:
        active = torch.arange(T, device=device)[:, None] < lengths  # (T, B)
        indices = None if indices is None else indices.masked_fill(~active, 0)
        forced = None if forced is None else forced.masked_fill(~active[..., None], 0)
    if forced is not None:
        _check_binary("boundaries", forced[~forced.isnan()])
    if indices is not None and x.shape[0] > indices.numel():
        x, indices = F.embedding(indices, x), None  # a table of W·x would have more rows than there are inputs
    weights = [w.stacked() for w in weights]
    # cloned for the backward pass: the caller may reuse these buffers before it runs
    call = Call(
        T, B, options, None if indices is None else indices.clone(), active,
        slope=options.slope.detach().clone() if isinstance(options.slope, Tensor) else options.slope,
        temperature=(
            options.temperature.detach().clone() if isinstance(options.temperature, Tensor) else options.temperature
        ),
        noise=noise.clone() if options.boundary == "gumbel" and noise is not None else None,
        lower=autocast_dtype(device),
        forced=None if forced is None else forced.to("cpu", torch.float64, copy=True).numpy(),
        kept=None if kept is None else [a.clone() for a in kept],
        seen=None if seen is None else [a.detach().clone() for a in seen],
    )  # fmt: skip

    L = len(weights)
    tensors = [boundaries, options.slope, state.z, pending, *state.h, *state.c, *(a for w in weights for a in w)]
    with torch.autocast(device.type, enabled=False):
        if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in [x, *tensors]):
            if active is not None and indices is None:
                x = x.masked_fill(~active[..., None], 0)
            outputs = _Sparse.apply(call, noise, _read_input(x, weights[0], call), *tensors)
        else:
            start = State(state.h, state.c, state.z, pending)
            outputs, *_ = _forward(call, noise, _input_steps(x, weights[0], call), weights, start, keep=False)
    hidden, (all_z, probabilities, z), ends = outputs[:L], outputs[L : L + 3], outputs[L + 3 :]
    return Result(hidden, all_z, probabilities, State(ends[:L], ends[L : 2 * L], z, *ends[2 * L :]))


class _Sparse(torch.autograd.Function):
    """The recurrence given W·x + b of the first layer: ``first`` is (T, B, R), or a table (symbols, R)."""

    @staticmethod
    def forward(ctx: Any, call: Call, noise: Tensor | None, first: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
        fields = len(LayerWeights._fields)
        L = (len(tensors) - 4) // (2 + fields)
        z, pending, h, c, flat = *tensors[2:4], tensors[4 : L + 4], tensors[L + 4 : 2 * L + 4], tensors[2 * L + 4 :]
        weights = [LayerWeights(*flat[i : i + fields]) for i in range(0, len(flat), fields)]
        detectors_learn = call.forced is None or call.options.straight_through or bool(np.isnan(call.forced).any())
        detectors_learn = detectors_learn and call.options.boundary != "reinforce"
        call.traces_z = L > 1 and (detectors_learn or any(ctx.needs_input_grad[i] for i in (3, 5, 6)))
        steps = first.detach() if call.indices is None else (first.index_select(0, i) for i in call.indices)
        outputs, s_z, logs = _forward(call, noise, steps, weights, State(h, c, z, pending), keep=True)
        ctx.call, ctx.logs, ctx.first_shape = call, logs, first.shape
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(s_z, *flat, *(a for log in logs for a in log.release()))
        return outputs

    @staticmethod
    @first_only('engine "sparse" gives first derivatives only; for create_graph=True use engine="reference"')
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        s_z, *saved = ctx.saved_tensors
        with torch.autocast(s_z.device.type, enabled=False):
            return (
                None,
                None,
                *backward(ctx.call, ctx.logs, ctx.first_shape, s_z, saved, grads, ctx.needs_input_grad[2:]),
            )


def _forward(
    call: Call,
    noise: Tensor | None,
    first: Tensor | Iterable[Tensor],
    weights: Sequence[LayerWeights],
    state: State,
    keep: bool,
) -> tuple[tuple[Tensor, ...], Tensor, list[Log]]:
    """The outputs of :func:`hmlstm` as a flat tuple, the detectors' pre-activations (T, B, L-1), the layers' logs.

    ``first`` yields W·x + b of the first layer (B, R) for each step; a tensor (T, B, R) is overwritten. ``keep`` must
    be True if a backward pass may follow.
    """
    T, B, options, top = call.T, call.B, call.options, len(weights) - 1
    layers: list[_Layer] = []
    for l, w in enumerate(weights):
        layers.append(_Layer(w, weights[l - 1] if l else None, state.h[l], state.c[l], call, keep))
        if call.seen is not None and l > 0:
            layers[l].seen, layers[l].W_z = call.seen[l - 1], w.W[4 * w.hidden_size :].t().to(call.lower or w.W.dtype)
    if isinstance(first, Tensor) and call.active is None:
        layers[0].log.gates.data = first.flatten(0, 1)  # all rows change at every step: their gates overwrite W·x
    like = layers[0].hc
    hidden = [like.new_empty(T, B, layer.H) for layer in layers]
    s_z = like.new_empty(top, T, B)
    hidden_steps, s_z_steps = [a.unbind() for a in hidden], [a.unbind() for a in s_z]
    z = np.zeros((T + 1, B, top), dtype=bool)
    z[0] = (state.z > 0).cpu().numpy()
    gate, top_down = z, options.gate  # gate of the top-down input, and what it follows
    if top_down == "pending":
        assert state.pending is not None
        gate = np.zeros_like(z)
        gate[0] = (state.pending > 0).cpu().numpy()
    elif top_down == "always":
        gate = np.ones_like(z)
    open_on_copy = top_down == "always" or (top_down != "none" and not options.flush)
    by_boundary = top_down in ("boundary", "pending")
    decided = np.zeros((T, B, top), dtype=bool)
    everyone, no_one = np.ones(B, dtype=bool), np.zeros(B, dtype=bool)
    active = None if call.active is None else call.active.cpu().numpy()
    free = None if call.forced is None else np.isnan(call.forced)

    for t, below in enumerate(first):
        for layer in layers:
            layer.multiply_changed()
        here = everyone if active is None else active[t]
        fed = here  # z⁰ = 1
        for l, layer in enumerate(layers):
            marked = no_one
            if l < top and options.flush:
                marked = z[t, :, l] & here
            elif l < top and by_boundary:
                marked = gate[t, :, l] & fed
            move = Move.of(fed, marked, options, like.device)
            from_above = layers[l + 1].downward if l < top and top_down != "none" else None
            if move is not None:
                share = call.share_kept(l, t, like.dtype) if call.zones_out else None
                layer.change(move, below, from_above, share)
            if keep:
                layer.log.moves.append(move)
            below = layer.h
            hidden_steps[l][t].copy_(below)
            if l == top:
                break
            # (8), (9): the boundary
            copies = None
            if open_on_copy and from_above is not None:
                copies = index_tensor((gate[t, :, l] & here & ~fed & ~marked).nonzero()[0], like.device)
            layer.detect(move, copies, from_above, s_z_steps[l][t])
            threshold = noise[t, :, l] if options.boundary in DRAWN and noise is not None else 0.5
            decision = (hard_sigmoid(s_z_steps[l][t], call.slope) > threshold).cpu().numpy()
            decided[t, :, l] = decision
            if options.on_copy == "hold":
                decision = decision & (fed | marked)
            if call.forced is not None and free is not None:
                decision = np.where(free[t, :, l], decision, call.forced[t, :, l] > 0)
            z[t + 1, :, l] = np.where(here, decision, z[t, :, l])
            if top_down == "pending":
                still_open = gate[t, :, l] & ~(fed & here)
                gate[t + 1, :, l] = np.where(here, decision | still_open, gate[t, :, l])
            fed = decision & here if options.copy else here

    call.z, call.gate, call.decided = z, gate, decided
    s = s_z.permute(1, 2, 0)
    probabilities = hard_sigmoid(s, call.slope)
    boundaries = torch.from_numpy(z[1:]).to(probabilities)
    if call.active is not None:
        padding = ~call.active[..., None]
        for a in (*hidden, boundaries, probabilities):
            a.masked_fill_(padding, 0)
    last_z = torch.from_numpy(z[T]).to(probabilities)
    h, c = [layer.h.clone() for layer in layers], [layer.hc[:, layer.H :].clone() for layer in layers]
    gates = [torch.from_numpy(gate[T]).to(probabilities)] if top_down == "pending" else []
    return (*hidden, boundaries, probabilities, last_z, *h, *c, *gates), s, [layer.log for layer in layers]


class _Layer:
    """One layer during the forward loop: its current state, and the products with h as of the last change."""

    def __init__(
        self, w: LayerWeights, below: LayerWeights | None, h: Tensor, c: Tensor, call: Call, keep: bool
    ) -> None:
        lower = call.lower or w.U.dtype
        self.w, self.below, self.H = w, below, w.hidden_size
        self.U = Matrix(w.U.t(), lower)
        self.V = None if below is None or below.V is None else Matrix(below.V.t(), lower)
        self.W = None if below is None else Matrix(w.W.t(), lower)
        self.seen: Tensor | None = None  # (B, size) factors of h below where the gates read it; None: all 1
        self.W_z: Tensor | None = None  # (size, K) the detector's rows of W, set together with ``seen``
        normalised = w.gain_U is not None
        rows = call.T * call.B if below is None else call.T * call.B // 4
        self.log = Log(keep, normalised or (call.traces_z and below is not None), w, below, rows, call.B)
        self.reads_all = keep and normalised  # compute W·h even if z_below is 0: the gradient of z_below needs it
        initial = torch.cat([h, c], dim=1, out=self.log.states.take(call.B))
        self.changed: tuple[Tensor | None, Tensor] | None = (None, initial)  # rows and their new h, c
        self.hc = initial.clone()  # (B, 2H)
        self.recurrent = self.hc.new_empty(call.B, len(w.b))  # U·h + b; in the first layer U·h, as W·x includes b
        self.downward = self.hc.new_empty(call.B, 0 if below is None else len(below.b))  # V·h, for the layer below
        self.s = self.recurrent  # (n, R) pre-activations of the last change

    @property
    def h(self) -> Tensor:
        return self.hc[:, : self.H]

    def multiply_changed(self) -> None:
        """Compute U·h and V·h for the rows of h that changed at the last step."""
        if self.changed is None:
            return
        rows, hc = self.changed
        self.changed = None
        h = hc[:, : self.H]
        product = self.U(h)
        self.log.recurrent.note(product)
        product = normalise(product, self.w.gain_U)
        self.recurrent = replaced(self.recurrent, rows, product if self.below is None else product + self.w.b)
        if self.V is not None and self.below is not None:
            product = self.V(h)
            self.log.downward.note(product)
            self.downward = replaced(self.downward, rows, normalise(product, self.below.gain_V))

    def change(self, move: Move, below: Tensor, from_above: Tensor | None, share: Tensor | float | None) -> None:
        """UPDATE or FLUSH of some rows (equations 2-7).

        ``below`` is W·x + b (B, R) in the first layer and h of the layer below in the others; ``from_above`` is V·h;
        ``share`` is the share of the old c that zoneout keeps.
        """
        w, H, rows, n, log = self.w, self.H, move.rows, len(move.host_rows), self.log
        s = log.gates.take(n)  # (n, R)
        if self.W is None:
            torch.add(pick(self.recurrent, rows), pick(below, rows), out=s)
        else:
            read_rows = rows if rows is None or self.reads_all else rows[: move.fed]
            h_below = pick(below, read_rows)
            if self.seen is None:
                read = self.W(h_below)
            else:
                read = self.W(h_below * pick(self.seen, read_rows))
                if w.has_detector and self.W_z is not None:  # the detector reads h without the factors
                    read[:, 4 * H :] = multiply(h_below, self.W_z)
            log.read.note(read)
            read = normalise(read[: move.fed], w.gain_W)
            if rows is None:
                torch.add(self.recurrent, read, out=s)
            else:
                torch.index_select(self.recurrent, 0, rows, out=s)
                s[: move.fed] += read
        if move.gated is not None and from_above is not None:
            add(s, move.gated, pick(from_above, move.gated_rows))

        gates = s[:, : 4 * H]
        f, i, o, g = gates.chunk(4, dim=1)
        gates[:, : 3 * H].sigmoid_()
        g.tanh_()
        kept = f * pick(self.hc[:, H:], rows)
        if move.flushed is not None:
            clear(kept, move.flushed)
        hc = log.states.take(n)
        h, c = hc.chunk(2, dim=1)
        cell = torch.addcmul(kept, i, g, out=c)
        if share is not None:
            c.lerp_(pick(self.hc[:, H:], rows), pick(share, rows) if isinstance(share, Tensor) else share)
        if w.gain_c is not None:
            cell = F.layer_norm(c, (H,), w.gain_c, w.bias_c, eps=LAYER_NORM_EPS)
        torch.mul(o, torch.tanh(cell, out=log.squashed.take(n)), out=h)
        put(self.hc, rows, hc)
        self.s, self.changed = s, (rows, hc)

    def detect(self, move: Move | None, copies: Tensor | None, from_above: Tensor | None, s_z: Tensor) -> None:
        """Write the detector's pre-activations to ``s_z`` (B,).

        On COPY U·h + b of equation 4 is left, and V·h, ``from_above``, in the rows ``copies``.
        """
        gates = 4 * self.H
        rows = s_z[:, None] if self.w.D2 is None else self.log.detector.take(len(s_z))
        if move is None or move.rows is not None:
            rows.copy_(self.recurrent[:, gates:])
        if move is not None:
            put(rows, move.rows, self.s[:, gates:])
        if copies is not None and from_above is not None and len(copies):
            add(rows, copies, from_above[:, gates:].index_select(0, copies))
        if self.w.D2 is not None:
            s_z.copy_(self.w.detect(rows))


def _read_input(x: Tensor, w: LayerWeights, call: Call) -> Tensor:
    """W·x + b of the first layer."""
    if call.lower is None and w.gain_W is None:
        return F.linear(x, w.W, w.b)
    product = F.linear(x.to(call.lower or x.dtype), w.W.to(call.lower or x.dtype)).to(w.b.dtype)
    return normalise(product.flatten(0, -2), w.gain_W).unflatten(0, x.shape[:-1]) + w.b


def _input_steps(x: Tensor, w: LayerWeights, call: Call) -> Iterator[Tensor]:
    """W·x + b of the first layer for each step, in constant memory."""
    if call.indices is not None:
        table = _read_input(x, w, call)
        yield from (table.index_select(0, i) for i in call.indices)
    else:
        for piece in x.split(CHUNK):
            yield from _read_input(piece, w, call)


def all_binary(state: State, lengths: Tensor | None, boundaries: Tensor | None) -> bool:
    """Whether all given boundaries outside the padding are 0, 1 or, if not forced, NaN."""
    if any(bool(_not_binary(z).any()) for z in (state.z, state.pending) if z is not None):
        return False
    if boundaries is None:
        return True
    wrong = _not_binary(boundaries) & ~boundaries.isnan()
    if lengths is not None:
        wrong &= (torch.arange(len(boundaries), device=boundaries.device)[:, None] < lengths)[..., None]
    return not bool(wrong.any())


def _not_binary(z: Tensor) -> Tensor:
    return (z != 0) & (z != 1)


def _check_binary(name: str, z: Tensor) -> None:
    wrong = _not_binary(z)
    if bool(wrong.any()):
        raise InputError(
            f'{name} must hold zeros and ones for engine "sparse"; got {z[wrong][0].item():g}; use engine="reference"'
        )
