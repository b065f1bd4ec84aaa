"""Text from a Wikipedia dump (XML, perhaps compressed): words as in text8, or paragraphs of prose.

    python benchmarks/wikipedia.py text8 corpora/enwik9 --out corpora/text8 --characters 100000000
    python benchmarks/wikipedia.py prose corpora/enwik8 --out prose.txt

Words follow the rules, their order included, of the filter behind the published text8 (Mahoney, 2006), which is the
first 10⁸ characters of what it makes of the dump enwik9. From enwik8, the first tenth of that dump, it makes 74,090,640
characters with the SHA-256 f0624e3bcaa8466848a2e176a150711d866df1c5edf491b5c28a258776524082.
"""

from __future__ import annotations

import argparse
import html
import re
from collections.abc import Iterator
from pathlib import Path

from hmrnn.cli.display import show_progress
from hmrnn.errors import InputError
from hmrnn.reading.plain import plain
from hmrnn.utils import files
from hmrnn.utils.archives import Progress, Report, count_progress, read_blocks

_LONGEST = 1 << 26  # bytes without a ">", well above the longest article of enwik9

# Words
_TAG = re.compile(rb"<.*>")
_REDIRECT = re.compile(rb"#redirect", re.IGNORECASE)
_MARKUP: tuple[tuple[re.Pattern[bytes], bytes], ...] = tuple(
    (re.compile(pattern), shown)
    for pattern, shown in (
        (rb"<ref[^<]*</ref>", b""),  # footnotes
        (rb"<[^>]*>", b""),  # XHTML
        (rb"\[http:[^] ]*", b"["),  # [http://address shown] -> [shown]
        (rb"(?i)\|thumb", b""),  # layout of images
        (rb"(?i)\|left", b""),
        (rb"(?i)\|right", b""),
        (rb"(?i)\|\d+px", b""),
        (rb"(?i)\[\[image:[^\[\]]*\|", b""),  # [[Image:name|caption]] -> caption]]
        (rb"(?i)\[\[category:([^|\]]*)[^]]*\]\]", rb"[[\1]]"),
        (rb"\[\[[a-z\-]*:[^\]]*\]\]", b""),  # links to other languages
        (rb"\[\[[^|\]]*\|", b"[["),  # [[article|shown]] -> [[shown]]
        (rb"\{\{[^}]*\}\}", b""),  # templates
        (rb"\{[^}]*\}", b""),  # tables
        (rb"[\[\]]", b""),
        (rb"&[^;]*;", b" "),  # remaining entities
    )
)
_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
_DIGITS = tuple(
    (b"%d" % digit, b" " + word + b" ")
    for digit, word in enumerate(b"zero one two three four five six seven eight nine".split())
)
_LETTERS_ONLY = bytes(code if 97 <= code <= 122 else 32 for code in range(256))

# Prose
_ARTICLE = re.compile(r"<text [^>]*>(.*)</text>", re.DOTALL)
_WHOLE = tuple(  # removed with their content
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
_PROSE_TAG = re.compile(r"<[^<>]*>")
_EMPHASIS = re.compile(r"'{2,}")
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;:.\s]*\)")
_SPACES = re.compile(r"\s+")
_BEFORE_SIGN = re.compile(r"\s+([,.;:!?)])")
SHORTEST = 60
"""Fewest characters of a paragraph."""
LOST = 0.02
"""Largest share of characters without an ASCII equivalent in a paragraph."""


def extract(
    source: Path, target: Path, kind: str, *, characters: int | None = None, progress: Progress | None = None
) -> int:
    """Write the text of the dump ``source`` to ``target``, completely or not at all, and return its characters.

    "text8" has words alone; "prose" has one paragraph per line in ASCII: lines of running text that start with a
    letter, a digit or a quotation mark and end a sentence. ``characters`` truncates the text: 10⁸ for text8.
    """
    if target.exists():
        raise InputError(f"{target} exists already; remove it or choose another name")
    written = 0
    with files.replacing(target, advice=files.ADVICE) as file:
        records = _records(source, count_progress(progress, source.stat().st_size))
        for text in _words(records) if kind == "text8" else _articles(records):
            written += file.write(text if characters is None else text[: characters - written])
            if written == characters:
                break
        if written == 0:
            raise InputError(f"{source} holds no article between <text ...> and </text>; give a Wikipedia dump (XML)")
    return written


