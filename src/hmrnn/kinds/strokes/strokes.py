"""Pen strokes as sequences of steps (Δx, Δy, pen up), and the scale that normalises them."""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from hmrnn.errors import InputError

LARGEST = 1e6
"""Largest absolute coordinate: beyond it a float32 step would lose precision."""
LARGEST_SCALED = 1e15
"""Largest absolute value that ``Scale.encode`` gives a model: layer norm squares it in float32."""
FEWEST = 2
"""Fewest points of a sequence that a model can learn from: one to read and one to predict."""
POINT, LAST = "o", "^"
"""Display symbols of a point inside a stroke and of the last point of a stroke."""


@dataclasses.dataclass(frozen=True, eq=False)
class Strokes:
    """A set of sequences of pen movements, each a line of writing or a drawing.

    A step holds Δx and Δy from the previous point (y grows downwards) and whether the pen is lifted after this point.
    The first step of a sequence is (0, 0, ·), and its last point ends a stroke.

    Example::

        >>> strokes = Strokes.of([[(0, 0, 0), (3, 4, 1), (5, 0, 1)]], names=["a tick and a dot"])
        >>> len(strokes), strokes.lengths
        (1, array([3]))
        >>> strokes.coordinates(0).tolist()
        [[0.0, 0.0], [3.0, 4.0], [8.0, 4.0]]
    """

    offsets: np.ndarray
    """(n + 1,) int64: sequence i is ``steps[offsets[i] : offsets[i + 1]]``."""
    steps: np.ndarray
    """(N, 3) float32."""
    names: tuple[str, ...]
    texts: tuple[str, ...] | None = None
    """What each sequence says, "" if unknown; None if unknown for all."""
    conditions: tuple[str, ...] | None = None
    """With data.condition: the condition of each sequence."""

    @staticmethod
    def of(sequences: Sequence[Any], names: Sequence[str] | None = None, texts: Sequence[str] | None = None) -> Strokes:
        """A set of sequences (n, 3); default names are 1, 2, ..."""
        arrays = [np.asarray(sequence, np.float64).reshape(-1, 3) for sequence in sequences]
        steps = np.concatenate([np.zeros((0, 3)), *arrays])
        offsets = np.cumsum([0, *map(len, arrays)])
        return from_arrays(steps[:, :2], steps[:, 2], offsets, names, texts, "these sequences")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Strokes({counted(len(self), 'sequence')} of {counted(len(self.steps), 'point')} in all)"

    def __getitem__(self, i: int) -> np.ndarray:
        """The steps of one sequence, (n, 3)."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"sequence {i} is out of range: there are {len(self)}")
        i %= len(self)
        return self.steps[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(n,) int64: the number of points of each sequence."""
        return np.diff(self.offsets)

    @functools.cached_property
    def checksum(self) -> int:
        """CRC-32 of all steps and lengths."""
        return zlib.crc32(self.steps.tobytes(), zlib.crc32(self.offsets.tobytes()))

    def coordinates(self, i: int) -> np.ndarray:
        """(n, 2) float64: the points of one sequence, the first at (0, 0)."""
        return np.cumsum(self[i][:, :2], axis=0, dtype=np.float64)

    def index(self, name: str) -> int:
        """The index of the sequence with this name; InputError if there is none."""
        try:
            return self.names.index(name)
        except ValueError:
            some = ", ".join([*self.names[:3], *["..."] * (len(self) > 3)])
            raise InputError(f"no sequence is called {name!r}, of {counted(len(self), 'sequence')}: {some}") from None

    def line(self, which: str | None) -> np.ndarray:
        """The steps of a sequence by its name or its number, counted from 1; the first if ``which`` is None."""
        number = int(which[:18]) if which and which.isdecimal() and which not in self.names else 1 if not which else 0
        return self[number - 1] if 1 <= number <= len(self) else self[self.index(which or "")]

    def select(self, indices: Sequence[int] | np.ndarray) -> Strokes:
        """A set of some of the sequences, in the order given."""
        chosen = np.asarray(indices, np.int64)
        lengths = self.lengths[chosen]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        # The index in self.steps of every step of the new set.
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        texts = None if self.texts is None else tuple(self.texts[i] for i in chosen)
        conditions = None if self.conditions is None else tuple(self.conditions[i] for i in chosen)
        return Strokes(offsets, self.steps[places], tuple(self.names[i] for i in chosen), texts, conditions)


Lines = Strokes | Sequence[np.ndarray] | np.ndarray
"""Lines of strokes as users give them: a set of them, a list of arrays (T, 3), or one such array."""


def as_lines(lines: Lines) -> list[np.ndarray]:
    """The steps (T, 3) of each line."""
    return [lines] if isinstance(lines, np.ndarray) and lines.ndim == 2 else list(lines)


