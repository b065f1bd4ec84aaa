"""Captures of the cuda engine: a plan and its CUDA graphs, and how captures of the engine and of callers get along."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hmrnn.ops.cuda.plan import Plan
from hmrnn.ops.interface import LayerWeights

STAGE_BYTES = 70_000
"""Memory that the graphs of a plan take per step and layer, measured on an H200."""
LOADS = 4
"""Largest number of graphs of a captured plan that load weights, one for each set of weights."""

UNCAPTURED = contextvars.ContextVar("uncaptured", default=False)


@contextlib.contextmanager
def uncaptured() -> Iterator[None]:
    """Inside, calls are not captured and nothing is cached: for a caller that captures later calls as a whole."""
    token = UNCAPTURED.set(True)
    try:
        yield
    finally:
        UNCAPTURED.reset(token)


class _Captures:
    """Number of captures in progress in all threads, and whether garbage collection was enabled before the first."""

    lock = threading.Lock()
    in_progress = 0
    gc_was_enabled = False


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph, **options: Any) -> Iterator[None]:
    """``torch.cuda.graph`` with garbage collection disabled.

    Deleting a graph aborts a capture in progress, and Python may delete a graph in a reference cycle, such as that of a
    trainer, at any garbage collection.
    """
    with _Captures.lock:
        if _Captures.in_progress == 0:
            _Captures.gc_was_enabled = gc.isenabled()
            gc.disable()
        _Captures.in_progress += 1
    try:
        with torch.cuda.graph(graph, **options):
            yield
    finally:
        with _Captures.lock:
            _Captures.in_progress -= 1
            if _Captures.in_progress == 0 and _Captures.gc_was_enabled:
                gc.enable()


Places = tuple[tuple[int, torch.dtype, tuple[int, ...]], ...]
"""Address, dtype and strides of tensors."""


@dataclasses.dataclass(eq=False)
class Instance:
    """A plan and, once captured, its graphs.

    A captured instance has its own streams: the workspace of a matrix product belongs to the stream it was captured on,
    so graphs of one stream would share that memory, and lose it when one of them is deleted.
    """

    plan: Plan
    streams: list[torch.cuda.Stream]  # of its lanes; empty: it will not be captured
    graphs: dict[str, torch.cuda.CUDAGraph] = dataclasses.field(default_factory=dict)
    loads: dict[Places, torch.cuda.CUDAGraph] = dataclasses.field(default_factory=dict)
    loaded_from: Places = ()

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes + STAGE_BYTES * self.plan.spec.steps * len(self.plan.spec.sizes)

    def load_weights(self, weights: Sequence[LayerWeights]) -> None:
        """Copy the weights into the plan's buffers; by a graph if they have the same addresses as before."""
        places = tuple((a.data_ptr(), a.dtype, a.stride()) for w in weights for a in w if a is not None)
        if places in self.loads:
            self.loads[places].replay()
            return
        self.plan.load_weights(weights)
        if self.graphs and places == self.loaded_from and len(self.loads) < LOADS:
            self.loads[places] = self._captured(lambda: self.plan.load_weights(weights))
        self.loaded_from = places

    def capture(self) -> None:
        """Capture the graphs, unless that is done; weights and inputs must have been loaded."""
        if not self.streams or self.graphs:
            return
        passes: dict[str, Callable[[], None]] = {"forward": self.plan.forward}
        if self.plan.spec.training:
            passes["backward"] = self.plan.backward
        stream, here = self.streams[0], torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):  # compile kernels and allocate workspaces, which is not allowed in a capture
            for launch in passes.values():
                launch()
        self.graphs = {name: self._captured(launch) for name, launch in passes.items()}
        here.wait_stream(stream)

    def _captured(self, launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, stream=self.streams[0], capture_error_mode="thread_local"):
            launch()
        return graph

    def run(self, name: str) -> None:
        """Run the "forward" or the "backward" pass, by its graph if it is captured."""
        if self.graphs:
            self.graphs[name].replay()
        else:
            getattr(self.plan, name)()
