"""A cache of its own for every test."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
