"""The cuda engine, right in every order of use: in Triton's interpreter and on a GPU."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore
from torch.nn.parallel import DistributedDataParallel

import tiny
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import Result, State, reference
from hmrnn.ops.cuda import cache as cuda_cache
from hmrnn.ops.cuda import engine as cuda
from hmrnn.training.trainer import Trainer
from refusals import refused

pytest.importorskip("triton", reason="Triton is not installed")
gpu = pytest.mark.gpu
without = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=[gpu, without])])
def device(request: pytest.FixtureRequest) -> str:
    """A GPU, or the CPU with the kernels in Triton's interpreter."""
    if request.param == "cpu":
        request.getfixturevalue("interpreter")
    cuda.forget()
    return request.param


@pytest.fixture
def on_gpu() -> None:
    cuda.forget()


def of_gpu(test: Any) -> Any:
    return gpu(without(pytest.mark.usefixtures("on_gpu")(test)))


def network(layer_norm: bool = False, device: str = "cuda") -> HMLSTM:
    torch.manual_seed(0)
    sizes = (3, (4, 3, 5)) if device == "cpu" else (24, (48, 32, 64))
    return HMLSTM(*sizes, 3, layer_norm=layer_norm).to(device)


def start(rnn: HMLSTM, B: int) -> State:
    """Not zeros: there layer norm multiplies gradients by 1/√ε at every step."""

    def numbers(H: int, rate: float) -> Tensor:
        return (rate * torch.arange(B * H, device=rnn.a.device)).sin().view(B, H) / 2

    h, c = (tuple(numbers(H, rate) for H in rnn.hidden_sizes) for rate in (0.7, 1.1))
    return State(h, c, torch.zeros(B, 2, device=rnn.a.device))


def run(rnn: HMLSTM, x: Tensor, engine: str = "cuda", state: State | None = None) -> Result:
    """Forced boundaries, so that engines agree; the gradient still goes to the detectors."""
    forced = torch.arange(x.shape[0] * x.shape[1] * 2, device=x.device).view(*x.shape[:2], 2) % 5 < 2
    options = dataclasses.replace(rnn.options(), straight_through=True)
    state = start(rnn, x.shape[1]) if state is None else state
    function = cuda.hmlstm if engine == "cuda" else reference.hmlstm
    return function(x, rnn.layers(), state, options, boundaries=forced.to(x.dtype))


def loss(rnn: HMLSTM, x: Tensor, engine: str = "cuda") -> Tensor:
    return loss_of(run(rnn, x, engine))


def loss_of(result: Result) -> Tensor:
    return torch.stack([h.float().square().sum() for h in result.hidden]).sum() + result.probabilities.sum()


def gradients(rnn: HMLSTM, x: Tensor, engine: str = "cuda") -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(rnn, x, engine), list(rnn.parameters()))


def assert_same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for a, b in zip(got, want):
        assert (a - b).norm() <= 1e-3 * b.norm() + 1e-5


def inputs(*scales: float, T: int = 9, B: int = 5, device: str = "cuda") -> list[Tensor]:
    shape = (2, 1, 3) if device == "cpu" else (T, B, 24)
    return [scale * torch.randn(shape, device=device) for scale in scales]


def test_several_forwards_before_their_backwards(device: str) -> None:
    rnn, xs = network(True, device), inputs(1, -2, device=device)
    wanted = [gradients(rnn, x, "reference") for x in xs]
    for _ in range(3 if device == "cuda" else 1):  # launched, captured, replayed
        losses = [loss(rnn, x) for x in xs]
        run(rnn, xs[0])  # no backward pass at all
        with torch.no_grad():
            run(rnn, xs[1])
        for i in (1, 0, 1):
            assert_same(torch.autograd.grad(losses[i], list(rnn.parameters()), retain_graph=True), wanted[i])
        torch.autograd.grad(losses[1], list(rnn.parameters()))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(losses[1], list(rnn.parameters()))
        del losses


def test_only_what_is_asked_for(device: str) -> None:
    """One output used, and gradients for the input and one matrix alone."""
    rnn, (x,) = network(device=device).requires_grad_(False), inputs(1, device=device)
    asked = [x.requires_grad_(), rnn.V[0].requires_grad_()]
    assert_same(*(torch.autograd.grad(run(rnn, x, engine).hidden[1].sum(), asked) for engine in ("cuda", "reference")))


