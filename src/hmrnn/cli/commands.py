"""What each command does, once its arguments are known."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import torch

from hmrnn.cli import arguments as flags
from hmrnn.cli import display, given_text
from hmrnn.cli import main as cli
from hmrnn.cli import strokes as commands_strokes
from hmrnn.cli.evaluate import evaluate as evaluate
from hmrnn.config import Config, DataConfig
from hmrnn.config_use import STROKE_FORMATS
from hmrnn.data import (
    Corpus,
    StrokeCorpus,
    clean_wikipedia,
    load_corpus,
    load_strokes,
    write_archive,
)
from hmrnn.data.text.plain import plain
from hmrnn.data.text.prose import wikipedia_prose
from hmrnn.errors import InputError, own_flags, refuse
from hmrnn.pretrained import bundled
from hmrnn.pretrained.load import TextModel, load, load_text, locate
from hmrnn.pretrained.strokes import StrokeModel
from hmrnn.training.loop import processes, read_metrics
from hmrnn.training.loop import train as run_training
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.devices import choose_device

CHANGEABLE = {
    "epochs", "patience", "divisions", "log_every", "checkpoint_every", "device", "threads", "engine", "skip_nonfinite",
}  # fmt: skip
"""Fields of TrainConfig that --resume may change: they do not rewrite what has happened."""


def train(target: str, arguments: flags.TrainArguments) -> int:
    config = Config(arguments.data, arguments.model, arguments.train, arguments.regularise)
    run = RunDirectory(Path(str(arguments.out)))
    again = f"hmrnn train {shlex.quote(target)} --out {shlex.quote(str(run.path))} --resume"
    return run_to_end(
        config, run, resume=arguments.resume, overwrite=arguments.overwrite, report=arguments.report, again=again
    )


def run_to_end(
    config: Config,
    run: RunDirectory,
    *,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
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
        corpus = _first_of_all(rank, world, lambda: _load_data(config))
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
    if rank == 0 and report:
        from hmrnn.cli.report import write

        print(f"report: {write(run.path, read_metrics(run.path / 'metrics.jsonl'), corpus)}")
    return 0


def _load_data(config: Config) -> Corpus | StrokeCorpus:
    progress = display.show_progress("reading")
    if config.data.format in STROKE_FORMATS:
        return load_strokes(config.data, progress)
    return load_corpus(config.data, progress, training=config.train.batch_size * config.train.length + 1)


def _first_of_all(rank: int, world: int, read: Callable[[], Corpus | StrokeCorpus]) -> Corpus | StrokeCorpus:
    """Let one process of a group fill the cache before the others look into it."""
    if rank > 0:
        torch.distributed.barrier()
    result = read()
    if rank == 0 and world > 1:
        torch.distributed.barrier()
    return result


def _check_resumable(stored: Config, wanted: Config) -> None:
    differing = []
    for part in ("data", "model", "train", "regularise"):
        old, new = getattr(stored, part), getattr(wanted, part)
        for field in dataclasses.fields(old):
            if getattr(old, field.name) != getattr(new, field.name) and not (
                (part == "train" and field.name in CHANGEABLE) or (part == "data" and field.name in ("path", "cache"))
            ):
                differing.append(f"{part}.{field.name}")
    if differing:
        raise InputError(f"--resume goes on with the run as it was; it cannot change {', '.join(differing)}")


@own_flags(path="--file")
def segment(arguments: flags.SegmentArguments) -> int:
    model = load(arguments.model, device=choose_device(arguments.device))
    if isinstance(model, StrokeModel):
        return commands_strokes.segment(model, arguments)
    if arguments.stream:
        return _segment_stream(model, arguments)
    refuse({"--line": arguments.line is not None}, _of_text(arguments.model))
    text = arguments.read(model.vocabulary.kind)
    show = display.reading_progress("segmenting", len(text), "hmrnn segment --stream FILE --out FOLDER")
    result = model.segment(text, progress=show)
    print(result.to_json() if arguments.json else display.segmentation(result, arguments.width))
    return 0


def score(arguments: flags.ScoreArguments) -> int:
    model = load_text(arguments.model, device=choose_device(arguments.device))
    text = arguments.read(model.vocabulary.kind)
    if arguments.lines:
        lines = given_text.LINE_END.split(text)
        for line, found in zip(lines, model.score_lines(lines)):
            shown = given_text.shown(line)
            if arguments.json:
                record = {
                    "text": shown,
                    "symbols": found.symbols if found else 0,
                    "bits": found.bits if found else None,
                }
                print(msgspec.json.encode(record).decode())
            else:
                print(f"{f'{found.bits:.4f}' if found else '-'}\t{shown}")
        return 0
    show = display.reading_progress("scoring", len(text), "hmrnn evaluate --file FILE")
    result = model.score(text, progress=show)
    if arguments.json:
        print(msgspec.json.encode({**dataclasses.asdict(result), "saved": result.saved}).decode())
    else:
        unit, total = model.vocabulary.unit, result.bits * result.symbols
        print(f"{result.bits:.4f} bits per {unit}  ({result.symbols:,} predicted, {total:,.0f} bits in all)")
    return 0


def _segment_stream(model: TextModel, arguments: flags.SegmentArguments) -> int:
    from hmrnn.inference.jobs import Job

    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    given = {"streams": arguments.streams, "warmup": arguments.warmup}
    job = Job(
        model.network, model.vocabulary, model.config.data, arguments.stream, Path(cast(str, arguments.out)),
        plain=arguments.plain, share=(rank, world), **{name: n for name, n in given.items() if n is not None},
    )  # fmt: skip
    progress = display.show_progress("segmenting") if rank == 0 else None
    stopped = job.run(resume=arguments.resume, progress=progress)
    if stopped is not None:
        print(f"stopped by {stopped}; everything is saved. Go on with the same command and --resume")
        return 128 + signal.Signals[stopped]
    for target in job.targets if job.joins else ():
        print(f"{'wrote' if job.wrote else 'nothing left to do:'} {target}")
    return 0


def _of_text(model: str) -> str:
    """Why flags that only handwriting has a use for are refused."""
    return f"is for handwriting, and {model} holds a model of text; leave it out"


def generate(arguments: flags.GenerateArguments) -> int:
    model = load(arguments.model, device=choose_device(arguments.device))
    if isinstance(model, StrokeModel):
        return commands_strokes.generate(model, arguments)
    of_handwriting: dict[str, object] = {
        "--bias": arguments.bias, "--prime": arguments.prime, "--line": arguments.line, "--out": arguments.out,
        "--samples": arguments.samples is not None, "--seconds": arguments.seconds,
    }  # fmt: skip
    refuse(of_handwriting, _of_text(arguments.model))
    prompt = plain(arguments.prompt) if arguments.plain else arguments.prompt
    pieces = model.stream(
        prompt,
        500 if arguments.length is None else arguments.length,
        temperature=0.8 if arguments.temperature is None else arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


@own_flags(path="--file")
def plot(arguments: flags.PlotArguments) -> int:
    from hmrnn.plots.curves import curves
    from hmrnn.plots.lengths import timescales
    from hmrnn.plots.save import save_figure
    from hmrnn.plots.text import figure3, figure4

    out = Path(arguments.out)
    if arguments.figure == "curves":
        if arguments.model in bundled.names():
            raise InputError(f"{arguments.model} has no training curves; name a run directory by --model")
        figure = curves(read_metrics(Path(arguments.model) / "metrics.jsonl"))
    else:
        model = load(arguments.model, device=choose_device(arguments.device))
        if isinstance(model, StrokeModel):
            return commands_strokes.plot(model, arguments)
        if arguments.figure == "5":
            raise InputError(f"--figure 5 draws handwriting, and {arguments.model} holds a model of text; use 3 or 4")
        refuse(arguments.of_figure_5, _of_text(arguments.model))
        text = arguments.read(model.vocabulary.kind)
        result = model.segment(text, progress=display.show_progress("segmenting"))
        if arguments.figure == "timescales":
            ends = [result.ends(level) for level in range(1, result.levels + 1)]
            figure = timescales([np.diff(level, prepend=0) for level in ends])
        else:
            figure = figure3(result) if arguments.figure == "3" else figure4(result)
    save_figure(figure, out)
    print(f"wrote {out}")
    return 0


def explore(arguments: flags.ExploreArguments) -> int:
    try:
        from hmrnn.web.server import serve
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "hmrnn":
            raise
        raise InputError(f"hmrnn explore needs {error.name}: pip install starlette uvicorn") from error
    device = str(choose_device(arguments.device))
    return serve(arguments.model, host=arguments.host, port=arguments.port, names=arguments.name, device=device)


def export(arguments: flags.ExportArguments) -> int:
    from hmrnn.pretrained.export import CARD, carried
    from hmrnn.pretrained.export import export as write

    out = write(arguments.model, arguments.out, half=arguments.half)
    size = sum(path.stat().st_size for path in out.iterdir())
    has_one = carried(locate(arguments.model)) is not None
    card = f"its card is that of {arguments.model}" if has_one else f"its card, {out / CARD}, is yours to complete"
    print(f"wrote {out}: {size:,} bytes; {card}")
    return 0


@own_flags(path="--path", split="--split")
def data(arguments: flags.DataArguments) -> int:
    if arguments.text8_from is not None or arguments.prose_from is not None:
        return _from_dump(arguments)
    wanted = _data_config(arguments)
    progress = display.show_progress("reading")
    if wanted.format not in STROKE_FORMATS:
        if arguments.archive:
            raise InputError("--archive is for pen strokes; text is kept in its own files")
        print(display.corpus_table(load_corpus(wanted, progress=progress)))
        return 0
    if arguments.archive:
        lines = write_archive(wanted, arguments.archive, progress)
        print(f"wrote {arguments.archive}: {lines:,} lines")
    print(load_strokes(wanted, progress))
    return 0


def _from_dump(arguments: flags.DataArguments) -> int:
    """Text from a Wikipedia dump."""
    began, progress = time.monotonic(), display.show_progress("cleaning")
    if arguments.prose_from is None:
        dump, out = Path(cast(str, arguments.text8_from)), arguments.out or "text8"
        count = clean_wikipedia(dump, out, characters=arguments.characters or None, progress=progress)
    else:
        out = arguments.out or "prose.txt"
        count = wikipedia_prose(arguments.prose_from, out, progress=progress)
    print(f"wrote {out}: {count:,} characters in {time.monotonic() - began:.0f} s")
    return 0


def _data_config(arguments: flags.DataArguments) -> DataConfig:
    """The corpus that ``hmrnn data`` was asked for."""
    wanted = cli.preset_for(arguments.name)[1].data
    return dataclasses.replace(wanted, path=arguments.path or wanted.path, split=arguments.split)


def bench(arguments: flags.BenchArguments) -> int:
    from hmrnn.cli import bench_report

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    choose_device(arguments.device)
    return bench_report.main(
        arguments.device, arguments.precision, arguments.modes, arguments.sizes, max(1, arguments.repeats),
        arguments.layer_norm, Path(arguments.out),
    )  # fmt: skip


def demo(arguments: flags.DemoArguments) -> int:
    from hmrnn.cli import demo as job
    from hmrnn.cli import demo_strokes

    name = "handwriting" if arguments.handwriting else "demo"
    out = Path(arguments.out or f"runs/{name}" + "-quick" * arguments.quick)
    if arguments.handwriting:
        return demo_strokes.main(out, fresh=arguments.fresh, quick=arguments.quick)
    return job.main(out, fresh=arguments.fresh, quick=arguments.quick)
