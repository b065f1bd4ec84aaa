"""Clocks that jump, stand still or go backwards: training, jobs and progress bars go on as ever."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from hmrnn.cli import display
from hmrnn.config import DataConfig
from hmrnn.data import load_corpus
from hmrnn.training.metrics import read_metrics


def wall_clock() -> Iterator[float]:
    """From the beginning of 1970 to the year 36812, and back."""
    rng = random.Random(1)
    while True:
        yield rng.choice((0.0, 1.0, 2.0**31, 2.0**40, rng.uniform(0, 2e9)))


@pytest.mark.slow
def test_jumps_of_the_wall_clock_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(tiny.text(400))
    config = DataConfig(path=(str(tmp_path / "a.txt"),), cache=str(tmp_path / "cache"))
    settings = tiny.config(validate_every=5)
    tiny.run(tmp_path / "whole", settings, text=load_corpus(config))
    clock = wall_clock()
    monkeypatch.setattr(time, "time", lambda: next(clock))
    for folder in ("other", "cache"):  # made and found
        text = load_corpus(DataConfig(path=config.path, cache=str(tmp_path / folder)))
        tiny.run(tmp_path / f"run-{folder}", settings, text=text, crash=lambda event: event["step"] == 8)
        tiny.run(tmp_path / f"run-{folder}", settings, text=text, resume=True)
        assert tiny.contents(tmp_path / f"run-{folder}") == tiny.contents(tmp_path / "whole")


CLOCKS = {
    "stands still": lambda: itertools.repeat(5.0),
    "jumps ahead": lambda: itertools.count(5.0, 86_400.0),
    "goes backwards": lambda: itertools.count(5.0, -86_400.0),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_monotonic_clock_that_does_not_keep_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Checkpoints come by time only where time passes; speeds are finite; the weights are the same."""
    config = tiny.config(checkpoint_every=60.0, log_every=2, epochs=1)
    tiny.run(tmp_path / "whole", config)
    ticks = iter(CLOCKS[name]())
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    saved: set[str] = set()

    def look(event: tiny.Event) -> bool:
        saved.update(path.name for path in (tmp_path / "run").glob("last-*"))
        return False

    end = tiny.run(tmp_path / "run", config, crash=look)
    assert end["reason"] == "1 epoch done"
    assert len(saved) == (end["step"] if name == "jumps ahead" else 1)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    speeds = [line["symbols_per_second"] for line in lines if line["event"] == "train"]
    assert speeds
    assert all(math.isfinite(speed) and speed >= 0 for speed in speeds)
    weights = [next((tmp_path / run).glob("last-*10/model.safetensors")).read_bytes() for run in ("run", "whole")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_by_such_a_clock(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, terminal: bool
) -> None:
    ticks = iter(CLOCKS[name]())
    monkeypatch.setattr(display, "monotonic", lambda: next(ticks))
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    show = display.show_progress("reading")
    for done in (0, 0, 5, 5, 10):
        show(done, 10)
    shown = capsys.readouterr().err
    assert ("50.0%" in shown) == (terminal or name == "jumps ahead")
    assert (" left" in shown) == (name == "jumps ahead")
    assert "-" not in shown