def test_weights_and_slope_change_before_the_backward_pass_and_between_calls(device: str) -> None:
    """The engine keeps what it multiplied with; the reference has torch complain."""
    rnn, (x,) = network(device=device), inputs(1, device=device)
    for slope in (1.0, 1.5, 0.3, 4.0)[: 4 if device == "cuda" else 2]:
        rnn.slope = slope
        want, total = gradients(rnn, x, "reference"), loss(rnn, x)
        with torch.no_grad():
            for p in rnn.parameters():
                p.mul_(0.9)
        assert_same(torch.autograd.grad(total, list(rnn.parameters())), want)


def test_under_autocast(device: str) -> None:
    rnn, (x,) = network(device=device), inputs(1, device=device)
    want = gradients(rnn, x, "reference")
    for _ in range(3 if device == "cuda" else 1):
        with torch.autocast(device, torch.bfloat16):
            result = run(rnn, x)
            got = torch.autograd.grad(loss_of(result), list(rnn.parameters()))
        assert result.hidden[0].dtype == torch.bfloat16
        assert result.state.c[0].dtype == torch.float32
        for a, b in zip(got, want):
            assert a.dtype == torch.float32
            assert (a - b).norm() <= 5e-2 * b.norm() + 1e-3


def test_second_derivatives_and_those_of_the_slope_are_refused(device: str) -> None:
    rnn, (x,) = network(device=device), inputs(1, device=device)
    with refused():
        torch.autograd.grad(loss(rnn, x), rnn.U[0], create_graph=True)
    rnn.a.requires_grad_()
    with refused():
        run(rnn, x)


def test_under_compile(device: str) -> None:
    rnn, (x, other) = network(device=device), inputs(1, 2, device=device)
    for backend in ("eager", "inductor") if device == "cuda" else ("eager",):
        compiled = torch.compile(lambda x: loss(rnn, 2 * x) / 2, backend=backend)
        for now in (x, other, x) if device == "cuda" else (x,):
            got = torch.autograd.grad(2 * compiled(now / 2), list(rnn.parameters()))
            assert_same(got, gradients(rnn, now, "reference"))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_state_carried_over_with_its_gradient(layer_norm: bool, device: str) -> None:
    """Two calls of one shape, the second of which sends a gradient back into the first."""
    rnn, (x,) = network(layer_norm, device), inputs(1, T=12, device=device)
    half = len(x) // 2
    for _ in range(3 if device == "cuda" else 1):
        found = []
        for engine in ("cuda", "reference"):
            first = run(rnn, x[:half], engine)
            second = run(rnn, x[half:], engine, first.state)
            total = loss_of(first) + loss_of(second) + second.state.z.sum() + second.state.c[1].sum()
            found.append(torch.autograd.grad(total, list(rnn.parameters())))
        assert_same(*found)


@of_gpu
def test_more_shapes_and_more_calls_than_are_kept() -> None:
    rnn = network()
    for _ in range(3):
        for T in range(1, cuda_cache.KEPT + 4):
            (x,) = inputs(1, T=T)
            assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))
    pending = [loss(rnn, x) for x in inputs(*[1] * 40)]
    device = cuda_cache.on(torch.device("cuda", torch.cuda.current_device()))
    del pending
    run(rnn, inputs(1)[0])
    assert len(device.idle) <= cuda_cache.KEPT + 1
    (x,) = inputs(1)
    assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))


@of_gpu
@pytest.mark.parametrize("layer_norm", [False, True])
def test_inside_a_capture_of_the_callers(layer_norm: bool) -> None:
    rnn, (x, other) = network(layer_norm), inputs(1, 2)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gradients(rnn, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = gradients(rnn, x)
    for new in (other, -other):
        x.copy_(new)
        graph.replay()
        assert_same(got, gradients(rnn, x, "reference"))
        assert_same(gradients(rnn, other), gradients(rnn, other, "reference"))


@of_gpu
def test_without_a_gradient_a_long_sequence_takes_no_more_memory() -> None:
    rnn, peaks = network(), []
    for T in (1000, 4000):
        (x,) = inputs(1, T=T)
        with torch.inference_mode():
            run(rnn, x)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            result = run(rnn, x)
            outputs = sum(a.nbytes for a in (*result.hidden, result.boundaries, result.probabilities))
            peaks.append(torch.cuda.max_memory_allocated() - before - outputs)
            want = run(rnn, x[:200], "reference")
        assert (result.hidden[0][:200] - want.hidden[0]).abs().max() < 1e-3
        del result
    forced = 2 * 4000 * 5 * 2 * 8  # the boundaries that this test makes
    assert peaks[1] < peaks[0] + forced + 2**20


@of_gpu
def test_in_inference_mode() -> None:
    """By turns with training; and what it gives and takes there may be of either kind."""
    rnn, (x,) = network(), inputs(1)
    want = run(rnn, x, "reference")
    onwards = run(rnn, x, "reference", want.state)
    for _ in range(3):
        with torch.inference_mode():
            kept = x.clone()
            got = run(rnn, x)
            again = run(rnn, kept, state=got.state)
            assert not got.hidden[0].requires_grad
        assert_same(got.hidden + again.hidden, tuple(h.detach() for h in want.hidden + onwards.hidden))
        assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))
        assert_same(gradients(rnn, kept), gradients(rnn, x, "reference"))


