"""TextModel: a trained language model; text in; segments, more text or a score out."""

from __future__ import annotations

import codecs
import collections
import dataclasses
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.config.checks import Count
from hmrnn.errors import InputError, TextNote
from hmrnn.kind import Progress
from hmrnn.kinds.text.corpus import Corpus, line_end
from hmrnn.kinds.text.evaluate import Evaluation, evaluate
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.sample import check_length, continue_all, stream
from hmrnn.kinds.text.spaces import is_space
from hmrnn.kinds.text.words.ends import HeadScores, draw_words
from hmrnn.nn.checks import argument
from hmrnn.nn.predictor import conditioned
from hmrnn.pretrained.model import ConditionLike, Model, one_each
from hmrnn.reading.embed import Embedding, embed
from hmrnn.reading.read import segment_many
from hmrnn.reading.sample import check_room
from hmrnn.reading.vocabulary import Reading, Unknown, Vocabulary, code_points, read_as

By: TypeAlias = Literal["detectors", "head"]
"""What ends the segments of level 1: the lowest detector, or the segmental head, which also sees what follows."""
Prompts = TypeVar("Prompts", str, list[str])
PRIME = " .\n"
"""What is read before a text: the end of a paragraph."""
_TOGETHER = 1 << 20  # symbols of texts whose words are found together


