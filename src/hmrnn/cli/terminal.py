"""Text that is safe to print on a terminal, and lines that do not run into a progress bar."""

from __future__ import annotations

import re
import shutil
import sys

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str, keep: str = "") -> str:
    r"""``text`` with control characters, line separators, bidi marks and lone surrogates as escapes such as \u001b.

    Characters of ``keep``, such as line feeds, are left as they are.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def for_output(text: str) -> str:
    r"""``text`` as commands print it: unchanged into a file or a pipe; escaped on a terminal, but for \n and \t."""
    return escaped(text, keep="\n\t") if sys.stdout.isatty() else text


def say(text: str) -> None:
    """Print a line that may hold names or text from files."""
    end_bar()
    print(for_output(text))


def warn(text: str) -> None:
    """Print a line on stderr."""
    end_bar()
    print(escaped(text), file=sys.stderr)


_bar_shown = False


def show_bar(what: str, share: float, left: str) -> None:
    """Draw a progress bar on the current line of the terminal; it is erased when ``share`` is 1."""
    global _bar_shown
    full = round(24 * share)
    bar = full * "\u2501" + (24 - full) * "\u2500"
    line = f"{what} {bar} {100 * share:5.1f}%{left}".rstrip()
    sys.stderr.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\033[K")
    _bar_shown = True
    if share >= 1:
        end_bar()
    sys.stderr.flush()


def end_bar() -> None:
    """Erase the bar, if there is one, so that the next line does not run into it."""
    global _bar_shown
    if _bar_shown:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
        _bar_shown = False
