"""What the commands do with texts and models of text."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import shlex
import sys
import textwrap
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.analysis.scores import Row
from hmrnn.analysis.sections import Section
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.errors import InputError, Note
from hmrnn.kinds.text.cluster import segment_corpus
from hmrnn.kinds.text.corpus import Corpus, line_end, lines_of, read_symbols_and_spaces
from hmrnn.kinds.text.dynamic import Dynamic, evaluate_dynamic
from hmrnn.kinds.text.evaluate import Evaluation, cut, evaluate, evaluation, find
from hmrnn.kinds.text.gold import FILE, against, against_removed_spaces, against_white_space, read_ends
from hmrnn.kinds.text.large_files import segment_files
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.report import sections
from hmrnn.kinds.text.words.tokenizer import write_tokenizer
from hmrnn.pretrained.commands import SequenceCommands, agreement, in_bits, measured
from hmrnn.pretrained.export import check_new
from hmrnn.reading.conditions import encoded
from hmrnn.reading.sample import check_room
from hmrnn.reading.score import read_all
from hmrnn.training.sequences import SequenceBatches
from hmrnn.utils import inputs
from hmrnn.utils.files import seems_named, shown

DRAWS = 200_000
"""Words that a head spells for a tokenizer."""
LONG = 20_000
"""Symbols from which on a faster way to read a text is pointed out."""
_LETTERS = r"[^\x00-@\[-`{-\xbf\u0600-\u0605\u061c\u200b-\u206f\ud800-\udfff\ufff0-\uffff]+"
PASSAGE = re.compile(rf"{_LETTERS}(?:,? {_LETTERS})*")
"""Words of letters, in any script."""


class TextCommands(SequenceCommands):
    report = staticmethod(sections)

    def read(self, model: TextModel, arguments: Any) -> str:
        return inputs.read_text(*_source(arguments), model.vocabulary.kind)

    def how(self, arguments: Any) -> dict[str, Any]:
        return {"unknown": arguments.unknown}

    def score(self, model: TextModel, arguments: Any) -> Iterator[Section]:
        if arguments.lines:
            lines, read = itertools.tee(inputs.read_lines(*_source(arguments), model.vocabulary.kind))
            for line, found in zip(lines, model.score_lines(read, unknown=arguments.unknown)):
                text, bits = shown(line), found.bits if found else None
                record = {"text": text, "symbols": found.symbols if found else 0, "bits": bits}
                yield Section(lines=f"{'-' if bits is None else f'{bits:.4f}'}\t{text}", record=record)
            return
        text = self.read(model, arguments)
        _point_out(text, "evaluate --file FILE")
        result = model.score(text, unknown=arguments.unknown, progress=self.progress("scoring"))
        yield in_bits(result, result.symbols, model.vocabulary.unit)

    def segment(self, model: TextModel, arguments: Any) -> Iterator[Section | str]:
        if arguments.stream and arguments.out:
            yield from self._stream(model, arguments)
            return
        if arguments.ray:
            yield self._ray(model, arguments)
            return
        by_head = arguments.by != "detectors" and model.network.segments is not None
        words_alone = by_head and (arguments.lexicon or arguments.format != "levels" or arguments.stream)
        how: dict[str, Any] = {"unknown": arguments.unknown, "threshold": arguments.least}
        find = partial(model.find_words if words_alone else partial(model.segment, by=arguments.by), **how)
        if arguments.stream:
            for line in inputs.read_lines(None, None, model.vocabulary.kind):
                yield find(line).spaced() + "\n" if line.strip() else "\n"
            return
        text = self.read(model, arguments)
        _point_out(text, "segment --stream FILE --out FOLDER")
        found = find(text, progress=self.progress("segmenting"))
        if arguments.lexicon:
            yield Section(lines="\n".join(f"{count}\t{word}" for word, count in found.lexicon()))
        elif arguments.format != "levels":
            yield Section(lines=found.spaced() if arguments.format == "spaced" else "\n".join(found.words()))
        else:
            yield Section(found=found, width=arguments.width, record=found.to_dict())

    def words(self, model: TextModel, arguments: Any) -> Segmentation:
        """The words of a file by the segmental head."""
        text = inputs.read_text(None, arguments.file, model.vocabulary.kind)
        show = self.progress("segmenting")
        return model.find_words(text, unknown=arguments.unknown, threshold=arguments.least, progress=show)

    def export(self, model: TextModel, arguments: Any) -> Iterator[Section]:
        """Write the words that the head finds in the model's own text, and in further files, as a tokenizer."""
        if model.network.segments is None:
            raise InputError(
                "only a model with a segmental head, of the preset words, has words to make a tokenizer of"
            )
        folder = check_new(Path(arguments.tokenizer))
        corpus = model.corpus(progress=self.progress("reading"))
        more = [
            model.reading(inputs.read_text(None, file, "characters"), what=file).indices for file in arguments.count
        ]
        symbols = np.concatenate([corpus.train, corpus.valid, corpus.test, *more])
        counts = model.count_words(symbols, draws=DRAWS, progress=self.progress("segmenting"))
        pieces = write_tokenizer(folder, counts, model.vocabulary, spaces=not model.config.data.remove_spaces)
        yield Section(text=f"wrote {folder}: a tokenizer of {len(pieces):,} pieces, and vocab.tsv with their scores")

    def _stream(self, model: TextModel, arguments: Any) -> Iterator[Section]:
        if arguments.unknown == "skip":
            raise InputError("the segment ends of --stream would move; use replace or refuse", setting="unknown")
        rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        show = self.progress("segmenting") if rank == 0 else None
        how = arguments.chosen("unknown", "streams", "warmup") | {"share": (rank, world), "progress": show}
        for target in segment_files(model, arguments.stream, Path(arguments.out), **how):
            yield Section(text=f"wrote {target}")

    def _ray(self, model: TextModel, arguments: Any) -> Section:
        made = {"column": arguments.column or "text", "workers": arguments.workers, "device": arguments.device}
        rows, bad = 0, 0
        for part in segment_corpus(str(model.source), arguments.ray, Path(arguments.out), **made):
            rows, bad = rows + part["rows"], bad + part["bad"]
        return Section(text=f"wrote {arguments.out}: {rows:,} rows, of which {bad:,} have an error instead of words")

    def generate(self, model: TextModel, arguments: Any) -> Iterator[Section | str]:
        length = 500 if arguments.length is None else arguments.length
        how = {"temperature": 0.8, **arguments.chosen("temperature", "top_k", "top_p", "seed", "unknown")}
        if arguments.samples is None:
            pieces = model.stream(arguments.prompt, length, **how)
            yield from itertools.chain([arguments.prompt], pieces, ["\n"])
            return
        check_room(model.network, arguments.samples, length)
        prompts = [arguments.prompt] * arguments.samples
        texts = model.generate(prompts, length, progress=self.progress("writing"), **how)
        for number, text in enumerate(texts, start=1):
            yield Section(lines=f"--- sample {number} of {len(texts)} ---\n{arguments.prompt}{text}")

    def evaluate(self, model: TextModel, arguments: Any) -> Iterator[Section]:
        if model.end is not None and not (arguments.file and (arguments.boundaries or arguments.dynamic)):
            yield self._lines(model, arguments)
            return
        if model.config.model.time != "none":
            raise InputError("a text is read in streams, and this model is told the time of lines")
        symbols, spaces, what = self._symbols(model, arguments)
        symbols, spaces = (part[: arguments.symbols or None] for part in (symbols, spaces))
        rows: list[Row] = []
        if arguments.dynamic:
            dynamic = Dynamic(**arguments.chosen("learning_rate", "decay", "segment_length"))
            more: dict[str, Any] = {"streams": 1, "dynamic": dataclasses.asdict(dynamic)}
            show = self.progress("evaluating")
            result: Evaluation = evaluate_dynamic(model.network, symbols, dynamic, progress=show).checked()
            how = ", ".join(f"{name.replace('_', ' ')} {n:g}" for name, n in more["dynamic"].items())
            how = f"one stream, dynamic evaluation with {how}"
        else:
            wanted = {"streams": 64, "warmup": 500} | arguments.chosen("streams", "warmup")
            streams, warmup = cut(max(1, len(symbols) - 1), **wanted)
            more = {"streams": streams, "warmup": warmup}
            show = self.progress("evaluating")
            result = evaluate(model.network, symbols, progress=show, **more).checked()
            how = f"{streams} streams, each but the first after {warmup} symbols of warm-up"
            how = how if streams > 1 else "one stream"
            rows = self._rows(model, symbols, spaces, arguments, more) if arguments.boundaries else []
        unknown = int(np.count_nonzero(symbols == len(model.vocabulary.symbols)))
        more |= {"unknown": unknown} | ({"boundaries": [row.to_dict() for row in rows]} if rows else {})
        yield _measured(model, result, what, how, **more)
        if unknown:
            of = f"{unknown:,} of {len(symbols):,} symbols ({unknown / len(symbols):.2%})"
            yield Section(text=f"read and predicted as the unknown symbol  {of}")
        if skipped := getattr(result, "skipped", 0):
            yield Section(text=f"segments skipped, as their gradient was not finite  {skipped}")
        yield from agreement(rows) if rows else ()

    def _lines(self, model: TextModel, arguments: Any) -> Section:
        """Evaluate a model that was trained on lines, each read by itself, on the lines of its corpus or of files."""
        for name in ("boundaries", "dynamic", "streams", "warmup", "symbols"):
            if getattr(arguments, name):
                raise InputError(f"--{name} is for a text read in streams, and this model reads lines; leave it out")
        if arguments.file:
            if model.config.model.conditioned and arguments.condition is None:
                raise InputError("this model was trained with a condition; give --condition")
            symbols, _, what = self._symbols(model, arguments)
            end = line_end(model.vocabulary)
            lines, _ = lines_of(np.append(symbols, end), end)
            if not lines:
                raise InputError("all lines of the text are blank; there is nothing to predict")
            conditions = (arguments.condition,) * len(lines) if arguments.condition else None
        else:
            corpus, part = model.corpus(arguments.path, self.progress("reading")), arguments.split or "test"
            (lines, conditions), what = corpus.lines[part], f"{corpus.name}, {part} part"
        batches = SequenceBatches(lines, 32, conditions=encoded(conditions, model.config.model))
        result = evaluation(read_all(model.network, batches, (0, 1), progress=self.progress("evaluating"))).checked()
        return _measured(model, result, what, f"{len(lines):,} lines, each by itself", lines=len(lines))

    def _symbols(self, model: TextModel, arguments: Any) -> tuple[np.ndarray, np.ndarray, str]:
        """The text to evaluate as symbols of the model, where spaces were removed from it, and its name."""
        show = self.progress("reading")
        if arguments.file:
            symbols, spaces = read_symbols_and_spaces(
                arguments.file, model.vocabulary, model.config.data, show, plain=arguments.plain
            )
            return symbols, spaces, ", ".join(arguments.file)
        corpus, part = model.corpus(arguments.path, show), arguments.split or "test"
        symbols = getattr(corpus, part)
        return symbols, corpus.spaces.get(part, np.zeros(len(symbols), np.uint8)), f"{corpus.name}, {part} part"

    def _rows(
        self, model: TextModel, symbols: np.ndarray, spaces: np.ndarray, arguments: Any, how: dict[str, int]
    ) -> list[Row]:
        ends = read_ends(arguments.gold, len(symbols)) if arguments.gold else None
        found = find(model.network, symbols, progress=self.progress("looking for segments"), **how)
        if ends is not None:
            return against(found, {FILE: [ends]}, [slice(len(symbols))])
        if model.config.data.remove_spaces:
            return against_removed_spaces(found, symbols, spaces, model.vocabulary)
        return against_white_space(found, symbols, model.vocabulary)

    def suggested(self, config: Config, corpus: Corpus) -> str:
        if config.data.format == "lines":
            return "generate -m {} --samples 5"
        return f"segment -m {{}} {shlex.quote(words_of(corpus))}" if config.model.detectors else "generate -m {}"


