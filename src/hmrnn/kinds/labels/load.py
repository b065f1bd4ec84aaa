"""The corpus of files of labelled sequences, or of series to forecast."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers import ANSWERS
from hmrnn.kinds.labels.corpus import LabelCorpus, forecast_corpus, make_corpus
from hmrnn.kinds.labels.files import check_no_header, decoded, parse, parse_series
from hmrnn.kinds.labels.sequences import names_in
from hmrnn.kinds.labels.settings import LabelData, SeriesData
from hmrnn.utils import archives

Progress = Callable[[int, int], None]


def load_labelled(config: Any, progress: Progress | None = None) -> LabelCorpus:
    """The corpus of one or more files of ``config.format``."""
    modality: str = config.format
    if not config.path:
        raise InputError(
            f"must name a file of {modality}: {ANSWERS[modality].formats}", setting="data.path", value=config.path
        )
    paths = [Path(path).expanduser() for path in config.path]
    name = ", ".join(path.name for path in paths)
    texts = _texts(paths, progress)
    return _series(config, texts, name) if modality == "series" else _labelled(config, modality, texts, name)


def _texts(paths: list[Path], progress: Progress | None) -> Iterator[tuple[Path, str]]:
    """Each file with its text."""
    report = archives.count_progress(progress, sum(path.stat().st_size for path in paths if path.is_file()))
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path} is a directory; name the files in it")
        yield path, decoded(archives.read_whole(path, report), str(path))


def _labelled(config: LabelData, modality: str, texts: Iterator[tuple[Path, str]], name: str) -> LabelCorpus:
    sequences, answers, first = [], [], []
    for path, text in texts:
        found = parse(text, path.name, modality)
        if found.answers is None:
            raise InputError(f"{path} holds no {ANSWERS[modality].field}; expected {ANSWERS[modality].formats}")
        if modality == "labels" and found.maybe_header:
            check_no_header(str(path), found.answers)
        if modality == "pairs" and found.maybe_header:
            first.append(f"{reprlib.repr(found.sequences[0])} -> {reprlib.repr(found.answers[0])}")
        sequences += found.sequences
        answers += found.answers
    corpus = make_corpus(
        modality, sequences, answers, name=name, valid_fraction=config.valid_fraction, seed=config.split_seed,
        names=names_in(name),
    )  # fmt: skip
    return dataclasses.replace(corpus, first=", ".join(first))


def _series(config: SeriesData, texts: Iterator[tuple[Path, str]], name: str) -> LabelCorpus:
    series: list[np.ndarray] = []
    channels: tuple[str, ...] = ()
    for path, text in texts:
        found, names = parse_series(text, path.name, channels)
        if series and found[0].shape[1] != series[0].shape[1]:
            got = f"{path.name} has {found[0].shape[1]}, and those before have {series[0].shape[1]}"
            raise InputError(f"all series must have as many channels; {got}")
        series += found
        channels = channels or names
    return forecast_corpus(
        series, config.ahead, config.reads, name=name, valid_fraction=config.valid_fraction, channels=channels
    )
