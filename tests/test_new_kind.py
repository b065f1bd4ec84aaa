"""Kinds of data come and go: one of another package is a file found by an entry point, one of ours is a folder."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from hmrnn import kind as kinds
from hmrnn.sequences import SequenceKind, SymbolSpec
from hmrnn.training.metrics import read_metrics
from refusals import refused
from web.pages import explored

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both examples, installed."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    examples = [str(EXAMPLES / name) for name in ("events", "notes")]
    subprocess.run([*command, "--disable-pip-version-check", "--target", str(folder), *examples], check=True)
    return folder


def event_log() -> str:
    """Users who come back after long waits, and do the same things in a session."""
    draw, rows = random.Random(4), ["time,user,event"]
    for user in range(40):
        time = 0.0
        for _ in range(5):
            time += draw.uniform(2000, 9000)
            for event in ("open", *draw.choices(["search", "look", "buy"], k=3), "close"):
                rows.append(f"{time:.1f},{user},{event}")
                time += draw.uniform(1, 20)
    return "\n".join(rows) + "\n"


def tunes() -> str:
    draw = random.Random(5)
    motives = ["c4 d4 e4:2", "g4 e4 c4", "f4:0.5 e4:0.5 d4"]
    return "".join(" ".join(draw.choices(motives, k=8)) + "\n" for _ in range(40))


@pytest.fixture
def known(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both are found, and an empty folder is the working directory."""
    monkeypatch.syspath_prepend(installed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    kinds._known.cache_clear()
    yield
    kinds._known.cache_clear()


@pytest.mark.long
@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("kind", "content", "other"),
    [
        ("events", event_log, event_log().replace("look", "watch")),
        ("notes", tunes, tunes().replace("f4", "f5")),
    ],
)
def test_a_kind_in_one_file_does_all_that_ours_do(kind, content, other, installed: Path, command: tiny.Command) -> None:
    Path("data.csv").write_text(content())
    command.refused(f"train {kind}")
    assert kind in command("train --help")
    small = "--model.hidden-size 12 --model.output-size 12 --train.batch-size 8"
    command(f"train {kind} data.csv --out run --train.epochs 1 {small}")
    command(f"train {kind} data.csv --out run --train.epochs 2 {small} --resume")
    assert [line["epoch"] for line in read_metrics(Path("run/metrics.jsonl")) if line["event"] == "valid"] == [1, 2]
    assert "data:image/svg+xml" in Path("run/report.html").read_text()

    command(f"train {kind} data.csv --from run --out further --train.epochs 1 --no-report")
    assert (
        command.json("evaluate -m further --json")["sequences"] == command.json("evaluate -m run --json")["sequences"]
    )
    Path("other.csv").write_text(other)
    command.refused(f"train {kind} other.csv --from run --out other --train.epochs 1 --no-report")

    result = command.json("evaluate -m run --json")
    assert math.isfinite(result["bits"])
    assert result["steps"] > 10
    found = command.json("segment -m run --json")
    assert found["symbols"]
    assert len(found["levels"]) == 2
    assert command.json("segment -m run --file data.csv --line 2 --json")["symbols"] != found["symbols"]
    assert math.isfinite(command.json("score -m run --json")["bits"])
    assert len(command("generate -m run --length 7 --seed 1").split()) == 7
    command("plot -m run --out figure.svg")
    assert "<svg" in Path("figure.svg").read_text()

    path = os.pathsep.join([str(installed), str(ROOT / "src")])
    body = json.dumps({"data": content()}).encode()
    with explored([Path("run")], tiny.environment(Path("cache")) | {"PYTHONPATH": path}) as (_, address):
        request = urllib.request.Request(f"{address}/api/{kind}/read", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            shown, end = (json.loads(line) for line in answer)
    assert shown["segmentation"]["symbols"]
    assert end["sequences"] == 40


TEXT_ALONE = """
import hmrnn, hmrnn.kind, tiny
from pathlib import Path
assert [one.name for one in hmrnn.kind.every()] == ["text"]
with tiny.story(Path.cwd()):
    flags = tiny.flags(tiny.config(epochs=1, batch_size=16, length=10))
    assert tiny.hmrnn("train story.txt --out run", *flags) == tiny.hmrnn("segment -m run 'abc de fgh' --json") == 0
"""


@pytest.mark.parametrize("rows", ["1,u\n2,u,b\n", "1\n", "soon,u,a\n"])
def test_a_log_with_a_broken_row_is_refused(rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "events")
    from hmrnn_events import EVENTS

    log = tmp_path / "log.csv"
    log.write_text("time,user,event\n" + rows)
    with refused(str(log)):
        EVENTS.load(EVENTS.presets["events"].changed({"data.path": (str(log),)}))


@pytest.mark.long
def test_text_does_without_the_other_kinds(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("labels", "strokes"):
        shutil.rmtree(tmp_path / "src" / "hmrnn" / "kinds" / name)
    paths = os.pathsep.join([str(tmp_path / "src"), str(ROOT / "tests")])
    env = {**tiny.environment(tmp_path), "PYTHONPATH": paths}
    own = [f"tests/kinds/text/test_{name}.py" for name in ("language_model", "sample", "text")]
    for words, place in (
        (["-c", TEXT_ALONE], tmp_path),
        (["-m", "pytest", "-q", "-p", "no:cacheprovider", *own], ROOT),
    ):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, cwd=place)
        assert done.returncode == 0, done.stderr + done.stdout


def test_another_package_cannot_replace_a_kind_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(SequenceKind):
        name, formats = "text", ("other",)

    class Point:
        load = Other

    ours = kinds.find("text")
    with monkeypatch.context() as patch:
        patch.setattr(kinds, "entry_points", lambda group: [Point])
        kinds._known.cache_clear()
        found = kinds.find("text")
    kinds._known.cache_clear()
    assert type(found) is type(ours)


@pytest.mark.parametrize("unknown", ["c", ""])
def test_a_symbol_that_the_model_does_not_know_is_refused(unknown: str) -> None:
    spec = SymbolSpec(("a", "b"))
    assert spec.encode(["b", "a"]).tolist() == [1, 0]
    with refused():
        spec.encode(["a", unknown])
