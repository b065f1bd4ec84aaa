"""What commands show: progress bars, tables and segments, on a terminal or plain when piped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

import msgspec

from hmrnn.analysis.sections import Section
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.cli.terminal import draw, put, say, warn
from hmrnn.utils.files import shown

FIRST, EVERY = 5.0, 60.0
"""Without a terminal: seconds until the first line of progress, and between two lines."""
FULL, EMPTY = "\u2501\u2500"
REDRAWN = 0.1
"""Seconds between two drawings of a bar."""


def show_progress(what: str) -> Callable[..., None]:
    """A function that shows the progress on stderr: a bar on a terminal, elsewhere a line now and then."""
    start: tuple[float, int] | None = None
    due, drawn = FIRST, float("-inf")
    bar = sys.stderr.isatty()

    def show(done: int, total: int, state: str = "") -> None:
        nonlocal start, due, drawn
        now = monotonic()
        start = start or (now, done)  # a resumed job does not start at 0
        passed, share, left = now - start[0], done / max(total, 1), ""
        if passed > 2 and done > start[1]:
            left = f"  {duration((total - done) * passed / (done - start[1]))} left"
        if bar and (share >= 1 or now - drawn > REDRAWN):
            drawn = now
            full = round(24 * share)
            line = f"{what} {full * FULL}{(24 - full) * EMPTY} {100 * share:5.1f}%{left}  {state}".rstrip()
            draw(line[: shutil.get_terminal_size().columns - 1])
            if share >= 1:
                draw("")
        elif not bar and left and passed >= due and done < total:
            due = passed + EVERY
            warn(f"{what} {100 * share:5.1f}%{left}")

    return show


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def show(sections: Iterable[Section | str], as_json: bool = False) -> None:
    """Print sections as they come, as lines and tables, or as JSON; a string is printed as it is."""
    for one in sections:
        if isinstance(one, str):
            say(one, end="")
        elif one.aside:
            warn(one.text)
        elif not as_json:
            _show(one)
        elif one.record is not None:
            plain = {name: shown(value) if isinstance(value, str) else value for name, value in one.record.items()}
            put(msgspec.json.encode(plain).decode())


def _show(section: Section) -> None:
    if section.table:
        header, *rows = section.table
        print_table(f"\n{section.title}", header, rows)
    elif section.title:
        say(f"\n{section.title}\n")
    for text in filter(None, (section.text, section.lines)):
        say(text)
    if isinstance(section.found, Segmentation):
        put(segmentation(section.found, section.width))


def segmentation(result: Segmentation, width: int = 0) -> str:
    """Segments level by level, coloured on a terminal and set apart by bars when piped; then the update counts."""
    coloured = os.environ.get("FORCE_COLOR") or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    colour = bool(coloured) and not os.environ.get("NO_COLOR")
    shown = result.render(width=width or min(shutil.get_terminal_size().columns, 100), colour=colour)
    return f"{shown}\n{result.updates()}"


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A small table, the first column left, the others right."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    console.print(title, style="bold", soft_wrap=True)
    table = Table()
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
