"""Generation: the streamed distribution is the network's own, draws can be repeated, and COPY is free."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from hmrnn import Operation
from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.sample import continue_all, stream
from hmrnn.reading.read import Reader
from refusals import refused


def network(estimator: Any = "step", on_copy: Any = "evaluate", **options: object) -> LanguageModel:
    sizes = {"embedding_size": 6, "hidden_size": (12, 10, 8), "num_layers": 3, "output_size": 9}
    detectors = DetectorConfig(estimator=estimator, on_copy=on_copy)
    config = ModelConfig(**{**sizes, **options})  # type: ignore[arg-type]
    return LanguageModel(11, config, engine="reference", detectors=detectors)


def indices(T: int = 60) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 11, T)


@pytest.mark.parametrize("boundary", ["step", "soft"])
@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
@pytest.mark.parametrize("layer_norm", [True, False])
def test_streamed_logits_are_those_of_the_forward_pass(boundary: str, on_copy: str, layer_norm: bool) -> None:
    model = network(estimator=boundary, on_copy=on_copy, layer_norm=layer_norm).double()
    x = indices()
    with torch.no_grad():
        (logits,), out, state = model(torch.from_numpy(x)[:, None])
    reader = Reader(model)
    for t, symbol in enumerate(torch.from_numpy(x)):
        reader.read(symbol[None])
        torch.testing.assert_close(reader.predict().logits[0], logits[t, 0], rtol=0, atol=1e-12)
    for mine, theirs in zip(reader.state.h, state.h):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    if boundary == "step":
        assert (out.operations == Operation.COPY).any()


def test_output_products_of_layers_that_copied_are_skipped() -> None:
    model = network().eval()
    x = indices()
    with torch.no_grad():
        operations = model(torch.from_numpy(x)[:, None])[1].operations[:, 0]
    changes = (operations != Operation.COPY).sum(0).tolist()
    assert changes[0] == 60
    assert 0 < changes[2] < changes[1] < 60

    products = [0, 0, 0]
    for l, embed in enumerate(model.output.embeddings):
        embed.register_forward_hook(lambda *_, l=l: products.__setitem__(l, products[l] + 1))
    reader = Reader(model)
    products[:] = [0, 0, 0]  # without those of the first state
    for symbol in torch.from_numpy(x):
        reader.read(symbol[None])
        reader.predict()
    assert products == changes
    reader.predict()
    assert products == changes

    reader = Reader(model)
    products[:] = [0, 0, 0]
    for symbol in torch.from_numpy(x):
        reader.read(symbol[None])
    reader.predict()
    assert products == [1, 1, 1]  # a prompt needs them at its end only


def test_the_same_seed_gives_the_same_symbols() -> None:
    model = network()
    first, second, other = (list(stream(model, [1, 2], 40, seed=seed)) for seed in (7, 7, 8))
    assert first == second != other
    assert len(first) == 40
    assert set(first) <= set(range(11))
    unseeded = [list(stream(model, [1, 2], 40)) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


@pytest.mark.parametrize("seed", [None, 1])
def test_the_global_generator_is_left_alone(seed: int | None) -> None:
    model = network(estimator="sample").train()
    before = torch.get_rng_state()
    list(stream(model, [1], 3, seed=seed))
    assert torch.equal(torch.get_rng_state(), before)


def test_temperature_zero_takes_the_likeliest_each_time() -> None:
    model = network().eval()
    text = [4, 9, 1]
    with torch.no_grad():
        for _ in range(25):
            text.append(int(model(torch.tensor(text)[:, None])[0].logits[-1, 0].argmax()))
    assert list(stream(model, np.array([4, 9, 1], np.uint8), 25, temperature=0)) == text[3:]


def test_the_prompt_changes_what_follows() -> None:
    model = network()
    with torch.no_grad():
        model.softmax.weight *= 30  # untrained, it hardly cares
    assert list(stream(model, [1], 30, seed=0)) != list(stream(model, [2], 30, seed=0))


def test_without_a_prompt_the_bias_of_the_softmax_gives_the_first_symbol() -> None:
    model = network()
    torch.testing.assert_close(Reader(model).predict().logits[0], model.softmax.bias.detach())
    with torch.no_grad():
        model.softmax.bias[6] = 50.0
    assert next(stream(model, [], 1, seed=0)) == 6
    assert list(stream(model, np.zeros(0), 0)) == []


def test_symbols_come_as_they_are_drawn() -> None:
    model = network()
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    model.softmax.register_forward_hook(count)
    start = list(itertools.islice(stream(model, [1, 2, 3], 10**9, seed=3), 5))
    assert steps == 5
    assert start == list(stream(model, [1, 2, 3], 5, seed=3))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("length", (-1,)),
        ("temperature", (-0.5, math.nan, math.inf, "warm")),
        ("top_k", (0, 1.5)),
        ("top_p", ("0.5", 0.0, 1.1, math.nan)),
        ("seed", (1.5, -1, 2**64)),
    ],
)
def test_impossible_values_are_refused_at_once(name: str, values: tuple) -> None:
    for value in values:
        with refused(name):
            stream(network(), **{"prompt": [1], "length": 5, name: value})


@pytest.mark.parametrize("prompt", [[11], [-1, 3], [0.5], [[1]]])
def test_what_is_no_prompt_is_refused(prompt: list) -> None:
    with refused():
        stream(network(), prompt, 5)


def test_several_prompts_side_by_side_are_continued_as_one_by_one() -> None:
    """At temperature 0 nothing is drawn, so that each continuation is that of the prompt alone."""
    model = network()
    prompts = [indices(n) for n in (5, 1, 12)]
    found = continue_all(model, prompts, 9, temperature=0)
    for prompt, symbols in zip(prompts, found, strict=True):
        assert symbols.tolist() == list(stream(model, prompt, 9, temperature=0))
    for length in (0, 1):
        assert [len(each) for each in continue_all(model, prompts, length)] == [length] * 3
    assert continue_all(model, prompts[:1], 20, seed=4)[0].tolist() == list(stream(model, prompts[0], 20, seed=4))
    one, other = continue_all(model, [prompts[0]] * 2, 20, seed=4)
    assert one.tolist() != other.tolist()
    with refused():
        continue_all(model, prompts, 9, temperature=-1)
