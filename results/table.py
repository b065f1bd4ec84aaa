"""Make tables of README.md, pages of docs and the pages beside this from the recorded runs; ``make docs`` does so.

python results/table.py            # writes them
python results/table.py --check    # exit status 1 if they are out of date
python results/table.py NAME       # prints one table, such as ptb-search, which is on no page

A line of TABLE.jsonl is a run: its name, result, config, and a curve with an entry per epoch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from hmrnn.training.detectors import condition

HERE = Path(__file__).parent
Run = dict[str, Any]


def runs(name: str) -> dict[str, Run]:
    """The lines of a file of results, by their names."""
    lines = (HERE / f"{name}.jsonl").read_text().splitlines()
    return {run["name"]: run for run in map(json.loads, lines)}


def figure(test: dict[str, Any]) -> float:
    """Bits per symbol, or nats per line of handwriting."""
    found: float = test["bits"] if "bits" in test else test["log_likelihood"]
    return found


def sorted_runs(name: str) -> list[Run]:
    """The best test result first."""
    return sorted(runs(name).values(), key=lambda run: figure(run["test"]) * (1 if "bits" in run["test"] else -1))


def dead(rate: float) -> bool:
    """Whether a level never fires or always fires."""
    return condition(rate) != "alive"


def rates_of(test: dict[str, Any]) -> str:
    return ", ".join(f"{rate:.3f}{' (dead)' if dead(rate) else ''}" for rate in test["rates"]) or "-"


def training(run: Run) -> float:
    """Bits or nats of the training part, mean over the updates of the last epoch."""
    return float(run["curve"][-1]["training"])


def saved(run: Run, test: dict[str, Any]) -> str:
    """Share of updates saved; "-" for networks without detectors and for soft boundaries, which save none."""
    soft = run["config"].get("detectors", {}).get("estimator") == "soft"
    return f"{100 * test['saved']:.0f} %" if test["rates"] and not soft else "-"


def cost(run: Run) -> list[str]:
    """Updates saved, parameters, epochs, time and speed of a run."""
    return [
        saved(run, run["test"]),
        f"{run['parameters'] / 1e6:.1f} M",
        f"{run['epochs']:g}",
        f"{run['seconds']:.0f} s",
        f"{run['characters_per_second']:,}",
    ]


def f1_of(run: Run) -> str:
    """Exact F1 of each level."""
    scores = {score["name"]: score["tolerance"]["0"]["f1"] for score in run["test"].get("boundaries", ())}
    return ", ".join(f"{scores[level]:.2f}" for level in ("level 1", "level 2") if level in scores) or "-"


def lines(head: str, rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown."""
    columns = head.split(" | ")
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [columns, ["---"] * len(columns), *rows])


def table(name: str) -> str:
    """A row per run, and a second one for its dynamic evaluation."""
    rows: list[list[Any]] = []
    for run in sorted_runs(name):
        shown = [f"{training(run):.3f}", f"{run['validation_bits']:.4f}", f"{run['test']['bits']:.4f}"]
        rows.append([run["model"], run["seed"], *shown, rates_of(run["test"]), *cost(run)])
        if (test := run.get("again", {}).get("test-dynamic")) is not None:
            shown = ["-", "-", f"{test['bits']:.4f} (dynamic)", rates_of(test), saved(run, test), *"----"]
            rows.append(["the model above, not comparable: dynamic evaluation", run["seed"], *shown])
    return lines(
        "model | seed | training | validation | test | boundary rates z¹, z² | updates saved | parameters | epochs |"
        " time | characters/s",
        rows,
    )


def short(found: Iterable[Run]) -> str:
    """Runs on text with fewer columns."""
    return lines(
        "model | seed | validation | test | boundary rates z¹, z² | parameters | epochs",
        (
            [
                *(run["model"], run["seed"], f"{run['validation_bits']:.4f}", f"{run['test']['bits']:.4f}"),
                *(rates_of(run["test"]), f"{run['parameters'] / 1e6:.1f} M", f"{run['epochs']:g}"),
            ]
            for run in found
        ),
    )


