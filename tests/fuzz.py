"""Strangers' files and requests: valid ones, damaged at random from a fixed seed, and what must come of them.

A target takes damaged bytes and must either use them or raise the package's own error. It has bounded time for each
input and bounded memory for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import lzma
import random
import re
import resource
import shutil
import signal
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

import tiny
import tiny_strokes
from hmrnn import checkpoint, load
from hmrnn.config import Config, DataConfig
from hmrnn.config_io import from_json, to_json
from hmrnn.data import load_corpus, load_strokes, read_strokes
from hmrnn.data.strokes.files import save_archive, save_strokes
from hmrnn.data.strokes.iamondb import read_line
from hmrnn.data.strokes.strokes import StrokeFile, Strokes
from hmrnn.errors import InputError

SECONDS = 20
"""For one input."""
ROOM = 1 << 30
"""Bytes of address space that all inputs of a target may take beyond what was there before."""

INTERESTING = (b"\0", b"\xff", b"\n", b'"', b"{", b"[", b"]", b"}", b"<", b"&", b"-1", b"1e999", b"NaN", b"null",
               b"\xef\xbb\xbf", b"\xed\xa0\x80", b"9" * 40, b"../", b"\0\0\0\0", b"\xff\xff\xff\x7f",
               b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80", b"<!DOCTYPE", b"[" * 3000, b'{"a":' * 500)  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """``data`` with one to four things wrong with it."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, length = rng.randrange(len(out) + 1), rng.choice((1, 1, 2, 4, 16, 64))
        match rng.randrange(8):
            case 0 if out:
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[rng.randrange(len(out))] = rng.randrange(256)
            case 2:
                del out[at : at + length]
            case 3:
                out[at:at] = rng.randbytes(length)
            case 4:
                del out[at:]
            case 5:
                out[at:at] = out[at : at + length] * rng.choice((1, 2, 50))
            case 6:
                there = rng.randrange(len(out) + 1)
                out[at : at + length] = out[there : there + length]
            case _:
                out[at : at + rng.choice((0, 0, length))] = rng.choice(INTERESTING)
    return bytes(out)


@dataclasses.dataclass
class Outcome:
    """What came of the inputs of a target."""

    inputs: int = 0
    taken: int = 0
    refused: int = 0
    reasons: set[str] = dataclasses.field(default_factory=set)
    """Different messages, cut to their beginnings."""

    def refuse(self, message: str) -> None:
        assert "\n" not in message, message
        assert len(message) <= 1000, f"a message of {len(message):,} characters: {message[:100]}"
        self.refused += 1
        self.reasons.add(re.sub(r"\d+|/\S*/", "", message)[:60])


Target = Callable[[random.Random], None]
"""Makes one input, damaged at random, and uses it; InputError is fine, and nothing else is."""


class TookTooLong(BaseException):
    """An input was worked on for longer than ``SECONDS``."""


@contextlib.contextmanager
def bounded_memory(room: int = ROOM) -> Iterator[None]:
    """Only so much more address space can be had: what wants more fails with MemoryError, which no target may raise."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def bounded_time() -> Iterator[Callable[[], None]]:
    """A function to call before each input."""

    def late(number: int, frame: Any) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, late)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, SECONDS) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attack(target: Target, count: int, seed: int) -> Outcome:
    """Give ``target`` so many inputs; an error that is not the package's own names the input that raised it."""
    outcome = Outcome()
    with bounded_memory(), bounded_time() as start:
        for number in range(count):
            start()
            try:
                target(random.Random(f"{seed} {number}"))
                outcome.taken += 1
            except InputError as error:
                outcome.refuse(str(error))
            except BaseException as error:
                raise AssertionError(f"seed {seed}, input {number}: {type(error).__name__}: {error}") from error
            outcome.inputs += 1
    return outcome


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
            config = DataConfig("ptb", (str(folder),))
        else:
            kind, name, data = rng.choice(kinds)
            (folder / name).write_bytes(mutate(rng, data))
            spaces = kind == "text" and rng.randrange(4) == 0
            config = DataConfig(kind, (str(folder / name),), bytes=kind == "text" and rng.randrange(4) == 0)  # type: ignore[arg-type]
            config = dataclasses.replace(config, remove_spaces=spaces)
        cache = folder / "cache"
        corpus = load_corpus(dataclasses.replace(config, cache=str(cache)))
        assert int(corpus.train.max()) < len(corpus.vocabulary)
        shutil.rmtree(cache)

    return run


def stroke_archives(folder: Path) -> Target:
    """Files of pen strokes: .npz, the compact archive, JSON, CSV, packed ones, and tar archives of XML."""
    whole = [np.round(line) for line in tiny_strokes.strokes(8)]
    strokes = Strokes.of(whole, names=[f"a-{k:02d}" for k in range(8)])
    seeds: dict[str, bytes] = {}
    for ending in ("npz", "json", "csv"):
        save_strokes(strokes, folder / f"valid.{ending}")
        seeds[f"damaged.{ending}"] = (folder / f"valid.{ending}").read_bytes()
    save_archive(StrokeFile(strokes), folder / "archive.npz")
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
        config = DataConfig(kind, (str(folder / name),), min_points=2, cache=str(folder / "cache"))
        corpus = load_strokes(config)
        assert np.isfinite(corpus.train.steps).all()

    return run


