"""What each process of the group in test_distributed.py does: three runs one after the other, then a look at the group.

Arguments: a free port for each run, and the flags of both kinds of runs in two JSON files.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import weakref
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

import tiny
from hmrnn.training.processes import processes
from hmrnn.training.trainer import Trainer

STOP_AT = 9
"""The update after which the second process alone is asked to stop; both must."""


def new_group(port: str) -> None:
    """The next process group meets at another port: the store of torchrun still holds the addresses of the last."""
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": port}


def train(name: str, *arguments: str) -> int:
    """A run; what it prints goes into a file of this process."""
    with open(f"{name}.{os.environ['RANK']}.txt", "w") as file, contextlib.redirect_stdout(file):
        return tiny.hmrnn("train", "story.txt", *arguments)


def stop_second_process(step: int) -> None:
    whole = Trainer.step

    def until(self: Trainer) -> None:
        whole(self)
        if self.progress.step == step and self.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    Trainer.step = until  # type: ignore[method-assign]


def main(ports: list[str], alive: Path, controlled: Path) -> None:
    new_group(ports[0])
    assert train("alive", "--out", "alive", *json.loads(alive.read_text())) == 0
    new_group(ports[1])
    stop_second_process(STOP_AT)
    assert train("stopped", "--out", "controlled", *json.loads(controlled.read_text())) == 128 + signal.SIGTERM
    new_group(ports[2])
    assert train("controlled", "--out", "controlled", "--resume", "--no-report") == 0

    new_group(ports[3])
    with processes(torch.device("cpu")):
        group = weakref.ref(torch.distributed.group.WORLD)
        network = DistributedDataParallel(torch.nn.Linear(2, 2))
        del network
        gc.collect()
    assert group() is None  # were it kept, gloo's threads would outlive the interpreter and could abort it at its end


if __name__ == "__main__":
    main(sys.argv[1:5], Path(sys.argv[5]), Path(sys.argv[6]))