@dataclasses.dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of Δx and Δy; a model reads and predicts ``(step - mean) / deviation``."""

    modality: ClassVar[Literal["strokes"]] = "strokes"
    unit: ClassVar[str] = "point"
    mean: tuple[float, float]
    deviation: tuple[float, float]

    @staticmethod
    def of(strokes: Strokes) -> Scale:
        """The scale of the steps that a model predicts: all but the first of each sequence."""
        moves = np.delete(strokes.steps[:, :2], strokes.offsets[:-1], axis=0).astype(np.float64)
        if not len(moves):
            raise InputError("a scale needs a sequence of at least 2 points; there is none")
        mean, deviation = moves.mean(axis=0), moves.std(axis=0)
        for axis, value in zip("xy", deviation):
            if not value > 0:
                raise InputError(f"every step of these strokes has the same Δ{axis}; writing needs two dimensions")
        return Scale((float(mean[0]), float(mean[1])), (float(deviation[0]), float(deviation[1])))

    def encode(self, steps: np.ndarray) -> np.ndarray:
        """Steps (..., 3) normalised for a model, float32; the pen bit is unchanged."""
        scaled = np.array(steps, np.float64)
        scaled[..., :2] = (scaled[..., :2] - self.mean) / self.deviation
        if not np.abs(scaled).max(initial=0) <= LARGEST_SCALED:
            raise InputError(f"steps must be finite and at most {LARGEST_SCALED:g} deviations {self.deviation} long")
        return scaled.astype(np.float32)

    def decode(self, steps: np.ndarray) -> np.ndarray:
        """The inverse of ``encode``."""
        scaled = np.array(steps, np.float64)
        scaled[..., :2] = scaled[..., :2] * self.deviation + self.mean
        return scaled.astype(np.float32)

    @staticmethod
    def pieces(steps: np.ndarray) -> list[str]:
        """One display symbol per point of a sequence (T, 3)."""
        return [LAST if up else POINT for up in steps[:, 2] > 0.5]

    def describe(self) -> str:
        """What the model reads, for people."""
        return "pen strokes"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"mean": list(self.mean), "deviation": list(self.deviation)}

    @staticmethod
    def from_dict(data: Any) -> Scale:
        """The scale that ``to_dict`` wrote; InputError if ``data`` is anything else."""
        if not isinstance(data, dict) or set(data) != {"mean", "deviation"}:
            got = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
            raise InputError(f"a scale has exactly the fields mean and deviation; got {got}")
        for name, pair in data.items():
            numbers = isinstance(pair, list) and len(pair) == 2 and all(type(v) in (int, float) for v in pair)
            if not numbers or not all(math.isfinite(v) and (v > 0 or name == "mean") for v in pair):
                wanted = "finite" if name == "mean" else "positive"
                raise InputError(f"the {name} of a scale must be two {wanted} numbers; got {pair!r}")
        return Scale(tuple(map(float, data["mean"])), tuple(map(float, data["deviation"])))  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, eq=False)
class StrokeFile:
    """The contents of a file of strokes, or of a collection of files, before it is split."""

    strokes: Strokes
    split: tuple[str, ...] | None = None
    """The part that each sequence belongs to, if the file says so."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read, each with the reason."""


@dataclasses.dataclass(frozen=True, eq=False)
class StrokeCorpus:
    """Strokes for training, validation and test, and the scale of the training part."""

    name: str
    train: Strokes
    valid: Strokes
    test: Strokes
    scale: Scale
    skipped: tuple[str, ...] = ()
    """Files that could not be read, each with the reason."""
    short: int = 0
    """Number of sequences left out because they have fewer points than ``data.min_points``."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of all sequences; none without data.condition."""
        return tuple(row for part in (self.train, self.valid, self.test) for row in part.conditions or ())

    def describe(self) -> str:
        """A summary of a few lines."""
        parts = (self.train, self.valid, self.test)
        lengths = np.concatenate([part.lengths for part in parts])
        left_out = f"; {counted(self.short, 'shorter line')} left out" if self.short else ""
        lines = [
            f"{self.name}: {len(lengths):,} lines of {lengths.min()} to {lengths.max()} points, "
            f"{lengths.mean():.1f} on average{left_out}"
        ]
        for name, part in zip(("train", "valid", "test"), parts):
            points = len(part.steps)
            lines.append(
                f"{name:5} {len(part):>8,} {'line, ' if len(part) == 1 else 'lines,'} {points:>11,} points, "
                f"{points / len(part):.1f} per line, {points / part.steps[:, 2].sum():.1f} per stroke"
            )
        (x, y), (dx, dy) = self.scale.mean, self.scale.deviation
        lines.append(f"a step of the training part: Δx {x:.2f} ± {dx:.2f}, Δy {y:.2f} ± {dy:.2f}")
        if self.skipped:
            lines.append(f"{counted(len(self.skipped), 'file')} skipped:")
            lines += [f"  {reason}" for reason in self.skipped[:10]]
            lines += [f"  and {len(self.skipped) - 10} more"] if len(self.skipped) > 10 else []
        return "\n".join(lines)


