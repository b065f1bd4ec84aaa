"""Runs that are interrupted, crash, are over, or go on: nothing is lost and nothing is done twice."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from hmrnn import checkpoint
from hmrnn.errors import InputError
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.loop import train
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from refusals import refused


def after(step: int, event: str = "step") -> Any:
    return lambda e: e["event"] == event and e["step"] == step


RECIPES: dict[str, dict[str, Any]] = {
    "soft, layer norm, hold": {"estimator": "soft", "layer_norm": True, "on_copy": "hold", "cool_down": 0.8},
    "gumbel, detectors with a hidden layer": {
        "estimator": "gumbel", "temperature": (1.5, 0.4), "hidden": 4, "rates": (0.3, 0.1), "rate_control": 0.2,
        "top_down": "always", "start_at_rates": True,
    },
    "muon": {"optimizer": "muon", "adam_rate": 0.5, "beta1": 0.8, "layer_norm": True, "weight_decay": 0.1},
    "reinforce": {"estimator": "reinforce", "entropy": 0.1, "on_copy": "hold", "accumulate": 2, "rates": (0.3, 0.1)},
    "division, annealing, pending gates, own inputs": {
        "validate_every": 3, "min_improvement": 0.5, "divisions": 9, "divide_rate_by": 2.0, "slope": (0.7, 5.0),
        "flush": False, "top_down": "pending", "output_layers": "first", "scheduled_sampling": (0.2, 0.8),
    },
    "sample, regularised": {
        "estimator": "sample", "precision": "bf16",
        "weight_drop": 0.3, "dropout_embedding": 0.2, "dropout_between": 0.4, "dropout_output": 0.3,
        "weight_decay": 0.5, "average": 0.9, "rates": (0.3, 0.1), "bias": (0.2, -0.1), "accumulate": 2,
        "shift": True, "rate_control": 0.2,
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", RECIPES.values(), ids=RECIPES)
def test_resume_goes_on_exactly_where_it_was(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = tiny.config(**changes)
    tiny.run(tmp_path / "whole", config)
    divided = "validate_every" in changes
    stops = [
        after(6),  # in the middle of an epoch and of the steps that a line of metrics sums up
        lambda e: e["event"] == "valid" and e["step"] > 6,  # right after a validation; between two epochs, too
    ]
    if divided:
        # before anything is written; once more right after; and in another epoch
        stops = [after(1), *stops, lambda e: e["event"] == "step" and e["step"] > 9, after(17)]
    made = []
    for k, stop in enumerate(stops):
        event = tiny.run(tmp_path / "parts", config, resume=k > 0, stop=stop)
        assert event["signal"] == "SIGTERM"
        made.append(event["step"])
    assert made == ([1, 6, 9, 10, 17] if divided else [6, 10])
    assert tiny.run(tmp_path / "parts", config, resume=True)["signal"] is None

    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(tmp_path / "parts")
    assert whole["metrics"] == parts["metrics"]
    final = [name for name in whole if name.startswith(("best", "last-00000020"))]
    assert len(final) == 2 + 4
    for name in final:
        assert whole[name] == parts[name], name
    lines = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    rates = {line["learning_rate"] for line in lines if line["event"] != "detector"}  # told of one that fell silent
    assert (len(rates) > 2) == ("divisions" in changes or "cool_down" in changes)


SAMPLE = tiny.config(estimator="sample", validate_every=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of SAMPLE leaves that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    tiny.run(folder, SAMPLE)
    return tiny.contents(folder)


@pytest.mark.parametrize("crash", [after(8, "train"), after(13), after(10, "valid")])
def test_a_crash_costs_nothing_but_time(tmp_path: Path, crash: Any, whole: dict[str, Any]) -> None:
    """The process dies after lines that the last checkpoint does not know of: they are neither lost nor doubled."""
    tiny.run(tmp_path, SAMPLE, crash=crash)
    before = len(read_metrics(tmp_path / "metrics.jsonl"))
    tiny.run(tmp_path, SAMPLE, resume=True)
    assert tiny.contents(tmp_path) == whole
    assert len(whole["metrics"]) > before > 0


def test_time_makes_checkpoints_too(tmp_path: Path) -> None:
    config = tiny.config(checkpoint_every=0.0)
    tiny.run(tmp_path, config, crash=after(7))
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["last-00000005", "last-00000006"]


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    here, trainer = RunDirectory(tmp_path), tiny.trainer(tiny.config(validate_every=5))

    def impatient() -> None:
        for event in train(trainer, here):
            if event["step"] == 7:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

    with here.open(), pytest.raises(KeyboardInterrupt):
        impatient()
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["best-00000005", "last-00000005"]


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    config = tiny.config(epochs=1)
    tiny.run(tmp_path, config)
    before = tiny.contents(tmp_path)
    assert tiny.run(tmp_path, config, resume=True)["reason"] == "1 epoch done"
    assert tiny.contents(tmp_path) == before


def test_more_epochs_go_on_after_the_end(tmp_path: Path) -> None:
    tiny.run(tmp_path / "whole", tiny.config(epochs=2, estimator="sample"))
    tiny.run(tmp_path / "parts", tiny.config(epochs=1, estimator="sample"))
    end = tiny.run(tmp_path / "parts", tiny.config(epochs=2, estimator="sample"), resume=True)
    assert end["step"] == 20
    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(tmp_path / "parts")
    del whole["last-00000010/training.json"], parts["last-00000010/training.json"]  # one says that the run has ended
    assert whole == parts


def test_fewer_epochs_end_with_the_current_one(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.config(epochs=9), stop=after(13))
    end = tiny.run(tmp_path, tiny.config(epochs=1, validate_every=7), resume=True)
    assert (end["step"], end["reason"]) == (20, "1 epoch done")


def test_resume_wants_the_same_text(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.config(), stop=after(2))
    other = tiny.corpus(seed=1)
    assert len(other.train) == len(tiny.corpus().train)
    with refused():
        tiny.run(tmp_path, tiny.config(), resume=True, text=other)
    renamed = dataclasses.replace(tiny.corpus(), vocabulary=Vocabulary("characters", tuple("ABCDEFGHI")))
    with refused():
        tiny.run(tmp_path, tiny.config(), resume=True, text=renamed)


def test_resume_wants_a_state_that_fits(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.config(), stop=after(2))
    with refused():
        tiny.run(tmp_path, tiny.config(hidden_size=(3,)), resume=True)


@pytest.mark.parametrize("change", [{"step": "7"}, {"conditions": None}, {"best_bits": 2.0}, {"best": ...}])
def test_resume_wants_a_progress_that_is_one(change: dict[str, Any]) -> None:
    trainer = tiny.trainer(tiny.config())
    saved = trainer.snapshot(training=True)
    assert saved.progress is not None
    progress = {name: value for name, value in {**saved.progress, **change}.items() if value is not ...}
    with refused() as info:
        trainer.restore(saved._replace(progress=progress))
    assert next(iter(change)) in str(info.value)
    trainer.restore(saved)


@pytest.mark.parametrize("name", ["epoch.0", "watch", "window.0"])
def test_resume_wants_every_tensor(name: str) -> None:
    """And takes it: those that only a message depends on, too."""
    trainer, other = tiny.trainer(tiny.config()), tiny.trainer(tiny.config())
    trainer.step()
    saved = trainer.snapshot(training=True)
    assert saved.training is not None
    assert not torch.equal(other.tensors()[name], saved.training[name])
    other.restore(saved)
    assert torch.equal(other.tensors()[name], saved.training[name])
    with refused():  # no generator has such a state
        other.restore(saved._replace(training={**saved.training, "random.cpu.0": torch.zeros(5056, dtype=torch.uint8)}))
    del saved.training[name]
    with refused():
        trainer.restore(saved)


@pytest.mark.parametrize("which", range(3))
def test_resume_wants_tensors_of_its_shapes(which: int) -> None:
    """Of every name: without a dimension, with one more, or of another dtype."""
    trainer = tiny.trainer(tiny.config(average=0.9, estimator="reinforce"))
    trainer.step()
    saved = trainer.snapshot(training=True)
    assert saved.training is not None
    assert len(saved.training) > 50
    for name, tensor in saved.training.items():
        wrong = (tensor.flatten()[0], tensor[None], tensor.to(torch.int8))[which]
        wrong = torch.zeros(2) if wrong.shape == tensor.shape and which == 0 else wrong  # it has no dimension
        other = tiny.trainer(trainer.config)
        before = other.tensors()
        with refused():
            other.restore(saved._replace(training={**saved.training, name: wrong}))
        assert all(torch.equal(tensor, before[name]) for name, tensor in other.tensors().items())
    tiny.trainer(trainer.config).restore(saved)


def test_weights_that_are_not_trained_have_no_state_of_the_optimizer() -> None:
    trainer = tiny.trainer(tiny.config(rnn="echo-state"))
    trainer.step()
    trained = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    kept = {name.removeprefix("optimizer.").rpartition(".")[0] for name in trainer.tensors() if "optimizer" in name}
    assert kept == trained < {name for name, _ in trainer.model.named_parameters()}


def test_fewer_epochs_than_were_made_end_at_once(tmp_path: Path) -> None:
    """The state that a crash leaves is mostly that of an epoch's end."""
    tiny.run(tmp_path, tiny.config(epochs=9, cool_down=0.5), crash=after(34))
    before = (tmp_path / "metrics.jsonl").read_text().splitlines()
    end = tiny.run(tmp_path, tiny.config(epochs=3, cool_down=0.5), resume=True)
    assert (end["step"], end["epoch"], end["reason"]) == (30, 3.0, "3 epochs done")
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert lines == before[: len(lines)]
    assert json.loads(lines[-1])["step"] == 30


