"""Predict the next symbol of a text, read in streams side by side, or of lines, each read by itself."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.config import Config, SegmentConfig
from hmrnn.config.changes import replaced
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.evaluate import evaluate
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.start import adopt
from hmrnn.kinds.text.words.joints import rules, separators
from hmrnn.kinds.text.words.lexicon import Knowledge, Lexicon, learn_lexicon
from hmrnn.kinds.text.words.segmental import Scores, by_ends, sum_segmentations, windows
from hmrnn.nn.distributions import Categorical
from hmrnn.ops import State
from hmrnn.reading.vocabulary import utf8
from hmrnn.training.sequences import SequenceTask
from hmrnn.training.task import Loss, Task, Validation, detected, with_own_inputs
from hmrnn.utils import inputs

SYMBOLS_READ, MOST_EPOCHS = 1_200_000, 12
"""With train.epochs 0 a text is read as often as makes so many symbols, at least once and at most so often."""
DOUBT = 0.02
"""Least probability of an end, and of none, that the lexicon's bigrams are believed."""
SIGNS = 300
"""A vocabulary of so many symbols costs a segmental head twice the time of one of a few, and is read half as often."""


class Streams:
    """A text cut into ``batch_size`` streams of equal length that are read side by side, ``length`` symbols at a time.

    ``ends`` are probabilities of an end after each symbol. ``shift`` moves all cuts along the text, which is treated as
    a circle.
    """

    def __init__(
        self,
        symbols: np.ndarray,
        batch_size: int,
        length: int,
        rows: slice,
        device: torch.device,
        ends: np.ndarray | None = None,
    ) -> None:
        self.length = length
        per_stream = (len(symbols) - 1) // batch_size
        self.chunks = per_stream // length
        if self.chunks < 1:
            raise InputError(
                f"the training part holds {len(symbols)} symbols, but {batch_size} streams of {length} need at least "
                f"{batch_size * length + 1}; give more text, or lower this or train.length",
                setting="train.batch_size",
                value=batch_size,
            )
        first = (np.arange(batch_size) * per_stream)[rows] + np.arange(length)[:, None]  # (T, B): chunk 0
        kind = np.uint8 if symbols.dtype == np.uint8 else np.int32
        # the whole text is on the device: no copies from the host
        self.symbols = torch.from_numpy(symbols.astype(kind, copy=False)).to(device)
        self.ends = None if ends is None else torch.from_numpy(ends).to(device)
        self.first, self.shift = torch.from_numpy(first).to(device), 0

    def __getitem__(self, chunk: int) -> tuple[Tensor, ...]:
        """Inputs and targets (T, B) of a chunk, and the probability of an end after each target."""
        at = (self.first + (chunk * self.length + self.shift)) % (len(self.symbols) - 1)
        ends = () if self.ends is None else (self.ends[at + 1],)
        return self.symbols[at].long(), self.symbols[at + 1].long(), *ends


