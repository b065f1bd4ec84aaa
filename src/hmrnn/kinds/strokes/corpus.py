"""Corpora of pen strokes: read from files or from the cache, and split into training, validation and test."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from hmrnn.config import SPLITS, DataConfig
from hmrnn.errors import InputError
from hmrnn.kinds.strokes import iamondb, synthetic
from hmrnn.kinds.strokes.files import is_stroke_file, read_file, save_archive
from hmrnn.kinds.strokes.strokes import FEWEST, Scale, StrokeCorpus, StrokeFile, Strokes, counted
from hmrnn.reading.conditions import read_conditions
from hmrnn.utils.archives import Progress, count_progress
from hmrnn.utils.cache import SourceState, entry_names, folder, source_state, total_size, unusable

_CACHE_VERSION = 2


def load_strokes(config: DataConfig, progress: Progress | None = None) -> StrokeCorpus:
    """The corpus that ``config`` names. Parsed XML files and synthetic handwriting are cached.

    ``progress`` is called with the bytes read so far and the total (of synthetic handwriting: lines).
    """
    file = read_collection(config, progress)
    if config.condition:
        rows = read_conditions(config.condition)
        if len(rows) != len(file.strokes):
            raise InputError(
                f"has {len(rows)} rows for {counted(len(file.strokes), 'line')}; give one row per line",
                setting="data.condition",
                value=config.condition,
            )
        file = dataclasses.replace(file, strokes=dataclasses.replace(file.strokes, conditions=rows))
    fewest = config.min_points or (300 if config.format == "iamondb" else FEWEST)
    kept = np.flatnonzero(file.strokes.lengths >= fewest)
    title = _title(config)
    if not kept.size:
        longest = file.strokes.lengths.max()
        raise InputError(
            f"every line of {title} has fewer points (the longest has {longest})",
            setting="data.min_points",
            value=fewest,
        )
    strokes = file.strokes.select(kept)
    split = None if file.split is None else [file.split[i] for i in kept]
    parts = [strokes.select(part) for part in _split(config, strokes, split, title)]
    short = len(file.strokes) - len(kept)
    return StrokeCorpus(title, parts[0], parts[1], parts[2], Scale.of(parts[0]), file.skipped, short)


def leave_out_short(strokes: Strokes, source: str) -> tuple[Strokes, tuple[str, ...]]:
    """The lines of at least ``FEWEST`` points and the names of the others; InputError if no line is left."""
    kept = np.flatnonzero(strokes.lengths >= FEWEST)
    if not kept.size:
        raise InputError(
            f"{source}: every line has fewer than {FEWEST} points (one to read, one to predict); give longer lines"
        )
    return strokes.select(kept), tuple(strokes.names[i] for i in np.flatnonzero(strokes.lengths < FEWEST))


def read_collection(config: DataConfig, progress: Progress | None = None) -> StrokeFile:
    """All strokes that ``config`` names, before short lines are left out and the rest is split."""
    if config.format == "handwritten":
        key = [config.format, synthetic.VERSION, config.lines]
        return _cached(config, key, [], lambda: synthetic.write_lines(config.lines, progress=progress))
    if not config.path:
        what = "lineStrokes-all.tar.gz, a folder or an archive" if config.format == "iamondb" else "files of strokes"
        raise InputError(f"format {config.format} needs {what}", setting="data.path")
    paths = [Path(os.path.expanduser(name)) for name in config.path]
    if config.format == "iamondb" and not (len(paths) == 1 and is_stroke_file(paths[0])):
        return _read_iamondb(config, paths, progress)
    if all(map(iamondb.is_iamondb, paths)):  # its official sets are for the format iamondb
        return dataclasses.replace(_read_iamondb(config, paths, progress), split=None)
    files = _stroke_files(paths)
    report = count_progress(progress, total_size(source_state(files)))
    return _joined(files, [read_file(path, report) for path in files])


def _read_iamondb(config: DataConfig, paths: Sequence[Path], progress: Progress | None) -> StrokeFile:
    """IAM-OnDB from its XML files, or from the cache."""
    sources = iamondb.find_sources(paths)
    inside = (p for path in paths if path.is_dir() for p in sorted(path.rglob("*.npz*")))
    archives = [str(p) for p in inside if is_stroke_file(p)]
    if not sources:
        instead = f"; if {archives[0]} is an archive of it, give that file" if archives else ""
        raise InputError(
            f"{', '.join(config.path)} holds no part of IAM-OnDB: no folder lineStrokes with files like "
            f"a01-000u-01.xml, no lineStrokes-all.tar.gz{instead}"
        )
    state = source_state(sources)
    report = count_progress(progress, total_size(state))
    key = [config.format, [os.path.abspath(path) for path in paths]]
    file = _cached(config, key, state, lambda: iamondb.read_iamondb(sources, report))
    unread = (f"{name}: archives in folders are not read; give it alone to read it instead" for name in archives)
    return dataclasses.replace(file, skipped=(*file.skipped, *unread))


def write_archive(config: DataConfig, path: str | Path, progress: Progress | None = None) -> int:
    """Write all strokes that ``config`` names to one compact archive, and return the number of lines."""
    path = Path(os.path.expanduser(path))
    if path.suffix != ".npz":
        raise InputError(f"the name of an archive of strokes must end in .npz; got {path}")
    if path.exists():
        raise InputError(f"{path} exists already; remove it or choose another name")
    file = read_collection(config, progress)
    save_archive(file, path)
    return len(file.strokes)


def _stroke_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(p for p in path.rglob("*") if p.is_file() and is_stroke_file(p))
        if not found:
            raise InputError(f"{path} is a folder without .npz, .json or .csv files; give files of strokes")
        files += found
    return files


def _joined(paths: Sequence[Path], files: Sequence[StrokeFile]) -> StrokeFile:
    """The contents of several files as one; either all of them have a split or none has."""
    if len(files) == 1:
        return files[0]
    without = [path for path, file in zip(paths, files) if file.split is None]
    if 0 < len(without) < len(files):
        raise InputError(f"{without[0]} has no split, and other files have one; give one to all or to none")
    sets = [file.strokes for file in files]
    ends = np.cumsum([0, *(len(s.steps) for s in sets)])
    offsets = np.concatenate([[0], *(s.offsets[1:] + end for s, end in zip(sets, ends))])
    names = tuple(name for s in sets for name in s.names)
    texts = tuple(text for s in sets for text in s.texts or [""] * len(s)) if any(s.texts for s in sets) else None
    split = tuple(part for file in files for part in file.split or ())
    strokes = Strokes(offsets, np.concatenate([s.steps for s in sets]), names, texts)
    skipped = tuple(reason for file in files for reason in file.skipped)
    return StrokeFile(strokes, split or None, skipped=skipped)


def _split(config: DataConfig, strokes: Strokes, split: list[str] | None, title: str) -> list[np.ndarray]:
    """The indices of the lines of training, validation and test."""
    if config.format == "iamondb" and config.split == "paper":
        split = None
    if config.format == "iamondb" and config.split == "official":
        if split is None:
            raise InputError(
                "the official split needs trainset.txt, testset_v.txt and testset_f.txt; add them to data.path",
                setting="data.split",
                value="official",
            )
        split = [iamondb.SETS.get(name, "none") for name in split]
    elif split is not None and (wrong := sorted(set(split) - set(SPLITS))):
        raise InputError(
            f"{title}: split must be train, valid or test; got {wrong[0][:40]!r}; for IAM-OnDB use format iamondb"
        )
    if split is None:
        parts = _random_parts(config, strokes)
    else:
        parts = [np.flatnonzero(np.array(split) == name) for name in SPLITS]
    for name, part in zip(SPLITS, parts):
        if not part.size:
            lines = counted(len(strokes), "line")
            raise InputError(f"{title}: of {lines} none is left for the {name} part; each part needs at least one")
    return parts


def _random_parts(config: DataConfig, strokes: Strokes) -> list[np.ndarray]:
    """A random split, by a hash of seed and name: it depends neither on other lines nor on the version of NumPy.

    The training and the validation part are rounded down, but each part has a line if there are three. 11,628 lines
    give 10,465, 581 and 582, as in the paper.
    """
    seed = str(config.split_seed).encode()
    keys = [hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=seed[:64]).digest() for name in strokes.names]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
    total = len(keys)
    valid, test = Fraction(str(config.valid_fraction)), Fraction(str(config.test_fraction))
    validation = max(1, int(total * valid))
    training = max(1, min(int(total * (1 - valid - test)), total - validation - 1))
    return [np.sort(part) for part in np.split(order, [training, training + validation])]


def _title(config: DataConfig) -> str:
    if config.format == "strokes":
        return ", ".join(Path(path).name for path in config.path)
    return f"iamondb, {config.split} split" if config.format == "iamondb" else config.format


def _cached(config: DataConfig, key: object, state: SourceState, make: Callable[[], StrokeFile]) -> StrokeFile:
    """The result of ``make``, cached as an archive until ``state`` changes."""
    cache = folder(config.cache)
    prefix, name = entry_names(key, _CACHE_VERSION, state)
    entry = cache / f"strokes-{name}.npz"
    if entry.is_file():
        try:
            return read_file(entry, lambda count: None)
        except InputError:  # damaged: made again below
            entry.unlink(missing_ok=True)
    file = make()
    if source_state(Path(path) for path, _, _ in state) != state:
        raise InputError("the files changed while they were read; try again when they are complete")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        save_archive(file, entry, advice=None)
        for old in cache.glob(f"strokes-{prefix}*.npz"):
            if old != entry:
                old.unlink(missing_ok=True)
    except OSError as error:
        raise unusable(cache, error) from error
    return file
