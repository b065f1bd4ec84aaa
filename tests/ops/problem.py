"""Problems for the native engine, and a network as users hold it, with what it gives and the gradients of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from against_reference import Case, Values, evaluate, make
from hmrnn.ops import Options, Result
from hmrnn.ops.native import engine as native
from literal import random_state, random_weights

PLAIN = Case((6, 5, 7), T=9, B=9, straight_through=True, forced="some", lengths=True)
NORM = dataclasses.replace(PLAIN, layer_norm=True, forced="no", dropout=True, zoneout="masks", symbols=6, hidden=3)
PENDING = dataclasses.replace(PLAIN, flush=False, top_down="pending", on_copy="hold", zoneout="share", layer_norm=True)
KINDS = pytest.mark.parametrize("case", [PLAIN, NORM, PENDING], ids=["plain", "norm", "pending"])


def run(case: Case, dtype: torch.dtype = torch.float32) -> Values:
    return evaluate(native.hmlstm, make(case), dtype)


def same(got: Values, want: Values) -> None:
    assert got.keys() == want.keys()
    for name, a in want.items():
        assert torch.equal(got[name], a), name


class Problem:
    """A network as users hold it: only what a test asks for takes gradients."""

    def __init__(self, T: int = 6, B: int = 5, sizes: tuple[int, ...] = (6, 5, 7), norm: bool = False) -> None:
        self.x = torch.randn(T, B, 4, dtype=torch.float64)
        self.weights, self.state = random_weights(4, sizes, norm), random_state(sizes, B)
        self.options = Options(slope=1.3)
        self.boundaries: Tensor | None = None

    @property
    def parameters(self) -> list[Tensor]:
        return [a for w in self.weights for a in w if a is not None]

    def learn(self) -> Problem:
        for a in self.parameters:
            a.requires_grad_()
        return self

    def run(self, engine: Any = native, **changes: Any) -> Result:
        given = {"boundaries": self.boundaries} | changes
        return engine.hmlstm(self.x, self.weights, self.state, self.options, **given)


def outputs(r: Result) -> list[Tensor]:
    return [*r.hidden, r.boundaries, r.probabilities, r.state.z, *r.state.h, *r.state.c]


def loss_of(r: Result) -> Tensor:
    return loss_of_all(outputs(r))


def loss_of_all(values: Iterable[Tensor]) -> Tensor:
    return sum(((a + 0.3) ** 2).sum() for a in values)  # type: ignore[return-value]


def gradients(loss: Tensor, of: list[Tensor], **options: Any) -> list[Tensor]:
    return list(torch.autograd.grad(loss, of, allow_unused=True, materialize_grads=True, **options))
