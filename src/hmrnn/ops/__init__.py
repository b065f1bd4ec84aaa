"""The recurrence as a function. ``hmlstm`` is the only place where an engine is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops import reference
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols

__all__ = ["ENGINES", "Engine", "LayerWeights", "Options", "Result", "State", "Symbols", "choose_engine", "hmlstm"]

Engine = Literal["auto", "reference"]
ENGINES: tuple[str, ...] = get_args(Engine)


def choose_engine(engine: str, device: torch.device, options: Options) -> str:
    """The engine that will run: what was asked for, or for "auto" the fastest that can. Never a silent substitute."""
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    return "reference" if engine == "auto" else engine


def hmlstm(
    inputs: Tensor | Symbols,
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,
    boundaries: Tensor | None = None,
    noise: Tensor | None = None,
    engine: str = "auto",
) -> Result:
    """Run an HM-LSTM over a sequence.

    Args:
        inputs: x of shape (T, B, size), or :class:`Symbols`.
        weights: one :class:`LayerWeights` per layer, the lowest first.
        state: where to start.
        options: slope, kind of boundary, what a detector does on COPY.
        lengths: (B,) steps that count in each sequence; the rest is padding.
        boundaries: (T, B, L-1) boundary states to force; NaN leaves the choice to the detector.
        noise: (T, B, L-1) uniform draws for ``boundary="sample"``; without it the likelier state is taken.
        engine: which implementation runs.
    """
    device = inputs.indices.device if isinstance(inputs, Symbols) else inputs.device
    run = {"reference": reference.hmlstm}[choose_engine(engine, device, options)]
    return run(inputs, weights, state, options, lengths=lengths, boundaries=boundaries, noise=noise)
