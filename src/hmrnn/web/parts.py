"""A model and a request -> the answer in parts, each a slice of work of some hundredths of a second.

A part is one line of JSON that holds what the network did at a run of symbols, from ``start`` on; the last line is
``{"end": true, ...}``. Everything a request needs lives in the generator that answers it, but for the memory of a model
that reads.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from hmrnn.analysis.segmentation import LETTERS, rounded
from hmrnn.data.strokes.strokes import Scale
from hmrnn.errors import InputError
from hmrnn.inference.read_strokes import LAST, POINT
from hmrnn.inference.sample import Reader, sample, seeded, stream
from hmrnn.inference.sample_strokes import next_points, scribble
from hmrnn.nn.models import LanguageModel
from hmrnn.nn.output import Operation
from hmrnn.ops import State, states
from hmrnn.pretrained.load import TextModel
from hmrnn.pretrained.strokes import StrokeModel

SLICE = 0.04  # seconds of work that a part is aimed at
FEWEST = 64  # symbols of a part that are read together: an engine has to get ready for each part


def line(record: dict[str, Any]) -> bytes:
    """One line of JSON; what is not finite becomes null."""
    return msgspec.json.encode(record) + b"\n"


def _part(
    start: int,
    symbols: Sequence[str],
    boundaries: np.ndarray,  # (T, L-1)
    probabilities: np.ndarray,  # (T, L-1)
    operations: np.ndarray,  # (T, L)
    norms: np.ndarray,  # (T, L)
    bits: Sequence[float],  # (T,)
    **more: Any,
) -> bytes:
    return line(
        {
            "start": start,
            "symbols": list(symbols),
            "boundaries": boundaries.T.astype(int).tolist(),
            "probabilities": rounded(probabilities.T),
            "operations": ["".join(LETTERS[k] for k in layer) for layer in operations.T],
            "norms": rounded(norms.T),
            "bits": rounded(np.asarray(bits, np.float64)),
            **more,
        }
    )


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What a model made of some symbols, and what it needs to read on."""

    line: bytes
    state: State
    following: Tensor  # (V,) log-probabilities of the next symbol

    @property
    def size(self) -> int:
        tensors = (*states.named(self.state).values(), self.following)
        return len(self.line) + sum(tensor.nbytes for tensor in tensors)


class Memory:
    """Chunks that a model has read, by a digest of the text up to their end; those not used for longest go first.

    A text that begins as an earlier one is read from where they part, so that typing at its end costs a chunk at most.
    """

    def __init__(self, most: int = 64 << 20) -> None:
        self.most, self.size = most, 0  # bytes
        self._chunks: collections.OrderedDict[bytes, Chunk] = collections.OrderedDict()

    def get(self, key: bytes) -> Chunk | None:
        if key in self._chunks:
            self._chunks.move_to_end(key)
        return self._chunks.get(key)

    def put(self, key: bytes, chunk: Chunk) -> None:
        if key in self._chunks:  # another request was faster
            return
        self._chunks[key] = chunk
        self.size += chunk.size
        while self.size > self.most:
            self.size -= self._chunks.popitem(last=False)[1].size


def read(model: TextModel, text: str, memory: Memory) -> Iterator[bytes]:
    """What the network finds in ``text``; the same numbers as ``model.segment(text)``."""
    began = slice_began = time.monotonic()
    indices = model._encode(text, "read")
    digest = hashlib.blake2b()
    chunk: Chunk | None = None
    lines: list[bytes] = []
    for start in range(0, len(indices), FEWEST):
        here = indices[start : start + FEWEST].astype(np.int64)
        digest.update(here.tobytes())
        known = memory.get(digest.digest())
        chunk = known or _read_chunk(model, here, start, chunk)
        if known is None and len(here) == FEWEST:
            memory.put(digest.digest(), chunk)
        lines.append(chunk.line)
        if time.monotonic() - slice_began > SLICE or len(lines) == 16:
            yield b"".join(lines)
            lines.clear()
            slice_began = time.monotonic()
    yield b"".join([*lines, _end(len(indices), began)])


