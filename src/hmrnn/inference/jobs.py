"""Job: files of any size -> JSON lines with their segment ends, in constant memory; a stopped job resumes exactly.

Every file is cut into parts, which are read side by side in rounds of ``streams``. Each part but a file's first begins
``warmup`` symbols early, to build up its state. All parts of a round advance together, so round and chunk are the
position of a job. The state to resume from is kept in a folder beside the results until they are complete.

Several processes share the files. If there are fewer files than processes they share the parts, and the first process
joins what all have written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.torch

from hmrnn.config import BUILT_IN_TEXTS, DataConfig
from hmrnn.data.archives import count_progress
from hmrnn.data.text.reading import Unknown, index_alike
from hmrnn.data.text.sources import find_files, read_text
from hmrnn.data.text.vocabulary import Vocabulary
from hmrnn.errors import InputError, TextNote
from hmrnn.inference.read import read
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.models import LanguageModel
from hmrnn.nn.output import Operation
from hmrnn.ops import State, states
from hmrnn.utils.files import hold, replacing, write
from hmrnn.utils.signals import asked_to_stop

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Part:
    """Symbols ``start`` to ``stop`` of a file."""

    file: int
    start: int
    stop: int
    last: bool


class Job:
    """The segmentation of some files; :meth:`run` starts or resumes it.

    Args:
        network, vocabulary, config: of the model; files are read in its data format (built-in texts as text).
        files: what to read; process ``rank`` takes every world-th file, or part if there are fewer files.
        out: the folder of the results, ``a.txt.jsonl`` for ``a.txt``.
        streams: parts read side by side, and the most parts of a file; 1 reads every file from end to end.
        warmup: symbols of left context that a part reads first, unless it is a file's first.
        chunk: symbols per line of the results.
        unknown: "replace" reads symbols that training never showed as others, one for one (see
            :func:`hmrnn.data.text.reading.index_alike`); "refuse" raises InputError.
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
            raise InputError("a model that is told the time (model.time) reads lines, not files of any size")
        rank, world = share
        form = "text" if config.format in BUILT_IN_TEXTS else config.format
        self.config = dataclasses.replace(config, format=form, path=tuple(map(str, files)))
        each = [dataclasses.replace(self.config, path=(str(file),)) for file in files]
        every = [path for one in each for path in find_files(one)]
        if len({path.name for path in every}) < len(every):
            raise InputError("two of the files have the same name, and so would their results; rename one")
        self._share = share if len(every) < world else (0, 1)  # of the parts
        self.files = every if self._share[1] > 1 else every[rank::world]
        self.joins = self._share[0] == 0  # whether this process writes the final results
        self.network, self.vocabulary, self.out = network, vocabulary, out
        self.streams, self.warmup, self.chunk, self.unknown, self.late = streams, warmup, chunk, unknown, late
        self.work = out / f".work-{rank}"
        self._plan = self.work / "plan.json"
        self.targets = [out / f"{path.name}.jsonl" for path in self.files]
        self.wrote = False  # whether the last run had something to do

    def run(self, *, resume: bool = False, save_every: float = 30.0, progress: Progress | None = None) -> str | None:
        """Write the results; returns None if they are complete, or the name of the signal that stopped the job."""
        if not resume and (self._plan.exists() or any(target.exists() for target in self.targets)):
            raise InputError(f"{self.out} already holds results; resume them, or choose another folder")
        complete = all(target.exists() for target in self.targets)
        if resume and not complete and not any(work.exists() for work in self._works()):
            raise InputError(f"there is nothing to resume in {self.out}; start the job instead")
        if not self.files or (resume and complete and not self.work.exists()):
            return None
        if resume and not self.joins and (self.work / "done").exists():  # the first process may be joining by now
            return None
        with hold(self.work, self.out):
            if all(target.exists() for target in self.targets):  # but a work folder was left
                self._remove_works()
                return None
            self.wrote = True
            return self._run(save_every, progress)

    def _run(self, save_every: float, progress: Progress | None) -> str | None:
        try:
            with asked_to_stop() as asked:
                lengths = self._encode(asked)
                if lengths is not None and self._read(lengths, asked, save_every, progress) and self._others(asked):
                    if self.joins:
                        self._finish(lengths)
                    return None
            return asked[0]
        except InputError:
            if not self._plan.exists():  # nothing has begun: leave nothing behind
                shutil.rmtree(self.work, ignore_errors=True)
            raise
        except OSError as error:
            raise InputError(
                f"cannot write to {self.out} ({error.strerror or error}); correct that, then resume"
            ) from error

    def _encode(self, asked: list[str]) -> list[int] | None:
        """Write the files as symbols, so that any part can be read; returns their lengths, or None after a signal."""
        about = self._about()
        if self._plan.exists():
            try:
                stored = json.loads(self._plan.read_bytes())
                began_with, lengths = stored["about"], list(stored["lengths"])
                # "plain" is an option of earlier versions that is without effect here: the files are encoded already.
                began_with["options"] = [option for option in began_with["options"] if option != "plain"]
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(self._plan) from error
            if began_with != about:
                raise InputError(
                    f"the model, the files or their options are not those that the job in {self.out} began with; "
                    "use the same, or choose another folder"
                )
            for k, length in enumerate(lengths):
                self._check_size(self._symbol_file(k), length * self.vocabulary.dtype.itemsize)
            return lengths
        lengths = []
        for k, path in enumerate(self.files):
            position = others = 0
            with open(self._symbol_file(k), "wb") as file:
                for codes, _ in read_text(path, self.config, count_progress(None, 0)):
                    indices, count = index_alike(codes, self.vocabulary, self.unknown, position)
                    indices.tofile(file)
                    position += len(codes)
                    others += count
                    if asked:
                        return None
                file.flush()
                os.fsync(file.fileno())
            if position == 0:
                raise InputError(f"{path} is empty; there is nothing to segment")
            if others:
                note = f"{others:,} of {position:,} symbols of {path} were read as others: training never showed them"
                warnings.warn(note, TextNote, stacklevel=2)
            lengths.append(position)
        if self._sources() != about["files"]:
            raise InputError("the files changed while they were read; start the job again when they are complete")
        write(self._plan, json.dumps({"about": about, "lengths": lengths}).encode())
        return lengths

    def _about(self) -> dict[str, Any]:
        """What must stay the same for a resumed job: weights, files, options and share."""
        weights = 0
        for name, tensor in self.network.state_dict().items():
            weights = zlib.crc32(tensor.cpu().numpy().tobytes(), zlib.crc32(name.encode(), weights))
        options: list[Any] = [self.streams, self.warmup, self.chunk]
        if self.network.told.condition is not None:
            options += self.network.told.condition.tolist()
        return {"weights": weights, "files": self._sources(), "options": options, "share": list(self._share)}

    def _sources(self) -> list[list[Any]]:
        """Path, size and modification time of the files."""
        try:
            stats = [path.stat() for path in self.files]
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read ({error.strerror})") from error
        return [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in zip(self.files, stats)]

    def _parts(self, lengths: Sequence[int]) -> list[Part]:
        parts = []
        for k, length in enumerate(lengths):
            count = max(1, min(self.streams, length // max(self.warmup, self.chunk)))
            size = -(-length // count)
            edges = [*range(0, length, size), length]
            parts += [Part(k, start, stop, stop == length) for start, stop in itertools.pairwise(edges)]
        return parts

    def _read(self, lengths: list[int], asked: list[str], save_every: float, progress: Progress | None) -> bool:
        """Read the parts that are not done; False after a signal."""
        rank, world = self._share
        parts = self._parts(lengths)[rank::world]
        rounds = [parts[k : k + self.streams] for k in range(0, len(parts), self.streams)]
        at_round, at_chunk, state = self._restore()
        total, done = _symbols_in(parts), _symbols_in(parts[: at_round * self.streams])
        for number, lanes in enumerate(rounds[at_round:], start=at_round):
            longest = max(part.stop - part.start for part in lanes)
            warm = any(part.start for part in lanes)
            begins = [*(range(-self.warmup, 0, self.chunk) if warm else ()), *range(0, longest, self.chunk)]
            with contextlib.ExitStack() as stack:
                files: list[BinaryIO] = [stack.enter_context(open(self._lines(part), "ab")) for part in lanes]
                saved = time.monotonic()
                for k, begin in enumerate(begins[at_chunk:], start=at_chunk):
                    state = self._chunk(lanes, files, begin, 0 if begin < 0 else longest, state)
                    here = sum(min(part.stop - part.start, max(0, begin + self.chunk)) for part in lanes)
                    if progress is not None:
                        progress(done + here, total)
                    if asked or time.monotonic() - saved > save_every:
                        self._save(number, k + 1, state, files)
                        saved = time.monotonic()
                    if asked:
                        return False
                self._save(number + 1, 0, None, files)
            at_chunk, state = 0, None
            done += _symbols_in(lanes)
        return True

    def _chunk(
        self, lanes: list[Part], files: Sequence[BinaryIO], begin: int, limit: int, state: State | None
    ) -> State:
        """Read symbols ``begin`` to ``begin + chunk`` of every part, and write a line for each that has not ended."""
        end = min(begin + self.chunk, limit)
        symbols = np.stack([self._symbols(part, begin, end) for part in lanes], axis=1)  # (T, B)
        [found] = read(self.network, [self.network.as_input(symbols)], state)
        if begin < 0:
            return found.state if end < 0 else states.keep(found.state, [part.start > 0 for part in lanes])
        boundaries = found.boundaries.cpu().numpy()
        moved = (found.output.operations != Operation.COPY).cpu().numpy()
        products = multiply_adds(self.network, found.output, found.before).cpu().numpy()
        for b, (part, file) in enumerate(zip(lanes, files)):
            first, after = part.start + begin, min(part.start + end, part.stop)
            if first >= after:
                continue
            T = after - first
            ends = [(np.flatnonzero(level) + first + 1).tolist() for level in boundaries[:T, b].T]
            if self.late:  # the first end of a chunk may lie in the one before
                ends[0] = [e - self.late for e in ends[0] if e > self.late]
            if part.last and after == part.stop:
                ends = [[*(e for e in level if e < after), after] for level in ends]
            line = {
                "start": first,
                "text": "".join(self.vocabulary.pieces(symbols[:T, b])),
                "ends": ends,
                "updates": moved[:T, b].sum(axis=0).tolist(),
                "multiply_adds": int(products[:T, b].sum()),
            }
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        return found.state

    def _symbols(self, part: Part, begin: int, end: int) -> np.ndarray:
        """(end - begin,): the symbols from ``begin`` to ``end``; 0 outside the file and beyond the part's end."""
        result = np.zeros(end - begin, np.int64)
        first, after = max(0, part.start + begin), min(part.start + end, part.stop)
        if first < after:
            dtype = self.vocabulary.dtype
            here = np.fromfile(self._symbol_file(part.file), dtype, after - first, offset=first * dtype.itemsize)
            result[first - part.start - begin : after - part.start - begin] = here
        return result

    def _symbol_file(self, file: int) -> Path:
        return self.work / f"{file}.symbols"

    def _lines(self, part: Part, work: Path | None = None) -> Path:
        return (work or self.work) / f"{part.file}-{part.start}.jsonl"

    def _works(self) -> list[Path]:
        """The work folders of all processes that share the parts."""
        world = self._share[1]
        return [self.out / f".work-{rank}" for rank in range(world)] if world > 1 else [self.work]

    def _others(self, asked: list[str]) -> bool:
        """If parts are shared, mark those of this process as done; the first waits for all. False after a signal."""
        if self._share[1] == 1:
            return True
        write(self.work / "done", b"")
        while self.joins and not all((work / "done").exists() for work in self._works()):
            if asked:
                return False
            time.sleep(0.1)
        return True

    def _save(self, number: int, chunk: int, state: State | None, files: Sequence[BinaryIO]) -> None:
        for file in files:
            file.flush()
            os.fsync(file.fileno())
        sizes = {path.name: path.stat().st_size for path in self.work.glob("*-*.jsonl")}
        tensors = {name: a.contiguous() for name, a in states.named(state).items()}
        about = {"round": number, "chunk": chunk, "sizes": sizes}
        write(self.work / "state", safetensors.torch.save(tensors, {"about": json.dumps(about)}))

    def _restore(self) -> tuple[int, int, State | None]:
        """Round, chunk and state to resume from; lines written later are cut off."""
        path = self.work / "state"
        if not path.exists():
            for lines in self.work.glob("*-*.jsonl"):
                lines.unlink()
            return 0, 0, None
        try:
            with safetensors.safe_open(path, "pt", device=str(self.network.embedding.weight.device)) as stored:
                about = json.loads(stored.metadata()["about"])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (it is no dict)
            position, sizes = (int(about["round"]), int(about["chunk"])), dict(about["sizes"])
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(path) from error
        for name, size in sizes.items():
            self._check_size(self.work / name, size)
        for lines in self.work.glob("*-*.jsonl"):
            os.truncate(lines, sizes.get(lines.name, 0))
        return *position, states.from_named(tensors)

    def _check_size(self, path: Path, least: int) -> None:
        """Raise InputError if a file of the work folder has lost bytes."""
        if not path.exists() or path.stat().st_size < least:
            raise self._damaged(path)

    def _damaged(self, path: Path) -> InputError:
        return InputError(f"{path} is damaged; remove {self.work} and start the job again")

    def _finish(self, lengths: Sequence[int]) -> None:
        """Join the lines of each file's parts, then remove the work folders."""
        works = self._works()
        parts = list(enumerate(self._parts(lengths)))
        for k, target in enumerate(self.targets):
            with replacing(target, temporary=self.work / f"{k}.whole") as file:
                for number, part in parts:
                    if part.file == k:
                        with open(self._lines(part, works[number % len(works)]), "rb") as lines:
                            shutil.copyfileobj(lines, file)
        self._remove_works()

    def _remove_works(self) -> None:
        """Remove this process's work folder, and before it those of the others if it joins their results."""
        for work in reversed(self._works() if self.joins else [self.work]):
            if work.exists():
                shutil.rmtree(work)


def _symbols_in(parts: Sequence[Part]) -> int:
    return sum(part.stop - part.start for part in parts)
