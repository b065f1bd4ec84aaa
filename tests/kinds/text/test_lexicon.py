"""A lexicon learned from a text without spaces."""

import functools

import numpy as np
import pytest
import torch

from hmrnn.kinds.text.words import lexicon
from hmrnn.kinds.text.words.lexicon import Knowledge, learn_lexicon
from refusals import refused

WORDS = ["the", "dog", "cat", "sees", "barn", "under", "green"]
LETTERS = sorted(set("".join(WORDS)) | {"\n"})


@functools.cache
def learnt():
    return learn()


def learn(count=1000, lines=True):
    drawn = np.random.default_rng(1).choice(WORDS, count)
    return lexicon_of("".join(word + "\n" * (lines and k % 9 == 8) for k, word in enumerate(drawn)))


def lexicon_of(text):
    symbols = np.array([LETTERS.index(c) for c in text])
    rules = np.zeros((len(LETTERS),) * 2, np.int8)
    rules[0], rules[:, 0] = 1, 1
    return learn_lexicon(symbols, rules, np.array([0]))


def spell(word):
    return "".join(LETTERS[k] for k in word)


def test_the_words_of_a_text_are_found():
    found = learnt()
    assert {spell(word) for word in found.words[: len(WORDS)]} == set(WORDS)
    assert found.counts[: len(WORDS)].sum() > 0.7 * found.total  # the others are pairs of them
    assert 5 <= found.longest <= 12
    assert np.mean([len(word) for word in WORDS]) < found.mean < 6


def test_a_word_costs_the_square_of_its_content(monkeypatch):
    monkeypatch.setattr(lexicon, "_CONTENT", 2.0)
    lattice = lexicon._Lattice(torch.tensor([[0], [1], [1], [0], [lexicon.NONE]]), np.zeros((3, 3), np.int8))
    torch.testing.assert_close(lattice.penalty, (lattice.lengths.double() * np.log(2) / 2.0) ** 2)


def test_a_text_without_line_ends_is_cut_into_pieces():
    assert {spell(word) for word in learn(lines=False).words[: len(WORDS)]} == set(WORDS)


def test_minima_of_the_transitional_probability_are_used_where_words_end_there(monkeypatch):
    starts = []

    def learned(lattice, end):
        starts.append(len(end.unique()))  # 1: the same everywhere
        return known(lattice, end)

    known = lexicon._learned
    monkeypatch.setattr(lexicon, "_learned", learned)
    learn()
    assert starts == [1, 2]
    starts.clear()
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice(LETTERS[1:], 8)) for _ in range(200)]
    text = "".join(word + "\n" * (k % 9 == 8) for k, word in enumerate(draw.choice(words, 1000)))
    found = {spell(word) for word in lexicon_of(text).words}
    assert starts == [1]  # the letters of these words tell nothing of each other
    assert len(found & set(words)) > 0.95 * len(set(words))


def test_minima_by_hand():
    lattice = lexicon._Lattice(torch.tensor([[0, 1, 2, 1, 1, 2]]).T, np.zeros((3, 3), np.int8))
    # after 0 the probability of what follows is 1, then 2/3, 1/2, 1/3, 2/3
    assert lattice.minima()[:, 0].tolist() == [False, False, False, True, False, False]


def test_no_word_is_cut_where_the_rules_forbid_it_or_joined_where_they_cut():
    drawn = np.random.default_rng(1).choice(WORDS, 400)
    text = "".join(word + "\n" * (k % 9 == 8) for k, word in enumerate(drawn))
    together, apart = ("d", "o"), ("e", "e")  # of "dog" and "sees"
    rules = np.zeros((len(LETTERS),) * 2, np.int8)
    rules[LETTERS.index("d"), LETTERS.index("o")], rules[LETTERS.index("e"), LETTERS.index("e")] = -1, 1
    found = learn_lexicon(np.array([LETTERS.index(c) for c in text]), rules, np.array([0]))
    words = {spell(word) for word in found.words}
    assert words
    assert not any("".join(apart) in word for word in words)
    assert not any(word.endswith(together[0]) and word + together[1] in text for word in words)


def test_shares_are_lowered_and_of_the_words_that_fit():
    counts = np.array([8.0, 4.0, 2.0, 1.0])
    few = lexicon.Lexicon([(0,), (1, 2, 3), (1, 2), (2,)], counts, 20.0, 4, 2.0, np.zeros(0))
    words, shares = few.shares(2, 2)
    lowered = counts[[0, 2]] - (1 - np.exp(-counts[[0, 2]]))
    assert words == [(0,), (1, 2)]
    assert shares == pytest.approx(lowered / lowered.sum())
    found = learnt()
    words, shares = found.shares(4, 4)
    assert len(words) == 4
    assert max(map(len, words)) <= 4
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares) <= 0).all()


