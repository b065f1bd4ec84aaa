"""Detectors with a hidden layer: their parameters, and what it is used with; test_reference.py has their values."""

from __future__ import annotations

import pytest
import torch

from hmrnn import HMLSTM, HMLSTMCell
from hmrnn.ops import Options, Variant, choose_engine
from hmrnn.ops.cuda import engine as cuda
from hmrnn.training.terms.steering import bound_feedback
from hmrnn.training.terms.weights import decay
from refusals import refused


def network(**more: object) -> HMLSTM:
    rnn = HMLSTM(3, (5, 4, 6), 3, detector_hidden=7, **more).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return rnn


def test_every_engine_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_not", lambda device, dtype: None if device.type == "cuda" else "it is a CPU")
    options = Options(Variant(detector_hidden=7))
    assert choose_engine("auto", torch.device("cpu"), options) == "native"
    assert choose_engine("auto", torch.device("cuda"), options) == "cuda"


def test_its_parameters() -> None:
    rnn = HMLSTM(3, (5, 4, 6), 3, detector_hidden=7)
    shapes = {name: tuple(p.shape) for name, p in rnn.named_parameters() if name[0] in "UDd"}
    assert shapes == {
        "U.0": (20, 5), "U.1": (16, 4), "U.2": (24, 6), "D1.0": (7, 12), "D1.1": (7, 15), "d1.0": (7,), "d1.1": (7,),
        "D2.0": (1, 7), "D2.1": (1, 7), "d2.0": (1,), "d2.1": (1,),
    }  # fmt: skip
    assert [w.has_detector for w in rnn.layers()] == [True, True, False]
    assert "detector_hidden=7" in repr(rnn)
    rnn.set_detector_bias([-1.0, 2.0])
    assert [p.item() for p in rnn.d2] == [-1.0, 2.0]
    assert not rnn.b[0].any()
    with refused("detector_hidden"):
        HMLSTM(3, 4, 2, detector_hidden=-1)


def test_a_cell_is_a_layer_of_a_network() -> None:
    rnn = network()
    cell = HMLSTMCell(3, 5, above_size=4, detector_hidden=7, dtype=torch.float64)
    cell.load_state_dict({name: a for name, a in rnn.layers()[0]._asdict().items() if a is not None} | {"a": rnn.a})
    x = torch.randn(1, 2, 3, dtype=torch.float64)
    out, _ = rnn(x)
    h, _, z = cell(x[0], above=torch.zeros(2, 4, dtype=torch.float64))
    torch.testing.assert_close(h, out.hidden[0][0])
    torch.testing.assert_close(z[:, 0], out.boundaries[0, :, 0])


def test_training_spares_and_bounds_it() -> None:
    rnn = network()
    before = {name: p.detach().clone() for name, p in rnn.named_parameters()}
    decay(rnn, 0.5)
    for name, p in rnn.named_parameters():
        torch.testing.assert_close(p.detach(), before[name] * (0.5 if name[0] in "UVW" else 1.0))
    bound_feedback(rnn, 0.1, 0.0)
    for w in rnn.layers()[:-1]:
        H, above = w.hidden_size, w.V.shape[1]
        assert 0.5 * 1.13 * (w.D2.abs() @ w.D1[:, H : H + above].abs()).sum() <= 0.1 + 1e-12
    for l in range(2):
        torch.testing.assert_close(rnn.D1[l].detach()[:, : (5, 4)[l]], before[f"D1.{l}"][:, : (5, 4)[l]])
