"""Segmenting files as streams: what is written, in constant memory, stopped and resumed to the same bytes."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_jobs import job, lines, network, write

import tiny
from hmrnn.config import DataConfig
from hmrnn.errors import InputError, TextNote
from hmrnn.inference import jobs as segment_stream
from hmrnn.inference.jobs import Job
from hmrnn.inference.segment import segment_many
from hmrnn.nn.context import Told
from hmrnn.nn.models import LanguageModel


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
    assert not (tmp_path / "out" / ".work-0").exists()


def test_parts_side_by_side_cover_every_symbol_once(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.txt", length, k) for k, length in enumerate((400, 5, 63))]
    several = job(files, tmp_path / "out")
    assert len(several._parts([400, 5, 63])) == 3 + 1 + 3
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


def test_a_long_warm_up_gives_what_one_stream_gives(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 400)
    whole, cut = job([path], tmp_path / "one", streams=1), job([path], tmp_path / "two", streams=2, warmup=100)
    assert whole.run() is cut.run() is None
    ends = [[end for record in lines(j.targets[0]) for end in record["ends"][0]] for j in (whole, cut)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("after", [1, 2, 4, 9])
def test_stopped_and_resumed_to_the_same_bytes(tmp_path: Path, after: int) -> None:
    files = [write(tmp_path / f"{k}.txt", length, k) for k, length in enumerate((300, 90))]
    whole = job(files, tmp_path / "whole", streams=2)
    assert whole.run() is None
    calls = 0

    def stop(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            os.kill(os.getpid(), signal.SIGINT)

    cut = job(files, tmp_path / "cut", streams=2)
    assert cut.run(progress=stop) == "SIGINT"
    assert not any(target.exists() for target in cut.targets)
    for part in (tmp_path / "cut" / ".work-0").glob("*-*.jsonl"):  # what a crash may leave behind
        with open(part, "a") as file:
            file.write('{"half": ')
    again = job(files, tmp_path / "cut", streams=2)
    assert again.run(resume=True) is None
    for one, other in zip(whole.targets, again.targets):
        assert one.read_bytes() == other.read_bytes()
    assert again.run(resume=True) is None  # nothing is left to do


def test_a_crash_between_two_saves_costs_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 300)
    whole = job([path], tmp_path / "whole")
    assert whole.run() is None

    def crash(done: int, total: int) -> None:
        if done > total / 2:
            raise RuntimeError("the machine is gone")

    for save_every in (0.0, 1e9):
        cut = job([path], tmp_path / f"cut{save_every}")
        with pytest.raises(RuntimeError):
            cut.run(progress=crash, save_every=save_every)
        assert job([path], tmp_path / f"cut{save_every}").run(resume=True) is None
        assert cut.targets[0].read_bytes() == whole.targets[0].read_bytes()


def in_a_process(files: list[Path], out: Path, kill_at: int) -> int | None:
    """Start or resume a job in a process that kills itself at its ``kill_at``-th call; the calls, None if it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            resume = (out / ".work-0" / "plan.json").exists()
            begun = job(files, out, streams=2)
            sys.setprofile(count)
            begun.run(resume=resume, save_every=0.0)
            sys.setprofile(None)
            os.write(writing, calls.to_bytes(8, "little"))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        written = pipe.read()
    assert status in (0, signal.SIGKILL), status
    return int.from_bytes(written, "little") if status == 0 else None


