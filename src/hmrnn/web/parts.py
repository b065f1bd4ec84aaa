"""A model and a request -> the slices of an answer, each some hundredths of a second of work.

A part is a line of JSON with the segmentation of a run of symbols; the last line is ``{"end": true, ...}``. A request
keeps all that it needs in the generator that answers it, except for the memory of a model that reads text.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import ArrayLike

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.reading import Reading
from hmrnn.kinds.text.sample import stream
from hmrnn.nn.context import Told
from hmrnn.nn.cost import multiply_adds
from hmrnn.nn.distributions import Categorical
from hmrnn.nn.output import Output
from hmrnn.ops import State, states
from hmrnn.reading.read import Read, Reader, Step
from hmrnn.reading.read import read as read_chunks
from hmrnn.reading.sample import seeded
from hmrnn.reading.segment import move_back
from hmrnn.web.bodies import End, Part
from hmrnn.web.work import Slices

SLICE = 0.04  # seconds of work that a slice is aimed at
MOST_CHUNKS = 16  # chunks in a slice: those in the memory take no time
CHUNK = 64  # symbols between cuts; as many are read again when a symbol is typed at the end
PASS = 2  # chunks that are read in one pass of the network


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What a model found in some symbols, and what it needs to read on."""

    found: Segmentation
    line: bytes
    state: State
    following: Any
    """The prediction of the next symbol."""

    @property
    def size(self) -> int:
        """Bytes that a chunk of text takes in the memory."""
        found = self.found
        arrays = (found.boundaries, found.probabilities, found.operations, found.norms, found.bits, found.products)
        tensors = (*states.named(self.state).values(), self.following)
        return len(self.line) + sum(array.nbytes for array in (*arrays, *tensors) if array is not None)


Chunks = Iterator[Chunk]


def lines(chunks: Chunks, notes: Sequence[str] = ()) -> Slices:
    """The parts of an answer."""
    began, count = time.monotonic(), 0
    for group in _grouped(chunks):
        yield b"".join(chunk.line for chunk in group)
        count += sum(len(chunk.found) for chunk in group)
    yield last_line(count, began, notes=notes)


def whole(chunks: Chunks) -> Slices:
    """The JSON of the whole segmentation."""
    found = yield from _joined(chunks)
    yield found.to_json().encode()


def figure(chunks: Chunks, drawer: Executor) -> Slices:
    """Figure 4 as SVG, drawn by another thread; closing the generator ends the drawing."""
    found = yield from _joined(chunks)
    stop = threading.Event()
    drawing = drawer.submit(_draw, found, stop)
    try:
        yield drawing
        yield drawing.result()
    finally:
        stop.set()
        drawing.cancel()


class _Stopped(Exception):
    """Nobody waits for the figure."""


def _draw(found: Segmentation, stop: threading.Event) -> bytes:
    from hmrnn.plots.style import styled
    from hmrnn.plots.text import figure4

    class File(io.BytesIO):
        def write(self, data: Any) -> int:
            if stop.is_set():
                raise _Stopped
            return super().write(data)

    file = File()
    file.write(b"")
    drawn = figure4(found)
    with styled():
        drawn.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _joined(chunks: Chunks) -> Any:
    """Slices without output, then the segmentation of all chunks as the value of ``yield from``."""
    found: list[Segmentation] = []
    for group in _grouped(chunks):
        found += [chunk.found for chunk in group]
        yield b""
    return Segmentation.join(found)


def _grouped(chunks: Chunks) -> Iterator[list[Chunk]]:
    """The chunks of each slice."""
    group: list[Chunk] = []
    began = time.monotonic()
    for chunk in chunks:
        group.append(chunk)
        if time.monotonic() - began > SLICE or len(group) == MOST_CHUNKS:
            yield group
            group = []
            began = time.monotonic()
    if group:
        yield group


