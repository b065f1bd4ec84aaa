"""LabelCorpus: labelled sequences, encoded and split into a training and a validation part."""

from __future__ import annotations

import dataclasses
import reprlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from hmrnn.config.checks import checked as checked_type
from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers import ANSWERS
from hmrnn.kinds.labels.answers.base import checked
from hmrnn.kinds.labels.answers.classes import Labels
from hmrnn.kinds.labels.answers.series import Forecasts, following, stretches
from hmrnn.kinds.labels.encoder import LabelEncoder
from hmrnn.kinds.labels.sequences import PER_STEP, Item, columns, iterable, number_array, sequences

FEW = 300
"""Of fewer sequences an estimator holds nothing out by default: a tenth of them would choose the epoch by chance."""
OVERLAP = 2
"""In training most steps of a series are answered as often, each time after another context."""
_LARGEST = 1e15  # weight of a class or a sequence: float32, in which the loss is computed, must hold products of them

ClassWeight = Mapping[Any, float] | Literal["balanced"] | None


@dataclasses.dataclass(frozen=True)
class Examples:
    """Encoded sequences with their targets."""

    sequences: list[Item]
    inputs: list[np.ndarray]
    """Indices (T,), or scaled steps (T, channels)."""
    targets: list[np.ndarray]
    """Class indices: (1,) of a label, (N,) of tags, (M,) of the symbols to write, the last of which is the end. Of
    numbers (1, numbers) or (N, numbers) in float32, scaled."""
    places: list[np.ndarray]
    """(N,): the steps at which answers are read, of tags or of numbers per step; (1,) the last step otherwise."""
    weights: np.ndarray
    """(sequences,): the weight of each in the loss."""

    @staticmethod
    def of(
        encoder: LabelEncoder,
        items: Sequence[Item],
        targets: list[np.ndarray] | None = None,
        weights: np.ndarray | None = None,
        places: list[np.ndarray] | None = None,
    ) -> Examples:
        """These sequences, encoded; without targets to be answered."""
        at = [encoder.places(one) for one in items] if places is None else places
        asked = [np.zeros(len(one), np.int64) for one in at] if targets is None else targets
        equal = np.ones(len(items)) if weights is None else weights
        return Examples(list(items), [encoder.encode(one) for one in items], asked, at, equal)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(one) for one in self.inputs])

    @property
    def checksum(self) -> int:
        """CRC-32 of all that training depends on."""
        value = zlib.crc32(self.weights.tobytes())
        for one in (*self.inputs, *self.targets):
            value = zlib.crc32(np.ascontiguousarray(one).tobytes(), value)
        return value


@dataclasses.dataclass(frozen=True)
class LabelCorpus:
    """Labelled sequences to train on and to validate with."""

    name: str
    spec: LabelEncoder
    train: Examples
    valid: Examples
    """The training part itself if nothing is held out."""
    first: str = ""
    """The first pair of each table without known names of columns, shown as it was read; it may be a header."""

    @property
    def held_out(self) -> bool:
        return self.valid is not self.train

    def describe(self) -> str:
        """The data, in a line for people."""
        encoder, steps = self.spec, self.train.lengths.mean()
        return (
            f"{self.name}: {len(self.train):,} sequences of {steps:.0f} {encoder.unit}s on average to train on, "
            f"{len(self.valid):,} to validate; {encoder.describe()}{self.first and f'; first pair {self.first}'}"
        )


def make_corpus(
    kind: str,
    X: Any,
    y: Any,
    *,
    valid_fraction: float | None = 0.1,
    seed: int = 0,
    sample_weight: Any = None,
    class_weight: ClassWeight = None,
    spelled: bool | None = None,
    name: str = "data",
) -> LabelCorpus:
    """Check, split and encode labelled sequences.

    The validation part is drawn by ``seed``, as the kind of answers asks for. With ``valid_fraction`` 0 the training
    part also validates; None: 0.1, or 0 of fewer than FEW sequences. ``class_weight`` is for labels. ``spelled``: read
    tokens character by character; None: if any token has more than one and each token an answer.
    """
    X = list(X) if isinstance(X, Iterator) else iterable(X)
    inputs, Answers = sequences(X, tokens=True if spelled else None), ANSWERS[kind]
    about = f"; {PER_STEP}" if hasattr(X, "columns") else ""
    targets, form = checked(Answers, y, inputs, about)
    weights = check_weights(sample_weight, len(inputs))
    used = np.flatnonzero(weights)  # others as if they were not given: a part of them alone would measure nothing
    inputs, targets, weights = [inputs[k] for k in used], [targets[k] for k in used], weights[used]
    if valid_fraction is None:
        valid_fraction = 0.1 if len(inputs) >= FEW else 0.0
    count = len(inputs)
    train = valid = np.arange(count)
    if valid_fraction > 0:
        order = np.random.default_rng([seed, 1]).permutation(count).tolist()
        valid = np.unique(np.array(Answers.hold_out(inputs, targets, valid_fraction, order), np.int64))
        train = np.setdiff1d(train, valid)
        if not len(train) or not len(valid):
            raise InputError(
                f"this cannot be taken from {count} sequence(s), as {Answers.alone}; give more"
                f"{', as by cutting a long one into stretches' if count == 1 else ''}, or 0 to hold out nothing",
                setting="data.valid_fraction",
                value=valid_fraction,
            )
    answer: Any = Answers.of(targets, [targets[k] for k in train], **form)
    encoded = [answer.encode(one) for one in targets]
    if spelled is None:
        spelled = answer.per_step and any(len(t) > 1 for one in inputs if isinstance(one, tuple) for t in one)
    encoder = LabelEncoder.of(answer, [inputs[k] for k in train], spelled=spelled, channels=columns(next(iter(X))))
    if class_weight is not None:
        labels = np.concatenate(encoded)
        weights = weights * _class_weights(class_weight, answer, labels[train])[labels]
        if not weights[train].any() or not weights[valid].any():
            raise InputError(
                "is 0 for all classes of the training or the validation part; give one a weight", setting="class_weight"
            )

    def part(chosen: np.ndarray) -> Examples:
        return Examples.of(encoder, [inputs[k] for k in chosen], [encoded[k] for k in chosen], weights[chosen])

    learned = part(train)
    return LabelCorpus(name, encoder, learned, learned if valid_fraction == 0 else part(valid))


