"""Drawing on the page in a real Chromium, and links that carry a drawing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import Server, save
from playwright.sync_api import Page, expect

import tiny_strokes
from hmrnn.kinds.strokes.page import TranscriptPage
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Entry, open_shelf

from .browsing import Open, edges, needed, shown

pytestmark = [needed, pytest.mark.long]  # and in one process, which has the browser


def test_drawing_is_segmented_and_the_network_writes(visit: Open) -> None:
    page = visit("#tab=draw")
    expect(page.locator("#draw-level option:checked")).to_have_text("level 2")
    assert drawn(page)[-1] == 24
    expect(shown(page)).to_have_text([*("o" * 11 + "^") * 2])
    labels = page.locator("#draw-panels .row").first.locator(".label").all_inner_texts()
    assert {label[0] for label in labels} == {"z", "h"}  # no row of bits: those of a density may be negative
    with page.expect_download() as download:
        page.get_by_role("button", name="Drawing (SVG)").click()
    drawing = Path(download.value.path()).read_text()
    assert drawing.count("<line") == 24
    page.select_option("#draw-level", "0")
    expect(page.locator("#draw-panels .legend")).to_contain_text("^: the pen is lifted after this point")
    with page.expect_download() as download:
        page.get_by_role("button", name="Segmentation (JSON)").click()
    assert len(json.loads(Path(download.value.path()).read_text())["symbols"]) == 24
    page.fill("#points", "30")
    page.get_by_role("button", name="Let it write").click()
    expect(page.locator("#draw-status")).to_have_text(re.compile("^30 points($|: .* which is scribble)"))
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#draw-panels .panel")).to_have_count(0)


def test_a_text_is_written_and_read(visit: Open, tmp_path: Path) -> None:
    told = {"window": "soft", "alphabet": tuple("abcdefghijklmno "), "classes": ("round", "slanted")}
    save(tmp_path / "writer", Scale((0.5, 0.0), (2.0, 3.0)), 4, "strokes", **told)
    reader = tiny_strokes.reader()
    entries = (
        *open_shelf([tmp_path / "writer"]),
        Entry("reader", "transcripts", reader, TranscriptPage(reader)),
    )
    with Server(entries, Limits()).running() as server:
        page = visit("#tab=draw", server=server)
        page.fill("#draw-text", "hello")
        page.get_by_role("button", name="Let it write").click()
        expect(page.locator("#draw-status")).to_have_text(re.compile("^400 points"))
        assert page.locator("#draw-letters").inner_text() == "hello"
        expect(page.locator("#draw-letters .here")).to_have_count(1)
        expect(page.locator("#draw-read")).to_have_text(re.compile("^reads “[abc ]*” "))
        expect(page.locator("#draw-level option:checked")).to_have_text("letters")
        written = shown(page).all_inner_texts()
        page.get_by_role("button", name="Clear").click()
        page.fill("#draw-says", "me")
        drawn(page)
        page.fill("#draw-seed", "1")
        page.get_by_role("button", name="Let it write").click()  # in the hand of the drawing
        expect(page.locator("#draw-status")).to_have_text(re.compile("^400 points"))
        assert shown(page).all_inner_texts() != written
        with page.expect_download() as download:
            page.get_by_role("button", name="Drawing (SVG)").click()
        assert Path(download.value.path()).read_text().count("<line") == 400


def drawn(page: Page) -> list[int]:
    """A zigzag by the mouse, in two strokes; the ends of the first level."""
    pad = page.locator("#pad").bounding_box()
    assert pad
    for start in (40, 140):
        page.mouse.move(pad["x"] + start, pad["y"] + 100)
        page.mouse.down()
        for k in range(12):
            page.mouse.move(pad["x"] + start + 6 * k, pad["y"] + 100 + 15 * (k % 3))
        page.mouse.up()
    expect(page.locator("#draw-status")).to_have_text("24 points")
    return edges(page, 1)


def test_a_link_carries_a_drawing(visit: Open) -> None:
    page = visit("#tab=draw")
    ends = drawn(page)
    code = page.locator("#strokes").input_value()
    expect(page).to_have_url(re.compile(f"&z={code}$"))
    other = visit(page.evaluate("location.hash"))
    expect(other.locator("#draw-status")).to_have_text("24 points")
    expect(shown(other)).to_have_text([*("o" * 11 + "^") * 2])
    assert edges(other, 1) == ends
    page.get_by_role("button", name="Clear").click()
    expect(page).not_to_have_url(re.compile("z="))


def test_a_drawing_is_coded_exactly(visit: Open) -> None:
    page = visit("#tab=draw")
    points = [{"x": x, "y": y, "up": up} for x, y, up in ((0, 0, 0), (3, -2, 0), (1919, 1079, 1), (-7, 500000, 0))]
    code = page.evaluate("p => import('/static/strokes/code.js').then(m => m.encoded(p))", points)
    back = "c => import('/static/strokes/code.js').then(m => m.decoded(c, 4))"
    assert re.fullmatch(r"[\w-]+", code)
    assert page.evaluate(back, code) == points
    assert page.evaluate(back, "") == []
    too_many = page.evaluate("p => import('/static/strokes/code.js').then(m => m.encoded(p))", [*points, points[0]])
    for wrong in (too_many, code[:-1], code + "A", "é", "A.", "_" * 40, "_" * 3000):
        assert page.evaluate(back, wrong) is None, wrong
