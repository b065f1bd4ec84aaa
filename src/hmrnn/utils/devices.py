"""The device to compute on: by name, and for a process started by torchrun."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from hmrnn.errors import InputError


def find_device(given: Any) -> torch.device:
    """The device named auto, cpu, cuda or cuda:N, or given as torch.device; InputError unless it can be used."""
    if given == "auto":
        given = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device: torch.device | None = torch.device(given)
    except (RuntimeError, TypeError):
        device = None
    shown = repr(str(given)) if isinstance(given, torch.device) else repr(given)
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError("must be auto, cpu, cuda or cuda:N", setting="device", value=shown)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError("this PyTorch sees no GPU; use cpu", setting="device", value=shown)
        count = torch.cuda.device_count()
        if device.index is not None and device.index >= count:
            there = "there is 1 GPU" if count == 1 else f"there are {count} GPUs"
            raise InputError(f"{there}, counted from cuda:0; choose one of these", setting="device", value=device)
    return device


def hardware(device: torch.device) -> str:
    """What a device is, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)"


def choose_device(name: str) -> torch.device:
    """The device of this process, made the current one; under torchrun, cuda is the GPU of the local rank."""
    device = find_device(name)
    if device.type == "cuda":
        if device.index is None:
            device = find_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        torch.cuda.set_device(device)
    return device
