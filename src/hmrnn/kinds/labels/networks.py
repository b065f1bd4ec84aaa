"""Networks for whole sequences: PooledModel, PlacedModel and TransducerModel share SequenceModel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import DetectorConfig
from hmrnn.config.checks import Count
from hmrnn.kinds.labels.batches import Batch
from hmrnn.kinds.labels.settings import TagModelConfig
from hmrnn.nn.baselines.echo_state import differentiable
from hmrnn.nn.checks import argument
from hmrnn.nn.crf import LinearChainCRF
from hmrnn.nn.decoder import AttentionDecoder, Memory
from hmrnn.nn.dropout import drop_units
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import make_output
from hmrnn.nn.readouts import SegmentStates, SequenceReadOut, TreeReadOut, segment_states
from hmrnn.nn.registry import make_rnn

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
    squares: Tensor
    """(B, numbers): squared errors, of numbers per step their sums; (B, 0) if targets are classes."""
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
    segmentation: Segmentation | None = None
    """What the network found in the sequence."""


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
        self.rnn: Any = make_rnn(config.embedding_size, config, engine, detectors)
        self.output = make_output(self.rnn.output_sizes, config)
        self.make_head(outputs, config)
        self.numbers = numbers
        if numbers:
            self.register_buffer("deviation", torch.ones(outputs))

    def make_head(self, outputs: int, config: Any) -> None:
        """Make the modules that turn the gated outputs into scores."""
        raise NotImplementedError

    def scores(self, out: Output, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Scores (N, B, outputs) of the answers at the places of a batch; the weight (N, T, B) of each step in them.

        None where the head has no weights; what is written also depends on the targets before it.
        """
        raise NotImplementedError

    def inputs(self, x: Tensor) -> Tensor:
        """(T, B, embedding_size): symbols (T, B) or steps (T, B, channels) as the network reads them."""
        if self.embedding is not None:
            return self.embedding(x)
        assert self.channels is not None
        return self.channels(x).tanh()

    def encode(self, x: Tensor, lengths: Tensor) -> tuple[Output, Any]:
        """Read sequences (T, B) of symbols or (T, B, channels), of the given lengths (B,)."""
        if self.embedding is None:
            return self.rnn(self.inputs(x), None, lengths)
        if self.training and self.dropout_embedding > 0:
            return self.rnn(drop_units(self.inputs(x), self.dropout_embedding), None, lengths)
        return self.rnn(x, None, lengths, embedding=self.embedding.weight)

    def forward(self, *tensors: Tensor) -> Judged:
        batch = Batch(*tensors)
        out, state = self.encode(batch.inputs, batch.lengths)
        scores, _ = self.scores(out, batch)
        asked, targets = batch.asked, batch.targets
        if self.numbers:
            squares = torch.where(asked[..., None], (scores - targets).square(), 0.0)
            nats = torch.where(asked, gaussian_nats(squares, self.deviation), 0.0).sum(0)
            return Judged(nats, squares.mean(-1).sum(0), squares.sum(0), out, state)
        best = scores.argmax(-1)
        if self.crf is None:
            each = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
            nats = torch.where(asked, each, 0.0).sum(0)
        else:
            nats = self.crf.nats(scores, targets, batch.counted)
            best = best if self.training else self.crf.decode(scores, batch.counted)
        return Judged(nats, ((best != targets) & asked).sum(0).float(), nats.new_zeros(len(nats), 0), out, state)

    def fit_deviation(self, squares: Sequence[float]) -> float:
        """Set the deviations to the roots of these mean squared errors; the mean nats of these errors."""
        errors = torch.tensor(squares, dtype=torch.float64)
        self.deviation.copy_(errors.sqrt().clamp(min=LEAST))
        return float(gaussian_nats(errors, self.deviation.cpu().double()))

    def answers(self, batch: Batch, *, weigh: bool = False) -> tuple[Output, list[Answered]]:
        """What the network put out, and the answers to each sequence; with ``weigh`` with their weights."""
        out, _ = self.encode(batch.inputs, batch.lengths)
        scores, weights = self.scores(out, batch)
        if self.numbers:
            best = chances = scores
        elif self.crf is None:
            best, chances = scores.argmax(-1), scores.double().softmax(-1)
        else:
            best, chances = self.crf.decode(scores, batch.counted), self.crf.marginals(scores, batch.counted)
        if weigh and weights is None:
            weights = self.shares(batch, best)
        rows = zip(batch.counted.tolist(), batch.lengths.tolist())
        found = [
            Answered(
                best[:N, b].cpu().numpy(),
                chances[:N, b].cpu().numpy(),
                weights[:N, :T, b].float().cpu().numpy() if weigh and weights is not None else None,
            )
            for b, (N, T) in enumerate(rows)
        ]
        return out, found

    def shares(self, batch: Batch, best: Tensor) -> Tensor:
        """(N, T, B): the share of each step in the scores of the answers ``best`` (N, B), of numbers in their sum.

        It is that of the size of gradient times input. Of more than WEIGHED answers, neighbours share theirs.
        """
        with torch.inference_mode(False), torch.enable_grad():
            batch, best = Batch(*(a.clone() for a in batch)), best.clone()  # those made in inference mode have none
            read = self.inputs(batch.inputs).detach().requires_grad_()
            with differentiable(self.rnn):
                out, _ = self.rnn(read, None, batch.lengths)
            scores, _ = self.scores(out, batch)
            chosen = scores.sum(-1) if self.numbers else scores.gather(2, best[..., None])[..., 0]
            chosen = chosen.masked_fill(~batch.asked, 0)
            count = min(len(best), WEIGHED)
            group = torch.arange(len(best), device=best.device) * count // len(best)
            grouped = chosen.new_zeros(count, chosen.shape[1]).index_add(0, group, chosen)
            slopes = [torch.autograd.grad(one.sum(), read, retain_graph=True)[0] for one in grouped]
            sizes = torch.stack([(slope * read.detach()).sum(-1).abs() for slope in slopes]) * batch.active
        return (sizes / sizes.sum(1, keepdim=True).clamp(min=1e-30))[group]

    def segments(self, out: Output, lengths: Tensor, level: int | None) -> SegmentStates:
        """All steps (``level`` 0), the segments of a level, or the whole sequences (None), with their features.

        These are the gated output of all layers where each ends; of the reverse direction, where it starts.
        """
        found = segment_states(out, level, lengths)
        return found._replace(states=self.output(found.states.split(self.rnn.output_sizes, dim=-1)))

    @property
    def level(self) -> int:
        """The level whose segments attention chooses from; 0: it chooses from the steps."""
        return self.config.level if self.config.attend == "segments" else 0


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

    def scores(self, out: Output, batch: Batch) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.read_out, TreeReadOut):
            leaves = dataclasses.replace(out, hidden=(self.output(out.hidden),))
            return self.read_out(leaves, batch.lengths)[None].float(), None
        level = {"attention": self.level, "last": None}.get(self.config.read_out, 0)
        found = self.segments(out, batch.lengths, level)
        none = found.states.new_zeros(*found.ends.shape, 0)  # to the read-out, segments are steps
        pooled, weights, _ = self.read_out.pooled(Output((found.states,), none, none, none), found.counts)
        return self.read_out.linear(pooled)[None].float(), on_steps(weights, found.ends, len(out.operations))[None]


