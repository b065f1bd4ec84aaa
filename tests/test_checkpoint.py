"""Checkpoints stand alone, are whole or not there, and say what is wrong with them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

import hmrnn
import tiny
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.config.json import to_json
from hmrnn.errors import InputError
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.training.rundir import RunDirectory
from refusals import refused


def model(mark: float = 0.0, step: int | None = None) -> Checkpoint:
    """A checkpoint that can be told by ``mark``; one that training can go on from, if it has a ``step``."""
    config = tiny.config()
    weights = dict(LanguageModel(len(tiny.VOCABULARY), config.model).state_dict())
    weights["softmax.bias"] = torch.full_like(weights["softmax.bias"], mark)
    if step is None:
        return Checkpoint(config, tiny.VOCABULARY, weights)
    return Checkpoint(config, tiny.VOCABULARY, weights, {"step": step}, {"window.0": torch.full((3,), mark)})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    wrote = model(2.0, step=7)
    checkpoint.write(tmp_path / "a" / "b", wrote)
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == [
        "config.json", "input.json", "manifest.json", "model.safetensors", "training.json", "training.safetensors",
    ]  # fmt: skip
    read = checkpoint.read(tmp_path / "a" / "b", training=True)
    assert (read.config, read.reads, read.progress) == (wrote.config, wrote.reads, {"step": 7})
    for ours, theirs in ((wrote.weights, read.weights), (wrote.training, read.training)):
        assert ours is not None
        assert theirs is not None
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert checkpoint.read(tmp_path / "a" / "b").training is None


def test_a_model_alone_cannot_go_on(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "best-00000001", model())
    with refused():
        checkpoint.read(tmp_path / "best-00000001", training=True)


def test_the_newest_of_a_kind_is_found(tmp_path: Path) -> None:
    for name in ("best-00000003", "last-00000003", "last-99999999", "best-00000009", "last-100000000"):
        checkpoint.write(tmp_path / name, model())
    assert checkpoint.find(tmp_path).name == "best-00000009"
    assert checkpoint.find(tmp_path, "last").name == "last-100000000"
    assert checkpoint.find(tmp_path / "last-00000003").name == "last-00000003"
    checkpoint.prune(tmp_path, "last", keep=2)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["best-00000003", "best-00000009", "last-100000000", "last-99999999"]
    checkpoint.prune(tmp_path, "best", keep=1)
    newest_last = ["best-00000009", "last-99999999", "last-100000000"]
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == newest_last


def test_a_run_without_a_best_model_gives_its_last(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "last-00000003", model(step=3))
    assert hmrnn.load(tmp_path).vocabulary == tiny.VOCABULARY


class Crash(BaseException):
    """The process ends here."""


class Disk:
    """Counts what the process does to files and ends it at the ``last``-th step, before that one takes effect."""

    EVENTS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fsync"})

    def __init__(self) -> None:
        self.last: int | None = None
        self.count = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.last is None or event not in self.EVENTS:
            return
        self.count += 1
        if self.count == self.last:
            self.last = None
            raise Crash

    @contextmanager
    def until(self, last: int) -> Iterator[None]:
        self.last, self.count = last, 0
        try:
            yield
        finally:
            self.last = None


DISK = Disk()
sys.addaudithook(DISK)  # it cannot be taken off again; without a ``last`` it does nothing


def survives(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[int], None], act: Callable[[], None], look: Callable[[], None]
) -> int:
    """Crash ``act`` at every single step, ``look`` at what is left each time; the number of steps."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: DISK("fsync", ()))
    for k in range(1, 200):
        prepare(k)
        try:
            with DISK.until(k):
                act()
        except Crash:
            look()
        else:
            look()
            return k - 1
    raise AssertionError("no end")


