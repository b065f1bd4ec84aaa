"""Models on the Hub of Hugging Face: ``hf://user/name``, or ``hf://user/name@revision``. Needs ``hmrnn[hub]``."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hmrnn.errors import InputError, installed
from hmrnn.utils.files import shown

SCHEME = "hf://"
LARGEST = 8 << 30
"""Bytes of a model; no more is fetched."""


def find(source: str | Path, files: Sequence[str]) -> Path:
    """``source`` if it is a directory, else the directory of what has this name or address on the Hub."""
    name = str(source).removeprefix(SCHEME)
    return Path(source) if os.path.isdir(source) else download(SCHEME + name, files)


def download(address: str, files: Sequence[str]) -> Path:
    """The directory of a model in the cache of the Hub. Nothing is fetched but its ``files``, which it must have."""
    name, _, revision = address.removeprefix(SCHEME).partition("@")
    with _library(f"{address} cannot be fetched") as hub:
        if not hub.constants.HF_HUB_OFFLINE:
            found = hub.HfApi().model_info(name, revision=revision or None, files_metadata=True)
            sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
            missing = sorted({*files} - {*sizes})
            if missing or (size := sum(sizes[file] for file in files)) > LARGEST:
                has = f"no {missing[0]}" if missing else f"{size:,} bytes, more than {LARGEST:,}"
                raise InputError(f"{address} is no model of hmrnn: it has {has}")
            revision = found.sha or revision
        return Path(hub.snapshot_download(name, revision=revision or None, allow_patterns=[*files]))


def push(save: Callable[[Path], Path], name: str, private: bool) -> str:
    """Upload what ``save`` writes to a directory to the repository ``name``, made if there is none; its address."""
    with _library(f"{name} cannot be pushed") as hub, tempfile.TemporaryDirectory() as folder:
        made, api = save(Path(folder, Path(name).name)), hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=made, commit_message="A model of hmrnn")
    return SCHEME + name


def card(name: str, license: str | None, text: str) -> bytes:
    """The card of a model, with what the Hub reads of it."""
    known = f"license: {license}\n" if license else ""
    return shown(f"---\nlibrary_name: hmrnn\n{known}tags:\n- hm-lstm\n---\n# {name}\n\n{text}").encode()


@contextlib.contextmanager
def _library(failed: str) -> Iterator[Any]:
    """The library of the Hub, whose exceptions become one: those of HTTP, of names, of files, and its own."""
    installed("huggingface_hub.constants", "a model on the Hub", "hub")
    try:
        yield installed("huggingface_hub", "a model on the Hub", "hub")
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{failed}: {' '.join(str(error).split())[:300]}") from error
