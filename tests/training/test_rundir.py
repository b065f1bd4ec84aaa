"""A run directory: one run at a time, never replaced by accident, and only its own files are ever removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tiny
from hmrnn import checkpoint
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from refusals import refused


def everything(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")
    }


def test_nothing_is_created_before_it_is_opened(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path / "a" / "run")
    here.check(resume=False, overwrite=False)
    assert not (tmp_path / "a").exists()
    with here.open():
        assert not here.holds_run
        here.store(tiny.config(epochs=3))
    assert here.holds_run
    assert here.config() == tiny.config(epochs=3)
    assert sorted(everything(here.path)) == ["config.json", "lock"]


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path / "run", writer=False)
    with here.open(), here.metrics(0) as write:
        here.store(tiny.config())
        assert write({"event": "train"}) == 0
        here.save("last", 1, None)  # type: ignore[arg-type]
    assert not here.path.exists()


def test_a_run_is_not_replaced_by_accident(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path)
    with here.open():
        here.store(tiny.config())
    with refused():
        here.check(resume=False, overwrite=False)
    here.check(resume=True, overwrite=False)
    here.check(resume=False, overwrite=True)
    with refused():
        here.check(resume=True, overwrite=True)


def test_there_must_be_a_run_to_go_on_with(tmp_path: Path) -> None:
    with refused():
        RunDirectory(tmp_path).check(resume=True, overwrite=False)
    with RunDirectory(tmp_path).open():
        RunDirectory(tmp_path).store(tiny.config())
        with refused():
            RunDirectory(tmp_path).newest_state()
        assert RunDirectory(tmp_path).newest_progress() == {}


def test_one_run_at_a_time(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path), RunDirectory(tmp_path)
    model = tiny.trainer(tiny.config()).snapshot(training=False)
    with first.open():
        first.save("last", 1, model)
        with refused(), second.open(overwrite=True):
            pass
        assert len(checkpoint.checkpoints(tmp_path)) == 1
    with second.open(overwrite=True):
        assert checkpoint.checkpoints(tmp_path) == []


def test_best_models_of_updates_that_are_made_again_go_unless_there_are_no_others(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path)
    model = tiny.trainer(tiny.config()).snapshot(training=False)
    for step in (4, 7, 9):
        here.save("best", step, model)
    for goes_on_at, left in ((9, [4, 7, 9]), (7, [4, 7]), (5, [4]), (3, [4])):
        here.drop_best_after(goes_on_at)
        assert [checkpoint.step_of(path) for path in checkpoint.checkpoints(tmp_path)] == left


def test_overwriting_removes_what_belongs_to_a_run_and_nothing_else(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.config(epochs=1))
    (tmp_path / ".last-00000005.new").mkdir()
    kept = {"notes.txt": "mine", "best-of/model.txt": "mine", "last-1/model.txt": "mine"}
    for name, text in kept.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with RunDirectory(tmp_path).open(overwrite=True):
        left = {name: data for name, data in everything(tmp_path).items() if data is not None}
    assert set(left) == {*kept, "config.json", "lock"}
    RunDirectory(tmp_path).check(resume=False, overwrite=True)  # had it crashed here, it could be done again


def test_a_crash_at_the_very_start_leaves_a_directory_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = RunDirectory(tmp_path)
    with monkeypatch.context() as patch, here.open():
        patch.setattr("os.replace", lambda a, b: 1 / 0)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a process that is killed clears nothing up
        with pytest.raises(ZeroDivisionError):
            here.store(tiny.config())
    assert sorted(everything(tmp_path)) == [".config.json.new", "lock"]
    RunDirectory(tmp_path).check(resume=False, overwrite=False)


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    here = RunDirectory(tmp_path / "file" / "run")
    with refused(), here.open():
        pass


def test_metrics_beyond_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path)
    with here.metrics(0) as write:
        sizes = [write({"step": step}) for step in range(3)]
    assert sizes == [12, 24, 36]
    with here.metrics(sizes[1]) as write:
        assert write({"step": 7}) == sizes[2]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 7]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made")
    tiny.run(directory, tiny.config(epochs=3), crash=lambda event: event["step"] == 21)
    assert [path.name for path in RunDirectory(directory).states()] == ["last-00000010", "last-00000020"]
    return directory


@pytest.fixture
def stopped(made: Path, tmp_path: Path) -> Path:
    """A run with checkpoints after its first and its second epoch, of three."""
    shutil.copytree(made, tmp_path / "stopped")
    return tmp_path / "stopped"


@pytest.mark.parametrize("name", ["last-00000020", "last-99999999"])
def test_a_newer_state_that_is_empty_is_told_of(stopped: Path, name: str) -> None:
    """The run does not silently go on from an older one, and nothing is removed."""
    for path in (stopped / name).iterdir() if (stopped / name).exists() else ():
        path.unlink()
    (stopped / name).mkdir(exist_ok=True)
    before = everything(stopped)
    with refused():
        tiny.run(stopped, tiny.config(epochs=3), resume=True)
    assert everything(stopped) == before
    (stopped / name).rmdir()
    tiny.run(stopped, tiny.config(epochs=3), resume=True)


@pytest.mark.parametrize("cut", [1, 30, 10_000])
def test_metrics_that_were_cut_short_are_noticed(stopped: Path, cut: int) -> None:
    RunDirectory(stopped).drop_best_after(20)
    path, size = stopped / "metrics.jsonl", RunDirectory(stopped).newest_progress()["metrics_bytes"]
    path.write_bytes(path.read_bytes()[: max(0, size - cut)])
    before = everything(stopped)
    with refused():
        tiny.run(stopped, tiny.config(epochs=3), resume=True)
    assert everything(stopped) == before
    path.unlink()
    tiny.run(stopped, tiny.config(epochs=3), resume=True)
    assert read_metrics(path)[0]["step"] > 20


def test_metrics_of_the_right_size_that_are_no_lines_are_noticed(stopped: Path) -> None:
    path, size = stopped / "metrics.jsonl", RunDirectory(stopped).newest_progress()["metrics_bytes"]
    whole = path.read_bytes()
    path.write_bytes(whole[: size // 2] + bytes(size - size // 2) + b"later")
    with refused():
        tiny.run(stopped, tiny.config(epochs=3), resume=True)
    path.write_bytes(whole[:size] + b"half a li")
    tiny.run(stopped, tiny.config(epochs=3), resume=True)
    assert path.read_bytes().startswith(whole[:size])
    assert read_metrics(path)[-1]["step"] == 30


def test_metrics_that_were_removed_are_not_counted(stopped: Path) -> None:
    """A checkpoint that is written before the first new line says so, and can be resumed from."""
    (stopped / "metrics.jsonl").unlink()
    config = tiny.config(epochs=3, checkpoint_every=0.0, log_every=1000)
    tiny.run(stopped, config, resume=True, crash=lambda event: event["step"] == 22)
    assert RunDirectory(stopped).newest_progress()["metrics_bytes"] == 0
    tiny.run(stopped, config, resume=True)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), lambda path: path.touch()])
def test_files_that_are_no_files_or_beyond_reason_are_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The largest has no bytes on the disk; nothing of it is read."""
    for name, read in (("config.json", RunDirectory(tmp_path).config), ("metrics.jsonl", None)):
        make(tmp_path / name)
        if (tmp_path / name).is_file():
            os.truncate(tmp_path / name, 1 << 40)
        with refused():
            read() if read else read_metrics(tmp_path / name)


