"""``hmrnn plot``: figures of the segments that a model finds, or the training curves of a run."""

from __future__ import annotations

from pathlib import Path

from hmrnn.cli import display, inputs
from hmrnn.cli.arguments import PlotArguments
from hmrnn.cli.arguments.base import KINDS
from hmrnn.cli.terminal import say
from hmrnn.errors import InputError
from hmrnn.plots.curves import curves
from hmrnn.plots.save import check_figure_path, save_figure
from hmrnn.pretrained import bundled
from hmrnn.training.metrics import read_metrics


def run(arguments: PlotArguments) -> int:
    check_figure_path(arguments.out)
    if arguments.figure == "curves":
        if arguments.model in bundled.names():
            raise InputError(f"{arguments.model} has no training curves; name a run directory by --model")
        figure = curves(read_metrics(Path(arguments.model) / "metrics.jsonl"))
    else:
        model = inputs.open_model(arguments)
        name = arguments.figure or model.figures[0]
        if name not in model.figures:
            known = ", ".join(model.figures)
            raise InputError(f"--figure {name} is not for models of {KINDS[model.reads.modality]}; use one of {known}")
        highest = model.network.rnn.num_boundaries
        for level in arguments.levels:
            if not 1 <= level <= highest:
                raise InputError(f"--levels must lie between 1 and {highest}; got {level}")
        given = inputs.read(model, arguments)
        how = inputs.how_to_read(model, arguments)
        found = model.segment(given, progress=display.show_progress("segmenting"), **how)
        figure = model.figure(name, given, found, arguments.levels)
    save_figure(figure, Path(arguments.out))
    say(f"wrote {arguments.out}")
    return 0
