"""Every network of ``--model.rnn`` trains, is saved and loaded, scores and writes; hrnn takes what a text gives it."""

from __future__ import annotations

import dataclasses
import math
import typing
from pathlib import Path

import numpy as np
import pytest
import torch

import hmrnn
import literal
import tiny
from hmrnn.config import ModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.baselines.cells import PeepholeLSTM
from hmrnn.nn.baselines.h_net import HNet
from hmrnn.nn.baselines.recurrent import LSTM
from hmrnn.nn.registry import make_rnn
from hmrnn.reading.read import segment_many
from hmrnn.reading.vocabulary import Vocabulary
from networks import NETWORKS
from refusals import refused

KINDS = NETWORKS | {"ln-lstm": LSTM, "coupled": PeepholeLSTM, "hrnn": hmrnn.HMLSTM}
WITHOUT_DETECTORS = [kind for kind, made in KINDS.items() if made not in (hmrnn.HMLSTM, HNet)]
TEXT = "the cat sat\non the mat\n\nit was fat "
LINES = Vocabulary("characters", tuple(sorted(set(TEXT))))
HRNN = ModelConfig(rnn="hrnn", embedding_size=4, hidden_size=(6,), num_layers=4, output_size=5)


def config(kind: str, **changes: object) -> hmrnn.config.Config:
    return tiny.config(rnn=kind, hidden_size=(8,), **({"modules": 2} if kind == "cw-rnn" else {}), **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_settings_reach_the_network(kind: str) -> None:
    settings = ModelConfig(rnn=kind, hidden_size=(8, 16), num_layers=2, modules=2, time_constant=9.0, delay=5, kernel=6)
    settings = dataclasses.replace(settings, spectral_radius=0.8)
    rnn = make_rnn(3, settings)
    assert type(rnn) is KINDS[kind]
    assert (rnn.input_size, rnn.hidden_sizes, rnn.num_layers) == (3, (8, 16), 2)
    assert rnn.num_boundaries == (0 if kind in WITHOUT_DETECTORS else 1)
    if kind == "cw-rnn":
        assert rnn.layer_norm
        assert not make_rnn(3, dataclasses.replace(settings, layer_norm=False)).layer_norm
    wanted = {"num_modules": 2, "time_constant": 9.0, "delay": 5, "kernel": 6, "spectral_radius": 0.8}
    for name, value in {**wanted, "coupled": kind == "coupled"}.items():
        assert getattr(rnn, name, value) == value


def test_every_kind_is_here() -> None:
    assert set(typing.get_args(typing.get_type_hints(ModelConfig)["rnn"])) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_train_save_load_score_write(kind: str, tmp_path: Path) -> None:
    slope = {"slope": (0.5, 5.0)} if KINDS[kind] is hmrnn.HMLSTM else {}
    end = tiny.run(tmp_path / "run", config(kind, epochs=1, **slope))
    assert end["reason"] == "1 epoch done"
    metrics = tiny.read_metrics(tmp_path / "run" / "metrics.jsonl")
    trained, valid = (next(line for line in metrics if line["event"] == event) for event in ("train", "valid"))
    detectors = 0 if kind in WITHOUT_DETECTORS else 1 if kind == "h-net" else 2
    assert len(trained["rates"]) == len(valid["rates"]) == detectors
    assert trained["bits"] < 3.4  # 9 symbols: log2(9) is 3.17
    model = hmrnn.load(tmp_path / "run")
    assert type(model.network.rnn) is KINDS[kind]
    score = model.score("abc de fgh a hhg cab")
    assert score.bits < 4
    assert len(score.rates) == detectors
    if detectors == 0:
        assert score.updates == (1.0, 1.0, 1.0)
        assert score.saved == 0
    assert len(model.generate("abc ", 20, seed=1)) == 20


@pytest.mark.parametrize(
    "kind", ["cw-rnn", "gru", "peephole", "skip", "echo-state", "time-delay", "output-rnn", "h-net"]
)
def test_an_interrupted_run_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    """With chunks of 5 steps and periods up to 4, no two chunks in a row start at the same time of the clock."""
    wanted = tiny.config(rnn=kind, hidden_size=(8,))
    tiny.run(tmp_path / "whole", wanted)
    tiny.run(tmp_path / "parts", wanted, stop=lambda event: event["event"] == "step" and event["step"] == 7)
    tiny.run(tmp_path / "parts", wanted, resume=True)
    assert tiny.contents(tmp_path / "whole") == tiny.contents(tmp_path / "parts")


@pytest.mark.parametrize("kind", WITHOUT_DETECTORS)
def test_no_detectors_no_segments(kind: str) -> None:
    model = LanguageModel(9, config(kind, num_layers=1).model)
    with refused("model.rnn"):
        segment_many(model, [np.zeros(3, np.int64)], lambda _: "aaa")


def test_hrnn_segments_are_words_and_lines() -> None:
    model = LanguageModel(len(LINES), HRNN, given=LINES.boundaries(3))
    [found] = segment_many(model, [LINES.encode(TEXT)], lambda _: TEXT, chunk=7)
    assert found.segments(1) == ["the ", "cat ", "sat\n", "on ", "the ", "mat\n", "\n", "it ", "was ", "fat "]
    assert found.segments(2) == ["the cat sat\n", "on the mat\n", "\n", "it was fat "]
    # The second layer reads 10 words, and is flushed after 3 lines; the word after one of these is but a line end.
    assert found.updates().per_layer[:2] == (len(TEXT), 10 + 3 - 1)


def test_hrnn_leaves_the_levels_above_to_their_detectors() -> None:
    model = LanguageModel(len(LINES), HRNN, given=LINES.boundaries(3)).double()
    symbols = torch.from_numpy(LINES.encode(TEXT).astype(np.int64))[:, None]
    (logits,), out, _ = model(symbols)
    loss = logits.logsumexp(-1).sum()
    gradients = torch.autograd.grad(loss, list(model.rnn.b)[:3])
    assert [bool(g[-1]) for g in gradients] == [False, False, True]
    by_hand = torch.full((len(TEXT), 1, 3), math.nan, dtype=torch.float64)
    by_hand[:, 0, 0] = torch.tensor([c in " \n" for c in TEXT]).double()
    by_hand[:, 0, 1] = torch.tensor([c == "\n" for c in TEXT]).double()
    x, layers = model.embedding(symbols), model.rnn.layers()
    same, free = (
        literal.polynomial(x, layers, model.rnn.initial_state(1), model.rnn.options(), boundaries=forced)
        for forced in (by_hand, None)
    )
    assert torch.equal(out.boundaries, same.boundaries)
    for ours, theirs in zip(out.hidden, same.hidden, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert all(abs(mine - theirs).max() > 1e-3 for mine, theirs in zip(same.hidden, free.hidden))
    forced = torch.zeros(len(TEXT), 1, 3)
    assert not model(symbols, boundaries=forced)[1].boundaries.any()  # the caller has the last word


@pytest.mark.parametrize("lengths", [None, torch.tensor([len(TEXT), 20])])
def test_hrnn_keeps_to_the_text_while_its_embedding_is_dropped(lengths: torch.Tensor | None) -> None:
    model = LanguageModel(len(LINES), HRNN, given=LINES.boundaries(3)).train()
    model.dropout_embedding = 0.5
    symbols = torch.from_numpy(LINES.encode(TEXT).astype(np.int64))[:, None].expand(-1, 2)
    (_, out, _), (_, again, _) = (model(symbols, lengths=lengths) for _ in range(2))
    assert not torch.equal(out.hidden[0], again.hidden[0])
    expected = torch.tensor([[c in " \n", c == "\n"] for c in TEXT])[:, None].repeat(1, 2, 1)
    if lengths is not None:
        expected[20:, 1] = False
    assert torch.equal(out.boundaries[..., :2].bool(), expected)
    forced = torch.ones(len(TEXT), 2, 3)
    assert model(symbols, boundaries=forced)[1].boundaries.all()


def test_given_boundaries_of_other_vocabularies() -> None:
    nan = math.nan
    for vocabulary, expected in (
        (Vocabulary("bytes", (10, 32, 200), unknown=True), [[1, 1], [1, 0], [0, 0], [0, 0]]),
        (Vocabulary("characters", (" ", "a")), [[1, nan], [0, nan]]),  # text8 has no lines
        (Vocabulary("characters", ("\n", "a")), [[1, 1], [0, 0]]),
    ):
        np.testing.assert_array_equal(vocabulary.boundaries(2), np.array(expected, np.float32))
        assert vocabulary.boundaries(0).shape == (len(vocabulary), 0)
        assert vocabulary.boundaries(1).shape == (len(vocabulary), 1)
    with refused("model.rnn"):
        Vocabulary("characters", ("a", "b")).boundaries(2)


def test_hrnn_needs_its_boundaries() -> None:
    with refused():
        LanguageModel(3, HRNN)
    with refused():
        LanguageModel(3, HRNN, given=tiny.VOCABULARY.boundaries(3))
