"""Progress: where a run stands, apart from its tensors, and its schedule of learning rates."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from msgspec import Meta

from hmrnn.config import TrainConfig
from hmrnn.config.json import from_json, to_json
from hmrnn.errors import InputError

Count = Annotated[int, Meta(ge=0, le=2**48)]
Size = Annotated[float, Meta(ge=0, le=1e300)]
FIRST_DIVISION = 100
"""Updates before which the end of an epoch does not divide the learning rate: epochs of a small corpus are short."""


@dataclasses.dataclass
class Progress:
    """Where a run stands. Together with ``Trainer.tensors`` it is all that an exact resume needs."""

    epoch: Count = 0
    chunk: Count = 0
    """Chunks of the current epoch that are done."""
    step: Count = 0
    """Updates made."""
    learning_rate: Size = 0.0
    """Before the cool-down."""
    divisions: Count = 0
    """How often the learning rate has been divided."""
    stale: Count = 0
    """Validations since the best one."""
    best: float | None = None
    """The best validation, in the unit of the task."""
    best_step: Count = 0
    seconds: Size = 0.0
    """Training time, including that before a resume."""
    metrics_bytes: Count = 0
    """Size of metrics.jsonl at this point; later lines belong to steps that a resumed run repeats."""
    conditions: list[str] = dataclasses.field(default_factory=list)
    """Condition of each detector over the last epoch: "silent", "always" or "alive"."""
    skipped: Count = 0
    """Updates skipped because loss or gradient was not finite, up to the last line of metrics."""
    corpus: Count = 0
    """CRC-32 of the training and validation parts: a run can only be resumed with the same data."""
    finished: str | None = None
    """Why the run ended; None before its end."""

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Progress:
        """The progress in a checkpoint; InputError unless it holds every field with its type, and nothing else."""
        wrong = sorted({field.name for field in dataclasses.fields(cls)} ^ stored.keys())
        if wrong:
            raise InputError(
                f"the checkpoint is of another version of hmrnn: its progress must {'not ' * (wrong[0] in stored)}hold "
                f"{wrong[0]!r}; resume it with that version, or start a new run"
            )
        return from_json(to_json(stored), cls, "the progress of the checkpoint")

    def judge(self, measure: float, t: TrainConfig) -> bool:
        """Record a validation: True if it is the best. On a plateau the learning rate is divided, or the run ends."""
        best = self.best is None or measure < self.best - t.min_improvement
        if best:
            self.best, self.best_step, self.stale = measure, self.step, 0
        else:
            self.stale += 1
        self.apply_limits(t)
        return best

    def apply_limits(self, t: TrainConfig) -> None:
        """Divide the learning rate or end the run, if it is time."""
        if self.stale >= t.patience:
            if self.divisions >= t.divisions:
                self.finished = f"validation stopped improving after {self.divisions} division(s) of the learning rate"
            elif t.validate_every or self.step >= FIRST_DIVISION:
                self.learning_rate /= t.divide_rate_by
                self.divisions, self.stale = self.divisions + 1, 0
        if self.finished is None:
            self.end_if_done(t)

    def end_if_done(self, t: TrainConfig) -> None:
        """End the run after its last epoch."""
        if self.chunk == 0 and self.epoch >= t.epochs:
            self.finished = f"{t.epochs} epoch{'s' * (t.epochs != 1)} done"
