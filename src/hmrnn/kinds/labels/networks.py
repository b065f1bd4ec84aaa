"""Models of whole sequences: ClassifierModel, RegressorModel, TaggerModel and TransducerModel share SequenceModel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.nn.baselines.echo_state import differentiable
from hmrnn.nn.crf import LinearChainCRF
from hmrnn.nn.dropout import drop_units
from hmrnn.nn.output import Output
from hmrnn.nn.output_module import make_output
from hmrnn.nn.readouts import SequenceReadOut, segment_states
from hmrnn.nn.registry import make_encoder
from hmrnn.nn.tree import TreeReadOut

WEIGHED = 64
"""Most tags of a sequence for each of which the shares of the steps are computed."""
LEAST = 1e-3
"""Least deviation of a number that is answered, in deviations of the training part."""


class Judged(NamedTuple):
    """What a model makes of sequences whose targets it is told."""

    nats: Tensor
    """(B,): -log of the probability of the targets of each sequence; of numbers, of their density."""
    wrong: Tensor
    """(B,): how many targets are not the likeliest; of numbers, the sum of mean squared errors."""
    out: Output
    state: Any
    squares: Tensor | None = None
    """(B, numbers): squared errors, of numbers per step their sums; None if targets are classes."""


class Encoded(NamedTuple):
    """What a network makes of sequences."""

    out: Output
    state: Any


class Segments(NamedTuple):
    """What is read off a network: steps, segments, or whole sequences, S at most."""

    features: Tensor
    """(S, B, output_size): the gated output of all layers at the end of each; of the reverse direction at its start."""
    ends: Tensor
    """(S, B): the last step of each."""
    counts: Tensor
    """(B,): how many there are; the rest is padding."""

    @property
    def mask(self) -> Tensor:
        """(S, B): False in the padding."""
        return torch.arange(len(self.ends), device=self.ends.device)[:, None] < self.counts


class SequenceModel(nn.Module):
    """What the models share: embedding or channels, recurrent network, gated output of all layers.

    Args:
        size: number of input symbols, or of channels.
        symbols: whether the input is symbols (T, B), not channels (T, B, size).
        classes: number of labels, tags, symbols to write, or numbers of an answer.
        config: sizes and options.
        engine: of the HM-LSTM.
        detectors: settings of its detectors.
    """

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
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(size, config.embedding_size) if symbols else None
        # Layer norm would remove the size of a single channel; after a projection with a bias it is a direction.
        self.channels = None if symbols else nn.Linear(size, config.embedding_size)
        self.dropout_embedding = 0.0
        self.rnn: Any = make_encoder(config.embedding_size, config, engine, detectors)
        self.output = make_output(self.rnn.output_sizes, config)
        self.make_head(classes, config)

    def make_head(self, classes: int, config: ModelConfig) -> None:
        """Make the modules that turn the gated outputs into answers."""
        raise NotImplementedError

    def encode(self, x: Tensor, lengths: Tensor) -> Encoded:
        """Read sequences (T, B) of symbols or (T, B, channels), of the given lengths (B,)."""
        if self.embedding is None:
            assert self.channels is not None
            out, state = self.rnn(self.channels(x).tanh(), None, lengths)
        elif self.training and self.dropout_embedding > 0:
            out, state = self.rnn(drop_units(self.embedding(x), self.dropout_embedding), None, lengths)
        else:
            out, state = self.rnn(x, None, lengths, embedding=self.embedding.weight)
        return Encoded(out, state)

    def influence(self, x: Tensor, lengths: Tensor, judge: Callable[[Encoded, Tensor], Tensor]) -> Tensor:
        """(N, T, B): the share of each step in each of N scores: that of the size of gradient times input.

        For heads without attention. ``judge`` gives the scores (N, B) of encoded sequences and their lengths.
        """
        with torch.inference_mode(False), torch.enable_grad():
            x, lengths = x.clone(), lengths.clone()  # what was made in inference mode has no gradient
            read = self.embedding(x) if self.embedding is not None else cast(Any, self.channels)(x).tanh()
            read = read.detach().requires_grad_()
            with differentiable(self.rnn):
                encoded = Encoded(*self.rnn(read, None, lengths))
            scores = judge(encoded, lengths)
            sizes = torch.stack([
                (torch.autograd.grad(one.sum(), read, retain_graph=True)[0] * read.detach()).sum(-1).abs()
                for one in scores
            ])  # fmt: skip
        sizes = sizes * (torch.arange(len(x), device=x.device)[:, None] < lengths)
        return sizes / sizes.sum(1, keepdim=True).clamp(min=1e-30)

    def features(self, out: Output, ends: Tensor, starts: Tensor) -> Tensor:
        """(S, B, output_size): the gated output at steps ``ends`` (S, B); of the reverse direction at ``starts``."""
        hidden = cast(tuple[Tensor, ...], out.hidden)
        if not self.config.bidirectional:
            return self.output([_at(h, ends) for h in hidden])
        halves = [h.chunk(2, dim=-1) for h in hidden]
        return self.output([torch.cat([_at(h, ends), _at(r, starts)], dim=-1) for h, r in halves])

    def segments(self, out: Output, lengths: Tensor, level: int | None) -> Segments:
        """All steps (``level`` 0), the segments of a level, or the whole sequences (None)."""
        T, B = out.operations.shape[:2]
        if level is None:
            ends = (lengths - 1)[None]
            return Segments(self.features(out, ends, torch.zeros_like(ends)), ends, torch.ones_like(lengths))
        if level == 0:
            steps = torch.arange(T, device=lengths.device)[:, None].expand(T, B)
            return Segments(self.output(out.hidden), steps, lengths)
        found = segment_states(out, level, lengths)
        return Segments(self.features(out, found.ends, found.starts), found.ends, found.counts)

    @property
    def level(self) -> int:
        """The level whose segments attention chooses from; 0: it chooses from the steps."""
        return self.config.level if self.config.attend == "segments" else 0


def _at(h: Tensor, steps: Tensor) -> Tensor:
    """h (T, B, H) at steps (S, B)."""
    return h.gather(0, steps[..., None].expand(-1, -1, h.shape[-1]))


def flat_directions(out: Output) -> Output:
    """``out`` with detectors and directions in one axis, those of the forward direction first."""
    if out.boundaries.dim() < 4:
        return out
    parts = (a.movedim(-1, -2).flatten(-2) for a in (out.boundaries, out.probabilities, out.operations))
    return Output(out.hidden, *parts)


def on_steps(weights: Tensor, ends: Tensor, T: int) -> Tensor:
    """(T, B): weights (B, S) of segments, put on the last steps (S or more, B) of the segments."""
    return weights.new_zeros(T, len(weights)).scatter_add(0, ends[: weights.shape[1]], weights.T)


class ClassifierModel(SequenceModel):
    """A label per sequence: features of all steps, combined by attention, mean, maximum, the last one, or a tree-LSTM;
    softmax."""

    def make_head(self, classes: int, config: ModelConfig) -> None:
        sizes, pool = (config.output_size,), config.read_out
        self.read_out = (
            TreeReadOut(sizes, config.output_size, classes)
            if pool == "tree"
            else SequenceReadOut(sizes, classes, pool=pool)
        )

    def predict(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None, Encoded]:
        """Logits (B, classes), and the weight (T, B) of each step in them; None with a tree, which gives none."""
        encoded = self.encode(x, lengths)
        if isinstance(self.read_out, TreeReadOut):
            return self._by_tree(encoded, lengths), None, encoded
        levels = {"attention": self.level, "last": None}
        found = self.segments(encoded.out, lengths, levels.get(self.config.read_out, 0))
        none = found.features.new_zeros(*found.ends.shape, 0)  # to the read-out, segments are steps
        pooled, weights, _ = self.read_out.pooled(Output((found.features,), none, none, none), found.counts)
        return self.read_out.linear(pooled), on_steps(weights, found.ends, len(x)), encoded

    def _by_tree(self, encoded: Encoded, lengths: Tensor) -> Tensor:
        leaves = dataclasses.replace(encoded.out, hidden=(self.output(encoded.out.hidden),))
        return self.read_out(leaves, lengths)

    def explain(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Encoded]:
        """As :meth:`predict`; with a tree, the weights are shares in what is :meth:`decisive`."""
        logits, weights, encoded = self.predict(x, lengths)
        if weights is None:
            weights = self.influence(x, lengths, lambda *found: self.decisive(self._by_tree(*found))[None])[0]
        return logits, weights, encoded

    @staticmethod
    def decisive(logits: Tensor) -> Tensor:
        """(B,): the largest logit."""
        return logits.amax(-1)

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        logits, _, encoded = self.predict(x, lengths)
        nats = F.cross_entropy(logits.float(), targets[0], reduction="none")
        return Judged(nats, (logits.argmax(-1) != targets[0]).float(), encoded.out, encoded.state)


class GaussianModel(SequenceModel):
    """What models of numbers share: the deviation of a Gaussian for each number of an answer.

    Each number has one deviation for all sequences. It is not learned by gradient: :meth:`fit_deviation` sets it from
    the errors on held-out sequences, so that sequences which the network knows by heart cannot lower it. Numbers,
    means and deviations are in deviations of the training part.
    """

    deviation: Tensor

    def make_head(self, classes: int, config: ModelConfig) -> None:
        super().make_head(classes, config)
        self.register_buffer("deviation", torch.ones(classes))

    def fit_deviation(self, squares: Sequence[float]) -> float:
        """Set the deviations to the roots of these mean squared errors; the mean nats of these errors."""
        errors = torch.tensor(squares, dtype=torch.float64)
        self.deviation.copy_(errors.sqrt().clamp(min=LEAST))
        return float(gaussian_nats(errors, self.deviation.cpu().double()))


class RegressorModel(GaussianModel, ClassifierModel):
    """Numbers per sequence: what a ClassifierModel has as logits are means of Gaussians."""

    @staticmethod
    def decisive(logits: Tensor) -> Tensor:
        """(B,): the sum of the means."""
        return logits.sum(-1)

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        means, _, encoded = self.predict(x, lengths)
        squares = (means.float() - targets[0]).square()
        nats = gaussian_nats(squares, self.deviation)
        return Judged(nats, squares.mean(-1), encoded.out, encoded.state, squares)


def gaussian_nats(squares: Tensor, deviation: Tensor) -> Tensor:
    """-log of Gaussian densities, summed over the last axis, from squared errors (..., numbers) and deviations."""
    return (squares / deviation.square() / 2 + deviation.log() + math.log(2 * math.pi) / 2).sum(-1)


class TaggerModel(SequenceModel):
    """A tag per place, the last step of a token: features there, and a softmax or a linear-chain CRF."""

    def make_head(self, classes: int, config: ModelConfig) -> None:
        self.softmax = nn.Linear(config.output_size, classes)
        self.crf = LinearChainCRF(classes) if config.crf else None

    def predict(self, x: Tensor, lengths: Tensor, places: Tensor) -> tuple[Tensor, Encoded]:
        """Scores (N, B, tags) at ``places`` (N, B)."""
        encoded = self.encode(x, lengths)
        return self._scores(encoded, places), encoded

    def _scores(self, encoded: Encoded, places: Tensor) -> Tensor:
        starts = torch.cat([torch.zeros_like(places[:1]), places[:-1] + 1]).minimum(places)  # of spelled tokens
        return self.softmax(self.features(encoded.out, places, starts)).float()

    @staticmethod
    def decisive(scores: Tensor, tags: Tensor) -> Tensor:
        """(N, B): the scores of tags (N, B)."""
        return scores.gather(2, tags[..., None])[..., 0]

    def weights(self, x: Tensor, lengths: Tensor, places: Tensor, tags: Tensor, counted: Tensor) -> Tensor:
        """(N, T, B): the share of each step in the scores of tags (N, B).

        Of more than WEIGHED tags, neighbours share theirs.
        """
        steps = torch.arange(len(tags), device=x.device)
        count = min(len(tags), WEIGHED)
        group = steps * count // len(tags)

        def judge(encoded: Encoded, lengths: Tensor) -> Tensor:
            scores = self.decisive(self._scores(encoded, places.clone()), tags.clone())
            scores = scores.masked_fill(steps.clone()[:, None] >= counted.clone(), 0)
            return scores.new_zeros(count, scores.shape[1]).index_add(0, group.clone(), scores)

        return self.influence(x, lengths, judge)[group]

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


class StepRegressorModel(GaussianModel, TaggerModel):
    """Numbers per place, the last step of a token: what a TaggerModel has as scores are means of Gaussians."""

    @staticmethod
    def decisive(scores: Tensor, tags: Tensor) -> Tensor:
        """(N, B): the sums of the means."""
        return scores.sum(-1)

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        means, encoded = self.predict(x, lengths, places)
        active = torch.arange(len(targets), device=x.device)[:, None] < counted
        squares = torch.where(active[..., None], (means - targets).square(), 0.0)
        nats = torch.where(active, gaussian_nats(squares, self.deviation), 0.0).sum(0)
        return Judged(nats, squares.mean(-1).sum(0), encoded.out, encoded.state, squares.sum(0))