def best(name: str) -> list[Run]:
    """Of each network the run with the best validation."""
    networks: dict[str, Run] = {}
    for run in sorted(runs(name).values(), key=lambda run: float(run["validation_bits"])):
        networks.setdefault(run["config"]["model"]["rnn"], run)
    return list(networks.values())


def table_of_search(name: str) -> str:
    return lines(
        "model | seed | training | validation | test | boundary rates z¹, z² | epochs",
        (
            [
                *(run["model"], run["seed"], f"{training(run):.3f}", f"{run['validation_bits']:.4f}"),
                *(f"{run['test']['bits']:.4f}", rates_of(run["test"]), f"{run['epochs']:g}"),
            ]
            for run in sorted_runs(name)
        ),
    )


def table_of_strokes(name: str) -> str:
    """Handwriting: log-likelihood of a line in nats (higher is better) and F1 of the levels at pen-ups."""
    return lines(
        "model | seed | training | validation | test | boundary rates z¹, z² | updates saved | parameters | epochs |"
        " time | points/s | F1 of level 1, 2 at pen-ups",
        (
            [
                *(run["model"], run["seed"], f"{-training(run):.0f}", f"{-run['validation_nats']:.0f}"),
                *(f"{run['test']['log_likelihood']:.0f}", rates_of(run["test"]), *cost(run), f1_of(run)),
            ]
            for run in sorted_runs(name)
        ),
    )


def table_of_boundaries(name: str) -> str:
    """Segments against the spaces that were removed: boundary F1 at tolerance 0 / 1, and F1 of whole words."""
    rows = []
    for run in sorted_runs(name):
        scores = {score["name"]: score for score in run["test"]["boundaries"]}
        cells = [run["model"], str(run["seed"]), f"{run['test']['bits']:.4f}", rates_of(run["test"])]
        for found in ("level 1", "level 2", "surprise rises most", "most uncertain"):
            if found not in scores:  # older runs lack some scores
                cells.append("-")
                continue
            strict, near = (scores[found]["tolerance"][t]["f1"] for t in "01")
            cells.append(f"{strict:.2f} / {near:.2f}, {scores[found]['words']['f1']:.2f}")
        rows.append(cells)
    return lines(
        "model | seed | test | boundary rates z¹, z² | level 1 | level 2 | surprise rises most | most uncertain", rows
    )


def table_of_cost(*names: str) -> str:
    """Bits and multiply-adds per symbol, fewest multiply-adds first, and F1 of the levels at spaces."""
    found = [run for name in names for run in runs(name).values()]
    return lines(
        "model | seed | validation | test | multiply-adds per symbol | boundary rates z¹, z² |"
        " F1 of level 1, 2 at spaces | parameters",
        (
            [
                *(run["model"], run["seed"], f"{run['validation_bits']:.4f}", f"{run['test']['bits']:.4f}"),
                *(f"{run['test']['multiply_adds'] / 1e6:.2f} M", rates_of(run["test"]), f1_of(run)),
                f"{run['parameters'] / 1e6:.1f} M",
            ]
            for run in sorted(found, key=lambda run: float(run["test"]["multiply_adds"]))
        ),
    )


# the paper's result for the same model
PAPER = {
    "LN-LSTM 3x512": "1.29",
    "LN-CW-RNN 3x512, 12 epochs": "1.40",
    "LN-CW-RNN 3x512, nothing dropped, 14 epochs": "1.40",
    "LN-HM-LSTM 3x512, sample": "1.27",
    "LN-HM-LSTM 3x512, soft": "1.27",
    "LN-HM-LSTM 3x512, step": "1.25",
    "LN-HM-LSTM 3x512, step, slope annealed": "1.24",
    "LSTM 3x400": "1081",
    "LN-HM-LSTM 3x400, step": "1137",
    "LN-HM-LSTM 3x400, step, slope annealed": "1167",
}


