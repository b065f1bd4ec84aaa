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
    name, quick = "handwriting" if arguments.handwriting else "demo", arguments.quick
    directory = RunDirectory(Path(arguments.out or f"runs/{name}" + "-quick" * quick))
    config = Config.load("handwritten" if arguments.handwriting else "demo")
    commands = kind.of(config).commands(show_progress)
    demos = config, commands.quick(config)
    again = "hmrnn demo" + " --handwriting" * arguments.handwriting
    again += f" --out {shlex.quote(str(directory.path))}" + " --quick" * quick
    status = _train(demos, quick, directory, arguments.fresh, again)
    if status != 0:
        return status
    if quick:
        print("\n--quick only shows that every step runs: a model this small has learned next to nothing")
    model, folder = load(directory.path), directory.path / "figures"
    corpus = model.corpus()
    folder.mkdir(exist_ok=True)
    show(commands.demo(model, corpus, folder, quick))
    save_figure(curves(read_metrics(directory.path / "metrics.jsonl")), folder / "curves.png")
    print(f"\nThe figures and the training curves are in {folder}/, the model is in {directory.path}.")
    print(f"Try:  hmrnn {commands.next(demos[quick], directory.path, corpus)}")
    return 0


def _train(demos: tuple[Config, Config], quick: bool, run: RunDirectory, fresh: bool, again: str) -> int:
    """Train, resume an interrupted run, or find it finished; exit status."""
    config = demos[quick]
    if run.holds_run and run.config() not in (demos if fresh else [config]):
        raise InputError(f"{run.path} holds another run; choose another --out, or remove it")
    if not run.holds_run or fresh:
        return run_to_end(config, run, overwrite=fresh, again=again)
    if run.newest_progress().get("finished"):
        print(f"{run.path} holds a finished demo, which is shown now ({again} --fresh trains again)\n")
        return 0
    return run_to_end(config, run, resume=True, again=again)