LITERALS = (
    "None", "True", "False", "...", "0", "1", "-1", "3", "5", "5L", "0x5", "1_0", "2.0", "1e999", "nan", "2j", "9" * 20,
    "9" * 5000, "''", "'a'", "'<f4'", "'<f8'", "'>i2'", "'|b1'", "'|S0'", "'|S3'", "'<U2'", "'|O'", "'|V8'", "'<c16'",
    "'<f3'", "'f4,f4'", "'(9,)f4'", "'<U999999999'", "'<m8[s]'", "'\\n'", "b'<f4'", "u'<f4'", "f'<f4'", "'<f4", '"<f4"',
    "'<f4' '<f4'", "()", "(,)", "(1)", "(1,)", "(5, 2)", "(2, 5)", "(10,)", "(True,)", "(True, True)", "(-5, -2)",
    "(5.0, 2.0)", "(5, None)", "((5,), 2)", "('5',)", "(0, 99999999999)", f"({'1,' * 70})", "[5, 2]", "{5, 2}", "{}",
    "{'a': 1}", "[('x', '<f4')]", "[[]]", "(" * 60_000, "(" * 5000, "[" * 500 + "]" * 500, "lambda: 0",
    "__import__('os')", "5 if 1 else 2", "1 + 4", "\0", "\n", "\t5", "# ", "é", "\\", "}", "{",
)  # fmt: skip
"""Values for the header of an .npy file: Python literals of every kind, and text that is none."""


def array_headers(folder: Path) -> Target:
    """.npz files whose arrays have headers of any content."""
    arrays = {"offsets": ("'<i8'", "(3,)", np.array([0, 3, 5], "<i8")), "pen_up": ("'|u1'", "(5,)", bytes(5)),
              "points": ("'<f8'", "(5, 2)", np.arange(10.0)), "names": ("'|S1'", "(2,)", b"ab")}  # fmt: skip

    def run(rng: random.Random) -> None:
        damaged = rng.choice(sorted(arrays))
        with zipfile.ZipFile(folder / "a.npz", "w") as file:
            for name, (descr, shape, body) in arrays.items():
                fields = {"descr": descr, "fortran_order": "False", "shape": shape}
                header, version = "", 1
                if name == damaged:
                    version = rng.choice((1, 2, 2, 2, 2, 2, 2, 3, 255))
                    body = rng.choice((body, body, bytes(1), bytes(rng.randrange(99))))
                    for field in rng.sample(sorted(fields), rng.choice((0, 1, 1, 1, 2, 3))):
                        fields[rng.choice((field, field, field, "other"))] = rng.choice(LITERALS)
                    header = rng.choice(("", "", "", "", "", "", "", rng.choice(LITERALS)))
                header = header or "{" + ", ".join(f"'{key}': {value}" for key, value in fields.items()) + ", }\n"
                written = header.encode()[: 65535 if version < 2 else None]
                size = len(written) + (rng.choice((0, 0, 0, 0, 0, 0, 0, -1, 1, 99)) if name == damaged else 0)
                length = struct.pack("<H" if version < 2 else "<I", max(0, min(size, 65535 if version < 2 else size)))
                data = b"\x93NUMPY" + bytes([version, 0]) + length + written + bytes(body)
                if name == damaged and rng.randrange(8) == 0:
                    data = mutate(rng, data)
                file.writestr(f"{name}.npy", data)
        assert np.isfinite(read_strokes(folder / "a.npz").steps).all()

    return run


def line_files() -> list[bytes]:
    """Line files of IAM-OnDB, made up."""
    points = "".join(f'<Point x="{100 + 7 * k % 90}" y="{50 + k}" time="{k}.5"/>\n' for k in range(9))
    stroke = f'<Stroke colour="black" start_time="1" end_time="2">\n{points}</Stroke>\n'
    head = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<WhiteboardCaptureSession>\n<StrokeSet>\n'
    return [(head + stroke * n + "</StrokeSet>\n</WhiteboardCaptureSession>\n").encode() for n in (1, 2, 3, 4)]


def xml(folder: Path) -> Target:
    """A line file of IAM-OnDB."""
    seeds = line_files()

    def run(rng: random.Random) -> None:
        (folder / "a01-000-01.xml").write_bytes(mutate(rng, rng.choice(seeds)))
        assert len(read_line(folder / "a01-000-01.xml").steps) > 0

    return run


def rewritten(directory: Path, files: dict[str, bytes]) -> None:
    """A checkpoint of these files whose manifest fits them."""
    listed = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    for name, data in files.items():
        (directory / name).write_bytes(data)
    (directory / "manifest.json").write_bytes(to_json({"format": checkpoint.FORMAT, "files": listed}))


