"""The machine and the versions that a result was measured with; other scripts import it."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from hmrnn import __version__
from hmrnn.utils import devices


def hardware(device: str) -> str:
    """The name of this machine in a table."""
    return devices.hardware(torch.device(device))


def environment(device: str) -> dict[str, Any]:
    """Hardware, versions and conditions to record beside a result."""
    return {
        "hardware": hardware(device), "torch": torch.__version__, "hmrnn": __version__,
        "python": platform.python_version(), "commit": commit(), "date": time.strftime("%Y-%m-%d"),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }  # fmt: skip


def commit() -> str:
    """The commit of the source: HMRNN_COMMIT if it is set, or that of the git checkout."""
    if "HMRNN_COMMIT" in os.environ:
        return os.environ["HMRNN_COMMIT"]
    with contextlib.suppress(FileNotFoundError):  # git is not installed
        words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"
