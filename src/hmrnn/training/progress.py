"""Where a run stands, apart from its tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

from hmrnn.config import from_json, to_json
from hmrnn.errors import InputError


@dataclasses.dataclass
class Progress:
    """Where a run stands; with the tensors of ``Trainer.tensors`` it is all that going on exactly needs."""

    epoch: int = 0
    chunk: int = 0
    """Chunks of the current epoch that are done."""
    step: int = 0
    """Updates made."""
    learning_rate: float = 0.0
    divisions: int = 0
    """Times the rate has been divided."""
    stale: int = 0
    """Validations since the best one."""
    best: float | None = None
    """The best validation, in the unit of the task."""
    best_step: int = 0
    window_steps: int = 0
    """Updates since the last line of metrics."""
    seconds: float = 0.0
    """Time spent in training, over all sittings."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl when this was written; later lines belong to steps that will be done again."""
    conditions: list[str] = dataclasses.field(default_factory=list)
    """Of the detectors, over the last epoch: "silent", "always" or "alive"."""
    skipped: int = 0
    """Updates that were left out because loss or gradient was not finite, up to the last line of metrics."""
    corpus: int = 0
    """CRC-32 of the training and validation parts: a run can only go on with the data it began with."""
    finished: str | None = None
    """Why the run ended, once it has."""

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Progress:
        """What a checkpoint holds; InputError unless it is every field, each of its type, and nothing else."""
        wrong = sorted({field.name for field in dataclasses.fields(cls)} ^ stored.keys())
        if wrong:
            raise InputError(
                f"the checkpoint is of another version of hmrnn: its progress must {'not ' * (wrong[0] in stored)}hold "
                f"{wrong[0]!r}; go on with that version, or start a new run"
            )
        return from_json(to_json(stored), cls, "the progress of the checkpoint")
