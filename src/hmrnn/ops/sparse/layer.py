"""One layer in the backward pass of the sparse engine. ``dh`` is the gradient of h, etc."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vecdot

from hmrnn.ops.estimators import relaxed_gradient
from hmrnn.ops.interface import LayerWeights
from hmrnn.ops.sparse.copies import Copies
from hmrnn.ops.sparse.log import (
    Call,
    Events,
    Local,
    Log,
    Matrix,
    Move,
    add,
    aten,
    clear,
    dot_normalised,
    norm_backward,
    pick,
    zoned_out,
)

NORM = ("gain_U", "gain_W", "gain_V", "gain_c", "bias_c")
BLOCK = 256  # events whose local derivatives are computed at once: few torch calls, and the data fit in the CPU cache


class Layer:
    """The gradients of one layer at the current step of the backward loop."""

    below: Layer | None = None
    above: Layer | None = None

    def __init__(
        self,
        l: int,
        call: Call,
        w: LayerWeights,
        log: Log,
        flat: Iterator[Tensor],
        d_hidden: Tensor | None,  # (T, B, H)
        d_h: Tensor | None,  # (B, H)
        d_c: Tensor | None,  # (B, H)
    ) -> None:
        self.l, self.call, self.w, self.H, self.moves = l, call, w, w.hidden_size, log.moves
        self.events = Events(log, flat, call.T, call.B)
        B, H, states, counts = call.B, self.H, self.events.states, self.events.counts
        self.d = states.new_zeros(B, 2 * H)  # of h and c at the current step
        self.dh, self.dc = self.d.chunk(2, dim=1)
        for part, given in ((self.dh, d_h), (self.dc, d_c)):
            if given is not None:
                part.copy_(given)
        self.dz = states.new_zeros(B)  # of z at the current step
        self.d_gate = states.new_zeros(B)  # of the pending gate after the current step
        self.options, self.top_down = call.options, call.options.gate
        self.detects = False
        self.ds_z = self.z_below = self.gate = states.new_empty(0)  # (T, B) if the layer has a detector
        if d_hidden is not None and call.active is not None:
            d_hidden = d_hidden * call.active[..., None]
        self.d_hidden = None if d_hidden is None else d_hidden.unbind()

        self.lower = call.lower or w.U.dtype
        self.U = Matrix(w.U[: 4 * H], self.lower)
        self.W = Matrix(w.W[: 4 * H], self.lower)
        # if V is read on FLUSH only, its rows of f (the first H) have no gradient
        self.v = H if w.gain_V is None and self.options.flush and self.top_down == "boundary" else 0
        self.V = None if w.V is None else Matrix(w.V[self.v : 4 * H], self.lower)
        self.d_norm = {name: torch.zeros_like(a) for name, a in w._asdict().items() if name in NORM and a is not None}

        self.ds = states.new_empty(sum(counts), w.b.shape[0] if l == 0 else 4 * H)  # one row per event
        gates = self.ds[:, : 4 * H].unflatten(1, (4, H))
        self.ds_steps = self.ds[:, : 4 * H].split(counts)
        self.ds_parts = list(zip(*(part.split(counts) for part in (gates[:, :2], gates[:, 2], gates[:, 3]))))
        self.dU: list[Tensor] = []  # with layer norm: the gradients of U·h, W·h and V·h, one item per step
        self.dW: list[Tensor] = []
        self.dV: list[Tensor] = []

    def prepare_detector(
        self,
        s_z: Tensor,
        d_boundaries: Tensor | None,
        d_probabilities: Tensor | None,
        d_z: Tensor | None,
        d_pending: Tensor | None = None,
    ) -> None:
        """Compute the factors (T, B) in the gradient of z that do not depend on later steps, for all steps at once."""
        call, w, l, above, below = self.call, self.w, self.l, self.above, self.below
        assert above is not None
        flush, copy = call.options.flush, call.options.copy
        self.detects = call.traces_z or d_probabilities is not None
        self.s_z, self.ds_z, self.d_forced = s_z, torch.zeros_like(s_z), torch.zeros_like(s_z)
        if d_z is not None:
            self.dz += d_z
        if d_pending is not None:
            self.d_gate += d_pending

        def mask(z: np.ndarray) -> Tensor:
            return torch.from_numpy(z).to(s_z)

        self.gate = mask(call.gate[:-1, :, l])  # (T, B) of the top-down input
        flushed = mask(call.z[:-1, :, l]) if flush else torch.zeros_like(s_z)
        self.z_below = torch.ones_like(s_z) if below is None or not copy else mask(call.z[1:, :, l - 1])
        active = torch.ones_like(s_z) if call.active is None else call.active.to(s_z)
        self.padding = None if call.active is None else 1 - active
        self.d_boundaries = None if d_boundaries is None else d_boundaries * active
        linear = (call.slope * s_z + 1) / 2
        slope = active * ((linear >= 0) & (linear <= 1)) * (call.slope / 2)
        self.from_probabilities = None if d_probabilities is None else d_probabilities * slope
        free = active
        if call.forced is not None and not call.options.straight_through:
            free = active * mask(np.isnan(call.forced[..., l]))
        self.to_s = free * slope
        if call.options.boundary == "reinforce":
            self.to_s = torch.zeros_like(s_z)
        elif call.noise is not None:
            self.to_s *= relaxed_gradient(linear.clamp(0, 1), call.noise[..., l], call.temperature)
        self.hold_z = self.hold_below = None
        if call.options.on_copy == "hold" and below is not None and copy:
            # z = alpha · decision, so dz also reaches the two boundary states in alpha
            self.to_s *= flushed + (1 - flushed) * self.z_below
            decided = free * mask(call.decided[..., l])
            self.hold_z, self.hold_below = decided * (1 - self.z_below) * flush, decided * (1 - flushed)
        if self.top_down == "pending":
            # new gate = z + (1 - z)·(1 - z_below)·gate
            closed, still = 1 - mask(call.z[1:, :, l]), 1 - self.z_below
            self.gate_to_z, self.gate_to_below = active * (1 - still * self.gate), -active * closed * self.gate
            self.gate_to_gate = active * closed * still + (1 - active)
        self.to_rows = None
        if w.D2 is not None:
            hidden = self.events.detector
            self.to_rows = aten.gelu_backward(w.D2.expand_as(hidden), hidden).unflatten(0, (call.T, call.B))
        # the derivatives of s_z by the gates of V·h and W·h
        gates = 4 * self.H
        self.U_z, self.W_z = w.U[gates:], w.W[gates:]
        self.gate_rows, self.z_below_rows = (a[..., None].unbind() for a in (self.gate, self.z_below))  # T of (B, 1)
        if w.V is not None:
            self.V_z = w.V[gates:]
            self.above_z = self._along(above.events, above.events.current[:-1], self.V_z)
            self.reads_above: list[bool] = np.any(call.gate[:-1, :, l], axis=1).tolist()
        if below is not None and copy:
            self.below_z = self._along(below.events, below.events.current[1:], self.W_z)

    def _along(self, source: Events, current: np.ndarray, rows: Tensor) -> Tensor:
        """(T, B): the derivative of s_z along the product of the detector's ``rows`` with h of the events ``current``.

        With a single row, which is s_z itself, it is that product.
        """
        product = (source.h(slice(None)) @ rows.t())[source.index(current)]  # (T, B, K)
        return product[..., 0] if self.to_rows is None else vecdot(product, self.to_rows)

    def d_rows(self, t: int | slice = slice(None)) -> Tensor:
        """(..., B, K): the gradient of the detector's rows of equation 4, from that of s_z."""
        d = self.ds_z[t][..., None]
        return d if self.to_rows is None else d * self.to_rows[t]

    def prepare_events(self) -> None:
        """Compute the indices of events and the differences on COPY rows that do not depend on later steps."""
        call, l, events = self.call, self.l, self.events
        times, rows = events.times, events.rows
        every = np.ones(len(times), dtype=bool)
        fed = every if self.below is None or not self.options.copy else call.z[times + 1, rows, l - 1]
        flushed = ~every if self.above is None or not self.options.flush else call.z[times, rows, l]
        self.fed = None if fed.all() else events.index(fed.nonzero()[0])
        self.unflushed = torch.from_numpy(~flushed).to(self.d)[:, None] if flushed.any() else None
        if self.below is not None:
            self.below_events = events.index(self.below.events.current[times + 1, rows])
        if self.above is not None:
            self.above_events = events.index(self.above.events.current[times, rows])
            self.gated = events.index(call.gate[times, rows, l].nonzero()[0])
        self.block_start = call.T
        self.copies: Copies | None = None
        self.share_kept: Tensor | float = call.options.zoneout  # zoneout: (events, H), or one number for all
        if call.kept is not None:
            self.share_kept = call.kept[self.l][times, rows].to(events.states.dtype)
        if self.below is not None and self.options.copy and call.traces_z:
            self.copies = Copies.of(self)

    def _prepare_block(self, last: int) -> None:
        """Compute the local derivatives for about BLOCK events, those of step ``last`` and of steps before it."""
        B, H, events, below, above = self.call.B, self.H, self.events, self.below, self.above
        first = bisect.bisect_left(events.starts, events.starts[last + 1] - BLOCK, 0, last)
        self.block_start = first
        counts, here = events.counts[first : last + 1], slice(events.starts[first], events.starts[last + 1])
        if here.start == here.stop:
            return
        old, derivatives = events.derivatives(here, None if self.unflushed is None else self.unflushed[here])
        if self.call.zones_out:
            share = self.share_kept[here] if isinstance(self.share_kept, Tensor) else self.share_kept
            derivatives = zoned_out(derivatives, share)
        moved = read = down = None
        if self.call.traces_z and below is not None and self.options.copy:
            moved = events.states[B + here.start : B + here.stop] - old
            read = below.events.h(self.below_events[here]) if self.w.gain_W is None else None
        if self.call.traces_z and above is not None and self.top_down in ("boundary", "pending"):
            down = above.events.downward[:, : 4 * H].index_select(0, self.above_events[here])
        tensors = (*derivatives, moved, read, down)
        parts = [[None] * len(counts) if a is None else a.split(counts) for a in tensors]
        self.block = [Local(*step) for step in zip(*parts)]

    def step(self, t: int) -> None:
        """Turn the gradients of h, c and z at step t into those at step t - 1."""
        w, move, above, below = self.w, self.moves[t], self.above, self.below
        if self.d_hidden is not None:
            self.dh += self.d_hidden[t]
        if self.detects:
            self._detector(t)
        if below is not None and self.copies is not None:
            self._copy(t, below, self.copies)
        if t < self.block_start:
            self._prepare_block(t)
        if move is not None:
            self._change(t, move, self.block[t - self.block_start])
        if self.detects:
            d = self.d_rows(t)
            self.dh.addmm_(d, self.U_z)
            if above is not None and w.V is not None and self.reads_above[t]:
                above.dh.addmm_(d * self.gate_rows[t], self.V_z)
            if below is not None and move is not None:
                below.dh.addmm_(d * self.z_below_rows[t], self.W_z)

    def _detector(self, t: int) -> None:
        """Compute ``ds_z`` of step t, and turn ``dz`` into that of step t - 1, except for the choice of operation."""
        ds_z, dz, d_gate = self.ds_z[t], self.dz, self.d_gate
        pending = self.top_down == "pending"
        if self.call.traces_z:
            if pending:
                dz = dz + d_gate * self.gate_to_z[t]
            if self.d_boundaries is not None:
                dz = dz + self.d_boundaries[t]
            self.d_forced[t] = dz
            torch.mul(dz, self.to_s[t], out=ds_z)
        if self.from_probabilities is not None:
            ds_z += self.from_probabilities[t]
        if not self.call.traces_z:
            return
        through_V = ds_z * self.above_z[t] if self.top_down in ("boundary", "pending") else torch.zeros_like(ds_z)
        if pending:
            self.d_gate, through_V = d_gate * self.gate_to_gate[t] + through_V, torch.zeros_like(ds_z)
            if self.below is not None:
                self.below.dz += d_gate * self.gate_to_below[t]
        self.dz = through_V
        if self.padding is not None:
            self.dz += dz * self.padding[t]
        if self.hold_z is not None:
            self.dz += dz * self.hold_z[t]
        if self.below is not None and self.options.copy:
            self.below.dz += ds_z * self.below_z[t]
            if self.hold_below is not None:
                self.below.dz += dz * self.hold_below[t]

    def _copy(self, t: int, below: Layer, copies: Copies) -> None:
        """COPY: the gradients of h and c stay as they are; add to those of the two boundary states that chose COPY."""
        mask = copies.masks[t]
        if mask is None:
            return
        to_flush, to_forget = copies.at(t)
        d, dc = self.d, self.dc
        if self.call.zones_out:
            dc = dc * (1 - self.call.share_kept(self.l, t, dc.dtype))
            d = torch.cat([self.dh, dc], dim=1)
        by_flush = vecdot(d, to_flush) * mask
        if self.options.flush:
            self.dz += by_flush
        below.dz += by_flush.addcmul_(vecdot(dc, to_forget), mask)

    def _change(self, t: int, move: Move, local: Local) -> None:
        """UPDATE and FLUSH: compute ``ds``, and send it back through U, W and V."""
        w, fed, rows = self.w, move.fed, move.rows
        here = slice(*self.events.starts[t : t + 2])
        d = pick(self.d, rows)  # (n, 2H); self.d itself if all rows change
        dh, dc = d.chunk(2, dim=1)
        if w.gain_c is None:
            dc.addcmul_(dh, local.c)
        else:
            c = self.events.states[self.call.B :][here, self.H :]
            d_cell, d_gain, d_bias = norm_backward(dh * local.c, c, w.gain_c, w.bias_c)
            dc += d_cell
            self.d_norm["gain_c"] += d_gain
            self.d_norm["bias_c"] += d_bias
        ds, (ds_fi, ds_o, ds_g) = self.ds_steps[t], self.ds_parts[t]
        torch.mul(local.fi, dc[:, None], out=ds_fi)
        torch.mul(local.o, dh, out=ds_o)
        torch.mul(local.g, dc, out=ds_g)
        to_z = to_z_below = None
        if self.call.traces_z:
            if self.options.flush:
                to_z = -vecdot(dc, local.kept)
            if local.moved is not None:
                to_z_below = vecdot(d, local.moved)
                if to_z is not None:
                    to_z[fed:] = to_z_below[fed:]  # FLUSH rows with z_below = 0
                if move.flushed is not None:
                    clear(to_z_below, move.flushed)
        # from here on d holds the gradients of h and c at step t - 1
        dc *= local.forget
        dU = ds
        if w.gain_U is not None:
            dU = self._through_norm("gain_U", ds, self.events.before(self.events.recurrent[:, : 4 * self.H], here))
            self.dU.append(dU)
        self.U(dU, out=dh)
        if rows is not None:
            self.d.index_copy_(0, rows, d)
        if self.below is not None:
            self._read(here, move, self.below, local.below, ds, to_z_below)
        if self.above is not None:
            self._read_down(here, move, self.above, local.downward, ds, to_z)

    def _read(self, here: slice, move: Move, below: Layer, h: Tensor | None, ds: Tensor, to_z: Tensor | None) -> None:
        """Send ``ds`` back through W·h to h and z of the layer below; ``to_z`` is what z has from the operation."""
        rows, fed, gain = move.rows, move.fed, self.w.gain_W
        seen = None if self.call.seen is None else pick(self.call.seen[self.l - 1], rows)
        if gain is None:
            d_h = self.W(ds[:fed] if to_z is None else ds)  # rows with z_below = 0 are needed for dz only
            if seen is not None:
                d_h = d_h * seen[: len(d_h)]
            if to_z is not None and h is not None:
                to_z += vecdot(d_h, h)
        else:
            raw = self.events.read[here, : 4 * self.H]
            self.dW.append(self._through_norm("gain_W", ds[:fed], raw[:fed]))
            d_h = self.W(self.dW[-1])
            if seen is not None:
                d_h = d_h * seen[:fed]
            if to_z is not None:
                to_z += dot_normalised(ds, raw, gain)
        add(below.dh, None if rows is None else rows[:fed], d_h[:fed])
        if to_z is not None:
            add(below.dz, rows, to_z)

    def _read_down(
        self, here: slice, move: Move, above: Layer, product: Tensor | None, ds: Tensor, to_z: Tensor | None
    ) -> None:
        """Send ``ds`` back through V·h to h of the layer above and to the gate; add ``to_z``, from FLUSH, to ``dz``."""
        gain = self.w.gain_V
        if to_z is not None:
            add(self.dz, move.rows, to_z)
        if product is not None:
            to_gate = vecdot(ds, product) if gain is None else dot_normalised(ds, product, gain)
            add(self.d_gate if self.top_down == "pending" else self.dz, move.rows, to_gate)
        if move.gated is not None and self.V is not None:
            dV = pick(ds[:, self.v :], move.gated)
            if gain is not None:
                numbers = pick(self.above_events[here], move.gated)
                dV = self._through_norm("gain_V", dV, above.events.downward[:, : 4 * self.H].index_select(0, numbers))
                self.dV.append(dV)
            add(above.dh, move.gated_rows, self.V(dV))

    def _through_norm(self, name: str, d: Tensor, raw: Tensor) -> Tensor:
        """The gradient of a contribution before layer norm; that of its gain, ``name``, is added to ``d_norm``."""
        d, d_gain, _ = norm_backward(d, raw, getattr(self.w, name), None)
        self.d_norm[name] += d_gain
        return d
