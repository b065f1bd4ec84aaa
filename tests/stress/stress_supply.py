"""What is handed out: wheel and source archive build, hold what they should, and run where nothing else is."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from recorded import ROOT, Record

import hmrnn
from hmrnn.ops.native import library

BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1])); print(b.build_sdist(sys.argv[1]))"


def run(*command: object, **how: Any) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **how)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def build(source: Path, out: Path) -> tuple[Path, Path]:
    wheel, archive = run(sys.executable, "-c", BUILD, out, cwd=source).split()[-2:]
    return out / wheel, out / archive


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_contents(record: Record, built: tuple[Path, Path], tmp_path: Path) -> None:
    """The wheel holds the package with the files of its page and nothing else; the source archive builds it again."""
    wheel, source = built
    names = set(zipfile.ZipFile(wheel).namelist())
    package = Path(hmrnn.__file__).parent
    expected = {
        f"hmrnn/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".cpp", ".h", ".so", ".lock")
    }
    expected |= {f"hmrnn/ops/native/_hmrnn_{level}.so" for level in library.builder().LEVELS}
    assert {name for name in names if not name.startswith(f"hmrnn-{hmrnn.__version__}.dist-info/")} == expected
    assert {"hmrnn/web/static/index.html", "hmrnn/py.typed"} <= expected
    with tarfile.open(source) as tar:
        members = {name.partition("/")[2] for name in tar.getnames()}
        tar.extractall(tmp_path, filter="data")
    assert {"pyproject.toml", "README.md", "LICENSE", "SECURITY.md", "src/hmrnn/__init__.py"} <= members
    tops = {"src", "tests", "benchmarks", "docs", "examples"}
    assert {name.split("/")[0] for name in members if "/" in name} == tops
    (unpacked,) = tmp_path.iterdir()
    again, _ = build(unpacked, tmp_path)
    assert again.read_bytes() == wheel.read_bytes()
    record["files in the wheel"], record["wheel, bytes"] = len(names), wheel.stat().st_size
    record["files in the source archive"], record["source archive, bytes"] = len(members), source.stat().st_size
    record["wheel built from the source archive"] = "byte for byte the same"


def link_declared(site: Path) -> list[str]:
    """Put what the hmrnn in ``site`` says it needs, and what that needs, beside it; the names of all that is there."""
    (installed,) = importlib.metadata.distributions(path=[str(site)])
    waiting, found = [installed], {}
    while waiting:
        distribution = waiting.pop()
        found[distribution.name] = distribution
        for line in distribution.requires or []:
            needed = Requirement(line)
            if needed.name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                waiting.append(importlib.metadata.distribution(needed.name))
    for distribution in found.values():
        tops = {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
        for top in sorted(tops):
            if not (site / top).exists():
                (site / top).symlink_to(str(distribution.locate_file(top)))
    return sorted(found, key=str.lower)


@pytest.mark.parametrize("what", ["wheel", "source archive"])
def test_empty_environment(record: Record, built: tuple[Path, Path], tmp_path: Path, what: str) -> None:
    """In an environment that holds only what hmrnn says it needs, and with the network cut off, the demo runs.

    What it needs comes from the environment that runs the test, so that nothing is downloaded.
    """
    archive = {"wheel": built[0], "source archive": built[1]}[what]
    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    (site,) = place.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "--target", site, archive)
    record["distributions in the environment"] = link_declared(site)
    plain = {"PATH": os.environ["PATH"], "HMRNN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    where: dict[str, Any] = {"env": plain, "cwd": tmp_path}
    offline = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*offline, "true"], capture_output=True).returncode != 0:
        offline = []
    python = place / "bin" / "python"
    assert str(site) in run(python, "-c", "import hmrnn; print(hmrnn.__file__)", **where)
    shown = run(*offline, python, "-m", "hmrnn", "demo", "--out", "demo", **where)
    assert "bits per character" in shown
    segments = run(*offline, python, "-m", "hmrnn", "segment", "-m", "demo", "the cat", "--json", **where)
    assert json.loads(segments)["text"] == "the cat"
    record["network"] = "cut off by a namespace" if offline else "not cut off: no namespaces here"
    record["archive"], record["command"] = archive.name, "hmrnn demo"
