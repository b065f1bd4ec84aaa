"""The group of two processes in test_distributed.py: three runs one after the other, then a look at the group."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import socket
import traceback
import weakref
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

import tiny
from hmrnn.training.processes import processes
from hmrnn.training.trainer import Trainer

STOP_AT = 3
"""The update after which the second process alone is asked to stop; both must."""


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to sockets of port 0: no other test takes one before it is used."""
    found: list[int] = []
    candidates = iter(random.SystemRandom().sample(range(15_000, 30_000), 200))
    while len(found) < count:
        port = next(candidates)
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            found.append(port)
    return found


def fork(alive: list[str], controlled: list[str]) -> list[str]:
    """Do it in two processes in the current folder, with the flags of both kinds of runs; what each one died of.

    They have the environment that torchrun gives to its processes, and need not import torch again.
    """
    ports, children = free_ports(4), []
    for rank in (0, 1):
        if (child := os.fork()) == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
            signal.alarm(180)  # ends a process that hangs
            with open(f"error.{rank}.txt", "w") as file:
                try:
                    main(ports, alive, controlled)
                except BaseException:
                    traceback.print_exc(file=file)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    texts = [Path(f"error.{rank}.txt").read_text() for rank in (0, 1)]
    return [text or (f"ended with {code}" if code else "") for text, code in zip(texts, codes)]


def new_group(port: int) -> None:
    """The next process group meets at another port, as the last one may still be closing its own."""
    os.environ["MASTER_PORT"] = str(port)


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


def main(ports: list[int], alive: list[str], controlled: list[str]) -> None:
    new_group(ports[0])
    assert train("alive", "--out", "alive", *alive) == 0
    new_group(ports[1])
    stop_second_process(STOP_AT)
    assert train("stopped", "--out", "controlled", *controlled) == 128 + signal.SIGTERM
    new_group(ports[2])
    assert train("controlled", "--out", "controlled", "--resume", "--no-report") == 0

    new_group(ports[3])
    with processes(torch.device("cpu")):
        group = weakref.ref(torch.distributed.group.WORLD)
        network = DistributedDataParallel(torch.nn.Linear(2, 2))
        del network
        gc.collect()
    assert group() is None  # were it kept, gloo's threads would outlive the interpreter and could abort it at its end