def test_a_text_of_line_ends_alone_is_refused():
    with refused():
        learn_lexicon(np.zeros(5, np.int64), np.zeros((2, 2), np.int8), np.array([0]))


def test_new_words_are_spelt_by_the_pairs_of_other_new_words():
    """The sums over places against loops over segments."""
    draw = np.random.default_rng(5)
    text = torch.from_numpy(draw.integers(0, 3, (9, 2)))
    text[4, 1] = text[8, 0] = lexicon.NONE
    lattice = lexicon._Lattice(text, np.zeros((4, 4), np.int8))
    segments = [
        (t, k + 1, b) for t, k, b in lattice.present.nonzero().tolist()
    ]  # start, length, column: in the order of the present ones
    expected = draw.random(len(segments))
    frequency = [(text == c).sum().item() / (text >= 0).sum().item() for c in range(4)]
    smooth = lexicon._SPELLING * 4

    def inside(t, b):
        return sum(e for e, (s, k, column) in zip(expected, segments) if column == b and s <= t < s + k - 1)

    def begun(t, b):
        return sum(e for e, (s, _, column) in zip(expected, segments) if column == b and s == t)

    places = [(t, b) for t in range(9) for b in range(2) if text[t, b] >= 0]
    pairs = [(t, b) for t, b in places if t < 8 and text[t + 1, b] >= 0]
    found = lattice.spelt(torch.from_numpy(expected))
    for (start, length, b), value in zip(segments, found.tolist()):
        others = [p for p in places if p != (start, b)]
        same = sum(begun(*p) for p in others if text[p] == text[start, b])
        p = (same + smooth * frequency[text[start, b]]) / (sum(begun(*p) for p in others) + smooth)
        for t in range(start, start + length - 1):
            others = [p for p in pairs if p != (t, b) and text[p] == text[t, b]]
            same = sum(inside(*p) for p in others if text[p[0] + 1, p[1]] == text[t + 1, b])
            p *= (same + smooth * frequency[text[t + 1, b]]) / (sum(inside(*p) for p in others) + smooth)
        assert value == pytest.approx(np.log(p))


def test_ends_by_the_symbols_around_them():
    """The sums over contexts against loops over places; a place does not count for itself."""
    draw = np.random.default_rng(6)
    text = torch.from_numpy(draw.integers(0, 2, (12, 2)))
    text[5, 1] = text[11, 0] = lexicon.NONE
    lattice = lexicon._Lattice(text, np.zeros((3, 3), np.int8))
    sums = lattice.sums(torch.from_numpy(draw.normal(size=int(lattice.present.sum()))))
    ends = sums.boundaries()[1:]
    places = [(t, b) for t in range(11) for b in range(2) if text[t, b] >= 0 and text[t + 1, b] >= 0]

    def around(place, before, after):
        t, b = place
        return [int(text[k, b]) if 0 <= k < 12 else lexicon.NONE for k in range(t - before + 1, t + after + 1)]

    mean = sum(ends[place] for place in places) / len(places)
    expected = torch.ones(12, 2).double()
    for place in places:
        p = mean
        for context in lexicon._NEIGHBOURS:
            others = [ends[o] for o in places if o != place and around(o, *context) == around(place, *context)]
            p = (sum(others) + lexicon._BACK_OFF * p) / (len(others) + lexicon._BACK_OFF)
        expected[place] = p
    torch.testing.assert_close(lattice.neighbours(sums), expected.clamp(1e-4, 1 - 1e-4))


def test_symbols_that_end_words_teach_rare_words(monkeypatch):
    """All words end in a vowel that stands nowhere else, and most are rare; right: the share of true words."""
    draw = np.random.default_rng(7)
    words = ["".join(draw.choice(list("bdgnrst"), draw.integers(2, 6))) + draw.choice(["e", "u"]) for _ in range(400)]
    text = "".join(draw.choice(words, 1000, p=1 / np.arange(1, 401) / (1 / np.arange(1, 401)).sum()))

    def right():
        found = lexicon_of(text)
        return sum(count for word, count in zip(found.words, found.counts) if spell(word) in words) / found.total

    monkeypatch.setattr(lexicon, "why_not", lambda: "so that the first cut stays")
    with_evidence = right()
    monkeypatch.setattr(lexicon, "_TURNS", 0)
    assert with_evidence > right() + 0.1


