"""A kind of data that the package does not know, on the page in a real Chromium."""

from __future__ import annotations

import re

import pytest
from pages import Server
from playwright.sync_api import expect
from test_page_outside import DATA, LOGS

from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf

from .browsing import Open, edges, needed, shown

pytestmark = [needed, pytest.mark.long]  # and in one process, which has the browser


def test_data_are_pasted_and_continued(visit: Open, events: Shelf) -> None:
    with Server(events, Limits()).running() as server:
        page = visit("", server)
        expect(page.get_by_role("tab")).to_have_text(["Data"])
        page.fill("#data-text", DATA)
        expect(shown(page)).to_have_text([event + " " for _, event in LOGS[0]])
        assert edges(page, 1) == events[0].model.segment(LOGS[0]).ends(1)
        expect(page.locator("#data-status")).to_have_text(re.compile(r"^\d.* bits per event in 2 sequences$"))
        page.fill("#data-sequence", "2")
        expect(shown(page)).to_have_text([event + " " for _, event in LOGS[1]])
        page.fill("#data-length", "7")
        page.fill("#data-seed", "3")
        page.get_by_role("button", name="Generate more").click()
        expect(shown(page, 1)).to_have_count(7)
        expect(page.locator(".panel")).to_have_count(2)
        again = visit(page.evaluate("location.hash"), server)
        expect(shown(again)).to_have_text([event + " " for _, event in LOGS[1]])
        page.fill("#data-text", "no log")
        expect(page.locator("#data-problem")).to_be_visible()
        expect(page.locator(".panel")).to_have_count(0)
        again.context.close()
        page.context.close()
