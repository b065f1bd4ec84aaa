"""benchmarks/claims.py, and that the documents say what it found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tiny

pytestmark = tiny.needs_results
ROOT = Path(__file__).parents[1]
CLAIMS = ROOT / "results" / "claims"
NAMES = sorted(path.stem for path in CLAIMS.glob("*.json"))
NAMED = ("decisions", "howto/evaluate", "reference/hmlstm")
DOCUMENTS = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in NAMED}
SCRIPT = ROOT / "benchmarks" / "claims.py"


def found(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((CLAIMS / f"{name}.json").read_text())["found"]
    return rows


def flat(document: str) -> str:
    return " ".join(DOCUMENTS[document].split())


def test_every_claim_has_its_file_and_every_file_is_linked() -> None:
    assert sorted(tiny.script(SCRIPT).CLAIMS) == NAMES
    for name in NAMES:
        assert any(f"results/claims/{name}.json" in text for text in DOCUMENTS.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_says_where_and_when_it_was_measured(name: str) -> None:
    about = json.loads((CLAIMS / f"{name}.json").read_text())["about"]
    assert re.fullmatch("[0-9a-f]{7,}", about["commit"])
    assert "1 thread" in about["hardware"]
    assert about["date"] >= "2026-11-16"


def test_small_layers() -> None:
    plain, normed = found("small-layers")[-2:]
    assert (plain["batch"], plain["units"]) == (32, 256)
    once, without = (f"{plain[name]:.1f}" for name in ("times nn.LSTM", "times nn.LSTM without oneDNN"))
    said = (
        f"take the sparse engine {once} times as long as nn.LSTM ({without} times with oneDNN switched off), with layer"
    )
    assert said in flat("howto/evaluate")
    once, without = (f"{normed[name]:.1f}" for name in ("times nn.LSTM", "times nn.LSTM without oneDNN"))
    assert f"norm, which nn.LSTM has not, {once} ({without}) times" in flat("howto/evaluate")


def test_sixteen_bits() -> None:
    changed = {row["dtype"]: row["changed"] for row in found("sixteen-bits")}
    assert f"{100 * changed['bfloat16'][1]:.1f} % of the decisions of the second detector" in flat("reference/hmlstm")
    assert changed["float16"] == [0, 0]


def test_gradient_norms() -> None:
    norms = {(row["gain"], row["steps"]): row["norms of seeds 0 and 1"] for row in found("gradient-norms")}
    for steps, said in ((50, ["5e+05", "9e+06"]), (100, ["2e+11", "3e+14"]), (200, ["3e+22", "1e+26"])):
        assert [f"{norm:.0e}" for norm in norms[1.0, steps]] == said
    said = "norms of 5·10⁵ and 9·10⁶ after 50 steps, 2·10¹¹ and 3·10¹⁴ after 100, 3·10²² and 10²⁶ after 200"
    assert said in flat("decisions")
    assert max(norm for (gain, _), both in norms.items() if gain == 0.1 for norm in both) < 1.5


def test_what_is_measured_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = tiny.script(SCRIPT)
    monkeypatch.setattr(claims, "INTO", tmp_path / "claims")
    monkeypatch.setattr(claims, "CLAIMS", {"one": lambda: [{"a": 1}], "two": lambda: [{"b": 2}]})
    monkeypatch.setattr("sys.argv", ["claims", "two"])
    claims.main()
    assert [path.name for path in (tmp_path / "claims").iterdir()] == ["two.json"]
    written = json.loads((tmp_path / "claims" / "two.json").read_text())
    assert written["found"] == [{"b": 2}]
    assert written["about"]["torch"]
    assert "{'b': 2}" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["claims", "three"])
    with pytest.raises(SystemExit):
        claims.main()
    assert "there is no three; there are one, two" in capsys.readouterr().err


def test_turns_are_taken_and_the_first_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = tiny.script(SCRIPT)
    clock = [0.0]
    monkeypatch.setattr(claims.time, "perf_counter", lambda: clock[0])
    order: list[str] = []

    def work(name: str, seconds: list[float]) -> None:
        order.append(name)
        clock[0] += seconds.pop(0)

    a, b = [100.0, 1.0, 2.0, 9.0], [50.0, 4.0, 4.0, 5.0]
    assert claims.in_turn({"a": lambda: work("a", a), "b": lambda: work("b", b)}, 3) == {"a": 2.0, "b": 4.0}
    assert order == ["a", "b"] * 4
