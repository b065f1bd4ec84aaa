"""Models of labelled sequences, as ``hmrnn.load`` returns them: one for each kind of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import Config
from hmrnn.kinds.labels.answers.base import checked
from hmrnn.kinds.labels.answers.classes import Classes, Pairs
from hmrnn.kinds.labels.answers.numbers import NumberScores
from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import Examples, check_weights, forecast_examples
from hmrnn.kinds.labels.decision import Decision
from hmrnn.kinds.labels.encoder import LabelEncoder
from hmrnn.kinds.labels.evaluate import evaluate_labelled
from hmrnn.kinds.labels.networks import Answered, SequenceModel
from hmrnn.kinds.labels.sequences import GivenSeries, Item, sequences, series_of
from hmrnn.pretrained.model import Model
from hmrnn.reading.score import unchanged

BATCH = 64
"""Sequences that are read side by side to be answered."""
Series = np.ndarray | torch.Tensor | Sequence[Any]


@dataclasses.dataclass(repr=False, eq=False)
class LabelledModel(Model):
    """What the kinds share. A list of sequences is given as to ``fit`` of the estimators."""

    figures: ClassVar[tuple[str, ...]] = ()

    network: SequenceModel
    encoder: LabelEncoder
    config: Config
    source: str | None = None
    """The name or path that it was loaded from."""

    @property
    def reads(self) -> LabelEncoder:
        return self.encoder

    @property
    def answer(self) -> Any:
        """The Answer of its kind."""
        return self.encoder.answer

    @property
    def classes(self) -> np.ndarray:
        """The labels, the tags, or the symbols to write, in the order of their probabilities; none of numbers."""
        return np.array(self.answer.classes if isinstance(self.answer, Classes) else ())

    @property
    def deviation(self) -> np.ndarray:
        """(numbers,): of answers in numbers, the deviation of the errors on the validation part of the training."""
        found: np.ndarray = self.network.deviation.double().cpu().numpy() * self.answer.deviation
        return found

    def items(self, X: Any) -> list[Item]:
        """X as this model reads it, checked."""
        return sequences(X, tokens=self.encoder.tokens, channels=self.encoder.channels)

    def answers(self, items: list[Item], *, weigh: bool = False, **how: Any) -> list[Answered]:
        """What the network answers to checked sequences; with ``weigh`` with weights and the segments it found."""
        batches = LabelBatches(Examples.of(self.encoder, items), BATCH)
        device, found = next(self.network.parameters()).device, {}
        for index in range(len(batches)):
            batch = batches.batch(0, index).on(device)
            with unchanged(self.network):
                out, answered = self.network.answers(batch, weigh=weigh, **how)
            for row, (k, one) in enumerate(zip(batches.plan.rows(0, index).tolist(), answered)):
                shown = Segmentation.of(out, self.encoder.pieces(items[k]), row) if weigh else None
                found[k] = one._replace(segmentation=shown)
        return [found[k] for k in range(len(items))]

    def predict(self, X: Any) -> Any:
        """The answer to each sequence."""
        return self.given(self.items(X))

    def given(self, items: list[Item], **how: Any) -> list[Any]:
        """The answer to each of checked sequences, as users give it."""
        return [self.answer.given(one.values, item) for item, one in zip(items, self.answers(items, **how))]

    def explain(self, X: Any, **how: Any) -> list[Decision]:
        """The answer to each sequence, the segments found in it, and the weight of each in the decision."""
        return self.decisions(self.items(X), **how)

    def decisions(self, items: list[Item], **how: Any) -> list[Decision]:
        """As ``explain``, of checked sequences."""
        return [self.decision(item, one) for item, one in zip(items, self.answers(items, weigh=True, **how))]

    def decision(self, item: Item, one: Answered) -> Decision:
        """What ``answers`` found in a sequence, with weights, as people see it."""
        answer = self.answer
        assert one.segmentation is not None
        assert one.weights is not None
        several = answer.per_step or isinstance(answer, Pairs)  # parts, each with weights of its own
        return Decision(
            plain(answer.given(one.values, item)), answer.sure(one.values, one.chances), one.segmentation,
            one.weights if several else one.weights[0], not self.encoder.symbols,
            plain(answer.shaped(self.deviation)) if self.network.numbers else None,
        )  # fmt: skip

    def score(self, X: Any, y: Any, sample_weight: Any = None, **how: Any) -> float:
        """The share of right answers; of numbers R². What training has not shown counts as wrong."""
        found, wanted = self.beside(X, y, **how)
        return self.answer.score(found, wanted, check_weights(sample_weight, len(found)))

    def beside(self, X: Any, y: Any, **how: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each sequence what the network answers, and what is right."""
        items = self.items(X)
        wanted = self.right(y, items)
        return [one.values for one in self.answers(items, **how)], wanted

    def right(self, y: Any, items: list[Item]) -> list[np.ndarray]:
        """The right answers, checked, as the network answers."""
        targets, _ = checked(type(self.answer), y, items, steps=self.answer.per_step)
        return [self.answer.right(one) for one in targets]


