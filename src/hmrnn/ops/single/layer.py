"""One layer of a single sequence in NumPy, and the loop over layers.

Products of a matrix with a vector are torch's. Everything else is NumPy's, whose calls have less overhead; least if
scalars are arrays and results have a place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options
from hmrnn.ops.reference import LAYER_NORM_EPS, normalise

LARGE = 1 << 18
"""Elements from which on the product of a matrix with a vector may use several threads."""


class Memory(NamedTuple):
    """What a layer carries from step to step."""

    h: np.ndarray  # (H,)
    c: np.ndarray  # (H,)
    on_copy: np.ndarray | None  # (K,) U·h + b in the detector's rows: equation 4 on COPY
    down: np.ndarray | None = None  # (R,) V·h of the layer above, if it was computed
    down_rows: np.ndarray | None = None  # (K,) the same in the detector's rows alone


def by_einsum(elements: int) -> bool:
    """Whether the product of a matrix of so many elements with a vector uses NumPy's einsum, on one core.

    torch starts all its threads even for small products, which takes many times as long if another process uses one of
    the cores. With one thread torch is the faster one.
    """
    return elements < LARGE and torch.get_num_threads() > 1


class Norm:
    """Layer norm of one vector."""

    def __init__(self, gain: Tensor, bias: Tensor | None = None) -> None:
        self.gain: np.ndarray = gain.detach().numpy()
        self.bias: np.ndarray | None = None if bias is None else bias.detach().numpy()
        self.size, self.scaled = len(gain), np.empty_like(self.gain)
        self.share = np.full_like(self.gain, 1 / self.size)  # a product with it is a mean, faster than np.mean
        self.number = np.empty((), self.gain.dtype)

    def __call__(self, part: np.ndarray, out: np.ndarray) -> None:
        number, scaled = self.number, self.scaled
        part.dot(self.share, number)
        np.subtract(part, number, out)
        number[()] = 1 / math.sqrt(float(out.dot(out)) / self.size + LAYER_NORM_EPS)
        np.multiply(self.gain, number, scaled)
        np.multiply(out, scaled, out)
        if self.bias is not None:
            np.add(out, self.bias, out)


class Matrix:
    """U, W or V, with the rows of the detector's hidden layer if it has one; several threads may share it."""

    def __init__(self, w: LayerWeights, name: str, lower: torch.dtype | None) -> None:
        """``lower`` is the dtype of the products, if it is not that of the weights."""
        self.weight: Tensor = getattr(w.stacked(), name).detach()  # (R, size)
        self.gain: Tensor | None = getattr(w, f"gain_{name}")
        self.small = lower is None and by_einsum(self.weight.numel())
        self.lowered = None if lower is None else self.weight.to(lower)
        self.columns = self.weight.t()

    def settle(self) -> None:
        """Copy the matrix so that each column lies together, which takes as long as some hundred products save."""
        if self.lowered is None and not self.small:
            self.columns = self.columns.contiguous()


class Product:
    """A matrix times a vector (1, size)."""

    def __init__(self, of: Matrix) -> None:
        self.of = of
        self.out = of.weight.new_empty(1, len(of.weight))
        self.result: np.ndarray = self.out[0].numpy()
        self.norm = None if of.gain is None else Norm(of.gain)
        self.part = self.result if of.gain is None else self.result[: len(of.gain)]

    def __call__(self, vector: Tensor) -> np.ndarray:
        """The product, with layer norm normalised, in a buffer that the next call overwrites."""
        of = self.of
        if of.lowered is not None:
            self.out[0].copy_(torch.mv(of.lowered, vector[0].to(of.lowered.dtype)))
        elif of.small:
            np.einsum("ij,j->i", of.weight.numpy(), vector.numpy()[0], out=self.result)
        else:
            torch.mm(vector, of.columns, out=self.out)
        if self.norm is not None:
            self.norm(self.part, self.part)
        return self.result


class Prepared:
    """The weights of a layer, made ready for products."""

    def __init__(self, w: LayerWeights, lower: torch.dtype | None) -> None:
        self.w, self.lower, self.H = w, lower, w.hidden_size
        self.U, self.W = Matrix(w, "U", lower), Matrix(w, "W", lower)
        self.V = None if w.V is None else Matrix(w, "V", lower)
        self.read_by_detector = {
            name: w.detector_rows(name).detach().to(lower or w.b.dtype)
            for name in ("U", "V")
            if w.has_detector and getattr(w, name) is not None
        }
        self.b: np.ndarray = w.stacked().b.detach().numpy()

    def settle(self) -> None:
        for matrix in (self.U, self.W, *([] if self.V is None else [self.V])):
            matrix.settle()

    def first(self, x: Tensor) -> np.ndarray:
        """(n, R): W·x + b of the first layer for inputs (n, size)."""
        products: np.ndarray = normalise(F.linear(x, self.W.weight), self.W.gain).detach().numpy()
        return products + self.b

    def detector_product(self, name: str, h: np.ndarray) -> np.ndarray | None:
        """(K,): U·h + b or V·h in the detector's rows alone; None for the top layer, which has no detector."""
        rows = self.read_by_detector.get(name)
        if rows is None:
            return None
        if self.lower is None and len(rows) == 1:
            product: np.ndarray = rows.numpy().dot(h)
        else:
            product = torch.mv(rows, torch.from_numpy(h).to(rows.dtype)).to(self.w.b.dtype).numpy()
        return product + self.b[4 * self.H :] if name == "U" else product