def table_of_seeds(name: str) -> str:
    """Test results of each model by seed, their mean and the paper's result, best mean first.

    A seed with a dead level is marked and counts in the mean.
    """
    models: dict[str, list[Run]] = {}
    for run in runs(name).values():
        models.setdefault(run["model"], []).append(run)
    rows = []
    for model, found in models.items():
        digits, sign = (4, 1) if "bits" in found[0]["test"] else (0, -1)
        values = [
            f"{figure(run['test']):.{digits}f}{' (dead)' if any(map(dead, run['test']['rates'])) else ''}"
            for run in sorted(found, key=lambda run: int(run["seed"]))
        ]
        mean = fmean(figure(run["test"]) for run in found)
        rows.append((sign * mean, [model, ", ".join(values), f"{mean:.{digits}f}", PAPER.get(model, "-")]))
    return lines("test | seeds | mean | paper", [row for _, row in sorted(rows)])


def measured(_: str) -> str:
    """The table of the first page: an HM-LSTM, and what it is compared with."""

    def test(file: str, *names: str) -> float:
        return fmean(figure(runs(file)[name]["test"]) for name in names)

    def scores(of: Iterable[Run], level: str) -> dict[str, float]:
        found: dict[str, float] = next(score["tolerance"]["0"] for score in of if score["name"] == level)
        return found

    both = ("seed1", "seed2")
    english = runs("bundled")["english-small"]["again"]["test-half-cpu"]["boundaries"]
    spaceless = runs("ptb-without-spaces")["free-seed1"]["test"]["boundaries"]
    words = [run["test"]["head boundary"] for run in runs("words")["ptb"]["found"] if run["commit"] == "5baa156"]
    muon = {}
    for network in ("ln-lstm", "hm-lstm"):
        done = [run["validation"]["2"] for run in runs("optimizers").values()
                if run["cell"].startswith(f"{network}:muon:0.004") and run["end"] == "done"]  # fmt: skip
        muon[network] = f"{fmean(done):.3f} ± {stdev(done) / len(done) ** 0.5:.3f}"
    speeds = runs("bench")["cpu-native"]["found"]["ms"].values()
    plain, normed = ([size[name]["speed"] for size in speeds] for name in ("HM-LSTM", "HM-LSTM, layer norm"))
    rows = [
        ("Ends of English words, spaces read, F1", f"{scores(english, 'level 1')['f1']:.2f}",
         f"{scores(english, 'most uncertain')['f1']:.2f} cut where it is uncertain, "
         f"{scores(english, 'level 1')['f1_by_chance']:.2f} by chance"),
        ("Ends of words of PTB without spaces, F1", f"{fmean(words):.2f}",
         f"{scores(spaceless, 'random')['f1']:.2f} at random"),
        ("Penn Treebank (PTB), bits a character", f"{test('ptb', *(f'held-{seed}' for seed in both)):.4f}",
         f"LSTM {test('ptb', *(f'ln-lstm-{seed}' for seed in both)):.4f}; paper 1.24"),
        ("enwik8, 2 epochs, Muon, bits a byte", muon["hm-lstm"],
         f"layer-norm LSTM, equal work {muon['ln-lstm']}"),
        ("Handwriting, nats a line: more is better",
         f"{test('iamondb-weight-drop', *(f'hm-annealed-{seed}' for seed in both)):.0f}",
         f"LSTM {test('iamondb-weight-drop', *(f'lstm-{seed}' for seed in both)):.0f}; paper 1167"),
        ("the same, official split", f"{test('iamondb-official', 'hm-annealed-seed1'):.0f}",
         f"LSTM {test('iamondb-official', 'lstm-seed1'):.0f}"),
        ("Training on a CPU, speed beside `nn.LSTM`", f"{min(plain):.1f} to {max(plain):.1f}",
         f"with layer norm {min(normed):.1f} to {max(normed):.1f}"),
    ]  # fmt: skip
    return lines(" | HM-LSTM | beside it", rows)


