"""Checkpoints: directories with weights, config, vocabulary, scale or labels, and the state that a run is resumed from.

    model.safetensors      the weights
    config.json            the Config
    input.json             what turns data into input: a vocabulary, a scale
    training.safetensors   optimizer, carried state, random states      (of a run that can be resumed)
    training.json          progress of the run                          (of a run that can be resumed)
    manifest.json          format version, size and SHA-256 of each of the above

A checkpoint is written under another name and renamed, so a crash at any moment leaves the previous one intact. A run
keeps its best model as ``best-STEP`` and its newest two states as ``last-STEP``. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from hmrnn import kind
from hmrnn.config import Config
from hmrnn.config.json import from_json, to_json
from hmrnn.errors import InputError
from hmrnn.kind import InputSpec
from hmrnn.utils.files import content

FORMAT = 1
NAME = re.compile(r"(best|last)-(\d{8,})|\.(best|last)-(\d{8,})\.(old|new)")
"""Names of checkpoints of a run. .NAME.new is being written; .NAME.old was renamed while NAME was being replaced."""
REQUIRED = ("model.safetensors", "config.json", "input.json")
MODEL = (*REQUIRED, "manifest.json")
"""The files of a model."""
TRAINING = ("training.safetensors", "training.json")
FILES = (*REQUIRED, *TRAINING)
LARGEST_MANIFEST = 1 << 16


class Checkpoint(NamedTuple):
    """The content of a checkpoint; ``progress`` and ``training`` are None if training cannot be resumed from it."""

    config: Config
    reads: InputSpec
    weights: dict[str, Tensor]
    progress: dict[str, Any] | None = None
    training: dict[str, Tensor] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    sha256: str


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    files: dict[str, _File]


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` so that ``directory`` either holds all of it or stays as it was."""
    files = {
        "model.safetensors": save_tensors(_plain(checkpoint.weights)),
        "config.json": to_json(checkpoint.config),
        "input.json": to_json(checkpoint.reads.to_dict()),
    }
    if checkpoint.training is not None:
        files["training.safetensors"] = save_tensors(_plain(checkpoint.training))
        files["training.json"] = to_json(checkpoint.progress)
    manifest = {name: _File(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    files["manifest.json"] = to_json(_Manifest(FORMAT, manifest))

    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = directory.with_name(f".{directory.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir()
        for name, data in files.items():
            with open(fresh / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync_directory(fresh)
    except OSError:  # the disk may be full: free the space
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    aside = directory.with_name(f".{directory.name}.old")
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(directory, aside)
    os.rename(fresh, directory)
    _sync_directory(directory.parent)
    shutil.rmtree(aside, ignore_errors=True)


def read(directory: Path, *, training: bool = False) -> Checkpoint:
    """The checkpoint in ``directory``, checksums verified; with ``training`` also the state to resume from."""
    try:
        files = _verified_files(directory)
    except InputError as error:
        raise InputError(f"{error}{_another(directory, training)}") from error
    config = from_json(files["config.json"], Config, f"{directory}/config.json")
    reads = kind.of(config).spec(from_json(files["input.json"], dict, f"{directory}/input.json"))
    weights = _tensors(files["model.safetensors"], directory / "model.safetensors")
    if not training:
        return Checkpoint(config, reads, weights)
    if "training.json" not in files:
        raise InputError(f"{directory} holds a model, but no state to resume training from")
    progress = from_json(files["training.json"], dict, f"{directory}/training.json")
    state = _tensors(files["training.safetensors"], directory / "training.safetensors")
    return Checkpoint(config, reads, weights, progress, state)


def _another(directory: Path, training: bool) -> str:
    """The end of a message about a damaged checkpoint: the newest intact one of the run, and how to use it."""
    if not NAME.fullmatch(directory.name):
        return ""
    for path in reversed([path for path in checkpoints(directory.parent) if path != directory]):
        try:
            files = _verified_files(path)
        except InputError:
            continue
        if not training:
            return f"; {path.name} is intact: to use it, give {path}, or remove {directory}"
        if "training.json" in files:
            return f"; {path.name} is intact: to resume from it, remove {directory}"
    return "; no other checkpoint of the run is intact"


def find(directory: Path, prefer: Literal["best", "last"] = "best") -> Path:
    """``directory`` if it is a checkpoint; if it is a run directory, its newest checkpoint of the preferred kind.

    A checkpoint without a manifest is returned, too: :func:`read` then raises InputError and names an intact one.
    """
    if (directory / "manifest.json").exists():
        return directory
    if not directory.is_dir():
        raise InputError(f"no checkpoint at {directory}: expected a run directory or a checkpoint directory")
    of_kind = [path for path in named(directory) if prefer in path.name] or checkpoints(directory)
    if not of_kind:
        raise InputError(f"{directory} holds no checkpoint (looked for manifest.json and best-*/ or last-*/)")
    return of_kind[-1]


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run directory that have a manifest, the newest last."""
    return [path for path in named(run) if (path / "manifest.json").exists()]


def named(run: Path) -> list[Path]:
    """All paths named as a finished checkpoint, intact or not, the newest last."""
    found = [path for path in run.iterdir() if NAME.fullmatch(path.name) and path.suffix != ".new"]
    return sorted(found, key=lambda path: (step_of(path), path.suffix != ".old", path.name))


def step_of(path: Path) -> int:
    """The update after which a checkpoint was written, from its name."""
    return int(path.stem.split("-")[1])


def prune(run: Path, kind: Literal["best", "last"], keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints of a kind, and incomplete ones that a crash has left."""
    kept = [path for path in checkpoints(run) if kind in path.name][-keep:]
    for path in [path for path in named(run) if kind in path.name and kept and step_of(path) < step_of(kept[0])]:
        remove(path)
    for path in run.glob(f".{kind}-*.new"):
        shutil.rmtree(path)


def remove(directory: Path) -> None:
    """Remove a checkpoint, its manifest first, so that a crash leaves nothing that looks like a complete one."""
    (directory / "manifest.json").unlink(missing_ok=True)
    shutil.rmtree(directory)


def _verified_files(directory: Path) -> dict[str, bytes]:
    try:
        listed = content(directory / "manifest.json", LARGEST_MANIFEST)
    except OSError as error:
        raise InputError(f"no checkpoint at {directory}: manifest.json cannot be read ({error.strerror})") from error
    if listed is None:
        raise InputError(f"{directory}/manifest.json is damaged: it has more than {LARGEST_MANIFEST:,} bytes")
    manifest = from_json(listed, _Manifest, f"{directory}/manifest.json")
    if manifest.format != FORMAT:
        raise InputError(
            f"{directory} is a checkpoint of format {manifest.format}, this hmrnn reads format {FORMAT}; "
            "use the version of hmrnn that wrote it, or train again"
        )
    state = set(TRAINING) & manifest.files.keys()
    needed = (*REQUIRED, *(TRAINING if state else []))
    missing = [name for name in needed if name not in manifest.files]
    if missing:
        raise InputError(
            f"{directory}/manifest.json does not list {', '.join(missing)}; the checkpoint is not complete"
        )
    if listed != to_json(manifest):  # the manifest has no checksum: compare it with its own encoding
        raise InputError(f"{directory}/manifest.json is damaged: it is not in the form that hmrnn writes")
    files = {}
    for name, expected in manifest.files.items():
        if name not in FILES:
            raise InputError(f"{directory}/manifest.json names a file outside the checkpoint: {name!r}")
        try:
            data = content(directory / name, most=expected.size, least=expected.size)
        except OSError as error:
            raise InputError(
                f"{directory}/{name} cannot be read ({error.strerror}); the checkpoint is damaged"
            ) from error
        if data is None or hashlib.sha256(data).hexdigest() != expected.sha256:
            raise InputError(f"{directory}/{name} is damaged: its size or its checksum differs from the manifest")
        files[name] = data
    return files


def _tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(data)
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{path} is not a safetensors file: {error}") from error


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
