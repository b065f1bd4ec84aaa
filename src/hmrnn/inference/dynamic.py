"""Dynamic evaluation (Krause et al., 2018): while a text is read, the weights follow the gradient of what was read.

Every symbol is still predicted before it is seen: a segment is predicted with weights that know only the segments
before it, and its own gradient changes them afterwards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.inference.evaluate import Evaluation, Note, Sums
from hmrnn.nn.models import LanguageModel, evaluating
from hmrnn.ops import State

CLIP_NORM = 1.0
"""The norm that the gradient of a segment is cut down to: one odd passage must not spoil the weights for all others."""
DAMPING = 0.1
"""Added to the root mean square that a gradient is divided by, as a share of what a clipped gradient has on average."""


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """How the weights follow the text."""

    learning_rate: float = 0.0003
    """How far a weight goes for a gradient of the size that it has had so far."""
    decay: float = 0.003
    """Share of the way back to the trained weights that they go after each segment."""
    segment_length: int = 100
    """Symbols of a segment: the weights change after each, and the gradient goes back no further."""

    def check(self) -> None:
        """InputError unless the settings make sense."""
        if not 0 <= self.learning_rate < math.inf:
            raise InputError(f"the learning rate must be 0 or more; got {self.learning_rate}")
        if not 0 <= self.decay <= 1:
            raise InputError(f"decay must lie between 0 and 1; got {self.decay}")
        if self.segment_length < 1:
            raise InputError(f"segment length must be at least 1; got {self.segment_length}")


@dataclasses.dataclass(frozen=True)
class DynamicEvaluation(Evaluation):
    """What a model makes of a text that it learns from while it reads."""

    skipped: int
    """Segments whose gradient was not finite; the weights did not follow these."""


def evaluate_dynamic(
    network: LanguageModel,
    symbols: np.ndarray,
    dynamic: Dynamic | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> DynamicEvaluation:
    """Evaluate one stream while the weights follow the text; they are restored afterwards."""
    with torch.inference_mode(False):  # as the passes are that add to it
        total = Sums(network)
    skipped = read_dynamically(network, symbols, total.add, dynamic or Dynamic(), progress=progress)
    return DynamicEvaluation(**vars(total.evaluation()), skipped=skipped)


def read_dynamically(
    network: LanguageModel,
    symbols: np.ndarray,
    note: Note,
    dynamic: Dynamic,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Read a text in segments and tell ``note`` of each before the weights follow it; how many were not followed."""
    dynamic.check()
    n = len(symbols) - 1
    if n < 1:
        raise InputError(f"a text to evaluate must hold at least 2 symbols; got {len(symbols)}")
    device = network.softmax.weight.device
    state: State | None = None
    with _borrowed(network) as (parameters, trained):
        follower = _Follower(parameters, trained, dynamic)
        for begin in range(0, n, dynamic.segment_length):
            at = np.arange(begin, min(begin + dynamic.segment_length, n))[:, None]  # (T, 1)
            inputs, targets = (torch.from_numpy(symbols[at + k].astype(np.int64)).to(device) for k in (0, 1))
            logits, out, state = network(inputs, state)
            state = state.detach()
            losses = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none").view_as(targets)
            with torch.no_grad():
                note(at, logits.detach().float(), losses.detach(), out, torch.ones_like(targets, dtype=torch.bool))
            follower.follow(torch.autograd.grad(losses.mean(), parameters, materialize_grads=True))
            if progress is not None:
                progress(begin + len(at), n)
        return follower.segments - int(follower.followed)


class _Follower:
    """Moves parameters, in place and without waiting for the device.

    A gradient is divided by the root mean square of those so far, weight by weight: Krause et al. take the mean over
    the training text, which one who evaluates may not have.
    """

    def __init__(self, parameters: Sequence[Tensor], trained: Sequence[Tensor], dynamic: Dynamic) -> None:
        self.parameters, self.trained, self.dynamic = parameters, trained, dynamic
        self.squares = [torch.zeros_like(p) for p in parameters]
        self.damping = DAMPING * CLIP_NORM / math.sqrt(sum(p.numel() for p in parameters))
        self.segments = 0
        self.followed = torch.zeros((), dtype=torch.int64, device=parameters[0].device)

    @torch.no_grad()
    def follow(self, gradients: tuple[Tensor, ...]) -> None:
        """Descend, unless the gradient is not finite, and decay to the trained weights."""
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        good, clipped = norm.isfinite(), (CLIP_NORM / norm).clamp(max=1.0)
        self.segments += 1
        self.followed += good
        for p, start, squares, gradient in zip(self.parameters, self.trained, self.squares, gradients):
            gradient = torch.where(good, clipped * gradient, torch.zeros_like(p))
            squares.addcmul_(gradient, gradient)
            size = (squares / self.followed.clamp(min=1)).sqrt_().add_(self.damping)
            p.addcdiv_(gradient, size, value=-self.dynamic.learning_rate)
            p.lerp_(start, self.dynamic.decay)


@contextmanager
def _borrowed(network: LanguageModel) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The parameters, to be changed in place, and copies of them; whatever happens, the network is put back after."""
    parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise InputError(
            "all parameters of this network are frozen, so none can follow the text; free some by "
            "requires_grad_(True), or read it with evaluate"
        )
    trained = [p.detach().clone() for p in parameters]
    try:
        with evaluating(network), torch.inference_mode(False), torch.enable_grad():
            yield parameters, trained
    finally:
        with torch.no_grad():
            for p, start in zip(parameters, trained):
                p.copy_(start)
