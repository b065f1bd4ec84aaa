"""Segmentation: what it says of boundaries it is given, its JSON, and how it is shown as text and HTML."""

import io
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import hmrnn
from hmrnn import Operation
from hmrnn.analysis.render import visible
from hmrnn.analysis.segmentation import Segmentation, Updates
from refusals import refused

U, C, F_ = Operation.UPDATE, Operation.COPY, Operation.FLUSH
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def made(text: str, *levels: str) -> Segmentation:
    """``text`` with a boundary of each level where its string has a ``^``."""
    T, L = len(text), len(levels) + 1
    z = np.zeros((T, L - 1), np.uint8)
    for l, marks in enumerate(levels):
        z[[t for t, mark in enumerate(marks) if mark == "^"], l] = 1
    rng = np.random.default_rng(0)
    bits = np.concatenate([[np.nan], rng.exponential(2, T - 1)])
    operations = rng.integers(0, 3, (T, L))
    products = rng.integers(0, 2**40, T)
    return Segmentation(tuple(text), z, rng.random((T, L - 1)), operations, rng.random((T, L)) * 9, bits, products)


@pytest.fixture
def cat() -> Segmentation:
    return made(
        "the cat sat|here\nnow",
        "   ^   ^  ^    ^    ",
        "       ^        ^   ",
    )  # fmt: skip


def test_ends_and_segments(cat: Segmentation) -> None:
    assert len(cat) == 20
    assert cat.text == "the cat sat|here\nnow"
    assert cat.levels == 2
    assert cat.ends(1) == [4, 8, 11, 16, 20]
    assert cat.ends(2) == [8, 17, 20]
    assert cat.segments(1) == ["the ", "cat ", "sat", "|here", "\nnow"]
    assert cat.segments(2) == ["the cat ", "sat|here\n", "now"]


def test_a_boundary_on_the_last_symbol_adds_no_empty_segment() -> None:
    assert made("ab", " ^").ends(1) == made("ab", "  ").ends(1) == [2]


@pytest.mark.parametrize("level", [0, 3, -1, "1", 1.0, None])
def test_levels_that_do_not_exist(cat: Segmentation, level: Any) -> None:
    with refused():
        cat.ends(level)


@given(st.data(), st.integers(1, 30), st.integers(0, 3))
def test_any_boundaries_cut_the_text_and_lose_nothing(data: st.DataObject, T: int, levels: int) -> None:
    text = "".join(data.draw(st.lists(st.characters(), min_size=T, max_size=T)))
    marks = [data.draw(st.lists(st.sampled_from("^ "), min_size=T, max_size=T)) for _ in range(levels)]
    result = made(text, *map("".join, marks))
    for level in range(1, levels + 1):
        ends = result.ends(level)
        assert ends == sorted(set(ends))
        assert ends[-1] == T
        assert "".join(result.segments(level)) == text
        assert set(ends[:-1]) == {t + 1 for t, mark in enumerate(marks[level - 1][:-1]) if mark == "^"}
    assert result.nested == all(set(result.ends(level + 1)) <= set(result.ends(level)) for level in range(1, levels))
    if result.nested and levels:
        assert flat(result.tree()) == result.segments(1)


def flat(tree: list) -> list[str]:
    return [leaf for node in tree for leaf in (flat(node) if isinstance(node, list) else [node])]


def test_tree() -> None:
    nested = made("the cat sat on", "   ^   ^   ^  ", "       ^      ")
    assert nested.nested
    assert nested.tree() == [["the ", "cat "], ["sat ", "on"]]
    three = made("abcdef", "^ ^^^ ", "  ^^  ", "   ^  ")
    assert three.tree() == [[["a", "bc"], ["d"]], [["e", "f"]]]
    assert made("ab", "^ ").tree() == ["a", "b"]


def test_no_tree_without_nesting_or_levels(cat: Segmentation) -> None:
    assert not cat.nested
    with refused():
        cat.tree()
    with refused():
        made("abc").tree()


def test_a_tree_of_what_does_not_nest_is_cut(cat: Segmentation) -> None:
    assert cat.tree(cut=True) == [["the ", "cat "], ["sat", "|here", "\n"], ["now"]]
    nested = made("the cat sat on", "   ^   ^   ^  ", "       ^      ")
    assert nested.tree(cut=True) == nested.tree()
    three = made("abcdef", "   ^  ", " ^    ", "    ^ ")
    assert three.tree(cut=True) == [[["ab"], ["cd", "e"]], [["f"]]]


@pytest.mark.parametrize(("done", "missing"), [((U, C), "FLUSH"), ((U, F_), "COPY"), ((F_, F_), "UPDATE")])
def test_table_names_only_operations_that_occur(done: tuple[Operation, Operation], missing: str) -> None:
    operations = np.array([done, done[::-1]])
    zeros = np.zeros((2, 1))
    table = Segmentation(tuple("ab"), zeros, zeros, operations, np.zeros((2, 2)), None, [1000, 2001]).table()
    names = {operation.name for operation in done}
    assert set(table.splitlines()[0].split()) == {"layer", "changed", *names}
    assert missing not in table
    assert table.splitlines()[-1] == "1,500 multiply-adds per symbol"


