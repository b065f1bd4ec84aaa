"""The native engine: the reference's outputs and gradients, to the last bit where that can be; and what it refuses."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problem import KINDS, NORM, PENDING, PLAIN, Problem, outputs, run, same
from torch import Tensor
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from against_reference import Case, cases, evaluate, expected, make, worst
from hmrnn import State
from hmrnn.ops import LayerWeights, Options, Result, Symbols, Variant, hmlstm, reference
from hmrnn.ops.estimators import BOUNDARIES
from hmrnn.ops.native import engine as native
from hmrnn.ops.native import library
from literal import random_state, random_weights
from pairs import FULL
from refusals import refused

CASES = cases(learn_slope=st.booleans(), boundary=st.sampled_from([kind for kind in BOUNDARIES if kind != "soft"]))


def close(case: Case, tolerance: float = 1e-10, seed: int = 0) -> None:
    """In float64, with gradients and without."""
    given = make(case, torch.float64, seed=seed)
    want = expected(given)
    error, name = worst(evaluate(native.hmlstm, given, torch.float64), want)
    assert error < tolerance, f"{name}: {error}"
    without = evaluate(native.hmlstm, given, torch.float64, gradients=False)
    error, name = worst(without, {name: want[name] for name in without})
    assert error < tolerance, f"without gradients {name}: {error}"


@settings(max_examples=3000 if FULL else 100)
@given(CASES, st.integers(0, 2**16))
def test_any_network_is_the_reference(case: Case, seed: int) -> None:
    close(case, seed=seed)


@pytest.mark.parametrize(("T", "rates"), [(63, (1.0, 1.0)), (63, (0.4, 0.1)), (63, (0.0, 0.0)), (500, (0.3, 0.2))])
def test_long_sequences(T: int, rates: tuple[float, float]) -> None:
    """With layer norm the gain is small: at 1 the gradient of so many steps explodes."""
    B, norms = (3, (False, True)) if T < 100 else (1, (False,))
    for norm in norms:
        case = Case((6, 4, 5), T, B, layer_norm=norm, gain=0.2 if norm else 1.0, straight_through=True, lengths=B > 1)
        given = make(case, torch.float64)
        given.forced = (torch.rand(T, B, 2) < torch.tensor(rates)).double()
        error, name = worst(evaluate(native.hmlstm, given, torch.float64), expected(given))
        assert error < 1e-10, f"{name}: {error}"


def test_a_network_larger_than_the_blocks_in_which_it_computes() -> None:
    """More events than outer products in a block; rows of the gates in many tiles; slabs of memory in the hundreds."""
    close(Case((130, 90), T=40, B=9, input_size=70, forced="all", straight_through=True))
    close(Case((90, 130), T=40, B=9, input_size=70, forced="all", layer_norm=True, symbols=400))


@pytest.mark.parametrize("level", library._levels())
def test_every_vector_level(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ctypes.CDLL(str(library._find(level)))
    monkeypatch.setattr(library, "code", loaded)
    for case in (PLAIN, NORM, PENDING, Case((33, 17, 40), T=6, B=26, input_size=19, layer_norm=True)):
        close(case)
        single = evaluate(native.hmlstm, make(case), torch.float32)
        assert worst(single, expected(make(case)))[0] < 1e-4


@KINDS
def test_single_precision_is_as_near_to_the_exact_values_as_the_reference(case: Case) -> None:
    """On average: of one case either may be the nearer by far."""
    errors: dict[str, list[float]] = {}
    for seed in range(6):
        given = make(dataclasses.replace(case, forced="all"), seed=seed)
        exact = expected(given)
        for engine in (native, reference):
            got = evaluate(engine.hmlstm, given, torch.float32)
            for name in exact:
                error, _ = worst({name: got[name]}, {name: exact[name]})
                errors.setdefault(name, [0.0, 0.0])[engine is reference] += error
    for name, (ours, theirs) in errors.items():
        assert ours < 1e-6 + 3 * theirs < 3e-3, name


@KINDS
def test_memory_that_was_never_written_is_never_read(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs begin as NaN, and so does the library's memory, which a pass over NaN left."""
    want, new_empty, made = run(case), Tensor.new_empty, []

    def poisoned(like: Tensor, *shape: Any, **options: Any) -> Tensor:
        made.append(new_empty(like, *shape, **options).fill_(torch.nan))
        return made[-1]

    monkeypatch.setattr(Tensor, "new_empty", poisoned)
    dirty = make(case)
    dirty.weights = [LayerWeights(*(None if a is None else a * torch.nan for a in w)) for w in dirty.weights]
    evaluate(native.hmlstm, dirty, torch.float32)
    same(run(case), want)
    assert len(made) > 10


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_layers_that_copy_are_not_computed(layer_norm: bool) -> None:
    """Nor does it matter what their weights are."""
    sizes = (4, 5, 6)
    weights, state, x = random_weights(3, sizes, layer_norm), random_state(sizes, 9), torch.randn(7, 9, 3).double()
    for w in weights[1:]:
        for a in (w.U, w.W, w.b):
            a[: 4 * w.hidden_size] = torch.nan
    still = torch.zeros(7, 9, 2).double()
    result = native.hmlstm(x, weights, state._replace(z=still[0]), Options(), boundaries=still)
    assert not torch.equal(result.state.h[0], state.h[0])
    for l in (1, 2):
        assert torch.equal(result.state.h[l], state.h[l])
        assert torch.equal(result.hidden[l], state.h[l].expand(7, 9, -1))


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """To the last bit, whatever tiles of rows the products are made in."""
    for norm in (False, True):
        p = Problem(T=6, B=65, sizes=(33, 17, 40), norm=norm)
        whole = outputs(p.run())
        for first, end in ((0, 1), (7, 9), (20, 25), (1, 13), (30, 64)):
            part = Problem()
            part.weights, part.x = p.weights, p.x[:, first:end]
            part.state = p.state.apply(lambda a, first=first, end=end: a[first:end])
            for got, want in zip(outputs(part.run()), whole):
                assert torch.equal(got, want[first:end] if want.dim() == 2 else want[:, first:end])


