"""The native engine: the reference's outputs and gradients, and what a library in C++ must not do to its caller."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from against_reference import Case, Values, evaluate, expected, make, worst
from hmrnn import HMLSTM, InputError, State
from hmrnn.ops import LayerWeights, Options, Result, Symbols, Variant, hmlstm, reference
from hmrnn.ops.estimators import BOUNDARIES, ON_COPY
from hmrnn.ops.interface import TOP_DOWN
from hmrnn.ops.native import engine as native
from hmrnn.ops.native import library
from literal import random_state, random_weights
from pairs import FULL

SIZE = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 33])  # with and without whole vectors of every width
CASES = st.builds(
    Case,
    sizes=st.lists(SIZE, min_size=1, max_size=4).map(tuple),
    T=st.sampled_from([1, 2, 5, 20]),
    B=st.sampled_from([1, 2, 5, 9]),
    input_size=SIZE,
    layer_norm=st.booleans(),
    boundary=st.sampled_from([boundary for boundary in BOUNDARIES if boundary != "soft"]),
    on_copy=st.sampled_from(ON_COPY),
    flush=st.booleans(),
    top_down=st.sampled_from(TOP_DOWN),
    copy=st.sampled_from([True, True, False]),
    forced=st.sampled_from(["no", "some", "all"]),
    straight_through=st.booleans(),
    lengths=st.booleans(),
    symbols=st.sampled_from([0, 4, 300]),
    hidden=st.sampled_from([0, 0, 4]),
    zoneout=st.sampled_from(["no", "share", "masks"]),
    dropout=st.booleans(),
    learn_slope=st.booleans(),
).filter(lambda case: not case.layer_norm or min(case.sizes) > 1)  # the norm of one number is 0, its gradient rounding
PLAIN = Case((6, 5, 7), T=9, B=9, straight_through=True, forced="some", lengths=True)
NORM = dataclasses.replace(PLAIN, layer_norm=True, forced="no", dropout=True, zoneout="masks", symbols=6, hidden=3)
PENDING = dataclasses.replace(PLAIN, flush=False, top_down="pending", on_copy="hold", zoneout="share", layer_norm=True)
KINDS = pytest.mark.parametrize("case", [PLAIN, NORM, PENDING], ids=["plain", "norm", "pending"])


def close(case: Case, tolerance: float = 1e-10, seed: int = 0) -> None:
    """In float64, with gradients and without."""
    given = make(case, torch.float64, seed=seed)
    want = expected(given)
    error, name = worst(evaluate(native.hmlstm, given, torch.float64), want)
    assert error < tolerance, f"{name}: {error}"
    without = evaluate(native.hmlstm, given, torch.float64, gradients=False)
    error, name = worst(without, {name: want[name] for name in without})
    assert error < tolerance, f"without gradients {name}: {error}"


def run(case: Case, dtype: torch.dtype = torch.float32) -> Values:
    return evaluate(native.hmlstm, make(case), dtype)


def same(got: Values, want: Values) -> None:
    assert got.keys() == want.keys()
    for name, a in want.items():
        assert torch.equal(got[name], a), name


@settings(max_examples=3000 if FULL else 100)
@given(CASES, st.integers(0, 2**16))
def test_any_network_is_the_reference(case: Case, seed: int) -> None:
    close(case, seed=seed)


@pytest.mark.parametrize("B", [1, 3, 12, 13, 25, 65] if FULL else [1, 13, 65])
def test_batches_of_every_size(B: int) -> None:
    close(Case((17, 5), T=5, B=B, straight_through=True))
    close(Case((5, 17), T=5, B=B, layer_norm=True, symbols=9, lengths=True))


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
    given = make(dataclasses.replace(case, forced="all"))
    exact = expected(given)
    got, usual = (evaluate(engine, given, torch.float32) for engine in (native.hmlstm, reference.hmlstm))
    for name in exact:
        ours, theirs = (worst({name: values[name]}, {name: exact[name]})[0] for values in (got, usual))
        assert ours < 1e-6 + 3 * theirs < 1e-3, name


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


@pytest.mark.parametrize("norm", [False, True])
def test_a_gradient_that_arrives_at_one_output_alone(norm: bool) -> None:
    p = Problem(norm=norm).learn()
    for k in range(len(outputs(p.run()))):
        got, want = (
            gradients(outputs(p.run(engine))[k].square().sum(), p.parameters) for engine in (native, reference)
        )
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("forced", ["no", "all", "straight through"])
def test_gradients_of_some_inputs_alone(norm: bool, forced: str) -> None:
    p, slope = Problem(norm=norm), torch.tensor(1.3, dtype=torch.float64)
    if forced != "no":
        p.boundaries = (torch.rand(6, 5, 2) < 0.4).double()
    p.options = Options(slope=slope, straight_through=forced == "straight through")
    for some in ([p.x], [p.state.c[1]], [p.weights[1].W], [p.weights[0].U, p.weights[2].b], [slope], [p.state.z]):
        for a in some:
            a.requires_grad_()
        got, want = (gradients(loss_of(p.run(engine)), some) for engine in (native, reference))
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
        for a in some:
            a.requires_grad_(False)


def test_one_layer_with_forced_boundaries_that_want_a_gradient() -> None:
    """There are none of them, and so is their gradient."""
    rnn = HMLSTM(3, 4, 1, engine="native")
    out, _ = rnn(torch.randn(5, 2, 3), boundaries=torch.zeros(5, 2, 0, requires_grad=True))
    out.hidden[0].sum().backward()
    assert rnn.U[0].grad.abs().max() > 0


def test_two_forwards_before_two_backwards_and_the_same_backward_twice() -> None:
    p = Problem(norm=True).learn()
    want = gradients(loss_of(p.run()), p.parameters)
    one, other = loss_of(p.run()), loss_of(p.run(boundaries=torch.ones(6, 5, 2, dtype=torch.float64)))
    assert not torch.equal(gradients(other, p.parameters)[0], want[0])
    for _ in range(2):
        assert all(map(torch.equal, gradients(one, p.parameters, retain_graph=True), want))


@pytest.mark.parametrize("reentrant", [True, False])
def test_under_checkpoint(reentrant: bool) -> None:
    p = Problem().learn()
    want = gradients(loss_of(p.run()), p.parameters)
    loss = loss_of_all(checkpoint(lambda _: tuple(outputs(p.run())), p.x.requires_grad_(), use_reentrant=reentrant))
    loss.backward()
    assert all(torch.equal(a, b.grad) for a, b in zip(want, p.parameters))


@pytest.mark.parametrize("moved", ["all", "large ones"])
def test_saved_tensors_may_be_kept_elsewhere(moved: str) -> None:
    """As by torch.autograd.graph.save_on_cpu: then there is no log, and the pass is run again."""
    p = Problem(norm=True).learn()
    want = gradients(loss_of(p.run()), p.parameters)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda a: a.clone() if moved == "all" or a.numel() > 50 else a, lambda a: a
    ):
        loss = loss_of(p.run())
    assert all(map(torch.equal, gradients(loss, p.parameters), want))


@pytest.mark.parametrize("power", [1, 2], ids=["of a sum", "of squares"])
def test_a_second_derivative_is_refused(power: int) -> None:
    """Also where the gradient that comes in wants none itself, as that of a sum."""
    p = Problem().learn()
    loss = sum(h.pow(power).sum() for h in p.run().hidden)
    with pytest.raises(InputError, match="reference"):
        torch.autograd.grad(loss, p.parameters[:1], create_graph=True)


@pytest.mark.parametrize("what", ["a weight", "x", "an output", "the last state"])
def test_a_change_before_the_backward_pass_is_noticed(what: str) -> None:
    p = Problem().learn()
    result = p.run()
    loss = loss_of(result)
    changed = {"a weight": p.weights[1].W, "x": p.x, "an output": result.hidden[1], "the last state": result.state.h[0]}
    with torch.no_grad():
        changed[what].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_buffers_may_be_filled_anew_before_the_backward_pass() -> None:
    """Symbols, boundaries, noise, lengths and masks, as whoever draws into a buffer of his own does."""
    given = make(dataclasses.replace(NORM, boundary="gumbel", forced="some"), torch.float64)
    want = evaluate(native.hmlstm, given, torch.float64)

    def refilled(inputs: Symbols, *arguments: Any, **buffers: Any) -> Result:
        buffers = {name: [a.clone() for a in b] if isinstance(b, list) else b.clone() for name, b in buffers.items()}
        symbols = inputs.indices.clone()
        result = native.hmlstm(Symbols(symbols, inputs.embedding), *arguments, **buffers)
        for a in (symbols, buffers["noise"], buffers["lengths"], *buffers["kept"], *buffers["seen"]):
            a.fill_(1000)
        buffers["boundaries"].data.fill_(torch.nan)
        return result

    same(evaluate(refilled, given, torch.float64), want)


def test_arguments_may_lie_in_memory_in_any_order() -> None:
    p = Problem()
    want = p.run(lengths=torch.tensor([3, 6, 1, 2, 5]))
    p.x = torch._neg_view(-p.x.transpose(0, 1).contiguous()).transpose(0, 1)  # as the imaginary part of a conjugate
    p.weights = [LayerWeights(*(None if a is None else _strided(a) for a in w)) for w in p.weights]
    p.state = State(tuple(map(_strided, p.state.h)), tuple(map(_strided, p.state.c)), _strided(p.state.z))
    p.learn()
    found = p.run(lengths=torch.tensor([3, 6, 1, 2, 5], dtype=torch.int32))
    assert all(map(torch.equal, outputs(found), outputs(want)))
    got, exact = (gradients(loss_of(p.run(engine)), p.parameters) for engine in (native, reference))
    torch.testing.assert_close(got, exact, rtol=1e-10, atol=1e-10)


def _strided(a: Tensor) -> Tensor:
    """The same numbers with gaps between them."""
    return torch.stack([a, a + 1], dim=-1)[..., 0]


def test_views_that_negate_are_read_negated() -> None:
    p, negated = Problem(), Problem()
    negated.x = torch._neg_view(-p.x)
    negated.weights = [LayerWeights(*(None if a is None else torch._neg_view(-a) for a in w)) for w in p.weights]
    negated.state = p.state.apply(lambda a: torch._neg_view(-a))
    assert all(map(torch.equal, outputs(negated.run()), outputs(p.run())))
    h = p.learn().run().hidden[1]
    d = torch.randn_like(h)
    got, want = (gradients(h, [p.weights[0].U], grad_outputs=a, retain_graph=True) for a in (torch._neg_view(-d), d))
    assert torch.equal(got[0], want[0])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("symbols", [False, True])
def test_a_batch_of_no_sequences(symbols: bool, grad: bool) -> None:
    p = Problem().learn()
    x = Symbols(torch.zeros(6, 0).long(), torch.zeros(9, 4).double()) if symbols else p.x[:, :0]
    with torch.set_grad_enabled(grad):
        r = hmlstm(x, p.weights, p.state.apply(lambda a: a[:0]), p.options, engine="native")
    assert r.hidden[1].shape == (6, 0, 5)
    assert r.boundaries.shape == (6, 0, 2)
    if grad:
        assert not gradients(loss_of(r), [p.weights[0].U])[0].any()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_no_log(mode: Callable[[], Any], passes: weakref.WeakSet[Any]) -> None:
    rnn, x = HMLSTM(4, 6, 3, engine="native", layer_norm=True), torch.randn(7, 3, 4)
    want, _ = rnn(x)
    with mode():
        got, state = rnn(x)
        again, _ = rnn(x, state)
    assert got.hidden[0].grad_fn is None
    assert all(map(torch.equal, got.hidden, want.hidden))
    assert not torch.equal(again.hidden[0], got.hidden[0])


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[weakref.WeakSet[Any]]:
    """The calls of the library that still hold memory. Nothing may depend on a search for garbage."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    start = native._Pass.__init__

    def started(self: Any, *given: Any) -> None:
        start(self, *given)
        alive.add(self)

    monkeypatch.setattr(native._Pass, "__init__", started)
    gc.collect()
    gc.disable()
    yield alive
    gc.enable()


