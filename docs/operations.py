"""Draws docs/operations.svg: what each layer does while a sentence is read, step by step, over and over.

python docs/operations.py ["A sentence."] [-m novel-small] [--seconds 24] [--out docs/operations.svg]
"""

from __future__ import annotations

import argparse
import html
from pathlib import Path

import hmrnn
from hmrnn import Operation
from hmrnn.analysis.segmentation import Segmentation

SENTENCE = "The boats came back in the evening."
COLOURS = {Operation.UPDATE: "#56B4E9", Operation.COPY: "#EEEEEE", Operation.FLUSH: "#E69F00"}
MEANING = {
    Operation.UPDATE: "read what ended below",
    Operation.COPY: "nothing ended below: stay",
    Operation.FLUSH: "own segment ended: forget, start again",
}
CELL, ROW, LEFT, TOP = 19, 26, 58, 30
STYLE = "text{font:13px 'DejaVu Sans Mono',monospace} .s{font:11px 'DejaVu Sans',sans-serif;fill:#767676}"


def held(found: Segmentation) -> list[list[str]]:
    """For each layer and step the segments that it has read since its last FLUSH."""
    layers = found.operations.shape[1]
    now: list[list[str]] = [[] for _ in range(layers)]
    below = [0] * layers  # where the segment of the layer below begins
    shown: list[list[str]] = [[] for _ in range(layers)]
    for t in range(len(found)):
        for layer in range(layers):
            if found.operations[t, layer] == Operation.FLUSH:
                now[layer] = []
            if layer == 0 or found.boundaries[t, layer - 1]:
                now[layer].append("".join(found.symbols[below[layer] : t + 1]))
                below[layer] = t + 1
            shown[layer].append(("" if layer == 0 else "|").join(now[layer]).replace(" ", "·"))
    return shown


def drawing(found: Segmentation, seconds: float) -> str:
    """An SVG whose animation needs no script."""
    T, layers = found.operations.shape
    width, base = LEFT + T * CELL + 20, TOP + layers * ROW
    steps = T + 5  # the last picture stays for a while

    def during(first: int, last: int) -> str:
        """Show an element from one step to another."""
        times = {0.0: int(first == 0), first / steps: 1, last / steps: 0}
        changes = [(when, value) for when, value in times.items() if when < 1]
        values = ";".join(str(value) for _, value in changes)
        moments = ";".join(f"{when:.4f}" for when, _ in changes)
        return (
            f'<animate attributeName="opacity" calcMode="discrete" dur="{seconds:g}s" repeatCount="indefinite" '
            f'values="{values}" keyTimes="{moments}"/>'
        )

    made = []
    for layer in range(layers):
        y = TOP + (layers - 1 - layer) * ROW
        made.append(f'<text class="s" x="6" y="{y + 16}">layer {layer + 1}</text>')
        for t in range(T):
            what = Operation(int(found.operations[t, layer]))
            x = LEFT + t * CELL
            made.append(
                f'<g>{during(t, steps)}<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 4}" rx="3" '
                f'fill="{COLOURS[what]}"/><text x="{x + CELL / 2}" y="{y + 16}" text-anchor="middle">'
                f"{what.name[0]}</text></g>"
            )
    for t, symbol in enumerate(found.symbols):
        x = LEFT + t * CELL
        shown = html.escape("·" if symbol == " " else symbol)
        made.append(f'<rect x="{x}" y="{TOP - 4}" width="{CELL}" height="{base - TOP + 30}" rx="3" fill="none" '
                    f'stroke="#D55E00" stroke-width="2">{during(t, t + 1)}</rect>')  # fmt: skip
        made.append(f'<text x="{x + CELL / 2}" y="{base + 18}" text-anchor="middle">{shown}</text>')
    for layer, texts in enumerate(held(found)):
        y = base + 52 + (layers - 1 - layer) * 22
        made.append(f'<text class="s" x="6" y="{y}">layer {layer + 1} holds</text>')
        first = 0
        for t in range(1, T + 1):
            if t == T or texts[t] != texts[first]:
                last = steps if t == T else t
                made.append(f'<text x="96" y="{y}">{during(first, last)}{html.escape(texts[first])}</text>')
                first = t
    for k, (what, meaning) in enumerate(MEANING.items()):
        x = 6 + (0, 215, 445)[k]
        made.append(f'<rect x="{x}" y="5" width="14" height="14" rx="3" fill="{COLOURS[what]}"/>')
        made.append(f'<text class="s" x="{x + 19}" y="16">{what.name}: {meaning}</text>')
    height = base + 52 + layers * 22
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="white"/>{"".join(made)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentence", nargs="?", default=SENTENCE)
    parser.add_argument("-m", "--model", default="novel-small")
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--out", type=Path, default=Path("docs/operations.svg"))
    arguments = parser.parse_args()
    found = hmrnn.load(arguments.model).segment(arguments.sentence)
    arguments.out.write_text(drawing(found, arguments.seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
