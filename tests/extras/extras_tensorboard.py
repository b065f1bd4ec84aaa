"""What training shows in TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tiny
from hmrnn.training.metrics import read_metrics


def test_curves_rates_and_segments_are_shown_also_of_a_resumed_run(
    command: tiny.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiny.story(tmp_path):
        words = [*tiny.flags(tiny.config(batch_size=16, length=10)), "--log", "tensorboard"]
        command("train story.txt --overwrite", *words)
        command("train story.txt --resume --train.epochs 3 --log tensorboard --no-report")
        run = tmp_path / "runs" / "story"
        shown, metrics = EventAccumulator(str(run)).Reload(), read_metrics(run / "metrics.jsonl")
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        assert "hmrnn[tensorboard]" in command.refused("train story.txt --out other", *words)
    for event, part in (("train", "training"), ("valid", "validation")):
        lines = [line for line in metrics if line["event"] == event]
        for curve, values in (
            ("bits", [line["bits"] for line in lines]), ("rate of level 2", [line["rates"][1] for line in lines])
        ):  # fmt: skip
            points = shown.Scalars(f"{part}/{curve}")
            assert [point.step for point in points] == [line["step"] for line in lines]
            assert [point.value for point in points] == pytest.approx(values)
    steps = [line["step"] for line in metrics if line["event"] == "valid"]
    assert [image.step for image in shown.Images("segments")] == steps
    assert all(image.width > 100 for image in shown.Images("segments"))
