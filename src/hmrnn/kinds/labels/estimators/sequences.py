"""SequenceEstimator: what HMClassifier and the other estimators of answers share; trained by the loop of a run."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
import torch

from hmrnn.config import Config
from hmrnn.config.changes import fit, replaced
from hmrnn.config.checks import Share, types_of
from hmrnn.errors import InputError
from hmrnn.kind import find
from hmrnn.kinds.labels.corpus import LabelCorpus, make_corpus
from hmrnn.kinds.labels.decision import Decision
from hmrnn.kinds.labels.estimators.base import Estimator, not_fitted, seed_of
from hmrnn.kinds.labels.model import LabelledModel
from hmrnn.kinds.labels.presets import PRESETS
from hmrnn.nn.checks import argument
from hmrnn.nn.recurrent import declared
from hmrnn.pretrained.load import load
from hmrnn.training.finite import Diverged
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.devices import find_device

M = TypeVar("M", bound=LabelledModel)

SETTINGS = {
    "random_state": "train.seed", "device": "train.device", "epochs": "train.epochs", "batch_size": "train.batch_size",
    "learning_rate": "train.learning_rate", "patience": "train.patience", "dropout": "regularise.dropout_output",
    "weight_decay": "regularise.weight_decay", "rates": "detectors.rates", "steps": "data.ahead",
    "window": "data.window",
}  # fmt: skip
"""The settings of a run that parameters are; others are those of the model, by the same names."""


@declared
class SequenceEstimator(Estimator, Generic[M]):
    """Sequences to labels, numbers, tags or sequences. See the classes for what they take.

    A default is that of ``hmrnn train``.
    """

    _modality: ClassVar[str]
    hidden_size: int | Sequence[int] = dataclasses.field(default=64, kw_only=False)
    num_layers: int = 3
    rnn: str = "hm-lstm"
    embedding_size: int = 32
    layer_norm: bool = True
    rates: Sequence[float] | None = None
    dropout: float = 0.2
    weight_decay: float = 0.0
    epochs: int = 50
    batch_size: int = 16
    learning_rate: float = 0.003
    validation_fraction: float | None = None
    patience: int = 10
    device: str | torch.device = "cpu"
    random_state: int | np.random.RandomState | None = 0
    verbose: bool = False

    @classmethod
    def _settings(cls) -> dict[str, str]:
        """By parameter, the setting of a run that it is."""
        names = {field.name for field in dataclasses.fields(cls)}
        of_model = {field.name: f"model.{field.name}" for field in dataclasses.fields(PRESETS[cls._modality].model)}
        return {name: setting for name, setting in (SETTINGS | of_model).items() if name in names}

    def _given(self) -> dict[str, Any]:
        """The settings that the parameters give, where these have another form."""
        several = isinstance(self.hidden_size, Sequence | np.ndarray)
        return {
            "model.hidden_size": self.hidden_size if several else [self.hidden_size],
            "detectors.rates": () if self.rates is None else self.rates,
            "train.device": str(self.device),
            "train.seed": seed_of(self.random_state),
        }

    def _config(self) -> Config:
        """The preset of the command with this estimator's parameters; InputError names one that is wrong."""
        preset, given = PRESETS[self._modality], self._given()
        asked: dict[str, Any] = {"train.log_every": 10**6, "train.checkpoint_every": 1e9}
        for name, setting in self._settings().items():
            section, _, field = setting.partition(".")
            kind = types_of(type(getattr(preset, section)))[field]
            asked[setting] = argument(name, given.get(setting, getattr(self, name)), kind)
        config = replaced(preset, asked)
        m, share = config.model, config.regularise.dropout_output
        usual = tuple(preset.detectors.rates[0] * 0.5**l for l in range(m.detectors))
        own = {
            "model.output_size": max(m.hidden_size, default=1),
            "regularise.dropout_embedding": share if preset.regularise.dropout_embedding else 0.0,
            "detectors.rates": config.detectors.rates or usual,
        }
        with self._parameters():
            config = fit(replaced(config, own), replaced(preset, {"detectors.rates": ()}))
            config.check()
        return config

    @contextlib.contextmanager
    def _parameters(self) -> Iterator[None]:
        """Within it errors about a setting, such as train.epochs, are about the parameter, epochs."""
        names = {setting: name for name, setting in self._settings().items()}
        names["data.valid_fraction"] = "validation_fraction"
        try:
            yield
        except InputError as error:
            raise error.renamed(names.get(error.setting, error.setting)) from error

    def _fit(self, X: Any, y: Any, **how: Any) -> Self:
        """Check the parameters, make the corpus of X and y, and train on it."""
        optional = type(self).validation_fraction is None
        argument("validation_fraction", self.validation_fraction, Share | None if optional else Share)
        config = self._config()
        device = find_device(self.device)
        with self._parameters():
            corpus = self._corpus(X, y, config, **how)
        self._train(config, corpus, device)
        return self

    def _corpus(self, X: Any, y: Any, config: Config, **how: Any) -> LabelCorpus:
        return make_corpus(self._modality, X, y, valid_fraction=self.validation_fraction, seed=config.train.seed, **how)

    def _train(self, config: Config, corpus: LabelCorpus, device: torch.device) -> None:
        # without held-out sequences there is no early stop: the training loss keeps falling
        patience = config.train.patience if corpus.held_out else config.train.epochs
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            with self._parameters():
                trainer = Trainer(replaced(config, {"train.patience": patience}), corpus, device)
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
        self.model_: M = find(self._modality).model(network.eval(), corpus.spec, config)
        self.loss_curve_: list[float] = curve
        self.n_iter_: int = trainer.progress.epoch

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
    def _fitted(self) -> M:
        """The fitted model; NotFittedError before ``fit``."""
        if not self.__sklearn_is_fitted__():
            raise not_fitted(f"this {type(self).__name__} is not fitted yet; call fit first")
        return self.model_

    @property
    def _how(self) -> dict[str, Any]:
        """How the fitted model answers."""
        return {}

    @property
    def classes_(self) -> np.ndarray:
        """The labels or tags, in the order of the columns of ``predict_proba``, or the symbols that can be written."""
        classes = self._fitted.classes
        if not len(classes):
            raise AttributeError(f"{type(self).__name__} predicts numbers, and so has no classes_")
        return classes

    @property
    def n_features_in_(self) -> int:
        """The channels of series."""
        reads = self._fitted.reads
        if reads.symbols:
            raise AttributeError(f"this {type(self).__name__} reads symbols, and so has no n_features_in_")
        return reads.size

    def predict(self, X: Any) -> Any:
        """The answer to each sequence."""
        return self._fitted.predict(X, **self._how)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers; of numbers R²."""
        return self._fitted.score(X, y, sample_weight, **self._how)

    def explain(self, X: Any) -> list[Decision]:
        """The answer to each sequence, the segments found in it, and the weight of each in the decision."""
        return self._fitted.explain(X, **self._how)

    def save(self, directory: str | Path) -> Path:
        """Write the fitted model to a new directory: safetensors and JSON. :func:`hmrnn.load` and ``load`` read it."""
        return self._fitted.save(directory)

    @classmethod
    def load(cls, source: str | Path, *, device: str = "cpu") -> Self:
        """A fitted estimator from what ``save`` wrote, or from a run of ``hmrnn train``.

        ``validation_fraction``, ``class_weight``, ``beam`` and ``verbose`` are not saved, and have their defaults.
        """
        model, wanted = load(source, device=device), find(cls._modality).part("model")
        if not isinstance(model, wanted):
            raise InputError(f"{cls.__name__} loads a {wanted.__name__}, and {source} holds a {type(model).__name__}")
        known: dict[str, Any] = {}
        for name, setting in cls._settings().items():
            section, _, field = setting.partition(".")
            known[name] = getattr(getattr(model.config, section), field)
        sizes = known["hidden_size"]
        known |= {
            "hidden_size": sizes[0] if len(set(sizes)) == 1 else sizes, "rates": known["rates"] or None,
            "device": device,
        }  # fmt: skip
        self = cls(**known)
        self.model_ = cast(M, model)
        self.loss_curve_, self.n_iter_ = [], 0
        return self
