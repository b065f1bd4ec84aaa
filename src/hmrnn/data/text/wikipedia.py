"""A Wikipedia dump made into text8: the words of its articles in lower case, digits spelled out, and single spaces.

The rules, their order and their quirks are those of the filter behind the published text8 (Mahoney, 2006), which is the
first 10⁸ characters of what it makes of the dump enwik9. Of enwik8, the first tenth of that dump, it makes 74,090,640
characters with the SHA-256 f0624e3bcaa8466848a2e176a150711d866df1c5edf491b5c28a258776524082.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from hmrnn.data.text.sources import Progress, Report, count_progress, read_blocks
from hmrnn.errors import InputError
from hmrnn.utils import files

_LONGEST = 1 << 26  # bytes up to the next ">"; the longest article of enwik9 has far fewer

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
        (rb"\[\[[a-z\-]*:[^\]]*\]\]", b""),  # the same article in other languages
        (rb"\[\[[^|\]]*\|", b"[["),  # [[article|shown]] -> [[shown]]
        (rb"\{\{[^}]*\}\}", b""),  # templates
        (rb"\{[^}]*\}", b""),  # tables
        (rb"[\[\]]", b""),
        (rb"&[^;]*;", b" "),  # entities that are left
    )
)
_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
_DIGITS = tuple(
    (b"%d" % digit, b" " + word + b" ")
    for digit, word in enumerate(b"zero one two three four five six seven eight nine".split())
)
_LETTERS_ONLY = bytes(code if 97 <= code <= 122 else 32 for code in range(256))


def clean_wikipedia(
    source: str | Path,
    target: str | Path,
    *,
    characters: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the cleaned text of the XML dump ``source`` to ``target`` and return its number of characters.

    The dump is read as a stream and may be packed (.xz, .gz, .bz2). ``characters`` cuts the text off at that length:
    10⁸ for text8. ``target`` appears when it is complete. ``progress`` is called with the bytes read and to read.
    """
    if characters is not None and characters < 1:
        raise InputError(f"characters must be at least 1; got {characters}")
    return write_cleaned(source, target, _clean, characters=characters, progress=progress)


def write_cleaned(
    source: str | Path,
    target: str | Path,
    clean: Callable[[Iterator[bytes]], Iterator[bytes]],
    *,
    characters: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write what ``clean`` makes of a dump, which it gets in pieces that end after each ``>``; gives its length."""
    source, target = Path(os.path.expanduser(source)), Path(os.path.expanduser(target))
    if not source.is_file():
        raise InputError(f"there is no file {source}; give a Wikipedia dump (XML)")
    if target.exists():
        raise InputError(f"{target} is already there; remove it or choose another name")
    written = 0
    with files.replacing(target, advice=files.ELSEWHERE) as file:
        for text in clean(_records(source, count_progress(progress, source.stat().st_size))):
            written += file.write(text if characters is None else text[: characters - written])
            if written == characters:
                break
        if written == 0:
            raise InputError(f"{source} holds no article between <text ...> and </text>; give a Wikipedia dump (XML)")
    return written


def _records(source: Path, report: Report) -> Iterator[bytes]:
    """The dump in pieces that end after each ``>``. Articles write it ``&gt;``, so each is whole in one piece."""
    rest = b""
    for block in read_blocks(source, report):
        *records, rest = (rest + block).split(b">")
        yield from (record + b">" for record in records)
        if len(rest) > _LONGEST:
            raise InputError(f'{source} is not XML: {_LONGEST} bytes without a ">"; give a Wikipedia dump')
    if rest:
        yield rest


def _clean(records: Iterator[bytes]) -> Iterator[bytes]:
    """The text of each record that belongs to an article, with a space before every word."""
    inside = False
    for record in records:
        inside = (inside or b"<text " in record) and not _REDIRECT.search(record)
        if inside:
            inside = b"</text>" not in record
            if words := _visible(record).split():
                yield b" " + b" ".join(words)


def _visible(record: bytes) -> bytes:
    """The words a reader would see: letters in lower case, anything else as spaces."""
    text = _TAG.sub(b"", record, count=1)
    text = text.replace(b"&amp;", b"&").replace(b"&lt;", b"<").replace(b"&gt;", b">")
    for pattern, shown in _MARKUP:
        text = pattern.sub(shown, text)
    text = text.translate(_LOWER)
    for digit, word in _DIGITS:
        text = text.replace(digit, word)
    return text.translate(_LETTERS_ONLY)
