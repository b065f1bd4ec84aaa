"""What each command does, once its arguments are known."""

from __future__ import annotations

import dataclasses
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import torch

from hmrnn import cli, display
from hmrnn.config import Config, DataConfig
from hmrnn.data import Corpus, clean_wikipedia, load_corpus, read_symbols
from hmrnn.errors import InputError
from hmrnn.evaluate import evaluate as measure
from hmrnn.rundir import RunDirectory
from hmrnn.train import choose_device, processes, read_metrics
from hmrnn.train import train as run_training
from hmrnn.trained import TextModel, load
from hmrnn.trainer import Trainer

CHANGEABLE = {"epochs", "patience", "divisions", "log_every", "checkpoint_every", "device", "threads", "engine"}
"""Fields of TrainConfig that --resume may change: they do not rewrite what has happened."""


def train(target: str, arguments: cli.TrainArguments) -> int:
    config = Config(arguments.data, arguments.model, arguments.train)
    run = RunDirectory(Path(str(arguments.out)))
    again = f"hmrnn train {shlex.quote(target)} --out {shlex.quote(str(run.path))} --resume"
    return run_to_end(config, run, resume=arguments.resume, overwrite=arguments.overwrite, again=again)


def run_to_end(
    config: Config,
    run: RunDirectory,
    *,
    resume: bool = False,
    overwrite: bool = False,
    again: str,
) -> int:
    """Train with everything a user sees; exit status. ``again`` is the command that goes on after an interruption."""
    config.check()
    run.check(resume=resume, overwrite=overwrite)
    if resume:
        _check_resumable(run.config(), config)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    device = choose_device(config.train.device)
    with processes(device) as (rank, world):
        corpus = _first_of_all(rank, world, lambda: load_corpus(config.data, display.bytes_progress("reading")))
        run.writer = rank == 0
        trainer = Trainer(config, corpus, device, rank, world)
        with run.open(overwrite=overwrite):
            events = run_training(trainer, run, resume=resume)
            end = display.follow(events, trainer, run, quiet=rank > 0)
        del trainer, events  # before the process group goes: were DDP the last to hold it, gloo's threads could hang
    if end["signal"] is not None:
        if rank == 0:
            print(f"stopped by {end['signal']} at step {end['step']}; everything is saved. Go on with:\n  {again}")
        return 128 + signal.Signals[end["signal"]]
    return 0


def _first_of_all(rank: int, world: int, read: Callable[[], Corpus]) -> Corpus:
    """Let one process of a group fill the cache before the others look into it."""
    if rank > 0:
        torch.distributed.barrier()
    result = read()
    if rank == 0 and world > 1:
        torch.distributed.barrier()
    return result


def _check_resumable(stored: Config, wanted: Config) -> None:
    differing = []
    for part in ("data", "model", "train"):
        old, new = getattr(stored, part), getattr(wanted, part)
        for field in dataclasses.fields(old):
            if getattr(old, field.name) != getattr(new, field.name) and not (
                (part == "train" and field.name in CHANGEABLE) or (part == "data" and field.name in ("path", "cache"))
            ):
                differing.append(f"{part}.{field.name}")
    if differing:
        raise InputError(f"--resume goes on with the run as it was; it cannot change {', '.join(differing)}")


def evaluate(arguments: cli.EvaluateArguments) -> int:
    if arguments.symbols < 0:
        raise InputError(f"--symbols must not be negative; got {arguments.symbols}")
    model = load(arguments.model, device=choose_device(arguments.device))
    symbols, what = _symbols(model, arguments)
    symbols = symbols[: arguments.symbols or None]
    show = display.steps_progress("evaluating")
    result = measure(
        model.network, symbols, streams=arguments.streams, warmup=arguments.warmup, chunk=100, progress=show
    )
    if arguments.json:
        record = {"text": what, "streams": arguments.streams, "warmup": arguments.warmup, "saved": result.saved}
        print(msgspec.json.encode({**dataclasses.asdict(result), **record}).decode())
    else:
        print(display.evaluation_table(result, what))
    return 0


def _symbols(model: TextModel, arguments: cli.EvaluateArguments) -> tuple[np.ndarray, str]:
    """The text to evaluate as symbols of the model's vocabulary, and what to call it."""
    data = model.config.data
    if arguments.file:
        return read_symbols(arguments.file, model.vocabulary, data, display.bytes_progress("reading")), ", ".join(
            arguments.file
        )
    data = dataclasses.replace(data, path=arguments.path) if arguments.path else data
    corpus = load_corpus(data, progress=display.bytes_progress("reading"))
    if corpus.vocabulary != model.vocabulary:
        raise InputError(
            f"the corpus has another vocabulary ({len(corpus.vocabulary)} symbols) than the model "
            f"({len(model.vocabulary)}): it is not the text the model was trained on; evaluate another text by --file"
        )
    return getattr(corpus, arguments.split), f"{corpus.name}, {arguments.split} part"


def segment(arguments: cli.SegmentArguments) -> int:
    text = arguments.read()
    result = load(arguments.model, device=choose_device(arguments.device)).segment(text)
    print(result.to_json() if arguments.json else display.segmentation(result, arguments.width))
    return 0


def generate(arguments: cli.GenerateArguments) -> int:
    model = load(arguments.model, device=choose_device(arguments.device))
    pieces = model.stream(
        arguments.prompt,
        arguments.length,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    sys.stdout.write(arguments.prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def plot(arguments: cli.PlotArguments) -> int:
    from hmrnn import figures

    out = Path(arguments.out)
    if arguments.figure == "curves":
        figure = figures.curves(read_metrics(Path(arguments.model) / "metrics.jsonl"))
    else:
        text = arguments.read()
        result = load(arguments.model, device=choose_device(arguments.device)).segment(text)
        figure = figures.figure3(result) if arguments.figure == "3" else figures.figure4(result)
    figures.save(figure, out)
    print(f"wrote {out}")
    return 0


def data(arguments: cli.DataArguments) -> int:
    if arguments.text8_from is not None:
        began = time.monotonic()
        count = clean_wikipedia(
            Path(arguments.text8_from),
            Path(arguments.out),
            characters=arguments.characters or None,
            progress=display.bytes_progress("cleaning"),
        )
        print(f"wrote {arguments.out}: {count:,} characters in {time.monotonic() - began:.0f} s")
        return 0
    _, config = cli.preset_for(arguments.name)
    wanted: DataConfig = config.data
    if arguments.path:
        wanted = dataclasses.replace(wanted, path=arguments.path)
    corpus = load_corpus(wanted, progress=display.bytes_progress("reading"))
    print(display.corpus_table(corpus))
    return 0


def bench(arguments: cli.BenchArguments) -> int:
    from hmrnn import bench_report

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    choose_device(arguments.device)
    for size in arguments.sizes:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", size):
            raise InputError(f"--sizes must look like 64x512 (batch x hidden size); got {size!r}")
    return bench_report.main(
        arguments.device, arguments.precision, arguments.modes, arguments.sizes, max(1, arguments.repeats),
        arguments.layer_norm, Path(arguments.out),
    )  # fmt: skip


def demo(arguments: cli.DemoArguments) -> int:
    from hmrnn import demo as job

    out = arguments.out or ("runs/demo-quick" if arguments.quick else "runs/demo")
    return job.main(Path(out), fresh=arguments.fresh, quick=arguments.quick)
