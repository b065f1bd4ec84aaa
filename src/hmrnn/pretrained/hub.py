"""Models on the Hub of Hugging Face: ``hf://user/name``, or ``hf://user/name@revision``. Needs ``hmrnn[hub]``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hmrnn.checkpoint import REQUIRED
from hmrnn.errors import InputError

SCHEME = "hf://"
FILES = (*REQUIRED, "manifest.json")
LARGEST = 8 << 30
"""Bytes of a model; no more is fetched."""


def download(address: str) -> Path:
    """The directory of a model in the cache of the Hub. Nothing is fetched but the files that a model has."""
    hub = _library()
    name, _, revision = address.removeprefix(SCHEME).partition("@")
    try:
        if not hub.constants.HF_HUB_OFFLINE:
            found = hub.HfApi().model_info(name, revision=revision or None, files_metadata=True)
            sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
            if missing := sorted({*FILES} - {*sizes}):
                raise InputError(f"{address} is no model of hmrnn: it has no {missing[0]}")
            if (size := sum(sizes[file] for file in FILES)) > LARGEST:
                raise InputError(f"{address} has {size:,} bytes, more than {LARGEST:,}")
            revision = found.sha or revision
        return Path(hub.snapshot_download(name, revision=revision or None, allow_patterns=[*FILES]))
    except InputError:
        raise
    except Exception as error:  # the library raises those of HTTP, of names, of files, and its own
        raise InputError(f"{address} cannot be fetched: {' '.join(str(error).split())[:300]}") from error


def push(model: Any, name: str, *, private: bool = False) -> str:
    """Write a model, with its card, to the repository ``name``, which is made if there is none; its address."""
    hub = _library()
    api = hub.HfApi()
    with tempfile.TemporaryDirectory() as folder:
        made = model.save(Path(folder, "model"))
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=made, commit_message="A model of hmrnn")
    return SCHEME + name


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
    except ImportError as error:
        raise InputError("models on the Hub need: pip install hmrnn[hub]") from error
    return huggingface_hub
