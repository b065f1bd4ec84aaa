"""The reference engine: its values against the literal writing, its gradients against an independent polynomial."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import literal
from hmrnn import InputError, State
from hmrnn.nn.output import operations
from hmrnn.ops import ENGINES, LayerWeights, Options, Result, Symbols, choose_engine, hmlstm
from hmrnn.ops.estimators import DRAWN
from literal import random_state, random_weights
from pairs import grid

SIZES = [(5,), (5, 4), (4, 6, 3), (3, 5, 4, 2)]
T, B, INPUT, SLOPE = 9, 3, 4, 1.7


def assert_equal_to_literal(result: Result, expected: literal.Literal) -> None:
    for name, got, want in (
        *((f"hidden[{l}]", a, b) for l, (a, b) in enumerate(zip(result.hidden, expected.hidden))),
        ("boundaries", result.boundaries, expected.boundaries),
        ("probabilities", result.probabilities, expected.probabilities),
        *((f"state.h[{l}]", a, b) for l, (a, b) in enumerate(zip(result.state.h, expected.h))),
        *((f"state.c[{l}]", a, b) for l, (a, b) in enumerate(zip(result.state.c, expected.c))),
        ("state.z", result.state.z, expected.z),
    ):
        torch.testing.assert_close(got, torch.from_numpy(want), rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(
    ("sizes", "layer_norm", "on_copy", "boundary", "extras"),
    grid(
        SIZES,
        (False, True),
        ("hold", "evaluate"),
        ("step", "sample", "soft", "gumbel", "reinforce"),
        ("plain", "lengths", "forced"),
        strength=3,
    ),
)
def test_forward_is_the_literal_writing(
    sizes: tuple[int, ...], layer_norm: bool, on_copy: str, boundary: str, extras: str
) -> None:
    weights, state = random_weights(INPUT, sizes, layer_norm), random_state(sizes, B)
    x = torch.randn(T, B, INPUT, dtype=torch.float64)
    noise = torch.rand(T, B, len(sizes) - 1, dtype=torch.float64) if boundary in DRAWN else None
    lengths = torch.tensor([T, 1, 5]) if extras == "lengths" else None
    forced = None
    if extras == "forced":  # a third of them 0, a third 1 and a third left free
        forced = torch.tensor([0, 1, torch.nan], dtype=torch.float64)[torch.randint(3, (T, B, len(sizes) - 1))]

    options = Options(slope=SLOPE, boundary=boundary, on_copy=on_copy)
    result = hmlstm(x, weights, state, options, lengths=lengths, boundaries=forced, noise=noise, engine="reference")
    expected = literal.run(
        x, weights, state, a=SLOPE, boundary=boundary, on_copy=on_copy, lengths=lengths, forced=forced, noise=noise
    )

    assert_equal_to_literal(result, expected)
    active = None if lengths is None else torch.arange(T)[:, None] < lengths
    assert operations(result.boundaries, state.z, active).tolist() == expected.operations.tolist()
    if boundary != "soft" and len(sizes) > 1:  # the comparison met every operation
        assert {literal.UPDATE, literal.COPY, literal.FLUSH} == set(expected.operations.flatten().tolist())


def test_symbols_are_rows_of_the_embedding() -> None:
    sizes = (4, 3)
    weights, state = random_weights(INPUT, sizes, False), random_state(sizes, B)
    embedding, indices = torch.randn(7, INPUT, dtype=torch.float64), torch.randint(7, (T, B))
    result = hmlstm(Symbols(indices, embedding), weights, state, Options(slope=SLOPE))
    assert_equal_to_literal(result, literal.run(embedding[indices], weights, state, a=SLOPE))


def test_an_engine_is_named_or_refused() -> None:
    assert choose_engine("auto", torch.device("cpu"), Options()) in ENGINES
    assert choose_engine("reference", torch.device("cpu"), Options()) == "reference"
    with pytest.raises(InputError, match=r"^engine must be one of auto, reference.*; got 'fastest'$"):
        choose_engine("fastest", torch.device("cpu"), Options())


# The gradient. One sequence at a time, the three outcomes side by side, weighed by how far each condition holds.


def straight(p: Tensor, value: Tensor) -> Tensor:
    return p + (value - p).detach()


def normed(v: Tensor, gain: Tensor | None, bias: Tensor | float = 0.0) -> Tensor:
    if gain is None:
        return v
    gates, rest = v[: len(gain)], v[len(gain) :]
    spread = ((gates - gates.mean()) ** 2).mean().add(1e-5).sqrt()
    return torch.cat([gain * (gates - gates.mean()) / spread + bias, rest])


def polynomial(
    x: Tensor, weights: Sequence[LayerWeights], state: State, options: Options, forced: Tensor | None, noise: Tensor
) -> tuple[Tensor, ...]:
    """Everything a pass gives, flattened, as one vector per sequence."""
    L, results = len(weights), []
    for n in range(x.shape[1]):
        h, c, z = [a[n] for a in state.h], [a[n] for a in state.c], list(state.z[n])
        outputs: list[Tensor] = []
        for t in range(x.shape[0]):
            old_h, below, zb = list(h), x[t, n], x.new_ones(())
            for l, w in enumerate(weights):
                zp = z[l] if l < L - 1 else x.new_zeros(())
                s = normed(torch.mv(w.U, old_h[l]), w.gain_U) + zb * normed(torch.mv(w.W, below), w.gain_W) + w.b
                if w.V is not None:
                    s = s + zp * normed(torch.mv(w.V, old_h[l + 1]), w.gain_V)
                f, i, o, g = s[: 4 * len(h[l])].unflatten(0, (4, -1))
                proposal = i.sigmoid() * g.tanh()
                share = torch.stack([(1 - zp) * (1 - zb), (1 - zp) * zb, zp])  # COPY, UPDATE, FLUSH
                cells = torch.stack([c[l], f.sigmoid() * c[l] + proposal, proposal])
                c[l] = torch.einsum("k,kh->h", share, cells)
                squashed = o.sigmoid() * (normed(c[l], w.gain_c, w.bias_c) if w.gain_c is not None else c[l]).tanh()
                h[l] = torch.einsum("k,kh->h", share, torch.stack([h[l], squashed, squashed]))
                outputs.append(h[l])
                if l < L - 1:
                    p = ((options.slope * s[-1] + 1) / 2).clamp(0, 1)
                    threshold = noise[t, n, l] if options.boundary in DRAWN else torch.tensor(0.5)
                    free = p if options.boundary == "soft" else straight(p, (p > threshold).double())
                    if options.boundary == "gumbel" and 0.01 <= p <= 0.99:
                        u = noise[t, n, l]  # the odds of z̃ over those of the noise, to the power 1/temperature
                        odds = (p * (1 - u) / (u * (1 - p))) ** (1 / options.temperature)
                        free = straight(odds / (1 + odds), free)
                    elif options.boundary in ("gumbel", "reinforce"):
                        free = free.detach()
                    if options.on_copy == "hold":
                        free = (share[1] + share[2]) * free
                    if forced is not None and not forced[t, n, l].isnan():
                        free = straight(free, forced[t, n, l]) if options.straight_through else forced[t, n, l]
                    z[l], zb = free, free
                    outputs += [p[None], z[l][None]]
                below = h[l]
        results.append(torch.cat([*outputs, *h, *c, *(a[None] for a in z)]))
    return tuple(results)


def flattened(result: Result) -> tuple[Tensor, ...]:
    """A result in the order of :func:`polynomial`."""
    (steps, batch), L = result.hidden[0].shape[:2], len(result.hidden)
    rows = []
    for n in range(batch):
        outputs: list[Tensor] = []
        for t in range(steps):
            for l in range(L):
                outputs.append(result.hidden[l][t, n])
                if l < L - 1:
                    outputs += [result.probabilities[t, n, l : l + 1], result.boundaries[t, n, l : l + 1]]
        state = result.state
        rows.append(torch.cat([*outputs, *(a[n] for a in state.h), *(a[n] for a in state.c), state.z[n]]))
    return tuple(rows)


def leaves(x: Tensor, weights: Sequence[LayerWeights], state: State, forced: Tensor | None = None) -> dict[str, Tensor]:
    """Everything with a gradient, by name."""
    named = {f"{k}.{l}": v for l, w in enumerate(weights) for k, v in w._asdict().items() if v is not None}
    named |= {f"h.{l}": v for l, v in enumerate(state.h)} | {f"c.{l}": v for l, v in enumerate(state.c)}
    named |= {"z": state.z, "x": x} | ({} if forced is None else {"boundaries": forced})
    return {name: value.requires_grad_() for name, value in named.items()}


def gradients(outputs: tuple[Tensor, ...], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    torch.manual_seed(7)
    loss = sum((row * torch.randn_like(row)).sum() for row in outputs)
    got = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    return {k: torch.zeros_like(v) if g is None else g for (k, v), g in zip(inputs.items(), got)}


KINDS = [
    ("step", "free"), ("step", "some"), ("step", "all"), ("step", "straight-through"), ("sample", "free"),
    ("soft", "free"), ("soft", "some"), ("gumbel", "free"), ("gumbel", "straight-through"), ("reinforce", "free"),
    ("reinforce", "some"),
]  # fmt: skip


@pytest.mark.parametrize(("layer_norm", "on_copy", "kind"), grid((False, True), ("hold", "evaluate"), KINDS))
def test_gradient_is_that_of_the_polynomial(layer_norm: bool, on_copy: str, kind: tuple[str, str]) -> None:
    boundary, forcing = kind
    sizes, steps, batch = (3, 4, 2), 6, 4
    weights, state = random_weights(INPUT, sizes, layer_norm, detector=0.7), random_state(sizes, batch)
    x = torch.randn(steps, batch, INPUT, dtype=torch.float64)
    noise = torch.rand(steps, batch, 2, dtype=torch.float64)
    choices = [0, 1, torch.nan] if forcing == "some" else [0, 1]
    forced = None
    if forcing != "free":
        forced = torch.tensor(choices, dtype=torch.float64)[torch.randint(len(choices), (steps, batch, 2))]
    options = Options(SLOPE, boundary, on_copy, temperature=0.6, straight_through=forcing == "straight-through")
    inputs = leaves(x, weights, state, forced)

    result = flattened(hmlstm(x, weights, state, options, boundaries=forced, noise=noise))
    expected = polynomial(x, weights, state, options, forced, noise)
    for got, want in zip(result, expected):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    got_grads, want_grads = gradients(result, inputs), gradients(expected, inputs)
    for name, want_grad in want_grads.items():
        torch.testing.assert_close(
            got_grads[name], want_grad, rtol=1e-10, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
        )
        if name != "boundaries" or forcing != "straight-through":
            assert want_grad.abs().max() > 1e-4, f"{name} has no gradient to compare"


@pytest.mark.parametrize(("layer_norm", "on_copy", "slope"), [(False, "evaluate", 1.0), (True, "hold", 2.5)])
def test_soft_boundaries_pass_a_finite_difference_check(layer_norm: bool, on_copy: str, slope: float) -> None:
    sizes, steps, batch = (2, 3, 2), 2, 1
    weights = random_weights(1, sizes, layer_norm, detector=0.15)
    state = random_state(sizes, batch)._replace(z=torch.rand(batch, 2, dtype=torch.float64))
    x = torch.randn(steps, batch, 1, dtype=torch.float64)
    options = Options(slope, "soft", on_copy)
    inputs = leaves(x, weights, state)
    shapes = [a.shape for a in inputs.values()]
    at = torch.cat([a.detach().flatten() for a in inputs.values()]).requires_grad_()  # one check of all of them
    fields = [[k for k, v in w._asdict().items() if v is not None] for w in weights]

    def outputs(values: Tensor) -> Tensor:
        given = (a.view(shape) for a, shape in zip(values.split([shape.numel() for shape in shapes]), shapes))
        layers = [LayerWeights(**{k: next(given) for k in names}) for names in fields]
        h, c = (tuple(next(given) for _ in sizes) for _ in range(2))
        z, steps_in = next(given), next(given)
        (everything,) = flattened(hmlstm(steps_in, layers, State(h, c, z), options))
        return everything @ directions

    result = hmlstm(x, weights, state, options)
    directions = torch.randn(len(flattened(result)[0]), 2, dtype=torch.float64)
    assert (result.probabilities - 0.5).abs().max() < 0.48  # away from the kinks of the hard sigmoid
    assert torch.autograd.gradcheck(outputs, at, eps=1e-6, atol=1e-6, rtol=1e-5, fast_mode=True)
    assert torch.autograd.gradgradcheck(outputs, at, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize(("layer_norm", "on_copy"), [(False, "evaluate"), (True, "hold")])
@pytest.mark.parametrize(
    ("boundary", "forcing"), [("step", "free"), ("step", "all"), ("step", "straight-through"), ("soft", "free")]
)
def test_second_derivative_is_that_of_the_polynomial(
    layer_norm: bool, on_copy: str, boundary: str, forcing: str
) -> None:
    sizes, steps, batch = (3, 4, 2), 5, 2
    weights, state = random_weights(INPUT, sizes, layer_norm, detector=0.7), random_state(sizes, batch)
    x = torch.randn(steps, batch, INPUT, dtype=torch.float64)
    noise = torch.rand(steps, batch, 2, dtype=torch.float64)
    forced = None if forcing == "free" else torch.randint(2, (steps, batch, 2)).double()
    options = Options(SLOPE, boundary, on_copy, temperature=0.6, straight_through=forcing == "straight-through")
    inputs = leaves(x, weights, state, forced)

    found = []
    result = flattened(hmlstm(x, weights, state, options, boundaries=forced, noise=noise, engine="reference"))
    for outputs in (result, polynomial(x, weights, state, options, forced, noise)):
        loss = sum(row.sum() for row in outputs)
        first = torch.autograd.grad(loss, list(inputs.values()), create_graph=True, allow_unused=True)
        found.append(gradients(tuple(g for g in first if g is not None and g.requires_grad), inputs))
    for name, want in found[1].items():
        torch.testing.assert_close(found[0][name], want, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        if name != "boundaries" or forcing != "straight-through":
            assert want.abs().max() > 1e-4, f"{name} has no second derivative to compare"


@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
def test_forced_boundaries_with_straight_through_train_the_detector_as_if_it_had_chosen(on_copy: str) -> None:
    sizes = (3, 4, 2)
    weights, state = random_weights(INPUT, sizes, True), random_state(sizes, B)
    x = torch.randn(T, B, INPUT, dtype=torch.float64)
    inputs = leaves(x, weights, state)
    options = Options(SLOPE, "step", on_copy)
    free = hmlstm(x, weights, state, options)
    want = gradients(flattened(free), inputs)
    chosen = free.boundaries.detach()
    for straight_through in (True, False):
        given = dataclasses.replace(options, straight_through=straight_through)
        got = gradients(flattened(hmlstm(x, weights, state, given, boundaries=chosen)), inputs)
        differs = {name for name in inputs if not torch.allclose(got[name], want[name], rtol=1e-12, atol=1e-12)}
        assert not differs if straight_through else differs >= {"U.0", "W.0", "b.0", "U.1", "W.1", "b.1"}


def test_given_boundaries_leave_the_detectors_without_a_gradient() -> None:
    sizes = (3, 4, 2)
    weights, state = random_weights(INPUT, sizes, False), random_state(sizes, B)
    x = torch.randn(T, B, INPUT, dtype=torch.float64)
    inputs = leaves(x, weights, state, torch.randint(2, (T, B, 2)).double())
    result = hmlstm(x, weights, state, Options(SLOPE), boundaries=inputs["boundaries"])
    got = gradients((*result.hidden, *result.state.h, *result.state.c), inputs)
    for name in ("U.0", "V.0", "W.0", "b.0", "U.1", "V.1", "W.1", "b.1"):
        assert got[name][-1].abs().max() == 0
        assert got[name][:-1].abs().max() > 0
    assert (got["boundaries"] != 0).all()
