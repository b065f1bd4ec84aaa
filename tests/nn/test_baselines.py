"""The baselines: PyTorch's numbers with PyTorch's weights, the equations literally, and one face for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import hmrnn
from hmrnn.nn import dropout
from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.baselines.cells import LeakyRNN, OutputRNN, PeepholeLSTM, SkipRNN, TimeDelayNetwork
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.h_net import HNet
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from hmrnn.nn.dropout import factors
from hmrnn.nn.output import Operation
from hmrnn.ops import State
from refusals import refused

T, B, INPUT, SIZES = 13, 4, 3, (16, 12, 20)
LENGTHS = (13, 1, 7, 8)
NETWORKS: dict[str, Callable[..., Baseline]] = {
    "lstm": LSTM,
    "gru": GRU,
    "ln-lstm": partial(LSTM, layer_norm=True),
    "cw-rnn": lambda *sizes, **options: ClockworkRNN(*sizes, **options),
    "ln-cw-rnn": lambda *sizes, **options: ClockworkRNN(*sizes, layer_norm=True, **options),
    "leaky": LeakyRNN,
    "h-net": HNet,
}
LECTURE: dict[str, Callable[..., Baseline]] = {
    "peephole": PeepholeLSTM,
    "skip": partial(SkipRNN, delay=3),
    "echo-state": EchoStateNetwork,
    "time-delay": partial(TimeDelayNetwork, kernel=3),
    "output-rnn": OutputRNN,
}
every_network = pytest.mark.parametrize("name", NETWORKS)
lecture_s_too = pytest.mark.parametrize("name", NETWORKS | LECTURE)


def network(name: str, **options: Any) -> Baseline:
    """With random numbers in every parameter: zero biases and unit gains would hide what is not read."""
    rnn = (NETWORKS | LECTURE)[name](INPUT, SIZES, 3, **options).double()
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return rnn


def inputs() -> Tensor:
    return torch.randn(T, B, INPUT, dtype=torch.float64)


def gradients(rnn: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*rnn.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, parameters)))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@torch.no_grad()
def of_torch(stacked: nn.GRU) -> GRU:
    """The same network, with the weights of torch's."""
    rnn = GRU(INPUT, 6, 3).double()
    for l, layer in enumerate(rnn.layers):
        for name, parameter in layer.named_parameters():
            parameter.copy_(getattr(stacked, name.replace("_l0", f"_l{l}")))
    return rnn


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_a_gru_is_torch_s(lengths: tuple[int, ...] | None) -> None:
    """As the LSTM is: test_lstm.py."""
    stacked, x = nn.GRU(INPUT, 6, 3).double(), inputs()
    rnn = of_torch(stacked)
    given = x if lengths is None else pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    expected, h_end = stacked(given)
    expected = expected if lengths is None else pad_packed_sequence(expected, total_length=T)[0]
    out, state = rnn(x, lengths=lengths)
    close(out.hidden[2], expected)
    close(torch.stack(state.h), h_end)
    assert not torch.stack(state.c).any()
    theirs = gradients(stacked, expected.pow(3).sum())
    for name, gradient in gradients(rnn, out.hidden[2].pow(3).sum()).items():
        _, l, kind = name.split(".")
        close(gradient, theirs[kind.replace("_l0", f"_l{l}")])


@pytest.mark.parametrize("kind", [hmrnn.HMLSTM, hmrnn.nn.LSTM, LSTM, GRU, LeakyRNN, PeepholeLSTM, HNet])
def test_gates_start_orthogonal_and_gains_at_1(kind: Any) -> None:
    """And again after a reset; those of U and V in an HM-LSTM at 0.1, biases and detectors' rows are no gates."""
    rnn = kind(INPUT, 8, 3, **({} if kind in (GRU, LeakyRNN, PeepholeLSTM) else {"layer_norm": True}))
    for _ in range(2):
        for name, p in rnn.named_parameters():
            small = kind is hmrnn.HMLSTM and name.startswith(("gain_U", "gain_V"))
            if p.dim() == 1:
                assert (p == (0.1 if small else 1.0 if "gain" in name else 0.0)).all(), name
        for matrix, gates in rnn.gate_blocks():
            rows = len(matrix) // gates
            for block in matrix[: gates * rows].view(gates, rows, -1) if matrix.any() else ():
                products = block.T @ block if block.shape[0] >= block.shape[1] else block @ block.T
                torch.testing.assert_close(products, torch.eye(len(products)), rtol=0, atol=1e-5)
        with torch.no_grad():
            for p in rnn.parameters():
                p.mul_(0.5)
        rnn.reset_parameters()


