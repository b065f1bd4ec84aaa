"""Synthetic handwriting: words in the stroke fonts of A. V. Hershey, with a random hand for every line.

A hand has a font, size, slant, spacing, speed and tremble. The pen is sampled at equal times, slower at the start and
end of a stroke, and coordinates are integers, as on a whiteboard.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from hmrnn.kind import Progress
from hmrnn.kinds.strokes.strokes import Strokes

VERSION = 1
"""Part of the key of cached lines: increase it when the lines change."""

FONTS = ("futural", "rowmans", "scripts", "cursive")
STYLES = {
    "print": ("futural", 0.0),
    "slanted": ("futural", 0.4),
    "script": ("scripts", 0.0),
    "cursive": ("cursive", 0.0),
}
"""The styles of a set text: a font and how far it is slanted."""
SYMBOLS = "".join(map(chr, range(ord(" "), ord("~") + 1)))
_BASELINE = 9.0  # of the fonts; y grows downwards
_WORDS = """
a about above across after again against air all almost along also always among an and animal another answer any are
around as ask at away back be because become been before began behind being below best better between big bird black
blue boat body book both boy bring brown build but by call came can car carry change city clear close cold come could
country cut dark day deep did different do does dog done door down draw dry each early earth east eat end enough even
ever every example eye face fall family far farm fast father few field find fire first fish five fly follow food for
form found four free friend from full game gave get girl give go gold good great green ground group grow had half hand
hard has have he head hear heard heat help her here high hill him his hold home horse hot hour house how hundred idea if
in inch into is island it its jump just keep kind king knew know land language large last late lead learn leave left
less let letter life light like line list listen little live long look love low machine made make man many map mark may
me mean measure men might mile mind money moon more morning most mother mountain move much music must my name near need
never new next night no north not note nothing notice now number of off often old on once one only open or order other
our out over own page paper part pass people perhaps person picture piece place plain plan plant play point power press
problem pull put question quick quiet rain ran reach read ready real red remember rest right river road rock room round
rule run said same saw say school sea second see seem self sentence set seven several she ship short should show side
simple since sing sit six size sky sleep slow small snow so some song soon sound south space spell stand star start stay
step still stone stop story street strong study such summer sun sure table take talk teach tell ten than that the their
them then there these they thing think this those thought three through time to together told too took top toward town
travel tree true try turn two under unit until up us use usual very voice vowel wait walk want warm was watch water wave
way we week well went were west what wheel when where which while white who whole why will wind winter with wonder wood
word work world would write year yellow yes yet you young your zero
"""


@dataclasses.dataclass(frozen=True)
class _Glyph:
    """The strokes of a character, relative to its left edge and the baseline."""

    points: np.ndarray
    """(n, 2)."""
    ends: np.ndarray
    """(n,) bool: whether a stroke ends at the point."""
    width: float


def write_lines(count: int, seed: int = 1, progress: Progress = None) -> Strokes:
    """``count`` lines of handwriting with their texts, determined by the seed."""
    random = np.random.default_rng(seed)
    texts, lines = [], []
    for i in range(count):
        texts.append(_sentence(random))
        font = FONTS[random.integers(len(FONTS))]
        lines.append(_write(texts[-1], font, random)[0])
        if progress and (i % 100 == 99 or i == count - 1):
            progress(i + 1, count)
    names = [f"line-{i:05d}" for i in range(1, count + 1)]
    return Strokes.of(lines, names, texts, source="built-in handwriting", points=True)


def set_lines(count: int, words: int = 5, seed: int = 1, progress: Progress = None) -> Strokes:
    """``count`` lines of at most so many ``words``, of all symbols that fonts have, in STYLES, their conditions."""
    random = np.random.default_rng(seed)
    styles = [list(STYLES)[k] for k in random.integers(len(STYLES), size=count)]
    texts = [_any_text(words, random) for _ in styles]
    lines = [set_line(text, style, random)[0] for text, style in zip(texts, styles)]
    if progress:
        progress(count, count)
    names = [f"{style}-{i:05d}" for i, style in enumerate(styles, start=1)]
    return Strokes.of(lines, names, texts, source="fonts", points=True, conditions=styles)


def set_line(text: str, style: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The points of a text (n, 3) in a style, and the place in the text (n,) of the letter that each belongs to."""
    font, slant = STYLES[style]
    return _write(text, font, random, slant=(slant, 0.08), speed=(3.6, 4.8))


def _any_text(words: int, random: np.random.Generator) -> str:
    """Words or rows of symbols, with capitals and signs."""
    known, found = _WORDS.split(), []
    for kind in random.random(random.integers(1, words + 1)):
        word = known[random.integers(len(known))]
        if kind < 0.15:
            word = word.upper()[:5]
        elif kind < 0.35:
            word = word.capitalize()
        elif kind < 0.6:
            word = "".join(random.choice(list(SYMBOLS[1:]), random.integers(1, 6)))
        elif kind < 0.65:
            word = str(random.integers(10 ** random.integers(1, 5)))
        found.append(word + ("" if random.random() < 0.8 else ".,;:?!"[random.integers(6)]))
    return " ".join(found)


