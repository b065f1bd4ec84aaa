"""Files of any size -> JSON lines with their segment ends, in bounded memory.

A file is read as a stream, a round of symbols at a time. A round is cut into parts that the network reads side by side;
each begins ``warmup`` symbols early, to build up its state.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hmrnn.analysis.scores import ends_of
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import BUILT_IN_TEXTS, DataConfig
from hmrnn.errors import InputError, TextNote
from hmrnn.kinds.text.evaluate import read_text as read_symbols
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.reading import Unknown, index_alike
from hmrnn.kinds.text.sources import find_files, read_text
from hmrnn.reading.segment import measured, on_time
from hmrnn.utils.archives import count_progress

Progress = Callable[[int, int], None]
ROUND = 1 << 18
"""Symbols of a round, unless there are so many streams that warming them up would take longer than reading them."""


def segment_files(
    model: TextModel,
    files: Sequence[str | Path],
    out: Path,
    *,
    streams: int = 16,
    warmup: int = 500,
    chunk: int = 256,
    unknown: Unknown = "replace",
    share: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
) -> list[Path]:
    """Segment files; returns those that were written, ``out/a.txt.jsonl`` for ``a.txt``.

    Args:
        files: what to read, in the data format of the model (built-in texts as text); process ``rank`` takes every
            world-th of them.
        streams: parts read side by side.
        warmup: symbols of left context that a part reads first, unless it is a file's first.
        chunk: the most symbols per line of the results.
        unknown: "replace" reads symbols that training never showed as others, one for one (see
            :func:`hmrnn.kinds.text.reading.index_alike`); "refuse" raises InputError.
        share: (rank, world) of this process.
        progress: called with the symbols read, and all.
    """
    if model.network.rnn.num_boundaries == 0:
        raise InputError("this model has no boundary detectors, so it finds no segments; train hm-lstm instead")
    if model.config.model.time != "none":
        raise InputError("a model that is told the time reads lines, not files of any size", setting="model.time")
    data = model.config.data
    data = dataclasses.replace(data, format="text" if data.format in BUILT_IN_TEXTS else data.format)
    every = [path for file in files for path in find_files(dataclasses.replace(data, path=(str(file),)))]
    if len({path.name for path in every}) < len(every):
        raise InputError("two of the files have the same name, and so would their results; rename one")
    mine = every[share[0] :: share[1]]
    targets = [out / f"{path.name}.jsonl" for path in mine]
    if any(target.exists() for target in targets):
        raise InputError(f"{out} already holds results; choose another folder")
    lengths = [_length(path, data, model, unknown) for path in mine]
    done = 0
    for path, target, length in zip(mine, targets, lengths):
        blocks = (index_alike(codes, model.vocabulary, unknown)[0] for codes, _ in _codes(path, data))
        size = max(ROUND, 8 * streams * max(warmup, chunk))
        parts = segments(model, blocks, size, streams=streams, warmup=warmup, chunk=chunk)
        partial = target.with_suffix(".part")
        try:
            out.mkdir(parents=True, exist_ok=True)
            with open(partial, "wb") as file:
                start = 0
                for found in on_time(parts, model.late):
                    file.write(_line(found, start, last=start + len(found) == length))
                    start += len(found)
                    if progress is not None:
                        progress(done + start, sum(lengths))
            if start != length:
                raise InputError(f"{path} changed while it was read; start again when it is complete")
            os.replace(partial, target)
        except OSError as error:
            raise InputError(f"cannot write to {out} ({error.strerror or error})") from error
        finally:
            partial.unlink(missing_ok=True)
        done += length
    return targets


def _codes(path: Path, data: DataConfig) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return read_text(path, data, count_progress(None, 0))


def _length(path: Path, data: DataConfig, model: TextModel, unknown: Unknown) -> int:
    """The symbols of a file, after a look at all of them."""
    length = others = 0
    for codes, _ in _codes(path, data):
        others += index_alike(codes, model.vocabulary, unknown, length)[1]
        length += len(codes)
    if length == 0:
        raise InputError(f"{path} is empty; there is nothing to segment")
    if others:
        note = f"{others:,} of {length:,} symbols of {path} were read as others: training never showed them"
        warnings.warn(note, TextNote, stacklevel=3)
    return length


def segments(
    model: TextModel, blocks: Iterator[np.ndarray], size: int, *, streams: int, warmup: int, chunk: int
) -> Iterator[Segmentation]:
    """What the network finds in the symbols of ``blocks``, a chunk of them at a time, in rounds of ``size``."""
    held, before, more = np.zeros(0, np.int64), 0, True
    while more:
        while more and len(held) < before + size:
            block = next(blocks, None)
            more = block is not None
            held = np.concatenate([held, held[:0] if block is None else block])
        symbols = held[: before + size]  # of them the first were read before, and build up the state
        lanes: list[list[Segmentation]] = []
        for at, counted, _, made in read_symbols(
            model.network, np.append(symbols, 0), streams=streams, warmup=warmup, chunk=chunk
        ):
            arrays = measured(model.network, made)
            for b in range(counted.shape[1]):
                inside = counted[:, b] & (at[:, b] >= before)
                if inside.any():
                    shown = model.vocabulary.pieces(symbols[at[inside, b]])
                    lanes += [[] for _ in range(b + 1 - len(lanes))]
                    lanes[b].append(Segmentation(tuple(shown), *(array[inside, b] for array in arrays)))
        for lane in lanes:
            yield from lane
        kept = min(warmup, len(symbols))
        held, before = held[len(symbols) - kept :], kept
        more = more or len(held) > before


def _line(found: Segmentation, start: int, *, last: bool) -> bytes:
    """The line of the results about the symbols from ``start`` on."""
    ends = [(ends_of(level) + start).tolist() for level in found.boundaries.T]
    if last:
        ends = [sorted({*level, start + len(found)}) for level in ends]
    assert found.products is not None
    line = {
        "start": start, "text": "".join(found.symbols), "ends": ends, "updates": list(found.updates().per_layer),
        "multiply_adds": int(found.products.sum()),
    }  # fmt: skip
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"
