"""The page in a real Chromium: what a visitor does, and sees."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from pages import CHARACTERS, Server, save
from playwright.sync_api import expect

from hmrnn.config import SegmentConfig
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf, open_shelf

from .browsing import Open, edges, needed, shown, write

pytestmark = [needed, pytest.mark.long]  # and in one process, which has the browser

TEXT = "the quick brown fox jumps over the lazy dog and then it sleeps"


def test_typing_shows_the_segments(visit: Open, shelf: Shelf) -> None:
    page = visit()
    expect(page.locator(".panel h2")).to_contain_text("small")  # there is something to look at from the start
    page.fill("#text", "")
    expect(page.locator(".panel")).to_have_count(0)
    page.locator("#text").press_sequentially("the fox", delay=20)
    expect(shown(page)).to_have_text([*"the fox"])
    write(page, TEXT)
    found = shelf[0].model.segment(TEXT)
    for level in (1, 2):
        assert len(found.ends(level)) > 2
        assert edges(page, level) == found.ends(level)
    stats = page.locator(".panel .stats").inner_text()
    assert f"{found.bits.mean():.3f}" in stats  # type: ignore[union-attr]
    assert f"{found.updates().saved:.0%}".replace("%", " %") in stats
    assert f"{found.multiply_adds():,.0f}\nmultiply-adds per character" in stats
    table = page.locator(".panel > table")
    assert table.locator("th[scope=col]").all_inner_texts() == ["layer", "UPDATE", "COPY", "FLUSH", "changed"]
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tr").all()[1:]]
    assert [int(row[0]) + int(row[2]) for row in rows] == list(found.updates().per_layer)
    page.get_by_text("Segments as text").click()
    expect(page.locator(".plain").first).to_have_text("level 1: " + "|".join(
        re.sub("^ | $", "·", segment) for segment in found.segments(1)
    ))  # fmt: skip
    # what a screen reader is told, and labels that can be read
    assert page.locator(".panel canvas:not([aria-hidden])").count() == 0
    expect(page.get_by_role("table", name="What each layer did")).to_be_attached()
    assert table.locator("th[scope=row]").all_inner_texts() == ["1", "2", "3"]
    boxes = sorted((box["y"], box["height"]) for label in page.locator(".row").first.locator(".label").all()
                   if (box := label.bounding_box()))  # fmt: skip
    assert all(height >= 12 for _, height in boxes)
    assert all(y + height <= below for (y, height), (below, _) in itertools.pairwise(boxes))


def test_hover_and_keys_show_the_probabilities(visit: Open, shelf: Shelf) -> None:
    page = visit()
    write(page, TEXT)
    found = shelf[0].model.segment(TEXT)
    card = page.locator("#inspector")
    expect(card).to_be_hidden()
    shown(page).nth(5).hover()
    expect(card).to_contain_text("character 6")
    for level in range(2):
        expect(card).to_contain_text(f"{round(float(found.probabilities[5, level]), 4):.3f}")  # rounded twice
    expect(page.locator(".block.here")).to_have_count(2)
    expect(page.locator("#spoken")).to_be_empty()  # a pointer that moves would never let a screen reader finish
    page.locator(".view").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(card).to_contain_text("character 3")
    expect(page.locator("#spoken")).to_contain_text(f"probability {found.probabilities[2, 0]:.2f}")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


RIGHT_TO_LEFT = """async (text) => {
  const { View } = await import("/static/view.js"), { Segmentation } = await import("/static/segmentation.js");
  const found = new Segmentation(), symbols = [...text], zeros = symbols.map(() => 0);
  found.add({ segmentation: {
    symbols, bits: zeros, multiply_adds: zeros, layers: [{ norms: zeros, operations: "U".repeat(symbols.length) }],
    levels: [{ boundaries: symbols.map((_, t) => Number(t === 2)), probabilities: zeros }],
  } });
  const view = new View("test", (index) => { window.at = index; });
  view.root.id = "turned";
  document.body.prepend(view.root);
  view.show(found);
  view.root.focus();
}"""


def test_lines_from_right_to_left(visit: Open) -> None:
    """Symbols stand in the order of reading, Arabic letters are joined, and the arrow keys go where they point."""
    page = visit()
    page.evaluate(RIGHT_TO_LEFT, "\u0633\u0644\u0627\u0645 abc\u0645\u0645\u0645\u0645\n")
    cells = page.locator("#turned .cells")
    assert cells.get_attribute("dir") == "rtl"
    spans = cells.locator(".symbols span")
    places = [box["x"] for span in spans.all() if (box := span.bounding_box())]
    assert len(places) == 13
    assert places == sorted(places, reverse=True)
    joined = [(text.startswith("\u200d"), text.endswith("\u200d")) for text in spans.all_inner_texts()[:4]]
    assert joined == [(False, True), (True, True), (True, False), (False, False)]
    first = cells.locator(".block").first.bounding_box()
    assert first is not None
    assert abs(first["x"] - places[2]) < 3
    for key in ("Home", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.evaluate("window.at") == 1
    spans.nth(6).hover()
    assert page.evaluate("window.at") == 6


def test_two_models_side_by_side(visit: Open, shelf: Shelf) -> None:
    page = visit(viewport={"width": 1300, "height": 800})
    write(page, "the lazy dog")
    page.get_by_role("button", name="Compare two models").click()  # the other is the first that differs
    expect(page.locator(".panel h2")).to_contain_text(["small", "other"])
    expect(shown(page, 1)).to_have_text([*"the lazy dog"])
    boxes = [page.locator(".panel").nth(k).bounding_box() for k in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]  # type: ignore[index]
    shown(page, 0).nth(4).hover()
    expect(page.locator(".cursor")).to_have_count(2)  # the same symbol is marked in both
    for panel, entry in zip(page.locator(".panel").all(), shelf):
        expect(panel.locator(".stats")).to_contain_text(f"{entry.model.segment('the lazy dog').bits.mean():.3f}")
    found = [entry.model.segment("the lazy dog") for entry in shelf[:2]]
    for k, panel in enumerate(page.locator(".panel").all()):  # ends that the other model does not have are marked
        here, there = ({*found[j].ends(level)} for level in (1,) for j in (k, 1 - k))
        expect(panel.locator(".level-1 .block.alone")).to_have_count(len(here - there))
        expect(panel.locator(".legend .alone").first).to_have_text(f"{len(here - there)} only here")
    assert found[0].ends(1) != found[1].ends(1)
    page.select_option("#read-model", "other")
    expect(page.locator(".panel h2")).to_contain_text(["other", "small"])
    page.get_by_role("button", name="Compare two models").click()
    expect(page.locator(".panel")).to_have_count(1)
    expect(page.locator("#read-other")).to_have_value("")


def test_the_page_explains_what_it_shows_and_text_never_becomes_html(visit: Open) -> None:
    page = visit()
    write(page, "<img src=x onerror=alert>")
    assert page.locator(".panel img").count() == 0
    page.get_by_text("Segments as text").click()
    expect(page.locator(".plain").first).to_contain_text("<")
    assert page.locator(".panel img").count() == 0
    assert page.locator(".row .label").first.get_attribute("title") == (
        "ends of segments of level 1: where the detector of layer 1 fires"
    )
    page.get_by_text("What am I seeing?").click()
    expect(page.locator("#explain dt")).to_contain_text(["z¹, z²", "h¹, h², h³", "UPDATE", "COPY", "FLUSH", "bits"])
    expect(page.locator("#explain dd").first).to_be_visible()


def test_a_link_shows_the_same_again(visit: Open) -> None:
    page = visit()
    write(page, "a fox & a dog")
    page.select_option("#read-other", "other")
    expect(page).to_have_url(re.compile("c=other"))
    other = visit(page.url.partition("/#")[2].join(["#", ""]))
    expect(other.locator("#text")).to_have_value("a fox & a dog")
    expect(other.locator(".panel")).to_have_count(2)
    strange = visit("#tab=read&m=gone&t=dog")
    expect(strange.locator("#notice")).to_contain_text("gone")
    expect(shown(strange)).to_have_text([*"dog"])


def test_generation_is_shown_live_and_can_be_stopped(visit: Open, shelf: Shelf) -> None:
    page = visit("#tab=write&p=the&n=40&s=7&v=0")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator("#write-status")).to_have_text("40 symbols")
    expected = "the" + shelf[0].model.generate("the", 40, temperature=0.8, seed=7)
    expect(shown(page)).to_have_text([*expected.replace("\n", "⏎")])
    expect(page.locator(".symbols .given")).to_have_count(3)
    assert edges(page, 1) == shelf[0].model.segment(expected).ends(1)
    expect(page.locator(".lamp")).to_have_count(3)
    page.select_option("#pace", "8")
    page.fill("#length", "3000")
    page.click("#go")
    expect(shown(page).nth(5)).to_be_attached()
    page.click("#stop")
    expect(page.locator("#go")).to_be_enabled()
    expect(page.locator("#write-status")).to_have_text(re.compile(r"^\d{1,3} symbols$"))
    written = shown(page).count()
    page.click("#to-read")
    expect(page.locator("#read")).to_be_visible()
    expect(shown(page)).to_have_count(written)


def test_a_condition_is_asked_for_where_the_model_has_one(visit: Open, tmp_path: Path) -> None:
    save(tmp_path / "told", CHARACTERS, 1, classes=("a", "b"))
    save(tmp_path / "free", CHARACTERS, 1)
    shelf = open_shelf([tmp_path / "told", tmp_path / "free"])
    with Server(shelf, Limits()).running() as server:
        page = visit("", server)
        write(page, TEXT)
        for which in ("a", "b"):
            page.locator("[id$=-condition]:visible").fill(which)
            page.locator("[id$=-condition]:visible").blur()
            bits = shelf[0].model.segment(TEXT, condition=which).bits.mean()
            expect(page.locator(".panel .stats")).to_contain_text(f"{bits:.3f}")
        page.select_option("#read-model", "free")
        expect(page.locator("[id$=-condition]:visible")).to_have_count(0)
        expect(page.locator(".panel .stats")).to_contain_text(f"{shelf[1].model.segment(TEXT).bits.mean():.3f}")
        page.locator("#tab-write").click()
        page.fill("#seed", "3")
        page.fill("#length", "30")
        page.select_option("#pace", "0")
        page.locator("[id$=-condition]:visible").fill("b")
        page.locator("#go").click()
        expect(shown(page)).to_have_text([*shelf[0].model.generate("", 30, temperature=0.8, seed=3, condition="b")])
        page.context.close()


def test_downloads(visit: Open, shelf: Shelf) -> None:
    page = visit()
    write(page, "the lazy dog")
    with page.expect_download() as download:
        page.get_by_role("button", name="Segmentation (JSON)").click()
    assert download.value.suggested_filename == "small.json"
    found = json.loads(Path(download.value.path()).read_text())
    assert found == shelf[0].model.segment("the lazy dog").to_dict()
    with page.expect_download() as download:
        page.get_by_role("button", name="Figure (SVG)").click()
    assert download.value.suggested_filename == "small.svg"
    assert "<svg" in Path(download.value.path()).read_text()


def test_words_with_the_certainty_of_their_ends_and_a_lexicon(visit: Open, tmp_path: Path) -> None:
    save(tmp_path / "words", CHARACTERS, 5, segments=SegmentConfig(size=8, longest=5, reader=6), num_layers=2)
    shelf = open_shelf([tmp_path / "words"])
    text = "the lazy dog\nthe quick fox"
    found = shelf[0].model.segment(text)
    with Server(shelf, Limits()).running() as server:
        page = visit("", server)
        write(page, text)
        words = page.locator(".running .word")
        expect(words).to_have_text(found.words())
        assert edges(page, 1) == found.ends(1)
        ends = [end for end, word in zip(found.ends(1), found.segments(1)) if word.strip()]
        for k in range(len(ends) - 1):  # the end of the text is certain
            sure = float(words.nth(k).evaluate("word => word.style.getPropertyValue('--sure')"))
            assert sure == pytest.approx(float(found.probabilities[ends[k] - 1, 0]), abs=1e-4)
        expect(page.locator(".running p")).to_have_count(2)
        rows = [row.locator("bdi, td").all_inner_texts() for row in page.locator(".lexicon tr").all()[1:]]
        assert [(word, int(count)) for word, count, _ in rows] == found.lexicon()
        for name, ending, content in (
            ("Lexicon (TSV)", "tsv", "".join(f"{count}\t{word}\n" for word, count in found.lexicon())),
            ("Words (TXT)", "txt", f"{found.spaced()}\n"),
        ):
            with page.expect_download() as download:
                page.get_by_role("button", name=name).click()
            assert download.value.suggested_filename == f"words.{ending}"
            assert Path(download.value.path()).read_text() == content
        page.context.close()


def test_a_file_is_opened_or_dropped_and_what_is_no_text_refused(visit: Open, shelf: Shelf, tmp_path: Path) -> None:
    page = visit()
    (tmp_path / "my notes.txt").write_text("\ufeffthe lazy dog")
    page.set_input_files("#file", tmp_path / "my notes.txt")
    expect(shown(page)).to_have_text([*"the lazy dog"])
    with page.expect_download() as download:
        page.get_by_role("button", name="Segmentation (JSON)").click()
    assert download.value.suggested_filename == "my-notes-small.json"
    assert json.loads(Path(download.value.path()).read_text()) == shelf[0].model.segment("the lazy dog").to_dict()
    drop = """(content) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(content)], "dropped.log"));
      const how = { dataTransfer: data, bubbles: true, cancelable: true };
      const panel = document.querySelector(".panel");
      return ["dragover", "drop"].map((name) => !panel.dispatchEvent(new DragEvent(name, how)));
    }"""
    assert page.evaluate(drop, [*b"the quick fox"]) == [True, True]  # the browser does not open it
    expect(shown(page)).to_have_text([*"the quick fox"])
    for content in (b"\xff\xfebad", b" \n", b"a" * (Limits().text + 1), bytes(4 * Limits().text + 1)):
        page.evaluate(drop, [*content])
        expect(page.locator("#read-problem")).to_contain_text("dropped.log")
        expect(shown(page)).to_have_text([*"the quick fox"])  # what was there stays
        page.locator("#text").dispatch_event("input")
        expect(page.locator("#read-problem")).to_be_hidden()


def test_combined_characters_stand_together(visit: Open) -> None:
    """One cell for a letter and its marks, as wide as its symbols; words are whole in any script."""
    page = visit()
    family, flag = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea"
    for text, clusters in (
        ("\u0915\u093f\u0928\u0941 a", ["\u0915\u093f", "\u0928\u0941", " ", "a"]),
        (f"a{family}{flag}", ["a", family, flag]),
        ("\u05d1\u05bc\u05e8", ["\u05d1\u05bc", "\u05e8"]),
    ):
        page.fill("#text", text)
        expect(shown(page)).to_have_count(len(text))
        expect(shown(page).and_(page.locator(":not(.rest)"))).to_have_text(clusters)
        spans = page.locator(".symbols span:not(.rest)").evaluate_all("all => all.map(one => one.offsetWidth)")
        cell = page.locator(".view").evaluate("view => parseFloat(getComputedStyle(view).getPropertyValue('--cell'))")
        assert spans == [cell * len(cluster) for cluster in clusters]
        running = "".join(page.locator(".running .word").all_inner_texts())
        assert running.replace(" ", "") == text.replace(" ", "")
        expect(page.locator(".running p")).to_have_css("direction", "rtl" if text[0] == "\u05d1" else "ltr")


def test_long_text_streams_in_and_only_what_is_near_is_drawn(visit: Open) -> None:
    page = visit(viewport={"width": 480, "height": 500})
    text = "the quick brown fox jumps over the lazy dog " * 40
    page.fill("#text", text)
    expect(page.locator(".panel .row").nth(5)).to_be_attached()
    expect(page.locator("#read-status")).to_have_text(re.compile("^read in"))
    rows = page.locator(".panel .row")
    assert rows.count() > 35
    assert page.locator(".panel .row .cells").count() < rows.count()
    rows.last.scroll_into_view_if_needed()
    expect(rows.last.locator(".symbols")).to_be_visible()


def test_everything_can_be_reached_by_keys(visit: Open) -> None:
    page = visit()
    write(page, "dog")
    page.locator("#tab-read").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#write")).to_be_visible()
    expect(page.locator("#tab-write")).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator("#tab-draw")).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("#tab-read")).to_be_focused()
    expect(page.locator("#read")).to_be_visible()
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    expect(page).to_have_url(re.compile("t=dog"))
    page.locator("#tab-read").focus()
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = ["share", "read-model", "read-other", "text", "view"]
    assert [name for name in reached if name in wanted][:5] == wanted
