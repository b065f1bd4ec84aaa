"""The one way to feed a network outside of training: chunk by chunk with :func:`read`, step by step with a Reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from hmrnn.nn.context import Condition
from hmrnn.nn.distributions import Prediction
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import Predictor, evaluating
from hmrnn.ops import State

DIVERGED = "the model's predictions are not finite: it has diverged; use an earlier checkpoint"


class Read(NamedTuple):
    """What a network made of one chunk (T, B, ...)."""

    steps: Tensor
    """The chunk itself."""
    prediction: Prediction
    """(T, B): of what follows each step."""
    output: Output
    """Boundaries, probabilities and operations, and h of every layer."""
    before: State | None
    """The state before the chunk; None for zeros."""
    state: State
    """The state after the chunk, detached."""

    @property
    def boundaries(self) -> Tensor:
        """(T, B, L-1) bool: where segments of each level end; "soft" boundaries count above one half."""
        return self.output.boundaries > 0.5

    @property
    def norms(self) -> Tensor:
        """(T, B, L): the Euclidean norm of every layer's h."""
        return torch.stack([h.float().norm(dim=-1) for h in self.output.hidden], dim=2)  # type: ignore[union-attr]


def read(
    model: Predictor,
    chunks: Iterable[Tensor],
    state: State | None = None,
    *,
    precision: str = "float32",
    gradient: bool = False,
    condition: Condition | None = None,
) -> Iterator[Read]:
    """Feed ``chunks`` one after the other, carrying the state, and yield what the network made of each.

    Args:
        model: runs as in ``eval()``; between chunks it has the mode that it had before. Its weights may change there.
        chunks: inputs (T, B, ...) on the model's device, as ``model.as_input`` gives them.
        state: the state before the first chunk; zeros if None.
        precision: "bf16" runs the network under autocast.
        gradient: keep the graph of each chunk, so that it can be differentiated; the state has none.
        condition: of the sequences at the first chunk, for a model that takes one; by default that of
            :func:`hmrnn.nn.predictor.conditioned`.
    """
    condition = model.condition if condition is None else condition
    for chunk in chunks:
        autocast = torch.autocast(chunk.device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
        with evaluating(model), torch.inference_mode(not gradient), torch.set_grad_enabled(gradient), autocast:
            prediction, output, after = model.predict(chunk, state, condition=condition)
        before, state = state, after.detach() if gradient else after
        if model.context is not None:
            condition = condition.after(len(chunk), model.config.time)
        yield Read(chunk, prediction, output, before, state)


class Reader:
    """Reads step by step and predicts what follows; a layer that copies costs nothing, neither does its output.

    ``condition`` is that of the sequences, for a model that takes one; ``state`` is that before the first step,
    if it is not the start of the sequences.

    The term Wᵉh of equation 12 is kept for each layer, and computed again only if h has changed since it was last
    needed. The network runs as in ``eval()``, whatever its mode.

    Example::

        >>> reader = Reader(model)
        >>> for symbol in prompt:
        ...     reader.read(torch.tensor([symbol]))
        >>> prediction = reader.predict()
    """

    def __init__(
        self, model: Predictor, batch: int = 1, condition: Condition | None = None, state: State | None = None
    ) -> None:
        self.model = model
        self.condition = model.condition if condition is None else condition
        with torch.no_grad():
            self.state: State = model.initial_state(batch, self.condition) if state is None else state
            self._terms = [embed(h) for embed, h in zip(model.output.embeddings, self.state.h)]
        self._changed = [False] * len(self.state.h)

    @torch.no_grad()
    def read(self, x: Tensor) -> None:
        """Take one time step: symbols (B,), or points (B, 3)."""
        step = self.model.step(x, self.state, self.condition)
        self.state = step.state
        self.condition = self.condition.after(1, self.model.config.time)
        self._changed = [old or new for old, new in zip(self._changed, step.changed.any(0).tolist())]

    @torch.no_grad()
    def predict(self) -> Prediction:
        """(B,): of what follows the steps read so far."""
        output = self.model.output
        for l, embed in enumerate(output.embeddings):
            if self._changed[l]:
                self._terms[l] = embed(self.state.h[l])
                self._changed[l] = False
        return self.model.expect(output.combine(self.state.h, self._terms))
