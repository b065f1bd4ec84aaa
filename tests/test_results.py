"""The recorded results: complete, and the tables made from them up to date."""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from hmrnn import cli
from hmrnn.config import Config
from hmrnn.config_use import idle, unused

RESULTS = Path(__file__).parents[1] / "results"


def test_the_tables_are_those_of_the_results() -> None:
    done = subprocess.run([sys.executable, RESULTS / "table.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*/result.json")), ids=lambda path: path.parent.name)
def test_a_result_is_what_its_metrics_say(path: Path) -> None:
    result = json.loads(path.read_text())
    lines = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
    unit = "bits" if "validation_bits" in result else "nats"
    assert result[f"validation_{unit}"] == min(line[unit] for line in lines if line["event"] == "valid")
    assert result["seconds"] == [line["seconds"] for line in lines if line["event"] == "train"][-1]
    assert result["epochs"] == pytest.approx(lines[-1]["epoch"], abs=0.06)  # to a digit


def test_a_table_of_handwriting(tmp_path: Path) -> None:
    table = tiny.script(RESULTS / "table.py")
    given = json.loads((RESULTS / "ptb/step-seed1/result.json").read_text())
    del given["validation_bits"]
    for name, nats, rates in (("lstm", 1000.4, []), ("hm", 1100.6, [0.3, 0.0])):
        scores = [{"name": f"level {l}", "tolerance": {"0": {"f1": 0.1 * l}}} for l in (1, 2) if rates]
        test = {"log_likelihood": nats, "rates": rates, "saved": 0.5, "boundaries": scores}
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.txt").touch()
        (tmp_path / name / "config.json").write_text('{"model": {"boundary": "step"}}')
        windows = [(10, 0.9, -100.0), (30, 1.2, -1000.0), (40, 2.0, -1400.0)]  # the last two are of the last epoch
        lines = [{"event": "train", "step": step, "epoch": epoch, "nats": nats} for step, epoch, nats in windows]
        lines.append({"event": "valid", "step": 40, "epoch": 2.0, "nats": -nats + 10})
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
        result = given | {"model": name, "validation_nats": -nats + 10, "test": test}
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    hm, lstm = table.table_of_strokes(tmp_path).splitlines()[2:]
    assert "| 1133 | 1091 | 1101 | 0.300, 0.000 (dead) | 50 % |" in hm  # 20 updates at 1000 and 10 at 1400
    assert hm.endswith("| 0.10, 0.20 |")
    assert "| 1133 | 990 | 1000 | - | - |" in lstm
    (tmp_path / "hm/result.json").write_text(json.dumps(given))
    with pytest.raises(SystemExit, match="without its validation"):
        table.table_of_strokes(tmp_path)


@pytest.mark.parametrize(("epochs", "shown"), [(24, "24"), (34.0, "34"), (32.3, "32.3")])
def test_epochs_of_a_row(epochs: float, shown: str) -> None:
    table = tiny.script(RESULTS / "table.py")
    run = RESULTS / "ptb/step-seed1"
    assert table.cost(run, json.loads((run / "result.json").read_text()) | {"epochs": epochs})[2] == shown


def test_soft_boundaries_save_nothing() -> None:
    table = tiny.script(RESULTS / "table.py")
    for name, shown in (("soft-seed1", "-"), ("step-seed1", "35 %")):
        run = RESULTS / "ptb" / name
        assert table.saved(run, json.loads((run / "result.json").read_text())["test"]) == shown


def test_dynamic_evaluation_is_a_row_of_its_own_and_marked(tmp_path: Path) -> None:
    table = tiny.script(RESULTS / "table.py")
    shutil.copytree(RESULTS / "ptb/step-seed1", tmp_path / "run")
    given = json.loads((tmp_path / "run/result.json").read_text())
    assert len(table.row(tmp_path / "run", given).splitlines()) == 1
    (tmp_path / "run/test-dynamic.json").write_text(json.dumps({"bits": 1.1, "rates": [0.5, 0.2], "saved": 0.4}))
    plain, dynamic = table.row(tmp_path / "run", given).splitlines()
    assert f"| {given['test']['bits']:.4f} |" in plain
    assert "not comparable" in dynamic
    assert "| 1.1000 (dynamic) | 0.500, 0.200 | 40 % |" in dynamic
    assert dynamic.count("|") == plain.count("|")


def test_every_row_that_can_be_reproduced_is_a_command_with_the_settings_of_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tiny.script(RESULTS / "reproduce.py")
    options = argparse.Namespace(path=["DIR"], device="auto", precision="bf16", more="")
    rows = [(name, row) for name, table in script.TABLES.items() for row in table.rows]
    made = [script.command(script.TABLES[name], script.TABLES[name].rows[row], 1, options) for name, row in rows]
    for words, (name, row) in zip(made, rows):
        assert words[0] == "train"
        _, arguments = cli._train_arguments([*words[1:], "--out", "run"])
        config = Config(arguments.data, arguments.model, arguments.train, arguments.regularise)
        config.check()
        no_matter = unused(config.model).keys() | idle(config).keys()
        for run in (RESULTS / name).glob(f"{row}-seed*"):
            assert tiny.differences(run, config) <= no_matter, run
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "text8", "--list", "--seeds", "1"])
    script.main()
    listed = [shlex.split(line)[1:] for line in capsys.readouterr().out.splitlines()]
    assert listed == [words for words, (name, _) in zip(made, rows) if name == "text8"]
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "ptb"])
    with pytest.raises(SystemExit) as end:
        script.main()
    assert end.value.code == 2
    assert "--path is missing" in capsys.readouterr().err
