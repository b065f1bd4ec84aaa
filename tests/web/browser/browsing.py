"""A real Chromium, if there is one, and what its tests look for on the page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needed = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install one, such as Debian's chromium")
PATIENCE = 60_000  # milliseconds
expect.set_options(timeout=PATIENCE)

Open = Callable[..., Page]


def write(page: Page, text: str) -> None:
    page.fill("#text", text)
    expect(shown(page)).to_have_text([*text.replace("\n", "⏎")])
    expect(page.locator("#read-status")).to_have_text(re.compile(r"^read in \d+ ms$"))


def shown(page: Page, panel: int = 0) -> Locator:
    """The symbols of a panel."""
    return page.locator("section:not([hidden]) .panel").nth(panel).locator(".symbols span")


def edges(page: Page, level: int) -> list[int]:
    """Where the blocks of a level end, as the page has drawn them, counted in symbols."""
    blocks = page.locator(f".panel .level-{level} .block").evaluate_all("blocks => blocks.map(block => block.last)")
    return sorted(set(blocks))