def test_the_log_is_freed_by_the_backward_pass(passes: weakref.WeakSet[Any]) -> None:
    p = Problem().learn()
    result = p.run()
    loss = loss_of(result)
    assert len(passes) == 1
    loss.backward(retain_graph=True)
    assert len(passes) == 1
    loss.backward()
    assert len(passes) == 0


def test_the_log_is_freed_without_a_backward_pass(passes: weakref.WeakSet[Any]) -> None:
    p = Problem().learn()
    result = p.run()
    assert len(passes) == 1
    del result
    assert len(passes) == 0


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_passes_do_not_add_up_in_memory() -> None:
    p = Problem(T=10, B=16, sizes=(64, 64, 64)).learn()

    def work(times: int) -> None:
        for _ in range(times):
            loss_of(p.run()).backward()
            p.run()
            with torch.no_grad():
                state = p.run().state
                hmlstm(p.x[:1], p.weights, state, p.options)

    work(10)
    before = resident()
    work(30)  # each logs some megabytes
    assert resident() - before < 2**24


def threaded(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(native, "threads", lambda *given: number)


@KINDS
def test_threads_change_nothing_but_the_order_of_sums(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case = dataclasses.replace(case, B=17)
    found = {}
    for number in (1, 2, 3, 4):
        threaded(monkeypatch, number)
        found[number] = run(case)
        same(run(case), found[number])
    for number in (2, 3, 4):
        for name, a in found[1].items():
            if name.startswith("gradient of") and "before" not in name:
                torch.testing.assert_close(found[number][name], a, rtol=1e-3, atol=1e-3)
            else:
                assert torch.equal(found[number][name], a), name


def test_how_many_threads_a_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert [native.threads(50, B, 5_000_000) for B in (1, 7, 8, 16, 64)] == [1, 1, 2, 4, 8]
    assert native.threads(50, 64, 500) == 1


def test_passes_at_once_are_those_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded(monkeypatch, 2)
    cases = [dataclasses.replace(case, B=16, T=30) for case in (PLAIN, NORM, PENDING, PLAIN)]
    given = [make(case, seed=k) for k, case in enumerate(cases)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: forward(one), given * 3))
    for got, one in zip(found, given * 3):
        assert all(map(torch.equal, got, forward(one)))


def test_backward_passes_at_once_through_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded(monkeypatch, 1)
    rnn, x = HMLSTM(16, 48, 3, engine="native", layer_norm=True), torch.randn(40, 16, 16, requires_grad=True)
    loss = rnn(x)[0].hidden[2].sum()

    def backward(_: int = 0) -> Tensor:
        return torch.autograd.grad(loss, x, retain_graph=True)[0]

    want = backward()
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(got, want) for got in pool.map(backward, range(24)))


