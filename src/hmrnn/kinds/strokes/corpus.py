"""Corpora of pen strokes: read from files or from the cache, and split into training, validation and test."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.config import SPLITS
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.strokes import iamondb, synthetic
from hmrnn.kinds.strokes.files import is_stroke_file, read_file, save_archive
from hmrnn.kinds.strokes.settings import LineData, StrokeData
from hmrnn.kinds.strokes.strokes import FEWEST, Scale, StrokeCorpus, Strokes, counted, joined
from hmrnn.reading.conditions import read_conditions
from hmrnn.utils.archives import count_progress
from hmrnn.utils.cache import SourceState, entry_names, folder, source_state, total_size, unusable

_CACHE_VERSION = 2
MOST_UNUSUAL = 2.5
"""A text does not fit a line that has so many times as many points a letter as most lines, or as few."""


def load_strokes(config: LineData, progress: Progress = None, *, texts: bool = False) -> StrokeCorpus:
    """The corpus that ``config`` names. Parsed XML files and synthetic handwriting are cached.

    ``progress`` is called with the bytes read so far and the total (of synthetic handwriting: lines). With ``texts``
    lines are left out, and named, that have no text or one that does not fit.
    """
    given = {field.name: getattr(config, field.name) for field in dataclasses.fields(LineData)}
    config = StrokeData(**{**given, "format": config.format.removesuffix("-read")})
    found = read_collection(config, progress)
    if config.condition:
        found = dataclasses.replace(found, conditions=read_conditions(config.condition))
        if len(found.conditions) != len(found):
            raise InputError(
                f"has {len(found.conditions)} rows for {counted(len(found), 'line')}; give one row per line",
                setting="data.condition",
                value=config.condition,
            )
    fewest = config.min_points or (300 if config.format == "iamondb" else FEWEST)
    kept = np.flatnonzero(found.lengths >= fewest)
    title = _title(config)
    if not kept.size:
        raise InputError(
            f"every line of {title} has fewer points (the longest has {found.lengths.max()})",
            setting="data.min_points",
            value=fewest,
        )
    strokes = found.select(kept)
    strokes = _with_texts(strokes, title) if texts else strokes
    train, valid, test = (strokes.select(part) for part in _split(config, strokes, title))
    return StrokeCorpus(title, Scale.of(train), train, valid, test, len(found) - len(kept))


def _with_texts(strokes: Strokes, title: str) -> Strokes:
    """The lines whose text fits them: of about as many points a letter as most have."""
    counts = np.array([len(text.strip()) for text in strokes.texts or [""] * len(strokes)])
    said = counts > 0
    if not said.any():
        raise InputError(
            f"{title} does not say what its lines say; a window needs a text for each", setting="data.path"
        )
    each = strokes.lengths / counts.clip(min=1)
    usual = float(np.median(each[said]))
    fits = said & (each > usual / MOST_UNUSUAL) & (each < usual * MOST_UNUSUAL)
    reasons = (
        f"{name}: {f'{points:.0f} points a letter, where most lines have {usual:.0f}' if known else 'no text'}"
        for name, points, known, fit in zip(strokes.names, each, said, fits)
        if not fit
    )
    return dataclasses.replace(strokes.select(np.flatnonzero(fits)), skipped=(*strokes.skipped, *reasons))


def read_collection(config: StrokeData, progress: Progress = None) -> Strokes:
    """All strokes that ``config`` names, before short lines are left out and the rest is split."""
    if config.format in ("handwritten", "fonts"):
        how = {"words": config.words} if config.format == "fonts" else {}
        draw: Any = synthetic.set_lines if how else synthetic.write_lines
        key = [config.format, synthetic.VERSION, config.lines, *how.values()]
        return _cached(config, key, [], lambda: draw(config.lines, progress=progress, **how))
    paths = [Path(os.path.expanduser(name)) for name in config.path]
    alone = len(paths) == 1 and is_stroke_file(paths[0])
    if paths and config.format == "iamondb" and not alone:
        return _read_iamondb(config, paths, progress)
    if paths and all(map(iamondb.is_iamondb, paths)):  # its official sets are for the format iamondb
        return dataclasses.replace(_read_iamondb(config, paths, progress), split=())
    found = [
        sorted(p for p in path.rglob("*") if p.is_file() and is_stroke_file(p)) if path.is_dir() else [path]
        for path in paths
    ]
    if not found or not all(found):
        raise InputError(
            "must name files of strokes (.npz, .json, .csv) or folders with such; for IAM-OnDB its folder, "
            "lineStrokes-all.tar.gz or an archive",
            setting="data.path",
            value=config.path,
        )
    files = [file for each in found for file in each]
    report = count_progress(progress, total_size(source_state(files)))
    return joined([read_file(path, report) for path in files])


def _read_iamondb(config: StrokeData, paths: list[Path], progress: Progress) -> Strokes:
    """IAM-OnDB from its XML files, or from the cache."""
    sources = iamondb.find_sources(paths)
    inside = [p for path in paths if path.is_dir() for p in sorted(path.rglob("*.npz*")) if is_stroke_file(p)]
    state = source_state(sources)
    report = count_progress(progress, total_size(state))
    key = [config.format, [os.path.abspath(path) for path in paths]]
    found = _cached(config, key, state, lambda: iamondb.read_iamondb(sources, report))
    unread = (f"{name}: archives in folders are not read; give it alone to read it instead" for name in inside)
    return dataclasses.replace(found, skipped=(*found.skipped, *unread))


def write_archive(config: StrokeData, path: str | Path, progress: Progress = None) -> int:
    """Write all strokes that ``config`` names to one compact archive, and return the number of lines."""
    path = Path(os.path.expanduser(path))
    if path.suffix != ".npz" or path.exists():
        raise InputError(f"an archive of strokes must be a new file whose name ends in .npz; got {path}")
    found = read_collection(config, progress)
    save_archive(found, path)
    return len(found)


def _split(config: StrokeData, strokes: Strokes, title: str) -> list[np.ndarray]:
    """The indices of the lines of training, validation and test."""
    official = config.split == "official"
    if not official and (config.format == "iamondb" or not strokes.split):
        parts, unknown = _random_parts(config, strokes), set[str]()
    else:
        named = [iamondb.SETS.get(part, "none") if official else part for part in strokes.split]
        parts = [np.flatnonzero(np.array(named) == part) for part in SPLITS]
        unknown = set() if official else {*named} - {*SPLITS}
    if unknown or not all(part.size for part in parts):
        has = dict(collections.Counter(strokes.split)) or "no split"
        raise InputError(
            f"{title}: train, valid and test need a line each, and every line must be in one of them; of "
            f"{counted(len(strokes), 'line')} there are {has}; official parts are in trainset.txt, testset_v.txt and "
            "testset_f.txt, and need data.format iamondb",
            setting="data.split" if official else "",
        )
    return parts


def _random_parts(config: StrokeData, strokes: Strokes) -> list[np.ndarray]:
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


def _title(config: StrokeData) -> str:
    if config.format == "strokes":
        return ", ".join(Path(path).name for path in config.path)
    return f"iamondb, {config.split} split" if config.format == "iamondb" else config.format


def _cached(config: StrokeData, key: object, state: SourceState, make: Callable[[], Strokes]) -> Strokes:
    """The result of ``make``, cached as an archive until ``state`` changes."""
    cache = folder(config.cache)
    prefix, name = entry_names(key, _CACHE_VERSION, state)
    entry = cache / f"strokes-{name}.npz"
    if entry.is_file():
        try:
            return read_file(entry, lambda count: None)
        except InputError:  # damaged: made again below
            entry.unlink(missing_ok=True)
    found = make()
    if source_state(Path(path) for path, _, _ in state) != state:
        raise InputError("the files changed while they were read; try again when they are complete")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        save_archive(found, entry, advice=None)
        for old in cache.glob(f"strokes-{prefix}*.npz"):
            if old != entry:
                old.unlink(missing_ok=True)
    except OSError as error:
        raise unusable(cache, error) from error
    return found
