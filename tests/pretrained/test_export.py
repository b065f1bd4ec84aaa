"""A run becomes a model to hand on, and one that lies in the folder of bundled models is found by its name."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from pathlib import Path

import pytest
import torch

import hmrnn
import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.kinds.text.settings import TextData
from hmrnn.pretrained import bundled
from hmrnn.pretrained.export import export
from refusals import refused

TEXT = "abc de fgh a hhg cab de de a"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose slope 16 bits cannot hold exactly."""
    directory = tmp_path_factory.mktemp("run")
    tiny.run(directory, tiny.config(layer_norm=True, slope=(0.3, 5.0)))
    return directory


@pytest.fixture
def folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of bundled models, with the run as english-small; the working directory is another one."""
    export(run, tmp_path / "bundled" / "english-small", half=True)
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "bundled")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "bundled"


def test_half_precision(run: Path, tmp_path: Path) -> None:
    out = export(run, tmp_path / "new" / "half", half=True)
    assert {path.name for path in out.iterdir()} == {
        "model.safetensors", "config.json", "input.json", "manifest.json", "README.md",
    }  # fmt: skip
    whole, small = (checkpoint.read(checkpoint.find(path)) for path in (run, out))
    assert whole.weights.keys() == small.weights.keys()
    for name, weight in whole.weights.items():
        if weight.dim() == 0:
            assert torch.equal(small.weights[name], weight), name
        else:
            assert small.weights[name].dtype == torch.float16
            assert torch.equal(small.weights[name], weight.half()), name
    slope = whole.weights["rnn.a"]
    assert slope.half() != slope, "the test is to show that it is not rounded"
    assert (small.config.model, small.config.train) == (whole.config.model, whole.config.train)
    assert small.reads == whole.reads
    sizes = [(checkpoint.find(path) / "model.safetensors").stat().st_size for path in (run, out)]
    assert sizes[1] < 0.75 * sizes[0]  # the header with the names of the tensors stays

    model = hmrnn.load(out)
    assert {weight.dtype for weight in model.network.state_dict().values()} == {torch.float32}
    assert model.score(TEXT).bits == pytest.approx(hmrnn.load(run).score(TEXT).bits, abs=0.02)
    assert model.segment(TEXT).text == TEXT


def test_a_card_is_carried_along(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = (bundled.FOLDER / "english-small" / "README.md").read_bytes()
    assert tiny.hmrnn("export", "-m", "english-small", "--out", tmp_path / "mine", "--half") == 0
    assert capsys.readouterr().out.endswith(" bytes; its card is that of english-small\n")
    assert (tmp_path / "mine" / "README.md").read_bytes() == card  # its weights have 16 bits already
    mine = export(run, tmp_path / "large") / "README.md"
    mine.write_text("# Large\n\nWhat its maker says.\n")
    assert (export(tmp_path / "large", tmp_path / "copy") / "README.md").read_text() == mine.read_text()
    rounded = (export(tmp_path / "large", tmp_path / "small", half=True) / "README.md").read_text()
    assert rounded == mine.read_text() + "\nIn this copy the weights are rounded to 16 bits.\n"


def test_a_card_has_what_the_run_says_of_this_model_only(run: Path, tmp_path: Path) -> None:
    model = hmrnn.load(run)
    card = (model.save_pretrained(tmp_path / "mine", license="mit", facts={"F1": 0.5}) / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: hmrnn\nlicense: mit\n")
    for row in (
        r"validation \| \d\.\d+ bits per .* epochs",
        r"hardware \| .* CPU, .* minutes",
        r"F1 \| 0\.5",
        ".* \\| mit",
    ):
        assert re.search(rf"^\| {row}.* \|$", card, re.MULTILINE), row
    model.network.softmax.bias.data.add_(1)
    other = (model.save(tmp_path / "other") / "README.md").read_text()
    assert "| validation |" not in other
    assert "| hardware |" not in other
    assert hmrnn.TextModel.from_pretrained(tmp_path / "mine").score(TEXT) == hmrnn.load(run).score(TEXT)
    with refused():
        hmrnn.StrokeModel.from_pretrained(tmp_path / "mine")


def test_where_the_data_were_stays_private(tmp_path: Path) -> None:
    saved = tiny.trainer(tiny.config()).snapshot(training=True)
    data = TextData("lines", ("/home/someone/novel.txt", "more.txt"), condition="/home/someone/rows.csv:x")
    config = dataclasses.replace(saved.config, data=data)
    checkpoint.write(tmp_path / "best-00000001", saved._replace(config=config))
    out = export(tmp_path, tmp_path / "out")
    assert checkpoint.read(out).config.data == TextData("lines", ("novel.txt", "more.txt"), condition="rows.csv:x")
    assert not [path for path in out.iterdir() if b"someone" in path.read_bytes()]
    assert "`novel.txt`, `more.txt`" in (out / "README.md").read_text()


@pytest.mark.parametrize("value", [1e6, math.nan])
def test_what_16_bits_cannot_hold_is_refused(tmp_path: Path, value: float) -> None:
    saved = tiny.trainer(tiny.config()).snapshot(training=False)
    weights = {name: weight.clone() for name, weight in saved.weights.items()}
    weights["softmax.bias"][2] = value
    checkpoint.write(tmp_path / "run", Checkpoint(saved.config, saved.reads, weights))
    with refused("softmax.bias"):
        export(tmp_path / "run", tmp_path / "out", half=True)
    assert not (tmp_path / "out").exists()


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "half"
    assert tiny.hmrnn("export", "-m", run, "--out", out, "--half") == 0
    size = sum(path.stat().st_size for path in out.iterdir())
    assert capsys.readouterr().out == f"wrote {out}: {size:,} bytes; its card, {out}/README.md, is yours to complete\n"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert tiny.hmrnn("export", "-m", run, "--out", out) == 2
    assert str(out) in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "file").write_text("")
    assert tiny.hmrnn("export", "-m", run, "--out", tmp_path / "file" / "below") == 2
    assert f"{tmp_path}/file/below" in capsys.readouterr().err
    assert tiny.hmrnn("export", "-m", run) == 2
    assert "--out" in capsys.readouterr().err


def test_a_bundled_model_is_loaded_by_its_name(folder: Path, run: Path) -> None:
    assert bundled.names() == ["english-small"]
    by_name, by_path = hmrnn.load("english-small"), hmrnn.load(folder / "english-small")
    assert by_name.score(TEXT) == by_path.score(TEXT)
    (folder / "unfinished").mkdir()
    assert bundled.names() == ["english-small"]


def test_a_model_describes_itself_in_a_line(folder: Path, tmp_path: Path) -> None:
    model = hmrnn.load("english-small")
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    network = f"hm-lstm with layers of 6, 5, 4, {parameters:,} parameters, on cpu"
    assert repr(model) == f"<TextModel english-small: {network}; text, 9 characters>"
    hand = tiny_strokes.model()
    assert repr(hand).startswith("<StrokeModel in memory: hm-lstm with layers of 6, 5, 4, ")
    loaded = repr(hmrnn.load(tiny_strokes.save(tmp_path / "hand", hand)))
    assert loaded == repr(hand).replace("in memory", str(tmp_path / "hand"))


def test_a_name_means_the_bundled_model_and_a_path_the_directory(folder: Path) -> None:
    with refused():
        hmrnn.load(Path("english-small"))
    saved = tiny.trainer(tiny.config(seed=5)).snapshot(training=False)
    checkpoint.write(Path("english-small"), saved)
    mine = hmrnn.load("./english-small").score(TEXT)
    assert hmrnn.load(Path("english-small")).score(TEXT) == mine
    assert hmrnn.load("english-small").score(TEXT) == hmrnn.load(folder / "english-small").score(TEXT) != mine


def test_an_unknown_name_is_refused_with_those_there_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export("english-small", folder / "english-tiny")
    with refused() as info:
        hmrnn.load("german-19")
    assert "english-tiny" in str(info.value)
    monkeypatch.setattr(bundled, "FOLDER", folder / "english-tiny")
    with refused():
        hmrnn.load("english-small")


def test_commands_use_it_where_no_model_is_named(folder: Path, command: tiny.Command) -> None:
    model = hmrnn.load("english-small")
    assert command.json("segment 'abc de' --json") == model.segment("abc de").to_dict()
    assert (
        command("generate 'abc ' --length 30 --seed 3")
        == "abc " + model.generate("abc ", 30, temperature=0.8, seed=3) + "\n"
    )
    command("plot 'abc de' --figure 3 --out figure.svg")
    assert Path("figure.svg").read_bytes().startswith(b"<?xml")
    assert "metrics.jsonl" in command.refused("plot --figure curves")
    assert "--file" in command.refused("evaluate")
    Path("text.txt").write_text(TEXT)
    for line in ("score --file text.txt --json", "evaluate --file text.txt --streams 1 --json"):
        assert command.json(line)["bits"] == pytest.approx(model.score(TEXT).bits, rel=1e-4)


def test_the_page_uses_it_where_no_model_is_named(folder: Path) -> None:
    shelf = pytest.importorskip("hmrnn.web.shelf")
    (entry,) = shelf.open_shelf([bundled.DEFAULT])
    assert entry.name == "english-small"
    assert entry.model.score(TEXT) == hmrnn.load("english-small").score(TEXT)


def test_without_the_library_onnx_is_refused(
    command: tiny.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "hmrnn[onnx]" in command.refused("export -m english-small --onnx", tmp_path / "file.onnx")
    assert not (tmp_path / "file.onnx").exists()
