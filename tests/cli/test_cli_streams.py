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


def test_what_is_wrong_with_a_disk_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder out of reach, a full disk: a line and status 2. Other errors of the system are ours: a traceback."""
    with monkeypatch.context() as patch:
        patch.setattr(cli, "run", lambda arguments: raised(errno.EACCES))
        assert tiny.hmrnn("segment") == 2
        assert capsys.readouterr().err == "hmrnn: cannot read or write there: Permission denied\n"
        patch.setattr(cli, "run", lambda arguments: raised(errno.EBADF))
        with pytest.raises(OSError, match="Bad file"):
            tiny.hmrnn("segment")
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert tiny.hmrnn("--version") == 2
    assert capsys.readouterr().err == "hmrnn: cannot read or write: No space left on device\n"


def raised(number: int) -> int:
    raise OSError(number, os.strerror(number), "there")


def test_streams_that_are_closed_or_know_few_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.saved_model(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        assert tiny.hmrnn("segment", "-m", tmp_path) == 2
    assert "the text is empty" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert tiny.hmrnn("generate", "-m", tmp_path, "--length", 3) == 0
    written = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
        assert tiny.hmrnn("segment", "-m", tmp_path, "abc abc abc") == 0
        print("a\N{MIDDLE DOT}b", flush=True)
        assert written.getvalue().endswith(b"a\\xb7b\n")


def test_output_that_is_no_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a notebook: an error of the disk leaves it as it is."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        patch.setattr(cli, "run", lambda arguments: raised(errno.ENOSPC))
        before = sys.stdout
        assert tiny.hmrnn("segment") == 2
        assert sys.stdout is before
    assert capsys.readouterr().err == "hmrnn: cannot read or write there: No space left on device\n"


def test_a_name_that_begins_as_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.saved_model(tmp_path / "model")
    (tmp_path / "~nobody.txt").write_text("abc abc")
    assert tiny.hmrnn("segment", "-m", "model", "--file", "~nobody.txt") == 0
    assert tiny.hmrnn("segment", "-m", "model", "--stream", "~nobody.txt", "--out", "found") == 0
    assert tiny.hmrnn("segment", "-m", "~nobody", "abc") == 2


@pytest.mark.parametrize(("before", "after"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_torch_wait_without_work_unless_told(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if before is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", before)
    assert tiny.hmrnn("--version") == 0
    assert os.environ["OMP_WAIT_POLICY"] == after
