"""The part of the gradient of z that comes from COPY rows: what FLUSH or UPDATE would have changed there."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights
from hmrnn.ops.reference import normalise, squash_cell
from hmrnn.ops.sparse.log import Call, Events, add


class CopyingLayer(Protocol):
    """What is read of a layer of the backward pass."""

    l: int
    H: int
    call: Call
    w: LayerWeights
    events: Events

    @property
    def above(self) -> CopyingLayer | None: ...


class Copies:
    """For the COPY rows of a layer: the change of h and c by FLUSH, and f·c, which UPDATE keeps of c and FLUSH erases.

    They depend on the row's last event and, if the gate of the top-down input can be open on COPY, on the last event of
    the layer above. So each is computed once per pair of events. The backward loop holds one row (3H) per sequence and
    replaces it when the pair changes.
    """

    @staticmethod
    def of(layer: CopyingLayer) -> Copies | None:
        """The copies of a layer; None if it never copies in this call."""
        call, l, above = layer.call, layer.l, layer.above
        copying = ~call.z[1:, :, l - 1]  # (T, B)
        if above is not None and call.options.flush:
            copying &= ~call.z[:-1, :, l]
        if call.active is not None:
            copying &= call.active.cpu().numpy()
        return Copies(layer, copying) if copying.any() else None

    def __init__(self, layer: CopyingLayer, copying: np.ndarray) -> None:
        call, w, H, events, above = layer.call, layer.w, layer.H, layer.events, layer.above
        read = np.full(copying.shape, -1)  # (T, B) event of the layer above; -1: its gate is closed
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
        needed = np.take_along_axis(needed, next_copy, axis=0)  # a step without COPY takes the row of the next COPY
        changed = np.concatenate([needed[:-1] != needed[1:], np.zeros((1, call.B), dtype=bool)])
        counts = changed.sum(axis=1).tolist()
        self.counts = counts
        self.rows = events.index(changed.nonzero()[1]).split(counts)
        self.numbers = events.index(needed[changed]).split(counts)
        self.now = self.differences.index_select(0, events.index(needed[-1]))  # (B, 3H)
        self.parts = self.now.split([2 * H, H], dim=1)
        masks = torch.from_numpy(copying).to(self.now).unbind()
        self.masks = [mask if rows.any() else None for mask, rows in zip(masks, copying)]
        """T of (B,): 1 for rows that copy; None at a step without such rows."""

    def at(self, t: int) -> tuple[Tensor, ...]:
        """The differences at step t: of h and c by FLUSH (B, 2H), and f·c (B, H).

        Steps must be asked for in descending order.
        """
        if self.counts[t]:
            self.now.index_copy_(0, self.rows[t], self.differences.index_select(0, self.numbers[t]))
        return self.parts
