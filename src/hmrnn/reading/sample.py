"""Sampling from a model, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, cast

import torch
from msgspec import Meta
from torch import Tensor, nn

from hmrnn import ops
from hmrnn.nn.checks import argument
from hmrnn.nn.distributions import check_drawn
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.predictor import Draws, GatedOutput, Predictor
from hmrnn.ops.native import engine as native
from hmrnn.reading.read import Reader

Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
LEAST_STEPS, MOST_STEPS, MULTIPLY_ADDS = 16, 128, 1 << 29
"""Steps that the native engine draws with one call: as many as take so many multiply-adds, within these bounds."""
ROOM, OF_A_STEP, OF_A_UNIT = 1 << 31, 512, 64
"""Bytes that sequences drawn side by side may take, with the states of the network: those of a step, and of a unit."""


def check_room(model: Predictor, samples: int, steps: int, name: str = "length") -> None:
    """InputError unless so many sequences of so many steps fit into memory; messages call the steps ``name``."""
    unit = OF_A_UNIT * sum(model.rnn.hidden_sizes)
    argument(name, steps, Annotated[int, Meta(le=(ROOM - unit) // OF_A_STEP)])
    argument("samples", samples, Annotated[int, Meta(ge=1, le=ROOM // (OF_A_STEP * max(steps, 1) + unit))])


def seeded(seed: int | None) -> torch.Generator:
    """A generator on the CPU; the same seed gives the same draws, None different ones each time."""
    argument("seed", seed, Seed)
    generator = torch.Generator()
    generator.manual_seed(generator.seed() if seed is None else int(seed))
    return generator


def draw(
    reader: Reader, start: Tensor, generator: torch.Generator, lengths: Tensor | None = None, **how: Any
) -> Iterator[Tensor]:
    """Read ``start`` (n, B, ...), then draw steps (B, ...) without end; a step is read when the next one is asked for.

    Of a sequence with a shorter length (B,), ``start`` is padded: the first draws are those after the shortest; while a
    sequence still reads its own steps, what is drawn for it means nothing. ``how`` are the options of the prediction's
    ``sample``.

    Where it can, the native engine reads and draws some steps at once; the reader is then ahead of what is drawn.
    """
    lengths = torch.full(start.shape[1:2], len(start)) if lengths is None else lengths
    draws = _native(reader.model, how)
    if draws is not None:
        yield from _by_native(reader, draws, start, lengths, generator)
    for t in itertools.count():
        if t < int(lengths.min()):
            reader.read(start[t])
            continue
        prediction = reader.predict()
        drawn = prediction.sample(generator, **how)
        yield drawn
        x = prediction.next_input(drawn).to(start)
        if t < len(start):
            given = (lengths > t).view(-1, *[1] * (x.dim() - 1))
            x = torch.where(given.to(x.device), start[t], x)
        reader.read(x)


def _native(model: Predictor, how: dict[str, Any]) -> Draws | None:
    """How the native engine draws what follows; None if a model is not one that it knows from end to end."""
    rnn = model.rnn
    if (
        not isinstance(rnn, HMLSTM)
        or rnn.check_values
        or (model.context.used and (model.embedding is not None or model.config.time != "none"))
        or not isinstance(model.output, GatedOutput)
        or any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        or torch.is_autocast_enabled("cpu")
        or ops.choose_engine(rnn.engine, rnn.a.device, rnn.options(), rnn.a.dtype) != "native"
    ):
        return None
    return model.draws(**how)


def _by_native(
    reader: Reader, draws: Draws, start: Tensor, lengths: Tensor, generator: torch.Generator
) -> Iterator[Tensor]:
    """As :func:`draw`, a piece of the sequences with each call of the library."""
    model, head = reader.model, draws.head
    rnn, output = model.rnn, model.output
    weights, B, L, symbols = rnn.layers(), start.shape[1], rnn.num_layers, model.embedding is not None
    with torch.no_grad():
        embeddings = [cast(nn.Linear, embed).weight for embed in output.embeddings]
        gates = cast(nn.Linear, output.gates).weight.split([a.shape[1] for a in embeddings], dim=1)
        terms = [torch.cat(parts) for parts in zip(embeddings, gates)]
        weight, offset = native.plain(head.weight), native.plain(head.bias)
    work = sum(w.U.numel() + w.W.numel() for w in weights) + sum(a.numel() for a in (*terms, weight))
    steps = max(LEAST_STEPS, min(MOST_STEPS, MULTIPLY_ADDS // (work * B)))
    for t in itertools.count(0, steps):
        x = start.new_zeros(steps, *start.shape[1:], dtype=torch.int64 if symbols else rnn.a.dtype)
        given = start[t : t + steps]
        x[: len(given)] = given
        starts = (lengths - t).clamp(0, steps)
        first = int(starts.min())
        uniform, drawn = (torch.zeros(steps, B, n, dtype=torch.float64) for n in (draws.numbers, draws.width))
        uniform[first:] = torch.rand(uniform[first:].shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            x, window, places = model.prepared(x, reader.state, reader.condition)
            drawing = native.Drawing(terms, weight, offset, starts, uniform, drawn, draws.choices, draws.reals, window)
            inputs = ops.Symbols(x, model.embedding.weight) if symbols else x
            before = reader.state._replace(h=reader.state.h[:L], c=reader.state.c[:L])
            end = native.hmlstm(inputs, weights, before, rnn.options(), drawing=drawing).state
        states = [end._replace(h=(*end.h, *at[:2]), c=(*end.c, *at[2:])) for at in places] or [end] * (steps + 1)
        for row, reader.state in zip(drawn[first:], states[first:]):
            check_drawn(row)
            yield row[:, 0].long() if symbols else row
        reader.state = states[-1]
