"""LanguageModel: predicts the next symbol of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from hmrnn.config import DetectorConfig, ModelConfig, SegmentConfig
from hmrnn.errors import InputError
from hmrnn.kinds.text.words.segmental import Scores, SegmentalHead
from hmrnn.nn.context import Condition
from hmrnn.nn.distributions import Categorical
from hmrnn.nn.output import Output
from hmrnn.nn.predictor import SymbolPredictor
from hmrnn.ops import State

LEAST = 1e-3
"""Least probability that a ridge regression gives to a symbol, before all are normalised."""


class LanguageModel(SymbolPredictor):
    """A recurrent network that predicts the next symbol from those so far.

    Args:
        num_symbols: size of the vocabulary.
        config: sizes and options.
        engine: the implementation of the recurrence.
        given: (num_symbols, num_layers - 1) the boundaries that each symbol brings with it, NaN where the detector
            decides (``Vocabulary.boundaries``); needed by "hrnn".
        detectors: how the detectors of "hm-lstm" and "hrnn" decide.
        segments: the segmental head; none by default.
        rules: (num_symbols, num_symbols): where the head must cut and must not (``kinds.text.words.joints.rules``).

    Example::

        >>> model = LanguageModel(27, ModelConfig(hidden_size=(64,), embedding_size=16, output_size=64))
        >>> logits, out, state = model(torch.randint(27, (100, 8)))
        >>> logits.shape
        torch.Size([100, 8, 27])
    """

    given: Tensor | None
    """(symbols, L-1): the boundaries given with each symbol, NaN where the detector decides; None if all decide."""

    def __init__(
        self,
        num_symbols: int,
        config: ModelConfig,
        *,
        engine: str = "auto",
        given: np.ndarray | None = None,
        detectors: DetectorConfig | None = None,
        segments: SegmentConfig | None = None,
        rules: np.ndarray | None = None,
    ) -> None:
        super().__init__(num_symbols, config, engine=engine, detectors=detectors)
        expected = (num_symbols, self.rnn.num_boundaries)
        if config.rnn == "hrnn" if given is None else given.shape != expected:
            got = "none" if given is None else f"shape {given.shape}"
            raise InputError(f"the boundaries given with each symbol must have shape {expected}; got {got}")
        self.register_buffer("given", None if given is None else torch.from_numpy(given), persistent=False)
        if config.ridge:  # until it is fitted, all symbols are equally likely
            nn.init.zeros_(self.softmax.weight)
            nn.init.zeros_(self.softmax.bias)
        self.segments: SegmentalHead | None = None
        if segments is not None and segments.size:
            self.segments = SegmentalHead(
                num_symbols,
                segments.reader or sum(self.rnn.hidden_sizes),
                longest=segments.longest,
                size=segments.size,
                rules=rules,
                lexicon=segments.lexicon,
                dropout=segments.dropout,
                reader=segments.reader > 0,
            )

    def forward(
        self,
        symbols: Tensor,  # (T, B)
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
        condition: Condition | None = None,
    ) -> tuple[Tensor, Output, State]:
        """Logits (T, B, number of symbols) of the symbol that follows each one, the network's output and its state."""
        prediction, out, state = self.predict(symbols, state, lengths, boundaries, condition)
        return prediction.logits, out, state

    def expect(self, embedding: Tensor) -> Categorical:
        """From the softmax; a ridge regression gives probabilities, some of them negative."""
        scores = self.softmax(embedding)
        return Categorical(scores.float().clamp(min=LEAST).log() if self.config.ridge else scores)

    def boundaries(self, x: Tensor) -> Tensor | None:
        """(..., L-1): the boundaries given with the symbols; None if there are none."""
        return None if self.given is None else self.given[x.long().clamp(0, self.num_symbols - 1)]

    def score_segments(self, symbols: Tensor, hidden: Sequence[Tensor], following: Tensor) -> Scores:
        """The segmental head's scores (T, K, B) of segments that begin after each step.

        Args:
            symbols: (T, B): the symbol that is read at each step; needed by a head with a reader of its own.
            hidden: h of all layers, L tensors (T, B, H_l); needed by other heads.
            following: (T, K + 1, B): the symbols after each step, from ``segmental.windows``.
        """
        if self.segments is None:
            raise InputError(
                "this model has no segmental head; train one with it, as the preset words does", setting="segments.size"
            )
        context = torch.cat(list(hidden), dim=-1) if self.segments.reader is None else self.segments.read(symbols)
        return cast(Scores, self.segments(context, following))
