"""Draws: what the native engine draws is what Python draws, for every network and option that it serves."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.sample import continue_all, stream
from hmrnn.nn.context import Condition
from hmrnn.nn.predictor import Predictor
from hmrnn.ops import Symbols
from hmrnn.ops.interface import TOP_DOWN
from hmrnn.ops.native import engine as native
from hmrnn.reading import sample
from hmrnn.reading.read import Reader
from hmrnn.reading.sample import draw, seeded
from refusals import refused

SYMBOLS = 13
SIZE = st.sampled_from([1, 2, 5, 8, 17, 33])
CELLS = {
    "hidden_size": st.lists(SIZE, min_size=1, max_size=3).map(tuple), "output_size": SIZE, "embedding_size": SIZE,
    "layer_norm": st.booleans(), "flush": st.booleans(), "top_down": st.sampled_from(TOP_DOWN), "copy": st.booleans(),
    "output_layers": st.sampled_from(["all", "first"]),
}  # fmt: skip
DETECTORS = st.builds(
    DetectorConfig, estimator=st.sampled_from(["step", "sample"]), on_copy=st.sampled_from(["evaluate", "hold"]),
    hidden=st.sampled_from([0, 3]),
)  # fmt: skip
OF_SYMBOLS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.3, 1.7]), "top_k": st.sampled_from([1, 4, 13, 99]),
        "top_p": st.sampled_from([0.01, 0.6, 1.0]),
    },
)  # fmt: skip
OF_POINTS = st.fixed_dictionaries(
    {}, optional={"temperature": st.sampled_from([0.0, 0.3, 1.7]), "bias": st.sampled_from([0.0, 1.0, 9.0])}
)
TOLD: list[Any] = [{}, {}, {"classes": ("a", "b")}] + [
    {"window": window, "window_width": 5, "window_components": 3, "alphabet": ("a", "b", "c"), **classes}
    for window in ("soft", "detector") for classes in ({}, {"classes": ("a", "b")})
]  # fmt: skip


def settings(kind: Any, **cell: Any) -> Any:
    sizes = cell["hidden_size"]
    return kind(**cell, num_layers=len(sizes))


def wide(model: Predictor, seed: int) -> Any:
    """Weights with which something happens: detectors fire and draws differ."""
    generator = seeded(seed)
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7)
    return model


def by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_native", lambda *_: None)


@given(
    st.fixed_dictionaries(CELLS), DETECTORS, OF_SYMBOLS, st.lists(st.integers(0, 20), min_size=1, max_size=6),
    st.integers(0, 99),
)  # fmt: skip
def test_symbols(cell: Any, detectors: DetectorConfig, how: Any, prompts: list[int], seed: int) -> None:
    model = wide(LanguageModel(SYMBOLS, settings(ModelConfig, **cell), detectors=detectors), seed)
    texts = [np.random.default_rng(seed).integers(0, SYMBOLS, n) for n in prompts]

    def drawn() -> list[list[int]]:
        many = continue_all(model, texts, 20, seed=seed, **how)
        return [each.tolist() for each in many] + [list(stream(model, texts[0], 50, seed=seed, **how))]

    assert sample._native(model, how)
    with pytest.MonkeyPatch.context() as patch:
        by_python(patch)
        want = drawn()
    assert drawn() == want


@given(
    st.fixed_dictionaries(CELLS), DETECTORS, OF_POINTS, st.booleans(), st.integers(1, 4), st.integers(1, 5),
    st.integers(1, 60), st.sampled_from(TOLD), st.integers(0, 99),
)  # fmt: skip
def test_points(
    cell: Any, detectors: DetectorConfig, how: Any, halt: bool, mixtures: int, B: int, first: int, told: Any, seed: int
) -> None:
    config = settings(StrokeModelConfig, **cell, halt=halt, mixtures=mixtures, **told)
    model = wide(HandwritingModel(config, detectors=detectors), seed)
    start = torch.randn(first, B, 3, dtype=torch.float64, generator=seeded(seed))
    value = torch.arange(B) % 2 if "classes" in told else None
    text = torch.randint(4, (B, 16), generator=seeded(seed)) if "window" in told else None

    def drawn() -> Tensor:
        reader, L = Reader(model, B, Condition(value, text=text)), len(config.hidden_size)
        steps = itertools.islice(draw(reader, start, seeded(seed), **how), 25)
        return torch.stack([torch.cat([step, *reader.state.h[L:], *reader.state.c[L:]], dim=1) for step in steps])

    assert sample._native(model, how)
    with pytest.MonkeyPatch.context() as patch:
        by_python(patch)
        want = drawn()
    torch.testing.assert_close(drawn(), want, rtol=1e-7, atol=1e-7)


TEXT = ModelConfig(hidden_size=(12, 10, 8), embedding_size=6, output_size=9)


def test_options_of_zero_are_no_missing_ones() -> None:
    """Only the likeliest symbol has its share of ``top_p`` 0; ``top_k`` 0 leaves none."""
    model, start = wide(LanguageModel(SYMBOLS, TEXT), 1), torch.zeros(1, 1, dtype=torch.int64)

    def drawn(**how: Any) -> list[int]:
        return [int(step) for step in itertools.islice(draw(Reader(model), start, seeded(1), **how), 40)]

    assert drawn(top_p=0.0) == drawn(temperature=0) != drawn()
    with refused():
        drawn(top_k=0)


def test_in_single_precision_and_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide(LanguageModel(SYMBOLS, TEXT), 1).float()
    prompts = [np.arange(n % 9) for n in range(16)]
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(native, "threads", lambda *_, threads=threads: threads)
        found.append(continue_all(model, prompts, 60, seed=2))
    by_python(monkeypatch)
    found.append(continue_all(model, prompts, 60, seed=2))
    for one, *others in zip(*found):
        assert all(np.array_equal(one, other) for other in others)


@pytest.mark.parametrize("steps", [1, 16, 1000])
def test_pieces_of_any_length_give_the_same(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide(LanguageModel(SYMBOLS, TEXT), 1)
    want = list(stream(model, [1, 2], 50, seed=3))
    monkeypatch.setattr(sample, "LEAST_STEPS", steps)
    monkeypatch.setattr(sample, "MOST_STEPS", steps)
    assert list(stream(model, [1, 2], 50, seed=3)) == want


@pytest.mark.parametrize("served", [True, False])
def test_a_network_that_diverges_says_so_where_it_does(served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide(LanguageModel(SYMBOLS, TEXT), 1)
    want = list(stream(model, [], 9, temperature=0))
    new = next(k for k, symbol in enumerate(want) if symbol != want[0])
    model.embedding.weight.data[want[new]] = 1e300  # its products are not finite
    if not served:
        by_python(monkeypatch)
    found = []
    with pytest.raises(InputError):
        found += [found.append(symbol) for symbol in stream(model, [], 9, temperature=0)]
    assert found == want[: new + 1]


class Doubling(LanguageModel):
    def expect(self, embedding: Tensor) -> Any:
        return super().expect(2 * embedding)


def hooked() -> LanguageModel:
    model = LanguageModel(SYMBOLS, TEXT)
    model.softmax.register_forward_hook(lambda *_: None)
    return model


def autocast(model: LanguageModel) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return sample._native(model, {})


@pytest.mark.parametrize(
    "model",
    [
        Doubling(SYMBOLS, TEXT), LanguageModel(SYMBOLS, TEXT, engine="reference"), hooked(),
        LanguageModel(SYMBOLS, TEXT, detectors=DetectorConfig(estimator="soft")),
        LanguageModel(SYMBOLS, TEXT).bfloat16(),
        LanguageModel(SYMBOLS, dataclasses.replace(TEXT, rnn="lstm")),
        LanguageModel(SYMBOLS, dataclasses.replace(TEXT, classes=("a", "b"))),
        LanguageModel(SYMBOLS, dataclasses.replace(TEXT, rnn="hrnn"), given=np.zeros((SYMBOLS, 2), np.float32)),
        LanguageModel(SYMBOLS, dataclasses.replace(TEXT, rnn="echo-state", ridge=True)),
    ],
    ids=["own", "engine", "hook", "soft", "type", "rnn", "condition", "given", "ridge"],
)  # fmt: skip
def test_python_draws_what_the_engine_does_not_serve(model: LanguageModel) -> None:
    assert sample._native(model, {}) is None
    given = Condition(torch.tensor([1])) if model.config.conditioned else None
    assert len(list(stream(model, [1, 2], 5, seed=1, condition=given))) == 5


def test_under_autocast_python_draws() -> None:
    model = LanguageModel(SYMBOLS, TEXT)
    assert sample._native(model, {})
    assert autocast(model) is None


WRONG: dict[str, Any] = {
    "weight": torch.zeros(12, 9), "offset": torch.zeros(13, dtype=torch.float64), "choices": (14, 0, 0),
    "reals": (0.0, 0.0, 1.0, 0.0, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ["", *WRONG, "points", "none"])
def test_what_it_could_not_draw_from_is_refused(name: str) -> None:
    model = LanguageModel(SYMBOLS, TEXT)
    T, B, sizes = 4, 2, (12, 10, 8)
    zeros = torch.zeros(T, B, 1, dtype=torch.float64)
    right: dict[str, Any] = {
        "terms": [torch.zeros(9 + 3, size) for size in sizes], "weight": torch.zeros(SYMBOLS, 9),
        "offset": torch.zeros(SYMBOLS), "starts": torch.zeros(B, dtype=torch.int64), "uniform": zeros,
        "drawn": zeros.clone(), "choices": (SYMBOLS, 0, 0), "reals": (1.0, 0.0, 1.0, 0.0, 0.0),
    }  # fmt: skip
    right |= {name: WRONG[name]} if name in WRONG else {}
    right |= {"points": {"choices": (1, 2, 0)}, "none": {"terms": []}}.get(name, {})
    x = torch.zeros(T, B, dtype=torch.int64)
    inputs, rnn = Symbols(x, model.embedding.weight), model.rnn

    def run() -> None:
        with torch.no_grad():
            native.hmlstm(
                inputs, rnn.layers(), rnn.initial_state(B), rnn.options(), drawing=native.Drawing(**right)
            )  # fmt: skip

    if name:
        with pytest.raises(InputError):
            run()
    else:
        run()
