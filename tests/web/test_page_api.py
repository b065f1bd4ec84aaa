"""The interface: its answers are those of the library, and its refusals are clear."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pages import CHARACTERS, opened, save
from starlette.testclient import TestClient

import tiny_strokes
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import SegmentConfig
from hmrnn.errors import InputError, TextNote
from hmrnn.kinds.strokes.page import TranscriptPage, fit
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.strokes.write import scribble
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.page import CHUNK, Memory, ReadRequest, TextPage
from hmrnn.nn.output import Operation
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Entry, Shelf, open_shelf

TEXT = "the quick brown fox jumps over the lazy dog\n" * 6
STEPS = [[0, 0, 0], [3.5, 1, 0], [2, -4, 0], [1, 1, 1], [9, 2, 0], [1, 5, 0], [-2, 3, 1]] * 20


def ask(client: TestClient, path: str, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The parts of an answer, and its end."""
    response = client.post(f"/api/{path}", json=body)
    assert response.headers["content-type"] == "application/x-ndjson", response.text
    *parts, end = (json.loads(line) for line in response.text.splitlines())
    return parts, end


def joined(parts: list[dict[str, Any]]) -> Segmentation:
    """The segmentation that the parts of an answer make up."""
    lengths = [len(part["segmentation"]["symbols"]) for part in parts]
    assert [part["start"] for part in parts] == np.cumsum([0, *lengths[:-1]]).tolist()
    return Segmentation.join([Segmentation.from_dict(part["segmentation"]) for part in parts])


def assert_same(found: Segmentation, expected: Segmentation, bits: bool = True) -> None:
    assert found.symbols == expected.symbols
    np.testing.assert_array_equal(found.boundaries, expected.boundaries)
    np.testing.assert_array_equal(found.operations, expected.operations)
    np.testing.assert_array_equal(found.products, expected.products)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-4)
    np.testing.assert_allclose(found.norms, expected.norms, atol=1e-4)
    if bits:
        np.testing.assert_allclose(found.bits, expected.bits, atol=1e-4)


@pytest.mark.parametrize("model", [0, 1, 2])
def test_read_gives_what_segment_gives(client: TestClient, shelf: Shelf, model: int) -> None:
    parts, end = ask(client, "text/read", model=model, text=TEXT)
    assert end["end"] is True
    assert end["count"] == len(TEXT)
    assert len(parts) > 1  # it is streamed
    expected = shelf[model].model.segment(TEXT)
    assert 0 < expected.boundaries.mean() < 1
    assert_same(joined(parts), expected)


def test_words_of_a_segmental_head(tmp_path: Path) -> None:
    save(tmp_path / "words", CHARACTERS, 5, segments=SegmentConfig(size=8, longest=5, reader=6), num_layers=2)
    shelf = open_shelf([tmp_path / "words"])
    by_head, by_detectors = (shelf[0].model.segment(TEXT, by=by) for by in ("head", "detectors"))
    assert by_head.ends(1) != by_detectors.ends(1)
    with opened(shelf) as client:
        for _ in range(2):  # what is remembered is that of the network
            assert_same(joined(ask(client, "text/read", text=TEXT)[0]), by_head)


def answered(page: TextPage, text: str) -> Segmentation:
    """What the page finds in a text."""
    return Segmentation.join(part.found for part in page.read(ReadRequest(text=text)))


def test_a_text_that_goes_on_is_read_from_where_it_was_left(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shelf[0].model
    forward, symbols = model.network.forward, 0

    def counted(inputs: Any, *rest: Any, **told: Any) -> Any:
        nonlocal symbols
        symbols += len(inputs)
        return forward(inputs, *rest, **told)

    monkeypatch.setattr(model.network, "forward", counted)
    page = TextPage(model)
    for text, most in (
        (TEXT, len(TEXT)),
        (TEXT + "x", CHUNK),  # typed at the end
        (TEXT + "xy", CHUNK),
        (TEXT[:-1], CHUNK),  # and taken back
        (TEXT[:130] + "x" + TEXT[131:], len(TEXT) - 128),  # changed inside
        (TEXT[: 2 * CHUNK], 0),
        (TEXT[: 2 * CHUNK] + "x", 1),
        ("x" + TEXT, len(TEXT) + 1),
    ):
        symbols = 0
        found = answered(page, text)
        assert symbols <= most + len(model.prime) * (text == TEXT), text  # the prime is read once
        assert_same(found, model.segment(text))


def test_what_is_remembered_is_bounded(shelf: Shelf) -> None:
    page, other = TextPage(shelf[0].model), TextPage(shelf[0].model)
    page.memory, other.memory = memory, _ = Memory(most=100_000), Memory(most=0)
    for first in "abcdefgh":
        answered(page, first + TEXT)
        assert 50_000 < memory.size <= 100_000
    assert memory.size == sum(chunk.size for chunk in memory._chunks.values())
    assert_same(answered(page, TEXT), answered(other, TEXT))


def test_segmentation_is_the_json_of_the_library(client: TestClient, shelf: Shelf) -> None:
    response = client.post("/api/text/segmentation", json={"text": "a fox"})
    assert response.json() == shelf[0].model.segment("a fox").to_dict()


def test_unknown_symbols_are_read_as_others_with_a_note(client: TestClient, shelf: Shelf) -> None:
    """The symbols shown are those of the text, in chunks of what was read; bytes can be any text."""
    text = "\u201cNa\u00efve\u201d \u2014 [1]\u2026" * 30
    for index, count in ((0, 1), (2, 0)):
        parts, end = ask(client, "text/read", text=text, model=index)
        assert len(end.get("notes", ())) >= count
        assert ("notes" in end) == (count > 0)
        model = shelf[index].model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TextNote)
            assert_same(joined(parts), model.segment(text))
    parts, end = ask(client, "text/write", prompt="\u00c9", length=2)
    assert end["notes"] == ["1 symbol written plainly: 'É' as 'e'"]


