"""Which batches are run, captured and replayed; the GPU is played by a recorder, and on one: a clockwork network."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
import tiny_strokes
from hmrnn.config import Config
from hmrnn.ops.cuda import captures
from hmrnn.training import capture
from hmrnn.training.capture import CapturedUpdate
from hmrnn.training.trainer import Trainer

Batch = tuple[Tensor, ...]


class Recorder:
    """An update, and what stands for CUDA around it: a graph replays what was called while it was captured."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []
        self.capturing: Graph | None = None
        self.work: Callable[[Batch], None] = lambda batch: None

    def update(self, batch: Batch) -> None:
        if self.capturing is not None:
            self.capturing.called = batch
        else:
            self.note("run", batch)

    def note(self, what: str, batch: Batch) -> None:
        self.events.append((what, batch[0].sum().item()))
        self.work(batch)


class Pool:
    graphs: weakref.WeakSet[Graph] | None = None  # None before the first


class Graph:
    recorder: Recorder

    def __init__(self) -> None:
        self.called: Batch = ()

    def enter(self, pool: Pool) -> None:
        pool.graphs = weakref.WeakSet() if pool.graphs is None else pool.graphs
        pool.graphs.add(self)

    def replay(self) -> None:
        self.recorder.note("replay", self.called)


class Stream:
    def wait_stream(self, other: Any) -> None:
        pass


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()

    @contextlib.contextmanager
    def record(graph: Graph, pool: Pool, stream: Stream) -> Iterator[None]:
        assert pool.graphs is None or pool.graphs, "as torch, which gives up a pool with its last graph"
        graph.enter(pool)
        recorder.capturing = graph
        try:
            yield
        finally:
            recorder.capturing = None

    monkeypatch.setattr(Graph, "recorder", recorder, raising=False)
    for name, value in (
        ("Stream", Stream), ("CUDAGraph", Graph), ("graph", record), ("graph_pool_handle", Pool),
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
        seen.append(captures.UNCAPTURED.get())
        recorder.update(batch)

    monkeypatch.setattr(capture, "LIMIT", 1)
    update = CapturedUpdate(look)
    for _ in range(CapturedUpdate.WARM_UP + 1):
        update((torch.ones(2), torch.zeros(1)))
    assert seen == [True] * CapturedUpdate.WARM_UP + [False]
    update((torch.ones(3), torch.zeros(1)))  # one of those that never are
    assert seen[-1] is False


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_a_graph_is_captured(recorder: Recorder, collects: bool) -> None:
    """Not even after another capture in between, or one that fails; afterwards all is as it was before."""
    seen = []

    def update(batch: Batch) -> None:
        if recorder.capturing is not None:
            with captures.capturing(Graph(), pool=Pool(), stream=Stream()):  # type: ignore[arg-type]
                pass
            seen.append(gc.isenabled())
            raise NotImplementedError

    enabled = gc.isenabled()
    captured = CapturedUpdate(update)
    try:
        (gc.enable if collects else gc.disable)()
        for _ in range(CapturedUpdate.WARM_UP):
            captured((torch.ones(2),))
        with pytest.raises(NotImplementedError):
            captured((torch.ones(2),))
        assert (gc.isenabled(), seen) == (collects, [False])
    finally:
        (gc.enable if enabled else gc.disable)()


def test_types_and_every_tensor_of_a_batch_count(recorder: Recorder) -> None:
    update = CapturedUpdate(recorder.update)
    for batch in (
        (torch.ones(2), torch.ones(1)), (torch.ones(2).long(), torch.ones(1)), (torch.ones(2), torch.ones(3)),
    ):  # fmt: skip
        for _ in range(CapturedUpdate.WARM_UP):
            update(batch)
    assert len(update.kinds) == 3
    assert {what for what, _ in recorder.events} == {"run"}


def test_shapes_beyond_the_limit_are_run(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "LIMIT", 2)
    update = CapturedUpdate(recorder.update)
    for length in (1, 2, 3):
        for _ in range(6):
            update((torch.ones(length),))
    assert [what for what, _ in recorder.events] == 2 * (["run"] * 3 + ["replay"] * 3) + ["run"] * 6
    assert len(update.kinds) == 2
    update((torch.ones(1),))
    assert recorder.events[-1] == ("replay", 1.0)


def clockwork(length: int, modules: int, **changes: Any) -> Config:
    sizes: dict[str, Any] = {"num_layers": 2, "hidden_size": (12,), "accumulate": 2, "epochs": 9}
    kind = {"rnn": "cw-rnn"} | changes
    own = {"modules": modules} if kind["rnn"] == "cw-rnn" else {}
    return tiny.config(length=length, **(sizes | own | kind))


def weights(trainer: Trainer) -> list[Tensor]:
    return [p.detach() for p in trainer.model.parameters()]


@pytest.mark.parametrize("rnn", ["hm-lstm", "lstm", "cw-rnn"])
def test_a_run_has_one_graph(recorder: Recorder, rnn: str) -> None:
    """Over epochs, with weight drop and validations between updates; captured or run, it learns the same."""
    made = []
    for captured in (True, False):
        trainer = tiny.trainer(clockwork(5, 3, rnn=rnn, weight_drop=0.2))
        places = [a.data_ptr() for a in weights(trainer)]
        if captured:
            recorder.work = trainer.update
            trainer.captured = CapturedUpdate(recorder.update)
        for step in range(14):
            trainer.step()
            if step % 9 == 2:
                trainer.validate()
        assert [a.data_ptr() for a in weights(trainer)] == places, "where a graph looks for them"
        made.append(trainer)
    assert all(map(torch.equal, weights(made[0]), weights(made[1])))
    assert [what for what, _ in recorder.events] == ["run"] * 3 + ["replay"] * 11


def learned(
    config: Config, kind: str, dtype: torch.dtype = torch.float32, data: Any = None
) -> tuple[Tensor, list[Tensor], int]:
    """Sums of losses and rates, and weights after 30 updates; how many graphs were captured.

    ``kind``: captured or run on a GPU, or run on the CPU.
    """
    trainer = Trainer(config, data or tiny.corpus(), torch.device("cpu" if kind == "cpu" else "cuda"))
    tiny.in_precision(trainer, dtype)
    if kind == "run":
        trainer.captured = None
    losses = []
    for _ in range(30):
        trainer.step()
        losses.append(trainer.window.cpu().clone())
    kinds = trainer.captured.kinds.values() if trainer.captured is not None else ()
    return torch.stack(losses), [p.cpu() for p in weights(trainer)], sum(known.graph is not None for known in kinds)


def close(a: tuple[Tensor, list[Tensor], int], b: tuple[Tensor, list[Tensor], int], tolerance: float = 1e-2) -> None:
    """A network whose clock is wrong is off by 6e-3 in its losses and by more than half in its weights."""
    torch.testing.assert_close(a[0][:, 1], b[0][:, 1], rtol=1e-4, atol=0)
    for mine, theirs in zip(a[1], b[1]):
        assert (mine - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(("length", "modules"), [(5, 3), (6, 3), (6, 4), (8, 4)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_captured_clockwork_update_is_that_which_is_run(layer_norm: bool, length: int, modules: int) -> None:
    """Chunks begin at 4, 2, 4 and 1 times of the clock. The CPU's Adam rounds differently: only losses are compared."""
    config = clockwork(length, modules, layer_norm=layer_norm, weight_decay=0.5)
    captured, run, cpu = (learned(config, kind, torch.float64) for kind in ("captured", "run", "cpu"))
    assert (captured[2], run[2], cpu[2]) == (1, 0, 0)
    close(captured, run, 1e-6)
    torch.testing.assert_close(captured[0][:, 1], cpu[0][:, 1], rtol=1e-4, atol=0)


@pytest.mark.gpu
def test_captured_clockwork_updates_draw_the_weights_that_they_drop() -> None:
    """Replays draw from the generator what updates draw that are run."""
    config = clockwork(6, 3, weight_drop=0.2)
    close(learned(config, "captured"), learned(config, "run"))


@pytest.mark.gpu
def test_captured_clockwork_updates_take_no_more_memory_with_time() -> None:
    config = clockwork(5, 3, layer_norm=True, precision="bf16", epochs=30, weight_drop=0.2)
    trainer = Trainer(config, tiny.corpus(), torch.device("cuda"))
    taken = []
    for _ in range(4):
        for _ in range(30):
            trainer.step()
        taken.append(torch.cuda.memory_reserved())
    assert len(set(taken)) == 1
    assert all(p.isfinite().all() for p in trainer.model.parameters())


@pytest.mark.gpu
def test_a_captured_update_of_handwriting_is_that_which_is_run() -> None:
    """In parts that hold more points or fewer, with rates that are held; its first sums are those of a CPU."""
    config = tiny_strokes.config(accumulate=2, epochs=9, rates=(0.4, 0.2), start_at_rates=True, rate_control=0.05)
    captured, run, cpu = (learned(config, kind, data=tiny_strokes.corpus()) for kind in ("captured", "run", "cpu"))
    assert (captured[2], run[2]) == (1, 0)
    close(captured, run)
    torch.testing.assert_close(captured[0][:2], cpu[0][:2], rtol=1e-3, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("rnn", ["hm-lstm", "ln-lstm"])
def test_captured_updates_draw_the_units_that_they_hide(rnn: str) -> None:
    """Anew at every replay, as updates do that are run."""
    config = tiny.config(rnn=rnn, layer_norm=True, epochs=9, dropout_between=0.3)
    captured, run = learned(config, "captured"), learned(config, "run")
    assert (captured[2], run[2]) == (1, 0)
    close(captured, run)
