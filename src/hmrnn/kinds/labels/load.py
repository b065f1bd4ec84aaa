"""The corpus of files of labelled sequences, or of series to forecast."""

from __future__ import annotations

import dataclasses
import reprlib
from pathlib import Path
from typing import Any

from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.labels.answers import ANSWERS
from hmrnn.kinds.labels.corpus import LabelCorpus, forecast_corpus, make_corpus
from hmrnn.kinds.labels.files import check_no_header, parse
from hmrnn.kinds.labels.sequences import columns, of_file, sequences
from hmrnn.kinds.labels.settings import SeriesData
from hmrnn.utils import archives
from hmrnn.utils.inputs import decoded


def load_labelled(config: Any, progress: Progress = None) -> LabelCorpus:
    """The corpus of one or more files of ``config.format``."""
    modality: str = config.format
    if not config.path:
        raise InputError(
            f"must name a file of {modality}: {ANSWERS[modality].formats}", setting="data.path", value=config.path
        )
    paths = [Path(path).expanduser() for path in config.path]
    name = ", ".join(path.name for path in paths)
    report = archives.count_progress(progress, sum(path.stat().st_size for path in paths if path.is_file()))
    texts = ((path, decoded(archives.read_whole(path, report), str(path))) for path in paths)
    found = [(path, parse(text, path.name, modality)) for path, text in texts]
    given = [sequence for _, one in found for sequence in one.sequences]
    share = config.valid_fraction
    if isinstance(config, SeriesData):
        with of_file(name):
            series = sequences(given, series=True)
            return forecast_corpus(
                series, config.ahead, config.reads, name=name, valid_fraction=share, channels=columns(given[0])
            )
    answers, first = [], []
    for path, one in found:
        if one.answers is None:
            raise InputError(f"{path} holds no {ANSWERS[modality].field}; expected {ANSWERS[modality].formats}")
        if modality == "labels" and one.maybe_header:
            check_no_header(str(path), one.answers)
        if modality == "pairs" and one.maybe_header:
            first.append(f"{reprlib.repr(one.sequences[0])} -> {reprlib.repr(one.answers[0])}")
        answers += one.answers
    with of_file(name):
        corpus = make_corpus(modality, given, answers, valid_fraction=share, seed=config.split_seed, name=name)
    return dataclasses.replace(corpus, first=", ".join(first))
