"""The recorded results, the pages that are made from them, and the script that trains their rows again."""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_runs_agree_with_their_curves() -> None:
    for path in RESULTS.glob("*.jsonl"):
        for run in tiny.recorded(path.stem).values():
            if "model" in run:
                curve = [line for line in run["curve"] if line["validation"] is not None]
                best = min(curve, key=lambda line: float(line["validation"]))
                validation = run["validation_bits"] if "validation_bits" in run else run["validation_nats"]
                assert best["validation"] == pytest.approx(validation, abs=1e-6)
                assert (best["epoch"], run["seconds"]) == (run["best_epoch"], run["curve"][-1]["seconds"])
                assert run["seed"] == run["config"]["train"]["seed"]


@pytest.mark.parametrize(
    ("rates", "shown"),
    [([0.002, 0.98], "0.002, 0.980"), ([0.5, 0.0019], "0.500, 0.002 (dead)"), ([0.981, 0.5], "0.981 (dead), 0.500")],
)
def test_a_row_with_a_dead_level_is_marked(
    rates: list[float], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tiny.script(RESULTS / "table.py")
    run = tiny.recorded("ptb")["step-seed1"]
    dead = run | {"seed": 2, "test": run["test"] | {"bits": 1.5, "rates": rates}}
    monkeypatch.setattr(table, "runs", lambda name: {"a": run, "b": dead})
    assert table.table("ptb").splitlines()[3].split(" | ")[5] == shown
    mark = " (dead)" * ("dead" in shown)
    assert table.table_of_seeds("ptb").splitlines()[2].split(" | ")[1] == f"{run['test']['bits']:.4f}, 1.5000{mark}"


def test_the_best_runs_are_chosen_by_validation_not_by_test(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tiny.script(RESULTS / "table.py")
    runs = {
        name: {"name": name, "config": {"model": {"rnn": rnn}}, "validation_bits": bits, "test": {"bits": test}}
        for name, rnn, bits, test in (("a", "hm", 1.3, 1.1), ("b", "hm", 1.2, 1.25), ("c", "lstm", 1.4, 1.3))
    }
    monkeypatch.setattr(table, "runs", lambda name: runs)
    assert [run["name"] for run in table.best("x")] == ["b", "c"]


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


def test_a_row_trained_again_stands_beside_the_recorded_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Though it is recorded it is trained, and resumed if it was begun; the second time not."""
    script = tiny.script(RESULTS / "reproduce.py")
    again = []

    def run(arguments: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if "train" in arguments:
            directory = Path(arguments[arguments.index("--out") + 1])
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "metrics.jsonl").write_text('{"event": "train"}')
            again.append(arguments[-1] if arguments[-2] != "--out" else "")
        return subprocess.CompletedProcess(arguments, 0, stdout='{"bits": 1.5}')

    def record(table: Any, row: Any, seed: int, run: Path, *_: Any) -> dict[str, Any]:
        return {"name": run.name, "seed": seed}

    monkeypatch.setattr(script.subprocess, "run", run)
    monkeypatch.setattr(script, "record", record)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/text8/held-seed8").mkdir(parents=True)  # killed before its first checkpoint
    (tmp_path / "runs/text8/held-seed9/last-00000010").mkdir(parents=True)
    for seed, beside in ((1, "(recorded: 1.3573)"), (8, "(not recorded)"), (9, "(not recorded)")):
        arguments = ["text8", "--path", str(tmp_path), "--rows", "held", "--seeds", str(seed)]
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
        script.main()
        assert capsys.readouterr().out.endswith(f"1.5000 {beside}\n")
        script.main()
    assert again == ["", "--overwrite", "--resume"]
    written = (tmp_path / "runs/results/text8.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in written] == [1, 8, 9]
