"""The recorded results, the pages that are made from them, and the script that trains their rows again."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

import tiny

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
        json.dumps({"data": {"path": ["/one/lines"]}, "train": {"device": "cpu", "precision": "bf16", "seed": 7}})
    )
    lines = [line | {"symbols_per_second": 1000 * k} if line["event"] == "train" else line
             for k, line in enumerate(METRICS)]  # fmt: skip
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    test = {"log_likelihood": 310.0, "rates": [0.25], "saved": 0.5, "boundaries": []}
    old = {"name": "hm-seed7", "data": "IAM-OnDB", "model": "HM", "parameters": 1234}
    made = script.record(old, run, test)
    assert made["config"]["data"] == {"path": ["data/lines"]}
    assert (made["name"], made["parameters"], made["seed"], made["validation_nats"]) == ("hm-seed7", 1234, 7, -300.0)
    assert (made["epochs"], made["best_epoch"], made["seconds"]) == (1.8, 1.0, 3.0)
    assert made["characters_per_second"] == 2500
    assert made["test"] == test
    assert made["curve"] == [
        {"epoch": 1.0, "training": -150.0, "validation": -300.0, "rates": [0.25], "seconds": 1.5},
        {"epoch": 1.8, "training": -1142.857143, "validation": None, "rates": [0.75], "seconds": 3.0},
    ]


def test_recorded_runs_can_be_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All settings are understood; a run of theirs, made small, becomes a line beside the recorded one."""
    script = tiny.script(RESULTS / "reproduce.py")
    recorded = [run for file in RESULTS.glob("*.jsonl") for run in script.held(file).values() if "best_epoch" in run]
    for run in recorded:
        script.config_of(run, ["DIR"], device="cpu").check()
    assert len(recorded) > 150

    for part in ("train", "valid", "test"):
        (tmp_path / f"ptb.char.{part}.txt").write_text("t h e _ c a t _ s a t _ o n _ a _ m a t\n" * 40)
    old = script.held(RESULTS / "ptb-cell.jsonl")["base-seed1"]
    config = script.config_of(old, [str(tmp_path)], device="cpu", precision="float32", epochs=1, batch_size=4, length=9)
    model = dataclasses.replace(config.model, hidden_size=(8,), embedding_size=4, output_size=8)
    config = dataclasses.replace(config, model=model)
    out = tmp_path / "out" / "ptb-cell.jsonl"
    assert f"(recorded: {old['test']['bits']:.4f})" in script.reproduce(old, out, config, tmp_path / "run")
    assert script.held(out)["base-seed1"]["test"].keys() >= {"bits", "boundaries"}
    assert "there already" in script.reproduce(old, out, config, tmp_path / "run")
    for arguments in ([], ["ptb", "nothing-seed1", "--path", "DIR"]):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
        with pytest.raises(SystemExit, match="2"):
            script.main()
