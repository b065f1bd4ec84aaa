"""Read-outs: segments by hand, every pooling, attention by its equation, the tree by recursion, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hmrnn import HMLSTM, Output, Segmentation
from hmrnn.nn import Attention, ReadOut, SequenceReadOut, TreeReadOut, segment_states
from hmrnn.nn.baselines.recurrent import LSTM
from refusals import refused

T, B, SIZES, LENGTHS = 9, 3, (6, 4, 3), [9, 4, 1]
DOUBLE = torch.float64


def passed(**options: Any) -> tuple[HMLSTM, Output, Tensor]:
    """A network and its output for sequences whose boundaries are drawn."""
    rnn = HMLSTM(5, SIZES, 3, **options).double()
    forced = torch.randint(2, (T, B, 2, 2) if options.get("bidirectional") else (T, B, 2))
    x = torch.randn(T, B, 5, dtype=DOUBLE)
    out, _ = rnn(x, lengths=LENGTHS, boundaries=forced)
    return rnn, out, x


def by_hand(out: Output, level: int | None, both: bool) -> list[list[tuple[int, int, Tensor]]]:
    """For each sequence its segments: first step, last step and state."""
    result = []
    for b, length in enumerate(LENGTHS):
        z = out.boundaries[..., 0] if both else out.boundaries
        found, start = [], 0
        for t in range(length):
            fires = level is not None and (level == 0 or bool(z[t, b, level - 1]))
            if fires or t == length - 1:
                if both:
                    halves = [h.chunk(2, dim=-1) for h in out.hidden]
                    state = torch.cat([part for ahead, back in halves for part in (ahead[t, b], back[start, b])])
                else:
                    state = torch.cat([h[t, b] for h in out.hidden])
                found.append((start, t, state))
                start = t + 1
        result.append(found)
    return result


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("level", [None, 0, 1, 2])
def test_segments_are_those_found_by_hand(level: int | None, both: bool) -> None:
    _, out, _ = passed(bidirectional=both)
    found, want = segment_states(out, level, LENGTHS), by_hand(out, level, both)
    assert found.counts.tolist() == [len(one) for one in want]
    assert len(found.states) == max(map(len, want))
    assert found.mask.sum(0).tolist() == found.counts.tolist()
    for b, segments in enumerate(want):
        n = len(segments)
        assert list(zip(found.starts[:n, b].tolist(), found.ends[:n, b].tolist())) == [s[:2] for s in segments]
        assert torch.equal(found.states[:n, b], torch.stack([s[2] for s in segments]))
        assert not found.states[n:, b].any()
        assert (found.ends[n:, b] == LENGTHS[b] - 1).all()


def test_packed_and_batch_first_outputs_have_the_same_segments() -> None:
    rnn = HMLSTM(5, SIZES, 3, bidirectional=True, layer_norm=True).double()
    rnn.set_detector_bias((0.3, 0.2))
    x = torch.randn(T, B, 5, dtype=DOUBLE)
    want = segment_states(rnn(x, lengths=LENGTHS)[0], 1, LENGTHS)
    assert 3 < want.counts.sum() < sum(LENGTHS)
    for batch_first in (False, True):
        rnn.batch_first = batch_first
        given = x.transpose(0, 1) if batch_first else x
        padded, _ = rnn(given, lengths=LENGTHS)
        packed, _ = rnn(pack_padded_sequence(given, torch.tensor(LENGTHS), batch_first))
        for found in (segment_states(padded, 1, LENGTHS), segment_states(packed, 1)):
            assert all(torch.equal(got, expected) for got, expected in zip(found, want, strict=True))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("pool", "level"), [("last", 0), ("mean", 0), ("mean", 1), ("max", 0), ("max", 2)])
def test_pooling(pool: Any, level: int, both: bool) -> None:
    rnn, out, x = passed(bidirectional=both)
    read_out = SequenceReadOut(rnn.output_sizes, 2, pool=pool, level=level).double()
    vectors, weights, found = read_out.pooled(out, LENGTHS)
    for b, segments in enumerate(by_hand(out, None if pool == "last" else level, both)):
        states = torch.stack([s[2] for s in segments])
        want = {"last": states[-1], "mean": states.mean(0), "max": states.amax(0)}[pool]
        torch.testing.assert_close(vectors[b], want, rtol=0, atol=1e-12)
        if pool == "max":
            first = states.argmax(0).bincount(minlength=len(states)) / states.shape[1]
            torch.testing.assert_close(weights[b, : len(states)], first.double())
    torch.testing.assert_close(weights.sum(1), torch.ones(B, dtype=DOUBLE))
    assert not weights.T[~found.mask].any()
    torch.testing.assert_close(read_out(out, LENGTHS), read_out.linear(vectors))
    if pool == "last":
        _, state = rnn(x, lengths=LENGTHS, boundaries=out.boundaries)
        ends = zip(*(s.h for s in state)) if both else [(h,) for h in state.h]
        torch.testing.assert_close(vectors, torch.cat([part for layer in ends for part in layer], dim=-1))


def test_attention_is_its_equation() -> None:
    attention = Attention(4, 3, 5).double()
    memory, query = torch.randn(6, B, 4, dtype=DOUBLE), torch.randn(7, B, 3, dtype=DOUBLE)
    mask = torch.arange(6)[:, None] < torch.tensor([6, 2, 1])
    memory[2:, 1] = torch.nan  # padding may hold anything
    contexts, weights = attention(memory, mask, query)
    assert attention.query is not None
    for n in range(7):
        for b, count in enumerate([6, 2, 1]):
            m, q = memory[:count, b], query[n, b]
            W, bias, Q, v = attention.keys.weight, attention.keys.bias, attention.query.weight, attention.v.weight[0]
            alpha = torch.stack([v @ torch.tanh(W @ one + Q @ q + bias) for one in m]).softmax(0)
            torch.testing.assert_close(weights[n, b, :count], alpha)
            assert not weights[n, b, count:].any()
            torch.testing.assert_close(contexts[n, b], alpha @ m)
    one, same = attention(memory, mask, query[2])
    torch.testing.assert_close(one, contexts[2])
    torch.testing.assert_close(same, weights[2])
    contexts.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attention.parameters())


def test_what_is_refused() -> None:
    rnn, out, _ = passed()
    with refused("level"):
        segment_states(out, 3)
    with refused("level"):
        segment_states(out, -1)
    alone, _ = rnn(torch.randn(T, 5, dtype=DOUBLE))
    with refused():
        segment_states(alone)
    plain, _ = LSTM(5, 6, 2)(torch.randn(T, B, 5))
    assert len(segment_states(plain, 0).states) == T
    with refused("level"):
        segment_states(plain, 1)
    with refused("lengths"):
        segment_states(out, 1, [9, 4, 0])
    with refused():
        SequenceReadOut(SIZES, 2, level=1)
    with refused("pool"):
        SequenceReadOut(SIZES, 2, pool="sum")  # type: ignore[arg-type]
    with refused():
        SequenceReadOut((6, 4), 2).double()(out)
    memory = torch.randn(6, B, 4)
    for attention, given, name in (
        (Attention(4), {"query": memory[0]}, "query_size"),
        (Attention(4, 2), {}, "query"),
        (Attention(4, 2), {"query": memory[0]}, "query"),
        (Attention(4), {"mask": torch.ones(6, 2).bool()}, "mask"),
        (Attention(5), {}, "memory"),
    ):
        with refused(name):
            attention(memory, **given)


def test_every_step_and_the_last_one() -> None:
    rnn, x = HMLSTM(5, SIZES), torch.randn(T, B, 5)
    read_out = ReadOut(rnn.hidden_sizes, 2)
    out, state = rnn(x, lengths=LENGTHS)
    steps, last = read_out(out.hidden), read_out(state.h)
    assert read_out(out).equal(steps)
    assert read_out(state).equal(last)
    assert steps.shape == (T, B, 2)
    expected = sum(h @ w.T for h, w in zip(out.hidden, read_out.linear.weight.split(SIZES, dim=1)))
    torch.testing.assert_close(steps, expected + read_out.linear.bias)
    torch.testing.assert_close(last, torch.stack([steps[n - 1, b] for b, n in enumerate(LENGTHS)]))


def test_a_packed_output_is_read() -> None:
    rnn, x = HMLSTM(5, SIZES), torch.randn(T, B, 5)
    read_out = ReadOut(rnn.hidden_sizes, 2, bias=False)
    packed, _ = rnn(pack_padded_sequence(x, torch.tensor(LENGTHS)))
    padded, lengths = pad_packed_sequence(read_out(packed))
    assert lengths.tolist() == LENGTHS
    torch.testing.assert_close(padded, read_out(rnn(x, lengths=LENGTHS)[0].hidden))


def test_of_two_directions_each_one_ends_where_it_read_last() -> None:
    rnn = HMLSTM(5, SIZES, bidirectional=True)
    read_out = ReadOut(rnn.output_sizes, 2)
    out, states = rnn(torch.randn(T, B, 5))
    ends = [torch.cat([h[-1, :, : h.shape[-1] // 2], h[0, :, h.shape[-1] // 2 :]], -1) for h in out.hidden]
    torch.testing.assert_close(read_out(states), read_out(ends))


def test_other_layers_are_refused_at_every_step() -> None:
    read_out = ReadOut(SIZES, 2)
    with refused():
        read_out(HMLSTM(5, SIZES)(torch.randn(2, 1, 5)))  # type: ignore[arg-type]
    with refused():
        read_out(torch.zeros(3, 2, 6))
    for hidden in ((), (torch.zeros(1, 6),)):
        with refused():
            read_out(hidden)
    with refused():
        ReadOut(SIZES, 0)
    with refused("hidden_sizes"):
        ReadOut(6, 2)  # type: ignore[arg-type]


def test_a_tree_is_the_recursion_over_the_segments() -> None:
    rnn = HMLSTM(5, SIZES, 3).double()
    forced = torch.rand(T, B, 2) < torch.tensor([0.5, 0.3])
    x = torch.randn(T, B, 5, dtype=torch.float64)
    out, _ = rnn(x, lengths=LENGTHS, boundaries=forced)
    read_out = TreeReadOut(rnn.output_sizes, 4, 2).double()
    found = read_out(out, LENGTHS)

    def gated(s: Tensor, memory: Tensor | float) -> tuple[Tensor, Tensor]:
        i, o, u = s.split(4)
        c = i.sigmoid() * u.tanh() + memory
        return o.sigmoid() * c.tanh(), c

    for b, length in enumerate(LENGTHS):
        states = torch.cat([h[:, b] for h in out.hidden], dim=-1)
        symbols = tuple(chr(97 + t) for t in range(length))
        z = out.boundaries[:length, b].detach().numpy()
        p = np.zeros((length, 2), np.float32)
        tree = Segmentation(symbols, z > 0.5, p, np.zeros((length, 3), int), np.zeros((length, 3)), p[:, 0]).tree(
            cut=True
        )

        def value(node: Any, states: Tensor = states) -> tuple[Tensor, Tensor]:
            if isinstance(node, str):
                return gated(read_out.leaf(states[ord(node[-1]) - 97]), 0.0)
            children = [value(child, states) for child in node]
            memory = sum(torch.sigmoid(read_out.forget(h)) * c for h, c in children)
            return gated(read_out.node(sum(h for h, _ in children)), memory)

        torch.testing.assert_close(found[b], read_out.linear(value(tree)[0]))
    found.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in read_out.parameters())


def test_a_tree_needs_one_direction_and_its_layers() -> None:
    read_out = TreeReadOut(SIZES, 4, 2)
    both, _ = HMLSTM(5, SIZES, 3, bidirectional=True)(torch.randn(T, 2, 5))
    with refused():
        read_out(both)
    other, _ = HMLSTM(5, 6, 2)(torch.randn(T, 2, 5))
    with refused():
        read_out(other)
