"""What is handed out: wheel and source archive build, hold what they should, and run where nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from recorded import ROOT, Record

import hmrnn

BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1])); print(b.build_sdist(sys.argv[1]))"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wheel, source = done.stdout.split()[-2:]
    return out / wheel, out / source


def test_contents(record: Record, built: tuple[Path, Path]) -> None:
    """The wheel holds the package with the files of its page and nothing else; the source archive builds it again."""
    wheel, source = built
    names = set(zipfile.ZipFile(wheel).namelist())
    package = Path(hmrnn.__file__).parent
    expected = {
        f"hmrnn/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(f"hmrnn-{hmrnn.__version__}.dist-info/")} == expected
    assert {"hmrnn/web/static/index.html", "hmrnn/py.typed"} <= expected
    with tarfile.open(source) as tar:
        members = {name.partition("/")[2] for name in tar.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "SECURITY.md", "src/hmrnn/__init__.py"} <= members
    assert not [name for name in members if name.startswith((".ci", "runs/", ".venv", "carry"))]
    record["files in the wheel"], record["wheel, bytes"] = len(names), wheel.stat().st_size
    record["files in the source archive"], record["source archive, bytes"] = len(members), source.stat().st_size


def test_empty_environment(record: Record, built: tuple[Path, Path], tmp_path: Path) -> None:
    """The wheel in an environment of its own: the demo runs with the network cut off, and the source is out of sight.

    What the package depends on comes from the environment that runs the test, so that nothing is downloaded.
    """

    def run(*command: object, **how: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=tmp_path, **how)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    (site,) = place.glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, built[0])
    others = {path for path in map(Path, sys.path) if path.name == "site-packages"}
    assert not [path for path in others if (path / "hmrnn" / "__init__.py").exists()]
    (site / "others.pth").write_text("".join(f"{path}\n" for path in others))
    plain = {"PATH": os.environ["PATH"], "HMRNN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    offline = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*offline, "true"], capture_output=True).returncode != 0:
        offline = []
    python = place / "bin" / "python"
    where = run(python, "-c", "import hmrnn; print(hmrnn.__file__)", env=plain).stdout
    assert str(site) in where
    done = run(*offline, python, "-m", "hmrnn", "demo", "--quick", "--out", "demo", env=plain)
    assert "bits per character" in done.stdout
    segments = run(*offline, python, "-m", "hmrnn", "segment", "-m", "demo", "the cat", "--json", env=plain)
    assert json.loads(segments.stdout)["text"] == "the cat"
    record["network"] = "cut off by a namespace" if offline else "not cut off: no namespaces here"
    record["wheel"] = built[0].name
