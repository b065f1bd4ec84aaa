"""Dynamic evaluation: nothing is known too early, it helps where it should, and the model is left as it was."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.kind import of as kind_of
from hmrnn.kinds.text.dynamic import CLIP_NORM, DAMPING, Dynamic, evaluate_dynamic, read_dynamically
from hmrnn.kinds.text.evaluate import Piece, evaluate
from hmrnn.kinds.text.network import LanguageModel
from refusals import refused

SYMBOLS = tiny.corpus(train=101).train
FAST = Dynamic(learning_rate=0.02, decay=0.05, segment_length=20)


def model(seed: int = 5, engine: str = "auto", **changes: Any) -> LanguageModel:
    """Detectors that fire often and weights that make the symbols differ."""
    torch.manual_seed(seed)
    network = kind_of(tiny.config(**changes)).network(tiny.config(**changes), tiny.VOCABULARY, engine)
    assert isinstance(network, LanguageModel)
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 1.5
    return network


def weights(network: LanguageModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def losses(network: LanguageModel, symbols: np.ndarray, dynamic: Dynamic) -> np.ndarray:
    """Of predicting every symbol but the first, in nats."""
    found = np.full(len(symbols) - 1, np.nan)

    def note(piece: Piece, nats: Tensor) -> None:
        assert piece.counted.all()
        assert np.isnan(found[piece.at]).all()
        found[piece.at] = nats.numpy()

    read_dynamically(network, symbols, note, dynamic)
    return found


@pytest.mark.parametrize("rnn", ["hm-lstm", "hrnn", "lstm", "ln-lstm", "cw-rnn", "leaky"])
def test_without_a_rate_it_is_the_ordinary_evaluation_with_one_stream(rnn: str) -> None:
    """To the last bit where both run the same code.

    A single sequence without a gradient has an engine of its own in the LSTM with layer normalisation, and so it has in
    torch's LSTM on some processors.
    """
    exactly = "lstm" not in rnn or rnn == "hm-lstm"
    network = model(rnn=rnn, engine="reference" if rnn in ("hm-lstm", "hrnn") else "auto", modules=1)
    plain = evaluate(network, SYMBOLS, chunk=20)
    result = evaluate_dynamic(network, SYMBOLS, Dynamic(learning_rate=0, decay=0.1, segment_length=20))
    for name in ("symbols", "rates", "updates"):
        assert getattr(result, name) == getattr(plain, name)
    assert result.bits == plain.bits if exactly else result.bits == pytest.approx(plain.bits, abs=1e-5)
    assert result.skipped == 0


def test_the_first_segments_by_hand() -> None:
    """Predict, then follow and decay, then predict on with the state carried over and the graph cut."""
    network = model()
    size = sum(p.numel() for p in network.parameters())
    result = losses(network, SYMBOLS[:61], FAST)
    mine, state = copy.deepcopy(network).eval(), None
    start = [p.detach().clone() for p in mine.parameters()]
    squares = [torch.zeros_like(p) for p in start]
    for k, begin in enumerate((0, 20, 40), start=1):
        x, y = (torch.from_numpy(SYMBOLS[begin + k : begin + 20 + k].astype(np.int64))[:, None] for k in (0, 1))
        (logits,), _, state = mine(x, state)
        state = state.detach()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
        np.testing.assert_allclose(result[begin : begin + 20], loss.detach().numpy(), rtol=1e-4)
        mine.zero_grad()
        loss.mean().backward()
        torch.nn.utils.clip_grad_norm_(mine.parameters(), CLIP_NORM)
        with torch.no_grad():
            for p, was, square in zip(mine.parameters(), start, squares):
                assert p.grad is not None
                square += p.grad**2
                p -= FAST.learning_rate * p.grad / (torch.sqrt(square / k) + DAMPING * CLIP_NORM / size**0.5)
                p += FAST.decay * (was - p)


@pytest.mark.parametrize("last", [19, 20, 21, 40])
def test_what_is_still_to_come_changes_nothing(last: int) -> None:
    """Symbols after number ``last`` are replaced: it and all before it cost the same bits, to the last digit."""
    other = SYMBOLS[:80].copy()
    other[last + 1 :] = (other[last + 1 :] + 1) % 9
    one, two = (losses(model(), symbols, FAST) for symbols in (SYMBOLS[:80], other))
    assert np.array_equal(one[:last], two[:last])
    assert not np.isclose(one[last:], two[last:]).all()


def test_in_inference_mode() -> None:
    network = model()
    expected = evaluate_dynamic(network, SYMBOLS[:80], FAST)
    with torch.inference_mode():
        assert evaluate_dynamic(network, SYMBOLS[:80], FAST) == expected


def test_decay_of_one_forgets_every_segment() -> None:
    network = model()
    forgetful = evaluate_dynamic(network, SYMBOLS, Dynamic(learning_rate=0.5, decay=1.0, segment_length=20))
    assert forgetful.bits == pytest.approx(evaluate(network, SYMBOLS).bits, abs=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_captured_graphs_see_the_weights_that_moved() -> None:
    """On a GPU segments are replayed from a graph, with weights that changed in place since it was captured."""
    network = model().to("cuda")
    before = weights(network)
    plain = evaluate(network, SYMBOLS, chunk=20)
    still = evaluate_dynamic(network, SYMBOLS, Dynamic(learning_rate=0, segment_length=20))
    assert still.bits == pytest.approx(plain.bits, abs=1e-4)
    moved = evaluate_dynamic(network, SYMBOLS, FAST)
    assert moved.bits == pytest.approx(evaluate_dynamic(model(engine="reference"), SYMBOLS, FAST).bits, abs=1e-3)
    assert abs(moved.bits - plain.bits) > 0.01
    assert same(weights(network), before)


def test_the_network_is_left_as_it_was_when_something_fails() -> None:
    network = model()
    before, seen = weights(network), []

    def stop(*_: object) -> None:
        seen.append(weights(network))
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_dynamically(network, SYMBOLS, stop, FAST)
    assert not same(seen[2], before)
    assert same(weights(network), before)
    assert network.training


def test_gradients_that_are_not_finite_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    network, grad, calls = model(), torch.autograd.grad, []

    def broken(*arguments: Any, **options: Any) -> tuple[Tensor, ...]:
        calls.append(None)
        gradients = grad(*arguments, **options)
        gradients[3].fill_(float("nan") if len(calls) == 1 else float("inf"))
        return gradients

    plain = evaluate_dynamic(network, SYMBOLS, Dynamic(learning_rate=0, segment_length=20))
    monkeypatch.setattr(torch.autograd, "grad", broken)
    result = evaluate_dynamic(network, SYMBOLS, FAST)
    assert result.skipped == len(calls) == 5
    assert result.bits == plain.bits


def test_progress() -> None:
    calls: list[tuple[int, int]] = []
    evaluate_dynamic(model(), SYMBOLS[:52], Dynamic(segment_length=20), progress=lambda *done: calls.append(done))
    assert calls == [(20, 51), (40, 51), (51, 51)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", -0.1), ("learning_rate", float("nan")), ("decay", 1.5), ("segment_length", 0)],
)
def test_bad_settings(name: str, value: float) -> None:
    with refused(name):
        Dynamic(**{name: value})


def test_a_network_that_is_frozen_cannot_follow() -> None:
    network = model().requires_grad_(False)
    with refused():
        evaluate_dynamic(network, SYMBOLS)
    network.softmax.bias.requires_grad_(True)
    assert evaluate_dynamic(network, SYMBOLS, FAST).bits < evaluate(network, SYMBOLS).bits


def test_a_text_must_have_two_symbols() -> None:
    with refused():
        evaluate_dynamic(model(), SYMBOLS[:1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and a text."""
    place = tmp_path_factory.mktemp("dynamic")
    config, network = tiny.config(), model()
    checkpoint.write(place / "model", Checkpoint(config, tiny.VOCABULARY, dict(network.state_dict())))
    (place / "text.txt").write_text(tiny.text(100))
    return place


