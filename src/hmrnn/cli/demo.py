"""``hmrnn demo``: train on built-in data, then show what the model predicts, finds and writes."""

from __future__ import annotations

import shlex
from pathlib import Path

from hmrnn import kind
from hmrnn.cli.arguments import DemoArguments
from hmrnn.cli.display import show, show_progress
from hmrnn.cli.train import run_to_end
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.plots.curves import curves
from hmrnn.plots.save import save_figure
from hmrnn.pretrained.load import load
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory


def run(arguments: DemoArguments) -> int:
    directory = RunDirectory(Path(arguments.out or f"runs/{'handwriting' if arguments.handwriting else 'demo'}"))
    config = Config.load("handwritten" if arguments.handwriting else "demo")
    commands = kind.of(config).commands(show_progress)
    again = "hmrnn demo" + " --handwriting" * arguments.handwriting + f" --out {shlex.quote(str(directory.path))}"
    status = _train(config, directory, arguments.fresh, again)
    if status != 0:
        return status
    model, folder = load(directory.path), directory.path / "figures"
    corpus = model.corpus()
    folder.mkdir(exist_ok=True)
    show(commands.demo(model, corpus, folder))
    save_figure(curves(read_metrics(directory.path / "metrics.jsonl")), folder / "curves.png")
    print(f"\nThe figures and the training curves are in {folder}/, the model is in {directory.path}.")
    print(f"Try:  hmrnn {commands.next(config, directory.path, corpus)}")
    return 0


def _train(config: Config, run: RunDirectory, fresh: bool, again: str) -> int:
    """Train, resume an interrupted run, or find it finished; exit status."""
    if run.holds_run and run.config() != config:
        raise InputError(f"{run.path} holds another run; choose another --out, or remove it")
    if not run.holds_run or fresh:
        return run_to_end(config, run, overwrite=fresh, again=again)
    if run.newest_progress().get("finished"):
        print(f"{run.path} holds a finished demo, which is shown now ({again} --fresh trains again)\n")
        return 0
    return run_to_end(config, run, resume=True, again=again)
