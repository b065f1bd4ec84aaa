"""HMSegmenter: an estimator with scikit-learn's interface that segments real-valued series on several levels."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from hmrnn.data.labels.sequences import scale_of, scaled
from hmrnn.data.labels.series import Series, series_of
from hmrnn.errors import InputError
from hmrnn.estimators.base import Estimator, is_whole, seed_of
from hmrnn.estimators.network import FLOOR, Network, Streams
from hmrnn.ops import State
from hmrnn.ops.estimators import OnCopy
from hmrnn.utils.devices import find_device

_ABREAST = 64  # most series in a batch of predict, transform and score
_MOST = 1 << 18  # most steps in such a batch, padding included: it bounds memory
_FEWEST = 16  # a CPU reads series one by one unless a batch holds this many times the steps of its longest


class FitWarning(UserWarning):
    """A fit that should not be relied on: it predicts worse than a constant, or misses ``segment_lengths``."""


class HMSegmenter(Estimator):
    """Experimental: learns to predict real-valued series, and reports where the segments of each level end.

    For change points use the packages ruptures or claspy (ClaSP), which are more accurate and faster. On 15 series of
    the TSSB benchmark HMSegmenter reached a mean Covering of 0.41 at best, where ClaSP has 0.88, K pieces of equal
    length 0.71 and no cuts 0.35. On weekly CO₂ every step was an end. On series with jumps like that of the example,
    Pelt of ruptures found them with an F1 of 0.999 in 0.8 s, HMSegmenter with 0.83 to 0.98 in 24 s. (These figures were
    measured before short series carried their state through training.) ``fit`` issues a :class:`FitWarning` if the
    model predicts worse than a constant Gaussian, or if ``predict`` misses the rate of a level by more than a factor of
    two.

    Follows scikit-learn's conventions (``get_params``, ``set_params``, attributes that end in ``_`` after ``fit``)
    without importing it. A series is an array (time, channels), or (time,) for one channel, a tensor or a nested list;
    X is one series or a list of them (an array of three dimensions is such a list).

    For each level a mixture of Gaussians predicts the next step from the layers above that level, which change only
    when a segment of the level ends. So a segment is a stretch that one distribution fits. Training starts with a
    boundary at every step. Between 20 % and 60 % of the updates the biases of the detectors lead the rates down to what
    ``segment_lengths`` asks for; the gradient decides where the boundaries are. The lowest detector starts as a
    detector of large changes, and all detectors learn more slowly than the other weights. A detector fires when it
    reads the first step that does not fit, so the cut is placed before that step.

    Args:
        segment_lengths: desired mean lengths: steps per segment of level 1, segments of level 1 per segment of level 2,
            and so on. The network has one layer more than there are levels.
        hidden_size: size of every layer, or one per layer.
        mixtures: Gaussians (diagonal) in the mixture for the next step.
        updates: number of training updates, each on ``batch_size`` stretches of ``length`` steps.
        batch_size: stretches per update; fewer if the series are too short.
        length: steps of truncated backpropagation; the state is carried over.
        learning_rate: Adam's; falls to zero over the last quarter of the updates.
        n_init: number of trainings from different weights; the one with the lowest final loss is kept. Boundaries,
            above all those of the upper levels, differ from run to run.
        on_copy: "hold" or "evaluate", as in :class:`hmrnn.HMLSTM`.
        device: where to train: cpu, cuda, cuda:N or auto; a fitted model computes where ``network_`` is.
        random_state: seed of weights and draws: a whole number, a ``RandomState`` to draw it from, or None for a new
            one each time.
        verbose: print the loss to standard error after every tenth of the updates.

    Attributes after ``fit``: ``network_``, ``n_features_in_``, ``channels_`` (the names of the columns of a table),
    ``mean_``, ``scale_``, ``loss_curve_`` (nats per step, mean over levels) and ``rates_`` (for each level the share of
    the steps of X at which ``predict`` cuts).

    Example::

        >>> rng = np.random.default_rng(0)
        >>> x = np.repeat(rng.normal(size=(200, 1)), 10, axis=0) + 0.1 * rng.normal(size=(2000, 1))
        >>> model = HMSegmenter(segment_lengths=(10,)).fit(x)  # doctest: +SKIP
        >>> model.predict(x)[0]  # ends of level 1; the last is 2000  # doctest: +SKIP
    """

    def __init__(
        self,
        segment_lengths: Sequence[float] = (10, 4),
        *,
        hidden_size: int | Sequence[int] = 24,
        mixtures: int = 1,
        updates: int = 300,
        batch_size: int = 128,
        length: int = 12,
        learning_rate: float = 0.02,
        n_init: int = 1,
        on_copy: str = "hold",
        device: str | torch.device = "cpu",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.segment_lengths = segment_lengths
        self.hidden_size = hidden_size
        self.mixtures = mixtures
        self.updates = updates
        self.batch_size = batch_size
        self.length = length
        self.learning_rate = learning_rate
        self.n_init = n_init
        self.on_copy = on_copy
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Series, y: None = None) -> HMSegmenter:
        """Learn from one series or several; ``y`` is not used."""
        series, _, _, names = series_of(X)
        self._check()
        device, seed = find_device(self.device), seed_of(self.random_state)
        whole = np.concatenate(series)
        mean, scale = scale_of(whole)
        read = [scaled(one, mean, scale) for one in series]
        runs = [self._train(read, device, seed + k) for k in range(self.n_init)]
        last = max(1, self.updates // 10)
        network, losses = min(runs, key=lambda run: float(np.mean(run[1][-last:])))
        self.n_features_in_: int = whole.shape[1]  # from here on nothing fails: the attributes belong to one fit
        self.channels_: tuple[str, ...] = names
        self.mean_: np.ndarray = mean
        self.scale_: np.ndarray = scale
        self.loss_curve_: list[float] = losses
        self.network_: Network = network.eval()
        found = self._read(series, lambda hidden, fired, log_density: (_cuts(fired).sum(axis=0), log_density.sum()))
        count = len(whole) - len(series)  # steps that are predicted, and before which there can be a cut
        self.rates_: np.ndarray = sum(cuts for cuts, _ in found) / count
        self._warn(sum(total for _, total in found) / count / len(self.rates_), read)
        return self

    def _warn(self, score: float, series: list[np.ndarray]) -> None:
        """Warn if a constant Gaussian has a better score, or ``predict`` misses a rate by more than a factor of two."""
        steps = np.concatenate([one[1:] for one in series]).astype(float)
        deviation = np.maximum(steps.std(axis=0), FLOOR)
        z = (steps - steps.mean(axis=0)) / deviation
        constant = -(0.5 * z**2 + np.log(deviation) + 0.5 * math.log(2 * math.pi)).sum(axis=1).mean()
        if score < constant:
            warnings.warn(
                f"the fit predicts worse than a constant Gaussian ({score:.3f} against {constant:.3f} nats per step): "
                "its segments mean nothing; raise updates or n_init, or use ruptures or ClaSP",
                FitWarning,
                stacklevel=3,
            )
        for level, (rate, target) in enumerate(zip(self.rates_, self._targets()), start=1):
            if not target / 2 <= rate <= 2 * target:
                warnings.warn(
                    f"level {level} has a cut at {rate:.2%} of the steps, but segment_lengths {self.segment_lengths} "
                    f"asks for {target:.2%}; raise updates or n_init, or use ruptures or ClaSP",
                    FitWarning,
                    stacklevel=3,
                )

    def _targets(self) -> np.ndarray:
        """The rate of each level that ``segment_lengths`` asks for."""
        return 1 / np.cumprod(np.asarray(self.segment_lengths, float))

    def predict(self, X: Series) -> list[Any]:
        """The sorted segment ends of each level, the last being the length; for a list of series, a list of these."""
        series, single = self._given(X)
        results = self._read(series, lambda hidden, fired, log_density: [_ends(level) for level in _cuts(fired).T])
        return results[0] if single else results

    def fit_predict(self, X: Series, y: None = None) -> list[Any]:
        """``fit``, then ``predict`` of the same."""
        return self.fit(X).predict(X)

    def transform(self, X: Series) -> list[Any]:
        """The states (time, hidden size) of each layer, the lowest first; for a list of series, a list of these."""
        series, single = self._given(X)
        results = self._read(series, lambda hidden, fired, log_density: [h.copy() for h in hidden])
        return results[0] if single else results

    def fit_transform(self, X: Series, y: None = None) -> list[Any]:
        """``fit``, then ``transform`` of the same."""
        return self.fit(X).transform(X)

    def score(self, X: Series, y: None = None) -> float:
        """Mean log-density of a step in nats, over steps and levels, in units of the training deviation."""
        series, _ = self._given(X)
        parts = self._read(series, lambda hidden, fired, log_density: log_density.sum(axis=1, dtype=float).mean())
        return float(sum(parts) / sum(len(one) - 1 for one in series))

    def _check(self) -> None:
        given: Any = self.segment_lengths
        lengths = given.tolist() if isinstance(given, np.ndarray) else given
        if not isinstance(lengths, Sequence) or not lengths or not all(_within(length, 1) for length in lengths):
            raise InputError(
                "segment_lengths must hold a finite number above 1 per level, as (10,) does for one level; got "
                f"{given!r}"
            )
        for name in ("mixtures", "updates", "batch_size", "length", "n_init"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1; got {value!r}")
        if not _within(self.learning_rate, 0):
            raise InputError(f"learning_rate must be a positive, finite number; got {self.learning_rate!r}")

    def _given(self, X: Series) -> tuple[list[np.ndarray], bool]:
        """The series of X as :func:`series_of` gives them; InputError if the model was not fitted to such series."""
        self._check_fitted()
        series, single, _, _ = series_of(X, getattr(self, "channels_", ()))  # an earlier version had none
        channels = series[0].shape[1]
        if channels != self.n_features_in_:
            raise InputError(
                f"X has {channels} channels, but {type(self).__name__} was fitted with {self.n_features_in_}"
            )
        return series, single

    def _read(
        self, series: list[np.ndarray], make: Callable[[list[np.ndarray], np.ndarray, np.ndarray], Any]
    ) -> list[Any]:
        """For each series the value of ``make(states, boundaries, log-densities)``, the first two (time, ...)."""
        results: list[Any] = [None] * len(series)
        device = self.network_.rnn.b[0].device
        for group in _groups([len(one) for one in series], _FEWEST if device.type == "cpu" else 1):
            read = [torch.from_numpy(scaled(series[k], self.mean_, self.scale_)) for k in group]
            x = pad_sequence(read).to(device)
            lengths = torch.tensor([len(one) for one in read]) if len(group) > 1 else None
            with torch.inference_mode():
                log_density, out, _ = self.network_(x, x[:1], x[1:], None, lengths)
            hidden, boundaries = [h.cpu().numpy() for h in out.hidden], out.boundaries.cpu().numpy()
            log_density = log_density.cpu().numpy()
            for b, k in enumerate(group):
                T = len(series[k])
                results[k] = make([h[:T, b] for h in hidden], boundaries[:T, b], log_density[:, : T - 1, b])
        return results

    def _train(self, series: list[np.ndarray], device: torch.device, seed: int) -> tuple[Network, list[float]]:
        """A trained network, and the loss of every update."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Network(
                series[0].shape[1],
                self.hidden_size,
                len(self.segment_lengths),
                mixtures=self.mixtures,
                on_copy=cast(OnCopy, self.on_copy),  # checked by HMLSTM
            ).to(device)
        rng = np.random.default_rng(seed)
        targets = self._targets()
        streams = Streams(series, self.batch_size, self.length, span=2 / targets[-1])
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        losses: list[float] = []
        state: State | None = None
        chunk = streams.chunks
        for update in range(self.updates):
            done = update / self.updates
            if chunk == streams.chunks:
                chunk, state, shift = 0, None, int(rng.integers(0, self.length))
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * min(1.0, 4 * (1 - done))
            x = torch.from_numpy(streams[chunk, shift]).to(device)  # (length + 2, B, C)
            log_density, out, state = network(x[1:-1], x[:1], x[2:], state)
            loss = -log_density.mean()
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            before = [[row.clone() for row in rows] for rows in network.detectors()]
            optimizer.step()
            network.restrain(before)
            state, chunk = state.detach(), chunk + 1
            rate = out.boundaries.detach().mean((0, 1)).double().cpu().numpy()
            network.lead(rate, targets ** min(1.0, max(0.0, (done - 0.2) / 0.4)), 0.5)
            losses.append(loss.item())
            if not math.isfinite(losses[-1] + norm.item()):
                raise InputError(
                    f"the loss or its gradient is not finite at update {update + 1} of {self.updates}; lower "
                    f"learning_rate, which is {self.learning_rate:g}"
                )
            if self.verbose and (update + 1) % max(1, self.updates // 10) == 0:
                shown = " ".join(f"{each:.3f}" for each in rate)
                print(f"update {update + 1} of {self.updates}  {losses[-1]:.4f} nats per step, boundary rates {shown}",
                      file=sys.stderr)  # fmt: skip
        network.rnn.engine = "auto"  # the fastest to read one series
        return network, losses


def _groups(lengths: Sequence[int], fewest: int) -> Iterator[list[int]]:
    """Batches of series, as indices: the longest left with others, or alone if they hold too few steps for padding."""
    order = sorted(range(len(lengths)), key=lambda k: lengths[k])
    while order:
        longest = lengths[order[-1]]
        group = order[-max(1, min(_ABREAST, _MOST // longest)) :]
        if sum(lengths[k] for k in group) < fewest * longest:
            group = order[-1:]
        del order[-len(group) :]
        yield group


def _within(value: Any, least: float) -> bool:
    """Whether this is a finite number above ``least``."""
    return isinstance(value, int | float | np.integer | np.floating) and bool(least < value < math.inf)


def _cuts(fired: np.ndarray) -> np.ndarray:
    """(time - 1, levels): whether there is a cut before each step but the first, from the boundaries (time, levels)."""
    return fired[1:] > 0.5


def _ends(cuts: np.ndarray) -> np.ndarray:
    """The positions of the cuts of one level, and the length."""
    return np.append(np.flatnonzero(cuts) + 1, len(cuts) + 1)
