"""The directory of a run: config.json, metrics.jsonl, best-STEP/, last-STEP/, report.html, figures; held by one run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config, from_json, to_json
from hmrnn.errors import InputError
from hmrnn.utils import files

FRESH_CONFIG = ".config.json.new"
"""What a run that was killed at its very start leaves behind."""


class RunDirectory:
    """See the module. Nothing is created or removed before :meth:`open`; with ``writer=False`` nothing ever is."""

    def __init__(self, path: Path, *, writer: bool = True) -> None:
        self.path, self.writer = path, writer

    @property
    def holds_run(self) -> bool:
        return (self.path / "config.json").exists()

    def config(self) -> Config:
        """The config of the run that is here."""
        try:
            data = (self.path / "config.json").read_bytes()
        except OSError as error:
            raise InputError(f"there is no run to go on with in {self.path}; start one without --resume") from error
        return from_json(data, Config, f"{self.path}/config.json")

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Raise InputError if a run may not start here."""
        if resume and overwrite:
            raise InputError("--resume and --overwrite exclude each other; give one of them")
        if resume:
            self.config()
        elif self.holds_run and not overwrite:
            raise InputError(
                f"{self.path} already holds a run; go on with it by --resume, replace it by --overwrite, "
                "or choose another --out"
            )
        elif self.path.exists() and not self.holds_run and not self._is_empty():
            raise InputError(f"{self.path} exists and is not a run directory; choose another --out")

    def _is_empty(self) -> bool:
        return self.path.is_dir() and all(path.name in ("lock", FRESH_CONFIG) for path in self.path.iterdir())

    @contextlib.contextmanager
    def open(self, *, overwrite: bool = False) -> Iterator[None]:
        """Take the directory for one process; create it, or with ``overwrite`` remove the run that is in it."""
        if not self.writer:
            yield
            return
        try:
            lock = files.hold(self.path)
        except BlockingIOError as error:
            raise InputError(f"another run is writing to {self.path}; wait for it or choose another --out") from error
        except OSError as error:
            raise InputError(f"cannot write to {self.path}: {error.strerror}; choose another --out") from error
        with lock:
            if overwrite:
                self._clear()
            yield

    def store(self, config: Config) -> None:
        """Write config.json, which makes this the directory of a run."""
        if self.writer:
            with self._writing("config.json"):
                files.write(self.path / "config.json", to_json(config), temporary=self.path / FRESH_CONFIG)

    def _clear(self) -> None:
        """Remove a run, all but its config.json: until that is replaced, this is a run that --overwrite can replace."""
        for path in self.path.iterdir():
            if checkpoint.NAME.fullmatch(path.name) or path.name == "figures":
                shutil.rmtree(path)
            elif path.name in ("metrics.jsonl", "report.html"):
                path.unlink()

    def save(self, kind: Literal["best", "last"], step: int, saved: Checkpoint) -> None:
        """Write a checkpoint. With a state, older states and best models go: till then the one before could go on."""
        if not self.writer:
            return
        if not self.path.is_dir():
            raise InputError(f"{self.path} is gone: it was moved or removed while the run was writing to it")
        with self._writing("a checkpoint"):
            checkpoint.write(self.path / f"{kind}-{step:08d}", saved)
            if kind == "last":
                checkpoint.prune(self.path, "last", keep=2)
                checkpoint.prune(self.path, "best", keep=1)

    def drop_best_after(self, step: int) -> None:
        """Remove best models after ``step``, where a run goes on, maybe another way; a model without others stays."""
        found = [path for path in checkpoint.checkpoints(self.path) if "best" in path.name] if self.writer else []
        after = [path for path in found if checkpoint.step_of(path) > step]
        for path in after if len(after) < len(found) else ():
            shutil.rmtree(path)

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"cannot write {what} to {self.path}: {error.strerror}; mend that and go on by --resume"
            ) from error

    def states(self) -> list[Path]:
        """The checkpoints that training can go on from, the newest last."""
        return [path for path in checkpoint.checkpoints(self.path) if "last" in path.name]

    def newest_state(self) -> Checkpoint:
        """The newest of them."""
        found = self.states()
        if not found:
            raise InputError(
                f"the run in {self.path} stopped before its first checkpoint; start it again by --overwrite"
            )
        return checkpoint.read(found[-1], training=True)

    def newest_progress(self) -> dict[str, Any]:
        """Where the run stands; empty before its first checkpoint."""
        found = self.states()
        return checkpoint.read(found[-1], training=True).progress or {} if found else {}

    @contextlib.contextmanager
    def metrics(self, size: int) -> Iterator[Callable[[dict[str, Any]], int]]:
        """A function that appends a line to metrics.jsonl and gives its new size; lines past ``size`` are dropped."""
        if not self.writer:
            yield lambda line: 0
            return
        with contextlib.ExitStack() as stack:
            with self._writing("metrics.jsonl"):
                file = stack.enter_context(open(self.path / "metrics.jsonl", "ab", buffering=0))
                file.truncate(min(size, file.tell()))

            def write(line: dict[str, Any]) -> int:
                left = json.dumps(line).encode() + b"\n"
                with self._writing("metrics.jsonl"):
                    while left:  # a disk that fills up takes a part before it says so
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())  # a checkpoint counts on the lines before it
                return file.tell()

            yield write
