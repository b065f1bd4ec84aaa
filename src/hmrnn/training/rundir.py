"""The directory of a run: config.json, metrics.jsonl, best-STEP/, last-STEP/ and report.html."""

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
from hmrnn.config import Config
from hmrnn.config.json import to_json
from hmrnn.errors import InputError
from hmrnn.training.metrics import read_metrics
from hmrnn.utils import files

FRESH_CONFIG = ".config.json.new"
"""What a run that was killed while it wrote its first file leaves behind."""


class RunDirectory:
    """The directory of a run, which one process writes at a time.

    Nothing is created or removed before :meth:`open`, and nothing at all with ``writer=False``.
    """

    def __init__(self, path: Path, *, writer: bool = True) -> None:
        self.path, self.writer = path, writer
        self._place: os.stat_result | None = None

    @property
    def holds_run(self) -> bool:
        return (self.path / "config.json").exists()

    def config(self) -> Config:
        """The config of the run."""
        states = self.states()
        if not self.holds_run and not states:
            raise InputError(f"there is no run to resume in {self.path}; start a new one")
        try:
            return Config.read(self.path / "config.json")
        except InputError as error:
            copy = f"; to resume the run, copy it from {states[-1]}" if states else ""
            raise InputError(f"{error}{copy}") from error

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Raise InputError if a run cannot start here."""
        if resume and overwrite:
            raise InputError("a run cannot be both resumed and overwritten; choose one")
        if resume:
            self.config()
        elif self.holds_run and not overwrite:
            raise InputError(f"{self.path} already holds a run; resume it, overwrite it, or choose another directory")
        elif self.path.exists() and not self.holds_run and not self._is_empty():
            raise InputError(f"{self.path} exists and is not a run directory; choose another directory")

    def _is_empty(self) -> bool:
        return self.path.is_dir() and all(path.name in ("lock", FRESH_CONFIG) for path in self.path.iterdir())

    @contextlib.contextmanager
    def open(self, *, overwrite: bool = False) -> Iterator[None]:
        """Lock the directory for this process. It is created, or with ``overwrite`` the run in it is removed."""
        if not self.writer:
            yield
            return
        with files.hold(self.path):
            self._place = os.stat(self.path)
            if overwrite:
                with self._writing():
                    self._clear()
            yield

    def store(self, config: Config) -> None:
        """Write config.json, which makes this a run directory."""
        if self.writer:
            with self._writing("config.json "):
                files.write(self.path / "config.json", to_json(config), temporary=self.path / FRESH_CONFIG)

    def _clear(self) -> None:
        """Remove a run except its config.json, so that it can be overwritten again after a crash."""
        for path in self.path.iterdir():
            if checkpoint.NAME.fullmatch(path.name):
                shutil.rmtree(path)
            elif path.name in ("metrics.jsonl", "report.html"):
                path.unlink()

    def save(self, kind: Literal["best", "last"], step: int, saved: Checkpoint) -> None:
        """Write a checkpoint. After a "last" one, all but the newest two of these and the newest best are removed."""
        if not self.writer:
            return
        self._check_in_place()
        with self._writing("a checkpoint "):
            checkpoint.write(self.path / f"{kind}-{step:08d}", saved)
            if kind == "last":
                checkpoint.prune(self.path, "last", keep=2)
                checkpoint.prune(self.path, "best", keep=1)

    def _check_in_place(self) -> None:
        """Raise InputError if the directory is gone, even if there is another one in its place."""
        there = os.stat(self.path) if self.path.is_dir() else None
        if there is None or not os.path.samestat(there, self._place or there):
            raise InputError(f"{self.path} is gone: it was moved or removed while the run was writing to it")

    def drop_best_after(self, step: int) -> None:
        """Remove best models after ``step``, from which a run is resumed, unless there are no earlier ones."""
        found = [path for path in checkpoint.checkpoints(self.path) if "best" in path.name] if self.writer else []
        after = [path for path in found if checkpoint.step_of(path) > step]
        with self._writing():
            for path in after if len(after) < len(found) else ():
                checkpoint.remove(path)

    @contextlib.contextmanager
    def _writing(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"cannot write {what}to {self.path}: {error.strerror or error}; fix that and resume the run"
            ) from error

    def states(self) -> list[Path]:
        """The whole checkpoints that training can be resumed from, the newest last."""
        found = checkpoint.checkpoints(self.path) if self.path.is_dir() else []
        return [path for path in found if "last" in path.name]

    def newest_state(self) -> Checkpoint:
        """The newest checkpoint to resume from; InputError if it is damaged, even if an older one is whole."""
        found = [path for path in checkpoint.named(self.path) if "last" in path.name]
        if not found:
            raise InputError(f"the run in {self.path} stopped before its first checkpoint; overwrite it")
        return checkpoint.read(found[-1], training=True)

    def newest_progress(self) -> dict[str, Any]:
        """Where the run stands; empty before its first checkpoint."""
        return self.newest_state().progress or {} if self.states() else {}

    def check_metrics(self, size: int) -> int:
        """The bytes of metrics.jsonl to go on from: ``size``, as at the checkpoint, or 0 if the file is gone.

        InputError if it is shorter, or if these bytes are not lines of metrics.
        """
        path, advice = self.path / "metrics.jsonl", "put it back, or remove it to resume without its lines"
        if not path.exists():
            return 0
        if path.stat().st_size < size:
            raise InputError(
                f"{path} has lost lines: it holds {path.stat().st_size} bytes, and {size} at the last checkpoint; "
                f"{advice}"
            )
        try:
            read_metrics(path, size)
        except InputError as error:
            raise InputError(f"{error}; or {advice}") from error
        return size

    @contextlib.contextmanager
    def metrics(self, size: int) -> Iterator[Callable[[dict[str, Any]], int]]:
        """A function that appends a line to metrics.jsonl and returns the new size; lines beyond ``size`` go."""
        if not self.writer:
            yield lambda line: 0
            return
        with contextlib.ExitStack() as stack:
            with self._writing("metrics.jsonl "):
                file = stack.enter_context(open(self.path / "metrics.jsonl", "ab", buffering=0))
                file.truncate(min(size, file.tell()))

            def write(line: dict[str, Any]) -> int:
                left = json.dumps(line).encode() + b"\n"
                with self._writing("metrics.jsonl "):
                    while left:  # a full disk may take a part of it before the error
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())  # the next checkpoint counts these bytes
                return file.tell()

            yield write
