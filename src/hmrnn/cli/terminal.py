"""Text that is safe to print on a terminal, and lines that do not run into a progress bar."""

from __future__ import annotations

import re
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


def say(text: str, end: str = "\n") -> None:
    """Print a line that may hold names or text from files."""
    put(for_output(text), end)


def put(text: str, end: str = "\n") -> None:
    """Print a line at once, as it is: the next may be long in coming."""
    draw("")
    print(text, end=end, flush=True)


def warn(text: str) -> None:
    """Print a line on stderr."""
    draw("")
    print(escaped(text), file=sys.stderr)


_drawn = False


def draw(line: str) -> None:
    """Draw a line on stderr that the next one, or the next text, replaces; an empty one leaves nothing."""
    global _drawn
    if line or _drawn:
        print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)
    _drawn = bool(line)
