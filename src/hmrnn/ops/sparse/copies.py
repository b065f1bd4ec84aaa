"""What the gradient of boundary states needs of rows that copy: the other operations, had they been chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.reference import normalise, squash_cell
from hmrnn.ops.sparse.log import add

if TYPE_CHECKING:
    from hmrnn.ops.sparse.backward import Layer


class Copies:
    """For every copied event of a layer: by how much h and c would differ had its row flushed, and updated instead.

    Where the layer above is read on COPY too, this also depends on the event that the layer above is in. The loop goes
    backwards with one row (3H) for each sequence, and replaces those that a copy needs.
    """

    @staticmethod
    def of(layer: Layer) -> Copies | None:
        """None if the layer never copies."""
        call, l, above = layer.call, layer.l, layer.above
        copying = ~call.z[1:, :, l - 1]  # (T, B)
        if above is not None and call.options.flush:
            copying &= ~call.z[:-1, :, l]
        if call.active is not None:
            copying &= call.active.cpu().numpy()
        return Copies(layer, copying) if copying.any() else None

    def __init__(self, layer: Layer, copying: np.ndarray) -> None:
        call, w, H, events, above = layer.call, layer.w, layer.H, layer.events, layer.above
        read = np.full(copying.shape, -1)  # (T, B) events of the layer above; -1: it is not read
        if above is not None and w.V is not None:
            read = np.where(call.gate[:-1, :, layer.l], above.events.current[:-1], -1)
        base = read.max() + 2
        pairs, numbers = np.unique((events.current[:-1] * base + read + 1)[copying], return_inverse=True)
        used = events.index(pairs // base)
        s = normalise(events.recurrent[:, : 4 * H].index_select(0, used), w.gain_U) + w.b[: 4 * H]
        if above is not None and (reading := (pairs % base).nonzero()[0]).size:
            product = above.events.downward[:, : 4 * H].index_select(0, events.index(pairs[reading] % base - 1))
            add(s, events.index(reading), normalise(product, w.gain_V))
        f, i, o = torch.sigmoid(s[:, : 3 * H]).chunk(3, dim=1)
        h, c = events.states.index_select(0, used).chunk(2, dim=1)
        self.differences = torch.cat([o * squash_cell(c, w) - h, i * torch.tanh(s[:, 3 * H :]) - c, f * c], dim=1)

        needed = np.zeros((call.T + 1, call.B), dtype=np.int64)  # rows of ``differences``
        needed[:-1][copying] = numbers
        next_copy = np.minimum.accumulate(np.where(copying, np.arange(call.T)[:, None], call.T)[::-1])[::-1]
        needed = np.take_along_axis(needed, next_copy, axis=0)  # at a step without COPY that of the next step
        changed = np.concatenate([needed[:-1] != needed[1:], np.zeros((1, call.B), dtype=bool)])
        counts = changed.sum(axis=1).tolist()
        self.rows = events.index(changed.nonzero()[1]).split(counts)
        self.numbers = events.index(needed[changed]).split(counts)
        self.now = self.differences.index_select(0, events.index(needed[-1]))  # (B, 3H)
        self.parts = self.now.split([2 * H, H], dim=1)
        masks = torch.from_numpy(copying).to(self.now).unbind()
        self.masks = [mask if rows.any() else None for mask, rows in zip(masks, copying)]
        """T of (B,): ones for the rows that copy; None if none does."""

    def at(self, t: int) -> tuple[Tensor, ...]:
        """For step t, later ones having been asked for: (B, 2H) of h and c by FLUSH, (B, H) of c by UPDATE after it."""
        if len(self.rows[t]):
            self.now.index_copy_(0, self.rows[t], self.differences.index_select(0, self.numbers[t]))
        return self.parts
