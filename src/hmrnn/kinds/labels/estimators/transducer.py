"""HMTransducer: an estimator with scikit-learn's interface that turns sequences into other sequences."""

from __future__ import annotations

import dataclasses
from typing import Any

from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import PairModel


@dataclasses.dataclass(repr=False, eq=False, kw_only=True)
class HMTransducer(SequenceEstimator[PairModel]):
    """Learns to turn sequences into sequences of other lengths, such as spelling into sound.

    An HM-LSTM reads the first sequence, by default in both directions. A decoder, an LSTM, writes the second: before
    each symbol it chooses by attention from the memory of the first. With ``attend="segments"`` the memory holds one
    entry per segment of a level: the gated output of all layers where it ends.

    X is as for :class:`HMClassifier`; y is a list of texts, which are written character by character, or of lists of
    tokens. ``score`` is the share of sequences without an error, ``error_rate`` counts edits per symbol.

    Args:
        attend: "segments", or "steps": what the memory holds. A baseline, or a single layer, finds no segments, so its
            memory holds steps.
        level: the level of these segments.
        rates: boundary rates of the levels, the lowest first, at which the detectors are held; None: 0.75, and half of
            the rate below for each further level. The lower, the shorter the memory.
        beam: width of the beam search in ``predict``; 1: the likeliest symbol at each step.
        dropout: share of the units that the decoder does not see while training.
        hidden_size, num_layers, rnn, bidirectional, embedding_size, layer_norm, weight_decay, epochs,
            batch_size, learning_rate, validation_fraction, patience, device, random_state, verbose: as of
            :class:`HMClassifier`.
            No first sequence is in both parts that ``validation_fraction`` makes. ``hidden_size`` is also that of the
            decoder.

    Attributes after ``fit``: classes_ (the symbols that can be written), model_, n_iter_, loss_curve_,
    n_features_in_, as of :class:`HMClassifier`.

    Example::

        >>> words = ["ab", "ba", "abb", "bab", "aab", "bba"]
        >>> model = HMTransducer(hidden_size=8, epochs=2).fit(words, [word.upper() for word in words])
        >>> len(model.predict(["abab"]))
        1
    """

    _modality = "pairs"
    bidirectional: bool = True
    attend: str = "segments"
    level: int = 1
    beam: int = 1
    dropout: float = 0.1
    batch_size: int = 32

    def _given(self) -> dict[str, Any]:
        finds_none = self.rnn != "hm-lstm" or self.num_layers == 1
        return super()._given() | ({"model.attend": "steps"} if finds_none else {})

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HMTransducer:
        """Learn from sequences and what they are to be turned into."""
        return self._fit(X, y, sample_weight=sample_weight)

    @property
    def _how(self) -> dict[str, Any]:
        return {"beam": self.beam}

    def error_rate(self, X: Any, y: Any) -> float:
        """Edits (insertions, deletions, substitutions) per symbol of y."""
        return self._fitted.error_rate(X, y, **self._how)
