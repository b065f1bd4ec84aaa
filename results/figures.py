"""Draw two figures of the runs on enwik8: docs/frontier.svg and docs/optimizers.svg.

The first has bits per byte against multiply-adds and GPU time per byte, a point being the mean of its seeds; the second
has bits per byte against the learning rate, for each network and optimizer.

python results/figures.py
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


def draw_optimizers(axes: Axes, epoch: str, top: float) -> None:
    """A dot per run that reached the end of ``epoch``; a line per network and optimizer through the means of the rates.

    Runs above ``top`` are written at the edge.
    """
    for (network, said), colour in zip(NETWORKS_OF_OPTIMIZERS.items(), (ORANGE, GREY, BLUE), strict=True):
        for (optimizer, title), (marker, style) in zip(
            OPTIMIZERS.items(), (("o", "-"), ("x", ":"), ("s", "--"), ("D", ":"), ("^", ":")), strict=True
        ):
            bits: dict[float, list[float]] = {}
            for run in runs("optimizers").values():
                if (run["network"], run["optimizer"]) == (network, optimizer) and epoch in run["validation"]:
                    bits.setdefault(run["rate"], []).append(run["validation"][epoch])
            means = {rate: fmean(found) for rate, found in sorted(bits.items())}
            inside = {rate: mean for rate, mean in means.items() if mean <= top}
            look = {"color": colour, "marker": marker, "markersize": 4, "linestyle": style, "linewidth": 1}
            if bits:
                axes.plot(list(inside), list(inside.values()), label=f"{said}, {title}", **look)
                for rate in inside:
                    axes.plot([rate] * len(bits[rate]), bits[rate], **look | {"linestyle": "none"})
            for rate in means.keys() - inside.keys():
                axes.annotate(
                    f"↑ {means[rate]:.2f}", (rate, top), (4, -3 - 9 * len(axes.texts)), textcoords="offset points",
                    fontsize=SMALL, color=colour,
                )  # fmt: skip
    ticks = (0.001, 0.002, 0.004, 0.008)
    axes.set(xscale="log", xlim=(0.0009, 0.0095), xlabel="learning rate")
    axes.set_ylim(top=top)
    axes.set_xticks(ticks, list(map(str, ticks)), color=BLACK)
    axes.minorticks_off()
    axes.set_title("after one epoch, all runs" if epoch == "1" else "after both, the runs that were finished")


def main() -> None:
    with styled():
        figure = new_figure(9, 2.9, layout="constrained")
        first, second = figure.subplots(1, 2)
        draw_optimizers(first, "1", 1.66)
        draw_optimizers(second, "2", 1.5)
        first.set_ylabel("validation, bits per byte")
        figure.legend(*first.get_legend_handles_labels(), frameon=False, fontsize=SMALL, loc="outside right center")
        figure.savefig(HERE.parent / "docs" / "optimizers.svg", metadata={"Date": None})

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
