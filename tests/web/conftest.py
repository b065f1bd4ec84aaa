"""Checkpoints of untrained models, small enough for a test, and the page over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import BYTES, CHARACTERS, Server, save
from starlette.testclient import TestClient

from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.web.app import application
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf, open_shelf


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints: small and other read characters, raw reads bytes, pen strokes."""
    folder = tmp_path_factory.mktemp("runs")
    save(folder / "small", CHARACTERS, 1)
    save(folder / "other", CHARACTERS, 2)
    save(folder / "raw", BYTES, 3)
    save(folder / "pen", Scale((0.5, 0.0), (2.0, 3.0)), 4, "strokes")
    return folder


@pytest.fixture(scope="session")
def shelf(runs: Path) -> Shelf:
    return open_shelf([runs / name for name in ("small", "other", "raw", "pen")])


@pytest.fixture
def client(shelf: Shelf) -> Iterator[TestClient]:
    with TestClient(application(shelf), base_url="http://127.0.0.1:8000", raise_server_exceptions=True) as client:
        yield client


@pytest.fixture
def limited(shelf: Shelf, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    """The page with other limits: ``parametrize("limited", [{"text": 5}], indirect=True)``."""
    app = application(shelf, dataclasses.replace(Limits(), **request.param))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client


@pytest.fixture(scope="module")
def server(shelf: Shelf) -> Iterator[Server]:
    """The page as uvicorn serves it, with little patience."""
    with Server(shelf, Limits(patience=0.8, length=20_000)).running() as server:
        yield server
