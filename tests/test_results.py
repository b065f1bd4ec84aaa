"""The recorded results: complete, and the tables made from them up to date."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"


def test_the_tables_are_those_of_the_results() -> None:
    done = subprocess.run([sys.executable, RESULTS / "table.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*/result.json")), ids=lambda path: path.parent.name)
def test_a_result_is_what_its_metrics_say(path: Path) -> None:
    result = json.loads(path.read_text())
    lines = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
    valid = [line["bits"] for line in lines if line["event"] == "valid"]
    assert result["validation_bits"] == min(valid)
    assert result["seconds"] == pytest.approx(lines[-1].get("seconds", result["seconds"]), rel=0.1)