def _source(arguments: Any) -> tuple[str | None, str | None]:
    """The text and the file to read, one of them or none; a text that names an existing file is that file."""
    text = arguments.text
    if text in (None, "-"):
        return None, arguments.file
    if os.path.isfile(os.path.expanduser(text)):
        warnings.warn(f"{text} is a file, which is read; to read these letters, use standard input", Note, stacklevel=2)
        return None, text
    if seems_named(text):
        warnings.warn(f"there is no file {text}, so these letters are read", Note, stacklevel=2)
    return text, None


def _point_out(text: str, faster: str) -> None:
    """On a terminal, name the command that reads a long text faster."""
    if len(text) > LONG and sys.stderr.isatty():
        how = f"{len(text):,} symbols, read one after the other; hmrnn {faster} reads parts of a text side by side"
        warnings.warn(how, Note, stacklevel=2)


def _measured(model: TextModel, result: Evaluation, what: str, how: str, **more: Any) -> Section:
    unit = model.vocabulary.unit
    first = f"{what}: {result.symbols:,} symbols predicted, {how}\nbits per {unit}  {result.bits:.4f}"
    return measured(result, first, unit, text=what, **more)


def words_of(corpus: Corpus) -> str:
    """About 40 characters of the validation part, letters, spaces and commas alone; TEXT if it has no letters.

    What else a text holds may need quotes that no reader of a shell can follow, or command the terminal.
    """
    words = corpus.vocabulary.decode(corpus.valid[:5000]).split()
    passages = [found[0] for found in PASSAGE.finditer(" ".join(words[1:] or words))]  # the first word may be cut
    longest = max(passages, key=lambda one: min(len(one), 40), default="TEXT")
    return textwrap.wrap(longest, 40)[0]
