"""What the commands do with strokes and models of handwriting."""

from __future__ import annotations

import dataclasses
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn.analysis.sections import Section
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.errors import InputError, Note
from hmrnn.kinds.strokes.corpus import write_archive
from hmrnn.kinds.strokes.drawing import check_drawing_path, save_drawing
from hmrnn.kinds.strokes.files import ENDINGS, read_strokes, save_strokes
from hmrnn.kinds.strokes.gold import against_pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.report import sections
from hmrnn.kinds.strokes.strokes import FEWEST, Strokes, counted, joined
from hmrnn.kinds.strokes.transcripts import TranscriptModel, legibility
from hmrnn.kinds.strokes.write import READ_LINES, scribble
from hmrnn.nn.predictor import conditioned
from hmrnn.pretrained.commands import Commands, SequenceCommands, agreement, measured, record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StrokeCommands(SequenceCommands):
    report = staticmethod(sections)

    def data(self, config: Config, arguments: Any) -> Iterator[Section]:
        data = dataclasses.replace(config.data, split=arguments.split)
        if arguments.archive:
            lines = write_archive(data, arguments.archive, self.progress("reading"))
            yield Section(text=f"wrote {arguments.archive}: {lines:,} lines")
        yield from super().data(dataclasses.replace(config, data=data), arguments)

    def read(self, model: StrokeModel, arguments: Any) -> Strokes:
        strokes = read_strokes(arguments.file) if arguments.file else model.corpus().valid
        return strokes.line(arguments.line)

    def evaluate(self, model: StrokeModel, arguments: Any) -> Iterator[Section]:
        strokes, what = _chosen(self, model, arguments)
        strokes = _long(strokes)
        result = model.score(strokes, progress=self.progress("evaluating"))
        rows = against_pen_ups(model.segment_many(strokes), strokes) if arguments.boundaries else []
        more: dict[str, Any] = {"boundaries": [row.to_dict() for row in rows]} if rows else {}
        points = f"{counted(result.sequences, 'line')}, {counted(result.points, 'point')} predicted"
        first = f"{what}: {points}\n{result}"
        yield measured(result, first, "point", strokes=what, per_point=result.per_point, **more)
        yield from agreement(rows) if rows else ()

    def score(self, model: StrokeModel, arguments: Any) -> Iterable[Section]:
        result = model.score(self.read(model, arguments))
        yield Section(text=str(result), record=record(result))

    def segment(self, model: StrokeModel, arguments: Any) -> Iterable[Section]:
        line = self.read(model, arguments)
        found, steps = model.segment(line), line[0]
        lines = [f"{counted(len(found), 'point')}, {counted(int(steps[:, 2].sum()), 'stroke')}"]
        for level in range(1, found.levels + 1):
            count = len(found.ends(level))
            lines.append(f"level {level}: {counted(count, 'segment')}, {len(found) / count:.1f} points on average")
        yield Section(lines="\n".join([*lines, str(found.updates())]), record=found.to_dict())

    def generate(self, model: StrokeModel, arguments: Any) -> Iterator[Section]:
        out = Path(arguments.out or "writing.svg")
        as_strokes = out.suffix in ENDINGS
        if arguments.prime and out.exists() and out.samefile(Path(arguments.prime).expanduser()):
            raise InputError(f"--out {out} is the file of --prime, which would be lost; choose another --out")
        if arguments.seconds and as_strokes:
            raise InputError(f"--seconds is for pictures, and {out} is to hold strokes; leave it out")
        if not as_strokes:
            check_drawing_path(out, arguments.seconds, others=ENDINGS)
        style = read_strokes(arguments.prime).line(arguments.line) if arguments.prime else None
        rows = [] if arguments.text is None else textwrap.wrap(arguments.text, arguments.width) or [arguments.text]
        prime = None if style is None or rows else style[0]
        how = arguments.chosen("temperature", "bias", "seed") | {"progress": self.progress("writing")}
        if rows:
            lines = [line.steps for line in model.write_many(rows, style=style, **how)]
        else:
            sizes = {"samples": 1, "length": 600} | arguments.chosen("samples", "length")
            lines = model.sheet(*sizes.values(), prime=prime, **how)
        if as_strokes:
            begin = np.array([[0, 0, 0 if prime is None else prime[-1, 2]]])  # the point where the first step starts
            save_strokes(Strokes.of([np.concatenate([begin, line]) for line in lines], texts=rows), out)
        else:
            save_drawing(lines, out, prime=prime, seconds=arguments.seconds)
        lengths = sorted({len(line) for line in lines})
        shown = counted(lengths[0], "point") if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]} points"
        yield Section(text=f"wrote {out}: {counted(len(lines), 'line')} of {shown}")
        told = model.to_write(model.as_texts(rows[:READ_LINES])) if rows else model.network.condition
        with conditioned(model.network, told):
            warning = scribble(model.network, model.scale, lines)
        if warning:
            yield Section(text=warning, aside=True)

    def drawn(self, model: StrokeModel, name: str, given: Strokes, found: Segmentation, arguments: Any) -> Figure:
        return model.figure(name, given, found, arguments.levels)

    def suggested(self, config: Config, corpus: Any) -> str:
        return f"generate -m {{}}{' --text TEXT' * (config.model.window != 'none')} --out lines.svg"


class TranscriptCommands(Commands):
    """The commands of models that read handwriting."""

    def evaluate(self, model: TranscriptModel, arguments: Any) -> Iterator[Section]:
        strokes, what = _chosen(self, model, arguments)
        found = model.score(strokes, progress=self.progress("evaluating"))
        yield Section(text=f"{what}: {found}", record={"strokes": what, **found._asdict()})

    def predict(self, model: TranscriptModel, arguments: Any) -> Iterator[Section]:
        strokes = read_strokes(arguments.file)
        found = model.predict(strokes, beam=arguments.beam, progress=self.progress("reading"))
        for name, one in zip(strokes.names, found):
            yield Section(lines=f"{one.text}\t{one.probability:.3f}\t{name}", record={"name": name, **one._asdict()})
        if any(strokes.texts):
            yield Section(text=str(legibility([one.text for one in found], strokes.texts)), aside=True)

    def suggested(self, config: Config, corpus: Any) -> str:
        return "predict -m {} FILE"


def _chosen(commands: Commands, model: Any, arguments: Any) -> tuple[Strokes, str]:
    """The lines to evaluate on, and what they are."""
    if arguments.file:
        return joined([read_strokes(path) for path in arguments.file]), ", ".join(arguments.file)
    corpus, part = model.corpus(arguments.path, commands.progress("reading")), arguments.split or "test"
    return getattr(corpus, part), f"{corpus.name}, {part} part"


def _long(strokes: Strokes) -> Strokes:
    """The lines without those of one point."""
    long = strokes.lengths >= FEWEST
    if not long.all():
        short = strokes.select(np.flatnonzero(~long))
        which = short.names[0] + (" and others" if len(short) > 1 else "")
        left_out = f"{counted(len(short), 'line')} of one point left out, with nothing to predict: {which}"
        warnings.warn(left_out, Note, stacklevel=2)
    return strokes.select(np.flatnonzero(long))