def polylines(steps: np.ndarray) -> list[np.ndarray]:
    """The strokes of a sequence as points (n, 2), from its steps (T, 3); a stroke ends after a point with pen_up."""
    points = np.cumsum(steps[:, :2], axis=0, dtype=np.float64)
    return [part for part in np.split(points, np.flatnonzero(steps[:, 2] > 0.5) + 1) if len(part)]


def counted(number: int, what: str) -> str:
    """A number with its noun: ``1 line``, ``2 lines``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def from_arrays(
    xy: np.ndarray,
    pen_up: np.ndarray,
    offsets: np.ndarray,
    names: Sequence[str] | None,
    texts: Sequence[str] | None,
    source: str,
    *,
    points: bool = False,
) -> Strokes:
    """Strokes from unchecked arrays; InputError, naming ``source``, if they do not fit together.

    Args:
        xy: (N, 2) steps, or coordinates if ``points``. The first step of each sequence is replaced by 0.
        pen_up: (N,) zeros and ones. The value at the last point of each sequence is replaced by 1.
        offsets: (n + 1,), as in :class:`Strokes`.
    """
    _check(xy, pen_up, offsets, source)
    bound = LARGEST if points else 2 * LARGEST
    wrong = np.flatnonzero(~(np.abs(xy.astype(np.float64)).max(axis=1, initial=0) <= bound))
    if wrong.size:
        shown = ", ".join(f"{value:g}" for value in xy[wrong[0]])
        what = "coordinate" if points else "step"
        raise InputError(
            f"{source}: every {what} must lie between {-bound:g} and {bound:g}; point {wrong[0]} has ({shown})"
        )
    count = len(offsets) - 1
    for what, given in (("names", names), ("texts", texts)):
        if given is not None and len(given) != count:
            raise InputError(f"{source}: {counted(count, 'sequence')} must have as many {what}; got {len(given)}")
        try:
            "".join(given or ()).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{source}: {what} must be text that UTF-8 can encode; {error.reason}") from error
    steps = np.empty((len(xy), 3), np.float32)
    steps[:, :2] = np.diff(xy.astype(np.float64), axis=0, prepend=0) if points else xy
    steps[:, 2] = pen_up
    steps[offsets[:-1], :2] = 0
    steps[offsets[1:] - 1, 2] = 1
    named = tuple(names) if names is not None else tuple(map(str, range(1, count + 1)))
    return Strokes(offsets.astype(np.int64), steps, named, tuple(texts) if texts is not None else None)


def _check(xy: np.ndarray, pen_up: np.ndarray, offsets: np.ndarray, source: str) -> None:
    """InputError unless shapes and types fit, pen_up is binary, and offsets ascend from 0 to the number of points."""
    if xy.ndim != 2 or xy.shape[1] != 2 or xy.dtype.kind not in "iuf":
        raise InputError(f"{source}: points must be numbers of shape (N, 2); got {xy.dtype} {xy.shape}")
    total = len(xy)
    if pen_up.shape != (total,) or pen_up.dtype.kind not in "biuf":
        raise InputError(
            f"{source}: pen_up must have a value for each of {counted(total, 'point')}; "
            f"got {pen_up.dtype} {pen_up.shape}"
        )
    wrong = np.flatnonzero((pen_up != 0) & (pen_up != 1))
    if wrong.size:
        raise InputError(f"{source}: pen_up must be 0 or 1; got {pen_up[wrong[0]]} at point {wrong[0]}")
    if offsets.ndim != 1 or len(offsets) < 1 or offsets.dtype.kind not in "iu":
        raise InputError(
            f"{source}: offsets must be integers, one more than there are sequences; "
            f"got {offsets.dtype} {offsets.shape}"
        )
    if len(offsets) == 1:
        raise InputError(f"{source} holds no sequence")
    first, last = int(offsets[0]), int(offsets[-1])
    if (first, last) != (0, total):
        raise InputError(
            f"{source}: offsets must go from 0 to {total}, the number of points; they go from {first} to {last}"
        )
    lengths = np.diff(offsets.astype(np.int64))
    wrong = np.flatnonzero(lengths < 1)
    if wrong.size:
        raise InputError(
            f"{source}: offsets must ascend, as every sequence has at least one point; "
            f"sequence {wrong[0] + 1} has {lengths[wrong[0]]}"
        )
