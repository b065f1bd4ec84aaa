"""The equations of baselines: peepholes, delays, reservoirs, causal convolutions, recurrence from the output, H-Net."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hmrnn
import tiny
from hmrnn import Operation, checkpoint
from hmrnn.kinds.text.evaluate import find
from hmrnn.nn import rate_loss, ridge_regression
from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.baselines.cells import OutputRNN, PeepholeLSTM, SkipRNN, TimeDelayNetwork
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.h_net import HNet
from hmrnn.training.metrics import read_metrics
from hmrnn.training.terms.weights import decay
from hmrnn.training.trainer import Trainer
from refusals import refused

T, B, INPUT, SIZES, LENGTHS = 9, 3, 4, (6, 5), [9, 4, 1]


def sigmoid(s: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-s))


def peephole(w: dict[str, np.ndarray], x: np.ndarray, coupled: bool = False) -> np.ndarray:
    h = c = np.zeros(w["U"].shape[1])
    n, hidden = len(h), []
    for row in x:
        s = w["U"] @ h + w["W"] @ row + w["b"]
        i = sigmoid(s[:n] + w["p"][:n] * c)
        f = 1 - i if coupled else sigmoid(s[3 * n :] + w["p"][2 * n :] * c)
        c = f * c + i * np.tanh(s[2 * n : 3 * n])
        h = sigmoid(s[n : 2 * n] + w["p"][n : 2 * n] * c) * np.tanh(c)
        hidden.append(h)
    return np.stack(hidden)


def coupled(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    return peephole(w, x, coupled=True)


def skip(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    hidden = [np.zeros(len(w["b"]))] * 3  # a delay of 3
    for row in x:
        hidden.append(np.tanh(w["U"] @ hidden[-1] + w["V"] @ hidden[-3] + w["W"] @ row + w["b"]))
    return np.stack(hidden[3:])


def echo(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    hidden = [np.zeros(len(w["b"]))]
    for row in x:
        hidden.append(np.tanh(w["U"] @ hidden[-1] + w["W"] @ row + w["b"]))
    return np.stack(hidden[1:])


def time_delay(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    read = np.concatenate([np.zeros((2, x.shape[1])), x])  # a kernel of 3
    return np.stack([np.tanh(sum(w["K"][:, j] @ read[t + j] for j in range(3)) + w["b"]) for t in range(len(x))])


def output_rnn(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    o, hidden = np.zeros(len(w["d"])), []
    for row in x:
        hidden.append(np.tanh(w["U"] @ o + w["W"] @ row + w["b"]))
        o = w["V"] @ hidden[-1] + w["d"]
    return np.stack(hidden)


NETWORKS: list[tuple[Any, dict[str, Any], Callable[..., np.ndarray]]] = [
    (PeepholeLSTM, {}, peephole),
    (PeepholeLSTM, {"coupled": True}, coupled),
    (SkipRNN, {"delay": 3}, skip),
    (EchoStateNetwork, {}, echo),
    (TimeDelayNetwork, {"kernel": 3}, time_delay),
    (OutputRNN, {"outputs": 2}, output_rnn),
]
every_network = pytest.mark.parametrize(
    ("kind", "options", "equations"), NETWORKS, ids=lambda v: getattr(v, "__name__", "")
)


def network(kind: Any, options: dict[str, Any]) -> Baseline:
    rnn = kind(INPUT, SIZES, 2, **options).double()
    with torch.no_grad():
        for name, p in rnn.named_parameters():
            if p.dim() == 1:
                p.normal_()
            assert p.requires_grad == (kind is not EchoStateNetwork), name
    return rnn


def inputs() -> Tensor:
    return torch.randn(T, B, INPUT, dtype=torch.float64)


@every_network
def test_equations(kind: Any, options: dict[str, Any], equations: Callable[..., np.ndarray]) -> None:
    rnn, x = network(kind, options), inputs()
    padded = x.clone()
    for b, length in enumerate(LENGTHS):
        padded[length:, b] = torch.nan
    out, _ = rnn(padded, lengths=LENGTHS)
    weights = {name: p.detach().numpy() for name, p in rnn.named_parameters()}
    for b, length in enumerate(LENGTHS):
        below = x[:length, b].numpy()
        for l in range(2):
            below = equations({name[:-2]: p for name, p in weights.items() if name.endswith(f".{l}")}, below)
            np.testing.assert_allclose(out.hidden[l][:length, b].detach().numpy(), below, rtol=0, atol=1e-12)
            assert not out.hidden[l][length:, b].any()


def test_a_reservoir_has_its_spectral_radius_and_is_not_trained() -> None:
    rnn = EchoStateNetwork(INPUT, 30, 2, spectral_radius=0.7).double()
    for U in rnn.U:
        assert torch.linalg.eigvals(U).abs().max().item() == pytest.approx(0.7, rel=1e-5)
    x = inputs().requires_grad_()
    out, _ = rnn(x)
    assert not any(h.requires_grad for h in out.hidden)
    with refused("spectral_radius"):
        EchoStateNetwork(INPUT, 30, 2, spectral_radius=0)


def test_ridge_regression_is_its_closed_form() -> None:
    x, y = torch.randn(40, 5, dtype=torch.float64), torch.randn(40, 2, dtype=torch.float64)
    W, b = ridge_regression(x, y, 0.3)
    wide = torch.cat([x, torch.ones(40, 1, dtype=torch.float64)], dim=1)
    penalty = 0.3 * torch.diag(torch.tensor([1.0] * 5 + [0.0], dtype=torch.float64))
    want = torch.linalg.solve(wide.T @ wide + penalty, wide.T @ y).T
    torch.testing.assert_close(torch.cat([W, b[:, None]], dim=1), want)
    exact, offset = ridge_regression(x.view(4, 10, 5), (x @ W.T + 3).view(4, 10, 2), 0.0)
    torch.testing.assert_close(exact, W)
    torch.testing.assert_close(offset, torch.full((2,), 3.0, dtype=torch.float64))
    with refused():
        ridge_regression(x, y[1:])
    with refused("penalty"):
        ridge_regression(x, y, -1)


def test_ridge_regression_gives_the_same_bytes_each_time() -> None:
    """Also where a symbol never occurs, and where the rows do not vary in every direction."""
    x, y = torch.randn(300, 40).tanh(), nn.functional.one_hot(torch.randint(6, (300,)), 9).float()
    for rows, penalty in ((x, 1e-3), (torch.cat([x, x], dim=1), 0.0)):
        kept, found = [], set()
        for k in range(30):
            kept.append(torch.randn(13 * k + 1))  # so that the memory lies elsewhere
            W, b = ridge_regression(rows.clone(), y.clone(), penalty)
            found.add(W.contiguous().numpy().tobytes() + b.numpy().tobytes())
        assert len(found) == 1
        assert torch.equal(W[6:], torch.zeros(3, rows.shape[1]))
    torch.testing.assert_close(W[:, :40], W[:, 40:], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(W[:, :40] * 2, ridge_regression(x, y, 0.0)[0], rtol=1e-3, atol=1e-6)


def test_weight_decay_leaves_the_reservoir_as_it_was_drawn() -> None:
    model = nn.ModuleList([EchoStateNetwork(3, 5, 1), nn.Linear(5, 2)])
    before = {name: p.clone() for name, p in model.named_parameters()}
    decay(model, 0.5)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name] * (0.5 if name == "1.weight" else 1))


def ridge_run() -> Trainer:
    return tiny.trainer(tiny.config(rnn="echo-state", ridge=0.1, epochs=1))


def test_the_output_of_an_echo_state_network_is_fitted_by_ridge_regression(tmp_path: Path) -> None:
    """In one pass: the closed form on all steps that were read, with the state carried; saved half way, it ends
    the same."""
    trainer, other = ridge_run(), ridge_run()
    task, model = trainer.task, trainer.model
    state, read, wanted = model.rnn.initial_state(4), [], []
    with torch.no_grad():
        for chunk in range(task.chunks):
            inputs, targets = task.batch(0, chunk)
            _, out, state = model(inputs, state)
            read.append(torch.cat(out.hidden, dim=-1))
            wanted.append(nn.functional.one_hot(targets, model.num_symbols).float())
    assert trainer.validate().measure == pytest.approx(np.log2(model.num_symbols))  # all are equally likely
    for step in range(task.chunks):
        if step == 3:
            checkpoint.write(tmp_path / "now", trainer.snapshot(training=True))
            other.restore(checkpoint.read(tmp_path / "now", training=True))
        trainer.step()
    W, b = ridge_regression(torch.cat(read), torch.cat(wanted), 0.1)
    torch.testing.assert_close(model.softmax.weight, W, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.softmax.bias, b, rtol=1e-4, atol=1e-5)
    assert trainer.validate().measure < 0.8 * np.log2(model.num_symbols)
    for _ in range(3, task.chunks):
        other.step()
    for name, p in model.state_dict().items():
        assert torch.equal(p, other.model.state_dict()[name]), name


def test_a_ridge_run_reports_nothing_before_it_is_fitted(tmp_path: Path) -> None:
    config = tiny.config(rnn="echo-state", ridge=0.1, epochs=1, log_every=1)
    assert tiny.run(tmp_path / "run", config, stop=lambda event: event["step"] == 3)["signal"] == "SIGTERM"
    assert tiny.run(tmp_path / "run", config, resume=True)["reason"] == "1 epoch done"
    (line,) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert line["event"] == "valid"
    assert line["bits"] < 0.8 * np.log2(9)


def test_a_ridge_regression_gives_probabilities() -> None:
    model = ridge_run().model
    with torch.no_grad():
        model.softmax.bias.copy_(torch.linspace(-0.5, 1.5, model.num_symbols))
        (logits,), _, _ = model(torch.zeros(2, 1, dtype=torch.long))
    least = torch.linspace(-0.5, 1.5, model.num_symbols).clamp(min=1e-3)
    torch.testing.assert_close(logits.softmax(-1)[0, 0], least / least.sum())


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"rnn": "lstm"}, "model.ridge"),
        ({"epochs": 2}, "train.epochs"),
        ({"weight_drop": 0.1}, "regularise.weight_drop"),
        ({"validate_every": 5}, "train.validate_every"),
        ({"scheduled_sampling": (0.0, 0.5)}, "train.scheduled_sampling"),
        ({"accumulate": 2}, "model.ridge"),
        ({"ridge": -1.0}, "model.ridge"),
    ],
)
def test_what_ridge_regression_does_not_have_is_refused(changes: dict[str, Any], setting: str) -> None:
    with refused(setting):
        tiny.trainer(tiny.config(**({"rnn": "echo-state", "ridge": 0.1, "epochs": 1} | changes)))


def h_net(**options: Any) -> HNet:
    rnn = HNet(INPUT, (6, 4, 5, 7), 4, **options).double()
    with torch.no_grad():
        for p in rnn.parameters():
            p.add_(0.5 * torch.randn_like(p))
    return rnn


def chunked(rnn: HNet, x: Tensor, given: Tensor) -> tuple[list[Tensor], list[float], list[bool]]:
    """h of all layers at each step, p and z of one sequence, step by step; ``given`` (T,) may be NaN."""
    states: list[Any] = [None] * 4
    held, smooth, before = (
        [torch.zeros(n, dtype=x.dtype) for n in rnn.hidden_sizes],
        torch.zeros(5, dtype=x.dtype),
        None,
    )
    rows, chances, begun = [], [], []

    def move(l: int, below: Tensor) -> Tensor:
        out, states[l] = rnn.layers[l](below[None], states[l])
        held[l] = out[0]
        return held[l]

    for t, row in enumerate(x):
        h = move(0, row)
        p = torch.ones(()) if before is None else (1 - torch.cosine_similarity(rnn.Q @ h, rnn.K @ before, dim=0)) / 2
        chances.append(p.item())
        p = p if given[t].isnan() else given[t]
        begins = bool(p > 0.5)
        if begins:
            smooth = p * move(2, move(1, h)) + (1 - p) * smooth
        move(3, smooth + rnn.R @ h)
        before = h
        rows.append(list(held))
        begun.append(begins)
    return [torch.stack(each) for each in zip(*rows)], chances, begun


@pytest.mark.parametrize("forced", [False, True])
def test_an_h_net_moves_between_where_a_chunk_begins(forced: bool) -> None:
    rnn, x = h_net(layer_norm=True), inputs()
    given = torch.full((T, B, 1), torch.nan, dtype=torch.float64)
    if forced:
        given[::2] = (torch.rand(len(given[::2]), B, 1) > 0.5).double()
    out, _ = rnn(x, lengths=LENGTHS, boundaries=given)
    for b, length in enumerate(LENGTHS):
        hidden, p, z = chunked(rnn, x[:length, b], given[:, b, 0])
        for mine, theirs in zip(out.hidden, hidden):
            torch.testing.assert_close(mine[:length, b], theirs, rtol=0, atol=1e-12)
        torch.testing.assert_close(out.probabilities[:length, b, 0].tolist(), p, rtol=0, atol=1e-12)
        assert out.boundaries[:length, b, 0].tolist() == z
        assert not out.boundaries[length:, b].any()
        moved = out.operations[:length, b] == Operation.UPDATE
        assert moved.tolist() == [[True, begins, begins, True] for begins in z]
    assert forced or 0 < float(out.boundaries[1:].detach().mean()) < 1


def test_the_ratio_loss_of_an_h_net_is_a_rate_loss() -> None:
    """Its gradients are; N = 4 and α = 0.03."""
    rnn, x = h_net(), inputs()
    out, _ = rnn(x)
    fired, likely = out.boundaries.detach().mean(), out.probabilities.mean()
    ratio = 4 / 3 * (3 * fired * likely + (1 - fired) * (1 - likely))
    with torch.no_grad():
        assert float(ratio) != pytest.approx(1)
    weights = [rnn.Q, rnn.K, rnn.layers[0].U[0]]
    wanted = torch.autograd.grad(0.03 * ratio, weights, retain_graph=True)
    for one, other in zip(torch.autograd.grad(0.03 * 16 / 6 * rate_loss(out, [1 / 4]), weights), wanted):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_an_h_net_without_an_inner_network_smooths_what_its_encoder_says_and_one_layer_is_none() -> None:
    rnn, x = HNet(INPUT, 6, 2).double(), inputs()
    out, _ = rnn(x)
    steps, smooth = [], torch.zeros(B, 6, dtype=torch.float64)
    for h, p, z in zip(out.hidden[0], out.probabilities, out.boundaries):
        smooth = torch.where(z > 0, p * h + (1 - p) * smooth, smooth)
        steps.append(smooth)
    torch.testing.assert_close(rnn.layers[1](torch.stack(steps))[0], out.hidden[1], rtol=0, atol=1e-12)
    assert (out.operations == Operation.UPDATE).all()
    with refused("num_layers"):
        HNet(INPUT, 6, 1)


def test_a_trained_h_net_finds_the_segments_that_its_boundaries_begin(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", tiny.config(rnn="h-net", hidden_size=(8,), rates=(0.3,), epochs=2))
    model = hmrnn.load(tmp_path / "run")
    text = "abc de fgh a hhg cab"
    indices = model.vocabulary.encode(text)
    out = model.network.predict(model.network.as_input(indices)[:, None])[1]
    found = model.segment(text, primed=False)
    assert found.boundaries[:-1, 0].tolist() == out.boundaries[1:, 0, 0].tolist()
    assert (found.levels, found.layers) == (1, 2)
    assert find(model.network, indices).boundaries[:-2, 0].tolist() == out.boundaries[1:-1, 0, 0].tolist()
    moved = found.operations[:, 1] == Operation.UPDATE
    work = found.products[moved].min() - found.products[~moved].max()
    assert work == 2 * 4 * 8 * 8 + 8 * tiny.config().model.output_size + 3 * 8  # U, W, Wᵉ and the gates of layer 2
