"""Compressed files and archives of unknown origin, read within bounds: nothing is unpacked to disk or unpickled."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kind import Progress

Report = Callable[[int], None]
"""Called with the number of bytes just read."""

LARGEST_MEMBER = 1 << 24
"""Bytes of one file in a tar archive; line files of IAM-OnDB have under 200,000."""
LARGEST_TAR = 1 << 32
"""Bytes of a tar archive, unpacked; IAM-OnDB has under 600 million."""
LARGEST_FILE = 1 << 30
"""Bytes of a file of strokes and of the arrays that an .npz file declares, unpacked; IAM-OnDB has 32 million."""

_BLOCK = 1 << 20  # bytes
_UNQUESTIONED, _RATIO = 1 << 30, 500  # unpacked bytes that are always allowed; beyond them, times the packed size
_UNPACKERS: dict[str, Callable[[Any], Any]] = {
    ".xz": lzma.LZMAFile,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
}
PACKED = tuple(_UNPACKERS)
"""Endings of compressed files."""
_TARS = {".tar": lambda file: file, ".tgz": _UNPACKERS[".gz"], **{f".tar{end}": u for end, u in _UNPACKERS.items()}}
_NO_NPZ = (zipfile.BadZipFile, tokenize.TokenError, ValueError, TypeError, RuntimeError, MemoryError, OSError)
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, tarfile.TarError, struct.error, OverflowError)


def count_progress(progress: Progress, total: int) -> Report:
    """A :data:`Report` that adds up the bytes and passes the sum and ``total`` to ``progress``."""
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    return report


def is_packed(path: Path) -> bool:
    """Whether the name is that of a compressed file."""
    return path.suffix in PACKED


def read_blocks(path: Path, report: Report) -> Iterator[bytes]:
    """The content of a file, which may be a pipe, in blocks; decompressed if it ends in .xz, .gz or .bz2."""
    try:
        with open(path, "rb") as file:
            stream = _UNPACKERS[path.suffix](file) if is_packed(path) else file
            position = file.tell if file.seekable() else lambda: 0
            before = total = 0
            while block := stream.read(_BLOCK):
                report(position() - before)
                before, total = position(), total + len(block)
                if total > _UNQUESTIONED and total > _RATIO * before:
                    raise InputError(
                        f"{path} unpacks to more than {_RATIO} times its size; if that is right, unpack it first"
                    )
                yield block
    except _DAMAGED as error:
        raise InputError(f"{path} is not a whole {path.suffix} file ({error}); fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})") from error


def read_whole(path: Path, report: Report) -> bytes:
    """The content of a file of strokes, decompressed; InputError if it has more than ``LARGEST_FILE`` bytes."""
    return joined(str(path), read_blocks(path, report), LARGEST_FILE, "split it up")


def joined(name: str, blocks: Iterable[bytes], most: int, advice: str) -> bytes:
    """The blocks in one piece; InputError beyond ``most`` bytes, so that an endless file ends."""
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > most:
            raise InputError(f"{name} has more than {most:,} bytes; {advice}")
    return bytes(data)


def is_tar(path: Path) -> bool:
    """Whether the name is that of a tar archive."""
    return path.name.endswith(tuple(_TARS))


def read_tar(path: Path, wanted: Callable[[str], bool], report: Report) -> Iterator[tuple[str, bytes | str]]:
    """The wanted files of a tar archive, in its order: (path inside the archive, content).

    The content is a str with the reason if a file is refused: a link, or too large. A
    damaged or truncated archive is an InputError. ``report`` receives bytes of the compressed file.
    """
    unpack = next(unpack for ending, unpack in _TARS.items() if path.name.endswith(ending))
    before = 0
    try:
        with open(path, "rb") as file:
            stream = _Bounded(unpack(file), path)
            with tarfile.open(fileobj=cast(Any, stream), mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # tarfile would keep all of them in memory
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
    except (*_DAMAGED, ValueError) as error:
        raise InputError(f"{path} is not a whole tar archive ({error}); fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})") from error


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | str:
    """The content of a member, or the reason why it is refused."""
    if not member.isreg() or member.issparse():
        return "it is not a regular file"
    if member.size > LARGEST_MEMBER:
        return f"it has {member.size:,} bytes; at most {LARGEST_MEMBER:,} are read"
    reader = tar.extractfile(member)
    assert reader is not None  # a regular file always has one
    content = reader.read()
    if len(content) != member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


class _Bounded:
    """A decompressed stream with a limit on each read and on the total, which remembers the last block read."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path = stream, path
        self.last = b""

    @property
    def ended(self) -> bool:
        """Whether the last header read was the end mark, a block of zeros."""
        return len(self.last) == tarfile.BLOCKSIZE and not any(self.last)

    def drain(self) -> None:
        """Read to the end of the file, where compressors put their checksums."""
        while self.read(tarfile.RECORDSIZE):
            self.seek(self.tell())

    def read(self, size: int) -> bytes:
        if not 0 <= size <= 2 * LARGEST_MEMBER:
            raise InputError(f"{self.path} has a header of {size:,} bytes; it is not an archive of strokes")
        self.last = self.stream.read(size)
        return self.last

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and position > LARGEST_TAR:
            raise InputError(f"{self.path} unpacks to more than {LARGEST_TAR:,} bytes; it is not an archive of strokes")
        return int(self.stream.seek(position, whence))

    def tell(self) -> int:
        return int(self.stream.tell())


def read_npz(data: bytes, source: str, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """The wanted arrays of an .npz file, if present. Sizes are checked before anything is decompressed."""
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
    except (*_NO_NPZ, *_DAMAGED) as error:
        raise InputError(f"{source} is not a whole .npz file ({error}); write or fetch it again") from error


def _array(data: bytes, source: str) -> np.ndarray:
    """An array from the bytes of an .npy file; pickled objects are never loaded."""
    file = io.BytesIO(data)
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    if file.tell() < len(data):
        raise InputError(f"{source} has {len(data) - file.tell():,} bytes more than it declares")
    return array
