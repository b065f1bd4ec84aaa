"""HMForecaster: an estimator with scikit-learn's interface that predicts the next steps of series."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kinds.labels.corpus import LabelCorpus, forecast_corpus
from hmrnn.kinds.labels.estimators.base import is_whole
from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import ForecastModel, Series
from hmrnn.kinds.labels.presets import PRESETS
from hmrnn.kinds.labels.sequences import series_of

_PRESET = PRESETS["series"]  # of ``hmrnn train series``, which has the same defaults


class HMForecaster(SequenceEstimator):
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
    _model = ForecastModel
    _takes_rows = True
    # parameters beside those of SequenceEstimator
    steps: int
    window: int | None

    def __init__(
        self,
        steps: int = _PRESET.data.ahead,
        *,
        window: int | None = None,
        hidden_size: int | Sequence[int] = _PRESET.model.hidden_size[0],
        num_layers: int = _PRESET.model.num_layers,
        rnn: str = _PRESET.model.rnn,
        embedding_size: int = _PRESET.model.embedding_size,
        layer_norm: bool = _PRESET.model.layer_norm,
        rates: Sequence[float] | None = None,
        dropout: float = _PRESET.regularise.dropout_output,
        weight_decay: float = _PRESET.regularise.weight_decay,
        epochs: int = _PRESET.train.epochs,
        batch_size: int = _PRESET.train.batch_size,
        learning_rate: float = _PRESET.train.learning_rate,
        validation_fraction: float = _PRESET.data.valid_fraction,
        patience: int = _PRESET.train.patience,
        device: str | torch.device = "cpu",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def _check(self) -> None:
        super()._check()
        for name, least in (("steps", 1), ("window", 2)):
            value = getattr(self, name)
            if (name, value) != ("window", None) and (not is_whole(value) or value < least):
                raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}")

    def _config(self, seed: int) -> Config:
        config = super()._config(seed)
        data = dataclasses.replace(
            config.data, ahead=int(self.steps), window=None if self.window is None else int(self.window)
        )
        return dataclasses.replace(config, data=data)

    def _corpus(self, X: Series, y: None, config: Config, **how: Any) -> LabelCorpus:
        series, _, _, names = series_of(X)
        share = float(self.validation_fraction or 0)
        return forecast_corpus(series, config.data.ahead, config.data.reads, valid_fraction=share, channels=names)

    def fit(self, X: Series, y: None = None) -> HMForecaster:
        """Learn from one series or several; ``y`` is not used."""
        self._fit(X, None)
        return self

    def predict(self, X: Series, return_std: bool = False) -> Any:
        """(steps, channels) or, of a series (time,), (steps,): what follows; for a list of series, a list of these.

        With ``return_std`` also the deviations, in the same shape; they are the same for all series.
        """
        self._check_fitted()
        return self.model_.predict(X, return_std)

    def score(self, X: Series, y: None = None) -> float:  # type: ignore[override]
        """1 - squared error / that of repeating the last step: 1 is perfect, 0 is as good as no change."""
        self._check_fitted()
        return float(self.model_.score(X))
