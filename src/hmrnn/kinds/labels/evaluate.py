"""How well a model answers labelled sequences."""

from __future__ import annotations

from hmrnn.kind import Progress
from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import Examples
from hmrnn.kinds.labels.networks import SequenceModel
from hmrnn.nn.recurrent import autocast
from hmrnn.reading.score import Sums, each, unchanged
from hmrnn.training.task import Validation


def evaluate_labelled(
    model: SequenceModel,
    examples: Examples,
    *,
    batch_size: int = 32,
    precision: str = "float32",
    progress: Progress = None,
    share: tuple[int, int] = (0, 1),
) -> tuple[Validation, list[float]]:
    """Judge the targets of all examples, in nats per target; and the mean squared error of each number.

    Both are weighted as in training. The error is the share of the targets that are not the likeliest; of pairs, each
    symbol given the right ones before it; of numbers the mean squared error, as a share of the variance in the training
    part. ``share`` = (rank, world) lets each process take every world-th batch.
    """
    batches, answers = LabelBatches(examples, batch_size), len(model.deviation) if model.numbers else 0
    total = Sums(model, 4 + answers)
    device = total.values.device
    for given in each(batches, share, progress):
        batch = given.on(device)
        with unchanged(model), autocast(precision, device):
            judged = model(*batch)
        weights = batch.weights
        total.count(
            judged.out,
            batch.active,
            batch.counted.sum(),
            (weights * batch.counted).sum(),
            (judged.nats.double() * weights).sum(),
            judged.wrong.double().sum(),
            (judged.squares.double() * weights[:, None]).sum(0),
        )
    _, (count, weighted, nats, wrong, *squares), work = total.result(share[1])
    weighted = max(weighted, 1e-12)
    return Validation(nats / weighted, *work, int(count), wrong / count), [value / weighted for value in squares]
