"""Weights of a model for a larger vocabulary."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tiny
from hmrnn.checkpoint import Checkpoint
from hmrnn.kinds.text.start import ROWS, extended
from hmrnn.reading.vocabulary import Vocabulary
from refusals import refused


def rows(vocabulary: Vocabulary) -> dict[str, torch.Tensor]:
    n = len(vocabulary)
    return {name: torch.randn((n,) if "bias" in name else (n, 4)) for name in ROWS}


def test_known_symbols_keep_their_rows_and_new_ones_start_as_their_plain_form() -> None:
    old = Vocabulary("characters", tuple(' "ae'), unknown=False)
    new = Vocabulary("characters", tuple(' "aeé“”☃'), unknown=True)
    before = rows(old)
    counts = np.array([9, 1, 5, 99, 9, 7, 0, 3, 0])  # space " a e é “ ” ☃ unknown
    after = extended(before, old, new, counts)

    for name in ROWS:
        assert torch.equal(after[name][:4], before[name])
    for name in ROWS[:2]:
        assert torch.equal(after[name][4], before[name][3])  # é as e
        assert torch.equal(after[name][5:7], before[name][[1, 1]])  # “ and ” as "
        assert torch.equal(after[name][7:], before[name].mean(0).expand(2, -1))  # the snowman and the unknown symbol
    bias, e, quote = after["softmax.bias"], before["softmax.bias"][3], before["softmax.bias"][1]
    assert bias[4] == pytest.approx(e + math.log(10 / 100))  # a share of e's probability
    assert bias[5] == pytest.approx(quote)  # more frequent than ", so no share is taken off
    assert bias[6] == pytest.approx(quote + math.log(1 / 2))
    assert torch.equal(bias[7:], before["softmax.bias"].min().expand(2))


def test_a_new_symbol_without_a_plain_form_starts_as_the_unknown_symbol() -> None:
    old, new = (Vocabulary("bytes", symbols, unknown=True) for symbols in ((1, 3), (1, 2, 3)))
    before = rows(old)
    after = extended(before, old, new, np.array([5, 1, 5, 3]))
    assert torch.equal(after["embedding.weight"], before["embedding.weight"][[0, 2, 1, 2]])
    assert after["softmax.bias"][1] == pytest.approx(before["softmax.bias"][2] + math.log(2 / 4))
    assert after["softmax.bias"][3] == before["softmax.bias"][2]


def test_weights_of_another_network_are_refused() -> None:
    source = tiny.trainer(tiny.config(hidden_size=(7, 5, 4))).snapshot(training=False)
    with refused():
        tiny.Trainer(tiny.config(), tiny.corpus(), torch.device("cpu"), start=source)


def test_a_run_starts_with_the_weights_and_the_slope_of_the_model() -> None:
    trained = tiny.trainer(tiny.config(slope=(2.0, 4.0)))
    for _ in range(30):
        trained.step()
    assert trained.model.rnn.slope == 4.0
    source: Checkpoint = trained.snapshot(training=False)
    config = tiny.config(start_from="somewhere")
    run = tiny.Trainer(config, tiny.corpus(), torch.device("cpu"), start=source)
    assert all(torch.equal(weight, source.weights[name]) for name, weight in run.model.state_dict().items())
    run.step()
    assert run.model.rnn.slope == 4.0
