"""HMClassifier: an estimator with scikit-learn's interface that gives a label to each sequence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hmrnn.kinds.labels.corpus import ClassWeight
from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import LabelModel


@dataclasses.dataclass(repr=False, eq=False, kw_only=True)
class HMClassifier(SequenceEstimator[LabelModel]):
    """Learns to label sequences: texts, lists of tokens, or series of numbers.

    An HM-LSTM reads a sequence; the gated output of all layers at every step is combined by attention, and a softmax
    gives the probability of each class. Follows scikit-learn's conventions without importing it: ``clone``,
    ``Pipeline``, ``GridSearchCV`` and ``cross_val_score`` work.

    X is a list of sequences of one kind: texts, which are read character by character; lists of tokens; or arrays
    (time, channels), or (time,) for one channel, of any lengths. An array (n, time, channels) or (n, time) is n series.
    Series are scaled by the mean and the deviation of each channel.

    Args:
        hidden_size: size of every layer, or one per layer.
        num_layers: number of layers; one fewer levels of segments.
        rnn: "hm-lstm", or a baseline: "lstm", "ln-lstm", "gru", "cw-rnn", "leaky", "peephole", "coupled", "skip",
            "echo-state", "time-delay", "output-rnn".
        bidirectional: read in both directions, with a network for each.
        embedding_size: of a symbol, or of the projection of the channels of a series.
        layer_norm: layer normalisation of an HM-LSTM.
        read_out: how the outputs of all steps become one: "attention", "mean", "max", "last", or "tree": a tree-LSTM
            over the hierarchy of segments, in one direction.
        attend: what attention chooses from: "steps", or "segments", of which it sees the last step of each.
        level: the level of these segments.
        rates: boundary rates of the levels, the lowest first, at which the detectors are held; None: 0.5, and half of
            the rate below for each further level.
        dropout: share of the units that the read-out does not see while training, and of a symbol's embedding.
        weight_decay: decoupled weight decay.
        epochs: largest number of passes over the training part; the learning rate falls to 0 over the last half.
        batch_size: sequences per update.
        learning_rate: of Adam.
        validation_fraction: share of the sequences held out to stop early; the model of the best validation is kept. 0:
            nothing is held out, all epochs are trained, and the training loss chooses. None: 0.1, or 0 of fewer than
            300 sequences, as so few held-out ones would choose by chance.
        patience: epochs without a better validation after which training stops.
        class_weight: weight of each class in the loss: a dict, "balanced", or None for 1.
        device: cpu, cuda, cuda:N or auto.
        random_state: seed of the split, the weights and all draws.
        verbose: print a line per epoch to standard error.

    Attributes after ``fit``: classes_, model_ (as :func:`hmrnn.load` returns it), n_iter_ (epochs), loss_curve_
    (validation, in nats), and n_features_in_ (channels, of series).

    Example::

        >>> model = HMClassifier(hidden_size=8, epochs=3, random_state=0)
        >>> texts = ["abab" * k for k in (2, 3, 4, 5)] + ["aabb" * k for k in (2, 3, 4, 5)]
        >>> model.fit(texts, ["fast"] * 4 + ["slow"] * 4).predict_proba(["ababab", "aabbaabb"]).shape
        (2, 2)
    """

    _modality = "labels"
    _kind = "classifier"
    _takes_rows = True
    bidirectional: bool = False
    read_out: str = "attention"
    attend: str = "steps"
    level: int = 1
    epochs: int = 100
    patience: int = 20
    class_weight: ClassWeight = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HMClassifier:
        """Learn from sequences and their labels, strings or numbers; ``sample_weight`` is one number per sequence."""
        return self._fit(X, y, sample_weight=sample_weight, class_weight=self.class_weight)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(sequences, classes): the probability of every class."""
        return self._fitted.predict_proba(X)
