"""GapModel: predict every symbol from those on both sides, and fill gaps in a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.errors import InputError
from hmrnn.nn.checks import positive
from hmrnn.nn.distributions import Categorical
from hmrnn.nn.heads import ReadOut
from hmrnn.nn.hmlstm import HMLSTM


class GapModel(nn.Module):
    """A bidirectional HM-LSTM that predicts each symbol of a sequence from all the others.

    The prediction of step t reads the forward direction after step t - 1 and the reverse one after step t + 1, so it
    does not see symbol t. Symbols that are ``missing`` are read as a blank, a further row of the embedding; train with
    some missing at random, so that the model can fill gaps of several symbols.

    Args:
        num_symbols: size of the vocabulary.
        embedding_size: size of a symbol's embedding.
        hidden_size, num_layers, options: of :class:`hmrnn.HMLSTM`.

    Inputs: symbols (T, B), missing (T, B) bool or None, and lengths (B,). Output: logits (T, B, num_symbols).

    Example::

        >>> model = hmrnn.nn.GapModel(27, 16, 32, 2)
        >>> symbols = torch.randint(27, (50, 4))
        >>> logits = model(symbols, missing=torch.rand(50, 4) < 0.3)
        >>> torch.nn.functional.cross_entropy(logits.flatten(0, 1), symbols.flatten()).shape
        torch.Size([])
        >>> gap = (torch.arange(50) // 3 == 7)[:, None].expand(50, 4)      # three symbols are missing
        >>> model.fill(symbols, gap).shape
        torch.Size([50, 4])
    """

    def __init__(
        self,
        num_symbols: int,
        embedding_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 3,
        **options: Any,
    ) -> None:
        super().__init__()
        self.num_symbols = positive("num_symbols", num_symbols)
        self.embedding = nn.Embedding(self.num_symbols + 1, positive("embedding_size", embedding_size))  # blank last
        if options.get("batch_first"):
            raise InputError("a GapModel takes symbols (T, B); leave batch_first out")
        self.rnn = HMLSTM(embedding_size, hidden_size, num_layers, bidirectional=True, **options)
        self.read_out = ReadOut(self.rnn.output_sizes, num_symbols)

    def forward(
        self, symbols: Tensor, missing: Tensor | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        if symbols.dim() != 2:
            raise InputError(f"symbols must have shape (T, B); got {tuple(symbols.shape)}")
        if missing is not None:
            if missing.shape != symbols.shape or missing.dtype != torch.bool:
                got = f"{tuple(missing.shape)} of {missing.dtype}"
                raise InputError(f"missing must be bool of shape {tuple(symbols.shape)}; got {got}")
            symbols = symbols.masked_fill(missing, self.num_symbols)
        out, _ = self.rnn(symbols, lengths=lengths, embedding=self.embedding.weight)
        sides = []
        for h in out.hidden:
            ahead, back = h.chunk(2, dim=-1)
            nothing = torch.zeros_like(ahead[:1])
            # zeros beyond the ends; the reverse direction is zero in the padding, too
            sides.append(torch.cat([torch.cat([nothing, ahead[:-1]]), torch.cat([back[1:], nothing])], dim=-1))
        return self.read_out(sides)

    @torch.no_grad()
    def fill(
        self,
        symbols: Tensor,
        missing: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        sweeps: int = 3,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """``symbols`` (T, B) with those that are ``missing`` (T, B, bool) chosen from the predictions.

        In the first sweep, from left to right, those not yet chosen are blanks. Further sweeps, from right to left and
        back, choose each again given all the others: Gibbs sampling, or at ``temperature`` 0 the likeliest.

        Args:
            sweeps: how often each missing symbol is chosen.
            generator: of the draws, on the CPU.
        """
        filled, open_ = symbols.clone(), missing.clone()
        steps = missing.any(dim=1).nonzero().flatten().tolist()
        for sweep in range(positive("sweeps", sweeps)):
            for t in steps if sweep % 2 == 0 else reversed(steps):
                prediction = Categorical(self(filled, open_, lengths)[t])
                chosen = prediction.sample(generator, temperature=temperature).to(symbols)
                filled[t] = torch.where(missing[t], chosen, filled[t])
                open_[t] = False
        return filled
