"""A trained model of handwriting as people use it: strokes in; segments, more strokes or a score out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.data.strokes.strokes import Scale, Strokes
from hmrnn.errors import InputError
from hmrnn.inference.evaluate_strokes import StrokeEvaluation, evaluate_strokes
from hmrnn.inference.read_strokes import segment_strokes
from hmrnn.inference.sample_strokes import write
from hmrnn.nn.models import HandwritingModel, describe
from hmrnn.utils.devices import find_device


@dataclasses.dataclass(repr=False)
class StrokeModel:
    """A handwriting model with the scale of its data and the config it was trained by; see :func:`hmrnn.load`.

    A line is an array (T, 3) of steps: Δx, Δy (y downwards), and 1 where the pen is lifted after the point.
    """

    network: HandwritingModel
    scale: Scale
    config: Config
    source: str | None = None
    """What it was loaded from."""

    def __repr__(self) -> str:
        return f"<StrokeModel {self.source or 'in memory'}: {describe(self.network)}; pen strokes>"

    def segment(self, line: np.ndarray) -> Segmentation:
        """The segments that the detectors find in a line, at every level; a point shows as o, a stroke's last as ^."""
        return self.segment_many([line])[0]

    def segment_many(self, lines: Iterable[np.ndarray], *, batch: int = 32) -> list[Segmentation]:
        """As :meth:`segment`, each line by itself, ``batch`` of similar length side by side."""
        return segment_strokes(self.network, [self._strokes(line)[0] for line in lines], self.scale, batch)

    def generate(
        self,
        points: int = 600,
        *,
        bias: float = 0.0,
        temperature: float = 1.0,
        prime: np.ndarray | None = None,
        seed: int | None = None,
    ) -> np.ndarray:
        """A line (points, 3); with ``prime`` it goes on from that line, and holds only what is new."""
        return self.sheet(1, points, bias=bias, temperature=temperature, prime=prime, seed=seed)[0]

    def sheet(
        self,
        samples: int,
        points: int = 600,
        *,
        bias: float = 0.0,
        temperature: float = 1.0,
        prime: np.ndarray | None = None,
        seed: int | None = None,
    ) -> list[np.ndarray]:
        """Several lines, as :meth:`generate` gives one."""
        start = None if prime is None else self._strokes(prime)[0]
        return write(
            self.network,
            self.scale,
            points,
            samples=samples,
            bias=bias,
            temperature=temperature,
            prime=start,
            seed=seed,
        )

    def score(self, lines: np.ndarray | Strokes) -> StrokeEvaluation:
        """Log-likelihood per sequence in nats, of one line or of a set of them, with boundary rates and updates."""
        return evaluate_strokes(self.network, lines if isinstance(lines, Strokes) else self._strokes(lines), self.scale)

    def to(self, device: str | torch.device) -> StrokeModel:
        """Move the network; returns self."""
        self.network.to(find_device(device))
        return self

    @staticmethod
    def _strokes(line: np.ndarray) -> Strokes:
        if not isinstance(line, np.ndarray) or line.ndim != 2 or line.shape[1] != 3:
            got = f"shape {line.shape}" if isinstance(line, np.ndarray) else type(line).__name__
            raise InputError(f"a line of handwriting must be an array (T, 3) of Δx, Δy and pen_up; got {got}")
        return Strokes.of([line])
