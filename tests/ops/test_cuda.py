"""The cuda engine on a GPU: against the reference in every type, and right in every order of use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from against_reference import Case, Inputs, evaluate, expected, make, worst
from hmrnn import InputError
from hmrnn.ops import Options, Result, cuda, reference
from hmrnn.rnn import HMLSTM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
TOLERANCE = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 5e-2}
# Kernels are compiled for sizes and options, not for T and B: cases share them where they can.
LARGE = Case(sizes=(512, 512, 512), T=63, B=7, input_size=128, forced="all", straight_through=True)
LARGE_NORM = dataclasses.replace(LARGE, layer_norm=True, gain=0.2)
ODD = Case(sizes=(130, 77), T=20, B=9, input_size=65, forced="all", on_copy="hold")
CASES = [
    LARGE,
    dataclasses.replace(LARGE, T=1),
    dataclasses.replace(LARGE, T=200, B=3),
    dataclasses.replace(LARGE, T=10, B=160),
    LARGE_NORM,
    dataclasses.replace(LARGE_NORM, T=1),
    dataclasses.replace(LARGE_NORM, T=200, B=3),
    dataclasses.replace(LARGE_NORM, T=10, B=160),
    ODD,
    dataclasses.replace(ODD, layer_norm=True, lengths=True, symbols=50, gain=0.2),
    dataclasses.replace(ODD, zoneout="masks"),
    Case(sizes=(64, 48, 64, 48, 16), T=12, B=33, input_size=128, forced="all", lengths=True),
    Case(sizes=(200,), T=40, B=17, input_size=30),
]


@pytest.fixture
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if request.param == "tf32" else "ieee"
    yield request.param
    torch.backends.cuda.matmul.fp32_precision = before


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    cuda._devices.clear()


def kind(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


@pytest.mark.parametrize("precision", TOLERANCE, indirect=True)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients_are_those_of_the_reference(case: Case, precision: str) -> None:
    """Launched, captured and replayed; every time with other inputs.

    The straight-through gradient jumps where a detector leaves its linear range, |slope · s_z| <= 1. With the noise of
    bfloat16 or tf32 a few rows would lie on the other side than in float64, so there the detectors' weights are small
    enough to keep all of them inside.
    """
    if precision != "float32":
        case = dataclasses.replace(case, detector=0.05)
    for seed in range(3):
        given = make(case, kind(precision), "cuda", seed)
        error, name = worst(evaluate(cuda.hmlstm, given, kind(precision)), expected(given))
        assert error < TOLERANCE[precision], f"{name}: {error}, call {seed}"


@pytest.mark.parametrize("boundary", ["step", "sample", "soft"])
@pytest.mark.parametrize(("layer_norm", "on_copy"), [(False, "hold"), (True, "evaluate")])
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_free_boundaries(boundary: str, on_copy: str, layer_norm: bool, precision: str) -> None:
    """A boundary is discrete: a last bit can turn one, but with these seeds and this size none is that close."""
    case = Case((40, 30), 12, 4, 20, layer_norm, boundary, on_copy, detector=0.3)
    given = make(case, torch.float32, "cuda")
    error, name = worst(evaluate(cuda.hmlstm, given, torch.float32), expected(given))
    assert error < 1e-3, f"{name}: {error}"


@pytest.mark.parametrize("precision", TOLERANCE, indirect=True)
def test_few_boundaries_flip(precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = make(Case(sizes=(512, 512, 512), T=100, B=32, input_size=128), kind(precision), "cuda")
    flipped = flips(given, kind(precision))
    with capsys.disabled():
        print(f"\n{precision}: {flipped:.2%} of free boundaries differ from float64's after up to 100 steps")
    assert flipped < (0.5 if precision == "bfloat16" else 0.2)


def flips(given: Inputs, dtype: torch.dtype) -> float:
    got = evaluate(cuda.hmlstm, given, dtype, gradients=False)["boundaries"]
    want = evaluate(reference.hmlstm, given, torch.float64, gradients=False)["boundaries"]
    return (got != want).double().mean().item()


def network(layer_norm: bool = False, sizes: tuple[int, ...] = (48, 32, 64)) -> HMLSTM:
    torch.manual_seed(0)
    return HMLSTM(24, sizes, len(sizes), layer_norm=layer_norm).cuda()


def run(rnn: HMLSTM, x: Tensor, engine: str = "cuda") -> Result:
    """Forced boundaries, so that engines agree; the gradient still goes to the detectors."""
    forced = torch.arange(x.shape[0] * x.shape[1] * 2, device="cuda").view(*x.shape[:2], 2) % 5 < 2
    options = dataclasses.replace(rnn.options(), straight_through=True)
    state = rnn.initial_state(x.shape[1])
    function = cuda.hmlstm if engine == "cuda" else reference.hmlstm
    return function(x, rnn.layers(), state, options, boundaries=forced.to(x.dtype))


def loss(rnn: HMLSTM, x: Tensor, engine: str = "cuda") -> Tensor:
    result = run(rnn, x, engine)
    return torch.stack([h.float().square().sum() for h in result.hidden]).sum() + result.probabilities.sum()


def gradients(rnn: HMLSTM, x: Tensor, engine: str = "cuda", **options: bool) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(rnn, x, engine), list(rnn.parameters()), **options)


def assert_same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for a, b in zip(got, want):
        assert (a - b).norm() <= 1e-3 * b.norm() + 1e-5


def inputs(*scales: float, T: int = 9, B: int = 5) -> list[Tensor]:
    return [scale * torch.randn(T, B, 24, device="cuda") for scale in scales]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_several_forwards_before_their_backwards(layer_norm: bool) -> None:
    rnn, xs = network(layer_norm), inputs(1, 2, 3)
    for _ in range(3):  # launched, captured, replayed
        losses = [loss(rnn, x) for x in xs]
        run(rnn, xs[0])  # no backward pass at all
        with torch.no_grad():
            run(rnn, xs[1])
        for i in (1, 0, 2, 0):
            got = torch.autograd.grad(losses[i], list(rnn.parameters()), retain_graph=True)
            assert_same(got, gradients(rnn, xs[i], "reference"))
        torch.autograd.grad(losses[1], list(rnn.parameters()))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(losses[1], list(rnn.parameters()))
        del losses


def test_more_shapes_and_more_calls_than_are_kept() -> None:
    rnn = network()
    for _ in range(3):
        for T in range(1, cuda.KEPT + 4):
            (x,) = inputs(1, T=T)
            assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))
    pending = [loss(rnn, x) for x in inputs(*[1] * 40)]
    device = cuda._device(torch.device("cuda", torch.cuda.current_device()))
    del pending
    run(rnn, inputs(1)[0])
    assert len(device.idle) <= cuda.KEPT + 1
    (x,) = inputs(1)
    assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))


def test_weights_and_slope_change_between_replays() -> None:
    rnn, (x,) = network(), inputs(1)
    for slope in (1.0, 1.5, 0.3, 4.0):
        rnn.slope = slope
        with torch.no_grad():
            for p in rnn.parameters():
                p.mul_(0.9)
        assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))


def test_weights_that_move_in_memory() -> None:
    """Graphs load the weights of a few places; here there are more, each met often enough to be captured, and back."""
    networks, (x,) = [network() for _ in range(cuda.LOADS + 2)], inputs(1)
    for i, rnn in enumerate(networks):
        with torch.no_grad():
            rnn.U[0].mul_(1 + i)
    for rnn in networks + networks:
        for _ in range(4):
            assert_same(gradients(rnn, x), gradients(rnn, x, "reference"))
            with torch.no_grad():
                rnn.W[1].mul_(0.9)


def test_several_modules_of_one_shape_on_several_streams() -> None:
    networks, (x,) = [network(), network()], inputs(1, T=40)
    with torch.no_grad():
        networks[1].U[0].neg_()
    wanted = [gradients(rnn, x, "reference") for rnn in networks]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for _ in range(4):
        got = []
        for rnn, stream in zip(networks, streams):
            with torch.cuda.stream(stream):
                got.append(gradients(rnn, x))
        torch.cuda.synchronize()
        for a, b in zip(got, wanted):
            assert_same(a, b)


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


def test_under_autocast_and_under_compile() -> None:
    rnn, (x,) = network(), inputs(1)
    want = gradients(rnn, x, "reference")
    compiled = torch.compile(lambda x: loss(rnn, x), backend="eager")
    for _ in range(3):
        assert_same(torch.autograd.grad(compiled(x), list(rnn.parameters())), want)
        with torch.autocast("cuda", torch.bfloat16):
            result = run(rnn, x)
            got = gradients(rnn, x)
        assert result.hidden[0].dtype == torch.bfloat16
        assert result.state.c[0].dtype == torch.float32
        for a, b in zip(got, want):
            assert a.dtype == torch.float32
            assert (a - b).norm() <= 5e-2 * b.norm() + 1e-3


def test_what_it_cannot_do_it_says() -> None:
    rnn, (x,) = network().double(), inputs(1)
    with pytest.raises(InputError, match="float32 or bfloat16, not in float64"):
        cuda.hmlstm(x.double(), rnn.layers(), rnn.initial_state(5), Options())
    assert cuda.why_not(torch.device("cuda"), torch.bfloat16) is None
