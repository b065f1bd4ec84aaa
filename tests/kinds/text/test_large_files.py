"""Segmenting files as streams: what is written, in bounded memory, stopped and resumed to the same bytes."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_jobs import job, lines, network, write

import tiny
from hmrnn.config import DataConfig
from hmrnn.errors import InputError, TextNote
from hmrnn.kinds.text.large_files import Job
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.context import Told
from hmrnn.reading.segment import segment_many


def test_one_stream_finds_what_segment_finds(tmp_path: Path) -> None:
    text = write(tmp_path / "a.txt", 200).read_text()
    one = job([tmp_path / "a.txt"], tmp_path / "out", streams=1)
    assert one.run() is None
    (target,) = one.targets
    assert target == tmp_path / "out" / "a.txt.jsonl"
    [found] = segment_many(network(), [tiny.VOCABULARY.encode(text)], [list(text)])
    records = lines(target)
    assert "".join(record["text"] for record in records) == text
    assert [record["start"] for record in records] == list(range(0, 200, 16))
    for level in (1, 2):
        assert [end for record in records for end in record["ends"][level - 1]] == found.ends(level)
    assert np.sum([record["updates"] for record in records], axis=0).tolist() == list(found.updates().per_layer)
    assert found.products is not None
    assert sum(record["multiply_adds"] for record in records) == found.products.sum()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt.jsonl"]


def test_parts_side_by_side_cover_every_symbol_once(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.txt", length, k) for k, length in enumerate((400, 5, 63))]
    several = job(files, tmp_path / "out")
    assert [len(several._parts(length)) for length in (400, 5, 63)] == [3, 1, 3]
    shown: list[tuple[int, int]] = []
    assert several.run(progress=lambda done, total: shown.append((done, total))) is None
    for path, target in zip(files, several.targets):
        records = lines(target)
        assert "".join(record["text"] for record in records) == path.read_text()
        ends = [end for record in records for end in record["ends"][0]]
        assert ends == sorted(set(ends))
        assert ends[-1] == len(path.read_text())
    assert shown[-1] == (468, 468)
    assert all(a <= b for (a, _), (b, _) in itertools.pairwise(shown))


def test_rounds_cover_every_symbol_once_after_a_warm_up(tmp_path: Path) -> None:
    """With all of the file as left context, several rounds and parts find what one stream finds."""
    path = write(tmp_path / "a.txt", 500)
    whole = job([path], tmp_path / "one", streams=1, chunk=500)
    cut = job([path], tmp_path / "two", warmup=7, chunk=3, round=64)
    long = job([path], tmp_path / "long", streams=2, warmup=500, round=100)
    for one in (whole, cut, long):
        assert one.run() is None
    found = [[end for record in lines(one.targets[0]) for end in record["ends"][0]] for one in (whole, cut, long)]
    assert found[2] == found[0]
    assert "".join(record["text"] for record in lines(cut.targets[0])) == path.read_text()
    assert found[1] == sorted(set(found[1]))
    assert found[1][-1] == 500


@pytest.mark.parametrize("after", [1, 4, 9, 30])
def test_stopped_and_resumed_to_the_same_bytes(tmp_path: Path, after: int) -> None:
    """By a signal, and by a crash that leaves half a line."""
    files = [write(tmp_path / f"{k}.txt", length, k) for k, length in enumerate((700, 90))]
    whole = job(files, tmp_path / "whole", streams=2, round=128)
    assert whole.run() is None
    calls = 0

    def stop(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            os.kill(os.getpid(), signal.SIGINT)

    assert job(files, tmp_path / "cut", streams=2, round=128).run(progress=stop) == "SIGINT"
    (begun,) = (tmp_path / "cut").glob("*.part")
    assert (begun.stat().st_size > 0) == (after > 4)
    with open(begun, "a") as file:
        file.write('{"half": ')
    again = job(files, tmp_path / "cut", streams=2, round=128)
    shown: list[int] = []
    assert again.run(resume=True, progress=lambda done, total: shown.append(done)) is None
    assert (shown[0] > 128) == (after > 9)  # whole rounds are not read again
    for one, other in zip(whole.targets, again.targets):
        assert one.read_bytes() == other.read_bytes()
    assert len(list((tmp_path / "cut").iterdir())) == 2
    assert again.run(resume=True) is None  # nothing is left to do


@pytest.mark.parametrize("change", ["grows", "shrinks", "goes"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a.txt", 300)

    def changing(done: int, total: int) -> None:
        if path.exists() and path.stat().st_size == 300:
            path.unlink() if change == "goes" else path.write_text(tiny.text(900 if change == "grows" else 200))

    with pytest.raises(InputError, match=r"a\.txt"):
        job([path], tmp_path / "out").run(progress=changing)
    assert not (tmp_path / "out" / "a.txt.jsonl").exists()


def test_a_refused_job_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(tiny.text(50) + "☃")
    with pytest.raises(InputError, match="never showed"):
        job([path], tmp_path / "out", unknown="refuse").run()
    mended = job([path], tmp_path / "out")
    with pytest.warns(TextNote, match="1 of 51 symbols"):
        assert mended.run() is None
    assert "".join(record["text"] for record in lines(mended.targets[0])) == tiny.text(50) + " "


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 300)
    stop = lambda done, total: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    assert job([path], tmp_path / "out").run(progress=stop) == "SIGTERM"
    with pytest.raises(InputError, match="already holds results"):
        job([path], tmp_path / "out").run()
    with pytest.raises(InputError, match="another model, file or options"):
        job([path], tmp_path / "out", chunk=17).run(resume=True)
    path.write_text(tiny.text(301))
    with pytest.raises(InputError, match="another model, file or options"):
        job([path], tmp_path / "out").run(resume=True)
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="same name"):
        job([path, write(tmp_path / "b" / "a.txt", 50)], tmp_path / "x")
    with pytest.raises(InputError, match="no file"):
        job([tmp_path / "none.txt"], tmp_path / "x")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="empty"):
        job([tmp_path / "empty.txt"], tmp_path / "x").run()
    for wrong in ({"streams": 0}, {"warmup": -1}, {"chunk": 0}):
        with pytest.raises(InputError, match="at least"):
            job([path], tmp_path / "x", **wrong)


def test_processes_share_the_files(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.txt", 100 + k, k) for k in range(3)]
    whole = job(files, tmp_path / "whole")
    assert whole.run() is None
    for rank in range(2):
        assert job(files, tmp_path / "shards", share=(rank, 2)).run() is None
    for target in whole.targets:
        assert target.read_bytes() == (tmp_path / "shards" / target.name).read_bytes()


def test_a_job_belongs_to_one_process(tmp_path: Path) -> None:
    """Another one is refused and touches nothing."""
    path, sizes = write(tmp_path / "a.txt", 300), []

    def another(done: int, total: int) -> None:
        (part,) = (tmp_path / "out").iterdir()
        sizes.append(part.stat().st_size)
        with pytest.raises(InputError, match="another process"):
            job([path], tmp_path / "out", round=64).run(resume=True)
        assert part.stat().st_size == sizes[-1]

    assert job([path], tmp_path / "out", round=64).run(progress=another) is None
    assert max(sizes) > 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The peak of a process that goes on to a file ten times as long is hardly higher."""
    code = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