@pytest.mark.parametrize("step", [2, 1], ids=["another step", "the same step"])
def test_a_crash_at_any_moment_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    here = RunDirectory(tmp_path)
    seen = []

    def prepare(k: int) -> None:
        """The state before; what a crash left behind stays there every other time."""
        if k % 2:
            for path in tmp_path.iterdir():
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
        here.save("last", 1, model(1.0, step=1))

    def look() -> None:
        assert checkpoint.find(tmp_path, "last") is not None
        saved = here.newest_state()
        assert saved.progress is not None
        assert saved.training is not None
        mark = float(saved.weights["softmax.bias"][0])
        assert mark in (1.0, 2.0)
        assert (float(saved.training["window.0"][0]), saved.progress["step"]) == (mark, step if mark == 2 else 1)
        seen.append(mark)

    steps = survives(monkeypatch, prepare, lambda: here.save("last", step, model(2.0, step=step)), look)
    assert steps > 15
    if step == 1:
        assert seen == sorted(seen)
    assert {1.0, 2.0} == set(seen)
    here.save("last", 3, model(3.0, step=3))
    here.save("last", 4, model(4.0, step=4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last-00000003", "last-00000004"]


def test_a_crash_while_old_ones_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = RunDirectory(tmp_path)
    number = 0

    def prepare(k: int) -> None:
        nonlocal number
        number += 1
        save(number)

    def save(step: int) -> None:
        here.save("best", step, model(step))
        here.save("last", step, model(step, step=step))

    def act() -> None:
        save(number + 1)

    def look() -> None:
        assert float(checkpoint.read(checkpoint.find(tmp_path)).weights["softmax.bias"][0]) in (number, number + 1)

    assert survives(monkeypatch, prepare, act, look) > 15


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = RunDirectory(tmp_path)
    here.save("last", 1, model(1.0, step=1))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused():
        here.save("last", 2, model(2.0, step=2))
    assert here.newest_state().progress == {"step": 1}


def rewrite(directory: Path, name: str, data: bytes) -> None:
    """Replace a file of a checkpoint, and make the manifest agree with it."""
    import hashlib

    (directory / name).write_bytes(data)
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_manifest(directory, lambda manifest: manifest["files"].update({name: entry}))


def edit_manifest(directory: Path, edit: Callable[[Any], None]) -> None:
    manifest = json.loads((directory / "manifest.json").read_bytes())
    edit(manifest)
    (directory / "manifest.json").write_bytes(to_json(manifest))


def other_vocabulary(symbols: str) -> bytes:
    return json.dumps({"kind": "characters", "symbols": sorted(symbols), "unknown": False}).encode()


REWRITTEN = {
    "no tensors": ("model.safetensors", b"hello"),
    "other weights": ("model.safetensors", save({"rnn.U.0": torch.zeros(2, 2)})),
    "a larger vocabulary": ("input.json", other_vocabulary("abcdefghijklm")),
    "JSON without end": ("input.json", b'{"a":' * 5000),
    "no vocabulary": ("input.json", b"{}"),
    "a config of another kind": ("config.json", b'{"model": {"num_layers": "three"}}'),
}


@pytest.mark.parametrize("what", REWRITTEN)
def test_files_that_fit_their_manifest_and_nothing_else(tmp_path: Path, what: str) -> None:
    checkpoint.write(tmp_path, model())
    hmrnn.load(tmp_path)
    rewrite(tmp_path, *REWRITTEN[what])
    with refused():
        hmrnn.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("rnn.b.0", torch.zeros(24, dtype=torch.int8)),
        ("rnn.a", torch.tensor(-3.0)),  # the slope
        *(("softmax.bias", torch.full((9,), value)) for value in (1e30, -1e16, torch.nan)),
    ],
)
def test_weights_that_no_model_can_have(tmp_path: Path, name: str, weight: torch.Tensor) -> None:
    saved = model()
    checkpoint.write(tmp_path, saved._replace(weights=saved.weights | {name: weight}))
    with refused():
        hmrnn.load(tmp_path)


MANIFESTS: dict[str, Callable[[Any], object]] = {
    "9": lambda manifest: manifest.update(format=9),
    "input.json": lambda manifest: manifest["files"].update({"missing": manifest["files"].pop("input.json")}),
    "../x": lambda manifest: manifest["files"].update({"../x": {"size": 1, "sha256": ""}}),
    "training.safetensors": lambda manifest: manifest["files"].pop("training.safetensors"),
    "training.json": lambda manifest: manifest["files"].pop("training.json"),
    "model.safetensors, config.json": lambda manifest: [
        manifest["files"].pop(name) for name in ("model.safetensors", "config.json")
    ],
}


