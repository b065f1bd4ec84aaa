"""The sparse engine as it is used: single precision, inside DDP and torch.compile, over long texts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hmrnn import HMLSTM
from hmrnn.config import ModelConfig
from hmrnn.inference.evaluate import evaluate
from hmrnn.nn.models import LanguageModel
from hmrnn.nn.output import Output
from hmrnn.ops import Options, State, reference
from hmrnn.ops.sparse import forward as sparse
from hmrnn.ops.sparse import log as sparse_log
from literal import random_state


def gradients(loss: Tensor, rnn: HMLSTM) -> list[Tensor]:
    rnn.zero_grad()
    loss.backward()
    return [a.grad.detach().clone() for a in rnn.parameters() if a.grad is not None]


def loss_of(out: Output) -> Tensor:
    return sum((h.square().sum() for h in out.hidden), start=out.boundaries.sum())


def close(got: list[Tensor], want: list[Tensor], tolerance: float) -> None:
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        assert float((a - b).norm()) <= tolerance * float(b.norm())


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.4, 0.1), (0.0, 0.9)])
def test_single_precision(
    onednn: bool, norm: bool, rates: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As near to the exact values as the reference is, with the matrices that oneDNN packs and without."""
    monkeypatch.setattr(sparse_log, "LARGE", 0)
    rnn = HMLSTM(20, (30, 40, 50), 3, layer_norm=norm)
    x, forced = torch.randn(9, 6, 20), (torch.rand(9, 6, 2) < torch.tensor(rates)).float()
    options, start = Options(1.2, straight_through=True), random_state((30, 40, 50), 6)

    def run(engine: Any, dtype: torch.dtype) -> list[Tensor]:
        rnn.to(dtype)
        state = State(*(tuple(a.to(dtype) for a in part) for part in (start.h, start.c)), start.z.to(dtype))
        r = engine.hmlstm(x.to(dtype), rnn.layers(), state, options, boundaries=forced.to(dtype))
        return [*(h.detach() for h in r.hidden), *gradients(sum(h.square().sum() for h in r.hidden), rnn)]

    exact = run(reference, torch.float64)
    with torch.backends.mkldnn.flags(enabled=onednn):
        got, single = run(sparse, torch.float32), run(reference, torch.float32)
    for a, b, truth in zip(got, single, exact, strict=True):
        error, usual = (float((p - truth).norm() / (truth.norm() + 1e-9)) for p in (a, b))
        assert error < 1e-6 + 3 * usual < 1e-2


@pytest.fixture
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_under_ddp() -> None:
    rnn, x = HMLSTM(4, 6, 3, engine="sparse"), torch.randn(7, 3, 4)
    want = gradients(loss_of(rnn(x)[0]), rnn)
    wrapped = DistributedDataParallel(rnn)
    for _ in range(2):
        close(gradients(loss_of(wrapped(x)[0]), rnn), want, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dropping", [{}, {"weight_drop": 0.5, "dropout": 0.5, "zoneout": 0.3}])
def test_a_compiled_module(dropping: dict[str, float]) -> None:
    """With the state carried over by compiled code, too."""
    rnn, x = HMLSTM(4, 6, 3, engine="sparse", **dropping), torch.randn(7, 3, 4)  # type: ignore[arg-type]

    def loss(x: Tensor) -> Tensor:
        out, state = rnn(2 * x)
        return (loss_of(out) + loss_of(rnn(x, state)[0])) / 2

    torch.manual_seed(1)
    got = gradients(torch.compile(loss, backend="eager")(x), rnn)
    torch.manual_seed(1)
    close(got, gradients(loss(x), rnn), 1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module_without_gradients(mode: Any) -> None:
    rnn, x = HMLSTM(4, 6, 3, engine="sparse"), torch.randn(7, 3, 4)
    want, _ = rnn(x)
    with mode():
        got, state = rnn(x)
        assert got.hidden[0].grad_fn is None
        again, _ = rnn(x, state)
    close([*got.hidden, got.boundaries], [a.detach() for a in (*want.hidden, want.boundaries)], 1e-6)
    assert again.hidden[0].shape == (7, 3, 6)


class Shapes(TorchDispatchMode):
    """The shapes of all tensors that operations give."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen |= {tuple(a.shape) for a in tree_leaves(result) if isinstance(a, Tensor)}
        return result


@pytest.mark.parametrize("norm", [False, True])
def test_without_gradients_only_the_outputs_grow_with_the_steps(norm: bool) -> None:
    T, B, sizes = 193, 3, (6, 5, 7)
    rnn, x = HMLSTM(4, sizes, 3, layer_norm=norm, engine="sparse"), torch.randn(T, B, 4)
    rnn(x)
    with torch.no_grad(), Shapes() as shapes:
        rnn(x)
    grown = {s for s in shapes.seen if max(s, default=0) >= T}
    assert {(T, B, size) for size in sizes} <= grown
    assert all(s == (2, T, B) or (s[:2] == (T, B) and max(s[2:], default=1) <= max(sizes)) for s in grown)


@pytest.mark.slow
def test_evaluation_holds_no_more_for_a_longer_text() -> None:
    gc.collect()  # what other tests left, which counts while it is there
    network = LanguageModel(5, ModelConfig(hidden_size=(6,), embedding_size=4, output_size=6))
    symbols = np.arange(1200) ** 2 % 5

    def most(length: int) -> int:
        """Bytes of all the tensors there are, at the most, between two chunks."""
        held: list[int] = []

        def count(done: int, total: int) -> None:
            held.append(sum(a.untyped_storage().nbytes() for a in gc.get_objects() if type(a) is Tensor))

        evaluate(network, symbols[:length], chunk=50, progress=count)
        assert len(held) >= length // 50
        return max(held)

    most(200)
    assert most(1200) <= most(200) * 1.01


def test_buffers_may_be_filled_anew_before_the_backward_pass() -> None:
    """The gradients are those of what was read, of symbols and of forced boundaries."""
    rnn = HMLSTM(3, (4, 5, 6), 3, engine="sparse").double()
    embedding = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    symbols, forced = torch.randint(7, (9, 4)), torch.randint(2, (9, 4, 2)).double()
    found = []
    for refill in (False, True):
        given, boundaries = symbols.clone(), forced.clone()
        out, _ = rnn(given, boundaries=boundaries.requires_grad_(), embedding=embedding)
        if refill:
            given.zero_()
            boundaries.data.fill_(torch.nan)
        found.append(torch.autograd.grad(out.hidden[2].sum(), [embedding, boundaries]))
    assert found[0][1].abs().max() > 0
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_one_layer_with_forced_boundaries_that_want_a_gradient() -> None:
    """There are none of them, and so is their gradient."""
    rnn = HMLSTM(3, 4, 1, engine="sparse")
    none = torch.zeros(5, 2, 0, requires_grad=True)
    out, _ = rnn(torch.randn(5, 2, 3), boundaries=none)
    out.hidden[0].sum().backward()
    assert rnn.U[0].grad.abs().max() > 0