def test_symbols_that_are_read_as_none_stay_in_a_chunk(client: TestClient) -> None:
    """Combining marks are left out, however many: a chunk always has something to read."""
    mark = "\u0301"
    for text in (mark * 200 + "a fox", "a" * 64 + mark * 200, "a" * 63 + mark * 3 + "b" * 65 + mark):
        parts, end = ask(client, "text/read", text=text)
        assert "".join(part["segmentation"]["text"] for part in parts) == text
        assert end["count"] == len(text)
    assert client.post("/api/text/read", json={"text": mark}).status_code == 400


def test_figure_is_an_svg(client: TestClient) -> None:
    response = client.post("/api/text/figure", json={"text": "<script>alert"})
    assert response.headers["content-type"] == "image/svg+xml"
    assert response.text.count("<svg") == 1
    assert "<script" not in response.text


@pytest.mark.parametrize("model", [0, 2])
def test_write_gives_what_generate_gives_and_what_the_layers_did(client: TestClient, shelf: Shelf, model: int) -> None:
    request = {"model": model, "prompt": "the qu", "length": 60, "temperature": 0.7, "top_p": 0.9, "seed": 5}
    parts, end = ask(client, "text/write", **request)
    trained = shelf[model].model
    assert sum(part["given"] for part in parts) == len("the qu")
    assert end["count"] == 66
    written = joined(parts)
    if model == 0:
        drawn = trained.generate("the qu", 60, temperature=0.7, top_p=0.9, seed=5)
        assert written.text == "the qu" + drawn
        assert_same(written, trained.segment(written.text))


def test_write_without_a_prompt(client: TestClient) -> None:
    parts, _ = ask(client, "text/write", length=3, seed=1)
    assert len(joined(parts)) == 3
    assert sum(part["given"] for part in parts) == 0


def test_strokes_are_read_as_the_library_reads_them(client: TestClient, shelf: Shelf) -> None:
    parts, end = ask(client, "strokes/read", model=3, steps=STEPS)
    pen = shelf[3].model
    expected = pen.segment(fit(np.array(STEPS), pen.scale))
    assert_same(joined(parts), expected)
    assert end["count"] == len(STEPS)
    whole = client.post("/api/strokes/segmentation", json={"model": 3, "steps": STEPS})
    assert whole.json() == expected.to_dict()


def test_a_drawing_is_brought_to_the_size_of_the_data(shelf: Shelf) -> None:
    scale = shelf[3].model.scale
    small, large = (fit(np.array(STEPS) * [size, size, 1], scale) for size in (0.1, 50))
    np.testing.assert_allclose(small, large, rtol=1e-5)
    down = small[1:][small[:-1, 2] == 0, :2]
    assert np.sqrt((down**2).mean()) == pytest.approx(np.sqrt(np.square(scale.deviation).mean()), rel=1e-5)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [1e-160, 1e-300, 5e-324])
def test_a_tiny_drawing_is_read_or_refused_without_a_warning(client: TestClient, shelf: Shelf, size: float) -> None:
    tiny_steps = [[0, 0, 0], [3 * size, 0, 0], [0, -4 * size, 1]]
    np.testing.assert_allclose(
        fit(np.array(tiny_steps), shelf[3].model.scale),
        fit(np.array([[0, 0, 0], [3, 0, 0], [0, -4, 1]]), shelf[3].model.scale),
    )
    assert client.post("/api/strokes/read", json={"model": 3, "steps": tiny_steps}).status_code == 200
    mixed = [[0, 0, 0], [size, 0, 1], [5, 5, 0], [size, 0, 1]]
    assert client.post("/api/strokes/read", json={"model": 3, "steps": mixed}).status_code == 400


