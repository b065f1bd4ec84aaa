"""Do segments of built-in handwriting end where letters end?

    python benchmarks/letters.py writing-small --out letters.jsonl
    python benchmarks/letters.py handwriting-small --lines handwritten --count 2000 --words

Draws lines of another seed than those of training, whose letters are known at every point, and scores the ends that the
window over the text finds, those of each level, the lifts of the pen, as many ends as there are where the model is most
surprised, and as many in equal pieces. With --words, the movements of the pen are also written as a text, without a
label, and the preset words learns from these lines alone where its words end; some 2,000 lines are enough.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hmrnn
from hmrnn.analysis.scores import pooled, score
from hmrnn.kinds.strokes import synthetic
from hmrnn.kinds.strokes.figures import figure5
from hmrnn.kinds.strokes.gold import pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.kinds.text.model import TextModel
from hmrnn.plots.style import save_figure
from machine import environment

TOLERANCES = (0, 1, 3)
DIRECTIONS, LONGEST = 4, 14  # of movements; symbols of a word


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


def movements(line: np.ndarray) -> tuple[str, list[int]]:
    """A line (T, 3) as a text, and how many points there are at the end of each symbol.

    Two steps of the pen together have one of DIRECTIONS directions; those of one direction in a row are one symbol. So
    is a step without ink, by its direction and by whether it is longer than four steps of this line.
    """
    up, far = line[:, 2] > 0.5, 4 * np.median(np.hypot(*line[1:, :2].T))
    found: list[tuple[int, int]] = []  # symbol, end
    begin = 1
    for t in range(1, len(line)):
        jump = up[t - 1]
        if not (jump or up[t] or t - begin == 1):
            continue
        x, y = line[begin : t + 1, :2].sum(axis=0)
        ways = 4 if jump else DIRECTIONS
        symbol = int(np.floor(np.arctan2(y, x) / (2 * np.pi) * ways + 0.5)) % ways
        symbol += jump * (DIRECTIONS + 4 * (np.hypot(x, y) > far))
        if not jump and found and found[-1][0] == symbol:
            found.pop()
        found.append((symbol, t + 1))
        begin = t + 1
    return "".join(chr(ord("a") + symbol) for symbol, _ in found), [end for _, end in found]


def words(strokes: Strokes) -> list[list[int]]:
    """Where the words end that the preset words finds in the movements of all lines together."""
    texts, ends = zip(*map(movements, strokes))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "movements.txt")
        path.write_text("\n".join(texts) + "\n")
        changes = {"data.path": (str(path),), "segments.longest": LONGEST}
        model = hmrnn.train(hmrnn.Config.load("words").changed(changes))
    assert isinstance(model, TextModel)
    found = model.word_ends([model.reading(text).indices for text in texts], primed=True, threshold=0.5)
    return [np.array(after)[:-1][word[:-1]].tolist() for after, (word, _) in zip(ends, found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lines", choices=("fonts", "handwritten"), default="fonts")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--words", action="store_true", help="find words in the movements of these lines, too")
    parser.add_argument("--plot", help="figure of the first line, coloured by the words of its movements: .svg")
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
    if args.words:
        found["words"] = words(strokes)
        if args.plot:
            number = np.isin(np.arange(len(strokes[0])), found["words"][0]).cumsum()
            save_figure(figure5(strokes[0], read[0], levels=(), letters=number), args.plot)
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
