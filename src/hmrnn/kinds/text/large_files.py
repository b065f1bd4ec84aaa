"""Files of any size -> JSON lines with their segment ends, in bounded memory.

A file is read in blocks. A block is cut into parts that the network reads side by side; each begins ``warmup`` symbols
early, to build up its state.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hmrnn.analysis.scores import ends_of
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError, TextNote
from hmrnn.kind import Progress
from hmrnn.kinds.text.corpus import as_files
from hmrnn.kinds.text.evaluate import read_text as read_symbols
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.sources import find_files, read_text
from hmrnn.reading.read import check_detectors, measured, on_time
from hmrnn.reading.vocabulary import Reading, Unknown, read_as
from hmrnn.utils.archives import Report, count_progress
from hmrnn.utils.cache import source_state, total_size
from hmrnn.utils.files import ADVICE, replacing


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
    progress: Progress = None,
) -> list[Path]:
    """Segment files; returns those that were written, ``out/a.txt.jsonl`` for ``a.txt``.

    Args:
        files: what to read, in the data format of the model (built-in texts as text).
        streams: parts of a block read side by side.
        warmup: symbols of left context that a part reads first, unless it is a file's first.
        chunk: the most symbols per line of the results.
        unknown: as of ``model.segment``; what is skipped is in the results all the same.
        share: (rank, world) of this process, which takes every world-th of the files.
        progress: called with the bytes read, and all.
    """
    check_detectors(model.network)
    if not model.network.rnn.num_boundaries:
        raise InputError("a network of one layer finds no segments", setting="model.num_layers", value=1)
    if model.config.model.time != "none":
        raise InputError("a model that reads the time reads lines, not files of any size", setting="model.time")
    every = find_files(as_files(model.config.data, [str(file) for file in files]))
    mine = every[share[0] :: share[1]]
    targets = [out / f"{path.name}.jsonl" for path in mine]
    if len({path.name for path in every}) < len(every) or any(target.exists() for target in targets):
        raise InputError(
            f"{out} holds results of one of these files already, or two of them have the same name; choose another "
            "folder, or rename a file"
        )
    for path in mine:  # before hours are spent on others
        whole = read_text(path, as_files(model.config.data, [str(path)]), lambda count: None)
        if not sum(len(block) for block, _ in whole):
            raise InputError(f"{path} holds nothing to segment; leave it out")
    report = count_progress(progress, total_size(source_state(mine)))
    for path, target in zip(mine, targets):
        blocks, read = itertools.tee(_blocks(model, path, unknown, report))
        found = on_time(_found(model, read, streams, warmup, chunk), model.late)
        parts = (part.regroup(block.symbols, block.counts) for block, part in zip(blocks, found))
        lines = (part[k : k + chunk] for part in parts for k in range(0, len(part), chunk))
        with contextlib.suppress(OSError):  # what is wrong is said below
            out.mkdir(parents=True, exist_ok=True)
        with replacing(target, advice=ADVICE) as file:
            start = 0
            for part, following in itertools.pairwise(itertools.chain(lines, [None])):
                assert part is not None
                file.write(_line(part, start, last=following is None))
                start += len(part)
    return targets


def _blocks(model: TextModel, path: Path, unknown: Unknown, report: Report) -> Iterator[Reading]:
    """What the model reads of a file; at its end a note says how many symbols were read as others."""
    vocabulary, length, others = model.vocabulary, 0, 0
    codes = nothing = np.zeros(0, np.uint8)
    blocks = (block for block, _ in read_text(path, as_files(model.config.data, [str(path)]), report) if len(block))
    for block in itertools.chain(blocks, [nothing]):
        if len(block) == 1 or not len(codes):  # a symbol alone may be read as nothing
            codes = np.concatenate([codes, block])
            continue
        text = codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        text = text if vocabulary.kind == "characters" else codes.tobytes().decode("utf-8", "surrogateescape")
        yield read_as(text, vocabulary, unknown, offset=length)
        length, others = length + len(codes), others + int(np.count_nonzero(~vocabulary.knows(codes)))
        codes = block
    if others:
        note = f"{others:,} of {length:,} symbols of {path} were read as others: training never showed them"
        warnings.warn(note, TextNote, stacklevel=3)


def _found(
    model: TextModel, blocks: Iterable[Reading], streams: int, warmup: int, chunk: int
) -> Iterator[Segmentation]:
    """What the network finds in each block."""
    before = np.zeros(0, np.int64)
    for block in blocks:
        symbols = np.concatenate([before, block.indices])
        arrays: list[np.ndarray] = []
        read = read_symbols(model.network, np.append(symbols, 0), streams=streams, warmup=warmup, chunk=chunk)
        for at, counted, _, made in read:
            found = measured(model.network, made)
            arrays = arrays or [np.zeros((len(symbols), *array.shape[2:]), array.dtype) for array in found]
            for whole, array in zip(arrays, found):
                whole[at[counted]] = array[counted]
        yield Segmentation(tuple(model.vocabulary.pieces(symbols)), *arrays)[len(before) :]
        before = symbols[max(0, len(symbols) - warmup) :]


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
