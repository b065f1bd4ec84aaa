"""report.html: what a finished run leaves behind, on one page that asks for nothing."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tiny
import tiny_strokes
from hmrnn.cli import report
from hmrnn.kinds.strokes.report import sections
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.kinds.text import report as text_report
from hmrnn.plots.charts import timescales
from refusals import refused


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The report of a run on a text that holds what HTML would take for itself."""
    work = tmp_path_factory.mktemp("report")
    (work / "story.txt").write_text(tiny.text(900).replace("de", "<b>&"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HMRNN_CACHE", str(work / "cache"))
        patch.chdir(work)
        patch.setattr(text_report, "MEASURED", 300)
        patch.setattr(text_report, "SAMPLES", ((0.5, 1),))
        config = tiny.config(epochs=1, length=10)
        assert tiny.hmrnn("train story.txt --data.valid-fraction 0.3", *tiny.flags(config), "--report") == 0
        yield (work / "runs" / "story" / "report.html").read_text()


def test_it_holds_everything(page: str) -> None:
    for part in ("validation, bits per character", "boundary rates", "updates saved",
                 "multiply-adds per character", "multiply-adds per symbol", "parameters",
                 "Training", "Figure 3", "Figure 4", "Timescales", "Segment ends against spaces", "tolerance 1",
                 "Sample, temperature 0.5", "Config", "&quot;hidden_size&quot;", "1 epoch done"):  # fmt: skip
        assert part in page, part


def test_it_opens_with_coloured_segments_and_explains_its_columns(page: str) -> None:
    opening, rest = page.split("<h2>Results</h2>")
    assert "without being shown a boundary" in opening
    assert opening.count('<span style="color: #000; background:') > 10
    assert "prec.: share of the segment ends that are gold ends" in rest


def test_figures_are_inside(page: str) -> None:
    sources = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(sources) == 4
    for source in sources:
        assert b"<svg" in base64.b64decode(source)


def test_it_asks_for_nothing_and_runs_nothing(page: str) -> None:
    assert not re.search(r"<(script|link|iframe|object|embed)\b|url\(|@import|\son\w+=", page)
    assert all(source.startswith("data:") for source in re.findall(r'(?:src|href)="([^"]*)"', page))
    assert "<b>" not in page


def test_light_and_dark(page: str) -> None:
    assert "color-scheme: light dark" in page


def test_a_run_without_metrics_has_no_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "load", lambda run: None)
    with refused():
        report.write(tmp_path, [], None)


def test_a_line_of_dots_is_said_to_show_nothing() -> None:
    dots = np.array([[0, 0, 1], [5, 5, 1], [5, 0, 1.0]])
    corpus = SimpleNamespace(train=[], valid=Strokes.of([dots, *tiny_strokes.strokes(2)]))
    parts = {one.title: one for one in sections(tiny_strokes.model(), corpus)}  # type: ignore[arg-type]
    assert parts["Figure 5"].figure is None
    assert "line 1 would be an empty picture" in parts["Figure 5"].text
    assert parts["Timescales"].figure is not None


def test_timescales() -> None:
    figure = timescales([np.array([1, 2, 2, 3, 9]), np.array([5, 12])])
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "level 1: 5 segments, median 2, mean 3.4 symbols",
        "level 2: 2 segments, median 8.5, mean 8.5 symbols",
    ]
    for axes in figure.axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(1)