class TextTask(Task):
    """A :class:`hmrnn.training.task.Task` measured in bits per symbol."""

    corpus: Corpus
    model: LanguageModel
    offers = frozenset({"surprise", "entropy", "chances", "hidden", "segments"})
    capturable = True
    carries_state = True

    def start(self) -> None:
        t, segments, data, ends = self.config.train, self.config.segments, self.corpus, None
        if self.model.segments is not None and segments.lexicon:
            lexicon = lexicon_of(data, segments)
            self.model.segments.set_lexicon(*lexicon.shares(segments.lexicon, segments.longest))
            ends = lexicon.ends
        self.streams = Streams(data.train, t.batch_size, t.length, self.rows, self.device, ends)
        self.chunks = self.streams.chunks
        self.symbols = float(t.batch_size * t.length)
        self.checksum = zlib.crc32(data.valid.data, zlib.crc32(data.train.data))

    adopt = adopt

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        if self.config.regularise.shift:
            draw = np.random.default_rng([self.config.train.seed, epoch])
            self.streams.shift = int(draw.integers(len(self.corpus.train) - 1))
        return self.streams[chunk]

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        inputs, targets, *ends = batch
        before = state
        inputs = with_own_inputs(self.model, inputs, self.own_share, state)
        prediction, out, state = network(inputs, state)
        surprise = entropy = more = segments = None
        if "surprise" in self.needs or self.model.segments is not None:
            seen = Categorical(prediction.logits.detach())
            surprise = -seen.log_prob(targets)
            entropy = seen.entropy() if "entropy" in self.needs else None
        loss = F.cross_entropy(prediction.logits.flatten(0, 1).float(), targets.flatten())
        if self.model.segments is not None and surprise is not None:
            more, segments = self._segments(inputs, targets, surprise, *ends)
        found = detected(out, self.model.rnn, self.needs, before)
        return Loss(
            loss, state=state, surprise=surprise, entropy=entropy, divisor=targets.numel(), more=more,
            segments=segments, **found,
        )  # fmt: skip

    def _segments(
        self, inputs: Tensor, targets: Tensor, surprise: Tensor, ends: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of the segmental head, and its probability (T, B) that a segment ends after each step.

        A segmentation counts as much as it is probable by ``ends``, those of the lexicon. A chunk begins and ends
        within words: symbols before its first boundary, which is one of the first K, are left to the prediction of the
        next symbol, and its last segment need not be complete.
        """
        assert self.model.segments is not None
        T, K = len(targets), self.model.segments.longest
        scores = self.model.segments.score(inputs, windows(targets, K))
        if ends is not None:
            seen = by_ends(ends.nan_to_num(0.5).clamp(DOUBT, 1 - DOUBT), K)
            scores = Scores(scores.closed + seen.closed, scores.open + seen.open)
        place = (
            torch.arange(T, device=targets.device)[:, None, None]
            + torch.arange(1, K + 1, device=targets.device)[:, None]
        )
        nats = F.pad(surprise.cumsum(0), (0, 0, 1, 0))  # (T + 1, B)
        late = torch.arange(T + 1, device=targets.device)[:, None] >= K
        first = (-nats).masked_fill(late, -1e30) - math.log(K)
        sums = sum_segmentations(torch.where(place == T, scores.open, scores.closed), first)
        return -self.config.segments.weight * sums.total.sum() / targets.numel(), sums.boundaries()

    def measure(self, loss: float) -> float:
        return loss / math.log(2)

    def validate(self, progress: Progress = None) -> Validation:
        t = self.config.train
        result = evaluate(
            self.model, self.corpus.valid[: t.validation_symbols or None], streams=t.batch_size, warmup=t.length,
            chunk=t.length, precision=t.precision, progress=progress, share=self.share,
        )  # fmt: skip
        return Validation(result.bits, result.rates, result.updates, result.multiply_adds, result.symbols)

    def describe(self) -> str:
        corpus = self.corpus
        return f"{corpus.name}: {len(corpus.train):,} symbols to train on, {len(corpus.vocabulary)} distinct"


class LineTask(SequenceTask):
    """Lines as sequences, each read from the line end before it."""

    adopt = adopt


def task_of(config: Config, *given: Any) -> Task:
    """The task of a run on a text, or on lines."""
    return (LineTask if config.data.format == "lines" else TextTask)(config, *given)


def lexicon_of(corpus: Corpus, segments: SegmentConfig) -> Lexicon:
    """The lexicon that is learned from the training part; it is needed for the settings and for the model."""
    return _learned(corpus, segments.known, segments.examples)


@functools.lru_cache(maxsize=1)
def _learned(corpus: Corpus, known: str | None, examples: str | None) -> Lexicon:
    words = {word for line in _words(corpus, "known", known) for word in line}
    knowledge = Knowledge(words, _words(corpus, "examples", examples))
    return learn_lexicon(corpus.train, rules(corpus.vocabulary), separators(corpus.vocabulary), knowledge)


def _words(corpus: Corpus, setting: str, path: str | None) -> list[list[tuple[int, ...]]]:
    """The words of the lines of a file, as symbols; words with symbols that the text lacks are left out."""
    if path is None:
        return []
    vocabulary = corpus.vocabulary
    signs = utf8 if vocabulary.kind == "bytes" else list
    lines = map(str.split, inputs.read_text(None, path, vocabulary.kind).splitlines())
    spelt = [[word for word in line if {*signs(word)} <= {*vocabulary.symbols}] for line in lines]
    found = [[tuple(vocabulary.encode(word).tolist()) for word in line] for line in spelt if line]
    if not found:
        raise InputError(f"{path} has no word of symbols that the text has", setting=f"segments.{setting}", value=path)
    return found


def settled(config: Config, corpus: Corpus) -> Config:
    """``config`` with the settings that the text decides: epochs, the longest segment, the rates of the detectors."""
    if config.segments.size and not config.train.epochs:
        cost = 1 + len(corpus.vocabulary) / SIGNS
        epochs = min(MOST_EPOCHS, math.ceil(SYMBOLS_READ / (len(corpus.train) * cost)))
        config = replaced(config, {"train.epochs": epochs})
    if not config.segments.size or config.segments.longest:
        return config
    lexicon = lexicon_of(corpus, config.segments)
    own: dict[str, Any] = {"segments.longest": lexicon.longest}
    if config.detectors.pull_to == "segments":
        own["detectors.rates"] = tuple(round(1 / lexicon.mean / 4**l, 4) for l in range(config.model.detectors))
    return replaced(config, own)
