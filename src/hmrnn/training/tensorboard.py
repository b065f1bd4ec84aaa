"""TensorBoard: a callback of ``hmrnn.train``, which is also ``hmrnn train --log tensorboard``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hmrnn import kind
from hmrnn.errors import installed
from hmrnn.training.trainer import Trainer


class TensorBoard:
    """Shows the numbers in the lines of metrics as curves and, at every validation, segments of the validation part.

    ``folder`` may be that of the run: ``tensorboard --logdir runs`` then shows it by its name.

    Example::

        >>> hmrnn.train("book.txt", out="runs/book", callbacks=[TensorBoard("runs/book")])  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.library = installed("torch.utils.tensorboard", "a log for TensorBoard", "tensorboard")

    def on_start(self, trainer: Trainer) -> None:
        self.trainer = trainer
        # the lines that a resumed run repeats replace those there
        self.writer = self.library.SummaryWriter(self.folder, purge_step=trainer.progress.step + 1)

    def on_step(self, line: dict[str, Any]) -> None:
        self._show("training", line)

    def on_validation(self, line: dict[str, Any]) -> None:
        self._show("validation", line)
        task, reads = self.trainer.task, kind.of(self.trainer.config)
        model = reads.model(self.trainer.model, task.reads, self.trainer.config)
        sections = reads.commands(lambda what: None).report(model, task.corpus)
        if figure := next((one.figure for one in sections if one.figure is not None), None):
            self.writer.add_figure("segments", figure, line["step"])

    def on_end(self, line: dict[str, Any]) -> None:
        self.writer.close()

    def _show(self, part: str, line: dict[str, Any]) -> None:
        rates = {f"rate of level {level}": rate for level, rate in enumerate(line["rates"], 1)}
        for name, value in (line | rates).items():
            if isinstance(value, int | float) and name not in ("step", "epoch"):
                self.writer.add_scalar(f"{part}/{name}", value, line["step"])
