"""AttentionDecoder: an LSTM that writes symbols, each after attention over the steps or segments of a sequence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hmrnn.nn.attention import Attention


class Memory(NamedTuple):
    """What the decoder attends to: the states of steps, or of the segments of a level."""

    states: Tensor
    """(S, B, size)."""
    mask: Tensor
    """(S, B): False in the padding."""


class Prepared(NamedTuple):
    """A memory with what all steps of a decoder compute from it."""

    states: Tensor
    mask: Tensor
    keys: Tensor
    """(S, B, size): the keys of attention."""

    def select(self, rows: Tensor) -> Prepared:
        """The memory of chosen sequences, (rows,)."""
        return Prepared(*(a[:, rows] for a in self))


class Written(NamedTuple):
    """The state of the decoder after a symbol."""

    h: Tensor
    c: Tensor
    context: Tensor

    def select(self, rows: Tensor) -> Written:
        return Written(*(a[rows] for a in self))


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

    def prepare(self, memory: Memory) -> Prepared:
        """The memory with the keys that all steps share."""
        states, keys = self.attention.prepare(memory.states, memory.mask)
        return Prepared(states, memory.mask, keys)

    def begin(self, memory: Prepared) -> Written:
        """The state before the first symbol, from the mean of the memory."""
        mean = (memory.states * memory.mask[..., None]).sum(0) / memory.mask.sum(0)[:, None]
        h, c = self.start(mean).tanh().chunk(2, dim=-1)
        return Written(h, c, torch.zeros_like(mean))

    def step(self, symbols: Tensor, state: Written, memory: Prepared) -> tuple[Tensor, Tensor, Written]:
        """Logits (B, symbols + 1) of what follows symbols (B,), the weights (B, S) of attention, the new state."""
        weights, state = self.read(self.embedding(symbols), state, memory)
        return self.logits(state.h, state.context), weights, state

    def read(self, x: Tensor, state: Written, memory: Prepared) -> tuple[Tensor, Written]:
        """Read an embedded symbol (B, embedding_size): the weights (B, S) of attention, and the new state."""
        h, c = self.cell(torch.cat([x, state.context], dim=-1), (state.h, state.c))
        context, weights = self.attention.attend(memory.states, memory.keys, memory.mask, h)
        return weights, Written(h, c, context)

    def logits(self, h: Tensor, context: Tensor) -> Tensor:
        """(..., symbols + 1), of the next symbol."""
        return self.softmax(self.combine(torch.cat([h, context], dim=-1)).tanh()).float()

    def forward(self, targets: Tensor, memory: Memory) -> Tensor:
        """Logits (M, B, symbols + 1) of targets (M, B), each given the right ones before it."""
        prepared = self.prepare(memory)
        state = self.begin(prepared)
        before = torch.cat([torch.full_like(targets[:1], self.end), targets[:-1]])
        states = []
        for x in self.embedding(before):
            _, state = self.read(x, state, prepared)
            states.append(state)
        return self.logits(*(torch.stack([getattr(s, name) for s in states]) for name in ("h", "context")))

    @torch.no_grad()
    def write(self, memory: Memory, beam: int, limits: Tensor) -> list[tuple[list[int], list[float], Tensor]]:
        """The likeliest writing of each sequence that a beam search finds; a beam of 1 is greedy.

        Returns for each the symbols without the end, the probabilities of these and of the end, and the weights
        (symbols, S). ``limits`` (B,) bounds the number of symbols. Of finished writings the one with the highest mean
        log-probability per symbol, end included, is taken.
        """
        B = memory.mask.shape[1]
        K = self.end + 1
        prepared = self.prepare(memory)
        rows = torch.arange(B, device=memory.mask.device)
        state, last = self.begin(prepared), torch.full((B,), self.end, device=rows.device)
        sums = torch.zeros(B, 1, dtype=torch.float64, device=rows.device)  # (B, beam)
        paths = [_Path([], [], [])] * B  # of each row, those of a sequence side by side
        done: list[list[tuple[float, _Path]]] = [[] for _ in range(B)]
        width = 1
        for n in range(int(limits.max()) + 1):
            logits, weights, state = self.step(last, state, prepared.select(rows))
            logp = logits.double().log_softmax(-1)
            forced = (n >= limits)[rows]  # only the end may follow
            logp[forced, : self.end] = -torch.inf
            total = (sums.reshape(-1, 1) + logp).view(B, width * K)
            best, places = total.topk(min(beam, width * K), dim=1)
            scores, new = best.tolist(), best.shape[1]
            keep = (torch.arange(B, device=rows.device)[:, None] * width + places // K).flatten()
            last = (places % K).flatten()
            shown, seen = logp.exp().tolist(), weights.cpu()
            paths = [
                _Path([*old.symbols, symbol], [*old.chances, shown[at][symbol]], [*old.weights, seen[at]])
                for old, at, symbol in ((paths[at], at, symbol) for at, symbol in zip(keep.tolist(), last.tolist()))
            ]
            for k, path in enumerate(paths):
                b, j = divmod(k, new)
                if path.symbols[-1] == self.end:
                    if scores[b][j] > -torch.inf:
                        done[b].append((scores[b][j] / len(path.symbols), path))
                    scores[b][j] = -torch.inf
            # a sequence is finished, whatever the others still need
            scores = [[-torch.inf] * new if len(found) >= beam else row for row, found in zip(scores, done)]
            sums, width = sums.new_tensor(scores), new
            state, rows = state.select(keep), rows[keep]
            if bool((sums == -torch.inf).all()):
                break
        results = []
        for found in done:
            path = max(found, key=lambda pair: pair[0])[1]
            results.append((path.symbols[:-1], path.chances, torch.stack(path.weights)[:-1]))
        return results


class _Path(NamedTuple):
    """A writing in the beam."""

    symbols: list[int]
    chances: list[float]
    weights: list[Tensor]
