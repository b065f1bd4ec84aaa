"""Dropout between layers: units that the gates of the layer above do not see."""

from __future__ import annotations

import pytest
import torch

from hmrnn import HMLSTM, ops
from hmrnn.ops import reference
from refusals import refused


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_the_module_draws_while_training(engine: str) -> None:
    rnn = HMLSTM(4, (20, 15, 10), dropout=0.4, layer_norm=True, engine=engine).double()
    for B in (3, 1):
        x = torch.randn(6, B, 4).double()
        torch.manual_seed(5)
        with torch.no_grad():
            trained, _ = rnn.train()(x)
        torch.manual_seed(5)
        seen = [torch.ones(B, size).double().bernoulli_(0.6) / 0.6 for size in (20, 15)]
        by_hand = reference.hmlstm(x, rnn.layers(), rnn.initial_state(B), rnn.options(), seen=seen)
        plain = reference.hmlstm(x, rnn.layers(), rnn.initial_state(B), rnn.options())
        for got, want in zip(trained.hidden, by_hand.hidden):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        assert not torch.allclose(trained.hidden[1], plain.hidden[1])
        with torch.no_grad():
            whole, _ = rnn.eval()(x)
        for got, want in zip(whole.hidden, plain.hidden):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_masks_have_no_gradient() -> None:
    rnn, ones = HMLSTM(3, 4, 2), [torch.ones(2, 4, requires_grad=True)]
    with refused():
        ops.hmlstm(torch.randn(5, 2, 3), rnn.layers(), rnn.initial_state(2), rnn.options(), seen=ones)
