"""What report.html shows of labelled sequences and forecasts: errors, and decisions with their segments."""

from __future__ import annotations

import dataclasses
import html
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hmrnn.analysis.edits import span_f1
from hmrnn.analysis.render import visible
from hmrnn.analysis.sections import Section
from hmrnn.kinds.labels.corpus import Examples, LabelCorpus
from hmrnn.kinds.labels.decision import Decision, shown_answer, shown_numbers, shown_right
from hmrnn.kinds.labels.forecast import ForecastModel
from hmrnn.kinds.labels.model import LabelledModel, NumberModel, PairModel

SHOWN = 12
"""Sequences of the validation part whose decisions are shown."""
CLASSES = 20
"""Most classes of a table of confusions."""


def sections(model: LabelledModel, corpus: LabelCorpus) -> Iterator[Section]:
    X, y = corpus.valid.sequences, wanted(model, corpus.valid)
    found = model.predict(X) if model.reads.classes else []
    yield Section(text=f"Of the validation part, {len(X):,} sequences: {_opening(model, corpus, found, y)}.")
    if model.reads.classes and model.reads.modality != "pairs":
        pairs = zip(y, found)
        if model.reads.modality == "tags":
            pairs = zip(itertools.chain(*y), itertools.chain(*found))
        yield _confusions(Counter(pairs), list(model.reads.classes))
    yield Section(
        title="Decisions",
        text="Sequences of the validation part with the segments of level 1. The darker a segment, the larger its "
        "weight in the decision. Tags and written symbols are listed with their probabilities and the segments that "
        "decided each most.",
    )
    for decision, right in zip(model.explain(X[:SHOWN]), y):
        yield Section(found=Judged(decision, right))


def _opening(model: LabelledModel, corpus: LabelCorpus, found: Any, y: list[Any]) -> str:
    """How many answers are right, or how far numbers are off."""
    if isinstance(model, NumberModel):
        return str(model.scores(corpus.valid.sequences, y))
    if isinstance(model, ForecastModel):
        return f"forecasts have {1 - model.skill(corpus.valid):.1%} of the squared error of no change"
    said = shown_right(model.reads.modality, found, y)
    if isinstance(model, PairModel):
        said += f"; {model.error_rate(corpus.valid.sequences, y):.1%} of the symbols need an edit"
    if model.reads.modality == "tags" and "O" in model.reads.classes:
        said += f"; F1 of spans {span_f1(found, y):.3f}"
    return said


def wanted(model: LabelledModel, examples: Examples) -> list[Any]:
    """The right answers as users give them."""
    if isinstance(model, ForecastModel):
        answers = [model.numbers.decode(one)[-1].reshape(model.numbers.ahead, -1) for one in examples.targets]
        return [(item[-1] + answer).tolist() for item, answer in zip(examples.sequences, answers)]
    if isinstance(model, NumberModel):
        each = [model.numbers.shaped(model.numbers.decode(one)).tolist() for one in examples.targets]
        return each if model.numbers.steps else [one[0] for one in each]
    classes = model.reads.classes
    if model.reads.modality == "labels":
        return [classes[one[0]] for one in examples.targets]
    ends = 1 if model.reads.modality == "pairs" else 0  # the end symbol is no answer
    each = [[classes[k] for k in one[: len(one) - ends]] for one in examples.targets]
    return ["".join(map(str, one)) for one in each] if model.reads.text else each


def _confusions(counted: Counter[tuple[Any, Any]], classes: list[Any]) -> Section:
    if len(classes) > CLASSES:
        worst = [(str(a), str(b), str(count)) for (a, b), count in counted.most_common() if a != b][:CLASSES]
        return Section("Errors", table=[("right", "answer", "count"), *worst])
    rows = [(str(a), *(str(counted[a, b]) for b in classes)) for a in classes]
    return Section("Answers", "A row per right answer.", table=[("", *map(str, classes)), *rows])


@dataclasses.dataclass(frozen=True)
class Judged:
    """A decision beside the right answer."""

    decision: Decision
    right: Any

    def _repr_html_(self) -> str:
        decision, right = self.decision, self.right
        parts = decision.parts()
        largest = max(1e-9, *(part.weight for part in parts))
        shown = "".join(
            f'<span style="color: #000; background: rgb({255 - 110 * share:.0f},{255 - 60 * share:.0f},255); '
            f'border-right: 1px solid #888" title="{share:.1%}">{_text(decision, part.start, part.end)}</span>'
            for part in parts
            for share in [part.weight / largest]
        )
        answer, gold = shown_answer(decision.answer), shown_answer(right)
        mark = "right" if answer == gold else f"right would be {gold}"
        sure = ""
        if decision.deviation is not None:
            off = decision.deviation
            answer, gold = shown_numbers(decision.answer, off), shown_numbers(right, off)
            mark, sure = f"right would be {gold}", f" ± {shown_numbers(off, off)}"
        elif isinstance(decision.probabilities, dict):
            ranked = sorted(decision.probabilities.items(), key=lambda pair: -pair[1])[:3]
            sure = " (" + ", ".join(f"{label} {p:.3f}" for label, p in ranked) + ")"
        else:
            each = zip(decision.answer, decision.probabilities, decision.sources())
            rows = (f"{symbol} {p:.3f} from {''.join(map(visible, source))}" for symbol, p, source in each)
            shown += f"\n\n{html.escape(chr(10).join(rows))}"
        return f"<p><b>{html.escape(answer)}</b>{html.escape(sure)}: {html.escape(mark)}</p><pre>{shown}</pre>"


def _text(decision: Decision, start: int, end: int) -> str:
    if decision.numbers:
        return f" {start + 1}-{end} "
    return html.escape("".join(visible(symbol) for symbol in decision.segmentation.symbols[start:end]))
