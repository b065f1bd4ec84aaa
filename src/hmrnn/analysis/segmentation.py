"""Segmentation: where the segments of every level end in a sequence, and what every layer did at every symbol."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import numpy as np
from torch import Tensor

from hmrnn.analysis import render
from hmrnn.analysis.record import LETTERS, LayerJSON, LevelJSON, SegmentationJSON, UpdatesJSON, from_record, rounded
from hmrnn.analysis.render import joined, spans
from hmrnn.analysis.scores import ends_of
from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.nn.checks import argument
from hmrnn.nn.output import Operation, Output

if TYPE_CHECKING:
    from rich.text import Text


class Updates(NamedTuple):
    """How often the layers changed, compared with a stacked LSTM, whose layers all change at every step."""

    per_layer: tuple[int, ...]
    """Steps at which each layer did not COPY, the lowest layer first."""
    steps: int

    @property
    def total(self) -> int:
        return sum(self.per_layer)

    @property
    def dense(self) -> int:
        """Updates of a stacked LSTM of as many layers."""
        return self.steps * len(self.per_layer)

    @property
    def saved(self) -> float:
        """Share of ``dense`` that was not made."""
        return 1 - self.total / self.dense

    def __str__(self) -> str:
        return (
            f"{self.total} layer updates instead of {self.dense} "
            f"({' + '.join(map(str, self.per_layer))}): {self.saved:.0%} saved"
        )


@dataclasses.dataclass(eq=False, repr=False)
class Segmentation:
    """What a network of L layers found in T symbols: the one format that text, HTML, JSON, figures and the page show.

    Levels are counted from 1: level 1 has the boundaries z¹. A slice (``segmentation[100:370]``) is a segmentation of
    these symbols as the network read them after all symbols before.
    """

    symbols: tuple[str, ...]
    """One string per symbol."""
    boundaries: np.ndarray
    """(T, L-1) uint8: 1 where a segment of that level ends after the symbol. "soft" boundaries are rounded."""
    probabilities: np.ndarray
    """(T, L-1) float32: z̃ of the detectors, before it is rounded or drawn to a boundary."""
    operations: np.ndarray
    """(T, L) uint8: what each layer did, as :class:`hmrnn.Operation`."""
    norms: np.ndarray
    """(T, L) float32: the l2 norm of each layer's h."""
    bits: np.ndarray | None = None
    """(T,) float32: -log2 of the probability of each symbol given those before it; NaN for the first."""
    products: np.ndarray | None = None
    """(T,) int64: multiply-adds of each symbol, as :func:`hmrnn.nn.predictor.multiply_adds` counts them."""

    def __post_init__(self) -> None:
        self.symbols = tuple(self.symbols)
        if not self.symbols or not all(issubclass(kind, str) for kind in {*map(type, self.symbols)}):
            raise InputError("symbols must be one or more strings; got none, or something else among them")
        self.boundaries = _whole("boundaries", self.boundaries, 1)
        self.probabilities = np.asarray(self.probabilities, np.float32)
        self.operations = _whole("operations", self.operations, max(Operation))
        self.norms = np.asarray(self.norms, np.float32)
        self.bits = None if self.bits is None else np.asarray(self.bits, np.float32)
        if self.products is not None:
            self.products = _whole("products", self.products, np.iinfo(np.int64).max, np.int64)
        T, L = len(self.symbols), self.norms.shape[-1] if self.norms.ndim else 0
        shapes = ((T, L - 1), (T, L - 1), (T, L), (T, L), (T,), (T,))
        for name, shape in zip(_ARRAYS, shapes):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise InputError(f"{name} must have shape {shape} for {T} symbols and {L} layers; got {array.shape}")

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, part: slice) -> Segmentation:
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise InputError(f"a segmentation is cut with a slice without a step, such as [:270]; got [{part!r}]")
        every = [getattr(self, name) for name in _ARRAYS]
        arrays: list[Any] = [None if array is None else array[part] for array in every]
        return Segmentation(self.symbols[part], *arrays)

    @classmethod
    def of(cls, out: Output, symbols: Iterable[str], sequence: int = 0) -> Segmentation:
        """What a network of your own found in one sequence, from the output of its HMLSTM.

        ``symbols`` has a string for each step, such as the characters of a text; steps beyond them are padding.
        ``sequence`` is its place in the batch. Of two directions, boundaries and operations are the forward one's.
        """
        out, _ = out.time_first()
        hidden, shown = cast(tuple[Tensor, ...], out.hidden), tuple(symbols)
        batched = hidden[0].dim() == 3

        def part(a: Tensor) -> np.ndarray:
            a = a[..., 0] if a.dim() == 3 + batched else a  # the last axis is the direction
            a = a[:, sequence] if batched else a
            if len(a) < len(shown):
                raise InputError(f"symbols must be at most one per step, {len(a)} in all; got {len(shown)}")
            return a[: len(shown)].detach().float().cpu().numpy()

        norms = np.stack([np.linalg.norm(part(h), axis=-1) for h in hidden], axis=-1)
        boundaries, probabilities, operations = map(part, (out.boundaries, out.probabilities, out.operations))
        layers = boundaries.shape[1] + 1  # of a baseline, which has no levels, the first alone
        return cls(shown, boundaries > 0.5, probabilities, operations[:, :layers].astype(np.uint8), norms[:, :layers])

    @classmethod
    def join(cls, parts: Iterable[Segmentation]) -> Segmentation:
        """One segmentation of consecutive parts of a sequence, as slices cut them."""
        found = list(parts)
        if not found or len({(part.levels, part.bits is None, part.products is None) for part in found}) > 1:
            raise InputError(
                "parts must be one or more segmentations of the same layers, all with bits or all without, "
                "and all with products or all without"
            )
        symbols = tuple(symbol for part in found for symbol in part.symbols)
        columns = [[getattr(part, name) for part in found] for name in _ARRAYS]
        arrays: list[Any] = [None if column[0] is None else np.concatenate(column) for column in columns]
        return cls(symbols, *arrays)

    def regroup(self, symbols: Iterable[str], counts: np.ndarray) -> Segmentation:
        """The same result for other symbols: the k-th of ``symbols`` stands for the next ``counts[k]`` of these.

        A symbol that stands for several has the values of the last of them, and the sums of their bits and
        multiply-adds. One that stands for none ends no segment and changes no layer.
        """
        unread, last = (counts == 0)[:, None], counts.cumsum() - 1
        at, owners = last.clip(0), np.repeat(np.arange(len(counts)), counts)
        bits = products = None
        if self.bits is not None:
            bits = np.bincount(owners, self.bits, minlength=len(counts))
            bits[unread[:, 0]] = math.nan
        if self.products is not None:
            products = np.zeros(len(counts), np.int64)
            np.add.at(products, owners, self.products)
        return Segmentation(
            tuple(symbols),
            np.where(unread, 0, self.boundaries[at]),
            np.where(unread, 0, self.probabilities[at]),
            np.where(unread, Operation.COPY, self.operations[at]),
            np.where(last[:, None] < 0, 0, self.norms[at]),
            bits,
            products,
        )

    @property
    def text(self) -> str:
        """The symbols as one string. Bytes make characters where they are UTF-8, and are escapes elsewhere."""
        return joined(self.symbols)

    @property
    def levels(self) -> int:
        """Number of levels, L-1."""
        return self.boundaries.shape[1]

    @property
    def layers(self) -> int:
        """Number of layers, L."""
        return self.norms.shape[1]

    def ends(self, level: int) -> list[int]:
        """Where the segments of a level end: sorted counts of symbols before each cut; the last one is the length."""
        if not isinstance(level, Integral) or not 1 <= level <= self.levels:
            raise InputError(f"level must lie between 1 and {self.levels}; got {level!r}")
        return [*ends_of(self.boundaries[:-1, level - 1]).tolist(), len(self)]

    def spans(self, level: int) -> list[tuple[int, int]]:
        """The start and the end of each segment of a level."""
        return spans(self.ends(level))

    def lengths(self, level: int) -> np.ndarray:
        """The number of symbols of each segment of a level."""
        return np.diff(self.ends(level), prepend=0)

    def segments(self, level: int) -> list[str]:
        """The text of each segment of a level."""
        return [joined(self.symbols[start:end]) for start, end in self.spans(level)]

    def rows(self) -> list[dict[str, Any]]:
        """A row per segment of every level, for a table: ``pandas.DataFrame(found.rows())``.

        ``start`` and ``end`` count symbols, and ``probability`` is that of its end.
        """
        return [
            {"level": level, "start": start, "end": end, "text": joined(self.symbols[start:end]),
             "probability": float(self.probabilities[end - 1, level - 1])}
            for level in range(1, self.levels + 1)
            for start, end in self.spans(level)
        ]  # fmt: skip

    def words(self, level: int = 1) -> list[str]:
        """The segments of a level without the white space at their edges, and without those that are white space."""
        return [word for word in (segment.strip() for segment in self.segments(level)) if word]

    def lexicon(self, level: int = 1) -> list[tuple[str, int]]:
        """The different words of a level and how often each occurs, the most frequent first."""
        return sorted(collections.Counter(self.words(level)).items(), key=lambda entry: (-entry[1], entry[0]))

    def spaced(self, level: int = 1) -> str:
        """The text with one space between the words of a level; line ends stay."""
        lines: list[list[str]] = [[]]
        for segment in self.segments(level):
            for k, part in enumerate(segment.split("\n")):
                if k > 0:
                    lines.append([])
                lines[-1] += [part.strip()] if part.strip() else []
        return "\n".join(" ".join(line) for line in lines)

    @property
    def nested(self) -> bool:
        """Whether every end of a level is also an end of the level below."""
        return bool((self.boundaries[:-1, 1:] <= self.boundaries[:-1, :-1]).all())

    def tree(self, *, cut: bool = False) -> list[Any]:
        """The segments of the highest level as lists of those of the next, and so on down to the strings of level 1.

        Boundaries need not nest: a detector may fire at a step where the level below ends no segment. Without ``cut``
        that is an error; with ``cut`` an end of a level also ends the segments of all levels below it.
        """
        if self.levels == 0:
            raise InputError("a network of one layer has no detector and so no segments; train one with two or more")
        if not cut and not self.nested:
            raise InputError(
                "these boundaries make no tree: a segment ends inside one of the level below; "
                "take the levels one by one with segments(level), or cut the lower ones with tree(cut=True)"
            )
        every = [self.ends(level) for level in range(1, self.levels + 1)]
        if cut:
            every = [sorted(set().union(*every[l:])) for l in range(self.levels)]
        ends = every[0]
        nodes: list[Any] = [joined(self.symbols[start:end]) for start, end in spans(ends)]
        for above in every[1:]:
            position = {end: k + 1 for k, end in enumerate(ends)}
            nodes = [nodes[start:end] for start, end in spans([position[end] for end in above])]
            ends = above
        return nodes

    def updates(self) -> Updates:
        """How often each layer changed, counted as in Figure 4 of the paper."""
        per_layer = (self.operations != Operation.COPY).sum(axis=0).tolist()
        return Updates(tuple(per_layer), len(self))

    def multiply_adds(self) -> float | None:
        """Multiply-adds per symbol, the output module included; None if they were not counted."""
        return None if self.products is None else float(self.products.mean())

    def table(self) -> str:
        """Counts of the operations that occur, a line per layer, then the layer updates and the multiply-adds."""
        updates, cost = self.updates(), self.multiply_adds()
        columns = {k.name: (self.operations == k).sum(axis=0) for k in Operation if (self.operations == k).any()}
        lines = ["layer" + "".join(f"{name:>9}" for name in columns) + "   changed"]
        for l, count in enumerate(updates.per_layer):
            counts = "".join(f"{column[l]:9}" for column in columns.values())
            lines.append(f"{l + 1:5}{counts}{count / len(self):10.1%}")
        return "\n".join([*lines, str(updates), *([] if cost is None else [f"{cost:,.0f} multiply-adds per symbol"])])

    def record(self) -> SegmentationJSON:
        """The fields of the JSON. Numbers are rounded to four decimals."""
        updates = self.updates()
        return SegmentationJSON(
            text=self.text,
            symbols=list(self.symbols),
            nested=self.nested,
            levels=[
                LevelJSON(
                    level,
                    self.ends(level),
                    self.segments(level),
                    self.boundaries[:, level - 1].tolist(),
                    rounded(self.probabilities[:, level - 1]),
                )
                for level in range(1, self.levels + 1)
            ],
            layers=[
                LayerJSON(l + 1, count, "".join(LETTERS[k] for k in self.operations[:, l]), rounded(self.norms[:, l]))
                for l, count in enumerate(updates.per_layer)
            ],
            updates=UpdatesJSON(updates.total, updates.dense, round(updates.saved, 4)),
            bits=None if self.bits is None else rounded(self.bits),
            multiply_adds=None if self.products is None else self.products.tolist(),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON as plain data; :meth:`from_dict` reads it."""
        data: dict[str, Any] = msgspec.to_builtins(self.record())
        return data

    def to_json(self) -> str:
        """The JSON, on one line; :meth:`from_json` reads it."""
        return msgspec.json.encode(self.record()).decode()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Segmentation:
        """The segmentation that :meth:`to_dict` wrote; its ends, segments and counts are not read but computed."""
        return cls._from(lambda: msgspec.convert(data, SegmentationJSON))

    @classmethod
    def from_json(cls, text: str | bytes) -> Segmentation:
        """The segmentation that :meth:`to_json` wrote."""
        return cls._from(lambda: msgspec.json.decode(text, type=SegmentationJSON))

    @classmethod
    def _from(cls, read: Callable[[], SegmentationJSON]) -> Segmentation:
        try:
            return cls(**from_record(read()))
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"this must be what Segmentation.to_json or to_dict gives: {error}") from error

    def __repr__(self) -> str:
        counts = "".join(f", {len(self.ends(l))} segments at level {l}" for l in range(1, self.levels + 1))
        return f"Segmentation({len(self)} symbols{counts})"

    def __str__(self) -> str:
        return self.render()

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text.from_ansi(self.render(colour=True))

    def render(self, width: int = 80, colour: bool = False) -> str:
        """The text once per level, in lines of at most ``width`` columns, with its segments marked.

        In colour, segments have two backgrounds in turn (ANSI codes, 256 colours). Without, ``|`` stands between
        segments, a space at the edge of one is shown as ``·`` and a ``|`` of the text as ``¦``. ⏎ is a line feed.
        """
        argument("width", width, Count)
        lines = render.coloured if colour else render.plain
        if self.levels == 0:
            return "\n".join(render.plain(self.symbols, [], width))
        return "\n\n".join(
            "\n".join([self._heading(level), *lines(self.symbols, self.ends(level), width)])
            for level in range(1, self.levels + 1)
        )

    def _repr_html_(self) -> str:
        return "".join(
            f"<p>{self._heading(level)}</p>{render.as_html(self.symbols, self.ends(level))}"
            for level in range(1, self.levels + 1)
        ) or render.as_html(self.symbols, [])

    def _heading(self, level: int) -> str:
        count = len(self.ends(level))
        return f"level {level}: {count} segment{'s' * (count > 1)}, {len(self) / count:.1f} symbols on average"


_ARRAYS = ("boundaries", "probabilities", "operations", "norms", "bits", "products")
"""The arrays of a Segmentation in the order of its arguments."""


def _whole(name: str, values: Any, most: int, kind: Any = np.uint8) -> np.ndarray:
    """``values`` in this dtype, checked first: a conversion would take them modulo 256."""
    array = np.asarray(values)
    whole = array.dtype.kind in "biu" or (array.dtype.kind == "f" and bool((array == np.floor(array)).all()))
    if not whole or array.min(initial=0) < 0 or array.max(initial=0) > most:
        raise InputError(f"{name} must be whole numbers between 0 and {most}; got something else among them")
    return array.astype(kind)
