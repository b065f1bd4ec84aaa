"""writing-small and reading-small, which come with the package, are what their cards say, and understand each other."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import hmrnn
import tiny
from hmrnn.analysis.edits import edit_distance
from hmrnn.kinds.strokes import synthetic
from hmrnn.kinds.strokes.files import read_strokes
from hmrnn.kinds.strokes.model import MOST_POINTS, StrokeModel
from hmrnn.kinds.strokes.transcripts import TranscriptModel
from hmrnn.nn.predictor import conditioned
from hmrnn.pretrained import bundled
from refusals import refused

CARD, READER_CARD = ((bundled.FOLDER / f"{name}-small" / "README.md").read_text() for name in ("writing", "reading"))


@pytest.fixture(scope="module")
def model() -> StrokeModel:
    model = hmrnn.load("writing-small")
    assert isinstance(model, StrokeModel)
    return model


def test_the_card_describes_the_model(model: StrokeModel) -> None:
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    assert f"| {parameters:,}, stored in 16 bits" in CARD
    assert model.config.model.classes == tuple(synthetic.STYLES)
    assert set(model.config.model.alphabet) == set(synthetic.SYMBOLS)


def test_unseen_lines_are_as_likely_as_the_card_says(model: StrokeModel) -> None:
    (noted,) = re.findall(r"\| forty lines of another seed \| ([\d.]+) \|", CARD)
    found = model.score(synthetic.set_lines(40, seed=2))
    assert found.log_likelihood == pytest.approx(float(noted), abs=0.5)


def test_a_style_that_is_given_comes_before_that_of_the_lines(model: StrokeModel) -> None:
    printed, cursive = (
        dataclasses.replace(synthetic.set_lines(2, words=1, seed=3), conditions=(style,) * 2)
        for style in ("print", "cursive")
    )
    expected, bits = model.score(cursive).log_likelihood, model.segment_many(cursive)[1].bits
    assert model.score(printed).log_likelihood != pytest.approx(expected, abs=0.1)
    assert model.score(printed, condition="cursive").log_likelihood == pytest.approx(expected)
    np.testing.assert_allclose(model.segment_many(printed, condition="cursive")[1].bits, bits, rtol=1e-4)
    with conditioned(model.network, model.as_condition("cursive")):  # as the command's --condition
        assert model.score(printed).log_likelihood == pytest.approx(expected)
        np.testing.assert_allclose(model.segment_many(printed)[1].bits, bits, rtol=1e-4)


def test_a_text_is_written_to_its_end_letter_by_letter(model: StrokeModel) -> None:
    text = "Hello"
    for written in model.write_many([text] * 4, seed=1, condition=list(synthetic.STYLES)):
        assert len(text) * 5 < len(written.steps) < len(text) * MOST_POINTS / 2
        assert written.letters[0] == 0
        assert written.letters[-1] == len(text) - 1
        assert np.unique(written.letters).tolist() == list(range(len(text)))


def test_the_command_needs_a_text_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tiny.hmrnn("generate", "--text", "Hello", "--seed", 1, "--out", "hello.svg") == 0
    assert Path("hello.svg").read_text().count('class="ink"') > 3
    assert tiny.hmrnn("generate", "--text", "Hello", "--condition", "cursive", "--out", "hello.json") == 0
    assert read_strokes("hello.json").texts == ("Hello",)
    assert (
        tiny.hmrnn("plot", "-m", "writing-small", "--file", "hello.json", "--condition", "cursive", "--out", "a.svg")
        == 0
    )
    with refused():
        hmrnn.load("writing-small").write("Grüße")


@pytest.fixture(scope="module")
def reader() -> TranscriptModel:
    reader = hmrnn.load("reading-small")
    assert isinstance(reader, TranscriptModel)
    return reader


def test_unseen_lines_are_read_as_well_as_the_card_says(reader: TranscriptModel) -> None:
    parameters = sum(parameter.numel() for parameter in reader.network.parameters())
    assert f"| {parameters:,}, stored in 16 bits" in READER_CARD
    (noted,) = re.findall(r"\| forty lines of up to five words, of another seed \| ([\d.]+) % \|", READER_CARD)
    assert 100 * reader.score(synthetic.set_lines(40, seed=2)).letters == pytest.approx(float(noted), abs=0.3)


def test_what_is_written_can_be_read(model: StrokeModel, reader: TranscriptModel) -> None:
    texts = ["Hello", "one more time", "what a day"]
    lines = [np.concatenate([np.zeros((1, 3)), line.steps]) for line in model.write_many(texts, seed=1)]
    wrong = sum(edit_distance(one.text, text) for one, text in zip(reader.predict(lines), texts))
    assert wrong < sum(map(len, texts)) / 2
