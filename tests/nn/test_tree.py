"""TreeReadOut against a recursion over Segmentation.tree(cut=True)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from hmrnn import HMLSTM, Segmentation
from hmrnn.nn import TreeReadOut
from refusals import refused

T, SIZES, LENGTHS = 12, (6, 4, 3), [12, 7, 1]


def test_it_is_the_recursion_over_the_tree() -> None:
    rnn = HMLSTM(5, SIZES, 3).double()
    forced = torch.rand(T, 3, 2) < torch.tensor([0.5, 0.3])
    x = torch.randn(T, 3, 5, dtype=torch.float64)
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
    rnn.batch_first = True
    x, forced = x.transpose(0, 1), forced.transpose(0, 1)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    for out, lengths in (
        (rnn(x, lengths=LENGTHS, boundaries=forced)[0], LENGTHS),
        (rnn(packed, boundaries=forced)[0], None),
    ):
        torch.testing.assert_close(read_out(out, lengths), found)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in read_out.parameters())


def test_what_is_refused() -> None:
    read_out = TreeReadOut(SIZES, 4, 2)
    both, _ = HMLSTM(5, SIZES, 3, bidirectional=True)(torch.randn(T, 2, 5))
    with refused():
        read_out(both)
    other, _ = HMLSTM(5, 6, 2)(torch.randn(T, 2, 5))
    with refused():
        read_out(other)
