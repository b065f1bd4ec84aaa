"""CapturedUpdate: whole updates as CUDA graphs, one for each shape of batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from hmrnn.ops.cuda import captures

Batch = tuple[Tensor, ...]
LIMIT = 32
"""Largest number of graphs; batches of further shapes run without one."""


@dataclasses.dataclass
class _Kind:
    """Batches with the same shapes and dtypes: how many ran without a graph, the graph and its input tensors."""

    calls: int = 0
    static: Batch = ()
    graph: torch.cuda.CUDAGraph | None = None


class CapturedUpdate:
    """An update as a CUDA graph, one for each kind of batch: tensors with the same shapes and dtypes.

    The first WARM_UP batches of a kind run without a graph, the next is captured, and further ones replay the graph.
    ``update`` may change only tensors that keep their memory. The graphs never run at the same time and keep nothing
    outside those tensors, so they share one memory pool.
    """

    WARM_UP = 3

    def __init__(self, update: Callable[[Batch], None]) -> None:
        self.update = update
        self.stream = torch.cuda.Stream()
        self.kinds: dict[tuple[tuple[torch.Size, torch.dtype], ...], _Kind] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch) -> None:
        key = tuple((a.shape, a.dtype) for a in batch)
        if key not in self.kinds and len(self.kinds) == LIMIT:
            self._run(batch)
            return
        known = self.kinds.setdefault(key, _Kind())
        if known.graph is None and known.calls < self.WARM_UP:
            known.calls += 1
            with captures.uncaptured():  # captures of the engine itself would stay in memory unused
                self._run(batch)
            return
        if known.graph is None:
            known.static = tuple(a.clone() for a in batch)
            known.graph = torch.cuda.CUDAGraph()
            with captures.capturing(known.graph, pool=self.pool, stream=self.stream):
                self.update(known.static)
        for static, now in zip(known.static, batch):
            static.copy_(now)
        known.graph.replay()

    def _run(self, batch: Batch) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):  # gradients must be created on the stream of the capture
            self.update(batch)
        torch.cuda.current_stream().wait_stream(self.stream)