CELLS = {
    "the paper's, with FLUSH": "flush",
    "`flush=False`": "base",
    '`flush=False, top_down="pending", on_copy="hold"`': "both",
    '`flush=False, top_down="pending"`': "pending",
    '`flush=False, on_copy="hold"`': "hold",
    "`flush=False`, detectors with 64 hidden units": "hidden",
    "`flush=False`, gumbel": "gumbel",
    "`flush=False`, sampled boundaries": "sample",
    '`flush=False, top_down="none"`': "none",
    '`flush=False, top_down="always"`': "always",
    "`flush=False`, output of the first layer alone": "first",
    "`flush=False, copy=False`": "dense",
    "LN-LSTM 3×512": "ln-lstm-512",
    "LN-LSTM 3×1024": "ln-lstm-1024",
}
"""What the cells of docs/hierarchy.md are called there."""
CELLS_OF_PTB = {
    "LN-LSTM 3×256": "ln-lstm-256",
    '384/512/512, `flush=False, top_down="pending", on_copy="hold"`': "hm-384",
    "LN-LSTM 3×384": "ln-lstm-384",
    '576/768/768, `flush=False, top_down="pending", on_copy="hold"`': "hm-576",
    "the same, `flush=False` alone": "base",
    "the same, as in the paper, with FLUSH": "flush",
    'the same, `flush=False, top_down="none"`': "none",
    "the same, `flush=False, copy=False`": "dense",
}


def cells(_: str) -> str:
    """Validation bits of each seed and multiply-adds of the cells on enwik8, of some from a record without a test."""
    found = runs("enwik8-cell") | runs("enwik8-frontier")
    for run in runs("searches")["enwik8-frontier"]["found"]["rows"]:
        found.setdefault(f"{run['name']}-seed1", run | {"test": run})
    rows = []
    for title, name in CELLS.items():
        seeds = [found[f"{name}-seed{seed}"] for seed in (1, 2) if f"{name}-seed{seed}" in found]
        bits = ", ".join(f"{run['validation_bits']:.3f}" for run in seeds)
        rows.append([title, bits, f"{seeds[0]['test']['multiply_adds'] / 1e6:.1f} M"])
    return lines("cell | bits | multiply-adds per byte", rows)


def cells_of_ptb(_: str) -> str:
    rows = []
    for title, name in CELLS_OF_PTB.items():
        run = runs("ptb-cell")[f"{name}-seed1"]
        work = f"{run['test']['multiply_adds'] / 1e6:.1f} M"
        bits = [f"{found:.3f}" for found in (run["validation_bits"], run["test"]["bits"])]
        rows.append([title, *bits, work, f1_of(run).partition(",")[0]])
    return lines("network | validation | test | multiply-adds | F1", rows)


def words_in_scripts(_: str) -> str:
    found = runs("words")["scripts"]["found"]
    return lines(
        "script | ends | whole words | characters",
        ([run["script"], *(f"{run[k]:.2f}" for k in ("head boundary", "head word")), run["symbols"]] for run in found),
    )


NETWORKS_OF_OPTIMIZERS = {"lstm": "LSTM 3×512", "ln-lstm": "LN-LSTM 3×512", "hm-lstm": "HM-LSTM 768/1024/1024"}
OPTIMIZERS = {
    "adam": "Adam", "adam0": "Adam, β₁ = 0", "muon": "Muon", "normuon": "Muon, rows alike", "muon3": "Muon, 3 steps",
}  # fmt: skip


def optimizers(name: str, epochs: dict[str, int]) -> str:
    """Validation bits of every run after some of its epochs, each with so many digits."""
    cells: dict[tuple[str, str, float], list[Run]] = {}
    for run in runs(name).values():
        if run["network"] in NETWORKS_OF_OPTIMIZERS and epochs.keys() & run["validation"].keys():
            cells.setdefault((run["network"], run["optimizer"], run["rate"]), []).append(run)
    tried = sorted({(list(OPTIMIZERS).index(optimizer), rate) for _, optimizer, rate in cells})
    rows = []
    for k, rate in tried:
        here = [cells.get((network, list(OPTIMIZERS)[k], rate), []) for network in NETWORKS_OF_OPTIMIZERS]
        shown = [
            ", ".join(f"{run['validation'][epoch]:.{digits}f}" for run in each if epoch in run["validation"])
            for each in here
            for epoch, digits in epochs.items()
        ]
        rows.append([f"{list(OPTIMIZERS.values())[k]} {rate:g}", *shown])
    head = [f"{said}, epoch {' | '.join(epochs)}" for said in NETWORKS_OF_OPTIMIZERS.values()]
    return lines(" | ".join(["optimizer, rate", *head]), rows)


