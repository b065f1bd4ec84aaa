"""A layer with layer norm in the backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.small.backward import BLOCK, Layer, flat, outer
from hmrnn.ops.small.track import centred, multiply


class NormalisedLayer(Layer):
    """A layer with layer norm.

    What a matrix C, centred, is multiplied with is x = factor · h / deviation, where deviation² = h·Qh + epsilon and
    Q = CᵀC / 4H. So a gradient dx gives the factor the gradient to = dx · h / deviation. It gives h, less what comes
    through the deviation, factor / deviation · (dx - to · Qh / deviation).

    ``ds_all`` has further rows if there is a detector: the gradient of s_z for each of W, U and V, times the deviation
    by which ``dx`` is divided later.
    """

    below: NormalisedLayer | None = None
    above: NormalisedLayer | None = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        w, track, (K, B), (T, R) = self.w, self.track, self.dx.shape, self.ds.shape[:2]
        assert w.gain_c is not None
        assert w.bias_c is not None
        dtype = self.dx.dtype
        self.gain_c, self.bias_c, self.norm_c = w.gain_c.numpy(), w.bias_c.numpy(), track.norm_c.numpy()
        self.mean_c, self.d_cell = np.full(self.H, 1 / self.H, dtype), np.empty((T, self.H, B), dtype)
        self.inverse = np.stack([getattr(track, f"norm_{name}").numpy() for name in self.names], axis=1)
        self.deviation, self.ds_detector = 1 / self.inverse, self.ds_all[:, R:].numpy()
        self.factors = {"W": self.fed, "U": np.ones_like(self.fed), "V": self.gate[:-1]}
        self.sums = np.repeat(np.eye(len(self.sizes), dtype=dtype), self.sizes, axis=1)  # (parts, K)
        self.spread, self.buffer = np.ascontiguousarray(self.sums.T), np.empty((K, B), dtype)
        self.to_factors = np.empty((T, len(self.sizes), B), dtype)  # the gradients of the factors by layer norm alone
        self.by_covariance = []  # with the detector's row below
        for name in self.names:
            matrix = centred(w, name)
            self.by_covariance.append(torch.cat([matrix.t() @ matrix / len(matrix), getattr(w, name)[4 * self.H :]]))
        steps = max(1, BLOCK // self.dh.size)
        self.normal, self.along, self.scales = np.empty((3, steps, K, B), dtype)
        self.detected = np.empty((steps, len(self.sizes), B), dtype)

    def _matrix(self, name: str) -> Tensor:
        gain: Tensor = getattr(self.w, f"gain_{name}")
        return gain[:, None] * centred(self.w, name)

    def _transposed(self, matrix: Tensor) -> Tensor:
        if not self.w.has_detector:
            return matrix.contiguous()
        rows = [getattr(self.w, name)[4 * self.H :].t() for name in self.names]
        return torch.cat([matrix, matrix.new_zeros(len(matrix), 1), torch.block_diag(*rows)], dim=1)

    def _read(self, name: str, steps: slice) -> Tensor:
        """(n, size, B): what W, U or V reads at these steps, before gates and layer norm."""
        if name == "W":
            assert self.below is not None
            return self.below.track.hc[1:, 0][steps]
        if name == "U":
            return self.track.hc[:-1, 0][steps]
        assert self.above is not None
        return self.above.track.hc[:-1, 0][steps]

    def _prepare_block(self, last: int) -> None:
        super()._prepare_block(last)
        here, count, row = slice(self.block_start, last + 1), last + 1 - self.block_start, 0
        for k, (name, size) in enumerate(zip(self.names, self.sizes)):
            h, inverse, factor = self._read(name, here), self.inverse[here, k, None], self.factors[name][here, None]
            part, scale = (slice(count), slice(row, row + size)), inverse * factor
            found = torch.matmul(self.by_covariance[k], h).numpy()
            np.multiply(h.numpy(), inverse, out=self.normal[part])
            np.multiply(found[:, :size], scale * inverse, out=self.along[part])
            self.scales[part] = scale
            if self.w.has_detector:
                self.detected[:count, k] = found[:, size]
            row += size
        self.scale_c = self.norm_c[here, -1:] * self.gain_c[:, None]

    def _squashed(self, first: int, last: int) -> np.ndarray:
        normal = self.norm_c[first : last + 1, :-1] * self.gain_c[:, None] + self.bias_c[:, None]
        return np.tanh(normal, out=normal)

    def _into_cell(self, t: int, now: int, dh: np.ndarray, dc: np.ndarray) -> None:
        normal, d = self.norm_c[t, :-1], self.spare
        np.multiply(np.multiply(dh, self.cell[now], out=self.d_cell[t]), self.scale_c[now], out=d)
        along = d * normal
        np.add(dc, d, out=dc)
        np.subtract(dc, np.dot(self.mean_c, d), out=dc)
        np.subtract(dc, np.multiply(normal, np.dot(self.mean_c, along), out=along), out=dc)

    def _multiply(self, t: int, now: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        dx, buffer, norms = self.dx, self.buffer, self.to_factors[t]
        if self.w.has_detector:
            np.multiply(self.ds_z[t], self.deviation[t], out=self.ds_detector[t])
        multiply(self.matrix, self.ds_steps[t], dx)
        to = np.dot(self.sums, np.multiply(dx, self.normal[now], out=buffer))
        if self.w.has_detector:
            np.subtract(to, np.multiply(self.detected[now], self.ds_z[t], out=norms), out=norms)
        else:
            np.copyto(norms, to)
        np.multiply(dx, self.scales[now], out=dx)
        np.multiply(np.dot(self.spread, norms, out=buffer), self.along[now], out=buffer)
        np.subtract(dx, buffer, out=dx)
        return to[0] if self.copies else None, to[-1] if self.gated and self.dx_above is not None else None

    def weight_gradients(self) -> dict[str, Tensor]:
        found = {} if self.l == 0 else {"b": self.ds.sum((0, 2))}
        ds_z = flat(self.ds[:, 4 * self.H :])
        for k, (name, d) in enumerate(
            zip(self.names, outer(self.ds[:, : 4 * self.H], self.track.x).split(self.sizes, 1))
        ):
            gain, matrix, h = (
                getattr(self.w, f"gain_{name}"),
                centred(self.w, name),
                flat(self._read(name, slice(None))),
            )
            found[f"gain_{name}"] = (d * matrix).sum(1)
            factor = self.factors[name]
            shrink = torch.from_numpy(self.to_factors[:, k] * self.inverse[:, k] ** 2 * factor).flatten()
            d = gain[:, None] * d - matrix @ ((h * shrink) @ h.t() / len(matrix))
            found[name] = torch.cat([d - d.mean(0), (ds_z * torch.from_numpy(factor).flatten()) @ h.t()])
        found["gain_c"] = torch.from_numpy((self.d_cell * self.norm_c[:, :-1]).sum((0, 2)))
        found["bias_c"] = torch.from_numpy(self.d_cell.sum((0, 2)))
        return found
