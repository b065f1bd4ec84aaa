"""A task of text that starts from a trained model: new symbols get rows of their own in its weights."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from hmrnn.kind import InputSpec
from hmrnn.reading.plain import plain
from hmrnn.reading.vocabulary import Vocabulary

ROWS = ("embedding.weight", "softmax.weight", "softmax.bias")
"""The weights of a model of text that have a row for each symbol."""
HEAD_ROWS = ("segments.embedding.weight", "segments.spell.weight", "segments.spell.bias")
"""Those of a segmental head; the first has one more row, which begins a segment."""
LEXICON = ("segments.words", "segments.shares")
"""The lexicon of a segmental head; a run has that of its own text."""
COUNTED = 10_000_000
"""Symbols of the training part that are counted."""


@torch.no_grad()
def adopt(task: Any, weights: dict[str, Tensor], reads: InputSpec) -> None:
    """Give the model of a task the weights of one that reads ``reads``. It keeps its lexicon."""
    old, new, own = cast(Vocabulary, reads), task.corpus.vocabulary, task.model.state_dict()
    counts = np.bincount(task.corpus.train[:COUNTED], minlength=len(new))
    rows = {name: weights[name].float() for name in (*ROWS, *HEAD_ROWS) if name in weights}
    begin = {name: rows[name][len(old) :] for name in rows}
    rows = extended({name: row[: len(old)] for name, row in rows.items()}, old, new, counts)
    weights = weights | {name: torch.cat([row, begin[name]]) for name, row in rows.items()}
    task.model.load_state_dict(weights | {name: own[name] for name in LEXICON if name in weights and name in own})


def extended(rows: dict[str, Tensor], old: Vocabulary, new: Vocabulary, counts: np.ndarray) -> dict[str, Tensor]:
    """Weights with a row for each symbol of ``old`` for the vocabulary ``new``, which holds all symbols of ``old``.

    A new symbol starts as its plain form, such as " for “, if the model knows that, else as the unknown symbol, else
    as the mean of all symbols with the smallest bias. It gets a share of the probability of the symbol that it starts
    as, by ``counts``, how often each symbol of ``new`` occurs in the training part.
    """
    parents = _parents(new, old)
    own = {place: k for k, (place, same) in enumerate(parents) if same}
    result = {}
    for name, weight in rows.items():
        other = weight.min() if name.endswith("bias") else weight.mean(0)
        result[name] = torch.stack([other if place is None else weight[place] for place, _ in parents])
    for k, (place, same) in enumerate(parents):
        if place is not None and not same:
            share = (counts[k] + 1) / (counts[own[place]] + 1)
            for name in rows:
                if name.endswith("bias"):
                    result[name][k] += min(0.0, float(np.log(share)))
    return result


def _parents(new: Vocabulary, old: Vocabulary) -> list[tuple[int | None, bool]]:
    """For each symbol of ``new`` the index of that of ``old`` that it starts as, and whether it is the same symbol."""
    places: dict[Any, int] = {each: k for k, each in enumerate(old.symbols)}
    unknown = len(old.symbols) if old.unknown else None

    def parent(symbol: Any) -> tuple[int | None, bool]:
        if symbol in places:
            return places[symbol], True
        form = plain(symbol).strip() if isinstance(symbol, str) else ""
        return next((places[each] for each in (form, form.lower()) if each in places), unknown), False

    return [*map(parent, new.symbols), *[(unknown, old.unknown)] * new.unknown]
