"""Text without spaces, and the positions of the removed spaces: the gold ends of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from hmrnn.reading.vocabulary import Kind

# White space inside a line. Line ends are kept.
CHARACTERS = np.array([0x09, 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000])
_BYTES = CHARACTERS[:2]


def is_space(codes: np.ndarray, kind: Kind) -> np.ndarray:
    """Which code points or byte values are white space inside a line (of bytes: space and tab)."""
    return np.isin(codes, _BYTES if kind == "bytes" else CHARACTERS)


def without_spaces(blocks: Iterable[np.ndarray], kind: Kind) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each block without its spaces; beside it (uint8) 1 where spaces followed a symbol, else 0."""
    held = np.zeros(
        0, np.uint32
    )  # the last symbol so far and the space after it, if any: the next block may start with spaces
    for block in blocks:
        codes = np.concatenate((held, block))
        space = is_space(codes, kind)
        kept = np.flatnonzero(~space)
        if kept.size == 0:
            continue
        held = codes[kept[-1] : kept[-1] + 2]
        yield codes[kept[:-1]], space[kept[:-1] + 1].astype(np.uint8)
    yield held[:1], np.full(len(held[:1]), len(held) == 2, np.uint8)