def _class_weights(given: Any, answer: Labels, train: np.ndarray) -> np.ndarray:
    """(classes,): the weight of each class."""
    counted = np.bincount(train, minlength=answer.size)
    if checked_type("class_weight", given, Literal["balanced"] | dict) == "balanced":
        balanced: np.ndarray = len(train) / (answer.size * np.maximum(counted, 1))
        return balanced
    if others := [label for label in given if label not in answer.index]:
        raise InputError(f"names {others[0]!r}, which is none of the classes", setting="class_weight")
    return check_weights([given.get(label, 1.0) for label in answer.classes], answer.size, "class_weight")


def check_weights(given: Any, count: int, name: str = "sample_weight") -> np.ndarray:
    """(count,): the weights given, or ones; InputError unless there are as many, none negative and not all 0."""
    if given is None:
        return np.ones(count)
    weights = number_array(given)
    if (
        weights is None
        or weights.shape != (count,)
        or not weights.any()
        or not ((weights == 0) | ((weights >= 1 / _LARGEST) & (weights <= _LARGEST))).all()
    ):
        raise InputError(
            f"must hold {count} numbers, each 0 or from {1 / _LARGEST:g} to {_LARGEST:g}, not all zero; got "
            f"{reprlib.repr(given)}",
            setting=name,
        )
    return weights.astype(np.float64)


def forecast_corpus(
    series: Sequence[np.ndarray],
    ahead: int,
    window: int,
    *,
    name: str = "data",
    valid_fraction: float = 0.1,
    channels: tuple[str, ...] = (),
) -> LabelCorpus:
    """The stretches of series (time, channels) to train on, and those whose answers are in the last part of each.

    No step of a validation answer is part of a training answer. With ``valid_fraction`` 0 the training part also
    validates.
    """
    ends = [
        min(len(one) - max(1, round(valid_fraction * len(one))), len(one) - ahead) if valid_fraction else len(one)
        for one in series
    ]  # the first step that no training answer holds
    for k, (one, end) in enumerate(zip(series, ends)):
        if end < ahead + 2:
            held = f", of which {len(one) - end} are held out" if valid_fraction else ""
            raise InputError(
                f"has {len(one)} steps{held}, and forecasts of {ahead} steps can only be learned from {ahead + 2} or "
                "more; ask for fewer steps, or leave it out",
                setting=f"X[{k}]",
            )
    known = [one[:end] for one, end in zip(series, ends)]
    window = min(window, max(map(len, known)))  # more would be read later than training has shown
    parts = [(one, places) for one in known for places in stretches(len(one), ahead, window)]
    changes = [following(one, ahead, places) for one, places in parts]
    answer = Forecasts.of(known, changes, ahead=ahead, window=window)
    encoder = LabelEncoder.of(answer, [_read(one, places, window) for one, places in parts], channels=channels)
    learned = forecast_examples(encoder, known, overlap=OVERLAP)
    valid = forecast_examples(encoder, series, [end - 1 for end in ends]) if valid_fraction else learned
    return LabelCorpus(name, encoder, learned, valid)


def forecast_examples(
    encoder: LabelEncoder, series: Sequence[np.ndarray], first: Sequence[int] | None = None, *, overlap: int = 1
) -> Examples:
    """The stretches of series with the changes that follow; answers from step ``first`` of each series on."""
    answer = cast(Forecasts, encoder.answer)
    items: list[Item] = []
    targets, at = [], []
    for one, least in zip(series, first or [0] * len(series)):
        for places in stretches(len(one), answer.ahead, answer.window, least, overlap):
            items.append(_read(one, places, answer.window))
            targets.append(answer.encode(following(one, answer.ahead, places)))
            at.append(places - (places[-1] + 1 - len(items[-1])))
    return Examples.of(encoder, items, targets, places=at)


def _read(series: np.ndarray, places: np.ndarray, window: int) -> np.ndarray:
    """The steps that a network reads to answer at ``places``."""
    end = int(places[-1]) + 1
    return series[max(0, end - window) : end]
