"""The estimators with scikit-learn's interface, one for each kind of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hmrnn.config import Config
from hmrnn.kinds.labels.corpus import ClassWeight, LabelCorpus, forecast_corpus
from hmrnn.kinds.labels.estimators.sequences import SequenceEstimator
from hmrnn.kinds.labels.model import ForecastModel, LabelModel, NumberModel, PairModel, Series, TagModel
from hmrnn.kinds.labels.sequences import series_of
from hmrnn.nn.checks import argument
from hmrnn.nn.recurrent import declared


@declared
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


@declared
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


@declared
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


@declared
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


@declared
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
