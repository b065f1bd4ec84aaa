"""LanguageModel and HandwritingModel: recurrent network -> the paper's gated output module -> softmax or mixture."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.errors import InputError
from hmrnn.nn.checks import check_input, check_lengths, check_values
from hmrnn.nn.distributions import Mixture, head_size
from hmrnn.nn.dropout import drop_units, probability
from hmrnn.nn.output import Output
from hmrnn.nn.registry import make_rnn
from hmrnn.ops import State

POINT_SIZE = 3
"""Δx, Δy, pen_up."""


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In ``eval()`` for a while; every module is left as it was."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def describe(network: LanguageModel | HandwritingModel) -> str:
    """Kind, sizes and place of a network, in a few words."""
    sizes = ", ".join(map(str, network.rnn.hidden_sizes))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    device = next(network.parameters()).device
    return f"{network.config.rnn} with layers of {sizes}, {parameters:,} parameters, on {device}"


class GatedOutput(nn.Module):
    """Equations 11 and 12: every layer's h, weighed by a gate that looks at all of them, then ReLU.

    ``dropout`` is the share of the units of each sequence that it does not see, while training; h is then (T, B, H).
    """

    def __init__(self, hidden_sizes: Sequence[int], output_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = probability("dropout", dropout)
        self.gates = nn.Linear(sum(hidden_sizes), len(hidden_sizes), bias=False)  # w of (11)
        self.embeddings = nn.ModuleList(nn.Linear(size, output_size, bias=False) for size in hidden_sizes)  # Wᵉ of (12)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        if self.training and self.dropout > 0:
            hidden = [drop_units(h, self.dropout) for h in hidden]
        g = torch.sigmoid(self.gates(torch.cat(list(hidden), dim=-1)))  # (..., L)
        return self.combine(g, [embed(h) for embed, h in zip(self.embeddings, hidden)])

    @staticmethod
    def combine(g: Tensor, terms: Sequence[Tensor]) -> Tensor:
        """(12), from the gates and the terms Wᵉh of the layers (streaming keeps those of layers that copied)."""
        return F.relu(sum((g[..., l, None] * term for l, term in enumerate(terms)), start=torch.zeros_like(terms[0])))


class LanguageModel(nn.Module):
    """The next symbol's distribution, given the symbols so far.

    Args:
        num_symbols: size of the vocabulary.
        config: sizes and options.
        engine: which implementation of the recurrence runs.
        given: (num_symbols, num_layers - 1) the boundaries that each symbol brings with it, NaN where the detector
            decides (``Vocabulary.boundaries``); needed by "hrnn".
        detectors: how the detectors of "hm-lstm" and "hrnn" decide.

    Example::

        >>> model = LanguageModel(27, ModelConfig(hidden_size=(64,), embedding_size=16, output_size=64))
        >>> logits, out, state = model(torch.randint(27, (100, 8)))
        >>> logits.shape
        torch.Size([100, 8, 27])
    """

    given: Tensor | None
    """(symbols, L-1): the boundaries that a symbol brings with it, NaN where the detector decides; None if all do."""

    def __init__(
        self,
        num_symbols: int,
        config: ModelConfig,
        *,
        engine: str = "auto",
        given: np.ndarray | None = None,
        detectors: DetectorConfig | None = None,
    ) -> None:
        super().__init__()
        self.num_symbols = num_symbols
        self.config = config
        self.embedding = nn.Embedding(num_symbols, config.embedding_size)
        self.dropout_embedding = 0.0  # share of each sequence's embedding that the network does not see, while training
        self.rnn = make_rnn(config.embedding_size, config, engine, detectors)
        expected = (num_symbols, self.rnn.num_boundaries)
        if config.rnn == "hrnn" if given is None else given.shape != expected:
            got = "none" if given is None else f"shape {given.shape}"
            raise InputError(f"the boundaries given with each symbol must have shape {expected}; got {got}")
        self.register_buffer("given", None if given is None else torch.from_numpy(given), persistent=False)
        self.output = GatedOutput(self.rnn.hidden_sizes, config.output_size)
        self.softmax = nn.Linear(config.output_size, num_symbols)

    def forward(
        self,
        symbols: Tensor,  # (T, B)
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
    ) -> tuple[Tensor, Output, State]:
        """Logits (T, B, number of symbols) of the symbol that follows each one, the network's output and its state."""
        boundaries = self.boundaries(symbols) if boundaries is None else boundaries
        if self.training and self.dropout_embedding > 0:
            check_input(self.rnn, symbols, self.embedding.weight, sequence=True)
            T, B = symbols.shape
            lengths = check_lengths(lengths, T, B, symbols.device)
            check_values(self.rnn, symbols, None, lengths=lengths, embedding=self.embedding.weight)
            known = symbols
            if lengths is not None:  # padding, which is never read, may hold anything
                known = symbols.masked_fill(torch.arange(T, device=symbols.device)[:, None] >= lengths, 0)
            x = drop_units(self.embedding(known), self.dropout_embedding)
            out, state = self.rnn(x, state, lengths, boundaries)
        else:
            out, state = self.rnn(symbols, state, lengths, boundaries, embedding=self.embedding.weight)
        return self.softmax(self.output(out.hidden)), out, state

    def boundaries(self, symbols: Tensor) -> Tensor | None:
        """(..., L-1): the boundaries that the symbols bring with them, if any do."""
        return None if self.given is None else self.given[symbols.long().clamp(0, self.num_symbols - 1)]


