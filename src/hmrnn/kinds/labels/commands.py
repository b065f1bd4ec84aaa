"""What the commands do with labelled sequences and their models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from hmrnn.analysis.sections import Section
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kinds.labels.corpus import check_labels, check_pairs, check_tags
from hmrnn.kinds.labels.decision import shown_answer, shown_numbers, shown_right
from hmrnn.kinds.labels.files import Labelled, check_no_header, decoded, parse, parse_series
from hmrnn.kinds.labels.forecast import ForecastModel
from hmrnn.kinds.labels.model import LabelledModel, LabelModel, NumberModel, PairModel
from hmrnn.kinds.labels.number_scores import NumberScores
from hmrnn.kinds.labels.report import sections
from hmrnn.kinds.labels.sequences import Item, Names, names_in, sequences
from hmrnn.pretrained.commands import Commands
from hmrnn.utils.inputs import read_bytes

AT_ONCE = 512
"""Sequences that are answered before the next lines are printed."""


class LabelCommands(Commands):
    report = staticmethod(sections)

    def predict(self, model: LabelledModel, arguments: Any) -> Iterator[Section]:
        name = "standard input" if arguments.file == "-" else arguments.file
        text = decoded(read_bytes(None if arguments.file == "-" else arguments.file), name)
        if isinstance(model, ForecastModel):
            yield from _forecasts(model, text, name, arguments)
            return
        reads = model.reads
        given = parse(text, name, reads.modality, tokens=reads.tokens, numbers=not reads.symbols)
        if not given.sequences:
            raise InputError(f"{name} holds no sequences")
        answers = None if given.answers is None else _checked(given, model, names_in(name))
        how = {"beam": arguments.beam} if isinstance(model, PairModel) else {}
        show, given_answers = self.progress("predicting"), list[Any]()
        for start in range(0, len(given.sequences), AT_ONCE):
            asked = given.sequences[start : start + AT_ONCE]
            items = sequences(asked, names_in(name, start).X, tokens=reads.tokens, channels=reads.channels)
            if arguments.json or arguments.explain:
                decisions = model.explain(items, **how)
                found = [decision.answer for decision in decisions]
                for sequence, decision in zip(asked, decisions):
                    yield Section(lines=f"{_shown(sequence, model)}\n{decision.render()}\n", record=decision.to_dict())
            else:
                found, sure = _answers(model, items, how)
                for sequence, answer, chance in zip(asked, found, sure):
                    shown = shown_answer(answer)
                    if isinstance(model, NumberModel):
                        shown = shown_numbers(answer, model.deviation)
                    yield Section(lines="\t".join([shown, *chance, _shown(sequence, model)]))
            given_answers += found
            if show is not None:
                show(min(start + AT_ONCE, len(given.sequences)), len(given.sequences))
        if answers is not None:
            yield Section(text=_compared(model, given_answers, answers), aside=True)

    def suggested(self, config: Config, corpus: Any) -> str:
        return "predict -m {} FILE" + " --explain" * (self.kind.name != "series")


def _forecasts(model: ForecastModel, text: str, name: str, arguments: Any) -> Iterator[Section]:
    """A table with a row per step ahead: the values and their deviations; a column says which series it is of."""
    names = model.labelling.channels
    series, _ = parse_series(text, name, names)
    if arguments.json or arguments.explain:
        for decision in model.explain(series):
            yield Section(lines=f"{decision.render()}\n", record=decision.to_dict())
        return
    found = zip(*model.predict(series, return_std=True))
    titles = list(names) or [f"channel {k}" for k in range(1, model.labelling.size + 1)]
    yield Section(lines="\t".join(["series", "step", *titles, *(f"{title} ±" for title in titles)]))
    for k, (ahead, sure) in enumerate(found, start=1):
        for step, (values, off) in enumerate(zip(ahead, sure), start=1):
            cells = (shown_numbers(one, one_off) for one, one_off in zip([*values, *off], [*off, *off]))
            yield Section(lines="\t".join([str(k), str(step), *cells]))


def _compared(model: LabelledModel, found: list[Any], answers: list[Any]) -> str:
    """How good the answers are, in a line."""
    if isinstance(model, NumberModel):
        rows = [np.reshape(one, wanted.shape) for one, wanted in zip(found, answers)]
        return str(NumberScores.of(np.concatenate(rows), np.concatenate(answers), model.numbers.mean))
    wanted = answers if model.reads.modality == "tags" else [row[0] for row in answers]
    return shown_right(model.reads.modality, found, wanted)


def _checked(given: Labelled, model: LabelledModel, names: Names) -> list[Any]:
    """The right answers of each sequence, as the model gives them; InputError if it knows none of them."""
    reads = model.reads
    if isinstance(model, NumberModel):
        items, wanted = sequences(given.sequences, names.X), given.answers or []
        # a table in which the number of every series is constant is read as one number per series
        if model.numbers.steps and not reads.symbols:
            wanted = [[one] * len(item) if isinstance(one, float) else one for one, item in zip(wanted, items)]
        return model.checked(wanted, items, names)
    known = {str(label): label for label in reads.classes}  # in a table all answers are strings
    items = sequences(given.sequences, names.X)
    if reads.modality == "pairs":
        written = check_pairs(given.answers, len(items), names.y)
        return [["".join(one) if reads.text else list(one)] for one in written]
    if reads.modality == "labels":
        labels = check_labels(given.answers, len(items), names.y)
        if given.maybe_header:
            check_no_header(names.X.whole, labels, known)
        rows = [[label] for label in labels]
    else:
        rows = check_tags(given.answers, items, names)
        if names.y.whole.endswith(".txt") and known.keys().isdisjoint(map(str, chain.from_iterable(rows))):
            raise InputError(
                f"{names.y.whole} has no tag of this model: in a .txt file each line is read as a token and its tag; "
                "sentences, one on each line, can be given by standard input (-)"
            )
    typed = [[known.get(str(label), label) for label in row] for row in rows]
    if all((row < 0).all() for row in reads.answer_indices(typed)):
        reads.class_indices(typed[0], names.y.whole)  # raises
    return typed


def _answers(model: LabelledModel, asked: list[Item], how: dict[str, Any]) -> tuple[list[Any], list[list[str]]]:
    """The answer to each sequence; of labels with the probability, of numbers with the deviation, in a list."""
    if isinstance(model, NumberModel):
        means, deviations = model.predict(asked, return_std=True)
        first = [one[0] for one in deviations] if model.numbers.steps else deviations  # it is the same at all steps
        return [one.tolist() for one in means], [[shown_numbers(one, one)] for one in first]
    if not isinstance(model, LabelModel):
        return list(model.predict(asked, **how)), [[]] * len(asked)
    chances = model.predict_proba(asked)
    return [model.reads.classes[k] for k in chances.argmax(axis=1)], [[f"{p:.3f}"] for p in chances.max(axis=1)]


def _shown(sequence: Any, model: LabelledModel) -> str:
    if not model.reads.symbols:
        return f"{len(sequence)} steps"
    return sequence if isinstance(sequence, str) else " ".join(sequence)
