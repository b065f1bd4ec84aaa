"""Lines of handwriting and what they say: the task of reading them, and the model that does."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.edits import edit_distance
from hmrnn.config import Config
from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.strokes.strokes import Scale, Strokes, as_lines, counted
from hmrnn.kinds.strokes.transcriber import Heard, Transcriber, likeliest, nats, search, spelled
from hmrnn.kinds.strokes.window import encode_texts
from hmrnn.nn.checks import argument
from hmrnn.nn.recurrent import autocast
from hmrnn.ops import State
from hmrnn.ops.interface import within
from hmrnn.pretrained.model import Model
from hmrnn.reading.batches import Batch, Batches
from hmrnn.reading.read import check_finite
from hmrnn.reading.score import Sums, each, to_tensors, unchanged
from hmrnn.training.sequences import PaddedTask
from hmrnn.training.task import Loss, Validation, detected


class TranscriptBatches(Batches):
    """Batches of normalised lines (T, B, 3), whose targets are the letters that they say, with zeros after the last.

    With ``distort`` each line is stretched and slanted by a map that lies so far from the identity.
    """

    def __init__(
        self,
        strokes: Strokes,
        scale: Scale,
        alphabet: Sequence[str],
        batch_size: int,
        seed: int | None = None,
        distort: float = 0.0,
    ) -> None:
        super().__init__(strokes.lengths, batch_size, seed, None)
        said = strokes.texts or [""] * len(strokes)
        self.strokes, self.scale, self.said = strokes, scale, encode_texts(said, alphabet, replace=True)
        self.distort = distort

    def batch(self, epoch: int, index: int) -> Batch:
        batch = super().batch(epoch, index)
        if self.distort:
            random = np.random.default_rng([self.plan.seed or 0, epoch, index])
            maps = np.eye(2) + self.distort * random.standard_normal((self.plan.batch_size, 2, 2))
            maps[:, 0, 1] = 0.0  # a line stays level
            batch.inputs[..., :2] = np.einsum("tbi,bij->tbj", batch.inputs[..., :2], maps)
        return batch

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        steps, letters = self.scale.encode(self.strokes[index]), np.zeros(self.strokes.lengths[index], np.int64)
        known = self.said[index][self.said[index] > 0][: len(letters)]
        letters[: len(known)] = known
        return steps, letters


class TranscriptTask(PaddedTask):
    """A :class:`hmrnn.training.task.Task` measured in nats per letter; its error is that of the likeliest letters."""

    offers = frozenset({"chances"})
    capturable = False  # the sum over alignments asks for lengths
    batches: TranscriptBatches
    valid: TranscriptBatches

    def start(self) -> None:
        t, data, alphabet = self.config.train, self.corpus, self.config.model.alphabet
        self.batches, self.valid = (
            TranscriptBatches(part, data.spec, alphabet, t.batch_size, seed, distort)
            for part, seed, distort in ((data.train, t.seed, self.config.data.distort), (data.valid, None, 0.0))
        )
        if not (self.batches.said.any() and self.valid.said.any()):
            raise InputError("training and validation part need a letter each that the model knows; give more lines")
        super().start()
        self.per_row = float((self.batches.said > 0).sum()) / len(data.train)
        said = "\n".join((*data.train.texts, *data.valid.texts))
        self.checksum = zlib.crc32(f"{data.train.checksum} {data.valid.checksum}\n{said}".encode())

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        x, letters, lengths = batch
        heard = network(x, lengths.clamp(min=1))
        value = _nats(heard, letters, lengths).sum() / (self.per_row * len(lengths))
        found = detected(heard.out, self.model.rnn, self.needs)
        active = within(torch.where(lengths > 0, heard.lengths, 0), len(heard.chances))
        return Loss(value, state=heard.state, active=active, **found)

    def measure(self, loss: float) -> float:
        return loss

    def validate(self, progress: Progress = None) -> Validation:
        total = Sums(self.model, 3)
        for batch in each(self.valid, self.share, progress):
            x, letters, lengths = to_tensors(batch, self.device)
            with unchanged(self.model), autocast(self.config.train.precision, self.device):
                heard = self.model(x, lengths.clamp(min=1))
                found = _nats(heard, letters, lengths)
            wrong, counts = 0, torch.where(lengths > 0, heard.lengths, 0)
            for b, steps in enumerate(counts.tolist()):
                said = letters[:, b][letters[:, b] > 0].tolist()
                wrong += edit_distance(likeliest(heard.chances[:steps, b].float().cpu().numpy()), said) if said else 0
            counted = within(counts, len(heard.chances))
            sums = (found.double().sum(), (letters > 0).sum(), torch.tensor(wrong, device=self.device))
            total.count(heard.out, counted, *sums)
        _, (nats, count, edits), work = total.result(self.share[1])
        return Validation(nats / count, *work, int(count), edits / count)

    def describe(self) -> str:
        train, valid = self.corpus.train, self.corpus.valid
        return (
            f"{self.corpus.name}: {len(train):,} lines of {self.per_row:.0f} letters on average to train on, "
            f"{len(valid):,} to validate; {len(train.skipped):,} left out"
        )


def _nats(heard: Heard, letters: Tensor, lengths: Tensor) -> Tensor:
    """(B,): -log of the probability of what lines say (T, B); 0 for rows without a line."""
    counts = (letters > 0).sum(0)
    return torch.where(lengths > 0, nats(heard, letters[: int(counts.max())].T, counts), 0.0)


class Transcript(NamedTuple):
    """What a line says."""

    text: str
    probability: float
    """Of this text, among all."""
    alternatives: list[tuple[str, float]]
    """Others with their probabilities, the likeliest first."""


class Legibility(NamedTuple):
    """How well lines were read: edits per letter, and per word."""

    letters: float
    words: float
    lines: int

    def __str__(self) -> str:
        return f"{counted(self.lines, 'line')}: {self.letters:.1%} of the letters wrong, {self.words:.1%} of the words"


@dataclasses.dataclass(repr=False)
class TranscriptModel(Model):
    """A model that reads handwriting; see :func:`hmrnn.load`."""

    network: Transcriber
    scale: Scale
    config: Config
    source: str | None = None

    @property
    def reads(self) -> Scale:
        return self.scale

    def predict(self, lines: Any, *, beam: int = 10, progress: Progress = None) -> list[Transcript]:
        """What lines of strokes say: :class:`Strokes`, a list of arrays (T, 3), or one such array."""
        beam = argument("beam", beam, Count)
        strokes = lines if isinstance(lines, Strokes) else Strokes.of(as_lines(lines))
        alphabet = self.config.model.alphabet
        batches = TranscriptBatches(dataclasses.replace(strokes, texts=()), self.scale, alphabet, 32)
        device, found = next(self.network.parameters()).device, dict[int, Transcript]()
        for batch in each(batches, progress=progress):
            x, _, lengths = to_tensors(batch, device)
            with unchanged(self.network):
                heard = self.network(x, lengths.clamp(min=1))
            check_finite(not heard.chances.isnan().any())
            for b, row in enumerate(batch.rows.tolist()):
                if row >= 0:
                    chances = heard.chances[: int(heard.lengths[b]), b].cpu().numpy()
                    (text, best), *others = [
                        (spelled(letters, alphabet), math.exp(one)) for letters, one in search(chances, beam)
                    ]
                    found[row] = Transcript(text, best, others)
        return [found[k] for k in range(len(strokes))]

    def score(self, lines: Strokes, *, beam: int = 10, progress: Progress = None) -> Legibility:
        """The errors in reading lines whose texts are known."""
        if not isinstance(lines, Strokes) or not lines.texts:
            raise InputError("lines to score must be strokes with their texts")
        return legibility([one.text for one in self.predict(lines, beam=beam, progress=progress)], lines.texts)


def legibility(read: Sequence[str], said: Sequence[str]) -> Legibility:
    """Edits per letter and per word of what was read, beside what lines say."""
    letters = sum(edit_distance(a, b) for a, b in zip(read, said)) / max(1, sum(map(len, said)))
    words = sum(edit_distance(a.split(), b.split()) for a, b in zip(read, said))
    return Legibility(letters, words / max(1, sum(len(text.split()) for text in said)), len(said))
