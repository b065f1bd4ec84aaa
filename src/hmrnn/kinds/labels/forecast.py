"""ForecastModel: the next steps of series, as HMForecaster learns them and ``hmrnn.load`` returns it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch

from hmrnn.errors import InputError
from hmrnn.kinds.labels.corpus import Examples
from hmrnn.kinds.labels.decision import Decision
from hmrnn.kinds.labels.evaluate import evaluate_labelled, segmentation
from hmrnn.kinds.labels.forecasts import forecast_examples
from hmrnn.kinds.labels.model import LabelledModel
from hmrnn.kinds.labels.networks import StepRegressorModel
from hmrnn.kinds.labels.numbers import Numbers
from hmrnn.kinds.labels.series import GivenSeries, Series, series_of
from hmrnn.nn.output import Output


class ForecastModel(LabelledModel):
    """The next steps of a series; X is one series, (time, channels) or (time,), or a list of them."""

    network: StepRegressorModel

    @property
    def numbers(self) -> Numbers:
        """The scale of the changes, how many steps they look ahead, and how many one reads."""
        return cast(Numbers, self.labelling.numbers)

    @property
    def deviation(self) -> np.ndarray:
        """(steps, channels): the deviation of the errors on the validation part of the training."""
        found = self.network.deviation.double().cpu().numpy() * self.numbers.deviation
        return found.reshape(self.numbers.ahead, -1)

    def predict(self, X: Series, return_std: bool = False) -> Any:
        """(steps, channels) or, of a series (time,), (steps,): what follows; for a list of series, a list of these.

        With ``return_std`` also the deviations, in the same shape: those of ``deviation``, the same for all.
        """
        series, single, flat, _ = self._given(X)
        found = self._in_order((k, ahead) for k, ahead, _ in self._ahead(series))
        answers, sure = [_flat(one, flat) for one in found], [_flat(self.deviation, flat) for _ in found]
        if single:
            return (answers[0], sure[0]) if return_std else answers[0]
        return (answers, sure) if return_std else answers

    def score(self, X: Series, y: None = None) -> float:  # type: ignore[override]
        """1 - squared error / that of repeating the last step: 1 is perfect, 0 is as good as no change.

        Forecasts from all steps before which half a window is known, or half of the series if that is less; ``steps``
        steps must follow. Channels count in units of their deviations in training. Of series that never change, which
        repeating meets, 1 if the forecasts meet them, else 0.
        """
        series = self._given(X).series
        least = self.numbers.ahead + 1
        if short := [len(one) for one in series if len(one) < least]:
            raise InputError(f"to score forecasts, a series must have {least} or more steps; got {min(short)}")
        return self.skill(forecast_examples(self.labelling, series))

    def skill(self, examples: Examples) -> float:
        """As :meth:`score`, of the answers of encoded stretches."""
        numbers, scale = self.numbers, np.tile(self.labelling.deviation, self.numbers.ahead)
        result = evaluate_labelled(self.network, examples)
        error = float((np.array(result.squares) * np.square(np.array(numbers.deviation) / scale)).sum())
        changes = np.concatenate([numbers.decode(one) for one in examples.targets]) / scale
        without = float(np.square(changes).mean(axis=0).sum())
        return 1 - error / without if without > 0 else float(error == 0)

    def explain(self, X: Series) -> list[Decision]:
        """For each series the steps to come with their deviations, the segments found, and the weight of each step."""
        series, _, flat, _ = self._given(X)
        found = []
        for k, ahead, (out, row, weights, item) in self._ahead(series, weigh=True):
            shown = segmentation(self.network, out, row, self.labelling.pieces(item))
            answer, sure = _flat(ahead, flat).tolist(), _flat(self.deviation, flat).tolist()
            found.append((k, Decision(answer, {}, shown, weights, True, sure)))
        return self._in_order(found)

    def _given(self, X: Series) -> GivenSeries:
        found = series_of(X, self.labelling.channels, least=1)
        if (channels := found.series[0].shape[1]) != self.labelling.size:
            raise InputError(f"X has {channels} channels, but this model was fitted with {self.labelling.size}")
        return found

    def _ahead(
        self, series: list[np.ndarray], weigh: bool = False
    ) -> Iterator[tuple[int, np.ndarray, tuple[Output, int, np.ndarray, np.ndarray]]]:
        """For each series, in any order: its place, what follows (steps, channels), and the rest.

        The rest is the output, its row, with ``weigh`` the weights of the steps (steps read,), and the steps read.
        """
        items = [one[-self.numbers.window :] for one in series]
        for chosen, (inputs, lengths, _, _) in self._groups(list(items)):
            last = (lengths - 1)[None]
            means, encoded = self.network.predict(inputs, lengths, last)
            weights = torch.zeros(1, len(inputs), len(chosen))
            if weigh:
                weights = self.network.weights(inputs, lengths, last, last, torch.ones_like(lengths)).cpu()
            changes = self.numbers.decode(means[0].double().cpu().numpy())
            for row, k in enumerate(chosen):
                item = items[k]
                ahead = item[-1] + changes[row].reshape(self.numbers.ahead, -1)
                yield k, ahead, (encoded.out, row, weights[0, : len(item), row].float().numpy(), item)


def _flat(ahead: np.ndarray, flat: bool) -> np.ndarray:
    """(steps, channels), without the last axis if the series had none."""
    return ahead[:, 0] if flat else ahead
