"""The seam between trainer and task: sequences of several lengths that carry no state, in another unit than bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tiny
from hmrnn.cli import train as commands
from hmrnn.config import Config
from hmrnn.kind import Measure
from hmrnn.kind import of as kind_of
from hmrnn.kinds.text.kind import Text
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.task import TextTask
from hmrnn.ops import State
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.task import Loss, Task, Validation

MEAN_LENGTH = 6.0
LENGTHS = ((9, 5, 7, 2), (4, 4, 3, 1), (8, 8, 8, 8))


class Words(Task):
    """Padded sequences of symbols with their lengths: a batch is (T, B), (T, B), (B,)."""

    capturable = True
    carries_state = False
    chunks, checksum, symbols = 3, 77, 24.0
    reads = tiny.VOCABULARY

    def __init__(self, config: Config) -> None:
        self.model = LanguageModel(9, config.model)

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        lengths = LENGTHS[chunk]
        symbols = torch.from_numpy(np.random.default_rng(10 * epoch + chunk).integers(9, size=(max(lengths) + 1, 4)))
        return symbols[:-1], symbols[1:], torch.tensor(lengths)

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        inputs, targets, lengths = batch
        assert state is None
        (logits,), out, after = network(inputs, None, lengths)
        counted = torch.arange(len(inputs))[:, None] < lengths
        nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        loss = (nats * counted).sum() / (len(lengths) * MEAN_LENGTH)
        return Loss(loss, out.boundaries, after, counted)

    def measure(self, loss: float) -> float:
        return loss * MEAN_LENGTH

    def validate(self, progress: Any = None) -> Validation:
        with torch.no_grad():
            reading = self.loss(self.model, self.batch(99, 0), None)
        return Validation(self.measure(reading.value.item()), tuple(reading.rates().tolist()), (1.0, 0.5, 0.5), 1.0, 4)

    def describe(self) -> str:
        return "words: 12 of them"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Text, "task", lambda kind, config, *rest: Words(config))
    monkeypatch.setattr(Text, "measure", lambda kind, spec: Measure("nats", "sequence"))


def test_text_formats_are_text() -> None:
    task = kind_of(tiny.config()).task(tiny.config(), tiny.corpus(), torch.device("cpu"))
    assert isinstance(task, TextTask)
    assert (task.chunks, task.symbols, task.carries_state) == (10, 12, True)
    assert task.measure(1.0) == pytest.approx(1.4427, abs=1e-4)
    assert task.reads == tiny.VOCABULARY


@pytest.mark.usefixtures("words")
def test_sequences_without_a_carried_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny.config(epochs=2, log_every=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "load", lambda kind, config, progress: tiny.corpus())
        assert commands.run_to_end(config, RunDirectory(tmp_path / "whole"), report=False, again="") == 0
    shown = capsys.readouterr().out
    assert "words: 12 of them\n" in shown
    assert "nats/sequence, " in shown
    assert " chars/s, " in shown
    lines = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    assert all(("nats" in line) == (line["event"] != "detector") and "bits" not in line for line in lines)
    assert f"2 epochs done; best validation {min(v['nats'] for v in lines if 'best' in v):.4f}" in shown

    tiny.run(tmp_path / "parts", config, stop=lambda e: e["event"] == "step" and e["step"] == 2)
    tiny.run(tmp_path / "parts", config, resume=True)
    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(tmp_path / "parts")
    assert whole["metrics"] == parts["metrics"]
    assert whole["last-00000006/training.safetensors"] == parts["last-00000006/training.safetensors"]


@pytest.mark.usefixtures("words")
def test_parts_of_padded_batches_add_up() -> None:
    whole, parts = (tiny.trainer(tiny.config(accumulate=k)) for k in (1, 2))
    for made in (whole, parts):
        tiny.in_precision(made)
        for _ in range(3):
            made.step()
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], weight, atol=1e-10, rtol=1e-9)
    assert parts.window_means()[0] == pytest.approx(whole.window_means()[0])
    assert not any(name.startswith("state") for name in whole.tensors())
