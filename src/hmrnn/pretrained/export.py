"""A finished run -> a checkpoint to hand on: without what training needs, in half precision if wished, with a card."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.pretrained.load import load, locate
from hmrnn.training.loop import read_metrics

CARD = "README.md"
ROUNDED = b"\nIn this copy the weights are rounded to 16 bits.\n"


def export(source: str | Path, out: str | Path, *, half: bool = False) -> Path:
    """Write the model of a run or checkpoint directory to the new directory ``out``, which :func:`hmrnn.load` reads.

    With ``half`` the weights are rounded to 16 bits, which halves the file; once loaded, a model computes in 32 bits as
    ever. Of the corpus only the names of its files are kept. The card says what the model is: that of ``source`` if it
    has one, else one with what is known. It is not under the checksums of the checkpoint, so that its maker can
    complete it.
    """
    directory, out = locate(source), Path(out)
    if out.exists():
        raise InputError(f"{out} exists and is left alone; choose another --out")
    load(directory)  # what cannot be loaded is not handed on
    saved = checkpoint.read(directory)
    weights = {name: _half(name, weight) for name, weight in saved.weights.items()} if half else saved.weights
    ready = Checkpoint(_without_places(saved.config), saved.reads, weights)
    rounded = any(weight.dtype != weights[name].dtype for name, weight in saved.weights.items())
    own = carried(directory)
    text = card(out.name, ready, _validation(directory)).encode() if own is None else own + ROUNDED * rounded
    try:
        checkpoint.write(out, ready)
        (out / CARD).write_bytes(text)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from error
    return out


def _half(name: str, weight: Tensor) -> Tensor:
    """In 16 bits; single numbers, such as the slope, stay as they are."""
    if weight.dim() == 0 or not weight.is_floating_point():
        return weight
    rounded = weight.half()
    if not torch.isfinite(rounded).all():
        raise InputError(
            f"{name} holds values that 16 bits cannot hold (beyond 65504, or not finite); leave out --half"
        )
    return rounded


def _without_places(config: Config) -> Config:
    """Where the data were is of no use elsewhere; what they were called is."""
    names = tuple(Path(path).name for path in config.data.path)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, path=names, cache=None))


def _validation(directory: Path) -> str | None:
    """What the run of a checkpoint noted when it was written."""
    metrics = directory.parent / "metrics.jsonl"
    if not checkpoint.NAME.fullmatch(directory.name) or not metrics.exists():
        return None
    step = int(directory.name.split("-")[1])
    for line in read_metrics(metrics):
        if line["event"] == "valid" and line["step"] == step:
            result = f"{line['bits']:.4f} bits per symbol" if "bits" in line else f"{line['nats']:.2f} nats per line"
            rates = f"; boundary rates {', '.join(f'{rate:.3f}' for rate in line['rates'])}" if line["rates"] else ""
            return f"{result} after {line['epoch']:.2f} epochs{rates}"
    return None


def carried(directory: Path) -> bytes | None:
    """The card that a model already has."""
    path = directory / CARD
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise InputError(f"the card {path} cannot be read: {error.strerror}; mend or remove it") from error


def card(name: str, saved: Checkpoint, validation: str | None = None) -> str:
    """What is known of a model without asking anyone; the rest is for its maker to add."""
    model, data, train = saved.config.model, saved.config.data, saved.config.train
    sizes = model.hidden_size * (model.num_layers if len(model.hidden_size) == 1 else 1)
    weights = [weight for weight in saved.weights.values() if weight.dim() > 0]
    facts = {
        "network": f"`{model.rnn}`, layers of {', '.join(map(str, sizes))}",
        "parameters": f"{sum(map(Tensor.numel, weights)):,}, of {max(w.element_size() for w in weights) * 8} bits",
        "reads": saved.reads.describe(),
        "trained on": ", ".join((f"format `{data.format}`", *(f"`{path}`" for path in data.path))),
        "training": f"at most {train.epochs} epochs, seed {train.seed}; all settings are in `config.json`",
        "validation": validation,
    }
    rows = "".join(f"| {what} | {value} |\n" for what, value in facts.items() if value is not None)
    return (
        f"# {name}\n\nA model for hmrnn. `hmrnn.load` reads the folder that this card is in.\n\n"
        f"| | |\n|---|---|\n{rows}\n"
        "Still to be said here: where the data come from, their licence and that of the weights, what the model is\n"
        "for, and how well it does on data that it was not trained on.\n"
    )
