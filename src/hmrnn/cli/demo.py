"""``hmrnn demo``: train on built-in data, then show what the model predicts, finds and writes."""

from __future__ import annotations

import shlex
from pathlib import Path

from hmrnn import kind
from hmrnn.cli.arguments import DemoArguments, own_options, usual
from hmrnn.cli.display import show, show_progress
from hmrnn.cli.train import run_or_use
from hmrnn.config import Config
from hmrnn.plots.charts import curves
from hmrnn.plots.style import save_figure
from hmrnn.pretrained.load import load
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.utils.options import flag


def run(arguments: DemoArguments) -> int:
    given = {field.name for field in arguments.given()}
    asked = (one for one in kind.every() if own_options("demo", one) & given)
    of = next(asked, usual())
    commands, preset = of.commands(show_progress), of.trains["demo"]
    config, place = Config.load(preset), Path(arguments.out or f"runs/{preset}")
    flags = " ".join(["hmrnn demo", *map(flag, own_options("demo", of))])
    status = run_or_use(config, RunDirectory(place), f"{flags} --out {shlex.quote(str(place))}", arguments.fresh)
    if status != 0:
        return status
    model, folder = load(place), place / "figures"
    corpus = model.corpus()
    folder.mkdir(exist_ok=True)
    show(commands.demo(model, corpus, folder))
    save_figure(curves(read_metrics(place / "metrics.jsonl")), folder / "curves.png")
    print(f"\nThe figures and the training curves are in {folder}/, the model is in {place}.")
    print(f"Try:  hmrnn {commands.next(config, place, corpus)}")
    return 0
