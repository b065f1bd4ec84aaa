"""A model as a directory to hand on: without training state and without the places of its data, with a card."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hmrnn import checkpoint, kind
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.errors import InputError
from hmrnn.nn.predictor import shown_sizes
from hmrnn.pretrained.load import load, locate
from hmrnn.training.metrics import read_metrics
from hmrnn.utils import files, hub

CARD = "README.md"
ROUNDED = b"\nIn this copy the weights are rounded to 16 bits.\n"


def export(source: str | Path, out: str | Path, *, half: bool = False) -> Path:
    """Write the model of a run or checkpoint directory to the new directory ``out``, which :func:`hmrnn.load` reads.

    With ``half`` the weights are rounded to 16 bits, which halves the file; a loaded model computes in 32 bits either
    way. Of the paths of the corpus only the file names are kept. The card, README.md, is that of ``source`` if it has
    one, or a new one with the facts of the checkpoint. It has no checksum, so that it can be edited.
    """
    directory = locate(source)
    parameters = dict(load(directory).network.named_parameters())  # refuses a model that cannot be loaded
    saved, card = checkpoint.read(directory), directory / CARD
    weights = {name: _half(name, a) if half and name in parameters else a for name, a in saved.weights.items()}
    rounded = any(weight.dtype != weights[name].dtype for name, weight in saved.weights.items())
    try:
        text = card.read_bytes() + ROUNDED * rounded if card.is_file() else None
    except OSError as error:
        raise InputError(f"the card {card} cannot be read: {error.strerror}; repair or remove it") from error
    return write(out, saved._replace(weights=weights), parameters, of_run(directory, saved), text=text)


def write(
    out: str | Path,
    saved: Checkpoint,
    parameters: Iterable[str],
    facts: Mapping[str, object],
    license: str | None = None,
    text: bytes | None = None,
) -> Path:
    """Write a model to the new directory ``out``.

    ``parameters`` are the names of those weights that training changes. ``text`` is the card to keep, ``facts`` are
    further rows of a new one.
    """
    out = check_new(Path(out))
    ready = saved._replace(config=without_places(saved.config))
    try:
        checkpoint.write(out, ready)
        new = hub.card(out.name, license, files.shown(_facts(ready, parameters, facts, license)))
        (out / CARD).write_bytes(new if text is None else text)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another directory") from error
    return out


def check_new(out: Path) -> Path:
    """``out`` with the home directory for ``~``; InputError if it exists."""
    out = Path(os.path.expanduser(out))
    if os.path.lexists(out):
        raise InputError(f"{out} exists already; choose another name")
    return out


def _half(name: str, weight: Tensor) -> Tensor:
    """``weight`` in 16 bits."""
    rounded = weight.half()
    if not torch.isfinite(rounded).all():
        raise InputError(
            f"{name} holds values that 16 bits cannot hold (beyond 65504, or not finite); export it in full precision"
        )
    return rounded


def of_run(source: str | Path | None, saved: Checkpoint) -> dict[str, str]:
    """What the metrics of the run in ``source`` say of ``saved``; nothing if it is not the run's model."""
    if source is None or not os.path.isdir(source):
        return {}
    directory, measure = checkpoint.find(Path(source)), kind.of(saved.config).measure(saved.reads)
    metrics = directory.parent / "metrics.jsonl"
    if not checkpoint.NAME.fullmatch(directory.name) or not metrics.exists():
        return {}
    stored = checkpoint.read(directory).weights
    if any(not torch.equal(stored[name], weight.cpu()) for name, weight in saved.weights.items()):
        return {}
    seconds = 0.0
    for line in read_metrics(metrics):
        seconds = line.get("seconds", seconds)
        if line["event"] == "valid" and line["step"] == checkpoint.step_of(directory):
            result = f"{line[measure.unit]:.4f} {measure.unit} per {measure.per}"
            rates = f"; boundary rates {', '.join(f'{rate:.3f}' for rate in line['rates'])}" if line["rates"] else ""
            ran = {"hardware": f"{line['hardware']}; {seconds / 60:.1f} minutes"} if "hardware" in line else {}
            return {"validation": f"{result} after {line['epoch']:.2f} epochs{rates}", **ran}
    return {}


def without_places(config: Config) -> Config:
    """``config`` with names instead of the paths of data files and of the model it started from; without the cache."""
    names: dict[str, Any] = {"data.path": tuple(Path(path).name for path in config.data.path)}
    if condition := getattr(config.data, "condition", None):
        names["data.condition"] = Path(condition).name
    if hasattr(config.data, "cache"):
        names["data.cache"] = None
    for name in ("known", "examples"):
        path = getattr(config.segments, name)
        names[f"segments.{name}"] = path and Path(path).name
    names["train.start_from"] = config.train.start_from and Path(config.train.start_from).name
    return replaced(config, names)


def _facts(saved: Checkpoint, parameters: Iterable[str], more: Mapping[str, object], license: str | None) -> str:
    """The card's table of what the checkpoint holds and ``more``, and a note on what its author has to add."""
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
        **more,
        "licence of the weights": license,
    }
    rows = "".join(f"| {what} | {value} |\n" for what, value in facts.items() if value is not None)
    return (
        "A model for hmrnn. `hmrnn.load` reads the folder that this card is in, and its address on the Hub.\n\n"
        f"| | |\n|---|---|\n{rows}\n"
        f"To be added here: the source of the data, their licence{'' if license else ' and that of the weights'}, the\n"
        "intended use, and results on data that the model was not trained on.\n"
    )
