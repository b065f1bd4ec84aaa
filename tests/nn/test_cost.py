"""Multiply-adds per step, against a count by hand."""

from __future__ import annotations

import pytest
import torch

from hmrnn.config import ModelConfig
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.models import HandwritingModel, LanguageModel
from hmrnn.nn.output import Operation


def test_a_count_by_hand() -> None:
    model = LanguageModel(7, ModelConfig(embedding_size=3, hidden_size=(4, 5, 6), output_size=8)).eval()
    boundaries = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])[:, None]  # (T, 1, 2)
    _, out, _ = model(torch.randint(7, (5, 1)), boundaries=boundaries)
    U, V, W = (17 * 4, 21 * 5, 24 * 6), (17 * 5, 21 * 6), (0, 21 * 4, 24 * 5)
    output = [8 * size + 3 * size for size in (4, 5, 6)]
    moves = [[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]]  # the last: layer 2 flushes
    flushes = [[0, 0], [0, 0], [1, 0], [0, 0], [1, 1]]
    reads = [[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 0, 0]]
    assert ((out.operations[:, 0] != Operation.COPY).int()).tolist() == moves
    for t, found in enumerate(multiply_adds(model, out)[:, 0].tolist()):
        expected = 7 * 8 + sum(n * (u + o) for n, u, o in zip(moves[t], U, output))
        expected += sum(n * v for n, v in zip(flushes[t], V)) + sum(n * w for n, w in zip(reads[t], W))
        assert found == expected, t


def test_the_state_before_a_chunk_opens_the_gate() -> None:
    model = LanguageModel(7, ModelConfig(embedding_size=3, hidden_size=(4,), num_layers=2, output_size=8)).eval()
    symbols = torch.randint(7, (6, 2))
    given = (torch.rand(6, 2, 1) > 0.5).float()
    given[2] = 1
    _, whole, _ = model(symbols, boundaries=given)
    _, first, state = model(symbols[:3], boundaries=given[:3])
    _, second, _ = model(symbols[3:], state, boundaries=given[3:])
    parts = torch.cat([multiply_adds(model, first), multiply_adds(model, second, state)])
    assert torch.equal(parts, multiply_adds(model, whole))
    assert not torch.equal(multiply_adds(model, second), multiply_adds(model, second, state))


@pytest.mark.parametrize("rnn", ["lstm", "ln-lstm"])
def test_an_lstm_multiplies_everything_at_every_step(rnn: str) -> None:
    model = LanguageModel(7, ModelConfig(rnn=rnn, embedding_size=3, hidden_size=(4,), num_layers=2, output_size=8))  # type: ignore[arg-type]
    _, out, _ = model(torch.randint(7, (5, 2)))
    expected = 16 * 4 + 2 * 16 * 4 + 2 * (8 * 4 + 2 * 4) + 7 * 8
    assert multiply_adds(model, out).unique().tolist() == [expected]


def test_strokes_are_multiplied_and_not_looked_up() -> None:
    config = ModelConfig(rnn="lstm", hidden_size=(4,), num_layers=1, output_size=8, mixtures=2)
    model = HandwritingModel(config)
    _, out, _ = model(torch.randn(5, 2, 3))
    expected = 16 * (4 + 3) + (8 * 4 + 4) + model.density.weight.numel()
    assert multiply_adds(model, out).unique().tolist() == [expected]
