"""Segmentation: where every level's segments end in a sequence, and what every layer did meanwhile."""

from __future__ import annotations

import dataclasses
import json
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from rich.text import Text

from hmrnn.analysis.shown import as_html, visible, wrap
from hmrnn.errors import InputError
from hmrnn.nn.output import Operation

SEGMENT_COLOURS = ("#87d7ff", "#ffd787")  # blue and orange: told apart by colour-blind eyes, both light under black
_ANSI = ("\x1b[38;5;16;48;5;117m", "\x1b[38;5;16;48;5;222m")  # the same two, of the 256 colours every terminal knows
_ANSI_RESET = "\x1b[0m"
LETTERS = "".join(operation.name[0] for operation in Operation)
"""UCF: how operations are written."""


class Updates(NamedTuple):
    """How often the layers changed, beside a stacked LSTM, where each one changes at every step."""

    per_layer: tuple[int, ...]
    """UPDATE and FLUSH operations of each layer, the lowest first."""
    steps: int

    @property
    def total(self) -> int:
        return sum(self.per_layer)

    @property
    def dense(self) -> int:
        """What a stacked LSTM of as many layers does."""
        return self.steps * len(self.per_layer)

    @property
    def saved(self) -> float:
        """Share of ``dense`` that was not needed."""
        return 1 - self.total / self.dense

    def __str__(self) -> str:
        return (
            f"{self.total} layer updates instead of {self.dense} "
            f"({' + '.join(map(str, self.per_layer))}): {self.saved:.0%} saved"
        )