def optimizers_on_ptb(_: str) -> str:
    """Every run of 30 epochs: its best epoch."""
    rows = []
    for run in runs("optimizers").values():
        if run["network"].startswith("ptb-") and run["end"] == "done":
            epoch, bits = min(run["validation"].items(), key=lambda item: item[1])
            said = NETWORKS_OF_OPTIMIZERS[run["network"].removeprefix("ptb-")]
            cell = f"{OPTIMIZERS[run['optimizer']]} {run['rate']:g}"
            rows.append([said, cell, f"{bits:.4f}", epoch, f"{run['training']:.3f}", f"{run['test']['bits']:.4f}"])
    return lines("network | optimizer, rate | validation | best epoch | training | test", rows)


TABLES: dict[str, Callable[[str], str]] = {
    "measured": measured,
    "words in scripts": words_in_scripts,
    "cells": cells,
    "cells of ptb": cells_of_ptb,
    "optimizers": lambda name: optimizers(name, {"1": 3, "2": 4}),
    "optimizers finished": lambda name: optimizers(name, {"2": 4}),
    "optimizers on ptb": optimizers_on_ptb,
    **dict.fromkeys(("ptb", "ptb-baselines", "ptb-long", "ptb-large", "enwik8", "text8"), table),
    **dict.fromkeys(("ptb-gains", "ptb-search", "ptb-regularisers"), table_of_search),
    **dict.fromkeys(("iamondb", "iamondb-dropout", "iamondb-weight-drop", "iamondb-official"), table_of_strokes),
    **dict.fromkeys(("ptb seeds", "iamondb seeds"), table_of_seeds),
    **dict.fromkeys(("enwik8 short", "text8 short"), lambda name: short(sorted_runs(name))),
    "ptb-long best": lambda name: short([*best(name), *best("ptb-large")]),
    "ptb-without-spaces": table_of_boundaries,
    "ptb-cell": table_of_cost,
    "enwik8-cell": lambda name: table_of_cost(name, "enwik8-frontier"),
}
DOCS = HERE.parent / "docs"
PAGES = (
    *(HERE.parent / "README.md", HERE / "README.md", HERE / "rows.md"),
    *(DOCS / f"{name}.md" for name in ("hierarchy", "optimizer", "gallery")),
)


def filled(text: str) -> str:
    """``text`` with new tables between ``<!-- table NAME -->`` and ``<!-- end -->``; NAME begins with the file."""
    parts = text.split("<!-- table ")
    for i, part in enumerate(parts[1:], start=1):
        name, rest = part.split(" -->", 1)
        _, after = rest.split("<!-- end -->", 1)
        parts[i] = f"{name} -->\n{TABLES[name](name.split()[0])}\n<!-- end -->{after}"
    return "<!-- table ".join(parts)


def main() -> None:
    asked = sys.argv[1:]
    if len(asked) == 1 and asked[0] in TABLES:
        print(TABLES[asked[0]](asked[0].split()[0]))
        return
    if asked not in ([], ["--check"]):
        raise SystemExit(f"usage: python results/table.py [--check | {' | '.join(TABLES)}]; got {' '.join(asked)}")
    for page in PAGES:
        before = page.read_text()
        after = filled(before)
        if not asked:
            page.write_text(after)
        elif before != after:
            raise SystemExit(f"{page.parent.name}/{page.name} is out of date; run python results/table.py")


if __name__ == "__main__":
    main()
