"""What report.html shows of labelled sequences and forecasts: errors, and decisions with their segments."""

from __future__ import annotations

import dataclasses
import html
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from hmrnn.analysis.render import visible
from hmrnn.analysis.sections import Section
from hmrnn.kinds.labels.answers.classes import Classes
from hmrnn.kinds.labels.corpus import LabelCorpus
from hmrnn.kinds.labels.decision import Decision
from hmrnn.kinds.labels.model import ForecastModel, LabelledModel, plain

SHOWN = 12
"""Sequences of the validation part whose decisions are shown."""
CLASSES = 20
"""Most classes of a table of confusions."""


def sections(model: LabelledModel, corpus: LabelCorpus) -> Iterator[Section]:
    answer, examples = model.answer, corpus.valid
    X = examples.sequences
    if isinstance(model, ForecastModel):
        said = f"forecasts have {1 - model.skill(examples):.1%} of the squared error of no change"
    else:
        found = [one.values for one in model.answers(X)]
        said = answer.compared(found, [answer.wanted(one) for one in examples.targets])
    yield Section(text=f"Of the validation part, {len(X):,} sequences: {said}.")
    if isinstance(answer, Classes) and answer.noun in ("label", "tag"):
        yield _confusions(np.concatenate(examples.targets), np.concatenate(found), list(map(str, answer.classes)))
    yield Section(
        title="Decisions",
        text="Sequences of the validation part with the segments of level 1. The darker a segment, the larger its "
        "weight in the decision. Tags and written symbols are listed with their probabilities and the segments that "
        "decided each most.",
    )
    for decision, target, item in zip(model.decisions(X[:SHOWN]), examples.targets, X):
        yield Section(found=Judged(decision, plain(answer.given(target, item))))


def _confusions(right: np.ndarray, found: np.ndarray, classes: list[str]) -> Section:
    counted = Counter(zip(right.tolist(), found.tolist()))
    if len(classes) > CLASSES:
        worst = [(classes[a], classes[b], str(count)) for (a, b), count in counted.most_common() if a != b][:CLASSES]
        return Section("Errors", table=[("right", "answer", "count"), *worst])
    rows = [(name, *(str(counted[a, b]) for b in range(len(classes)))) for a, name in enumerate(classes)]
    return Section("Answers", "A row per right answer.", table=[("", *classes), *rows])


@dataclasses.dataclass(frozen=True)
class Judged:
    """A decision beside the right answer."""

    decision: Decision
    right: Any

    def _repr_html_(self) -> str:
        decision = self.decision
        parts = decision.parts()
        largest = max(1e-9, *(part.weight for part in parts))
        shown = "".join(
            f'<span style="color: #000; background: rgb({255 - 110 * share:.0f},{255 - 60 * share:.0f},255); '
            f'border-right: 1px solid #888" title="{share:.1%}">{_text(decision, part.start, part.end)}</span>'
            for part in parts
            for share in [part.weight / largest]
        )
        answer, gold = decision.said(), decision.said(self.right)
        mark = "right" if answer == gold and decision.deviation is None else f"right would be {gold}"
        sure = ""
        if decision.deviation is not None:
            sure = f" ± {decision.said(decision.deviation)}"
        elif isinstance(decision.probabilities, dict):
            sure = f" ({decision.ranked(3)})"
        else:
            each = zip(decision.answer, decision.probabilities, decision.sources())
            rows = (f"{symbol} {p:.3f} from {''.join(map(visible, source))}" for symbol, p, source in each)
            shown += f"\n\n{html.escape(chr(10).join(rows))}"
        return f"<p><b>{html.escape(answer)}</b>{html.escape(sure)}: {html.escape(mark)}</p><pre>{shown}</pre>"


def _text(decision: Decision, start: int, end: int) -> str:
    if decision.numbers:
        return f" {start + 1}-{end} "
    return html.escape("".join(visible(symbol) for symbol in decision.segmentation.symbols[start:end]))
