"""Models of whole sequences: ClassifierModel, TaggerModel, TransducerModel, on an HM-LSTM or a baseline."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.nn.crf import LinearChainCRF
from hmrnn.nn.dropout import drop_units
from hmrnn.nn.models import make_output
from hmrnn.nn.output import Output
from hmrnn.nn.readouts import SequenceReadOut
from hmrnn.nn.registry import make_encoder


class Judged(NamedTuple):
    """What a model makes of sequences whose targets it is told."""

    nats: Tensor
    """(B,): -log of the probability of the targets of each sequence."""
    wrong: Tensor
    """(B,): how many targets are not the likeliest."""
    out: Output
    state: Any


class Encoded(NamedTuple):
    """What a network makes of sequences."""

    features: Tensor
    """(T, B, output_size): the gated output of all layers at every step."""
    out: Output
    state: Any

    def as_layer(self) -> Output:
        """The features as the output of a network of one layer, with the segments of the forward direction."""
        out = self.out
        z, likely, done = (a[..., 0] if out.boundaries.dim() == 4 else a
                           for a in (out.boundaries, out.probabilities, out.operations))  # fmt: skip
        return Output((self.features,), z, likely, done)


class SequenceModel(nn.Module):
    """What the three models share: embedding or channels, recurrent network, gated output of all layers.

    Args:
        size: number of input symbols, or of channels.
        symbols: whether the input is symbols (T, B), not channels (T, B, size).
        config: sizes and options.
    """

    def __init__(
        self, size: int, symbols: bool, config: ModelConfig, engine: str, detectors: DetectorConfig | None
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(size, config.embedding_size) if symbols else None
        # Layer norm would remove the size of a single channel; after a projection with a bias it is a direction.
        self.channels = None if symbols else nn.Linear(size, config.embedding_size)
        self.dropout_embedding = 0.0
        self.rnn: Any = make_encoder(config.embedding_size, config, engine, detectors)
        self.output = make_output(self.rnn.output_sizes, config)

    def encode(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Read sequences (T, B) of symbols or (T, B, channels), of the given lengths (B,)."""
        if self.embedding is None:
            assert self.channels is not None
            out, state = self.rnn(self.channels(x).tanh(), None, lengths)
        elif self.training and self.dropout_embedding > 0:
            out, state = self.rnn(drop_units(self.embedding(x), self.dropout_embedding), None, lengths)
        else:
            out, state = self.rnn(x, None, lengths, embedding=self.embedding.weight)
        return Encoded(self.output(out.hidden), out, state)

    @property
    def level(self) -> int:
        """The level whose segments attention chooses from; 0: it chooses from the steps."""
        return self.config.level if self.config.attend == "segments" else 0


def flat_directions(out: Output) -> Output:
    """``out`` with detectors and directions in one axis, those of the forward direction first."""
    if out.boundaries.dim() < 4:
        return out
    parts = (a.movedim(-1, -2).flatten(-2) for a in (out.boundaries, out.probabilities, out.operations))
    return Output(out.hidden, *parts)


def on_steps(weights: Tensor, ends: Tensor, T: int) -> Tensor:
    """(T, B): weights (B, S) of segments, put on the last steps (S, B) of the segments."""
    return weights.new_zeros(T, len(weights)).scatter_add(0, ends, weights.T)


class ClassifierModel(SequenceModel):
    """A label per sequence: features of all steps, combined by attention, mean, maximum or the last one; softmax."""

    def __init__(
        self,
        size: int,
        symbols: bool,
        classes: int,
        config: ModelConfig,
        *,
        engine: str = "auto",
        detectors: DetectorConfig | None = None,
    ) -> None:
        super().__init__(size, symbols, config, engine, detectors)
        level = self.level if config.read_out == "attention" else 0
        self.read_out = SequenceReadOut((config.output_size,), classes, pool=config.read_out, level=level)

    def predict(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Encoded]:
        """Logits (B, classes), and the weight (T, B) of each step in them."""
        encoded = self.encode(x, lengths)
        pooled, weights, found = self.read_out.pooled(encoded.as_layer(), lengths)
        return self.read_out.linear(pooled), on_steps(weights, found.ends, len(x)), encoded

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        logits, _, encoded = self.predict(x, lengths)
        nats = F.cross_entropy(logits.float(), targets[0], reduction="none")
        return Judged(nats, (logits.argmax(-1) != targets[0]).float(), encoded.out, encoded.state)


class TaggerModel(SequenceModel):
    """A tag per place: features of these steps, and a softmax or a linear-chain CRF."""

    def __init__(
        self,
        size: int,
        symbols: bool,
        classes: int,
        config: ModelConfig,
        *,
        engine: str = "auto",
        detectors: DetectorConfig | None = None,
    ) -> None:
        super().__init__(size, symbols, config, engine, detectors)
        self.softmax = nn.Linear(config.output_size, classes)
        self.crf = LinearChainCRF(classes) if config.crf else None

    def predict(self, x: Tensor, lengths: Tensor, places: Tensor) -> tuple[Tensor, Encoded]:
        """Scores (N, B, tags) at ``places`` (N, B)."""
        encoded = self.encode(x, lengths)
        size = encoded.features.shape[-1]
        chosen = encoded.features.gather(0, places[..., None].expand(-1, -1, size))
        return self.softmax(chosen).float(), encoded

    def tags(self, scores: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tags (N, B), and the probability of every tag (N, B, tags)."""
        if self.crf is None:
            return scores.argmax(-1), scores.softmax(-1)
        return self.crf.decode(scores, counted), self.crf.marginals(scores, counted)

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        scores, encoded = self.predict(x, lengths, places)
        active = torch.arange(len(targets), device=x.device)[:, None] < counted
        if self.crf is None:
            each = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
            nats, found = torch.where(active, each, 0.0).sum(0), scores.argmax(-1)
        else:
            nats = self.crf.nats(scores, targets, counted)
            found = scores.argmax(-1) if self.training else self.crf.decode(scores, counted)
        return Judged(nats, ((found != targets) & active).sum(0).float(), encoded.out, encoded.state)
