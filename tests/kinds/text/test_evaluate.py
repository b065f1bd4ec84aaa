"""Bits per character: every symbol counted once, however the text is cut up."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
import tiny_strokes
from hmrnn.config import DetectorConfig
from hmrnn.kinds.strokes.evaluate import evaluate_strokes
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.kinds.text.evaluate import Evaluation, cut, evaluate
from hmrnn.kinds.text.large_files import segment_files
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.output import Operation
from hmrnn.nn.predictor import multiply_adds
from refusals import refused

SYMBOLS = tiny.corpus(train=300).train


@pytest.fixture(scope="module")
def network() -> LanguageModel:
    """Detectors that fire often and weights that make the symbols differ."""
    torch.manual_seed(5)
    network = LanguageModel(9, tiny.config().model)
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 1.5
    return network


def by_hand(network: LanguageModel, symbols: np.ndarray, parts: list[tuple[int, int, int]]) -> Evaluation:
    """Each part (first symbol read, first predicted from, end) by itself, one symbol at a time."""
    count, bits, products = 0, 0.0, 0.0
    rates, updates = np.zeros(2), np.zeros(3)
    with torch.no_grad():
        for begin, first, end in parts:
            state = None
            for t in range(begin, end):
                before = state
                (logits,), out, state = network(torch.tensor([[int(symbols[t])]]), state)
                if t >= first:
                    count += 1
                    products += float(multiply_adds(network, out, before))
                    bits -= float(torch.log_softmax(logits[0, 0].double(), -1)[int(symbols[t + 1])]) / math.log(2)
                    rates += out.boundaries[0, 0].numpy()
                    updates += (out.operations[0, 0] != Operation.COPY).numpy()
    return Evaluation(tuple(rates / count), tuple(updates / count), products / count, count, bits / count)


def assert_same(ours: Evaluation, theirs: Evaluation) -> None:
    assert ours.symbols == theirs.symbols
    assert ours.bits == pytest.approx(theirs.bits, abs=1e-5)
    assert ours.rates == pytest.approx(theirs.rates)
    assert ours.updates == pytest.approx(theirs.updates)
    assert ours.multiply_adds == pytest.approx(theirs.multiply_adds, rel=1e-12)


@pytest.mark.parametrize(("length", "chunk"), [(120, 100), (120, 7), (101, 100), (2, 5)])
def test_one_stream_is_a_plain_loop(network: LanguageModel, length: int, chunk: int) -> None:
    symbols = SYMBOLS[:length]
    result = evaluate(network, symbols, chunk=chunk)
    expected = by_hand(network, symbols, [(0, 0, length - 1)])
    assert_same(result, expected)
    assert result.symbols == length - 1


def test_the_measures_are_alive(network: LanguageModel) -> None:
    """A test of rates that are all 0 or 1 would test nothing."""
    result = evaluate(network, SYMBOLS)
    assert all(0.02 < rate < 0.98 for rate in result.rates)
    assert result.updates[0] == 1.0
    assert 1.0 > result.updates[1] > result.updates[2] > 0.0
    assert result.saved == pytest.approx(1 - sum(result.updates) / 3)
    assert 0 < result.saved < 1


def test_soft_boundaries_save_nothing() -> None:
    soft = tiny.trainer(tiny.config(estimator="soft"))
    result = evaluate(soft.model, soft.task.corpus.valid)
    assert all(0 < rate < 1 for rate in result.rates)
    assert result.updates == (1.0, 1.0, 1.0)
    assert result.saved == 0
    assert soft.validate().updates == (1.0, 1.0, 1.0)  # which the report shows
    corpus = tiny_strokes.corpus()
    strokes = tiny_strokes.model(estimator="soft").network
    assert evaluate_strokes(strokes, corpus.valid, corpus.spec).saved == 0


def test_the_papers_count() -> None:
    result = Evaluation((56 / 270, 9 / 270), (270 / 270, 56 / 270, 9 / 270), 1.0, 270, 1.2)
    assert 810 * (1 - result.saved) == pytest.approx(335)


@settings(max_examples=6)
@given(
    length=st.integers(30, 70),
    streams=st.integers(2, 8),
    warmup=st.integers(0, 9),
    chunk=st.integers(1, 8),
)
def test_streams_count_every_symbol_once(
    network: LanguageModel, length: int, streams: int, warmup: int, chunk: int
) -> None:
    """Parts of equal length, the last ones shorter or empty; what warms a part up is not counted."""
    symbols = SYMBOLS[:length]
    n = length - 1
    result = evaluate(network, symbols, streams=streams, warmup=warmup, chunk=chunk)
    assert result.symbols == n
    used = min(streams, n // max(1, warmup, chunk))
    size = math.ceil(n / used)
    used = math.ceil(n / size)
    assert cut(n, streams, warmup, chunk) == (used, warmup if used > 1 else 0)
    starts = [k * size for k in range(used) if k * size < n]
    parts = [(max(0, start - warmup) if used > 1 else start, start, min(start + size, n)) for start in starts]
    assert_same(result, by_hand(network, symbols, parts))


def test_how_a_text_is_cut() -> None:
    assert cut(1_000_000, 64, 500) == (64, 500)
    assert cut(877, 64, 500) == cut(877, 1, 500) == (1, 0)
    assert cut(1500, 64, 500) == (3, 500)
    assert cut(1500, 64, 0) == (15, 0)
    assert cut(9, 6, 0, chunk=1) == (5, 0)  # two each, and one in the last


@pytest.mark.parametrize("world", [2, 3, 5])
def test_shares_add_up(network: LanguageModel, monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    options: dict[str, Any] = {"streams": 4, "warmup": 6, "chunk": 9}
    whole = evaluate(network, SYMBOLS[:100], **options)
    total = torch.zeros(8, dtype=torch.float64)

    def all_reduce(values: torch.Tensor) -> None:
        total.add_(values)
        values.copy_(total)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    results = [evaluate(network, SYMBOLS[:100], share=(rank, world), **options) for rank in range(world)]
    assert results[0].symbols < 99
    assert_same(results[-1], whole)


@pytest.mark.parametrize("what", ["text", "strokes", "stream"])
def test_every_module_is_left_in_the_mode_that_it_was_in(what: str, tmp_path: Path) -> None:
    """One that its owner keeps in eval() while the rest trains, too."""
    corpus = tiny_strokes.corpus()
    model = tiny_strokes.model().network if what == "strokes" else LanguageModel(9, tiny.config().model)
    model.train()
    model.rnn.eval()
    if what == "text":
        evaluate(model, SYMBOLS)
    elif what == "strokes":
        evaluate_strokes(model, corpus.valid, corpus.spec)
    else:
        (tmp_path / "a.txt").write_text(tiny.text(50))
        segment_files(TextModel(model, tiny.VOCABULARY, tiny.config()), [tmp_path / "a.txt"], tmp_path / "out")
    assert [module for module in model.modules() if not module.training] == list(model.rnn.modules())


def test_sampled_boundaries_are_decided_by_likelihood() -> None:
    torch.manual_seed(0)
    network = LanguageModel(9, tiny.config().model, detectors=DetectorConfig(estimator="sample"))
    assert evaluate(network, SYMBOLS[:60]) == evaluate(network, SYMBOLS[:60])
    assert network.training


def test_bf16_is_close(network: LanguageModel) -> None:
    exact, rough = (evaluate(network, SYMBOLS[:150], precision=p) for p in ("float32", "bf16"))
    assert exact.bits != rough.bits
    assert rough.bits == pytest.approx(exact.bits, abs=0.2)


@pytest.mark.parametrize(("flag", "value"), [("--warmup", 500), ("--warmup", 0), ("--streams", 2), ("--streams", 0)])
def test_lines_of_handwriting_are_read_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: int
) -> None:
    tiny_strokes.save(tmp_path / "hand", tiny_strokes.model())
    save_strokes(tiny_strokes.strokes(2), tmp_path / "lines.npz")
    assert tiny.hmrnn("evaluate", "-m", tmp_path / "hand", "--file", tmp_path / "lines.npz", flag, value) == 2
    assert flag in capsys.readouterr().err


def test_bad_arguments(network: LanguageModel) -> None:
    for length in (0, 1):
        with refused():
            evaluate(network, SYMBOLS[:length])
    for wrong in ({"streams": 0}, {"warmup": -1}):
        with refused():
            evaluate(network, SYMBOLS, **wrong)
