"""Checkpoints of untrained models, small enough for a test, and the page over them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pages import BYTES, CHARACTERS, Server, opened, save
from starlette.testclient import TestClient

from hmrnn import kind
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.web.app import application
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Entry, Shelf, open_shelf

EXAMPLES = Path(__file__).parents[2] / "examples"


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


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """A model of event logs, a kind of data that the package finds by the entry point of an example."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copy(EXAMPLES / "events" / "hmrnn_events.py", folder)
    about = folder / "hmrnn_events-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hmrnn-events\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[hmrnn.kinds]\nevents = hmrnn_events:EVENTS\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        kind._known.cache_clear()
        found = kind.find("events")
        config = found.presets["events"]  # type: ignore[attr-defined]
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden_size=(8,), output_size=8))
        spec = found.spec({"events": ["buy", "close", "look", "open", "search"]})
        torch.manual_seed(2)
        model = found.model(found.network(config, spec), spec, config)
        assert found.page is not None
        yield (Entry("log", "events", model, found.page(model)),)


@pytest.fixture
def client(shelf: Shelf) -> Iterator[TestClient]:
    with opened(shelf) as client:
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
