"""Writing: the streamed state is that of a whole pass, seeds, priming, bias, and models that cannot write."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
import tiny_strokes
from hmrnn.kinds.strokes.mixture import StrokeMixture
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.write import scribble
from refusals import refused


@pytest.fixture(scope="module")
def model() -> StrokeModel:
    return tiny_strokes.model()


def test_a_line_is_drawn_from_what_a_whole_pass_expects(model: StrokeModel) -> None:
    """At temperature 0 nothing is random: each point is the middle of the likeliest component after those before it."""
    line = model.generate(12, temperature=0)
    assert line.shape == (12, 3)
    read = np.concatenate([np.zeros((1, 3)), line])[:-1]
    with torch.no_grad():
        mixture, _, _ = model.network(torch.from_numpy(model.scale.encode(read))[:, None])
    expected = StrokeMixture(*(part[:, 0] for part in mixture)).sample(temperature=0).numpy()
    np.testing.assert_allclose(model.scale.encode(line), expected, atol=1e-4)


def test_many_lines_are_segmented_as_each_by_itself(model: StrokeModel) -> None:
    lines = [line[:length] for line, length in zip(tiny_strokes.strokes(4), (30, 12, 2, 25))]
    many = model.segment_many(lines, batch=3)
    for line, found in zip(lines, many, strict=True):
        alone = model.segment(line)
        assert found.symbols == alone.symbols
        np.testing.assert_allclose(found.probabilities, alone.probabilities, atol=1e-5)
        np.testing.assert_allclose(found.norms, alone.norms, atol=1e-4)
        np.testing.assert_allclose(found.bits, alone.bits, atol=1e-3)
    with refused("batch"):
        model.segment_many(lines, batch=0)


def test_a_prime_is_read_first_and_not_returned(model: StrokeModel) -> None:
    prime = tiny_strokes.strokes(1)[0]
    line = model.generate(5, temperature=0, prime=prime)
    read = np.concatenate([prime, line])[:-1]
    with torch.no_grad():
        mixture, _, _ = model.network(torch.from_numpy(model.scale.encode(read))[:, None])
    expected = StrokeMixture(*(part[len(prime) - 1 :, 0] for part in mixture)).sample(temperature=0).numpy()
    np.testing.assert_allclose(model.scale.encode(line), expected, atol=1e-4)
    assert not np.allclose(line, model.generate(5, temperature=0))


def test_bias_makes_lines_alike(model: StrokeModel) -> None:
    spread = [np.std([line[0, :2] for line in model.sheet(200, 1, bias=bias, seed=1)]) for bias in (0.0, 3.0)]
    assert spread[1] < 0.7 * spread[0]


def test_the_network_is_left_as_it_was(model: StrokeModel) -> None:
    model.network.train()
    model.network.output.eval()
    model.generate(2)
    assert model.network.training
    assert not model.network.output.training
    model.network.eval()


def test_baselines_write_too() -> None:
    assert tiny_strokes.model(rnn="lstm").generate(4, seed=1).shape == (4, 3)


def test_a_text_without_letters_is_refused_and_nothing_is_written(model: StrokeModel, tmp_path: Path) -> None:
    folder, out = tiny_strokes.save(tmp_path / "run", model), tmp_path / "lines.svg"
    for text in ("", " "):
        assert tiny.hmrnn("generate", "-m", str(folder), "--text", text, "--out", str(out)) == 2
        assert not out.exists()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("points", (0, "a word")),
        ("bias", ("none", -1.0, float("nan"))),
        ("samples", (0,)),
        ("temperature", (-0.1, float("inf"))),
        ("seed", (-1,)),
        ("", (np.zeros((4, 2)), np.zeros((0, 3)), np.full((4, 3), np.nan))),
    ],
)
def test_what_cannot_be_asked_for(model: StrokeModel, name: str, values: tuple) -> None:
    for value in values:
        with refused(name):
            model.sheet(**{"samples": 1, "points": 5, name or "prime": value})  # type: ignore[arg-type]


def test_a_model_with_weights_that_are_not_finite_says_so() -> None:
    broken = tiny_strokes.model()
    with torch.no_grad():
        broken.network.density.bias[0] = float("nan")
    with refused():
        broken.generate(3)


def test_a_pen_out_of_control_is_not_drawn() -> None:
    wild = tiny_strokes.model()
    with torch.no_grad():
        wild.network.density.bias[2:6] = 1e5  # the means
    with refused():
        wild.generate(3)


@pytest.mark.parametrize(("bias", "temperature"), [(0.0, 1.0), (5.0, 1.0), (0.0, 0.0), (0.0, 0.3)])
def test_scribble_is_told_from_writing(model: StrokeModel, bias: float, temperature: float) -> None:
    """A network that knows nothing is told of, whatever it is asked to draw; one that lifts the pen seldom is not."""
    for odds, told in ((0.0, True), (-3.0, False)):
        network = copy.deepcopy(model.network)
        network.density.weight.data[-1] = 0
        network.density.bias.data[-1] = odds
        lines = StrokeModel(network, model.scale, model.config).sheet(2, 15, bias=bias, temperature=temperature, seed=1)
        warning = scribble(network, model.scale, lines)
        assert (warning is not None) == told
        if warning:
            assert warning.startswith(
                "this model expects the pen to be lifted after 50% of the points, which is scribb"
            )
        assert scribble(network, model.scale, [line[:5] for line in lines]) is None  # too short to tell
