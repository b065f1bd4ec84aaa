"""The words of texts by the segmental head of a model: scores of all segments, then the most probable segmentation."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.text.words.segmental import NONE, best_segmentation, sum_segmentations
from hmrnn.nn.predictor import evaluating

if TYPE_CHECKING:
    from hmrnn.kinds.text.network import LanguageModel

_SIDE_BY_SIDE = 256
_BLOCK = 512  # symbols that are read at a time, after as many before them
_COLUMNS = 16  # such blocks side by side
_SHARPNESS = 0.5
"""The factor of scores with which probabilities of ends come true: by repeated reading a head becomes too sure."""
_SOME = 0.003  # a segment that is less probable is not counted


class HeadScores:
    """Scores of all segments of a text, and what follows from them.

    Args:
        model: a language model with a segmental head.
        symbols: (T,): indices of the text.
        read: symbols at the start that are read but not cut, the prime; words begin after them.
        threshold: words end where that is at least so probable; by default, as in the most probable segmentation.
        progress: called with the symbols that are read, and their number.
    """

    def __init__(
        self,
        model: LanguageModel,
        symbols: np.ndarray,
        read: int = 0,
        threshold: float | None = None,
        progress: Progress = None,
    ) -> None:
        if model.segments is None:
            raise InputError("this model has no segmental head; use its detectors, or train with the preset words")
        if threshold is not None and not 0 < threshold < 1:
            raise InputError("must lie between 0 and 1", setting="threshold", value=threshold)
        self.head, self.longest, self.read = model.segments, model.segments.longest, read
        self.threshold = threshold
        self.device = next(model.parameters()).device
        self.symbols = np.concatenate([symbols.astype(np.int64), np.full(self.longest + 1, NONE)])
        self.rules = self.head.rules.cpu().numpy()  # type: ignore[operator]
        self.scores = np.zeros((len(symbols), self.longest), np.float32)
        with evaluating(model), torch.inference_mode():
            nothing = torch.zeros(1, 1, self.head.start.in_features, device=self.device)
            self._score(nothing, np.full((1, 1), -1), np.ones((1, 1), bool))
            self._read(len(symbols), progress)

    def _read(self, T: int, progress: Progress) -> None:
        """Score the segments in blocks, each read after the block before it."""
        starts = np.arange(0, T, _BLOCK)
        for first in (0, *range(1, len(starts), _COLUMNS)):
            begin = starts[first : first + _COLUMNS] if first else starts[:1]
            warmup = _BLOCK if first else 0
            at = begin + np.arange(-warmup, min(_BLOCK, T))[:, None]  # (T, B)
            within = np.minimum(at, T - 1)
            context = self.head.read(torch.from_numpy(self.symbols[within]).to(self.device))[warmup:]
            self._score(context, within[warmup:], at[warmup:] + 1 < T)
            if progress is not None:
                progress(int(within[-1, -1]) + 1, T)

    def _score(self, context: Tensor, at: np.ndarray, kept: np.ndarray) -> None:
        """Score the segments that begin after the steps ``at`` (T, B), those that are ``kept`` (T, B)."""
        after = at[:, None] + np.arange(1, self.longest + 2)[:, None]  # (T, K + 1, B)
        following = torch.from_numpy(self.symbols[after]).to(self.device)
        closed = self.head(context, following).closed
        self.scores[at[kept] + 1] = closed.float().movedim(1, 2).cpu().numpy()[kept]

    def words(self) -> np.ndarray:
        """(T,) bool: whether a word ends after each symbol; always at the last."""
        if self.threshold is not None:
            return self.chances() >= self.threshold
        result = np.zeros(len(self.scores), bool)
        for places, scores in self._batches():
            for (start, end), ends in zip(places, best_segmentation(scores)):
                result[start + np.array([each for each in ends if each <= end - start]) - 1] = True
        return result

    def chances(self) -> np.ndarray:
        """(T,) float32: the probability that a word ends after each symbol."""
        result = np.ones(len(self.scores), np.float32)
        for (start, end), segments in self._posteriors():
            result[start : end - 1] = segments.sum(1)[1:].clip(0, 1)
        return result

    def counts(self, least: float) -> dict[tuple[int, ...], float]:
        """How often each segment is expected, of those that are expected at least so often."""
        found: dict[bytes, float] = collections.defaultdict(float)
        for (start, _), segments in self._posteriors():
            at, length = np.nonzero(segments > _SOME)
            ends = (start + at + length + 1).tolist()
            for first, end, chance in zip((start + at).tolist(), ends, segments[at, length].tolist()):
                found[self.symbols[first:end].tobytes()] += chance
        return {tuple(np.frombuffer(key, np.int64).tolist()): n for key, n in found.items() if n >= least}

    def _posteriors(self) -> Iterator[tuple[list[int], np.ndarray]]:
        """The probabilities (T, K) of the segments of each part, and its start and end."""
        for places, scores in self._batches():
            segments = sum_segmentations(_SHARPNESS * scores).segments.numpy()
            for b, place in enumerate(places):
                yield place, segments[: place[1] - place[0], :, b]

    def _batches(self) -> Iterator[tuple[list[list[int]], Tensor]]:
        """Parts between cuts that must be, which are segmented by themselves, many of similar length side by side.

        Each batch has the start and the end of its parts and their scores (T, K, B), padded by single symbols.
        """
        text = self.symbols[: len(self.scores)]
        must = np.flatnonzero(self.rules[text[:-1], text[1:]] > 0) + 1
        edges = np.unique(np.concatenate([[self.read], must[must > self.read], [len(text)]])).tolist()
        parts = sorted(itertools.pairwise(edges), key=lambda part: part[1] - part[0])
        for k in range(0, len(parts), _SIDE_BY_SIDE):
            places = np.array(parts[k : k + _SIDE_BY_SIDE])
            lengths = places[:, 1] - places[:, 0]
            t, length = np.arange(lengths.max())[:, None, None], np.arange(1, self.longest + 1)[:, None]
            there = np.minimum(places[:, 0] + t[:, 0], len(text) - 1)  # (T, B)
            scores = self.scores[there].swapaxes(1, 2)
            scores = np.where(t + length <= lengths, scores, np.float32(-1e30))  # none reaches into the padding
            scores[:, 0][t[:, 0] >= lengths] = 0.0
            yield places.tolist(), torch.from_numpy(scores)
