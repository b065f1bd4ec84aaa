"""SequenceEstimator: what HMClassifier and the other estimators of answers share; trained by the loop of a run."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import os
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from hmrnn.config import Config, DetectorConfig
from hmrnn.errors import InputError
from hmrnn.kind import find
from hmrnn.kinds.labels.answers.series import Forecasts
from hmrnn.kinds.labels.corpus import LabelCorpus, make_corpus
from hmrnn.kinds.labels.decision import Decision
from hmrnn.kinds.labels.estimators.base import Estimator, is_whole, seed_of
from hmrnn.kinds.labels.model import LabelledModel
from hmrnn.kinds.labels.presets import PRESETS
from hmrnn.kinds.labels.settings import PooledModelConfig
from hmrnn.nn.checks import layer_sizes, one_of
from hmrnn.pretrained.load import load
from hmrnn.training.finite import Diverged
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.devices import find_device

S = TypeVar("S", bound="SequenceEstimator")

CHOICES = {
    name: typing.get_args(typing.get_type_hints(PooledModelConfig)[name]) for name in ("rnn", "read_out", "attend")
}
"""The values of parameters that are settings of the model."""


class SequenceEstimator(Estimator):
    """Sequences to labels, numbers, tags or sequences. See the classes for what they take."""

    _modality: ClassVar[str]
    _model: ClassVar[type[LabelledModel]]
    # parameters of all of them; a forecaster, which has no bidirectional, would read what it has to predict
    hidden_size: int | Sequence[int]
    num_layers: int
    rnn: str
    bidirectional: bool
    embedding_size: int
    layer_norm: bool
    rates: Sequence[float] | None
    dropout: float
    weight_decay: float
    epochs: int
    batch_size: int
    learning_rate: float
    validation_fraction: float | None
    patience: int
    device: str | torch.device
    random_state: int | np.random.RandomState | None
    verbose: bool

    @classmethod
    def _settings(cls) -> set[str]:
        """The parameters that are settings of the model."""
        return {field.name for field in dataclasses.fields(PRESETS[cls._modality].model)} & set(cls._names())

    def _config(self, seed: int) -> Config:
        """The preset of the command with this estimator's parameters."""
        self._check()
        preset = PRESETS[self._modality]
        sizes = layer_sizes(self.hidden_size, self.num_layers)
        count = self.num_layers - 1 if self.rnn == "hm-lstm" else 0
        rates = self.rates
        if rates is None:
            rates = tuple(preset.detectors.rates[0] * 0.5**l for l in range(count))
        return dataclasses.replace(
            preset,
            model=dataclasses.replace(
                preset.model,
                **{name: getattr(self, name) for name in self._settings()} | {"hidden_size": sizes},
                output_size=max(sizes),
            ),
            train=dataclasses.replace(
                preset.train, epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate,
                patience=self.patience, log_every=10**6, checkpoint_every=1e9, device=str(self.device), seed=seed,
            ),
            regularise=dataclasses.replace(
                preset.regularise, dropout_output=self.dropout, weight_decay=self.weight_decay,
                dropout_embedding=self.dropout if preset.regularise.dropout_embedding else 0.0,
            ),
            detectors=dataclasses.replace(preset.detectors, rates=tuple(map(float, rates)))
            if count else DetectorConfig(),
        )  # fmt: skip

    def _check(self) -> None:
        for name in ("num_layers", "embedding_size", "epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1; got {value!r}")
        for name, allowed in CHOICES.items():
            if hasattr(self, name):
                one_of(name, getattr(self, name), allowed)
        for name in ("dropout", "validation_fraction"):
            share = getattr(self, name)
            if share is None and inspect.signature(type(self)).parameters[name].default is None:
                continue
            if not _is_number(share) or not 0 <= share < 1:
                raise InputError(f"{name} must be at least 0 and less than 1; got {share!r}")
        if not isinstance(self.verbose, bool | np.bool_) and not is_whole(self.verbose):
            raise InputError(f"verbose must be True or False, or 1 or 0; got {self.verbose!r}")
        for name in ("bidirectional", "layer_norm", "crf"):
            if not isinstance(getattr(self, name, False), bool | np.bool_):
                raise InputError(f"{name} must be True or False; got {getattr(self, name)!r}")
        for name in ("learning_rate", "weight_decay"):
            if not _is_number(getattr(self, name)):
                raise InputError(f"{name} must be a number; got {getattr(self, name)!r}")
        if not is_whole(getattr(self, "level", 1)):
            raise InputError(f"level must be a whole number of at least 1; got {self.level!r}")  # type: ignore[attr-defined]
        rates = self.rates
        if rates is not None and (not isinstance(rates, Sequence | np.ndarray) or not all(map(_is_number, rates))):
            raise InputError(f"rates must be None or hold a number for each level; got {rates!r}")
        if rates is not None and self.rnn != "hm-lstm":
            raise InputError(f"rates are those of the detectors of hm-lstm, and {self.rnn} has none; leave them out")

    def _fit(self, X: Any, y: Any, **how: Any) -> None:
        """Check the parameters, make the corpus of X and y, and train on it."""
        seed = seed_of(self.random_state)
        config = _plain(self._config(seed))
        with _parameters():
            config.check()
        device = find_device(self.device)
        self._train(config, self._corpus(X, y, config, **how), device)

    def _corpus(self, X: Any, y: Any, config: Config, **how: Any) -> LabelCorpus:
        share, seed = self.validation_fraction, config.train.seed
        return make_corpus(self._modality, X, y, valid_fraction=share, seed=seed, **how)

    def _train(self, config: Config, corpus: LabelCorpus, device: torch.device) -> None:
        # without held-out sequences there is no early stop: the training loss keeps falling
        patience = config.train.patience if corpus.held_out else config.train.epochs
        trained = dataclasses.replace(config, train=dataclasses.replace(config.train, patience=patience))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            with _parameters():
                trainer = Trainer(trained, corpus, device)
            best, curve = copy.deepcopy(trainer.model.state_dict()), []
            try:
                for event in train(trainer, RunDirectory(Path(os.devnull), writer=False)):
                    if event["event"] == "valid":
                        curve.append(event["nats"])
                        if event["best"]:
                            best = copy.deepcopy(trainer.model.state_dict())
                        self._show(event, "validation" if corpus.held_out else "training part")
                    elif event["event"] == "end" and event["signal"] is not None:
                        raise KeyboardInterrupt(f"fit was stopped by {event['signal']}")
            except Diverged as error:
                raise InputError(f"{error.trouble}; fit again with a lower learning_rate") from error
        network = trainer.model
        network.load_state_dict(best)
        self.model_: Any = self._model(network.eval(), corpus.encoder, config)
        self.loss_curve_: list[float] = curve
        self.n_iter_: int = trainer.progress.epoch
        self.__dict__.pop("n_features_in_", None)  # of an earlier fit
        if not corpus.encoder.symbols:
            self.n_features_in_: int = corpus.encoder.size

    def _show(self, event: dict[str, Any], part: str) -> None:
        if self.verbose:
            rates = " ".join(f"{rate:.3f}" for rate in event["rates"])
            mark = "  best" if event["best"] else ""
            print(
                f"epoch {event['epoch']:.0f} of {self.epochs}  {part} {event['nats']:.4f} nats, "
                f"{event['error']:.1%} {find(self._modality).error}, boundary rates {rates or 'none'}{mark}",
                file=sys.stderr,
            )

    @property
    def classes_(self) -> np.ndarray:
        """The labels or tags, in the order of the columns of ``predict_proba``, or the symbols that can be written."""
        self._check_fitted()
        if not len(self.model_.classes):
            raise AttributeError(f"{type(self).__name__} predicts numbers, and so has no classes_")
        classes: np.ndarray = self.model_.classes
        return classes

    def predict(self, X: Any) -> Any:
        """The answer to each sequence."""
        self._check_fitted()
        return self.model_.predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers."""
        self._check_fitted()
        return float(self.model_.score(X, y, sample_weight))

    def explain(self, X: Any) -> list[Decision]:
        """The answer to each sequence, the segments found in it, and the weight of each in the decision."""
        self._check_fitted()
        found: list[Decision] = self.model_.explain(X)
        return found

    def save(self, directory: str | Path) -> Path:
        """Write the fitted model to a new directory: safetensors and JSON. :func:`hmrnn.load` and ``load`` read it."""
        self._check_fitted()
        saved: Path = self.model_.save(directory)
        return saved

    @classmethod
    def load(cls: type[S], source: str | Path, *, device: str = "cpu") -> S:
        """A fitted estimator from what ``save`` wrote, or from a run of ``hmrnn train``.

        ``validation_fraction``, ``class_weight``, ``beam`` and ``verbose`` are not saved, and have their defaults.
        """
        model = load(source, device=device)
        if not isinstance(model, cls._model):
            wanted, got = cls._model.__name__, type(model).__name__
            raise InputError(f"{cls.__name__} loads a {wanted}, and {source} holds a {got}")
        m, t, r = model.config.model, model.config.train, model.config.regularise
        sizes = m.hidden_size[0] if len(set(m.hidden_size)) == 1 else m.hidden_size
        known: dict[str, Any] = {name: getattr(m, name) for name in cls._settings()} | {
            "hidden_size": sizes,
            "rates": model.config.detectors.rates or None, "dropout": r.dropout_output,
            "weight_decay": r.weight_decay, "epochs": t.epochs,
            "batch_size": t.batch_size, "learning_rate": t.learning_rate, "patience": t.patience, "device": device,
            "random_state": t.seed,
        }  # fmt: skip
        known |= {"spelled": model.encoder.spelled} if "spelled" in cls._names() else {}
        if isinstance(model.answer, Forecasts):
            known |= {"steps": model.answer.ahead, "window": model.answer.window}
        self = cls(**known)
        self.model_ = model
        self.loss_curve_, self.n_iter_ = [], 0
        if not model.encoder.symbols:
            self.n_features_in_ = model.encoder.size
        return self


@contextlib.contextmanager
def _parameters() -> Iterator[None]:
    """Within it errors about a setting, such as train.epochs, are about the parameter, epochs."""
    try:
        yield
    except InputError as error:
        raise error.renamed(error.setting.rpartition(".")[2]) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _plain(config: Any) -> Any:
    """A config, or a part of one, with plain numbers for those of NumPy, which a checkpoint cannot hold."""
    found = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    changed = {name: value.item() for name, value in found.items() if isinstance(value, np.generic)}
    parts = {name: _plain(value) for name, value in found.items() if dataclasses.is_dataclass(value)}
    return dataclasses.replace(config, **changed, **parts)