def test_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {path: path.read_bytes() for path in sorted((place / "model").iterdir())}
    command = ("evaluate", "-m", place / "model", "--file", place / "text.txt", "--dynamic", "--learning-rate", 0.02)
    assert tiny.hmrnn(*command, "--decay", 0.05, "--segment-length", 20, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    expected = evaluate_dynamic(model(), tiny.VOCABULARY.encode(tiny.text(100)), FAST)
    assert record["bits"] == pytest.approx(expected.bits, abs=1e-6)
    assert record["dynamic"] == {"learning_rate": 0.02, "decay": 0.05, "segment_length": 20}
    assert (record["symbols"], record["streams"], record["skipped"]) == (99, 1, 0)
    assert tiny.hmrnn(*command) == 0
    assert "99 symbols" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in sorted((place / "model").iterdir())} == files


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--learning-rate", 0.1), "--learning-rate"),
        (("--segment-length", 50), "--segment-length"),
        (("--dynamic", "--streams", 8), "--streams"),
        (("--dynamic", "--warmup", 500), "--warmup"),
        (("--dynamic", "--boundaries"), "--boundaries"),
        (("--dynamic", "--decay", -1), "decay"),
    ],
)
def test_flags_that_do_not_go_together(
    flags: tuple[Any, ...], named: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tiny.hmrnn("evaluate", "-m", place / "model", "--file", place / "text.txt", *flags) == 2
    assert named in capsys.readouterr().err
