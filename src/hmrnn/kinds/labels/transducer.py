"""TransducerModel: an HM-LSTM or a baseline reads a sequence, and a decoder with attention writes another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.config import ModelConfig
from hmrnn.kinds.labels.networks import Encoded, Judged, SequenceModel
from hmrnn.nn.decoder import AttentionDecoder, Memory


class TransducerModel(SequenceModel):
    """A sequence per sequence; attention sees all steps, or the ends of the segments of a level."""

    def make_head(self, classes: int, config: ModelConfig) -> None:
        self.decoder = AttentionDecoder(classes, config.embedding_size, config.output_size, config.output_size)

    def read(self, x: Tensor, lengths: Tensor) -> tuple[Memory, Tensor, Encoded]:
        """What the decoder attends to, and the last step (S, B) of each state in it."""
        encoded = self.encode(x, lengths)
        found = self.segments(encoded.out, lengths, self.level)
        return Memory(found.features, found.mask), found.ends, encoded

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        memory, _, encoded = self.read(x, lengths)
        logits = self.decoder(targets, memory)  # (M, B, symbols + 1)
        active = torch.arange(len(targets), device=x.device)[:, None] < counted
        each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        wrong = ((logits.argmax(-1) != targets) & active).sum(0).float()
        return Judged(torch.where(active, each, 0.0).sum(0), wrong, encoded.out, encoded.state)
