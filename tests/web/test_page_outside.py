"""The page of a kind of data that the package does not know, by HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pages import opened
from starlette.testclient import TestClient

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.web.shelf import Shelf

LOGS = [[(0.0, "open"), (3.5, "look"), (4.0, "buy"), (9.0, "close")], [(1.0, "open"), (2.0, "search"), (5.5, "close")]]
DATA = "time,user,event\n" + "".join(f"{time},{user},{event}\n" for user, log in enumerate(LOGS) for time, event in log)


@pytest.fixture
def outside(events: Shelf) -> Iterator[TestClient]:
    with opened(events) as client:
        yield client


def test_it_is_told_of_with_the_panel_that_fits_all_kinds(outside: TestClient) -> None:
    [model] = outside.get("/api/models").json()["models"]
    assert (model["name"], model["reads"], model["unit"]) == ("log", "events", "event")
    assert outside.get(model["script"]).headers["content-type"].startswith("text/javascript")
    assert 'id="data"' in outside.get("/").text
    assert 'id="read"' not in outside.get("/").text
    assert outside.post("/api/text/read", json={"text": "a"}).status_code == 404


def test_segments_score_and_more_of_it_are_those_of_the_library(outside: TestClient, events: Shelf) -> None:
    model = events[0].model
    for number, log in enumerate(LOGS, start=1):
        request = {"data": DATA, "sequence": number}
        part, end = map(json.loads, outside.post("/api/events/read", json=request).text.splitlines())
        assert part["segmentation"] == model.segment(log).to_dict()
        assert (end["count"], end["sequences"]) == (len(log), 2)
        assert end["bits"] == pytest.approx(model.score(LOGS).bits)
        assert outside.post("/api/events/segmentation", json=request).json() == part["segmentation"]
        answer = outside.post("/api/events/write", json={**request, "length": 6, "seed": 3})
        part, end = map(json.loads, answer.text.splitlines())
        expected = model.segment(model.generate(log, 6, seed=3))
        assert Segmentation.from_dict(part["segmentation"]).symbols == expected.symbols
        assert end["count"] == 6
    assert outside.post("/api/events/figure", json=request).text.count("<svg") == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"data": DATA, "sequence": 3}, 400),
        ({"data": DATA.replace("buy", "sell")}, 400),
        ({"data": "time,event\n1,open\n"}, 400),
        ({"data": "time,user,event\nnoon,1,open\n1,1,close\n"}, 400),
        ({"data": DATA, "length": 5}, 400),
        ({"data": "x" * 60_000}, 413),
    ],
)
def test_what_cannot_be_done_is_refused(outside: TestClient, body: dict[str, object], status: int) -> None:
    answer = outside.post("/api/events/read", json=body)
    assert (answer.status_code, set(answer.json())) == (status, {"error", "message"})
    assert "/tmp" not in answer.json()["message"]
