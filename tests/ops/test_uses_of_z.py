"""Each use of z alone in the reference engine, against the formulas of a backward pass written by hand."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from hmrnn.ops import Options
from hmrnn.ops.reference import layer_step
from literal import random_weights

SLOPE = 1.7


@dataclasses.dataclass
class OneStep:
    """One layer, one step, one sequence, with the quantities that the gradient of z is made of."""

    zp: float
    zb: float
    V: float = 1.0
    W: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        H = 5
        self.w = random_weights(4, (H, 3), False)[0]
        self.w = self.w._replace(V=self.w.V * self.V, W=self.w.W * self.W)
        for matrix in (self.w.U, self.w.V, self.w.W, self.w.b):
            matrix[-1] = 0
        self.h_before, self.c_before = (torch.randn(1, H, dtype=torch.float64) for _ in range(2))
        self.c_before *= self.c
        self.below, self.above = torch.randn(1, 4, dtype=torch.float64), torch.randn(1, 3, dtype=torch.float64)
        self.dh, self.dc = torch.randn(H, dtype=torch.float64), torch.randn(H, dtype=torch.float64)

    def autograd(self) -> tuple[float, float]:
        """The gradient of ⟨dh, h⟩ + ⟨dc, c⟩ in zp and in zb."""
        zp, zb = (torch.full((1, 1), v, dtype=torch.float64, requires_grad=True) for v in (self.zp, self.zb))
        h, c, _, _ = layer_step(self.w, self.h_before, self.c_before, zp, self.below, zb, self.above, Options())
        dzp, dzb = torch.autograd.grad((h * self.dh).sum() + (c * self.dc).sum(), (zp, zb))
        return dzp.item(), dzb.item()

    def by_hand(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """((choice, gated V) of zp, (choice, gated W) of zb)."""
        w, zp, zb, h, c = self.w, self.zp, self.zb, self.h_before[0], self.c_before[0]
        Va, Wb = w.V @ self.above[0], w.W @ self.below[0]
        s = w.U @ h + zp * Va + zb * Wb + w.b
        f, i, o, g = s[:-1].view(4, -1)
        f, i, o, g = f.sigmoid(), i.sigmoid(), o.sigmoid(), g.tanh()
        alpha, beta, gamma = zp + (1 - zp) * zb, (1 - zp) * zb, (1 - zp) * (1 - zb)
        tanh_c = (alpha * i * g + beta * f * c + gamma * c).tanh()
        dc = self.dc + alpha * self.dh * o * (1 - tanh_c**2)
        ds = torch.cat([
            beta * dc * c * f * (1 - f), alpha * dc * g * i * (1 - i),
            alpha * self.dh * tanh_c * o * (1 - o), alpha * dc * i * (1 - g**2),
        ])  # fmt: skip
        A, keep, hold = (dc * i * g + self.dh * o * tanh_c).sum(), (dc * f * c).sum(), (dc * c + self.dh * h).sum()
        choice_zp = (1 - zb) * (A - hold) - zb * keep
        choice_zb = (1 - zp) * (A + keep - hold)
        return (float(choice_zp), float(ds @ Va[:-1])), (float(choice_zb), float(ds @ Wb[:-1]))


@pytest.mark.parametrize(("zp", "zb"), [*itertools.product([0.0, 1.0], repeat=2)])
def test_gradient_of_z_is_the_sum_of_all_its_uses(zp: float, zb: float) -> None:
    case = OneStep(zp, zb)
    by_hand = case.by_hand()
    assert case.autograd() == pytest.approx([sum(uses) for uses in by_hand], abs=1e-13)


@pytest.mark.parametrize(
    ("use", "case"),
    [
        ("choice, COPY or FLUSH", {"zp": 0, "zb": 0, "V": 0}),
        ("choice, UPDATE or FLUSH", {"zp": 0, "zb": 1, "V": 0}),
        ("gated V, UPDATE or FLUSH of an empty cell", {"zp": 0, "zb": 1, "c": 0}),
        ("gated V, FLUSH of an empty cell", {"zp": 1, "zb": 1, "c": 0}),
    ],
)
def test_each_use_of_the_layers_own_z_has_a_gradient_alone(use: str, case: dict[str, float]) -> None:
    one = OneStep(**case)
    (choice, gated), _ = one.by_hand()
    alone, other = (choice, gated) if use.startswith("choice") else (gated, choice)
    assert other == 0
    assert abs(alone) > 0.01
    assert one.autograd()[0] == pytest.approx(alone, abs=1e-13)


@pytest.mark.parametrize(
    ("use", "case"),
    [
        ("choice, COPY or UPDATE", {"zp": 0, "zb": 0, "W": 0}),
        ("choice, UPDATE or COPY", {"zp": 0, "zb": 1, "W": 0}),
        ("gated W, FLUSH with nothing from below", {"zp": 1, "zb": 0}),
        ("gated W, FLUSH", {"zp": 1, "zb": 1}),
    ],
)
def test_each_use_of_the_z_below_has_a_gradient_alone(use: str, case: dict[str, float]) -> None:
    one = OneStep(**case)
    _, (choice, gated) = one.by_hand()
    alone, other = (choice, gated) if use.startswith("choice") else (gated, choice)
    assert other == 0
    assert abs(alone) > 0.01
    assert one.autograd()[1] == pytest.approx(alone, abs=1e-13)


@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
@pytest.mark.parametrize("bias", [0.4, -0.4, 4.0])
def test_hold_sends_the_gradient_of_z_through_alpha(on_copy: str, bias: float) -> None:
    one = OneStep(zp=0, zb=0)
    one.w.b[-1] = bias  # the detector sees its bias alone
    zp, zb = (torch.zeros(1, 1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = one.w.b.requires_grad_()
    options = Options(SLOPE, "step", on_copy)
    _, _, z, p = layer_step(one.w, one.h_before, one.c_before, zp, one.below, zb, one.above, options)
    assert z is not None
    assert p is not None
    assert z.item() == (0 if on_copy == "hold" else p.item() > 0.5)
    dzp, dzb, db = torch.autograd.grad(z.sum(), (zp, zb, weight), allow_unused=True, materialize_grads=True)
    says = float(bias > 0)
    linear = abs(SLOPE * bias) <= 1
    assert (dzp.item(), dzb.item()) == ((says, says) if on_copy == "hold" else (0, 0))  # dα = 1, dα/dz = 1 on COPY
    assert db[-1].item() == (SLOPE / 2 if on_copy == "evaluate" and linear else 0)
