"""Files that are written whole or not at all, and folders that one process holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from hmrnn.errors import InputError

ELSEWHERE = "give a path in a directory that exists and can be written to"


@contextlib.contextmanager
def replacing(path: Path, *, advice: str | None = None, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to: once it is complete and on the disk it takes the place of ``path``, or else it goes.

    With ``advice`` an OSError becomes an InputError that says what to do; without, it is left to the caller.
    ``temporary`` is what the file is called until then, on the same disk; if not given, a name beside ``path`` that no
    other process takes.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):  # where it could not even be begun, that is what is told
                temporary.unlink(missing_ok=True)
    except OSError as error:
        if advice is None:
            raise
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def write(path: Path, content: bytes, *, advice: str | None = None, temporary: Path | None = None) -> Path:
    """As :func:`replacing`, with all that the file is to hold. The path."""
    with replacing(path, advice=advice, temporary=temporary) as file:
        file.write(content)
    return path


def hold(folder: Path) -> IO[str]:
    """Make ``folder`` and hold it for this process until what is returned is closed.

    BlockingIOError if another process holds it, or has just removed it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "lock", "a+")  # noqa: SIM115 (the caller closes it)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock.fileno()), os.stat(folder / "lock")):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except FileNotFoundError as error:
        lock.close()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
    except OSError:
        lock.close()
        raise
    return lock
