"""The command line where disks are full, folders out of reach, streams closed or no files, or names odd."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest

import tiny
from hmrnn.cli import main as cli


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def run(arguments: object) -> int:
        raise OSError(number, os.strerror(number), "there")

    monkeypatch.setattr(cli, "run", run)


def test_what_is_wrong_with_a_disk_is_no_defect(command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder out of reach, a full disk: a line and status 2. Other errors of the system are ours: a traceback."""
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert os.strerror(errno.ENOSPC) in command.refused("--version")
    failing(monkeypatch, errno.EACCES)
    assert "there" in command.refused("segment")
    failing(monkeypatch, errno.EBADF)
    with pytest.raises(OSError, match="Bad file"):
        tiny.hmrnn("segment")


def test_output_that_is_no_file(command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook: an error of the disk leaves it as it is."""
    failing(monkeypatch, errno.ENOSPC)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", before := io.StringIO())
        assert "there" in command.refused("segment")
        assert sys.stdout is before


def test_streams_that_are_closed_or_know_few_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tiny.Command
) -> None:
    tiny.saved_model(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        command.refused(f"segment -m {tmp_path}")
        patch.setattr(sys, "stdout", None)
        assert tiny.hmrnn(f"generate -m {tmp_path} --length 3") == 0
    written = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
        assert tiny.hmrnn(f"segment -m {tmp_path} 'abc abc abc'") == 0
        print("a\N{MIDDLE DOT}b", flush=True)
        assert written.getvalue().endswith(b"a\\xb7b\n")


def test_a_name_that_begins_as_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.saved_model(tmp_path / "model")
    (tmp_path / "~nobody.txt").write_text("abc abc")
    assert tiny.hmrnn("segment -m model --file ~nobody.txt") == 0
    assert tiny.hmrnn("segment -m model --stream ~nobody.txt --out found") == 0
    assert tiny.hmrnn("segment -m ~nobody abc") == 2


@pytest.mark.parametrize(("before", "after"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_torch_wait_without_work_unless_told(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if before is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", before)
    assert tiny.hmrnn("--version") == 0
    assert os.environ["OMP_WAIT_POLICY"] == after
