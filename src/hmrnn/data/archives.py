"""Archives from elsewhere, read in memory and within bounds: nothing is unpacked to disk, nothing is unpickled."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

import numpy as np

from hmrnn.data.text.sources import Report, read_blocks
from hmrnn.errors import InputError

LARGEST_MEMBER = 1 << 24
"""Bytes of one file in a tar archive; the longest line file of IAM-OnDB has under 200,000."""
LARGEST_TAR = 1 << 32
"""Bytes of a whole tar archive, unpacked; IAM-OnDB has under 600 million."""
LARGEST_FILE = 1 << 30
"""Bytes of a file of strokes and of what an .npz declares, unpacked; all of IAM-OnDB has 32 million."""

_TAR_ENDINGS: dict[str, Callable[[Any], Any]] = {
    ".tar": lambda file: file,
    ".tar.gz": lambda file: gzip.GzipFile(fileobj=file),
    ".tgz": lambda file: gzip.GzipFile(fileobj=file),
    ".tar.xz": lzma.LZMAFile,
    ".tar.bz2": bz2.BZ2File,
}
_NOT_WHOLE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, tarfile.TarError, struct.error, OverflowError)


def is_tar(path: Path) -> bool:
    """Whether this is the name of a tar archive."""
    return path.name.endswith(tuple(_TAR_ENDINGS))


def read_tar(path: Path, wanted: Callable[[str], bool], report: Report) -> Iterator[tuple[str, bytes | str]]:
    """The files of a tar archive whose names are wanted, in its order: (path inside, content).

    In place of its content comes a str that says why, if a file cannot be taken: a link, a path that leaves the
    folder, or too large. An archive that is cut off or damaged is an InputError. ``report`` is told of bytes of the
    packed file.
    """
    unpack = next(unpack for ending, unpack in _TAR_ENDINGS.items() if path.name.endswith(ending))
    before = 0
    try:
        with open(path, "rb") as file:
            stream = _Bounded(unpack(file), path)
            with tarfile.open(fileobj=cast(Any, stream), mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # it would keep them all
                    report(file.tell() - before)
                    before = file.tell()
                    if not member.isdir() and wanted(member.name):
                        yield member.name, _content(tar, member)
                if not stream.ended:
                    raise tarfile.ReadError("it has no end mark")
                stream.drain()
            report(os.path.getsize(path) - before)
    except InputError:
        raise
    except (*_NOT_WHOLE, ValueError) as error:
        raise InputError(f"{path} is not a whole tar archive ({error}); fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})") from error


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | str:
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts:
        return "its path leaves the folder"
    if not member.isreg() or member.issparse():
        return "it is not a regular file"
    if member.size > LARGEST_MEMBER:
        return f"it has {member.size:,} bytes; at most {LARGEST_MEMBER:,} are read"
    reader = tar.extractfile(member)
    assert reader is not None  # as it is a regular file
    content = reader.read()
    if len(content) != member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


class _Bounded:
    """An unpacked stream that gives neither too much at once nor too much in all, and knows how it ended."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path = stream, path
        self.last = b""

    @property
    def ended(self) -> bool:
        """Whether the last header read was the end mark, a block of zeros."""
        return len(self.last) == tarfile.BLOCKSIZE and not any(self.last)

    def drain(self) -> None:
        """Read on to the end, where packers put their checksums."""
        while self.read(tarfile.RECORDSIZE):
            self.seek(self.tell())

    def read(self, size: int) -> bytes:
        if not 0 <= size <= 2 * LARGEST_MEMBER:
            raise InputError(f"{self.path} has a header of {size:,} bytes; that is no archive of strokes")
        self.last = self.stream.read(size)
        return self.last

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and position > LARGEST_TAR:
            raise InputError(f"{self.path} unpacks to more than {LARGEST_TAR:,} bytes; that is no archive of strokes")
        return int(self.stream.seek(position, whence))

    def tell(self) -> int:
        return int(self.stream.tell())


def read_whole(path: Path, report: Report) -> bytes:
    """The content of a file, unpacked if it is packed; InputError if it is larger than any file of strokes."""
    blocks, size = [], 0
    for block in read_blocks(path, report):
        blocks.append(block)
        size += len(block)
        if size > LARGEST_FILE:
            raise InputError(f"{path} has more than {LARGEST_FILE:,} bytes, unpacked; split it up")
    return b"".join(blocks)


def read_npz(data: bytes, source: str, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file that are wanted and there. Sizes are checked before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
            members = {name: info for name, info in members.items() if name in wanted}
            declared = sum(info.file_size for info in members.values())
            if declared > LARGEST_FILE:
                raise InputError(f"{source} declares {declared:,} bytes; at most {LARGEST_FILE:,} are read")
            return {name: _array(file.read(info), f"{source}, array {name}") for name, info in members.items()}
    except InputError:
        raise
    except (zipfile.BadZipFile, *_NOT_WHOLE, ValueError, NotImplementedError, RuntimeError, OSError) as error:
        raise InputError(f"{source} is not a whole .npz file ({error}); write or fetch it again") from error


def _array(data: bytes, source: str) -> np.ndarray:
    """An array from the bytes of an .npy file."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise InputError(f"{source} is of version {version} of the .npy format; 1.0 and 2.0 are read")
    if dtype.hasobject:
        raise InputError(f"{source} holds pickled objects, which are never loaded; save plain arrays of numbers")
    if dtype.kind not in "biufSU" or not dtype.itemsize:
        raise InputError(f"{source} must hold plain numbers or strings; got {dtype}")
    body = len(data) - file.tell()
    count = body // dtype.itemsize
    # Compared in Python integers, as a product of the declared sizes may exceed any other.
    size = 1
    for n in shape:
        size *= n
    if any(n < 0 for n in shape) or size * dtype.itemsize != body:
        raise InputError(f"{source} declares shape {shape} of {dtype} but has {body:,} bytes")
    return np.frombuffer(data, dtype, count, file.tell()).reshape(shape, order="F" if fortran else "C")
