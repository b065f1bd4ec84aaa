"""Handwriting through the commands: evaluate, segment, generate, plot, demo; text and handwriting are kept apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

import hmrnn
import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.analysis.scores import pooled
from hmrnn.checkpoint import Checkpoint
from hmrnn.cli import demo
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.figures import COLOURS, figure5
from hmrnn.kinds.strokes.files import read_strokes, save_strokes
from hmrnn.kinds.strokes.gold import against_pen_ups, pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.kinds.text.network import LanguageModel


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of handwriting, one of text, and a file of strokes."""
    place = tmp_path_factory.mktemp("strokes")
    tiny_strokes.save(place / "hand", tiny_strokes.model())
    config = tiny.config()
    weights = dict(LanguageModel(len(tiny.VOCABULARY), config.model).state_dict())
    checkpoint.write(place / "text", Checkpoint(config, tiny.VOCABULARY, weights))
    save_strokes(tiny_strokes.strokes(4), place / "lines.npz")
    return place


@pytest.fixture
def run(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place to run commands in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    return place


def test_segment_reads_a_line_from_the_zero_state(place: Path) -> None:
    model, line = tiny_strokes.model(), tiny_strokes.strokes(1)[0]
    found = model.segment(line)
    assert found.text == "".join("^" if up else "o" for up in line[:, 2])
    assert (len(found), found.levels, found.norms.shape) == (len(line), 2, (len(line), 3))
    assert np.isnan(found.bits[0])  # type: ignore[index]
    nats = -np.log(2) * np.nansum(found.bits)  # type: ignore[arg-type]
    assert nats == pytest.approx(model.score(line).log_likelihood, rel=1e-5)


def test_a_network_without_detectors_finds_no_segments() -> None:
    with pytest.raises(InputError, match="without detectors"):
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
    words = " ".join(text.get_text() for text in figure.texts)
    assert f"{len(pen_ups(line))} strokes" in words
    assert "segments of z¹" in words
    assert words.count("F1") == 8
    assert words.count("by chance F1") == 4  # for each level, exactly and within one point
    exact = against_pen_ups(found, line)[1][0]
    hits = exact.found * exact.gold / (len(line) - 1)
    assert f"by chance F1 {2 * hits / (exact.found + exact.gold):.0%}" in words
    with pytest.raises(InputError, match="level must lie between 1 and 2; got 3"):
        figure5(line, found, levels=(3,))
    with pytest.raises(InputError, match="steps must be the"):
        figure5(line[:-1], found)


def test_evaluate(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_strokes.model()
    expected = model.score(tiny_strokes.strokes(4))
    assert tiny.hmrnn("evaluate", "-m", run / "hand", "--file", run / "lines.npz", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["log_likelihood"] == pytest.approx(expected.log_likelihood, rel=1e-6)
    assert (record["sequences"], record["points"]) == (4, expected.points)
    assert set(record) == {
        "strokes", "sequences", "points", "log_likelihood", "per_point", "rates", "updates", "saved", "multiply_adds",
    }  # fmt: skip
    assert tiny.hmrnn("evaluate", "-m", run / "hand", "--file", run / "lines.npz") == 0
    out = capsys.readouterr().out
    assert f"log-likelihood  {expected.log_likelihood:.1f} nats per line" in out
    assert "layer 3  updated at" in out
    assert record["multiply_adds"] == expected.multiply_adds
    assert out.splitlines()[-1] == f"multiply-adds per point  {expected.multiply_adds:,.0f}"


def test_evaluate_boundaries(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, lines = tiny_strokes.model(), tiny_strokes.strokes(4)
    assert tiny.hmrnn("evaluate", "-m", run / "hand", "--file", run / "lines.npz", "--boundaries", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["boundaries"]}
    assert list(rows) == ["level 1", "level 2", "every position", "fixed length", "random", "surprise rises",
                          "surprise rises most"]  # fmt: skip
    by_line = [against_pen_ups(model.segment(lines[k]), lines[k])[1][1] for k in range(4)]
    assert rows["level 1"]["tolerance"]["1"]["f1"] == pytest.approx(pooled(by_line).f1)
    assert tiny.hmrnn("evaluate", "-m", run / "hand", "--file", run / "lines.npz", "--boundaries") == 0
    out = capsys.readouterr().out
    assert out.count("where the pen was lifted") == out.count("\nlevel 2 ") == 2  # a table per tolerance


def test_segment(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.hmrnn("segment", "-m", run / "hand", "--file", run / "lines.npz", "--line", "line-2") == 0
    out = capsys.readouterr().out
    line = tiny_strokes.strokes(4)[2]
    assert f"{len(line)} points, {int(line[:, 2].sum())} strokes" in out
    assert out.count("precision") == 4
    assert tiny.hmrnn("segment", "-m", run / "hand", "--file", run / "lines.npz", "--line", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["levels"][0]["ends"] == tiny_strokes.model().segment(line).ends(1)


@pytest.mark.parametrize("name", ["a.svg", "a.png", "a.gif", "a.npz", "a.json", "a.csv"])
def test_generate(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--length", 20, "--samples", 2, "--seed", 1, "--bias", 0.5, "--out", name)
    assert tiny.hmrnn("generate", "-m", run / "hand", *flags) == 0
    out, err = capsys.readouterr()
    assert out == f"wrote {name}: 2 lines of 20 points\n"
    assert re.search(r"lifted after \d+% of the points.*untrained", err)  # and so it is
    if name.endswith((".npz", ".json", ".csv")):
        wrote, expected = read_strokes(name), tiny_strokes.model().sheet(2, 20, bias=0.5, seed=1)
        np.testing.assert_allclose(wrote[1][1:, :2], expected[1][:, :2], atol=1e-3)  # after the point they begin at
        np.testing.assert_array_equal(wrote[1][:, 2], [0, *expected[1][:-1, 2], 1])


def test_what_a_line_goes_on_from_is_not_overwritten(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('[{"name": "a", "strokes": [[[0, 0], [3, 4]], [[8, 4], [9, 9]]]}]')
    before = mine.read_bytes()
    assert tiny.hmrnn("generate", "-m", run / "hand", "--prime", mine, "--length", 5, "--out", mine) == 2
    assert "is the file of --prime, which would be lost; choose another --out" in capsys.readouterr().err
    assert mine.read_bytes() == before


def test_generate_primed_and_animated(run: Path) -> None:
    flags = ("--prime", run / "lines.npz", "--line", 2, "--seconds", 4, "--length", 20, "--seed", 1)
    assert tiny.hmrnn("generate", "-m", run / "hand", *flags) == 0
    text = Path("writing.svg").read_text()
    assert 'class="prime"' in text
    assert "@keyframes" in text
    assert tiny.hmrnn("generate", "-m", run / "hand", *flags[:4], *flags[6:], "--out", "on.npz") == 0
    prime = tiny_strokes.strokes(4)[1]
    (expected,) = tiny_strokes.model().sheet(1, 20, prime=prime, seed=1)
    wrote = read_strokes("on.npz")[0]
    assert wrote[0].tolist() == [0, 0, prime[-1, 2]]  # where the prime ends
    np.testing.assert_allclose(wrote[1:, :2], expected[:, :2], atol=1e-3)


def test_plot(run: Path) -> None:
    flags = ("--figure", 5, "--file", run / "lines.npz", "--levels", 1, 2, "--out", "5.png")
    assert tiny.hmrnn("plot", "-m", run / "hand", *flags) == 0
    assert Path("5.png").read_bytes().startswith(b"\x89PNG")
    assert tiny.hmrnn("plot", "-m", run / "hand", *flags[2:4], "--out", "all.png") == 0  # all levels are drawn
    assert Path("all.png").read_bytes() == Path("5.png").read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        "generate hand a prompt",
        "generate hand --top-k 3",
        "generate hand --plain",
        "generate hand --out a.jpg",
        "generate hand --out a.gif --seconds 601",
        "generate hand --seconds -1",
        "generate hand --seconds inf",
        "generate hand --out a.png --seconds 2",
        "generate hand --prime {lines} --line 9",
        "generate hand --prime {lines} --line no",
        "segment hand some text",
        "segment hand",
        "evaluate hand --file {lines} --symbols 5",
        "evaluate hand --file {lines} --plain",
        "evaluate hand --file {lines} --boundaries --gold x",
        "plot hand --file {lines} --figure 4",
        "segment hand --stream {lines} --out found",
        "generate hand --line 2",
        "generate hand --out a.npz --seconds 2",
        "generate hand --out a.NPZ",
        "segment hand --file {lines} --plain",
        "segment hand --file {lines} --width 9",
        "score hand --file {lines} --lines",
        "plot hand --file {lines} --plain",
        "generate hand --temperature 1e-320",
        "generate hand --bias 1e308",
        "evaluate hand --file {lines} --streams 7",
        "generate text abc --out a.svg",
        "generate text abc --prime {lines} --line 1",
        "segment text --file {lines}",
        "plot hand --file {lines} --figure 5 --levels 3",
        "plot text abc --figure 5",
        "generate text abc --bias 1",
        "generate text abc --prime {lines}",
        "evaluate text --file {lines}",
        "segment hand --file {text}",
    ],
)
def test_what_does_not_fit_is_said_in_one_line(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, model, *rest = command.format(lines=run / "lines.npz", text=__file__).split()
    assert tiny.hmrnn(name, "-m", run / model, *rest) == 2
    err = capsys.readouterr().err
    assert not rest or any(word.strip("-") in err for word in rest), err
    assert err.count("\n") == 1
    assert not [path for path in Path().iterdir() if path.name != "cache"]


def test_a_damaged_scale_is_said(tmp_path: Path) -> None:
    model = tiny_strokes.model()
    scale = hmrnn.kinds.strokes.strokes.Scale((0.0, 0.0), (1.0, -1.0))
    tiny_strokes.save(tmp_path / "bad", StrokeModel(model.network, scale, model.config))
    with pytest.raises(InputError, match="deviation"):
        hmrnn.load(tmp_path / "bad")


def test_a_file_of_strokes_is_trained_on_by_its_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_strokes(tiny_strokes.strokes(20), "mine.npz")
    small = ("--model.hidden-size", 4, "--model.output-size", 4, "--model.mixtures", 2, "--train.epochs", 1)
    assert tiny.hmrnn("train", "mine.npz", *small, "--train.batch-size", 6, "--train.device", "cpu") == 0
    assert "18 lines of" in capsys.readouterr().out
    assert tiny.hmrnn("evaluate", "-m", "runs/mine", "--split", "test") == 0
    assert "1 line, " in capsys.readouterr().out
    assert tiny.hmrnn("evaluate", "-m", "runs/mine", "--path", run / "lines.npz") == 2
    assert "another scale than the model" in capsys.readouterr().err


def test_a_line_of_one_point_is_left_out_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dot = np.array([[0.0, 0.0, 1.0]])
    save_strokes(Strokes.of([*tiny_strokes.strokes(3), dot], ["a", "b", "c", "dot"]), "some.json")
    assert tiny.hmrnn("evaluate", "-m", run / "hand", "--file", "some.json") == 0
    out, err = capsys.readouterr()
    assert "some.json: 3 lines, " in out
    assert "1 line of one point left out, with nothing to predict: dot\n" in err
    save_strokes(Strokes.of([*tiny_strokes.strokes(1), dot, dot], ["a", "dot", "too"]), "more.json")
    assert tiny.hmrnn("evaluate", "-m", run / "hand", "--file", "more.json") == 0
    assert "2 lines of one point left out, with nothing to predict: dot and others" in capsys.readouterr().err


@pytest.mark.slow
def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    assert tiny.hmrnn("demo", "--handwriting", "--quick", "--out", tmp_path / "demo") == 0
    out = capsys.readouterr().out
    assert "--quick only shows that every step runs" in out
    assert re.search(r"one Gaussian for all steps[^\n]*-\d+", out)
    assert {path.name for path in (tmp_path / "demo" / "figures").iterdir()} == {
        "curves.png", "figure5.png", "primed.png", "writing.png", "writing.svg",
    }  # fmt: skip
    monkeypatch.setattr(demo, "run_to_end", lambda *a, **k: pytest.fail("a finished demo must not train again"))
    monkeypatch.setattr(demo, "save_figure", lambda *a, **k: None)
    assert tiny.hmrnn("demo", "--handwriting", "--quick", "--out", tmp_path / "demo") == 0
    again = f"hmrnn demo --handwriting --out {tmp_path / 'demo'} --quick --fresh"
    assert f"holds a finished demo, which is shown now ({again} trains again)" in capsys.readouterr().out
