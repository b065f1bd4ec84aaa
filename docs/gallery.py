"""Draws the pictures of docs/gallery.md, by the commands that stand in it.

python docs/gallery.py [--handwriting RUN] [--lines FILE] [--people RUN] [--written FILE] [--text RUN]
    [--words RUN] [--events RUN] [--out FOLDER]

RUN is a run or checkpoint directory; --lines are lines of strokes as `hmrnn data handwritten --archive FILE` writes
them, --written some as `hmrnn generate` does. They take the place of those named on the page; a picture for which a
model or lines are not given is not drawn.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from hmrnn.cli import main as cli

PAGE = Path(__file__).with_suffix(".md")
LARGEST = 300_000
"""Bytes of a picture."""


def commands() -> list[list[str]]:
    """The arguments of the hmrnn commands on the page."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--lines", "--people", "--written", "--words", "--events"):
        parser.add_argument(name)
    parser.add_argument("--handwriting", default="handwriting-small")
    parser.add_argument("--text", default="english-small")
    parser.add_argument("--out", type=Path, default=PAGE.with_suffix(""))
    arguments = parser.parse_args()
    here = {
        "handwriting-small": arguments.handwriting, "handwritten.npz": arguments.lines,
        "runs/iamondb-best": arguments.people, "written.npz": arguments.written, "english-small": arguments.text,
        "runs/words": arguments.words, "runs/log": arguments.events,
    }  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    for command in commands():
        words = [here.get(word, word) for word in command]
        if None in words:
            print(f"left out, as there is no model or no data for it: hmrnn {shlex.join(command)}")
            continue
        out = arguments.out / Path(words[words.index("--out") + 1]).name
        words[words.index("--out") + 1] = str(out)
        cli.run(words)
        if out.stat().st_size > LARGEST:
            sys.exit(f"{out} has {out.stat().st_size:,} bytes, more than {LARGEST:,}: ask for less in {PAGE.name}")


if __name__ == "__main__":
    main()
