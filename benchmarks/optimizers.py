"""Which optimizer learns best: LSTM, LN-LSTM and HM-LSTM without FLUSH, at several rates.

    python benchmarks/optimizers.py enwik8.xz --out optimizers.jsonl --seconds 570 lstm:adam:0.002 ln-lstm:muon:0.004:2
    python benchmarks/optimizers.py enwik8.xz --ptb corpora/ptb ptb-lstm:adam:0.001 ptb-hm-lstm:muon:0.004

A cell is NETWORK:OPTIMIZER:RATE, then its seed, then further settings, as ``:train.epochs=1`` or
``:model.hidden_size=[512,512,1024]``. It trains on enwik8 for two epochs without dropout or, with ``ptb-`` before the
network, on Penn Treebank for 30 with the dropout of the recorded runs; then the best epoch is evaluated on the test
part. ``ptb-held`` is an HM-LSTM of three layers of 512 whose detectors are held at higher rates. Optimizers: adam,
adam0 (beta1 = 0), muon (muon3 in the records, where muon had five steps of Newton-Schulz), normuon (Muon with row_beta
0.95), muon-out (Muon for the output module's matrices, too).

A run that fails starts once more from its last checkpoint. As many cells train side by side as ``--processes`` says,
on one GPU through MPS if it starts. Each result is a line of JSON that is written at once. Cells with a result in the
file are not run again. When the time is up, the runs that go on are stopped; with their folders still in ``--work``
the next call resumes them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from hmrnn.config import Config, DetectorConfig, RegulariseConfig, TrainConfig
from hmrnn.config.json import to_json
from hmrnn.errors import InputError
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.kinds.text.settings import TextData, TextModelConfig
from hmrnn.nn.predictor import GatedOutput
from hmrnn.optim import Muon
from hmrnn.training import prepare, trainer
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from machine import commit

DIVERGED, STOPPED = 3, 4
"""Exit statuses of a cell."""
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam"},
    "adam0": {"optimizer": "adam", "beta1": 0.0},
    "muon": {"optimizer": "muon"},
    "normuon": {"optimizer": "muon"},
    "muon3": {"optimizer": "muon"},
    "muon-out": {"optimizer": "muon"},
}
WORDS = DetectorConfig(
    rates=(0.19, 0.045), start_at_rates=True, rate_weight=0.0, rate_control=0.02, on_copy="hold",
    pull_to="uncertainty", pull_weight=0.3, pull_margin=1.0,
)  # fmt: skip
HELD = dataclasses.replace(PRESETS["enwik8-best"].detectors, slope=(0.04, 5.0))
DROPOUT = RegulariseConfig(
    weight_drop=0.25, dropout_embedding=0.1, dropout_between=0.1, dropout_output=0.25, shift=True
)  # fmt: skip
SIZES = {"lstm": (512,), "ln-lstm": (512,), "hm-lstm": (768, 1024, 1024), "held": (512,)}


class NorMuon(Muon):
    """Muon whose rows change alike."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, row_beta=0.95, **options)


def config_of(cell: str, work: Path, device: str, toy: bool) -> Config:
    """The settings of a cell; with ``toy`` of a network and batches so small that a run takes seconds."""
    name, optimizer, rate, *more = cell.split(":")
    network, ptb = name.removeprefix("ptb-"), name.startswith("ptb-")
    seed, settings = int(more[0]) if more else 1, [setting.partition("=") for setting in more[1:]]
    rnn = "hm-lstm" if network == "held" else network
    model = TextModelConfig(
        rnn=rnn, hidden_size=(24,) if toy else SIZES[network], embedding_size=8 if toy else 128,
        output_size=24 if toy else 512 if ptb and network != "hm-lstm" else 1024, layer_norm=network != "lstm",
        flush=rnn != "hm-lstm", top_down="pending" if rnn == "hm-lstm" else "boundary",
    )  # fmt: skip
    training = TrainConfig(
        epochs=2, batch_size=16 if toy else 192, length=20 if toy else 100, learning_rate=float(rate), cool_down=0.9,
        patience=99, validation_symbols=5_000 if toy else 1_000_000, precision="float32" if toy else "bf16",
        device=device, log_every=100 if toy else 500, checkpoint_every=1e6, skip_nonfinite=True,
        recurrent_gain={"ln-lstm": 1.0, "held": 0.3}.get(network),
    )  # fmt: skip
    if ptb:
        training = dataclasses.replace(
            training, epochs=2 if toy else 30, batch_size=16 if toy else 128, cool_down=0.6, validation_symbols=0
        )
    training = dataclasses.replace(training, **OPTIMIZERS[optimizer], seed=seed)
    detectors = {"hm-lstm": WORDS, "held": HELD}.get(network, DetectorConfig())
    data = TextData(format="ptb" if ptb else "enwik8", path=(str(work / ("ptb" if ptb else "enwik8")),))
    config = Config(data, model, training, DROPOUT if ptb else RegulariseConfig(), detectors)
    asked = {key: tomllib.loads(f"it = {value}")["it"] for key, _, value in settings}
    changed = config.changed({key: tuple(it) if isinstance(it, list) else it for key, it in asked.items()})
    changed.check()
    return changed


