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
from hmrnn.errors import InputError
from hmrnn.training.rundir import RunDirectory


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
        with pytest.raises(InputError, match=r"manifest\.json is damaged: it is not in the form that hmrnn writes"):
            hmrnn.load(run)
    path.write_bytes(whole)
    hmrnn.load(run)


def test_what_is_offered_works(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    best = checkpoint.find(tmp_path / "run")
    os.truncate(best / "model.safetensors", 50)
    with pytest.raises(
        InputError, match=r"is damaged.*; (last-\d+) is intact: to use it, give (\S+), or remove"
    ) as info:
        hmrnn.load(tmp_path / "run")
    hmrnn.load(str(info.value).split("give ")[1].split(", or")[0])
    newest = checkpoint.find(tmp_path / "run", "last")
    os.truncate(newest / "training.safetensors", 50)
    with pytest.raises(InputError, match=rf"last-\d+ is intact: to resume from it, remove {newest}"):
        RunDirectory(tmp_path / "run").newest_state()
    shutil.rmtree(newest)
    assert RunDirectory(tmp_path / "run").newest_state().progress is not None
    os.truncate(checkpoint.find(tmp_path / "run", "last") / "config.json", 5)
    with pytest.raises(InputError, match="; no other checkpoint of the run is intact"):
        hmrnn.load(tmp_path / "run")


def test_the_best_without_its_manifest_is_not_replaced_unasked(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    best = checkpoint.find(tmp_path / "run")
    (best / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"manifest\.json cannot be read .*; (last-\d+) is intact: to use it, give"):
        hmrnn.load(tmp_path / "run")
    shutil.rmtree(best)
    hmrnn.load(tmp_path / "run")


def test_files_that_are_none(tmp_path: Path) -> None:
    saved = tiny.trainer(tiny.config()).snapshot(training=False)
    for name, message in (("model.safetensors", "it is not a regular file"), ("manifest.json", "not a regular file")):
        checkpoint.write(tmp_path / "model", saved)
        (tmp_path / "model" / name).unlink()
        os.mkfifo(tmp_path / "model" / name)  # reading it would wait for ever
        with pytest.raises(InputError, match=message):
            hmrnn.load(tmp_path / "model")
        (tmp_path / "model" / name).unlink()
        os.symlink("/dev/zero", tmp_path / "model" / name)  # reading it would never end
        with pytest.raises(InputError, match=message):
            hmrnn.load(tmp_path / "model")
        shutil.rmtree(tmp_path / "model")


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
    with pytest.raises(InputError):
        hmrnn.load(tmp_path / "model")
