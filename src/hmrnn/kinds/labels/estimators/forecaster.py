"""HMForecaster: an estimator with scikit-learn's interface that predicts the next steps of series."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hmrnn.config import Config
from hmrnn.kinds.labels.corpus import LabelCorpus, forecast_corpus
from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import ForecastModel, Series
from hmrnn.kinds.labels.sequences import series_of


@dataclasses.dataclass(repr=False, eq=False, kw_only=True)
class HMForecaster(SequenceEstimator[ForecastModel]):
    """Learns to predict the next steps of series, with the deviation of the errors for each step ahead.

    X is one series or a list of them: an array (time, channels) or (time,), a tensor, a nested list, or a table with a
    row per step. ``fit`` cuts the series into stretches of ``window`` steps and learns, at every step of their later
    halves, how far each of the next ``steps`` steps will be from this one: all at once, so errors do not build up from
    step to step. ``predict`` reads the last ``window`` steps of a series. Follows scikit-learn's conventions without
    importing it.

    The last tenth of each series is held out: it chooses the epoch and gives the deviations. Each window is read
    without the mean of its first half, so a trend goes on. Channels are scaled by their deviation over all series, so
    give series of very different sizes on one scale, such as logarithms.

    Args:
        steps: how many steps to predict.
        window: how many steps a forecast reads; more than a season. None: 64, or twice ``steps`` if that is more.
        dropout: share of the units that the output does not see while training.
        validation_fraction: share of each series, at its end, that is held out, at least ``steps``; 0 holds out
            nothing, trains all epochs, and gives deviations that are too small.
        hidden_size, num_layers, rnn, embedding_size, layer_norm, rates, weight_decay, epochs, batch_size,
            learning_rate, patience, device, random_state, verbose: as of :class:`HMClassifier`.

    Attributes after ``fit``: model_ (as :func:`hmrnn.load` returns it), n_iter_, loss_curve_ and n_features_in_, as of
    :class:`HMRegressor`.

    Example::

        >>> series = np.sin(np.arange(300) / 5)
        >>> model = HMForecaster(steps=10, hidden_size=8, epochs=2).fit(series)
        >>> ahead, deviation = model.predict(series, return_std=True)
        >>> ahead.shape, deviation.shape
        ((10,), (10,))
    """

    _modality = "series"
    _takes_rows = True
    steps: int = dataclasses.field(default=10, kw_only=False)
    window: int | None = None
    hidden_size: int | Sequence[int] = 64
    num_layers: int = 2
    dropout: float = 0.0
    epochs: int = 100
    patience: int = 20
    batch_size: int = 8
    validation_fraction: float | None = 0.1

    def _corpus(self, X: Series, y: None, config: Config, **how: Any) -> LabelCorpus:
        series, _, _, names = series_of(X)
        share = float(self.validation_fraction or 0)
        return forecast_corpus(series, config.data.ahead, config.data.reads, valid_fraction=share, channels=names)

    def fit(self, X: Series, y: None = None) -> HMForecaster:
        """Learn from one series or several; ``y`` is not used."""
        return self._fit(X, None)

    def predict(self, X: Series, return_std: bool = False) -> Any:
        """(steps, channels) or, of a series (time,), (steps,): what follows; for a list of series, a list of these.

        With ``return_std`` also the deviations, in the same shape; they are the same for all series.
        """
        return self._fitted.predict(X, return_std)

    def score(self, X: Series, y: None = None) -> float:  # type: ignore[override]
        """1 - squared error / that of repeating the last step: 1 is perfect, 0 is as good as no change."""
        return self._fitted.score(X)
