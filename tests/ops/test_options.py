"""The options of the cell (flush, top_down, copy): the reference against independent writings, and who runs what."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import literal
from against_reference import Case, Inputs, evaluate, expected, make, worst
from hmrnn import HMLSTM, HMLSTMCell, InputError, State
from hmrnn.nn.output import Operation, operations
from hmrnn.ops import LayerWeights, Options, reference
from hmrnn.ops.interface import TOP_DOWN

CELLS = [
    {"flush": flush, "top_down": top_down, "copy": copy}
    for flush, top_down, copy in itertools.product((True, False), TOP_DOWN, (True, False))
]
cells = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell.values())))
MORE = [
    {"layer_norm": True, "on_copy": "hold", "forced": "some", "lengths": True, "straight_through": True},
    {"boundary": "sample", "layer_norm": True, "lengths": True, "forced": "some"},
    {"boundary": "soft", "layer_norm": True, "detector": 0.3},
]


@cells
@pytest.mark.parametrize("more", MORE, ids=str)
def test_the_reference_is_the_literal_writing(cell: dict[str, object], more: dict[str, object]) -> None:
    given = make(Case(T=9, B=4, **more, **cell), torch.float64)  # type: ignore[arg-type]
    case, x = given.case, given.source
    got = evaluate(reference.hmlstm, given, torch.float64, gradients=False)
    want = literal.run(
        x, given.weights, given.state, a=given.slope, boundary=case.boundary, on_copy=case.on_copy,
        lengths=given.lengths, forced=given.forced, noise=given.noise, **cell,
    )  # fmt: skip
    pairs = {f"hidden.{l}": a for l, a in enumerate(want.hidden)} | {f"state.h.{l}": a for l, a in enumerate(want.h)}
    pairs |= {f"state.c.{l}": a for l, a in enumerate(want.c)} | {"boundaries": want.boundaries, "state.z": want.z}
    pairs |= {"probabilities": want.probabilities}
    if "state.pending" in got:
        pairs["state.pending"] = want.pending
    assert got.keys() == pairs.keys()
    for name, a in pairs.items():
        torch.testing.assert_close(got[name], torch.from_numpy(a), rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n} {m}")
    active = None if given.lengths is None else torch.arange(case.T)[:, None] < given.lengths
    done = operations(got["boundaries"], given.state.z, active, flush=case.flush, copy=case.copy)
    assert done.tolist() == want.operations.tolist()
    met = {Operation.UPDATE, *([Operation.FLUSH] * case.flush), *([Operation.COPY] * case.copy)}
    inside = done if active is None else done[active]
    assert set(inside.flatten().tolist()) == met if case.boundary != "soft" else set(inside.flatten().tolist()) <= met


def one_sequence(given: Inputs, n: int, leaves: dict[str, Tensor]) -> Tensor:
    """Everything that a pass gives for sequence n, as one vector; every operation is weighed by how far it applies."""
    case, L = given.case, len(given.weights)
    W = [LayerWeights(*(leaves.get(f"{name}.{l}") for name in LayerWeights._fields)) for l in range(L)]
    h, c = ([leaves[f"{k} before.{l}"][n] for l in range(L)] for k in "hc")
    z = list(leaves["z before"][n])
    gates = list(leaves.get("pending before", leaves["z before"])[n])
    one, zero, out = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64), []

    def norm(v: Tensor, gain: Tensor | None, bias: Tensor | float = 0.0) -> Tensor:
        if gain is None:
            return v
        part = v[: len(gain)]
        part = (part - part.mean()) / (part.var(correction=0) + 1e-5).sqrt()
        return torch.cat([part * gain + bias, v[len(gain) :]])

    for t in range(case.T):
        last, below, zb = list(h), leaves["source"][t, n], one
        for l, w in enumerate(W):
            zp = z[l] if l < L - 1 else zero
            fed = zb if case.copy else one
            s = norm(w.U @ last[l], w.gain_U) + fed * norm(w.W @ below, w.gain_W) + w.b
            if w.V is not None:
                gate = {"boundary": zp, "always": one, "pending": gates[l] if not case.flush else zp}[case.top_down]
                s = s + gate * norm(w.V @ last[l + 1], w.gain_V)
            f, i, o, g = s[: 4 * len(h[l])].chunk(4)
            erased = zp if case.flush else zero
            copied, updated, flushed = (1 - erased) * (1 - fed), (1 - erased) * fed, erased
            new = i.sigmoid() * g.tanh()
            c[l] = copied * c[l] + updated * (f.sigmoid() * c[l] + new) + flushed * new
            squashed = o.sigmoid() * (c[l] if w.gain_c is None else norm(c[l], w.gain_c, w.bias_c)).tanh()
            h[l] = copied * h[l] + (1 - copied) * squashed
            out.append(h[l])
            if l < L - 1:
                p = ((given.slope * s[-1] + 1) / 2).clamp(0, 1)
                decided = p if case.boundary == "soft" else p + ((p > 0.5).double() - p).detach()
                z[l] = (1 - copied) * decided if case.on_copy == "hold" else decided
                gates[l] = z[l] + (1 - z[l]) * copied * gates[l]
                out += [p[None], z[l][None]]
                zb = z[l]
            below = h[l]
    return torch.cat(out)


@cells
@pytest.mark.parametrize(
    ("layer_norm", "on_copy", "boundary"),
    [(False, "hold", "step"), (True, "evaluate", "step"), (False, "hold", "soft")],
)
def test_the_gradient_goes_through_every_use_of_z(
    cell: dict[str, object], layer_norm: bool, on_copy: str, boundary: str
) -> None:
    detector = 0.3 if boundary == "soft" else 1.0
    case = Case(
        T=3, B=1, layer_norm=layer_norm, on_copy=on_copy, boundary=boundary, detector=detector, **cell
    )  # type: ignore[arg-type]  # fmt: skip
    given = make(case, torch.float64)
    leaves = {"source": given.source, "z before": given.state.z}
    leaves |= {} if given.state.pending is None else {"pending before": given.state.pending}
    leaves |= {f"{k} before.{l}": a for k, part in zip("hc", given.state) for l, a in enumerate(part)}
    leaves |= {f"{k}.{l}": a for l, w in enumerate(given.weights) for k, a in w._asdict().items() if a is not None}
    leaves = {name: a.clone().requires_grad_() for name, a in leaves.items()}
    wanted = [one_sequence(given, n, leaves) for n in range(case.B)]
    options = Options(given.slope, boundary, on_copy, **cell)  # type: ignore[arg-type]
    weights = [LayerWeights(*(leaves.get(f"{k}.{l}") for k in LayerWeights._fields)) for l in range(len(given.weights))]
    h, c = (tuple(leaves[f"{k} before.{l}"] for l in range(len(weights))) for k in "hc")
    state = State(h, c, leaves["z before"], leaves.get("pending before"))
    result = reference.hmlstm(leaves["source"], weights, state, options)
    for n, want in enumerate(wanted):
        parts = []
        for t in range(case.T):
            for l in range(len(weights)):
                parts.append(result.hidden[l][t, n])
                if l < len(weights) - 1:
                    parts += [result.probabilities[t, n, l, None], result.boundaries[t, n, l, None]]
        got = torch.cat(parts)
        weight = torch.randn(got.shape, dtype=torch.float64)
        pairs = [
            torch.autograd.grad((a * weight).sum(), leaves.values(), retain_graph=True, materialize_grads=True)
            for a in (got, want)
        ]
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        for name, a, b in zip(leaves, *pairs):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n} {m}")


@pytest.mark.parametrize("cell", [{"flush": False, "top_down": top_down} for top_down in TOP_DOWN], ids=str)
def test_gradcheck_of_soft_boundaries(cell: dict[str, object]) -> None:
    case = Case(sizes=(3, 2, 3), T=3, B=1, boundary="soft", detector=0.2, layer_norm=True, **cell)  # type: ignore[arg-type]
    given = make(case, torch.float64)
    leaves = [a.requires_grad_() for w in given.weights for a in w if a is not None] + [given.source.requires_grad_()]
    options = Options(given.slope, "soft", **cell)  # type: ignore[arg-type]

    def run(*_: Tensor) -> tuple[Tensor, ...]:
        result = reference.hmlstm(given.source, given.weights, given.state, options)
        return (*result.hidden, result.boundaries)

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@pytest.mark.parametrize("cell", [{"flush": True}, {"flush": False, "copy": False}], ids=str)
def test_pending_is_the_rule_of_the_paper_where_a_layer_moves_after_its_boundary(cell: dict[str, bool]) -> None:
    assert Options(top_down="pending", **cell).gate == "boundary"
    given = make(Case(T=9, **cell), torch.float64)
    assert worst(evaluate(reference.hmlstm, given, torch.float64), expected(given))[0] == 0
    rnn = HMLSTM(3, 4, 3, top_down="pending", **cell)
    assert rnn.initial_state(2).pending is None
    assert HMLSTM(3, 4, 3, top_down="pending", flush=False).initial_state(2).pending.tolist() == [[0, 0], [0, 0]]


def test_a_state_without_pending_gates_starts_from_z() -> None:
    given = make(Case(T=3, flush=False, top_down="pending"), torch.float64)
    start = given.state._replace(pending=None)
    options = Options(given.slope, flush=False, top_down="pending")
    a, b = (
        reference.hmlstm(given.source, given.weights, state, options).hidden[0]
        for state in (start, start._replace(pending=start.z))
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, reference.hmlstm(given.source, given.weights, given.state, options).hidden[0])


@cells
def test_a_cell_is_a_layer_of_a_network(cell: dict[str, object]) -> None:
    rnn = HMLSTM(3, (6, 5), 2, **cell).double()  # type: ignore[arg-type]
    lower = HMLSTMCell(3, 6, above_size=5, dtype=torch.float64, **cell)  # type: ignore[arg-type]
    upper = HMLSTMCell(6, 5, dtype=torch.float64, **cell)  # type: ignore[arg-type]
    for l, part in enumerate((lower, upper)):
        part.load_state_dict({name: a for name, a in rnn.layers()[l]._asdict().items() if a is not None} | {"a": rnn.a})
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    out, _ = rnn(x)
    below, above = lower.initial_state(2), upper.initial_state(2)
    for t in range(9):
        below = lower(x[t], below, above=None if cell["top_down"] == "none" else above[0])
        above = upper(below[0], above, z_below=below[2])
        torch.testing.assert_close(below[0], out.hidden[0][t])
        torch.testing.assert_close(above[1] * 0 + above[0], out.hidden[1][t])
    assert len(below) == (4 if Options(**cell).gate == "pending" else 3)  # type: ignore[arg-type]
    assert len(above) == 3


def test_without_top_down_input_there_is_no_V_but_a_detector() -> None:
    rnn = HMLSTM(3, (6, 5), 2, layer_norm=True, top_down="none")
    assert not [name for name, _ in rnn.named_parameters() if "V" in name]
    assert [w.has_detector for w in rnn.layers()] == [True, False]
    assert rnn.U[0].shape == (25, 6)


def test_how_they_are_given_and_shown() -> None:
    shown = repr(HMLSTM(3, 4, 2, flush=False, top_down="always", copy=False))
    assert "on_copy='evaluate', flush=False, top_down='always', copy=False, engine=" in shown
    assert "flush" not in repr(HMLSTM(3, 4, 2))
    assert repr(HMLSTMCell(3, 4, 2, flush=False)).endswith("on_copy='evaluate', flush=False)")
    for kind in (HMLSTM, HMLSTMCell):
        with pytest.raises(InputError, match=r"^flush must be True or False; got 'no'$"):
            kind(3, 4, 2, flush="no")
        with pytest.raises(InputError, match=r"^top_down must be one of boundary, pending, always, none; got True$"):
            kind(3, 4, 2, top_down=True)
    rnn = HMLSTM(3, 4, 3, flush=False, top_down="pending")
    state = rnn.initial_state(2)._replace(pending=torch.zeros(2, 1))
    with pytest.raises(InputError, match=r"^state.pending must have shape \(2, 2\); got \(2, 1\)$"):
        rnn(torch.zeros(1, 2, 3), state)
    rnn.check_values = True
    with pytest.raises(InputError, match=r"^state.pending must lie between 0 and 1; got 2 in sequence 0"):
        rnn(torch.zeros(1, 2, 3), state._replace(pending=torch.full((2, 2), 2.0)))
    with pytest.raises(InputError, match=r"^state must hold h, c and z; got 4 tensors$"):
        HMLSTMCell(3, 4)(torch.zeros(1, 3), (*[torch.zeros(1, 4)] * 2, *[torch.zeros(1, 1)] * 2))
