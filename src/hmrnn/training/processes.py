"""The processes of torchrun: starting and ending their group, and what they agree on."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor


@contextlib.contextmanager
def processes(device: torch.device) -> Iterator[tuple[int, int]]:
    """(rank, number of processes) of torchrun, or (0, 1) without it."""
    if "RANK" not in os.environ:
        yield 0, 1
        return
    # DDP imports torch.distributed.nn. If that happens while there is a group, the group becomes a default argument of
    # its functions; gloo's threads then outlive the interpreter, and freeing a tensor so late aborts the process.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        gc.collect()  # a network that only a reference cycle holds must be freed before the group
        dist.destroy_process_group()


def gather(part: Tensor, world: int) -> list[Tensor]:
    """``part`` of every process."""
    if world == 1:
        return [part]
    parts = [torch.empty_like(part) for _ in range(world)]
    dist.all_gather(parts, part.contiguous())
    return parts


def agree(world: int, device: torch.device, asked: list[str], save_due: bool) -> tuple[str | None, bool]:
    """(the signal to stop by, whether to save): what any process wants, all do."""
    if world == 1:
        return (asked[0] if asked else None), save_due
    number = int(signal.Signals[asked[0]]) if asked else 0
    flags = torch.tensor([number, int(save_due)], device=device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    number, due = flags.tolist()
    return (signal.Signals(number).name if number else None), bool(due)
