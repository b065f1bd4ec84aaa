"""Sampling from a model, step by step: symbols that continue a prompt, or lines of handwriting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.nn import checks
from hmrnn.nn.context import Told
from hmrnn.nn.distributions import Halting, StrokeMixture
from hmrnn.nn.models import POINT_SIZE, HandwritingModel, LanguageModel
from hmrnn.reading.read import Reader, read

Progress: TypeAlias = Callable[[int, int], None] | None
LONGEST = 2**62
"""The most symbols that are drawn one after the other."""
LARGEST_STEP = 1000.0
"""The largest step of the pen, in deviations of the training steps; beyond it the model has lost control."""
MOST = 1000.0
"""The largest bias and temperature of strokes; 1/MOST is the smallest temperature above 0."""
MOST_LIFTS, FEWEST = 0.4, 20
"""A model that expects pen-ups after more than this share of the points has learned nothing: people lift the pen after
a tenth of the points or fewer, an untrained network expects it after half. Judged from at least FEWEST points."""
READ, READ_LINES = 500, 8
"""The points of a line, and the lines, from which that is judged."""


ROOM, OF_A_STEP, OF_A_UNIT = 1 << 31, 512, 64
"""Bytes that sequences drawn side by side may take, with the states of the network: those of a step, and of a unit."""


def check_length(length: int) -> None:
    """InputError unless so many symbols can be drawn one after the other."""
    checks.numbers({"length": length}, Integral)
    if not 0 <= length <= LONGEST:
        rule = "not be negative" if length < 0 else f"be at most {LONGEST}"
        raise InputError(f"length must {rule}; got {length}")


def check_room(model: LanguageModel | HandwritingModel, samples: int, steps: int, name: str = "length") -> None:
    """InputError unless so many sequences of so many steps fit into memory; messages call the steps ``name``."""
    checks.numbers({"samples": samples, name: steps}, Integral)
    if samples < 1:
        raise InputError(f"samples must be at least 1; got {samples}")
    unit = OF_A_UNIT * sum(model.rnn.hidden_sizes)
    if steps > (most := (ROOM - unit) // OF_A_STEP):
        raise InputError(f"{name} must be at most {most:,}; got {steps}")
    if samples > (most := ROOM // (OF_A_STEP * max(steps, 1) + unit)):
        raise InputError(f"samples must be at most {most:,}, with {name} {steps}; got {samples}")


def seeded(seed: int | None) -> torch.Generator:
    """A generator on the CPU; the same seed gives the same draws, None different ones each time."""
    checks.numbers({"seed": seed}, Integral)
    if seed is not None and not 0 <= seed < 2**63:
        raise InputError(f"seed must lie between 0 and 2**63 - 1; got {seed}")
    generator = torch.Generator()
    generator.manual_seed(generator.seed() if seed is None else int(seed))
    return generator


def stream(
    model: LanguageModel,
    prompt: Sequence[int] | np.ndarray,
    length: int,
    *,
    seed: int | None = None,
    stop: int | None = None,
    told: Told | None = None,
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
        told: the condition and the time of the sequence, for a model that takes them.
        how: ``temperature`` divides the logits, 0 always takes the likeliest symbol; ``top_k`` draws from the k
            likeliest symbols only, ``top_p`` from the fewest symbols that together have this probability.
    """
    _check(length, **how)
    symbols = np.asarray(prompt)
    if symbols.ndim != 1:
        raise InputError(f"prompt must be a sequence of whole numbers; got shape {symbols.shape}")
    start = model.as_input(symbols)[:, None]  # (n, 1)
    drawn = draw(Reader(model, told=told), start, seeded(seed), **how)
    found = (int(symbol) for symbol in itertools.islice(drawn, length))
    return found if stop is None else itertools.takewhile(lambda symbol: symbol != stop, found)


def continue_all(
    model: LanguageModel,
    prompts: Sequence[np.ndarray],
    length: int,
    *,
    seed: int | None = None,
    stop: int | None = None,
    told: Told | None = None,
    progress: Progress = None,
    **how: Any,
) -> list[np.ndarray]:
    """As :func:`stream`, for several prompts side by side: at most ``length`` symbols for each.

    ``progress`` is called with the steps that are done, and all.

    A shorter prompt is continued while the longer ones are still being read. All draws come from one generator, so the
    symbols for a prompt and a seed depend on the other prompts.
    """
    _check(length, **how)
    generator, lengths = seeded(seed), np.array([len(prompt) for prompt in prompts])
    symbols = np.zeros((int(lengths.max()) + length, len(prompts)), np.int64)  # (T, B)
    for b, prompt in enumerate(prompts):
        symbols[: len(prompt), b] = prompt
    reader = Reader(model, len(prompts), told)
    for t, row in enumerate(symbols):
        drawing = (lengths <= t) & (t < lengths + length)
        if t:
            reader.read(model.as_input(symbols[t - 1]))
        if drawing.any():
            drawn = reader.predict().sample(generator, **how)
            row[drawing] = drawn.cpu().numpy()[drawing]
        if progress is not None:
            progress(t + 1, len(symbols))
    found = [symbols[n : n + length, b] for b, n in enumerate(lengths.tolist())]
    return [each[: next(iter(np.flatnonzero(each == stop)), length)] for each in found]


