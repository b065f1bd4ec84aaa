"""LanguageModel: embedding -> recurrent network -> the paper's gated output module -> softmax."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import ModelConfig
from hmrnn.ops import State
from hmrnn.rnn import HMLSTM, Output, layer_sizes


class GatedOutput(nn.Module):
    """Equations 11 and 12: every layer's h, weighed by a gate that looks at all of them, then ReLU."""

    def __init__(self, hidden_sizes: Sequence[int], output_size: int) -> None:
        super().__init__()
        self.gates = nn.Linear(sum(hidden_sizes), len(hidden_sizes), bias=False)  # w of (11)
        self.embeddings = nn.ModuleList(nn.Linear(size, output_size, bias=False) for size in hidden_sizes)  # Wᵉ of (12)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
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

    Example::

        >>> model = LanguageModel(27, ModelConfig(hidden_size=(64,), embedding_size=16, output_size=64))
        >>> logits, out, state = model(torch.randint(27, (100, 8)))
        >>> logits.shape
        torch.Size([100, 8, 27])
    """

    def __init__(self, num_symbols: int, config: ModelConfig, *, engine: str = "auto") -> None:
        super().__init__()
        self.num_symbols = num_symbols
        self.config = config
        self.embedding = nn.Embedding(num_symbols, config.embedding_size)
        self.rnn = HMLSTM(
            config.embedding_size,
            layer_sizes(config.hidden_size, config.num_layers),
            config.num_layers,
            layer_norm=config.layer_norm,
            boundary=config.boundary,
            on_copy=config.on_copy,
            engine=engine,
        )
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
        out, state = self.rnn(symbols, state, lengths, boundaries, embedding=self.embedding.weight)
        return self.softmax(self.output(out.hidden)), out, state
