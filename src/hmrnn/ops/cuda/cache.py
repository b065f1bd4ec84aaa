"""The cuda engine's cache of plans, captured CUDA graphs and streams.

A :class:`Device` lends an :class:`Instance` to each call, which returns it after its backward pass. At the second call
of a shape its launches are captured. Graphs and their buffers are kept for further calls of that shape, up to a limit.
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

from hmrnn.ops.cuda import choice
from hmrnn.ops.cuda.layer import Spec
from hmrnn.ops.cuda.plan import Lanes, Plan
from hmrnn.ops.cuda.rows import RowsPlan, Streams
from hmrnn.ops.interface import LayerWeights

KEPT, KEPT_SHARE = 8, 0.25
"""Largest number of idle captured plans on a device, and largest share of its memory for them; one is always kept."""
STAGE_BYTES = 70_000
"""Memory that the graphs of a plan take per step and layer, measured on an H200."""
STREAMS = 32
"""Number of streams for captures on a device; a call for which none is free is not captured."""
LOADS = 4
"""Largest number of graphs of a captured plan that load weights, one for each set of weights."""
REMEMBERED = 256
"""Largest number of shapes that a device remembers, to capture them at their second call."""

_uncaptured = contextvars.ContextVar("uncaptured", default=False)


@contextlib.contextmanager
def uncaptured() -> Iterator[None]:
    """Inside, calls are not captured and nothing is cached: for a caller that captures later calls as a whole."""
    token = _uncaptured.set(True)
    try:
        yield
    finally:
        _uncaptured.reset(token)


class Watched:
    """The calls in a capture of a caller who looks after each replay whether their logs had room for all events."""

    def __init__(self) -> None:
        self.calls: list[tuple[Device, Spec, torch.Tensor]] = []  # with their numbers of events

    def enough(self) -> torch.Tensor | None:
        """Whether there was room so far, on the device; otherwise gradients are wrong. None: there always is."""
        pairs = [(n, room) for _, spec, events in self.calls for n, room in zip(events, spec.room)]
        return torch.stack([n <= room for n, room in pairs]).all() if pairs else None

    def lacked(self) -> bool:
        """Whether there was too little room in the last replay; if so, later calls have more. Waits for the device."""
        lacking = False
        for device, spec, events in self.calls:
            lacking = device.lacked(spec, events.tolist()) or lacking
        return lacking


_watched = contextvars.ContextVar[Watched | None]("watched", default=None)


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """Inside, calls that a caller captures have logs with limited room. The caller must look whether it was enough."""
    calls = Watched()
    token = _watched.set(calls)
    try:
        yield calls
    finally:
        _watched.reset(token)


def enough_room() -> torch.Tensor | None:
    """See :meth:`Watched.enough`; None outside :func:`watched`, too."""
    calls = _watched.get()
    return None if calls is None else calls.enough()


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


def new_plan(
    spec: Spec, streams: Sequence[torch.cuda.Stream] = (), background: torch.cuda.Stream | None = None
) -> Plan:
    """A plan for ``spec``; ``streams`` are those besides the current one."""
    return RowsPlan(spec, Streams(streams, background)) if spec.rows else Plan(spec, Lanes(streams, background))


def _family(spec: Spec) -> Spec:
    """The same for sequences of any length and number."""
    return dataclasses.replace(spec, steps=0, batch=0, room=())


class Lease:
    """An instance lent to one call; returned after its backward pass, or when no backward pass can follow."""

    def __init__(self, instance: Instance, owner: Device, moving: Sequence[float] = ()) -> None:
        self.held: list[Instance] = [instance]
        self.owner, self.moving = owner, moving
        self.logs_overwritten = False  # by a backward pass: before another one the forward pass must run again
        self._events: tuple[torch.Tensor, torch.cuda.Event | None] | None = None  # on their way to the host

    @property
    def plan(self) -> Plan:
        return self.held[0].plan

    def forward(self) -> None:
        self.held[0].capture()
        self.held[0].run("forward")
        plan = self.plan
        if not plan.spec.room or not isinstance(plan, RowsPlan):
            return
        calls = _watched.get()
        if calls is not None and self.owner.captured_by_caller():
            calls.calls.append((self.owner, plan.spec, plan.events()))
            return
        self._events = plan.events().to("cpu", non_blocking=True), None
        if self.owner.device.type == "cuda":
            self._events = self._events[0], torch.cuda.Event()
            self._events[1].record()

    def restore(self) -> None:
        """Prepare the logs for a backward pass: run the forward pass again if they are overwritten or were too small.

        To know whether they were, this waits for the forward pass.
        """
        if self.logs_overwritten:
            self.held[0].run("forward")
        while self._events is not None:
            (found, arrived), self._events = self._events, None
            if arrived is not None:
                arrived.synchronize()
            if self.owner.lacked(self.plan.spec, found.tolist()):
                self.held[0] = self.owner.enlarged(self.held[0], self.moving)
                self.forward()

    def backward(self) -> None:
        """Run the backward pass; ``restore`` must have run, and gradients been loaded since."""
        self.logs_overwritten = True
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
    """The cache of one GPU. On a CPU, where tests interpret the kernels, nothing is cached."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.idle: list[Instance] = []
        self.streams: list[torch.cuda.Stream] = []  # not used by any instance
        self._streams_made = 0
        self._side: list[torch.cuda.Stream] = []  # for launches inside a capture of the caller's
        self._met: dict[Spec, None] = {}  # shapes of earlier calls, the latest last
        self._lock = threading.RLock()
        self._last: torch.cuda.Event | None = None  # the end of the last call
        self._moved: dict[Spec, tuple[float, ...]] = {}  # shares of rows that moved and for which logs had no room

    def captured_by_caller(self) -> bool:
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Run one call at a time, in order, from any thread and stream: calls reuse each other's buffers."""
        autocast = torch.autocast(self.device.type, enabled=False)
        with self._lock, torch.inference_mode(False), torch.no_grad(), autocast:
            if self.device.type != "cuda":
                yield
                return
            with torch.cuda.device(self.device):
                here = torch.cuda.current_stream()
                captured = self.captured_by_caller()
                if self._last is not None and not captured:
                    here.wait_event(self._last)
                yield
                if not captured:
                    self._last = torch.cuda.Event()
                    self._last.record(here)

    def _with_room(self, spec: Spec, moving: Sequence[float]) -> Spec:
        """``spec`` with logs for the share of the rows that is expected to move, or has moved, in each layer."""
        shares = [*map(max, moving, self._moved.get(_family(spec), moving))]
        return dataclasses.replace(spec, room=choice.room(shares, spec.steps * spec.batch))

    def lacked(self, spec: Spec, events: Sequence[int]) -> bool:
        """Whether logs had too little room for ``events``; if so, later calls have more."""
        if all(n <= room for n, room in zip(events, spec.room)):
            return False
        shares, family = [n / (spec.steps * spec.batch) for n in events], _family(spec)
        self._moved[family] = tuple(map(max, shares, self._moved.get(family, shares)))
        return True

    def enlarged(self, old: Instance, moving: Sequence[float]) -> Instance:
        """An instance with the inputs of ``old`` and more room; ``old`` is not kept."""
        spec = old.plan.spec
        new = Instance(new_plan(self._with_room(spec, moving)), [])
        new.plan.take(old.plan)
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # another stream may get the memory
        for instance in [old, *(one for one in self.idle if one.plan.spec == spec)]:
            self.streams += instance.streams
        self.idle = [one for one in self.idle if one.plan.spec != spec]
        return new

    def lend(self, spec: Spec, often: bool = False, moving: Sequence[float] = ()) -> Lease:
        """An instance for ``spec``; it is captured if ``often`` or if the shape was used before.

        ``moving``: the shares of the rows that are expected to move; its logs have room for few more. Inside a capture
        of the caller's they have room for all, unless the caller looks whether there was enough: see :func:`watched`.
        """
        wanted = Streams.number(len(spec.sizes)) if spec.rows else (len(spec.sizes) + 1) // 2
        if moving and not (self.captured_by_caller() and _watched.get() is None):
            spec = self._with_room(spec, moving)
        if self.device.type != "cuda":
            return Lease(Instance(new_plan(spec), []), self, moving)
        if self.captured_by_caller():
            while len(self._side) < wanted:
                self._side.append(torch.cuda.Stream(self.device, priority=-1))
            background, *side = self._side[:wanted]
            return Lease(Instance(new_plan(spec, side, background), []), self)
        self._make_room()
        for i, instance in reversed(list(enumerate(self.idle))):
            if instance.plan.spec == spec:
                return Lease(self.idle.pop(i), self, moving)
        if _uncaptured.get():
            return Lease(Instance(new_plan(spec), []), self, moving)
        often = often or spec in self._met
        self._met.pop(spec, None)
        self._met[spec] = None
        if not often or not self._enough_streams(wanted):
            return Lease(Instance(new_plan(spec), []), self, moving)
        streams = [self.streams.pop() for _ in range(wanted)]
        return Lease(Instance(new_plan(spec, streams[1:], self._background), streams), self, moving)

    @functools.cached_property
    def _background(self) -> torch.cuda.Stream:
        """A stream of lower priority than the lanes. It runs copies only, no matrix products, so instances share it."""
        return torch.cuda.Stream(self.device, priority=-1)

    def _enough_streams(self, wanted: int) -> bool:
        """Whether ``wanted`` streams are free, after creating missing ones up to STREAMS: torch's number is limited."""
        while len(self.streams) < wanted and self._streams_made < STREAMS:
            self.streams.append(torch.cuda.Stream(self.device, priority=-2))
            self._streams_made += 1
        return len(self.streams) >= wanted

    def _make_room(self) -> None:
        """Drop the least recently used shapes and idle instances beyond the limits."""
        while len(self._met) > REMEMBERED:
            self._met.pop(next(iter(self._met)))
        limit = KEPT_SHARE * torch.cuda.get_device_properties(self.device).total_memory
        while len(self.idle) > KEPT or (len(self.idle) > 1 and sum(one.nbytes for one in self.idle) > limit):
            if self._last is not None:
                self._last.synchronize()  # another stream may get the memory
            self.streams += self.idle.pop(0).streams

    def forget(self) -> None:
        """Free everything that no call is using."""
        with self._lock:
            if self._last is not None:
                self._last.synchronize()
            while self.idle:
                self.streams += self.idle.pop().streams
            self._met.clear()
            self._moved.clear()


_devices: dict[torch.device, Device] = {}


def forget() -> None:
    """Free the cached buffers and graphs on every device."""
    for device in list(_devices.values()):
        device.forget()


def on(device: torch.device) -> Device:
    """The cache of ``device``."""
    if device not in _devices:
        _devices.setdefault(device, Device(device))
    return _devices[device]