def _check(length: int, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> None:
    check_length(length)
    checks.numbers({"top_k": top_k}, Integral)
    checks.numbers({"temperature": temperature, "top_p": top_p}, Real)
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature must be 0 or more; got {temperature}")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1; got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p must lie above 0 and at most be 1; got {top_p}")


def write(
    model: HandwritingModel,
    scale: Scale,
    points: int,
    *,
    samples: int = 1,
    bias: float = 0.0,
    temperature: float = 1.0,
    prime: np.ndarray | None = None,
    seed: int | None = None,
    told: Told | None = None,
    progress: Progress = None,
) -> list[np.ndarray]:
    """Lines of handwriting, each (points, 3): Δx, Δy and 1 after the last point of a stroke, in the units of the data.

    A model that predicts halts ends each line by itself, after at most ``points``.

    Args:
        model: the network; it runs as in ``eval()``.
        scale: the scale of its training data.
        points: the length of each line, or the largest length.
        samples: the number of lines.
        bias: 0 varies as the training data do, larger values write neater (Graves, 2013, section 5.4).
        temperature: below 1 safer, above 1 wilder.
        prime: (n, 3) steps of a real line to read first; the lines continue it, and do not contain it.
        seed: the same seed gives the same lines; None gives different ones each time.
        told: the condition and the time of the lines, for a model that takes them.
        progress: called with the points that are drawn, and ``points``.
    """
    check_room(model, samples, points, "points")
    if points < 1:
        raise InputError(f"points must be at least 1; got {points}")
    check_strokes(bias, temperature)
    if prime is not None and (prime.ndim != 2 or prime.shape[1] != 3 or len(prime) == 0):
        raise InputError(f"prime must have shape (n, 3) with at least one point; got {prime.shape}")
    read_first = np.zeros((1, 3)) if prime is None else prime  # a line begins with the step (0, 0)
    start = model.as_input(scale.encode(read_first))[:, None].expand(-1, samples, -1)  # (n, B, 3)
    steps = draw(Reader(model, samples, told), start, seeded(seed), bias=bias, temperature=temperature)
    drawn: list[Tensor] = []  # each (B, 3)
    lengths = np.full(samples, points)
    for step in itertools.islice(steps, points):
        drawn.append(check_jump(step[:, :POINT_SIZE], temperature))
        if model.config.halt:
            lengths = np.where(step[:, POINT_SIZE].numpy() > 0, np.minimum(lengths, len(drawn)), lengths)
            if lengths.max() <= len(drawn):
                break
        if progress is not None:
            progress(len(drawn), points)
    lines = scale.decode(torch.stack(drawn, dim=1).numpy())  # (B, points, 3)
    return [line[:length] for line, length in zip(lines, lengths)]


def draw(reader: Reader, start: Tensor, generator: torch.Generator, **how: Any) -> Iterator[Tensor]:
    """Read ``start`` (n, B, ...), then draw steps (B, ...) without end; a step is read when the next one is asked for.

    ``how`` are the options of the prediction's ``sample``.
    """
    unread = start
    while True:
        for x in unread:
            reader.read(x)
        drawn = reader.predict().sample(generator, **how)
        yield drawn
        read_next = drawn[..., :POINT_SIZE] if drawn.dim() > 1 else drawn  # a halt is not read
        unread = read_next[None].to(start)


def check_strokes(bias: float, temperature: float) -> None:
    """InputError unless strokes can be drawn with this bias and temperature."""
    checks.numbers({"bias": bias, "temperature": temperature}, Real)
    for name, number in (("bias", bias), ("temperature", temperature)):
        if not 0 <= number <= MOST:
            raise InputError(f"{name} must lie between 0 and {MOST:.0f}; got {number}")
    if 0 < temperature < 1 / MOST:
        raise InputError(f"temperature must be 0 or at least {1 / MOST:g}; got {temperature}")


def check_jump(step: Tensor, temperature: float = 1.0) -> Tensor:
    """The drawn steps (B, 3); InputError if one is too large for a network to read."""
    largest = float(step[:, :2].abs().max())
    if largest > LARGEST_STEP:
        reason = "this model is untrained or has diverged; use another checkpoint, or a higher bias"
        if temperature > 1:
            reason = f"temperature {temperature:g} is too much for this model; lower it"
        raise InputError(f"the pen jumped by {largest:.3g} deviations of the training steps: {reason}")
    return step


def scribble(model: HandwritingModel, scale: Scale, lines: list[np.ndarray]) -> str | None:
    """A warning if the model that wrote ``lines`` has not learned when to lift the pen; else None.

    It is judged by what the model expects: in the lines, a bias or a low temperature may hide it.
    """
    shortest = min([READ, *map(len, lines)])
    points = np.stack([line[:shortest] for line in lines[:READ_LINES]], axis=1)  # (T, B, 3): some, to save memory
    if points[..., 0].size < FEWEST:
        return None
    [found] = read(model, [model.as_input(scale.encode(points))])
    assert isinstance(found.prediction, StrokeMixture | Halting)
    lifts = float(found.prediction.pen.sigmoid().mean())
    if lifts <= MOST_LIFTS:
        return None
    return (
        f"this model expects the pen to be lifted after {lifts:.0%} of the points, which is scribble: it is untrained "
        "or has diverged; train it longer, or use another checkpoint"
    )