def test_multiply_adds_are_a_mean_over_the_symbols(cat: Segmentation) -> None:
    assert cat.products is not None
    assert cat.multiply_adds() == pytest.approx(cat.products.sum() / 20)
    assert cat[3:5].multiply_adds() == pytest.approx((cat.products[3] + cat.products[4]) / 2)
    cat.products = None
    assert cat.multiply_adds() is None
    assert cat[3:5].products is None


def test_updates_as_the_paper_counts_them() -> None:
    operations = np.full((270, 3), C)
    operations[:, 0] = U
    operations[5:61, 1] = F_
    operations[::30, 2] = U
    result = Segmentation(tuple("x" * 270), np.zeros((270, 2)), np.zeros((270, 2)), operations, np.ones((270, 3)))
    updates = result.updates()
    assert updates == Updates((270, 56, 9), 270)
    assert (updates.total, updates.dense) == (335, 810)
    assert updates.saved == pytest.approx(1 - 335 / 810)
    assert str(updates) == "335 layer updates instead of 810 (270 + 56 + 9): 59% saved"


def test_json_round_trip(cat: Segmentation) -> None:
    data = json.loads(cat.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data == cat.to_dict()
    assert data["levels"][1]["ends"] == [8, 17, 20]
    assert data["levels"][0]["segments"] == cat.segments(1)
    assert data["bits"][0] is None
    assert data["layers"][2]["operations"] == "".join(Operation(k).name[0] for k in cat.operations[:, 2])
    assert data["layers"][2]["updates"] == cat.updates().per_layer[2]
    again = Segmentation.from_dict(data)
    assert again.to_dict() == data
    assert again.symbols == cat.symbols
    assert again.bits is not None
    assert cat.bits is not None
    for name in ("boundaries", "operations", "products"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cat, name))
    for name in ("probabilities", "norms", "bits"):
        np.testing.assert_allclose(getattr(again, name), getattr(cat, name), atol=6e-5)
        assert getattr(again, name).dtype == np.float32


def test_from_json(cat: Segmentation) -> None:
    assert Segmentation.from_json(cat.to_json()).to_dict() == cat.to_dict()
    for wrong in ("", "{", "[1]", '{"symbols": ["a"]}', "null", "[" * 100_000, b"\xff", "\ud800"):
        with refused():
            Segmentation.from_json(wrong)


def test_json_of_one_layer_without_bits_and_products() -> None:
    one = made("abc")
    one.bits = one.products = None
    data = one.to_dict()
    del data["multiply_adds"]
    again = Segmentation.from_dict(data)
    assert again.to_dict() == one.to_dict()
    assert again.boundaries.shape == (3, 0)
    assert again.bits is again.multiply_adds() is None


def test_rich_shows_it_in_colour(cat: Segmentation) -> None:
    console = Console(force_terminal=True, width=80, color_system="256", file=io.StringIO(), legacy_windows=False)
    console.print(cat)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[" in shown
    assert ANSI.sub("", shown).splitlines()[0].rstrip() == cat.render().splitlines()[0]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("symbols", None),
        ("symbols", []),
        ("symbols 3", 5),
        ("layers 0 operations", "?" * 20),
        ("layers 0 operations", "U" * 21),
        ("layers 0 norms", [1.0]),
        ("layers 0 norms 3", 10**400),
        ("levels 0 ends", None),
        ("levels 0 boundaries", [1]),
        ("levels", 3),
        ("bits", "none"),
        ("multiply_adds", [1]),
        *(("levels 0 boundaries 3", value) for value in (256, 7, "1", None, 10**400)),
        *(("multiply_adds 3", value) for value in (-1, 0.5, 2**63)),
    ],
)
def test_data_that_is_no_segmentation(cat: Segmentation, place: str, value: Any) -> None:
    data = part = cat.to_dict()
    *path, last = (int(name) if name.isdigit() else name for name in place.split())
    for name in path:
        part = part[name]
    part[last] = value
    with refused():
        Segmentation.from_dict(data)


@pytest.mark.parametrize("shapes", [((2, 2), (2, 2), (2, 2), (2, 3)), ((2, 1), (2, 1), (1, 2), (2, 2))])
def test_arrays_must_fit(shapes: tuple[tuple[int, int], ...]) -> None:
    with refused():
        Segmentation(("a", "b"), *map(np.zeros, shapes))


def test_slice(cat: Segmentation) -> None:
    part = cat[4:12]
    assert part.text == "cat sat|"
    assert part.ends(1) == [4, 7, 8]
    np.testing.assert_array_equal(part.norms, cat.norms[4:12])
    np.testing.assert_array_equal(part.bits, cat.bits[4:12])  # type: ignore[arg-type, index]
    assert cat[4:12:1].text == part.text
    for step in (2, -1):
        with refused():
            cat[::step]
    with refused():
        cat[3]  # type: ignore[index]