def test_strokes_are_written_as_the_library_writes_them(client: TestClient, shelf: Shelf) -> None:
    parts, end = ask(client, "strokes/write", model=3, points=30, bias=1.0, seed=3)
    steps = np.array([step for part in parts for step in part["steps"]])
    np.testing.assert_allclose(steps, shelf[3].model.generate(30, bias=1.0, seed=3), atol=1e-3)
    assert joined(parts).symbols == tuple("^" if up else "o" for up in steps[:, 2])
    read = shelf[3].model.segment(np.concatenate([np.zeros((1, 3)), shelf[3].model.generate(30, bias=1.0, seed=3)]))
    # `segment` lifts the pen after the last point, and a line begins with the step (0, 0), which is not shown
    np.testing.assert_array_equal(joined(parts).products[:-1], read.products[1:-1])
    assert end.get("warning") == scribble(shelf[3].model.network, shelf[3].model.scale, [steps])


def test_a_text_is_written_as_the_library_writes_it(tmp_path: Path) -> None:
    scale = Scale((0.5, 0.0), (2.0, 3.0))
    save(tmp_path / "writer", scale, 4, "strokes", window="soft", alphabet=tuple("abc "), classes=("x", "y"))
    shelf = open_shelf([tmp_path / "writer"])
    model = shelf[0].model
    style = Strokes.of([fit(np.array(STEPS), scale)], texts=["ab"])
    with opened(shelf) as client:
        assert client.get("/api/models").json()["models"][0]["writes"]
        for condition, drawn in ((None, None), ("y", {"steps": STEPS, "says": "ab"})):
            how = {"text": "cab", "bias": 1.0, "seed": 3, "condition": condition}
            parts, _ = ask(client, "strokes/write", points=5000, style=drawn, **how)
            expected = model.write("cab", seed=3, style=style if drawn else None, condition=condition)
            steps = np.array([step for part in parts for step in part["steps"]])
            np.testing.assert_allclose(steps, expected.steps, atol=1e-2)
            assert [letter for part in parts for letter in part["letters"]] == expected.letters.tolist()
        parts, _ = ask(client, "strokes/read", steps=STEPS, says="ab", condition="y")
        assert_same(joined(parts), model.segment(style, condition="y"))
        for wrong in ({"text": ""}, {"text": "xyz"}, {"text": "ab", "style": {"steps": STEPS, "says": "x"}}):
            assert client.post("/api/strokes/write", json=wrong).status_code == 400


def test_a_drawing_is_read_by_a_model_that_reads_handwriting() -> None:
    reader = tiny_strokes.reader()
    shelf = (Entry("reader", "transcripts", reader, TranscriptPage(reader)),)
    with opened(shelf) as client:
        _, end = ask(client, "transcripts/read", steps=STEPS)
        [found] = shelf[0].model.predict([fit(np.array(STEPS), shelf[0].model.scale)])
        assert (end["text"], end["probability"]) == (found.text, pytest.approx(found.probability))
        assert client.get("/api/models").json()["models"][0]["script"] == "/static/strokes/page.js"


