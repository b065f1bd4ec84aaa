"""Draw two figures of the runs on enwik8: docs/frontier.svg and docs/optimizers.svg.

The first has bits per byte against multiply-adds and GPU time per byte, a point being the mean of its seeds; the second
has bits per byte against the learning rate, for each network and optimizer.

python results/frontier.py
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from table import NETWORKS_OF_OPTIMIZERS, OPTIMIZERS, runs

from hmrnn.plots.style import BLACK, BLUE, GREY, ORANGE, SMALL, new_figure, styled

HERE = Path(__file__).parent
OTHERS = {
    "both": "768/1024/1024 with on_copy hold",
    "flush": "768/1024/1024 with FLUSH",
    "dense": "768/1024/1024 without FLUSH and COPY",
}


NETWORKS = (
    ("LN-LSTM", "LN-LSTM", GREY, "s", 1),
    ("LN-HM-LSTM", "HM-LSTM at word rates, no FLUSH, pending gate", BLUE, "o", -1),
)
TOP = 1.5
"""Bits per byte where docs/optimizers.svg ends; of a run that has more an arrow is drawn."""
Points = dict[str, dict[str, tuple[float, float]]]
"""For both networks, by their sizes: work per byte and validation bits."""


def seeds(file: str, name: str) -> dict[str, Any]:
    """A row, with the means of all its seeds."""
    found = [run for key, run in runs(file).items() if key.rpartition("-seed")[0] == name]
    return {
        "name": name,
        "model": found[0]["model"],
        "multiply_adds": fmean(result["test"]["multiply_adds"] for result in found),
        "validation_bits": fmean(result["validation_bits"] for result in found),
    }


def points() -> tuple[Points, Points]:
    """With work as millions of multiply-adds, and as microseconds of an update on a GPU, where it was measured."""
    multiplied: Points = {"LN-LSTM": {}, "LN-HM-LSTM": {}}
    timed: Points = {"LN-LSTM": {}, "LN-HM-LSTM": {}}
    rows = list(runs("searches")["enwik8-frontier"]["found"]["rows"])
    names = dict.fromkeys(name.rpartition("-seed")[0] for name in runs("enwik8-frontier"))
    rows += [*(seeds("enwik8-frontier", name) for name in names), seeds("enwik8-cell", "pending")]
    speeds = runs("bench")["updates-h200"]["found"]["rows"]
    for row in rows:
        network, size = row["model"].split(",")[0].split(" ")
        multiplied[network][size] = (row["multiply_adds"] / 1e6, row["validation_bits"])
        if row["name"] in speeds:
            timed[network][size] = (1e6 / speeds[row["name"]]["symbols_per_second"], row["validation_bits"])
    return multiplied, timed


def draw(axes: Axes, found: Points, side: int) -> None:
    """Lines of both networks. ``side``: 1 if sizes of LSTMs stand above their line, -1 if below."""
    for network, said, colour, marker, above in NETWORKS:
        above *= side
        places = sorted(found[network].items(), key=lambda item: item[1])
        axes.plot(*zip(*(at for _, at in places)), color=colour, marker=marker, markersize=4, label=said)
        for size, at in places:
            axes.annotate(
                size, at, (5 * above, 4 * above), textcoords="offset points", fontsize=SMALL, color=colour,
                ha="left" if above > 0 else "right", va="bottom" if above > 0 else "top",
            )  # fmt: skip


def draw_optimizers() -> None:
    """docs/optimizers.svg: a line for each network and optimizer, through the runs that were finished."""
    figure = new_figure(7, 2.6, layout="constrained")
    axes = figure.subplots()
    found = [run for run in runs("optimizers").values() if run["end"] == "done"]
    for (network, said), colour in zip(NETWORKS_OF_OPTIMIZERS.items(), (ORANGE, GREY, BLUE), strict=True):
        for (optimizer, title), (marker, style) in zip(OPTIMIZERS.items(), ("o-", "x:", "s-", "D:"), strict=True):
            kind = [run for run in found if (run["network"], run["optimizer"]) == (network, optimizer)]
            points = sorted((run["rate"], min(run["validation"]["2"], TOP)) for run in kind)
            if points:
                look = {"color": colour, "marker": marker, "markersize": 4, "linestyle": style}
                axes.plot(*zip(*points), label=f"{said}, {title}", clip_on=False, **look)
            for run in kind:
                if (bits := run["validation"]["2"]) > TOP:
                    axes.annotate(
                        f"↑ {bits:.3f}", (run["rate"], TOP), (6, -3), textcoords="offset points", fontsize=SMALL,
                        color=colour,
                    )  # fmt: skip
    axes.set(xscale="log", xlim=(0.0018, 0.009), ylim=(1.445, TOP), xlabel="learning rate")
    axes.set_ylabel("validation, bits per byte")
    axes.set_xticks((0.002, 0.004, 0.008), ("0.002", "0.004", "0.008"), color=BLACK)
    axes.minorticks_off()
    figure.legend(frameon=False, fontsize=SMALL, loc="outside right center")
    figure.savefig(HERE.parent / "docs" / "optimizers.svg", metadata={"Date": None})


def main() -> None:
    with styled():
        draw_optimizers()
        figure = new_figure(8, 3.2, layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        multiplied, timed = points()
        draw(left, multiplied, 1)
        draw(right, timed, -1)
        for (name, said), marker in zip(OTHERS.items(), "*XD"):
            row = seeds("enwik8-cell", name)
            at = (row["multiply_adds"] / 1e6, row["validation_bits"])
            left.plot(*at, color=ORANGE, marker=marker, markersize=5, linestyle="none", label=said)
        left.set(xscale="log", xlim=(0.8, 45), xlabel="multiply-adds per byte, millions")
        left.set_ylabel("validation, bits per byte")
        right.set(xscale="log", xlim=(0.25, 1.5), xlabel="training on an H200, microseconds per byte")
        for axes, ticks in ((left, (1, 2, 4, 8, 16, 32)), (right, (0.3, 0.5, 0.7, 1))):
            axes.set_xticks(ticks, list(map(str, ticks)), color=BLACK)
            axes.minorticks_off()
        left.legend(frameon=False, fontsize=SMALL, loc="lower left")
        figure.savefig(HERE.parent / "docs" / "frontier.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
