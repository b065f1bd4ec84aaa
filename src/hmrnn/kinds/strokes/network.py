"""HandwritingModel: predicts the next movement of a pen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.mixture import DRAWS, FLOOR, MAX_CORRELATION, POINT_SIZE, Halting, StrokeMixture, head_size
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.strokes.window import Place, Window
from hmrnn.nn.context import Condition
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import Draws, Predictor
from hmrnn.nn.recurrent import check_lengths, check_tensor
from hmrnn.ops import State, Step
from hmrnn.ops.interface import within
from hmrnn.ops.native import window as native


class HandwritingModel(Predictor):
    """A recurrent network that predicts the next pen movement from those so far, by a mixture density.

    A point is (Δx, Δy, pen_up) in normalised coordinates. There is no embedding: ``config.embedding_size`` is unused.
    With ``config.window`` the network is told what each line says, as ``Condition.text``, and after the h of its layers
    the state has the two of the window.

    Args:
        config: sizes and options; ``mixtures`` is the number of Gaussians.
        engine: the implementation of the recurrence.
        detectors: how the detectors of "hm-lstm" decide.

    Example::

        >>> model = HandwritingModel(StrokeModelConfig(hidden_size=(64,), output_size=64, mixtures=5))
        >>> mixture, out, state = model(torch.randn(100, 8, 3))
        >>> mixture.means.shape
        torch.Size([100, 8, 5, 2])
    """

    config: StrokeModelConfig
    step_shape: ClassVar[tuple[int, ...]] = (POINT_SIZE,)

    def __init__(
        self, config: StrokeModelConfig, *, engine: str = "auto", detectors: DetectorConfig | None = None
    ) -> None:
        window = None
        if config.window != "none":
            sizes = config.hidden_size[0], config.window_width, config.window_components, config.window_points
            window = Window(len(config.alphabet), *sizes, config.window == "detector")
        beside = window.sizes if window else ()
        super().__init__(config, POINT_SIZE + sum(beside), engine=engine, detectors=detectors, beside=beside)
        self.window = window
        self.density = nn.Linear(self.output.size, head_size(config.mixtures) + config.halt)

    def expect(self, embedding: Tensor) -> StrokeMixture | Halting:
        """The prediction from an output embedding (..., output_size); in float32 under autocast, too."""
        with torch.autocast(embedding.device.type, enabled=False):
            vector = self.density(embedding.to(self.density.weight.dtype))
            if self.config.halt:
                return Halting(StrokeMixture.from_vector(vector[..., :-1]), vector[..., -1])
            return StrokeMixture.from_vector(vector)

    def draws(self, temperature: float = 1.0, bias: float = 0.0) -> Draws | None:
        if type(self).expect is not HandwritingModel.expect:
            return None
        halts = int(self.config.halt)
        choices, reals = (1, self.config.mixtures, halts), (temperature, bias, 1.0, FLOOR, MAX_CORRELATION)
        return Draws(self.density, DRAWS + halts, POINT_SIZE + halts, choices, reals)

    def predict(
        self,
        x: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
        condition: Condition | None = None,
    ) -> tuple[StrokeMixture | Halting, Output, State]:
        if self.window is None:
            return super().predict(x, state, lengths, boundaries, condition)
        check_tensor("x", x, ("T", "B", *self.step_shape))
        condition = self._conditioned(condition, x.shape[:2])
        state = self.initial_state(x.shape[1], condition) if state is None else state
        place, below = self._parts(state)
        h, read, _, place = self.window(x, self._text(condition), place)
        inputs = self.context(torch.cat([x, h, read], dim=-1), condition)
        out, end = self.rnn(inputs, below, lengths, boundaries)
        return self.expect(self.output((*out.hidden, h, read))), out, _joined(end, place)

    def step(self, x: Tensor, state: State, condition: Condition | None = None) -> Step:
        if self.window is None:
            return super().step(x, state, condition)
        condition = self._conditioned(condition, x.shape[:1])
        place, below = self._parts(state)
        h, read, _, place = self.window(x[None], self._text(condition), place)
        inputs = self.context(torch.cat([x[None], h, read], dim=-1), condition)
        step = self.rnn.step(inputs[0], below)
        changed = torch.cat([step.changed, step.changed.new_ones(len(x), 2)], dim=1)
        return step._replace(state=_joined(step.state, place), changed=changed)

    def prepared(self, x: Tensor, state: State, condition: Condition) -> tuple[Tensor, Any, list[Any]]:
        if self.window is None:
            return super().prepared(x, state, condition)
        condition = self._conditioned(condition, x.shape[:2])
        place, _ = self._parts(state)
        inputs = self.context(F.pad(x, (0, sum(self.window.sizes))), condition).contiguous()
        made = native.Pass(*self.window.given(inputs, self._text(condition)), *place)
        h, read, _, c, at = made.made[:5]
        return inputs, made, [place, *map(Place, h, read, c, at)]

    def initial_state(self, batch_size: int, condition: Condition | None = None) -> State:
        state = super().initial_state(batch_size, condition)
        return state if self.window is None else _joined(state, self.window.start(batch_size))

    @torch.no_grad()
    def letters(self, x: Tensor, condition: Condition, place: Place | None = None) -> tuple[Tensor, Place]:
        """After each point (T, B, 3), the place (T, B) in the text of the letter that the window shows."""
        assert self.window is not None
        text = self._text(self._conditioned(condition, x.shape[:2]))
        _, _, shown, place = self.window(x, text, self.window.start(x.shape[1]) if place is None else place)
        return shown.masked_fill(text == 0, -1).argmax(-1).cummax(0).values, place  # at the end it may show none

    @torch.no_grad()
    def ends(self, drawn: Tensor, state: State, condition: Condition | None) -> Tensor:
        """(B,): whether lines end with points (B, 4) drawn after ``state``.

        One that says a text ends at a halt at the last letter, or where the pen is lifted beyond it.
        """
        halts = drawn[:, POINT_SIZE] > 0
        if self.window is None:
            return halts
        text = self._text(self._conditioned(condition, drawn.shape[:1]))
        past = self.window.past(self._parts(state)[0], text).cpu()
        return halts & (past > -0.5) | (drawn[:, POINT_SIZE - 1] > 0) & (past > 0.5)

    def example(self, B: int) -> tuple[Tensor, Condition]:
        x, condition = super().example(B)
        return x, condition if self.window is None else condition._replace(text=torch.ones(B, 16, dtype=torch.int64))

    def beside(self, state: State, condition: Condition) -> dict[str, Tensor]:
        return {} if self.window is None else {"past": self.window.past(self._parts(state)[0], self._text(condition))}

    def _parts(self, state: State) -> tuple[Place, State]:
        """The place of the window and the state of the layers."""
        L = self.rnn.num_layers
        place = Place(*state.h[L:], *state.c[L:])
        return place, state._replace(h=state.h[:L], c=state.c[:L])

    def _text(self, condition: Condition) -> Tensor:
        if condition.text is None:
            raise InputError("this model writes a text, and reads what a line says beside its strokes; give the text")
        return condition.text

    def _conditioned(self, condition: Condition | None, shape: Sequence[int]) -> Condition:
        condition = self.condition if condition is None else condition
        if self.window is None:
            return super()._conditioned(condition, shape)
        text, rest = condition.text, super()._conditioned(condition._replace(text=None), shape)
        return rest._replace(text=text if text is None or text.shape[0] > 1 else text.expand(shape[-1], -1))

    def log_likelihood(self, points: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Output]:
        """(T-1, B): the log-density in nats of each point (T, B, 3) but the first, given those before it; 0 in padding.

        ``lengths`` (B,) counts points. Padding comes last and is read, too; nothing before it depends on it.
        """
        if lengths is not None and lengths.device.type == "cpu":  # on a GPU the check would wait for it
            check_lengths(lengths, len(points), points.shape[1], lengths.device)
        mixture, out, _ = self(points[:-1])
        result = mixture.log_prob(points[1:])
        if lengths is None:
            return result, out
        counted = within(lengths, len(points))[1:]  # (T-1, B)
        return torch.where(counted, result, 0.0), out


def _joined(state: State, place: Place) -> State:
    """The state of the layers with that of the window after it."""
    return state._replace(h=(*state.h, place.h, place.read), c=(*state.c, place.c, place.at))
