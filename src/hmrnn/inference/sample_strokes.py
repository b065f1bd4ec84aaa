"""Sampling from a HandwritingModel, point by point, several lines side by side."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from hmrnn.data.strokes.strokes import Scale
from hmrnn.errors import InputError
from hmrnn.inference.sample import seeded
from hmrnn.nn import checks
from hmrnn.nn.distributions import Mixture
from hmrnn.nn.models import HandwritingModel, evaluating
from hmrnn.ops import State

LARGEST_STEP = 1000.0
"""In deviations of the training steps; a pen that moves further at once is out of control."""
MOST_LIFTS, FEWEST = 0.4, 20
"""People lift the pen after a tenth of the points or fewer; a network that knows nothing expects it after half of them.
With fewer than so many points nobody can tell."""
READ, READ_LINES = 500, 8
"""Points of a line, and lines, by which that is told."""
MOST = 1000.0
"""Of bias and temperature; a temperature below its inverse is as good as 0."""


@torch.no_grad()
def write(
    network: HandwritingModel,
    scale: Scale,
    points: int,
    *,
    samples: int = 1,
    bias: float = 0.0,
    temperature: float = 1.0,
    prime: np.ndarray | None = None,
    seed: int | None = None,
) -> list[np.ndarray]:
    """Lines of handwriting, each (points, 3): Δx, Δy and 1 after the last point of a stroke, in the units of the data.

    Args:
        network: the model; it runs as in ``eval()`` and is left as it was.
        scale: what its data were normalised by.
        points: of each line.
        samples: lines to write.
        bias: 0 writes as the training data vary, larger values neater (Graves, 2013, section 5.4).
        temperature: below 1 safer, above 1 wilder.
        prime: (n, 3) steps of a real line to read first. The lines go on from its end, and hold only what is new.
        seed: the same seed gives the same lines; None gives others each time.
    """
    _check(points, samples, bias, temperature)
    if prime is not None and (prime.ndim != 2 or prime.shape[1] != 3 or len(prime) == 0):
        raise InputError(f"prime must have shape (n, 3) with at least one point; got {prime.shape}")
    weight = network.density.weight
    generator = seeded(seed)
    read = np.zeros((1, 3)) if prime is None else prime  # a line begins with the step (0, 0)
    unread = torch.from_numpy(scale.encode(read)).to(weight)[:, None].expand(-1, samples, -1)  # (n, B, 3)
    state = network.rnn.initial_state(samples)
    drawn = []
    with evaluating(network):
        for _ in range(points):
            for x in unread:
                state = network.rnn.step(x, state).state
            drawn.append(next_points(network, state, generator, bias=bias, temperature=temperature))  # (B, 3)
            unread = drawn[-1].to(weight)[None]
    return list(scale.decode(torch.stack(drawn, dim=1).numpy()))  # (B, points, 3)


@torch.no_grad()
def next_points(
    network: HandwritingModel, state: State, generator: torch.Generator, *, bias: float, temperature: float = 1.0
) -> Tensor:
    """(B, 3) float64 on the CPU, normalised: what each line goes on with from a state; InputError if it makes no sense.

    The network is taken to be in ``eval()``.
    """
    mixture = Mixture(*(a.double().cpu() for a in network.expect(network.output(state.h))))
    _check_finite(mixture)
    points = mixture.sample(bias=bias, temperature=temperature, generator=generator)
    _check_jump(points, temperature)
    return points


@torch.no_grad()
def scribble(network: HandwritingModel, scale: Scale, lines: list[np.ndarray]) -> str | None:
    """What to tell of lines of one length, by a network that lifts the pen too often to have learned when; else None.

    The network is asked, not the lines: where it has no idea, a bias or a low temperature may draw no lift at all.
    """
    points = np.stack([line[:READ] for line in lines[:READ_LINES]], axis=1)  # (T, B, 3): some, to spare memory
    if points[..., 0].size < FEWEST:
        return None
    with evaluating(network):
        expected, _, _ = network(torch.from_numpy(scale.encode(points)).to(network.density.weight))
    lifts = float(expected.pen.sigmoid().mean())
    if lifts <= MOST_LIFTS:
        return None
    return (
        f"this model expects the pen to be lifted after {lifts:.0%} of the points, which is scribble: it is untrained "
        "or has diverged; train it longer, or use another checkpoint"
    )


def _check(points: int, samples: int, bias: float, temperature: float) -> None:
    checks.numbers({"points": points, "samples": samples}, Integral)
    checks.numbers({"bias": bias, "temperature": temperature}, Real)
    for name, value in (("points", points), ("samples", samples)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; got {value}")
    for name, number in (("bias", bias), ("temperature", temperature)):
        if not 0 <= number <= MOST:
            raise InputError(f"{name} must lie between 0 and {MOST:.0f}; got {number}")
    if 0 < temperature < 1 / MOST:
        raise InputError(f"temperature must be 0 or at least {1 / MOST:g}; got {temperature}")


def _check_jump(step: Tensor, temperature: float) -> None:
    """(B, 3): where the pen goes next; it must stay where a network can read it."""
    largest = float(step[:, :2].abs().max())
    if largest > LARGEST_STEP:
        reason = "this model is untrained or has diverged; use another checkpoint, or a higher bias"
        if temperature > 1:
            reason = f"temperature {temperature:g} is too much for this model; lower it"
        raise InputError(f"the pen jumped by {largest:.3g} deviations of the training steps: {reason}")


def _check_finite(mixture: Mixture) -> None:
    if not all(bool(part.isfinite().all()) for part in mixture):
        raise InputError(
            "the network's outputs are not finite, so nothing can be written: this model has diverged; use an earlier "
            "checkpoint"
        )
