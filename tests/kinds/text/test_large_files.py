"""Segmenting files as streams: what is written, in bounded memory."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from hmrnn.config import DetectorConfig
from hmrnn.errors import TextNote
from hmrnn.kinds.text.large_files import segment_files
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData
from hmrnn.nn.context import Condition
from hmrnn.reading.read import segment_many
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import archives
from refusals import refused

SMALL = {"embedding_size": 3, "hidden_size": (6, 5, 4), "output_size": 5, "layer_norm": False}


def model(detectors: DetectorConfig | None = None, **options: Any) -> TextModel:
    torch.manual_seed(3)
    config = tiny.config()
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, **SMALL | options), detectors=detectors or DetectorConfig()
    )
    network = LanguageModel(9, config.model, detectors=config.detectors)
    return TextModel(network, tiny.VOCABULARY, config)


def segment(files: list[Path], out: Path, **options: Any) -> list[Path]:
    return segment_files(model(), files, out, **{"streams": 3, "warmup": 20, "chunk": 16, **options})


def write(path: Path, length: int, seed: int = 0) -> Path:
    path.write_text(tiny.text(length, seed))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ends(path: Path, level: int = 1) -> list[int]:
    return [end for record in lines(path) for end in record["ends"][level - 1]]


def test_one_stream_finds_what_segment_finds(tmp_path: Path) -> None:
    text = write(tmp_path / "a.txt", 200).read_text()
    (target,) = segment([tmp_path / "a.txt"], tmp_path / "out", streams=1)
    assert target == tmp_path / "out" / "a.txt.jsonl"
    [found] = segment_many(model().network, [tiny.VOCABULARY.encode(text)], tiny.VOCABULARY.pieces)
    records = lines(target)
    assert "".join(record["text"] for record in records) == text
    assert [record["start"] for record in records] == list(range(0, 200, 16))
    for level in (1, 2):
        assert ends(target, level) == found.ends(level)
    assert np.sum([record["updates"] for record in records], axis=0).tolist() == list(found.updates().per_layer)
    assert found.products is not None
    assert sum(record["multiply_adds"] for record in records) == found.products.sum()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt.jsonl"]


@pytest.mark.parametrize("streams", [1, 3])
def test_ends_of_a_detector_that_fires_late_are_moved_back(tmp_path: Path, streams: int) -> None:
    """Across lines, and across parts that are read side by side."""
    text = write(tmp_path / "a.txt", 300).read_text()
    detectors = DetectorConfig(pull_to="segments", pull_delay=1)
    late, prompt = model(detectors), model()
    how = {"streams": streams, "warmup": 90, "chunk": 7}
    [target] = segment_files(late, [tmp_path / "a.txt"], tmp_path / "late", **how)
    [other] = segment_files(prompt, [tmp_path / "a.txt"], tmp_path / "prompt", **how)
    assert late.late == 1
    fired = [end for end in ends(other)[:-1] if end > 1]
    assert sorted({*ends(target)} - {299, 300}) == [
        end - 1 for end in fired
    ]  # what fires at the last step is not known
    assert ends(target, 2) == ends(other, 2)
    if streams == 1:
        assert ends(target)[:-1] == late.segment(text, primed=False).ends(1)[:-1]


def test_parts_side_by_side_cover_every_symbol_once(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.txt", length, k) for k, length in enumerate((400, 5, 63))]
    shown: list[tuple[int, int]] = []
    targets = segment(files, tmp_path / "out", progress=lambda done, total: shown.append((done, total)))
    for path, target in zip(files, targets):
        assert "".join(record["text"] for record in lines(target)) == path.read_text()
        assert ends(target) == sorted(set(ends(target)))
        assert ends(target)[-1] == len(path.read_text())
    assert shown[-1] == (468, 468)
    assert all(a <= b for (a, _), (b, _) in itertools.pairwise(shown))


@pytest.mark.parametrize(("streams", "warmup", "chunk", "size"), [(3, 7, 3, 64), (2, 500, 16, 100), (1, 500, 500, 500)])
def test_blocks_cover_every_symbol_once_after_a_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: int, warmup: int, chunk: int, size: int
) -> None:
    """With all of the file as left context, several blocks and parts find what one stream finds."""
    monkeypatch.setattr(archives, "_BLOCK", size)
    text = write(tmp_path / "a.txt", 500).read_text()
    (target,) = segment([tmp_path / "a.txt"], tmp_path / "out", streams=streams, warmup=warmup, chunk=chunk)
    assert "".join(record["text"] for record in lines(target)) == text
    if warmup == 500:
        assert ends(target)[:-1] == model().segment(text, primed=False).ends(1)[:-1]


def test_a_refused_file_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 16)
    (tmp_path / "a.txt").write_text(tiny.text(50) + "É…☃")
    with refused():
        segment([tmp_path / "a.txt"], tmp_path / "out", unknown="refuse")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.warns(TextNote, match="3 of 53"):
        (target,) = segment([tmp_path / "a.txt"], tmp_path / "out")
    assert "".join(record["text"] for record in lines(target)) == tiny.text(50) + "É…☃"
    assert ends(target)[-1] == 53


def test_bytes_are_read_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 3)
    (tmp_path / "a").write_bytes("aéb".encode() * 3)
    config = dataclasses.replace(tiny.config(), data=TextData(bytes=True))
    vocabulary = Vocabulary("bytes", (97, 98, 0xA9, 0xC3))
    reader = TextModel(LanguageModel(4, config.model), vocabulary, config)
    (target,) = segment_files(reader, [tmp_path / "a"], tmp_path / "out")
    assert "".join(record["text"] for record in lines(target)) == r"a\xc3\xa9b" * 3


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 300)
    segment([path], tmp_path / "out")
    (tmp_path / "b").mkdir()
    for files, out, how in (
        ([path], "out", {}),
        ([path, write(tmp_path / "b" / "a.txt", 50)], "x", {}),
        ([tmp_path / "none.txt"], "x", {}),
        ([path], "a.txt", {}),
        ([path], "x", {"streams": 0}),
        ([path], "y", {"warmup": -1}),
        ([write(tmp_path / "empty.txt", 0)], "z", {}),
    ):
        with refused():
            segment(files, tmp_path / out, **how)
    assert not (tmp_path / "z").exists()
    with refused("model.num_layers"):
        segment_files(model(num_layers=1, hidden_size=(6,)), [path], tmp_path / "w")


def test_processes_share_the_files(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.txt", 100 + k, k) for k in range(3)]
    whole = segment(files, tmp_path / "whole")
    for rank in range(2):
        segment(files, tmp_path / "shards", share=(rank, 2))
    for target in whole:
        assert target.read_bytes() == (tmp_path / "shards" / target.name).read_bytes()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The peak of a process that goes on to a file ten times as long is hardly higher."""
    code = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/../.."]
