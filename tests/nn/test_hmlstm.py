"""HMLSTM as a module: shapes, lengths, packing, dtypes, saving, initialisation, and every refusal."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hmrnn import HMLSTM, Output, State
from hmrnn.nn import recurrent
from refusals import refused

T, B, INPUT, SIZES = 9, 4, 5, (6, 4, 3)
LENGTHS = [4, 9, 1, 6]


def network(**options: Any) -> HMLSTM:
    return HMLSTM(INPUT, SIZES, 3, **options).double()


def inputs(*shape: int) -> Tensor:
    return torch.randn(*(shape or (T, B, INPUT)), dtype=torch.float64)


def assert_states_equal(got: State, want: State, atol: float = 0.0) -> None:
    for a, b in zip((*got.h, *got.c, got.z), (*want.h, *want.c, want.z), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("sizes", [(7,), (2, 3, 4, 5)], ids=len)
def test_shapes(sizes: tuple[int, ...]) -> None:
    L = len(sizes)
    out, state = HMLSTM(INPUT, sizes, L)(torch.randn(T, B, INPUT))
    assert isinstance(out, Output)
    assert [h.shape for h in out.hidden] == [(T, B, size) for size in sizes]
    assert out.boundaries.shape == out.probabilities.shape == (T, B, L - 1)
    assert out.operations.shape == (T, B, L)
    assert [h.shape for h in state.h] == [c.shape for c in state.c] == [(B, size) for size in sizes]
    assert state.z.shape == (B, L - 1)


def test_lengths_do_not_wrap_around_in_a_small_type() -> None:
    """Nor does T. That a padded batch is each sequence alone: test_bidirectional.py."""
    for kind in (torch.uint8, torch.int32):
        assert (
            recurrent.check_lengths(torch.tensor(LENGTHS, dtype=kind), T, B, torch.device("cpu")).dtype == torch.int64
        )
    for kind in (torch.int8, torch.uint8, torch.uint16):
        lengths = recurrent.check_lengths(torch.tensor([100, 1], dtype=kind), 300, 2, torch.device("cpu"))
        assert lengths.tolist() == [100, 1]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_symbols_with_an_embedding_are_dense_inputs(dtype: torch.dtype) -> None:
    rnn, embedding, symbols = network(), inputs(7, INPUT).requires_grad_(), torch.randint(7, (T, B))
    dense, _ = rnn(embedding[symbols], lengths=LENGTHS)
    out, _ = rnn(symbols.to(dtype), lengths=LENGTHS, embedding=embedding)
    for got, want in zip(out.hidden, dense.hidden):  # looked up or multiplied: products of other shapes
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    grads = [torch.autograd.grad(o.hidden[0].sum() + o.hidden[2].sum(), embedding)[0] for o in (dense, out)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-14)
    packed, _ = rnn(pack_padded_sequence(symbols, torch.tensor(LENGTHS), enforce_sorted=False), embedding=embedding)
    torch.testing.assert_close(pad_packed_sequence(packed.hidden[1])[0], dense.hidden[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_bf16_autocast_is_float32_to_its_precision(layer_norm: bool) -> None:
    rnn = HMLSTM(INPUT, (16, 12, 8), 3, layer_norm=layer_norm, engine="reference")
    steps = 2 if layer_norm else T  # an untrained network with layer norm makes every difference grow, step by step
    x, forced = torch.randn(steps, B, INPUT), torch.randint(2, (steps, B, 2))
    exact, end = rnn(x, boundaries=forced)
    with torch.autocast("cpu", torch.bfloat16):
        out, state = rnn(x, boundaries=forced)
        rnn(x.bfloat16(), state)
        streamed = rnn.step(x[0], state).state
    tensors = (*state.h, *state.c, state.z, *streamed.h, *streamed.c, streamed.z, *out.hidden)
    assert {a.dtype for a in tensors} == {torch.float32}
    for got, want in zip((*out.hidden, *state.c), (*exact.hidden, *end.c)):
        assert 0 < (got - want).abs().max() < 0.04  # bfloat16 keeps 8 bits: 1/256 per rounding
    sum(h.sum() for h in out.hidden).backward()
    assert all(p.grad is None or (p.grad.isfinite().all() and p.grad.dtype == torch.float32) for p in rnn.parameters())


@pytest.mark.parametrize("layer_norm", [False, True])
def test_parameters_are_named_after_the_paper(layer_norm: bool) -> None:
    expected = {
        "U.0": (25, 6), "U.1": (17, 4), "U.2": (12, 3), "V.0": (25, 4), "V.1": (17, 3),
        "W.0": (25, 5), "W.1": (17, 6), "W.2": (12, 4), "b.0": (25,), "b.1": (17,), "b.2": (12,),
    }  # fmt: skip
    if layer_norm:
        expected |= {f"gain_{name}.{l}": (4 * size,) for name in "UW" for l, size in enumerate(SIZES)}
        expected |= {"gain_V.0": (24,), "gain_V.1": (16,)}
        expected |= {f"{name}.{l}": (size,) for name in ("gain_c", "bias_c") for l, size in enumerate(SIZES)}
    rnn = HMLSTM(INPUT, SIZES, 3, layer_norm=layer_norm)
    assert {name: tuple(p.shape) for name, p in rnn.named_parameters()} == expected
    assert set(rnn.state_dict()) == set(expected) | {"a"}


def test_saving_copying_and_the_slope() -> None:
    rnn, x = network(layer_norm=True), inputs()
    assert rnn.slope == 1.0
    rnn.slope = 2.5
    assert rnn.state_dict()["a"].item() == 2.5
    other = network(layer_norm=True)
    assert not torch.equal(other(x)[0].probabilities, rnn(x)[0].probabilities)
    other.load_state_dict(rnn.state_dict())
    twin = copy.deepcopy(rnn)
    assert other.slope == twin.slope == 2.5
    for same in (other, twin):
        assert_states_equal(same(x)[1], rnn(x)[1])
    with torch.no_grad():
        twin.b[0].add_(1)
        twin.slope = 1.5
    assert rnn.slope == 2.5
    assert rnn.b[0].abs().max() == 0
    for bad in (0, -1.0, float("nan"), float("inf")):
        with refused("slope"):
            rnn.slope = bad
    assert rnn.slope == 2.5


def test_only_gumbel_has_a_temperature() -> None:
    rnn = HMLSTM(3, 4, 2, boundary="gumbel")
    assert rnn.temperature == 1.0
    rnn.temperature = 0.25
    twin = HMLSTM(3, 4, 2, boundary="gumbel")
    twin.load_state_dict(rnn.state_dict())
    assert twin.temperature == 0.25
    for bad in (0.0, -1.0, math.inf, math.nan):
        with refused("temperature"):
            rnn.temperature = bad
    rnn.reset_parameters()
    assert rnn.temperature == 1.0
    plain = HMLSTM(3, 4, 2)
    assert "tau" not in plain.state_dict()
    with refused():
        plain.temperature = 0.5


@pytest.mark.parametrize("boundary", ["sample", "gumbel", "reinforce"])
def test_boundaries_are_drawn_while_training_alone(boundary: str) -> None:
    torch.manual_seed(0)
    rnn, x = HMLSTM(3, 4, 3, boundary=boundary), torch.randn(12, 5, 3)  # type: ignore[arg-type]
    torch.manual_seed(1)
    first = rnn(x)[0].boundaries
    assert not torch.equal(first, rnn(x)[0].boundaries)
    torch.manual_seed(1)
    assert torch.equal(first, rnn(x)[0].boundaries)
    twin = HMLSTM(3, 4, 3)
    twin.load_state_dict(rnn.state_dict(), strict=False)
    assert torch.equal(rnn.eval()(x)[0].boundaries, twin(x)[0].boundaries)


def test_repr_is_one_line_and_names_the_engine() -> None:
    rnn = HMLSTM(5, 6, 3, layer_norm=True, batch_first=True)
    assert repr(rnn) == ("HMLSTM(5, 6, layer_norm=True, batch_first=True, engine='auto' (native))")
    assert repr(HMLSTM(5, (6, 4), 2, boundary="soft", on_copy="hold", engine="reference")) == (
        "HMLSTM(5, (6, 4), num_layers=2, boundary='soft', on_copy='hold', engine='reference')"
    )
    assert repr(HMLSTM(3, 4, 2, engine="cuda")).endswith("engine='cuda')")  # where it could not run, too
    assert re.search(r"\n  \(0\): HMLSTM\(5, .*\)\n", repr(nn.Sequential(rnn)))


def test_forced_boundaries_are_taken_and_nan_leaves_the_detector_free() -> None:
    rnn, x = network(), inputs()
    forced = torch.randint(2, (T, B, 2))
    assert torch.equal(rnn(x, boundaries=forced)[0].boundaries, forced.double())
    assert torch.equal(rnn(x, boundaries=forced.bool())[0].boundaries, forced.double())
    free, end = rnn(x)
    none_forced, same = rnn(x, boundaries=torch.full((T, B, 2), torch.nan))
    assert torch.equal(none_forced.boundaries, free.boundaries)
    assert_states_equal(same, end)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("boundary", "none"), ("on_copy", "x"), ("top_down", "up"), ("flush", 2), ("detector_hidden", -1)],
)
def test_the_cell_of_a_network_changes_with_its_attributes_which_are_checked(name: str, wrong: object) -> None:
    rnn, x = network(), inputs()
    before = rnn.variant
    with refused(name):
        setattr(rnn, name, wrong)
    assert rnn.variant == before
    assert getattr(rnn, name) == getattr(before, name)
    rnn.copy = False
    made = network(copy=False)
    made.load_state_dict(rnn.state_dict())
    assert torch.equal(rnn(x)[0].hidden[-1], made(x)[0].hidden[-1])
