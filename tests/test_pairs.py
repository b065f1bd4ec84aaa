"""The covers that the tests of engines use."""

import itertools

import pytest

from pairs import grid

OPTIONS = ("ab", (False, True), (1, 2, 3), "xy", (0, 7))


@pytest.mark.parametrize("strength", [2, 3])
def test_a_cover_holds_every_group_of_values_and_is_small(strength: int) -> None:
    cover = grid(*OPTIONS, strength=strength, full=False)
    for some in itertools.combinations(range(len(OPTIONS)), strength):
        wanted = set(itertools.product(*(OPTIONS[k] for k in some)))
        assert {tuple(row[k] for k in some) for row in cover} == wanted
    assert len(cover) <= {2: 8, 3: 18}[strength]
    assert len(cover) == len(set(cover))
    assert cover == grid(*OPTIONS, strength=strength, full=False)