import small_jobs as t
from hmrnn.utils import archives
archives._BLOCK = 4096
for path in map(Path, sys.argv[2:]):
    assert t.job([path], path.with_suffix(""), streams=100, chunk=64, warmup=32, round=1000).run() is None
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    paths = [write(tmp_path / f"{length}.txt", length) for length in (3_000, 30_000)]
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), *map(str, paths)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=tiny.environment(tmp_path))
    peaks = [int(line) for line in done.stdout.splitlines()]
    assert peaks[1] < peaks[0] + 10_000  # KB


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    tiny.run(tmp_path / "run", tiny.config(epochs=1))
    write(tmp_path / "a.txt", 300)
    assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt") == 2
    assert "--out" in capsys.readouterr().err
    assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt", "--out", "found", "--streams", "2") == 0
    assert "wrote found/a.txt.jsonl" in capsys.readouterr().out
    assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt", "--out", "found", "--resume") == 0
    assert "already complete: found/a.txt.jsonl" in capsys.readouterr().out
    assert "".join(line["text"] for line in lines(tmp_path / "found" / "a.txt.jsonl")) == tiny.text(300)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, said in (("1", ""), ("0", "wrote shared/a.txt.jsonl\n")):
        monkeypatch.setenv("RANK", rank)
        assert tiny.hmrnn("segment", "-m", "run", "--stream", "a.txt", "--out", "shared", "--streams", "2") == 0
        assert capsys.readouterr().out == said


def test_a_condition_is_part_of_a_job(tmp_path: Path) -> None:
    """It reads under the model's condition, is resumed under no other, and refuses models that are told the time."""
    told = dataclasses.replace(network().config, classes=("a", "b"))
    write(tmp_path / "a.txt", 200)

    def conditioned(which: int, out: str) -> Job:
        torch.manual_seed(3)
        model = LanguageModel(9, told)
        with torch.no_grad():
            first, second = model.context.embedding.weight  # type: ignore[union-attr]
            model.rnn.W[0][-1, 3:] = first - second  # the lowest detector fires under the first condition alone
            model.rnn.b[0][-1] = (second**2 - first**2).sum() / 2
        model.told = Told(torch.tensor([which]))
        return Job(model, tiny.VOCABULARY, DataConfig(), [tmp_path / "a.txt"], tmp_path / out, streams=3, chunk=16)

    assert conditioned(0, "a").run() is None
    assert conditioned(1, "b").run() is None
    assert lines(tmp_path / "a" / "a.txt.jsonl") != lines(tmp_path / "b" / "a.txt.jsonl")
    stop = lambda done, total: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    assert conditioned(0, "c").run(progress=stop) == "SIGTERM"
    with pytest.raises(InputError, match="another model"):
        conditioned(1, "c").run(resume=True)
    timed = LanguageModel(9, dataclasses.replace(told, classes=(), time="elapsed"))
    with pytest.raises(InputError, match=r"^model\.time\b"):
        Job(timed, tiny.VOCABULARY, DataConfig(), [tmp_path / "a.txt"], tmp_path / "d")
