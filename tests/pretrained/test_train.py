"""A run as a value: printed, saved, loaded, changed, and trained from Python and by the command line alike."""

from __future__ import annotations

import importlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import hmrnn
import tiny
from hmrnn import kind
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.training.rundir import RunDirectory
from hmrnn.utils import files
from refusals import refused

PRESETS = kind.presets()


@pytest.fixture(autouse=True)
def story(tmp_path: Path) -> Iterator[Path]:
    with tiny.story(tmp_path) as folder:
        yield folder


def of_story(**more: Any) -> Config:
    return tiny.config(device="cpu", **more).changed({"data.path": ("story.txt",)})


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("file", ["run.toml", "run.json", "run/config.json"])
def test_a_run_survives_a_file(name: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("run").mkdir()
    assert Config.load(PRESETS[name].save(file)) == PRESETS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_printed_is_the_run(name: str) -> None:
    Path("printed.toml").write_text(str(PRESETS[name]))
    assert Config.load("printed.toml") == PRESETS[name]


def test_names_of_files_are_kept() -> None:
    run = of_story().changed({"data.path": ('a "b"\\\n\x7f.txt', "ü😀.txt"), "train.start_from": None})
    assert Config.load(run.save("run.toml")) == run


@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ('[data]\nformat = "text"\n[train]\nepochs = "two"', "train.epochs", "two"),
        ('[data]\nformat = "text"\n[train]\nepochs = -1', "train.epochs", -1),
        ('[data]\nformat = "text"\n[train]\nepoch = 1', "train.epoch", None),
        ('[data]\nformat = "text"\n[trains]\nepochs = 1', "trains", None),
        ('[data]\nformat = "prose"', "data.format", "prose"),
        ('[data]\nformat = "text"\n[model]\nhidden_size = [3, "x"]', "model.hidden_size", [3, "x"]),
        ('[data]\nformat = "text"\n[train]\nbatch_size = 8\naccumulate = 3', "train.batch_size", None),
        ("epochs = 1", None, None),
        ("[data", None, None),
        ("\xff", None, None),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, setting: str | None, value: Any) -> None:
    Path("wrong.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"wrong\.toml") as refused:
        Config.load("wrong.toml")
    assert setting is None or refused.value.setting == setting
    assert refused.value.value == value


def test_python_and_the_command_line_do_the_same() -> None:
    run = of_story()
    run.save("run.toml")
    lines: list[dict[str, Any]] = []
    model = hmrnn.train("run.toml", out="python", progress=lines.append)
    assert tiny.hmrnn("train", "run.toml", "--out", "command", "--no-report") == 0
    assert tiny.contents(Path("python")) == tiny.contents(Path("command"))
    assert [line["event"] for line in lines].count("valid") == 2
    assert model.source == "python"
    assert model.segment("abc de").text == hmrnn.load("command").segment("abc de").text
    assert hmrnn.train(run).source is None
    assert not Path("runs").exists()


def test_callbacks_are_told_of_a_run_from_its_start_to_its_end() -> None:
    told: list[Any] = []

    class Whole:
        def on_start(self, trainer: Any) -> None:
            told.append(trainer.config)

        def on_validation(self, line: dict[str, Any]) -> None:
            told.append(line["bits"])

        def on_end(self, line: dict[str, Any]) -> None:
            told.append(line["reason"])

    class Stop:
        def on_validation(self, line: dict[str, Any]) -> None:
            raise ZeroDivisionError

    lines: list[dict[str, Any]] = []
    hmrnn.train(of_story(), callbacks=[object(), Whole()], progress=lines.append)
    assert told == [told[0], *(line["bits"] for line in lines if line["event"] == "valid"), "2 epochs done"]
    assert told[0].train == of_story().train
    with pytest.raises(ZeroDivisionError):
        hmrnn.train(of_story(), callbacks=[Stop()])


def test_flags_change_the_run_of_a_file() -> None:
    of_story().save("run.toml")
    assert tiny.hmrnn("train", "run.toml", "--train.epochs", 1, "--data.path", "story.txt", "--no-report") == 0
    assert RunDirectory(Path("runs/run")).config() == of_story(epochs=1)
    assert hmrnn.train(Config.load("runs/run").changed({"train.epochs": 2}), out="runs/run", resume=True)
    assert tiny.hmrnn("train", "runs/run", "--resume", "--train.epochs", 3, "--no-report") == 0
    with pytest.raises(InputError):
        hmrnn.train(of_story(), out="runs/run")


def test_a_change_of_a_setting_that_there_is_not_is_refused() -> None:
    for name in ("train.epoch", "epochs", "trains.epochs", "model.flush.size"):
        with pytest.raises(InputError) as refused:
            of_story().changed({name: 2})
        assert refused.value.setting == name


def test_changes_follow_the_network() -> None:
    run = PRESETS["text"].changed({"model.num_layers": 2})
    run.check()
    assert run.detectors.rates == PRESETS["text"].detectors.rates[:1]


def test_a_kind_of_another_package_is_a_run_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tiny.ROOT / "examples" / "notes")
    monkeypatch.setitem(kind._known(), "notes", importlib.import_module("hmrnn_notes").NOTES)
    Path("tunes").write_text("c4 d4 e4:2 r:0.5\n" * 20)
    small = {"model.hidden_size": (4,), "train.epochs": 1, "train.device": "cpu", "data.path": ("tunes",)}
    run = Config.load("notes").changed(small)
    model = hmrnn.train(run.save("run.toml"), out="runs/tunes")
    assert model.config == run == Config.load("runs/tunes")
    assert tiny.hmrnn("train", "run.toml", "--out", "again", "--no-report") == 0
    assert tiny.contents(Path("again")) == tiny.contents(Path("runs/tunes"))


def test_texts_are_trained_on_as_their_file_is(story: Path) -> None:
    lines = (story / "story.txt").read_text().split()
    (story / "story.txt").write_text("".join(f"{line}\n" for line in lines))
    wanted = hmrnn.train(of_story(), out="runs/file")
    given = {"list": lines, "generator": iter(lines), "rows": [{"text": line, "n": 1} for line in lines]}
    for name, data in given.items():
        model = hmrnn.train(tiny.config(device="cpu"), data=data, out=f"runs/{name}")
        assert Path(f"runs/{name}.txt").read_text().splitlines() == lines
        assert all(map(torch.equal, model.network.parameters(), wanted.network.parameters()))
    with refused():
        hmrnn.train(tiny.config(device="cpu"), data=lines, out="runs/list")
    Path("runs/new.txt").write_text("mine")
    with refused():
        hmrnn.train(tiny.config(device="cpu"), data=lines, out="runs/new")
    hmrnn.train("runs/list", out="runs/list", resume=True)
    kept = hmrnn.train(tiny.config(device="cpu"), data=lines)
    assert kept.source is None
    assert not Path(kept.config.data.path[0]).exists()


@pytest.mark.parametrize("data", [[1], [{"words": "a"}], [None], ["a", float("nan")]])
def test_what_is_no_text_is_refused_and_leaves_no_file(data: list[Any]) -> None:
    with refused("data"):
        hmrnn.train(tiny.config(device="cpu"), data=data, out="runs/new")
    assert not [*Path("runs").iterdir()]


def test_a_generator_need_not_fit_in_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    path = files.spool((f"{number} " * 10_000 for number in range(400)), tmp_path / "large.txt")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 14_000_000 > 20 * peak
