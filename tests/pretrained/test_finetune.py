"""Fine-tuning in Python: a model in, a better one on other data out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import hmrnn
import tiny
import tiny_strokes
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData
from refusals import refused

TEXT = tiny.text(900, seed=1).replace("cab", "xé")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    """An untrained model of " abcdefgh" with a low rate and short sequences."""
    return tiny.saved_model(tmp_path_factory.mktemp("base") / "model")


def test_a_text_in_memory(base: TextModel, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in base.network.state_dict().items()}
    events: list[dict] = []
    tuned = base.finetune(TEXT, epochs=2, seed=3, device="cpu", progress=events.append)

    assert tuned.vocabulary.symbols == tuple(" abcdefghxé")
    assert tuned.source is None
    assert not tuned.network.training
    assert all(torch.equal(weight, before[name]) for name, weight in base.network.state_dict().items())
    valid = [event["bits"] for event in events if event["event"] == "valid"]
    assert len(valid) == 3
    assert min(valid[1:]) < valid[0]
    assert tuned.config.train.start_from == base.source
    assert tuned.config.model == base.config.model
    saved = hmrnn.load(tuned.save(tmp_path / "kept"))
    assert isinstance(saved, TextModel)
    assert saved.vocabulary == tuned.vocabulary
    assert saved.config.data.path == ("text",)
    assert all(torch.equal(a, b) for a, b in zip(saved.network.parameters(), tuned.network.parameters()))
    with refused():
        tuned.save(tmp_path / "kept")
    with torch.no_grad():
        held_out = TEXT[-90:-45]  # between training and test part
        assert tuned.score(held_out).bits < base.score(held_out.replace("x", "c").replace("é", "a")).bits + 3


def test_a_worse_model_is_not_taken(base: TextModel) -> None:
    tuned = base.finetune(TEXT.replace("x", "a").replace("é", "b"), epochs=1, learning_rate=30.0, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(tuned.network.parameters(), base.network.parameters()))


def test_an_h_net() -> None:
    """Its detector has rates, but no slope and no temperature to hold."""
    settings = dataclasses.replace(tiny.config(rnn="h-net", rates=(0.3,)), data=TextData())
    model = TextModel(LanguageModel(len(tiny.VOCABULARY), settings.model), tiny.VOCABULARY, settings)
    assert model.finetune(TEXT, epochs=1, device="cpu").config.detectors == settings.detectors


def test_strokes(tmp_path: Path) -> None:
    model = tiny_strokes.model()
    lines = tiny_strokes.strokes(40, seed=5)
    save_strokes(lines, tmp_path / "mine.npz")
    events: list[dict] = []
    tuned = model.finetune(tmp_path / "mine.npz", epochs=1, device="cpu", progress=events.append)
    valid = [event["nats"] for event in events if event["event"] == "valid"]
    assert len(valid) == 2
    assert tuned.score(lines).log_likelihood == pytest.approx(-valid[1], rel=0.5)
    assert not np.allclose(tuned.scale.mean, model.scale.mean)


def test_clear_errors(base: TextModel, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("abc")
    with refused():
        base.finetune(tmp_path / "short.txt")
    with refused():
        base.finetune("abc")
    with refused():
        base.finetune(TEXT, out=tmp_path / "run")
    with refused():
        base.finetune("no-such-book.txt")
    with refused():
        base.finetune(tmp_path / "none.txt")
    with refused("epochs"):
        base.finetune(TEXT, epochs=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.txt"]
