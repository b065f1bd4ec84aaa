"""Which batches are run, captured and replayed; the GPU is played by a recorder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from hmrnn import capture
from hmrnn.capture import CapturedUpdate
from hmrnn.ops import cuda_cache

Batch = tuple[Tensor, ...]


class Recorder:
    """An update, and what stands for CUDA around it: a graph replays what was called while it was captured."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []
        self.capturing: Graph | None = None

    def update(self, batch: Batch) -> None:
        if self.capturing is not None:
            self.capturing.batch = batch
        else:
            self.events.append(("run", batch[0].sum().item()))


class Graph:
    recorder: Recorder

    def __init__(self) -> None:
        self.batch: Batch = ()

    def replay(self) -> None:
        self.recorder.events.append(("replay", self.batch[0].sum().item()))


class Stream:
    def wait_stream(self, other: Any) -> None:
        pass


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()

    @contextlib.contextmanager
    def record(graph: Graph, pool: str, stream: Stream) -> Iterator[None]:
        assert pool == "pool"
        recorder.capturing = graph
        yield
        recorder.capturing = None

    monkeypatch.setattr(Graph, "recorder", recorder, raising=False)
    for name, value in (
        ("Stream", Stream), ("CUDAGraph", Graph), ("graph", record), ("graph_pool_handle", lambda: "pool"),
        ("current_stream", Stream), ("stream", lambda stream: contextlib.nullcontext()),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    return recorder


def test_every_shape_has_its_graph(recorder: Recorder) -> None:
    update = CapturedUpdate(recorder.update)
    lengths = [2, 2, 3, 2, 2, 3, 3, 3, 2, 3]
    for k, length in enumerate(lengths):
        update((torch.full((length,), float(k)), torch.zeros(1)))
    expected = ["run", "run", "run", "run", "replay", "run", "run", "replay", "replay", "replay"]
    assert recorder.events == [(what, float(k * n)) for k, (what, n) in enumerate(zip(expected, lengths))]


def test_engines_capture_no_parts_of_updates_that_will_be_captured(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(batch: Batch) -> None:
        seen.append(cuda_cache._uncaptured.get())
        recorder.update(batch)

    monkeypatch.setattr(capture, "LIMIT", 1)
    update = CapturedUpdate(look)
    for _ in range(CapturedUpdate.WARM_UP + 1):
        update((torch.ones(2), torch.zeros(1)))
    assert seen == [True] * CapturedUpdate.WARM_UP + [False]
    update((torch.ones(3), torch.zeros(1)))  # one of those that never are
    assert seen[-1] is False


def test_types_and_every_tensor_of_a_batch_count(recorder: Recorder) -> None:
    update = CapturedUpdate(recorder.update)
    for batch in (
        (torch.ones(2), torch.ones(1)), (torch.ones(2).long(), torch.ones(1)), (torch.ones(2), torch.ones(3)),
    ):  # fmt: skip
        for _ in range(CapturedUpdate.WARM_UP):
            update(batch)
    assert len(update.shapes) == 3
    assert {what for what, _ in recorder.events} == {"run"}


def test_shapes_beyond_the_limit_are_run(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "LIMIT", 2)
    update = CapturedUpdate(recorder.update)
    for length in (1, 2, 3):
        for _ in range(6):
            update((torch.ones(length),))
    assert [what for what, _ in recorder.events] == 2 * (["run"] * 3 + ["replay"] * 3) + ["run"] * 6
    assert len(update.shapes) == 2
    update((torch.ones(1),))
    assert recorder.events[-1] == ("replay", 1.0)