class Layer:
    """One layer: its current h and c, and how they change at a step."""

    c: np.ndarray  # (H,); the others of Memory, too, are replaced, never changed
    on_copy: np.ndarray | None
    down: np.ndarray | None
    down_rows: np.ndarray | None
    moved = False
    """Whether the layer changed at the last step."""

    def __init__(self, of: Prepared, zoneout: float) -> None:
        self.of, self.H, self.zoneout, self.w = of, of.H, zoneout, of.w
        self.U, self.W = Product(of.U), Product(of.W)
        self.V = None if of.V is None else Product(of.V)
        self.b, self.dtype = of.b, of.b.dtype
        # equation 4 is written over U·h
        self.s, H = self.U.result, self.H
        self.gates, self.sigmoids, self.rows = self.s[: 4 * H], self.s[: 3 * H], self.s[4 * H :]
        self.f, self.i, self.o, self.g = self.gates.reshape(4, H)
        self.half = np.array(0.5, self.dtype)
        self.norm_c = None if of.w.gain_c is None else Norm(of.w.gain_c, of.w.bias_c)
        self.as_tensor = self.U.out.new_zeros(1, H)
        self.h: np.ndarray = self.as_tensor[0].numpy()

    def start(self, h: Tensor, c: Tensor) -> Memory:
        """The memory of a layer whose h and c, (1, H), were computed elsewhere."""
        values: np.ndarray = h.detach()[0].numpy()
        return Memory(values, c.detach()[0].numpy(), self.of.detector_product("U", values))

    def load(self, memory: Memory) -> None:
        self.h[:], self.c, self.on_copy, self.down, self.down_rows = memory

    def read(self, below: Tensor) -> np.ndarray:
        """(R,): W·h + b, from h of the layer below or x (1, size)."""
        product = self.W(below)
        return np.add(product, self.b, product)

    def read_above(self, above: Layer) -> np.ndarray:
        """(R,): V·h (equation 6), computed once per change of h of the layer above."""
        assert self.V is not None
        if self.down is None:
            self.down = self.V(above.as_tensor).copy()
        return self.down

    def detector_above(self, above: Layer) -> np.ndarray:
        """(K,): V·h in the detector's rows, computed once per change of h of the layer above."""
        if self.down is not None:
            return self.down[4 * self.H :]
        if self.down_rows is None:
            self.down_rows = self.of.detector_product("V", above.h)
        assert self.down_rows is not None
        return self.down_rows

    def change(self, read: np.ndarray, above: np.ndarray | None, flush: bool) -> None:
        """UPDATE or FLUSH: set h, c and ``rows``, the detector's of equation 4.

        ``read`` is W·h + b, or b if the layer does not read the one below; ``above`` is V·h.
        """
        s = self.U(self.as_tensor)
        np.add(s, read, s)
        if above is not None:
            np.add(s, above, s)
        sigmoids, half, i = self.sigmoids, self.half, self.i
        # the logistic function of a is (tanh(a/2) + 1) / 2
        np.multiply(sigmoids, half, sigmoids)
        np.tanh(self.gates, self.gates)
        np.multiply(sigmoids, half, sigmoids)
        np.add(sigmoids, half, sigmoids)
        c = i * self.g
        if not flush:
            np.multiply(self.f, self.c, self.f)
            np.add(c, self.f, c)
        if self.zoneout > 0:
            c *= 1 - self.zoneout
            c += self.zoneout * self.c
        if self.norm_c is None:
            np.tanh(c, i)
        else:
            self.norm_c(c, i)
            np.tanh(i, i)
        np.multiply(self.o, i, self.h)
        self.c = c

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
        # a number above it is above one half in the dtype of the layers
        self.threshold = 0.5 + float(np.finfo(layers[0].dtype).eps) / 4
        self.s_z: list[float] = []

    def advance(self, first: np.ndarray, forced: Sequence[float], slope: float) -> None:
        """One step of all layers.

        ``first`` is W·x + b of the first layer, ``forced`` holds NaN where nothing is forced.
        """
        layers, top, always = self.layers, self.top, self.gate == "always"
        gates = self.gates if self.gate == "pending" else self.z
        self.s_z = []
        fed = True  # z⁰ = 1
        for l, layer in enumerate(layers):
            flush = self.flush and l < top and self.z[l]
            gated = layer.V is not None and (always or gates[l])
            layer.moved = fed or flush
            if layer.moved:
                above = layer.read_above(layers[l + 1]) if gated else None  # still h of the last step
                read = layer.b
                if l == 0:
                    read = first
                elif fed:
                    read = layer.read(layers[l - 1].as_tensor)
                layer.change(read, above, flush)
                rows = layer.rows
                if l > 0:
                    layers[l - 1].down = layers[l - 1].down_rows = None
                    layer.on_copy = layer.of.detector_product("U", layer.h)
            elif l < top:
                assert layer.on_copy is not None
                rows = layer.on_copy
                if gated:
                    rows = rows + layer.detector_above(layers[l + 1])
            if l == top:
                break
            # (8), (9): the boundary
            s_z = layer.detect(rows)
            self.s_z.append(s_z)
            fires = (slope * s_z + 1) / 2 > self.threshold and (layer.moved or not self.hold)
            if forced[l] == forced[l]:  # not NaN
                fires = forced[l] > 0.5
            if self.gate == "pending":
                gates[l] = fires or (gates[l] and not fed)
            self.z[l] = fires
            fed = fires or not self.copy
