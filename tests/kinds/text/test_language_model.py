"""LanguageModel: its logits, gradients everywhere, what it passes on and refuses."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from hmrnn import LanguageModel
from hmrnn.config import DetectorConfig, ModelConfig
from refusals import refused

SIZES, SYMBOLS, T, B = (6, 5, 4), 11, 12, 4
CONFIG = ModelConfig(embedding_size=7, hidden_size=SIZES, num_layers=3, output_size=8)


def test_logits_are_the_softmax_layer_over_the_output_module() -> None:
    model = LanguageModel(SYMBOLS, CONFIG).double()
    symbols = torch.randint(SYMBOLS, (T, B))
    (logits,), out, state = model(symbols)
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
    (logits,), _, _ = model(symbols)
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
    (whole,), out, _ = model(symbols, boundaries=forced)
    assert torch.equal(out.boundaries, forced)
    _, _, state = model(symbols[:5], boundaries=forced[:5])
    (rest,), _, _ = model(symbols[5:], state, boundaries=forced[5:])
    torch.testing.assert_close(rest, whole[5:], rtol=0, atol=1e-12)
    _, padded, _ = model(symbols, lengths=torch.tensor([3] * B))
    assert padded.hidden[0][3:].abs().max() == 0


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_what_a_model_cannot_read(dropped: float) -> None:
    model = LanguageModel(SYMBOLS, CONFIG)
    model.dropout_embedding = dropped
    symbols = torch.randint(SYMBOLS, (T, B))
    for given, lengths, name in (
        (symbols, [1] * (B + 1), "lengths"), (symbols, "ab", "lengths"), (symbols.double(), None, "x"),
        (symbols[:, 0], None, "x"), (symbols[:0], None, "x"),
    ):  # fmt: skip
        with refused(name):
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
        found.append(model(symbols, lengths=lengths)[0].logits)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    symbols[1, 0] = 2 * SYMBOLS
    with refused():
        model(symbols, lengths=lengths)
