"""Reading handwriting: alignments, searches, padding, batches, and a run from its training to its answers."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lines import some

import tiny
import tiny_strokes
from hmrnn import load
from hmrnn.config import Config
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.kinds.strokes.presets import READING
from hmrnn.kinds.strokes.settings import TranscriptData, TranscriptModelConfig
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.strokes.transcriber import Heard, Transcriber, likeliest, nats, search
from hmrnn.kinds.strokes.transcripts import TranscriptBatches, TranscriptModel, TranscriptTask, legibility
from refusals import refused

CONFIG = TranscriptModelConfig(
    hidden_size=(6, 5), num_layers=2, embedding_size=4, output_size=6, alphabet=tuple("abcd "), stack=3
)


FLAGS = "--model.hidden-size 8 --model.output-size 8 --train.epochs 2 --train.batch-size 8 --no-report"


def lines(count: int = 7, shortest: int = 20) -> Strokes:
    texts = [("ab", "bc", "cab", "d", "dc a", "aa", "cab")[k % 7] for k in range(count)]
    return dataclasses.replace(some(count, shortest), texts=tuple(texts))


def by_paths(chances: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of every text, summed over all paths."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(chances.shape[1]), repeat=len(chances)):
        text = tuple(k for k, _ in itertools.groupby(path) if k)
        found[text] = found.get(text, 0.0) + float(np.exp(sum(row[k] for row, k in zip(chances, path))))
    return found


def test_texts_have_the_probability_of_all_their_alignments() -> None:
    chances = torch.randn(5, 1, 4, dtype=torch.float64).log_softmax(-1)
    every = by_paths(chances[:, 0].numpy())
    assert sum(every.values()) == pytest.approx(1)
    heard = Heard(chances, torch.tensor([5]), None, None)  # type: ignore[arg-type]
    for text in ((1,), (1, 1), (2, 1, 3), (3, 3)):
        got = nats(heard, torch.tensor([text]), torch.tensor([len(text)]))
        assert float(torch.exp(-got)) == pytest.approx(every[text])
    found = search(chances[:, 0].numpy(), 1000)
    assert len(found) == len(every)
    for letters, chance in found:
        assert np.exp(chance) == pytest.approx(every[tuple(letters)])
    assert tuple(found[0][0]) == max(every, key=every.__getitem__)
    narrow = search(chances[:, 0].numpy(), 2)
    assert len(narrow) == 2
    assert all(chance <= float(np.log(every[tuple(letters)])) + 1e-9 for letters, chance in narrow)


def test_the_likeliest_path_without_blanks_and_repetitions() -> None:
    chances = np.log(np.full((7, 3), 0.1))
    chances[range(7), [1, 1, 0, 1, 2, 2, 0]] = np.log(0.8)
    assert likeliest(chances) == [1, 1, 2]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_line_is_read_alike_beside_longer_ones(bidirectional: bool) -> None:
    network = Transcriber(dataclasses.replace(CONFIG, bidirectional=bidirectional)).double().eval()
    x, lengths = torch.randn(20, 3, 3, dtype=torch.float64), torch.tensor([20, 7, 13])
    whole = network(x, lengths)
    assert whole.lengths.tolist() == [7, 3, 5]
    torch.testing.assert_close(whole.chances.exp().sum(-1)[:3], torch.ones(3, 3, dtype=torch.float64))
    for b, length in enumerate(lengths.tolist()):
        alone = network(x[:length, b : b + 1], lengths[b : b + 1])
        torch.testing.assert_close(alone.chances[:, 0], whole.chances[: len(alone.chances), b])


def test_chances_are_in_float32_under_autocast() -> None:
    network, x = Transcriber(CONFIG), torch.randn(20, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        low = network(x, torch.tensor([20, 13])).chances
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, network(x, torch.tensor([20, 13])).chances, atol=0.1, rtol=0.1)


def test_targets_are_the_letters_of_each_line() -> None:
    given = lines()
    batch = TranscriptBatches(given, Scale.of(given), "abcd", 4).batch(0, 0)
    for row, letters, counted in zip(batch.rows, batch.targets.T, batch.counted):
        said = "".join("abcd"[k - 1] for k in letters if k)
        assert said == (given.texts[row].replace(" ", "") if row >= 0 else "")
        assert counted == (given.lengths[row] if row >= 0 else 0)


def test_lines_are_distorted_anew_in_every_epoch_and_stay_level() -> None:
    given = Strokes.of([np.array([[0, 0, 0], [4, 0, 0], [2, 3, 1]])] * 4)
    plain, distorted = (TranscriptBatches(given, Scale((0, 0), (1, 1)), "abcd", 4, 1, d) for d in (0.0, 0.1))
    one, same, later = (distorted.batch(epoch, 0).inputs for epoch in (2, 2, 3))
    assert np.array_equal(one, same)
    assert not np.isclose(one[1:3, :, 0], later[1:3, :, 0]).any()
    assert not one[1, :, 1].any()
    assert not one[3:].any()
    assert np.array_equal(one[..., 2], plain.batch(2, 0).inputs[..., 2])
    assert 0 < np.abs(one - plain.batch(2, 0).inputs).max() < 2


def test_errors_are_counted_in_letters_and_words() -> None:
    found = legibility(["one tow", "three"], ["one two", "three four"])
    assert (found.letters, found.words, found.lines) == (pytest.approx(7 / 17), pytest.approx(2 / 4), 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on strokes of one's own."""
    folder = tmp_path_factory.mktemp("read")
    save_strokes(lines(40, 30), folder / "lines.json")
    assert (
        tiny.hmrnn("train", "transcripts", str(folder / "lines.json"), *FLAGS.split(), "--out", str(folder / "run"))
        == 0
    )
    return folder


