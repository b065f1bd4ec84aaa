"""Train and evaluate the rows of a table, and print each figure beside the recorded one.

    python results/reproduce.py ptb --list                          # the rows, as the commands they stand for
    python results/reproduce.py ptb --path DIR --device cuda        # all of them, one after another
    python results/reproduce.py ptb --path DIR --rows step --seeds 1 2 --jobs 2
    python results/reproduce.py ptb --path DIR --out results        # new rows for the tables of results/README.md

The same command resumes rows that were interrupted and skips rows that ``--out`` already holds. A row is a line of
``TABLE.jsonl``; logs and metrics stay in the folder of runs. ``python results/table.py`` makes the tables.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from table import Run, figure
from table_rows import TABLES, Row, Table

from hmrnn.cli.bench import commit, hardware

HERE = Path(__file__).parent
LOCK = threading.Lock()


def command(table: Table, row: Row, seed: int, options: argparse.Namespace) -> list[str]:
    """The arguments of ``hmrnn train`` for a row, without ``--out``."""
    chosen = ["--data.path", *options.path, "--train.device", options.device, "--train.precision", options.precision]
    return [
        "train", table.preset, *chosen, *shlex.split(f"{table.flags} {row.flags}"), "--train.seed", str(seed),
        *shlex.split(options.more),
    ]  # fmt: skip


def reproduce(table_name: str, row_name: str, seed: int, options: argparse.Namespace) -> str:
    """Train, evaluate and record one row; returns a message."""
    table = TABLES[table_name]
    row = table.rows[row_name]
    name = f"{row_name}-seed{seed}"
    file, run = Path(options.out) / f"{table_name}.jsonl", Path(options.runs) / table_name / name
    into = f"{file}, {name}"
    if name in held(file):
        return f"{into}: is there already"
    arguments = command(table, row, seed, options)
    run.parent.mkdir(parents=True, exist_ok=True)
    begun = run.exists()  # before its first checkpoint there is nothing to resume
    again = ["--resume"] if any(run.glob("last-*")) else ["--overwrite"] if begun else []
    log_path = run.with_name(f"{name}.log")
    print(f"{into}: in training; progress is in {log_path}", file=sys.stderr, flush=True)
    with open(log_path, "a") as log:
        print("hmrnn", *arguments, "--out", f"runs/{table_name}/{name}", *again, file=log, flush=True)
        trained = subprocess.run(
            [sys.executable, "-m", "hmrnn", *arguments, "--out", run, *again], stdout=log, stderr=subprocess.STDOUT
        )
    if trained.returncode:
        return f"{into}: training ended with status {trained.returncode}, see {log_path}"
    if '"train"' not in (run / "metrics.jsonl").read_text():
        return f"{into}: every update was skipped, see {log_path}"
    detects = "--model.rnn" not in row.flags  # baselines have no boundaries to score
    tests = [evaluation(run, flags, options) for flags in table.evaluations if detects or flags != "--boundaries"]
    line = record(table, row, seed, run, log_path.read_text(), tests)
    with LOCK:
        lines = held(file) | {name: line}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(lines[key], ensure_ascii=False) + "\n" for key in sorted(lines)))
    return f"{into}: {figure(tests[0]):.4f} {recorded(table_name, name)}"


def held(file: Path) -> dict[str, Run]:
    """The rows of a file, by their names; none if it is not there."""
    return {line["name"]: line for line in map(json.loads, file.read_text().splitlines())} if file.exists() else {}


def recorded(table: str, name: str) -> str:
    """What results/ holds for the same row and seed."""
    run = held(HERE / f"{table}.jsonl").get(name)
    return f"(recorded: {figure(run['test']):.4f})" if run else "(not recorded)"


def evaluation(run: Path, flags: str, options: argparse.Namespace) -> dict[str, Any]:
    """The output of ``hmrnn evaluate`` on the test part."""
    arguments = ["-m", str(run), "--device", options.device, "--json", *shlex.split(flags)]
    done = subprocess.run([sys.executable, "-m", "hmrnn", "evaluate", *arguments], capture_output=True, text=True)
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


def record(table: Table, row: Row, seed: int, run: Path, log: str, tests: Sequence[dict[str, Any]]) -> Run:
    """The line of a finished run: result, config and curve."""
    config = json.loads((run / "config.json").read_text())
    config["data"]["path"] = [f"data/{Path(place).name}" for place in config["data"]["path"]]  # not one's own folders
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line["event"] == "valid"]
    train = [line for line in lines if line["event"] == "train"]
    unit = "bits" if "bits" in valid[0] else "nats"
    best = min(valid, key=lambda line: line[unit])
    device = "cuda" if torch.cuda.is_available() and config["train"]["device"] != "cpu" else "cpu"
    parameters = re.search(r"([\d,]+) parameters", log)
    assert parameters is not None, f"the log of {run} does not name the number of parameters"
    test = tests[0] | {name: other[name] for other in tests[1:] for name in other if name == "boundaries"}
    return {
        "name": run.name,
        "data": table.data,
        "model": row.title,
        "parameters": int(parameters.group(1).replace(",", "")),
        "seed": seed,
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--path", nargs="+", help="files or folder of the corpus; not needed with --list")
    parser.add_argument("--rows", nargs="+", help="rows to train, by the names that --list prints (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="rows to train at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bf16", choices=["bf16", "float32"])
    parser.add_argument("--more", default="", help="further flags of hmrnn train, as one string")
    parser.add_argument("--runs", default="runs", help="folder for runs and logs")
    parser.add_argument("--out", default="runs/results", help="folder for the rows (default: runs/results)")
    parser.add_argument("--list", action="store_true", help="print the commands and stop")
    options = parser.parse_args()
    rows = options.rows or list(TABLES[options.table].rows)
    unknown = [name for name in rows if name not in TABLES[options.table].rows]
    if unknown:
        parser.error(f"{options.table} has no row {unknown[0]}; it has {', '.join(TABLES[options.table].rows)}")
    if not options.list:
        if options.path is None:
            parser.error("--path is missing: give the files or the folder of the corpus")
        missing = [path for path in options.path if not Path(path).exists()]
        if missing:
            parser.error(f"there is no {missing[0]}: give the files or the folder of the corpus as --path")
    options.path = options.path or ["DIR"]
    wanted = [(options.table, name, seed) for seed in options.seeds for name in rows]
    if options.list:
        for table, name, seed in wanted:
            row = TABLES[table].rows[name]
            arguments = command(TABLES[table], row, seed, options)
            print(f"# {name}: {row.title} {recorded(table, f'{name}-seed{seed}')}")
            print("hmrnn", *arguments, "--out", Path(options.runs) / table / f"{name}-seed{seed}")
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        for said in pool.map(lambda one: reproduce(*one, options), wanted):
            print(said, flush=True)


if __name__ == "__main__":
    main()
