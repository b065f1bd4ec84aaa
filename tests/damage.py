"""Whole runs of text and of handwriting with two states each, and single bytes of them changed or files cut short."""

from __future__ import annotations

import random
from pathlib import Path

import tiny
import tiny_strokes
from hmrnn import checkpoint, load
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from refusals import refused

KINDS = ("text", "strokes")


def make_run(directory: Path, kind: str) -> Path:
    """A finished run with a best model and two states."""
    if kind == "text":
        trainer = tiny.trainer(tiny.config(layer_norm=True))
    else:
        trainer = Trainer(tiny_strokes.config(), tiny_strokes.corpus(), tiny.torch.device("cpu"))
    here = RunDirectory(directory)
    with here.open():
        list(train(trainer, here))
    assert len(checkpoint.checkpoints(directory)) == 3
    return directory


def corrupt(rng: random.Random, run: Path) -> None:
    """Change one byte of one file of a checkpoint, or cut it short; it must be noticed, and a whole one be offered."""
    damaged = rng.choice(checkpoint.checkpoints(run))
    path = rng.choice(sorted(damaged.iterdir()))
    whole = path.read_bytes()
    if rng.randrange(3):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    else:
        data = bytearray(whole[: rng.randrange(len(whole))])
    path.write_bytes(data)
    what = f"{damaged.name}/{path.name} with {len(data)} of {len(whole)} bytes"
    training = "training.json" in {other.name for other in damaged.iterdir()}
    try:
        for going_on in {False, training}:
            with refused() as caught:
                checkpoint.read(damaged, training=going_on)
            others = [other for other in checkpoint.checkpoints(run) if other != damaged]
            whole_ones = [other.name for other in others if not going_on or "last" in other.name]
            assert whole_ones[-1] in str(caught.value), what
        if damaged == checkpoint.find(run):
            with refused():
                load(run)
        newest = [other for other in checkpoint.checkpoints(run) if "last" in other.name][-1]
        if damaged == newest:
            with refused():
                RunDirectory(run).newest_state()
    except BaseException as error:
        error.add_note(what)
        raise
    finally:
        path.write_bytes(whole)