@dataclasses.dataclass(repr=False)
class TextModel(Model):
    """A language model with its vocabulary and the config of its training; see :func:`hmrnn.load`.

    Texts may hold symbols that training never showed. Typographic signs and accents are written plainly; ``unknown``
    decides about other symbols: "replace" reads them as the unknown symbol of the model, or as a space if it has none;
    "skip" leaves them out; "refuse" raises InputError. A warning, :class:`hmrnn.errors.TextNote`, says what was read
    as what. Results always index the text as given; only a model that was trained without spaces removes them first.

    Before a text or a prompt the model reads the end of a paragraph (a full stop and a line end), as stood before the
    paragraphs of its training text, so that the first segments are found as well as later ones; it is no part of the
    result. ``primed=False`` starts from the zero state instead, as does the evaluation of a corpus. A model without
    line ends is never primed.

    A model that was trained on lines (``data.format`` lines) reads one line end before a line, and what it generates
    ends by itself at a line end. A model that was trained with a condition needs ``condition``: a class or numbers.
    """

    network: LanguageModel
    vocabulary: Vocabulary
    config: Config
    source: str | None = None
    """The name or path that it was loaded from."""

    @property
    def reads(self) -> Vocabulary:
        return self.vocabulary

    @property
    def late(self) -> int:
        """Symbols, 0 or 1, by which the lowest detector fires after the end of a word."""
        d, rnn = self.config.detectors, self.network.rnn
        return d.pull_delay if d.pull_to == "segments" else int(rnn.late)

    def segment(
        self,
        text: str,
        *,
        unknown: Unknown = "replace",
        primed: bool = True,
        condition: ConditionLike = None,
        by: By | None = None,
        threshold: float | None = None,
        progress: Progress = None,
    ) -> Segmentation:
        """The segments of ``text``, at every level.

        ``by`` "head" takes those of level 1 from the segmental head of a model that has one, which is the default
        there; "detectors" takes what the detectors found reading left to right. With a ``threshold`` the head's
        segments end where an end is at least so probable, instead of being the most probable together.
        """
        reading = self._read(text, "segment", unknown)
        return self._segment_all([reading], 1, primed, condition, by, threshold, progress)[0]

    def find_words(
        self,
        text: str,
        *,
        unknown: Unknown = "replace",
        primed: bool = True,
        threshold: float | None = None,
        progress: Progress = None,
    ) -> Segmentation:
        """The segments of level 1 alone, as :meth:`segment` finds them, in less time: only the segmental head reads
        the text. Operations and norms are 0.
        """
        reading = self._read(text, "segment", unknown)
        [ends] = self.word_ends([reading.indices], primed, threshold, progress)
        return self._words_alone(reading, *ends)

    def _words_alone(self, reading: Reading, ends: np.ndarray, chances: np.ndarray) -> Segmentation:
        nothing = np.zeros((len(ends), 2), np.uint8)
        pieces = tuple(self.vocabulary.pieces(reading.indices))
        result = Segmentation(pieces, ends[:, None], chances[:, None], nothing, nothing)
        return result.regroup(reading.symbols, reading.counts)

    def segment_column(self, texts: Iterable[Any]) -> dict[str, list[Any]]:
        """The words of each row of a column of pandas, polars or the like, as further columns of its table.

        ``words`` are the segments of level 1 without white space at their edges, ``ends`` where the segments end, in
        characters. They are None where ``error`` says what is wrong with a row: it is no text, or has no known symbol.

        Example::

            >>> frame = frame.assign(**model.segment_column(frame["text"]))  # doctest: +SKIP
        """
        good: list[Reading] = []
        errors: list[str | None] = []
        for text in texts:
            try:
                good.append(self._known(self.reading(text), "segment", text))
                errors.append(None)
            except InputError as error:
                errors.append(str(error))
        if self.network.segments is None:
            found: Iterable[Segmentation] = self._segment_all(good, 32, True, None, None, None, None)
        else:
            ends = self.word_ends([reading.indices for reading in good], primed=True)
            found = (self._words_alone(reading, *each) for reading, each in zip(good, ends))
        rows = iter([(each.words(), each.ends(1)) for each in found])
        words, places = (
            zip(*(next(rows) if error is None else (None, None) for error in errors)) if errors else ((), ())
        )
        return {"words": [*words], "ends": [*places], "error": errors}

    def word_ends(
        self,
        texts: Sequence[np.ndarray],
        primed: bool,
        threshold: float | None = None,
        progress: Progress = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Where words end by the segmental head, of each of some texts of symbols (T,): bool (T,), and the probability
        of an end, (T,). Texts are read by themselves, some side by side.
        """
        total = np.cumsum([0, *map(len, texts)])
        for _, group in itertools.groupby(zip(total, texts), lambda each: each[0] // _TOGETHER):
            symbols = [self._primed(text, primed) for _, text in group]
            found = HeadScores(self.network, symbols, len(self.prime) if primed else 0, threshold, progress)
            yield from zip(found.words(), found.chances())

    def count_words(
        self, symbols: np.ndarray, least: float = 0.1, draws: int = 0, progress: Progress = None
    ) -> dict[str, float]:
        """How often the segmental head expects each word in a text of symbols (T,), of those that it expects so often.

        Words that it does not choose are among them: they may be words elsewhere. Of ``draws`` words that it spells
        anew the most frequent are counted, too, as often as it would spell them in so long a text.
        """
        found: dict[str, float] = collections.defaultdict(float)
        for start in range(0, len(symbols), _TOGETHER):
            for word, count in HeadScores(self.network, [symbols[start : start + _TOGETHER]]).counts().items():
                found[self.vocabulary.decode(word).strip()] += count
            if progress is not None:
                progress(min(start + _TOGETHER, len(symbols)), len(symbols))
        counts = {word: count for word, count in found.items() if word and count >= least}
        total = sum(counts.values())
        spelt = draw_words(self.network, symbols[:_TOGETHER], draws) if draws else {}
        for word, share in spelt.items():
            piece = self.vocabulary.decode(word).strip()
            counts[piece] = counts.get(piece, 0.0) + share * total
        return counts

    def segment_many(
        self,
        texts: Iterable[str],
        *,
        batch: int = 32,
        unknown: Unknown = "replace",
        primed: bool = True,
        condition: ConditionLike = None,
        by: By | None = None,
        threshold: float | None = None,
        progress: Progress = None,
    ) -> list[Segmentation]:
        """As :meth:`segment`, for each text by itself; ``batch`` texts of similar length are read side by side.

        ``condition`` may be a list with one for each text.
        """
        if isinstance(texts, str):
            raise InputError("texts must be a list of texts; got one text: use segment")
        readings = [self._read(text, "segment", unknown) for text in texts]
        return self._segment_all(readings, argument("batch", batch, Count), primed, condition, by, threshold, progress)

    def _segment_all(
        self,
        readings: list[Reading],
        batch: int,
        primed: bool,
        condition: ConditionLike,
        by: By | None,
        threshold: float | None,
        progress: Progress,
    ) -> list[Segmentation]:
        prime = self.prime if primed else np.zeros(0, np.int64)
        by = by or ("detectors" if self.network.segments is None else "head")
        if by == "detectors" and threshold is not None:
            raise InputError("is for the ends of a segmental head", setting="threshold", value=threshold)
        if by == "head" and not self.network.rnn.num_boundaries:
            raise InputError("segments by the head take the place of the lowest detector; train two or more layers")
        texts = [reading.indices for reading in readings]
        with conditioned(self.network, self.as_condition(condition, len(readings))):
            found = segment_many(
                self.network,
                texts,
                self.vocabulary.pieces,
                batch=batch,
                prime=prime,
                late=self.late,
                progress=progress,
            )
        for each, ends in zip(found, self.word_ends(texts, primed, threshold) if by == "head" else ()):
            each.boundaries[:, 0], each.probabilities[:, 0] = ends
        return [each.regroup(reading.symbols, reading.counts) for each, reading in zip(found, readings)]

    def generate(
        self,
        prompt: Prompts = "",  # type: ignore[assignment]
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        unknown: Unknown = "replace",
        primed: bool = True,
        condition: ConditionLike = None,
        progress: Progress = None,
    ) -> Prompts:
        """``length`` symbols that continue ``prompt``, without the prompt; a list of texts for a list of prompts.

        Prompts of a list are continued side by side, with draws from one seed: ``[prompt] * 8`` gives eight different
        texts; ``condition`` may then be a list, too. A model of lines stops at a line end, after at most ``length``
        symbols. ``hmrnn generate`` prints the prompt before the continuation. ``progress`` is told of a list.
        """
        how: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        if not isinstance(prompt, list | tuple):
            pieces = self.stream(prompt, length, unknown=unknown, primed=primed, condition=condition, **how)
            return "".join(pieces)
        if not prompt:
            raise InputError("prompts must be one or more texts in a list; got an empty list")
        readings = [self._noted(self.reading(each, unknown, "a prompt")) for each in prompt]
        starts = [self._primed(reading.indices, primed) for reading in readings]
        check_length(length)
        check_room(self.network, len(starts), max(map(len, starts)) + length)
        given = self.as_condition(condition, len(prompt))
        if self.config.model.time == "left":
            given = given._replace(clock=torch.tensor([len(start) - 1 + length for start in starts]))
        drawn = continue_all(self.network, starts, length, stop=self.end, condition=given, progress=progress, **how)
        return ["".join(self._pieces(iter(indices.tolist()))) for indices in drawn]

    def stream(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        unknown: Unknown = "replace",
        primed: bool = True,
        condition: ConditionLike = None,
    ) -> Iterator[str]:
        """As :meth:`generate`, symbol by symbol. Arguments are checked at the call, not at the first symbol."""
        start = self._noted(self.reading(prompt, unknown, "the prompt")).indices
        start = self._primed(start, primed)
        check_length(length)
        given = self.as_condition(condition, steps=len(start) - 1 + length)
        indices = stream(
            self.network, start, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=self.end,
            condition=given,
        )  # fmt: skip
        return self._pieces(indices)

    def _pieces(self, indices: Iterator[int]) -> Iterator[str]:
        if self.vocabulary.kind == "characters":
            for index in indices:
                yield self.vocabulary.decode([index])
            return
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        values = (*self.vocabulary.symbols, 0xFF)  # the unknown symbol, never part of UTF-8
        for index in indices:
            yield decoder.decode(bytes([int(values[index])]))
        yield decoder.decode(b"", final=True)

    def score(
        self,
        text: str,
        *,
        unknown: Unknown = "replace",
        primed: bool = True,
        condition: ConditionLike = None,
        progress: Progress = None,
    ) -> Evaluation:
        """Bits per symbol of ``text``, each predicted from all before it, with rates, updates and multiply-adds."""
        symbols = self._primed(self._read(text, "score", unknown).indices, primed)
        with conditioned(self.network, self.as_condition(condition, steps=len(symbols))):
            return evaluate(self.network, symbols, prime=len(self.prime) if primed else 0, progress=progress).checked()

    def score_lines(
        self,
        lines: Iterable[str],
        *,
        unknown: Unknown = "replace",
        primed: bool = True,
        condition: ConditionLike = None,
    ) -> Iterator[Evaluation | None]:
        """As :meth:`score`, for each line by itself; None for a line without a symbol to predict.

        ``condition`` may be a list with one for each line.
        """
        if isinstance(lines, str) or not isinstance(lines, Iterable):
            raise InputError(f"the lines must be strings in a list or the like; got {type(lines).__name__}")
        each = one_each(condition, self.config.model.condition_numbers)
        if each is not None:
            lines = list(lines)
            self.as_condition(each, len(lines))  # checks them all
        for number, line in enumerate(lines, start=1):
            _check_text(f"line {number}", line)
            try:
                reading = self.reading(line, unknown)
            except InputError as error:
                raise InputError(f"line {number}: {error}") from error
            symbols = self._noted(reading, f"line {number}: ").indices
            prime = len(self.prime) if primed else 0
            if len(symbols) <= (0 if prime else 1):
                yield None
                continue
            symbols = self._primed(symbols, primed)
            given = condition if each is None else each[number - 1]
            with conditioned(self.network, self.as_condition(given, steps=len(symbols))):
                found = evaluate(self.network, symbols, prime=prime).checked()
            yield found

    def embed(
        self, text: str, *, unknown: Unknown = "replace", primed: bool = True, condition: ConditionLike = None
    ) -> Embedding:
        """Vectors of ``text``: of its symbols, of its segments at every level, and of the whole text.

        Example::

            >>> found = model.embed("The river flows.")  # doctest: +SKIP
            >>> found.symbols.shape, [level.shape for level in found.segments], found.text.shape  # doctest: +SKIP
        """
        reading = self._read(text, "embed", unknown)
        symbols, prime = self._primed(reading.indices, primed), len(self.prime) if primed else 0
        with conditioned(self.network, self.as_condition(condition, steps=len(symbols))):
            return embed(self.network, symbols, reading.counts, prime=prime, late=self.late)

    def corpus(self, path: tuple[str, ...] = (), progress: Progress = None) -> Corpus:
        corpus: Corpus = super().corpus(path, progress)
        if corpus.vocabulary != self.vocabulary:
            raise InputError(
                f"the corpus has another vocabulary ({len(corpus.vocabulary)} symbols) than the model "
                f"({len(self.vocabulary)}), so the model was not trained on it"
            )
        return corpus

    @property
    def prime(self) -> np.ndarray:
        """The symbols that are read before a text: those of PRIME that the model knows, none if it knows no line end.

        Before a line only the line end, as in training.
        """
        known = self.vocabulary.values
        before = [known.index(ord(sign)) for sign in PRIME if ord(sign) in known]
        return np.array(before[-1:] if self.end is not None else before if ord("\n") in known else [], np.int64)

    @property
    def end(self) -> int | None:
        """The symbol that ends a sequence: the line end, of a model that was trained on lines; else None."""
        return line_end(self.vocabulary) if self.config.data.format == "lines" else None

    def _primed(self, indices: np.ndarray, primed: bool) -> np.ndarray:
        return np.concatenate([self.prime, indices]) if primed else indices

    def reading(self, text: str, unknown: Unknown = "replace", what: str = "the text") -> Reading:
        """What the network reads of ``text``, without warnings; messages call the text ``what``."""
        _check_text(what, text)
        if self.config.data.remove_spaces:
            space = is_space(code_points(text), self.vocabulary.kind).tolist()
            text = "".join(symbol for symbol, removed in zip(text, space) if not removed)
        return read_as(text, self.vocabulary, unknown)

    def _read(self, text: str, verb: str, unknown: Unknown) -> Reading:
        return self._known(self._noted(self.reading(text, unknown)), verb, text)

    def _known(self, reading: Reading, verb: str, text: str) -> Reading:
        """``reading``, of which there must be something: without its spaces a text may hold line ends alone."""
        if not len(reading.indices) or (self.config.data.remove_spaces and not text.strip()):
            raise InputError(f"there is nothing to {verb}: the text is empty" + " of known symbols" * bool(text))
        return reading

    def _noted(self, reading: Reading, where: str = "") -> Reading:
        """``reading``, after a warning for each of its notes."""
        for note in reading.notes:
            warnings.warn(where + note, TextNote, stacklevel=4)
        return reading


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        hint = "; decode it first, as in text.decode()" if isinstance(text, bytes) else ""
        if isinstance(text, list | tuple) and what == "the text":
            hint = "; several texts are for segment_many or score_lines"
        raise InputError(f"{what} must be a str; got {type(text).__name__}{hint}")
