"""StrokeModel: a trained model of handwriting; strokes in; segments, more strokes or a score out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.corpus import StrokeCorpus, load_strokes
from hmrnn.kinds.strokes.evaluate import StrokeEvaluation, evaluate_strokes
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.strokes.write import write
from hmrnn.nn.checks import argument
from hmrnn.nn.predictor import conditioned
from hmrnn.pretrained.model import ConditionLike, Model, Progress
from hmrnn.reading.read import segment_many
from hmrnn.reading.sample import check_room

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(repr=False)
class StrokeModel(Model):
    """A handwriting model with the scale of its data and the config of its training; see :func:`hmrnn.load`.

    A line is an array (T, 3) of steps: Δx, Δy (y downwards), and 1 where the pen is lifted after the point.
    """

    figures = ("5",)

    network: HandwritingModel
    scale: Scale
    config: Config
    source: str | None = None
    """The name or path that it was loaded from."""

    @property
    def reads(self) -> Scale:
        return self.scale

    def segment(self, line: np.ndarray, *, condition: ConditionLike = None, progress: Progress = None) -> Segmentation:
        """The segments that the detectors find in a line, at every level.

        A point is shown as o, the last point of a stroke as ^. A line is read in one piece: ``progress`` is not called.
        """
        return self.segment_many([line], condition=condition)[0]

    def segment_many(
        self, lines: Iterable[np.ndarray], *, batch: int = 32, condition: ConditionLike = None
    ) -> list[Segmentation]:
        """As :meth:`segment`, for each line by itself; ``batch`` lines of similar length are read side by side.

        ``condition`` may be a list with one for each line.
        """
        steps = [self._strokes(line)[0] for line in lines]
        with conditioned(self.network, self.as_condition(condition, len(steps))):
            lines = [self.scale.encode(line) for line in steps]
            return segment_many(self.network, lines, self.scale.pieces, batch=argument("batch", batch, Count))

    def generate(
        self,
        points: int = 600,
        *,
        bias: float = 0.0,
        temperature: float = 1.0,
        prime: np.ndarray | None = None,
        seed: int | None = None,
        condition: ConditionLike = None,
    ) -> np.ndarray:
        """A line (points, 3). With ``prime`` it continues that line and holds only the new points.

        A model that was trained with ``model.halt`` ends the line by itself, after at most ``points``.
        """
        return self.sheet(1, points, bias=bias, temperature=temperature, prime=prime, seed=seed, condition=condition)[0]

    def sheet(
        self,
        samples: int,
        points: int = 600,
        *,
        bias: float = 0.0,
        temperature: float = 1.0,
        prime: np.ndarray | None = None,
        seed: int | None = None,
        condition: ConditionLike = None,
        progress: Progress = None,
    ) -> list[np.ndarray]:
        """Several lines, as :meth:`generate` gives one; ``condition`` may be a list with one for each."""
        start = None if prime is None else self._strokes(prime)[0]
        check_room(self.network, samples, points, "points")
        return write(
            self.network,
            self.scale,
            points,
            samples=samples,
            bias=bias,
            temperature=temperature,
            prime=start,
            seed=seed,
            condition=self.as_condition(condition, samples, (0 if start is None else len(start) - 1) + points),
            progress=progress,
        )

    def score(
        self, lines: np.ndarray | Strokes, *, condition: ConditionLike = None, progress: Progress = None
    ) -> StrokeEvaluation:
        """Log-likelihood per sequence in nats, of a line or a set of them; boundary rates, updates, multiply-adds."""
        strokes = lines if isinstance(lines, Strokes) else self._strokes(lines)
        with conditioned(self.network, self.as_condition(condition, len(strokes))):
            return evaluate_strokes(self.network, strokes, self.scale, progress=progress).checked()

    def figure(self, name: str, line: np.ndarray, found: Segmentation, levels: Iterable[int] = ()) -> Figure:
        """Figure 5 for the segments found in ``line``, at the given levels or at all."""
        from hmrnn.kinds.strokes.figures import figure5

        return figure5(line, found, levels=tuple(levels) or range(1, found.levels + 1))

    def corpus(self, path: tuple[str, ...] = (), progress: Progress = None) -> StrokeCorpus:
        """The corpus that it was trained on, which may have moved to ``path``."""
        corpus = load_strokes(self.data(path), progress)
        known, found = (msgspec.structs.astuple(scale) for scale in (self.scale, corpus.spec))
        if not np.allclose(found, known, rtol=1e-9, atol=0):
            raise InputError(
                f"{corpus.name} has another scale than the model: its lines, their names or their split are not those "
                "that the model was trained on"
            )
        return corpus

    @staticmethod
    def _strokes(line: np.ndarray) -> Strokes:
        if not isinstance(line, np.ndarray) or line.ndim != 2 or line.shape[1] != 3:
            got = f"shape {line.shape}" if isinstance(line, np.ndarray) else type(line).__name__
            got += ", of which strokes[0] is the first line" if isinstance(line, Strokes) else ""
            raise InputError(f"a line of handwriting must be an array (T, 3) of Δx, Δy and pen_up; got {got}")
        return Strokes.of([line])