PULLED = {
    "rates": (0.4, 0.2), "rate_weight": 0.2, "rate_control": 0.05, "pull_weight": 0.5,
    "pull_to": "uncertainty", "pull_delay": 1,
}  # fmt: skip


@of_gpu
@pytest.mark.parametrize("detectors", [{}, PULLED], ids=["free", "pulled"])
def test_a_captured_training_update_is_that_which_is_run(detectors: dict[str, Any]) -> None:
    """Embedding, output, loss, clipping, Adam and decay around the engine, in one graph of the trainer's."""
    config = tiny.config(weight_decay=0.5, average=0.9, accumulate=2, epochs=9, layer_norm=True, **detectors)
    found = []
    for captured in (True, False):
        trainer = Trainer(config, tiny.corpus(), torch.device("cuda"))
        assert trainer.captured is not None
        if not captured:
            trainer.captured = None
        for _ in range(12):
            trainer.step()
        assert trainer.watch.counts.tolist() == [12, 0, 0, 0]
        found.append([p.detach() for p in trainer.model.parameters()])
    for a, b in zip(*found):
        assert (a - b).norm() <= 1e-2 * b.norm()


@of_gpu
@pytest.mark.parametrize("boundary", ["step", "sample"])
@pytest.mark.parametrize("step", [1, 2, 3, 9], ids=["run once", "run twice", "captured", "replayed"])
def test_an_update_that_is_not_finite_changes_nothing(step: int, boundary: str) -> None:
    config = tiny.config(weight_decay=0.5, average=0.9, accumulate=2, estimator=boundary, epochs=9, **PULLED)
    trainer = Trainer(config, tiny.corpus(), torch.device("cuda"))
    while trainer.progress.step < step:
        trainer.step()

    def everything() -> dict[str, Tensor]:
        tensors = {**trainer.model.state_dict(), **trainer.tensors()}
        return {name: a.clone() for name, a in tensors.items() if not name.startswith(("random", "watch"))}

    before, weight = everything(), trainer.model.softmax.weight.data[0, 0].clone()
    assert all(bool(a.isfinite().all()) for a in before.values())
    trainer.model.softmax.weight.data[0, 0] = torch.nan
    trainer.step()
    trainer.model.softmax.weight.data[0, 0] = weight
    assert [name for name, a in everything().items() if not torch.equal(a, before[name])] == []


@pytest.fixture
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group("nccl", store=HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@of_gpu
@pytest.mark.usefixtures("process_group")
def test_under_ddp() -> None:
    rnn, xs = network(layer_norm=True), inputs(1, 2, 3)
    wrapped = DistributedDataParallel(rnn)
    for x in xs:
        found = []
        for call in (wrapped, rnn):
            rnn.zero_grad()
            out, _ = call(x)
            sum((h.square().sum() for h in out.hidden), start=out.boundaries.sum()).backward()
            found.append(tuple(p.grad.clone() for p in rnn.parameters() if p.grad is not None))
        assert len(found[0]) == len(list(rnn.parameters()))
        assert_same(*found)


@of_gpu
def test_several_threads() -> None:
    networks, (x,) = [network(layer_norm=norm) for norm in (False, True, False)], inputs(1, T=20)
    wanted = [gradients(rnn, x, "reference") for rnn in networks]
    got: dict[int, list[tuple[Tensor, ...]]] = {}
    torch.cuda.synchronize()

    def work(i: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            found = [gradients(networks[i], x) for _ in range(5)]
        stream.synchronize()
        got[i] = found

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, want in enumerate(wanted):
        for found in got[i]:
            assert_same(found, want)


@of_gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is but one GPU")
def test_several_devices() -> None:
    """By turns, whichever device is the current one."""
    networks = [network(device=f"cuda:{i}") for i in range(2)]
    xs = [x.to(f"cuda:{i}") for i, x in enumerate(inputs(1, 2))]
    wanted = [gradients(rnn, x, "reference") for rnn, x in zip(networks, xs)]
    for _ in range(3):
        losses = [loss(rnn, x) for rnn, x in zip(networks, xs)]
        for rnn, total, want in zip(networks, losses, wanted):
            assert_same(torch.autograd.grad(total, list(rnn.parameters())), want)