def test_parts_are_joined(cat: Segmentation) -> None:
    assert Segmentation.join([cat[:4], cat[4:5], cat[5:]]).to_dict() == cat.to_dict()
    without = made("ab", "^ ")
    without.bits = None
    assert Segmentation.join([without, without]).bits is None
    uncounted = cat[:]
    uncounted.products = None
    for parts in ([], [cat, without], [cat, uncounted], [cat, made("ab", "^ ")]):
        with refused():
            Segmentation.join(parts)


def test_spans_and_lengths(cat: Segmentation) -> None:
    assert cat.spans(2) == [(0, 8), (8, 17), (17, 20)]
    assert cat.lengths(2).tolist() == [8, 9, 3]
    assert (cat.levels, cat.layers) == (2, 3)


def test_plain_text(cat: Segmentation) -> None:
    assert str(cat) == cat.render() == "\n".join([
        "level 1: 5 segments, 4.0 symbols on average",
        "the·|cat·|sat|¦here|⏎",
        "now",
        "",
        "level 2: 3 segments, 6.7 symbols on average",
        "the cat·|sat¦here⏎|",
        "now",
    ])  # fmt: skip
    assert repr(cat) == "Segmentation(20 symbols, 5 segments at level 1, 3 segments at level 2)"


def test_coloured_text_alternates_and_keeps_every_symbol(cat: Segmentation) -> None:
    parts = cat.render(width=10, colour=True).split("\n\n")
    for level, part in enumerate(parts, start=1):
        _, *lines = part.split("\n")
        assert all(line.startswith("\x1b[") and line.endswith("\x1b[0m") for line in lines)
        runs = [run for line in lines for run in re.findall(r"(\x1b\[38[0-9;]*m)([^\x1b]*)", line)]
        joined: list[list[str]] = []  # runs of one background, also across lines
        for colour, text in runs:
            if joined and joined[-1][0] == colour:
                joined[-1][1] += text
            else:
                joined.append([colour, text])
        assert [text for _, text in joined] == [s.replace("\n", "⏎") for s in cat.segments(level)]
        assert len({colour for colour, _ in joined}) == 2


def test_render_without_levels() -> None:
    assert made("ab\nc|d").render() == made("ab\nc|d").render(colour=True) == "ab⏎\nc|d"
    with refused():
        made("ab").render(width=0)


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [("a", "a"), (" ", " "), ("\n", "⏎"), ("\t", "⇥"), ("\r", "␍"), ("\0", "␀"), ("\x7f", "␡"), ("\x85", "�"),
     ("\u200b", "�"), ("\u00a0", "␣"), ("語", "語"), ("\\xe2", "\\xe2"), ("\ud800", "�")],
)  # fmt: skip
def test_visible(symbol: str, shown: str) -> None:
    assert visible(symbol) == shown
    assert visible(symbol).isprintable()


def test_joiners_stay_within_words_and_emoji() -> None:
    for text in ("\u0645\u06cc\u200c\u062e", "\U0001f469\u200d\U0001f467"):
        assert visible(text) == text


def test_html_is_escaped() -> None:
    html = made('<b>&"\n', " ^   ^")._repr_html_()
    assert "<b>" not in html
    assert "&lt;b</span>" in html
    assert "&gt;&amp;&quot;⏎\n</span>" in html
    assert html.count("<span") == html.count("</span>") == 2
    assert "a⏎\nb</div>" in made("a\nb")._repr_html_()


def test_regroup_gives_the_result_for_other_symbols() -> None:
    """One symbol read as three, one as none, one as one."""
    T = 4
    found = Segmentation(
        tuple("...a"),
        np.array([[0], [1], [1], [0]]),
        np.array([[0.1], [0.9], [0.8], [0.2]]),
        np.array([[0, 1], [0, 0], [2, 0], [2, 1]]),
        np.arange(2 * T).reshape(T, 2),
        np.array([np.nan, 1.0, 2.0, 4.0]),
        np.array([1, 2, 3, 4]),
    )
    other = found[1:].regroup(("…", "\u0301", "a"), np.array([2, 0, 1]))
    assert other.text == "…\u0301a"
    assert other.ends(1) == [1, 3]
    assert other.operations.tolist() == [[2, 0], [1, 1], [2, 1]]
    assert other.norms.tolist() == [[4, 5], [4, 5], [6, 7]]
    assert other.bits is not None
    np.testing.assert_array_equal(other.bits, np.array([3, np.nan, 4], np.float32))
    assert other.products is not None
    assert other.products.tolist() == [5, 0, 4]
    first = found.regroup(("\ufeff", "…", "a"), np.array([0, 3, 1]))
    assert first.norms[0].tolist() == [0, 0]
    assert first.boundaries.T.tolist() == [[0, 1, 0]]


def test_rows_are_the_segments_of_every_level() -> None:
    found = hmrnn.load("novel-small").segment("The boats came back at night.")
    rows = found.rows()
    for level in (1, 2):
        own = [row for row in rows if row["level"] == level]
        assert [(row["start"], row["end"]) for row in own] == found.spans(level)
        assert [row["text"] for row in own] == found.segments(level)
        ends = [row["end"] - 1 for row in own]
        assert [row["probability"] for row in own] == found.probabilities[ends, level - 1].tolist()
