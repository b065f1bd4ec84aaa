"""``hmrnn demo``: train on built-in data, then show what report.html has but the figures."""

from __future__ import annotations

import shlex
from pathlib import Path

from hmrnn import kind
from hmrnn.cli.arguments import DemoArguments, own_options, usual
from hmrnn.cli.display import show, show_progress
from hmrnn.cli.train import run_or_use
from hmrnn.config import Config
from hmrnn.pretrained.load import load
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
    model = load(place)
    corpus = model.corpus()
    show(section for section in commands.report(model, corpus) if section.figure is None)
    print(f"\nThe figures and the training curves are in {place}/report.html, the model is in {place}.")
    print(f"Try:  hmrnn {commands.next(config, place, corpus)}")
    return 0
