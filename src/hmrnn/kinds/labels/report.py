"""The part of report.html that is about labelled sequences and forecasts: errors, and decisions with their segments."""

from __future__ import annotations

import html
import itertools
from collections import Counter
from typing import Any

from hmrnn.analysis.edits import span_f1
from hmrnn.analysis.render import visible
from hmrnn.kinds.labels.corpus import Examples, LabelCorpus
from hmrnn.kinds.labels.decision import Decision, shown_answer, shown_numbers, shown_right
from hmrnn.kinds.labels.forecast import ForecastModel
from hmrnn.kinds.labels.model import LabelledModel, NumberModel, PairModel

SHOWN = 12
"""Sequences of the validation part whose decisions are shown."""
CLASSES = 20
"""Most classes of a table of confusions."""


def opening(model: LabelledModel, corpus: LabelCorpus) -> list[str]:
    """One sentence on how many answers are right, or on how far numbers are off."""
    X, y = corpus.valid.sequences, wanted(model, corpus.valid)
    if isinstance(model, NumberModel):
        said = str(model.scores(X, y))
    elif isinstance(model, ForecastModel):
        said = f"forecasts have {1 - model.skill(corpus.valid):.1%} of the squared error of no change"
    else:
        found = model.predict(X)
        said = shown_right(model.reads.modality, found, y)
        if isinstance(model, PairModel):
            said += f"; {model.error_rate(X, y):.1%} of the symbols need an edit"
        if model.reads.modality == "tags" and "O" in model.reads.classes:
            said += f"; F1 of spans {span_f1(found, y):.3f}"
    return [f"<p>Of the validation part, {len(X):,} sequences: {html.escape(said)}.</p>"]


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


def examples(model: LabelledModel, corpus: LabelCorpus) -> list[str]:
    """A table of confusions, and decisions of the validation part."""
    X, y = corpus.valid.sequences, wanted(model, corpus.valid)
    parts = []
    if model.reads.classes and model.reads.modality != "pairs":
        found = model.predict(X)
        pairs = zip(y, found)
        if model.reads.modality == "tags":
            pairs = zip(itertools.chain(*y), itertools.chain(*found))
        parts.append(_confusions(Counter(pairs), list(model.reads.classes)))
    parts.append("<h2>Decisions</h2><p>Sequences of the validation part with the segments of level 1. The darker a ")
    parts.append("segment, the larger its weight in the decision. Tags and written symbols are listed with their ")
    parts.append("probabilities and the segments that decided each most.</p>")
    for decision, right in zip(model.explain(X[:SHOWN]), y):
        parts.append(_decision(decision, right))
    return parts


def _confusions(counted: Counter[tuple[Any, Any]], classes: list[Any]) -> str:
    if len(classes) > CLASSES:
        worst = [(pair, count) for pair, count in counted.most_common() if pair[0] != pair[1]][:CLASSES]
        rows = "".join(f"<tr><td>{html.escape(str(a))}</td><td>{html.escape(str(b))}</td><td>{count}</td></tr>"
                       for (a, b), count in worst)  # fmt: skip
        return f"<h2>Errors</h2><table><tr><th>right</th><th>answer</th><th>count</th></tr>{rows}</table>"
    head = "".join(f"<th>{html.escape(str(label))}</th>" for label in classes)
    rows = "".join(
        f"<tr><th>{html.escape(str(a))}</th>{''.join(f'<td>{counted[a, b]}</td>' for b in classes)}</tr>"
        for a in classes
    )
    return f"<h2>Answers</h2><p>A row per right answer.</p><table><tr><th></th>{head}</tr>{rows}</table>"


def _decision(decision: Decision, right: Any) -> str:
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
    return f"<p><b>{html.escape(answer)}</b>{html.escape(sure)}: {html.escape(mark)}</p><pre class=sample>{shown}</pre>"


def _text(decision: Decision, start: int, end: int) -> str:
    if decision.numbers:
        return f" {start + 1}-{end} "
    return html.escape("".join(visible(symbol) for symbol in decision.segmentation.symbols[start:end]))
