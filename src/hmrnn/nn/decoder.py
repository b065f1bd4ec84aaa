"""AttentionDecoder: an LSTM that writes symbols, each after attention over the steps or segments of a sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hmrnn.nn.attention import Attention


class Memory(NamedTuple):
    """What the decoder attends to: the states of steps, or of the segments of a level."""

    states: Tensor
    """(S, B, size)."""
    mask: Tensor
    """(S, B): False in the padding."""
    keys: Any = None
    """(S, B, size): the keys of attention, which all steps share; the decoder computes them."""


class Written(NamedTuple):
    """The state of the decoder after a symbol."""

    h: Tensor
    c: Tensor
    context: Tensor


class AttentionDecoder(nn.Module):
    """Writes symbols 0 to symbols - 1 and then an end, the symbol ``symbols``, which is also what is read first.

    At each step an LSTM reads the last symbol and the last context; its h asks the memory, and the context, the mean of
    its states weighted by attention, goes with h into the softmax.
    """

    def __init__(self, symbols: int, embedding_size: int, features: int, hidden: int) -> None:
        super().__init__()
        self.end = symbols
        self.embedding = nn.Embedding(symbols + 1, embedding_size)
        self.cell = nn.LSTMCell(embedding_size + features, hidden)
        self.attention = Attention(features, hidden)
        self.start = nn.Linear(features, 2 * hidden)
        self.combine = nn.Linear(hidden + features, hidden)
        self.softmax = nn.Linear(hidden, symbols + 1)

    def begin(self, memory: Memory) -> tuple[Memory, Written]:
        """The memory with its keys, and the state before the first symbol, from the mean of the memory."""
        states, keys = self.attention.prepare(memory.states, memory.mask)
        mean = (states * memory.mask[..., None]).sum(0) / memory.mask.sum(0)[:, None]
        h, c = self.start(mean).tanh().chunk(2, dim=-1)
        return Memory(states, memory.mask, keys), Written(h, c, torch.zeros_like(mean))

    def read(self, x: Tensor, state: Written, memory: Memory) -> tuple[Tensor, Written]:
        """Read an embedded symbol (B, embedding_size): the weights (B, S) of attention, and the new state."""
        h, c = self.cell(torch.cat([x, state.context], dim=-1), (state.h, state.c))
        context, weights = self.attention.attend(memory.states, memory.keys, memory.mask, h)
        return weights, Written(h, c, context)

    def logits(self, h: Tensor, context: Tensor) -> Tensor:
        """(..., symbols + 1), of the next symbol."""
        return self.softmax(self.combine(torch.cat([h, context], dim=-1)).tanh()).float()

    def forward(self, targets: Tensor, memory: Memory) -> Tensor:
        """Logits (M, B, symbols + 1) of targets (M, B), each given the right ones before it."""
        memory, state = self.begin(memory)
        before = torch.cat([torch.full_like(targets[:1], self.end), targets[:-1]])
        states = []
        for x in self.embedding(before):
            _, state = self.read(x, state, memory)
            states.append(state)
        return self.logits(*(torch.stack([getattr(s, name) for s in states]) for name in ("h", "context")))

    @torch.no_grad()
    def write(self, memory: Memory, beam: int, limits: Tensor) -> list[tuple[list[int], list[float], Tensor]]:
        """The likeliest writing of each sequence that a beam search finds; a beam of 1 is greedy.

        Returns for each the symbols without the end, the probabilities of these and of the end, and the weights
        (symbols, S). ``limits`` (B,) bounds the number of symbols. Of finished writings the one with the highest mean
        log-probability per symbol, end included, is taken.
        """
        B, K = memory.mask.shape[1], self.end + 1
        memory, state = self.begin(memory)
        first = rows = torch.arange(B, device=memory.mask.device)
        last = torch.full_like(rows, self.end)
        sums = torch.zeros(B, 1, dtype=torch.float64, device=rows.device)  # (B, beam)
        trail: list[list[Tensor]] = []  # of each step: the rows that go on, their symbols, chances and weights
        done: list[list[tuple[float, int, int]]] = [[] for _ in range(B)]  # scores, last steps and rows
        for n in range(int(limits.max()) + 1):
            weights, state = self.read(self.embedding(last), state, Memory(*(a[:, rows] for a in memory)))
            logp = self.logits(state.h, state.context).double().log_softmax(-1)
            logp[(n >= limits)[rows], : self.end] = -torch.inf  # only the end may follow
            total = (sums.reshape(-1, 1) + logp).view(B, -1)
            best, places = total.topk(min(beam, total.shape[1]), dim=1)
            keep, last = (first[:, None] * sums.shape[1] + places // K).flatten(), (places % K).flatten()
            trail.append([a.cpu() for a in (keep, last, logp[keep, last].exp(), weights[keep])])
            ended = last.view_as(best) == self.end
            for b, j in (ended & best.isfinite()).nonzero().tolist():
                done[b].append((float(best[b, j]) / (n + 1), n, b * best.shape[1] + j))
            full = torch.tensor([len(found) >= beam for found in done], device=rows.device)
            sums = best.masked_fill(ended | full[:, None], -torch.inf)  # a full one is finished, whatever others need
            state, rows = Written(*(a[keep] for a in state)), rows[keep]
            if not bool(sums.isfinite().any()):
                break
        results = []
        for found in done:
            _, n, row = max(found, key=lambda one: one[0])
            path = []
            for came, symbols, chances, seen in reversed(trail[: n + 1]):
                path.append((int(symbols[row]), float(chances[row]), seen[row]))
                row = int(came[row])
            written, likely, shown = zip(*reversed(path))
            results.append((list(written[:-1]), list(likely), torch.stack(shown)[:-1]))
        return results
