"""The example that shows training in TensorBoard."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import hmrnn
import tiny


def test_every_line_of_metrics_is_on_a_curve(tmp_path: Path) -> None:
    example = tiny.script(tiny.ROOT / "examples" / "tensorboard_log.py")
    text = tmp_path / "text.txt"
    text.write_text("It was the best of times, it was the worst of times.\n" * 40)
    run = hmrnn.Config.load(text).changed(
        {"model.hidden_size": (8,), "train.epochs": 2, "train.batch_size": 4, "train.log_every": 2}
    )
    lines: list[dict[str, float]] = []
    hmrnn.train(run, callbacks=[example.TensorBoard(tmp_path / "log")], progress=lines.append)
    shown = EventAccumulator(str(tmp_path / "log")).Reload()
    bits = [(line["step"], line["bits"]) for line in lines if line["event"] == "valid"]
    points = [(point.step, point.value) for point in shown.Scalars("validation/bits")]
    assert [step for step, _ in points] == [step for step, _ in bits]
    assert all(abs(a - b) < 1e-5 for (_, a), (_, b) in zip(points, bits))
    assert {"training/rate of level 1", "training/learning_rate"} <= {*shown.Tags()["scalars"]}
