"""Do segments of built-in handwriting end where letters end?

    python benchmarks/letters.py writing-small --out letters.jsonl
    python benchmarks/letters.py handwriting-small --lines handwritten

Draws lines of another seed than those of training, whose letters are known at every point, and scores the ends that the
window over the text finds, those of each level, the lifts of the pen, as many ends as there are where the model is most
surprised, and as many in equal pieces.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import hmrnn
from hmrnn.analysis.scores import pooled, score
from hmrnn.kinds.strokes import synthetic
from hmrnn.kinds.strokes.gold import pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import Strokes
from machine import environment

TOLERANCES = (0, 1, 3)


def draw(form: str, count: int, seed: int) -> tuple[Strokes, list[np.ndarray]]:
    """Lines, and for each the places in its text of the letters of its points."""
    random = np.random.default_rng([seed, 49])
    made = []
    for _ in range(count):
        if form == "fonts":
            style = list(synthetic.STYLES)[random.integers(len(synthetic.STYLES))]
            text = synthetic._any_text(5, random)
            made.append((text, style, *synthetic.set_line(text, style, random)))
        else:
            font, text = synthetic.FONTS[random.integers(len(synthetic.FONTS))], synthetic._sentence(random)
            made.append((text, font, *synthetic._write(text, font, random)))
    texts, styles, points, letters = zip(*made)
    more = {"conditions": styles} if form == "fonts" else {}
    return Strokes.of(points, texts=texts, points=True, **more), list(letters)


def letter_ends(letters: np.ndarray, text: str) -> np.ndarray:
    """Where the letter changes, if none comes back and a space belongs to the letter after it."""
    after = np.array([place + (text[place] == " ") for place in range(len(text))])
    return np.flatnonzero(np.diff(np.maximum.accumulate(after[letters]))) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lines", choices=("fonts", "handwritten"), default="fonts")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--out", help="file to append a line of JSON to")
    args = parser.parse_args()
    model = hmrnn.load(args.model)
    assert isinstance(model, StrokeModel)
    strokes, letters = draw(args.lines, args.count, args.seed)
    gold = [letter_ends(one, text) for one, text in zip(letters, strokes.texts)]
    read = model.segment_many(strokes)
    found: dict[str, list[Any]] = {f"level {k}": [one.ends(k) for one in read] for k in range(1, read[0].levels + 1)}
    if model.network.window is not None:
        found["window"] = [letter_ends(one, text) for one, text in zip(model.letters(strokes), strokes.texts)]
    found["lifts of the pen"] = [pen_ups(line) for line in strokes]
    bits = [np.nan_to_num(np.asarray(one.bits), nan=-np.inf) for one in read]
    found["surprise"] = [np.argsort(-each[1:])[: len(ends)] + 1 for each, ends in zip(bits, gold)]
    found["equal pieces"] = [
        np.unique(np.linspace(0, len(line), len(ends) + 2)[1:-1].round().astype(int))
        for line, ends in zip(strokes, gold)
    ]
    scores = {
        name: {
            str(tolerance): pooled(
                score(ends, true, len(line), tolerance=tolerance) for ends, true, line in zip(each, gold, strokes)
            ).to_dict()
            for tolerance in TOLERANCES
        }
        for name, each in found.items()
    }
    for name, each in scores.items():
        print(f"{name:18} F1 " + ", ".join(f"{each[str(t)]['f1']:.3f} within {t}" for t in TOLERANCES))
    record = {"model": args.model, "lines": args.lines, "count": args.count, "seed": args.seed, "scores": scores}
    if args.out:
        with open(args.out, "a") as file:
            file.write(json.dumps({**record, **environment("cpu")}) + "\n")


if __name__ == "__main__":
    main()
