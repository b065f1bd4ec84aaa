"""Predictions: the distribution of what follows each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError


class Prediction(Protocol):
    """Distributions of what follows, one for each step (T, B), or for any other leading dimensions.

    One that detectors can be pulled to where it is uncertain has ``entropy()``, too: (T, B), in nats.
    """

    def log_prob(self, x: Tensor) -> Tensor:
        """(T, B): the log-probability or log-density of ``x``, in nats."""
        ...

    @property
    def sample(self) -> Callable[..., Tensor]:
        """``sample(generator, temperature=1.0, ...)``: one draw from each, on the CPU, where ``generator`` has to be.

        ``temperature`` raises every probability to the power 1/temperature; 0 takes the likeliest. Further options
        depend on the kind of prediction. InputError if the network has diverged.
        """
        ...

    def next_input(self, drawn: Tensor) -> Tensor:
        """What the network reads at the next step of what :meth:`sample` gave."""
        ...

    def draw(self) -> Tensor:
        """(T, B, ...): an input drawn from each, on its device and from torch's generator of it."""
        ...


class Categorical(NamedTuple):
    """The distribution of the next symbol; any leading dimensions, N symbols."""

    logits: Tensor
    """(..., N)"""

    def log_prob(self, x: Tensor) -> Tensor:
        """(...): nats of the symbols ``x`` (...)."""
        logits = self.logits if self.logits.dtype == torch.float64 else self.logits.float()
        return -F.cross_entropy(logits.reshape(-1, logits.shape[-1]), x.flatten(), reduction="none").view_as(x)

    def entropy(self) -> Tensor:
        """(...): nats."""
        log_p = torch.log_softmax(self.logits.float(), dim=-1)
        return -(log_p.exp() * log_p).sum(-1)

    def probabilities(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Tensor:
        """(..., N) float64 on the CPU: the probabilities that :meth:`sample` draws with.

        The logits are divided by ``temperature``; then only the ``top_k`` likeliest symbols stay; of those, the fewest
        whose share reaches ``top_p``.
        """
        [logits] = for_draws(self)
        p, order = torch.sort(logits, dim=-1, descending=True, stable=True)
        if temperature == 0:
            top_k, temperature = 1, 1.0
        p = torch.softmax((p - p[..., :1]) / temperature, dim=-1)
        if top_k is not None:
            p[..., top_k:] = 0
        if top_p is not None:
            before = torch.cumsum(p, dim=-1) - p
            before[..., 0] = -1.0  # the likeliest stays, however small top_p is
            p[before >= top_p * p.sum(-1, keepdim=True)] = 0
        return torch.zeros_like(p).scatter(-1, order, p / p.sum(-1, keepdim=True))

    def sample(
        self,
        generator: torch.Generator | None = None,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Tensor:
        """(...): one symbol from each, drawn with :meth:`probabilities`."""
        p = self.probabilities(temperature, top_k, top_p)
        return choose(p, torch.rand(p.shape[:-1], dtype=p.dtype, generator=generator))

    def next_input(self, drawn: Tensor) -> Tensor:
        """The symbols themselves."""
        return drawn

    def draw(self) -> Tensor:
        """(...): one symbol from each, on the device of the logits."""
        return gumbel_argmax(self.logits.float())


def choose(p: Tensor, uniform: Tensor) -> Tensor:
    """(...): the first of the shares p (..., N) whose sum with those before it exceeds the part ``uniform`` of all."""
    sums = p.cumsum(-1)
    return (sums <= uniform[..., None] * sums[..., -1:]).sum(-1)


def gumbel_argmax(logits: Tensor) -> Tensor:
    """(...): an index drawn from each softmax of logits (..., N), by torch's generator of their device."""
    return (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)


def for_draws(parts: Iterable[Tensor]) -> list[Tensor]:
    """The parts of a prediction in float64 on the CPU; InputError if one is not finite."""
    moved = [part.detach().to("cpu", torch.float64) for part in parts]
    check_drawn(*moved)
    return moved


def check_drawn(*parts: Tensor) -> None:
    """InputError if one of them is not finite."""
    if not all(bool(part.isfinite().all()) for part in parts):
        raise InputError(
            "the network's outputs are not finite, so nothing can be drawn: this model has diverged; use an earlier "
            "checkpoint"
        )
