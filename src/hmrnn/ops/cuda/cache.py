"""What the cuda engine keeps from call to call: plans, the graphs that are captured of them, and streams.

A :class:`Device` lends an :class:`Instance` to each call, which gives it back after its backward pass. When a shape
comes back its launches are captured; graphs and the buffers they are bound to are kept for the next call of that shape,
a bounded number of them.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hmrnn.ops.cuda.layer import Spec
from hmrnn.ops.cuda.plan import Lanes, Plan
from hmrnn.ops.interface import LayerWeights

KEPT, KEPT_SHARE = 8, 0.25
"""How many captured plans that no call is using a device keeps, and in what share of its memory; one in any case."""
STAGE_BYTES = 70_000
"""What the graphs of a plan take for each step and layer, as measured on an H200."""
STREAMS = 32
"""How many streams a device has for captures; a call that finds none left is not captured."""
LOADS = 4
"""How many sets of weights a captured plan has graphs for that load them."""
REMEMBERED = 256
"""How many shapes a device remembers to have met."""

_uncaptured = contextvars.ContextVar("uncaptured", default=False)


@contextlib.contextmanager
def uncaptured() -> Iterator[None]:
    """Calls within launch as they are, and leave nothing behind: for a caller who captures the next ones as a whole."""
    token = _uncaptured.set(True)
    try:
        yield
    finally:
        _uncaptured.reset(token)


class _Captures:
    """How many are under way, in all threads, and whether garbage was collected before the first."""

    lock = threading.Lock()
    under_way = 0
    collected = False


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph, **options: Any) -> Iterator[None]:
    """``torch.cuda.graph`` in which no garbage is collected.

    A graph that is deleted while another is captured breaks the capture off, and one that is part of a cycle, as those
    of a trainer are, is deleted whenever Python collects.
    """
    with _Captures.lock:
        if _Captures.under_way == 0:
            _Captures.collected = gc.isenabled()
            gc.disable()
        _Captures.under_way += 1
    try:
        with torch.cuda.graph(graph, **options):
            yield
    finally:
        with _Captures.lock:
            _Captures.under_way -= 1
            if _Captures.under_way == 0 and _Captures.collected:
                gc.enable()


Places = tuple[tuple[int, torch.dtype, tuple[int, ...]], ...]
"""Where tensors lie in memory, and how."""


@dataclasses.dataclass(eq=False)
class Instance:
    """A plan and, once captured, its graphs.

    Captured instances have streams of their own: the workspace of a matrix product belongs to the stream that it was
    captured on, so graphs that share a stream share scratch memory, and can lose it when one of them is deleted.
    """

    plan: Plan
    streams: list[torch.cuda.Stream]  # of its lanes; none: it will not be captured
    graphs: dict[str, torch.cuda.CUDAGraph] = dataclasses.field(default_factory=dict)
    loads: dict[Places, torch.cuda.CUDAGraph] = dataclasses.field(default_factory=dict)
    loaded_from: Places = ()

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes + STAGE_BYTES * self.plan.spec.steps * len(self.plan.spec.sizes)

    def load_weights(self, weights: Sequence[LayerWeights]) -> None:
        """By a graph, where the weights lie where they lay before."""
        places = tuple((a.data_ptr(), a.dtype, a.stride()) for w in weights for a in w if a is not None)
        if places in self.loads:
            self.loads[places].replay()
            return
        self.plan.load_weights(weights)
        if self.graphs and places == self.loaded_from and len(self.loads) < LOADS:
            self.loads[places] = self._captured(lambda: self.plan.load_weights(weights))
        self.loaded_from = places

    def capture(self) -> None:
        """Record the graphs; weights and inputs must have been loaded."""
        if not self.streams or self.graphs:
            return
        passes: dict[str, Callable[[], None]] = {"forward": self.plan.forward}
        if self.plan.spec.training:
            passes["backward"] = self.plan.backward
        stream, here = self.streams[0], torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):  # compiles kernels and allocates workspaces, which cannot be done in a capture
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
        """The "forward" or the "backward" pass."""
        if self.graphs:
            self.graphs[name].replay()
        else:
            getattr(self.plan, name)()


class Lease:
    """An instance in the hands of one call; given back after its backward pass, or when there can be none any more."""

    def __init__(self, instance: Instance, owner: Device) -> None:
        self.held: list[Instance] = [instance]
        self.owner = owner
        self.worked_over = False  # by a backward pass, which needs the forward pass's logs fresh

    @property
    def plan(self) -> Plan:
        return self.held[0].plan

    def forward(self) -> None:
        self.held[0].capture()
        self.held[0].run("forward")

    def backward(self) -> None:
        if self.worked_over:
            self.held[0].run("forward")
        self.worked_over = True
        self.held[0].run("backward")

    def release(self) -> None:
        while self.held:
            instance = self.held.pop()
            if instance.graphs:
                self.owner.idle.append(instance)
            else:
                self.owner.streams += instance.streams

    def __del__(self) -> None:
        self.release()


class Device:
    """What the engine keeps on one GPU. (On a CPU, where tests interpret the kernels, nothing.)"""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.idle: list[Instance] = []
        self.streams: list[torch.cuda.Stream] = []  # of no instance
        self._streams_made = 0
        self._side: list[torch.cuda.Stream] = []  # for launches that a caller captures
        self._met: dict[Spec, None] = {}
        self._lock = threading.RLock()
        self._last: torch.cuda.Event | None = None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One call after another, from whatever thread or stream: buffers change hands between them."""
        autocast = torch.autocast(self.device.type, enabled=False)
        with self._lock, torch.inference_mode(False), torch.no_grad(), autocast:
            if self.device.type != "cuda":
                yield
                return
            with torch.cuda.device(self.device):
                here = torch.cuda.current_stream()
                captured_by_caller = torch.cuda.is_current_stream_capturing()
                if self._last is not None and not captured_by_caller:
                    here.wait_event(self._last)
                yield
                if not captured_by_caller:
                    self._last = torch.cuda.Event()
                    self._last.record(here)

    def lend(self, spec: Spec, often: bool = False) -> Lease:
        """An instance for ``spec``; one that gets captured if ``often``, or if the shape was met before."""
        wanted = (len(spec.sizes) + 1) // 2
        if self.device.type != "cuda":
            return Lease(Instance(Plan(spec, Lanes()), []), self)
        if torch.cuda.is_current_stream_capturing():
            while len(self._side) < wanted:
                self._side.append(torch.cuda.Stream(self.device, priority=-1))
            apart, *side = self._side[:wanted]
            return Lease(Instance(Plan(spec, Lanes(side, apart)), []), self)
        self._make_room()
        for i, instance in reversed(list(enumerate(self.idle))):
            if instance.plan.spec == spec:
                return Lease(self.idle.pop(i), self)
        if _uncaptured.get():
            return Lease(Instance(Plan(spec, Lanes()), []), self)
        often = often or spec in self._met
        self._met.pop(spec, None)
        self._met[spec] = None
        if not often or not self._enough_streams(wanted):
            return Lease(Instance(Plan(spec, Lanes()), []), self)
        streams = [self.streams.pop() for _ in range(wanted)]
        return Lease(Instance(Plan(spec, Lanes(streams[1:], self._apart)), streams), self)

    @functools.cached_property
    def _apart(self) -> torch.cuda.Stream:
        """Of lower priority than the lanes. It has copies alone, no matrix product, so captured instances share it."""
        return torch.cuda.Stream(self.device, priority=-1)

    def _enough_streams(self, wanted: int) -> bool:
        """Make streams if need be; torch has a limited number of different ones."""
        while len(self.streams) < wanted and self._streams_made < STREAMS:
            self.streams.append(torch.cuda.Stream(self.device, priority=-2))
            self._streams_made += 1
        return len(self.streams) >= wanted

    def _make_room(self) -> None:
        """Forget what was used longest ago."""
        while len(self._met) > REMEMBERED:
            self._met.pop(next(iter(self._met)))
        limit = KEPT_SHARE * torch.cuda.get_device_properties(self.device).total_memory
        while len(self.idle) > KEPT or (len(self.idle) > 1 and sum(one.nbytes for one in self.idle) > limit):
            if self._last is not None:
                self._last.synchronize()  # the memory may go to another stream than the one that used it last
            self.streams += self.idle.pop(0).streams

    def forget(self) -> None:
        """Give back all that no call is using."""
        with self._lock:
            if self._last is not None:
                self._last.synchronize()
            while self.idle:
                self.streams += self.idle.pop().streams
            self._met.clear()


_devices: dict[torch.device, Device] = {}


def forget() -> None:
    """Give back the buffers and graphs that are kept for shapes to come back, on every device."""
    for device in list(_devices.values()):
        device.forget()


def on(device: torch.device) -> Device:
    """What is kept there."""
    if device not in _devices:
        _devices.setdefault(device, Device(device))
    return _devices[device]
