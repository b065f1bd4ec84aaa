"""LabelCorpus: labelled sequences, encoded and split into a training and a validation part."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf
from typing import Any, Literal

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.labelling import Labelling, Modality
from hmrnn.kinds.labels.numbers import Numbers, check_numbers, check_step_numbers, listed, per_step
from hmrnn.kinds.labels.sequences import (
    ARGUMENTS,
    PER_STEP,
    Item,
    Name,
    Names,
    check_given,
    check_text,
    columns,
    iterable,
    sequences,
)

FEW = 300
"""Of fewer sequences an estimator holds nothing out by default: a tenth of them would choose the epoch by chance."""
_LARGEST = 1e15  # weight of a class or a sequence

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
    reads: Labelling
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
        reads, steps = self.reads, self.train.lengths.mean()
        return (
            f"{self.name}: {len(self.train):,} sequences of {steps:.0f} {reads.unit}s on average to train on, "
            f"{len(self.valid):,} to validate; {reads.describe()}{self.first and f'; first pair {self.first}'}"
        )


def make_corpus(
    modality: Modality,
    X: Any,
    y: Any,
    *,
    name: str = "data",
    valid_fraction: float | None = 0.1,
    seed: int = 0,
    sample_weight: Any = None,
    class_weight: ClassWeight = None,
    spelled: bool | None = None,
    names: Names = ARGUMENTS,
) -> LabelCorpus:
    """Check, split and encode labelled sequences.

    The validation part is drawn by ``seed``: of labels, the same share of every class; of pairs, no first sequence is
    in both parts. With ``valid_fraction`` 0 the training part also validates; None: 0.1, or 0 of fewer than FEW
    sequences. ``spelled``: read tokens character by character; None: if any token has more than one and each token an
    answer. ``names``: what errors call X and y.
    """
    X, y = list(X) if isinstance(X, Iterator) else iterable(X), iterable(y)
    inputs = sequences(X, names.X, tokens=True if spelled else None)
    text, channels, rows, classes, steps = False, columns(next(iter(X))), False, [], modality == "tags"
    about = f"; {PER_STEP}" if hasattr(X, "columns") else ""
    targets: Any
    y = listed(y, names.y) if modality == "numbers" else y
    if modality == "numbers" and per_step(y, inputs):
        steps, (targets, rows) = True, check_step_numbers(y, inputs, names)
    elif modality == "numbers":
        whole, rows = check_numbers(y, len(inputs), names.y, about)
        targets = list(whole[:, None])  # (1, numbers) each
    elif modality == "labels":
        targets = [[label] for label in check_labels(y, len(inputs), names.y, about)]
    elif modality == "tags":
        targets = check_tags(y, inputs, names)
    else:
        y = _listed(y, names.y.whole, "sequences")
        targets = [list(one) for one in check_pairs(y, len(inputs), names.y)]
        text = isinstance(y[0], str)
    if modality != "numbers":
        classes = _classes(modality, targets, names.y)
    if spelled is None:
        spelled = steps and any(len(t) > 1 for one in inputs if isinstance(one, tuple) for t in one)
    weights = check_weights(sample_weight, len(inputs))
    if not weights.all():  # as if they were not given; a part of such sequences alone would measure nothing
        used = np.flatnonzero(weights)
        inputs, targets, weights = [inputs[k] for k in used], [targets[k] for k in used], weights[used]
    if valid_fraction is None:
        valid_fraction = 0.1 if len(inputs) >= FEW else 0.0
    train, valid = _split(modality, inputs, targets, valid_fraction, np.random.default_rng([seed, 1]), names.X)
    numbers = Numbers.of([targets[k] for k in train], rows, steps) if modality == "numbers" else None
    reads = Labelling.of(
        modality, [inputs[k] for k in train], classes, spelled=spelled, text=text, channels=channels, numbers=numbers
    )
    encoded = [reads.class_indices(one, names.y.whole) if numbers is None else numbers.encode(one) for one in targets]
    if modality == "labels":
        weights = (
            weights
            * _class_weights(class_weight, reads, np.concatenate([encoded[k] for k in train]))[np.concatenate(encoded)]
        )
        for which, chosen in (("training", train), ("validation", valid)):
            if not weights[chosen].any():
                raise InputError(f"class_weight is 0 for all classes of the {which} part; give one of them a weight")
    elif class_weight is not None:
        raise InputError(f"class_weight is for labels of whole sequences; got it for {modality}")
    if modality == "pairs":
        encoded = [np.append(one, len(classes)) for one in encoded]

    def part(chosen: np.ndarray) -> Examples:
        return Examples(
            [inputs[k] for k in chosen], [reads.encode(inputs[k]) for k in chosen], [encoded[k] for k in chosen],
            [reads.places(inputs[k]) for k in chosen], weights[chosen],
        )  # fmt: skip

    learned = part(train)
    return LabelCorpus(name, reads, learned, learned if valid_fraction == 0 else part(valid))


def _classes(modality: Modality, targets: Sequence[Sequence[Any]], name: Name) -> list[Any]:
    """The distinct answers in ascending order; InputError unless they are two or more classes."""
    classes = sorted_classes([label for one in targets for label in one])
    if len(classes) < 2:
        what = {"labels": "label", "tags": "tag", "pairs": "symbol to write"}[modality]
        raise InputError(f"{name.whole} must hold two or more classes; got one class, the {what} {classes[0]!r}")
    if modality == "labels" and len(classes) == len(targets) > 2 and any(map(_fractional, classes)):
        raise InputError(
            f"{name.whole} must hold classes, and every number in it is another; to predict measurements, use "
            + ("hmrnn train numbers" if name.item else "hmrnn.HMRegressor")
        )
    return classes


def check_labels(y: Any, count: int, name: Name = ARGUMENTS.y, about: str = "") -> list[Any]:
    """The labels as a list of plain values; InputError, which ends in ``about``, unless there is one per sequence."""
    if getattr(y, "ndim", 1) == 2:  # a table, or an array of one column
        if y.shape[1] != 1:
            raise InputError(f"{name.whole} must be one column of labels; got shape {tuple(y.shape)}")
        y = np.asarray(y)[:, 0]
    labels = _listed(y, name.whole, "labels")
    if len(labels) != count:
        raise InputError(f"there must be one label per sequence; got {count} sequences and {len(labels)} labels{about}")
    for k, label in enumerate(labels):
        if not isinstance(label, str | bool | int | float) or label in (inf, -inf) or label != label:
            raise InputError(f"a label must be a string or a finite number; got {label!r} as {name[k]}")
        if isinstance(label, str):
            check_text(label, name[k])
    return labels


def check_tags(y: Any, inputs: Sequence[Item], names: Names = ARGUMENTS) -> list[list[Any]]:
    """The tags of each sequence; InputError unless there is one per step."""
    rows = _listed(y, names.y.whole, "lists of tags")
    if len(rows) != len(inputs):
        raise InputError(f"there must be a list of tags per sequence; got {len(inputs)} sequences and {len(rows)}")
    found = []
    for k, (row, one) in enumerate(zip(rows, inputs)):
        tags = list(row) if isinstance(row, str) else _listed(row, names.y[k], "tags")
        if len(tags) != len(one):
            words = isinstance(one, tuple) and " " in one and len(tags) == len("".join(one).split())
            raise InputError(
                f"there must be one tag per step; {names.X[k]} has {len(one)} steps and {names.y[k]} {len(tags)} tags"
                + ("; each character of a text is a step: give a list of its words, as by split" if words else "")
            )
        check_labels(tags, len(tags), names.y.inside(k, "tag"))
        found.append(tags)
    return found


def check_pairs(y: Any, count: int, name: Name = ARGUMENTS.y) -> list[tuple[str, ...]]:
    """The second sequences; InputError unless there is one per first sequence, all of symbols."""
    found = sequences(y, name)
    if len(found) != count:
        raise InputError(f"there must be as many sequences in X as in y; got {count} and {len(found)}")
    for k, one in enumerate(found):
        if not isinstance(one, tuple):
            raise InputError(f"{name[k]} must be a text or a list of tokens; got numbers")
    return found  # type: ignore[return-value]


def _listed(y: Any, name: str, what: str) -> list[Any]:
    """``y`` as a list of plain values."""
    if hasattr(y, "tolist"):
        y = y.tolist()
    check_given(y)
    if isinstance(y, str | bytes | Mapping | Set) or not hasattr(y, "__iter__"):  # a set has no order
        raise InputError(f"{name} must be a list of {what}; got {type(y).__name__}")
    return [one.item() if isinstance(one, np.generic) else one for one in y]


def sorted_classes(labels: Sequence[Any]) -> list[Any]:
    """The distinct labels in ascending order; InputError if they cannot be compared."""
    try:
        return sorted(set(labels))
    except TypeError as error:
        raise InputError("labels must be all strings or all numbers; got both") from error


def check_weights(given: Any, count: int) -> np.ndarray:
    """(sequences,): ``sample_weight``, or ones; InputError unless it holds one number per sequence."""
    if given is None:
        return np.ones(count)
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must hold {count} numbers, one per sequence; got {given!r:.60}") from error
    if weights.shape != (count,) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise InputError(
            f"sample_weight must hold {count} numbers, one per sequence, none negative and not all zero; got shape "
            f"{weights.shape}"
        )
    _check_sizes(weights, "sample_weight")
    return weights


def _class_weights(given: ClassWeight, reads: Labelling, train: np.ndarray) -> np.ndarray:
    """(classes,): the weight of each class."""
    weights = np.ones(len(reads.classes))
    if given is None:
        return weights
    if given == "balanced":
        counted = np.bincount(train, minlength=len(weights))
        return len(train) / (len(weights) * np.maximum(counted, 1))
    if not isinstance(given, Mapping):
        raise InputError(f'class_weight must be None, "balanced" or a dict of class to weight; got {given!r}')
    for label, index in zip(given, reads.class_indices(list(given), "class_weight")):
        if not isinstance(given[label], int | float | np.number):
            raise InputError(f"the weights of class_weight must be numbers; got {given[label]!r} for {label!r}")
        weights[index] = given[label]
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise InputError("the weights of class_weight must be finite, none negative and not all 0")
    _check_sizes(weights, "class_weight")
    return weights


def _check_sizes(weights: np.ndarray, name: str) -> None:
    """InputError about weights whose products float32, in which the loss is computed, cannot hold."""
    wrong = weights[(weights > 0) & ((weights < 1 / _LARGEST) | (weights > _LARGEST))]
    if len(wrong):
        raise InputError(f"{name} must hold 0 or numbers from {1 / _LARGEST:g} to {_LARGEST:g}; got {wrong[0]:g}")


def _split(
    modality: Modality,
    inputs: Sequence[Item],
    targets: Sequence[Any],
    share: float,
    random: np.random.Generator,
    name: Name,
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the training part and of the validation part."""
    count = len(inputs)
    everything = np.arange(count)
    if share == 0:
        return everything, everything
    order: list[int] = random.permutation(count).tolist()
    if modality == "labels":
        by_class: dict[Any, list[int]] = {}
        for k in order:
            by_class.setdefault(targets[k][0], []).append(k)
        taken = {label: min(len(one) - 1, round(share * len(one))) for label, one in by_class.items()}
        largest = max(by_class, key=lambda label: len(by_class[label]))
        if not any(taken.values()):  # a small share of few sequences
            taken[largest] = min(1, len(by_class[largest]) - 1)
        chosen = [k for label, one in by_class.items() for k in one[: taken[label]]]
    elif modality == "pairs":
        keys = [one if isinstance(one, tuple) else one.tobytes() for one in inputs]
        distinct = list(dict.fromkeys(keys[k] for k in order))
        out = set(distinct[: max(1, round(share * len(distinct)))])
        chosen = [k for k in range(count) if keys[k] in out]
    else:
        chosen = order[: max(1, round(share * count))]
    train = np.setdiff1d(everything, chosen)
    if not len(train) or not chosen:
        why = {"labels": "no label has two", "tags": "there is one", "pairs": "the first sequences are all the same"}
        why["numbers"] = why["tags"]
        reason = "none is left to train on" if modality in ("tags", "numbers") and count > 1 else why[modality]
        cut = ", as by cutting a long one into stretches" if count == 1 and modality != "pairs" else ""
        raise InputError(
            f"a validation part of {share:g} cannot be taken from {count} sequence(s), as {reason}; give more{cut}"
            + ("" if name.item else ", or set validation_fraction to 0")
        )
    return train, np.sort(np.array(chosen, np.int64))


def _fractional(label: Any) -> bool:
    return isinstance(label, float) and not label.is_integer()
