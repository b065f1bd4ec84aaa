"""A folder with files, good and bad, and a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from complaints import BEST, Complaint, tree

import tiny


@pytest.fixture(scope="module")
def template(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with texts, good and bad, and a run."""
    work = tmp_path_factory.mktemp("template")
    (work / "story.txt").write_text(tiny.text(900))
    (work / "other.txt").write_text(tiny.text(900).upper())
    (work / "empty.txt").write_text("")
    (work / "blank.txt").write_text(" \n\t\n" * 300)
    (work / "signs.txt").write_text("".join(map(chr, range(0x3400, 0x3400 + 17_000))) * 2)
    (work / "late.txt").write_bytes(b"abc de " * 200_000 + b"\xff")
    (work / "short.txt").write_text("abc")
    (work / "brief.txt").write_text("abc de " * 20)
    (work / "binary.txt").write_bytes(bytes(range(256)) * 9)
    (work / "latin1.txt").write_bytes("caf\xe9 ".encode("latin-1") * 50)
    (work / "series.csv").write_text("1,2\n")
    (work / "texts.tar.gz").write_bytes(b"\x1f\x8b")
    (work / "picture.png").write_bytes(b"\x89PNG\r\n")
    points = "".join(f'<Point x="{k}" y="{k % 7}"/>' for k in range(400))
    for form in ("a", "b", "c"):
        (work / "iam" / "lineStrokes").mkdir(parents=True, exist_ok=True)
        line = f"<WhiteboardCaptureSession><StrokeSet><Stroke>{points}</Stroke></StrokeSet></WhiteboardCaptureSession>"
        (work / "iam" / "lineStrokes" / f"{form}01-000u-01.xml").write_text(line)
    (work / "iam" / "a01-000u.txt").write_text("CSR:\n\na line\n")
    (work / "folder").mkdir()
    (work / "folder" / "thesis.tex").write_text("all of it")
    shutil.copytree(trained / "runs", work / "runs")
    assert (work / BEST).is_dir()
    shutil.copytree(work / "runs" / "story", work / "runs" / "fresh", ignore=shutil.ignore_patterns("*-0*"))
    return work


@pytest.fixture
def work(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it to work in."""
    shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    tiny.stdin(monkeypatch, "")
    return tmp_path / "work"


@pytest.fixture
def complaint(work: Path, command: tiny.Command) -> Complaint:
    def complain(line: str) -> str:
        before = tree(work)
        said = command.refused(line)
        assert command.out == ""
        assert tree(work) == before
        return said

    return complain
