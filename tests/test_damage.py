"""A checkpoint that is not as it was written is never used, and the one before it is offered."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import damage
import hmrnn
import tiny
from hmrnn import checkpoint
from hmrnn.training.rundir import RunDirectory
from refusals import refused


@pytest.fixture(scope="module", params=damage.KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damage.make_run(tmp_path_factory.mktemp(request.param) / "run", request.param)


def test_one_wrong_byte_or_a_cut_is_noticed(run: Path) -> None:
    rng = random.Random(1)
    for _ in range(40):
        damage.corrupt(rng, run)


def test_white_space_of_the_manifest_is_checked_too(run: Path) -> None:
    path = checkpoint.find(run) / "manifest.json"
    whole = path.read_bytes()
    for data in (whole[:-1], whole + b"\n", whole.replace(b"\n", b" ", 1), b" " + whole):
        path.write_bytes(data)
        with refused():
            hmrnn.load(run)
    path.write_bytes(whole)
    hmrnn.load(run)


def test_what_is_offered_works(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, copy := tmp_path / "run")
    best, (older, newest) = checkpoint.find(copy), sorted(copy.glob("last-*"))
    os.truncate(best / "model.safetensors", 50)
    with refused() as caught:
        hmrnn.load(copy)
    assert str(newest) in str(caught.value)
    hmrnn.load(newest)
    os.truncate(newest / "training.safetensors", 50)
    with refused() as caught:
        RunDirectory(copy).newest_state()
    assert older.name in str(caught.value)
    shutil.rmtree(newest)
    assert RunDirectory(copy).newest_state().progress is not None
    os.truncate(older / "config.json", 5)
    with refused():
        hmrnn.load(copy)


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
def test_files_that_are_none(tmp_path: Path, name: str) -> None:
    """Reading one would wait for ever, that of the other would never end."""
    checkpoint.write(tmp_path, tiny.trainer(tiny.config()).snapshot(training=False))
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        (tmp_path / name).unlink()
        make(tmp_path / name)
        with refused():
            hmrnn.load(tmp_path)


ABSURD: dict[str, dict[str, Any]] = {
    "wide": {"hidden_size": (2**31,)},
    "deep": {"num_layers": 2**31},
    "a little deep": {"num_layers": 15},
    "modules": {"rnn": "cw-rnn", "modules": 2**31},
    "output": {"output_size": 2**31},
    "beyond 64 bits": {"embedding_size": 2**70},
    "below zero": {"embedding_size": -4},
    "another network": {"rnn": "gru"},
}


@pytest.mark.parametrize("changes", ABSURD.values(), ids=ABSURD)
def test_no_memory_is_taken_on_a_config_s_word(tmp_path: Path, changes: dict[str, Any]) -> None:
    saved = tiny.trainer(tiny.config(hidden_size=(6,))).snapshot(training=False)
    config = dataclasses.replace(saved.config, model=dataclasses.replace(saved.config.model, **changes))
    checkpoint.write(tmp_path / "model", saved._replace(config=config))
    with refused():
        hmrnn.load(tmp_path / "model")
