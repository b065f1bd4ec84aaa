"""handwriting-small, the model of pen strokes that comes with the package, is what its card says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import hmrnn
import tiny
from hmrnn.kinds.strokes import synthetic as handwritten
from hmrnn.kinds.strokes.gold import against_pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.pretrained import bundled
from hmrnn.web.shelf import open_shelf

CARD = (bundled.FOLDER / "handwriting-small" / "README.md").read_text()


@pytest.fixture(scope="module")
def model() -> StrokeModel:
    model = hmrnn.load("handwriting-small")
    assert isinstance(model, StrokeModel)
    return model


@pytest.fixture(scope="module")
def lines() -> Strokes:
    """Lines of another seed than those it was trained with."""
    return handwritten.write_lines(40, seed=2)


def test_the_card_describes_the_model(model: StrokeModel) -> None:
    assert re.findall(r"\{\w+\}", CARD) == []
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    assert f"| {parameters:,}, stored in 16 bits" in CARD
    assert "layers of {}, {} and {} units".format(*model.network.rnn.hidden_sizes) in CARD
    for words in ("MIT licence", "Hershey", "no handwriting of people"):
        assert words in CARD, words


def test_unseen_lines_are_as_likely_as_the_card_says(model: StrokeModel, lines: Strokes) -> None:
    (noted,) = re.findall(r"\| forty lines of another seed \| ([\d.]+) \|", CARD)
    found = model.score(lines)
    assert found.log_likelihood == pytest.approx(float(noted), abs=0.5)
    (rates,) = re.findall(r"ends a segment at ([\d.]+) of the points and the second at ([\d.]+),", CARD)
    assert found.rates == pytest.approx(tuple(map(float, rates)), abs=0.005)


def test_level_2_ends_where_the_pen_is_lifted(model: StrokeModel, lines: Strokes) -> None:
    found = model.segment_many(lines)
    f1 = against_pen_ups(found, lines)[1].scores[0].f1
    (noted,) = re.findall(r"level 2 ends where the pen is lifted with an F1 of ([\d.]+)", CARD)
    assert f1 == pytest.approx(float(noted), abs=0.01)
    assert f1 > 0.3  # by chance it would be 0.08


def test_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lines.svg"
    assert (
        tiny.hmrnn("generate", "-m", "handwriting-small", "--samples", 2, "--length", 150, "--seed", 1, "--out", out)
        == 0
    )
    assert "scribble" not in "".join(capsys.readouterr())
    assert out.read_text().startswith("<svg")


def test_what_it_writes_looks_like_what_it_read(model: StrokeModel, lines: Strokes) -> None:
    """The pen moves as far, in both directions, and is lifted as often, within a third."""
    made = np.concatenate(model.sheet(4, 300, seed=1))
    read = np.concatenate([np.asarray(line) for line in lines])

    def habits(points: np.ndarray) -> np.ndarray:
        steps = points[:, :2][points[:, 2] < 0.5]
        return np.array([np.hypot(*steps.T).mean(), points[:, 2].mean(), steps[:, 0].std(), steps[:, 1].std()])

    assert habits(made) == pytest.approx(habits(read), rel=1 / 3)


@pytest.mark.slow
def test_its_corpus_is_built_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path))
    assert tiny.hmrnn("evaluate", "-m", "handwriting-small", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (noted,) = re.findall(r"\| the test part of its corpus, 150 lines \| ([\d.]+) \|", CARD)
    assert found["log_likelihood"] == pytest.approx(float(noted), abs=0.5)


def test_the_page_has_all_models_if_none_is_named() -> None:
    shelf = open_shelf(bundled.names())
    assert [(entry.name, entry.kind) for entry in shelf] == [
        ("english-small", "text"), ("handwriting-small", "strokes"), ("novel-small", "text"),
        ("reading-small", "transcripts"), ("writing-small", "strokes"),
    ]  # fmt: skip
