"""One layer of a single sequence in NumPy, and the loop over layers.

Products of a matrix with a vector are torch's. Everything else is NumPy's, whose calls have less overhead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options
from hmrnn.ops.reference import LAYER_NORM_EPS

LARGE = 1 << 18
"""Elements from which on the product of a matrix with a vector may use several threads."""

Memory = tuple[Tensor, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]
"""What a layer carries from step to step: h, c, and its products ``on_copy``, ``down`` and ``down_rows``."""


def by_einsum(elements: int) -> bool:
    """Whether the product of a matrix of so many elements with a vector uses NumPy's einsum, on one core.

    torch starts all its threads even for small products, which takes many times as long if another process uses one of
    the cores. With one thread torch is the faster one.
    """
    return elements < LARGE and torch.get_num_threads() > 1


class Norm:
    """Layer norm of the rows that have a gain: all but the detector's."""

    def __init__(self, gain: Tensor, result: np.ndarray) -> None:
        """``part`` is what it normalises of ``result``."""
        self.gain: np.ndarray = gain.detach().numpy()
        self.part = result[: len(self.gain)]
        self.share = np.full_like(self.gain, 1 / len(self.gain))  # a product with it is a mean, faster than np.mean

    def __call__(self, part: np.ndarray) -> None:
        """Normalise in place."""
        part -= part @ self.share
        part *= self.gain / math.sqrt(float(part @ part) / len(part) + LAYER_NORM_EPS)


class Product:
    """U, W or V times a vector (1, size), with the rows of the detector's hidden layer if it has one."""

    def __init__(self, w: LayerWeights, name: str, lower: torch.dtype | None) -> None:
        """``lower`` is the dtype of the products, if it is not that of the weights."""
        matrices = [getattr(w, name).detach()] + ([] if w.D1 is None else [w.detector_rows(name).detach()])
        buffer = matrices[0].new_empty(1, sum(map(len, matrices)))
        self.result: np.ndarray = buffer[0].numpy()
        gain = getattr(w, f"gain_{name}")
        self.norm = None if gain is None else Norm(gain, self.result)
        self.lower = lower
        outs = buffer.split([len(a) for a in matrices], dim=1)
        small = lower is None and by_einsum(sum(a.numel() for a in matrices))
        self.in_numpy = [(a.numpy(), out[0].numpy()) for a, out in zip(matrices, outs)] if small else []
        self.in_torch = [] if small else [(a.to(lower or a.dtype).t(), out) for a, out in zip(matrices, outs)]

    def __call__(self, vector: Tensor) -> np.ndarray:
        """The product, with layer norm normalised, in a buffer that the next call overwrites."""
        if self.lower is not None:
            lowered = vector[0].to(self.lower)
            for matrix, out in self.in_torch:
                out.copy_(torch.mv(matrix.t(), lowered))
        else:
            for matrix, out in self.in_torch:
                torch.mm(vector, matrix, out=out)
            for array, into in self.in_numpy:
                np.einsum("ij,j->i", array, vector.numpy()[0], out=into)
        if self.norm is not None:
            self.norm(self.norm.part)
        return self.result


