"""The backward pass of small layers. ``dh`` is the gradient of h, etc."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights
from hmrnn.ops.small.track import Call, Track, multiply, rows


def backward(
    kind: type[Layer],
    call: Call,
    weights: Sequence[LayerWeights],
    tracks: Sequence[Track],
    grads: Sequence[Tensor | None],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of W·x + b of the first layer, forced boundaries, slope, z, pending, h, c, and all weights.

    ``kind`` is the class of the layers. ``grads`` are those of the outputs of the forward pass; ``needs`` says which
    gradients are wanted, in this order.
    """
    L = len(tracks)
    hidden, of_detectors = grads[:L], grads[L : L + 4]
    ends = zip(grads[L + 4 : 2 * L + 4], grads[2 * L + 4 :])
    layers = [kind(l, call, *given) for l, given in enumerate(zip(weights, tracks, hidden, ends))]
    for l, layer in enumerate(layers[:-1]):
        layer.above, layers[l + 1].below = layers[l + 1], layer
    for l, layer in enumerate(layers[:-1]):
        layer.prepare_detector(*(None if d is None else d[..., l].numpy() for d in of_detectors))
    for t in reversed(range(len(tracks[0].s))):
        for layer in reversed(layers):
            layer.step(t)

    d_forced = d_slope = d_z = d_pending = None
    lower = layers[:-1]
    if lower and needs[1] and call.forced is not None and not call.options.straight_through:
        taken = ~call.forced.isnan() if call.active is None else ~call.forced.isnan() * call.active[..., None]
        d_forced = _stacked([np.stack(layer.dz_steps[::-1]) for layer in lower]) * taken
    if needs[2]:
        parts = [(layer.ds[:, -1] * layer.track.s[:, -1]).sum() for layer in lower]
        d_slope = torch.stack([layers[0].ds.new_zeros(()), *parts]).sum() / call.slope
    if lower and needs[3]:
        d_z = _stacked([layer.dz for layer in lower])
    if lower and needs[4] and call.options.gate == "pending":
        d_pending = _stacked([layer.d_gate for layer in lower])
    states = [torch.from_numpy(layer.d[part].T.copy()) for part in range(2) for layer in layers]
    d_weights = [layer.weight_gradients() for layer in layers]
    for layer in layers:
        layer.above = layer.below = None  # without reference cycles the memory is freed at once
    flat = [found.get(name) for found in d_weights for name in LayerWeights._fields]
    return [rows(layers[0].ds), d_forced, d_slope, d_z, d_pending, *states, *flat]


BLOCK = 1 << 13
"""Elements of h whose local derivatives are computed at once: few calls, and the data fit in the CPU cache."""


