"""What must hold for every input: properties of the recurrence, on examples that hypothesis chooses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hmrnn import Operation, State
from hmrnn.nn.output import operations
from hmrnn.ops import LayerWeights, Options, Result, Symbols, hmlstm
from hmrnn.ops.reference import layer_step
from literal import random_state, random_weights, sigm

INPUT = 3
SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=4).map(tuple)
STACKS = st.lists(st.integers(2, 4), min_size=2, max_size=4).map(tuple)  # at least one detector
SEEDS = st.integers(0, 2**16)
BOUNDARY = st.sampled_from(["step", "sample", "soft"])
ON_COPY = st.sampled_from(["hold", "evaluate"])


class Problem:
    """Random weights, state and inputs for a network of the given sizes."""

    def __init__(self, seed: int, sizes: tuple[int, ...], layer_norm: bool, T: int = 6, B: int = 3) -> None:
        torch.manual_seed(seed)
        self.weights, self.state = random_weights(INPUT, sizes, layer_norm), random_state(sizes, B)
        self.x = torch.randn(T, B, INPUT, dtype=torch.float64)
        self.noise = torch.rand(T, B, len(sizes) - 1, dtype=torch.float64)
        self.forced = torch.randint(2, (T, B, len(sizes) - 1)).double()


def assert_same(got: Result, want: Result, atol: float = 1e-12) -> None:
    for a, b in zip(everything(got), everything(want), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


def everything(r: Result) -> list[Tensor]:
    return [*r.hidden, r.boundaries, r.probabilities, *r.state.h, *r.state.c, r.state.z]


def rows(state: State, chosen: slice) -> State:
    return State(tuple(h[chosen] for h in state.h), tuple(c[chosen] for c in state.c), state.z[chosen])


@given(SEEDS, STACKS, st.booleans(), ON_COPY)
def test_copy_leaves_h_and_c_bit_identical(seed: int, sizes: tuple[int, ...], norm: bool, on_copy: str) -> None:
    p, copies = Problem(seed, sizes, norm), 0
    options, state = Options(1.3, "step", on_copy), p.state
    for x, forced in zip(p.x, p.forced):
        result = hmlstm(x[None], p.weights, state, options, boundaries=forced[None])
        done = operations(result.boundaries, state.z)[0]
        for l in range(len(sizes)):
            copied = done[:, l] == Operation.COPY
            for before, after in ((state.h[l], result.state.h[l]), (state.c[l], result.state.c[l])):
                assert torch.equal(after[copied], before[copied])
                assert not (after[~copied] == before[~copied]).any()
            copies += int(copied.sum())
        state = result.state
    assert copies > 0


@given(SEEDS, st.booleans(), ON_COPY, BOUNDARY, st.sampled_from([0.0, 1.0]))
def test_flush_does_not_depend_on_the_cell_before(
    seed: int, norm: bool, on_copy: str, boundary: str, z_below: float
) -> None:
    p = Problem(seed, (4, 3), norm)
    ones, zb = torch.ones(3, 1, dtype=torch.float64), torch.full((3, 1), z_below, dtype=torch.float64)
    options = Options(1.3, boundary, on_copy)

    def after(c: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        h, c, z_new, _ = layer_step(
            p.weights[0], p.state.h[0], c, z, p.x[0], zb, p.state.h[1], options, p.noise[0, :, :1]
        )
        assert z_new is not None
        return h, c, z_new

    cells = p.state.c[0], 100 * torch.randn(3, 4, dtype=torch.float64)
    for one, other in zip(*(after(c, ones) for c in cells)):
        assert torch.equal(one, other)
    assert not torch.equal(after(cells[0], 0 * ones)[1], after(cells[1], 0 * ones)[1])  # UPDATE and COPY do


@given(SEEDS, SIZES, st.booleans(), ON_COPY, BOUNDARY, st.integers(1, 5))
def test_one_pass_is_two_with_the_state_carried_over(
    seed: int, sizes: tuple[int, ...], norm: bool, on_copy: str, boundary: str, k: int
) -> None:
    """Not to the last bit: W·x of many steps is one product, which some processors sum in another order than of few."""
    p, options = Problem(seed, sizes, norm), Options(1.3, boundary, on_copy)
    whole = hmlstm(p.x, p.weights, p.state, options, noise=p.noise)
    first = hmlstm(p.x[:k], p.weights, p.state, options, noise=p.noise[:k])
    second = hmlstm(p.x[k:], p.weights, first.state, options, noise=p.noise[k:])
    joined = Result(
        tuple(torch.cat(parts) for parts in zip(first.hidden, second.hidden)),
        torch.cat([first.boundaries, second.boundaries]),
        torch.cat([first.probabilities, second.probabilities]),
        second.state,
    )
    assert_same(joined, whole)


@given(SEEDS, SIZES, st.booleans(), ON_COPY, BOUNDARY)
def test_a_sequence_does_not_depend_on_its_batch(
    seed: int, sizes: tuple[int, ...], norm: bool, on_copy: str, boundary: str
) -> None:
    p, options = Problem(seed, sizes, norm), Options(1.3, boundary, on_copy)
    together = hmlstm(p.x, p.weights, p.state, options, noise=p.noise)
    for n in range(3):
        one = slice(n, n + 1)
        alone = hmlstm(p.x[:, one], p.weights, rows(p.state, one), options, noise=p.noise[:, one])
        expected = Result(
            tuple(h[:, one] for h in together.hidden),
            together.boundaries[:, one],
            together.probabilities[:, one],
            rows(together.state, one),
        )
        assert_same(alone, expected)


@given(SEEDS, SIZES, st.booleans(), ON_COPY, BOUNDARY, st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_a_padded_sequence_is_the_sequence_alone(
    seed: int, sizes: tuple[int, ...], norm: bool, on_copy: str, boundary: str, lengths: list[int]
) -> None:
    p, options = Problem(seed, sizes, norm), Options(1.3, boundary, on_copy)
    padded = hmlstm(p.x, p.weights, p.state, options, lengths=torch.tensor(lengths), noise=p.noise)
    for n, length in enumerate(lengths):
        one, own = slice(n, n + 1), slice(0, length)
        alone = hmlstm(p.x[own, one], p.weights, rows(p.state, one), options, noise=p.noise[own, one])
        expected = Result(
            tuple(h[own, one] for h in padded.hidden),
            padded.boundaries[own, one],
            padded.probabilities[own, one],
            rows(padded.state, one),
        )
        assert_same(alone, expected)
        for a in (*padded.hidden, padded.boundaries, padded.probabilities):
            assert (a[length:, n] == 0).all()


@pytest.mark.parametrize("kind", ["dense", "symbols"])
@pytest.mark.parametrize("junk", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_what_the_padding_holds_has_no_influence(kind: str, junk: float, boundary: str) -> None:
    lengths, sizes = torch.tensor([6, 1, 4]), (4, 3, 2)
    padding = torch.arange(6)[:, None] >= lengths
    p, options = Problem(0, sizes, True), Options(1.3, boundary)
    table, indices = torch.randn(5, INPUT, dtype=torch.float64), torch.randint(5, (6, 3))
    leaves = [a.requires_grad_() for w in p.weights for a in w if a is not None]
    leaves += [a.requires_grad_() for a in (p.x, p.forced, table, p.state.z, *p.state.h, *p.state.c)]

    def run(fill: float) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        x = p.x.masked_fill(padding[..., None], fill)
        symbols = indices.masked_fill(padding, 0 if fill == 0 else -1)
        inputs = x if kind == "dense" else Symbols(symbols, table)
        forced = p.forced.masked_fill(padding[..., None], fill)
        forced = torch.where(torch.arange(6)[:, None, None] % 2 == 0, forced, torch.nan)
        result = everything(hmlstm(inputs, p.weights, p.state, options, lengths=lengths, boundaries=forced))
        loss = sum((a * torch.sin(torch.arange(a.numel()).double().view_as(a))).sum() for a in result)
        return result, torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)

    for clean, dirty in zip(run(0.0), run(junk)):
        for a, b in zip(clean, dirty, strict=True):
            assert torch.equal(a, b)


@given(SEEDS, STACKS, st.booleans(), ON_COPY)
def test_the_top_layer_never_flushes(seed: int, sizes: tuple[int, ...], norm: bool, on_copy: str) -> None:
    p, options = Problem(seed, sizes, norm), Options(1.3, "step", on_copy)
    done = operations(hmlstm(p.x, p.weights, p.state, options).boundaries, p.state.z)
    assert (done[..., -1] != Operation.FLUSH).all()
    cells = [c.requires_grad_() for c in p.state.c]
    once = hmlstm(p.x[:1], p.weights, p.state, options, boundaries=torch.ones_like(p.forced[:1]))
    for l, (before, after) in enumerate(zip(cells, once.state.c)):
        (kept,) = torch.autograd.grad(after.sum(), before, retain_graph=True)
        if l == len(sizes) - 1:
            assert (kept > 0).all()  # its forget gate
        else:
            assert ((kept == 0) == (p.state.z[:, l : l + 1] == 1)).all()


@given(SEEDS, SIZES, ON_COPY)
def test_all_boundaries_and_no_top_down_weights(seed: int, sizes: tuple[int, ...], on_copy: str) -> None:
    """Every layer but the top starts afresh at every step, c = i·g; the top one is an LSTM; all read the one below."""
    p = Problem(seed, sizes, False)
    weights = [w if w.V is None else w._replace(V=torch.zeros_like(w.V)) for w in p.weights]
    state = State(p.state.h, p.state.c, torch.ones_like(p.state.z))
    options = Options(1.3, "step", on_copy)
    result = hmlstm(p.x, weights, state, options, boundaries=torch.ones_like(p.forced))

    h, c = [a.numpy() for a in state.h], [a.numpy() for a in state.c]
    for t, x in enumerate(p.x.numpy()):
        below = x
        for l, w in enumerate(weights):
            s = h[l] @ w.U.numpy().T + below @ w.W.numpy().T + w.b.numpy()
            f, i, o, g = np.split(s[:, : 4 * sizes[l]], 4, axis=1)
            c[l] = sigm(i) * np.tanh(g) + (sigm(f) * c[l] if l == len(sizes) - 1 else 0)
            below = h[l] = sigm(o) * np.tanh(c[l])
            np.testing.assert_allclose(result.hidden[l][t].numpy(), h[l], rtol=0, atol=1e-12)
    for l in range(len(sizes)):
        np.testing.assert_allclose(result.state.c[l].numpy(), c[l], rtol=0, atol=1e-12)


@given(SEEDS, STACKS, st.booleans(), st.sampled_from(["step", "sample"]))
def test_held_boundaries_begin_on_a_boundary_below(
    seed: int, sizes: tuple[int, ...], norm: bool, boundary: str
) -> None:
    """With "hold" z = 1 needs α = 1: a boundary of the layer below now, or one of its own a step ago (FLUSH).

    So a run of boundaries of one layer begins on a boundary of the layer below, and with it on one of every lower layer
    that is not in a run of its own.
    """
    p = Problem(seed, sizes, norm, T=12)
    held, free = (
        hmlstm(p.x, p.weights, p.state, Options(1.3, boundary, on_copy), noise=p.noise)
        for on_copy in ("hold", "evaluate")
    )
    z = torch.cat([p.state.z[None], held.boundaries])  # (T+1, B, L-1)
    begins = (z[1:, :, 1:] == 1) & (z[:-1, :, 1:] == 0)
    assert (z[1:, :, :-1][begins] == 1).all()
    done = operations(held.boundaries, p.state.z)[..., :-1]
    assert (held.boundaries[done == Operation.COPY] == 0).all()
    moved = done[0] != Operation.COPY  # before anything was held back the two agree
    assert torch.equal(held.boundaries[0][moved.cumprod(dim=1) == 1], free.boundaries[0][moved.cumprod(dim=1) == 1])


def test_evaluate_lets_a_detector_speak_on_copy() -> None:
    p = Problem(0, (4, 3, 2), False, T=20, B=20)
    result = hmlstm(p.x, p.weights, p.state, Options(1.3, "step", "evaluate"))
    copied = operations(result.boundaries, p.state.z)[..., :-1] == Operation.COPY
    assert 0 < result.boundaries[copied].mean() < 1


def test_a_copied_detector_sees_its_own_state_and_bias_alone() -> None:
    p = Problem(0, (4, 3, 2), True)
    zeros = torch.zeros_like(p.forced[:1])
    state = p.state._replace(z=zeros[0])
    said = hmlstm(p.x[:1], p.weights, state, Options(0.5), boundaries=zeros).probabilities[0, :, 1]
    w: LayerWeights = p.weights[1]
    expected = ((0.5 * (state.h[1] @ w.U[-1] + w.b[-1]) + 1) / 2).clamp(0, 1)
    torch.testing.assert_close(said, expected, rtol=0, atol=1e-15)
