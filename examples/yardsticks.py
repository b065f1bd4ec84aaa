"""Bits that simpler models need for the same text as a model of hmrnn: n-grams and xz.

python examples/yardsticks.py train.txt valid.txt
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import numpy as np

from hmrnn.errors import InputError


def unigram(train: np.ndarray, test: np.ndarray, num_symbols: int) -> float:
    """Bits per symbol of ``test`` under the symbol frequencies of ``train`` (Witten-Bell smoothing)."""
    return ngram(train, test, num_symbols, order=1)


def ngram(train: np.ndarray, test: np.ndarray, num_symbols: int, order: int = 5) -> float:
    """Bits per symbol of ``test`` under an interpolated n-gram model of ``train`` (Witten-Bell smoothing).

    P_n(s | context) = (count(context s) + kinds(context) · P_{n-1}(s)) / (count(context) + kinds(context)), where kinds
    is the number of different symbols seen after the context; below the unigram lies the uniform distribution.
    """
    if num_symbols**order > 2**63:
        raise InputError(f"runs of {order} out of {num_symbols} symbols are too many to count; lower the order")
    train, test = train.astype(np.int64), test.astype(np.int64)
    probability = np.full(len(test) - 1, 1.0 / num_symbols)  # of test[1:]
    for n in range(1, min(order, len(train), len(test)) + 1):
        grams, counts = np.unique(_grams(train, n, num_symbols), return_counts=True)
        contexts, first = np.unique(grams // num_symbols, return_index=True)
        totals, kinds = np.add.reduceat(counts, first), np.diff(np.append(first, len(grams)))
        asked = _grams(test, n, num_symbols)[max(0, 2 - n) :]
        scored = slice(max(0, n - 2), None)  # the first symbols of the test have shorter contexts
        seen = _look_up(grams, counts, asked)
        total, kind = (_look_up(contexts, values, asked // num_symbols) for values in (totals, kinds))
        mixed = (seen + kind * probability[scored]) / np.maximum(total + kind, 1)
        probability[scored] = np.where(total > 0, mixed, probability[scored])
    return float(-np.log2(probability).mean())


def xz(train: bytes, test: bytes) -> float:
    """Bits per byte that ``test`` adds to the output of ``xz -9`` for ``train``."""
    both, alone = (len(lzma.compress(data, preset=9)) for data in (train + test, train))
    return 8 * (both - alone) / len(test)


def _grams(symbols: np.ndarray, n: int, base: int) -> np.ndarray:
    """Every run of ``n`` symbols as one number, by the position of its last symbol."""
    result = np.zeros(len(symbols) - n + 1, dtype=np.int64)
    for k in range(n):
        result = result * base + symbols[k : len(symbols) - n + 1 + k]
    return result


def _look_up(keys: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The values of the ``asked`` keys; 0 for a key that is not among the sorted ``keys``."""
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, values[at], 0)


if __name__ == "__main__":
    texts = [Path(path).read_text(encoding="utf-8") for path in sys.argv[1:]]
    symbols = sorted(set("".join(texts)))
    train, test = (np.array([symbols.index(one) for one in text]) for text in texts)
    for order in (1, 5):
        print(f"{order}-gram, Witten-Bell: {ngram(train, test, len(symbols), order):.3f} bits per character")
    packed = xz(*(text.encode() for text in texts)) * len(texts[1].encode()) / len(texts[1])
    print(f"xz -9, after the first text: {packed:.3f} bits per character")