class Layer:
    """The gradients of one layer at the current step of the loop. The batch is the last dimension."""

    below: Layer | None = None
    above: Layer | None = None

    def __init__(
        self,
        l: int,
        call: Call,
        w: LayerWeights,
        track: Track,
        d_hidden: Tensor | None,  # (T, B, H)
        d_end: tuple[Tensor | None, Tensor | None],  # of the last h and c
    ) -> None:
        T, R, B = track.s.shape
        H = w.hidden_size
        self.l, self.call, self.w, self.track, self.H = l, call, w, track, H
        self.names = [*([] if l == 0 else ["W"]), "U", *([] if w.V is None else ["V"])]
        matrices = [self._matrix(name) for name in self.names]
        self.sizes = [a.shape[1] for a in matrices]
        self.matrix = self._transposed(torch.cat([a.t() for a in matrices])).numpy()  # (K, R or more)
        self.d = np.zeros((2, H, B), track.s.numpy().dtype)  # of h and c
        self.dh, self.dc = self.d
        for part, given in zip(self.d, d_end):
            if given is not None:
                part[:] = given.t().numpy()
        self.d_hidden = None if d_hidden is None else rows(d_hidden).numpy()
        # R rows, and further ones if the matrix is to be multiplied with more
        self.ds_all = track.s.new_zeros(T, max(R, self.matrix.shape[1]), B)
        self.ds, ds = self.ds_all[:, :R], self.ds_all.numpy()
        self.ds_steps = list(ds)
        self.ds_gates, self.ds_z = ds[:, : 4 * H].reshape(T, 4, H, B), ds[:, 4 * H : R]
        self.dx = np.empty((len(self.matrix), B), ds.dtype)
        parts = np.split(self.dx, np.cumsum(self.sizes)[:-1])
        self.dx_below = None if l == 0 else parts.pop(0)
        self.dx_own = parts.pop(0)
        self.dx_above = parts[0] if parts else None
        self.spare = np.empty_like(self.dh)
        self.ones = np.ones(max(2 * H, len(self.dx)), ds.dtype)
        self.zeros = self.dz = self.d_gate = np.zeros(B, ds.dtype)
        self.copies = l > 0 and call.options.copy
        self.flushes = call.options.flush and len(track.z) > 0
        self.pending, self.gated = call.options.gate == "pending", call.options.gate in ("boundary", "pending")
        self.active = None if call.active is None else call.active.numpy()
        self.fed, self.unflushed, self.gate = (a.numpy() for a in (track.fed, 1 - track.flushed, track.gate))
        self.moves: np.ndarray | None = None  # (T, B); None: all rows move at every step
        if self.copies or self.active is not None:
            self.moves = np.maximum(self.fed, 1 - self.unflushed)
        # of h and c: in rows that move, and in all rows after the step through the cell
        self.moved, self.every = (self.d if self.moves is None else np.empty_like(self.d) for _ in range(2))
        self.moved_parts, self.flat = tuple(self.moved), self.every.reshape(2 * H, B)
        self.h, self.c, self.gates = (
            track.hc[:, 0].numpy(),
            track.hc[:, 1].numpy(),
            track.s.numpy()[:, : 4 * H].reshape(T, 4, H, B),
        )
        self.block_start = T
        self.dz_steps: list[np.ndarray] = []

    def _matrix(self, name: str) -> Tensor:
        """The rows of W, U or V that the forward pass multiplies with ``track.x``."""
        matrix: Tensor = getattr(self.w, name)
        return matrix

    def _transposed(self, matrix: Tensor) -> Tensor:
        """What ``ds`` is multiplied with, given the transpose (K, R) of the matrices."""
        return matrix.contiguous()

    def _prepare_block(self, last: int) -> None:
        """Compute the local derivatives, as if all rows moved, for a block of steps that ends with ``last``."""
        first = self.block_start = max(0, last + 1 - max(1, BLOCK // self.dh.size))
        here = slice(first, last + 1)
        h, c, tc, gates = self.h[here], self.c[here], self._squashed(first, last), self.gates[here]
        f, i, o, g = (gates[:, k] for k in range(4))
        self.local = np.empty_like(gates)  # ∂c/∂s of f, i and g, ∂h/∂s of o (n, 4, H, B)
        kept, new, seen = (self.local[:, k] for k in range(3))
        np.multiply(f, c, out=kept)
        np.multiply(i, g, out=new)
        np.multiply(o, tc, out=seen)
        np.subtract(i, new * g, out=self.local[:, 3])
        self.cell, self.forget = o - seen * tc, f  # ∂h/∂c, ∂c/∂c'
        self.chosen = self.forgotten = None
        if self.copies or self.flushes:  # changes of h and c by UPDATE
            self.chosen = np.empty((len(h), 2 * self.H, h.shape[2]), h.dtype)
            np.subtract(seen, h, out=self.chosen[:, : self.H])
            np.subtract(new + kept, c, out=self.chosen[:, self.H :])
        if self.flushes:  # what FLUSH erases
            self.forgotten = kept.copy()
            self.forget = f * self.unflushed[here, None]
        self.local[:, :3] -= self.local[:, :3] * gates[:, :3]
        if self.flushes:
            kept *= self.unflushed[here, None]

    def _squashed(self, first: int, last: int) -> np.ndarray:
        """tanh of the cell as the output gate reads it, at the steps from ``first`` to ``last``."""
        squashed: np.ndarray = np.tanh(self.c[first + 1 : last + 2])
        return squashed

    def prepare_detector(
        self,
        d_boundaries: np.ndarray | None,
        d_probabilities: np.ndarray | None,
        d_z: np.ndarray | None,
        d_pending: np.ndarray | None,
    ) -> None:
        """Compute the factors (T, B) in the gradient of z that do not depend on later steps."""
        call, track, options = self.call, self.track, self.call.options
        self.dz = self.dz if d_z is None else self.dz + d_z
        self.d_gate = self.d_gate if d_pending is None else self.d_gate + d_pending
        s_z, z, gate = track.s[:, -1].numpy(), track.z[1:].numpy(), track.gate[:-1].numpy()
        active = np.ones_like(s_z) if self.active is None else self.active
        linear = (call.slope * s_z + 1) / 2
        slope = active * ((linear >= 0) & (linear <= 1)) * (call.slope / 2)
        self.d_boundaries = None if d_boundaries is None else d_boundaries * active
        self.from_probabilities = None if d_probabilities is None else d_probabilities * slope
        free = active
        if call.forced is not None and not options.straight_through:
            free = active * call.forced[..., self.l].isnan().numpy()
        self.to_s = free * slope
        self.through = 1 - active  # of dz to the dz of the step before
        self.hold_below: np.ndarray | None = None
        if options.on_copy == "hold" and self.below is not None and options.copy:
            decided = free * (linear > (0.5 if call.noise is None else call.noise[..., self.l].numpy()))
            self.to_s = self.to_s * np.maximum(self.fed, 1 - self.unflushed)
            self.hold_below = decided * self.unflushed
            self.through = self.through + decided * (1 - self.fed) * options.flush
        self.passes_on = call.active is not None or (self.hold_below is not None and options.flush)
        if options.gate == "pending":
            closed, still = 1 - z, 1 - self.fed
            self.gate_to_z = active * (1 - still * gate)
            self.gate_to_below = -active * closed * gate
            self.gate_to_gate = active * closed * still + (1 - active)

    def step(self, t: int) -> None:
        """Turn the gradients of h, c and z at step t into those at step t - 1."""
        above, below, d = self.above, self.below, self.d
        if t < self.block_start:
            self._prepare_block(t)
        now = t - self.block_start
        if self.d_hidden is not None:
            np.add(self.dh, self.d_hidden[t], out=self.dh)
        new_dz = new_gate = None
        if above is not None:
            new_dz, new_gate = self._detector(t)
        dh, dc = self.moved_parts
        if self.moves is not None:
            np.multiply(d, self.moves[t], out=self.moved)  # 0 on COPY
            np.subtract(d, self.moved, out=d)  # what COPY passes on
        self._into_cell(t, now, dh, dc)
        ds, local = self.ds_gates[t], self.local[now]
        np.multiply(dc, local[:2], out=ds[:2])
        np.multiply(dh, local[2], out=ds[2])
        np.multiply(dc, local[3], out=ds[3])
        change = None
        if self.chosen is not None:
            if self.moves is not None:
                np.add(d, self.moved, out=self.every)
            change = self._dot(self.flat, self.chosen[now])
            if self.forgotten is not None:
                here = change - self.fed[t] * change - self._dot(self.every[1], self.forgotten[now])
                if self.active is not None:
                    here *= self.active[t]
                new_dz = here if new_dz is None else new_dz + here
        to_fed, to_gate = self._multiply(t, now)
        np.multiply(dc, self.forget[now], out=dc)
        if self.moves is None:
            np.copyto(dh, self.dx_own)
        else:
            np.add(d[1], dc, out=d[1])
            np.add(d[0], self.dx_own, out=d[0])
        if below is not None and self.dx_below is not None:
            if change is not None and to_fed is not None:
                passed = to_fed + (change * self.unflushed[t] if self.flushes else change)
                below.dz = below.dz + (passed if self.active is None else passed * self.active[t])
            np.add(below.dh, self.dx_below, out=below.dh)
        if above is not None and self.dx_above is not None:
            np.add(above.dh, self.dx_above, out=above.dh)
            if to_gate is not None and self.pending:
                new_gate = to_gate if new_gate is None else new_gate + to_gate
            elif to_gate is not None:
                new_dz = to_gate if new_dz is None else new_dz + to_gate
        if above is not None:
            self.dz = self.zeros if new_dz is None else new_dz
            self.d_gate = self.d_gate if new_gate is None else new_gate

    def _into_cell(self, t: int, now: int, dh: np.ndarray, dc: np.ndarray) -> None:
        """Add the gradient that h has from the cell to that of c."""
        np.add(dc, np.multiply(dh, self.cell[now], out=self.spare), out=dc)

    def _multiply(self, t: int, now: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Set ``dx``, the gradients of h below, own and above; return those of z below and of the top-down gate."""
        multiply(self.matrix, self.ds_steps[t], self.dx)
        to_fed = to_gate = None
        if self.copies and self.below is not None and self.dx_below is not None:
            to_fed = self._dot(self.dx_below, self.below.h[t + 1])
        if self.gated and self.dx_above is not None and self.above is not None:
            to_gate = self._dot(self.dx_above, self.above.h[t])
        if self.dx_below is not None and (self.copies or self.active is not None):
            np.multiply(self.dx_below, self.fed[t], out=self.dx_below)
        if self.dx_above is not None and self.gated:
            np.multiply(self.dx_above, self.gate[t], out=self.dx_above)
        return to_fed, to_gate

    def _detector(self, t: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Set the gradient of s_z; return parts of those of z and of the pending gate one step before."""
        dz, new_dz, new_gate = self.dz, None, None
        below, options = self.below, self.call.options
        if self.pending:
            dz = dz + self.d_gate * self.gate_to_z[t]
            new_gate = self.d_gate * self.gate_to_gate[t]
            if below is not None and options.copy:
                below.dz = below.dz + self.d_gate * self.gate_to_below[t]
        if self.d_boundaries is not None:
            dz = dz + self.d_boundaries[t]
        self.dz_steps.append(dz)
        np.multiply(dz, self.to_s[t], out=self.ds_z[t, 0])
        if self.from_probabilities is not None:
            self.ds_z[t, 0] += self.from_probabilities[t]
        if self.passes_on:
            new_dz = dz * self.through[t]
        if below is not None and self.hold_below is not None:
            below.dz = below.dz + dz * self.hold_below[t]
        return new_dz, new_gate

    def weight_gradients(self) -> dict[str, Tensor]:
        """The gradients of the weights. In the first layer W and b have none here."""
        d_matrix = outer(self.ds, self.track.x)
        found = dict(zip(self.names, d_matrix.split(self.sizes, 1)))
        return found if self.l == 0 else found | {"b": self.ds.sum((0, 2))}

    def _dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(B,): the dot products of the columns of ``a`` and ``b``."""
        dots: np.ndarray = np.dot(self.ones[: len(a)], a * b)
        return dots


def flat(a: Tensor) -> Tensor:
    """a (T, n, B) as (n, T·B)."""
    return a.transpose(0, 1).flatten(1)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """(m, n): the sum over steps and sequences of the outer products of a (T, m, B) and b (T, n, B)."""
    return flat(a) @ flat(b).t()


def _stacked(parts: Sequence[np.ndarray]) -> Tensor:
    """The arrays of the layers as one tensor (..., L-1)."""
    return torch.from_numpy(np.stack(parts, axis=-1))
