"""Two processes on the CPU, started by torchrun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tiny


def start(work: Path, *arguments: object) -> subprocess.Popen[str]:
    """Run a command of hmrnn in two processes with ``work`` as their working directory."""
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hmrnn")
    environment = {name: value for name, value in tiny.environment(work / "cache").items() if name != "RANK"}
    return subprocess.Popen(
        [sys.executable, *run, *map(str, arguments)],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it still writes to its two outputs; a process that hangs is ended, and with it those it started."""
    try:
        return process.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(timeout=60)
        raise
