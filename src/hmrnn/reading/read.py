"""The one way to feed a network outside of training, and to find segments by it.

:func:`read` goes chunk by chunk and a :class:`Reader` step by step; :func:`segment_many` gives a Segmentation for each
of several sequences, :func:`follow` for each chunk of one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.nn.context import Condition
from hmrnn.nn.distributions import Prediction
from hmrnn.nn.hmlstm import hmlstms
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import Predictor, evaluating, multiply_adds
from hmrnn.nn.recurrent import autocast
from hmrnn.ops import State


class Read(NamedTuple):
    """What a network made of one chunk (T, B, ...)."""

    steps: Tensor
    """The chunk itself."""
    prediction: Any
    """(T, B): a Prediction of what follows each step."""
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
        products = autocast(precision, chunk.device)
        with evaluating(model), torch.inference_mode(not gradient), torch.set_grad_enabled(gradient), products:
            prediction, output, after = model.predict(chunk, state, condition=condition)
        before, state = state, after.detach() if gradient else after
        condition = condition.after(len(chunk), model.config.time) if model.context.used else condition
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


def check_finite(finite: bool) -> None:
    """InputError unless the predictions of a model are ``finite``."""
    if not finite:
        raise InputError("the model's predictions are not finite: it has diverged; use an earlier checkpoint")


@torch.inference_mode()
def measured(model: Predictor, made: Read) -> list[np.ndarray]:
    """What a network made of a chunk, as the arrays of a Segmentation, each (T, B, ...).

    Of the layers there are those that have a detector, and the one above. The bits of a sequence's first step are NaN.
    InputError if others are not finite.
    """
    nats = -made.prediction.log_prob(made.steps.roll(-1, dims=0))  # nothing follows the last
    first = torch.full_like(nats[:1], math.nan)
    if made.before is not None:
        with evaluating(model):
            first = -model.expect(model.output([h[None] for h in made.before.h])).log_prob(made.steps[:1])
    bits = torch.cat([first, nats[:-1]]) / math.log(2)
    check_finite(bool(bits[made.before is None :].isfinite().all()))
    out = made.output
    counted = multiply_adds(model, out, made.before)
    layers = model.rnn.num_boundaries + 1
    done = (out.operations[..., :layers], made.norms[..., :layers])
    arrays = (made.boundaries, out.probabilities.float(), *done, bits, counted)
    return [array.cpu().numpy() for array in arrays]


def follow(
    model: Predictor,
    chunks: Iterable[Tensor],
    pieces: Callable[[np.ndarray], Sequence[str]],
    state: State | None = None,
    *,
    condition: Condition | None = None,
) -> Iterator[tuple[Segmentation, Read]]:
    """As :func:`read`, with what the network found in each chunk (T, 1, ...) of one sequence.

    ``pieces`` gives the strings of its steps (T, ...).
    """
    for made in read(model, chunks, state, condition=condition):
        shown = pieces(made.steps[:, 0].cpu().numpy())
        yield Segmentation(tuple(shown), *(array[:, 0] for array in measured(model, made))), made


def on_time(parts: Iterable[Segmentation], late: int) -> Iterator[Segmentation]:
    """Consecutive parts of a sequence whose lowest detector fires ``late`` steps (0 or 1) after the end of a segment.

    Its ends are moved back by as many: at the last step of a part they show when the next one is known.
    """
    if not late:
        yield from parts
        return
    before: Segmentation | None = None
    for part in itertools.chain(parts, [None]):
        if before is not None:
            ahead = before[-1:] if part is None else part[:1]
            moved: dict[str, Any] = {}
            for name in ("boundaries", "probabilities"):
                mine = getattr(before, name)
                after = np.concatenate([mine[1:], getattr(ahead, name)])
                moved[name] = np.concatenate([after[:, :1], mine[:, 1:]], axis=1)
            yield dataclasses.replace(before, **moved)
        before = part


def check_detectors(model: Predictor) -> None:
    """InputError for a network of a kind that finds no segments."""
    if not (model.rnn.num_boundaries or hmlstms(model.rnn)):
        raise InputError(
            "a network without detectors finds no segments; train hm-lstm instead",
            setting="model.rnn",
            value=model.config.rnn,
        )


def segment_many(
    model: Predictor,
    sequences: Sequence[Sequence[int] | np.ndarray],
    pieces: Callable[[np.ndarray], Sequence[str]],
    *,
    batch: int = 32,
    chunk: int = 512,
    prime: Sequence[int] | np.ndarray = (),
    late: int | None = None,
    progress: Progress = None,
) -> list[Segmentation]:
    """Read each sequence by itself from the zero state, and report what the network found in it.

    Sequences are indices (T,) of the symbols of a text, or normalised points (T, 3); ``pieces`` gives the T strings of
    one, the steps as they are displayed. ``batch`` of similar length are read side by side, ``chunk`` steps per pass,
    which bounds the memory and changes no result. ``progress`` is called with the steps done and their total. The bits
    of points are -log2 of densities in normalised coordinates, and may be negative.

    ``prime`` are steps that are read before every sequence, and are not part of the result. ``late`` is the
    number of steps (0 or 1) by which the lowest detector fires after the end of a segment, by default that of the
    network; its ends are moved back by as many.
    By :func:`hmrnn.nn.predictor.conditioned` a model may be given one condition for all sequences, or one each.
    """
    check_detectors(model)
    late = model.rnn.late if late is None else late
    inputs = [_checked(model, sequence) for sequence in sequences]
    found: dict[int, Segmentation] = {}
    done, total, first = 0, sum(map(len, inputs)), len(prime)
    if first:
        before = model.as_input(np.asarray(prime))
        inputs = [torch.cat([before, sequence]) for sequence in inputs]
    order = sorted(range(len(inputs)), key=lambda place: len(inputs[place]))
    for places in (order[k : k + batch] for k in range(0, len(order), batch)):
        group = [inputs[place] for place in places]
        steps = torch.nn.utils.rnn.pad_sequence(group)  # (T, B, ...)
        parts = []
        condition = model.condition
        if any(given is not None for given in condition):
            condition = condition.chosen(places)
        if model.config.time != "none":
            left = torch.tensor([len(sequence) for sequence in group]) if model.config.time == "left" else None
            condition = condition._replace(clock=left)
        for start, made in zip(range(0, len(steps), chunk), read(model, steps.split(chunk), condition=condition)):
            parts.append(measured(model, made))
            if progress is not None:
                progress(done + sum(max(0, min(start + chunk, len(each)) - first) for each in group), total)
        done += sum(len(sequence) - first for sequence in group)
        whole = [np.concatenate(pieces) for pieces in zip(*parts)]
        for b, place in enumerate(places):
            # Padding comes last: nothing before it depends on it.
            each = Segmentation(
                tuple(pieces(np.asarray(sequences[place]))), *(array[first : len(group[b]), b] for array in whole)
            )
            [found[place]] = on_time([each], late)
    return [found[place] for place in range(len(inputs))]


def _checked(model: Predictor, sequence: Sequence[int] | np.ndarray) -> Tensor:
    array = np.asarray(sequence)
    if array.ndim == 0 or len(array) == 0 or array.shape[1:] != model.step_shape:
        expected = ", ".join(map(str, ("T", *model.step_shape)))
        raise InputError(f"a sequence must have shape ({expected}) with T at least 1; got {array.shape}")
    return model.as_input(array)
