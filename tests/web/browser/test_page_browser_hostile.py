"""Text from strangers in a real Chromium: names of models, links and symbols are shown as text and never run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import defusedxml.ElementTree
import pytest
from pages import CHARACTERS, Server, opened, save
from playwright.sync_api import Page, expect
from starlette.testclient import TestClient

from hmrnn.analysis.render import visible
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import open_shelf
from pairs import FULL

from .browsing import Open, needed, shown

pytestmark = [needed, pytest.mark.long]  # and in one process, which has the browser

RUN = "window.attacked = true"
HOSTILE = (
    f"<img src=x onerror='{RUN}'>",
    f"'\"><svg onload='{RUN}'><script>{RUN}<!--",
    f"javascript:{RUN}",
    f"${{{RUN}}}`{{{{{RUN}}}}}",
    "__proto__",
    "\u202egnp.exe\u2066\x1b[31m\n",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page over models in directories with hostile names."""
    folder = tmp_path_factory.mktemp("hostile")
    names = [name.replace("/", "") for name in HOSTILE]
    for seed, name in enumerate(names):
        save(folder / name, CHARACTERS, seed)
    save(folder / "pen <b onclick=x>", Scale((0.5, 0.0), (2.0, 3.0)), 4, "strokes")
    with Server(open_shelf([folder / name for name in [*names, "pen <b onclick=x>"]]), Limits()).running() as server:
        yield server


def assert_unharmed(page: Page) -> None:
    assert page.evaluate("window.attacked") is None
    assert page.locator("img, svg, script, iframe, object, embed").count() == 2  # the icon, and the script of the page
    attributes = page.evaluate(
        "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames()).filter((n) => n.startsWith('on'))"
    )
    assert attributes == []
    assert page.evaluate("({}).attacked") is None  # no prototype was changed


def test_names_of_models(visit: Open, hostile: Server) -> None:
    page = visit("#tab=read&t=a", server=hostile)
    for hostile_name in HOSTILE if FULL else (HOSTILE[1], *HOSTILE[4:]):
        name = visible(hostile_name.replace("/", ""))
        page.select_option("#read-model", name)
        page.select_option("#read-other", name)
        expect(page.locator(".panel h2")).to_contain_text([name, name])
        expect(shown(page, 1)).to_have_text(["a"])
        shown(page).first.hover()
        expect(page.locator("#inspector")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Segmentation (JSON)").first.click()
        assert re.fullmatch(r"[\w-]+\.json", download.value.suggested_filename)
    page.click("#tab-write")
    page.select_option("#write-model", name)
    page.fill("#length", "3")
    page.select_option("#pace", "0")
    page.click("#go")
    expect(page.locator("#write-status")).to_have_text("3 symbols")
    expect(page).to_have_url(re.compile("#tab=write&.*&v=0"))  # the link follows the fields after a moment
    again = visit(page.evaluate("location.hash"), server=hostile)
    expect(again.locator("#write-model")).to_have_value(name)
    for each in (page, again):
        assert_unharmed(each)


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 4))])
def test_links(visit: Open, first: int) -> None:
    names = ("tab", "t", "m", "c", "w", "p", "n", "k", "q", "s", "v", "d", "b", "o", "e", "z")
    values = [HOSTILE[(first + k) % len(HOSTILE)] for k in range(len(names))]
    fragment = "&".join(f"{name}={quote(value)}" for name, value in zip(names, values))
    page = visit(f"#{fragment}&{quote(values[0])}={quote(values[0])}")
    expect(page.locator("#notice")).to_contain_text("which this page was not started with")
    expect(page.locator("#text")).to_have_value(values[1])
    for tab in ("read", "write", "draw"):
        page.click(f"#tab-{tab}")
        expect(page.locator(f"#{tab}")).to_be_visible()
    page.click("#share")
    assert_unharmed(page)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    save(path, CHARACTERS, 1)
    with opened(open_shelf([path])) as client:
        assert client.get("/api/models").json()["models"][0]["name"] == "\N{REPLACEMENT CHARACTER}"


def test_a_figure_of_hostile_text_has_no_script(client: TestClient) -> None:
    answer = client.post("/api/text/figure", json={"model": 2, "text": "".join(HOSTILE) + "]]><script>x</script>"})
    root = defusedxml.ElementTree.fromstring(answer.content)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "text" in tags
    assert not tags & {"script", "foreignObject", "img", "a"}
    links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
