"""Which task and which model belong to a kind of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hmrnn.checkpoint import Reads
from hmrnn.config import STROKE_FORMATS, Config
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.task import TextTask
from hmrnn.training.task import Task

if TYPE_CHECKING:
    from hmrnn.kinds.labels.networks import SequenceModel


def make_task(config: Config, data: Any, device: torch.device, rank: int = 0, world: int = 1) -> Task:
    """The task that ``config.data.format`` asks for; its initial weights depend on ``train.seed`` alone."""
    torch.manual_seed(config.train.seed)
    if config.data.format == "lines":
        from hmrnn.kinds.text.line_task import LineTask

        return LineTask(config, data, device, rank, world)
    modality = "strokes" if config.data.format in STROKE_FORMATS else "text"
    if config.data.is_labelled:
        modality = config.data.format
    return _task(modality)(config, data, device, rank, world)


def make_model(config: Config, reads: Reads, engine: str = "auto") -> LanguageModel | HandwritingModel | SequenceModel:
    """A new model of ``config`` for the data that ``reads`` describes."""
    return _task(reads.modality).make_model(config, reads, engine)


def _task(modality: str) -> Any:
    """The class of tasks for ``modality``. Commands on text need not wait for the import of the others."""
    if modality == "text":
        return TextTask
    if modality == "strokes":
        from hmrnn.kinds.strokes.task import StrokeTask

        return StrokeTask
    from hmrnn.kinds.labels.task import LabelledTask

    return LabelledTask
