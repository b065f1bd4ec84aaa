"""Sampling from a LanguageModel, one symbol after the other: a layer that copies costs nothing, nor does its output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.models import LanguageModel
from hmrnn.ops import State


class Reader:
    """Reads symbols into a network and says what it expects next.

    The term Wᵉh of equation 12 is kept for each layer and computed anew only where h changed since it was last needed.
    The network runs as in ``eval()``, whatever its mode.

    Example::

        >>> reader = Reader(network)
        >>> for symbol in prompt:
        ...     reader.read(symbol)
        >>> logits = reader.logits()  # (number of symbols,)
    """

    def __init__(self, network: LanguageModel) -> None:
        self.network = network
        self.state: State = network.rnn.initial_state(1)
        weight = network.softmax.weight
        self._terms = [weight.new_zeros(1, weight.shape[1]) for _ in self.state.h]  # Wᵉh of h = 0
        self._changed = [False] * len(self._terms)

    @torch.no_grad()
    def read(self, symbol: int) -> None:
        """Take one time step."""
        rnn, given = self.network.rnn, self.network.given
        x, forced = self.network.embedding.weight[symbol, None], None if given is None else given[symbol, None]
        step = rnn.step(x, self.state, forced)
        self.state = step.state
        self._changed = [old or new for old, new in zip(self._changed, step.changed[0].tolist())]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """(number of symbols,): unnormalised log-probabilities of the symbol that follows those read."""
        output = self.network.output
        for l, embed in enumerate(output.embeddings):
            if self._changed[l]:
                self._terms[l] = embed(self.state.h[l])
                self._changed[l] = False
        g = torch.sigmoid(output.gates(torch.cat(self.state.h, dim=-1)))  # (1, L), equation 11
        return self.network.softmax(output.combine(g, self._terms))[0]


def probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """(N,) float64 on the CPU: what symbols are drawn with.

    ``temperature`` divides the logits (0: all on the likeliest); then only the ``top_k`` likeliest stay; of those, the
    fewest whose share reaches ``top_p``.
    """
    logits = logits.detach().to("cpu", torch.float64)
    if not bool(logits.isfinite().all()):
        raise InputError("the network's outputs are not finite, so nothing can be drawn; use an earlier checkpoint")
    p, order = torch.sort(logits, descending=True, stable=True)
    if temperature == 0:
        top_k, temperature = 1, 1.0
    p = torch.softmax((p - p[0]) / temperature, dim=0)
    if top_k is not None:
        p[top_k:] = 0
    if top_p is not None:
        before = torch.cumsum(p, dim=0) - p
        p[1:][before[1:] >= top_p * p.sum()] = 0  # the likeliest stays, however small top_p is
    return torch.zeros_like(p).index_copy(0, order, p / p.sum())


def sample(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> int:
    """Draw one symbol from ``probabilities``; ``generator`` lives on the CPU."""
    drawn = torch.multinomial(probabilities(logits, temperature, top_k, top_p), 1, generator=generator)
    return int(drawn.item())


def seeded(seed: int | None) -> torch.Generator:
    """What to draw with, on the CPU: the same seed gives the same draws, None others each time."""
    checks.numbers({"seed": seed}, Integral)
    if seed is not None and not 0 <= seed < 2**63:
        raise InputError(f"seed must lie between 0 and 2**63 - 1; got {seed}")
    generator = torch.Generator()
    generator.manual_seed(generator.seed() if seed is None else int(seed))
    return generator


def stream(
    network: LanguageModel,
    prompt: Sequence[int] | np.ndarray,
    length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Iterator[int]:
    """Symbols that go on from a prompt, each as soon as it is drawn; the prompt itself is not among them.

    Args:
        network: the model.
        prompt: symbols to read first. If there are none, the first symbol is drawn from what the network says in the
            zero state, where the softmax has only its bias to go by.
        length: number of symbols to draw.
        temperature: below 1 the likely becomes likelier; 0 always takes the likeliest.
        top_k: draw from the k likeliest symbols only.
        top_p: draw from the fewest symbols that together have this probability.
        seed: the same seed gives the same symbols; None gives others each time.
    """
    checks.numbers({"length": length, "top_k": top_k}, Integral)
    checks.numbers({"temperature": temperature, "top_p": top_p}, Real)
    if length < 0:
        raise InputError(f"length must not be negative; got {length}")
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature must be 0 or more; got {temperature}")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1; got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p must lie above 0 and at most be 1; got {top_p}")
    symbols = np.asarray(prompt)
    if symbols.ndim != 1 or (len(symbols) > 0 and symbols.dtype.kind not in "iu"):
        raise InputError(f"prompt must be a sequence of whole numbers; got {symbols.dtype} of shape {symbols.shape}")
    if len(symbols) > 0 and not 0 <= symbols.min() <= symbols.max() < network.num_symbols:
        raise InputError(
            f"prompt must hold symbols between 0 and {network.num_symbols - 1}; got {symbols.min()} to {symbols.max()}"
        )
    generator = seeded(seed)

    def draw() -> Iterator[int]:
        reader = Reader(network)
        unread = symbols.tolist()
        for _ in range(length):
            for symbol in unread:
                reader.read(symbol)
            unread = [sample(reader.logits(), temperature, top_k, top_p, generator)]
            yield unread[0]

    return draw()