@dataclasses.dataclass(eq=False, repr=False)
class Segmentation:
    """What a network with L layers made of T symbols. Levels are counted from 1: level 1 is what z¹ found.

    A slice of it (``segmentation[100:370]``) holds what was found there with everything before it read.
    """

    symbols: tuple[str, ...]
    """One string per symbol."""
    boundaries: np.ndarray
    """(T, L-1) uint8: 1 where a segment of that level ends after the symbol. "soft" boundaries are rounded."""
    probabilities: np.ndarray
    """(T, L-1) float32: z̃, what the detectors said before the decision."""
    operations: np.ndarray
    """(T, L) uint8: what each layer did, as :class:`hmrnn.Operation`."""
    norms: np.ndarray
    """(T, L) float32: the l2 norm of each layer's h."""
    bits: np.ndarray | None = None
    """(T,) float32: -log2 of the probability that each symbol had given those before it; NaN for the first."""

    def __post_init__(self) -> None:
        self.symbols = tuple(self.symbols)
        T = len(self.symbols)
        if T == 0:
            raise InputError("a segmentation must hold at least one symbol; got none")
        if not all(isinstance(symbol, str) for symbol in self.symbols):
            raise InputError("symbols must be strings, one per symbol; got something else among them")
        self.boundaries = _whole("boundaries", self.boundaries, 1)
        self.probabilities = np.asarray(self.probabilities, np.float32)
        self.operations = _whole("operations", self.operations, max(Operation))
        self.norms = np.asarray(self.norms, np.float32)
        self.bits = None if self.bits is None else np.asarray(self.bits, np.float32)
        L = self.norms.shape[-1] if self.norms.ndim else 0
        for name, array, shape in (
            ("boundaries", self.boundaries, (T, L - 1)),
            ("probabilities", self.probabilities, (T, L - 1)),
            ("operations", self.operations, (T, L)),
            ("norms", self.norms, (T, L)),
            ("bits", self.bits, (T,)),
        ):
            if array is not None and array.shape != shape:
                raise InputError(f"{name} must have shape {shape} for {T} symbols and {L} layers; got {array.shape}")

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, part: slice) -> Segmentation:
        if not isinstance(part, slice):
            raise InputError(f"a segmentation is cut with a slice, such as [:270]; got [{part!r}]")
        if part.step not in (None, 1):
            raise InputError(f"a segmentation is cut in one piece, without a step; got a step of {part.step}")
        bits = None if self.bits is None else self.bits[part]
        arrays = (self.boundaries[part], self.probabilities[part], self.operations[part], self.norms[part])
        return Segmentation(self.symbols[part], *arrays, bits)

    @property
    def text(self) -> str:
        return "".join(self.symbols)

    @property
    def levels(self) -> int:
        """Number of levels: one for each layer with a detector, that is all but the top one."""
        return self.boundaries.shape[1]

    def ends(self, level: int) -> list[int]:
        """Where the segments end, sorted: segment k is ``symbols[ends[k-1]:ends[k]]``, and the last end is T."""
        if not isinstance(level, Integral) or not 1 <= level <= self.levels:
            raise InputError(f"level must lie between 1 and {self.levels}; got {level!r}")
        ends: list[int] = (np.flatnonzero(self.boundaries[:-1, level - 1]) + 1).tolist()
        return [*ends, len(self)]

    def segments(self, level: int) -> list[str]:
        """The text, cut where the level's segments end."""
        return ["".join(self.symbols[start:end]) for start, end in _spans(self.ends(level))]

    @property
    def nested(self) -> bool:
        """Whether every end of a level is an end of the level below, too."""
        return bool((self.boundaries[:-1, 1:] <= self.boundaries[:-1, :-1]).all())

    def tree(self, *, cut: bool = False) -> list[Any]:
        """The segments of the highest level as lists of those of the next, and so on down to the strings of level 1.

        Boundaries need not nest: a layer that has just ended a segment moves, and may end one again, whether or not the
        level below does. With ``cut`` such an end cuts the segments of all levels below it, too, so that there always
        is a tree; without, it is an error.
        """
        if self.levels == 0:
            raise InputError("a network of one layer has no detector and so no segments; train one with two or more")
        if not cut and not self.nested:
            raise InputError(
                "these boundaries make no tree: a segment ends inside one of the level below; "
                "take the levels one by one with segments(level), or let them be cut with tree(cut=True)"
            )
        every = [self.ends(level) for level in range(1, self.levels + 1)]
        if cut:
            every = [sorted(set().union(*every[l:])) for l in range(self.levels)]
        ends = every[0]
        nodes: list[Any] = ["".join(self.symbols[start:end]) for start, end in _spans(ends)]
        for above in every[1:]:
            position = {end: k + 1 for k, end in enumerate(ends)}
            nodes = [nodes[start:end] for start, end in _spans([position[end] for end in above])]
            ends = above
        return nodes

    def updates(self) -> Updates:
        """How often each layer changed, as the paper counts it for its Figure 4."""
        per_layer = (self.operations != Operation.COPY).sum(axis=0).tolist()
        return Updates(tuple(per_layer), len(self))

    def table(self) -> str:
        """The operations of every layer, counted: a line per layer, and the sum of those that changed it."""
        lines = ["layer   UPDATE    FLUSH     COPY   changed"]
        for l, done in enumerate(self.operations.T, start=1):
            update, flush, copy = (
                int((done == kind).sum()) for kind in (Operation.UPDATE, Operation.FLUSH, Operation.COPY)
            )
            lines.append(f"{l:5}{update:9}{flush:9}{copy:9}{(update + flush) / len(self):10.1%}")
        return "\n".join([*lines, str(self.updates())])

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold; ``from_dict`` reads it back. Numbers are rounded to four decimals."""
        updates = self.updates()
        return {
            "text": self.text,
            "symbols": list(self.symbols),
            "nested": self.nested,
            "levels": [
                {
                    "level": level,
                    "ends": self.ends(level),
                    "segments": self.segments(level),
                    "boundaries": self.boundaries[:, level - 1].tolist(),
                    "probabilities": rounded(self.probabilities[:, level - 1]),
                }
                for level in range(1, self.levels + 1)
            ],
            "layers": [
                {
                    "layer": l + 1,
                    "updates": updates.per_layer[l],
                    "operations": "".join(LETTERS[k] for k in self.operations[:, l]),
                    "norms": rounded(self.norms[:, l]),
                }
                for l in range(self.norms.shape[1])
            ],
            "updates": {"total": updates.total, "dense": updates.dense, "saved": round(updates.saved, 4)},
            "bits": None if self.bits is None else rounded(self.bits),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Segmentation:
        """What ``to_dict`` wrote; only the symbols, the lists per symbol and the operations are read."""
        try:
            T, levels, layers = len(data["symbols"]), data["levels"], data["layers"]
            bits = data["bits"]
            return cls(
                symbols=tuple(data["symbols"]),
                boundaries=np.array([level["boundaries"] for level in levels]).reshape(-1, T).T,
                probabilities=_columns([level["probabilities"] for level in levels], T),
                operations=np.array([[LETTERS.index(k) for k in layer["operations"]] for layer in layers]).T,
                norms=_columns([layer["norms"] for layer in layers], T),
                bits=None if bits is None else np.array(bits, np.float32),
            )
        except InputError:
            raise
        except KeyError as error:
            raise InputError(f"data must be what Segmentation.to_dict gives; {error} is missing or unknown") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"data must be what Segmentation.to_dict gives; got something else: {error}") from error

    def to_json(self) -> str:
        """``to_dict`` on one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Segmentation:
        """What ``to_json`` wrote."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"a segmentation was expected as Segmentation.to_json gives it; got no JSON: {error}"
            ) from error
        return cls.from_dict(data)

    def __repr__(self) -> str:
        counts = "".join(f", {len(self.ends(l))} segments at level {l}" for l in range(1, self.levels + 1))
        return f"Segmentation({len(self)} symbols{counts})"

    def __str__(self) -> str:
        return self.render()

    def __rich__(self) -> Text:
        return Text.from_ansi(self.render(colour=True))

    def render(self, width: int = 80, colour: bool = False) -> str:
        """The text once per level, in lines of at most ``width`` columns, each level's segments set apart.

        In colour, segments have two backgrounds in turn (ANSI codes, 256 colours). Without, ``|`` stands between
        segments, a space at the edge of one is shown as ``·`` and a ``|`` of the text as ``¦``. ⏎ is a line feed.
        """
        if width < 1:
            raise InputError(f"width must be at least 1; got {width}")
        if self.levels == 0:
            return "\n".join("".join(line) for line in wrap([visible(symbol) for symbol in self.symbols], width))
        parts: list[str] = []
        for level in range(1, self.levels + 1):
            ends = self.ends(level)
            lines = self._coloured(ends, width) if colour else self._plain(ends, width)
            parts.append("\n".join([_heading(level, ends), *lines]))
        return "\n\n".join(parts)

    def _coloured(self, ends: list[int], width: int) -> list[str]:
        number = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))  # (T,): which segment a symbol belongs to
        lines: list[str] = []
        start = 0
        for line in wrap([visible(symbol) for symbol in self.symbols], width):
            numbers = number[start : start + len(line)]
            runs = np.split(np.arange(len(line)), np.flatnonzero(np.diff(numbers)) + 1)
            lines.append(
                "".join(_ANSI[numbers[run[0]] % 2] + "".join(line[i] for i in run) for run in runs) + _ANSI_RESET
            )
            start += len(line)
        return lines

    def _plain(self, ends: list[int], width: int) -> list[str]:
        shown = [visible(symbol).replace("|", "¦") for symbol in self.symbols]
        for start, end in _spans(ends):
            for edge in (start, end - 1):
                shown[edge] = "·" if shown[edge] == " " else shown[edge]
        for end in ends[:-1]:
            shown[end - 1] += "|"
        return ["".join(line) for line in wrap(shown, width)]

    def _repr_html_(self) -> str:
        style = "white-space: pre-wrap; overflow-wrap: anywhere; font-family: monospace; line-height: 1.5"
        parts: list[str] = []
        for level in range(1, self.levels + 1):
            ends = self.ends(level)
            spans = "".join(
                f'<span style="color: #000; background: {SEGMENT_COLOURS[k % 2]}">{as_html(self.symbols[i:j])}</span>'
                for k, (i, j) in enumerate(_spans(ends))
            )
            parts.append(f'<p>{_heading(level, ends)}</p><div style="{style}">{spans}</div>')
        return "".join(parts) or f'<div style="{style}">{as_html(self.symbols)}</div>'


def _spans(ends: list[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends[:-1]], ends))


def _heading(level: int, ends: list[int]) -> str:
    count = f"{len(ends)} segments" if len(ends) > 1 else "1 segment"
    return f"level {level}: {count}, {ends[-1] / len(ends):.1f} symbols on average"


def _whole(name: str, values: Any, most: int) -> np.ndarray:
    """As uint8, which would else take whatever there is modulo 256."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or not np.isin(array, np.arange(most + 1)).all():
        raise InputError(f"{name} must be whole numbers between 0 and {most}; got something else among them")
    return array.astype(np.uint8)


def rounded(values: np.ndarray) -> Any:
    """As lists for JSON: four decimals, None for what is not finite."""
    numbers = np.round(values.astype(np.float64), 4)
    plain = numbers.astype(object)
    plain[~np.isfinite(numbers)] = None
    return plain.tolist()


def _columns(rows: list[list[float | None]], T: int) -> np.ndarray:
    """(T, number of rows), None read as NaN."""
    return np.array(rows, np.float32).reshape(-1, T).T
