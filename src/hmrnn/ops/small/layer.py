"""One layer in the forward pass, without and with layer norm."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights
from hmrnn.ops.reference import LAYER_NORM_EPS
from hmrnn.ops.small.track import centred, multiply


class Layer:
    """One layer during the forward loop: its buffers, and views of them for every step."""

    below: Layer | None = None
    above: Layer | None = None

    def __init__(self, w: LayerWeights, first: Tensor | None, h: Tensor, c: Tensor, T: int) -> None:
        B, H, R = len(h), w.hidden_size, len(w.b)
        self.H, self.w = H, w
        self.names = [*([] if first is not None else ["W"]), "U", *([] if w.V is None else ["V"])]
        parts = [self._matrix(name) for name in self.names]
        matrix = torch.cat(parts, dim=1)  # (R, K)
        self.track_x = h.new_empty(T, matrix.shape[1], B)
        views = self.track_x.split([a.shape[1] for a in parts], dim=1)
        self.x_parts = {name: list(a.numpy()) for name, a in zip(self.names, views)}
        # b, or W·x + b in the first layer
        given = w.b[:, None].repeat(1, B)[None] if first is None else first.transpose(1, 2).contiguous()
        matrix[: 3 * H] /= 2  # sigmoid(s) = (tanh(s/2) + 1) / 2
        given[:, : 3 * H] /= 2
        self.matrix, self.product = matrix.numpy(), h.new_empty(len(matrix), B).numpy()
        self.track_s = h.new_empty(T, R, B)
        gates = self.track_s[:, : 4 * H].unflatten(1, (4, H)).numpy()
        self.gates = list(zip(gates, gates[:, :3], *(gates[:, k] for k in range(4))))
        self.s, self.s_z = (list(a.numpy()) for a in (self.track_s[:, : len(matrix)], self.track_s[:, -1]))
        self.given, self.given_z = ([*a.numpy()] * (T // len(a)) for a in (given[:, : len(matrix)], given[:, -1]))
        self.track_hc = h.new_empty(T + 1, 2, H, B)
        self.track_hc[0, 0], self.track_hc[0, 1] = h.t(), c.t()
        self.h, self.c = (list(self.track_hc[:, k].numpy()) for k in range(2))
        self.x, self.spare = list(self.track_x.numpy()), h.new_empty(H, B).numpy()
        self.half = np.array(0.5, self.spare.dtype)  # a Python number takes longer

    def _matrix(self, name: str) -> Tensor:
        """The rows of W, U or V that are multiplied with ``x_parts``."""
        matrix: Tensor = getattr(self.w, name)
        return matrix

    def step(
        self,
        t: int,
        fed: np.ndarray | None,  # (B,); None: all rows read the layer below
        unflushed: np.ndarray | None,  # (B,) 0 on FLUSH; None: no row flushes
        stays: np.ndarray | None,  # (B,) whether a row copies; None: no row does
        gate: np.ndarray | None,  # (B,); None: all rows read the layer above
    ) -> None:
        """Equations 2-7."""
        self._read(t, fed, gate)
        multiply(self.matrix, self.x[t], self.product)
        np.add(self.product, self.given[t], out=self.s[t])
        gates, sigmoids, f, i, o, g = self.gates[t]
        np.tanh(gates, out=gates)
        np.multiply(sigmoids, self.half, out=sigmoids)
        np.add(sigmoids, self.half, out=sigmoids)
        h, c = self.h[t + 1], self.c[t + 1]
        kept = np.multiply(f, self.c[t], out=self.spare)
        if unflushed is not None:
            np.multiply(kept, unflushed, out=kept)
        np.multiply(i, g, out=c)
        np.add(c, kept, out=c)
        if stays is not None:
            np.copyto(c, self.c[t], where=stays)
        np.tanh(self._cell(t, c), out=h)
        np.multiply(h, o, out=h)
        if stays is not None:
            np.copyto(h, self.h[t], where=stays)

    def _read(self, t: int, fed: np.ndarray | None, gate: np.ndarray | None) -> None:
        """Write to ``x`` what the matrix is multiplied with: h below, own and above, gated."""
        x = self.x_parts
        np.copyto(x["U"][t], self.h[t])
        if self.below is not None:
            _write(self.below.h[t + 1], fed, x["W"][t])
        if self.above is not None and "V" in x:
            _write(self.above.h[t], gate, x["V"][t])

    def _cell(self, t: int, c: np.ndarray) -> np.ndarray:
        """The cell after this step, as the output gate reads it."""
        return c

    def norms(self) -> dict[str, Tensor]:
        """What the backward pass needs of layer norm."""
        return {}


class NormalisedLayer(Layer):
    """A layer with layer norm.

    The variance of C·h, where C is a centred matrix, is |R·h|² / 4H for C = QR with an orthogonal Q. So all that the
    layers around read from h, through U, V and W, is divided by the deviations before the one product with the
    matrices; the gains are factors of these.
    """

    below: NormalisedLayer | None = None
    above: NormalisedLayer | None = None

    def __init__(self, w: LayerWeights, first: Tensor | None, h: Tensor, c: Tensor, T: int) -> None:
        super().__init__(w, first, h, c, T)
        assert w.gain_c is not None
        assert w.bias_c is not None
        B, dtype = len(h), self.spare.dtype
        self.gain_c, self.bias_c = (a[:, None].repeat(1, B).numpy() for a in (w.gain_c, w.bias_c))
        self.mean_c, self.means = np.full(self.H, 1 / self.H, dtype), np.empty(B, dtype)
        # the mean of squares plus epsilon is one product, as a last row holds 1
        self.mean_squares = np.append(self.mean_c, dtype.type(LAYER_NORM_EPS))
        self.squares_c = np.ones((self.H + 1, B), dtype)
        self.squares_rows = self.squares_c[:-1]
        self.track_c = h.new_empty(T, self.H + 1, B)
        self.norm_c = list(zip(self.track_c[:, :-1].numpy(), self.track_c[:, -1].numpy()))
        self.T, self.detects = T, w.has_detector

    def _matrix(self, name: str) -> Tensor:
        gain: Tensor = getattr(self.w, f"gain_{name}")
        return gain[:, None] * centred(self.w, name)

    def start(self) -> None:
        """Prepare to be read by the layer itself, the layer below and the layer above, once these are known."""
        readers: list[tuple[str, NormalisedLayer]] = [("U", self)]
        if self.below is not None and self.below.w.V is not None:
            readers.append(("V", self.below))
        if self.above is not None:
            readers.append(("W", self.above))
        roots = [torch.linalg.qr(centred(reader.w, name), mode="r")[1] for name, reader in readers]
        rows = [getattr(reader.w, name)[4 * reader.H :] for name, reader in readers]  # of detectors
        self.reading, B, dtype = torch.cat([*roots, *rows]).numpy(), self.spare.shape[1], self.spare.dtype
        self.found, count = np.empty((len(self.reading), B), dtype), sum(map(len, roots))
        self.products, self.squares = self.found[:count], np.ones((count + 1, B), dtype)  # a last row holds 1
        self.squares_of_products = self.squares[:-1]
        self.sums = np.zeros((len(readers), count + 1), dtype)
        self.sums[:, -1] = LAYER_NORM_EPS
        deviations = np.empty((self.T + 1, len(readers), B), dtype)
        self.deviations = list(deviations)
        self.inverse: dict[str, np.ndarray] = {}  # of the deviation of what each reads
        self.detected: dict[str, np.ndarray] = {}  # what each detector reads
        row, detector = 0, count
        for k, ((name, reader), root) in enumerate(zip(readers, roots)):
            self.sums[k, row : row + len(root)] = 1 / (4 * reader.H)
            row += len(root)
            self.inverse[name] = deviations[:, k]
            if reader.detects:
                self.detected[name] = self.found[detector]
                detector += 1
        self.inverses = {name: list(a) for name, a in self.inverse.items()}
        self._be_read(0)

    def _be_read(self, t: int) -> None:
        """Compute the deviations and the inputs of detectors that come from h."""
        multiply(self.reading, self.h[t], self.found)
        np.multiply(self.products, self.products, out=self.squares_of_products)
        deviations = np.dot(self.sums, self.squares, out=self.deviations[t])
        np.sqrt(deviations, out=deviations)
        np.reciprocal(deviations, out=deviations)

    def step(
        self,
        t: int,
        fed: np.ndarray | None,
        unflushed: np.ndarray | None,
        stays: np.ndarray | None,
        gate: np.ndarray | None,
    ) -> None:
        super().step(t, fed, unflushed, stays, gate)
        self._be_read(t + 1)

    def _read(self, t: int, fed: np.ndarray | None, gate: np.ndarray | None) -> None:
        x, below, above, detected = self.x_parts, self.below, self.above, self.detected.get("U")
        np.multiply(self.h[t], self.inverses["U"][t], out=x["U"][t])
        if below is not None:
            scale = below.inverses["W"][t + 1]
            np.multiply(below.h[t + 1], scale if fed is None else scale * fed, out=x["W"][t])
            if detected is not None:
                read = below.detected["W"]
                detected = detected + (read if fed is None else read * fed)
        if above is not None and "V" in x:
            scale = above.inverses["V"][t]
            np.multiply(above.h[t], scale if gate is None else scale * gate, out=x["V"][t])
            if detected is not None:
                read = above.detected["V"]
                detected = detected + (read if gate is None else read * gate)
        if detected is not None:
            np.add(self.given_z[t], detected, out=self.s_z[t])

    def _cell(self, t: int, c: np.ndarray) -> np.ndarray:
        normal, inverse = self.norm_c[t]
        np.subtract(c, np.dot(self.mean_c, c, out=self.means), out=normal)
        np.multiply(normal, normal, out=self.squares_rows)
        np.dot(self.mean_squares, self.squares_c, out=inverse)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        np.multiply(normal, inverse, out=normal)
        np.multiply(normal, self.gain_c, out=self.spare)
        return np.add(self.spare, self.bias_c, out=self.spare)

    def norms(self) -> dict[str, Tensor]:
        sources = {"W": self.below, "U": self, "V": self.above}
        found = {"c": self.track_c}
        for name in self.names:
            source = sources[name]
            assert source is not None
            steps = source.inverse[name][1:] if name == "W" else source.inverse[name][:-1]
            found[name] = torch.from_numpy(steps)
        return found


def link(layers: Sequence[Layer]) -> None:
    """Tell each layer its neighbours."""
    for below, above in itertools.pairwise(layers):
        below.above, above.below = above, below
    for layer in layers:
        if isinstance(layer, NormalisedLayer):
            layer.start()


def unlink(layers: Sequence[Layer]) -> None:
    """Remove the reference cycles, so that memory is freed at once."""
    for layer in layers:
        layer.below = layer.above = None


def _write(h: np.ndarray, factor: np.ndarray | None, out: np.ndarray) -> None:
    """Write h (size, B) times a factor (B,), if there is one, to ``out``."""
    if factor is None:
        np.copyto(out, h)
    else:
        np.multiply(h, factor, out=out)
