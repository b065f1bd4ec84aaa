"""SequenceModel: a trained model of sequences of any kind; a sequence in; segments or a score out."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.config.checks import Count
from hmrnn.kind import InputSpec, Progress
from hmrnn.nn.checks import argument
from hmrnn.pretrained.model import Model
from hmrnn.reading.read import Reader, segment_many
from hmrnn.reading.sample import check_room, draw, seeded
from hmrnn.reading.score import Score, read_all
from hmrnn.training.sequences import SequenceBatches


@dataclasses.dataclass(frozen=True)
class SequenceScore(Score):
    """How well a model predicts sequences."""

    sequences: int
    steps: int
    """Steps predicted: all but the first of each sequence."""
    bits: float
    """Bits per step."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.bits)


@dataclasses.dataclass(repr=False)
class SequenceModel(Model):
    """A trained model with what turns a sequence into its input; see :func:`hmrnn.load`."""

    network: Any
    spec: InputSpec
    config: Config
    source: str | None = None
    """The name or path that it was loaded from."""

    @property
    def reads(self) -> InputSpec:
        return self.spec

    def segment(self, sequence: Any, *, progress: Progress = None) -> Segmentation:
        """The segments that the detectors find in a sequence, at every level."""
        return self.segment_many([sequence], progress=progress)[0]

    def segment_many(
        self, sequences: Iterable[Any], *, batch: int = 32, progress: Progress = None
    ) -> list[Segmentation]:
        """As :meth:`segment`, for each sequence by itself; ``batch`` of similar length are read side by side."""
        encoded = [self.spec.encode(one) for one in sequences]
        batch = argument("batch", batch, Count)
        return segment_many(self.network, encoded, self.spec.pieces, batch=batch, progress=progress)

    def score(self, sequences: Sequence[Any], *, progress: Progress = None) -> SequenceScore:
        """Bits per step of ``sequences``, each step predicted from those before it."""
        batches = SequenceBatches([self.spec.encode(one) for one in sequences], 32)
        steps, (nats,), work = read_all(self.network, batches, (0, 1), progress=progress).result()
        return SequenceScore(*work, len(sequences), steps, nats / max(steps, 1) / math.log(2)).checked()

    def generate(self, start: Any, steps: int = 100, *, seed: int | None = None, **how: Any) -> Any:
        """The next ``steps`` of the sequence ``start``; ``how`` are options of the prediction's ``sample``."""
        check_room(self.network, 1, steps, "steps")
        first = self.network.as_input(self.spec.encode(start))[:, None]
        drawn = itertools.islice(draw(Reader(self.network), first, seeded(seed), **how), steps)
        return self.spec.decode(torch.cat([step[:1] for step in drawn]).numpy())
