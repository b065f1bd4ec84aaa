"""Models of labelled sequences: LabelModel, NumberModel, TagModel and PairModel, as ``hmrnn.load`` returns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch

from hmrnn.analysis.edits import edit_distance
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kinds.labels.corpus import check_labels, check_pairs, check_tags, check_weights
from hmrnn.kinds.labels.decision import Decision
from hmrnn.kinds.labels.evaluate import read_labelled, segmentation
from hmrnn.kinds.labels.labelling import Labelling
from hmrnn.kinds.labels.networks import (
    ClassifierModel,
    RegressorModel,
    SequenceModel,
    StepRegressorModel,
    TaggerModel,
    on_steps,
)
from hmrnn.kinds.labels.number_scores import NumberScores, r_squared
from hmrnn.kinds.labels.numbers import Numbers, check_numbers, check_step_numbers, listed
from hmrnn.kinds.labels.sequences import ARGUMENTS, Item, Names, sequences
from hmrnn.kinds.labels.transducer import TransducerModel
from hmrnn.nn.checks import positive
from hmrnn.nn.predictor import evaluating
from hmrnn.ops.cuda.captures import uncaptured
from hmrnn.pretrained.model import Model

T = TypeVar("T")
LONGEST = 10, 3
"""Symbols that may be written at most: the first, and the second for each step that was read."""


class LabelledModel(Model):
    """What the kinds share. A list of sequences is given as to ``fit`` of the estimators."""

    figures: ClassVar[tuple[str, ...]] = ()
    network: SequenceModel

    def __init__(self, network: SequenceModel, reads: Labelling, config: Config, source: str | None = None) -> None:
        self.network, self.labelling, self.config, self.source = network, reads, config, source

    @property
    def reads(self) -> Labelling:
        return self.labelling

    @property
    def classes(self) -> np.ndarray:
        """The labels, the tags, or the symbols to write, in the order of their probabilities."""
        return np.array(self.labelling.classes)

    def predict(self, X: Any) -> Any:
        """The answer to each sequence."""
        raise NotImplementedError

    def explain(self, X: Any) -> list[Decision]:
        """The answer to each sequence, the segments found in it, and the weight of each in the decision."""
        raise NotImplementedError

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers."""
        raise NotImplementedError

    def _items(self, X: Any) -> list[Item]:
        return sequences(X, tokens=self.labelling.tokens, channels=self.labelling.channels)

    @staticmethod
    def _in_order(found: Iterable[tuple[int, T]]) -> list[T]:
        """What was found, by the place of its sequence."""
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def _groups(self, items: list[Item]) -> Iterator[tuple[list[int], tuple[torch.Tensor, ...]]]:
        with evaluating(self.network), torch.inference_mode(), uncaptured():  # lengths differ from group to group
            yield from read_labelled(self.network, self.labelling, items)


