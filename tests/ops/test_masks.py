"""Dropout between layers and zoneout: drawn by the module while it trains, and how a trained model is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
import tiny_strokes
from hmrnn import HMLSTM, ops
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.ops import reference
from hmrnn.training.metrics import read_metrics
from refusals import refused

SIZES = (20, 15, 10)


def drawn(option: str, B: int) -> dict[str, Any]:
    """The masks that a module draws first after a seed."""
    torch.manual_seed(5)
    if option == "zoneout":
        return {"kept": [torch.rand(6, B, size) < 0.3 for size in SIZES]}
    return {"seen": [torch.ones(B, size).double().bernoulli_(0.7) / 0.7 for size in SIZES[:-1]]}


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("option", ["zoneout", "dropout"])
def test_the_module_draws_while_training_alone(option: str, engine: str) -> None:
    """In eval() zoneout keeps its share of c, and so does every step."""
    rnn = HMLSTM(4, SIZES, **{option: 0.3}, layer_norm=True, engine=engine).double()  # type: ignore[arg-type]
    assert f"{option}=0.3" in repr(rnn)
    for B in (3, 1):
        x, state = torch.randn(6, B, 4).double(), rnn.initial_state(B)
        torch.manual_seed(5)
        trained = rnn.train()(x)[0].hidden
        masked = reference.hmlstm(x, rnn.layers(), state, rnn.options(), **drawn(option, B)).hidden
        plain = reference.hmlstm(x, rnn.layers(), state, rnn.options()).hidden
        assert not torch.allclose(masked[1], plain[1])
        torch.testing.assert_close(trained, masked, rtol=0, atol=1e-12)
        torch.testing.assert_close(rnn.eval()(x)[0].hidden, plain, rtol=0, atol=1e-12)
        for t in range(6):
            state = rnn.step(x[t], state).state
            torch.testing.assert_close(state.h, tuple(h[t] for h in plain), rtol=0, atol=1e-12)
    with refused(option):
        HMLSTM(4, 5, **{option: 1.0})  # type: ignore[arg-type]


def test_masks_of_dropout_have_no_gradient() -> None:
    rnn, ones = HMLSTM(3, 4, 2), [torch.ones(2, 4, requires_grad=True)]
    with refused():
        ops.hmlstm(torch.randn(5, 2, 3), rnn.layers(), rnn.initial_state(2), rnn.options(), seen=ones)


@pytest.mark.parametrize(("kind", "rnn"), [("text", "ln-lstm"), ("strokes", "hm-lstm")])
def test_a_model_is_used_as_it_was_validated(
    kind: str, rnn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    corpus = {"text": "story.txt", "strokes": "lines.npz"}[kind]
    (tmp_path / "story.txt").write_text(tiny.text(250))
    save_strokes(tiny_strokes.strokes(12), tmp_path / "lines.npz")
    flags = "--model.hidden-size 6 --model.output-size 5 --train.batch-size 1 --train.epochs 1"
    flags += " --train.length 20" * (kind == "text")
    flags += f" --model.rnn {rnn} --regularise.zoneout 0.5 --no-report"
    assert tiny.hmrnn("train", corpus, "--out", "run", *flags.split()) == 0
    (noted,) = [line for line in read_metrics(tmp_path / "run/metrics.jsonl") if line["event"] == "valid"]
    assert tiny.hmrnn("export", "-m", "run", "--out", "copy") == 0
    for model in ("run", "copy"):
        capsys.readouterr()
        streams = ["--streams", 1] if kind == "text" else []
        assert tiny.hmrnn("evaluate", "-m", model, "--split", "valid", "--path", corpus, *streams, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["rates"] == pytest.approx(noted["rates"])
        if kind == "text":
            assert found["bits"] == pytest.approx(noted["bits"], rel=1e-5)
        else:
            assert -found["log_likelihood"] == pytest.approx(noted["nats"], rel=1e-5)
