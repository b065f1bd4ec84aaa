"""Reading: chunks with a carried state are one pass, the model is left as it was, a Reader takes the same steps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.kind import of as kind_of
from hmrnn.nn.predictor import Predictor
from hmrnn.reading.read import Reader, read
from refusals import refused

T, B = 23, 3


def made(kind: str, **changes: object) -> tuple[Predictor, torch.Tensor]:
    """A model in float64 and an input (T, B, ...)."""
    torch.manual_seed(3)
    if kind == "strokes":
        config = tiny_strokes.config(**changes)
        model = kind_of(config).network(config, tiny_strokes.corpus().spec)
        points = torch.randn(T, B, 3, dtype=torch.float64)
        points[..., 2] = (points[..., 2] > 1).double()
        return model.double(), points
    config = tiny.config(**changes)
    model = kind_of(config).network(config, tiny.VOCABULARY)
    with torch.no_grad():
        model.embedding.weight *= 3
    return model.double(), torch.randint(9, (T, B))


@pytest.mark.parametrize("kind", ["text", "strokes"])
@pytest.mark.parametrize("chunk", [1, 5, T])
def test_chunks_are_one_pass(kind: str, chunk: int) -> None:
    model, x = made(kind)
    with torch.no_grad():
        prediction, out, state = model.eval().predict(x)
    following = x.roll(-1, dims=0)
    reads = list(read(model, x.split(chunk)))
    assert len(reads) == math.ceil(T / chunk)
    nats = torch.cat([r.prediction.log_prob(y) for r, y in zip(reads, following.split(chunk))])
    torch.testing.assert_close(nats, prediction.log_prob(following), rtol=0, atol=1e-12)
    for name in ("boundaries", "probabilities", "operations"):
        whole = torch.cat([getattr(r.output, name) for r in reads])
        torch.testing.assert_close(whole, getattr(out, name), rtol=0, atol=1e-12)
    assert 0 < float(torch.cat([r.boundaries for r in reads]).double().mean()) < 1
    norms = torch.stack([h.norm(dim=-1) for h in out.hidden], dim=2)
    torch.testing.assert_close(torch.cat([r.norms for r in reads]).double(), norms, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip((*reads[-1].state.h, reads[-1].state.z), (*state.h, state.z)):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    assert reads[0].before is None
    assert all(later.before is earlier.state for earlier, later in itertools.pairwise(reads))


def test_a_state_is_taken_up() -> None:
    model, x = made("text")
    [whole] = read(model, [x])
    [first] = read(model, [x[:9]])
    [second] = read(model, [x[9:]], first.state)
    torch.testing.assert_close(second.state.h, whole.state.h, rtol=0, atol=1e-12)
    [cold] = read(model, [x[9:]])
    assert not torch.allclose(cold.state.h[0], whole.state.h[0])


def test_a_chunk_can_be_differentiated_and_the_weights_changed() -> None:
    model, x = made("text")
    bits = []
    for found, y in zip(read(model, x.split(10), gradient=True), x.roll(-1, dims=0).split(10)):
        loss = -found.prediction.log_prob(y).mean()
        assert not found.state.h[0].requires_grad
        loss.backward()
        bits.append(float(loss.detach()))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
    assert all(p.grad is not None for p in model.softmax.parameters())
    assert bits[0] != pytest.approx(math.log(9))
    assert bits[1:] == pytest.approx([math.log(9)] * 2)  # weights of zero predict all symbols alike


@pytest.mark.parametrize("kind", ["text", "strokes"])
@pytest.mark.parametrize("changes", [{}, {"rnn": "lstm"}, {"output_layers": "first"}])
def test_a_reader_takes_the_steps_of_a_pass(kind: str, changes: dict[str, str]) -> None:
    model, x = made(kind, **changes)
    [found] = read(model, [x])
    following = x.roll(-1, dims=0)
    expected = found.prediction.log_prob(following)
    reader = Reader(model.train(), B)
    for t in range(T):
        reader.read(x[t])
        torch.testing.assert_close(reader.predict().log_prob(following[t]), expected[t], rtol=0, atol=1e-12)
        torch.testing.assert_close(reader.state.z > 0.5, found.boundaries[t])
    torch.testing.assert_close(reader.state.h, found.state.h, rtol=0, atol=1e-12)


@pytest.mark.parametrize("symbols", [[9], [-1, 3], [0.5]])
def test_symbols_are_checked(symbols: list[float]) -> None:
    model, _ = made("text")
    with refused():
        model.as_input(np.array(symbols))


def test_what_a_model_reads() -> None:
    """Vocabulary and scale have one face, by which data become the input of a model and are shown."""
    text: checkpoint.Reads = tiny.VOCABULARY
    strokes: checkpoint.Reads = tiny_strokes.corpus().spec
    assert [(r.unit, r.describe()) for r in (text, strokes)] == [
        ("character", "text, 9 characters"),
        ("point", "pen strokes"),
    ]
    assert text.decode(text.encode("abc de")) == "".join(text.pieces(text.encode("abc de"))) == "abc de"
    line = tiny_strokes.strokes(1)[0]
    np.testing.assert_allclose(strokes.decode(strokes.encode(line)), line, atol=1e-5)
    assert strokes.pieces(strokes.encode(line))[:5] == list("ooo^o")