def test_a_network_that_scribbles_is_told_of(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmrnn.kinds.strokes.write.MOST_LIFTS", 0.01)
    _, end = ask(client, "strokes/write", model=3, points=100, bias=0.0, seed=3)
    assert end["warning"]


@pytest.mark.parametrize("wrong", ["it jumps", "it is not finite"])
def test_a_pen_that_the_library_refuses_is_refused(
    client: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    model = shelf[3].model
    if wrong == "it jumps":
        monkeypatch.setattr("hmrnn.kinds.strokes.write.LARGEST_STEP", 0.01)
    else:
        broken = torch.full_like(model.network.density.bias, math.nan)
        monkeypatch.setitem(model.network.density._parameters, "bias", torch.nn.Parameter(broken))
    with pytest.raises(InputError) as refusal:
        model.generate(30, bias=1.0, seed=3)
    answer = client.post("/api/strokes/write", json={"model": 3, "points": 30, "bias": 1.0, "seed": 3})
    assert (answer.status_code, answer.json()["message"]) == (400, str(refusal.value))


@pytest.mark.parametrize(("flush", "copy", "names"), [
    (True, True, "UPDATE COPY FLUSH"), (False, True, "UPDATE COPY"), (True, False, "UPDATE FLUSH"),
])  # fmt: skip
def test_only_operations_that_a_model_can_do_are_named(tmp_path: Path, flush: bool, copy: bool, names: str) -> None:
    save(tmp_path / "run", CHARACTERS, 1, flush=flush, copy=copy, top_down="pending")
    shelf = open_shelf([tmp_path / "run"])
    with opened(shelf) as client:
        assert client.get("/api/models").json()["models"][0]["operations"] == names.split()
        found = joined(ask(client, "text/read", text=TEXT)[0])
        assert {Operation(k).name for k in found.operations.ravel()} == set(names.split())
        assert_same(found, shelf[0].model.segment(TEXT))
        written = joined(ask(client, "text/write", length=60, seed=1)[0])
        assert_same(written, shelf[0].model.segment(written.text))


@pytest.mark.parametrize(
    "told",
    [pytest.param({"time": "elapsed"}, marks=pytest.mark.slow), {"time": "left", "condition": "both"}],
    ids=str,
)
def test_models_that_are_told_a_condition_and_the_time(tmp_path: Path, told: dict[str, Any]) -> None:
    """Text of several chunks and strokes, as the library reads and writes them; lines end by themselves."""
    save(tmp_path / "lines", CHARACTERS, 1, "lines", classes=("a", "b"), **told)
    save(tmp_path / "pen", Scale((0.5, 0.0), (2.0, 3.0)), 4, "strokes", condition_numbers=2, halt=True, **told)
    shelf = open_shelf([tmp_path / "lines", tmp_path / "pen"])
    text, pen = (entry.model for entry in shelf)
    with opened(shelf) as client:
        assert [model["condition"] for model in client.get("/api/models").json()["models"]] == [["a", "b"], []]
        line = TEXT.replace("\n", " ")
        for which in ("a", "b", "a"):  # what was read under another condition is not remembered for this one
            parts, _ = ask(client, "text/read", text=line, condition=which)
            assert_same(joined(parts), text.segment(line, condition=which))
        for seed in range(2):
            how = {"length": 40, "temperature": 1.0, "seed": seed, "condition": "b"}
            parts, end = ask(client, "text/write", prompt="the ", **how)
            expected = "the " + text.generate("the ", 40, seed=seed, condition="b")
            assert (joined(parts).text, end["count"]) == (expected, len(expected))
            how = {"points": 30, "bias": 1.0, "seed": seed, "condition": "0.5, 1"}
            parts, end = ask(client, "strokes/write", model=1, **how)
            steps = np.array([step for part in parts for step in part["steps"]])
            expected_steps = pen.generate(30, bias=1.0, seed=seed, condition=[0.5, 1])
            np.testing.assert_allclose(steps, expected_steps, atol=1e-3)
            assert end["count"] == len(expected_steps)
        drawing = {"model": 1, "steps": STEPS, "condition": "0.5 1"}
        parts, _ = ask(client, "strokes/read", **drawing)
        assert_same(joined(parts), pen.segment(fit(np.array(STEPS), pen.scale), condition=[0.5, 1]))
        for body in ({"text": "the"}, {"text": "the", "condition": "c"}):
            assert client.post("/api/text/read", json=body).status_code == 400


def test_ends_of_detectors_that_fire_late_are_moved_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across chunks and signs that are written plainly, when the text grows, and written; as the library shows them."""
    monkeypatch.setattr(TextModel, "late", 1)
    save(tmp_path / "late", CHARACTERS, 1)
    shelf = open_shelf([tmp_path / "late"])
    with opened(shelf) as client:
        text = ("the \ufb01sh " + TEXT.replace("\n", " ") * 3)[:300]
        for end in (64, 65, 128, 300, 129):
            parts, _ = ask(client, "text/read", text=text[:end])
            assert_same(joined(parts), shelf[0].model.segment(text[:end]))
        monkeypatch.setattr("hmrnn.kinds.text.page.WRITTEN", 1)  # every part is as short as can be
        parts, _ = ask(client, "text/write", prompt="the qu", length=50, seed=3)
        assert len(parts) > 40
        assert_same(joined(parts), shelf[0].model.segment(joined(parts).text))


def test_models_are_named_without_their_paths(client: TestClient, runs: Path) -> None:
    answer = client.get("/api/models")
    models = answer.json()["models"]
    assert [(model["name"], model["reads"], model["unit"]) for model in models] == [
        ("small", "text", "character"), ("other", "text", "character"), ("raw", "text", "byte"),
        ("pen", "strokes", "point"),
    ]  # fmt: skip
    assert models[0]["layers"] == [8, 8, 8]
    assert str(runs) not in answer.text
    assert answer.json()["limits"]["text"] == Limits().text
