"""Muon: what it does with gate blocks, and Adam with the rest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hmrnn
import tiny
from hmrnn.kinds.labels.settings import LabelledModelConfig
from hmrnn.nn.registry import NETWORKS, make_rnn
from hmrnn.optim import Muon, orthogonalised
from hmrnn.training.trainer import Trainer
from refusals import refused


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 40), (1, 1, 7)])
def test_singular_values_come_near_one(shape: tuple[int, ...]) -> None:
    generator = torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    values = torch.linspace(0.05, 1, shape[1])  # at least 0.02 of the norm
    found = torch.linalg.svdvals(orthogonalised(1e-4 * (u * values) @ v))
    assert 0.9 < found.min() <= found.max() < 1.1
    assert orthogonalised(torch.zeros(shape)).abs().max() == 0


def network(**options: Any) -> hmrnn.HMLSTM:
    torch.manual_seed(1)
    return hmrnn.HMLSTM(3, (4, 6), num_layers=2, layer_norm=True, dtype=torch.float64, **options)


def set_gradients(module: nn.Module, seed: int) -> None:
    generator = torch.manual_seed(seed)
    for p in module.parameters():
        p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator)


def plain(gradients: list[Tensor], momentum: float = 0.95, row_beta: float = 0.0) -> Tensor:
    """The change of one block at the last of its gradients, at rate 1."""
    m, v = torch.zeros_like(gradients[0]), torch.zeros(len(gradients[0]), 1, dtype=torch.float64)
    for g in gradients:
        m = momentum * m + (1 - momentum) * g
        x = momentum * m + (1 - momentum) * g
        x = x / x.norm()
        for a, b, c in ((7.7110, -22.1138, 16.2487), (3.2153, -2.4112, 0.5013), (2.2183, -1.5940, 0.4107)):
            x = a * x + b * x @ x.T @ x + c * x @ x.T @ x @ x.T @ x
        if row_beta:
            v = row_beta * v + (1 - row_beta) * (x**2).mean(1, keepdim=True)
            x = x / v.sqrt()
            x = x * (min(x.shape) ** 0.5 / x.norm())
    return 0.2 * max(x.shape) ** 0.5 * x


@pytest.mark.parametrize("row_beta", [0.0, 0.9])
def test_each_block_moves_as_if_it_were_alone(row_beta: float) -> None:
    rnn = network()
    optimizer = Muon(rnn, lr=0.01, adam_rate=0.5, row_beta=row_beta, betas=(0.8, 0.99))
    rows = {name: 4 * (4 if name[2] == "0" else 6) for name, p in rnn.named_parameters() if name[0] in "UVW"}
    others = {
        name: nn.Parameter(p.detach()[rows.get(name, 0) :].clone()) for name, p in rnn.named_parameters()
    }  # what Adam is for: detectors' rows and all that is no matrix of gates
    adam = torch.optim.Adam(others.values(), lr=0.005, betas=(0.8, 0.99))
    seen: dict[str, list[Tensor]] = {}
    for seed in range(3):
        set_gradients(rnn, seed)
        before = copy.deepcopy(rnn)
        for name, p in rnn.named_parameters():
            assert p.grad is not None
            seen.setdefault(name, []).append(p.grad.clone())
            others[name].grad = p.grad[rows.get(name, 0) :].clone()
        optimizer.step()
        adam.step()
    for name, p in rnn.named_parameters():
        first = rows.get(name, 0)
        torch.testing.assert_close(p[first:], others[name], msg=name)
        for k in range(0, first, first // 4 or 1):
            block = slice(k, k + first // 4)
            change = before.get_parameter(name)[block] - p[block]
            wanted = 0.01 * plain([g[block] for g in seen[name]], row_beta=row_beta)
            torch.testing.assert_close(change, wanted, msg=f"{name}, rows from {k}")


def test_a_step_with_found_inf_changes_nothing() -> None:
    rnn = network()
    optimizer = Muon(rnn, lr=torch.tensor(0.01, dtype=torch.float64), row_beta=0.9)
    optimizer.found_inf = torch.zeros(())
    set_gradients(rnn, 0)
    optimizer.step()
    before = _everything(rnn, optimizer)
    assert len(before) == 11 * 4 + 3 * 6 + 2 * 3  # no matrices, those with a detector's row, and the top layer's
    optimizer.found_inf.fill_(1)
    for p in rnn.parameters():
        assert p.grad is not None
        p.grad.flatten()[-1] = torch.inf
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, _everything(rnn, optimizer), strict=True))
    optimizer.found_inf.zero_()
    set_gradients(rnn, 1)
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, _everything(rnn, optimizer), strict=True))


def _everything(module: nn.Module, optimizer: Muon) -> list[Tensor]:
    return [a.clone() for p in module.parameters() for a in (p, *optimizer.state[p].values())]


def test_its_state_can_be_stored() -> None:
    rnn, other = network(detector_hidden=3), network(detector_hidden=3)
    optimizers = Muon(rnn), Muon(other)
    for seed in range(3):
        if seed == 2:
            optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
            other.load_state_dict(rnn.state_dict())
        for module, optimizer in zip((rnn, other), optimizers):
            set_gradients(module, seed + 10 * (module is other and seed < 2))
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(rnn.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_names_its_blocks(name: str, bidirectional: bool) -> None:
    if bidirectional and name == "hrnn":
        return
    sizes = {8, 2} if name in ("cw-rnn", "output-rnn") else {8}  # of a block
    config = LabelledModelConfig(rnn=name, hidden_size=(8,), num_layers=2, bidirectional=bidirectional)
    rnn = make_rnn(5, config)
    if name == "echo-state":
        with refused():
            Muon(rnn)
        return
    (group,) = Muon(rnn).param_groups
    for p, count in zip(group["params"], group["blocks"], strict=True):
        assert (p.dim() > 1) == (count > 0)
        assert count == 0 or len(p) // count in sizes
    assert sum(group["blocks"]) > 0


def test_cells_and_whole_models_do_too() -> None:
    cell = hmrnn.HMLSTMCell(3, 1, above_size=2)  # one unit: a row per gate, and the detector's
    assert Muon(cell).param_groups[0]["blocks"] == [4, 4, 0, 4]
    model = tiny.trainer(tiny.config()).model
    (group,) = Muon(model).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    found = {names[id(p)] for p, count in zip(group["params"], group["blocks"]) if count}
    assert found == {f"rnn.{name}.{l}" for name in "UVW" for l in range(3) if (name, l) != ("V", 2)}


def test_settings_reach_the_optimizer() -> None:
    trainer: Trainer = tiny.trainer(tiny.config(optimizer="muon", adam_rate=0.25, beta1=0.5, learning_rate=0.03))
    (group,) = trainer.optimizer.param_groups
    assert isinstance(trainer.optimizer, Muon)
    assert (group["lr"], group["adam_rate"], group["betas"]) == (0.03, 0.25, (0.5, 0.999))
    trainer = tiny.trainer(tiny.config(beta1=0.0))
    assert isinstance(trainer.optimizer, torch.optim.Adam)
    trainer.step()
    p = trainer.model.softmax.weight
    assert torch.equal(trainer.optimizer.state[p]["exp_avg"], p.grad)
