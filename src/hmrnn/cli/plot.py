"""``hmrnn plot``: figures of the segments that a model finds, or the training curves of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hmrnn.cli.models import opened
from hmrnn.cli.terminal import say
from hmrnn.errors import InputError
from hmrnn.plots.charts import curves
from hmrnn.plots.style import check_figure_path, save_figure
from hmrnn.pretrained import bundled
from hmrnn.training.metrics import read_metrics
from hmrnn.utils.options import named


def run(arguments: Any) -> int:
    check_figure_path(arguments.out)
    if arguments.figure == "curves":
        for field in arguments.given():
            if field.name not in ("model", "figure", "out", "device"):
                raise InputError(f"{named(field)} has no effect with --figure curves; leave it out")
        figure = curves(read_metrics(bundled.find(arguments.model) / "metrics.jsonl"))
    else:
        model, plot = opened("plot", arguments)
        figure = plot(model, arguments)
    save_figure(figure, Path(arguments.out))
    say(f"wrote {arguments.out}")
    return 0
