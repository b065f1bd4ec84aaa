"""Dropout between layers and zoneout: drawn by the module while it trains, and how a trained model is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import hmrnn
import tiny
from hmrnn import HMLSTM, checkpoint, ops
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.ops import Options, reference
from refusals import refused

SIZES = (20, 15, 10)


def drawn(option: str, B: int) -> dict[str, Any]:
    """The masks that a module draws first after a seed."""
    torch.manual_seed(5)
    if option == "zoneout":
        return {"kept": [torch.rand(6, B, size) < 0.3 for size in SIZES]}
    return {"seen": [torch.ones(B, size).double().bernoulli_(0.7) / 0.7 for size in SIZES[:-1]]}


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("option", ["zoneout", "dropout"])
def test_the_module_draws_while_training_alone(option: str, engine: str) -> None:
    """In eval() zoneout keeps its share of c, and so does every step."""
    rnn = HMLSTM(4, SIZES, **{option: 0.3}, layer_norm=True, engine=engine).double()  # type: ignore[arg-type]
    assert f"{option}=0.3" in repr(rnn)
    for B in (3, 1):
        x, state = torch.randn(6, B, 4).double(), rnn.initial_state(B)
        torch.manual_seed(5)
        trained = rnn.train()(x)[0].hidden
        masked = reference.hmlstm(x, rnn.layers(), state, rnn.options(), **drawn(option, B)).hidden
        plain = reference.hmlstm(x, rnn.layers(), state, rnn.options()).hidden
        assert not torch.allclose(masked[1], plain[1])
        torch.testing.assert_close(trained, masked, rtol=0, atol=1e-12)
        torch.testing.assert_close(rnn.eval()(x)[0].hidden, plain, rtol=0, atol=1e-12)
        for t in range(6):
            state = rnn.step(x[t], state).state
            torch.testing.assert_close(state.h, tuple(h[t] for h in plain), rtol=0, atol=1e-12)
    with refused(option):
        HMLSTM(4, 5, **{option: 1.0})  # type: ignore[arg-type]


def test_what_no_engine_differentiates_is_refused() -> None:
    rnn, ones = HMLSTM(3, 4, 2), torch.ones(2, 4, requires_grad=True)
    for options, seen in ((rnn.options(), [ones]), (Options(temperature=ones[0, 0]), None)):
        with refused():
            ops.hmlstm(torch.randn(5, 2, 3), rnn.layers(), rnn.initial_state(2), options, seen=seen)


def test_a_trained_model_keeps_its_share_of_zoneout(tmp_path: Path) -> None:
    """That of eval(), also in a copy."""
    settings = tiny.config(zoneout=0.25)
    weights = LanguageModel(len(tiny.VOCABULARY), settings.model).state_dict()
    checkpoint.write(tmp_path, checkpoint.Checkpoint(settings, tiny.VOCABULARY, weights))
    copy = hmrnn.load(tmp_path).save(tmp_path / "copy")
    assert [hmrnn.load(place).network.rnn.zoneout for place in (tmp_path, copy)] == [0.25, 0.25]