def forward(given: Any) -> list[Tensor]:
    """Outputs and the gradients of the weights; unlike ``evaluate`` it draws nothing."""
    weights = [LayerWeights(*(None if a is None else a.clone().requires_grad_() for a in w)) for w in given.weights]
    inputs = given.source if given.indices is None else Symbols(given.indices, given.source)
    options = Options(given.case.variant, 1.7, zoneout=0.25)
    result = native.hmlstm(
        inputs, weights, given.state, options, lengths=given.lengths, boundaries=given.forced, seen=given.seen
    )
    return outputs(result) + gradients(loss_of(result), [a for w in weights for a in w if a is not None])


def test_a_child_that_was_forked_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded(monkeypatch, 2)
    given = make(dataclasses.replace(PLAIN, B=16))
    want = forward(given)
    if (child := os.fork()) == 0:
        os._exit(0 if all(map(torch.equal, forward(given), want)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(map(torch.equal, forward(given), want))


WITHOUT_MEMORY = """
import os, resource, torch
from hmrnn import HMLSTM
from hmrnn.ops.native import engine

engine.threads = lambda *given: 3
rnn, x = HMLSTM(32, [128, 96, 128], 3, engine="native", layer_norm=True), torch.randn(80, 32, 32)
train = lambda rnn, x: rnn(x)[0].hidden[1].sum().backward()
train(HMLSTM(4, 4, 2, engine="native"), torch.randn(6, 12, 4))
for megabytes in range(4, 100, 6):
    if (child := os.fork()) == 0:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
        try:
            train(rnn, x)
        except (MemoryError, RuntimeError):
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            train(rnn, x)
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_where_memory_runs_out_it_is_an_exception_and_the_process_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=True)
    # From where on it suffices differs; at 127 the C library itself gave up, having no memory for a thread's own data.
    assert {"1"} <= {*done.stdout.split()} <= {"0", "1", "127"}, done.stderr


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


@pytest.fixture
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def gradients_of(rnn: HMLSTM, loss: Callable[[], Tensor]) -> list[Tensor]:
    rnn.zero_grad()
    torch.manual_seed(1)
    loss().backward()
    return [a.grad.clone() for a in rnn.parameters() if a.grad is not None]


@pytest.mark.usefixtures("process_group")
def test_under_ddp() -> None:
    rnn, x = HMLSTM(4, 6, 3, engine="native"), torch.randn(7, 3, 4)
    wrapped = DistributedDataParallel(rnn)
    want = gradients_of(rnn, lambda: rnn(x)[0].hidden[2].sum())
    for _ in range(2):
        assert all(map(torch.equal, gradients_of(rnn, lambda: wrapped(x)[0].hidden[2].sum()), want))


@pytest.mark.parametrize(
    "dropping",
    [{}, pytest.param({"weight_drop": 0.5, "dropout": 0.5, "zoneout": 0.3}, marks=pytest.mark.slow)],
    ids=str,
)
def test_compiled_around(dropping: dict[str, float]) -> None:
    """With the state carried over by compiled code, too."""
    rnn, x = HMLSTM(4, 6, 3, engine="native", **dropping), torch.randn(7, 3, 4)  # type: ignore[arg-type]

    def loss() -> Tensor:
        out, state = rnn(2 * x)
        return sum(h.square().sum() for h in (*out.hidden, *rnn(x, state)[0].hidden)) / 2  # type: ignore[return-value]

    got = gradients_of(rnn, torch.compile(loss, backend="eager"))
    torch.testing.assert_close(got, gradients_of(rnn, loss))


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_under_autocast_it_computes_in_the_precision_of_its_parameters(given: torch.dtype) -> None:
    rnn, x, table = HMLSTM(4, 6, 3), torch.randn(5, 3, 4).to(given), torch.randn(9, 4).to(given)
    symbols = torch.randint(9, (5, 3))
    for plain, changed in [(rnn(x.float())[0], (x,)), (rnn(symbols, embedding=table.float())[0], (symbols, table))]:
        with torch.autocast("cpu", torch.bfloat16):
            out, _ = rnn(changed[0], embedding=changed[1] if len(changed) > 1 else None)
            out.hidden[2].sum().backward()
        assert all(map(torch.equal, out.hidden, plain.hidden))


WRONG: dict[str, Callable[[Problem], dict[str, Any]]] = {
    "x": lambda p: {"x": torch.zeros(6, 5, 3).double()},
    "x, too large": lambda p: {"x": torch.zeros(1, 1, 4).double().expand(2**29, 5, 4)},
    "embedding, too large": lambda p: {"x": Symbols(torch.zeros(6, 5).long(), torch.zeros(1, 4).expand(2**31, 4))},
    "x of no size": lambda p: {"x": p.x[..., :0], "weights": [p.weights[0]._replace(W=p.weights[0].W[:, :0])]},
    "x of another type": lambda p: {"x": p.x.float()},
    "boundaries": lambda p: {"boundaries": torch.zeros(6, 5, 3).double()},
    "boundaries between 0 and 1": lambda p: {"boundaries": torch.full((6, 5, 2), 0.5).double()},
    "noise": lambda p: {"noise": torch.zeros(5, 5, 2).double()},
    "kept": lambda p: {"kept": [torch.zeros(6, 5, size) for size in (6, 5, 6)]},
    "kept, too few": lambda p: {"kept": [torch.zeros(6, 5, 6)]},
    "seen": lambda p: {"seen": [torch.zeros(5, 6), torch.zeros(6, 5)]},
    "seen, too few": lambda p: {"seen": [torch.zeros(5, 6)]},
    "lengths": lambda p: {"lengths": torch.tensor([1, 2, 3, 4, 7])},
    "lengths below 0": lambda p: {"lengths": torch.tensor([1, 2, 3, 4, -1])},
    "lengths, too few": lambda p: {"lengths": torch.tensor([3])},
    "state.h": lambda p: {"state": p.state._replace(h=p.state.h[::-1])},
    "state.h, too few": lambda p: {"state": p.state._replace(h=p.state.h[:2])},
    "state.c": lambda p: {"state": p.state._replace(c=tuple(c[:4] for c in p.state.c))},
    "state of another type": lambda p: {"state": p.state.to(torch.float32)},
    "state.z": lambda p: {"state": p.state._replace(z=p.state.z[:, :1])},
    "state.z between 0 and 1": lambda p: {"state": p.state._replace(z=p.state.z + 0.25)},
    "U.1": lambda p: {"weights": [w._replace(U=w.U[:-1]) if l == 1 else w for l, w in enumerate(p.weights)]},
    "V.0": lambda p: {"weights": [p.weights[0]._replace(V=p.weights[0].V[:, 1:]), *p.weights[1:]]},
    "D1 alone": lambda p: {"weights": [p.weights[0]._replace(D1=torch.zeros(3, 15).double()), *p.weights[1:]]},
    "gain_W.0": lambda p: {"weights": [p.weights[0]._replace(gain_W=None), *p.weights[1:]]},
    "b of another type": lambda p: {"weights": [*p.weights[:2], p.weights[2]._replace(b=p.weights[2].b.float())]},
    "symbols": lambda p: {"x": Symbols(torch.full((6, 5), 9), torch.zeros(9, 4).double())},
    "symbols below 0": lambda p: {"x": Symbols(torch.full((6, 5), -1), torch.zeros(9, 4).double())},
    "embedding": lambda p: {"x": Symbols(torch.zeros(6, 5).long(), torch.zeros(9, 3).double())},
    "soft": lambda p: {"options": Options(Variant("soft"))},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_it_could_not_read_is_refused(what: str) -> None:
    p = Problem(norm=True)
    changes = WRONG[what](p)
    for name in ("x", "state", "weights", "options"):
        setattr(p, name, changes.pop(name, getattr(p, name)))
    with pytest.raises(InputError):
        hmlstm(p.x, p.weights, p.state, p.options, engine="native", **changes)
