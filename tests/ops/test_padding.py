"""Padding: what it holds has no influence on outputs and gradients."""

from __future__ import annotations

import pytest
import torch
from problem import Problem, outputs
from torch import Tensor

from hmrnn.ops import Options, Symbols, Variant, hmlstm


@pytest.mark.parametrize("kind", ["dense", "symbols"])
@pytest.mark.parametrize("junk", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_padding_may_hold_anything(kind: str, junk: float, boundary: str) -> None:
    lengths, sizes = torch.tensor([6, 1, 4, 2, 5]), (4, 3, 2)
    padding = torch.arange(6)[:, None] >= lengths
    p, options = Problem(sizes=sizes, norm=True), Options(Variant(boundary), 1.3)
    given, table, indices = torch.randint(2, (6, 5, 2)).double(), torch.randn(5, 4).double(), torch.randint(5, (6, 5))
    leaves = [*p.learn().parameters, p.x, given, table, p.state.z, *p.state.h, *p.state.c]
    for a in leaves:
        a.requires_grad_()

    def run(fill: float) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        x = p.x.masked_fill(padding[..., None], fill)
        symbols = indices.masked_fill(padding, 0 if fill == 0 else -1)
        inputs = x if kind == "dense" else Symbols(symbols, table)
        forced = given.masked_fill(padding[..., None], fill)
        forced = torch.where(torch.arange(6)[:, None, None] % 2 == 0, forced, torch.nan)
        result = outputs(hmlstm(inputs, p.weights, p.state, options, lengths=lengths, boundaries=forced))
        loss = sum((a * torch.sin(torch.arange(a.numel()).double().view_as(a))).sum() for a in result)
        return result, torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)

    for clean, dirty in zip(run(0.0), run(junk)):
        for a, b in zip(clean, dirty, strict=True):
            assert torch.equal(a, b)
