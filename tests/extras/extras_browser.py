"""The example that runs models in the browser: a real Chromium finds and writes what hmrnn finds and writes."""

from __future__ import annotations

import http.server
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect, sync_playwright

import hmrnn
import tiny
from hmrnn.reading.sample import seeded
from web.browser.browsing import CHROMIUM, PATIENCE, needed

pytestmark = [needed, pytest.mark.skipif(shutil.which("npm") is None, reason="no npm here, which installs the runtime")]
HERE = tiny.ROOT / "examples" / "browser"
TEXT = "The café opened at 9, and the boats came back."


@pytest.fixture(scope="module")
def site() -> Path:
    """The page, built by the commands of its README."""
    [commands, _] = re.findall(r"^```bash\n(.*?)^```$", (HERE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        subprocess.run([sys.executable if program == "python" else program, *words], cwd=tiny.ROOT, check=True)
    return tiny.ROOT / "build" / "browser" / "site"


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *what: object) -> None: ...


@pytest.fixture
def page(site: Path) -> Iterator[Page]:
    complaints: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE)
            page = browser.new_page()
            page.set_default_timeout(PATIENCE)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
            page.on("request", lambda request: request.url.startswith(address) or complaints.append(request.url))
            page.goto(address)
            expect(page.locator("html[data-ready]")).to_be_attached()
            yield page
            browser.close()
        server.shutdown()
    assert complaints == []


def test_it_is_small(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.iterdir()) <= 15e6


def test_a_text_is_segmented_as_it_is_typed(page: Page) -> None:
    model = hmrnn.load("english-small")
    page.fill("#text", "")
    page.locator("#text").press_sequentially(TEXT)
    with pytest.warns(hmrnn.errors.TextNote):
        found = model.segment(TEXT)
    rows = page.locator("#levels p")
    expect(rows).to_have_count(found.levels)
    for level in range(found.levels):
        expect(rows.nth(level).locator("span")).to_have_text(found.segments(level + 1), use_inner_text=False)
    changed = TEXT.replace("boats", "fishing boats")
    page.fill("#text", changed)
    with pytest.warns(hmrnn.errors.TextNote):
        expect(rows.first.locator("span")).to_have_text(model.segment(changed).segments(1))


def test_a_text_is_written_by_hand(page: Page) -> None:
    model = hmrnn.load("writing-small")
    numbers = torch.rand(5 * 1000, dtype=torch.float64, generator=seeded(2)).tolist()
    points = page.evaluate(
        """async (numbers) => {
            const { Writer } = await import("./model.js");
            const writer = await Writer.load("writing-small"), given = numbers.values(), points = [];
            const random = () => given.next().value;
            for await (const { x, y, up } of writer.write("by hand", { style: 1, random }))
                points.push([x, y, Number(up)]);
            return points;
        }""",
        numbers,
    )
    steps = model.write("by hand", seed=2, condition=model.config.model.classes[1]).steps
    expected = np.column_stack([steps[:, :2].cumsum(0), steps[:, 2]])
    assert len(points) == len(expected)
    np.testing.assert_allclose(points, expected, atol=0.01 * np.ptp(expected[:, 1]))

    page.fill("#said", "hello")
    page.select_option("#style", "cursive")
    page.get_by_role("button", name="Write").click()
    expect(page.locator("#status")).to_have_text(re.compile(r"^\d+ points$"))
    drawn = page.locator("#line path").get_attribute("d")
    assert drawn is not None
    assert f"{drawn.count('L') + drawn.count('M') - 1} points" == page.locator("#status").inner_text()
    page.fill("#said", "日")
    page.get_by_role("button", name="Write").click()
    expect(page.locator("#status")).to_have_text("The model has never seen 日 written.")
