"""Networks for whole sequences: PooledModel, PlacedModel and TransducerModel share SequenceModel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig
from hmrnn.config.checks import Count
from hmrnn.kinds.labels.settings import TagModelConfig
from hmrnn.nn.baselines.echo_state import differentiable
from hmrnn.nn.checks import argument
from hmrnn.nn.crf import LinearChainCRF
from hmrnn.nn.decoder import AttentionDecoder, Memory
from hmrnn.nn.dropout import drop_units
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import make_output
from hmrnn.nn.readouts import SequenceReadOut, segment_states
from hmrnn.nn.registry import make_encoder
from hmrnn.nn.tree import TreeReadOut

WEIGHED = 64
"""Most tags of a sequence for each of which the shares of the steps are computed."""
LEAST = 1e-3
"""Least deviation of a number that is answered, in deviations of the training part."""
LONGEST = 10, 3
"""Symbols that may be written at most: the first, and the second for each step that was read."""


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


class Answered(NamedTuple):
    """What a model answers to one sequence."""

    values: np.ndarray
    """(N,): the indices of classes or symbols; (N, numbers) of numbers, as the network learns them."""
    chances: np.ndarray
    """(N, classes): the probability of each class; of what is written (N + 1,), those of the symbols and of the end; of
    numbers nothing."""
    weights: np.ndarray | None
    """(N, T): the share of each step in each answer."""


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
        outputs: number of labels, tags, symbols to write, or numbers of an answer.
        config: sizes and options.
        numbers: whether answers are numbers: the scores are then the means of Gaussians. Each number has one deviation
            for all sequences. It is not learned by gradient: :meth:`fit_deviation` sets it from the errors on held-out
            sequences, so that sequences which the network knows by heart cannot lower it. Numbers, means and deviations
            are in deviations of the training part.
        engine: of the HM-LSTM.
        detectors: settings of its detectors.
    """

    deviation: Tensor
    crf: LinearChainCRF | None

    def __init__(
        self,
        size: int,
        symbols: bool,
        outputs: int,
        config: Any,
        *,
        numbers: bool = False,
        engine: str = "auto",
        detectors: DetectorConfig | None = None,
    ) -> None:
        super().__init__()
        self.config, self.crf = config, None
        self.embedding = nn.Embedding(size, config.embedding_size) if symbols else None
        # Layer norm would remove the size of a single channel; after a projection with a bias it is a direction.
        self.channels = None if symbols else nn.Linear(size, config.embedding_size)
        self.dropout_embedding = 0.0
        self.rnn: Any = make_encoder(config.embedding_size, config, engine, detectors)
        self.output = make_output(self.rnn.output_sizes, config)
        self.make_head(outputs, config)
        self.numbers = numbers
        if numbers:
            self.register_buffer("deviation", torch.ones(outputs))

    def make_head(self, outputs: int, config: Any) -> None:
        """Make the modules that turn the gated outputs into scores."""
        raise NotImplementedError

    def scores(
        self, encoded: Encoded, lengths: Tensor, places: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Scores (N, B, outputs) of the answers at ``places`` (N, B), and the weight (N, T, B) of each step in them.

        None where the head has no weights; what is written also depends on the ``targets`` (N, B) before it.
        """
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

    def forward(self, x: Tensor, lengths: Tensor, targets: Tensor, counted: Tensor, places: Tensor) -> Judged:
        encoded = self.encode(x, lengths)
        scores, _ = self.scores(encoded, lengths, places, targets)
        active = torch.arange(len(targets), device=x.device)[:, None] < counted
        if self.numbers:
            squares = torch.where(active[..., None], (scores - targets).square(), 0.0)
            nats = torch.where(active, gaussian_nats(squares, self.deviation), 0.0).sum(0)
            return Judged(nats, squares.mean(-1).sum(0), encoded.out, encoded.state, squares.sum(0))
        best = scores.argmax(-1)
        if self.crf is None:
            each = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
            nats = torch.where(active, each, 0.0).sum(0)
        else:
            nats = self.crf.nats(scores, targets, counted)
            best = best if self.training else self.crf.decode(scores, counted)
        return Judged(nats, ((best != targets) & active).sum(0).float(), encoded.out, encoded.state)

    def fit_deviation(self, squares: Sequence[float]) -> float:
        """Set the deviations to the roots of these mean squared errors; the mean nats of these errors."""
        errors = torch.tensor(squares, dtype=torch.float64)
        self.deviation.copy_(errors.sqrt().clamp(min=LEAST))
        return float(gaussian_nats(errors, self.deviation.cpu().double()))

    def answers(
        self, x: Tensor, lengths: Tensor, counted: Tensor, places: Tensor, *, weigh: bool = False
    ) -> tuple[Output, list[Answered]]:
        """What the network put out, and the answers to each sequence; with ``weigh`` with their weights."""
        encoded = self.encode(x, lengths)
        scores, weights = self.scores(encoded, lengths, places)
        if self.numbers:
            best = chances = scores
        elif self.crf is None:
            best, chances = scores.argmax(-1), scores.double().softmax(-1)
        else:
            best, chances = self.crf.decode(scores, counted), self.crf.marginals(scores, counted)
        if weigh and weights is None:
            weights = self.shares(x, lengths, counted, places, best)
        rows = zip(counted.tolist(), lengths.tolist())
        found = [
            Answered(
                best[:N, b].cpu().numpy(),
                chances[:N, b].cpu().numpy(),
                weights[:N, :T, b].float().cpu().numpy() if weigh and weights is not None else None,
            )
            for b, (N, T) in enumerate(rows)
        ]
        return encoded.out, found

    def shares(self, x: Tensor, lengths: Tensor, counted: Tensor, places: Tensor, best: Tensor) -> Tensor:
        """(N, T, B): the share of each step in the scores of the answers ``best`` (N, B), of numbers in their sum.

        Of more than WEIGHED answers, neighbours share theirs.
        """
        steps = torch.arange(len(best), device=x.device)
        count = min(len(best), WEIGHED)
        group = steps * count // len(best)

        def judge(encoded: Encoded, lengths: Tensor) -> Tensor:
            scores, _ = self.scores(encoded, lengths, places.clone())
            chosen = scores.sum(-1) if self.numbers else scores.gather(2, best.clone()[..., None])[..., 0]
            chosen = chosen.masked_fill(steps.clone()[:, None] >= counted.clone(), 0)
            return chosen.new_zeros(count, chosen.shape[1]).index_add(0, group.clone(), chosen)

        return self.influence(x, lengths, judge)[group]

    def influence(self, x: Tensor, lengths: Tensor, judge: Callable[[Encoded, Tensor], Tensor]) -> Tensor:
        """(N, T, B): the share of each step in each of N scores: that of the size of gradient times input.

        ``judge`` gives the scores (N, B) of encoded sequences and their lengths.
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
        if self.config.directions == 1:
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


def gaussian_nats(squares: Tensor, deviation: Tensor) -> Tensor:
    """-log of Gaussian densities, summed over the last axis, from squared errors (..., numbers) and deviations."""
    return (squares / deviation.square() / 2 + deviation.log() + math.log(2 * math.pi) / 2).sum(-1)


class PooledModel(SequenceModel):
    """An answer per sequence: features of all steps, combined by attention, mean, maximum, the last one, or a
    tree-LSTM."""

    def make_head(self, outputs: int, config: Any) -> None:
        sizes, pool = (config.output_size,), config.read_out
        self.read_out = (
            TreeReadOut(sizes, config.output_size, outputs)
            if pool == "tree"
            else SequenceReadOut(sizes, outputs, pool=pool)
        )

    def scores(
        self, encoded: Encoded, lengths: Tensor, places: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.read_out, TreeReadOut):
            leaves = dataclasses.replace(encoded.out, hidden=(self.output(encoded.out.hidden),))
            return self.read_out(leaves, lengths)[None].float(), None
        levels = {"attention": self.level, "last": None}
        found = self.segments(encoded.out, lengths, levels.get(self.config.read_out, 0))
        none = found.features.new_zeros(*found.ends.shape, 0)  # to the read-out, segments are steps
        pooled, weights, _ = self.read_out.pooled(Output((found.features,), none, none, none), found.counts)
        T = len(encoded.out.operations)
        return self.read_out.linear(pooled)[None].float(), on_steps(weights, found.ends, T)[None]


class PlacedModel(SequenceModel):
    """An answer per place, such as the last step of a token: from the features there."""

    def make_head(self, outputs: int, config: Any) -> None:
        self.softmax = nn.Linear(config.output_size, outputs)
        self.crf = LinearChainCRF(outputs) if isinstance(config, TagModelConfig) and config.crf else None

    def scores(
        self, encoded: Encoded, lengths: Tensor, places: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        starts = torch.cat([torch.zeros_like(places[:1]), places[:-1] + 1]).minimum(places)  # of spelled tokens
        return self.softmax(self.features(encoded.out, places, starts)).float(), None


class TransducerModel(SequenceModel):
    """A sequence per sequence; a decoder with attention sees all steps, or the ends of the segments of a level."""

    def make_head(self, outputs: int, config: Any) -> None:
        self.decoder = AttentionDecoder(outputs, config.embedding_size, config.output_size, config.output_size)

    def memory(self, encoded: Encoded, lengths: Tensor) -> tuple[Memory, Tensor]:
        """What the decoder attends to, and the last step (S, B) of each state in it."""
        found = self.segments(encoded.out, lengths, self.level)
        return Memory(found.features, found.mask), found.ends

    def scores(
        self, encoded: Encoded, lengths: Tensor, places: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        assert targets is not None
        return self.decoder(targets, self.memory(encoded, lengths)[0]), None

    def answers(
        self, x: Tensor, lengths: Tensor, counted: Tensor, places: Tensor, *, weigh: bool = False, beam: int = 1
    ) -> tuple[Output, list[Answered]]:
        """What a beam search finds; a beam of 1 is greedy."""
        encoded = self.encode(x, lengths)
        memory, ends = self.memory(encoded, lengths)
        found = []
        written = self.decoder.write(memory, argument("beam", beam, Count), LONGEST[0] + LONGEST[1] * lengths)
        for row, (symbols, chances, weights) in enumerate(written):
            steps = on_steps(weights, ends[:, row : row + 1].cpu().expand(-1, len(weights)), int(lengths[row]))
            found.append(Answered(np.array(symbols, np.int64), np.array(chances), steps.T.float().numpy()))
        return encoded.out, found
