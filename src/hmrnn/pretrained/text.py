"""TextModel: a trained language model; text in; segments, more text or a score out."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.data.text.corpus import Corpus, load_corpus
from hmrnn.data.text.sources import as_read
from hmrnn.data.text.spaces import is_space
from hmrnn.data.text.vocabulary import Vocabulary, code_points
from hmrnn.errors import InputError
from hmrnn.inference.evaluate import Evaluation, evaluate
from hmrnn.inference.sample import stream
from hmrnn.inference.segment import segment, segment_many
from hmrnn.nn.models import LanguageModel
from hmrnn.pretrained.model import Model, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(repr=False)
class TextModel(Model):
    """A language model with its vocabulary and the config of its training; see :func:`hmrnn.load`."""

    figures = ("4", "3", "segments", "timescales")

    network: LanguageModel
    vocabulary: Vocabulary
    config: Config
    source: str | None = None
    """The name or path that it was loaded from."""

    @property
    def reads(self) -> Vocabulary:
        return self.vocabulary

    def segment(self, text: str, *, progress: Progress = None) -> Segmentation:
        """The segments that the detectors find in ``text``, at every level."""
        indices = self._encode(text, "segment")
        return segment(self.network, indices, self.vocabulary.pieces(indices), progress=progress)

    def segment_many(self, texts: Iterable[str], *, batch: int = 32, progress: Progress = None) -> list[Segmentation]:
        """As :meth:`segment`, for each text by itself; ``batch`` texts of similar length are read side by side."""
        if isinstance(texts, str):
            raise InputError("texts must be a list of texts; got one text: use segment")
        indices = [self._encode(text, "segment") for text in texts]
        shown = [self.vocabulary.pieces(sequence) for sequence in indices]
        return segment_many(self.network, indices, shown, batch=batch, progress=progress)

    def generate(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> str:
        """``length`` symbols that continue ``prompt``, without the prompt."""
        pieces = self.stream(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return "".join(pieces)

    def stream(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[str]:
        """As :meth:`generate`, symbol by symbol. Arguments are checked at the call, not at the first symbol."""
        _check_text("the prompt", prompt)
        start = self.vocabulary.encode(self._as_trained(prompt)) if prompt else np.zeros(0, dtype=np.int64)
        indices = stream(self.network, start, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
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

    def score(self, text: str, *, progress: Progress = None) -> Evaluation:
        """Bits per symbol of ``text``, each predicted from all before it, with rates, updates and multiply-adds."""
        return evaluate(self.network, self._encode(text, "score"), progress=progress)

    def score_lines(self, lines: Iterable[str]) -> Iterator[Evaluation | None]:
        """As :meth:`score`, for each line by itself; None for a line of fewer than two symbols."""
        if isinstance(lines, str) or not isinstance(lines, Iterable):
            raise InputError(f"the lines must be strings in a list or the like; got {type(lines).__name__}")
        for number, line in enumerate(lines, start=1):
            _check_text(f"line {number}", line)
            try:
                symbols = self.vocabulary.encode(self._as_trained(line))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from error
            yield evaluate(self.network, symbols) if len(symbols) > 1 else None

    def figure(self, name: str, text: str, found: Segmentation, levels: Iterable[int] = ()) -> Figure:
        """One of ``figures`` for the segments found in ``text``."""
        from hmrnn.plots.lengths import timescales
        from hmrnn.plots.segments import segments
        from hmrnn.plots.text import figure3, figure4

        if name == "timescales":
            return timescales([found.lengths(level) for level in range(1, found.levels + 1)])
        return {"3": figure3, "4": figure4, "segments": segments}[name](found)

    def corpus(self, path: tuple[str, ...] = (), progress: Progress = None) -> Corpus:
        """The corpus that it was trained on, which may have moved to ``path``."""
        data = dataclasses.replace(self.config.data, path=path) if path else self.config.data
        corpus = load_corpus(data, progress=progress)
        if corpus.vocabulary != self.vocabulary:
            raise InputError(
                f"the corpus has another vocabulary ({len(corpus.vocabulary)} symbols) than the model "
                f"({len(self.vocabulary)}), so the model was not trained on it"
            )
        return corpus

    def _encode(self, text: str, verb: str) -> np.ndarray:
        _check_text("the text", text)
        text = self._as_trained(text)
        if not text:
            raise InputError(f"there is nothing to {verb}: the text is empty")
        return self.vocabulary.encode(text)

    def _as_trained(self, text: str) -> str:
        """``text`` as a corpus file would be read: line ends made equal, and spaces removed if training did so."""
        text = as_read(text) if self.vocabulary.kind == "characters" else text
        if not self.config.data.remove_spaces:
            return text
        space = is_space(code_points(text), self.vocabulary.kind).tolist()
        return "".join(symbol for symbol, removed in zip(text, space) if not removed)


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        hint = "; decode it first, as in text.decode()" if isinstance(text, bytes) else ""
        raise InputError(f"{what} must be a str; got {type(text).__name__}{hint}")
