"""What a library in C++ must not do to its caller: gradients, memory, threads, processes, PyTorch around it."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from problem import KINDS, NORM, PENDING, PLAIN, Problem, gradients, loss_of, loss_of_all, outputs, run, same
from torch import Tensor
from torch.distributed import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from against_reference import Case, Inputs, Values, evaluate, make
from hmrnn import HMLSTM
from hmrnn.ops import LayerWeights, Options, Result, State, Symbols, hmlstm, reference
from hmrnn.ops.native import engine as native
from hmrnn.ops.native import library
from refusals import refused


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
    with refused():
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


def negated(a: Tensor) -> Tensor:
    """The same numbers as a view that negates others, as of the imaginary part of a conjugate."""
    return torch._neg_view(-a)


@pytest.mark.parametrize(
    "view", [lambda a: torch.stack([a, a + 1], dim=-1)[..., 0], negated], ids=["gaps between", "negated"]
)
def test_arguments_may_lie_in_memory_in_any_order(view: Callable[[Tensor], Tensor]) -> None:
    p = Problem()
    want = p.run(lengths=torch.tensor([3, 6, 1, 2, 5]))
    p.x = view(p.x.transpose(0, 1).contiguous()).transpose(0, 1)
    p.weights = [LayerWeights(*(None if a is None else view(a) for a in w)) for w in p.weights]
    p.state = p.state.apply(view)
    p.learn()
    found = p.run(lengths=torch.tensor([3, 6, 1, 2, 5], dtype=torch.int32))
    assert all(map(torch.equal, outputs(found), outputs(want)))
    got, exact = (gradients(loss_of(p.run(engine)), p.parameters) for engine in (native, reference))
    torch.testing.assert_close(got, exact, rtol=1e-10, atol=1e-10)
    h = found.hidden[1]
    d = torch.randn_like(h)
    given, plain = (gradients(h, p.parameters, grad_outputs=a, retain_graph=True) for a in (view(d), d))
    assert all(map(torch.equal, given, plain))


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


def test_the_log_is_freed_by_the_backward_pass_or_without_one(passes: weakref.WeakSet[Any]) -> None:
    p = Problem().learn()
    result = p.run()
    loss = loss_of(result)
    assert len(passes) == 1
    loss.backward(retain_graph=True)
    assert len(passes) == 1
    loss.backward()
    assert len(passes) == 0
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


def single(given: Inputs) -> Values:
    return evaluate(native.hmlstm, given, torch.float32)


def test_passes_at_once_are_those_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded(monkeypatch, 2)
    cases = [dataclasses.replace(case, B=16, T=30) for case in (PLAIN, NORM, PENDING, PLAIN)]
    given = [make(case, seed=k) for k, case in enumerate(cases)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(single, given * 3))
    for got, one in zip(found, given * 3):
        same(got, single(one))


def test_backward_passes_at_once_through_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded(monkeypatch, 1)
    rnn, x = HMLSTM(16, 48, 3, engine="native", layer_norm=True), torch.randn(40, 16, 16, requires_grad=True)
    loss = rnn(x)[0].hidden[2].sum()

    def backward(_: int = 0) -> Tensor:
        return torch.autograd.grad(loss, x, retain_graph=True)[0]

    want = backward()
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(got, want) for got in pool.map(backward, range(24)))


def test_a_child_that_was_forked_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded(monkeypatch, 2)
    given = make(dataclasses.replace(PLAIN, B=16))
    want = single(given)
    if (child := os.fork()) == 0:
        os._exit(0 if all(torch.equal(a, want[name]) for name, a in single(given).items()) else 1)
    assert os.waitpid(child, 0)[1] == 0
    same(single(given), want)


WITHOUT_MEMORY = """
import os, resource, torch
from hmrnn import HMLSTM
from hmrnn.ops.native import engine

engine.threads = lambda *given: 3
rnn, x = HMLSTM(32, [128, 96, 128], 3, engine="native", layer_norm=True), torch.randn(80, 32, 32)
train = lambda rnn, x: rnn(x)[0].hidden[1].sum().backward()
train(HMLSTM(4, 4, 2, engine="native"), torch.randn(6, 12, 4))
for megabytes in range(4, 100, 12):
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


@pytest.mark.parametrize("level", library._levels())
@pytest.mark.parametrize("norm", [False, True])
def test_under_autocast_without_gradients_its_weights_are_bfloat16(
    level: str, norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly those of a network with rounded weights, but for the detectors, whatever the number of rows."""
    monkeypatch.setattr(library, "code", ctypes.CDLL(str(library._find(level))))
    rnn = HMLSTM(5, (40, 33, 17), 3, layer_norm=norm, flush=False, top_down="pending", engine="native")
    rounded = copy.deepcopy(rnn)
    with torch.no_grad():
        for w in rounded.layers():
            for a in (w.U, w.W, w.V):
                if a is not None:
                    a[: 4 * w.hidden_size] = a[: 4 * w.hidden_size].bfloat16()
    for B in (1, 4, 13):
        x, forced = torch.randn(9, B, 5), torch.randint(2, (9, B, 2)).float()
        with torch.no_grad():
            (want, end), (plain, _) = rounded(x, boundaries=forced), rnn(x, boundaries=forced)
            with torch.autocast("cpu", torch.bfloat16):
                got, state = rnn(x, boundaries=forced)
                doubles = copy.deepcopy(rnn).double()(x.double(), boundaries=forced)[0].hidden[0]
            assert all(map(torch.equal, (*got.hidden, got.probabilities), (*want.hidden, want.probabilities)))
            assert not torch.equal(got.hidden[0], plain.hidden[0])
            torch.testing.assert_close(got.hidden, plain.hidden, atol=0.02, rtol=0)
            torch.testing.assert_close(doubles.float(), plain.hidden[0])
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(rnn.step(x[0], state).state.h[0], rounded.step(x[0], end).state.h[0])
        exact = rnn.step(x[0], state)  # the weights are packed anew
        torch.testing.assert_close(exact.state.h[0], rnn(x[:1], State(*state))[0].hidden[0][0], rtol=0, atol=1e-6)