def run_cell(cell: str, work: Path, device: str, toy: bool) -> int:
    """Train a cell, or go on with it; the exit status."""
    config, folder = config_of(cell, work, device, toy), work / cell
    torch.set_num_threads(1)
    if cell.split(":")[1] == "normuon":
        prepare.Muon = NorMuon  # type: ignore[misc]
    elif cell.split(":")[1] == "muon-out":
        GatedOutput.gate_blocks = lambda self: [(one.weight, 1) for one in self.embeddings]  # type: ignore[attr-defined]
    corpus = load_corpus(config.data)
    run = RunDirectory(folder)
    resume = bool(run.states())
    run.check(resume=resume, overwrite=not resume)
    event: dict[str, Any] = {}
    with run.open(overwrite=not resume and run.holds_run):
        made = trainer.Trainer(config, corpus, torch.device(device))
        events = train(made, run, resume=resume)
        try:
            for event in events:
                if event["event"] != "step":
                    print(json.dumps(event), flush=True)
        except InputError as error:
            (folder / "diverged.txt").write_text(str(error))
            return DIVERGED
    if event["signal"]:
        return STOPPED
    if config.data.format == "ptb":
        command = ["evaluate", "-m", str(folder), "--device", device, "--json"]
        told = subprocess.run([sys.executable, "-m", "hmrnn", *command], stdout=subprocess.PIPE, check=True).stdout
        (folder / "test.json").write_bytes(told)
    return 0


def result_of(cell: str, config: Config, folder: Path, **more: Any) -> dict[str, Any]:
    """What a cell has reached: bits by epoch."""
    metrics = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    kinds = {kind: [line for line in lines if line["event"] == kind] for kind in ("train", "valid")}
    ends = {round(line["epoch"]): line for line in kinds["valid"]}
    last = [line["bits"] for line in kinds["train"] if line["epoch"] > max(ends, default=0) - 1 + 1e-9]
    t, test = config.train, folder / "test.json"
    more |= {"test": json.loads(test.read_text())} if test.exists() else {}
    return {
        "cell": cell, "network": cell.split(":")[0], "optimizer": cell.split(":")[1], "rate": t.learning_rate,
        "seed": t.seed, "epochs": t.epochs, **more,
        "validation": {epoch: line["bits"] for epoch, line in ends.items()},
        "rates": {epoch: line["rates"] for epoch, line in ends.items() if epoch in (1, 2, max(ends))},
        "multiply_adds": kinds["valid"][-1]["multiply_adds"] if kinds["valid"] else None,
        "training": sum(last) / len(last) if last else None,
        "reached": lines[-1]["epoch"] if lines else 0.0,
        "skipped": sum(line.get("skipped", 0) for line in kinds["train"]),
        "seconds": kinds["train"][-1]["seconds"] if kinds["train"] else None,
        "date": datetime.date.today().isoformat(), "commit": commit(), "config": json.loads(to_json(config)),
    }  # fmt: skip


def finished(results: Path) -> set[str]:
    """The cells that have a final result in a file."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {line["cell"] for line in map(json.loads, lines) if line["end"] in ("done", "diverged")}


def unpack(source: Path, target: Path, size: int) -> None:
    """The first bytes of a file that may be compressed, in a file that is complete once it is there."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with (lzma.open if source.suffix == ".xz" else open)(source, "rb") as packed, open(f"{target}.part", "wb") as part:
        while size > 0 and (block := packed.read(min(size, 1 << 24))):
            part.write(block)
            size -= len(block)
    os.replace(f"{target}.part", target)


