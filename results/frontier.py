"""Draw docs/frontier.svg: bits per byte against multiply-adds per symbol, from the recorded runs on enwik8.

python results/frontier.py
"""

from __future__ import annotations

import json
from pathlib import Path

from hmrnn.plots.style import BLACK, BLUE, GREY, ORANGE, SMALL, new_figure, styled

HERE = Path(__file__).parent
OTHERS = {
    "both": "768/1024/1024 with on_copy hold",
    "flush": "768/1024/1024 with FLUSH",
    "dense": "768/1024/1024 without FLUSH and COPY",
}


def points() -> dict[str, dict[str, tuple[float, float]]]:
    """Millions of multiply-adds and validation bits of each size, for both networks."""
    found: dict[str, dict[str, tuple[float, float]]] = {"LN-LSTM": {}, "LN-HM-LSTM": {}}
    rows = json.loads((HERE / "enwik8-frontier" / "validation.json").read_text())["rows"]
    for path in [*HERE.glob("enwik8-frontier/*/result.json"), *HERE.glob("enwik8-cell/pending-*/result.json")]:
        result = json.loads(path.read_text())
        rows.append(result | {"multiply_adds": result["test"]["multiply_adds"]})
    for row in rows:
        network, size = row["model"].split(",")[0].split(" ")
        found[network][size] = (row["multiply_adds"] / 1e6, row["validation_bits"])
    return found


def main() -> None:
    with styled():
        figure = new_figure(5.2, 3.2, layout="constrained")
        axes = figure.subplots()
        for sizes, colour, said, marker, above in zip(
            points().values(), (GREY, BLUE), ("LN-LSTM", "HM-LSTM at word rates, no FLUSH, pending gate"), "so", (1, -1)
        ):
            places = sorted(sizes.items(), key=lambda item: item[1])
            axes.plot(*zip(*(at for _, at in places)), color=colour, marker=marker, markersize=4, label=said)
            for size, at in places:
                axes.annotate(
                    size, at, (5 * above, 4 * above), textcoords="offset points", fontsize=SMALL, color=colour,
                    ha="left" if above > 0 else "right", va="bottom" if above > 0 else "top",
                )  # fmt: skip
        for (name, said), marker in zip(OTHERS.items(), "*XD"):
            row = json.loads((HERE / "enwik8-cell" / f"{name}-seed1" / "result.json").read_text())
            at = (row["test"]["multiply_adds"] / 1e6, row["validation_bits"])
            axes.plot(*at, color=ORANGE, marker=marker, markersize=5, linestyle="none", label=said)
        axes.set(xscale="log", xlabel="multiply-adds per byte, millions", ylabel="validation, bits per byte")
        axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"], color=BLACK)
        axes.minorticks_off()
        axes.set_xlim(0.8, 45)
        axes.legend(frameon=False, fontsize=SMALL, loc="lower left")
        figure.savefig(HERE.parent / "docs" / "frontier.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
