"""What the commands do with labelled sequences and their models."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hmrnn.analysis.sections import Section
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.classes import Classes
from hmrnn.kinds.labels.decision import shown_answer, shown_numbers
from hmrnn.kinds.labels.files import Labelled, check_no_header, parse
from hmrnn.kinds.labels.model import ForecastModel, LabelledModel, NumberModel, PairModel, plain
from hmrnn.kinds.labels.report import sections
from hmrnn.kinds.labels.sequences import Item, of_file, sequences
from hmrnn.pretrained.commands import Commands
from hmrnn.utils.inputs import decoded, read_bytes

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
        encoder, answer = model.encoder, model.answer
        given = parse(
            text, name, self.kind.name, tokens=encoder.tokens, numbers=not encoder.symbols, each=answer.per_step
        )
        with of_file(name):
            items = sequences(given.sequences, tokens=encoder.tokens, channels=encoder.channels)
            wanted = None if given.answers is None else _right(given, items, model, name)
        how = {"beam": arguments.beam} if isinstance(model, PairModel) else {}
        show, found = self.progress("predicting"), list[np.ndarray]()
        explain = arguments.json or arguments.explain
        for start in range(0, len(items), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            answers = model.answers(items[part], weigh=explain, **how)
            for sequence, item, one in zip(given.sequences[part], items[part], answers):
                found.append(one.values)
                read = _read(sequence, model)
                if explain:
                    decision = model.decision(item, one)
                    yield Section(lines=f"{read}\n{decision.render()}\n", record=decision.to_dict())
                else:
                    said = plain(answer.given(one.values, item))
                    chance = answer.sure(one.values, one.chances)
                    cells = [shown_answer(said)]
                    if isinstance(model, NumberModel):
                        cells = [shown_numbers(said, model.deviation), shown_numbers(model.deviation, model.deviation)]
                    elif isinstance(chance, dict):
                        cells.append(f"{max(chance.values()):.3f}")
                    yield Section(lines="\t".join([*cells, read]))
            if show is not None:
                show(min(start + AT_ONCE, len(items)), len(items))
        if wanted is not None:
            yield Section(text=answer.compared(found, wanted), aside=True)

    def suggested(self, config: Config, corpus: Any) -> str:
        return "predict -m {} FILE" + " --explain" * (self.kind.name != "series")


def _forecasts(model: ForecastModel, text: str, name: str, arguments: Any) -> Iterator[Section]:
    """A table with a row per step ahead: the values and their deviations; a column says which series it is of."""
    names = model.encoder.channels
    given = parse(text, name, "series").sequences
    with of_file(name):
        series = sequences(given, channels=names, series=True)
    if arguments.json or arguments.explain:
        for decision in model.explain(series):
            yield Section(lines=f"{decision.render()}\n", record=decision.to_dict())
        return
    found = zip(*model.predict(series, return_std=True))
    titles = list(names) or [f"channel {k}" for k in range(1, model.encoder.size + 1)]
    yield Section(lines="\t".join(["series", "step", *titles, *(f"{title} ±" for title in titles)]))
    for k, (ahead, sure) in enumerate(found, start=1):
        for step, (values, off) in enumerate(zip(ahead, sure), start=1):
            cells = (shown_numbers(one, one_off) for one, one_off in zip([*values, *off], [*off, *off]))
            yield Section(lines="\t".join([str(k), str(step), *cells]))


def _right(given: Labelled, items: list[Item], model: LabelledModel, name: str) -> list[np.ndarray]:
    """The right answer to each sequence; InputError if the model knows none of them."""
    answer, wanted = model.answer, given.answers or []
    if not isinstance(answer, Classes):
        return model.right(wanted, items)
    known = {str(label): label for label in answer.classes}  # in a table all answers are strings

    def typed(one: Any) -> Any:
        return [typed(each) for each in one] if isinstance(one, list) else known.get(str(one), one)

    if given.maybe_header and answer.noun == "label":
        check_no_header(name, wanted, known)
    found = model.right([typed(one) for one in wanted], items)
    if all((one < 0).all() for one in found):
        hint = "; each line of a .txt file is a token and its tag: give lines of sentences by standard input (-)"
        raise InputError(
            f"{name} holds none of the answers of this model, such as {reprlib.repr(wanted[0])} instead of "
            f"{answer.classes[0]!r}" + hint * name.endswith(".txt")
        )
    return found


def _read(sequence: Any, model: LabelledModel) -> str:
    if not model.encoder.symbols:
        return f"{len(sequence)} steps"
    return sequence if isinstance(sequence, str) else " ".join(sequence)
