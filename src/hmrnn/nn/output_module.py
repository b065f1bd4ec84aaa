"""The output module: the hidden states of all layers -> one vector per step (equations 11 and 12)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import ModelConfig
from hmrnn.nn.checks import probability
from hmrnn.nn.dropout import drop_units


class GatedOutput(nn.Module):
    """Equations 11 and 12: the sum of every layer's embedded h, each weighted by a gate that reads all of them; ReLU.

    With the sizes of the first layers only, it reads these and not the layers above them.

    ``dropout`` is the share of the units of h that are dropped in training, the same ones throughout a sequence; h is
    then (T, B, H).
    """

    def __init__(self, hidden_sizes: Sequence[int], output_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = output_size
        self.dropout = probability("dropout", dropout)
        self.gates = nn.Linear(sum(hidden_sizes), len(hidden_sizes), bias=False)  # w of (11)
        self.embeddings = nn.ModuleList(nn.Linear(size, output_size, bias=False) for size in hidden_sizes)  # Wᵉ of (12)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        hidden = hidden[: len(self.embeddings)]
        if self.training and self.dropout > 0:
            hidden = [drop_units(h, self.dropout) for h in hidden]
        return self.combine(hidden, [embed(h) for embed, h in zip(self.embeddings, hidden)])

    def combine(self, hidden: Sequence[Tensor], terms: Sequence[Tensor]) -> Tensor:
        """The result from h and the layers' terms Wᵉh; step by step, a term is reused while its layer copies."""
        g = torch.sigmoid(self.gates(torch.cat(list(hidden[: len(terms)]), dim=-1)))  # (..., L), equation 11
        return F.relu(sum((g[..., l, None] * term for l, term in enumerate(terms)), start=torch.zeros_like(terms[0])))


class JoinedOutput(nn.Module):
    """h of all layers side by side, for a linear output that ridge regression fits."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.size = sum(hidden_sizes)
        self.embeddings = nn.ModuleList(nn.Identity() for _ in hidden_sizes)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(hidden), dim=-1)

    def combine(self, hidden: Sequence[Tensor], terms: Sequence[Tensor]) -> Tensor:
        """As of :class:`GatedOutput`."""
        return self(terms)


def make_output(hidden_sizes: Sequence[int], config: ModelConfig) -> GatedOutput | JoinedOutput:
    """The output module over the layers that ``config.output_layers`` names."""
    if config.ridge:
        return JoinedOutput(hidden_sizes)
    return GatedOutput(hidden_sizes[:1] if config.output_layers == "first" else hidden_sizes, config.output_size)
