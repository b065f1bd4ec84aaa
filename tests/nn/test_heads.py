"""ReadOut: shapes, and what it learns where the top layer alone learns nothing."""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import hmrnn
from hmrnn import HMLSTM
from hmrnn.nn import ReadOut
from refusals import refused

SIZES, LENGTHS = (6, 4, 3), [9, 4, 1]


def test_every_step_and_the_last_one() -> None:
    rnn, x = HMLSTM(5, SIZES), torch.randn(9, 3, 5)
    read_out = ReadOut(rnn.hidden_sizes, 2)
    out, state = rnn(x, lengths=LENGTHS)
    steps, last = read_out(out.hidden), read_out(state.h)
    assert read_out(out).equal(steps)
    assert read_out(state).equal(last)
    assert steps.shape == (9, 3, 2)
    expected = sum(h @ w.T for h, w in zip(out.hidden, read_out.linear.weight.split(SIZES, dim=1)))
    torch.testing.assert_close(steps, expected + read_out.linear.bias)
    torch.testing.assert_close(last, torch.stack([steps[n - 1, b] for b, n in enumerate(LENGTHS)]))


def test_packed() -> None:
    rnn, x = HMLSTM(5, SIZES), torch.randn(9, 3, 5)
    read_out = ReadOut(rnn.hidden_sizes, 2, bias=False)
    packed, _ = rnn(pack_padded_sequence(x, torch.tensor(LENGTHS)))
    padded, lengths = pad_packed_sequence(read_out(packed))
    assert lengths.tolist() == LENGTHS
    torch.testing.assert_close(padded, read_out(rnn(x, lengths=LENGTHS)[0].hidden))


def test_of_two_directions_each_one_ends_where_it_read_last() -> None:
    rnn = HMLSTM(5, SIZES, bidirectional=True)
    read_out = ReadOut(rnn.output_sizes, 2)
    out, states = rnn(torch.randn(9, 3, 5))
    ends = [torch.cat([h[-1, :, : h.shape[-1] // 2], h[0, :, h.shape[-1] // 2 :]], -1) for h in out.hidden]
    torch.testing.assert_close(read_out(states), read_out(ends))


def test_other_layers_are_refused() -> None:
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


def test_it_is_reached_from_the_package() -> None:
    assert hmrnn.__getattr__("nn").ReadOut is ReadOut