@torch.inference_mode()
def _read_chunk(model: TextModel, indices: np.ndarray, start: int, before: Chunk | None) -> Chunk:
    here = torch.from_numpy(indices).to(model.network.embedding.weight.device)
    logits, out, state = model.network(here[:, None], None if before is None else before.state)
    log_p = torch.log_softmax(logits[:, 0].float(), dim=-1)
    first = log_p.new_full(log_p[:1].shape, math.nan) if before is None else before.following[None]
    bits = -torch.cat([first, log_p[:-1]]).gather(1, here[:, None])[:, 0] / math.log(2)
    line = _part(
        start,
        model.vocabulary.pieces(indices.tolist()),
        (out.boundaries[:, 0] > 0.5).cpu().numpy(),
        out.probabilities[:, 0].float().cpu().numpy(),
        out.operations[:, 0].cpu().numpy(),
        torch.stack([h[:, 0].float().norm(dim=-1) for h in out.hidden], dim=1).cpu().numpy(),
        bits.tolist(),
    )
    return Chunk(line, state.apply(torch.clone), log_p[-1].clone())  # not views of something larger


class Watcher:
    """A network that takes one step after the other, and what it did at the last one."""

    def __init__(self, rnn: Any) -> None:
        self.rnn = rnn
        self.state: State = rnn.initial_state(1)
        self.boundaries: list[bool] = []
        self.probabilities: list[float] = []
        self.operations: list[int] = []
        self.norms: list[float] = []
        self.changed: list[bool] = []

    @torch.no_grad()
    def step(self, x: Tensor, boundaries: Tensor | None = None) -> None:
        flush = ((self.state.z[0] > 0.5) & getattr(self.rnn, "flush", True)).tolist()
        step = self.rnn.step(x, self.state, boundaries)
        self.state = step.state
        self.changed = step.changed[0].tolist()
        self.boundaries = (step.state.z[0] > 0.5).tolist()
        self.probabilities = step.probabilities[0].tolist()
        flush += [False] * (len(self.changed) - len(flush))  # layers without a detector never flush
        self.operations = [
            Operation.FLUSH if flushed else Operation.UPDATE if moved else Operation.COPY
            for flushed, moved in zip(flush, self.changed)
        ]
        self.norms = [float(h.float().norm()) for h in step.state.h]


class Rows:
    """What a watcher saw, step by step, until it makes a part."""

    def __init__(self) -> None:
        self._rows: list[tuple[list[bool], list[float], list[int], list[float], float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, watcher: Watcher, bits: float) -> None:
        self._rows.append((watcher.boundaries, watcher.probabilities, watcher.operations, watcher.norms, bits))

    def part(self, start: int, symbols: Sequence[str], **more: Any) -> bytes:
        *columns, bits = zip(*self._rows)
        boundaries, probabilities, operations, norms = (np.asarray(column) for column in columns)
        self._rows.clear()
        return _part(start, symbols, boundaries, probabilities, operations, norms, bits, **more)


class Writer(Reader):
    """A reader of text that is watched."""

    def __init__(self, network: LanguageModel) -> None:
        super().__init__(network)
        self.watcher = Watcher(network.rnn)

    def read(self, symbol: int) -> None:
        given = self.network.given
        self.watcher.step(self.network.embedding.weight[symbol, None], None if given is None else given[symbol, None])
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
) -> Iterator[bytes]:
    """The prompt as the network reads it, then what it goes on with; the same text as ``model.generate`` for a seed."""
    began = time.monotonic()
    network = model.network
    given = model._encode(prompt, "go on from").tolist() if prompt else []
    stream(network, given, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)  # checks the request
    generator = seeded(seed)
    reader, rows, symbols = Writer(network), Rows(), []
    slice_began, last = time.monotonic(), len(given) + length - 1
    for position in range(last + 1):
        logits = reader.logits()
        drawn = position >= len(given)
        symbol = sample(logits, temperature, top_k, top_p, generator) if drawn else given[position]
        bits = float(-torch.log_softmax(logits.float(), dim=-1)[symbol] / math.log(2)) if position else math.nan
        reader.read(symbol)
        symbols.append(symbol)
        rows.add(reader.watcher, bits)
        if time.monotonic() - slice_began > SLICE or position == last:
            start = position + 1 - len(rows)
            prompted = max(0, min(len(given) - start, len(rows)))
            yield rows.part(start, model.vocabulary.pieces(symbols), given=prompted)
            symbols = []
            slice_began = time.monotonic()
    yield _end(last + 1, began)


