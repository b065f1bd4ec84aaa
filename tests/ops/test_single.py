"""One sequence in NumPy: the reference's outputs, to the last digits of float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch._dynamo.testing

from against_reference import Case, make
from hmrnn import HMLSTM, InputError
from hmrnn.ops import Options, State, Symbols, reference, streaming
from hmrnn.ops.single import forward as single
from hmrnn.ops.single import layer as single_layer
from hmrnn.ops.single import plan as single_plan
from hmrnn.ops.single import step as single_step
from hmrnn.ops.sparse import forward as sparse
from pairs import grid

CASES = [
    (
        products,
        Case(T=60, B=1, sizes=sizes, layer_norm=norm, on_copy=copy, forced=forced, symbols=symbols, zoneout=zone),
    )
    for products, sizes, norm, copy, forced, symbols, zone in grid(
        ("einsum", "torch"),
        ((5,), (6, 4), (5, 3, 4)),
        (False, True),
        ("evaluate", "hold"),
        ("no", "all", "some"),
        (0, 7),
        ("no", "share"),
    )
]


def call(case: Case, dtype: torch.dtype = torch.float64) -> tuple[tuple, dict]:
    """The arguments of an engine."""
    given = make(case)
    state = State(tuple(h.to(dtype) for h in given.state.h), tuple(c.to(dtype) for c in given.state.c), given.state.z)
    state = state._replace(z=(state.z > 0.5).to(dtype))
    weights = [type(w)(*(None if a is None else a.to(dtype) for a in w)) for w in given.weights]
    source = given.source.to(dtype)
    inputs = source if given.indices is None else Symbols(given.indices, source)
    zoneout = 0.0 if case.zoneout == "no" else 0.25
    options = Options(given.slope, on_copy=case.on_copy, zoneout=zoneout)  # type: ignore[arg-type]
    return (inputs, weights, state, options), {"boundaries": given.forced}


@pytest.mark.parametrize(("products", "case"), CASES, ids=str)
def test_outputs_and_state_are_the_reference_s(products: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_layer, "by_einsum", lambda _: products == "einsum")
    positional, named = call(case)
    with torch.no_grad():
        found, expected = single.hmlstm(*positional, **named), reference.hmlstm(*positional, **named)
    torch.testing.assert_close(found.boundaries, expected.boundaries, rtol=0, atol=0)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-10)
    for one, other in zip(
        (*found.hidden, *found.state.h, *found.state.c, found.state.z),
        (*expected.hidden, *expected.state.h, *expected.state.c, expected.state.z),
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("symbols", [0, 7])
def test_inputs_are_left_alone_and_a_sequence_can_be_cut(symbols: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state carries the prepared weights; after some steps they are copied, and W·embedding is kept."""
    monkeypatch.setattr(single_layer, "by_einsum", lambda _: False)
    monkeypatch.setattr(single_plan, "SETTLED", 16)
    (x, weights, state, options), _ = call(Case(T=40, B=1, layer_norm=True, symbols=symbols))
    given = [*x] if isinstance(x, Symbols) else [x]
    given += [*state.h, *state.c, *(b for w in weights for b in w if b is not None)]
    before = [a.clone() for a in given]
    parts = [slice(0, 9), slice(9, 17), slice(17, 40)]
    with torch.no_grad():
        whole = reference.hmlstm(x, weights, state, options)
        found = []
        for part in parts:
            here = Symbols(x.indices[part], x.embedding) if isinstance(x, Symbols) else x[part]
            found.append(single.hmlstm(here, weights, state, options))
            state = found[-1].state.apply(torch.clone)
            assert state.cache is found[0].state.cache
    assert all(map(torch.equal, given, before))
    assert weights[1].U.data_ptr() != state.cache.prepared[1].U.columns.data_ptr()
    for l in range(3):
        joined = torch.cat([part.hidden[l] for part in found])
        torch.testing.assert_close(joined, whole.hidden[l], rtol=0, atol=1e-12)
    assert torch.equal(state.z, whole.state.z)


