"""The cuda engine's cache of plans with their captured CUDA graphs, and of streams.

A :class:`Device` lends an :class:`Instance` to each call, which returns it after its backward pass. At the second call
of a shape its launches are captured. Graphs and their buffers are kept for further calls of that shape, up to a limit.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence

import torch

from hmrnn.ops.cuda.captures import UNCAPTURED, Instance
from hmrnn.ops.cuda.layer import Spec
from hmrnn.ops.cuda.plan import Lanes, Plan

KEPT, KEPT_SHARE = 8, 0.25
"""Largest number of idle captured plans on a device, and largest share of its memory for them; one is always kept."""
STREAMS = 32
"""Number of streams for captures on a device; a call for which none is free is not captured."""
REMEMBERED = 256
"""Largest number of shapes that a device remembers, to capture them at their second call."""


class Lease:
    """An instance lent to one call; returned after its backward pass, or when no backward pass can follow."""

    def __init__(self, instance: Instance, owner: Device) -> None:
        self.held: list[Instance] = [instance]
        self.owner = owner
        self.logs_overwritten = False  # by a backward pass: before another one the forward pass must run again

    @property
    def plan(self) -> Plan:
        return self.held[0].plan

    def forward(self) -> None:
        self.held[0].capture()
        self.held[0].run("forward")

    def backward(self, grads: Sequence[torch.Tensor | None]) -> None:
        """Run the backward pass for the gradients of the results."""
        if self.logs_overwritten:
            self.held[0].run("forward")
        self.logs_overwritten = True
        self.plan.load_gradients(grads)
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

    def lend(self, spec: Spec, often: bool = False) -> Lease:
        """An instance for ``spec``; it is captured if ``often`` or if the shape was used before."""
        wanted = (len(spec.sizes) + 1) // 2
        if self.device.type != "cuda":
            return self._new(spec)
        if self.captured_by_caller():
            while len(self._side) < wanted:
                self._side.append(torch.cuda.Stream(self.device, priority=-1))
            background, *side = self._side[:wanted]
            return self._new(spec, Lanes(side, background))
        self._make_room()
        for i, instance in reversed(list(enumerate(self.idle))):
            if instance.plan.spec == spec:
                return Lease(self.idle.pop(i), self)
        if UNCAPTURED.get():
            return self._new(spec)
        often = often or spec in self._met
        self._met.pop(spec, None)
        self._met[spec] = None
        if not often or not self._enough_streams(wanted):
            return self._new(spec)
        streams = [self.streams.pop() for _ in range(wanted)]
        return self._new(spec, Lanes(streams[1:], self._background), streams)

    def _new(self, spec: Spec, lanes: Lanes | None = None, streams: Sequence[torch.cuda.Stream] = ()) -> Lease:
        return Lease(Instance(Plan(spec, lanes or Lanes()), list(streams)), self)

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