class LabelModel(LabelledModel):
    """A label per sequence."""

    def predict(self, X: Any) -> np.ndarray:
        """(sequences,): the likeliest label of each."""
        return cast(np.ndarray, self.classes[self.predict_proba(X).argmax(axis=1)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """(sequences, classes): the probability of every class, in the order of ``classes``."""
        return np.concatenate([one.chances for one in self.answers(self.items(X))])


class TagModel(LabelledModel):
    """A tag per step, or per token; with a CRF the likeliest sequence of tags, else the likeliest tag at each step."""

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """For each sequence (steps, tags): the probability of every tag; with a CRF the marginals."""
        return [one.chances for one in self.answers(self.items(X))]


class PairModel(LabelledModel):
    """A sequence for each sequence: texts, or lists of tokens, as in training. A beam of 1 is greedy."""

    def predict(self, X: Any, beam: int = 1) -> list[Any]:
        return self.given(self.items(X), beam=beam)

    def error_rate(self, X: Any, y: Any, beam: int = 1) -> float:
        """Symbol error rate: edits (insertions, deletions, substitutions) per symbol of y."""
        return self.answer.error_rate(*self.beside(X, y, beam=beam))


class NumberModel(LabelledModel):
    """A number, or a row of numbers, per sequence or per step."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """(sequences,) or (sequences, numbers); of numbers per step a list of (steps,) or (steps, numbers).

        With ``return_std`` also their deviations, in the same shape: those of ``deviation``, the same for all.
        """
        found: Any = self.given(self.items(X))
        sure: Any = [np.zeros_like(one) + self.answer.shaped(self.deviation) for one in found]
        if not self.answer.per_step:
            found, sure = np.array(found), np.array(sure)
        return (found, sure) if return_std else found

    def scores(self, X: Any, y: Any) -> NumberScores:
        """R², RMSE and MAE, and what predicting the mean of the training part has."""
        return self.answer.scores(*self.beside(X, y))


class ForecastModel(LabelledModel):
    """The next steps of a series; X is one series, (time, channels) or (time,), or a list of them."""

    @property
    def deviation(self) -> np.ndarray:
        """(steps, channels): the deviation of the errors on the validation part of the training."""
        return self.answer.shaped(super().deviation)

    def series(self, X: Series, least: int = 1) -> GivenSeries:
        """The series of X, checked."""
        return series_of(X, self.encoder.channels, least)

    def _read(self, given: GivenSeries) -> list[Item]:
        return [one[-self.answer.window :] for one in given.series]

    def predict(self, X: Series, return_std: bool = False) -> Any:
        """(steps, channels) or, of a series (time,), (steps,): what follows; for a list of series, a list of these.

        With ``return_std`` also the deviations, in the same shape: those of ``deviation``, the same for all.
        """
        given = self.series(X)
        each = slice(None), 0 if given.flat else slice(None)
        found = [one[each] for one in self.given(self._read(given))]
        sure = [self.deviation[each]] * len(found)
        answers = (found[0], sure[0]) if given.single else (found, sure)
        return answers if return_std else answers[0]

    def explain(self, X: Series, **how: Any) -> list[Decision]:
        """For each series the steps to come with their deviations, the segments found, and the weight of each step."""
        given = self.series(X)
        found = self.decisions(self._read(given), **how)
        if not given.flat:
            return found
        deviation = self.deviation[:, 0].tolist()
        return [dataclasses.replace(each, answer=np.ravel(each.answer).tolist(), deviation=deviation) for each in found]

    def score(self, X: Series, y: None = None) -> float:  # type: ignore[override]
        """1 - squared error / that of repeating the last step: 1 is perfect, 0 is as good as no change.

        Forecasts from all steps before which half a window is known, or half of the series if that is less; ``ahead``
        steps must follow. Channels count in units of their deviations in training. Of series that never change, which
        repeating meets, 1 if the forecasts meet them, else 0.
        """
        series = self.series(X, self.answer.ahead + 1).series
        return self.skill(forecast_examples(self.encoder, series))

    def skill(self, examples: Examples) -> float:
        """As :meth:`score`, of the answers of encoded stretches."""
        answer = self.answer
        scale = np.tile(self.encoder.deviation, answer.ahead)
        _, squares = evaluate_labelled(self.network, examples)
        error = float((np.array(squares) * np.square(np.array(answer.deviation) / scale)).sum())
        changes = np.concatenate([answer.decode(one) for one in examples.targets]) / scale
        without = float(np.square(changes).mean(axis=0).sum())
        return 1 - error / without if without > 0 else float(error == 0)


def plain(given: Any) -> Any:
    return given.tolist() if isinstance(given, np.ndarray | np.generic) else given
