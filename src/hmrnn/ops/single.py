"""The recurrence of a single sequence on a CPU without gradients, in NumPy.

With a batch of one, a step is a few matrix-vector products, which take less time than the overhead of torch calls; that
of NumPy calls is smaller. As in the sparse engine, a layer that copies does no work, and U·h is computed once per
change of h.

``step`` is one time step, for :mod:`hmrnn.ops.streaming` with a batch of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops.estimators import DRAWN, hard_sigmoid
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols
from hmrnn.ops.reference import LAYER_NORM_EPS
from hmrnn.ops.streamed import Streamed, remembered, streamed

LARGE = 1 << 20
"""Elements from which on the product of a matrix with a vector uses several threads."""


def why_not(
    inputs: Tensor | Symbols,
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    lengths: Tensor | None,
    boundaries: Tensor | None,
    noise: Tensor | None,
) -> str | None:
    """Why :func:`hmlstm` cannot take these arguments; None if it can."""
    x = inputs.indices if isinstance(inputs, Symbols) else inputs
    source = inputs.embedding if isinstance(inputs, Symbols) else inputs
    given = [
        source,
        *state.h,
        *state.c,
        state.z,
        state.pending,
        boundaries,
        options.slope,
        *(a for w in weights for a in w),
    ]
    if x.shape[1] != 1 or lengths is not None:
        return "it takes one sequence without padding"
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or source.dtype not in (torch.float32, torch.float64):
        return "it runs on a CPU in float32 or float64, without autocast"
    if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in given):
        return "it has no gradients"
    if not all(_binary(z) for z in (state.z, state.pending, boundaries) if z is not None):
        return "it takes boundaries of 0 and 1 only"
    if options.boundary == "soft" or (noise is not None and options.boundary in DRAWN):
        return "it has neither soft nor sampled boundaries"
    return None


def _binary(z: Tensor) -> bool:
    """Whether all values are 0, 1 or NaN (not forced)."""
    return bool(((z == 0) | (z == 1) | z.isnan()).all())


def hmlstm(
    inputs: Tensor | Symbols,  # (T, 1, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,
    boundaries: Tensor | None = None,  # (T, 1, L-1), NaN: not forced
    noise: Tensor | None = None,
) -> Result:
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`."""
    reason = why_not(inputs, weights, state, options, lengths, boundaries, noise)
    if reason is not None:
        raise InputError(f'the NumPy code cannot run this: {reason}; use engine="sparse"')
    layers = [_Layer(w, h, c, options.zoneout) for w, h, c in zip(weights, state.h, state.c)]
    top, dtype = len(layers) - 1, layers[0].b.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        first, rows = layers[0].read_input(inputs)
    T = len(rows)
    hidden = [np.empty((T, layer.H), dtype) for layer in layers]
    s_z, z = np.empty((T, top), dtype), np.zeros((T, top), bool)
    forced = None if boundaries is None else boundaries[:, 0].detach().double().numpy()
    before = gates = (state.z[0] > 0.5).tolist()  # z one step ago, and the gates of the top-down input
    if options.gate == "pending":
        gates = ((state.z if state.pending is None else state.pending)[0] > 0.5).tolist()
    slope = dtype.type(float(options.slope))
    hold, half = options.on_copy == "hold", dtype.type(0.5)

    with np.errstate(over="ignore", invalid="ignore"):  # exp(-s) of a closed gate overflows; NaN and infinity pass on
        for t in range(T):
            fed, below = True, first[rows[t]]  # z⁰ = 1; for the first layer ``below`` is W·x
            for l, layer in enumerate(layers):
                flush = options.flush and l < top and before[l]
                down = None
                if layer.V is not None and (options.gate == "always" or gates[l]):
                    down = layer.down(layers[l + 1].h)  # still h of the last step
                if fed or flush:
                    s = layer.change(below if fed else None, down, flush, is_product=l == 0)
                else:
                    s = layer.recurrent() if down is None else layer.recurrent() + down
                hidden[l][t] = below = layer.h
                if l == top:
                    break
                # (8), (9): the boundary
                s_z[t, l] = of_z = _detect(layer.w, s[4 * layer.H :])
                fires = bool((slope * of_z + 1) / 2 > half) and (fed or flush or not hold)
                if forced is not None and not math.isnan(forced[t, l]):
                    fires = bool(forced[t, l] > 0.5)
                if options.gate == "pending":
                    gates[l] = fires or (gates[l] and not fed)
                z[t, l] = before[l] = fires
                fed = fires or not options.copy

    probabilities = hard_sigmoid(torch.from_numpy(s_z), options.slope)[:, None]
    state = State(
        tuple(torch.from_numpy(layer.h.copy())[None] for layer in layers),
        tuple(torch.from_numpy(layer.c.copy())[None] for layer in layers),
        *(
            torch.tensor([of], dtype=probabilities.dtype).reshape(1, top)
            for of in ((before, gates) if options.gate == "pending" else (before,))
        ),
    )
    found = tuple(torch.from_numpy(h)[:, None] for h in hidden)
    return Result(found, torch.from_numpy(z)[:, None].to(probabilities.dtype), probabilities, state)


