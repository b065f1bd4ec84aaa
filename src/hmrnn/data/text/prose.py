"""The prose of a Wikipedia dump: its articles' paragraphs as a reader sees them, in ASCII, one to a line."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from hmrnn.data.text.plain import plain
from hmrnn.data.text.sources import Progress
from hmrnn.data.text.wikipedia import write_cleaned

_ARTICLE = re.compile(r"<text [^>]*>(.*)</text>", re.DOTALL)
_REDIRECT = re.compile(r"#redirect", re.IGNORECASE)
_WHOLE = tuple(  # removed with all that they enclose
    re.compile(pattern, re.DOTALL | re.IGNORECASE)
    for pattern in (
        r"<!--.*?-->",
        r"<ref[^>]*/>",
        r"<(ref|math|table|gallery|pre|nowiki|timeline|code|source)\b[^>]*>.*?</\1\s*>",
    )
)
_INNERMOST = (
    re.compile(r"\{\{[^{}]*\}\}"),  # templates
    re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL),  # tables
)
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_NOT_SHOWN = re.compile(r"\s*:?(image|file|media|category|wikipedia|template|[a-z]{2,3}(-[a-z-]+)?|simple)\s*:", re.I)
_ADDRESS = re.compile(r"\[(?:https?|ftp|mailto):[^\s\]]*\s*([^\]]*)\]|(?:https?|ftp)://\S+")
_TAG = re.compile(r"<[^<>]*>")
_EMPHASIS = re.compile(r"'{2,}")
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;:.\s]*\)")
_SPACES = re.compile(r"\s+")
_BEFORE_SIGN = re.compile(r"\s+([,.;:!?)])")
SHORTEST = 60
"""Characters below which a line is not taken for a paragraph."""
LOST = 0.02
"""Share of characters without an ASCII equivalent above which a paragraph is left out."""


def wikipedia_prose(source: str | Path, target: str | Path, *, progress: Progress | None = None) -> int:
    """Write the paragraphs of the XML dump ``source`` to ``target`` and return their number of characters.

    Kept are lines of running text that begin with a letter, a digit or a quotation mark and end a sentence; headings,
    lists, tables, templates, footnotes and pictures are not. Accents are taken off letters. The dump may be packed
    (.xz, .gz, .bz2); ``target`` appears when it is complete.
    """
    return write_cleaned(source, target, _articles, progress=progress)


def _articles(records: Iterator[bytes]) -> Iterator[bytes]:
    """The paragraphs of each article, from the dump in pieces that end after each ``>``."""
    pieces: list[bytes] = []
    for record in records:
        if b"<text " in record:
            pieces = []
        pieces.append(record)
        if b"</text>" in record:
            found = _ARTICLE.search(b"".join(pieces).decode("utf-8", "replace"))
            pieces = []
            if found and not _REDIRECT.match(found[1].lstrip()):
                yield from (paragraph.encode() + b"\n" for paragraph in paragraphs(html.unescape(found[1])))
        elif len(pieces) > 2:  # between articles
            pieces = pieces[-1:]


def paragraphs(markup: str) -> Iterator[str]:
    """The lines of running text in the markup of one article."""
    text = html.unescape(markup)  # what is left of entities written as &amp;nbsp;
    for pattern in _WHOLE:
        text = pattern.sub("", text)
    for pattern in _INNERMOST:
        text = _until_unchanged(pattern, text)
    while (shorter := _LINK.sub(_shown, text)) != text:  # the innermost links first: captions of pictures have some
        text = shorter
    text = _TAG.sub("", _ADDRESS.sub(lambda found: found[1] or "", text))
    text = _EMPHASIS.sub("", text)
    for line in text.split("\n"):
        if line[:1].isalnum() or line[:1] in "\"'":
            line = _tidy(line)
            if len(line) >= SHORTEST and line.rstrip("\"')")[-1:] in (".", "!", "?"):
                yield line


def _until_unchanged(pattern: re.Pattern[str], text: str) -> str:
    while (shorter := pattern.sub("", text)) != text:
        text = shorter
    return text


def _shown(link: re.Match[str]) -> str:
    """What a reader sees of [[article|shown]]."""
    if _NOT_SHOWN.match(link[1]):
        return ""
    return link[1].rsplit("|", 1)[-1]


def _tidy(line: str) -> str:
    """``line`` in ASCII with single spaces; empty if too much of it has no ASCII equivalent."""
    letters = plain(line)
    ascii_only = "".join(c if c.isprintable() or c == " " else " " for c in letters if ord(c) < 128)
    if len(letters) - len(ascii_only) > LOST * len(letters) or any(c in ascii_only for c in "[]{}|<>"):
        return ""
    ascii_only = _EMPTY_BRACKETS.sub("", ascii_only)
    return _BEFORE_SIGN.sub(r"\1", _SPACES.sub(" ", ascii_only)).strip()
