"""Multiply-adds per step, against a count by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.output import Operation, possible
from hmrnn.nn.predictor import multiply_adds
from pairs import grid


def test_an_output_module_of_the_first_layer_counts_that_layer_alone() -> None:
    config = ModelConfig(embedding_size=3, hidden_size=(4, 5, 6), output_size=8)
    first = dataclasses.replace(config, output_layers="first")
    boundaries = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])[:, None]  # (T, 1, 2)
    counts = []
    for model in (LanguageModel(7, config), LanguageModel(7, first)):
        _, out, _ = model(torch.randint(7, (3, 1)), boundaries=boundaries)
        counts.append(multiply_adds(model, out)[:, 0])
    moves = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    gates, embeddings = torch.tensor([2 * 4, 3 * 5, 3 * 6]), torch.tensor([0, 8 * 5, 8 * 6])
    assert torch.equal(counts[0] - counts[1], (moves * (gates + embeddings)).sum(1))


SIZES = ModelConfig(embedding_size=3, hidden_size=(4, 5, 6), output_size=8)
OPTIONS = grid(
    (True, False),
    ("boundary", "pending", "always", "none"),
    (True, False),
    ((0, "evaluate"), (2, "evaluate"), (2, "hold")),
)


def by_the_rules(z: Tensor, flush: bool, top_down: str, copy: bool, hold: bool, hidden: int = 0) -> list[int]:
    """The count of every step of SIZES with 7 symbols, from boundaries (T, 2) of one sequence that starts at zero."""
    sizes, below, counts = (4, 5, 6), (3, 4, 5), []
    own, gate = [0, 0], [0, 0]  # of the step before
    known = [False, False]  # whether the detector has its product with h above
    for fired in z.int().tolist():
        moves = [1 if not copy else max(fed, flush and last) for fed, last in zip([1, *fired], [*own, 0])]
        count = 7 * 8
        for l, H in enumerate(sizes):
            units = 0 if l == 2 else hidden or 1
            count += moves[l] * ((4 * H + units) * H + 8 * H + 3 * H)
            if l > 0 and (not copy or fired[l - 1]):
                count += (4 * H + units) * below[l]
            if l == 2:
                continue
            opened = {"boundary": own[l], "pending": gate[l], "always": 1, "none": 0}[top_down]
            new = False
            if top_down == "always":
                new = bool(moves[l + 1])
                count += moves[l + 1] * 4 * H * sizes[l + 1]
            elif opened:
                count += moves[l] * 4 * H * sizes[l + 1]
                new = not known[l] and bool(moves[l] or not hold)
                known[l] = known[l] or new
            count += new * units * sizes[l + 1]
            on_copy = l > 0 and copy and not hold  # the value on COPY, for the steps to come or this one
            count += hidden * (moves[l] + (on_copy and (moves[l] or new)))
            gate[l] = 1 if fired[l] else 0 if moves[l] else gate[l]
        known = [not moved and before for moved, before in zip(moves[1:], known)]
        own = fired
        counts.append(count)
    return counts


@pytest.mark.parametrize(("flush", "top_down", "copy", "detector"), OPTIONS)
def test_every_option_by_the_rules_whole_and_in_chunks(
    flush: bool, top_down: Any, copy: bool, detector: tuple[int, Any]
) -> None:
    torch.manual_seed(0)
    hidden, on_copy = detector
    config = dataclasses.replace(SIZES, flush=flush, top_down=top_down, copy=copy)
    model = LanguageModel(7, config, detectors=DetectorConfig(hidden=hidden, on_copy=on_copy)).eval()
    hold = on_copy == "hold"
    symbols, given = torch.randint(7, (16, 2)), (torch.rand(16, 2, 2) < 0.4).float()
    expected = torch.tensor([by_the_rules(given[:, b], flush, top_down, copy, hold, hidden) for b in range(2)]).T
    _, out, _ = model(symbols, boundaries=given)
    assert torch.equal(multiply_adds(model, out), expected)
    assert set(out.operations.unique().tolist()) == set(possible(model.rnn))
    for length in (1, 7):
        state, counts = None, []
        for x, z in zip(symbols.split(length), given.split(length)):
            before = state
            _, out, state = model(x, before, boundaries=z)
            counts.append(multiply_adds(model, out, before))
        assert torch.equal(torch.cat(counts), expected)


@pytest.mark.parametrize("strokes", [False, True])
def test_modules_of_a_clockwork_rnn_multiply_at_their_periods(strokes: bool) -> None:
    kind, own = (StrokeModelConfig, {"mixtures": 2}) if strokes else (ModelConfig, {})
    config = kind(rnn="cw-rnn", modules=3, embedding_size=3, hidden_size=(6,), num_layers=2, output_size=8, **own)
    model = HandwritingModel(config) if strokes else LanguageModel(7, config)
    x = torch.randn(9, 2, 3) if strokes else torch.randint(7, (9, 2))
    _, out, _ = model(x)
    head = model.density.weight.numel() if isinstance(model, HandwritingModel) else 7 * 8
    always = head + 2 * (8 * 6 + 2 * 6)
    U, W = (2 * 6, 2 * 4, 2 * 2), (2 * 6 + (2 * 3 if strokes else 0))  # of a module: both layers' U are alike
    due = [[t % period == 0 for period in (1, 2, 4)] for t in range(9)]
    expected = [always + sum(d * (2 * u + W) for d, u in zip(row, U)) for row in due]
    assert multiply_adds(model, out).tolist() == [[count, count] for count in expected]
    _, _, early = model(x[:3])
    begun = early.keep([True, False])  # the second sequence starts again, so the clocks differ
    _, out, _ = model(x[3:], begun)
    assert multiply_adds(model, out, begun).T.tolist() == [expected[3:], expected[:6]]


@pytest.mark.parametrize(("rnn", "gates"), [("lstm", 4), ("ln-lstm", 4), ("gru", 3), ("leaky", 1)])
def test_a_baseline_multiplies_everything_at_every_step(rnn: Any, gates: int) -> None:
    model = LanguageModel(7, ModelConfig(rnn=rnn, embedding_size=3, hidden_size=(4,), num_layers=2, output_size=8))
    _, out, _ = model(torch.randint(7, (5, 2)))
    expected = 3 * gates * 4 * 4 + 2 * (8 * 4 + 2 * 4) + 7 * 8  # U of both layers, W of the second
    assert multiply_adds(model, out).unique().tolist() == [expected]
    for rnn in (model.rnn, LanguageModel(7, dataclasses.replace(SIZES, hidden_size=(4,), num_layers=1)).rnn):
        assert possible(rnn) == (Operation.UPDATE,)
