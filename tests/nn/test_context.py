"""Conditions and time: what the network reads, step by step as in one piece, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

import tiny
from hmrnn import LanguageModel
from hmrnn.config import ModelConfig
from hmrnn.nn.context import Condition
from hmrnn.nn.predictor import conditioned
from hmrnn.reading.read import Reader, read
from refusals import refused

T, B, SYMBOLS = 7, 3, 5
SMALL = ModelConfig(embedding_size=3, hidden_size=(6, 5), num_layers=2, output_size=4, condition_size=2)
CLASSES = {"classes": ("a", "b")}
NUMBERS = {"condition_numbers": 2}


def text_model(**changes: Any) -> LanguageModel:
    return LanguageModel(SYMBOLS, dataclasses.replace(SMALL, **changes)).double().eval()


def condition_of(changes: dict[str, Any], clock: list[int] | None = None) -> Condition:
    condition = None
    if "classes" in changes:
        condition = torch.tensor([0, 1, 1])
    elif "condition_numbers" in changes:
        condition = torch.randn(B, 2, dtype=torch.float64)
    return Condition(condition, None if clock is None else torch.tensor(clock))


@pytest.mark.parametrize("where", ["input", "state", "both"])
@pytest.mark.parametrize("kind", [CLASSES, NUMBERS])
def test_a_condition_is_read_beside_the_input_and_sets_the_first_state(kind: dict[str, Any], where: str) -> None:
    model, given = text_model(**kind, condition=where), condition_of(kind)
    symbols = torch.randint(SYMBOLS, (T, B))
    (logits,), _, _ = model(symbols, condition=given)
    assert model.context is not None
    assert given.value is not None
    encoder = model.context.embedding or model.context.linear
    assert encoder is not None
    v = encoder(given.value)
    x, start = model.embedding(symbols), model.rnn.initial_state(B)
    if where != "state":
        x = torch.cat([x, v.expand(T, -1, -1)], dim=-1)
    if where != "input":
        h = tuple(torch.tanh(v @ layer.weight.T + layer.bias) for layer in model.context.h)
        c = tuple(v @ layer.weight.T + layer.bias for layer in model.context.c)
        start = start._replace(h=h, c=c)
    out, _ = model.rnn(x, start)
    torch.testing.assert_close(logits, model.softmax(model.output(out.hidden)))
    logits.pow(2).sum().backward()
    used = [encoder, *model.context.h[:1], *model.context.c[:1]]
    assert all(part.weight.grad is not None and part.weight.grad.any() for part in used)


@pytest.mark.parametrize(
    "changes",
    [{**CLASSES, "condition": "both"}, {**NUMBERS, "time": "elapsed"}, {"time": "left"}],
    ids=["both", "numbers and time", "left"],
)
def test_step_by_step_and_in_chunks_as_in_one_piece(changes: dict[str, Any]) -> None:
    model = text_model(**changes)
    symbols = torch.randint(SYMBOLS, (T, B))
    given = condition_of(changes, [7, 9, 12] if changes.get("time") == "left" else None)
    [whole] = read(model, [symbols], condition=given)
    want = whole.prediction.log_prob(symbols)
    parts = [part.prediction for part in read(model, symbols.split(3), condition=given)]
    got = torch.cat([one.log_prob(chunk) for one, chunk in zip(parts, symbols.split(3))])
    torch.testing.assert_close(got, want)
    with conditioned(model, given):
        [same] = read(model, [symbols])
        torch.testing.assert_close(same.prediction.log_prob(symbols), want)
    reader = Reader(model, B, given)
    for row, expected in zip(symbols, want):
        reader.read(row)
        torch.testing.assert_close(reader.predict().log_prob(row), expected, check_dtype=False, atol=1e-6, rtol=1e-6)
    assert model.condition == Condition()


def test_time_is_the_logarithm_of_the_steps() -> None:
    for time, clock, steps in (
        ("elapsed", None, range(T)),
        ("elapsed", [4], range(4, 4 + T)),
        ("left", [5], range(5, -2, -1)),
    ):
        model = text_model(time=time)
        assert model.context is not None
        x = torch.zeros(T, B, 3, dtype=torch.float64)
        got = model.context(x, Condition(None, None if clock is None else torch.tensor(clock)))
        want = torch.tensor([math.log1p(max(0, step)) for step in steps], dtype=torch.float64)
        assert torch.equal(got[..., :3], x)
        torch.testing.assert_close(got[..., 3], want[:, None].expand(T, B))


def test_what_is_refused() -> None:
    symbols = torch.randint(SYMBOLS, (T, B))
    with refused():
        text_model()(symbols, condition=condition_of(CLASSES))
    with refused():
        text_model(**CLASSES)(symbols)
    with refused():
        text_model(time="elapsed")(symbols, condition=condition_of(CLASSES))
    with refused("condition"):
        text_model(**NUMBERS)(symbols, condition=condition_of(CLASSES))
    with refused():
        text_model(time="left")(symbols)
    with refused("x"):
        text_model(**CLASSES)(symbols.double(), condition=condition_of(CLASSES))
    with refused("model.condition_numbers"):
        tiny.config(**CLASSES, **NUMBERS).check()
