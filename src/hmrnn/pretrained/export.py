"""export(...): write the model of a run as a checkpoint without training state, with a card for its readers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from hmrnn import checkpoint, kind
from hmrnn.checkpoint import Checkpoint
from hmrnn.errors import InputError
from hmrnn.kind import Measure
from hmrnn.pretrained.load import load, locate
from hmrnn.pretrained.write import CARD, check_new, write
from hmrnn.training.metrics import read_metrics

ROUNDED = b"\nIn this copy the weights are rounded to 16 bits.\n"


def export(source: str | Path, out: str | Path, *, half: bool = False) -> Path:
    """Write the model of a run or checkpoint directory to the new directory ``out``, which :func:`hmrnn.load` reads.

    With ``half`` the weights are rounded to 16 bits, which halves the file; a loaded model computes in 32 bits either
    way. Of the paths of the corpus only the file names are kept. The card, README.md, is that of ``source`` if it has
    one, or a new one with the facts of the checkpoint. It has no checksum, so that it can be edited.
    """
    directory, out = locate(source), Path(out)
    check_new(out)
    parameters = dict(load(directory).network.named_parameters())  # refuses a model that cannot be loaded
    saved = checkpoint.read(directory)
    weights = {name: _half(name, a) if half and name in parameters else a for name, a in saved.weights.items()}
    ready = Checkpoint(saved.config, saved.reads, weights)
    rounded = any(weight.dtype != weights[name].dtype for name, weight in saved.weights.items())
    own = carried(directory)
    validation = _validation(directory, kind.of(saved.config).measure(saved.reads))
    return write(out, ready, parameters, validation, None if own is None else own + ROUNDED * rounded)


def _half(name: str, weight: Tensor) -> Tensor:
    """``weight`` in 16 bits."""
    rounded = weight.half()
    if not torch.isfinite(rounded).all():
        raise InputError(
            f"{name} holds values that 16 bits cannot hold (beyond 65504, or not finite); export it in full precision"
        )
    return rounded


def _validation(directory: Path, measure: Measure) -> str | None:
    """The validation result of a checkpoint, from the metrics of its run; None if they are not there."""
    metrics = directory.parent / "metrics.jsonl"
    if not checkpoint.NAME.fullmatch(directory.name) or not metrics.exists():
        return None
    step = int(directory.name.split("-")[1])
    for line in read_metrics(metrics):
        if line["event"] == "valid" and line["step"] == step:
            result = f"{line[measure.unit]:.4f} {measure.unit} per {measure.per}"
            rates = f"; boundary rates {', '.join(f'{rate:.3f}' for rate in line['rates'])}" if line["rates"] else ""
            return f"{result} after {line['epoch']:.2f} epochs{rates}"
    return None


def carried(directory: Path) -> bytes | None:
    """The card of a model, if it has one."""
    path = directory / CARD
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise InputError(f"the card {path} cannot be read: {error.strerror}; repair or remove it") from error
