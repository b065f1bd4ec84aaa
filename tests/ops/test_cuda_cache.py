"""What the cuda engine keeps between calls, without a GPU: streams, plans and graphs are stand-ins that take notes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hmrnn.ops.cuda import cache as cuda_cache
from hmrnn.ops.cuda import captures
from hmrnn.ops.cuda.cache import Device, Lease
from hmrnn.ops.cuda.captures import Instance
from hmrnn.ops.cuda.layer import Spec
from interpreted import SPEC


def spec(steps: int) -> Spec:
    return dataclasses.replace(SPEC, steps=steps)


class Plan:
    """Notes which passes were launched."""

    def __init__(self, spec: Spec, lanes: Any) -> None:
        self.spec, self.launched, self.nbytes = spec, list[str](), 1000 * spec.steps

    def forward(self) -> None:
        self.launched.append("forward")

    def backward(self) -> None:
        self.launched.append("backward")

    def load_gradients(self, grads: object) -> None:
        pass


class Graph:
    """Replays what was launched while it was captured."""

    def __init__(self) -> None:
        self.launch: Callable[[], None] = lambda: None

    def replay(self) -> None:
        self.launch()


class Stream:
    made = 0
    """How many there have been."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Stream.made += 1

    def wait_stream(self, other: object) -> None:
        pass


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    def captured(instance: Instance, launch: Callable[[], None]) -> Graph:
        graph = Graph()
        graph.launch = launch
        return graph

    monkeypatch.setattr(cuda_cache, "Plan", Plan)
    monkeypatch.setattr(Instance, "_captured", captured)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1e9))
    return Device(torch.device("cuda", 0))


def call(device: Device, steps: int) -> Lease:
    lease = device.lend(spec(steps))
    lease.forward()
    return lease


def train(device: Device, steps: int) -> Instance:
    lease = call(device, steps)
    instance = lease.held[0]
    lease.backward(())
    lease.release()
    return instance


def test_launched_first_captured_when_it_comes_back_then_replayed(device: Device) -> None:
    first, second, third = (train(device, 3) for _ in range(3))
    assert not first.graphs
    assert first is not second
    assert set(second.graphs) == {"forward", "backward"}
    assert third is second
    assert second.plan.launched == ["forward", "backward"] * 3  # to warm up, and in each of two calls
    assert device.idle == [second]


def test_calls_that_wait_for_their_backward_pass_share_nothing(device: Device) -> None:
    train(device, 3)
    pending = [call(device, 3) for _ in range(5)]
    plans = {id(lease.plan) for lease in pending}
    assert len(plans) == 5
    for lease in pending:
        lease.release()
    assert len(device.idle) == 5
    assert id(call(device, 3).plan) in plans


def test_a_call_without_a_backward_pass_gives_its_plan_back(device: Device) -> None:
    train(device, 3)
    lease = call(device, 3)
    instance = lease.held[0]
    del lease
    assert device.idle == [instance]


def test_a_second_backward_pass_runs_the_forward_pass_again(device: Device) -> None:
    lease = call(device, 3)
    for _ in range(2):
        lease.backward(())
    assert lease.plan.launched == ["forward", "backward", "forward", "backward"]


def test_no_more_is_kept_than_said(device: Device) -> None:
    """Shapes come and go, many calls are pending at once: idle plans, streams and what is remembered stay bounded."""
    before = Stream.made
    for _ in range(3):
        for steps in range(1, cuda_cache.REMEMBERED + 50):
            train(device, steps)
            assert len(device.idle) <= cuda_cache.KEPT + 1
        assert len(device._met) <= cuda_cache.REMEMBERED + 1
    pending = [call(device, 3) for _ in range(cuda_cache.STREAMS)]
    assert device._streams_made <= cuda_cache.STREAMS
    assert not pending[-1].held[0].graphs  # no stream was left for it: it is launched
    held = [lease.held[0] for lease in pending]
    for lease in pending:
        lease.release()
    call(device, 3).release()
    assert len(device.idle) <= cuda_cache.KEPT + 1
    kept = [stream for instance in device.idle for stream in instance.streams]
    assert len({id(a) for a in kept + device.streams}) == len(kept + device.streams) == device._streams_made
    assert any(instance.graphs for instance in held)
    assert Stream.made - before < 10 * cuda_cache.STREAMS


def test_long_sequences_do_not_fill_the_memory(device: Device) -> None:
    """A quarter of it is for plans that nobody uses, and each of these takes a fifth."""
    steps = int(2e8 / (1000 + 3 * captures.STAGE_BYTES))
    for length in range(steps, steps + 4):
        train(device, length)
        last = train(device, length)
        assert len(device.idle) <= 2
    call(device, 1).release()
    assert device.idle == [last]


def test_all_of_it_can_be_given_back(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_cache, "_devices", {device.device: device})
    known = [train(device, 3) for _ in range(2)][1]
    pending = call(device, 4)
    cuda_cache.forget()
    assert not device.idle
    assert len(device.streams) == device._streams_made > 0
    assert pending.held
    assert not train(device, 3).graphs
    assert train(device, 3) is not known


def test_what_was_used_longest_ago_goes_first(device: Device) -> None:
    def again(steps: int) -> Instance:
        train(device, steps)
        return train(device, steps)

    instances = [again(steps) for steps in range(1, cuda_cache.KEPT + 1)]
    assert train(device, 1) is instances[0]
    again(cuda_cache.KEPT + 1)
    again(cuda_cache.KEPT + 2)
    assert train(device, 1) is instances[0]
    assert train(device, 2) is not instances[1]


def test_inside_a_capture_of_the_callers_nothing_is_taken_or_kept(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [train(device, 3) for _ in range(2)][1]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    inside = train(device, 3)
    assert inside is not known
    assert not inside.graphs
    assert device.idle == [known]


def test_where_the_caller_says_so_nothing_is_captured_or_remembered(device: Device) -> None:
    with captures.uncaptured():
        instances = [train(device, 3) for _ in range(3)]
    assert not any(instance.graphs for instance in instances)
    assert not device.idle
    assert not train(device, 3).graphs  # as if it came for the first time
    assert train(device, 3).graphs


def test_graphs_that_load_weights_are_few_and_fit_their_place(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that lie where they lay are loaded by a graph; others by copies, and never by another's graph."""
    loaded: list[str] = []
    monkeypatch.setattr(Plan, "load_weights", lambda plan, w: loaded.append(w[0][0].name), raising=False)

    class Weight:
        dtype = torch.float32

        def __init__(self, name: str) -> None:
            self.name = name

        def data_ptr(self) -> int:
            return id(self)

        def stride(self) -> tuple[int, ...]:
            return (1,)

    train(device, 3)
    instance = train(device, 3)
    weights = [[(Weight(str(i)),)] for i in range(captures.LOADS + 2)]
    for w in [w for w in weights for _ in range(4)] + weights[::-1]:
        loaded.clear()
        instance.load_weights(w)  # type: ignore[arg-type]
        assert loaded
        assert set(loaded) == {w[0][0].name}
    assert len(instance.loads) == captures.LOADS
