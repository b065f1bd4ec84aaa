"""Where the words of a text end by a bigram model of words: hierarchical Pitman-Yor processes, sampled line by line.

A word is as probable as it is frequent after the word before it, mixed with how many words it follows, and with its
spelling, each symbol given the two before it. The cut of a line is drawn given those of all others (Mochihashi, Yamada
and Ueda, 2009; in the native library). Samples stay near the cut that they begin with: a better one is found, not the
most probable of all.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hmrnn.kinds.text.words.segmental import NONE, hashes, whole, windows
from hmrnn.ops.native import segmental as native

PIECE = 200
"""Lines are cut into pieces of at most so many symbols."""
_SWEEPS, _KEPT = 60, 30
_LISTED = 0.9  # of new words, the share that are in a list of known words, if there is one
_BLOCK = 100_000  # symbols that are looked up in that list at a time


def sampled_ends(
    symbols: np.ndarray,
    separators: np.ndarray,
    rules: np.ndarray,
    places: Tensor,  # (T, own columns): of the symbols whose words are counted; NONE after each line
    text: Tensor,  # (T, B): the symbols there, then in further columns lines with given ends
    first: Tensor,  # (T, B) bool: the cut to begin with
    longest: int,
    known: Collection[tuple[int, ...]] = (),
) -> np.ndarray:
    """(N,) float32: the probability of an end after each symbol; NaN at separators."""
    inside = text.mT >= 0
    begins = inside & ~F.pad(inside[:, :-1], (1, 0))
    own, read = places.mT[places.mT >= 0].numpy(), text.mT[inside]
    left = ~np.isin(symbols, separators)
    left[own] = False
    rest = np.flatnonzero(left)
    index = np.arange(len(rest))
    since = index - np.maximum.accumulate(np.where(np.diff(rest, prepend=-2) > 1, index, 0))
    starts = begins[inside].nonzero()[:, 0]
    more = torch.from_numpy(np.append(np.flatnonzero(since % PIECE == 0), len(rest)))
    x = torch.cat([read, torch.from_numpy(symbols[rest])])
    ends = native.sample_ends(
        x,
        torch.cat([starts, len(read) + more]),
        F.pad(torch.from_numpy(rules)[x[:-1], x[1:]], (0, 1), value=1),
        F.pad(first.mT[inside], (0, len(rest))).char(),
        F.pad(starts >= len(own), (0, len(more) - 1)).char(),
        _listed(x, known, longest) if known else None,
        counted=len(starts),
        longest=longest,
        signs=len(rules),
        sweeps=_SWEEPS,
        kept=_KEPT,
        known=(1 - _LISTED, _LISTED / len(known)) if known else (1.0, 0.0),
    ).numpy()
    result = np.full(len(symbols), np.nan, np.float32)
    result[own], result[rest] = ends[: len(own)], ends[len(read) :]
    return result


def _listed(x: Tensor, known: Collection[tuple[int, ...]], longest: int) -> Tensor:
    """(N, longest) int8: whether the segments from each place are known words."""
    keys = whole(pad_sequence([torch.tensor(word) for word in known], padding_value=NONE))
    following = windows(x[:, None], longest)[:, :-1, 0].T  # (longest, N)
    return torch.cat([torch.isin(hashes(part), keys).T.char() for part in following.split(_BLOCK, 1)])