def _sentence(random: np.random.Generator) -> str:
    """Two to four words, sometimes with a number, a capital, a comma or a final sign."""
    known = _WORDS.split()
    words = [known[i] for i in random.integers(len(known), size=random.integers(2, 5))]
    if random.random() < 0.1:
        words[random.integers(len(words))] = str(random.integers(1, 2000))
    if random.random() < 0.3:
        words[0] = words[0].capitalize()
    if random.random() < 0.2:
        words[random.integers(len(words))] += ","
    if random.random() < 0.3:
        words[-1] = words[-1].rstrip(",") + ".?!"[random.integers(3)]
    return " ".join(words)


def _write(
    text: str,
    font: str,
    random: np.random.Generator,
    slant: tuple[float, float] = (0.1, 0.15),
    speed: tuple[float, float] = (2.2, 3.6),
) -> tuple[np.ndarray, np.ndarray]:
    """The points of a text as integers x and y, and 1 where a stroke ends (n, 3), and the letter of each (n,).

    ``slant`` are the mean and the deviation of its angle, ``speed`` the least and the largest of the pen.
    """
    size = random.uniform(10, 16)
    points, ends, letters = _set(text, font, spacing=random.uniform(-1.0, 2.5), space=random.uniform(0.7, 1.2))
    x, y = points[:, 0], points[:, 1]
    # Slowly varying size and height, a slope, a slant. Points that coincide still do so afterwards.
    y = y * (1 + 0.12 * _wave(x, random)) + 1.2 * _wave(x, random) + random.normal(0, 0.02) * x
    lean = math.tan(random.normal(*slant))
    x = x * random.uniform(0.8, 1.1) - y * lean + 0.8 * _wave(3 * points[:, 1] + x, random)
    path = size * np.stack([x, y], axis=1)
    sampled, pen_up, reached = _sample(path, ends, speed=size * random.uniform(*speed), random=random)
    tremble = _smooth(random.normal(0, 1, sampled.shape)) * random.uniform(0.5, 4)
    return np.column_stack([np.rint(sampled + tremble), pen_up]), letters[reached]


def _set(text: str, font: str, spacing: float, space: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The glyphs of a text side by side: points, ends of strokes, and places of their letters in the text.

    A letter that starts where the previous one ended continues its stroke.
    """
    glyphs = _glyphs(font)
    joined = font in ("scripts", "cursive")  # letters of these fonts touch, so no spacing is added
    points: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    letters: list[int] = []
    left = 0.0
    for place, character in enumerate(text):
        glyph = glyphs[character]
        if character == " ":
            left += round(glyph.width * space)  # an integer, so that letters touch exactly
            continue
        moved = glyph.points + (left, 0.0)
        if points and np.array_equal(points[-1][-1], moved[0]):
            ends[-1] = np.append(ends[-1][:-1], False)
        points.append(moved)
        ends.append(glyph.ends)
        letters += [place] * len(moved)
        left += glyph.width + (0.0 if joined else spacing)
    return np.concatenate(points), np.concatenate(ends), np.array(letters)


def _sample(
    path: np.ndarray, ends: np.ndarray, speed: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The path sampled at equal times: length / ``speed`` samples per stroke, at least two.

    Returns points, marks of the last of each stroke, and which point of the path each comes before or is.
    """
    last = np.flatnonzero(ends)
    moves = np.diff(path, axis=0, prepend=path[:1])
    way = np.hypot(moves[:, 0], moves[:, 1])
    way[last[:-1] + 1] = 1.0  # between strokes: any positive distance
    position = np.cumsum(way)
    to = position[last]
    start = np.concatenate(([0.0], to[:-1] + 1.0))
    counts = np.maximum(2, np.rint((to - start) / (speed * random.uniform(0.85, 1.15, len(to)))).astype(np.int64) + 1)
    stroke = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    time = (np.arange(counts.sum()) - first[stroke]) / (counts - 1)[stroke]  # 0 to 1
    done = time - 0.6 * np.sin(2 * np.pi * time) / (2 * np.pi)  # slower at both ends
    at = start[stroke] + done * (to - start)[stroke]
    sampled = np.stack([np.interp(at, position, path[:, k]) for k in range(2)], axis=1)
    pen_up = np.zeros(len(sampled), np.uint8)
    pen_up[first + counts - 1] = 1
    reached = np.searchsorted(position, at - 1e-6 * speed).clip(max=len(path) - 1)
    return sampled, pen_up, reached


def _wave(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A slowly varying random function of x with an amplitude of about 1."""
    periods = random.uniform(30, 160, 3)
    return np.sin(2 * np.pi * x[:, None] / periods + random.uniform(0, 2 * np.pi, 3)).sum(axis=1) / 1.5


def _smooth(noise: np.ndarray) -> np.ndarray:
    """Low-pass filtered noise, along the first dimension."""
    padded = np.pad(noise, ((1, 1), (0, 0)), mode="edge")
    return (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4


@functools.cache
def _glyphs(font: str) -> dict[str, _Glyph]:
    """The glyph of each character of a font."""
    from HersheyFonts import HersheyFonts

    loaded = HersheyFonts()
    loaded.load_default_font(font)
    glyphs = {}
    for character, glyph in loaded.all_glyphs.items():
        strokes = [np.array(stroke, np.float64) for stroke in glyph.strokes if len(stroke) > 1]
        points = np.concatenate([np.zeros((0, 2)), *strokes]) - (glyph.left_offset, _BASELINE)
        ends = np.zeros(len(points), bool)
        ends[np.cumsum([len(stroke) for stroke in strokes], dtype=np.int64) - 1] = True
        glyphs[character] = _Glyph(points, ends, float(glyph.char_width))
    return glyphs