@contextlib.contextmanager
def shared_gpu(work: Path) -> Any:
    """MPS, by which kernels of several processes run at the same time, if it can be started."""
    places = {f"CUDA_MPS_{name}_DIRECTORY": str(work / f"mps-{name.lower()}") for name in ("PIPE", "LOG")}
    environment = {**os.environ, **places}
    for place in places.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    control, started = shutil.which("nvidia-cuda-mps-control"), False
    silent: dict[str, Any] = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    probe = "import torch; torch.zeros(1, device='cuda').add_(1).item()"
    with contextlib.suppress(subprocess.TimeoutExpired):
        if control and subprocess.run([control, "-d"], timeout=30, **silent).returncode == 0:
            started = subprocess.run([sys.executable, "-c", probe], timeout=90, **silent).returncode == 0
    print(f"MPS: {started}", flush=True)
    try:
        yield environment if started else dict(os.environ)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if control:
                subprocess.run([control], input=b"quit\n", timeout=20, **silent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="enwik8, or enwik8.xz")
    parser.add_argument("--ptb", type=Path, help="a folder with ptb.char.train.txt and the others, also with .xz")
    parser.add_argument("cells", nargs="+", help="in the order in which they are run")
    parser.add_argument("--out", type=Path, default=Path("optimizers.jsonl"), help="file of results to append to")
    parser.add_argument("--seconds", type=float, default=1e9, help="when the runs are stopped; no cell starts after")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--work", type=Path, default=Path("/tmp/optimizers"), help="runs, the unpacked text, a cache")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="small networks and 200 kB of the text, as a rehearsal")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # train the cell in this process
    args = parser.parse_args()
    began = time.monotonic()
    if args.one:
        (cell,) = args.cells
        sys.exit(run_cell(cell, args.work, args.device, args.toy))

    args.work.mkdir(parents=True, exist_ok=True)
    os.environ |= {"HMRNN_CACHE": str(args.work / "cache"), "OMP_NUM_THREADS": "1", "HMRNN_COMMIT": commit()}
    configs = {cell: config_of(cell, args.work, args.device, args.toy) for cell in args.cells}
    unpack(args.file, args.work / "enwik8", 200_000 if args.toy else 1 << 62)
    for source in sorted(args.ptb.glob("ptb.char.*")) if args.ptb else ():
        unpack(source, args.work / "ptb" / source.name.removesuffix(".xz"), 30_000 if args.toy else 1 << 62)
    for data in {config.data for config in configs.values()}:
        load_corpus(data)  # once, for all processes
    done = finished(args.out)
    waiting = [cell for cell in args.cells if cell not in done]
    print(f"{time.monotonic() - began:.0f} s: the text is ready; cells to run: {' '.join(waiting)}", flush=True)

    def record(cell: str, end: str, **more: Any) -> None:
        line = result_of(cell, configs[cell], args.work / cell, end=end, device=device, **more)
        with open(args.out, "a") as file:
            file.write(json.dumps(line) + "\n")
        last = list(line["validation"].items())[-1:]
        print(f"{time.monotonic() - began:.0f} s: {cell} {end} {last} {more or ''}", flush=True)

    running: dict[str, subprocess.Popen[bytes]] = {}
    shared = shared_gpu(args.work) if args.device == "cuda" else contextlib.nullcontext(dict(os.environ))
    with shared as environment:
        device, stopping = args.device, 0.0
        if device == "cuda":  # without a context of this process on the GPU
            asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
            device = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
        validated, failed = dict.fromkeys(args.cells, 0), set[str]()
        while waiting or running:
            elapsed = time.monotonic() - began
            if elapsed > args.seconds and not stopping:
                stopping, waiting = elapsed, []
                for process in running.values():
                    process.terminate()
            if stopping and elapsed > stopping + 25:
                for process in running.values():
                    process.kill()
            while waiting and len(running) < args.processes:
                cell = waiting.pop(0)
                command = [sys.executable, __file__, str(args.file), cell, "--one", "--work", str(args.work)]
                command += ["--device", args.device, *["--toy"] * args.toy]
                with open(args.work / f"{cell}.log", "ab") as log:
                    running[cell] = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
                print(f"{elapsed:.0f} s: {cell} starts", flush=True)
            for cell, process in list(running.items()):
                code, folder = process.poll(), args.work / cell
                if code is None:
                    metrics = folder / "metrics.jsonl"
                    count = metrics.read_bytes().count(b'{"event": "valid"') if metrics.exists() else 0
                    if count > validated[cell]:
                        validated[cell] = count
                        record(cell, "epoch")
                    continue
                del running[cell]
                if code == 0:
                    record(cell, "done")
                elif code == DIVERGED:
                    record(cell, "diverged", message=(folder / "diverged.txt").read_text())
                elif code in (STOPPED, -signal.SIGTERM, -signal.SIGKILL):
                    record(cell, "stopped")
                else:
                    log = (args.work / f"{cell}.log").read_text()
                    record(cell, "failed", message=f"exit status {code}: {log[-1500:]}")
                    if cell not in failed:
                        failed.add(cell)
                        waiting.insert(0, cell)
            time.sleep(0.5)
    print(f"{time.monotonic() - began:.0f} s: the end", flush=True)


if __name__ == "__main__":
    main()
