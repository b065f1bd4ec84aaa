"""Transcriber: reads what lines of handwriting say, by connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig
from hmrnn.kinds.strokes.mixture import POINT_SIZE
from hmrnn.kinds.strokes.settings import TranscriptModelConfig
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import make_output
from hmrnn.nn.registry import make_rnn
from hmrnn.ops.interface import within

BLANK = 0
"""The symbol of a step at which no letter is said; those of letters follow."""
LIKELY = 1e-4
"""Letters less probable than this at a step are no part of a search."""


class Heard(NamedTuple):
    """What a network makes of lines."""

    chances: Tensor
    """(T, B, letters + 1): the logarithms of the probabilities of the blank and of each letter."""
    lengths: Tensor
    """(B,): the steps of each line."""
    out: Output
    state: Any


class Transcriber(nn.Module):
    """A recurrent network, in both directions unless ``config`` says otherwise, that names letters as it reads points.

    It reads ``config.stack`` points at a step: Δx, Δy, pen up, and the height in the line.
    """

    def __init__(
        self, config: TranscriptModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
    ) -> None:
        super().__init__()
        self.config, self.embedding = config, None
        self.points = nn.Linear((POINT_SIZE + 1) * config.stack, config.embedding_size)
        self.rnn: Any = make_rnn(config.embedding_size, config, engine, detectors)
        self.output = make_output(self.rnn.output_sizes, config)
        self.head = nn.Linear(self.output.size, 1 + len(config.alphabet))

    def forward(self, x: Tensor, lengths: Tensor) -> Heard:
        """Points (T, B, 3) of lines of the given lengths (B,)."""
        K = self.config.stack
        active = within(lengths, len(x))[..., None]
        y = torch.where(active, x[..., 1:2].cumsum(0), 0.0)
        y = y - y.sum(0) / lengths[:, None]
        y = torch.where(active, y, 0.0)
        y = y / (y.square().sum(0) / lengths[:, None]).sqrt().clamp(min=1e-3)
        x = F.pad(torch.cat([torch.where(active, x, 0.0), y], dim=-1), (0, 0, 0, 0, 0, -len(x) % K))
        stacked = x.unflatten(0, (-1, K)).movedim(1, 2).flatten(2)  # (T / K, B, 4 K)
        steps = (lengths + K - 1) // K
        out, state = self.rnn(self.points(stacked).tanh(), None, steps)
        read = self.output(out.hidden)
        with torch.autocast(x.device.type, enabled=False):
            scores = self.head(read.to(self.head.weight.dtype))
        return Heard(scores.log_softmax(-1), steps, out, state)


def nats(heard: Heard, letters: Tensor, counts: Tensor) -> Tensor:
    """(B,): -log of the probability of texts, (B, U) of letters from 1, of which each has its ``counts`` (B,)."""
    return F.ctc_loss(heard.chances, letters, heard.lengths, counts, BLANK, reduction="none", zero_infinity=True)


def likeliest(chances: np.ndarray) -> list[int]:
    """The letters of the likeliest path (T, letters + 1), which is nearly the likeliest text."""
    path = chances.argmax(1)
    changed = np.flatnonzero(np.diff(path, prepend=BLANK))
    return [int(k) for k in path[changed] if k != BLANK]


def search(chances: np.ndarray, width: int) -> list[tuple[list[int], float]]:
    """The likeliest texts and the logarithms of their probabilities, the best first, by prefix beam search.

    ``chances`` (T, letters + 1) are logarithms. Each prefix keeps two sums over its paths: of those that end in a blank
    and of those that end in its last letter.
    """
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for row in chances.astype(np.float64):
        after: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        letters = [int(k) for k in np.flatnonzero(row > math.log(LIKELY)) if k != BLANK]
        for prefix, (blank, said) in beam.items():
            both = float(np.logaddexp(blank, said))
            here = after[prefix]
            here[0] = float(np.logaddexp(here[0], both + row[BLANK]))
            if prefix:
                here[1] = float(np.logaddexp(here[1], said + row[prefix[-1]]))
            for k in letters:
                before = blank if prefix and prefix[-1] == k else both
                longer = after[(*prefix, k)]
                longer[1] = float(np.logaddexp(longer[1], before + row[k]))
        best = heapq.nlargest(width, after.items(), key=lambda item: float(np.logaddexp(item[1][0], item[1][1])))
        beam = {prefix: (sums[0], sums[1]) for prefix, sums in best}
    found = ((list(prefix), float(np.logaddexp(*sums))) for prefix, sums in beam.items())
    return [(letters, chance) for letters, chance in found if chance > -math.inf]


def spelled(letters: Sequence[int], alphabet: Sequence[str]) -> str:
    """Letters, counted from 1, as text."""
    return "".join(alphabet[k - 1] for k in letters)
