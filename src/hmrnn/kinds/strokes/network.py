"""HandwritingModel: predicts the next movement of a pen."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from hmrnn.config import DetectorConfig
from hmrnn.kinds.strokes.mixture import DRAWS, FLOOR, MAX_CORRELATION, POINT_SIZE, Halting, StrokeMixture, head_size
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.nn.checks import check_lengths
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import Draws, Predictor
from hmrnn.ops.interface import within


class HandwritingModel(Predictor):
    """A recurrent network that predicts the next pen movement from those so far, by a mixture density.

    A point is (Δx, Δy, pen_up) in normalised coordinates. There is no embedding: ``config.embedding_size`` is unused.

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
        super().__init__(config, POINT_SIZE, engine=engine, detectors=detectors)
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
