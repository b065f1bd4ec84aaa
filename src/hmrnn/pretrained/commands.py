"""What the commands do with data and models; each kind of data derives its own from one of these.

A command gives Sections, or strings that are printed as they come.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn.analysis import scores
from hmrnn.analysis.sections import Section
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kind import Kind, Progress
from hmrnn.plots.charts import timescales
from hmrnn.reading.score import Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hmrnn.analysis.segmentation import Segmentation


class Commands:
    """What every kind has: its data, and what to try after training. Arguments are the options of the command."""

    def __init__(self, kind: Kind, progress: Callable[[str], Progress]) -> None:
        self.kind, self.progress = kind, progress

    def data(self, config: Config, arguments: Any) -> Iterable[Section]:
        """What a corpus holds."""
        yield Section(lines=self.kind.load(config, self.progress("reading")).describe())

    def report(self, model: Any, corpus: Any) -> Iterable[Section]:
        """What report.html shows beside results and curves; sections without a title open it."""
        return ()

    def next(self, config: Config, place: Path, corpus: Any) -> str:
        """A command to try after training, without the words ``hmrnn``."""
        m, words = config.model, f"{self.suggested(config, corpus).format(shlex.quote(str(place)))}"
        if m.conditioned:
            words += f" --condition {shlex.quote(m.classes[0] if m.classes else ' '.join('0' * m.condition_numbers))}"
        return words

    def suggested(self, config: Config, corpus: Any) -> str:
        """That command with {} for the run."""
        raise NotImplementedError


class SequenceCommands(Commands):
    """The commands of models whose sequences are predicted step by step."""

    def read(self, model: Any, arguments: Any) -> Any:
        """What ``segment``, ``score`` and ``plot`` read: a sequence of --file, or of the validation part."""
        sequences, _ = self.sequences(model, [arguments.file] if arguments.file else [], "valid")
        number = int(arguments.line or 1) if (arguments.line or "1").isdecimal() else 0
        if not 1 <= number <= len(sequences):
            raise InputError(f"--line must lie between 1 and {len(sequences)}; got {arguments.line}")
        return sequences[number - 1]

    def sequences(self, model: Any, files: Sequence[str], part: str, path: tuple[str, ...] = ()) -> tuple[Any, str]:
        """The sequences of ``files``, or of a part of the model's corpus, and their name."""
        corpus = model.corpus(tuple(files) or path, self.progress("reading"))
        if files:
            return [*corpus.train, *corpus.valid, *corpus.test], ", ".join(files)
        return getattr(corpus, part), f"{corpus.name}, {part} part"

    def how(self, arguments: Any) -> dict[str, Any]:
        """The options of ``model.segment``."""
        return {}

    def evaluate(self, model: Any, arguments: Any) -> Iterable[Section]:
        sequences, what = self.sequences(model, arguments.file, arguments.split or "test", arguments.path)
        result = model.score(sequences, progress=self.progress("evaluating"))
        unit = model.reads.unit
        first = f"{what}: {len(sequences):,} sequences, {result.steps:,} {unit}s predicted"
        yield measured(result, f"{first}\nbits per {unit}  {result.bits:.4f}", unit, sequences=what)

    def score(self, model: Any, arguments: Any) -> Iterable[Section]:
        result = model.score([self.read(model, arguments)], progress=self.progress("scoring"))
        yield in_bits(result, result.steps, model.reads.unit)

    def segment(self, model: Any, arguments: Any) -> Iterable[Section | str]:
        found = model.segment(self.read(model, arguments), progress=self.progress("segmenting"), **self.how(arguments))
        yield Section(found=found, record=found.to_dict())

    def generate(self, model: Any, arguments: Any) -> Iterable[Section | str]:
        """Continue the first step of a validation sequence."""
        sequences, _ = self.sequences(model, (), "valid")
        how = arguments.chosen("temperature")
        for k in range(arguments.samples or 1):
            seed = None if arguments.seed is None else arguments.seed + k
            made = model.generate(sequences[k % len(sequences)][:1], arguments.length or 100, seed=seed, **how)
            yield Section(text="".join(model.reads.pieces(model.reads.encode(made))))

    def plot(self, model: Any, arguments: Any) -> Figure:
        name = arguments.figure or model.figures[0]
        if name not in model.figures:
            known = ", ".join(model.figures)
            raise InputError(f"--figure {name} is not for models of {self.kind.name}; use one of {known}, curves")
        given = self.read(model, arguments)
        found = model.segment(given, progress=self.progress("segmenting"), **self.how(arguments))
        return self.drawn(model, name, given, found, arguments)

    def drawn(self, model: Any, name: str, given: Any, found: Segmentation, arguments: Any) -> Figure:
        figure: Figure = model.figure(name, given, found)
        return figure

    def report(self, model: Any, corpus: Any) -> Iterator[Section]:
        """The segments of some sequences of the validation part."""
        if not model.network.rnn.num_boundaries:
            return
        some = model.segment_many(list(itertools.islice(corpus.valid, 20)))
        longest = max(some, key=len)[:300]
        yield Section(text="Segments that were found without being shown a boundary.", found=longest)
        yield Section(title="Figure 4", text="Boundaries are white.", figure=model.figure("4", None, longest))
        levels = range(1, longest.levels + 1)
        lengths = [np.concatenate([one.lengths(level) for one in some]) for level in levels]
        figure = timescales(lengths, unit=f"{model.reads.unit}s")
        yield Section(title="Timescales", text=f"Lengths of the segments in {len(some)} sequences.", figure=figure)

    def suggested(self, config: Config, corpus: Any) -> str:
        return "segment -m {}" if config.model.detectors else "generate -m {}"


def in_bits(result: Any, steps: int, unit: str) -> Section:
    """The bits of one sequence."""
    text = f"{result.bits:.4f} bits per {unit}  ({steps:,} predicted, {result.bits * steps:,.0f} bits in all)"
    return Section(text=text, record=record(result))


def measured(result: Any, first: str, unit: str, **more: Any) -> Section:
    """How well a model predicts, and what each layer did; ``first`` are the lines before, ``more`` is for the JSON."""
    rates = [f", boundary rate {rate:.4f}" for rate in result.rates]
    rates += [""] * (len(result.updates) - len(rates))
    layers = [
        f"layer {l}  updated at {share:.1%} of the steps{rate}"
        for l, (share, rate) in enumerate(zip(result.updates, rates), start=1)
    ]
    total, dense = sum(result.updates), len(result.updates)
    lines = [
        first,
        *layers,
        f"updates saved  {result.saved:.1%}  (per 270 {unit}s: {270 * total:.0f} instead of {270 * dense})",
        f"multiply-adds per {unit}  {result.multiply_adds:,.0f}",
    ]
    return Section(lines="\n".join(lines), record=record(result) | more)


def record(result: Score) -> dict[str, Any]:
    """A result as JSON."""
    return {**dataclasses.asdict(result), "saved": result.saved}


def agreement(rows: Sequence[scores.Row]) -> Iterator[Section]:
    """How the segment ends of each level, and of simple rules, agree with gold ends; a section per tolerance."""
    for tolerance in scores.TOLERANCES:
        where = " or ".join(dict.fromkeys(row.convention for row in rows))
        title = f"segment ends against {rows[0].scores[0].gold:,} gold ends ({where}), tolerance {tolerance}"
        yield Section(title=title, lines=scores.table(rows, tolerance))