@pytest.mark.parametrize("named", MANIFESTS)
def test_a_manifest_of_another_form_or_without_a_part_is_refused(tmp_path: Path, named: str) -> None:
    checkpoint.write(tmp_path, model(step=3))
    edit_manifest(tmp_path, MANIFESTS[named])
    for training in (False, True):
        with refused() as caught:
            checkpoint.read(tmp_path, training=training)
        assert named in str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    with refused():
        hmrnn.load(tmp_path / "nowhere")
    with refused():
        hmrnn.load(tmp_path)
    (tmp_path / "file").write_text("")
    with refused():
        hmrnn.load(str(tmp_path / "file"))


def test_a_model_from_python(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "best-00000001", model())
    loaded = hmrnn.load(tmp_path)
    assert not loaded.network.training
    assert loaded.segment("abc de").text == "abc de"
    assert loaded.generate("abc", 20, seed=5) == "".join(loaded.stream("abc", 20, seed=5))
    assert len(loaded.generate(length=7)) == 7
    assert loaded.generate("abc", 40, seed=5) != loaded.generate("abc", 40, seed=6)
    assert loaded.score("abc de").symbols == 5
    for call in (loaded.segment, loaded.score):
        with refused():
            call("")
    with refused():
        loaded.stream("aü", unknown="refuse")  # before the first piece is asked for
    with refused():
        loaded.stream("a", temperature=-1.0)


@pytest.mark.parametrize("wrong", [["a"], 3, None, b"abc"], ids=repr)
def test_what_is_no_text_is_named(tmp_path: Path, wrong: Any) -> None:
    checkpoint.write(tmp_path / "best-00000001", model())
    loaded = hmrnn.load(tmp_path)
    for call in (loaded.segment, loaded.score):
        with refused():
            call(wrong)
    for call in (loaded.generate, loaded.stream)[isinstance(wrong, list) :]:  # generate takes a list of prompts
        with refused():
            call(wrong)
    with refused():
        list(loaded.score_lines(["abc", wrong]))
    with refused("length"):
        loaded.generate("abc", "a")
    for lines in ("abc", 3):
        with refused():
            list(loaded.score_lines(lines))


@pytest.mark.parametrize("wrong", [None, 3, b"runs/demo", ["english-small"]], ids=repr)
def test_what_is_no_name_of_a_model_is_named(wrong: Any) -> None:
    with refused():
        hmrnn.load(wrong)


@pytest.mark.parametrize("size", [10**15, 2**63 - 1, -1])
def test_sizes_are_compared_before_anything_is_read(tmp_path: Path, size: int) -> None:
    checkpoint.write(tmp_path / "best-00000001", model())
    edit_manifest(tmp_path / "best-00000001", lambda m: m["files"]["config.json"].update(size=size))
    with refused():
        hmrnn.load(tmp_path)
    (tmp_path / "best-00000001" / "manifest.json").write_bytes(b" " * (checkpoint.LARGEST_MANIFEST + 1))
    with refused():
        hmrnn.load(tmp_path)


def test_a_message_is_one_line() -> None:
    assert str(InputError("a\nb\r\nc\u2028d")) == "a\\nb\\nc\\nd"


def test_predictions_that_are_not_finite_are_told_of(tmp_path: Path) -> None:
    saved = model()
    saved.weights["softmax.bias"][3] = 1e15
    checkpoint.write(tmp_path / "saved", saved)
    loaded = hmrnn.load(tmp_path / "saved")
    for use in (loaded.score, lambda text: next(loaded.score_lines([text]))):
        with refused():
            use("abc de")
    with torch.no_grad():
        loaded.network.softmax.bias.fill_(torch.inf)
    for use in (loaded.score, loaded.segment):
        with refused():
            use("abc de")
