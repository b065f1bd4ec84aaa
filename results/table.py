"""Make the tables of results/README.md and results/rows.md from the recorded runs.

python results/table.py            # writes them
python results/table.py --check    # exit status 1 if they are out of date
python results/table.py NAME       # prints one table, such as ptb-search, which is on no page
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hmrnn.config import Config
from hmrnn.config_io import from_json
from hmrnn.training.detectors import condition

HERE = Path(__file__).parent
NEEDED = ("data", "model", "parameters", "seed", "epochs", "test", "characters_per_second",
          "seconds", "hardware", "precision", "date", "commit", "note")  # fmt: skip


def results(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Names and results of the runs in a folder, best test result first."""
    found = []
    for path in folder.glob("*/result.json"):
        result = json.loads(path.read_text())
        missing = [name for name in NEEDED if name not in result]
        if not result.keys() & {"validation_bits", "validation_nats"}:
            missing.append("validation_bits or validation_nats")
        missing += [name for name in ("config.json", "curve.jsonl") if not (path.parent / name).exists()]
        if missing:
            raise SystemExit(f"{path}: missing {', '.join(missing)}")
        found.append((path.parent.name, result))
    return sorted(found, key=lambda named: named[1]["test"].get("bits", -named[1]["test"].get("log_likelihood", 0)))


def dead(rate: float) -> bool:
    """Whether a level never fires or always fires."""
    return condition(rate) != "alive"


def rates_of(test: dict[str, Any]) -> str:
    return ", ".join(f"{rate:.3f}{' (dead)' if dead(rate) else ''}" for rate in test["rates"]) or "-"


def training(run: Path) -> float:
    """Bits or nats of the training part, mean over the updates of the last epoch."""
    last = json.loads((run / "curve.jsonl").read_text().splitlines()[-1])
    return float(last["training"])


def saved(run: Path, test: dict[str, Any]) -> str:
    """Share of updates saved; "-" for networks without detectors and for soft boundaries, which save none."""
    config = from_json((run / "config.json").read_bytes(), Config, str(run))
    soft = config.detectors.estimator == "soft"
    return f"{100 * test['saved']:.0f} %" if test["rates"] and not soft else "-"


def cost(run: Path, r: dict[str, Any]) -> list[str]:
    """Updates saved, parameters, epochs, time and speed of a run."""
    return [
        saved(run, r["test"]),
        f"{r['parameters'] / 1e6:.1f} M",
        f"{r['epochs']:g}",
        f"{r['seconds']:.0f} s",
        f"{r['characters_per_second']:,}",
    ]


