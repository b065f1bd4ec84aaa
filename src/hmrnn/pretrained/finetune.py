"""Fine-tuning: the config of a run that starts from a trained model."""

from __future__ import annotations

import dataclasses
from typing import Any

from hmrnn import kind
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config, DataConfig, TrainConfig
from hmrnn.config.checks import MOVING, value_of
from hmrnn.errors import InputError

FINETUNE = TrainConfig(epochs=3, batch_size=16, cool_down=1.0, patience=99, log_every=20)
"""Training that starts from a model; the rest of its settings come from the model."""
FINETUNE_RATE = 0.5
"""Learning rate of such a run, as a share of the rate that the model was trained with."""
KEPT = (
    "data.symbols", "data.unknown", "data.bytes", "data.remove_spaces", "detectors.hidden", "segments.size",
    "segments.longest", "segments.lexicon", "segments.reader",
)  # fmt: skip
"""Settings outside the section "model" that a run has from the model that it starts from."""


def finetune_config(start: Checkpoint, name: str, data: DataConfig) -> Config:
    """The config of a run on ``data`` that starts from the model ``start``, which is called ``name``.

    Its network, symbols, detectors and regularisation are those of the model, with a lower learning rate; the lexicon
    of a segmental head is learned from ``data``. The detectors start as they are: slope and temperature stay at the
    values that the model was trained to.
    """
    old, t, d = start.config, start.config.train, start.config.detectors
    reads, wanted = kind.of(old), kind.reading(data.format)
    if reads is not wanted:
        raise InputError(
            f"{name} is a model of {reads.name}, and the data are {wanted.name}; start from a model of {wanted.name}"
        )
    train = dataclasses.replace(
        FINETUNE, learning_rate=FINETUNE_RATE * t.learning_rate, length=t.length, clip_norm=t.clip_norm,
        skip_nonfinite=t.skip_nonfinite, start_from=name, optimizer=t.optimizer, adam_rate=t.adam_rate, beta1=t.beta1,
    )  # fmt: skip
    if old.model.detectors and old.model.rnn in MOVING.values:
        held: dict[str, Any] = {"slope": (0.0, d.slope[1]), "temperature": (d.temperature[1], d.temperature[1])}
        d = dataclasses.replace(d, start_at_rates=False, bias=(), **held)
    return Config(reads.continued(start, name, data), old.model, train, old.regularise, d, old.segments)


def check_kept(config: Config, given: dict[str, Any]) -> None:
    """Raise InputError if a setting in ``given`` differs from one that the run has from its model."""
    for name, value in given.items():
        if name.startswith("model.") or name in KEPT:
            kept = value_of(config, name)
            if value != kept:
                shown = " ".join(map(str, kept)) if isinstance(kept, tuple) else kept
                raise InputError(
                    f"it is {shown} in {config.train.start_from}, the model to start from; leave it out",
                    setting=name,
                    value=value,
                )
