"""What must hold for every input: properties of the recurrence, on examples that hypothesis chooses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from problem import Problem, outputs
from torch import Tensor

from hmrnn import Operation
from hmrnn.ops import Options, Symbols, Variant, hmlstm
from hmrnn.ops.interface import PAPER

STACKS = st.lists(st.integers(2, 4), min_size=2, max_size=4).map(tuple)  # at least one detector
SEEDS = st.integers(0, 2**16)
ON_COPY = st.sampled_from(["hold", "evaluate"])


@drawn(SEEDS, STACKS, st.booleans(), ON_COPY)
def test_copy_leaves_h_and_c_bit_identical(seed: int, sizes: tuple[int, ...], norm: bool, on_copy: str) -> None:
    torch.manual_seed(seed)
    p, copies = Problem(sizes=sizes, norm=norm), 0
    options, state = Options(Variant("step", on_copy), 1.3), p.state
    for x, forced in zip(p.x, torch.randint(2, (6, 5, len(sizes) - 1)).double()):
        result = hmlstm(x[None], p.weights, state, options, boundaries=forced[None])
        done = PAPER.operations(result.boundaries, state.z)[0]
        for l in range(len(sizes)):
            copied = done[:, l] == Operation.COPY
            for before, after in ((state.h[l], result.state.h[l]), (state.c[l], result.state.c[l])):
                assert torch.equal(after[copied], before[copied])
                assert not (after[~copied] == before[~copied]).any()
            copies += int(copied.sum())
        state = result.state
    assert copies > 0


@pytest.mark.parametrize("kind", ["dense", "symbols"])
@pytest.mark.parametrize("junk", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_what_the_padding_holds_has_no_influence(kind: str, junk: float, boundary: str) -> None:
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
