"""The words of texts by the segmental head of a model: scores of all segments, then the most probable segmentation."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

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
_SYMBOLS = 8192  # in blocks that are read side by side
_SHARPNESS = 0.5
"""The factor of scores with which probabilities of ends come true: by repeated reading a head becomes too sure."""
DRAWN = 10_000
_SOME = 0.001  # a segment that is less probable is not counted


class HeadScores:
    """Scores of all segments of texts, and what follows from them.

    Args:
        model: a language model with a segmental head.
        texts: (T,) each: indices of a text, which is read by itself; ``symbols`` has all of them, a NONE after each.
        read: symbols at the start of each text that are read but not cut, the prime; words begin after them.
        threshold: words end where that is at least so probable; by default, as in the most probable segmentation.
        progress: called with the symbols that are read, and their number.
    """

    def __init__(
        self,
        model: LanguageModel,
        texts: Sequence[np.ndarray],
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
        self.ends = np.cumsum([len(text) + 1 for text in texts]) - 1
        self.starts = self.ends - [len(text) for text in texts]
        parts = [part for text in texts for part in (text, [NONE])]
        self.symbols = np.concatenate([*parts, np.full(self.longest, NONE)]).astype(np.int64)
        self.rules = self.head.rules.cpu().numpy()  # type: ignore[operator]
        self.scores = np.zeros((len(self.symbols) - self.longest, self.longest), np.float32)
        with evaluating(model), torch.inference_mode():
            nothing = torch.zeros(1, len(texts), self.head.start.in_features, device=self.device)
            self._score(nothing, self.starts[None] - 1, np.ones((1, len(texts)), bool))
            self._read(progress)

    def _read(self, progress: Progress) -> None:
        """Score the segments in blocks, each but the first of a text read after the block before it."""
        blocks = sorted(
            (_BLOCK if begin > start else 0, min(_BLOCK, end - begin), begin, end)
            for start, end in zip(self.starts.tolist(), self.ends.tolist())
            for begin in range(start, end, _BLOCK)
        )
        done = 0
        while blocks:
            warmup, longest, _, _ = blocks[-1]
            some = [block for block in blocks[-(_SYMBOLS // longest) :] if block[0] == warmup]
            del blocks[-len(some) :]
            _, lengths, begin, ends = np.array(some).T
            at = begin + np.arange(-warmup, longest)[:, None]  # (T, B)
            within = np.minimum(at, begin + lengths - 1)
            context = self.head.read(torch.from_numpy(self.symbols[within]).to(self.device))[warmup:]
            self._score(context, within[warmup:], (at == within)[warmup:] & (at[warmup:] + 1 < ends))
            done += int(lengths.sum())
            if progress is not None:
                progress(done, len(self.scores) - len(self.ends))

    def _score(self, context: Tensor, at: np.ndarray, kept: np.ndarray) -> None:
        """Score the segments that begin after the steps ``at`` (T, B), those that are ``kept`` (T, B)."""
        after = at[:, None] + np.arange(1, self.longest + 2)[:, None]  # (T, K + 1, B)
        following = torch.from_numpy(self.symbols[after]).to(self.device)
        closed = self.head(context, following).closed
        self.scores[at[kept] + 1] = closed.float().movedim(1, 2).cpu().numpy()[kept]

    def words(self) -> list[np.ndarray]:
        """Of each text (T - read,) bool: whether a word ends after each symbol; always at the last."""
        if self.threshold is not None:
            return [chances >= self.threshold for chances in self.chances()]
        result = np.zeros(len(self.scores), bool)
        for places, scores in self._batches():
            for (start, end), ends in zip(places, best_segmentation(scores)):
                result[start + np.array([each for each in ends if each <= end - start]) - 1] = True
        return self._each(result)

    def chances(self) -> list[np.ndarray]:
        """Of each text (T - read,) float32: the probability that a word ends after each symbol."""
        result = np.ones(len(self.scores), np.float32)
        for (start, end), segments in self._posteriors():
            result[start : end - 1] = segments.sum(1)[1:].clip(0, 1)
        return self._each(result)

    def _each(self, found: np.ndarray) -> list[np.ndarray]:
        return [found[start:end] for start, end in zip(self.starts + self.read, self.ends)]

    def counts(self) -> dict[tuple[int, ...], float]:
        """How often each segment is expected."""
        found: dict[bytes, float] = collections.defaultdict(float)
        for (start, _), segments in self._posteriors():
            at, length = np.nonzero(segments > _SOME)
            ends = (start + at + length + 1).tolist()
            for first, end, chance in zip((start + at).tolist(), ends, segments[at, length].tolist()):
                found[self.symbols[first:end].tobytes()] += chance
        return {tuple(np.frombuffer(key, np.int64).tolist()): n for key, n in found.items()}

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
        first = (self.starts + self.read)[np.searchsorted(self.starts, must, "right") - 1]
        edges = np.unique(np.concatenate([self.starts + self.read, must[must > first], self.ends]))
        pairs = itertools.pairwise(edges.tolist())
        between = {*self.ends.tolist()}
        parts = sorted((pair for pair in pairs if pair[0] not in between), key=lambda part: part[1] - part[0])
        for k in range(0, len(parts), _SIDE_BY_SIDE):
            places = np.array(parts[k : k + _SIDE_BY_SIDE])
            lengths = places[:, 1] - places[:, 0]
            t, length = np.arange(lengths.max())[:, None, None], np.arange(1, self.longest + 1)[:, None]
            there = np.minimum(places[:, 0] + t[:, 0], len(text) - 1)  # (T, B)
            scores = self.scores[there].swapaxes(1, 2)
            scores = np.where(t + length <= lengths, scores, np.float32(-1e30))  # none reaches into the padding
            scores[:, 0][t[:, 0] >= lengths] = 0.0
            yield places.tolist(), torch.from_numpy(scores)


def draw_words(model: LanguageModel, symbols: np.ndarray, draws: int, seed: int = 1) -> dict[tuple[int, ...], float]:
    """Words that the head spells, not takes from its lexicon, after the ends of words in a text (T,): the DRAWN most
    frequent of so many draws, and the share that each has of all words.
    """
    head, generator = model.segments, torch.Generator().manual_seed(seed)
    assert head is not None
    [ends] = HeadScores(model, [symbols]).words()
    columns = max(1, len(symbols) // _BLOCK)
    length = len(symbols) // columns
    device = next(model.parameters()).device
    after = torch.from_numpy(ends[: columns * length].nonzero()[0])
    found: dict[tuple[int, ...], float] = collections.defaultdict(float)
    with evaluating(model), torch.inference_mode():
        text = torch.from_numpy(symbols[: columns * length].astype(np.int64)).reshape(columns, length).to(device)
        context = head.read(text.T).transpose(0, 1).flatten(0, 1)
        for count in (min(_SIDE_BY_SIDE**2, draws - k) for k in range(0, draws, _SIDE_BY_SIDE**2)):
            places = after[torch.randint(len(after), (count,), generator=generator)]
            words, spelt = head.draw(context[places.to(device)], generator)
            for word, share in zip(words.tolist(), spelt.tolist()):
                found[tuple(k for k in word if k >= 0)] += share / draws
    rules = cast(Tensor, head.rules).cpu()
    whole = (word for word in found if not (rules[word[:-1], word[1:]] > 0).any())
    return {word: found[word] for word in sorted(whole, key=lambda word: -found[word])[:DRAWN]}
