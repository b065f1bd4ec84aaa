"""A checkpoint is a directory that stands alone: weights, config and vocabulary, and what a run needs to go on.

    model.safetensors      the weights
    config.json            the Config
    vocabulary.json        the symbols
    training.safetensors   optimizer, carried state, random states      (only where training can go on)
    training.json          where the run stands                         (only where training can go on)
    manifest.json          format version, size and SHA-256 of each of the above

It is written under another name and renamed, so a crash at any moment leaves the last whole one; a run keeps its best
model as ``best-STEP`` and its newest two states as ``last-STEP``. Nothing here unpickles.
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

from hmrnn.config import Config, from_json, to_json
from hmrnn.data.vocabulary import Vocabulary
from hmrnn.errors import InputError

FORMAT = 1
NAME = re.compile(r"(best|last)-(\d{8,})|\.(best|last)-(\d{8,})\.(old|new)")
"""A checkpoint of a run. .NAME.new is not yet whole; .NAME.old was set aside while NAME was being replaced."""
REQUIRED = ("model.safetensors", "config.json", "vocabulary.json")


class Checkpoint(NamedTuple):
    """What a checkpoint holds; ``progress`` and ``training`` are None in one that cannot go on training."""

    config: Config
    vocabulary: Vocabulary
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
        "vocabulary.json": to_json(checkpoint.vocabulary.to_dict()),
    }
    if checkpoint.training is not None:
        files["training.safetensors"] = save_tensors(_plain(checkpoint.training))
        files["training.json"] = to_json(checkpoint.progress)
    manifest = {name: _File(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    files["manifest.json"] = to_json(_Manifest(FORMAT, manifest))

    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = directory.with_name(f".{directory.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name, data in files.items():
        with open(fresh / name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    _sync_directory(fresh)
    aside = directory.with_name(f".{directory.name}.old")
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(directory, aside)
    os.rename(fresh, directory)
    _sync_directory(directory.parent)
    shutil.rmtree(aside, ignore_errors=True)


def read(directory: Path, *, training: bool = False) -> Checkpoint:
    """The checkpoint in ``directory``, every byte checked; with ``training`` also what a run needs to go on."""
    files = _verified_files(directory)
    config = from_json(files["config.json"], Config, f"{directory}/config.json")
    vocabulary = Vocabulary.from_dict(from_json(files["vocabulary.json"], dict, f"{directory}/vocabulary.json"))
    weights = _tensors(files["model.safetensors"], directory / "model.safetensors")
    if not training:
        return Checkpoint(config, vocabulary, weights)
    if "training.json" not in files:
        raise InputError(f"{directory} holds a model but no state to go on training from")
    progress = from_json(files["training.json"], dict, f"{directory}/training.json")
    state = _tensors(files["training.safetensors"], directory / "training.safetensors")
    return Checkpoint(config, vocabulary, weights, progress, state)


def find(directory: Path, prefer: Literal["best", "last"] = "best") -> Path:
    """The checkpoint that ``directory`` is, or the newest of the preferred kind in the run directory that it is."""
    if (directory / "manifest.json").exists():
        return directory
    if not directory.is_dir():
        raise InputError(f"no checkpoint at {directory}: expected a run directory or a checkpoint directory")
    found = checkpoints(directory)
    of_kind = [path for path in found if prefer in path.name] or found
    if not of_kind:
        raise InputError(f"{directory} holds no checkpoint (looked for manifest.json and best-*/ or last-*/)")
    return of_kind[-1]


def checkpoints(run: Path) -> list[Path]:
    """The whole checkpoints of a run directory, the newest last."""
    found = [path for path in run.iterdir() if NAME.fullmatch(path.name) and path.suffix != ".new"]
    found = [path for path in found if (path / "manifest.json").exists()]
    return sorted(found, key=lambda path: (int(path.stem.split("-")[1]), path.suffix != ".old"))


def prune(run: Path, kind: Literal["best", "last"], keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints of a kind, and what a crash left unfinished."""
    for path in [path for path in checkpoints(run) if kind in path.name][:-keep]:
        shutil.rmtree(path)
    for path in run.glob(f".{kind}-*.new"):
        shutil.rmtree(path)


def _verified_files(directory: Path) -> dict[str, bytes]:
    try:
        manifest = from_json((directory / "manifest.json").read_bytes(), _Manifest, f"{directory}/manifest.json")
    except OSError as error:
        raise InputError(f"no checkpoint at {directory}: manifest.json cannot be read ({error.strerror})") from error
    if manifest.format != FORMAT:
        raise InputError(
            f"{directory} is a checkpoint of format {manifest.format}, this hmrnn reads format {FORMAT}; "
            "use the version of hmrnn that wrote it, or train again"
        )
    missing = [name for name in REQUIRED if name not in manifest.files]
    if missing:
        raise InputError(f"{directory}/manifest.json does not list {', '.join(missing)}; the checkpoint is not whole")
    files = {}
    for name, expected in manifest.files.items():
        if Path(name).name != name:
            raise InputError(f"{directory}/manifest.json names a file outside the checkpoint: {name!r}")
        try:
            data = (directory / name).read_bytes()
        except OSError as error:
            raise InputError(
                f"{directory}/{name} cannot be read ({error.strerror}); the checkpoint is damaged"
            ) from error
        if len(data) != expected.size or hashlib.sha256(data).hexdigest() != expected.sha256:
            raise InputError(
                f"{directory}/{name} is damaged ({len(data)} bytes, checksum or size differ from the manifest); "
                "use another checkpoint of the run"
            )
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
