"""Zoneout: units that keep their c when their layer moves."""

import json
from pathlib import Path

import pytest
import torch

import tiny
import tiny_strokes
from hmrnn import HMLSTM
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.ops import reference
from hmrnn.training.metrics import read_metrics
from refusals import refused


def test_the_module_draws_while_training_and_takes_the_share_otherwise() -> None:
    rnn, x = HMLSTM(4, (20, 15, 10), zoneout=0.3, layer_norm=True).double(), torch.randn(6, 3, 4).double()
    assert "zoneout=0.3" in repr(rnn)
    torch.manual_seed(5)
    trained, _ = rnn(x)
    torch.manual_seed(5)
    kept = [torch.rand(6, 3, size) < 0.3 for size in (20, 15, 10)]
    by_hand = reference.hmlstm(x, rnn.layers(), rnn.initial_state(3), rnn.options(), kept=kept)
    for got, want in zip(trained.hidden, by_hand.hidden):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    assert 0.2 < torch.cat([mask.flatten() for mask in kept]).double().mean() < 0.4
    rnn.eval()
    whole, end = rnn(x)
    by_hand = reference.hmlstm(x, rnn.layers(), rnn.initial_state(3), rnn.options())
    state = None
    for t in range(6):
        state = rnn.step(x[t], state).state
        torch.testing.assert_close(state.h, tuple(h[t] for h in by_hand.hidden), rtol=0, atol=1e-12)
    for got, want in zip((*whole.hidden, *end.c), (*by_hand.hidden, *by_hand.state.c)):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    with refused():
        HMLSTM(4, 5, zoneout=1.0)


def test_a_run_with_it() -> None:
    trainer = tiny.trainer(tiny.config(zoneout=0.2))
    assert trainer.model.rnn.zoneout == 0.2
    for _ in range(3):
        trainer.step()
    assert trainer.validate().measure > 0
    with refused():
        tiny.trainer(tiny.config(zoneout=0.2, rnn="lstm"))


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
