"""Scores of all segments of a text by a segmental head, which reads it in blocks."""

import numpy as np
import pytest
import torch

from hmrnn.config import ModelConfig, SegmentConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.words import ends as words
from hmrnn.kinds.text.words.ends import HeadScores
from hmrnn.kinds.text.words.segmental import windows

K, SYMBOLS = 3, 7


def made() -> LanguageModel:
    torch.manual_seed(2)
    config = ModelConfig(embedding_size=3, hidden_size=(6,), num_layers=2, output_size=5)
    segments = SegmentConfig(size=8, longest=K, reader=5, dropout=0.5)
    return LanguageModel(SYMBOLS, config, segments=segments)


def text(length: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, SYMBOLS, length)


def test_a_text_is_scored_from_what_was_read_before_each_segment() -> None:
    model, symbols = made(), text(30)  # in training mode: nothing may be dropped all the same
    found = HeadScores(model, [symbols])
    model.eval()
    x = torch.from_numpy(symbols)[:, None]
    with torch.no_grad():
        expected = model.segments.score(x[:-1], windows(x[1:], K)).closed[..., 0]
    inside = 30 - K - 1  # segments that end before the text does
    np.testing.assert_allclose(found.scores[1 : 1 + inside], expected[:inside], rtol=1e-4, atol=1e-5)


def test_blocks_begin_after_the_block_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model, symbols = made().eval(), text(12)
    whole = HeadScores(model, [symbols]).scores
    monkeypatch.setattr(words, "_BLOCK", 4)
    blocks = HeadScores(model, [symbols]).scores
    np.testing.assert_allclose(blocks[:9], whole[:9], rtol=1e-5)  # read from the start
    last = HeadScores(model, [symbols[4:]]).scores  # what the third block has read
    np.testing.assert_allclose(blocks[9:], last[5:], rtol=1e-5)
    assert np.abs(blocks[9:] - whole[9:]).max() > 1e-4


def test_texts_are_read_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = made().eval(), [text(length)[::-1] for length in (2, 30, 7, 11)]
    model.segments.rules[3, 2] = 1  # some cuts must be
    monkeypatch.setattr(words, "_BLOCK", 8)
    monkeypatch.setattr(words, "_SYMBOLS", 20)
    for read, threshold in ((0, None), (1, None), (1, 0.4)):
        together = HeadScores(model, texts, read, threshold)
        alone = [HeadScores(model, [each], read, threshold) for each in texts]
        for found, [expected] in zip(together.words(), (each.words() for each in alone)):
            np.testing.assert_array_equal(found, expected)
        for found, [expected] in zip(together.chances(), (each.chances() for each in alone)):
            np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [len(found) for found in together.words()] == [1, 29, 6, 10]
    every = HeadScores(model, texts).counts()
    weights = (len(word) * count for word, count in every.items())
    assert sum(weights) == pytest.approx(50, rel=0.05)  # rare ones are left out


def test_words_are_spelt_as_often_as_the_head_expects() -> None:
    """Segments of one symbol or two, and their probabilities after a context."""
    model = made().eval()
    head, context = model.segments, torch.randn(1, 5)
    head.longest = 2
    following = torch.tensor([[a, b, 0] for a in range(SYMBOLS) for b in range(SYMBOLS)]).T[None]  # (1, K + 1, B)
    with torch.no_grad():
        scores = head(context.expand(1, SYMBOLS**2, 5), following).closed[0].exp()
        drawn, spelt = head.draw(context.expand(20_000, 5), torch.Generator().manual_seed(1))
    assert (spelt == 1).all()  # there is no lexicon
    for a in range(SYMBOLS):
        alone = (drawn == torch.tensor([a, -1])).all(1).double().mean()
        assert abs(alone - scores[0, a * SYMBOLS]) < 0.02
        pair = (drawn == torch.tensor([a, 3])).all(1).double().mean()
        assert abs(pair - scores[1, a * SYMBOLS + 3]) < 0.02
    found = words.draw_words(model, text(40), 1000)
    assert found == words.draw_words(model, text(40), 1000)
    assert sum(found.values()) == pytest.approx(1)


def test_the_loss_of_a_head_does_not_train_the_network() -> None:
    model, x = made(), torch.from_numpy(text(12))[:, None]
    model(x)
    model.segments.score(x, windows(x, K)).closed.sum().backward()
    assert all(p.grad is None for p in [model.rnn.layers()[0].U, model.embedding.weight])