class PlacedModel(SequenceModel):
    """An answer per place, such as the last step of a token: from the features there."""

    def make_head(self, outputs: int, config: Any) -> None:
        self.softmax = nn.Linear(config.output_size, outputs)
        self.crf = LinearChainCRF(outputs) if isinstance(config, TagModelConfig) and config.crf else None

    def scores(self, out: Output, batch: Batch) -> tuple[Tensor, Tensor | None]:
        places = batch.places
        starts = torch.cat([torch.zeros_like(places[:1]), places[:-1] + 1]).minimum(places)  # of spelled tokens
        each = [zip(cast(Tensor, h).chunk(self.config.directions, dim=-1), (places, starts)) for h in out.hidden]
        found = [
            torch.cat([h.gather(0, at[..., None].expand(-1, -1, h.shape[-1])) for h, at in halves], dim=-1)
            for halves in each
        ]
        return self.softmax(self.output(found)).float(), None


class TransducerModel(SequenceModel):
    """A sequence per sequence; a decoder with attention sees all steps, or the ends of the segments of a level."""

    def make_head(self, outputs: int, config: Any) -> None:
        self.decoder = AttentionDecoder(outputs, config.embedding_size, config.output_size, config.output_size)

    def memory(self, out: Output, lengths: Tensor) -> tuple[Memory, Tensor]:
        """What the decoder attends to, and the last step (S, B) of each state in it."""
        found = self.segments(out, lengths, self.level)
        return Memory(found.states, found.mask), found.ends

    def scores(self, out: Output, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self.decoder(batch.targets, self.memory(out, batch.lengths)[0]), None

    def answers(self, batch: Batch, *, weigh: bool = False, beam: int = 1) -> tuple[Output, list[Answered]]:
        """What a beam search finds; a beam of 1 is greedy."""
        out, _ = self.encode(batch.inputs, batch.lengths)
        memory, ends = self.memory(out, batch.lengths)
        found = []
        limits = LONGEST[0] + LONGEST[1] * batch.lengths
        written = self.decoder.write(memory, argument("beam", beam, Count), limits)
        for row, (symbols, chances, weights) in enumerate(written):
            steps = on_steps(weights, ends[:, row : row + 1].cpu().expand(-1, len(weights)), int(batch.lengths[row]))
            found.append(Answered(np.array(symbols, np.int64), np.array(chances), steps.T.float().numpy()))
        return out, found
