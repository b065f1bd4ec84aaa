"""Predictor: a network of a new kind, with two parts to a step and a small head of its own, is read like the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hmrnn.config import ModelConfig
from hmrnn.nn.context import Condition
from hmrnn.nn.distributions import Categorical
from hmrnn.nn.predictor import Predictor, multiply_adds
from hmrnn.reading.read import Reader, read, segment_many
from refusals import refused

KINDS, T, B = 4, 9, 3
CONFIG = ModelConfig(hidden_size=(7, 6, 5), num_layers=3, output_size=8)


class NextEvent(NamedTuple):
    """Which event follows, and an exponential distribution of the time until then."""

    kind: Categorical
    log_rate: Tensor

    def log_prob(self, x: Tensor) -> Tensor:
        return self.kind.log_prob(x[..., 0].long()) + self.log_rate - self.log_rate.exp() * x[..., 1]

    def entropy(self) -> Tensor:
        return self.kind.entropy() + 1 - self.log_rate


class EventEmbedding(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.kinds = nn.Embedding(KINDS, size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.kinds(x[..., 0].long()), x[..., 1:].log1p()], dim=-1)


class EventModel(Predictor):
    step_shape = (2,)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, 6, embedding=EventEmbedding(5))
        self.head = nn.Linear(self.output.size, KINDS + 1)

    def expect(self, embedding: Tensor) -> NextEvent:
        scores = self.head(embedding)
        return NextEvent(Categorical(scores[..., :-1]), scores[..., -1])


def events(*shape: int) -> Tensor:
    return torch.stack([torch.randint(KINDS, shape).float(), torch.rand(shape)], dim=-1)


@pytest.mark.parametrize("config", [CONFIG, ModelConfig(**{**CONFIG.__dict__, "classes": ("a", "b"), "time": "left"})])
def test_step_by_step_and_in_chunks_as_in_one_piece(config: ModelConfig) -> None:
    model, x = EventModel(config).eval(), events(T, B)
    told = Condition(torch.tensor([0, 1, 1]), torch.tensor([T, 20, 12])) if config.classes else Condition()
    prediction, out, _ = model(x, condition=told)
    want = prediction.log_prob(x)
    assert (multiply_adds(model, out) >= model.head.weight.numel()).all()
    parts = [part.prediction for part in read(model, x.split(4), condition=told)]
    got = torch.cat([one.log_prob(chunk) for one, chunk in zip(parts, x.split(4))])
    torch.testing.assert_close(got, want.detach(), atol=1e-5, rtol=1e-5)
    reader = Reader(model, B, told)
    for row, expected in zip(x, want):
        reader.read(row)
        torch.testing.assert_close(reader.predict().log_prob(row), expected.detach(), atol=1e-5, rtol=1e-5)
    want.sum().backward()
    assert all(p.grad is not None for p in (*model.embedding.parameters(), *model.head.parameters()))


def test_dropout_of_an_embedding_drops_units_of_whole_sequences() -> None:
    model, seen = EventModel(CONFIG), []
    model.rnn.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    x = torch.stack([torch.zeros(T, 1), torch.ones(T, 1)], dim=-1)
    model.dropout_embedding = 0.5
    model(x)
    assert (seen[0] == seen[0][0]).all()
    assert (seen[0] == 0).any()


def test_what_is_refused() -> None:
    with refused("x"):
        EventModel(CONFIG)(events(T, B)[..., 0])
    with refused():
        segment_many(EventModel(CONFIG), [np.zeros((3, 1))], lambda _: "abc")
