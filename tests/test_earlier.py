"""Checkpoints of earlier versions load and give the numbers they gave then; their runs resume as if never stopped.

tests/fixtures/write_earlier.py says what each fixture is.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tiny
from fixtures.earlier_numbers import measures, numbers

EARLIER = Path(__file__).parent / "fixtures" / "earlier"
NUMBERS: dict[str, Any] = json.loads((EARLIER / "numbers.json").read_text(encoding="utf-8"))
RUNS = [name for name in NUMBERS if name.startswith("run-")]
MODELS = [name for name in NUMBERS if name not in RUNS]


def check_equal(found: Any, expected: Any, tolerance: float = 2e-4) -> None:
    """Texts and counts must be equal, real numbers nearly: another CPU or version of torch rounds otherwise."""
    if isinstance(expected, dict):
        assert found.keys() >= expected.keys()
        for name in expected:
            check_equal(found[name], expected[name], tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            check_equal(one, other, tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=1e-5)
    else:
        assert found == expected


@pytest.mark.parametrize("name", MODELS)
def test_an_earlier_checkpoint_gives_its_numbers(name: str) -> None:
    check_equal(numbers(EARLIER / name), NUMBERS[name])


@pytest.mark.parametrize("name", RUNS)
def test_an_earlier_run_resumes_as_if_never_stopped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = NUMBERS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    shutil.copytree(EARLIER / name, "run")
    shutil.copy(EARLIER / expected["data"], ".")
    steps = [line["step"] for line in measures(Path("run"))]
    assert 0 < expected["steps"][0] < expected["steps"][1] < expected["measures"][-1]["step"]
    assert steps[-1] <= expected["steps"][1]
    assert tiny.hmrnn("train", expected["data"], "--out", "run", "--resume", "--no-report") == 0
    # engines round otherwise than they did, and training amplifies it
    check_equal(measures(Path("run")), expected["measures"], tolerance=2e-3)
    check_equal(numbers(Path("run")), expected["best"], tolerance=2e-3)