@every_network
def test_symbols_are_looked_up_in_the_embedding(name: str) -> None:
    rnn, table = network(name), torch.randn(9, INPUT, dtype=torch.float64, requires_grad=True)
    symbols = torch.randint(9, (T, B))
    by_symbol, by_vector = rnn(symbols, embedding=table)[0].hidden[2], rnn(table[symbols])[0].hidden[2]
    close(by_symbol, by_vector)
    close(*(torch.autograd.grad(hidden.pow(3).sum(), table)[0] for hidden in (by_symbol, by_vector)))


@lecture_s_too
@pytest.mark.parametrize("cut", [1, 8])
def test_a_sequence_in_parts_gives_what_it_gives_whole(name: str, cut: int) -> None:
    rnn, x = network(name), inputs()
    whole, end = rnn(x)
    first, state = rnn(x[:cut])
    second, last = rnn(x[cut:], state)
    for l in range(3):
        close(torch.cat([first.hidden[l], second.hidden[l]]), whole.hidden[l])
        close(last.h[l], end.h[l])
        close(last.c[l], end.c[l])


@every_network
def test_every_sequence_ends_at_its_own_length(name: str) -> None:
    """And whatever its padding holds, nothing of it is read; it may even go on from there."""
    rnn, x = network(name), inputs()
    padded = x.clone()
    for n, length in enumerate(LENGTHS):
        padded[length:, n] = torch.nan
    padded.requires_grad_()
    out, state = rnn(padded, lengths=LENGTHS)
    rest = torch.randn(3, B, INPUT, dtype=torch.float64)
    after, _ = rnn(rest, state)
    for n, length in enumerate(LENGTHS):
        alone, end = rnn(x[:length, n, None])
        on, _ = rnn(rest[:, n, None], end)
        for l in range(3):
            close(out.hidden[l][:length, n], alone.hidden[l][:, 0])
            assert not out.hidden[l][length:, n].any()
            close(state.h[l][n], end.h[l][0])
            close(state.c[l][n], end.c[l][0])
            close(after.hidden[l][:, n], on.hidden[l][:, 0])
        assert (out.operations[length:, n] == Operation.COPY).all()
    (gradient,) = torch.autograd.grad(sum(h.pow(3).sum() for h in out.hidden), padded)
    assert bool(gradient.isfinite().all())
    assert [int(gradient[:, n].abs().sum(-1).count_nonzero()) for n in range(B)] == list(LENGTHS)


@lecture_s_too
@pytest.mark.parametrize("training", [True, False])
def test_streaming_takes_the_same_steps(name: str, training: bool) -> None:
    """Those of eval(): a stream draws nothing while training, either."""
    options = {"zoneout": 0.3} if name == "ln-lstm" else {}
    rnn, x = network(name, dropout=0.5, weight_drop=0.5, **options).eval(), inputs()
    out, _ = rnn(x)
    rnn.train(training)
    state: State | None = None
    for t in range(T):
        step = rnn.step(x[t], state)
        state = step.state
        assert not state.h[2].requires_grad
        close(state.h[2], out.hidden[2][t])
        assert torch.equal(step.changed, out.operations[t] != Operation.COPY)
        assert step.changed.all() or name == "h-net"
        close(step.probabilities, out.probabilities[t])


