"""Rates at the start, the rate prior and rate control, the bound on feedback, and what is said of dead detectors."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from hmrnn import kind
from hmrnn.cli import train as commands
from hmrnn.cli.parse import flag
from hmrnn.cli.settings import train_arguments
from hmrnn.config import ModelConfig
from hmrnn.kinds.text.kind import Text
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.training import detectors
from hmrnn.training.detectors import advice, changed_detectors, condition
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.terms.steering import bound_feedback

PRESETS = kind.presets()


@pytest.mark.parametrize(
    ("bounds", "matrix", "first", "slope", "shrunk"),
    [((0.25, 0.0), "V", 0.0, 4.0, 0.03125), ((0.0, 0.5), "U", 0.125, 1.0, 0.2)],
)
def test_what_detectors_see_of_states_is_bounded_and_nothing_else(
    bounds: tuple[float, float], matrix: str, first: float, slope: float, shrunk: float
) -> None:
    """The row of the first detector is within the bound, (a/2)·‖row‖₁; that of the second is not."""
    model = LanguageModel(9, ModelConfig(embedding_size=3, hidden_size=(6, 5, 4), output_size=5))
    rows = getattr(model.rnn, matrix)
    with torch.no_grad():
        rows[0][-1], rows[1][-1] = first, 0.125 if matrix == "V" else 1.0
    model.rnn.slope = slope
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    bound_feedback(model, *bounds, torch.tensor(False))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    bound_feedback(model, *bounds, torch.tensor(True))
    torch.testing.assert_close(rows[1][-1], torch.full_like(rows[1][-1], shrunk))
    assert torch.equal(rows[1][:-1], before[f"rnn.{matrix}.1"][:-1])
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters() if name != f"rnn.{matrix}.1")


def test_conditions_of_detectors() -> None:
    rates = [0.0, 0.0019, 0.002, 0.5, 0.98, 0.981, 1.0]
    assert [condition(rate) for rate in rates] == ["silent"] * 2 + ["alive"] * 3 + ["always"] * 2


def flags_of(settings: str) -> list[str]:
    """Names and values of settings as command-line flags."""
    return re.sub(r"\w+\.[a-z]\w+", lambda name: flag(name[0]), settings).split()


@pytest.mark.parametrize("preset", [name for name, config in PRESETS.items() if config.model.rnn != "lstm"])
def test_what_is_advised_can_be_done(preset: str) -> None:
    """Whatever the preset has, and whatever the run that was told so had."""
    for layers in (2, 3, 5):
        for held in {False, bool(PRESETS[preset].detectors.rates)}:
            flags = flags_of(advice(1, 0.0, layers - 1, held).partition("again with ")[2])
            arguments = train_arguments([preset, "--model.num-layers", str(layers), *flags])
            arguments.check()
            assert len(arguments.config.detectors.rates) == layers - 1
            assert arguments.config.detectors.rate_control == 0.5


@pytest.mark.parametrize(
    ("preset", "network", "detectors", "expected"), [("text", "h-net", 1, (1, 2.0, 3)), ("ptb", "hrnn", 0, (0, 1.0, 2))]
)
def test_what_is_advised_to_other_networks(preset: str, network: str, detectors: int, expected: Any) -> None:
    """The detector of one has no bias to move, and the boundaries of the other are given by the text."""
    told = advice(2, 0.0, detectors, moved=False).partition("again with ")[2]
    arguments = train_arguments([preset, "--model.rnn", network, *flags_of(told)])
    arguments.check()
    d = arguments.config.detectors
    assert (len(d.rates), d.rate_weight, arguments.config.model.num_layers) == expected


@pytest.mark.parametrize("validate_every", [0, 4])
def test_training_says_once_that_a_detector_is_dead(
    validate_every: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end of the second epoch, wherever validations are."""
    config = tiny.config(bias=(3.0, -3.0), epochs=3, learning_rate=1e-5, validate_every=validate_every)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "load", lambda kind, config, progress: tiny.corpus())
        assert commands.run_to_end(config, RunDirectory(tmp_path), report=False, again="") == 0
    lines = read_metrics(tmp_path / "metrics.jsonl")
    found = [line for line in lines if line["event"] == "detector"]
    assert [(line["step"], line["layer"], line["condition"], line["rate"]) for line in found] == [
        (20, 1, "always", 1.0), (20, 2, "silent", 0.0),
    ]  # fmt: skip
    validated = [line["step"] for line in lines if line["event"] == "valid"]
    assert validated == ([10, 20, 30] if validate_every == 0 else [4, 8, 12, 16, 20, 24, 28, 30])
    shown = capsys.readouterr().out
    for line in found:
        assert f"epoch 2.00  {line['message']}\n" in shown
        assert line["message"] == advice(line["layer"], line["rate"], 2)


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_first_epoch_is_warm_up_unless_it_is_the_only_one(epochs: int) -> None:
    trainer = tiny.trainer(tiny.config(bias=(3.0, -3.0), epochs=epochs, learning_rate=1e-5))
    while trainer.progress.epoch == 0:
        trainer.step()
    changes = changed_detectors(trainer)
    assert [change["layer"] for change in changes] == ([1, 2] if epochs == 1 else [])
    assert not trainer.epoch.any()
    if epochs == 2:
        trainer.model.rnn.set_detector_bias((0.0, 0.0))  # it starts by itself, and nothing is said of it
        while trainer.progress.epoch == 1:
            trainer.step()
        assert changed_detectors(trainer) == []


def test_rate_control_has_time_to_bring_a_detector_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a short text several epochs pass before it can have done so."""
    held = {"rates": (0.5, 0.5), "rate_control": 1e-6, "bias": (3.0, -3.0), "epochs": 3, "learning_rate": 1e-5}
    for enough, said in ((15, [0, 2, 0]), (25, [0, 0, 2])):
        monkeypatch.setattr(detectors, "CONTROLLED", enough)
        trainer, found = tiny.trainer(tiny.config(**held)), []
        for epoch in range(3):
            while trainer.progress.epoch == epoch:
                trainer.step()
            found.append(len(changed_detectors(trainer)))
        assert found == said


def test_given_boundaries_are_nobodys_fault() -> None:
    text = dataclasses.replace(tiny.corpus(), train=np.full(220, 3, np.uint8))  # one word without an end
    trainer = tiny.trainer(tiny.config(rnn="hrnn"), text)
    trainer.step()
    assert trainer.epoch.tolist()[::2] == [1.0, 0.0]
    assert trainer.model.given.isnan().any(0).tolist() == [False, True]  # there are no line ends
    trainer.epoch.copy_(torch.tensor([10.0, 20.0, 0.0, 5.0]))
    assert changed_detectors(trainer) == []


def test_an_epochs_rates_are_those_of_all_its_updates() -> None:
    trainer = tiny.trainer(tiny.config(accumulate=2))
    rates = []
    for _ in range(trainer.task.chunks):
        trainer.step()
        rates.append(trainer.window_means()[1])
    updates, _, *sums = trainer.epoch.tolist()
    assert updates == trainer.task.chunks
    assert [total / updates for total in sums] == pytest.approx(np.mean(rates, axis=0))


def test_gains_start_where_they_are_asked_to() -> None:
    for changes, started in (({"recurrent_gain": 0.7}, 0.7), ({}, 0.3), ({"rnn": "ln-lstm"}, 1.0)):
        trainer = tiny.trainer(tiny.config(layer_norm=True, **changes))
        gains = [p for name, p in trainer.model.named_parameters() if "gain_U" in name or "gain_V" in name]
        assert gains
        assert all(torch.equal(gain, torch.full_like(gain, started)) for gain in gains), changes
