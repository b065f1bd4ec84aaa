"""Segments of symbols that have times, such as phonemes or frames, for Praat and ELAN (TextGrid) or a table (CSV).

python examples/textgrid.py MODEL SYMBOLS.csv OUT.TextGrid|OUT.csv

SYMBOLS.csv has a line per symbol: the symbol, one character, and the second at which it ends.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import hmrnn
from hmrnn.analysis.segmentation import Segmentation


def timed(found: Segmentation, ends: Sequence[float], start: float = 0.0) -> list[dict[str, object]]:
    """The rows of a segmentation with seconds for counts of symbols; ``ends`` has a time for each symbol."""
    if len(ends) != len(found):
        raise ValueError(f"{len(found)} symbols need as many times; got {len(ends)}")
    at = [start, *ends]
    return [row | {"start": at[row["start"]], "end": at[row["end"]]} for row in found.rows()]


def textgrid(found: Segmentation, ends: Sequence[float], start: float = 0.0) -> str:
    """A TextGrid with a tier of intervals per level."""
    rows, span = timed(found, ends, start), f"xmin = {start}\nxmax = {ends[-1]}\n"
    tiers = [[row for row in rows if row["level"] == level] for level in range(1, found.levels + 1)]
    text = (
        f'File type = "ooTextFile"\nObject class = "TextGrid"\n\n{span}tiers? <exists>\nsize = {len(tiers)}\nitem []:\n'
    )
    for level, tier in enumerate(tiers, start=1):
        text += (
            f'item [{level}]:\nclass = "IntervalTier"\nname = "level {level}"\n{span}intervals: size = {len(tier)}\n'
        )
        for k, row in enumerate(tier, start=1):
            label = str(row["text"]).replace('"', '""')
            text += f'intervals [{k}]:\nxmin = {row["start"]}\nxmax = {row["end"]}\ntext = "{label}"\n'
    return text


def main(model: str, symbols: str, out: str) -> None:
    with open(symbols, encoding="utf-8", newline="") as file:
        lines = [(symbol, float(end)) for symbol, end in csv.reader(file)]
    found, ends = hmrnn.load(model).segment("".join(symbol for symbol, _ in lines)), [end for _, end in lines]
    if out.endswith(".csv"):
        with open(out, "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, ("level", "start", "end", "text", "probability"))
            table.writeheader()
            table.writerows(timed(found, ends))
    else:
        Path(out).write_text(textgrid(found, ends), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
