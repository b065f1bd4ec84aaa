"""Numbers and lines of a stress test, and where and on what it ran."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


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
    """Of the source; HMRNN_COMMIT names it where only a copy of the files is."""
    if "HMRNN_COMMIT" in os.environ:
        return os.environ["HMRNN_COMMIT"]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = " with uncommitted changes" if git("status", "--porcelain", "src", "tests", "pyproject.toml") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def hardware() -> str:
    said = subprocess.run(["lscpu"], capture_output=True, text=True).stdout if Path("/usr/bin/lscpu").exists() else ""
    names = [line.split(":", 1)[1].strip() for line in said.splitlines() if line.startswith("Model name")]
    gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return ", ".join([f"{os.cpu_count()} x {names[0] if names else platform.machine()}", *gpus])
