"""Which task and which model belong to a kind of data."""

from __future__ import annotations

from typing import Any

import torch

from hmrnn.checkpoint import Reads
from hmrnn.config import STROKE_FORMATS, Config
from hmrnn.nn.models import HandwritingModel, LanguageModel
from hmrnn.nn.sequences import SequenceModel
from hmrnn.tasks.base import Task
from hmrnn.tasks.labelled import LabelledTask
from hmrnn.tasks.lines import LineTask
from hmrnn.tasks.strokes import StrokeTask
from hmrnn.tasks.text import TextTask

_TASKS: dict[str, type[TextTask | StrokeTask | LabelledTask]] = {
    "text": TextTask, "strokes": StrokeTask, "labels": LabelledTask, "tags": LabelledTask, "pairs": LabelledTask,
}  # fmt: skip


def make_task(config: Config, data: Any, device: torch.device, rank: int = 0, world: int = 1) -> Task:
    """The task that ``config.data.format`` asks for; its initial weights depend on ``train.seed`` alone."""
    torch.manual_seed(config.train.seed)
    if config.data.format == "lines":
        return LineTask(config, data, device, rank, world)
    modality = "strokes" if config.data.format in STROKE_FORMATS else "text"
    if config.data.is_labelled:
        modality = config.data.format
    return _TASKS[modality](config, data, device, rank, world)


def make_model(config: Config, reads: Reads, engine: str = "auto") -> LanguageModel | HandwritingModel | SequenceModel:
    """A new model of ``config`` for the data that ``reads`` describes."""
    return _TASKS[reads.modality].make_model(config, reads, engine)  # type: ignore[arg-type]
