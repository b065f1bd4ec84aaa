"""Models of labelled sequences: LabelModel, NumberModel, TagModel and PairModel, as ``hmrnn.load`` returns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch

from hmrnn.analysis.decision import Decision
from hmrnn.analysis.edits import edit_distance
from hmrnn.analysis.numbers import NumberScores, r_squared
from hmrnn.config import Config
from hmrnn.data.labels.corpus import check_labels, check_pairs, check_tags, check_weights
from hmrnn.data.labels.labelling import Labelling
from hmrnn.data.labels.numbers import Numbers, check_numbers
from hmrnn.data.labels.sequences import ARGUMENTS, Item, Name, sequences
from hmrnn.errors import InputError
from hmrnn.inference.labelled import read_labelled, segmentation
from hmrnn.nn.checks import positive
from hmrnn.nn.models import evaluating
from hmrnn.nn.sequences import ClassifierModel, RegressorModel, SequenceModel, TaggerModel, on_steps
from hmrnn.nn.transducer import TransducerModel
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
        """The share of right labels. One that training has not shown counts as wrong; InputError if all are such."""
        chances = self.predict_proba(X)
        (wanted,) = self.labelling.answer_indices([check_labels(y, len(chances))], "y")
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
    """A number per sequence, or a row of numbers."""

    network: RegressorModel

    @property
    def numbers(self) -> Numbers:
        """The scale of the answers."""
        return cast(Numbers, self.labelling.numbers)

    @property
    def deviation(self) -> np.ndarray:
        """(numbers,): the deviation of the errors on the validation part of the training."""
        return self.network.deviation.double().cpu().numpy() * self.numbers.deviation

    def _means(self, X: Any) -> np.ndarray:
        """(sequences, numbers), not scaled."""
        items = self._items(X)
        result = np.zeros((len(items), self.labelling.outputs))
        for chosen, (inputs, lengths, _, _) in self._groups(items):
            result[chosen] = self.network.predict(inputs, lengths)[0].double().cpu().numpy()
        return self.numbers.decode(result)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """(sequences,) or (sequences, numbers), as in training; with ``return_std`` also their deviations.

        These are the same for all sequences: ``deviation``.
        """
        means = self.numbers.shaped(self._means(X))
        if not return_std:
            return means
        return means, np.zeros_like(means) + self.numbers.shaped(self.deviation)

    def checked(self, y: Any, count: int, name: Name = ARGUMENTS.y) -> np.ndarray:
        """(sequences, numbers): the right answers; InputError unless there are as many for each as are predicted."""
        wanted, _ = check_numbers(y, count, name)
        if wanted.shape[1] != self.labelling.outputs:
            raise InputError(
                f"this model predicts {self.labelling.outputs} number(s) for each sequence; {name.whole} holds "
                f"{wanted.shape[1]}"
            )
        return wanted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², of rows of numbers the mean over the columns: 1 is perfect, 0 is as good as the mean of y."""
        means = self._means(X)
        wanted = self.checked(y, len(means))
        return r_squared(means, wanted, check_weights(sample_weight, len(means)))

    def scores(self, X: Any, y: Any) -> NumberScores:
        """R², RMSE and MAE, and what predicting the mean of the training part for every sequence has."""
        means = self._means(X)
        return NumberScores.of(means, self.checked(y, len(means)), self.numbers.mean)

    def explain(self, X: Any) -> list[Decision]:
        """The number for each sequence with its deviation, the segments found, and the weight of each."""
        items, found = self._items(X), []
        deviation = self.numbers.shaped(self.deviation).tolist()
        for chosen, (inputs, lengths, _, _) in self._groups(items):
            means, weights, encoded = self.network.explain(inputs, lengths)
            answers = self.numbers.shaped(self.numbers.decode(means.double().cpu().numpy())).tolist()
            steps = weights.float().cpu().numpy()
            for row, k in enumerate(chosen):
                pieces = self.labelling.pieces(items[k])
                shown = segmentation(self.network, encoded.out, row, pieces)
                weighed, series = steps[: len(pieces), row], not self.labelling.symbols
                found.append((k, Decision(answers[row], {}, shown, weighed, series, deviation)))
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
        wanted = self.labelling.answer_indices(check_tags(y, items), "y")
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
