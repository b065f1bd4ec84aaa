"""Models: equations 11 and 12 against NumPy, gradients everywhere, and the likelihood of strokes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.errors import InputError
from hmrnn.nn.distributions import StrokeMixture
from hmrnn.nn.models import GatedOutput, HandwritingModel, LanguageModel
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
    config = dataclasses.replace(CONFIG, output_layers="first", mixtures=2)
    config.check()
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


def test_logits_are_the_softmax_layer_over_the_output_module() -> None:
    model = LanguageModel(SYMBOLS, CONFIG).double()
    symbols = torch.randint(SYMBOLS, (T, B))
    logits, out, state = model(symbols)
    expected, same = model.rnn(model.embedding.weight[symbols])
    for got, want in ((out.hidden[2], expected.hidden[2]), (state.c[0], same.c[0])):  # looked up or multiplied
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    by_hand = model.output(expected.hidden) @ model.softmax.weight.T + model.softmax.bias
    torch.testing.assert_close(logits, by_hand, rtol=0, atol=1e-12)
    assert logits.shape == (T, B, SYMBOLS)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
def test_gradient_reaches_every_parameter(layer_norm: bool, on_copy: str) -> None:
    """But V's forget rows have none while z is binary: on FLUSH V is read and f is not, on UPDATE f is and V is not.

    Under layer norm V's rows share their mean and spread, and what is left without a gradient is those rows' gains.
    """
    dead = "gain_V" if layer_norm else "V"
    model = LanguageModel(
        SYMBOLS, dataclasses.replace(CONFIG, layer_norm=layer_norm), detectors=DetectorConfig(on_copy=on_copy)
    )
    symbols = torch.cat([torch.arange(SYMBOLS)[:, None].expand(-1, B), torch.randint(SYMBOLS, (T, B))])
    logits, _, _ = model(symbols)
    F.cross_entropy(logits[:-1].flatten(0, 1), symbols[1:].flatten()).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        rows = p.grad.reshape(len(p), -1).abs().sum(dim=1) > 0
        forget = SIZES[int(name[-1])] if f".{dead}." in name else 0
        assert rows[forget:].all(), f"{name}: rows without a gradient"
        assert not rows[:forget].any()


def test_state_lengths_and_boundaries_are_passed_on() -> None:
    model = LanguageModel(SYMBOLS, CONFIG).double()
    symbols = torch.randint(SYMBOLS, (T, B))
    forced = torch.randint(2, (T, B, 2)).double()
    whole, out, _ = model(symbols, boundaries=forced)
    assert torch.equal(out.boundaries, forced)
    _, _, state = model(symbols[:5], boundaries=forced[:5])
    rest, _, _ = model(symbols[5:], state, boundaries=forced[5:])
    torch.testing.assert_close(rest, whole[5:], rtol=0, atol=1e-12)
    _, padded, _ = model(symbols, lengths=torch.tensor([3] * B))
    assert padded.hidden[0][3:].abs().max() == 0
    with pytest.raises(InputError, match=r"^x must hold symbol indices"):
        model(symbols.double())


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_what_a_model_cannot_read(dropped: float) -> None:
    model = LanguageModel(SYMBOLS, CONFIG)
    model.dropout_embedding = dropped
    symbols = torch.randint(SYMBOLS, (T, B))
    for given, lengths, says in (
        (symbols, [1] * (B + 1), f"^lengths must be {B} whole numbers"),
        (symbols, "ab", f"^lengths must be {B} whole numbers"),
        (symbols.double(), None, "^x must hold symbol indices"),
        (symbols[:, 0], None, r"^x must have shape \(T, B\)"),
        (symbols[:0], None, "^x must hold at least one step"),
    ):
        with pytest.raises(InputError, match=says):
            model(given, lengths=lengths)


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_padding_of_text_may_hold_anything(dropped: float) -> None:
    model = LanguageModel(SYMBOLS, CONFIG)
    model.dropout_embedding = dropped
    symbols, lengths = torch.randint(SYMBOLS, (T, B)), torch.tensor([3] * B)
    found = []
    for padding in (0, -1, 2 * SYMBOLS):
        symbols[3:] = padding
        torch.manual_seed(5)
        found.append(model(symbols, lengths=lengths)[0])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    symbols[1, 0] = 2 * SYMBOLS
    with pytest.raises(InputError, match=r"^x must hold symbol indices"):
        model(symbols, lengths=lengths)


def test_handwriting_log_likelihood_is_that_of_its_mixture() -> None:
    model = HandwritingModel(dataclasses.replace(CONFIG, mixtures=3)).double()
    points = torch.randn(T, B, 3, dtype=torch.float64)
    points[..., 2] = (points[..., 2] > 0).double()
    lengths = torch.tensor([T, 5, 2, 9])
    mixture, out, _ = model(points)
    got, same = model.log_likelihood(points, lengths)
    with pytest.raises(InputError, match="lengths must lie between 1 and T"):
        model.log_likelihood(points, lengths + 1)
    assert got.shape == (T - 1, B)
    assert mixture.means.shape == (T, B, 3, 2)
    torch.testing.assert_close(same.hidden[2], out.hidden[2][:-1], rtol=0, atol=1e-12)
    expected, _ = model.rnn(points)
    vector = model.output(expected.hidden) @ model.density.weight.T + model.density.bias
    by_hand = StrokeMixture.from_vector(vector[:-1]).log_prob(points[1:])
    for n, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(got[: length - 1, n], by_hand[: length - 1, n], rtol=0, atol=1e-12)
        assert (got[length - 1 :, n] == 0).all()
    torch.testing.assert_close(model.log_likelihood(points)[0], by_hand, rtol=0, atol=1e-12)


def test_padding_of_strokes_is_never_seen() -> None:
    """Neither the likelihood nor a gradient depends on what stands behind the end of a line."""
    model = HandwritingModel(dataclasses.replace(CONFIG, mixtures=2)).double()
    points = torch.randn(T, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([T, 4])
    results = []
    for fill in (0.0, 100.0):
        model.zero_grad()
        padded = points.clone()
        padded[4:, 1] = fill
        total = model.log_likelihood(padded, lengths)[0].sum()
        total.backward()
        results.append([total.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    alone = model.log_likelihood(points[:4, 1:])[0].sum() + model.log_likelihood(points[:, :1])[0].sum()
    torch.testing.assert_close(results[0][0], alone.detach(), rtol=1e-12, atol=0)


def test_mixture_is_computed_in_float32_under_autocast() -> None:
    model = HandwritingModel(dataclasses.replace(CONFIG, mixtures=2))
    points = torch.randn(T, B, 3)
    with torch.autocast("cpu", torch.bfloat16):
        mixture, _, _ = model(points)
        result, _ = model.log_likelihood(points)
    assert mixture.means.dtype == result.dtype == torch.float32
    plain, _ = model.log_likelihood(points)
    assert (result - plain).abs().mean() < 0.05
