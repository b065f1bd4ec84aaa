"""The output module: equations 11 and 12 against NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from hmrnn import LanguageModel
from hmrnn.config import ModelConfig
from hmrnn.nn.predictor import GatedOutput
from literal import sigm

SIZES, SYMBOLS, T, B = (6, 5, 4), 11, 12, 4
CONFIG = ModelConfig(embedding_size=7, hidden_size=SIZES, num_layers=3, output_size=8)


def test_gated_output_is_equations_11_and_12() -> None:
    output = GatedOutput(SIZES, 8).double()
    hidden = [torch.randn(T, B, size, dtype=torch.float64) for size in SIZES]
    got = output(hidden).detach().numpy()
    w = output.gates.weight.detach().numpy()
    W = [e.weight.detach().numpy() for e in output.embeddings]
    for t, n in np.ndindex(T, B):
        h = [a[t, n].numpy() for a in hidden]
        gates = sigm(w @ np.concatenate(h))  # (11)
        total = sum(gate * (matrix @ one) for gate, matrix, one in zip(gates, W, h))
        np.testing.assert_allclose(got[t, n], np.maximum(0, total), rtol=0, atol=1e-14)  # (12)
    assert (got == 0).any()
    assert (got > 0).any()


def test_the_output_module_may_read_the_first_layer_alone() -> None:
    model = LanguageModel(SYMBOLS, dataclasses.replace(CONFIG, output_layers="first")).double()
    output = model.output
    assert [tuple(p.shape) for p in output.parameters()] == [(1, SIZES[0]), (8, SIZES[0])]
    hidden = [torch.randn(T, B, size, dtype=torch.float64) for size in SIZES]
    gate = torch.sigmoid(hidden[0] @ output.gates.weight.T)
    by_hand = torch.relu(gate * (hidden[0] @ output.embeddings[0].weight.T))
    torch.testing.assert_close(output(hidden), by_hand, rtol=0, atol=1e-14)

    prediction, _, _ = model.predict(torch.randint(SYMBOLS, (T, B)))
    prediction.log_prob(torch.randint(SYMBOLS, (T, B))).sum().backward()
    for l in range(3):  # the layers above act on the first through V
        assert model.rnn.U[l].grad.abs().sum() > 0
