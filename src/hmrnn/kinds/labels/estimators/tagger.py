"""HMTagger: an estimator with scikit-learn's interface that gives a tag to each step or token of a sequence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Self

import numpy as np

from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import TagModel
from hmrnn.nn.checks import argument


@dataclasses.dataclass(repr=False, eq=False, kw_only=True)
class HMTagger(SequenceEstimator[TagModel]):
    """Learns to tag every step of sequences: the characters of texts, tokens, or the steps of series of numbers.

    An HM-LSTM reads a sequence, by default in both directions, and the gated output of all layers at a step decides on
    its tag: by a softmax, or by a linear-chain CRF, which also learns which tags follow each other.

    X is as for :class:`HMClassifier`; y is a list of tags for each sequence, one per step. Tokens of more than one
    character are spelled out: the network reads their characters, each token followed by a space, at which its tag is
    read. So it can tag words that it has never seen, and its segments may be parts of words, or phrases.

    Args:
        crf: a linear-chain CRF over the tags of a sequence; False: a softmax per tag.
        spelled: whether to spell tokens out; None: if any has more than one character. False: a token is a symbol, and
            unseen ones are all the same.
        dropout: share of the units that the read-out does not see while training.
        hidden_size, num_layers, rnn, bidirectional, embedding_size, layer_norm, rates, weight_decay, epochs,
            batch_size, learning_rate, validation_fraction, patience, device, random_state, verbose: as of
            :class:`HMClassifier`.

    Attributes after ``fit``: classes_, model_, n_iter_, loss_curve_, n_features_in_, as of :class:`HMClassifier`.

    Example::

        >>> sentences = [["the", "cat", "sat"], ["a", "dog", "ran"], ["the", "dog", "sat"]]
        >>> tags = [["D", "N", "V"]] * 3
        >>> HMTagger(hidden_size=8, epochs=2).fit(sentences, tags).predict_proba([["a", "cat"]])[0].shape
        (2, 3)
    """

    _modality = "tags"
    bidirectional: bool = True
    crf: bool = False
    spelled: bool | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HMTagger:
        """Learn from sequences and their tags; ``sample_weight`` is one number per sequence."""
        spelled = argument("spelled", self.spelled, bool | None)
        return self._fit(X, y, sample_weight=sample_weight, spelled=spelled)

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """For each sequence (steps, tags): the probability of every tag; with a CRF the marginals."""
        return self._fitted.predict_proba(X)

    @classmethod
    def load(cls, source: str | Path, *, device: str = "cpu") -> Self:
        self = super().load(source, device=device)
        self.spelled = self.model_.reads.spelled
        return self
