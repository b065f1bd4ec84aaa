"""The recorded results, the pages that are made from them, and the script that trains their rows again."""

import argparse
import json
import shlex
import sys
from pathlib import Path

import pytest

import tiny
from hmrnn.cli.settings import train_arguments
from hmrnn.config import Config

pytestmark = tiny.needs_results
RESULTS = tiny.ROOT / "results"


def test_the_tables_are_those_of_the_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tiny.script(RESULTS / "table.py")
    monkeypatch.setattr(sys, "argv", ["table.py", "--check"])
    script.main()  # or it exits, and says which page is out of date
    for name in ("ptb-search", "ptb-large", "iamondb"):  # on no page, or in another form
        monkeypatch.setattr(sys, "argv", ["table.py", name])
        script.main()
    shown = capsys.readouterr().out
    assert shown.count("\n| LN-HM-LSTM") > 20
    assert "1.1426 (dynamic)" in shown


METRICS = [
    {"event": "train", "step": 10, "epoch": 0.9, "nats": -100.0, "rates": [0.5], "seconds": 1.0},
    {"event": "train", "step": 12, "epoch": 1.0, "nats": -400.0, "rates": [0.5], "seconds": 1.5},
    {"event": "detector", "step": 12, "epoch": 1.0, "layer": 1},
    {"event": "valid", "step": 12, "epoch": 1.0, "nats": -300.0, "rates": [0.25]},
    {"event": "train", "step": 30, "epoch": 1.2, "nats": -1000.0, "rates": [0.5], "seconds": 2.0},
    {"event": "train", "step": 40, "epoch": 1.8, "nats": -1400.0, "rates": [0.75], "seconds": 3.0},
]


def test_a_finished_run_is_a_line_with_its_curve(tmp_path: Path) -> None:
    """Means are weighted by updates; the second epoch was not finished, so it has no validation."""
    script = tiny.script(RESULTS / "reproduce.py")
    run = tmp_path / "hm-seed7"
    run.mkdir()
    (run / "config.json").write_text(
        json.dumps({"data": {"path": ["/one/lines"]}, "train": {"device": "cpu", "precision": "bf16"}})
    )
    lines = [line | {"symbols_per_second": 1000 * k} if line["event"] == "train" else line
             for k, line in enumerate(METRICS)]  # fmt: skip
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tests = [{"log_likelihood": 310.0, "rates": [0.25], "saved": 0.5}, {"boundaries": [], "saved": 0.1}]
    made = script.record(script.TABLES["iamondb"], script.Row("HM", ""), 7, run, "model: 1,234 parameters", tests)
    assert made["config"]["data"] == {"path": ["data/lines"]}
    assert (made["name"], made["parameters"], made["seed"], made["validation_nats"]) == ("hm-seed7", 1234, 7, -300.0)
    assert (made["epochs"], made["best_epoch"], made["seconds"]) == (1.8, 1.0, 3.0)
    assert made["characters_per_second"] == 2500
    assert made["test"] == tests[0] | {"boundaries": []}
    assert made["curve"] == [
        {"epoch": 1.0, "training": -150.0, "validation": -300.0, "rates": [0.25], "seconds": 1.5},
        {"epoch": 1.8, "training": -1142.857143, "validation": None, "rates": [0.75], "seconds": 3.0},
    ]


def matters(setting: str, config: Config) -> bool:
    """Whether a setting has an effect; recorded runs have all kinds of values where it has none."""
    if setting == "train.recurrent_gain":
        return config.train.recurrent_gain is not None
    if setting == "detectors.slope":
        return config.model.detectors > 0 and config.detectors.slope[0] > 0
    if setting == "detectors.pull_to":
        return config.detectors.pull_weight > 0
    return config.model.detectors > 0 or not setting.startswith("detectors.")


def test_every_row_that_can_be_reproduced_is_a_command_with_the_settings_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tiny.script(RESULTS / "reproduce.py")
    options = argparse.Namespace(path=["DIR"], device="auto", precision="bf16", more="")
    for name, table in script.TABLES.items():
        recorded = tiny.recorded(name) if (RESULTS / f"{name}.jsonl").exists() else {}
        for row in table.rows:
            words = script.command(table, table.rows[row], 1, options)
            config = train_arguments([*words[1:], "--out", "run"]).config
            config.check()
            for key, run in recorded.items():
                if key.rpartition("-seed")[0] == row:
                    assert not [what for what in tiny.differences(run["config"], config) if matters(what, config)], key
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "text8", "--list", "--seeds", "1"])
    script.main()
    first, command, *_ = capsys.readouterr().out.splitlines()
    assert "(recorded: 1.3760)" in first
    assert shlex.split(command)[-2:] == ["--out", "runs/text8/ln-lstm-seed1"]
    for arguments in ([], ["--path", "nowhere"]):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", "ptb", *arguments])
        with pytest.raises(SystemExit, match="2"):
            script.main()
