"""Clockwork and leaky networks against their equations, written as loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hmrnn.nn.baselines.cells import LeakyRNN
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.ops import State
from refusals import refused

T, B, INPUT, SIZES = 11, 3, 5, (12, 15)
MODULES = 3  # periods 1, 2, 4


def clockwork(layer_norm: bool = False) -> ClockworkRNN:
    rnn = ClockworkRNN(INPUT, SIZES, 2, num_modules=MODULES, layer_norm=layer_norm).double()
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return rnn


def literal(rnn: ClockworkRNN, x: Tensor, start: int = 0) -> list[Tensor]:
    """Koutník et al. (2014), module by module and sequence by sequence, from the zero state at time ``start``."""
    below = x
    hidden = []
    for l, size in enumerate(SIZES):
        m = size // MODULES
        W, b = rnn.W[l], rnn.b[l]
        h = [[torch.zeros(m, dtype=torch.float64) for _ in range(MODULES)] for _ in range(x.shape[1])]
        steps = []
        for t in range(len(x)):
            rows = []
            for n in range(x.shape[1]):
                before = list(h[n])
                for i in range(MODULES):
                    if (start + t) % 2**i:
                        continue
                    mine = slice(i * m, (i + 1) * m)
                    s = W[mine] @ below[t, n]
                    for j in range(i, MODULES):
                        s = s + rnn.U[l][i][:, (j - i) * m : (j - i + 1) * m] @ before[j]
                    if rnn.layer_norm:
                        s = (s - s.mean()) / ((s - s.mean()).pow(2).mean() + 1e-5).sqrt() * rnn.gain[l][mine]
                    h[n][i] = torch.tanh(s + b[mine])
                rows.append(torch.cat(h[n]))
            steps.append(torch.stack(rows))
        below = torch.stack(steps)
        hidden.append(below)
    return hidden


def same(ours: list[Tensor], theirs: list[Tensor], parameters: list[Tensor]) -> None:
    """In value and in every gradient."""
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    losses = (sum((h.pow(3).sum() for h in hidden), start=torch.zeros(())) for hidden in (ours, theirs))
    for a, b in zip(*(torch.autograd.grad(loss, parameters) for loss in losses)):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def inputs(steps: int = T) -> Tensor:
    return torch.randn(steps, B, INPUT, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_clockwork_is_its_equations(layer_norm: bool) -> None:
    rnn, x = clockwork(layer_norm), inputs()
    out, state = rnn(x)
    same(list(out.hidden), literal(rnn, x), [x, *rnn.parameters()])
    for c, size in zip(state.c, SIZES):
        assert torch.equal(c, (T % 2.0 ** torch.arange(MODULES)).repeat_interleave(size // MODULES).expand(B, -1))


@pytest.mark.parametrize("start", range(5))
def test_clockwork_starts_at_any_time(start: int) -> None:
    rnn, x = clockwork(), inputs(6)
    state = rnn.initial_state(B)
    _, later = rnn(torch.zeros(start, B, INPUT, dtype=torch.float64)) if start else (None, state)
    out, _ = rnn(x, State(state.h, later.c, state.z))
    same(list(out.hidden), literal(rnn, x, start), [x, *rnn.parameters()])


def test_clockwork_sequences_may_be_out_of_step() -> None:
    rnn, x = clockwork(True), inputs()
    _, state = rnn(inputs(8), lengths=[8, 3, 6])
    together, end = rnn(x, state.detach())
    for n in range(B):
        one = State(*(tuple(a[n, None].detach() for a in group) for group in (state.h, state.c)), state.z[n, None])
        alone, alone_end = rnn(x[:, n, None], one)
        for l in range(2):
            torch.testing.assert_close(together.hidden[l][:, n], alone.hidden[l][:, 0], rtol=0, atol=1e-12)
            assert torch.equal(end.c[l][n], alone_end.c[l][0])


def test_clockwork_refuses_a_clock_that_its_state_cannot_hold() -> None:
    x = torch.randn(3, B, INPUT)
    ClockworkRNN(INPUT, 18, 1, num_modules=9).bfloat16()(x.bfloat16())
    rnn = ClockworkRNN(INPUT, 20, 1, num_modules=10)
    rnn(x)
    with refused():
        rnn.bfloat16()(x.bfloat16())


def test_clockwork_sizes_must_fit() -> None:
    with refused("hidden_size"):
        ClockworkRNN(INPUT, (8, 6), 2)
    with refused():
        ClockworkRNN(INPUT, (8, 4), 2, layer_norm=True)
    with refused("num_modules"):
        ClockworkRNN(INPUT, 8, num_modules=0)


@pytest.mark.parametrize(("sizes", "slowest"), [(SIZES, 20.0), ((1, 2), 64.0), ((3, 4), 1.0)])
def test_leaky_is_its_equation(sizes: tuple[int, int], slowest: float) -> None:
    rnn, x = LeakyRNN(INPUT, sizes, 2, time_constant=slowest).double(), inputs()
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(0.2 * torch.randn_like(p))
    out, state = rnn(x)
    below, theirs = x, []
    for l, size in enumerate(sizes):
        rate = torch.tensor([slowest ** -(j / max(1, size - 1)) for j in range(size)], dtype=torch.float64)
        h, steps = torch.zeros(B, size, dtype=torch.float64), []
        for t in range(T):
            h = (1 - rate) * h + rate * torch.tanh(h @ rnn.U[l].T + below[t] @ rnn.W[l].T + rnn.b[l])
            steps.append(h)
        below = torch.stack(steps)
        theirs.append(below)
    same(list(out.hidden), theirs, [x, *rnn.parameters()])
    assert not torch.stack([c.any() for c in state.c]).any()
    with refused("time_constant"):
        LeakyRNN(INPUT, 3, time_constant=0.5)
