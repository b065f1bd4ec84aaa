"""The segmental head: sums over all segmentations against enumeration, scores against the decoder step by step."""

import gc
import itertools
import math
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from hmrnn.errors import InputError
from hmrnn.kinds.text.words.segmental import (
    BROKEN,
    NONE,
    SegmentalHead,
    best_segmentation,
    sum_segmentations,
    windows,
)
from hmrnn.ops.native import library
from hmrnn.ops.native import segmental as native
from hmrnn.ops.native.engine import freed_with

CASES = [(1, 1), (1, 3), (5, 3), (6, 2), (7, 9)]


def every(scores, b, first=0):
    """The log-weight and the ends of every segmentation of a sequence from ``first`` on."""
    T, K, _ = scores.shape
    for count in range(T - first):
        for cuts in itertools.combinations(range(first + 1, T), count):
            ends = [*cuts, T]
            spans = list(zip([first, *cuts], ends))
            if all(end - start <= K for start, end in spans):
                yield sum(scores[start, end - start - 1, b] for start, end in spans), ends


@pytest.mark.parametrize(("T", "K"), CASES)
def test_sum_gradient_and_posterior_are_those_of_the_enumeration(T, K):
    torch.manual_seed(T * K)
    scores = torch.randn(T, K, 2, dtype=torch.float64, requires_grad=True)
    total = torch.stack([torch.stack([w for w, _ in every(scores, b)]).logsumexp(0) for b in range(2)])
    weight = torch.tensor([1.0, -0.7], dtype=torch.float64)
    [gradient] = torch.autograd.grad((total * weight).sum(), scores)
    sums = sum_segmentations(scores)
    torch.testing.assert_close(sums.total, total, rtol=1e-12, atol=1e-12)
    [found] = torch.autograd.grad((sums.total * weight).sum(), scores)
    torch.testing.assert_close(found, gradient, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums.segments * weight, gradient, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums.boundaries()[0], torch.ones(2, dtype=torch.float64))


def test_segmentations_may_begin_later():
    torch.manual_seed(0)
    scores = torch.randn(5, 3, 2, dtype=torch.float64)
    first = torch.full((6, 2), -1e30, dtype=torch.float64)
    first[:3] = torch.randn(3, 2, dtype=torch.float64)
    for b in range(2):
        ways = [first[s, b] + w for s in range(3) for w, _ in every(scores, b, s)]
        torch.testing.assert_close(sum_segmentations(scores, first).total[b], torch.stack(ways).logsumexp(0))


@pytest.mark.parametrize(("T", "K"), CASES)
def test_viterbi_finds_the_best_of_the_enumeration(T, K):
    torch.manual_seed(T + K)
    scores = torch.randn(T, K, 3, dtype=torch.float64)
    best = [max(every(scores, b), key=lambda way: way[0])[1] for b in range(3)]
    assert best_segmentation(scores) == best


def test_segments_that_reach_beyond_the_end_are_not_counted_whatever_their_scores():
    torch.manual_seed(0)
    scores = torch.randn(5, 3, 2, dtype=torch.float64)
    total, best = sum_segmentations(scores).total, best_segmentation(scores)
    for value in (torch.nan, torch.inf):
        scores[4, 1:], scores[3, 2] = value, value
        sums = sum_segmentations(scores)
        torch.testing.assert_close(sums.total, total, rtol=0, atol=0)
        assert sums.segments[4, 1:].eq(0).all()
        assert best_segmentation(scores) == best


def tiny_head(**options):
    torch.manual_seed(3)
    return SegmentalHead(4, 5, longest=3, size=6, **options).double().eval()


def spelt(head, context, word):
    """The log-probability of a word and of its end, symbol by symbol."""
    h = torch.tanh(head.start(context))
    x = head.embedding.weight[-1]
    total = torch.zeros((), dtype=torch.float64)
    for k, symbol in enumerate(word):
        h = head.decoder(x[None, None], h[None, None])[1][0, 0]
        if k > 0:
            total = total + F.logsigmoid(-head.end(h))[0]
        total = total + head.spell(h).log_softmax(0)[symbol]
        x = head.embedding.weight[symbol]
    h = head.decoder(x[None, None], h[None, None])[1][0, 0]
    return total if len(word) == head.longest else total + F.logsigmoid(head.end(h))[0]


def test_scores_are_those_of_the_decoder_and_the_lexicon():
    head = tiny_head(lexicon=4)
    head.set_lexicon([(0, 1), (2,), (0, 1, 2)], np.array([0.5, 0.3, 0.2]))
    symbols, context = torch.tensor([[0], [1], [2], [3]]), torch.randn(4, 1, 5, dtype=torch.float64)
    scores = head(context, windows(symbols, 3)).closed
    shares = {(0, 1): 0.5, (2,): 0.3, (0, 1, 2): 0.2}
    for t, k in itertools.product(range(4), range(3)):
        word = tuple(symbols[t : t + k + 1, 0].tolist())
        if len(word) <= k:
            continue
        share = torch.sigmoid(head.gate(torch.tanh(head.start(context[t, 0]))))[0]
        expected = (1 - share) * spelt(head, context[t, 0], word).exp() + share * shares.get(word, 0.0)
        assert scores[t, k, 0].item() == pytest.approx(expected.log().item(), abs=1e-5)