def line(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def last_line(count: int, began: float, warning: str | None = None, notes: Sequence[str] = ()) -> bytes:
    end = End(count, round(time.monotonic() - began, 3))
    if warning is not None:
        end.warning = warning
    if notes:
        end.notes = list(notes)
    return line(end)


class Memory:
    """A cache of the chunks that a model has read, by a digest of the text up to their end; the least recently used go.

    A text that begins as an earlier one is read from where they differ: typing at its end costs one chunk at most.
    """

    def __init__(self, most: int = 64 << 20) -> None:
        self.most, self.size = most, 0  # bytes
        self._chunks: collections.OrderedDict[bytes, Chunk] = collections.OrderedDict()

    def get(self, key: bytes) -> Chunk | None:
        if key in self._chunks:
            self._chunks.move_to_end(key)
        return self._chunks.get(key)

    def put(self, key: bytes, chunk: Chunk) -> None:
        if key in self._chunks:  # another request has read it meanwhile
            return
        self._chunks[key] = chunk
        self.size += chunk.size
        while self.size > self.most:
            self.size -= self._chunks.popitem(last=False)[1].size


def read(model: TextModel, reading: Reading, memory: Memory, condition: str | None = None) -> Chunks:
    """What the network finds in a text; the same numbers as ``model.segment`` gives with ``by`` "detectors"."""
    if not len(reading.indices):
        raise InputError("there is nothing to read: the text is empty of known symbols")
    time_of, first = model.config.model.time, len(model.prime)
    told = model.tell(condition, steps=first + len(reading.indices))
    digest = hashlib.blake2b(f"{condition} {told.clock}".encode())
    chunk = _primed(model, told, memory, digest.digest())
    read = np.concatenate([[0], reading.counts.cumsum()])  # of the indices, before each symbol
    cuts, keys = _cuts(reading), [digest.digest()]
    for start, end in itertools.pairwise(cuts):
        digest.update(reading.indices[read[start] : read[end]].astype(np.int64).tobytes())
        digest.update(reading.indices[read[end] :][: model.late].astype(np.int64).tobytes())
        digest.update("\0".join(reading.symbols[start:end]).encode("utf-8", "surrogatepass"))
        keys.append(digest.digest())
    at, last = 0, len(cuts) - 1
    while at < last:
        for to in range(min(at + PASS, last), at, -1):
            known = memory.get(keys[at] + keys[to])
            if known is not None:
                break
        else:
            to = max(at + 1, min(at + PASS, last - 1))  # the last chunk is read alone, as a symbol may be added to it
            start, end = cuts[at], cuts[to]
            here, after = reading.indices[read[start] : read[end]], reading.indices[read[end] :][: model.late]
            known = _read_chunk(
                model, here.astype(np.int64), reading.symbols[start:end], reading.counts[start:end], start, chunk,
                told.after(first + int(read[start]), time_of), after.astype(np.int64),
            )  # fmt: skip
            if len(here) >= CHUNK:
                memory.put(keys[at] + keys[to], known)
        chunk, at = known, to
        yield chunk


def _primed(model: TextModel, told: Told, memory: Memory, key: bytes) -> Chunk | None:
    """What is read before a text; read once, and then known by its ``key``."""
    if not len(model.prime):
        return None
    known = memory.get(key)
    if known is None:
        shown = model.vocabulary.pieces(model.prime)
        known = _read_chunk(model, model.prime, shown, np.ones(len(shown), np.int64), 0, None, told, model.prime[:0])
        memory.put(key, known)
    return known


def _cuts(reading: Reading) -> list[int]:
    """Where the chunks of a text begin and end, in its symbols: each is read as about CHUNK symbols, at least one."""
    read = reading.counts.cumsum()
    ends = np.unique(np.searchsorted(read, np.arange(CHUNK, read[-1], CHUNK)) + 1)
    ends = ends[read[ends - 1] < read[-1]]
    return [0, *ends.tolist(), len(read)]


@torch.inference_mode()
def _read_chunk(
    model: TextModel,
    indices: np.ndarray,
    symbols: Sequence[str],
    counts: np.ndarray,
    start: int,
    before: Chunk | None,
    told: Told,
    after: np.ndarray,
) -> Chunk:
    """Read a chunk. A detector that fires late has shown its ends once the symbols ``after`` the chunk are read."""
    here = model.network.as_input(indices)
    [made] = read_chunks(model.network, [here[:, None]], None if before is None else before.state, told=told)
    assert isinstance(made.prediction, Categorical)
    log_p = torch.log_softmax(made.prediction.logits[:, 0].float(), dim=-1)
    first = log_p.new_full(log_p[:1].shape, math.nan) if before is None else before.following[None]
    bits = -torch.cat([first, log_p[:-1]]).gather(1, here[:, None])[:, 0] / math.log(2)
    as_given = bool((counts == 1).all())  # every symbol is read as one
    found = found_in(model, symbols if as_given else model.vocabulary.pieces(indices), made, bits.cpu().numpy())
    state = made.state.apply(torch.clone)  # not views of something larger
    if model.late:
        for of_levels, ahead in zip((found.boundaries, found.probabilities), _ahead(model, state, after, told)):
            move_back(of_levels, ahead)
    found = found if as_given else found.regroup(symbols, counts)
    return Chunk(found, line(Part(start, found.record())), state, log_p[-1].clone())


def _ahead(model: TextModel, state: State, after: np.ndarray, told: Told) -> tuple[float | None, float | None]:
    """What the lowest detector gives at the symbol ``after`` a chunk: the boundary and its probability."""
    if not len(after):
        return None, None
    [ahead] = read_chunks(model.network, [model.network.as_input(after)[:, None]], state, told=told)
    return float(ahead.boundaries[0, 0, 0]), float(ahead.output.probabilities[0, 0, 0])


def found_in(model: TextModel | StrokeModel, symbols: Sequence[str], made: Read, bits: ArrayLike) -> Segmentation:
    out = made.output
    counted = multiply_adds(model.network, out, made.before)
    tensors = (made.boundaries, out.probabilities.float(), out.operations, made.norms, counted)
    boundaries, probabilities, operations, norms, products = (tensor[:, 0].cpu().numpy() for tensor in tensors)
    return Segmentation(tuple(symbols), boundaries, probabilities, operations, norms, np.asarray(bits), products)


class Rows:
    """Steps of a Reader from its current state on, collected until they are written as a part.

    ``late`` is the number of steps (0 or 1) by which the lowest detector fires after the end of a segment; its ends are
    moved back by as many.
    """

    def __init__(self, reader: Reader, late: int = 0) -> None:
        self._reader, self._before, self._late = reader, reader.state, late
        self._rows: list[tuple[Step, float, State]] = []

    def add(self, bits: float) -> None:
        """Add the reader's last step."""
        self._rows.append((self._reader.last(), bits, self._reader.state))

    def found(self, symbols: Sequence[str]) -> Segmentation:
        """The segmentation of the next steps, one for each of ``symbols``; they are taken away."""
        here, self._rows = self._rows[: len(symbols)], self._rows[len(symbols) :]
        steps, bits, after = zip(*here)
        boundaries, probabilities, operations, norms = (np.array(column) for column in zip(*steps))
        z, p, done = (
            torch.tensor(array, device=self._before.z.device)[:, None]
            for array in (boundaries, probabilities, operations)
        )
        products = multiply_adds(self._reader.model, Output((), z, p, done), self._before)[:, 0].cpu().numpy()
        self._before = after[-1]
        if self._late:
            ahead = self._rows[0][0] if self._rows else None
            move_back(boundaries, None if ahead is None else ahead.boundaries[0])
            move_back(probabilities, None if ahead is None else ahead.probabilities[0])
        return Segmentation(tuple(symbols), boundaries, probabilities, operations, norms, np.array(bits), products)


def write(
    model: TextModel,
    prompt: str,
    length: int,
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    condition: str | None = None,
) -> Slices:
    """The prompt as the network reads it, then its continuation; the same text as ``model.generate`` for a seed."""
    began = time.monotonic()
    network = model.network
    reading = model.reading(prompt, what="the prompt")
    given = reading.indices.tolist()
    told = model.tell(condition, steps=len(model.prime) + len(given) - 1 + length)
    how: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    stream(network, given, length, **how, seed=seed, told=told)  # checks the request
    generator = seeded(seed)
    reader, symbols = Reader(network, told=told), []
    for x in network.as_input(model.prime)[:, None]:
        reader.read(x)
    rows = Rows(reader, model.late)
    slice_began, total, count = time.monotonic(), len(given) + length, 0
    while count < total:
        prediction = reader.predict()
        symbol = np.array(given[count : count + 1])
        if count >= len(given):
            symbol = prediction.sample(generator, **how).numpy()
            if symbol[0] == model.end:
                total = count
        if count < total:
            x = network.as_input(symbol)  # (1,)
            reader.read(x)
            rows.add(float(-prediction.log_prob(x)) / math.log(2) if count or len(model.prime) else math.nan)
            symbols += symbol.tolist()
            count += 1
        ready = len(symbols) - (model.late if count < total else 0)  # the end of a symbol shows at the next one
        if ready > 0 and (time.monotonic() - slice_began > SLICE or count == total):
            start = count - len(symbols)
            found = rows.found(model.vocabulary.pieces(symbols[:ready]))
            yield line(Part(start, found.record(), max(0, min(len(given) - start, ready))))
            symbols = symbols[ready:]
            slice_began = time.monotonic()
    yield last_line(count, began, notes=reading.notes)
