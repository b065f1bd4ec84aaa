"""``hmrnn bench``: what it measures, and what it makes of it."""

from __future__ import annotations

import pytest

import tiny
from hmrnn.cli import bench
from hmrnn.cli.bench import Size

NETWORKS = [
    "nn.LSTM", "hmrnn.nn.LSTM", "hmrnn.nn.LSTM, layer norm", "HM-LSTM", "HM-LSTM, layer norm", "the paper's cell"
]  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [Size(8, 3, 4, 5), Size(6, 2, 4, 5), Size(8, 1, 4, 5)]
    monkeypatch.setattr(bench, "SIZES", dict.fromkeys(("cpu", "cuda"), sizes))


def test_table_and_record(command: tiny.Command) -> None:
    printed = command("bench --repeats 1")
    assert all(name in printed for name in (*NETWORKS, "(1.00"))
    record = command.json("bench --repeats 2 --json")
    assert "1 thread" in record["environment"]["hardware"]
    *trained, read = record["ms"].values()
    assert list(record["ms"]) == ["3×8, 3×4", "3×6, 2×4", "3×8, 1×4"]
    for column in trained:
        assert list(column) == NETWORKS
        assert [one["engine"] for one in column.values()][1:] == ["native"] * 5
    assert list(read) == ["nn.LSTM", "HM-LSTM"]
    for column in (*trained, read):
        for one in column.values():
            assert one["speed"] == pytest.approx(column["nn.LSTM"]["ms"] / one["ms"])


def test_the_best_of_turns_counts_and_of_ways_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"slow": [6.0, 5.0], "fast": [2.0, 9.0], "ours": [3.0, 1.0]}
    monkeypatch.setattr(bench, "_time", lambda work, device: work())
    subjects = [
        bench.Subject(column, engine, iter([0.0, *times[engine]]).__next__)
        for column, engine in (("nn.LSTM", "slow"), ("nn.LSTM", "fast"), ("HM-LSTM", "ours"))
    ]
    assert bench.in_turn(iter(subjects), 2, "cpu") == {
        "nn.LSTM": {"ms": 2.0, "engine": "fast", "speed": 1.0}, "HM-LSTM": {"ms": 1.0, "engine": "ours", "speed": 2.0}
    }  # fmt: skip


def test_boundaries_have_the_rates_and_nest() -> None:
    z = bench.forced_boundaries(Size(8, 64, 5000, 4), (0.21, 0.033))
    assert z.mean((0, 1)).tolist() == pytest.approx([0.21, 0.033], rel=1e-4)
    assert bool((z[..., 0] >= z[..., 1]).all())


@pytest.mark.parametrize("flag", ["--repeats 0", "--threads 0", "--precision bf16"])
def test_what_cannot_be_is_refused(flag: str, command: tiny.Command) -> None:
    assert flag.split()[0] in command.refused(f"bench {flag}")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_on_a_gpu(precision: str, command: tiny.Command) -> None:
    record = command.json(f"bench --device cuda --precision {precision} --repeats 2 --json")
    for row in list(record["ms"].values())[:-1]:
        assert [one["engine"].split("-")[0] for one in row.values()][1:] == ["torch", "cuda", "cuda", "cuda", "cuda"]