def fit(steps: np.ndarray, scale: Scale) -> np.ndarray:
    """Steps (T, 3) of a drawing in the size of the model's data: as long on average while the pen is down."""
    steps = np.array(steps, np.float64).reshape(-1, 3)
    steps[0, :2] = 0  # where a line begins says nothing
    down = steps[1:][steps[:-1, 2] < 0.5, :2]
    length = math.sqrt((down**2).mean()) if down.size else 0.0
    if length == 0:
        raise InputError("a drawing needs a stroke of two points or more in different places; got none")
    steps[:, :2] *= math.sqrt(np.square(scale.deviation).mean()) / length
    return steps.astype(np.float32)


def read_strokes(model: StrokeModel, drawing: Sequence[Sequence[float]]) -> Iterator[bytes]:
    """What the network finds in a drawing; a symbol is a point, shown as in ``model.segment``."""
    began = time.monotonic()
    steps = fit(np.asarray(drawing), model.scale)
    points = torch.from_numpy(model.scale.encode(steps)).to(model.network.density.weight)[:, None]  # (T, 1, 3)
    state: State | None = None
    bits = [math.nan]
    for start in range(0, len(points), FEWEST):
        here = points[start : start + FEWEST]
        with torch.inference_mode():
            mixture, out, state = model.network(here, state)
            following = torch.cat([here[1:], points[start + len(here) : start + len(here) + 1]])
            following = torch.cat([following, here[-1:]])[: len(here)]  # the very last is followed by nothing
            bits += (-mixture.log_density(following)[:, 0] / math.log(2)).tolist()
            norms = torch.stack([h[:, 0].float().norm(dim=-1) for h in out.hidden], dim=1)
        yield _part(
            start,
            [LAST if up else POINT for up in steps[start : start + len(here), 2] > 0.5],
            (out.boundaries[:, 0] > 0.5).cpu().numpy(),
            out.probabilities[:, 0].float().cpu().numpy(),
            out.operations[:, 0].cpu().numpy(),
            norms.cpu().numpy(),
            bits[: len(here)],
        )
        bits = bits[len(here) :]
    yield _end(len(points), began)


def write_strokes(model: StrokeModel, points: int, *, bias: float, seed: int | None) -> Iterator[bytes]:
    """A line that the network makes up; the same as ``model.generate`` for a seed, with what its layers did."""
    began = time.monotonic()
    generator = seeded(seed)
    watcher = Watcher(model.network.rnn)
    x = torch.from_numpy(model.scale.encode(np.zeros((1, 3)))).to(model.network.density.weight)
    watcher.step(x)
    steps: list[np.ndarray] = []
    written: list[np.ndarray] = []
    rows = Rows()
    slice_began = time.monotonic()
    for position in range(points):
        x = next_points(model.network, watcher.state, generator, bias=bias)  # (1, 3)
        watcher.step(x.to(model.network.density.weight))
        steps.append(model.scale.decode(x.numpy())[0])
        rows.add(watcher, math.nan)
        if time.monotonic() - slice_began > SLICE or position == points - 1:
            symbols = [LAST if step[2] > 0.5 else POINT for step in steps]
            yield rows.part(position + 1 - len(steps), symbols, steps=rounded(np.stack(steps)))
            written.append(np.stack(steps))
            steps = []
            slice_began = time.monotonic()
    yield _end(points, began, scribble(model.network, model.scale, [np.concatenate(written)]))


def _end(count: int, began: float, warning: str | None = None) -> bytes:
    end = {"end": True, "count": count, "seconds": round(time.monotonic() - began, 3)}
    return line(end if warning is None else {**end, "warning": warning})
