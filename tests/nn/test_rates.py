"""rate_loss and start_at_rates: what a training loop of one's own has to hold boundary rates."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from hmrnn import HMLSTM
from hmrnn.nn import rate_loss, start_at_rates
from refusals import refused

TARGETS, LENGTHS = (0.5, 0.25), [40, 25, 9, 1]


@pytest.mark.parametrize("both", [False, True])
def test_detectors_start_at_rates(both: bool) -> None:
    torch.manual_seed(0)
    rnn, x = HMLSTM(5, 8, bidirectional=both, batch_first=True), torch.randn(24, 20, 5)
    targets = torch.tensor([[target] * (1 + both) for target in TARGETS]).squeeze(1)
    before, found = rate_loss(rnn(x)[0], TARGETS), rnn(x)[0].boundaries.mean((0, 1))
    torch.testing.assert_close(before, (found - targets).pow(2).sum())
    start_at_rates(rnn, TARGETS, x)
    found = rnn(x)[0].boundaries.mean((0, 1))
    torch.testing.assert_close(found, targets, atol=0.03, rtol=0)
    assert rate_loss(rnn(x)[0], TARGETS) < 0.004 < before


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    rnn, x = HMLSTM(5, 16), torch.randn(40, 4, 5)
    out, _ = rnn(x, lengths=LENGTHS)
    fired = out.boundaries.sum((0, 1)) / sum(LENGTHS)
    expected = ((fired - torch.tensor(TARGETS)) ** 2).sum()
    torch.testing.assert_close(rate_loss(out, TARGETS, LENGTHS), expected)
    packed, _ = rnn(pack_padded_sequence(x, torch.tensor(LENGTHS)))
    torch.testing.assert_close(rate_loss(packed, TARGETS), expected)


def test_the_loss_moves_the_rates() -> None:
    torch.manual_seed(0)
    rnn, x = HMLSTM(5, 16), torch.randn(20, 8, 5)
    optimizer = torch.optim.Adam(rnn.parameters(), lr=0.05)
    losses = []
    for _ in range(12):
        loss = rate_loss(rnn(x)[0], (0.2, 0.1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_what_is_refused() -> None:
    rnn = HMLSTM(5, 4)
    for rates in ((0.5,), (0.5, 1.0), 0.5):
        with refused():
            start_at_rates(rnn, rates, torch.randn(3, 2, 5))  # type: ignore[arg-type]
    with refused():
        rate_loss(rnn(torch.randn(3, 5))[0], TARGETS)
