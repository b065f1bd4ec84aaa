"""Numbers and lines of a stress test, and where and on what it ran."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

import tiny

ROOT = Path(__file__).parents[2]
machine: Any = tiny.script(ROOT / "benchmarks" / "machine.py")


class Record:
    """Collects numbers and lines of a test; both are written when it ends, whether well or not."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}
        self.lines: list[str] = []
        self.began = time.monotonic()
        self.commit = commit()  # the tree may go on while it runs

    def __setitem__(self, name: str, value: Any) -> None:
        self.numbers[name] = value
        self.say(f"{name}: {value}")

    def say(self, line: str) -> None:
        line = line.replace(f"{ROOT}/", "")  # a log does not tell where it was made
        self.lines.append(f"{time.monotonic() - self.began:8.1f} s  {line}")
        print(self.lines[-1], flush=True)


def commit() -> str:
    """Of the source, and whether it has changed since; where HMRNN_COMMIT names it nobody knows."""
    if "HMRNN_COMMIT" in os.environ:
        return machine.commit()
    status = ["git", "status", "--porcelain", "src", "tests", "pyproject.toml"]
    changed = subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return machine.commit() + (" with uncommitted changes" if changed else "")


def hardware() -> str:
    said = subprocess.run(["lscpu"], capture_output=True, text=True).stdout if Path("/usr/bin/lscpu").exists() else ""
    names = [line.split(":", 1)[1].strip() for line in said.splitlines() if line.startswith("Model name")]
    gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return ", ".join([f"{os.cpu_count()} x {names[0] if names else platform.machine()}", *gpus])
