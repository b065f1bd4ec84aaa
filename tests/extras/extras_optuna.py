"""The example that looks for settings with Optuna."""

from __future__ import annotations

from pathlib import Path

import optuna

import hmrnn
import tiny


def test_runs_that_fall_behind_are_pruned(tmp_path: Path) -> None:
    example = tiny.script(tiny.ROOT / "examples" / "optuna_search.py")
    text = tmp_path / "text.txt"
    text.write_text(tiny.text(2000))
    run = hmrnn.Config.load(text).changed(
        {"model.hidden_size": (8,), "train.epochs": 3, "train.batch_size": 4, "train.length": 50}
    )
    study = example.search(run, 6, optuna.pruners.MedianPruner(n_startup_trials=2))
    states = [trial.state for trial in study.trials]
    assert {*states} == {optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED}
    for trial in study.trials:
        seen = trial.intermediate_values
        if trial.state is optuna.trial.TrialState.COMPLETE:
            assert trial.value == min(seen.values())
            assert len(seen) == 3
