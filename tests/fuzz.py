"""Strangers' files and command lines: valid ones, damaged at random."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import tiny
import tiny_strokes
from attack import Target, mutate
from hmrnn import checkpoint, load
from hmrnn.cli.parse import flag
from hmrnn.config import Config
from hmrnn.config.checks import settings_of
from hmrnn.config.json import from_json, to_json
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.corpus import load_strokes
from hmrnn.kinds.strokes.files import save_archive, save_strokes
from hmrnn.kinds.strokes.settings import StrokeData
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.settings import TextData
from hmrnn.training.detectors import changed_detectors

KINDS = ("pen", "text", "run")


def texts(folder: Path) -> Target:
    """The text loader, in all its formats."""
    plain = tiny.text(400).encode() + "çé ☃ 𝒳\r\n".encode() * 20
    ptb = (" ".join(tiny.text(400).replace(" ", "_")) + "\n").encode()
    kinds: list[tuple[str, str, bytes]] = [
        ("text", "a.txt", plain), ("text", "b.txt.gz", gzip.compress(plain, mtime=0)),
        ("text", "c.txt.xz", lzma.compress(plain)), ("text8", "d", tiny.text(400).encode()), ("enwik8", "e", plain),
    ]  # fmt: skip
    for split in ("valid", "test"):
        (folder / f"ptb.char.{split}.txt").write_bytes(ptb[:160] + b"\n")

    def run(rng: random.Random) -> None:
        if rng.randrange(6) == 0:
            (folder / "ptb.char.train.txt").write_bytes(mutate(rng, ptb))
            config = TextData("ptb", (str(folder),))
        else:
            kind, name, data = rng.choice(kinds)
            (folder / name).write_bytes(mutate(rng, data))
            spaces = kind == "text" and rng.randrange(4) == 0
            config = TextData(kind, (str(folder / name),), bytes=kind == "text" and rng.randrange(4) == 0)  # type: ignore[arg-type]
            config = dataclasses.replace(config, remove_spaces=spaces)
        corpus = load_corpus(config)
        assert int(corpus.train.max()) < len(corpus.vocabulary)

    return run


def stroke_archives(folder: Path) -> Target:
    """Files of pen strokes: .npz, the compact archive, JSON, CSV, packed ones, and tar archives of XML."""
    whole = [np.round(line) for line in tiny_strokes.strokes(8)]
    strokes = Strokes.of(whole, names=[f"a-{k:02d}" for k in range(8)])
    seeds: dict[str, bytes] = {}
    for ending in ("npz", "json", "csv"):
        save_strokes(strokes, folder / f"valid.{ending}")
        seeds[f"damaged.{ending}"] = (folder / f"valid.{ending}").read_bytes()
    save_archive(strokes, folder / "archive.npz")
    seeds["archived.npz"] = (folder / "archive.npz").read_bytes()
    seeds["damaged.npz.xz"] = lzma.compress(seeds["damaged.npz"])
    for ending in ("tar", "tar.gz"):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz" if ending == "tar.gz" else "w") as tar:
            for k, line in enumerate(line_files()):
                entry = tarfile.TarInfo(f"lineStrokes/a01/a01-000/a01-000-{k:02d}.xml")
                entry.size = len(line)
                tar.addfile(entry, io.BytesIO(line))
        seeds[f"damaged.{ending}"] = packed.getvalue()

    def run(rng: random.Random) -> None:
        name = rng.choice(sorted(seeds))
        data = seeds[name]
        if name == "damaged.tar.gz" and rng.randrange(2):
            data = gzip.compress(mutate(rng, gzip.decompress(data)), 1, mtime=0)
        elif name == "damaged.npz.xz" and rng.randrange(2):
            data = lzma.compress(mutate(rng, lzma.decompress(data)), preset=0)
        else:
            data = mutate(rng, data)
        (folder / name).write_bytes(data)
        kind: Any = "iamondb" if "tar" in name or rng.randrange(4) == 0 else "strokes"
        config = StrokeData(kind, (str(folder / name),), min_points=2, cache=str(folder / "cache"))
        corpus = load_strokes(config)
        assert np.isfinite(corpus.train.steps).all()

    return run


def line_files() -> list[bytes]:
    """Line files of IAM-OnDB, made up."""
    points = "".join(f'<Point x="{100 + 7 * k % 90}" y="{50 + k}" time="{k}.5"/>\n' for k in range(9))
    stroke = f'<Stroke colour="black" start_time="1" end_time="2">\n{points}</Stroke>\n'
    head = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<WhiteboardCaptureSession>\n<StrokeSet>\n'
    return [(head + stroke * n + "</StrokeSet>\n</WhiteboardCaptureSession>\n").encode() for n in (1, 2, 3, 4)]


def rewritten(directory: Path, files: dict[str, bytes]) -> None:
    """A checkpoint of these files whose manifest fits them."""
    listed = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    for name, data in files.items():
        (directory / name).write_bytes(data)
    (directory / "manifest.json").write_bytes(to_json({"format": checkpoint.FORMAT, "files": listed}))


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**62, 2**63, 2**64, 10**40, 10**400, 10**4000, -(2**63), 1e300, 1e308, -0.0, "", "9",
    "../x", "silent", "\u0000", "0" * 64, "x" * 60_000, [], [1], [[]], [1] * 9999, [[1] * 9999], ["x"] * 100_000, {},
    {"size": 1, "sha256": ""},
)  # fmt: skip
"""What no field of JSON expects."""
LONG = ("more", "../x", "training.json", "rnn.U.0", "x" * 2000 + "\n" * 50, "x" * 3_000_000)
"""Names that nothing has there."""


def edited(rng: random.Random, whole: bytes) -> Any:
    """JSON with another value somewhere, or without one."""
    data = json.loads(whole)
    part = rng.choice([data, *[value for value in data.values() if isinstance(value, dict)] * 2])
    inner = [value for value in part.values() if isinstance(value, dict)]
    part = rng.choice([part, *inner])
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([*part, *part, *LONG])
        part[name] = rng.choice(VALUES)
        if rng.randrange(8) == 0:
            del part[name]
    return data


def any_tensor(rng: random.Random, like: torch.Tensor) -> torch.Tensor:
    """A tensor of any rank, dtype and size of its numbers; half of the time with the shape of another."""
    rank = rng.choice((0, 0, 1, 2, 3, 4, 5, 2000))
    shape = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rank)] if rank < 2000 else [1] * rank
    shape = rng.choice((shape, list(like.shape)))
    kind = rng.choice((torch.float32, torch.float32, torch.float64, torch.float16, torch.int64, torch.int8, torch.bool))
    value = rng.choice((0, 1, -1, 1e-30, 1e4, 1e16, 1e30, float("nan"), float("inf")))
    return torch.full(shape, value, dtype=torch.float64).to(kind)


def checkpoints(folder: Path) -> Target:
    """Checkpoints of text, of handwriting and of a run: bytes, values, tensors or files of theirs are others.

    Mostly their manifest fits what is damaged; where it does not, that must be noticed.
    """
    trainer = tiny.trainer(tiny.config(layer_norm=True, estimator="reinforce", average=0.9, cool_down=0.5))
    trainer.step()
    tiny_strokes.save(folder / "pen", tiny_strokes.model())
    for kind in ("text", "run"):
        checkpoint.write(folder / kind, trainer.snapshot(training=kind == "run"))
    whole = {kind: {path.name: path.read_bytes() for path in (folder / kind).iterdir()} for kind in KINDS}
    line = tiny_strokes.strokes(1)[0]

    def damaged(rng: random.Random, name: str, data: bytes) -> bytes | None:
        match rng.randrange(8):
            case 0:
                return None
            case 1 | 2:
                return mutate(rng, data)
        if name.endswith(".json"):
            other = edited(rng, data)
            return to_json(other) if name == "manifest.json" else json.dumps(other).encode()
        tensors = safetensors.torch.load(data)
        which = rng.choice(sorted(tensors))
        tensor = tensors.pop(which) if rng.randrange(4) == 0 else any_tensor(rng, tensors[which])
        tensors[rng.choice((which, which, which, *LONG))] = tensor
        return safetensors.torch.save(tensors)

    def run(rng: random.Random) -> None:
        kind = rng.choice(KINDS)
        files = dict(whole[kind])
        name = rng.choice(sorted(files))
        content = damaged(rng, name, files.pop(name))
        for path in (folder / kind).iterdir():
            path.unlink()
        if content is not None:
            files[name] = content
        fits = name != "manifest.json" and rng.randrange(4) > 0
        if fits:
            del files["manifest.json"]
            rewritten(folder / kind, files)
        else:
            for file, data in files.items():
                (folder / kind / file).write_bytes(data)
        saved = checkpoint.read(folder / kind, training=kind == "run")
        assert fits or content == whole[kind][name], f"{name} is damaged, and was read"
        if kind == "run":
            other = tiny.trainer(trainer.config)
            other.restore(saved)
            for _ in range(3):
                other.step()
            other.window_means()
            changed_detectors(other)
        elif kind == "text":
            model = load(folder / kind)
            assert math.isfinite(model.score("abc de fgh").bits)
            assert np.isfinite(model.segment("abc de fgh").bits[1:]).all()
        else:
            model = load(folder / kind)
            assert math.isfinite(model.score(line).log_likelihood)
            assert np.isfinite(model.segment(line).bits[1:]).all()

    return run


COUNTS = (
    "0", "1", "2", "3", "5", "-1", "-9223372036854775809", "2147483647", "2147483648", "4611686018427387904",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "9" * 30, "9" * 5000, "1e999", "-1e999",
    "nan", "1e308", "1e-308", "5e-324", "0.5", "-0.0", "", " 1", "1_0", "\uff12", "0x5", "x", "\udce9", "1\n2",
)  # fmt: skip
"""Words where a number is expected."""
NAMES = (
    b"story.txt", b"caf\xe9.txt", b"\xff\xfe", b"loop", b"dangling", b"folder", b"fol\xe9der", b"line\nfeed.txt", b"",
    b".", b"-", b"/", b"x" * 300, b"a/" * 3000, b"~nobody/x", b"strokes.npz", b"text", b"pen", b"none.txt",
    b"story.txt/x", b"\x1b[31m.txt", b"empty.txt",
)  # fmt: skip
"""Words where a name is expected: of files, folders, links and models that there are, and of none."""
TRAIN = [
    "--no-report", "--overwrite", "--train.epochs", "1", "--train.batch-size", "2", "--train.length", "4",
    "--model.hidden-size", "4", "--model.num-layers", "2", "--model.embedding-size", "3", "--model.output-size", "3",
    "--train.device", "cpu",
]  # fmt: skip
USES: tuple[tuple[list[str], tuple[str, ...], tuple[str, ...]], ...] = (
    (["segment", "-m", "text", "abc de"], ("--width",), ("-m", "--file")),
    (["segment", "-m", "text"], ("--streams", "--warmup"), ("--stream", "--out", "-m")),
    (["score", "-m", "text", "abc de"], (), ("-m", "--file")),
    (["generate", "-m", "text", "abc", "--length", "3"], ("--samples", "--top-k", "--seed", "--temperature", "--top-p"),
     ("-m", "--condition")),
    (["generate", "-m", "text", "abc", "--samples", "2"], ("--length",), ()),
    (["generate", "-m", "pen", "--length", "3", "--samples", "2"],
     ("--samples", "--seed", "--bias", "--temperature", "--seconds"), ("-m", "--out", "--prime", "--line")),
    (["generate", "-m", "pen", "--samples", "2"], ("--length",), ("--out",)),
    (["evaluate", "-m", "text", "--file", "story.txt", "--symbols", "99"],
     ("--symbols", "--streams", "--warmup"), ("-m", "--file", "--gold")),
    (["evaluate", "-m", "text", "--file", "story.txt", "--symbols", "99", "--dynamic"],
     ("--learning-rate", "--decay", "--segment-length"), ()),
    (["evaluate", "-m", "pen", "--file", "strokes.npz"], (), ("-m", "--file")),
    (["plot", "-m", "text", "abc de"], (), ("-m", "--file", "--out")),
    (["plot", "-m", "pen", "--file", "strokes.npz"], ("--levels", "--line"), ("--file", "--out")),
    (["export", "-m", "text", "--out", "made"], (), ("-m", "--out")),
    (["data", "story.txt"], (), ("--archive",)),
    (["bench", "--modes"], ("--threads", "--repeats", "--sizes"), ()),  # refused for want of a mode: it would take long
    (["train", "story.txt", *TRAIN, "--out", "run"], (), ("--out", "--from", "--data.path")),
)  # fmt: skip
"""Commands, their flags that take numbers, and those that take names."""
ENDLESS = {"train.epochs", "train.threads", "train.patience", "train.divisions"}
"""Settings of which a large value is right, and takes long."""


def commands(folder: Path) -> Target:
    """Words of the command line: numbers of any size, and names that are of no file, not UTF-8, or links in loops."""
    names = [os.fsdecode(name) for name in NAMES]
    (folder / "story.txt").write_text(tiny.text(400))
    for name in ("caf\udce9.txt", "line\nfeed.txt", "\x1b[31m.txt"):
        (folder / name).write_text(tiny.text(400))
    (folder / "empty.txt").touch()
    (folder / "folder").mkdir()
    (folder / "fol\udce9der").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    save_strokes(tiny_strokes.strokes(4), folder / "strokes.npz")
    tiny_strokes.save(folder / "pen", tiny_strokes.model())
    tiny.saved_model(folder / "text")
    settings = [one for one in settings_of(Config) if one.name not in ENDLESS and one.field.type not in ("bool", "str")]
    kept = {path.name for path in folder.iterdir()}

    def words(rng: random.Random) -> list[str]:
        known, numbers, paths = rng.choice(USES)
        found = list(known)
        if known[0] == "train" and rng.randrange(2):
            setting = rng.choice(settings)
            count = rng.choice((1, 1, 2)) if "tuple" in str(setting.field.type) else 1
            return [*found, flag(setting.name), *(rng.choice(COUNTS) for _ in range(count))]
        for _ in range(rng.choice((1, 1, 2))):
            if numbers and (not paths or rng.randrange(2)):
                found += [rng.choice(numbers), rng.choice(COUNTS)]
            else:
                found += [rng.choice(paths), rng.choice(names)]
        if rng.randrange(8) == 0:
            found[1:2] = [rng.choice((*names, *COUNTS))]
        return found

    def run(rng: random.Random) -> None:
        asked = words(rng)
        shown, errors = io.StringIO(), io.StringIO()
        with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("HMRNN_CACHE", str(folder / "cache"))
            tiny.stdin(patch, "")
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(errors):
                try:
                    status = tiny.hmrnn(*asked)
                except BaseException as error:
                    error.add_note(" ".join(map(repr, asked)))
                    raise
        for path in folder.iterdir():
            if path.name not in kept:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        assert status in (0, 2), (status, asked)
        if status == 2:
            said = errors.getvalue().splitlines()
            assert said[-1].startswith("hmrnn: "), (said, asked)
            raise InputError(said[-1].removeprefix("hmrnn: "))

    return run


def configs(folder: Path) -> Target:
    """config.json, whole or edited value by value."""
    whole = to_json(tiny.config())

    def run(rng: random.Random) -> None:
        damaged = json.dumps(edited(rng, whole)).encode() if rng.randrange(2) else mutate(rng, whole)
        from_json(damaged, Config, "config.json").check()

    return run


TARGETS: dict[str, Callable[[Path], Target]] = {
    "text loader": texts,
    "stroke archives": stroke_archives,
    "checkpoint directories": checkpoints,
    "command lines": commands,
    "config JSON": configs,
}
