"""How well is a text written, and how well is handwriting read: every figure of IAM-OnDB with one command.

    python benchmarks/handwriting.py iamondb --device cuda --folder runs/iamondb --out iamondb-text.jsonl
    python benchmarks/handwriting.py lines.npz --transcripts ascii-all.tar.gz --device cuda --folder runs/iamondb
    python benchmarks/handwriting.py fonts --folder runs/fonts --toy

Trains, on the same lines, writers (with a soft window, one moved by a detector, none) and readers (HM-LSTM, nn.LSTM),
and appends a line of JSON for each figure: nats of the test part given the text and without; errors of each reader on
the test part, and on lines that each writer wrote, with how many of these are broken. What has been trained in the
folder is used again, and a run that was stopped goes on; --only names the runs to train. --toy is a rehearsal.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import hmrnn
from hmrnn.analysis.edits import edit_distance
from hmrnn.config import Config
from hmrnn.config.json import to_json
from hmrnn.kinds.strokes import iamondb
from hmrnn.kinds.strokes.corpus import load_strokes
from hmrnn.kinds.strokes.files import read_strokes, save_archive
from hmrnn.kinds.strokes.model import MOST_POINTS, StrokeModel
from hmrnn.kinds.strokes.presets import PRESETS, READING
from hmrnn.kinds.strokes.settings import StrokeData
from hmrnn.kinds.strokes.strokes import Strokes, joined
from hmrnn.kinds.strokes.transcripts import TranscriptModel, legibility
from hmrnn.training.rundir import RunDirectory
from machine import environment

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "read-lstm": ("read", {}),
    "text-soft": ("text", {}),
    "text-none": ("text", {"model.window": "none", "model.num_layers": 3, "detectors.rates": (0.85, 0.15)}),
    "read": (
        "read",
        {
            "model.rnn": "hm-lstm",
            "model.flush": False,
            "model.top_down": "pending",
            "detectors.rates": (0.7, 0.4),
            "detectors.start_at_rates": True,
            "detectors.rate_weight": 0.0,
            "detectors.rate_control": 0.05,
            "detectors.on_copy": "hold",
        },
    ),
    "text-detector": ("text", {"model.window": "detector"}),
}
"""By name: the end of the name of a preset, and what differs."""
TOY = {"model.hidden_size": (16,), "model.output_size": 16, "train.epochs": 1, "train.batch_size": 8}
BATCH, BROKEN = 50, 0.5


def prepare(source: str, transcripts: str | None, archive: Path, most: int | None) -> None:
    """All lines with texts that fit them, in the parts of the official split, as one archive."""
    if source == "fonts":
        data: dict[str, Any] = {"format": "fonts", "lines": most or 15_000}
    else:
        data = {"format": "iamondb", "path": (source,), "split": "official", "min_points": 2}
    if transcripts:
        data["path"] = (str(with_texts(source, transcripts, archive.with_name("texts.npz"))),)
    corpus = load_strokes(StrokeData(**data), texts=True)
    parts = [
        part.select(range(min(len(part), most or len(part)))) for part in (corpus.train, corpus.valid, corpus.test)
    ]
    split = itertools.chain.from_iterable([name] * len(part) for name, part in zip(("train", "valid", "test"), parts))
    every = dataclasses.replace(joined(parts), split=tuple(split))
    save_archive(every, archive)
    print(f"{archive}: {', '.join(str(len(part)) for part in parts)} lines; {len(corpus.train.skipped)} left out")


def with_texts(lines: str, transcripts: str, out: Path) -> Path:
    """An archive of IAM-OnDB without texts, completed by those of ascii-all.tar.gz."""
    strokes = read_strokes(lines)
    said = {
        (name.rsplit("/", 1)[-1].removesuffix(".txt"), number): line
        for name, content in iamondb._files(Path(transcripts), lambda count: None)
        if isinstance(content, bytes) and iamondb._kind(name.rsplit("/", 1)[-1]) == "transcript"
        for number, line in enumerate(iamondb._transcript(content.decode("utf-8", "replace")), start=1)
    }
    forms = [name.rpartition("-")[::2] for name in strokes.names]
    texts = tuple(said.get((form, int(number)), "") for form, number in forms)
    out.unlink(missing_ok=True)
    save_archive(dataclasses.replace(strokes, texts=texts), out)
    return out


def trained(name: str, args: argparse.Namespace, archive: Path) -> Any:
    """The model of a run, which is trained first unless it has been."""
    what, changes = RUNS[name]
    preset: Config = {"read": READING["iamondb-read"], "text": PRESETS["iamondb-text"]}[what]
    form = "strokes-read" if what == "read" else "strokes"
    config = dataclasses.replace(preset, data=type(preset.data)(format=form, path=(str(archive),)))
    toy = {**TOY, "model.num_layers": preset.model.num_layers} if args.toy else {}
    config = config.changed({**toy, **changes, "train.device": args.device, "train.seed": args.seed})
    if args.epochs:
        config = config.changed({"train.epochs": args.epochs})
    out = args.folder / f"{name}-{args.seed}"
    return hmrnn.train(config, out=out, resume=RunDirectory(out).holds_run, progress=print if args.verbose else None)


def written(model: StrokeModel, lines: Strokes, seed: int) -> tuple[list[np.ndarray], int]:
    """Lines that say what these say, in their styles, and how many did not end by themselves."""
    made: list[np.ndarray] = []
    endless = 0
    for start in range(0, len(lines), BATCH):
        texts = lines.texts[start : start + BATCH]
        given = list(lines.conditions[start : start + BATCH]) or None
        drawn = [one.steps for one in model.write_many(texts, bias=1.0, seed=seed + start, condition=given)]
        endless += sum(len(line) == MOST_POINTS * max(map(len, texts)) for line in drawn)
        made += [np.concatenate([np.zeros((1, 3)), line]) for line in drawn]
    return made, endless


def figures(models: dict[str, Any], test: Strokes, count: int, seed: int) -> Any:
    """Names of runs, names of figures and values."""
    alphabets = [set(model.config.model.alphabet) for model in models.values() if model.config.model.alphabet]
    known = [k for k, text in enumerate(test.texts) if all(set(text) <= alphabet for alphabet in alphabets)]
    some = test.select(np.sort(np.random.default_rng(seed).permutation(known)[:count]))  # of letters that all have seen
    readers = {name: model for name, model in models.items() if isinstance(model, TranscriptModel)}
    for name, reader in readers.items():
        yield name, "errors on the test part", reader.score(test)._asdict()
    for name, model in models.items():
        if not isinstance(model, StrokeModel):
            continue
        found = model.score(test)
        yield name, "log-likelihood", {"nats": found.log_likelihood, "lines": found.sequences, "rates": found.rates}
        if model.network.window is not None and readers:
            lines, endless = written(model, some, seed)
            for by, reader in readers.items():
                said = [one.text for one in reader.predict(lines)]
                of = [edit_distance(a, b) / len(b) for a, b in zip(said, some.texts)]
                real = reader.score(some)
                yield name, f"errors of {by} on written lines", {
                    **legibility(said, some.texts)._asdict(), "broken": float(np.mean(np.array(of) > BROKEN)),
                    "endless": endless / len(lines), "letters_of_true_lines": real.letters, "bias": 1.0,
                }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="IAM-OnDB, as hmrnn train reads it, or fonts")
    parser.add_argument("--transcripts", help="ascii-all.tar.gz, if the data are an archive without texts")
    parser.add_argument("--folder", type=Path, default=Path("runs/handwriting"), help="where the runs are")
    parser.add_argument("--out", default="handwriting.jsonl")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="the runs to train and measure")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, help="of every run; those of the presets if not given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500, help="lines to write")
    parser.add_argument("--most", type=int, help="lines of each part, at most")
    parser.add_argument("--toy", action="store_true", help="tiny networks, one epoch")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    archive = args.folder / "lines.npz"
    if not archive.exists():
        prepare(args.data, args.transcripts, archive, args.most)
    models = {}
    for name in args.only:
        models[name] = trained(name, args, archive)
        print(f"{name}: trained", flush=True)
    lines = read_strokes(archive)
    test = lines.select(np.flatnonzero(np.array(lines.split) == "test"))
    for name, figure, values in figures(models, test, args.count, args.seed):
        config = json.loads(to_json(models[name].config))
        record = {"name": name, "figure": figure, "data": Path(args.data).name, "seed": args.seed, **values}
        with open(args.out, "a") as file:
            file.write(json.dumps({**record, "config": config, **environment(args.device)}) + "\n")
        print(record, flush=True)


if __name__ == "__main__":
    main()