class Layer:
    """One layer: its current h and c, and how they change at a step."""

    h: Tensor  # (1, H)
    c: np.ndarray  # (H,)
    on_copy: np.ndarray | None  # (K,) U·h + b in the detector's rows: equation 4 on COPY
    down: np.ndarray | None  # (R,) V·h of the layer above, if it was computed
    down_rows: np.ndarray | None  # (K,) the same in the detector's rows alone
    moved = False
    """Whether the layer changed at the last step."""

    def __init__(self, w: LayerWeights, zoneout: float, lower: torch.dtype | None = None) -> None:
        self.w, self.H, self.zoneout, self.lower = w, w.hidden_size, zoneout, lower
        self.U, self.W = Product(w, "U", lower), Product(w, "W", lower)
        self.V = None if w.V is None else Product(w, "V", lower)
        self.read_by_detector = {
            name: w.detector_rows(name).detach().to(lower or w.b.dtype)
            for name in ("U", "V")
            if w.has_detector and getattr(w, name) is not None
        }
        b = w.b if w.d1 is None else torch.cat([w.b, w.d1])
        self.b: np.ndarray = b.detach().numpy()
        self.bias_c = None if w.bias_c is None else w.bias_c.detach().numpy()
        self.dtype, self.half = self.b.dtype, self.b.dtype.type(0.5)
        # equation 4 is written over U·h
        self.s, H = self.U.result, self.H
        self.gates, self.sigmoids, self.rows = self.s[: 4 * H], self.s[: 3 * H], self.s[4 * H :]
        self.f, self.i, self.o, self.g = self.gates.reshape(4, H)
        self.squashed = np.empty_like(self.f)
        self.norm_c = None if w.gain_c is None else Norm(w.gain_c, self.squashed)

    def start(self, h: Tensor, c: Tensor) -> Memory:
        """The memory of a layer whose h and c, (1, H), were computed elsewhere."""
        h, c = h.detach(), c.detach()
        return h, c[0].numpy(), self.detector_product("U", h), None, None

    def load(self, memory: Memory) -> None:
        self.h, self.c, self.on_copy, self.down, self.down_rows = memory

    def save(self) -> Memory:
        return self.h, self.c, self.on_copy, self.down, self.down_rows

    def detector_product(self, name: str, h: Tensor) -> np.ndarray | None:
        """(K,): U·h + b or V·h in the detector's rows alone; None for the top layer, which has no detector."""
        rows = self.read_by_detector.get(name)
        if rows is None:
            return None
        product: np.ndarray = torch.mv(rows, h[0].to(rows.dtype)).to(h.dtype).numpy()
        return product + self.b[4 * self.H :] if name == "U" else product

    def read_above(self, above: Tensor) -> np.ndarray:
        """(R,): V·h (equation 6), computed once per change of h of the layer above."""
        assert self.V is not None
        if self.down is None:
            self.down = self.V(above).copy()
        return self.down

    def detector_above(self, above: Tensor) -> np.ndarray:
        """(K,): V·h in the detector's rows, computed once per change of h of the layer above."""
        if self.down is not None:
            return self.down[4 * self.H :]
        if self.down_rows is None:
            self.down_rows = self.detector_product("V", above)
        assert self.down_rows is not None
        return self.down_rows

    def change(self, read: np.ndarray | None, above: np.ndarray | None, flush: bool, new: Tensor | None) -> None:
        """UPDATE or FLUSH: set h, c and ``rows``, the detector's of equation 4; ``read`` is W·h, ``above`` V·h.

        The new h is written to ``new`` (1, H), if there is such a place.
        """
        s = self.U(self.h)
        s += self.b
        if read is not None:
            s += read
        if above is not None:
            s += above
        # the logistic function of a is (tanh(a/2) + 1) / 2
        sigmoids, half = self.sigmoids, self.half
        sigmoids *= half
        np.tanh(self.gates, out=self.gates)
        sigmoids *= half
        sigmoids += half
        c = self.i * self.g
        if not flush:
            self.f *= self.c
            c += self.f
        if self.zoneout > 0:
            c *= 1 - self.zoneout
            c += self.zoneout * self.c
        squashed = c
        if self.norm_c is not None:
            squashed = self.squashed
            squashed[:] = c
            self.norm_c(squashed)
            squashed += self.bias_c
        np.tanh(squashed, out=self.i)
        if new is None:
            new = torch.empty_like(self.h)
        np.multiply(self.o, self.i, out=new.numpy()[0])
        self.h, self.c = new, c

    def detect(self, rows: np.ndarray) -> float:
        """s_z from the detector's rows (K,) of equation 4."""
        return rows.item() if self.w.D2 is None else self.w.detect(torch.from_numpy(rows)).item()


class Loop:
    """The loop over layers of a time step: equations 2-9."""

    z: list[bool]
    """The boundaries of the last step, the first detector's first."""
    gates: list[bool]
    """Gates of the top-down input with top_down="pending"."""

    def __init__(self, layers: Sequence[Layer], options: Options) -> None:
        self.layers, self.top, self.gate = layers, len(layers) - 1, options.gate
        self.flush, self.copy, self.hold = options.flush, options.copy, options.on_copy == "hold"
        self.number = layers[0].dtype.type
        self.s_z: list[float] = []

    def advance(self, first: np.ndarray, forced: Sequence[float], slope: float, new: Sequence[Tensor | None]) -> None:
        """One step of all layers; ``first`` is W·x of the first layer, ``forced`` holds NaN where nothing is forced.

        ``new`` holds for every layer the place that :meth:`Layer.change` writes h to.
        """
        layers, top, always = self.layers, self.top, self.gate == "always"
        gates = self.gates if self.gate == "pending" else self.z
        self.s_z = []
        fed, below = True, layers[0].h  # z⁰ = 1
        for l, layer in enumerate(layers):
            flush = self.flush and l < top and self.z[l]
            gated = layer.V is not None and (always or gates[l])
            layer.moved = fed or flush
            if layer.moved:
                above = layer.read_above(layers[l + 1].h) if gated else None  # still h of the last step
                read = None if not fed else first if l == 0 else layer.W(below)
                layer.change(read, above, flush, new[l])
                rows = layer.rows
                if l > 0:
                    layers[l - 1].down = layers[l - 1].down_rows = None
                    layer.on_copy = layer.detector_product("U", layer.h)
            elif l < top:
                assert layer.on_copy is not None
                rows = layer.on_copy
                if gated:
                    rows = rows + layer.detector_above(layers[l + 1].h)
            if l == top:
                break
            # (8), (9): the boundary
            s_z = layer.detect(rows)
            self.s_z.append(s_z)
            fires = bool(self.number((slope * s_z + 1) / 2) > 0.5) and (layer.moved or not self.hold)
            if forced[l] == forced[l]:  # not NaN
                fires = forced[l] > 0.5
            if self.gate == "pending":
                gates[l] = fires or (gates[l] and not fed)
            self.z[l] = fires
            fed, below = fires or not self.copy, layer.h
