"""StrokeTask: predict the next point of lines of handwriting, each read as a whole from the zero state."""

from __future__ import annotations

import zlib

from hmrnn.kind import Progress
from hmrnn.kinds.strokes.batches import StrokeBatches
from hmrnn.kinds.strokes.evaluate import evaluate_strokes
from hmrnn.kinds.strokes.strokes import StrokeCorpus
from hmrnn.training.sequences import PaddedTask
from hmrnn.training.task import Validation


class StrokeTask(PaddedTask):
    """A :class:`hmrnn.training.task.Task` measured in nats per sequence: the paper's log-likelihood, negated."""

    corpus: StrokeCorpus

    def start(self) -> None:
        t, m, data = self.config.train, self.config.model, self.corpus
        self.batches = StrokeBatches(data.train, data.spec, t.batch_size, m, seed=t.seed)
        super().start()
        texts = data.train.texts + data.valid.texts if m.window != "none" else ()
        given = "".join(f"\n{row}" for row in data.conditions + texts)
        self.checksum = zlib.crc32(f"{data.train.checksum} {data.valid.checksum}{given}".encode())

    def measure(self, loss: float) -> float:
        return loss * float(self.batches.plan.lengths.mean())

    def validate(self, progress: Progress = None) -> Validation:
        t = self.config.train
        result = evaluate_strokes(
            self.model, self.corpus.valid, self.corpus.spec, progress=progress, batch_size=t.batch_size,
            precision=t.precision, share=self.share,
        )  # fmt: skip
        return Validation(-result.log_likelihood, result.rates, result.updates, result.multiply_adds, result.sequences)

    def describe(self) -> str:
        train, valid = self.corpus.train, self.corpus.valid
        return (
            f"{self.corpus.name}: {len(train):,} lines of {train.lengths.mean():.0f} points on average to train on, "
            f"{len(valid):,} to validate; {len(train.skipped):,} left out"
        )