def test_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    """SIGKILL while files are encoded, read, saved, joined and removed: the results have the same bytes."""
    files = [write(tmp_path / f"{k}.txt", length, k) for k, length in enumerate((150, 60))]
    whole, rng = tmp_path / "whole", random.Random(4)
    assert job(files, whole, streams=2).run() is None  # here first: the processes inherit what it imports
    calls = in_a_process(files, tmp_path / "counted", 0)
    assert calls is not None
    kills = 0
    for number in range(4):
        out = tmp_path / f"{number}"
        last = calls - rng.randrange(60)  # joining and removing take few calls at the end
        for kill_at in (rng.randrange(calls), rng.randrange(calls // 2), last):
            kills += in_a_process(files, out, kill_at) is None
            if (out / "1.txt.jsonl").exists():
                break
        if (out / ".work-0").exists() or not out.exists():
            complete = all((out / f"{k}.txt.jsonl").exists() for k in range(2))
            begun = complete or (out / ".work-0" / "plan.json").exists()
            assert job(files, out, streams=2).run(resume=begun) is None
        assert {path.name: path.read_bytes() for path in out.iterdir()} == {
            path.name: path.read_bytes() for path in whole.iterdir()
        }
    assert kills > 6


@pytest.mark.parametrize("change", ["grows", "shrinks", "goes"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr("hmrnn.data.archives._BLOCK", 64)
    path = write(tmp_path / "a.txt", 300)

    def changing(*arguments: Any, **named: Any) -> Any:
        for number, block in enumerate(read_text(*arguments, **named)):
            if number == 1:
                path.unlink() if change == "goes" else path.write_text(tiny.text(900 if change == "grows" else 200))
            yield block

    read_text = segment_stream.read_text
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(segment_stream, "read_text", changing)
        with pytest.raises(InputError, match=r"changed while they were read|a\.txt cannot be read"):
            job([path], tmp_path / "out").run()
    assert not (tmp_path / "out" / ".work-0").exists()
    write(path, 300)
    assert job([path], tmp_path / "out").run() is None


@pytest.mark.parametrize("name", ["0.symbols", "0-0.jsonl"])
@pytest.mark.parametrize("gone", [True, False])
def test_a_work_folder_that_has_lost_bytes_is_noticed(tmp_path: Path, name: str, gone: bool) -> None:
    path = write(tmp_path / "a.txt", 300)
    stop = lambda done, total: os.kill(os.getpid(), signal.SIGTERM) if done > 50 else None  # noqa: E731
    assert job([path], tmp_path / "out").run(progress=stop) == "SIGTERM"
    lost = tmp_path / "out" / ".work-0" / name
    size = lost.stat().st_size
    lost.unlink() if gone else os.truncate(lost, size - 1)
    with pytest.raises(InputError, match=rf"{name} is damaged; remove .*\.work-0 and start the job again"):
        job([path], tmp_path / "out").run(resume=True)


def test_a_refused_job_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(tiny.text(50) + "☃")
    with pytest.raises(InputError, match="never showed"):
        job([path], tmp_path / "out", unknown="refuse").run()
    with pytest.raises(InputError, match="nothing to resume"):
        job([path], tmp_path / "out").run(resume=True)
    mended = job([path], tmp_path / "out")
    with pytest.warns(TextNote, match="1 of 51 symbols"):
        assert mended.run() is None
    assert "".join(record["text"] for record in lines(mended.targets[0])) == tiny.text(50) + " "


def test_a_job_that_was_killed_before_it_began_can_be_started_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 50)
    (tmp_path / "out" / ".work-0").mkdir(parents=True)
    (tmp_path / "out" / ".work-0" / "0.symbols").write_bytes(b"half")
    assert job([path], tmp_path / "out").run() is None


@pytest.mark.parametrize("name", ["plan.json", "state"])
@pytest.mark.parametrize("content", [b"", b"{}"])
def test_a_damaged_work_folder_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = write(tmp_path / "a.txt", 300)
    assert job([path], tmp_path / "out").run(progress=lambda *_: os.kill(os.getpid(), signal.SIGTERM)) == "SIGTERM"
    (tmp_path / "out" / ".work-0" / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name} is damaged; remove .*\.work-0 and start the job again"):
        job([path], tmp_path / "out").run(resume=True)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 300)
    first = job([path], tmp_path / "out")
    with pytest.raises(InputError, match="nothing to resume"):
        first.run(resume=True)
    assert first.run(progress=lambda done, total: os.kill(os.getpid(), signal.SIGTERM)) == "SIGTERM"
    with pytest.raises(InputError, match="already holds results; resume them, or choose another folder"):
        job([path], tmp_path / "out").run()
    with pytest.raises(InputError, match="not those"):
        job([path], tmp_path / "out", chunk=17).run(resume=True)
    path.write_text(tiny.text(301))
    with pytest.raises(InputError, match="not those"):
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


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The peak of a process that goes on to a file ten times as long is hardly higher."""
    code = """
import resource, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
import small_jobs as t
from hmrnn.data import archives
archives._BLOCK = 4096
for path in map(Path, sys.argv[2:]):
    assert t.job([path], path.with_suffix(""), streams=100, chunk=64, warmup=32).run() is None
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
    alone, shared = (tmp_path / out / "a.txt.jsonl" for out in ("found", "shared"))
    assert shared.read_bytes() == alone.read_bytes()


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
    stopped = conditioned(0, "c")
    assert stopped._about() != conditioned(1, "c")._about()
    timed = LanguageModel(9, dataclasses.replace(told, classes=(), time="elapsed"))
    with pytest.raises(InputError, match=r"^a model that is told the time \(model.time\) reads lines"):
        Job(timed, tiny.VOCABULARY, DataConfig(), [tmp_path / "a.txt"], tmp_path / "d")
