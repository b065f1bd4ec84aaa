"""Figures: what is drawn, where, and in which colour; and files that are whole or not there."""

import logging
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.plots.charts import curves
from hmrnn.plots.style import save_figure
from hmrnn.plots.text import figure3, figure4, fit
from refusals import refused

TEXT = ("the $cat$ sat on the mat, and the dog lay by the door_\n" * 10)[:270]


def made(text: str | list[str] = TEXT, layers: int = 3) -> Segmentation:
    T, rng = len(text), np.random.default_rng(0)
    z = rng.random((T, layers - 1)) < 0.3
    norms = np.repeat(rng.random((T // 5 + 1, layers)) * 4 + 1, 5, axis=0)[:T]
    return Segmentation(tuple(text), z, rng.random(z.shape), np.zeros((T, layers)), norms)


def texts(figure: Figure) -> dict[int, Text]:
    """The symbols that are drawn, by their position in the text."""
    named = {text.get_gid(): text for text in figure.axes[0].texts}
    return {int(name[len("symbol-") :]): text for name, text in named.items() if name}


def meshes(figure: Figure, name: str) -> list[QuadMesh]:
    """The lines of cells of "z1", "h1", …, one for each row of text."""
    found = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    return [c for c in found if c.get_gid().startswith(f"{name}-")]


def colours(mesh: QuadMesh) -> np.ndarray:
    mesh.update_scalarmappable()
    return np.asarray(mesh.get_facecolor())


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if not text.get_gid()]


@pytest.mark.parametrize("draw", [figure3, figure4])
def test_blocks_are_white_at_boundaries_and_black_elsewhere(draw) -> None:  # type: ignore[no-untyped-def]
    result = made()
    figure = draw(result)
    for l, name in enumerate(("z1", "z2")):
        rows = meshes(figure, name)
        assert len(rows) == 3
        drawn = np.concatenate([colours(mesh) for mesh in rows])
        assert drawn.shape == (270, 4)
        expected = np.repeat(result.boundaries[:, l : l + 1].astype(float), 3, axis=1)
        np.testing.assert_array_equal(drawn[:, :3], expected)
    assert labels(figure)[:3] == ["1", "91", "181"]
    assert labels(figure).count("z¹") == labels(figure).count("z²") == 3
    assert "□ boundary     ■ no boundary" in labels(figure)


@pytest.mark.parametrize(("length", "rows"), [(1, [1]), (90, [90]), (91, [90, 1]), (190, [90, 90, 10])])
def test_each_block_lies_under_its_symbol(length: int, rows: list[int]) -> None:
    result = made(TEXT[:length])
    figure = figure4(result)
    symbols = texts(figure)
    assert {t: text.get_text() for t, text in symbols.items()} == {
        t: c.replace("\n", "⏎") for t, c in enumerate(TEXT[:length]) if c != " "
    }
    for name in ("z1", "z2", "h1", "h2", "h3"):
        assert [mesh.get_array().size for mesh in meshes(figure, name)] == rows
    for t, text in symbols.items():
        x, y = text.get_position()
        row, column = divmod(t, 90)
        assert x == column + 0.5
        lines = [meshes(figure, name)[row].get_coordinates() for name in ("z1", "z2", "h1", "h2", "h3")]
        for line in lines:
            assert line[0, column, 0] == column
            assert line[0, column + 1, 0] == column + 1
        edges = [y, *(edge for line in lines for edge in (line[0, 0, 1], line[1, 0, 1]))]
        assert edges == sorted(edges)  # the text, then z¹, z², h¹, h², h³, none on top of another
        assert row == 0 or y > meshes(figure, "h3")[row - 1].get_coordinates()[1, 0, 1]


def test_heat_map_shows_the_norms_on_each_layers_own_scale() -> None:
    result = made()
    figure = figure4(result)
    for l, name in enumerate(("h1", "h2", "h3")):
        rows = meshes(figure, name)
        norms = result.norms[:, l]
        np.testing.assert_array_equal(np.concatenate([mesh.get_array().ravel() for mesh in rows]), norms)
        assert {mesh.get_clim() for mesh in rows} == {(norms.min(), norms.max())}
        assert {mesh.get_cmap().name for mesh in rows} == {"viridis"}
        drawn = np.concatenate([colours(mesh) for mesh in rows])
        same = norms[1:] == norms[:-1]
        np.testing.assert_array_equal((drawn[1:] == drawn[:-1]).all(axis=1)[same], True)
        assert f"{norms.min():.2f}" in labels(figure)
        assert f"{norms.max():.2f}" in labels(figure)
    assert len(figure.axes) == 1 + 3  # a colour bar for each layer
    assert meshes(figure3(result), "h1") == []


@pytest.mark.parametrize(("layers", "length"), [(1, 20), (3, 270), (7, 95)])
@pytest.mark.parametrize("draw", [figure3, figure4])
def test_nothing_overlaps_or_leaves_the_page(draw, layers: int, length: int) -> None:  # type: ignore[no-untyped-def]
    figure = draw(made(TEXT[:length], layers))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    page = figure.bbox
    boxes = {text: text.get_window_extent(renderer) for text in figure.axes[0].texts}
    bars = [axes.get_window_extent(renderer) for axes in figure.axes[1:]]
    for box in [*boxes.values(), *bars]:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        assert box.x1 > box.x0
    pixels = figure.axes[0].transData.transform([[0, 0], [1, 0]])
    cell = pixels[1, 0] - pixels[0, 0]
    for text in texts(figure).values():
        middle = figure.axes[0].transData.transform(text.get_position())[0]
        assert abs(boxes[text].x0 - middle) <= 0.5 * cell + 1
        assert abs(boxes[text].x1 - middle) <= 0.5 * cell + 1
    others = [box for text, box in boxes.items() if not text.get_gid()] + bars
    for i, box in enumerate(others):
        for other in others[:i]:
            assert box.x1 <= other.x0 + 1 or other.x1 <= box.x0 + 1 or box.y1 <= other.y0 + 3 or other.y1 <= box.y0 + 3


def test_columns_can_be_chosen() -> None:
    figure = figure3(made(TEXT[:50]), columns=20)
    assert [mesh.get_array().size for mesh in meshes(figure, "z1")] == [20, 20, 10]


def test_special_symbols_neither_crash_nor_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    symbols = [*"$x_1$\t\n\r\0\x1b\u200b\u00a0 \\%&<>語言한ñ😀🦜ن\u0301⏎|\ud800", "\\xe2", "<unk>", "\u0085"]
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        figure = figure4(made(symbols))
        for suffix in ("png", "svg", "pdf"):
            save_figure(figure, tmp_path / f"odd.{suffix}")
    assert caplog.records == []
    drawn = texts(figure)
    assert drawn[0].get_text() == drawn[4].get_text() == "$"
    assert not drawn[0].get_parse_math()
    assert drawn[symbols.index("\n")].get_text() == "⏎"
    assert drawn[symbols.index("\t")].get_text() == "⇥"
    assert drawn[symbols.index("\\xe2")].get_text() == "e2"


def test_symbols_shrink_to_their_cell() -> None:
    assert fit("a").size == fit("m").size == 8.5
    assert fit("a").family == "DejaVu Sans Mono"
    assert fit("<unk>").size == pytest.approx(fit("<").size * 0.2, rel=0.1)
    assert fit("\U0010ffff").text == "�"
    assert fit("😀").family == "DejaVu Sans"


def test_a_layer_that_never_changes_still_has_a_scale() -> None:
    result = made()
    result.norms[:, 2] = 0
    result.norms[:, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FigureCanvasAgg(figure4(result)).draw()


def test_files(tmp_path: Path) -> None:
    figure = figure3(made(TEXT[:95]))
    assert save_figure(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert save_figure(figure, str(tmp_path / "a.PDF")).read_bytes().startswith(b"%PDF")
    svg = save_figure(figure, tmp_path / "a.svg").read_text(encoding="utf-8")
    assert re.findall(r"<text[^>]*>([^<]*)</text>", svg).count("z¹") == 2
    assert len(re.findall(r"<text[^>]*>\$</text>", svg)) == TEXT[:95].count("$") > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.PDF", "a.png", "a.svg"]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_figure_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    first, second = (save_figure(figure4(made("abc\n")), tmp_path / f"{k}.{suffix}").read_bytes() for k in range(2))
    assert first == second


def records(levels: int = 2) -> list[dict]:
    found: list[dict] = [{"event": "start"}]
    for step in range(10, 110, 10):
        rates = [0.1 + 0.4 * l - step / 1000 for l in range(levels)]
        found.append({"event": "train", "step": step, "epoch": step / 50, "bits": 4 - step / 50, "rates": rates})
        if step % 50 == 0:
            found.append({"event": "valid", "step": step, "epoch": step / 50, "bits": 3 - step / 80, "rates": rates})
    return found


def test_curves_hold_the_records() -> None:
    metrics = records()
    figure = curves(metrics)
    top, bottom = figure.axes
    lines = {str(line.get_label()): line for line in top.lines}
    train = [r for r in metrics if r["event"] == "train"]
    valid = [r for r in metrics if r["event"] == "valid"]
    np.testing.assert_allclose(lines["training"].get_xydata(), [(r["step"], r["bits"]) for r in train])
    np.testing.assert_allclose(lines["validation (best 1.750)"].get_xydata(), [(r["step"], r["bits"]) for r in valid])
    rates = {str(line.get_label()): line for line in bottom.lines}
    for l, name in enumerate(("z¹", "z²")):
        np.testing.assert_allclose(rates[name].get_xydata(), [(r["step"], r["rates"][l]) for r in train])
    assert len(bottom.lines) == 4  # and the rates on validation
    assert bottom.get_ylim()[0] == 0


def test_curves_of_what_there_is() -> None:
    metrics = records()
    only_train = curves([r for r in metrics if r["event"] == "train"])
    assert [line.get_label() for line in only_train.axes[0].lines] == ["training"]
    only_valid = curves([r for r in metrics if r["event"] == "valid"])
    assert len(only_valid.axes) == 2
    no_levels = curves(records(levels=0))
    assert len(no_levels.axes) == 1
    nan = {"event": "valid", "step": 5, "epoch": 0.1, "bits": float("nan"), "rates": [0.1, 0.1]}
    diverged = curves([nan, *metrics, {**nan, "event": "train", "bits": None}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (only_train, only_valid, no_levels, diverged, curves(metrics[:2])):
            FigureCanvasAgg(figure).draw()
    with refused():
        curves([{"event": "start"}])
