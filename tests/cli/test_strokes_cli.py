"""Handwriting through the commands: evaluate, segment, generate, plot, demo; text and handwriting are kept apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

import hmrnn
import tiny
import tiny_strokes
from hmrnn.analysis.scores import pooled
from hmrnn.kinds.strokes.figures import COLOURS, figure5
from hmrnn.kinds.strokes.files import read_strokes, save_strokes
from hmrnn.kinds.strokes.gold import against_pen_ups, pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.presets import PRESETS
from hmrnn.kinds.strokes.strokes import Strokes
from refusals import refused


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of handwriting, one of text, and a file of strokes."""
    place = tmp_path_factory.mktemp("strokes")
    tiny_strokes.save(place / "hand", tiny_strokes.model())
    tiny.saved_model(place / "text")
    save_strokes(tiny_strokes.strokes(4), place / "lines.npz")
    return place


@pytest.fixture
def run(place: Path, command: tiny.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tiny.Command:
    """Runs a command where hand, text and lines.npz are."""
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    return command


def test_segment_reads_a_line_from_the_zero_state() -> None:
    model, line = tiny_strokes.model(), tiny_strokes.strokes(1)[0]
    found = model.segment(line)
    assert found.text == "".join("^" if up else "o" for up in line[:, 2])
    assert (len(found), found.levels, found.norms.shape) == (len(line), 2, (len(line), 3))
    assert np.isnan(found.bits[0])  # type: ignore[index]
    nats = -np.log(2) * np.nansum(found.bits)  # type: ignore[arg-type]
    assert nats == pytest.approx(model.score(line).log_likelihood, rel=1e-5)


def test_a_network_without_detectors_finds_no_segments() -> None:
    with refused():
        tiny_strokes.model(rnn="lstm").segment(tiny_strokes.strokes(1)[0])


def test_figure5_colours_strokes_and_segments() -> None:
    line = tiny_strokes.strokes(1)[0]
    found = tiny_strokes.model().segment(line)
    figure = figure5(line, found, levels=(1, 2))
    drawn = [axes.collections[0] for axes in figure.axes]
    assert len(drawn) == 3
    inked = int((line[:-1, 2] == 0).sum()) + int(line[-2, 2] == 1)  # a stroke of one point at the end is a dot
    strokes, first, _ = drawn
    assert all(sum(len(part) - 1 for part in collection.get_segments()) == inked for collection in drawn)
    assert len({tuple(colour) for colour in strokes.get_colors()}) == len(pen_ups(line))
    ends = found.ends(1)
    number = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    expected = [COLOURS[k % 7] for t, k in enumerate(number) if t > 0 and line[t - 1, 2] == 0]
    coloured = zip(first.get_segments(), first.get_colors(), strict=True)
    got = [to_hex(colour).upper() for part, colour in coloured for _ in part[1:]]
    assert got[: len(expected)] == expected
    exact = against_pen_ups([found], [line])[0].scores[0]
    chance = 2 * exact.found * exact.gold / (len(line) - 1) / (exact.found + exact.gold)
    assert f"{chance:.0%}" in " ".join(text.get_text() for text in figure.texts)
    _, letters, _ = figure5(line, found, letters=np.arange(len(line)) // 4).axes
    assert len({tuple(colour) for colour in letters.collections[0].get_colors()}) == -(-len(line) // 4)
    with refused():
        figure5(line, found, levels=(3,))
    with refused():
        figure5(line[:-1], found)


def test_evaluate(run: tiny.Command) -> None:
    expected = tiny_strokes.model().score(tiny_strokes.strokes(4))
    record = run.json("evaluate -m hand --file lines.npz --json")
    assert record["log_likelihood"] == pytest.approx(expected.log_likelihood, rel=1e-6)
    assert (record["sequences"], record["points"]) == (4, expected.points)
    assert record["multiply_adds"] == expected.multiply_adds
    assert set(record) == {
        "strokes", "sequences", "points", "log_likelihood", "per_point", "rates", "updates", "saved", "multiply_adds",
    }  # fmt: skip
    out = run("evaluate -m hand --file lines.npz")
    assert f"{expected.log_likelihood:.1f} nats per line" in out
    assert out.split()[-1] == f"{expected.multiply_adds:,.0f}"


def test_evaluate_boundaries(run: tiny.Command) -> None:
    model, lines = tiny_strokes.model(), tiny_strokes.strokes(4)
    found = run.json("evaluate -m hand --file lines.npz --boundaries --json")["boundaries"]
    rows = {row["name"]: row for row in found}
    assert list(rows) == ["level 1", "level 2", "every position", "fixed length", "random", "surprise rises",
                          "surprise rises most"]  # fmt: skip
    by_line = [against_pen_ups([model.segment(lines[k])], [lines[k]])[0].scores[1] for k in range(4)]
    assert rows["level 1"]["tolerance"]["1"]["f1"] == pytest.approx(pooled(by_line).f1)
    assert run("evaluate -m hand --file lines.npz --boundaries").count("\nlevel 2 ") == 2  # a table per tolerance


def test_segment(run: tiny.Command) -> None:
    line = tiny_strokes.strokes(4)[2]
    out = run("segment -m hand --file lines.npz --line line-2")
    assert f"{len(line)} points, {int(line[:, 2].sum())} strokes" in out
    assert out.count("segments, ") == 2
    found = run.json("segment -m hand --file lines.npz --line 3 --json")
    assert found["levels"][0]["ends"] == tiny_strokes.model().segment(line).ends(1)


@pytest.mark.parametrize("ending", ["svg", "png", "gif", "npz", "json", "csv"])
def test_generate(ending: str, run: tiny.Command) -> None:
    shown = run(f"generate -m hand --length 20 --samples 2 --seed 1 --bias 0.5 --out a.{ending}")
    assert shown == f"wrote a.{ending}: 2 lines of 20 points\n"
    assert "untrained" in run.err  # and so it is
    if ending in ("npz", "json", "csv"):
        wrote, expected = read_strokes(f"a.{ending}"), tiny_strokes.model().sheet(2, 20, bias=0.5, seed=1)
        np.testing.assert_allclose(wrote[1][1:, :2], expected[1][:, :2], atol=1e-3)  # after the point they begin at
        np.testing.assert_array_equal(wrote[1][:, 2], [0, *expected[1][:-1, 2], 1])


def test_what_a_line_goes_on_from_is_not_overwritten(run: tiny.Command) -> None:
    drawn = '[{"name": "a", "strokes": [[[0, 0], [3, 4]], [[8, 4], [9, 9]]]}]'
    Path("mine.json").write_text(drawn)
    assert "--out" in run.refused("generate -m hand --prime mine.json --length 5 --out mine.json")
    assert Path("mine.json").read_text() == drawn


def test_generate_primed_and_animated(run: tiny.Command) -> None:
    line = "generate -m hand --prime lines.npz --line 2 --length 20 --seed 1"
    run(f"{line} --seconds 4")
    text = Path("writing.svg").read_text()
    assert 'class="prime"' in text
    assert "@keyframes" in text
    run(f"{line} --out on.npz")
    prime = tiny_strokes.strokes(4)[1]
    (expected,) = tiny_strokes.model().sheet(1, 20, prime=prime, seed=1)
    wrote = read_strokes("on.npz")[0]
    assert wrote[0].tolist() == [0, 0, prime[-1, 2]]  # where the prime ends
    np.testing.assert_allclose(wrote[1:, :2], expected[:, :2], atol=1e-3)


def test_plot(run: tiny.Command) -> None:
    run("plot -m hand --figure 5 --file lines.npz --levels 1 2 --out 5.png")
    assert Path("5.png").read_bytes().startswith(b"\x89PNG")
    run("plot -m hand --file lines.npz --out all.png")  # all levels are drawn
    assert Path("all.png").read_bytes() == Path("5.png").read_bytes()


@pytest.mark.parametrize(
    "line",
    [
        "generate hand a prompt",
        "generate hand --top-k 3",
        "generate hand --plain",
        "generate hand --out a.jpg",
        "generate hand --out a.gif --seconds 601",
        "generate hand --seconds -1",
        "generate hand --seconds inf",
        "generate hand --out a.png --seconds 2",
        "generate hand --prime lines.npz --line 9",
        "generate hand --prime lines.npz --line no",
        "segment hand some text",
        "segment hand",
        "evaluate hand --file lines.npz --symbols 5",
        "evaluate hand --file lines.npz --plain",
        "evaluate hand --file lines.npz --boundaries --gold x",
        "plot hand --file lines.npz --figure 4",
        "segment hand --stream lines.npz --out found",
        "generate hand --line 2",
        "generate hand --out a.npz --seconds 2",
        "generate hand --out a.NPZ",
        "segment hand --file lines.npz --plain",
        "segment hand --file lines.npz --width 9",
        "score hand --file lines.npz --lines",
        "plot hand --file lines.npz --plain",
        "generate hand --temperature 1e-320",
        "generate hand --bias 1e308",
        "evaluate hand --file lines.npz --streams 7",
        "generate text abc --out a.svg",
        "generate text abc --prime lines.npz --line 1",
        "segment text --file lines.npz",
        "plot hand --file lines.npz --figure 5 --levels 3",
        "plot text abc --figure 5",
        "generate text abc --bias 1",
        "generate text abc --prime lines.npz",
        "evaluate text --file lines.npz",
        "segment hand --file story.txt",
    ],
)
def test_what_does_not_fit_is_said_in_one_line(line: str, run: tiny.Command) -> None:
    Path("story.txt").write_text("abc")
    before = sorted(Path().iterdir())
    name, model, *rest = line.split()
    said = run.refused(f"{name} -m {model}", *rest)
    assert not rest or any(word.strip("-") in said for word in rest), said
    assert sorted(path for path in Path().iterdir() if path.name != "cache") == before


def test_a_damaged_scale_is_said(tmp_path: Path) -> None:
    model = tiny_strokes.model()
    scale = hmrnn.kinds.strokes.strokes.Scale((0.0, 0.0), (1.0, -1.0))
    tiny_strokes.save(tmp_path / "bad", StrokeModel(model.network, scale, model.config))
    with refused():
        hmrnn.load(tmp_path / "bad")


def test_a_file_of_strokes_is_trained_on_by_its_name(run: tiny.Command) -> None:
    save_strokes(tiny_strokes.strokes(20), "mine.npz")
    small = "--model.hidden-size 4 --model.output-size 4 --model.mixtures 2 --train.epochs 1"
    assert "18 lines of" in run(f"train mine.npz {small} --train.batch-size 6 --train.device cpu --no-report")
    assert "1 line, " in run("evaluate -m runs/mine --split test")
    assert "scale" in run.refused("evaluate -m runs/mine --path lines.npz")


def test_a_line_of_one_point_is_left_out_by_name(run: tiny.Command) -> None:
    dot = np.array([[0.0, 0.0, 1.0]])
    save_strokes(Strokes.of([*tiny_strokes.strokes(3), dot], ["a", "b", "c", "dot"]), "some.json")
    assert "some.json: 3 lines, " in run("evaluate -m hand --file some.json")
    assert run.err.endswith(": dot\n")
    save_strokes(Strokes.of([*tiny_strokes.strokes(1), dot, dot], ["a", "dot", "too"]), "more.json")
    run("evaluate -m hand --file more.json")
    assert ": dot and others" in run.err


@pytest.mark.slow
def test_demo(monkeypatch: pytest.MonkeyPatch, run: tiny.Command) -> None:
    small = {"model.hidden_size": (16,), "model.output_size": 16, "data.lines": 20, "train.epochs": 1}
    monkeypatch.setitem(PRESETS, "handwritten", PRESETS["handwritten"].changed(small))
    out = run("demo --handwriting --out demo")
    assert "level 1" in out
    assert Path("demo", "report.html").is_file()
    monkeypatch.setattr(
        "hmrnn.cli.train.run_to_end", lambda *a, **k: pytest.fail("a finished demo must not train again")
    )
    assert "hmrnn demo --handwriting --out demo --fresh" in run("demo --handwriting --out demo")
