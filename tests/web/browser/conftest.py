"""The page in a real Chromium, one for all tests of this package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pages import Server
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf

from .browsing import CHROMIUM, PATIENCE, Open


@pytest.fixture(scope="package")
def site(shelf: Shelf) -> Iterator[Server]:
    with Server(shelf, Limits()).running() as server:
        yield server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # one process for all pages and none for a GPU: these tests share two cores with others
        lean = ["--in-process-gpu", "--disable-gpu", "--disable-software-rasterizer", "--renderer-process-limit=1"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *lean], timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, site: Server) -> Iterator[Open]:
    """Opens the page as a new visitor; at the end nothing may have gone wrong in it or been asked of another host."""
    complaints: list[str] = []
    contexts = []

    def open_page(fragment: str = "", server: Server = site, **options: object) -> Page:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: "Content Security" in message.text and complaints.append(message.text))
        page.on(
            "request", lambda request: request.url.startswith((server.url, "blob:")) or complaints.append(request.url)
        )
        page.goto(f"{server.url}/{fragment}")
        expect(page.locator("html[data-ready]")).to_be_attached()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
