"""Flags of ``hmrnn train``: what a preset makes of them, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a text."""
    with tiny.story(tmp_path_factory.mktemp("work")) as work:
        yield work


@pytest.mark.parametrize(
    "line",
    [
        "story.txt --model.rnn lstm --detectors.estimator sample",
        "story.txt --model.rnn gru --detectors.hidden 4",
        "story.txt --model.num-layers 1 --detectors.slope 0.1 5",
        "story.txt --model.rnn hrnn --detectors.rates 0.5 0.1",
        "story.txt --model.rnn gru --regularise.zoneout 0.1",
        "strokes --data.split official",
        "ptb --data.min-points 50",
        "enwik8 --data.bytes",
        "handwritten --regularise.dropout-embedding 0.1",
        "series --regularise.dropout-embedding 0.1",
        "handwritten --data.remove-spaces",
        "demo --data.path story.txt",
    ],
)
def test_a_flag_that_the_network_or_the_data_have_no_use_for(line: str, work: Path, command: tiny.Command) -> None:
    command(f"train {line} --out runs/none", status=2)
    said = command.err.splitlines()[-1]  # after a note, where the novel of the demo is not installed
    assert line.split(" --")[-1].split()[0] in said
    assert not (work / "runs" / "none").exists()


def test_the_page_shows_the_demo_beside_the_bundled_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[str, ...]] = []
    monkeypatch.setattr("hmrnn.web.server.serve", lambda models, **options: served.append(models) or 0)
    monkeypatch.chdir(tmp_path)
    assert tiny.hmrnn("explore") == 0
    (tmp_path / "runs" / "demo" / "best-00000001").mkdir(parents=True)
    assert tiny.hmrnn("explore") == 0
    assert tiny.hmrnn("explore -m english-small") == 0
    bundled = ("english-small", "handwriting-small", "novel-small", "reading-small", "writing-small")
    assert served == [bundled, (*bundled, str(Path("runs", "demo"))), ("english-small",)]