def _records(source: Path, report: Report) -> Iterator[bytes]:
    """The dump in records that end after each ``>``. Articles contain it as ``&gt;``, so each is in one record."""
    rest = b""
    for block in read_blocks(source, report):
        *records, rest = (rest + block).split(b">")
        yield from (record + b">" for record in records)
        if len(rest) > _LONGEST:
            raise InputError(f'{source} is not XML: {_LONGEST} bytes without a ">"; give a Wikipedia dump')
    if rest:
        yield rest


def _words(records: Iterator[bytes]) -> Iterator[bytes]:
    """The words of each record inside an article, with a space before every word."""
    inside = False
    for record in records:
        inside = (inside or b"<text " in record) and not _REDIRECT.search(record)
        if inside:
            inside = b"</text>" not in record
            if words := _visible(record).split():
                yield b" " + b" ".join(words)


def _visible(record: bytes) -> bytes:
    """The visible text of a record: letters in lower case, anything else as spaces."""
    text = _TAG.sub(b"", record, count=1)
    text = text.replace(b"&amp;", b"&").replace(b"&lt;", b"<").replace(b"&gt;", b">")
    for pattern, shown in _MARKUP:
        text = pattern.sub(shown, text)
    text = text.translate(_LOWER)
    for digit, word in _DIGITS:
        text = text.replace(digit, word)
    return text.translate(_LETTERS_ONLY)


def _articles(records: Iterator[bytes]) -> Iterator[bytes]:
    """The paragraphs of each article, a line each."""
    pieces: list[bytes] = []
    for record in records:
        if b"<text " in record:
            pieces = []
        pieces.append(record)
        if b"</text>" in record:
            found = _ARTICLE.search(b"".join(pieces).decode("utf-8", "replace"))
            pieces = []
            if found and not re.match("#redirect", found[1].lstrip(), re.IGNORECASE):
                yield from (paragraph.encode() + b"\n" for paragraph in paragraphs(html.unescape(found[1])))
        elif len(pieces) > 2:  # between articles
            pieces = pieces[-1:]


def paragraphs(markup: str) -> Iterator[str]:
    """The lines of running text in the markup of one article."""
    text = html.unescape(markup)  # entities that were escaped twice, such as &amp;nbsp;
    for pattern in _WHOLE:
        text = pattern.sub("", text)
    for pattern in (*_INNERMOST, _LINK):
        while (shorter := pattern.sub(_shown, text)) != text:  # templates, tables and links are nested
            text = shorter
    text = _PROSE_TAG.sub("", _ADDRESS.sub(lambda found: found[1] or "", text))
    text = _EMPHASIS.sub("", text)
    for line in text.split("\n"):
        if line[:1].isalnum() or line[:1] in "\"'":
            line = _tidy(line)
            if len(line) >= SHORTEST and line.rstrip("\"')")[-1:] in (".", "!", "?"):
                yield line


def _shown(link: re.Match[str]) -> str:
    """The visible part of [[article|shown]]; nothing of templates and tables."""
    return "" if link.re is not _LINK or _NOT_SHOWN.match(link[1]) else link[1].rsplit("|", 1)[-1]


def _tidy(line: str) -> str:
    """``line`` in ASCII with single spaces; empty if too much of it has no ASCII equivalent."""
    letters = plain(line)
    ascii_only = "".join(c if c.isprintable() or c == " " else " " for c in letters if ord(c) < 128)
    if len(letters) - len(ascii_only) > LOST * len(letters) or any(c in ascii_only for c in "[]{}|<>"):
        return ""
    ascii_only = _EMPTY_BRACKETS.sub("", ascii_only)
    return _BEFORE_SIGN.sub(r"\1", _SPACES.sub(" ", ascii_only)).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["text8", "prose"])
    parser.add_argument("dump", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--characters", type=int, help="stop after so many")
    given = parser.parse_args()
    count = extract(given.dump, given.out, given.kind, characters=given.characters, progress=show_progress("cleaning"))
    print(f"wrote {given.out}: {count:,} characters")


if __name__ == "__main__":
    main()