def test_a_config_that_is_lost_can_be_copied_from_a_checkpoint(stopped: Path) -> None:
    path, whole = stopped / "config.json", (stopped / "config.json").read_bytes()
    path.write_bytes(b"")
    with refused():
        RunDirectory(stopped).check(resume=True, overwrite=False)
    path.unlink()
    with refused():
        RunDirectory(stopped).check(resume=True, overwrite=False)
    shutil.copy(stopped / "last-00000020" / "config.json", path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("left", [[], ["model.safetensors"]])
def test_what_a_kill_left_of_an_old_checkpoint_is_removed(stopped: Path, left: list[str]) -> None:
    """A process may be killed while it removes one; the manifest is gone by then."""
    for name in ("last-00000003", "best-00000003", ".last-00000004.old", ".best-00000005.new"):
        (stopped / name).mkdir()
        for file in left:
            (stopped / name / file).write_bytes(b"")
    tiny.run(stopped, tiny.config(epochs=3), resume=True)
    kept = sorted(path.name for path in stopped.iterdir() if checkpoint.NAME.fullmatch(path.name))
    assert [name for name in kept if "last" in name] == ["last-00000020", "last-00000030"]
    assert len(kept) == 3


def test_a_checkpoint_loses_its_manifest_first(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        checkpoint.remove(stopped / "last-00000010")
    assert checkpoint.checkpoints(stopped)[-1].name == "last-00000020"
    assert stopped / "last-00000010" not in checkpoint.checkpoints(stopped)
    assert (stopped / "last-00000010" / "model.safetensors").exists()


def test_a_lock_that_is_no_file_is_named(tmp_path: Path) -> None:
    with RunDirectory(tmp_path).open():
        RunDirectory(tmp_path).store(tiny.config())
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    with refused(), RunDirectory(tmp_path).open():
        pass


def test_a_damaged_state_names_the_one_before(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.config())
    (tmp_path / "last-00000020" / "training.safetensors").write_bytes(b"")
    with refused():
        RunDirectory(tmp_path).newest_state()
    (tmp_path / "config.json").write_text("{")
    with refused():
        RunDirectory(tmp_path).config()
