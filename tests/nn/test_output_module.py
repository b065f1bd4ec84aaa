"""The output module: equations 11 and 12 against NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from hmrnn import HandwritingModel, LanguageModel
from hmrnn.config import ModelConfig
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.text.settings import TextModelConfig
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
    for t in range(T):
        for n in range(B):
            h = [a[t, n].numpy() for a in hidden]
            together = np.concatenate(h)
            total = np.zeros(8)
            for l in range(3):
                gate = sigm(w[l] @ together)  # (11)
                total = total + gate * (W[l] @ h[l])
            np.testing.assert_allclose(got[t, n], np.maximum(0, total), rtol=0, atol=1e-14)  # (12)
    assert (got == 0).any()
    assert (got > 0).any()


@pytest.mark.parametrize("kind", ["text", "strokes"])
def test_the_output_module_may_read_the_first_layer_alone(kind: str) -> None:
    sizes = dataclasses.asdict(CONFIG) | {"output_layers": "first"}
    config = TextModelConfig(**sizes) if kind == "text" else StrokeModelConfig(**sizes, mixtures=2)
    model = (LanguageModel(SYMBOLS, config) if kind == "text" else HandwritingModel(config)).double()
    output = model.output
    assert [tuple(p.shape) for p in output.parameters()] == [(1, SIZES[0]), (8, SIZES[0])]
    hidden = [torch.randn(T, B, size, dtype=torch.float64) for size in SIZES]
    gate = torch.sigmoid(hidden[0] @ output.gates.weight.T)
    by_hand = torch.relu(gate * (hidden[0] @ output.embeddings[0].weight.T))
    torch.testing.assert_close(output(hidden), by_hand, rtol=0, atol=1e-14)

    x = torch.randint(SYMBOLS, (T, B)) if kind == "text" else torch.randn(T, B, 3, dtype=torch.float64)
    following = x.roll(-1, dims=0) if kind == "text" else x.roll(-1, dims=0).round().clamp(0, 1)
    prediction, _, _ = model.predict(x)
    prediction.log_prob(following).sum().backward()
    for l in range(3):  # the layers above act on the first through V
        assert model.rnn.U[l].grad.abs().sum() > 0