def row(run: Path, r: dict[str, Any]) -> str:
    """The row of a run and, if it has one, a second row with its dynamic evaluation."""
    test = r["test"]
    begin = f"| [{r['model']}]({run.parent.name}/{run.name})"
    cells = [
        r["seed"],
        f"{training(run):.3f}",
        f"{r['validation_bits']:.4f}",
        f"{test['bits']:.4f}",
        rates_of(test),
        *cost(run, r),
    ]
    lines = [f"{begin} | {' | '.join(map(str, cells))} |"]
    dynamic = run / "test-dynamic.json"
    if dynamic.exists():
        test = json.loads(dynamic.read_text())
        link = f"[dynamic evaluation]({run.parent.name}/{run.name}/{dynamic.name})"
        cells = [r["seed"], "-", "-", f"{test['bits']:.4f} (dynamic)", rates_of(test), saved(run, test), *"----"]
        lines.append(f"| the model above, not comparable: {link} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def table(folder: Path) -> str:
    head = [
        "| model | seed | training | validation | test | boundary rates z¹, z² | updates saved | parameters | epochs |"
        " time | characters/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join(head + [row(folder / name, r) for name, r in results(folder)])


def best(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Of each network in a folder the run with the best validation."""
    networks: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, r in sorted(results(folder), key=lambda named: float(named[1]["validation_bits"])):
        networks.setdefault(json.loads((folder / name / "config.json").read_text())["model"]["rnn"], (name, r))
    return list(networks.values())


def table_in_short(*rows: tuple[Path, dict[str, Any]]) -> str:
    """Rows of text with fewer columns."""
    head = [
        "| model | seed | validation | test | boundary rates z¹, z² | parameters | epochs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines = [
        f"| [{r['model']}]({run.parent.name}/{run.name}) | {r['seed']} | {r['validation_bits']:.4f} |"
        f" {r['test']['bits']:.4f} | {rates_of(r['test'])} | {r['parameters'] / 1e6:.1f} M | {r['epochs']:g} |"
        for run, r in rows
    ]
    return "\n".join(head + lines)


def table_of_best(*folders: Path) -> str:
    return table_in_short(*((folder / name, r) for folder in folders for name, r in best(folder)))


def table_of_all(folder: Path) -> str:
    return table_in_short(*((folder / name, r) for name, r in results(folder)))


def table_of_search(folder: Path) -> str:
    """Runs of a search, with fewer columns and without links."""
    head = [
        "| model | seed | training | validation | test | boundary rates z¹, z² | epochs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines = [
        f"| {r['model']} | {r['seed']} | {training(folder / name):.3f} | {r['validation_bits']:.4f} |"
        f" {r['test']['bits']:.4f} | {rates_of(r['test'])} | {r['epochs']:g} |"
        for name, r in results(folder)
    ]
    return "\n".join(head + lines)


def table_of_strokes(folder: Path) -> str:
    """Handwriting: log-likelihood of a line in nats (higher is better) and F1 of the levels at pen-ups."""
    head = [
        "| model | seed | training | validation | test | boundary rates z¹, z² | updates saved | parameters | epochs |"
        " time | points/s | F1 of level 1, 2 at pen-ups |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines = []
    for name, r in results(folder):
        test, levels = r["test"], [f"level {l + 1}" for l in range(len(r["test"]["rates"]))]
        scores = {score["name"]: score["tolerance"]["0"]["f1"] for score in test.get("boundaries", ())}
        cells = [
            f"[{r['model']}]({folder.name}/{name})",
            r["seed"],
            f"{-training(folder / name):.0f}",
            f"{-r['validation_nats']:.0f}",
            f"{test['log_likelihood']:.0f}",
            rates_of(test),
            *cost(folder / name, r),
            ", ".join(f"{scores[level]:.2f}" for level in levels if level in scores) or "-",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(head + lines)


def table_of_boundaries(folder: Path) -> str:
    """Segments against the spaces that were removed: boundary F1 at tolerance 0 / 1, and F1 of whole words."""
    head = [
        "| model | seed | test | boundary rates z¹, z² | level 1 | level 2 | surprise rises most | most uncertain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines = []
    for name, r in results(folder):
        scores = {score["name"]: score for score in r["test"]["boundaries"]}
        cells = [f"[{r['model']}]({folder.name}/{name})", str(r["seed"]), f"{r['test']['bits']:.4f}"]
        cells.append(rates_of(r["test"]))
        for found in ("level 1", "level 2", "surprise rises most", "most uncertain"):
            if found not in scores:  # older runs lack some scores
                cells.append("-")
                continue
            strict, near = (scores[found]["tolerance"][t]["f1"] for t in "01")
            cells.append(f"{strict:.2f} / {near:.2f}, {scores[found]['words']['f1']:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(head + lines)


def table_of_cost(*folders: Path) -> str:
    """Bits and multiply-adds per symbol, fewest multiply-adds first, and F1 of the levels at spaces."""
    head = [
        "| model | seed | validation | test | multiply-adds per symbol | boundary rates z¹, z² |"
        " F1 of level 1, 2 at spaces | parameters |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines = []
    for folder in folders:
        for name, r in results(folder):
            test = r["test"]
            scores = {score["name"]: score["tolerance"]["0"]["f1"] for score in test.get("boundaries", ())}
            cells = [
                f"[{r['model']}]({folder.name}/{name})",
                r["seed"],
                f"{r['validation_bits']:.4f}",
                f"{test['bits']:.4f}",
                f"{test['multiply_adds'] / 1e6:.2f} M",
                rates_of(test),
                ", ".join(f"{scores[level]:.2f}" for level in ("level 1", "level 2") if level in scores) or "-",
                f"{r['parameters'] / 1e6:.1f} M",
            ]
            lines.append((test["multiply_adds"], "| " + " | ".join(map(str, cells)) + " |"))
    return "\n".join(head + [line for _, line in sorted(lines)])


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


def table_of_seeds(folder: Path) -> str:
    """Test results of each model by seed, their mean and the paper's result, best mean first.

    A seed with a dead level is marked and counts in the mean.
    """
    models: dict[str, list[dict[str, Any]]] = {}
    for _, r in results(folder):
        models.setdefault(r["model"], []).append(r)
    lines = []
    for model, runs in models.items():
        runs.sort(key=lambda r: r["seed"])
        values = [r["test"].get("bits", r["test"].get("log_likelihood")) for r in runs]
        digits, sign = (4, 1) if "bits" in runs[0]["test"] else (0, -1)
        mean = sum(values) / len(values)
        marks = [" (dead)" if any(map(dead, r["test"]["rates"])) else "" for r in runs]
        said = ", ".join(f"{value:.{digits}f}{mark}" for value, mark in zip(values, marks))
        lines.append((sign * mean, f"| {model} | {said} | {mean:.{digits}f} | {PAPER.get(model, '-')} |"))
    head = ["| test | seeds | mean | paper |", "|---|---|---|---|"]
    return "\n".join(head + [line for _, line in sorted(lines)])


TABLES = {"ptb": table, "ptb seeds": table_of_seeds, "ptb-gains": table_of_search,
          "ptb-search": table_of_search, "ptb-regularisers": table_of_search,
          "ptb-baselines": table, "ptb-long": table, "ptb-large": table, "ptb-without-spaces": table_of_boundaries,
          "ptb-long best": lambda folder: table_of_best(folder, folder.parent / "ptb-large"),
          "enwik8 short": table_of_all, "text8 short": table_of_all, "iamondb seeds": table_of_seeds, "enwik8": table,
          "ptb-cell": table_of_cost,
          "enwik8-cell": lambda folder: table_of_cost(folder, folder.parent / "enwik8-frontier"),
          "text8": table, "iamondb": table_of_strokes,
          "iamondb-dropout": table_of_strokes, "iamondb-weight-drop": table_of_strokes,
          "iamondb-official": table_of_strokes}  # fmt: skip


def filled(text: str) -> str:
    """``text`` with new tables between ``<!-- table NAME -->`` and ``<!-- end -->``; NAME begins with the folder."""
    parts = text.split("<!-- table ")
    for i, part in enumerate(parts[1:], start=1):
        name, rest = part.split(" -->", 1)
        _, after = rest.split("<!-- end -->", 1)
        parts[i] = f"{name} -->\n{TABLES[name](HERE / name.split()[0])}\n<!-- end -->{after}"
    return "<!-- table ".join(parts)


def main() -> None:
    asked = sys.argv[1:]
    if len(asked) == 1 and asked[0] in TABLES:
        print(TABLES[asked[0]](HERE / asked[0].split()[0]))
        return
    if asked not in ([], ["--check"]):
        raise SystemExit(f"usage: python results/table.py [--check | {' | '.join(TABLES)}]; got {' '.join(asked)}")
    for page in (HERE / "README.md", HERE / "rows.md"):
        before = page.read_text()
        after = filled(before)
        if "--check" not in sys.argv:
            page.write_text(after)
        elif before != after:
            raise SystemExit(f"results/{page.name} is out of date; run python results/table.py")


if __name__ == "__main__":
    main()
