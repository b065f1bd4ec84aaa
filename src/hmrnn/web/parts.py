"""A model and a request -> the slices of an answer, each some hundredths of a second of work.

A part is a line of JSON with the segmentation of a run of symbols; the last line is ``{"end": true, ...}``. A request
keeps all that it needs in the generator that answers it, except for the memory of a model that reads text.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.segmentation import Segmentation, rounded
from hmrnn.data.strokes.strokes import Scale
from hmrnn.errors import InputError
from hmrnn.inference.read_strokes import LAST, POINT
from hmrnn.inference.sample import Reader, sample, seeded, stream
from hmrnn.inference.sample_strokes import next_points, scribble
from hmrnn.nn.models import LanguageModel
from hmrnn.nn.output import Operation, Output
from hmrnn.ops import State, states
from hmrnn.pretrained.strokes import StrokeModel
from hmrnn.pretrained.text import TextModel
from hmrnn.web.bodies import End, Part
from hmrnn.web.work import Slices

SLICE = 0.04  # seconds of work that a slice is aimed at
MOST_CHUNKS = 16  # chunks in a slice: those in the memory take no time
LONGEST = 10_000  # how many times longer than the strokes of a drawing a step may be
CHUNK = 64  # symbols that are read together: an engine has to prepare for each chunk


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
        arrays = (found.boundaries, found.probabilities, found.operations, found.norms, found.bits)
        tensors = (*states.named(self.state).values(), self.following)
        return len(self.line) + sum(array.nbytes for array in (*arrays, *tensors) if array is not None)


Chunks = Iterator[Chunk]


def lines(chunks: Chunks) -> Slices:
    """The parts of an answer."""
    began, count = time.monotonic(), 0
    for group in _grouped(chunks):
        yield b"".join(chunk.line for chunk in group)
        count += sum(len(chunk.found) for chunk in group)
    yield _end(count, began)


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


def _line(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _end(count: int, began: float, warning: str | None = None) -> bytes:
    end = End(count, round(time.monotonic() - began, 3))
    if warning is not None:
        end.warning = warning
    return _line(end)


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


def read(model: TextModel, text: str, memory: Memory) -> Chunks:
    """What the network finds in ``text``; the same numbers as ``model.segment(text)``."""
    indices = model._encode(text, "read")
    digest = hashlib.blake2b()
    chunk: Chunk | None = None
    for start in range(0, len(indices), CHUNK):
        here = indices[start : start + CHUNK].astype(np.int64)
        digest.update(here.tobytes())
        known = memory.get(digest.digest())
        chunk = known or _read_chunk(model, here, start, chunk)
        if known is None and len(here) == CHUNK:
            memory.put(digest.digest(), chunk)
        yield chunk


@torch.inference_mode()
def _read_chunk(model: TextModel, indices: np.ndarray, start: int, before: Chunk | None) -> Chunk:
    here = torch.from_numpy(indices).to(model.network.embedding.weight.device)
    logits, out, state = model.network(here[:, None], None if before is None else before.state)
    log_p = torch.log_softmax(logits[:, 0].float(), dim=-1)
    first = log_p.new_full(log_p[:1].shape, math.nan) if before is None else before.following[None]
    bits = -torch.cat([first, log_p[:-1]]).gather(1, here[:, None])[:, 0] / math.log(2)
    found = _found(model.vocabulary.pieces(indices.tolist()), out, bits.tolist())
    state = state.apply(torch.clone)  # not views of something larger
    return Chunk(found, _line(Part(start, found.record())), state, log_p[-1].clone())


def _found(symbols: Sequence[str], out: Output, bits: Sequence[float]) -> Segmentation:
    hidden: Any = out.hidden
    norms = torch.stack([h[:, 0].float().norm(dim=-1) for h in hidden], dim=1)
    tensors = (out.boundaries[:, 0] > 0.5, out.probabilities[:, 0].float(), out.operations[:, 0], norms)
    boundaries, probabilities, operations, norms_ = (tensor.cpu().numpy() for tensor in tensors)
    return Segmentation(tuple(symbols), boundaries, probabilities, operations, norms_, np.asarray(bits))


class Watcher:
    """A network that reads one step after the other, and what it did at the last one."""

    def __init__(self, rnn: Any) -> None:
        self.rnn = rnn
        self.state: State = rnn.initial_state(1)
        self.changed: list[bool] = []
        self._rows: list[tuple[list[bool], list[float], list[Operation], list[float], float]] = []

    def __len__(self) -> int:
        """Steps since the last part."""
        return len(self._rows)

    @torch.no_grad()
    def step(self, x: Tensor, bits: float, boundaries: Tensor | None = None) -> None:
        """Read ``x`` (1, size of an input), which had so many bits."""
        flush = ((self.state.z[0] > 0.5) & getattr(self.rnn, "flush", True)).tolist()
        step = self.rnn.step(x, self.state, boundaries)
        self.state = step.state
        self.changed = step.changed[0].tolist()
        flush += [False] * (len(self.changed) - len(flush))  # layers without a detector never flush
        operations = [
            Operation.FLUSH if flushed else Operation.UPDATE if moved else Operation.COPY
            for flushed, moved in zip(flush, self.changed)
        ]
        norms = [float(h.float().norm()) for h in step.state.h]
        self._rows.append(((step.state.z[0] > 0.5).tolist(), step.probabilities[0].tolist(), operations, norms, bits))

    def found(self, symbols: Sequence[str]) -> Segmentation:
        """The segmentation of the steps since the last one."""
        columns = [np.array(column) for column in zip(*self._rows)]
        self._rows.clear()
        return Segmentation(tuple(symbols), *columns)


class Writer(Reader):
    """A reader of text whose steps are watched."""

    def __init__(self, network: LanguageModel) -> None:
        super().__init__(network)
        self.watcher = Watcher(network.rnn)
        self.bits = math.nan

    def read(self, symbol: int) -> None:
        given = self.network.given
        forced = None if given is None else given[symbol, None]
        self.watcher.step(self.network.embedding.weight[symbol, None], self.bits, forced)
        self.state = self.watcher.state
        self._changed = [old or new for old, new in zip(self._changed, self.watcher.changed)]


def write(
    model: TextModel,
    prompt: str,
    length: int,
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> Slices:
    """The prompt as the network reads it, then its continuation; the same text as ``model.generate`` for a seed."""
    began = time.monotonic()
    network = model.network
    given = model._encode(prompt, "go on from").tolist() if prompt else []
    stream(network, given, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)  # checks the request
    generator = seeded(seed)
    writer, symbols = Writer(network), []
    slice_began, last = time.monotonic(), len(given) + length - 1
    for position in range(last + 1):
        logits = writer.logits()
        drawn = position >= len(given)
        symbol = sample(logits, temperature, top_k, top_p, generator) if drawn else given[position]
        if position:
            writer.bits = float(-torch.log_softmax(logits.float(), dim=-1)[symbol] / math.log(2))
        writer.read(symbol)
        symbols.append(symbol)
        if time.monotonic() - slice_began > SLICE or position == last:
            start = position + 1 - len(symbols)
            found = writer.watcher.found(model.vocabulary.pieces(symbols))
            yield _line(Part(start, found.record(), max(0, min(len(given) - start, len(symbols)))))
            symbols = []
            slice_began = time.monotonic()
    yield _end(last + 1, began)


def fit(steps: np.ndarray, scale: Scale) -> np.ndarray:
    """Steps (T, 3) of a drawing, scaled to the data of the model: the root mean square of those with the pen down."""
    steps = np.array(steps, np.float64).reshape(-1, 3)
    steps[0, :2] = 0  # the position of the drawing does not matter
    down = steps[1:][steps[:-1, 2] < 0.5, :2]
    largest = float(np.abs(down).max(initial=0.0))
    if largest == 0:
        raise InputError("a drawing needs a stroke of two points or more in different places; got none")
    if np.abs(steps[:, :2]).max() > LONGEST * largest:
        raise InputError(f"a step of the drawing is more than {LONGEST:,} times as long as those with the pen down")
    length = math.sqrt(np.square(down / largest).mean())
    steps[:, :2] = steps[:, :2] / largest * (math.sqrt(np.square(scale.deviation).mean()) / length)
    return steps.astype(np.float32)


def read_strokes(model: StrokeModel, drawing: np.ndarray) -> Chunks:
    """What the network finds in a drawing; a symbol is a point, shown as in ``model.segment``."""
    steps = fit(drawing, model.scale)
    points = torch.from_numpy(model.scale.encode(steps)).to(model.network.density.weight)[:, None]  # (T, 1, 3)
    state: State | None = None
    bits = [math.nan]
    for start in range(0, len(points), CHUNK):
        here = points[start : start + CHUNK]
        with torch.inference_mode():
            mixture, out, state = model.network(here, state)
            following = torch.cat([points[start + 1 : start + len(here) + 1], here[-1:]])[: len(here)]
            bits += (-mixture.log_density(following)[:, 0] / math.log(2)).tolist()  # one too many after the last point
            found = _found(
                [LAST if up else POINT for up in steps[start : start + len(here), 2] > 0.5], out, bits[: len(here)]
            )
        yield Chunk(found, _line(Part(start, found.record())), state, None)
        bits = bits[len(here) :]


def write_strokes(model: StrokeModel, points: int, *, bias: float, seed: int | None) -> Slices:
    """A line that the network generates; the same as ``model.generate`` for a seed, with what its layers did."""
    began = time.monotonic()
    generator = seeded(seed)
    watcher = Watcher(model.network.rnn)
    watcher.step(torch.from_numpy(model.scale.encode(np.zeros((1, 3)))).to(model.network.density.weight), math.nan)
    watcher.found([POINT])  # a line begins with the step (0, 0), which is not part of it
    steps: list[np.ndarray] = []
    written: list[np.ndarray] = []
    slice_began = time.monotonic()
    for position in range(points):
        x = next_points(model.network, watcher.state, generator, bias=bias)  # (1, 3)
        watcher.step(x.to(model.network.density.weight), math.nan)
        steps.append(model.scale.decode(x.numpy())[0])
        if time.monotonic() - slice_began > SLICE or position == points - 1:
            found = watcher.found([LAST if step[2] > 0.5 else POINT for step in steps])
            part = Part(position + 1 - len(steps), found.record(), steps=rounded(np.stack(steps)))
            yield _line(part)
            written += steps
            steps = []
            slice_began = time.monotonic()
    yield _end(points, began, scribble(model.network, model.scale, [np.stack(written)]))
