"""Job: files of any size -> JSON lines with their segment ends, in bounded memory.

A file is read as a stream, a round of symbols at a time. A round is cut into parts that the network reads side by side;
each begins ``warmup`` symbols early, to build up its state. The lines of a round are written when all of it was read:
a job that was stopped goes on after the last whole round, to the same bytes.
"""

from __future__ import annotations

import dataclasses
import fcntl
import glob
import itertools
import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hmrnn.config import BUILT_IN_TEXTS, DataConfig
from hmrnn.errors import InputError, TextNote
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.reading import Unknown, index_alike
from hmrnn.kinds.text.sources import find_files, read_text
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.output import Operation
from hmrnn.ops import states
from hmrnn.reading.read import Read, read
from hmrnn.reading.segment import ends_of_levels
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils.archives import count_progress
from hmrnn.utils.signals import asked_to_stop

Progress = Callable[[int, int], None]
ROUND = 1 << 18
"""Symbols of a round, unless there are so many streams that warming them up would take longer than reading them."""


class Job:
    """The segmentation of some files; :meth:`run` starts it, or goes on with it.

    Args:
        network, vocabulary, config: of the model; files are read in its data format (built-in texts as text).
        files: what to read; process ``rank`` takes every world-th of them.
        out: the folder of the results, ``a.txt.jsonl`` for ``a.txt``.
        streams: parts read side by side.
        warmup: symbols of left context that a part reads first, unless it is a file's first.
        chunk: symbols per line of the results.
        unknown: "replace" reads symbols that training never showed as others, one for one (see
            :func:`hmrnn.kinds.text.reading.index_alike`); "refuse" raises InputError.
        share: (rank, world) of this process.
        late: symbols by which the lowest detector fires after the end of a segment; its ends are moved back by as many.
    """

    def __init__(
        self,
        network: LanguageModel,
        vocabulary: Vocabulary,
        config: DataConfig,
        files: Sequence[str | Path],
        out: Path,
        *,
        streams: int = 16,
        warmup: int = 500,
        chunk: int = 256,
        unknown: Unknown = "replace",
        share: tuple[int, int] = (0, 1),
        late: int = 0,
    ) -> None:
        if network.rnn.num_boundaries == 0:
            raise InputError("this model has no boundary detectors, so it finds no segments; train hm-lstm instead")
        if streams < 1 or warmup < 0 or chunk < 1:
            raise InputError(
                f"streams and chunk must be at least 1 and warmup at least 0; got {streams}, {chunk} and {warmup}"
            )
        if network.config.time != "none":
            raise InputError(
                "a model that is told the time reads lines, not files of any size",
                setting="model.time",
            )
        form = "text" if config.format in BUILT_IN_TEXTS else config.format
        self.config = dataclasses.replace(config, format=form)
        every = [path for file in files for path in find_files(dataclasses.replace(self.config, path=(str(file),)))]
        if len({path.name for path in every}) < len(every):
            raise InputError("two of the files have the same name, and so would their results; rename one")
        rank, world = share
        self.files = every[rank::world]
        self.targets = [out / f"{path.name}.jsonl" for path in self.files]
        self.network, self.vocabulary, self.out = network, vocabulary, out
        self.streams, self.warmup, self.chunk, self.unknown, self.late = streams, warmup, chunk, unknown, late
        self.round = max(ROUND, 8 * streams * max(warmup, chunk))

    def run(self, *, resume: bool = False, progress: Progress | None = None) -> str | None:
        """Write the results; returns None if they are complete, or the name of the signal that stopped the job.

        InputError if there are some already, unless this is to ``resume``.
        """
        partial = [self._partial(path) for path in self.files]
        for target, own in zip(self.targets, partial):
            begun = set(self.out.glob(f"{glob.escape(target.name)}.*.part"))
            if not resume and (begun or target.exists()):
                raise InputError(f"{self.out} already holds results; resume them, or choose another folder")
            if others := begun - {own}:
                raise InputError(
                    f"{others.pop()} was begun with another model, file or options; use the same, or remove it"
                )
        left = [k for k, target in enumerate(self.targets) if not target.exists()]
        lengths = {k: self._length(self.files[k]) for k in left}
        done = 0
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            with asked_to_stop() as asked:
                for k in left:
                    for count in self._segment(self.files[k], lengths[k], partial[k], self.targets[k]):
                        if progress is not None:
                            progress(done + count, sum(lengths.values()))
                        if asked:
                            return asked[0]
                    done += lengths[k]
        except OSError as error:
            raise InputError(
                f"cannot write to {self.out} ({error.strerror or error}); correct that, then resume"
            ) from error
        return None

    def _partial(self, path: Path) -> Path:
        """The unfinished results of a file; the name stands for all that must stay the same until they are complete."""
        try:
            stat = path.stat()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
        about = [self.streams, self.warmup, self.chunk, str(path.resolve()), stat.st_size, stat.st_mtime_ns]
        if self.network.told.condition is not None:
            about += self.network.told.condition.tolist()
        key = zlib.crc32(json.dumps(about).encode())
        for name, tensor in self.network.state_dict().items():
            key = zlib.crc32(tensor.cpu().numpy().tobytes(), zlib.crc32(name.encode(), key))
        return self.out / f"{path.name}.jsonl.{key:08x}.part"

    def _length(self, path: Path) -> int:
        """The symbols of a file, after a look at all of them."""
        length = others = 0
        for codes, _ in read_text(path, self.config, count_progress(None, 0)):
            others += index_alike(codes, self.vocabulary, self.unknown, length)[1]
            length += len(codes)
        if length == 0:
            raise InputError(f"{path} is empty; there is nothing to segment")
        if others:
            note = f"{others:,} of {length:,} symbols of {path} were read as others: training never showed them"
            warnings.warn(note, TextNote, stacklevel=2)
        return length

    def _segment(self, path: Path, length: int, partial: Path, target: Path) -> Iterator[int]:
        """Write the results of a file; yields after each chunk how many of its symbols were read."""
        with open(partial, "ab+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"another process is writing to {self.out}; wait for it, or choose another folder"
                ) from error
            per_round = sum(-(-(stop - start) // self.chunk) for start, stop in self._parts(self.round))
            rounds, size = _whole_rounds(file, per_round)
            file.truncate(size)
            for place, symbols in self._rounds(path, length, rounds * self.round):
                lines: list[bytes] = []
                yield from (place + count for count in self._round(symbols, place, length, lines))
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            if self._partial(path) != partial:
                raise self._changed(path)
            os.replace(partial, target)

    def _rounds(self, path: Path, length: int, first: int) -> Iterator[tuple[int, np.ndarray]]:
        """From symbol ``first`` of a file on, the place and the symbols of each round, after ``warmup`` before it.

        Before a file's first symbol these are zeros.
        """
        held, after = np.zeros(self.warmup, np.int64), 0  # the symbols before ``after``
        blocks = read_text(path, self.config, count_progress(None, 0))
        for place in range(0, length, self.round):
            held = held[len(held) - (after - place) - self.warmup :]
            end = min(place + self.round, length)
            while after < end:
                block = next(blocks, None)
                if block is None:
                    raise self._changed(path)
                held = np.concatenate([held, index_alike(block[0], self.vocabulary, self.unknown)[0]])
                after += len(block[0])
            if place >= first:
                yield place, held[: self.warmup + end - place]

    def _changed(self, path: Path) -> InputError:
        return InputError(f"{path} changed while it was read; start again when it is complete")

    def _parts(self, length: int) -> list[tuple[int, int]]:
        """Where the parts of a round of so many symbols begin and end."""
        count = max(1, min(self.streams, length // max(self.warmup, self.chunk)))
        return list(itertools.pairwise([*range(0, length, -(-length // count)), length]))

    def _round(self, symbols: np.ndarray, place: int, length: int, lines: list[bytes]) -> Iterator[int]:
        """Read a round, and add its lines to ``lines``; yields after each chunk how many symbols were read."""
        parts = self._parts(len(symbols) - self.warmup)
        longest = max(stop - start for start, stop in parts)
        symbols = np.concatenate([symbols, np.zeros(longest, np.int64)])
        made: list[list[bytes]] = [[] for _ in parts]
        state = None
        warm = range(-self.warmup, 0, self.chunk) if place or len(parts) > 1 else ()
        for begin in (*warm, *range(0, longest, self.chunk)):
            end = min(begin + self.chunk, 0 if begin < 0 else longest)
            columns = [symbols[self.warmup + start + begin : self.warmup + start + end] for start, _ in parts]
            [found] = read(self.network, [self.network.as_input(np.stack(columns, axis=1))], state)
            state = found.state
            if end == 0 and place == 0:  # before a file's first symbol there was nothing to read
                state = states.keep(state, [start > 0 for start, _ in parts])
            if begin >= 0:
                counts = [max(0, min(end, stop - start) - begin) for start, stop in parts]
                firsts = [place + start + begin for start, _ in parts]
                for lane, line in zip(made, self._lines(found, columns, firsts, counts, length)):
                    lane.append(line)
            yield sum(min(max(0, end), stop - start) for start, stop in parts)
        lines += itertools.chain(*made)

    def _lines(
        self, found: Read, columns: list[np.ndarray], firsts: list[int], counts: list[int], length: int
    ) -> Iterator[bytes]:
        """The line of each part about the ``counts`` symbols that were read from its place in ``firsts`` on."""
        boundaries = found.boundaries.cpu().numpy()
        moved = (found.output.operations != Operation.COPY).cpu().numpy()
        products = multiply_adds(self.network, found.output, found.before).cpu().numpy()
        for b, (column, first, T) in enumerate(zip(columns, firsts, counts)):
            ends = ends_of_levels(boundaries[:T, b], first, self.late)  # the first may lie in the chunk before
            ends = [[e for e in level if e > 0] for level in ends]
            if first + T == length:
                ends = [[*(e for e in level if e < length), length] for level in ends]
            line = {
                "start": first,
                "text": "".join(self.vocabulary.pieces(column[:T])),
                "ends": ends,
                "updates": moved[:T, b].sum(axis=0).tolist(),
                "multiply_adds": int(products[:T, b].sum()),
            }
            yield json.dumps(line, ensure_ascii=False).encode() + b"\n" if T else b""


def _whole_rounds(file: BinaryIO, per_round: int) -> tuple[int, int]:
    """How many rounds of so many lines a file holds, and their bytes."""
    count = size = whole = 0
    file.seek(0)
    for line in file:
        count, size = count + 1, size + len(line)
        if count % per_round == 0 and line.endswith(b"\n"):
            whole = size
    return count // per_round, whole
