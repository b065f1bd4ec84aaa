"""The page of a text model: segments as a text is typed, and text as it is written."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.kinds.text.model import TextModel
from hmrnn.ops import State
from hmrnn.reading.page import Action, Page, Part, Parts, Request, Seed
from hmrnn.reading.read import Reader, follow, on_time
from hmrnn.reading.sample import draw, seeded
from hmrnn.reading.vocabulary import Reading

CHUNK = 128  # symbols between cuts; as many are read again when a symbol is typed at the end
WRITTEN = 16  # symbols that are written between two looks at what the layers did


class ReadRequest(Request, kw_only=True):
    """Text for a model to read."""

    bounds: ClassVar = {"text": "text"}
    text: Annotated[str, Meta(min_length=1)]


class FigureRequest(ReadRequest, kw_only=True):
    """Text for a model to read, to be drawn as a figure."""

    bounds: ClassVar = {"text": "figure"}


class WriteRequest(Request, kw_only=True):
    """A prompt, and how to continue it."""

    bounds: ClassVar = {"prompt": "prompt", "length": "length"}
    prompt: str = ""
    length: Annotated[int, Meta(ge=1)] = 300
    temperature: Annotated[float, Meta(ge=0, le=10)] = 0.8
    top_k: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Seed = None


class Chunk(NamedTuple):
    """What a model found in some symbols, and the state after them."""

    found: Segmentation | None
    """None before the first symbol."""
    state: State | None

    @property
    def size(self) -> int:
        """Bytes that it takes in the memory, with its JSON."""
        arrays = [array for array in vars(self.found).values() if array is not None] if self.found else []
        tensors = self.state.named().values() if self.state is not None else ()
        return sum(200 * len(each) if isinstance(each, tuple) else each.nbytes for each in (*arrays, *tensors))


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


class TextPage(Page):
    static = Path(__file__).parent / "static"
    model: TextModel

    def __init__(self, model: TextModel) -> None:
        super().__init__(model)
        self.memory = Memory()

    def about(self) -> dict[str, Any]:
        """The characters that the model knows; none if it reads bytes."""
        vocabulary = self.model.vocabulary
        return {"alphabet": "".join(map(str, vocabulary.symbols)) if vocabulary.kind == "characters" else None}

    def read(self, wanted: ReadRequest) -> Parts:
        """What the model finds in a text; the same numbers as ``model.segment`` gives."""
        reading = self.model.reading(wanted.text)
        if not len(reading.indices):
            raise InputError("there is nothing to read: the text is empty of known symbols")
        cuts = _cuts(reading)
        chunks = on_time(self._chunks(reading, cuts, wanted.condition), self.model.late)
        if self.model.network.segments is not None and self.model.network.rnn.num_boundaries:
            [(ends, chances)] = self.model.word_ends([reading.indices], primed=True)
            chunks = _with_words(chunks, ends, chances)
        for found, (start, end) in zip(chunks, itertools.pairwise(cuts)):
            symbols, counts = reading.symbols[start:end], reading.counts[start:end]
            yield Part(found if found.symbols == symbols else found.regroup(symbols, counts))
        return {"notes": reading.notes} if reading.notes else {}

    def _chunks(self, reading: Reading, cuts: list[int], condition: str | None) -> Iterator[Segmentation]:
        """What the network finds in the symbols that it reads, from cut to cut; a late detector is late."""
        model, prime = self.model, self.model.prime
        given = model.as_condition(condition, steps=len(prime) + len(reading.indices))
        digest = hashlib.blake2b(f"{condition} {given.clock}".encode())
        key, chunk = digest.digest(), Chunk(None, None)
        places = np.concatenate([[0], reading.counts.cumsum()])[cuts].tolist()  # of the cuts, in what is read
        for start, end in [(-len(prime), 0)] * (len(prime) > 0) + list(itertools.pairwise(places)):
            here = np.asarray(prime if end == 0 else reading.indices[start:end], np.int64)
            digest.update(here.tobytes())
            before, key = key, digest.digest()
            known = self.memory.get(before + key)
            if known is None:
                now = given.after(len(prime) + start, model.config.model.time)
                x = model.network.as_input(here)[:, None]
                [(found, made)] = follow(model.network, [x], model.vocabulary.pieces, chunk.state, condition=now)
                known = Chunk(found, made.state.apply(torch.clone))  # not views of something larger
                if len(here) >= CHUNK or end == 0:
                    self.memory.put(before + key, known)
            chunk = known
            if end > 0 and chunk.found is not None:
                yield chunk.found

    def write(self, wanted: WriteRequest) -> Parts:
        """The prompt as the network reads it, then its continuation; the same text as ``model.generate`` for a seed."""
        model, network, prime = self.model, self.model.network, self.model.prime
        reading = model.reading(wanted.prompt, what="the prompt")
        start = network.as_input(np.concatenate([prime, reading.indices]).astype(np.int64))[:, None]
        condition = model.as_condition(wanted.condition, steps=len(start) - 1 + wanted.length)
        how = {name: getattr(wanted, name) for name in ("temperature", "top_k", "top_p")}
        state: State | None = None

        def chunks() -> Iterator[Tensor]:
            yield from (some for some in (start[: len(prime)], *start[len(prime) :].split(CHUNK)) if len(some))
            reader = Reader(network, condition=condition.after(len(start), network.config.time), state=state)
            drawn = itertools.islice(draw(reader, start[:0], seeded(wanted.seed), **how), wanted.length)
            text = itertools.takewhile(lambda symbol: int(symbol) != model.end, drawn)
            while some := list(itertools.islice(text, WRITTEN)):
                yield torch.stack(some).to(start)

        def found() -> Iterator[Segmentation]:
            nonlocal state
            for k, (part, made) in enumerate(follow(network, chunks(), model.vocabulary.pieces, condition=condition)):
                state = made.state
                if k or not len(prime):
                    yield part

        given = len(reading.indices)
        for part in on_time(found(), model.late):
            yield Part(part, max(0, min(given, len(part))))
            given -= len(part)
        return {"notes": reading.notes} if reading.notes else {}

    actions: ClassVar = {
        "read": Action(read, ReadRequest),
        "segmentation": Action(read, ReadRequest, "whole"),
        "figure": Action(read, FigureRequest, "figure"),
        "write": Action(write, WriteRequest),
    }


def _with_words(chunks: Iterable[Segmentation], ends: np.ndarray, chances: np.ndarray) -> Iterator[Segmentation]:
    """Copies of the chunks, which the memory keeps, with other ends and probabilities at level 1."""
    start = 0
    for found in chunks:
        here, start = slice(start, start + len(found)), start + len(found)
        boundaries, probabilities = found.boundaries.copy(), found.probabilities.copy()
        boundaries[:, 0], probabilities[:, 0] = ends[here], chances[here]
        yield dataclasses.replace(found, boundaries=boundaries, probabilities=probabilities)


def _cuts(reading: Reading) -> list[int]:
    """Where the chunks of a text begin and end, in its symbols: each is read as about CHUNK symbols, at least one."""
    read = reading.counts.cumsum()
    ends = np.unique(np.searchsorted(read, np.arange(CHUNK, read[-1], CHUNK)) + 1)
    ends = ends[read[ends - 1] < read[-1]]
    return [0, *ends.tolist(), len(read)]
