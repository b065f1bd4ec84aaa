"""Which ends of handwriting-small's second level are ends of strokes, and which of those end a letter.

    python benchmarks/letters.py

Built-in lines say what is written, not where letters end. In printed fonts each letter has its strokes, so the
pen-ups can be counted off; lines in joined fonts are left out.
"""

from __future__ import annotations

import json

import numpy as np

import hmrnn
from hmrnn.kinds.strokes import synthetic as handwritten
from hmrnn.kinds.strokes.model import StrokeModel


def letter_ends(text: str, lifted: np.ndarray) -> np.ndarray | None:
    """The pen-ups that end a letter; None if no printed font has as many strokes for this text."""
    for font in ("futural", "rowmans"):
        glyphs = handwritten._glyphs(font)
        strokes = [int(glyphs[character].ends.sum()) for character in text.replace(" ", "")]
        if sum(strokes) == len(lifted):
            return lifted[np.cumsum(strokes) - 1]
    return None


def main() -> None:
    model = hmrnn.load("handwriting-small")
    assert isinstance(model, StrokeModel)
    lines = handwritten.write_lines(200, seed=2)
    count = dict.fromkeys(("lines", "points", "ends", "strokes", "letters", "ends_of_strokes", "ends_of_letters"), 0)
    for line, text in zip(lines, lines.texts):
        lifted = np.flatnonzero(np.asarray(line)[:, 2] > 0.5) + 1
        letters = letter_ends(text, lifted)
        if letters is None:
            continue
        inside = [set(map(int, ends)) - {len(line)} for ends in (model.segment(line).ends(2), lifted, letters)]
        found, strokes, of_letters = inside
        here = (1, len(line), *map(len, inside), len(found & strokes), len(found & of_letters))
        count = {name: before + more for (name, before), more in zip(count.items(), here)}
    print(json.dumps(count, indent=1))


if __name__ == "__main__":
    main()