@every_network
def test_gradient_reaches_every_parameter_and_the_state(name: str) -> None:
    rnn = network(name)
    state = rnn.initial_state(B)
    before = tuple(torch.randn_like(h).requires_grad_() for h in state.h)
    out, _ = rnn(inputs(), State(before, state.c, state.z))
    loss = sum((h.pow(3).sum() for h in out.hidden), start=torch.zeros(()))
    for h, gradient in zip(before, torch.autograd.grad(loss, before, retain_graph=True)):
        assert bool(gradient.any(0).all()), h.shape
    for parameter, gradient in gradients(rnn, loss).items():
        assert bool(gradient.reshape(len(gradient), -1).any(1).all()), parameter


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where the CPU has no bfloat16 of its own
@every_network
def test_autocast_keeps_the_state_in_float32(name: str) -> None:
    rnn, x = network(name).float(), inputs().float()
    exact, _ = rnn(x)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = rnn(x[:5])
        out, state = rnn(x[5:], state.detach())
    assert (out.hidden[2].float() - exact.hidden[2][5:]).abs().mean() < 0.03
    assert {a.dtype for a in (*state.h, *state.c)} == {torch.float32}


def recurrent(rnn: Baseline) -> list[Tensor]:
    """The recurrent weights of all layers."""
    return [p for name, p in rnn.named_parameters() if ".U." in f".{name}" or "weight_hh" in name]


@every_network
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_weight_drop_takes_recurrent_weights_away_for_a_call(name: str, lengths: tuple[int, ...] | None) -> None:
    """What has no gradient was dropped; a network that has lost the same weights for good says the same."""
    rnn, x = network(name, weight_drop=0.4), inputs()
    start = rnn(x)[1].detach()
    out, state = rnn(x, start, lengths=lengths)
    matrices = recurrent(rnn)
    kept = [g != 0 for g in torch.autograd.grad(sum(h.pow(3).sum() for h in out.hidden), matrices)]
    share = float(torch.cat([k.flatten() for k in kept]).double().mean())
    assert 0.5 < share < 0.7
    assert not torch.equal(rnn(x)[0].hidden[2], out.hidden[2])
    rnn.eval()
    assert torch.equal(rnn(x)[0].hidden[2], rnn(x)[0].hidden[2])
    with torch.no_grad():
        for matrix, k in zip(matrices, kept):
            matrix.mul_(k.double() / 0.6)
    again, after = rnn(x, start, lengths=lengths)
    close(again.hidden[2], out.hidden[2])
    for mine, theirs in zip((*after.h, *after.c), (*state.h, *state.c)):
        close(mine, theirs)


@every_network
def test_dropout_hides_units_from_the_layer_above(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each sequence others, the same ones at all steps; the first layer reads all of x, the output all layers."""
    rnn, x = network(name, dropout=0.5), inputs()
    drawn: list[Tensor] = []

    def note(like: Tensor, p: float) -> Tensor:
        drawn.append(factors(like, p))
        return drawn[-1]

    monkeypatch.setattr(dropout, "factors", note)
    out, _ = rnn(x)
    assert [a.shape for a in drawn] == [(x.shape[1], size) for size in SIZES[:2]]
    assert all(set(a.unique().tolist()) == {0.0, 2.0} for a in drawn)
    inner = {"gru": "layers.{}.weight_ih_l0"} | dict.fromkeys(("lstm", "ln-lstm", "h-net"), "layers.{}.W.0")
    W = [rnn.get_parameter(inner.get(name, "W.{}").format(l)) for l in (1, 2)]
    whole = [matrix.detach().clone() for matrix in W]
    rnn.eval()
    for b in range(x.shape[1]):
        with torch.no_grad():
            for matrix, all_of_it, seen in zip(W, whole, drawn):
                matrix.copy_(all_of_it * seen[b])
        close(rnn(x[:, b : b + 1])[0].hidden[2], out.hidden[2][:, b : b + 1])
    assert len(drawn) == 2


def test_engines() -> None:
    cpu = torch.device("cpu")
    ran = [network(name).engine_for(cpu) for name in NETWORKS]
    assert ran == ["native", "torch", "native", "torch", "torch", "torch", "native"]
    assert network("ln-lstm", engine="reference").engine_for(cpu) == "reference"
    assert network("lstm", engine="torch").engine_for(cpu) == "torch"
    with refused("engine"):
        network("gru", engine="native")
    with refused("engine"):
        network("ln-lstm", engine="quick")
