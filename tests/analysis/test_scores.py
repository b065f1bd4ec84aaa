"""Boundary scores: counts worked out by hand, one-to-one matching against brute force, and baselines."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmrnn.analysis import scores
from refusals import refused

ENDS = st.lists(st.integers(1, 12), max_size=6, unique=True)


def test_scores_by_hand() -> None:
    by_hand = scores.score([2, 4, 5, 9], [2, 5, 7], 10)
    assert (by_hand.found, by_hand.gold, by_hand.hits) == (4, 3, 2)
    assert by_hand.precision == 1 / 2
    assert by_hand.recall == 2 / 3
    assert by_hand.f1 == pytest.approx(4 / 7)
    assert by_hand.over_segmentation == pytest.approx(1 / 3)
    r1, r2 = math.hypot(1 / 3, 1 / 3), abs(-1 / 3 + 2 / 3 - 1) / math.sqrt(2)
    assert by_hand.r_value == pytest.approx(1 - (r1 + r2) / 2)


def test_all_right_and_all_wrong() -> None:
    right = scores.score([3, 6], [3, 6], 9)
    assert (right.precision, right.recall, right.f1, right.r_value, right.over_segmentation) == (1, 1, 1, 1, 0)
    wrong = scores.score([1, 2], [3, 6], 9)
    assert (wrong.precision, wrong.recall, wrong.f1) == (0, 0, 0)


def test_r_value_punishes_recall_bought_by_too_many_ends() -> None:
    every = scores.score(np.arange(1, 101), np.arange(5, 100, 5), 101)
    assert every.recall == 1
    assert every.r_value < 0 < every.f1


def test_the_last_position_never_counts() -> None:
    assert scores.score([4, 9], [4], 9) == scores.BoundaryScores(1, 1, 1)
    assert scores.score([8], [9], 9, tolerance=1) == scores.BoundaryScores(1, 0, 0)
    assert scores.score([1], [1], 1) == scores.BoundaryScores()


def test_shares_of_nothing_are_nan() -> None:
    none = scores.score([], [], 5)
    for name in ("precision", "recall", "f1", "r_value", "over_segmentation"):
        assert math.isnan(getattr(none, name)), name
        assert none.to_dict()[name] is None
    silent = scores.score([], [2], 5)
    assert math.isnan(silent.precision)
    assert (silent.recall, silent.f1, silent.over_segmentation) == (0, 0, -1)


def test_tolerance_matches_one_to_one() -> None:
    assert scores.score([4, 5, 6], [5], 10, tolerance=1).hits == 1
    assert scores.score([5], [4, 6], 10, tolerance=1).hits == 1
    assert scores.score([2, 3], [1, 2], 10, tolerance=np.int64(1)).hits == 2  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(ENDS, ENDS, st.integers(0, 3))
def test_matching_is_the_best_there_is(found: list[int], gold: list[int], tolerance: int) -> None:
    fewer, more = sorted((sorted(found), sorted(gold)), key=len)
    best = max(
        sum(abs(x - y) <= tolerance for x, y in zip(fewer, order)) for order in itertools.permutations(more, len(fewer))
    )
    assert scores.score(found, gold, 13, tolerance=tolerance).hits == best


def test_counts_of_sequences_are_pooled() -> None:
    one, two = scores.score([1], [1], 5), scores.score([1, 2, 3], [4], 5)
    assert scores.pooled([one, two]) == scores.BoundaryScores(4, 2, 1)
    assert scores.pooled([one, two]).precision == 1 / 4  # not the mean of 1 and 0


def test_words_need_both_ends() -> None:
    # the|cat|sat found as the|ca|tsat: one word of three
    assert scores.score_words([3, 5], [3, 6], 9) == scores.BoundaryScores(3, 3, 1)
    assert scores.score_words([3, 6], [3, 6], 9).f1 == 1
    assert scores.score_words([4], [], 9) == scores.BoundaryScores(2, 1, 0)
    assert scores.score_words([], [], 9) == scores.BoundaryScores(1, 1, 1)
    assert scores.score_words([3, 5, 6], [3, 6], 9).hits == 2  # a cut inside makes a word wrong


def test_ends_of_flags() -> None:
    assert scores.ends_of([0, 1, 0, 1]).tolist() == [2, 4]


def test_random_ends_have_the_rate_and_the_seed() -> None:
    gold = [np.arange(4, 40, 4), [], np.arange(4, 40, 4)]

    def random(seed: int) -> scores.Row:
        return next(row for row in scores.compare([], {"": gold}, [40, 1, 40], seed=seed) if row.name == "random")

    assert random(7).scores[0].found == 18
    assert random(7) == random(7)
    assert random(7) != random(8)


def test_sequences_are_scored_apart() -> None:
    found, gold, lengths = [[4], [1], [2, 3]], [[4], [], [1, 3]], [5, 3, 4]
    row = scores.compare([found], {"": gold}, lengths, symbols=[np.arange(length) for length in lengths])[0]
    for tolerance in scores.TOLERANCES:
        each = [scores.score(*sequence, tolerance=tolerance) for sequence in zip(found, gold, lengths)]
        assert row.scores[tolerance] == scores.pooled(each)
    assert row.words == scores.pooled(scores.score_words(*sequence) for sequence in zip(found, gold, lengths))


def test_compare_gives_levels_and_baselines() -> None:
    gold = np.arange(5, 1000, 5)
    surprise = np.where(np.arange(1000) % 5 == 0, 3.0, 1.0)
    rows = {row.name: row for row in scores.compare([[gold], [gold[::2] + 1]], {"here": [gold]}, [1000], [surprise])}
    assert list(rows) == ["level 1", "level 2", "every position", "fixed length", "random", "surprise rises",
                          "surprise rises most"]  # fmt: skip
    *same, last = scores.compare([[gold], [gold[::2] + 1]], {"here": [gold]}, [1000], [surprise], [surprise])
    assert [row.name for row in same] == list(rows)
    assert (last.name, last.scores[0].f1) == ("most uncertain", 1)
    assert rows["level 1"].scores[0].f1 == 1
    assert rows["level 2"].scores[0].f1 == 0
    assert rows["level 2"].scores[1].f1 == pytest.approx(2 * 100 / 299)
    assert rows["every position"].scores[0].precision == pytest.approx(199 / 999)
    assert rows["fixed length"].scores[0].found == 199
    assert rows["random"].scores[0].f1 == pytest.approx(0.2, abs=0.05)
    assert rows["level 1"].chance[0] == pytest.approx(0.2, abs=0.05)
    assert rows["level 1"].chance[1] > 0.4
    assert rows["surprise rises"].scores[0].f1 == rows["surprise rises most"].scores[0].f1 == 1
    assert rows["level 1"].length == 5
    json.dumps([row.to_dict() for row in rows.values()], allow_nan=False)


def test_fixed_length_has_the_rate_on_short_lines_too() -> None:
    lengths = [4] * 30  # three positions each, one gold end in every second line: less than one end per line
    gold = [[2] if k % 2 else [] for k in range(30)]
    row = next(row for row in scores.compare([], {"": gold}, lengths) if row.name == "fixed length")
    assert row.scores[0].found == row.scores[0].gold == 15


def test_compare_takes_the_convention_that_suits() -> None:
    gold = {"with the last letter": [[3, 7]], "after the space": [[4, 8]]}
    first, second = scores.compare([[[3, 7]], [[4, 8]]], gold, [12])[:2]
    assert (first.convention, second.convention) == ("with the last letter", "after the space")
    assert first.scores[0].f1 == second.scores[0].f1 == 1


@pytest.mark.parametrize("call", [
    lambda: scores.score([0], [1], 5),
    lambda: scores.score([1], [6], 5),
    lambda: scores.score([1.5], [1], 5),
    lambda: scores.score([1], [1], 5, tolerance=-1),
    lambda: scores.compare([[[1]]], {}, [5]),
    lambda: scores.compare([[[1], [2]]], {"": [[1]]}, [5]),
])  # fmt: skip
def test_what_cannot_be_is_said(call: object) -> None:
    with refused():
        call()  # type: ignore[operator]
