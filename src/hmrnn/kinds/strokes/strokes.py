"""Pen strokes as sequences of steps (Δx, Δy, pen up), and the scale that normalises them."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from hmrnn.errors import InputError
from hmrnn.kind import Spec
from hmrnn.sequences import SequenceCorpus

LARGEST = 1e6
"""Largest absolute coordinate: beyond it a float32 step would lose precision."""
LARGEST_SCALED = 1e15
"""Largest absolute value that ``Scale.encode`` gives a model: layer norm squares it in float32."""
FEWEST = 2
"""Fewest points of a sequence that a model can learn from: one to read and one to predict."""
POINT, LAST = "o", "^"
"""Display symbols of a point inside a stroke and of the last point of a stroke."""


@dataclasses.dataclass(frozen=True, eq=False)
class Strokes(Sequence[np.ndarray]):
    """A set of sequences of pen movements, each a line of writing or a drawing.

    A step holds Δx and Δy from the previous point (y grows downwards) and whether the pen is lifted after this point.
    The first step of a sequence is (0, 0, ·), and its last point ends a stroke.

    Example::

        >>> strokes = Strokes.of([[(0, 0, 0), (3, 4, 1), (5, 0, 1)]], names=["a tick and a dot"])
        >>> len(strokes), strokes.lengths
        (1, array([3]))
        >>> coordinates(strokes[0]).tolist()
        [[0.0, 0.0], [3.0, 4.0], [8.0, 4.0]]
    """

    offsets: np.ndarray
    """(n + 1,) int64: sequence i is ``steps[offsets[i] : offsets[i + 1]]``."""
    steps: np.ndarray
    """(N, 3) float32."""
    names: tuple[str, ...]
    texts: tuple[str, ...] = ()
    """What each sequence says, "" if unknown; empty if unknown for all."""
    split: tuple[str, ...] = ()
    """The part of the corpus that each sequence belongs to, if its file says so."""
    conditions: tuple[str, ...] = ()
    """With data.condition: the condition of each sequence."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read with the others, each with the reason."""

    @staticmethod
    def of(
        sequences: Sequence[Any],
        names: Sequence[str] | None = None,
        texts: Sequence[str] = (),
        *,
        source: str = "these sequences",
        points: bool = False,
        **more: Sequence[str],
    ) -> Strokes:
        """A set of sequences (n, 3) of steps or, with ``points``, of coordinates; default names are 1, 2, ..."""
        arrays = [np.asarray(sequence, np.float64).reshape(-1, 3) for sequence in sequences]
        steps = np.concatenate([np.zeros((0, 3)), *arrays])
        offsets = np.cumsum([0, *map(len, arrays)])
        return from_arrays(steps[:, :2], steps[:, 2], offsets, names, source=source, points=points, texts=texts, **more)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Strokes({counted(len(self), 'sequence')} of {counted(len(self.steps), 'point')} in all)"

    def __getitem__(self, i: int) -> np.ndarray:  # type: ignore[override]
        """The steps of one sequence, (n, 3)."""
        i = range(len(self))[i]
        return self.steps[self.offsets[i] : self.offsets[i + 1]]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(n,) int64: the number of points of each sequence."""
        return np.diff(self.offsets)

    @functools.cached_property
    def checksum(self) -> int:
        """CRC-32 of all steps and lengths."""
        return zlib.crc32(self.steps.tobytes(), zlib.crc32(self.offsets.tobytes()))

    def line(self, which: str | None) -> Strokes:
        """A sequence alone, by its name or its number, counted from 1; the first if ``which`` is None."""
        keys = [*self.names, *map(str, range(1, len(self) + 1))]
        if which is None or which in keys:
            return self.select([0 if which is None else keys.index(which) % len(self)])
        some = ", ".join([*self.names[:3], *["..."] * (len(self) > 3)])
        raise InputError(f"no sequence is called {which!r}, of {counted(len(self), 'sequence')}: {some}")

    def select(self, indices: Sequence[int] | np.ndarray) -> Strokes:
        """A set of some of the sequences, in the order given."""
        chosen = np.asarray(indices, np.int64)
        lengths = self.lengths[chosen]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        # The index in self.steps of every step of the new set.
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        columns: dict[str, Any] = {
            name: tuple(column[i] for i in chosen) for name in COLUMNS if (column := getattr(self, name))
        }
        return dataclasses.replace(self, offsets=offsets, steps=self.steps[places], **columns)


COLUMNS = ("names", "texts", "split", "conditions")
"""The fields of :class:`Strokes` that hold a value for each sequence."""


def joined(sets: Sequence[Strokes]) -> Strokes:
    """Several sets as one; where one has texts, or a split, those of others are ""."""
    columns: dict[str, Any] = {
        name: tuple(value for one in sets for value in getattr(one, name) or [""] * len(one))
        for name in COLUMNS
        if any(getattr(one, name) for one in sets)
    }
    offsets = np.cumsum([0, *(length for one in sets for length in one.lengths)])
    steps, skipped = np.concatenate([one.steps for one in sets]), tuple(why for one in sets for why in one.skipped)
    return Strokes(offsets, steps, skipped=skipped, **columns)


Lines = Strokes | Sequence[np.ndarray] | np.ndarray
"""Lines of strokes as users give them: a set of them, a list of arrays (T, 3), or one such array."""


def as_lines(lines: Lines) -> list[np.ndarray]:
    """The steps (T, 3) of each line."""
    return [lines] if isinstance(lines, np.ndarray) and lines.ndim == 2 else list(lines)


Positive = Annotated[float, msgspec.Meta(gt=0)]


class Scale(Spec, frozen=True):
    """Mean and standard deviation of Δx and Δy; a model reads and predicts ``(step - mean) / deviation``."""

    unit: ClassVar[str] = "point"
    mean: tuple[float, float]
    deviation: tuple[Positive, Positive]

    @staticmethod
    def of(strokes: Strokes) -> Scale:
        """The scale of the steps that a model predicts: all but the first of each sequence."""
        moves = np.delete(strokes.steps[:, :2], strokes.offsets[:-1], axis=0).astype(np.float64)
        return Scale.from_dict({"mean": moves.mean(axis=0).tolist(), "deviation": moves.std(axis=0).tolist()})

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


@dataclasses.dataclass(frozen=True)
class StrokeCorpus(SequenceCorpus):
    """Strokes for training, validation and test, and the scale of the training part."""

    spec: Scale
    train: Strokes
    valid: Strokes
    test: Strokes
    short: int = 0
    """Number of sequences left out because they have fewer points than ``data.min_points``."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of all sequences; none without data.condition."""
        return self.train.conditions + self.valid.conditions + self.test.conditions

    def describe(self) -> str:
        """A summary of a few lines."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        lengths = np.concatenate([part.lengths for part in parts.values()])
        left_out = f"; {counted(self.short, 'shorter line')} left out" if self.short else ""
        lines = [
            f"{self.name}: {len(lengths):,} lines of {lengths.min()} to {lengths.max()} points, "
            f"{lengths.mean():.1f} on average{left_out}"
        ]
        for name, part in parts.items():
            points = len(part.steps)
            lines.append(
                f"{name:5} {len(part):>8,} {'line, ' if len(part) == 1 else 'lines,'} {points:>11,} points, "
                f"{points / len(part):.1f} per line, {points / part.steps[:, 2].sum():.1f} per stroke"
            )
        (x, y), (dx, dy) = self.spec.mean, self.spec.deviation
        lines.append(f"a step of the training part: Δx {x:.2f} ± {dx:.2f}, Δy {y:.2f} ± {dy:.2f}")
        if skipped := self.train.skipped:
            lines += [f"{counted(len(skipped), 'file')} skipped:", *(f"  {reason}" for reason in skipped[:10])]
            lines += [f"  and {len(skipped) - 10} more"] if len(skipped) > 10 else []
        return "\n".join(lines)


def coordinates(steps: np.ndarray) -> np.ndarray:
    """(n, 2) float64: the points of a sequence of steps (n, 3), relative to where its first step starts."""
    return np.cumsum(steps[:, :2], axis=0, dtype=np.float64)


def polylines(steps: np.ndarray) -> list[np.ndarray]:
    """The strokes of a sequence as points (n, 2), from its steps (T, 3); a stroke ends after a point with pen_up."""
    return [part for part in np.split(coordinates(steps), np.flatnonzero(steps[:, 2] > 0.5) + 1) if len(part)]


def marked(strokes: Sequence[Sequence[Sequence[float]]]) -> np.ndarray:
    """(n, 3): the points of strokes with 1 at the last of each stroke."""
    return np.array([(*point, k == len(stroke)) for stroke in strokes for k, point in enumerate(stroke, start=1)])


def counted(number: int, what: str) -> str:
    """A number with its noun: ``1 line``, ``2 lines``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def from_arrays(
    xy: np.ndarray,
    pen_up: np.ndarray,
    offsets: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    source: str,
    points: bool = False,
    skipped: Sequence[str] = (),
    **columns: Sequence[str],
) -> Strokes:
    """Strokes from unchecked arrays; InputError, naming ``source``, if they do not fit together.

    Args:
        xy: (N, 2) steps, or coordinates if ``points``. The first step of each sequence is replaced by 0.
        pen_up: (N,) zeros and ones. The value at the last point of each sequence is replaced by 1.
        offsets: (n + 1,), as in :class:`Strokes`.
        columns: texts and split.
    """
    bound = LARGEST if points else 2 * LARGEST
    numbers = xy.dtype.kind in "iuf" and xy.ndim == 2 and xy.shape[1] == 2
    fits = np.abs(xy.astype(np.float64)).max(axis=1, initial=0) <= bound if numbers else np.zeros(1, bool)
    if not fits.all():
        where = f", with {xy[fits.argmin()]} at {fits.argmin()}" if numbers else ""
        raise InputError(
            f"{source}: points must be numbers between {-bound:g} and {bound:g}, of shape (N, 2); "
            f"got {xy.dtype} {xy.shape}{where}"
        )
    if pen_up.shape != (len(xy),) or not np.isin(pen_up, (0, 1)).all():
        raise InputError(f"{source}: pen_up must be 0 or 1 for each of {counted(len(xy), 'point')}; got {pen_up}")
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu"
    lengths = np.diff(offsets.astype(np.int64)) if whole else np.zeros(0)
    if not (lengths.size and lengths.min() > 0 and offsets[0] == 0 and offsets[-1] == len(xy)):
        raise InputError(
            f"{source}: there must be a sequence, and each must have a point: offsets ascend from 0 to {len(xy)}, the "
            f"number of points; got {offsets}"
        )
    numbered = tuple(map(str, range(1, len(lengths) + 1)))
    columns = {"names": numbered if names is None or not len(names) else names, **columns}
    for what, column in columns.items():
        text = "".join(column)
        if len(column) not in (0, len(lengths)) or text.encode("utf-8", "replace").decode() != text:
            raise InputError(
                f"{source}: {what} must be text that UTF-8 can encode, one for each of "
                f"{counted(len(lengths), 'sequence')}; got {len(column)}"
            )
    steps = np.empty((len(xy), 3), np.float32)
    steps[:, :2] = np.diff(xy.astype(np.float64), axis=0, prepend=0) if points else xy
    steps[:, 2] = pen_up
    steps[offsets[:-1], :2] = 0
    steps[offsets[1:] - 1, 2] = 1
    listed: dict[str, Any] = {name: tuple(column) for name, column in (columns | {"skipped": skipped}).items()}
    return Strokes(offsets.astype(np.int64), steps, **listed)
