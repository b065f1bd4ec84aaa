"""Train recorded runs again, with the settings that they were recorded with, and print what they reach beside that.

    python results/reproduce.py ptb                                             # the runs, and what they reached
    python results/reproduce.py ptb --path DIR --device cuda                    # all of them, one after another
    python results/reproduce.py ptb held-seed1 ln-lstm-seed1 --path DIR

The same command resumes a run that was interrupted and skips those that ``--out`` already holds. A run is a line of
``TABLE.jsonl``; its checkpoints stay in ``--runs``. ``python results/table.py`` makes the tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from table import HERE, Run, figure

sys.path.insert(0, str(HERE.parent / "benchmarks"))
from hmrnn.cli.train import run_to_end
from hmrnn.config import Config
from hmrnn.config.json import from_json
from hmrnn.training.rundir import RunDirectory
from machine import commit, hardware


def held(file: Path) -> dict[str, Run]:
    """The runs of a file, by their names; none if it is not there."""
    return {line["name"]: line for line in map(json.loads, file.read_text().splitlines())} if file.exists() else {}


def config_of(run: Run, path: Sequence[str], **train: Any) -> Config:
    """The settings of a recorded run, with data at ``path`` and other settings of ``train``."""
    config = from_json(json.dumps(run["config"]).encode(), Config, run["name"])
    data = dataclasses.replace(config.data, path=tuple(path))
    return dataclasses.replace(config, data=data, train=dataclasses.replace(config.train, **train))


def reproduce(old: Run, file: Path, config: Config, folder: Path) -> str:
    """Train and evaluate one run, and record it in ``file``; returns a message."""
    name = old["name"]
    if name in held(file):
        return f"{file}, {name}: is there already"
    run = RunDirectory(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not run.newest_progress().get("finished"):
        again, resume = " ".join(["python", *sys.argv]), bool(run.states())
        status = run_to_end(
            config, run, resume=resume, overwrite=run.holds_run and not resume, report=False, again=again
        )
        if status:
            sys.exit(status)
    flags = ["--boundaries"] * ("boundaries" in old["test"])
    test = evaluation(folder, config.train.device, flags)
    lines = held(file) | {name: record(old, folder, test)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(lines[key], ensure_ascii=False) + "\n" for key in sorted(lines)))
    return f"{file}, {name}: {figure(test):.4f} (recorded: {figure(old['test']):.4f})"


def evaluation(run: Path, device: str, flags: Sequence[str]) -> dict[str, Any]:
    """The output of ``hmrnn evaluate`` on the test part."""
    command = [sys.executable, "-m", "hmrnn", "evaluate", "-m", str(run), "--device", device, "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"evaluation of {run} failed: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def curve(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per epoch from the lines of metrics.jsonl.

    ``training`` is the mean over the updates of the epoch, in bits or nats; ``validation`` is None and ``rates`` are
    those of training if the epoch was not validated; ``seconds`` counts from the start of the run.
    """
    epochs: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    validated: dict[int, dict[str, Any]] = {}
    done = 0
    for line in metrics:
        epoch = math.ceil(line["epoch"] - 1e-6)
        if line["event"] == "train":
            epochs.setdefault(epoch, []).append((line["step"] - done, line))
            done = line["step"]
        elif line["event"] == "valid":
            validated[epoch] = line
    lines = []
    for epoch, parts in epochs.items():
        last, valid = parts[-1][1], validated.get(epoch)
        unit = "bits" if "bits" in last else "nats"
        training = sum(count * line[unit] for count, line in parts) / sum(count for count, _ in parts)
        lines.append(
            {
                "epoch": round(last["epoch"], 4),
                "training": round(training, 6),
                "validation": valid and round(valid[unit], 6),
                "rates": [round(rate, 4) for rate in (valid or last).get("rates", ())],
                "seconds": last["seconds"],
            }
        )
    return lines


def record(old: Run, run: Path, test: dict[str, Any]) -> Run:
    """The line of a finished run, which trained as ``old`` did: result, config and curve."""
    config = json.loads((run / "config.json").read_text())
    config["data"]["path"] = [f"data/{Path(place).name}" for place in config["data"]["path"]]  # not one's own folders
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line["event"] == "valid"]
    train = [line for line in lines if line["event"] == "train"]
    unit = "bits" if "bits" in valid[0] else "nats"
    best = min(valid, key=lambda line: line[unit])
    device = "cuda" if torch.cuda.is_available() and config["train"]["device"] != "cpu" else "cpu"
    return {
        "name": old["name"],
        "data": old["data"],
        "model": old["model"],
        "parameters": old["parameters"],
        "seed": config["train"]["seed"],
        "epochs": round(train[-1]["epoch"], 1),
        "best_epoch": best["epoch"],
        f"validation_{unit}": best[unit],
        "test": test,
        "characters_per_second": round(statistics.median(line["symbols_per_second"] for line in train)),
        "seconds": train[-1]["seconds"],
        "hardware": f"{hardware(device)}, torch {torch.__version__}",
        "precision": config["train"]["precision"],
        "date": str(datetime.date.today()),
        "commit": commit(),
        "note": "",
        "config": config,
        "curve": curve(lines),
    }


def main() -> None:
    tables = [file.stem for file in sorted(HERE.glob("*.jsonl")) if '"best_epoch"' in file.read_text()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=tables)
    parser.add_argument("names", nargs="*", help="runs to train (default: all)")
    parser.add_argument("--path", nargs="+", help="files or folder of the corpus; without it the runs are listed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bf16", choices=["bf16", "float32"])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for runs")
    parser.add_argument("--out", type=Path, default=Path("runs/results"), help="folder for the new lines")
    options = parser.parse_args()
    recorded = held(HERE / f"{options.table}.jsonl")
    if unknown := next((name for name in options.names if name not in recorded), None):
        parser.error(f"{options.table} has no run {unknown}; it has {', '.join(recorded)}")
    for name in options.names or recorded:
        old = recorded[name]
        if options.path is None:
            print(f"{name}: {old['model']} (recorded: {figure(old['test']):.4f})")
            continue
        config = config_of(old, options.path, device=options.device, precision=options.precision)
        folder = options.runs / options.table / name
        print(reproduce(old, options.out / f"{options.table}.jsonl", config, folder), flush=True)


if __name__ == "__main__":
    main()