MANIFEST = (10**15, 2**63 - 1, 2**63, 2**64, 10**40, 10**4000, -1, -(2**63), 0, 1, 1e300, True, None, "", "9", "../x",
            "x" * 60_000, "\u0000", "0" * 64, [], [1] * 9999, {}, {"size": 1, "sha256": ""})  # fmt: skip
"""Values for the fields of a manifest."""


def manifests(folder: Path) -> Target:
    """Checkpoint directories whose manifest is valid JSON, with other values and names in it."""
    tiny_strokes.save(folder / "saved", tiny_strokes.model())
    path = folder / "saved" / "manifest.json"
    whole = path.read_bytes()

    def run(rng: random.Random) -> None:
        manifest = json.loads(whole)
        part: Any = rng.choice((manifest, manifest["files"], *[rng.choice(list(manifest["files"].values()))] * 4))
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice([*part, "more", "../x", "training.json", "x" * 50_000])
            part[name] = rng.choice(MANIFEST)
            if rng.randrange(8) == 0:
                del part[name]
        path.write_bytes(to_json(manifest) if rng.randrange(8) else json.dumps(manifest).encode())
        checkpoint.read(folder / "saved")
        assert json.loads(path.read_bytes()) == json.loads(whole), "another manifest was accepted"

    return run


def contents(folder: Path) -> Target:
    """Checkpoints that are intact by their checksums, and hold names, sizes and lists of any length."""
    model = tiny_strokes.model()
    tiny_strokes.save(folder / "saved", model)
    whole = {path.name: path.read_bytes() for path in (folder / "saved").iterdir() if path.name != "manifest.json"}
    long = ("x" * 3_000_000, "x" * 2000 + "\n" * 50, "", "rnn.U.0")

    def run(rng: random.Random) -> None:
        files = dict(whole)
        if rng.randrange(2):
            tensors = safetensors.torch.load(files["model.safetensors"])
            name = rng.choice(sorted(tensors))
            shape = rng.choice(([], [0], [1] * 2000, [3, 2], [0, 2**40], list(tensors[name].shape)))
            kind = rng.choice((torch.float32, torch.float16, torch.int8, torch.bool))
            tensor = tensors.pop(name) if rng.randrange(3) == 0 else torch.zeros(shape, dtype=kind)
            tensors[rng.choice((name, *long))] = tensor
            files["model.safetensors"] = safetensors.torch.save(tensors)
        else:
            which = rng.choice(("config.json", "scale.json"))
            data = json.loads(files[which])
            part = rng.choice([data, *(value for value in data.values() if isinstance(value, dict))])
            key = rng.choice([*part, *long])
            part[key] = rng.choice(([1] * 100_000, ["x"] * 100_000, [[1] * 9999], "x" * 100_000, 10**4000, {}, [2**62]))
            files[which] = json.dumps(data).encode()
        rewritten(folder / "saved", files)
        load(folder / "saved")

    return run


def checkpoints(folder: Path) -> Target:
    """Checkpoint directories of text and of handwriting; half of them with a manifest that fits the damage."""
    saved = tiny.trainer(tiny.config(layer_norm=True)).snapshot(training=True)
    tiny_strokes.save(folder / "strokes", tiny_strokes.model())
    checkpoint.write(folder / "text", saved)
    whole = {name: {path.name: path.read_bytes() for path in (folder / name).iterdir()} for name in ("text", "strokes")}

    def run(rng: random.Random) -> None:
        name = rng.choice(("text", "strokes"))
        files = dict(whole[name])
        damaged = rng.choice(sorted(files))
        files[damaged] = mutate(rng, files[damaged])
        fits = damaged != "manifest.json" and rng.randrange(2) == 0
        if fits:
            files.pop("manifest.json")
            rewritten(folder / name, files)
        else:
            for file, data in files.items():
                (folder / name / file).write_bytes(data)
        changed = files[damaged] != whole[name][damaged]
        checkpoint.read(folder / name, training=name == "text")
        load(folder / name)
        assert fits or not changed, f"{damaged} is damaged, and was loaded"

    return run


def configs(folder: Path) -> Target:
    """config.json, whole or edited value by value."""
    whole = to_json(tiny.config())
    values: list[Any] = [None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, -0.0, "", "x" * 1000, [], [[]], {}, [1, 2]]

    def run(rng: random.Random) -> None:
        data = json.loads(whole)
        part = rng.choice(sorted(data))
        name = rng.choice(sorted(data[part]))
        if rng.randrange(2):
            data[part][name] = rng.choice(values)
            from_json(json.dumps(data).encode(), Config, "config.json").check()
        else:
            from_json(mutate(rng, whole), Config, "config.json").check()

    return run


TARGETS: dict[str, Callable[[Path], Target]] = {
    "text loader": texts,
    "stroke archives": stroke_archives,
    "array headers": array_headers,
    "XML": xml,
    "checkpoint directories": checkpoints,
    "manifests": manifests,
    "checkpoint contents": contents,
    "config JSON": configs,
}