class HandwritingModel(nn.Module):
    """The distribution of the next pen movement, given those so far: HM-LSTM -> gated output module -> mixture density.

    A point is (Δx, Δy, pen_up) in normalised coordinates and is read as it is, so ``config.embedding_size`` is unused.

    Args:
        config: sizes and options; ``mixtures`` is the number of Gaussians.
        engine: which implementation of the recurrence runs.
        detectors: how the detectors of "hm-lstm" decide.

    Example::

        >>> model = HandwritingModel(ModelConfig(hidden_size=(64,), output_size=64, mixtures=5))
        >>> mixture, out, state = model(torch.randn(100, 8, 3))
        >>> mixture.means.shape
        torch.Size([100, 8, 5, 2])
    """

    def __init__(self, config: ModelConfig, *, engine: str = "auto", detectors: DetectorConfig | None = None) -> None:
        super().__init__()
        self.config = config
        if config.rnn == "hrnn":
            raise InputError("model.rnn hrnn is told where words and lines of a text end; strokes have neither")
        self.rnn = make_rnn(POINT_SIZE, config, engine, detectors)
        self.output = GatedOutput(self.rnn.hidden_sizes, config.output_size)
        self.density = nn.Linear(config.output_size, head_size(config.mixtures))

    def forward(
        self,
        points: Tensor,  # (T, B, 3)
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
    ) -> tuple[Mixture, Output, State]:
        """The distribution (T, B) of the point that follows each one, the network's output and its state."""
        out, state = self.rnn(points, state, lengths, boundaries)
        return self.expect(self.output(out.hidden)), out, state

    def expect(self, embedding: Tensor) -> Mixture:
        """The distribution that an output embedding stands for; in float32 under autocast, too."""
        with torch.autocast(embedding.device.type, enabled=False):
            return Mixture.from_vector(self.density(embedding.to(self.density.weight.dtype)))

    def log_likelihood(self, points: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Output]:
        """(T-1, B): the log-density in nats of each point (T, B, 3) but the first, given those before it; 0 in padding.

        ``lengths`` (B,) counts points. Padding comes last, so nothing that counts has seen it.
        """
        if lengths is not None and lengths.device.type == "cpu":  # looking makes a GPU wait, and cannot be captured
            check_lengths(lengths, len(points), points.shape[1], lengths.device)
        mixture, out, _ = self(points[:-1])
        result = mixture.log_density(points[1:])
        if lengths is None:
            return result, out
        counted = torch.arange(1, len(points), device=points.device)[:, None] < lengths  # (T-1, B)
        return torch.where(counted, result, 0.0), out
