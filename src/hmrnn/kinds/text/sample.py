"""Symbols drawn from a language model: the continuation of one prompt, or of several side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta

from hmrnn.config.checks import NotNegative
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.checks import argument
from hmrnn.nn.context import Condition
from hmrnn.reading.read import Reader
from hmrnn.reading.sample import draw, seeded

LONGEST = 2**62
"""The most symbols that are drawn one after the other."""


def check_length(length: int) -> None:
    """InputError unless so many symbols can be drawn one after the other."""
    argument("length", length, Annotated[int, Meta(ge=0, le=LONGEST)])


def stream(
    model: LanguageModel,
    prompt: Sequence[int] | np.ndarray,
    length: int,
    *,
    seed: int | None = None,
    stop: int | None = None,
    condition: Condition | None = None,
    **how: Any,
) -> Iterator[int]:
    """Symbols that continue a prompt, each as soon as it is drawn; the prompt itself is not among them.

    Args:
        model: the network; it runs as in ``eval()``.
        prompt: symbols to read first. If empty, the first symbol is drawn from the prediction of the zero state, which
            is the softmax of its bias.
        length: number of symbols to draw.
        seed: the same seed gives the same symbols; None gives different ones each time.
        stop: the symbol that ends a sequence; nothing is drawn after it, and it is not among the result.
        condition: the condition and the time of the sequence, for a model that takes them.
        how: ``temperature`` divides the logits, 0 always takes the likeliest symbol; ``top_k`` draws from the k
            likeliest symbols only, ``top_p`` from the fewest symbols that together have this probability.
    """
    _check(length, **how)
    symbols = np.asarray(prompt)
    if symbols.ndim != 1:
        raise InputError(f"prompt must be a sequence of whole numbers; got shape {symbols.shape}")
    start = model.as_input(symbols)[:, None]  # (n, 1)
    drawn = draw(Reader(model, condition=condition), start, seeded(seed), **how)
    found = (int(symbol) for symbol in itertools.islice(drawn, length))
    return found if stop is None else itertools.takewhile(lambda symbol: symbol != stop, found)


def continue_all(
    model: LanguageModel,
    prompts: Sequence[np.ndarray],
    length: int,
    *,
    seed: int | None = None,
    stop: int | None = None,
    condition: Condition | None = None,
    progress: Progress = None,
    **how: Any,
) -> list[np.ndarray]:
    """As :func:`stream`, for several prompts side by side: at most ``length`` symbols for each.

    ``progress`` is called with the steps that are done, and all.

    A shorter prompt is continued while the longer ones are still being read. All draws come from one generator, so the
    symbols for a prompt and a seed depend on the other prompts.
    """
    _check(length, **how)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    first, longest = int(lengths.min()), int(lengths.max())
    start = np.zeros((longest, len(prompts)), np.int64)  # (T, B)
    for b, prompt in enumerate(prompts):
        start[: len(prompt), b] = prompt
    drawn = np.zeros((longest - first + length, len(prompts)), np.int64)
    steps = draw(Reader(model, len(prompts), condition), model.as_input(start), seeded(seed), lengths, **how)
    for k, (row, step) in enumerate(zip(drawn, steps)):
        row[:] = step.numpy()
        if progress is not None:
            progress(first + k + 1, longest + length)
    found = [drawn[n - first :][:length, b] for b, n in enumerate(lengths.tolist())]
    return [each[: next(iter(np.flatnonzero(each == stop)), length)] for each in found]


def _check(length: int, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> None:
    check_length(length)
    argument("temperature", temperature, NotNegative)
    argument("top_k", top_k, Annotated[int, Meta(ge=1)] | None)
    argument("top_p", top_p, Annotated[float, Meta(gt=0, le=1)] | None)
