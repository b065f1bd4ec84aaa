"""``hmrnn bench``: what it measures, and what it makes of it."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch

from hmrnn.cli import bench as bench_command
from hmrnn.cli import main as cli
from hmrnn.cli import measure as bench
from hmrnn.cli.measure import Case, Machine
from hmrnn.ops import Options

NORMS = ("", ", hmrnn with layer norm")


@pytest.fixture(autouse=True)
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "measure_machine", lambda device, precision: Machine(1e9, 1e9))


def test_tables_log_record_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_command, "Case", functools.partial(Case, steps=4))
    monkeypatch.setenv("HMRNN_COMMIT", "a1b2c3d")
    out = tmp_path / "there" / "bench-1.5"
    assert cli.run(["bench", "--sizes", "3x8", "5x8", "--repeats", "2", "--layer-norm", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert out.with_name("bench-1.5.txt").read_text() in printed
    assert out.with_name("bench-1.5.png").read_bytes().startswith(b"\x89PNG")

    record = json.loads(out.with_name("bench-1.5.json").read_text())
    assert {"hardware", "torch", "hmrnn", "date", "seed", "load before"} <= set(record["environment"])
    assert record["environment"]["commit"] == "a1b2c3d"
    cases = [f"B={b} H=8 T=4, float32 on cpu{n}" for b in (3, 5) for n in NORMS]
    streams = [f"B=1 H=8 T=4, float32 on cpu{n}" for n in NORMS]
    found = [(m["mode"], m["case"]) for m in record["measurements"] if m["subject"] == "nn.LSTM"]
    assert found == [
        *(("train", c) for c in cases), *(("forward", c) for c in cases), *(("stream", c) for c in streams)
    ]  # fmt: skip
    for mode, case in found:
        measured = {m["subject"]: m for m in record["measurements"] if (m["mode"], m["case"]) == (mode, case)}
        engine = "step" if mode == "stream" else "auto"
        names = [f"hmrnn {engine}, dense (1, 1)", f"hmrnn {engine}, first trained (0.4, 0.1)"]
        names += [f"hmrnn {engine}, figure 4 (0.21, 0.033)", f"hmrnn {engine}, no FLUSH (0.19, 0.045)"]
        lstms = ["nn.LSTM", "nn.LSTM without oneDNN"]
        assert list(measured) == [*lstms, *names, *([] if mode == "stream" else ["hmrnn reference, dense (1, 1)"])]
        floors = [measured[name]["floor_ms"] for name in names]
        assert floors[:3] == sorted(floors[:3], reverse=True)
        assert all(len(m["all_ms"]) == 2 and m["median_ms"] == sum(m["all_ms"]) / 2 for m in measured.values())


def test_boundaries_have_the_rates_and_nest() -> None:
    z = bench.forced_boundaries(Case(64, 8, steps=5000), (0.21, 0.033))
    assert z.mean((0, 1)).tolist() == pytest.approx([0.21, 0.033], rel=1e-4)
    assert bool((z[..., 0] >= z[..., 1]).all())


def test_the_floor_counts_what_events_need() -> None:
    """Of one step: with no boundary, the first layer alone; with both, everything but V, which waits for the next."""
    case = Case(1, 8, steps=1)
    inner, square = 2 * 4 * 8 * (bench.INPUT + 8), 2 * 4 * 8 * 8
    for rates, products in (((1e-9, 0.0), 0), ((1.0, 1.0), 4)):
        flops, _ = bench._hm_cost(case, "forward", bench.forced_boundaries(case, rates))
        assert flops == inner + products * square
    assert Machine(2e9, 1e9).floor(4e6, 3e6) == 3.0


def test_without_flush_a_boundary_of_level_2_alone_moves_nothing() -> None:
    case = Case(1, 8, steps=3)
    z = torch.zeros(3, 1, 2)
    z[0, 0, 1] = 1
    with_flush, without = (bench._hm_cost(case, "forward", z, flush)[0] for flush in (True, False))
    assert with_flush - without == 2 * 4 * 8 * 8  # U of the second layer


def test_what_auto_would_choose_at_these_rates_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(
        engine: str, device: torch.device, options: Options, dtype: torch.dtype, batch: int, sizes: object
    ) -> str:
        assert (engine, device.type, batch, sizes) == ("auto", "cpu", 2, (8, 8, 8))
        return "cuda-rows" if options.rates[0] < 0.3 else "cuda"

    monkeypatch.setattr(bench.ops, "choose_engine", choose)
    found = [name for name, _ in bench._subjects(Case(2, 8, steps=3), "train", ["cuda", "cuda-rows"])]
    assert [name for name in found if name.endswith(" = auto")] == [
        "hmrnn cuda, dense (1, 1) = auto",
        "hmrnn cuda, first trained (0.4, 0.1) = auto",
        "hmrnn cuda-rows, figure 4 (0.21, 0.033) = auto",
        "hmrnn cuda-rows, no FLUSH (0.19, 0.045) = auto",
    ]


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """Every way to call nn.LSTM is there, and whatever runs later, a subject's peak holds all that it needs itself."""
    case = Case(64, 64, steps=60, device="cuda", precision="bf16")
    found = {m.subject: m for m in bench.run(case, "train", 2, ["cuda", "reference"], print)}
    lstms, ours = list(found)[:3], list(found)[3:]
    assert lstms == ["nn.LSTM", "nn.LSTM under autocast", "nn.LSTM in a CUDA graph"]
    assert [name.split(",")[0] for name in ours] == ["hmrnn cuda"] * 4 + ["hmrnn reference"]
    logs = 60 * 64 * 4 * 64 * 2 * 3  # the gates of three layers at all steps
    assert all((found[name].peak_bytes or 0) > logs for name in ours)
