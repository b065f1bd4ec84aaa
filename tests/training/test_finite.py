"""Updates whose loss or gradient is not finite: they change nothing, are told of or counted; the run stays whole."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from hmrnn.pretrained import train as commands
from hmrnn.training import finite
from hmrnn.training.finite import Diverged
from hmrnn.training.loop import train
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from refusals import refused

EVERYTHING: dict[str, Any] = {
    "weight_decay": 0.5,
    "average": 0.9,
    "accumulate": 2,
    "estimator": "sample",
    "bounds": (0.1, 0.0),
}


def spoil(trainer: Trainer, parameter: str, factor: float, at: Callable[[int], bool]) -> None:
    """Multiply the gradient of a parameter in the updates whose numbers, from 1, ``at`` picks."""
    weight = dict(trainer.model.named_parameters())[parameter]
    weight.register_hook(lambda gradient: gradient * (factor if at(trainer.progress.step + 1) else 1.0))


def everything(trainer: Trainer) -> list[torch.Tensor]:
    tensors = {**trainer.model.state_dict(), **trainer.tensors()}
    return [tensors[name].clone() for name in sorted(tensors) if not name.startswith(("random", "watch"))]


@pytest.mark.parametrize("factor", [math.inf, math.nan, 1e25])
def test_it_changes_nothing_but_the_count(factor: float) -> None:
    trainer = tiny.trainer(tiny.config(**EVERYTHING))
    spoil(trainer, "rnn.U.1", factor, lambda step: step in (4, 5))
    for _ in range(3):
        trainer.step()
    before = everything(trainer)
    trainer.step()
    trainer.step()
    assert trainer.watch.counts.tolist() == [5, 2, 4, 2]
    assert all(torch.equal(a, b) for a, b in zip(before, everything(trainer), strict=True))
    trainer.step()
    assert trainer.watch.counts.tolist() == [6, 2, 4, 0]
    assert not torch.equal(before[-1], everything(trainer)[-1])
    assert trainer.watch.trouble(6, skip=True) is None
    means = trainer.window_means()
    assert means is not None
    assert 0 < means[0] < 5  # of the four that were made
    assert trainer.progress.skipped == 2
    assert trainer.watch.counts.tolist() == [0, 0, 0, 0]


def test_the_first_update_of_all_may_be_one() -> None:
    trainer = tiny.trainer(tiny.config())
    spoil(trainer, "rnn.U.0", math.inf, lambda step: step == 1)
    trainer.step()
    assert trainer.window_means() is None
    trainer.step()
    assert trainer.window_means() is not None
    assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())


@pytest.mark.parametrize(
    ("parameter", "factor"), [("rnn.W.1", math.nan), ("softmax.bias", math.inf), ("rnn.V.0", 1e25)]
)
def test_a_run_stops_with_the_step_and_the_parameter(tmp_path: Path, parameter: str, factor: float) -> None:
    trainer, here = tiny.trainer(tiny.config(validate_every=5, log_every=4)), RunDirectory(tmp_path)
    spoil(trainer, parameter, factor, lambda step: step >= 7)
    with here.open(), refused(kind=Diverged) as info:
        list(train(trainer, here))
    assert parameter in info.value.trouble
    assert "7" in info.value.trouble
    assert str(tmp_path) in str(info.value)
    assert (here.newest_state().progress or {})["step"] == 5
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [4, 5, 5]


def test_no_checkpoint_is_offered_before_there_is_one(tmp_path: Path) -> None:
    trainer, here = tiny.trainer(tiny.config(validate_every=5, log_every=1)), RunDirectory(tmp_path)
    spoil(trainer, "rnn.W.1", math.nan, lambda step: True)
    with here.open(), refused(kind=Diverged) as info:
        list(train(trainer, here))
    assert str(tmp_path) not in str(info.value)


def run(directory: Path, changes: dict[str, Any], bad: tuple[int, ...], **how: Any) -> tiny.Event:
    """As ``tiny.run`` with some updates spoilt; a resumed run has them spoilt, too."""
    config = tiny.config(skip_nonfinite=True, validate_every=7, **changes)
    trainer, here = tiny.trainer(config), RunDirectory(directory)
    spoil(trainer, "rnn.U.2", math.nan, lambda step: step in bad)
    event: tiny.Event = {}
    with here.open():
        for event in train(trainer, here, resume=how.get("resume", False)):
            if event["event"] == "step" and event["step"] == how.get("stop"):
                tiny.os.kill(tiny.os.getpid(), tiny.signal.SIGTERM)
    return event


def test_such_updates_can_be_skipped_and_are_counted(tmp_path: Path) -> None:
    bad = (1, 6, 7, 9, 10, 11, 12)
    end = run(tmp_path / "whole", EVERYTHING, bad)
    assert end["reason"] == "2 epochs done"
    lines = [line for line in read_metrics(tmp_path / "whole" / "metrics.jsonl") if line["event"] == "train"]
    assert [(line["step"], line["skipped"]) for line in lines] == [
        (4, 1), (7, 2), (8, 0), (14, 4), (16, 0), (20, 0),
    ]  # fmt: skip
    assert all(math.isfinite(line["bits"]) for line in lines)
    run(tmp_path / "parts", EVERYTHING, bad, stop=6)
    run(tmp_path / "parts", EVERYTHING, bad, stop=11, resume=True)
    run(tmp_path / "parts", EVERYTHING, bad, resume=True)
    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(tmp_path / "parts")
    assert whole["metrics"] == parts["metrics"]
    final = [name for name in whole if name.startswith("last-00000020")]
    assert final
    assert all(whole[name] == parts[name] for name in final)
    assert RunDirectory(tmp_path / "whole").newest_progress()["skipped"] == 7


def test_those_after_the_last_line_are_counted_at_the_end(tmp_path: Path) -> None:
    end = run(tmp_path, {"epochs": 2, "log_every": 4}, (17, 18, 19, 20))
    assert end["step"] == 20
    assert RunDirectory(tmp_path).newest_progress()["skipped"] == 4


def test_a_run_that_skips_does_not_do_so_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "IN_A_ROW", 6)
    with refused(kind=Diverged) as info:
        run(tmp_path, {}, tuple(range(3, 30)))
    assert re.findall(r"\d+", info.value.trouble.partition("finite")[2]) == ["6", "8"]
    assert run(tmp_path / "other", {}, tuple(range(3, 8)))["reason"] == "2 epochs done"


def test_skipping_may_begin_later_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "story.txt").write_text(tiny.text(900))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))

    class Spoilt(Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            spoil(self, "rnn.U.0", math.inf, lambda step: step == 7)

    monkeypatch.setattr(commands, "Trainer", Spoilt)
    flags = tiny.flags(tiny.config(epochs=2, batch_size=16, length=10, log_every=2))
    assert tiny.hmrnn("train", "story.txt", *flags) == 2
    assert "rnn.U.0" in capsys.readouterr().err
    assert tiny.hmrnn("train", "story.txt", "--resume", "--train.skip-nonfinite", "--no-report") == 0
    shown = capsys.readouterr().out
    assert ", 1 updates skipped" in shown
    assert "; 1 updates were not finite and skipped" in shown


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("step", [2, 9], ids=["run", "replayed"])
def test_on_a_gpu(step: int, optimizer: str) -> None:
    """A weight that is not finite for one update: the captured update must leave all that it keeps as it was."""
    config = tiny.config(**EVERYTHING, epochs=9, optimizer=optimizer)
    trainer = Trainer(config, tiny.corpus(), torch.device("cuda"))
    while trainer.progress.step < step:
        trainer.step()
    before, weight = everything(trainer), trainer.model.softmax.weight.data[0, 0].clone()
    trainer.model.softmax.weight.data[0, 0] = math.nan
    trainer.step()
    trainer.model.softmax.weight.data[0, 0] = weight
    assert all(torch.equal(a, b) for a, b in zip(before, everything(trainer), strict=True))
    assert str(trainer.watch.trouble(step + 1, skip=False)).endswith(f" {step + 1}")
    trainer.step()
    assert trainer.watch.counts.tolist() == [step + 2, 1, step + 1, 0]
    assert not torch.equal(before[-1], everything(trainer)[-1])
