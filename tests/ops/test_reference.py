"""The reference engine: its values against the literal writing, its gradients against an independent polynomial."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import literal
from against_reference import Case, evaluate, expected, make, worst
from hmrnn import InputError
from hmrnn.nn.hmlstm import operations
from hmrnn.nn.output import Operation
from hmrnn.ops import ENGINES, LayerWeights, Options, Result, State, choose_engine, reference
from hmrnn.ops.estimators import DRAWN
from hmrnn.ops.interface import TOP_DOWN
from pairs import grid

CELLS: list[dict[str, Any]] = [
    {"flush": flush, "top_down": top_down, "copy": copy}
    for flush, top_down, copy in itertools.product((True, False), TOP_DOWN, (True, False))
]
EXTRAS = ({}, {"lengths": True}, {"forced": "some"})
OPTIONS = [
    {"sizes": sizes, "layer_norm": layer_norm, "on_copy": on_copy, "boundary": boundary, **extras}
    for sizes, layer_norm, on_copy, boundary, extras in grid(
        [(5,), (5, 4), (4, 6, 3), (3, 5, 4, 2)],
        (False, True),
        ("hold", "evaluate"),
        ("step", "sample", "soft", "gumbel", "reinforce"),
        EXTRAS,
        strength=3,
    )
]
OPTIONS += [
    more | cell
    for cell in CELLS
    for more in (
        {"layer_norm": True, "on_copy": "hold", "forced": "some", "lengths": True, "straight_through": True},
        {"boundary": "sample", "layer_norm": True, "lengths": True, "symbols": 7, "hidden": 7},
        {"boundary": "soft", "layer_norm": True, "detector": 0.3},
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_forward_is_the_literal_writing(options: dict[str, Any]) -> None:
    given = make(Case(T=9, B=4, **options), torch.float64)
    case = given.case
    got = evaluate(reference.hmlstm, given, torch.float64, gradients=False)
    want = literal.run(
        given.source if given.indices is None else given.source[given.indices], given.weights, given.state,
        a=given.slope, boundary=case.boundary, on_copy=case.on_copy, lengths=given.lengths, forced=given.forced,
        noise=given.noise, flush=case.flush, top_down=case.top_down, copy=case.copy,
    )  # fmt: skip
    pairs = {"boundaries": want.boundaries, "state.z": want.z, "probabilities": want.probabilities}
    for name, arrays in {"hidden": want.hidden, "state.h": want.h, "state.c": want.c}.items():
        pairs |= {f"{name}.{l}": a for l, a in enumerate(arrays)}
    pairs |= {"state.pending": want.pending} if given.state.pending is not None else {}
    assert got.keys() == pairs.keys()
    for name, a in pairs.items():
        torch.testing.assert_close(got[name], torch.from_numpy(a), rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n} {m}")
    active = None if given.lengths is None else torch.arange(case.T)[:, None] < given.lengths
    done = operations(got["boundaries"], given.state.z, active, case)
    assert done.tolist() == want.operations.tolist()
    if case.boundary != "soft" and len(case.sizes) > 1:  # the comparison met every operation
        met = {Operation.UPDATE, *([Operation.FLUSH] * case.flush), *([Operation.COPY] * case.copy)}
        assert set((done if active is None else done[active]).flatten().tolist()) == met


def test_an_engine_is_named_or_refused() -> None:
    assert choose_engine("auto", torch.device("cpu"), Options()) in ENGINES
    assert choose_engine("reference", torch.device("cpu"), Options()) == "reference"
    with pytest.raises(InputError):
        choose_engine("fastest", torch.device("cpu"), Options())


def straight(p: Tensor, value: Tensor) -> Tensor:
    return p + (value - p).detach()


def normed(v: Tensor, gain: Tensor | None, bias: Tensor | float = 0.0) -> Tensor:
    if gain is None:
        return v
    gates, rest = v[:, : len(gain)], v[:, len(gain) :]
    away = gates - gates.mean(1, keepdim=True)
    return torch.cat([gain * away / (away**2).mean(1, keepdim=True).add(1e-5).sqrt() + bias, rest], 1)


def polynomial(
    x: Tensor, weights: Sequence[LayerWeights], state: State, options: Options, *,
    lengths: None, boundaries: Tensor | None, noise: Tensor | None,
) -> Result:  # fmt: skip
    """The three outcomes side by side, weighed by how far each condition holds."""
    cell, h, c, z = options.variant, list(state.h), list(state.c), list(state.z.split(1, 1))
    gates = list((state.z if state.pending is None else state.pending).split(1, 1))
    one, found, top = torch.ones_like(x[0, :, :1]), [], len(weights) - 1
    for t, below in enumerate(x):
        old, zb, step = list(h), one, []
        for l, w in enumerate(weights):
            zp, fed = z[l] if l < top else 0 * one, zb if cell.copy else one
            read = [old[l], fed * below]
            s = normed(old[l] @ w.U.T, w.gain_U) + fed * normed(below @ w.W.T, w.gain_W) + w.b
            if w.V is not None:
                pending = zp if cell.flush else gates[l]
                gate = {"boundary": zp, "always": one, "pending": pending}[cell.top_down]
                s = s + gate * normed(old[l + 1] @ w.V.T, w.gain_V)
                read.insert(1, gate * old[l + 1])
            f, i, o, g = s[:, : 4 * h[l].shape[1]].chunk(4, 1)
            erased, new = zp if cell.flush else 0 * one, i.sigmoid() * g.tanh()
            share = torch.stack([(1 - erased) * (1 - fed), (1 - erased) * fed, erased])  # COPY, UPDATE, FLUSH
            c[l] = (share * torch.stack([c[l], f.sigmoid() * c[l] + new, new])).sum(0)
            squashed = o.sigmoid() * (c[l] if w.gain_c is None else normed(c[l], w.gain_c, w.bias_c)).tanh()
            h[l] = (share * torch.stack([h[l], squashed, squashed])).sum(0)
            if l < top:
                said = s[:, -1:]
                if w.D1 is not None:
                    units = torch.cat(read, 1) @ w.D1.T + w.d1
                    said = (units * (1 + (units / 2**0.5).erf()) / 2) @ w.D2.T + w.d2
                p = ((options.slope * said + 1) / 2).clamp(0, 1)
                u = noise[t, :, l, None] if cell.boundary in DRAWN else one / 2
                free = p if cell.boundary == "soft" else straight(p, (p > u).double())
                if cell.boundary == "gumbel":  # the odds of z̃ over those of the noise, to the power 1/temperature
                    q = p.clamp(0.01, 0.99)
                    odds = (q * (1 - u) / (u * (1 - q))) ** (1 / options.temperature)
                    free = straight(odds / (1 + odds), free)
                elif cell.boundary == "reinforce":
                    free = free.detach()
                free = (1 - share[0]) * free if cell.on_copy == "hold" else free
                if boundaries is not None:
                    forced = boundaries[t, :, l, None]
                    taken = straight(free, forced.nan_to_num()) if options.straight_through else forced
                    free = torch.where(forced.isnan(), free, taken)
                zb = z[l] = free
                gates[l] = free + (1 - free) * share[0] * gates[l]
                step += [p, free]
            below = h[l]
        found.append((*h, *step))
    whole = [torch.stack(parts) for parts in zip(*found)]
    said, decided = (torch.cat(whole[top + 1 + k :: 2], -1) for k in (0, 1))
    end = State(tuple(h), tuple(c), torch.cat(z, 1), None if state.pending is None else torch.cat(gates, 1))
    return Result(tuple(whole[: top + 1]), decided, said, end)


GRADIENTS = [
    {"sizes": (3, 4, 2), "T": 6, "B": 4, "detector": 0.7, "layer_norm": layer_norm, "on_copy": on_copy}
    | {"boundary": boundary, "forced": forced, "straight_through": straight_through}
    for layer_norm, on_copy, (boundary, forced, straight_through) in grid(
        (False, True),
        ("hold", "evaluate"),
        [
            ("step", "no", False), ("step", "some", False), ("step", "all", False), ("step", "all", True),
            ("sample", "no", False), ("soft", "no", False), ("soft", "some", False), ("gumbel", "no", False),
            ("gumbel", "all", True), ("reinforce", "no", False), ("reinforce", "some", False),
        ],
    )
]  # fmt: skip
GRADIENTS += [
    {"T": 3, "B": 3, **more, **cell}
    for cell in CELLS
    for more in (
        {"on_copy": "hold", "hidden": 5, "learn_slope": True, "detector": 0.3},
        {"layer_norm": True},
        {"on_copy": "hold", "boundary": "soft", "detector": 0.3},
    )
]


@pytest.mark.parametrize("options", GRADIENTS, ids=str)
def test_gradient_is_that_of_the_polynomial(options: dict[str, Any]) -> None:
    """Through every use of z: the choice, and the gates of what comes from above and below."""
    given = make(Case(**options), torch.float64)
    want = evaluate(polynomial, given, torch.float64)
    error, name = worst(expected(given), want)
    assert error < 1e-10, f"{name}: {error}"
    assert all(bool(a.any()) for name, a in want.items() if name.startswith(("gradient of U", "gradient of W")))


CHECKED: list[dict[str, Any]] = [{"top_down": name, "flush": False, "layer_norm": True} for name in TOP_DOWN]
CHECKED += [{"on_copy": "hold"}, {"top_down": "pending", "flush": False, "hidden": 3}]


@pytest.mark.parametrize("options", CHECKED, ids=str)
def test_soft_boundaries_pass_a_finite_difference_check(options: dict[str, Any]) -> None:
    case = Case((3, 2, 3), 3, 1, boundary="soft", detector=0.2, **options)
    given = make(case, torch.float64)
    leaves = [a.requires_grad_() for w in given.weights for a in w if a is not None] + [given.source.requires_grad_()]
    cell = Options(dataclasses.replace(case.variant, boundary="soft"), given.slope)

    def run(*_: Tensor) -> tuple[Tensor, ...]:
        result = reference.hmlstm(given.source, given.weights, given.state, cell)
        return (*result.hidden, result.boundaries)

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, leaves, atol=1e-5, fast_mode=True)
