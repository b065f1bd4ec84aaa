"""Files that are written completely or not at all, read within bounds, and directories locked by one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

from hmrnn.errors import InputError

ADVICE = "give a path in a directory that exists and can be written to"


@contextlib.contextmanager
def replacing(path: Path, *, advice: str | None = None, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """A temporary file to write to, which replaces ``path`` when the block ends and is deleted if the block raises.

    Args:
        path: the file to replace.
        advice: the end of the InputError that replaces an OSError; None leaves the OSError.
        temporary: the path of the temporary file, on the same disk; a unique name beside ``path`` by default.
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
            with contextlib.suppress(OSError):  # if the file could not be created, that error is raised
                temporary.unlink(missing_ok=True)
    except OSError as error:
        if advice is None:
            raise
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def write(path: Path, content: bytes, *, advice: str | None = None, temporary: Path | None = None) -> Path:
    """Write a file as :func:`replacing` does, and return the path."""
    with replacing(path, advice=advice, temporary=temporary) as file:
        file.write(content)
    return path


def spool(texts: Iterable[Any], path: Path) -> Path:
    """Write texts, or the ``"text"`` of rows, one after the other, each with a line end; none is kept in memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        for one in [texts] if isinstance(texts, str) else texts:
            text = one.get("text") if isinstance(one, Mapping) else one
            if not isinstance(text, str):
                raise InputError('must hold texts, or rows with a "text"', setting="data", value=repr(text)[:100])
            file.write(f"{text}\n".encode())
    return path


def content(path: Path, most: int, least: int = 0) -> bytes | None:
    """The bytes of a regular file; None, and nothing is read, if its size is not between ``least`` and ``most``."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            data = file.read(size) if least <= size <= most else None
        except MemoryError as error:
            raise OSError(errno.ENOMEM, f"its {size:,} bytes do not fit into memory") from error
    return data if data is not None and len(data) == size else None


def seems_named(text: str) -> bool:
    """Whether a text looks like the name of a file: one word with a usual ending."""
    return re.fullmatch(r"\S{1,255}\.(txt|md|csv|tsv|json|jsonl|npz|xz|gz|bz2)", text) is not None


def endings(path: Path) -> set[str]:
    """The endings of a file's name, or of all names in a folder; of packed files those before .xz, .gz or .bz2."""
    names = [name for _, _, found in os.walk(path) for name in found] if path.is_dir() else [path.name]
    return {Path(re.sub(r"\.(xz|gz|bz2)$", "", name)).suffix.lower() for name in names}


def paths(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """One path, or several, as strings."""
    return tuple(map(str, [given] if isinstance(given, str | Path) else given))


def shown(text: str) -> str:
    """``text`` with bytes that are not UTF-8 as escapes, such as \\xff."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace").decode()


def hold(folder: Path) -> IO[str]:
    """Create ``folder`` and lock it for this process until the returned file is closed.

    InputError if it cannot be written to, or if another process holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "lock").exists() and not (folder / "lock").is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(folder / "lock"))
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(open(folder / "lock", "a+"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stack.pop_all()
    except BlockingIOError as error:
        raise InputError(f"another process is writing to {folder}; wait for it, or choose another directory") from error
    except OSError as error:
        where = error.filename or folder
        raise InputError(f"cannot write to {where}: {error.strerror or error}; choose another directory") from error
    return lock
