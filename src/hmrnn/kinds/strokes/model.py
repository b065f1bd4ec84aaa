"""StrokeModel: a trained model of handwriting; strokes in; segments, more strokes or a score out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.strokes.evaluate import StrokeEvaluation, evaluate_strokes
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.strokes import Scale, StrokeCorpus, Strokes, joined
from hmrnn.kinds.strokes.window import encode_texts
from hmrnn.kinds.strokes.write import write
from hmrnn.nn.checks import argument
from hmrnn.nn.context import Condition
from hmrnn.nn.predictor import conditioned
from hmrnn.pretrained.model import ConditionLike, Model
from hmrnn.reading.read import segment_many
from hmrnn.reading.sample import check_room

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_POINTS = 80
"""Points of a line that is written, for each letter of its text; it then ends where it is."""


class Written(NamedTuple):
    """A line that was written."""

    steps: np.ndarray
    """(T, 3): Δx, Δy and 1 where the pen is lifted after the point."""
    letters: np.ndarray
    """(T,): the place in the text of the letter that each point belongs to."""


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

    def segment(
        self, line: np.ndarray | Strokes, *, condition: ConditionLike = None, progress: Progress = None
    ) -> Segmentation:
        """The segments that the detectors find in a line, at every level.

        A point is shown as o, the last point of a stroke as ^. A line is read in one piece: ``progress`` is not called.
        A model that writes texts reads what the line says, so give it as :class:`Strokes`, with its text.
        """
        return self.segment_many(self._strokes(line), condition=condition)[0]

    def segment_many(
        self, lines: Strokes | Iterable[np.ndarray], *, batch: int = 32, condition: ConditionLike = None
    ) -> list[Segmentation]:
        """As :meth:`segment`, for each line by itself; ``batch`` lines of similar length are read side by side.

        ``condition`` may be a list with one for each line.
        """
        strokes = lines if isinstance(lines, Strokes) else joined([self._strokes(line) for line in lines])
        with conditioned(self.network, self._told(strokes, condition)):
            encoded = [self.scale.encode(line) for line in strokes]
            return segment_many(self.network, encoded, self.scale.pieces, batch=argument("batch", batch, Count))

    def generate(
        self,
        points: int = 600,
        *,
        bias: float = 0.0,
        temperature: float = 1.0,
        prime: np.ndarray | None = None,
        seed: int | None = None,
        condition: ConditionLike = None,
        progress: Progress = None,
    ) -> np.ndarray:
        """A line (points, 3), with the options of :meth:`sheet`."""
        return self.sheet(
            1, points, bias=bias, temperature=temperature, prime=prime, seed=seed, condition=condition,
            progress=progress,
        )[0]  # fmt: skip

    def sheet(
        self,
        samples: int,
        points: int = 600,
        *,
        prime: np.ndarray | None = None,
        condition: ConditionLike = None,
        **how: Any,
    ) -> list[np.ndarray]:
        """Lines (points, 3); ``condition`` may be a list with one for each.

        With ``prime`` they continue that line and hold only the new points. A model that was trained with
        ``model.halt`` ends each line by itself, after at most ``points``. The other options are those of
        :func:`hmrnn.kinds.strokes.write.write`.
        """
        if self.network.window is not None:
            raise InputError("must be given, as this model writes a text (in Python: model.write)", setting="text")
        start = None if prime is None else self._strokes(prime)[0]
        check_room(self.network, samples, points, "points")
        told = self.as_condition(condition, samples, (0 if start is None else len(start) - 1) + points)
        return write(self.network, self.scale, points, samples=samples, prime=start, condition=told, **how)

    def score(
        self, lines: np.ndarray | Strokes, *, condition: ConditionLike = None, progress: Progress = None
    ) -> StrokeEvaluation:
        """Log-likelihood per sequence in nats, of a line or a set of them; boundary rates, updates, multiply-adds."""
        strokes = self._strokes(lines)
        with conditioned(self.network, self.as_condition(condition, len(strokes))):
            return evaluate_strokes(self.network, strokes, self.scale, progress=progress).checked()

    def write(
        self,
        text: str,
        *,
        style: Strokes | None = None,
        bias: float = 1.0,
        temperature: float = 1.0,
        seed: int | None = None,
        condition: ConditionLike = None,
        progress: Progress = None,
    ) -> Written:
        """A line that says ``text``, with the options of :meth:`write_many`."""
        return self.write_many(
            [text], style=style, bias=bias, temperature=temperature, seed=seed, condition=condition, progress=progress
        )[0]

    def write_many(
        self,
        texts: Sequence[str],
        *,
        style: Strokes | None = None,
        bias: float = 1.0,
        temperature: float = 1.0,
        seed: int | None = None,
        condition: ConditionLike = None,
        progress: Progress = None,
    ) -> list[Written]:
        """A line for each text, side by side, in a hand of its own or in that of ``style``, a line with its text.

        The model must have been trained with ``model.window``; with ``model.halt`` it ends each line by itself.
        """
        if self.network.window is None:
            raise InputError("this model cannot write a text; train one with model.window soft")
        texts = argument("texts", texts, Sequence[str])
        if not texts or not all(text.strip() for text in texts):
            raise InputError("a text to write must have a letter", setting="text")
        start = None if style is None else self._strokes(style)
        if start is not None and not (start.texts and start.texts[0]):
            raise InputError("must be a line with its text", setting="style")
        before = "" if start is None else f"{start.texts[0].strip()} "
        said = self.as_texts([before + text for text in texts])
        points = MOST_POINTS * max(map(len, texts))
        check_room(self.network, len(texts), points, "points")
        told = self.to_write(said, condition)
        prime = np.zeros((1, 3)) if start is None else start[0]
        lines = write(
            self.network, self.scale, points, samples=len(texts), bias=bias, temperature=temperature, prime=prime,
            seed=seed, condition=told, progress=progress,
        )  # fmt: skip
        shown = self._letters([np.concatenate([prime, line]) for line in lines], said)
        return [
            Written(line, np.maximum(letters[len(prime) :] - len(before), 0)) for line, letters in zip(lines, shown)
        ]

    def to_write(self, said: Tensor, condition: ConditionLike = None) -> Condition:
        """What the network is told to write encoded texts; of classes, the first if none is given."""
        classes = self.config.model.classes
        if condition is None and self.network.condition.value is None and classes:
            condition = classes[0]
        return self.as_condition(condition, len(said))._replace(text=said)

    def letters(self, lines: np.ndarray | Strokes) -> list[np.ndarray]:
        """For each point of lines with their texts, the place in the text of the letter that the window shows."""
        strokes = self._strokes(lines)
        return self._letters(strokes, self.as_texts(strokes.texts, replace=True))

    def as_texts(self, texts: Sequence[str], *, replace: bool = False) -> Tensor:
        """(B, U): texts as the network takes them; InputError if there are none.

        A letter that it never saw is an error, too, or with ``replace`` shown as nothing, as in training.
        """
        if not texts:
            raise InputError("this model reads what a line says beside its strokes; give lines with their texts")
        encoded = encode_texts(texts, self.config.model.alphabet, replace=replace)
        return torch.from_numpy(encoded).to(next(self.network.parameters()).device)

    def _letters(self, lines: Sequence[np.ndarray], said: Tensor) -> list[np.ndarray]:
        """A point belongs to the letter that is shown after the point before it."""
        found = []
        for line, text in zip(lines, said):
            steps = self.network.as_input(self.scale.encode(line))[:, None]
            shown, _ = self.network.letters(steps, Condition(text=text[None]))
            found.append(shown[:, 0].cpu().numpy()[np.maximum(np.arange(len(line)) - 1, 0)])
        return found

    def figure(self, name: str, line: np.ndarray | Strokes, found: Segmentation, levels: Iterable[int] = ()) -> Figure:
        """Figure 5 for the segments found in ``line``, at the given levels or at all."""
        from hmrnn.kinds.strokes.figures import figure5

        given = self._strokes(line)
        letters = self.letters(given)[0] if self.network.window is not None else None
        return figure5(given[0], found, levels=tuple(levels) or range(1, found.levels + 1), letters=letters)

    def corpus(self, path: tuple[str, ...] = (), progress: Progress = None) -> StrokeCorpus:
        corpus: StrokeCorpus = super().corpus(path, progress)
        known, found = (msgspec.structs.astuple(scale) for scale in (self.scale, corpus.spec))
        if not np.allclose(found, known, rtol=1e-9, atol=0):
            raise InputError(
                f"{corpus.name} has another scale than the model: its lines, their names or their split are not those "
                "that the model was trained on"
            )
        return corpus

    def _told(self, strokes: Strokes, condition: ConditionLike) -> Condition:
        """What the network is told of lines: their conditions, unless one is given, and, with a window, their texts."""
        if condition is None and self.network.condition.value is None and self.config.model.conditioned:
            condition = list(strokes.conditions) or None
        given = self.as_condition(condition, len(strokes))
        return given if self.network.window is None else given._replace(text=self.as_texts(strokes.texts, replace=True))

    @staticmethod
    def _strokes(line: np.ndarray | Strokes) -> Strokes:
        if isinstance(line, Strokes):
            return line
        if not isinstance(line, np.ndarray) or line.ndim != 2 or line.shape[1] != 3:
            got = f"shape {line.shape}" if isinstance(line, np.ndarray) else type(line).__name__
            raise InputError(f"a line of handwriting must be an array (T, 3) of Δx, Δy and pen_up; got {got}")
        return Strokes.of([line])