@pytest.mark.parametrize("end", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_run_may_go_on_without_the_random_state_of_a_gpu(end: str) -> None:
    """Or with one that it does not need: it began on another device."""
    saved = tiny.trainer(tiny.config()).snapshot(training=True)
    for more in ({}, {"random.cuda.0": torch.zeros(16, dtype=torch.uint8)}):
        trainer = Trainer(tiny.config(), tiny.corpus(), torch.device(end))
        trainer.restore(saved._replace(training={**(saved.training or {}), **more}))
        trainer.step()


def test_a_thread_may_train(tmp_path: Path) -> None:
    """Signals reach the main thread alone; in another one nothing listens to them."""
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(tiny.run, tmp_path, tiny.config()).result()
    assert end["reason"] == "2 epochs done"


def test_a_best_model_that_was_never_reached_again_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full between the best model and the state: what goes on from the state before has its own best."""
    save = RunDirectory.save

    def full(self: RunDirectory, kind: Any, step: int, saved: Any) -> None:
        if kind == "last" and step == 20:
            raise InputError("no space left")
        save(self, kind, step, saved)

    monkeypatch.setattr(RunDirectory, "save", full)
    with refused():
        tiny.run(tmp_path, tiny.config(epochs=4))
    assert sorted(path.name for path in tmp_path.glob("*-*")) == ["best-00000010", "best-00000020", "last-00000010"]
    monkeypatch.setattr(RunDirectory, "save", save)
    tiny.run(tmp_path, tiny.config(epochs=4), resume=True, stop=after(13))
    assert sorted(path.name for path in tmp_path.glob("*-*")) == ["best-00000010", "last-00000010", "last-00000013"]


def test_what_was_skipped_before_does_not_end_a_run_that_skips_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Trainer.update

    def poisoned(self: Trainer, batch: Any) -> None:
        loss = self.task.loss

        def bad(*arguments: Any) -> Any:
            reading = loss(*arguments)
            return reading._replace(value=reading.value * math.nan) if self.progress.step == 5 else reading

        monkeypatch.setattr(self.task, "loss", bad)
        update(self, batch)
        monkeypatch.setattr(self.task, "loss", loss)

    monkeypatch.setattr(Trainer, "update", poisoned)
    tiny.run(tmp_path, tiny.config(skip_nonfinite=True, log_every=10), stop=after(7))
    end = tiny.run(tmp_path, tiny.config(skip_nonfinite=False, log_every=10), resume=True)
    assert end["reason"] == "2 epochs done"
    assert RunDirectory(tmp_path).newest_progress()["skipped"] == 1
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["event"] == "train"]
    assert all(1 < line["bits"] < 6 for line in lines)