def can_step(
    x: Tensor,
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None,
) -> bool:
    """Whether :func:`step` can take these arguments."""
    return (
        len(x) == 1
        and x.device.type == "cpu"
        and x.dtype == weights[0].b.dtype
        and x.dtype in (torch.float32, torch.float64)
        and options.boundary != "soft"
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and all(
            v in (0, 1) or math.isnan(v)
            for z in (state.z, state.pending, boundaries)
            if z is not None
            for v in z[0].tolist()
        )
    )


def step(
    x: Tensor,  # (1, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None = None,  # (1, L-1), NaN: not forced
) -> tuple[Streamed, Tensor, Tensor]:
    """One time step: the new state, which layers changed (1, L), and the detectors' z̃ (1, L-1)."""
    top, h, c = len(weights) - 1, list(state.h), list(state.c)
    units = 1 if weights[0].D2 is None else weights[0].D2.shape[1]  # rows of a detector
    before = gates = state.z[0].tolist()
    if options.gate == "pending":
        gates = (state.z if state.pending is None else state.pending)[0].tolist()
    forced = [math.nan] * top if boundaries is None else boundaries[0].tolist()
    fed, below = True, x[0].detach().numpy()  # z⁰ = 1, h⁰ = x
    slope = below.dtype.type(float(options.slope))
    known = remembered(state, weights)
    down: list[Tensor | None] = [None] * top if known is None or not known.down else list(known.down)
    if known is None or known.on_copy is None:
        copied = [np.zeros(units, below.dtype)] * min(top, 1)  # the first layer never copies
        copied += [_on_copy(w, a[0].detach().numpy()) for w, a in zip(weights[1:-1], h[1:])]
    else:
        copied = list(known.on_copy[0].numpy())
    changed, z, probabilities = [], [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for l, w in enumerate(weights):
            flush = options.flush and l < top and before[l] > 0.5
            moves = fed or flush
            changed.append(moves)
            gated = w.V is not None and (options.gate == "always" or gates[l] > 0.5)
            rows = copied[l] if l < top else None
            if rows is not None and gated and not moves:
                rows = rows + _of_above(w, state.h[l + 1], down[l])
            if moves:
                layer = _Layer(w, h[l], c[l], options.zoneout)
                if gated and down[l] is None:
                    down[l] = torch.from_numpy(layer.down(state.h[l + 1][0].detach().numpy()))[None]
                from_above = down[l][0].numpy() if gated else None  # type: ignore[index]
                rows = layer.change(below if fed else None, from_above, flush, is_product=False)[4 * layer.H :]
                if l > 0:
                    down[l - 1] = None
                h[l], c[l] = torch.from_numpy(layer.h)[None], torch.from_numpy(layer.c)[None]
                if 0 < l < top:
                    copied[l] = _on_copy(w, layer.h)
            if l == top or rows is None:
                break
            # (8), (9): the boundary
            p = min(max((slope * _detect(w, rows) + 1) / 2, 0), 1)
            fires = p > 0.5 and (moves or options.on_copy == "evaluate")
            if not math.isnan(forced[l]):
                fires = forced[l] > 0.5
            if options.gate == "pending":
                gates[l] = float(fires or (gates[l] > 0.5 and not fed))
            fed = fires or not options.copy
            if fed:
                below = h[l][0].detach().numpy()
            z.append(float(fires))
            probabilities.append(p)
    of_detectors = torch.tensor([z, probabilities], dtype=x.dtype).view(2, 1, top)
    on_copy = torch.from_numpy(np.array(copied, below.dtype).reshape(1, top, units))
    pending = torch.tensor([gates], dtype=x.dtype).view(1, top) if options.gate == "pending" else None
    down = [] if options.of_the_paper else down  # FLUSH reads V·h right after h above changed: nothing to reuse
    new = streamed(State(tuple(h), tuple(c), of_detectors[0], pending), on_copy, down, weights)
    return new, torch.tensor([changed]), of_detectors[1]


def _detect(w: LayerWeights, rows: np.ndarray) -> np.floating:
    """s_z from the detector's rows (K,) of equation 4."""
    return rows[0] if w.D2 is None else rows.dtype.type(w.detect(torch.from_numpy(rows)).item())


def _on_copy(w: LayerWeights, h: np.ndarray) -> np.ndarray:
    """(K,): U·h + b in the detector's rows: equation 4 on COPY."""
    rows, b = w.detector_rows("U"), w.b[-1:] if w.d1 is None else w.d1
    return torch.addmv(b.detach(), rows.detach(), torch.from_numpy(h)).numpy()


def _of_above(w: LayerWeights, above: Tensor, down: Tensor | None) -> np.ndarray:
    """(K,): V·h in the detector's rows."""
    if down is not None:
        return down[0, 4 * w.hidden_size :].numpy()
    return torch.mv(w.detector_rows("V").detach(), above[0].detach()).numpy()


def _stacked(w: LayerWeights, name: str) -> Callable[[np.ndarray], np.ndarray]:
    """A function that multiplies U, W or V with a vector and, if the detector has a hidden layer, its rows, too."""
    first = _product(getattr(w, name).detach())
    if w.D1 is None:
        return first
    second = _product(w.detector_rows(name).detach())
    return lambda vector: np.concatenate([first(vector), second(vector)])


def _product(matrix: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    """A function that multiplies a matrix with a vector.

    NumPy's BLAS uses all cores even for small products, which takes ten times as long if another process uses one of
    them. So small products use einsum, on one core, and large ones torch with its number of threads.
    """
    if matrix.numel() >= LARGE:
        return lambda vector: torch.mv(matrix, torch.from_numpy(vector)).numpy()
    array = matrix.numpy()
    return lambda vector: np.einsum("ij,j->i", array, vector)


class _Layer:
    """One layer during the loop: its current h and c, and products that are computed once per change."""

    def __init__(self, w: LayerWeights, h: Tensor, c: Tensor, zoneout: float) -> None:
        def array(a: Tensor | None) -> np.ndarray | None:
            return None if a is None else a.detach().numpy()

        self.U, self.W, self.b = _stacked(w, "U"), _stacked(w, "W"), w.b.detach().numpy()
        self.V = None if w.V is None else _stacked(w, "V")
        if w.d1 is not None:
            self.b = np.concatenate([self.b, w.d1.detach().numpy()])
        self.w, self.H, self.zoneout = w, w.hidden_size, zoneout
        self.gain_U, self.gain_W, self.gain_V = array(w.gain_U), array(w.gain_W), array(w.gain_V)
        self.gain_c, self.bias_c = array(w.gain_c), array(w.bias_c)
        self.h, self.c = h[0].detach().numpy(), c[0].detach().numpy()
        self._recurrent: np.ndarray | None = None
        self._down: tuple[np.ndarray, np.ndarray] | None = None  # h of the layer above, V·h

    def read_input(self, inputs: Tensor | Symbols) -> tuple[np.ndarray, np.ndarray]:
        """W·x (with layer norm normalised) of the distinct inputs, and for each step the row that it reads."""
        if isinstance(inputs, Symbols):
            occurring, rows = np.unique(inputs.indices[:, 0].numpy(), return_inverse=True)
            x = F.embedding(torch.from_numpy(occurring), inputs.embedding.detach())
        else:
            x, rows = inputs[:, 0].detach(), np.arange(len(inputs))
        products = F.linear(x, self.w.stacked().W.detach()).numpy()
        if self.gain_W is not None:
            for s in products:
                self._normalise(s, self.gain_W)
        return products, rows

    def recurrent(self) -> np.ndarray:
        """U·h + b (equation 5 and the bias), computed once per change of h."""
        if self._recurrent is None:
            self._recurrent = self._normalise(self.U(self.h), self.gain_U) + self.b
        return self._recurrent

    def down(self, above: np.ndarray) -> np.ndarray:
        """V·h (equation 6), computed once per change of h of the layer above."""
        assert self.V is not None
        if self._down is None or self._down[0] is not above:
            self._down = above, self._normalise(self.V(above), self.gain_V)
        return self._down[1]

    def change(self, below: np.ndarray | None, down: np.ndarray | None, flush: bool, is_product: bool) -> np.ndarray:
        """UPDATE or FLUSH: set h and c, and return the pre-activations of equation 4."""
        s = self.recurrent()
        if below is not None:
            s = s + (below if is_product else self._normalise(self.W(below), self.gain_W))  # (7)
        if down is not None:
            s = s + down
        H = self.H
        f, i, o = (1 / (1 + np.exp(-s[: 3 * H]))).reshape(3, H)
        c = i * np.tanh(s[3 * H : 4 * H])
        if not flush:
            c += f * self.c
        if self.zoneout > 0:
            c = self.zoneout * self.c + (1 - self.zoneout) * c
        squashed = c
        if self.gain_c is not None:
            squashed = self._normalise(c.copy(), self.gain_c) + self.bias_c
        self.h, self.c, self._recurrent = o * np.tanh(squashed), c, None
        return s

    def _normalise(self, s: np.ndarray, gain: np.ndarray | None) -> np.ndarray:
        """Apply layer norm in place to the rows that have a gain: all but the detector's."""
        if gain is not None:
            part = s[: len(gain)]
            part -= np.add.reduce(part) / len(part)
            part *= gain / math.sqrt(float(part @ part) / len(part) + LAYER_NORM_EPS)
        return s
