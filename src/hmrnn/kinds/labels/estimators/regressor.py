"""HMRegressor: an estimator with scikit-learn's interface that predicts a number, or several, for each sequence."""

from __future__ import annotations

import dataclasses
from typing import Any

from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import NumberModel


@dataclasses.dataclass(repr=False, eq=False, kw_only=True)
class HMRegressor(SequenceEstimator[NumberModel]):
    """Learns to predict a number, or several, for each sequence: text, list of tokens, or series of numbers.

    The network of :class:`HMClassifier`, with a Gaussian for each number in place of the softmax: its mean is the
    prediction, fitted by least squares, and its deviation is one for all sequences, that of the errors on the
    validation part. Follows scikit-learn's conventions without importing it: ``clone``, ``Pipeline``, ``GridSearchCV``,
    ``cross_val_score`` and ``TransformedTargetRegressor`` work.

    X is as for :class:`HMClassifier`; y is (n,) numbers, or (n, targets) for several, and ``predict`` gives the same
    shape. A list of arrays (steps,) or (steps, targets), as long as their sequences, is an answer for each step, or for
    each token, as of :class:`HMTagger`; ``bidirectional=True`` lets it depend on later steps. Numbers are scaled by
    their mean and deviation in the training part. ``score`` is R².

    Args:
        read_out: how the outputs of all steps become one: "attention", "mean", "max", "last", or "tree": a tree-LSTM
            over the hierarchy of segments, in one direction. Numbers of steps need none, nor ``attend``.
        dropout: share of the units that the read-out does not see while training.
        validation_fraction: as of :class:`HMClassifier`, but 0.1 also for few sequences: the held-out part measures the
            deviation.
        hidden_size, num_layers, rnn, bidirectional, embedding_size, layer_norm, attend, level, rates, weight_decay,
            epochs, batch_size, learning_rate, patience, device, random_state, verbose: as of :class:`HMClassifier`.

    Attributes after ``fit``: model_ (as :func:`hmrnn.load` returns it), n_iter_, loss_curve_ (validation, in nats of
    the scaled numbers) and n_features_in_, as of :class:`HMClassifier`.

    Example::

        >>> model = HMRegressor(hidden_size=8, epochs=3, random_state=0)
        >>> texts = ["ab" * k for k in range(1, 13)]
        >>> mean, deviation = model.fit(texts, range(1, 13)).predict(["abab", "ababab"], return_std=True)
        >>> mean.shape, deviation.shape
        ((2,), (2,))
    """

    _modality = "numbers"
    _kind = "regressor"
    _takes_rows = True
    bidirectional: bool = False
    read_out: str = "attention"
    attend: str = "steps"
    level: int = 1
    dropout: float = 0.0
    epochs: int = 100
    patience: int = 20
    validation_fraction: float | None = 0.1

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HMRegressor:
        """Learn from sequences and their numbers; ``sample_weight`` is one weight per sequence."""
        return self._fit(X, y, sample_weight=sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The numbers, in the shape of those of ``fit``; with ``return_std`` also their deviations, in the same shape.

        The deviation of a number is the same for all sequences.
        """
        return self._fitted.predict(X, return_std)
