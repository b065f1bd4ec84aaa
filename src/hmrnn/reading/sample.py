"""Sampling from a model, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeAlias

import torch
from msgspec import Meta
from torch import Tensor

from hmrnn.nn.checks import argument
from hmrnn.nn.predictor import Predictor
from hmrnn.reading.read import Reader

Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
Progress: TypeAlias = Callable[[int, int], None] | None
ROOM, OF_A_STEP, OF_A_UNIT = 1 << 31, 512, 64
"""Bytes that sequences drawn side by side may take, with the states of the network: those of a step, and of a unit."""


def check_room(model: Predictor, samples: int, steps: int, name: str = "length") -> None:
    """InputError unless so many sequences of so many steps fit into memory; messages call the steps ``name``."""
    unit = OF_A_UNIT * sum(model.rnn.hidden_sizes)
    argument(name, steps, Annotated[int, Meta(le=(ROOM - unit) // OF_A_STEP)])
    argument("samples", samples, Annotated[int, Meta(ge=1, le=ROOM // (OF_A_STEP * max(steps, 1) + unit))])


def seeded(seed: int | None) -> torch.Generator:
    """A generator on the CPU; the same seed gives the same draws, None different ones each time."""
    argument("seed", seed, Seed)
    generator = torch.Generator()
    generator.manual_seed(generator.seed() if seed is None else int(seed))
    return generator


def draw(reader: Reader, start: Tensor, generator: torch.Generator, **how: Any) -> Iterator[Tensor]:
    """Read ``start`` (n, B, ...), then draw steps (B, ...) without end; a step is read when the next one is asked for.

    ``how`` are the options of the prediction's ``sample``.
    """
    unread = start
    while True:
        for x in unread:
            reader.read(x)
        prediction = reader.predict()
        drawn = prediction.sample(generator, **how)
        yield drawn
        unread = prediction.next_input(drawn)[None].to(start)
