"""write(...): a model as a directory without training state and without the places of its data, with a card."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.errors import InputError
from hmrnn.nn.predictor import shown_sizes
from hmrnn.utils import files

CARD = "README.md"


def write(
    out: str | Path,
    saved: Checkpoint,
    parameters: Iterable[str],
    validation: str | None = None,
    text: bytes | None = None,
) -> Path:
    """Write a model to the new directory ``out``, without the places of its data; ``text`` is the card to keep.

    ``parameters`` are the names of those weights that training changes.
    """
    out = check_new(Path(out))
    ready = Checkpoint(_without_places(saved.config), saved.reads, saved.weights)
    try:
        checkpoint.write(out, ready)
        own = files.shown(card(out.name, ready, parameters, validation)).encode() if text is None else text
        (out / CARD).write_bytes(own)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another directory") from error
    return out


def check_new(out: Path) -> Path:
    """``out`` with the home directory for ``~``; InputError if it exists."""
    out = Path(os.path.expanduser(out))
    if os.path.lexists(out):
        raise InputError(f"{out} exists already; choose another directory")
    return out


def _without_places(config: Config) -> Config:
    """``config`` with names instead of the paths of data files and of the model it started from; without the cache."""
    names: dict[str, Any] = {"data.path": tuple(Path(path).name for path in config.data.path)}
    if condition := getattr(config.data, "condition", None):
        names["data.condition"] = Path(condition).name
    if hasattr(config.data, "cache"):
        names["data.cache"] = None
    names["train.start_from"] = config.train.start_from and Path(config.train.start_from).name
    return replaced(config, names)


def card(name: str, saved: Checkpoint, parameters: Iterable[str], validation: str | None = None) -> str:
    """A card with the facts that the checkpoint holds, and a note on what its author has to add."""
    model, data, train = saved.config.model, saved.config.data, saved.config.train
    sizes = model.hidden_size * (model.num_layers if len(model.hidden_size) == 1 else 1)
    weights = [saved.weights[name] for name in parameters]
    facts = {
        "network": f"`{model.rnn}`, layers of {shown_sizes(sizes)}",
        "parameters": f"{sum(map(Tensor.numel, weights)):,}, of {max(w.element_size() for w in weights) * 8} bits",
        "reads": saved.reads.describe(),
        "trained on": ", ".join((f"format `{data.format}`", *(f"`{path}`" for path in data.path))),
        "started from": train.start_from and f"`{train.start_from}`",
        "training": f"at most {train.epochs} epochs, seed {train.seed}; all settings are in `config.json`",
        "validation": validation,
    }
    rows = "".join(f"| {what} | {value} |\n" for what, value in facts.items() if value is not None)
    return (
        f"# {name}\n\nA model for hmrnn. `hmrnn.load` reads the folder that this card is in.\n\n"
        f"| | |\n|---|---|\n{rows}\n"
        "To be added here: the source of the data, their licence and that of the weights, the intended use, and\n"
        "results on data that the model was not trained on.\n"
    )