def test_a_new_lexicon_replaces_the_old_one():
    head, twice = tiny_head(lexicon=3), tiny_head(lexicon=3)
    twice.set_lexicon([(0, 1, 2), (3,)], np.array([0.6, 0.4]))
    for each in (head, twice):
        each.set_lexicon([(1, 2)], np.array([1.0]))
    symbols, context = torch.tensor([[0], [1], [2], [3]]), torch.randn(4, 1, 5, dtype=torch.float64)
    given = context, windows(symbols, 3)
    torch.testing.assert_close(twice(*given).closed, head(*given).closed, rtol=0, atol=0)


def test_all_words_have_probability_one():
    head = tiny_head()
    context = torch.randn(1, 1, 5, dtype=torch.float64)
    words = [word for n in (1, 2, 3) for word in itertools.product(range(4), repeat=n)]
    total = 0.0
    for word in words:
        following = torch.tensor([*word, *[NONE] * (4 - len(word))])[None, :, None]
        total += head(context, following).closed[0, len(word) - 1, 0].exp().item()
    assert total == pytest.approx(1, abs=1e-6)


def test_a_score_depends_on_the_context_before_the_segment_and_its_own_symbols():
    head = tiny_head()
    symbols = torch.randint(4, (6, 1))
    context = torch.randn(6, 1, 5, dtype=torch.float64, requires_grad=True)
    score = head(context, windows(symbols, 3)).closed[2, 1, 0]
    [gradient] = torch.autograd.grad(score, context)
    assert torch.nonzero(gradient.abs().sum((1, 2))).flatten().tolist() == [2]
    others = symbols.clone()
    others[[0, 1, 4, 5]] = (others[[0, 1, 4, 5]] + 1) % 4
    assert head(context, windows(others, 3)).closed[2, 1, 0] == score


def test_rules_keep_symbols_together_and_apart():
    rules = np.zeros((4, 4), np.int8)
    rules[0, 1], rules[2, 3] = -1, 1
    plain, ruled = tiny_head(), tiny_head(rules=rules)
    symbols = torch.tensor([[0], [1], [2], [3]])
    context = torch.randn(4, 1, 5, dtype=torch.float64)
    lost = (plain(context, windows(symbols, 3)).closed - ruled(context, windows(symbols, 3)).closed)[..., 0] / BROKEN
    assert lost[0].round().tolist() == [1, 0, 0]  # 0 | 1
    assert lost[2, :2].round().tolist() == [0, 1]  # 2 3 in one segment
    ends = best_segmentation(ruled(context, windows(symbols, 3)).closed)[0]
    assert 1 not in ends
    assert 3 in ends


def test_a_long_run_that_must_not_be_cut_is_cut_nevertheless():
    head = tiny_head(rules=-np.ones((4, 4), np.int8))
    scores = head(torch.zeros(8, 1, 5, dtype=torch.float64), windows(torch.zeros(8, 1, dtype=torch.long), 3)).closed
    assert math.isfinite(sum_segmentations(scores).total.item())
    assert best_segmentation(scores)[0][-1] == 8


def learned(T, B, K, H, signs, dropout, seed):
    """Scores of a head, the sum over their segmentations, the gradients of all that it depends on, and the best one."""
    torch.manual_seed(seed)
    head = SegmentalHead(signs, 5, longest=K, size=H, dropout=dropout, lexicon=3).double()
    head.set_lexicon([(0,), (1,) * K], np.array([0.7, 0.3]))
    for p in head.parameters():
        p.data.normal_(0, 0.7)
    context = torch.randn(T, B, 5, dtype=torch.float64, requires_grad=True)
    symbols = torch.randint(signs, (T, B)).masked_fill(torch.rand(T, B) < 0.05, NONE)
    first = torch.randn(T + 1, B, dtype=torch.float64)
    scores = head(context, windows(symbols, K))
    sums = sum_segmentations(scores.closed, first)
    found = sums.total * torch.randn(B, dtype=torch.float64)
    found.sum().backward()
    gradients = [context.grad, *(p.grad for p in head.parameters())]
    return [scores.closed, scores.open, sums.total, sums.segments, *gradients], best_segmentation(scores.closed)


@pytest.mark.skipif(library.why_not() is not None, reason="needs the native library")
@given(
    T=st.integers(1, 40), B=st.integers(1, 30), K=st.integers(1, 12), H=st.integers(1, 40), signs=st.integers(2, 60),
    dropout=st.sampled_from([0.0, 0.4]), seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_library_computes_what_torch_does(T, B, K, H, signs, dropout, seed):
    got, best = learned(T, B, K, H, signs, dropout, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "takes", lambda a: False)
        expected, same = learned(T, B, K, H, signs, dropout, seed)
    assert best == same
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(library.why_not() is not None, reason="needs the native library")
@pytest.mark.parametrize("backward", [True, False])
def test_the_library_frees_what_it_spelt_by_the_backward_pass_or_without_one(backward, monkeypatch):
    alive = weakref.WeakSet()
    monkeypatch.setattr(native, "freed_with", lambda owner, made: alive.add(owner) or freed_with(owner, made))
    scores = tiny_head()(torch.zeros(3, 1, 5, dtype=torch.float64), windows(torch.tensor([[1], [0], [1]]), 3))
    assert len(alive) == 1
    if backward:
        scores.open.sum().backward()
        assert not alive
    gc.disable()  # nothing may depend on a search for garbage
    del scores
    gc.enable()
    assert not alive


@pytest.mark.skipif(library.why_not() is not None, reason="needs the native library")
def test_the_library_reads_no_symbol_that_it_does_not_have():
    with pytest.raises(InputError):
        tiny_head()(torch.zeros(2, 1, 5, dtype=torch.float64), windows(torch.tensor([[1], [4]]), 3))