class LabelModel(LabelledModel):
    """A label per sequence."""

    network: ClassifierModel

    def predict_proba(self, X: Any) -> np.ndarray:
        """(sequences, classes): the probability of every class, in the order of ``classes``."""
        items = self._items(X)
        result = np.zeros((len(items), len(self.labelling.classes)))
        for chosen, (inputs, lengths, _, _) in self._groups(items):
            logits, _, _ = self.network.predict(inputs, lengths)
            result[chosen] = logits.double().softmax(-1).cpu().numpy()
        return result

    def predict(self, X: Any) -> np.ndarray:
        """(sequences,): the likeliest label of each."""
        return cast(np.ndarray, self.classes[self.predict_proba(X).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right labels. One that training has not shown counts as wrong."""
        chances = self.predict_proba(X)
        (wanted,) = self.labelling.answer_indices([check_labels(y, len(chances))])
        weights = check_weights(sample_weight, len(chances))
        return float(np.average(chances.argmax(axis=1) == wanted, weights=weights))

    def explain(self, X: Any) -> list[Decision]:
        items, found = self._items(X), []
        for chosen, (inputs, lengths, _, _) in self._groups(items):
            logits, weights, encoded = self.network.explain(inputs, lengths)
            chances = logits.double().softmax(-1).cpu().numpy()
            steps = weights.float().cpu().numpy()
            for row, k in enumerate(chosen):
                pieces = self.labelling.pieces(items[k])
                answer = self.labelling.classes[int(chances[row].argmax())]
                each = dict(zip(self.labelling.classes, chances[row].tolist()))
                shown = segmentation(self.network, encoded.out, row, pieces)
                decided = Decision(answer, each, shown, steps[: len(pieces), row], not self.labelling.symbols)
                found.append((k, decided))
        return self._in_order(found)


class NumberModel(LabelledModel):
    """A number, or a row of numbers, per sequence or per step."""

    network: RegressorModel | StepRegressorModel

    @property
    def numbers(self) -> Numbers:
        """The scale of the answers."""
        return cast(Numbers, self.labelling.numbers)

    @property
    def deviation(self) -> np.ndarray:
        """(numbers,): the deviation of the errors on the validation part of the training."""
        return self.network.deviation.double().cpu().numpy() * self.numbers.deviation

    def _means(self, items: list[Item], weigh: bool = False) -> Iterator[tuple[int, np.ndarray, Any]]:
        """For each sequence, in any order: its place, its numbers (N, numbers), and the rest; N is 1 or the steps.

        The rest is the output, its row, and with ``weigh`` the weights (steps,) or (N, steps).
        """
        network = self.network
        for chosen, (inputs, lengths, counted, places) in self._groups(items):
            weights: torch.Tensor | None = None
            if isinstance(network, StepRegressorModel):
                means, encoded = network.predict(inputs, lengths, places)
                if weigh:
                    weights = network.weights(inputs, lengths, places, places, counted).cpu().movedim(-1, 0)
            else:
                one, weights, encoded = (network.explain if weigh else network.predict)(inputs, lengths)
                means, weights = one[None], None if weights is None else weights.cpu().T
            decoded = self.numbers.decode(means.double().cpu().numpy())
            for row, k in enumerate(chosen):
                N, T = int(counted[row]), int(lengths[row])
                each = None if weights is None else weights[row][..., :T].float().numpy()
                yield k, decoded[:N, row], (encoded.out, row, each if each is None or each.ndim == 1 else each[:N])

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """(sequences,) or (sequences, numbers); of numbers per step a list of (steps,) or (steps, numbers).

        With ``return_std`` also their deviations, in the same shape: those of ``deviation``, the same for all.
        """
        found = self._in_order((k, means) for k, means, _ in self._means(self._items(X)))
        answers: Any = [self.numbers.shaped(means) for means in found]
        sure: Any = [np.zeros_like(one) + self.numbers.shaped(self.deviation) for one in answers]
        if not self.numbers.steps:
            answers, sure = np.concatenate(answers), np.concatenate(sure)
        return (answers, sure) if return_std else answers

    def checked(self, y: Any, items: list[Item], names: Names = ARGUMENTS) -> list[np.ndarray]:
        """(N, numbers) for each sequence: the right answers; InputError unless there are as many as are predicted."""
        y = listed(y, names.y)
        if self.numbers.steps:
            wanted, _ = check_step_numbers(y, items, names)
        else:
            wanted = list(check_numbers(y, len(items), names.y)[0][:, None])
        if wanted[0].shape[1] != self.labelling.outputs:
            each, got = "step" if self.numbers.steps else "sequence", wanted[0].shape[1]
            raise InputError(
                f"this model predicts {self.labelling.outputs} number(s) for each {each}; {names.y.whole} holds {got}"
            )
        return wanted

    def _compared(self, X: Any, y: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each sequence (N, numbers): those predicted, and the right ones."""
        items = self._items(X)
        return self._in_order((k, means) for k, means, _ in self._means(items)), self.checked(y, items)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², of rows of numbers the mean over the columns: 1 is perfect, 0 is as good as the mean of y."""
        found, wanted = self._compared(X, y)
        weights = np.repeat(check_weights(sample_weight, len(found)), [len(one) for one in found])
        return r_squared(np.concatenate(found), np.concatenate(wanted), weights)

    def scores(self, X: Any, y: Any) -> NumberScores:
        """R², RMSE and MAE, and what predicting the mean of the training part has."""
        found, wanted = self._compared(X, y)
        return NumberScores.of(np.concatenate(found), np.concatenate(wanted), self.numbers.mean)

    def explain(self, X: Any) -> list[Decision]:
        """The number for each sequence or step with its deviation, the segments found, and the weight of each."""
        items, found = self._items(X), []
        deviation = self.numbers.shaped(self.deviation).tolist()
        for k, means, (out, row, weights) in self._means(items, weigh=True):
            answers = self.numbers.shaped(means).tolist()
            shown = segmentation(self.network, out, row, self.labelling.pieces(items[k]))
            answer, series = answers if self.numbers.steps else answers[0], not self.labelling.symbols
            found.append((k, Decision(answer, {}, shown, weights, series, deviation)))
        return self._in_order(found)


class TagModel(LabelledModel):
    """A tag per step, or per token."""

    network: TaggerModel

    def _tags(self, items: list[Item], weigh: bool = False) -> Iterator[tuple[int, np.ndarray, np.ndarray, Any]]:
        """For each sequence, in any order: its place, its tags as indices, their probabilities, and the rest.

        That is the output, its row, and with ``weigh`` the weights (tags, steps).
        """
        for chosen, (inputs, lengths, counted, places) in self._groups(items):
            scores, encoded = self.network.predict(inputs, lengths, places)
            best, marginals = self.network.tags(scores, counted)
            tags, chances = best.cpu().numpy(), marginals.cpu().numpy()
            weights = self.network.weights(inputs, lengths, places, best, counted).cpu() if weigh else None
            for row, k in enumerate(chosen):
                N, T = int(counted[row]), int(lengths[row])
                rest = encoded.out, row, None if weights is None else weights[:N, :T, row].float().numpy()
                yield k, tags[:N, row], chances[:N, row], rest

    def predict(self, X: Any) -> list[list[Any]]:
        """The tags of each sequence: with a CRF the likeliest sequence of tags, else the likeliest tag at each step."""
        tagged = self._tags(self._items(X))
        return self._in_order((k, [self.labelling.classes[tag] for tag in tags]) for k, tags, _, _ in tagged)

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """For each sequence (steps, tags): the probability of every tag; with a CRF the marginals."""
        return self._in_order((k, chances) for k, _, chances, _ in self._tags(self._items(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right tags. One that training has not shown counts as wrong; InputError if all are such."""
        items = self._items(X)
        wanted = self.labelling.answer_indices(check_tags(y, items))
        weights = check_weights(sample_weight, len(items))
        right = {k: int((tags == wanted[k]).sum()) for k, tags, _, _ in self._tags(items)}
        total = sum(weights[k] * len(one) for k, one in enumerate(wanted))
        return float(sum(weights[k] * count for k, count in right.items()) / total)

    def explain(self, X: Any) -> list[Decision]:
        items, found = self._items(X), []
        for k, tags, chances, (out, row, weights) in self._tags(items, weigh=True):
            answer = [self.labelling.classes[tag] for tag in tags]
            sure = [float(chances[n, tag]) for n, tag in enumerate(tags)]
            pieces = self.labelling.pieces(items[k])
            shown = segmentation(self.network, out, row, pieces)
            found.append((k, Decision(answer, sure, shown, weights, not self.labelling.symbols)))
        return self._in_order(found)


class PairModel(LabelledModel):
    """A sequence for each sequence."""

    network: TransducerModel

    def predict(self, X: Any, beam: int = 1) -> list[Any]:
        """What the model writes for each sequence: texts, or lists of tokens, as in training. A beam of 1 is greedy."""
        written = self._written(self._items(X), beam)
        return self._in_order((k, self._joined(symbols)) for k, symbols, _, _, _ in written)

    def score(self, X: Any, y: Any, sample_weight: Any = None, beam: int = 1) -> float:
        """The share of sequences that are written without an error."""
        items = self._items(X)
        wanted = check_pairs(y, len(items))
        right = np.zeros(len(items))
        for k, symbols, _, _, _ in self._written(items, beam):
            right[k] = tuple(str(self.labelling.classes[symbol]) for symbol in symbols) == wanted[k]
        return float(np.average(right, weights=check_weights(sample_weight, len(items))))

    def error_rate(self, X: Any, y: Any, beam: int = 1) -> float:
        """Symbol error rate: edits (insertions, deletions, substitutions) per symbol of y."""
        items = self._items(X)
        wanted = check_pairs(y, len(items))
        written = self._written(items, beam)
        edits = sum(edit_distance([str(self.labelling.classes[s]) for s in symbols], wanted[k])
                    for k, symbols, _, _, _ in written)  # fmt: skip
        return edits / sum(map(len, wanted))

    def explain(self, X: Any, beam: int = 1) -> list[Decision]:
        items, found = self._items(X), []
        for k, symbols, chances, weights, (out, row) in self._written(items, beam):
            pieces = self.labelling.pieces(items[k])
            shown = segmentation(self.network, out, row, pieces)
            numbers = not self.labelling.symbols
            decided = Decision(self._joined(symbols), chances, shown, weights[:, : len(pieces)], numbers)
            found.append((k, decided))
        return self._in_order(found)

    def _written(self, items: list[Item], beam: int) -> Iterator[tuple[int, list[int], list[float], np.ndarray, Any]]:
        """For each sequence, in any order: its place, the symbols, their probabilities, the weights, the output."""
        beam = positive("beam", beam)
        for chosen, (inputs, lengths, _, _) in self._groups(items):
            memory, ends, encoded = self.network.read(inputs, lengths)
            limits = LONGEST[0] + LONGEST[1] * lengths
            for row, (symbols, chances, weights) in enumerate(self.network.decoder.write(memory, beam, limits)):
                steps = on_steps(weights, ends[:, row : row + 1].cpu().expand(-1, len(weights)), len(inputs)).T
                yield chosen[row], symbols, chances, steps.float().numpy(), (encoded.out, row)

    def _joined(self, symbols: list[int]) -> Any:
        written = [self.labelling.classes[symbol] for symbol in symbols]
        return "".join(map(str, written)) if self.labelling.text else written
