"""Jobs that several processes share, and that one process has for itself."""

from __future__ import annotations

import fcntl
import os
import signal
import time
import types
from pathlib import Path

import pytest
from small_jobs import job, lines, write

from hmrnn.errors import InputError
from hmrnn.inference import jobs as segment_stream


def test_a_kill_while_work_folders_are_removed_leaves_none_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.txt", 400)
    shares = [job([path], tmp_path / "shared", share=(rank, 2)) for rank in range(2)]
    assert shares[1].run() is None
    removed = []

    def die(folder: Path) -> None:
        removed.append(folder.name)
        (folder / "done").unlink()
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as dying:
        dying.setattr("shutil.rmtree", die)
        with pytest.raises(RuntimeError):
            shares[0].run()
    assert removed == [".work-1"]
    for rank in (1, 0):
        assert job([path], tmp_path / "shared", share=(rank, 2)).run(resume=True) is None
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["a.txt.jsonl"]


def test_shards_are_what_one_process_does(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.txt", 100 + k, k) for k in range(5)]
    whole = job(files, tmp_path / "whole", streams=1)
    assert whole.run() is None
    for rank in range(2):
        assert job(files, tmp_path / "shards", streams=1, share=(rank, 2)).run() is None
    for target in whole.targets:
        assert target.read_bytes() == (tmp_path / "shards" / target.name).read_bytes()


def test_one_file_is_shared_by_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads some of its parts, the first joins what all have written; stopped while it waits, it goes on."""
    path = write(tmp_path / "a.txt", 400)
    whole = job([path], tmp_path / "whole", streams=5)
    assert whole.run() is None
    shares = [job([path], tmp_path / "shared", streams=5, share=(rank, 3)) for rank in range(3)]
    first, second, third = shares
    assert [share.joins for share in shares] == [True, False, False]
    read: list[int] = []
    assert third.run(progress=lambda done, total: read.append(total)) is None
    assert set(read) == {80}
    with monkeypatch.context() as waiting:
        stop = types.SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: os.kill(os.getpid(), signal.SIGTERM))
        waiting.setattr(segment_stream, "time", stop)
        assert first.run() == "SIGTERM"
    assert not first.targets[0].exists()
    assert second.run() is None
    assert job([path], tmp_path / "shared", streams=5, share=(2, 3)).run(resume=True) is None
    with pytest.raises(InputError, match="not those"):
        job([path], tmp_path / "shared", streams=5, share=(0, 4)).run(resume=True)
    assert job([path], tmp_path / "shared", streams=5, share=(0, 3)).run(resume=True) is None
    assert first.targets[0].read_bytes() == whole.targets[0].read_bytes()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["a.txt.jsonl"]
    for rank in range(3):
        assert job([path], tmp_path / "shared", streams=5, share=(rank, 3)).run(resume=True) is None


def test_a_shared_job_goes_on_where_one_process_had_not_begun(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", 400)
    assert job([path], tmp_path / "shared", share=(1, 2)).run() is None
    assert not (tmp_path / "shared" / ".work-0").exists()
    assert job([path], tmp_path / "shared", share=(0, 2)).run(resume=True) is None
    assert "".join(line["text"] for line in lines(tmp_path / "shared" / "a.txt.jsonl")) == path.read_text()


def test_a_job_belongs_to_one_process(tmp_path: Path) -> None:
    """Another one, with --resume or without, is refused and touches nothing."""
    path, work = write(tmp_path / "a.txt", 300), tmp_path / "out" / ".work-0"
    before = []

    def another(done: int, total: int) -> None:
        before.append({file.name: file.stat().st_size for file in work.iterdir()})
        with pytest.raises(InputError, match=r"another process is writing to .*out; wait for it, or choose another"):
            job([path], tmp_path / "out").run(resume=True)
        assert {file.name: file.stat().st_size for file in work.iterdir()} == before[-1]

    assert job([path], tmp_path / "out").run(progress=another) is None
    assert before
    (tmp_path / "new" / ".work-0").mkdir(parents=True)
    with open(tmp_path / "new" / ".work-0" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process"):  # which is still at its very beginning
            job([path], tmp_path / "new").run()
    assert (tmp_path / "new" / ".work-0").is_dir()
    assert job([path], tmp_path / "new").run() is None
