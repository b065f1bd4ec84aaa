"""The recorded results: complete, and the tables made from them up to date."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from hmrnn import cli
from hmrnn.config import Config

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
    assert result["seconds"] == pytest.approx(lines[-1].get("seconds", result["seconds"]), rel=0.1)


def test_a_table_of_handwriting(tmp_path: Path) -> None:
    table = tiny.script(RESULTS / "table.py")
    given = json.loads((RESULTS / "ptb/step-seed1/result.json").read_text())
    del given["validation_bits"]
    for name, nats, rates in (("lstm", 1000.4, []), ("hm", 1100.6, [0.3, 0.0])):
        scores = [{"name": f"level {l}", "tolerance": {"0": {"f1": 0.1 * l}}} for l in (1, 2) if rates]
        test = {"log_likelihood": nats, "rates": rates, "saved": 0.5, "boundaries": scores}
        (tmp_path / name).mkdir()
        for file in ("config.json", "log.txt"):
            (tmp_path / name / file).touch()
        result = given | {"model": name, "validation_nats": -nats + 10, "test": test}
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    hm, lstm = table.table_of_strokes(tmp_path).splitlines()[2:]
    assert "| 1091 | 1101 | 0.300, 0.000 (dead) | 50 % |" in hm
    assert hm.endswith("| 0.10, 0.20 |")
    assert "| 990 | 1000 | - |" in lstm
    (tmp_path / "hm/result.json").write_text(json.dumps(given))
    with pytest.raises(SystemExit, match="without its validation"):
        table.table_of_strokes(tmp_path)


def test_every_row_that_can_be_reproduced_is_a_command() -> None:
    for name, table in tiny.script(RESULTS / "reproduce.py").TABLES.items():
        done = subprocess.run(
            [sys.executable, RESULTS / "reproduce.py", name, "--list"],
            capture_output=True,
            text=True,
        )
        listed = [shlex.split(line) for line in done.stdout.splitlines()]
        assert len(listed) == 2 * len(table.rows), done.stderr
        for words in listed:
            assert words[:2] == ["hmrnn", "train"]
            _, arguments = cli._train_arguments([*words[2:], "--out", "run"])
            Config(arguments.data, arguments.model, arguments.train, arguments.regularise).check()
    done = subprocess.run([sys.executable, RESULTS / "reproduce.py", "ptb"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--path is missing" in done.stderr
