"""Draws docs/explore.png, the page as the README shows it, with a model of your choice.

python docs/screenshot.py RUN [OTHER ...] [--text FILE] [--dark] [--width 1280] [--out docs/explore.png]

Needs the extras "page" and "test" and a Chromium on the path.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

TEXT = (
    "When the boats came back in the evening, the whole town was waiting on the pier. Nobody said a word until the "
    "last rope had been made fast; then somebody laughed, and all at once everyone was talking about the storm, the "
    "price of herring and the new harbour master, who had not come down to see it."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--out", type=Path, default=Path("docs/explore.png"))
    arguments = parser.parse_args()
    text = arguments.text.read_text() if arguments.text else TEXT
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no Chromium here: install one, such as Debian's chromium")
    command = [sys.executable, "-m", "hmrnn", "explore", "--port", "0", "-m", *arguments.runs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = next((found[0] for line in server.stdout if (found := re.search(r"http://\S+", line))), None)
        if address is None:
            sys.exit("hmrnn explore did not start")
        try:
            take(address, chromium, text, arguments)
        finally:
            server.terminate()
    print(f"wrote {arguments.out}")


def take(address: str, chromium: str, text: str, arguments: argparse.Namespace) -> None:
    """The page after the last symbol was typed, with the pointer at a place where a segment ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": arguments.width, "height": 900},
            color_scheme="dark" if arguments.dark else "light",
            device_scale_factor=1.5,
        )
        page.goto(address)
        expect(page.locator("#read-status")).to_have_text(re.compile("^read in"), timeout=60_000)  # what it begins with
        page.fill("#text", "")
        page.fill("#text", text[:-1])
        expect(page.locator("#read-status")).to_have_text(re.compile("^read in"), timeout=60_000)
        page.locator("#text").press_sequentially(text[-1])
        expect(page.locator("#read-status")).to_have_text(re.compile("^read in"), timeout=60_000)
        expect(page.locator(".symbols span").nth(len(text) - 1)).to_be_attached()
        page.locator("#text").blur()
        height = page.locator("body").evaluate("body => body.scrollHeight")
        page.set_viewport_size({"width": arguments.width, "height": height})
        row = page.locator(".row").last
        ends = row.locator(".level-1 .block").evaluate_all("blocks => blocks.map(block => block.last)")
        first = row.evaluate("row => row.row.start")
        row.locator(".symbols span").nth(ends[min(2, len(ends) - 1)] - first - 1).hover()
        expect(page.locator("#inspector")).to_be_visible()
        page.screenshot(path=arguments.out)
        browser.close()


if __name__ == "__main__":
    main()
