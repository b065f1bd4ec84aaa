"""The sparse engine: the reference's outputs and gradients to the last digits, at the cost of the rows that change."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from against_reference import Case, Inputs, evaluate, expected, make, worst
from hmrnn import HMLSTM, InputError
from hmrnn.ops import Options, Result, State, Symbols, hmlstm, reference
from hmrnn.ops.sparse import forward as sparse
from hmrnn.ops.sparse import layer as sparse_layer
from literal import random_state, random_weights
from pairs import grid

RATES = {"dense": (1.0, 1.0), "trained": (0.4, 0.1), "figure 4": (0.2, 0.03), "none": (0.0, 0.0)}
OPTIONS = [
    Case(T=6, B=4, layer_norm=norm, on_copy=copy, boundary=boundary, forced=forced, lengths=lengths, symbols=symbols)
    for norm, copy, boundary, forced, lengths, symbols in grid(
        (False, True),
        ("evaluate", "hold"),
        ("step", "sample", "gumbel", "reinforce"),
        ("no", "all", "some"),
        (False, True),
        (0, 7),
        strength=3,
    )
]
SHAPES = [
    Case(sizes=(4,), T=9, B=3),
    Case(sizes=(4,), T=9, B=3, layer_norm=True, lengths=True),
    Case(sizes=(6, 3), T=9, B=1, layer_norm=True),
    Case(sizes=(3, 7), T=9, B=1, forced="all", straight_through=True),
    Case(sizes=(4, 6, 5, 7), T=9, B=7, forced="some", on_copy="hold", straight_through=True),
    Case(sizes=(7, 4, 5, 6, 4), T=9, B=3, lengths=True, layer_norm=True, forced="all", straight_through=True),
    Case(T=2, B=3, symbols=50),
]


def close(given: Inputs, tolerance: float = 1e-10) -> None:
    error, name = worst(evaluate(sparse.hmlstm, given, torch.float64), expected(given))
    assert error < tolerance, f"{name}: {error}"


def at_rates(given: Inputs, rates: tuple[float, ...]) -> Inputs:
    T, B, D = given.case.T, given.case.B, len(given.case.sizes) - 1
    return dataclasses.replace(given, forced=(torch.rand(T, B, D) < torch.tensor(rates)).double())


class Problem:
    """A network as users hold it: only what a test asks for takes gradients."""

    def __init__(self, T: int = 12, B: int = 5, sizes: tuple[int, ...] = (6, 5, 7), norm: bool = False) -> None:
        self.x = torch.randn(T, B, 4, dtype=torch.float64)
        self.weights, self.state = random_weights(4, sizes, norm), random_state(sizes, B)
        self.state = self.state._replace(z=torch.zeros_like(self.state.z))
        self.boundaries: Tensor | None = None
        self.options = Options(1.3)

    @property
    def parameters(self) -> list[Tensor]:
        return [a for w in self.weights for a in w if a is not None]

    def learn(self) -> Problem:
        for a in self.parameters:
            a.requires_grad_()
        return self

    def run(self, engine: Any = sparse, **changes: Any) -> Result:
        given = {"boundaries": self.boundaries} | changes
        return engine.hmlstm(self.x, self.weights, self.state, self.options, **given)


def outputs(r: Result) -> list[Tensor]:
    return [*r.hidden, r.boundaries, r.probabilities, r.state.z, *r.state.h, *r.state.c]


def loss_of(r: Result) -> Tensor:
    return sum(((a.double() + 0.3) ** 2).sum() for a in outputs(r))  # type: ignore[return-value]


def same(got: Any, want: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_every_option(case: Case) -> None:
    close(make(case))


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_every_shape(case: Case) -> None:
    close(make(case))


@pytest.mark.parametrize(
    ("T", "rates", "on_copy", "layer_norm", "straight_through"),
    grid((1, 2, 63), tuple(RATES), ("evaluate", "hold"), (False, True), (False, True)),
)
def test_every_length_at_every_rate(T: int, rates: str, on_copy: str, layer_norm: bool, straight_through: bool) -> None:
    case = Case((6, 5, 7), T, 3, layer_norm=layer_norm, on_copy=on_copy, straight_through=straight_through)
    close(at_rates(make(case), RATES[rates]))


@pytest.mark.parametrize("case", [*OPTIONS[::3], *SHAPES], ids=str)
def test_memory_that_was_never_written_is_never_read(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    given = make(case, torch.float64)
    want = expected(given)
    new_empty, made = Tensor.new_empty, []

    def poisoned(like: Tensor, *shape: Any, **options: Any) -> Tensor:
        made.append(new_empty(like, *shape, **options).fill_(torch.nan))
        return made[-1]

    monkeypatch.setattr(Tensor, "new_empty", poisoned)
    found = evaluate(sparse.hmlstm, given, torch.float64)
    assert any(len(buffer) for buffer in made)
    error, name = worst(found, want)
    assert error < 1e-10, name


@pytest.mark.parametrize(
    ("rates", "layer_norm"), [*((rates, False) for rates in RATES), ("dense", True), ("trained", True)]
)
def test_a_long_sequence(rates: str, layer_norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long for blocks of an eighth of their size."""
    monkeypatch.setattr(sparse_layer, "BLOCK", sparse_layer.BLOCK // 8)
    gain = 0.2 if layer_norm else 1.0  # at 1 the gradient of so many steps explodes
    given = make(Case((6, 4, 5), 63, 3, layer_norm=layer_norm, straight_through=True, lengths=True, gain=gain))
    close(at_rates(given, RATES[rates]))


def test_a_long_sequence_with_free_boundaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_layer, "BLOCK", sparse_layer.BLOCK // 4)
    close(make(Case((4, 3, 4), 125, 3, detector=0.5)))


@pytest.mark.parametrize("norm", [False, True])
def test_a_gradient_that_arrives_at_one_output_alone(norm: bool) -> None:
    p = Problem(T=6, norm=norm).learn()
    for k in range(len(outputs(p.run()))):
        got, want = (
            torch.autograd.grad(outputs(p.run(engine))[k].square().sum(), p.parameters, allow_unused=True)
            for engine in (sparse, reference)
        )
        for a, b, parameter in zip(got, want, p.parameters):
            zeros = torch.zeros_like(parameter)
            same(zeros if a is None else a, zeros if b is None else b)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("forced", ["no", "all", "straight through"])
def test_gradients_of_some_inputs_alone(norm: bool, forced: str) -> None:
    p = Problem(T=6, norm=norm)
    if forced != "no":
        p.boundaries = (torch.rand(6, 5, 2) < 0.4).double()
        p.options = Options(1.3, straight_through=forced == "straight through")
    slope = torch.tensor(1.3, dtype=torch.float64)
    learnable_slope = dataclasses.replace(p.options, slope=slope)
    for some in ([p.x], [p.state.c[1]], [p.weights[1].W], [p.weights[0].U, p.weights[2].b], [slope], [p.state.z]):
        for a in some:
            a.requires_grad_()
        p.options = learnable_slope if some[0] is slope else p.options
        got, want = (
            torch.autograd.grad(loss_of(p.run(engine)), some, allow_unused=True, materialize_grads=True)
            for engine in (sparse, reference)
        )
        same(got, want)
        for a in some:
            a.requires_grad_(False)


def test_two_forwards_before_two_backwards_and_the_same_backward_twice() -> None:
    p = Problem().learn()
    want = torch.autograd.grad(loss_of(p.run()), p.parameters)
    one, other = loss_of(p.run()), loss_of(p.run(boundaries=torch.ones(12, 5, 2, dtype=torch.float64)))
    got_other = torch.autograd.grad(other, p.parameters)
    for _ in range(2):
        assert all(map(torch.equal, torch.autograd.grad(one, p.parameters, retain_graph=True), want))
    assert not torch.equal(got_other[0], want[0])


@pytest.mark.parametrize("power", [1, 2], ids=["of a sum", "of squares"])
def test_a_second_derivative_is_refused(power: int) -> None:
    """Also where the gradient that comes in wants none itself, as that of a sum."""
    p = Problem().learn()
    loss = sum(h.pow(power).sum() for h in p.run().hidden)
    with pytest.raises(InputError, match=r'first derivatives only.*engine="reference"'):
        torch.autograd.grad(loss, p.parameters[:1], create_graph=True)


def test_a_weight_changed_before_the_backward_pass_is_noticed() -> None:
    p = Problem().learn()
    loss = loss_of(p.run())
    with torch.no_grad():
        p.weights[1].W.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("symbolic", [False, True])
def test_without_gradients(mode: Callable[[], Any], symbolic: bool) -> None:
    p = Problem(T=150, norm=True).learn()
    inputs = Symbols(torch.randint(9, (150, 5)), torch.randn(9, 4, dtype=torch.float64)) if symbolic else p.x
    lengths = torch.tensor([150, 149, 1, 64, 65])
    want = sparse.hmlstm(inputs, p.weights, p.state, p.options, lengths=lengths)
    with mode():
        got = sparse.hmlstm(inputs, p.weights, p.state, p.options, lengths=lengths)
    same(outputs(got), outputs(want))
    assert want.hidden[0].requires_grad
    assert not got.hidden[0].requires_grad


def test_padding_may_hold_anything() -> None:
    p, lengths = Problem().learn(), torch.tensor([12, 3, 1, 7, 11])
    want = torch.autograd.grad(loss_of(p.run(lengths=lengths)), p.parameters)
    p.x[torch.arange(12)[:, None] >= lengths] = torch.nan
    same(torch.autograd.grad(loss_of(p.run(lengths=lengths)), p.parameters), want)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where the CPU has no bfloat16 of its own
@pytest.mark.parametrize("norm", [False, True])
def test_autocast_multiplies_in_bfloat16(norm: bool) -> None:
    """As near to the exact values as the reference under autocast is; boundaries are forced, so that they agree."""
    rnn = HMLSTM(20, (30, 40, 50), 3, layer_norm=norm)
    x, forced = torch.randn(4, 6, 20), (torch.rand(4, 6, 2) < 0.4).float()
    options, before = Options(rnn.a, straight_through=not norm), random_state((30, 40, 50), 6)

    def run(engine: Any, rnn: HMLSTM, autocast: bool) -> tuple[list[Tensor], list[Tensor]]:
        dtype = rnn.a.dtype
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            state = State(*(tuple(a.to(dtype) for a in part) for part in (before.h, before.c)), before.z.to(dtype))
            r = engine.hmlstm(x.to(dtype), rnn.layers(), state, options, boundaries=forced.to(dtype))
        loss = sum(h.square().sum() for h in r.hidden)
        grads = torch.autograd.grad(loss, list(rnn.parameters()), allow_unused=True, materialize_grads=True)
        assert all(a.dtype == dtype for a in outputs(r))
        return outputs(r), list(grads)

    def distance(a: list[Tensor], b: list[Tensor]) -> float:
        return max(((p.double() - q.double()).norm() / (q.double().norm() + 1e-6)).item() for p, q in zip(a, b))

    got, single, half = run(sparse, rnn, True), run(sparse, rnn, False), run(reference, rnn, True)
    exact = run(reference, rnn.double(), False)
    for k in range(2):
        assert distance(single[k], exact[k]) < 1e-4
        assert distance(got[k], exact[k]) < 1.5 * distance(half[k], exact[k]) < 0.3
    assert distance(got[0], exact[0]) > 1e-4, "the products were not in bfloat16"


def saved_elements(rates: tuple[float, float], T: int = 40, B: int = 8) -> int:
    """How many numbers a forward pass keeps for the backward pass, the weights apart."""
    p = Problem(T, B, (16, 16, 16)).learn()
    p.boundaries = (torch.rand(T, B, 2) < torch.tensor(rates)).double()
    p.options = Options(1.3, straight_through=True)
    own, kept = {a.data_ptr() for a in p.parameters}, 0

    def count(a: Tensor) -> Tensor:
        nonlocal kept
        kept += a.numel() if a.data_ptr() not in own else 0
        return a

    with torch.autograd.graph.saved_tensors_hooks(count, lambda a: a):
        p.run()
    return kept


def test_memory_grows_with_events() -> None:
    none, some, dense = (saved_elements(RATES[name]) for name in ("none", "trained", "dense"))
    layer = 40 * 8 * 16  # h of one layer at all steps
    assert none < 1.2 * (4 + 1 + 2) * layer + saved_elements(RATES["none"], T=1)  # the first layer's, and no other's
    assert some < 0.6 * dense
    growth = saved_elements(RATES["none"], T=80) - none
    assert growth < 1.2 * (4 + 1 + 2) * layer


def products(p: Problem) -> int:
    """Multiplications and additions in matrix products, forwards and backwards."""
    with FlopCounterMode(display=False) as counter:
        loss_of(p.run()).backward()
    return counter.get_total_flops()


def test_cost_grows_with_events() -> None:
    def cost(rates: tuple[float, float], T: int, sizes: tuple[int, ...] = (64, 64, 64)) -> int:
        p = Problem(T, 32, sizes).learn()
        p.options = Options(1.3, straight_through=True)
        p.boundaries = (torch.rand(T, 32, len(sizes) - 1) < torch.tensor(rates[: len(sizes) - 1])).double()
        return products(p)

    per_step = {name: cost(rates, 16) - cost(rates, 4) for name, rates in RATES.items()}
    one_layer = cost(RATES["none"], 16, (64,)) - cost(RATES["none"], 4, (64,))
    assert per_step["none"] < 1.02 * one_layer
    # of the seven matrices U, W (but the first) and V: 1 + 0.46 + 0.1 rows for U, 0.4 + 0.1 for W and for V
    assert per_step["trained"] < 0.4 * per_step["dense"]
    assert per_step["figure 4"] < 0.33 * per_step["dense"]


def test_nothing_outlives_the_backward_pass() -> None:
    p = Problem().learn()
    gc.collect()
    gc.disable()
    try:
        loss_of(p.run()).backward()
        assert not any(type(a) is sparse_layer.Layer for a in gc.get_objects())
    finally:
        gc.enable()


def test_compiled_around() -> None:
    p = Problem().learn()

    @torch.compile(backend="eager")
    def step(x: Tensor) -> Tensor:
        return loss_of(hmlstm(x * 2, p.weights, p.state, p.options, engine="sparse")) * 2

    got = torch.autograd.grad(step(p.x / 2) / 2, p.parameters)
    same(got, torch.autograd.grad(loss_of(p.run()), p.parameters))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": Options(boundary="soft")}, 'not "soft" ones; use engine="reference"'),
        ({"boundaries": torch.full((12, 5, 2), 0.5)}, "boundaries must hold zeros and ones .* got 0.5"),
        ({"z": torch.full((5, 2), 0.25)}, "state.z must hold zeros and ones .* got 0.25"),
        ({"h": torch.float32}, "state must be torch.float64"),
    ],
)
def test_what_it_cannot_do_it_says(changes: dict[str, Any], message: str) -> None:
    p = Problem()
    p.options = changes.get("options", p.options)
    p.boundaries = changes.get("boundaries")
    p.state = p.state._replace(z=changes.get("z", p.state.z))
    if "h" in changes:
        p.state = p.state._replace(h=tuple(h.to(changes["h"]) for h in p.state.h))
    with pytest.raises(InputError, match=message):
        p.run()
