"""LanguageModel: predicts the next symbol of a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from hmrnn.config import ModelConfig, SegmentConfig
from hmrnn.kinds.text.words.segmental import SegmentalHead
from hmrnn.nn.predictor import SymbolPredictor


class LanguageModel(SymbolPredictor):
    """A recurrent network that predicts the next symbol from those so far.

    Args:
        num_symbols: size of the vocabulary.
        config: sizes and options.
        segments: the segmental head; none by default.
        rules: (num_symbols, num_symbols): where the head must cut and must not (``kinds.text.words.joints.rules``).
        how: ``engine``, the implementation of the recurrence; ``detectors``, how those of "hm-lstm" and "hrnn" decide;
            ``given``, the boundaries that each symbol brings with it, of
            :class:`hmrnn.nn.predictor.SymbolPredictor`.

    Example::

        >>> model = LanguageModel(27, ModelConfig(hidden_size=(64,), embedding_size=16, output_size=64))
        >>> prediction, out, state = model(torch.randint(27, (100, 8)))
        >>> prediction.logits.shape
        torch.Size([100, 8, 27])
    """

    def __init__(
        self,
        num_symbols: int,
        config: ModelConfig,
        *,
        segments: SegmentConfig | None = None,
        rules: np.ndarray | None = None,
        **how: Any,
    ) -> None:
        super().__init__(num_symbols, config, **how)
        self.segments: SegmentalHead | None = None
        if segments is not None and segments.size:
            self.segments = SegmentalHead(
                num_symbols,
                segments.reader,
                longest=segments.longest,
                size=segments.size,
                rules=rules,
                lexicon=segments.lexicon,
                dropout=segments.dropout,
            )