@pytest.mark.parametrize("changed", ["weight", "embedding", "slope", "options", "data"])
def test_prepared_weights_are_made_anew_after_a_change(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_plan, "SETTLED", 4)
    ((indices, embedding), weights, state, options), _ = call(Case(T=40, B=1, layer_norm=True, symbols=7))
    with torch.no_grad():
        for _ in range(2):
            state = single.hmlstm(Symbols(indices, embedding), weights, state, options).state
        if changed in ("weight", "embedding"):
            (embedding if changed == "embedding" else weights[0].U).mul_(1.5)
        elif changed == "data":  # which no version counter notices
            weights[0].U.data.mul_(1.5)
            state = state.detach()
        elif changed == "slope":
            options = dataclasses.replace(options, slope=3.0)
        else:
            options = dataclasses.replace(options, zoneout=0.5)
        found, expected = (
            engine.hmlstm(Symbols(indices, embedding), weights, state, options) for engine in (single, reference)
        )
        step, wanted = (streaming.step(embedding[:1], weights, s, options) for s in (state, State(*state)))
    torch.testing.assert_close(found.hidden, expected.hidden, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-12)
    torch.testing.assert_close(step.probabilities, wanted.probabilities, rtol=0, atol=1e-12)


def test_a_state_of_inference_mode_goes_on_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes and steps, which write into the same buffers."""
    monkeypatch.setattr(single_layer, "by_einsum", lambda _: False)
    (x, weights, state, options), _ = call(Case(T=6, B=1))
    with torch.inference_mode():
        state = single.hmlstm(x, weights, state, options).state
        stepped = streaming.step(x[0], weights, state, options).state
    with torch.no_grad():
        found, expected = (engine.hmlstm(x, weights, stepped, options) for engine in (single, reference))
    torch.testing.assert_close(found.hidden, expected.hidden, rtol=0, atol=1e-12)


def test_extremes_stay_what_the_sparse_engine_makes_of_them() -> None:
    (x, weights, state, options), _ = call(Case(T=6, B=1), torch.float32)
    x[2], x[4] = 1e30, torch.nan
    with torch.no_grad():
        found, expected = (engine.hmlstm(x, weights, state, options) for engine in (single, sparse))
    torch.testing.assert_close(found.hidden[0][:4], expected.hidden[0][:4])
    assert torch.equal(found.hidden[0].isnan(), expected.hidden[0].isnan())
    assert torch.equal(found.boundaries, expected.boundaries)


def test_what_it_cannot_do_is_said() -> None:
    (x, weights, state, options), _ = call(Case(T=3, B=1))
    for changes, says in (
        ({"lengths": torch.tensor([2])}, "without padding"),
        ({"x": x.expand(-1, 2, -1)}, "one sequence"),
        ({"x": x.half()}, "float32 or float64"),
        ({"options": Options(boundary="soft")}, "soft"),
        ({"x": x.clone().requires_grad_()}, "no gradient"),
    ):
        arguments = {"x": x, "options": options, "lengths": None, **changes}
        given = arguments["x"], weights, state, arguments["options"], arguments["lengths"], None, None
        assert says in str(single.why_not(*given))


STEPS = [
    Case(T=40, B=1, sizes=sizes, layer_norm=norm, on_copy=copy, forced=forced, zoneout=zoneout)
    for sizes, norm, copy, forced, zoneout in grid(
        ((5,), (5, 3, 4, 6)), (False, True), ("evaluate", "hold"), ("no", "some"), ("no", "share")
    )
]


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_a_step_is_that_of_a_larger_batch(case: Case) -> None:
    """Which torch takes row by row: state, which layers changed, and z̃."""
    (x, weights, state, options), named = call(case)
    forced = named["boundaries"]
    twice = State(*(tuple(a.repeat(2, 1) for a in part) for part in (state.h, state.c)), state.z.repeat(2, 1))
    for t in range(case.T):
        given = None if forced is None else forced[t]
        found = streaming.step(x[t], weights, state, options, given)
        wanted = streaming.step(
            x[t].repeat(2, 1), weights, twice, options, None if given is None else given.repeat(2, 1)
        )
        state, twice = found.state, wanted.state
        of_one = [*state.h, *state.c, state.z, found.changed, found.probabilities]
        of_two = [*twice.h, *twice.c, twice.z, wanted.changed, wanted.probabilities]
        for a, b in zip(of_one, of_two):
            torch.testing.assert_close(a, b[:1], rtol=1e-10, atol=1e-12)


def test_a_step_leaves_what_it_is_given_alone() -> None:
    (x, weights, state, options), _ = call(Case(T=2, B=1, layer_norm=True))
    x.requires_grad_()
    tensors = [x, *state.h, *state.c, state.z]
    before = [a.detach().clone() for a in tensors]
    streaming.step(x[0], weights, state, options)
    assert all(map(torch.equal, tensors, before))


def test_a_step_decides_in_the_type_of_its_weights() -> None:
    """1e-9 / 2 over a half is a half in float32, and no boundary; in float64 it is one."""
    for dtype, fires in ((torch.float32, 0.0), (torch.float64, 1.0)):
        (x, weights, state, options), _ = call(Case(T=1, B=1), dtype)
        weights = [type(w)(*(None if a is None else torch.zeros_like(a) for a in w)) for w in weights]
        weights[0].b[-1] = 1e-9
        assert streaming.step(x[0], weights, state, options).state.z[0, 0] == fires


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.zeros(2, 3, dtype=torch.float64)},
        {"x": torch.zeros(1, 3)},
        {"options": Options(boundary="soft")},
        {"boundaries": torch.full((1, 2), 0.4)},
    ],
)
def test_steps_that_are_torch_s(change: dict) -> None:
    (x, weights, state, options), _ = call(Case(T=1, B=1))
    given = {"x": x[0], "state": state, "options": options, "boundaries": None}
    assert single_step.given_to_step(weights=weights, **given) is not None
    assert single_step.given_to_step(weights=weights, **(given | change)) is None
    real = state._replace(z=torch.full((1, 2), 0.7))
    assert single_step.given_to_step(weights=weights, **(given | {"state": real})) is None


def test_what_wants_a_gradient_gets_one_with_a_batch_of_one() -> None:
    rnn = HMLSTM(3, 4, 3).requires_grad_(False)
    x = torch.randn(6, 1, 3)
    forced = torch.full((6, 1, 2), 1.0, requires_grad=True)
    assert rnn(x, boundaries=forced)[0].boundaries.requires_grad
    state = rnn.initial_state(1)
    assert rnn(x, state._replace(z=state.z.requires_grad_()))[0].hidden[0].requires_grad


@pytest.mark.parametrize("B", [1, 2])
def test_a_batch_of_one_is_refused_what_a_larger_one_is(B: int) -> None:
    rnn = HMLSTM(3, 4, 3, engine="sparse").eval()
    with torch.no_grad():
        with pytest.raises(InputError, match="boundaries must hold zeros and ones"):
            rnn(torch.randn(6, B, 3), boundaries=torch.full((6, B, 2), 0.3))
        state = rnn.initial_state(B)
        with pytest.raises(InputError, match=r"state\.z must hold zeros and ones"):
            rnn(torch.randn(6, B, 3), state._replace(z=torch.full((B, 2), 0.4)))
        for rnn.engine in ("auto", "sparse"):
            with pytest.raises(InputError, match=r"^x must hold symbol indices from 0 to 6"):
                rnn(torch.full((6, B), -1), embedding=torch.randn(7, 3))


def test_an_engine_that_is_named_runs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only "auto" reads one sequence in NumPy."""
    ran = []
    engines = {"single": (single, "hmlstm"), "sparse": (sparse, "hmlstm"), "reference": (reference, "hmlstm")}
    for name, (engine, function) in engines.items():
        run = getattr(engine, function)
        monkeypatch.setattr(engine, function, lambda *a, name=name, run=run, **b: ran.append(name) or run(*a, **b))
    x, outputs = torch.randn(6, 1, 3), []
    rnn = HMLSTM(3, 4, 3).eval()
    with torch.no_grad():
        for rnn.engine in ("auto", "sparse", "reference"):
            outputs.append(rnn(x)[0].hidden[2])
    assert ran == ["single", "sparse", "reference"]
    for other in outputs[1:]:
        torch.testing.assert_close(outputs[0], other)


def test_compiled() -> None:
    """The steps are not traced one by one."""
    rnn, x = HMLSTM(3, 4, 3).eval(), torch.randn(6, 1, 3)
    counter = torch._dynamo.testing.CompileCounter()
    with torch.no_grad():
        expected = rnn(x)[0].hidden[2]
        compiled = torch.compile(rnn, backend=counter)
        for _ in range(3):
            torch.testing.assert_close(compiled(x)[0].hidden[2], expected)
    assert counter.op_count < 60
