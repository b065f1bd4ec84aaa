"""LineTask: predict the symbols and the end of lines of text, each read by itself."""

from __future__ import annotations

import math
import zlib
from typing import cast

import torch
from torch import Tensor

from hmrnn.config import Config
from hmrnn.kind import InputSpec
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.lines import LineBatches, end_symbol, split_lines
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.start import adopted
from hmrnn.nn.distributions import Categorical
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.padded import PaddedTask


class LineTask(PaddedTask):
    """A :class:`hmrnn.training.task.Task` measured in bits per symbol, line ends included."""

    offers = PaddedTask.offers | {"entropy"}

    def __init__(
        self, config: Config, data: Corpus, model: LanguageModel, device: torch.device, rank: int = 0, world: int = 1
    ) -> None:
        t = config.train
        self.corpus, self.reads = data, data.vocabulary
        self.lines, end = split_lines(data), end_symbol(data.vocabulary)
        batches = LineBatches(self.lines["train"], end, config.model, t.batch_size, seed=t.seed)
        self.valid = LineBatches(self.lines["valid"], end, config.model, t.batch_size)
        super().__init__(config, model, batches, device, rank, world)
        given = "\n".join(data.conditions).encode()
        self.checksum = zlib.crc32(data.valid.data, zlib.crc32(data.train.data, zlib.crc32(given)))

    def adopt(self, weights: dict[str, Tensor], reads: InputSpec) -> None:
        own = self.model.state_dict()
        super().adopt(adopted(weights, own, cast(Vocabulary, reads), self.corpus.vocabulary, self.corpus.train), reads)

    def prediction(self, made: Tensor) -> Categorical:
        return Categorical(made)

    def measure(self, loss: float) -> float:
        return loss / math.log(2)

    def describe(self) -> str:
        train, valid = self.lines["train"], self.lines["valid"]
        return (
            f"{self.corpus.name}: {len(train):,} lines of {train.lengths.mean():.0f} symbols on average to train on, "
            f"{len(valid):,} to validate, {len(self.corpus.vocabulary)} distinct symbols"
        )
