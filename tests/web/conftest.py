"""Checkpoints of untrained models, small enough for a test, and the page over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CHROMIUM, PATIENCE, Open
from pages import BYTES, CHARACTERS, Server, save
from playwright.sync_api import Browser, Page, expect, sync_playwright
from starlette.testclient import TestClient

from hmrnn.data.strokes.strokes import Scale
from hmrnn.web.app import application
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf, open_shelf


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints: small and other read characters, raw reads bytes, pen strokes."""
    folder = tmp_path_factory.mktemp("runs")
    save(folder / "small", CHARACTERS, 1)
    save(folder / "other", CHARACTERS, 2)
    save(folder / "raw", BYTES, 3)
    save(folder / "pen", Scale((0.5, 0.0), (2.0, 3.0)), 4)
    return folder


@pytest.fixture(scope="session")
def shelf(runs: Path) -> Shelf:
    return open_shelf([runs / name for name in ("small", "other", "raw", "pen")])


@pytest.fixture
def client(shelf: Shelf) -> Iterator[TestClient]:
    with TestClient(application(shelf), base_url="http://127.0.0.1:8000", raise_server_exceptions=True) as client:
        yield client


@pytest.fixture
def limited(shelf: Shelf, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    """The page with other limits: ``parametrize("limited", [{"text": 5}], indirect=True)``."""
    app = application(shelf, dataclasses.replace(Limits(), **request.param))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client


@pytest.fixture(scope="module")
def server(shelf: Shelf) -> Iterator[Server]:
    """The page as uvicorn serves it, with little patience."""
    with Server(shelf, Limits(patience=0.4, length=20_000)).running() as server:
        yield server


@pytest.fixture(scope="module")
def site(shelf: Shelf) -> Iterator[Server]:
    with Server(shelf, Limits()).running() as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
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
