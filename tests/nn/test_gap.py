"""GapModel: a prediction does not see its own symbol, and a gap is filled from both sides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn import InputError
from hmrnn.nn import GapModel


def test_a_prediction_sees_every_symbol_but_its_own() -> None:
    model = GapModel(5, 3, 6, 2).double()
    symbols = torch.randint(5, (8, 2))
    before = model(symbols)
    for t in (0, 3, 7):
        changed = symbols.clone()
        changed[t, 0] = (changed[t, 0] + 1) % 5
        same = (model(changed) == before).all(-1)
        assert same[:, 0].tolist() == [step == t for step in range(8)]
        assert same[:, 1].all()


def test_lengths() -> None:
    model, symbols = GapModel(5, 3, 6, 2).double(), torch.randint(5, (8, 2))
    padded = model(symbols, lengths=[8, 5])
    torch.testing.assert_close(padded[:5, 1:], model(symbols[:5, 1:]))


def sequences(count: int) -> Tensor:
    """(9, count): x, x, x, x, x or z, z, z, z, z, whichever is larger in the middle: it needs both sides."""
    x, z = torch.randint(6, (2, count))
    return torch.stack([x] * 4 + [torch.maximum(x, z)] + [z] * 4)


def test_a_gap_is_filled_from_both_sides() -> None:
    torch.manual_seed(0)
    model = GapModel(6, 8, 24, 1)  # one layer: an LSTM in both directions
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(100):
        symbols = sequences(64)
        missing = torch.rand(9, 64) < 0.4
        loss = F.cross_entropy(model(symbols, missing).flatten(0, 1), symbols.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    whole = sequences(64)
    missing = torch.zeros_like(whole, dtype=torch.bool)
    missing[3:6] = True
    missing[:, 32:] = False
    generator = torch.Generator().manual_seed(1)
    filled = model.fill(whole.masked_fill(missing, 0), missing, generator=generator)
    assert torch.equal(filled[~missing], whole[~missing])
    assert (filled == whole)[3:6, :32].float().mean() > 0.95
    drawn = model.fill(whole.masked_fill(missing, 0), missing, sweeps=2, temperature=5.0, generator=generator)
    assert not torch.equal(drawn, filled)


def test_what_is_refused() -> None:
    model, symbols = GapModel(5, 3, 6, 2), torch.randint(5, (8, 2))
    with pytest.raises(InputError, match=r"^symbols must have shape \(T, B\); got \(8,\)$"):
        model(symbols[:, 0])
    with pytest.raises(InputError, match=r"^missing must be bool of shape \(8, 2\); got \(8, 1\) of torch.bool$"):
        model.fill(symbols, symbols[:, :1] >= 0)
    with pytest.raises(InputError, match=r"^a GapModel takes symbols \(T, B\); leave batch_first out$"):
        GapModel(5, 3, 6, 2, batch_first=True)