import test_large_files as t
from hmrnn.utils import archives
archives._BLOCK = 1024
for path in map(Path, sys.argv[2:]):
    t.segment([path], path.with_suffix(""), streams=2, chunk=64, warmup=32)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    paths = [write(tmp_path / f"{length}.txt", length) for length in (3_000, 30_000)]
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), *map(str, paths)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=tiny.environment(tmp_path))
    peaks = [int(line) for line in done.stdout.splitlines()]
    assert peaks[1] < peaks[0] + 10_000  # KB


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.run(tmp_path / "run", tiny.config(epochs=1))
    write(tmp_path / "a.txt", 300)
    assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt") == 2
    assert "--out" in capsys.readouterr().err
    assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt", "--out", "found", "--streams", "2") == 0
    assert "wrote found/a.txt.jsonl" in capsys.readouterr().out
    assert "".join(line["text"] for line in lines(tmp_path / "found" / "a.txt.jsonl")) == tiny.text(300)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, said in (("1", ""), ("0", "wrote shared/a.txt.jsonl\n")):
        monkeypatch.setenv("RANK", rank)
        assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt", "--out", "shared", "--streams", "2") == 0
        assert capsys.readouterr().out == said


def test_files_are_read_under_the_condition_of_the_model(tmp_path: Path) -> None:
    """A model that is told the time is refused."""
    path, told = write(tmp_path / "a.txt", 200), model(classes=("a", "b"))
    with torch.no_grad():
        first, second = told.network.context.embedding.weight  # type: ignore[union-attr]
        told.network.rnn.W[0][-1, 3:] = first - second  # the lowest detector fires under the first condition alone
        told.network.rnn.b[0][-1] = (second**2 - first**2).sum() / 2
    found = []
    for which in (0, 1):
        told.network.condition = Condition(torch.tensor([which]))
        (target,) = segment_files(told, [path], tmp_path / str(which), streams=3, chunk=16)
        found.append(lines(target))
    assert found[0] != found[1]
    with refused("model.time"):
        segment_files(model(time="elapsed"), [path], tmp_path / "d")