def test_counts_of_compounds_are_given_to_their_parts():
    a, b, c = (1, 2), (3, 4), (5, 6)
    kept = {a: 50.0, b: 40.0, c: 30.0, (7,): 60.0}
    assert lexicon.without_compounds(kept | {a + b: 20.0, a + b + c: 5.0}, 1000) == {
        a: 75.0, b: 65.0, (7,): 60.0, c: 35.0,
    }  # fmt: skip
    rarer_part = kept | {a + c: 31.0}
    short_part = kept | {(7, *a): 20.0}
    by_accident = kept | {b + c: 20.0}
    for counts, total in ((rarer_part, 1000), (short_part, 1000), (by_accident, 24_001)):
        assert lexicon.without_compounds(counts, total) == counts
    assert b + c not in lexicon.without_compounds(by_accident, 23_999)


def test_what_is_known_beforehand_ends_words():
    """The second half of "seesbarn" follows the first always, so the text alone cannot tell them apart."""
    draw = np.random.default_rng(2)
    text = "".join("".join(draw.choice(["the", "dog", "seesbarn", "under", "green"], 8)) + "\n" for _ in range(60))
    symbols, rules = np.array([LETTERS.index(c) for c in text]), np.zeros((len(LETTERS),) * 2, np.int8)
    rules[0], rules[:, 0] = 1, 1
    words = [tuple(map(LETTERS.index, word)) for word in WORDS]
    lines = [[words[k] for k in draw.choice([0, 1, 3, 4, 5, 6], 4)] for _ in range(50)]
    found = {}
    for name, known in {"nothing": lexicon.NOTHING, "list": Knowledge(words), "lines": Knowledge(lines=lines)}.items():
        found[name] = {spell(word) for word in learn_lexicon(symbols, rules, np.array([0]), known).words}
    assert "seesbarn" in found["nothing"]
    assert "seesbarn" not in found["list"]
    assert not {"sees", "barn"} & found["nothing"]
    assert {"sees", "barn"} <= found["list"] & found["lines"]


def test_words_of_a_list_are_no_compounds():
    whole = (1, 2, 3, 4)
    counts = {(1, 2): 30.0, (3, 4): 25.0, whole: 20.0}
    assert whole not in lexicon.without_compounds(counts, 1000)
    assert lexicon.without_compounds(counts, 1000, {whole}) == counts


def test_the_first_cut_is_without_compounds(monkeypatch):
    text = np.array([0, 1, 2, 3, 9, 2, 3, 0, 1, 9, 0, 1, 9, 2, 3, 9] * 6)
    cuts = []
    monkeypatch.setattr(lexicon, "why_not", lambda: "so that the first cut stays")
    for kept in ({}, {(0, 1): 24.0, (2, 3): 24.0}):
        monkeypatch.setattr(lexicon, "without_compounds", lambda *_, kept=kept: kept)
        found = learn_lexicon(text, np.zeros((10, 10), np.int8), np.array([9]))
        assert np.isnan(found.ends[text == 9]).all()
        cuts.append(found.ends[:4].tolist())
    assert cuts == [[0, 0, 0, 1], [0, 1, 0, 1]]


def test_a_word_is_known_from_its_other_contexts_alone(monkeypatch):
    """(0, 1) is used in two contexts: each of them counts for the other, and never for itself."""
    given = []
    monkeypatch.setattr(lexicon, "discounted", lambda counts, most: given.append(counts) or counts)
    text = torch.tensor([[2, 2, 3], [0, 0, 0], [1, 1, 1], [4, 4, 5]])
    lattice = lexicon._Lattice(text, np.zeros((6, 6), np.int8))
    sums = lattice.sums(torch.zeros(int(lattice.present.sum()), dtype=torch.float64))
    posterior = sums.segments[lattice.present]
    lattice.update(sums, 0.5)
    starts = [tuple(place) for place in lattice.present.nonzero().tolist()]  # start, length - 1, column
    chances = dict(zip(starts, posterior.tolist()))
    found = {starts[place]: value for place, value in zip(lattice.again.tolist(), given[1].tolist())}
    pair = [(1, 1, b) for b in range(3)]
    assert {place for place in found if place[1] == 1} == set(pair)
    assert [found[place] for place in pair] == pytest.approx(
        [chances[pair[2]], chances[pair[2]], chances[pair[0]] + chances[pair[1]]]
    )
