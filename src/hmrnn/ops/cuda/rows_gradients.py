"""The gradients of weights after a :class:`hmrnn.ops.cuda.rows.RowsPlan`: sums over events instead of all rows."""

from __future__ import annotations

import torch
from torch import Tensor

from hmrnn.ops.cuda.gradients import LayerGradients
from hmrnn.ops.cuda.rows import RowsLayer, RowsPlan


class RowsGradients(LayerGradients):
    """The gradients of one layer's weights, in float32."""

    plan: RowsPlan
    layer: RowsLayer

    def _gate_sums(self) -> None:
        if self.layer.l == 0:
            super()._gate_sums()
            return
        ds = self.layer.ds[self.spec.batch :]
        total = self.layer.logged_events
        self._column_sums(ds, "b", self.layer.stats, total, self.layer.place)

    def _cell_sums(self, c_log: Tensor) -> None:
        if self.layer.l == 0:
            super()._cell_sums(c_log)
        else:
            self._column_sums(c_log[self.spec.batch :], "d_c·x̂", None, self.layer.logged_events)

    def _event(self, name: str) -> Tensor | None:
        return None if name == "V" else self.layer.event

    def _sum(self, name: str, left: Tensor | None, right: Tensor, out: Tensor) -> None:
        """out = Σ left ⊗ right over the rows that the matrix was multiplied with; left None: the gates' gradients.

        ``left`` and ``right`` are in the order of events, but for V they have all rows.
        """
        layer, plan, end = self.layer, self.plan, self.spec.steps
        index: tuple[Tensor | None, Tensor | None] = (None, None)
        total = layer.logged_events
        if name == "V":
            index, total = (layer.readers_place, layer.readers_place), layer.readers_ends[end - 1 :]
        if left is None:
            left = layer.ds.flatten(0, 1) if layer.l == 0 else layer.ds
            if name != "V":
                left = left[self.spec.batch :]
            elif layer.l > 0:
                index = layer.readers_log, layer.readers_place
        config = plan.tile("weights", layer.l)
        M, N = out.shape
        plan.kernels_rows.sum_products[(-(-M // config["BM"]), -(-N // config["BN"]))](
            left, left.stride(0), index[0], right, right.stride(0), index[1], total, out, out.stride(0),
            M=M, N=N, PRECISION=plan.precision, **config,
        )  # fmt: skip

    def _matrix_product(self, name: str, right: Tensor, out: Tensor) -> None:
        if self.layer.l == 0 and name != "V":
            super()._matrix_product(name, right, out)
        else:
            self._sum(name, None, right, out)

    def _gram(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        if self.layer.l == 0 and name != "V":
            return super()._gram(name, left, right)
        width = right.shape[1]
        out = self.spec.new(width, width, dtype=torch.float32)
        self._sum(name, left, right, out)
        return out.to(right.dtype)
