"""Dropout between layers: units that the gates of the layer above do not see, in every engine."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from against_reference import Case, evaluate, expected, make, worst
from hmrnn import HMLSTM, InputError, ops
from hmrnn.ops import LayerWeights, Options, reference
from hmrnn.ops.sparse import forward as sparse

CASES = [
    Case(dropout=True, T=9, B=5),
    Case(dropout=True, T=9, B=5, layer_norm=True),
    Case(dropout=True, T=9, B=5, layer_norm=True, lengths=True, on_copy="hold", forced="some", straight_through=True),
    Case(dropout=True, T=12, B=4, boundary="sample", symbols=6, sizes=(4, 5, 3, 2), zoneout="masks"),
    Case(dropout=True, T=9, B=3, on_copy="hold", lengths=True, forced="all"),
    Case(dropout=True, T=9, B=1, layer_norm=True, sizes=(6, 3)),
    Case(dropout=True, T=9, B=3, sizes=(4,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sparse_is_the_reference(case: Case) -> None:
    given = make(case, torch.float64)
    want = expected(given)
    error, name = worst(evaluate(sparse.hmlstm, given, torch.float64), want)
    assert error < 1e-10, name
    given.seen = None
    assert (worst(expected(given), want)[0] > 1e-3) is (len(case.sizes) > 1)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_each_sequence_reads_by_columns_of_its_own(layer_norm: bool) -> None:
    """As one alone would whose W has lost, in its gate rows, the columns of the units that are hidden from it."""
    given = make(Case(dropout=True, T=9, B=5, layer_norm=layer_norm, sizes=(6, 5, 4)), torch.float64)
    assert given.seen is not None
    whole = expected(given, gradients=False)
    for b in range(5):
        weights = [given.weights[0]]
        for w, seen in zip(given.weights[1:], given.seen):
            thin = w.W.clone()
            thin[: 4 * w.hidden_size] *= seen[b]
            weights.append(LayerWeights(**(w._asdict() | {"W": thin})))
        state = ops.State(*(tuple(a[b : b + 1] for a in part) for part in given.state[:2]), given.state.z[b : b + 1])
        alone = dataclasses.replace(given, source=given.source[:, b : b + 1], weights=weights, state=state, seen=None)
        for name, value in expected(alone, gradients=False).items():
            of_one = whole[name][b : b + 1] if name.startswith("state") else whole[name][:, b : b + 1]
            torch.testing.assert_close(value, of_one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["auto", "sparse", "reference"])
def test_the_module_draws_while_training(engine: str) -> None:
    """For one sequence, too, without a gradient, which ``auto`` else reads in NumPy."""
    rnn = HMLSTM(4, (20, 15, 10), dropout=0.4, layer_norm=True, engine=engine).double()
    for B in (3, 1):
        x = torch.randn(6, B, 4).double()
        torch.manual_seed(5)
        with torch.no_grad():
            trained, _ = rnn.train()(x)
        torch.manual_seed(5)
        seen = [torch.ones(B, size).double().bernoulli_(0.6) / 0.6 for size in (20, 15)]
        by_hand = reference.hmlstm(x, rnn.layers(), rnn.initial_state(B), rnn.options(), seen=seen)
        plain = reference.hmlstm(x, rnn.layers(), rnn.initial_state(B), rnn.options())
        for got, want in zip(trained.hidden, by_hand.hidden):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        assert not torch.allclose(trained.hidden[1], plain.hidden[1])
        with torch.no_grad():
            whole, _ = rnn.eval()(x)
        for got, want in zip(whole.hidden, plain.hidden):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_under_autocast_detectors_see_all_as_precisely_as_before(layer_norm: bool) -> None:
    """Where nothing is hidden, factors of one change nothing, in products of bfloat16 either."""
    given = make(Case(T=9, B=5, layer_norm=layer_norm, sizes=(6, 5, 4)))
    weights = [LayerWeights(*(None if a is None else a.float() for a in w)) for w in given.weights]
    state = ops.State(*(tuple(a.float() for a in part) for part in given.state[:2]), given.state.z.float())
    ones = [torch.ones(5, size) for size in (6, 5)]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for engine in (reference.hmlstm, sparse.hmlstm):
            plain = engine(given.source.float(), weights, state, Options())
            seen = engine(given.source.float(), weights, state, Options(), seen=ones)
            assert torch.equal(plain.boundaries, seen.boundaries)
            torch.testing.assert_close(seen.probabilities, plain.probabilities, rtol=0, atol=1e-6)


def test_masks_may_be_filled_anew_and_have_no_gradient() -> None:
    """Between the passes, as whoever draws into a buffer of his own does."""
    given = make(Case(dropout=True, T=9, B=5, zoneout="masks"), torch.float64)
    assert given.seen is not None
    assert given.kept is not None
    want, seen, kept = expected(given), [a.clone() for a in given.seen], [a.clone() for a in given.kept]

    def refilled(*arguments: Any, **options: Any) -> ops.Result:
        result = sparse.hmlstm(*arguments, **(options | {"seen": seen, "kept": kept}))
        for mask in (*seen, *kept):
            mask.fill_(0)
        return result

    error, name = worst(evaluate(refilled, given, torch.float64), want)
    assert error < 1e-10, name
    rnn, ones = HMLSTM(3, 4, 2), [torch.ones(2, 4, requires_grad=True)]
    with pytest.raises(InputError, match="seen must not require a gradient"):
        ops.hmlstm(torch.randn(5, 2, 3), rnn.layers(), rnn.initial_state(2), rnn.options(), seen=ones)