@KINDS
def test_chunks_and_steps_are_the_whole_pass(case: Case) -> None:
    """To the last bit, with the state handed on, symbols or numbers read."""
    case = dataclasses.replace(case, lengths=False, zoneout="no", dropout=False, T=12)
    given = make(case)
    whole = forward_of(given, 0, 12, given.state)
    for ends in ([5, 12], [1, 2, 11, 12], list(range(1, 13))):
        state, start, parts = given.state, 0, []
        for end in ends:
            parts.append(forward_of(given, start, end, state))
            state, start = parts[-1].state, end
        for l, h in enumerate(whole.hidden):
            assert torch.equal(torch.cat([part.hidden[l] for part in parts]), h)
        assert torch.equal(torch.cat([part.probabilities for part in parts]), whole.probabilities)
        assert all(map(torch.equal, outputs(parts[-1])[-7:], outputs(whole)[-7:]))


def forward_of(given: Any, start: int, end: int, state: State) -> Result:
    case, here = given.case, slice(start, end)
    inputs = given.source[here] if given.indices is None else Symbols(given.indices[here], given.source)
    options = Options(case.variant, 1.7)
    with torch.no_grad():
        forced = None if given.forced is None else given.forced[here]
        return native.hmlstm(inputs, given.weights, state, options, boundaries=forced)


def test_symbols_are_the_rows_of_their_embedding() -> None:
    """To the last bit, with few symbols, whose products are made once, and with many."""
    p = Problem()
    for count in (7, 100):
        embedding, indices = torch.randn(count, 4).double(), torch.randint(count, (6, 5))
        p.x = embedding[indices]
        found = native.hmlstm(Symbols(indices, embedding), p.weights, p.state, p.options)
        assert all(map(torch.equal, outputs(found), outputs(p.run())))


def test_shapes_and_types_that_do_not_fit_are_refused() -> None:
    """Of every tensor, one after the other."""
    given = make(dataclasses.replace(NORM, boundary="sample", forced="all", lengths=False), torch.float64)
    call = {
        "inputs": Symbols(given.indices, given.source), "weights": given.weights, "state": given.state,
        "boundaries": given.forced, "noise": given.noise, "kept": given.kept, "seen": given.seen,
    }  # fmt: skip
    tensors, form = tree_flatten_with_path(call)
    for k, (path, a) in enumerate(tensors):
        converted = path[0].key in ("noise", "kept", "seen") or a is given.indices
        for change in (lambda a: a[:-1], lambda a: a[..., :-1], lambda a: a[None], Tensor.float):
            if a is not None and not (converted and change is Tensor.float):
                changed = [change(a) if i == k else other for i, (_, other) in enumerate(tensors)]
                with refused():
                    hmlstm(**tree_unflatten(changed, form), options=Options(given.case.variant), engine="native")


WRONG: dict[str, Callable[[Problem], dict[str, Any]]] = {
    "x": lambda p: {"x": torch.zeros(6, 5, 3).double()},
    "x, too large": lambda p: {"x": torch.zeros(1, 1, 4).double().expand(2**29, 5, 4)},
    "embedding, too large": lambda p: {"x": Symbols(torch.zeros(6, 5).long(), torch.zeros(1, 4).expand(2**31, 4))},
    "x of no size": lambda p: {"x": p.x[..., :0], "weights": [p.weights[0]._replace(W=p.weights[0].W[:, :0])]},
    "x of another type": lambda p: {"x": p.x.float()},
    "boundaries between 0 and 1": lambda p: {"boundaries": torch.full((6, 5, 2), 0.5).double()},
    "kept, too few": lambda p: {"kept": [torch.zeros(6, 5, 6)]},
    "seen, too few": lambda p: {"seen": [torch.zeros(5, 6)]},
    "lengths": lambda p: {"lengths": torch.tensor([1, 2, 3, 4, 7])},
    "lengths below 0": lambda p: {"lengths": torch.tensor([1, 2, 3, 4, -1])},
    "lengths, too few": lambda p: {"lengths": torch.tensor([3])},
    "state.h, too few": lambda p: {"state": p.state._replace(h=p.state.h[:2])},
    "state.z between 0 and 1": lambda p: {"state": p.state._replace(z=p.state.z + 0.25)},
    "D1 alone": lambda p: {"weights": [p.weights[0]._replace(D1=torch.zeros(3, 15).double()), *p.weights[1:]]},
    "gain_W.0": lambda p: {"weights": [p.weights[0]._replace(gain_W=None), *p.weights[1:]]},
    "symbols": lambda p: {"x": Symbols(torch.full((6, 5), 9), torch.zeros(9, 4).double())},
    "symbols below 0": lambda p: {"x": Symbols(torch.full((6, 5), -1), torch.zeros(9, 4).double())},
    "soft": lambda p: {"options": Options(Variant("soft"))},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_it_could_not_read_is_refused(what: str) -> None:
    p = Problem(norm=True)
    changes = WRONG[what](p)
    for name in ("x", "state", "weights", "options"):
        setattr(p, name, changes.pop(name, getattr(p, name)))
    with refused():
        hmlstm(p.x, p.weights, p.state, p.options, engine="native", **changes)
