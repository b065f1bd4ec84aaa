"""Shows training in TensorBoard (pip install hmrnn[tensorboard]).

python examples/tensorboard_log.py book.txt runs/book
tensorboard --logdir runs
"""

import sys

from torch.utils.tensorboard import SummaryWriter

import hmrnn


class TensorBoard:
    """A callback of hmrnn.train: every number in the lines of metrics is a curve, and each level has its rate."""

    def __init__(self, folder):
        self.writer = SummaryWriter(folder)

    def on_step(self, line):
        self.show("training", line)

    def on_validation(self, line):
        self.show("validation", line)

    def on_end(self, line):
        self.writer.close()

    def show(self, part, line):
        rates = {f"rate of level {level}": rate for level, rate in enumerate(line["rates"], 1)}
        for name, value in (line | rates).items():
            if isinstance(value, (int, float)) and name not in ("step", "epoch"):
                self.writer.add_scalar(f"{part}/{name}", value, line["step"])


if __name__ == "__main__":
    data, out = sys.argv[1:]
    hmrnn.train(data, out=out, callbacks=[TensorBoard(out)])