def test_a_run_is_trained_resumed_evaluated_and_asked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(run / "run")
    assert isinstance(model, TranscriptModel)
    assert model.config.model.alphabet == tuple(sorted(set(" abcd")))
    metrics = [json.loads(line) for line in (run / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["event"] == "valid"
    assert metrics[-1]["error"] >= 0
    assert tiny.hmrnn("evaluate", "-m", str(run / "run"), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["lines"] == 3
    assert tiny.hmrnn("predict", "-m", str(run / "run"), str(run / "lines.json")) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40
    names = [str(run / name) for name in ("lines.json", "run")]
    flags = [*FLAGS.split(), "--train.epochs", "3"]
    assert tiny.hmrnn("train", "transcripts", names[0], *flags, "--out", names[1], "--resume") == 0
    one, *_ = model.predict(lines(3))
    assert 0 < one.probability <= 1
    assert one.probability >= max((chance for _, chance in one.alternatives), default=0)
    with refused():
        model.score(some(3))


def test_letters_that_the_model_knows_are_needed_in_both_parts() -> None:
    config, parts = Config(TranscriptData(path=("lines.json",)), CONFIG), tiny_strokes.corpus(4, 1)

    def task(train: str, valid: str) -> TranscriptTask:
        texts = [dataclasses.replace(part, texts=(text,) * len(part))
                 for part, text in ((parts.train, train), (parts.valid, valid))]  # fmt: skip
        data = dataclasses.replace(parts, train=texts[0], valid=texts[1])
        return TranscriptTask(config, data, Transcriber(CONFIG), torch.device("cpu"), 0, 1)

    assert np.isfinite(task("ab", "xb").validate().measure)
    for unknown in (("ab", "xy"), ("xy", "ab")):
        with refused():
            task(*unknown)


def test_a_line_alone_is_read_as_in_a_list() -> None:
    model, line = tiny_strokes.reader(), some(1, 20)[0]
    assert model.predict(line) == model.predict([line])


def test_a_reader_with_weights_that_are_not_finite_says_so() -> None:
    broken = tiny_strokes.reader()
    with torch.no_grad():
        broken.network.head.bias[0] = float("nan")
    with refused():
        broken.predict(some(2, 20))


def test_lines_without_texts_are_refused(tmp_path: Path) -> None:
    save_strokes(some(5, 30), tmp_path / "lines.json")
    assert tiny.hmrnn("train", "transcripts", str(tmp_path / "lines.json"), "--out", str(tmp_path / "run")) == 2


@pytest.mark.parametrize("name", READING)
def test_the_presets_go_together(name: str) -> None:
    config: Config = READING[name]
    config.check()
    assert isinstance(config.data, TranscriptData)
