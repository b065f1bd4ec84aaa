"""Segmentation.of: what a network of one's own found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from hmrnn import HMLSTM, Segmentation
from refusals import refused


@pytest.mark.parametrize("both", [False, True])
def test_what_a_network_of_ones_own_found(both: bool) -> None:
    """Of one sequence in a batch, padded or packed, with either axis first, as of the sequence alone."""
    torch.manual_seed(0)
    rnn = HMLSTM(3, (4, 5, 6), layer_norm=True, bidirectional=both)
    x, text = torch.randn(9, 2, 3), "ab cd ef "
    out, _ = rnn(x, lengths=[9, 6])
    found = Segmentation.of(out, text[:6], 1)
    z = out.boundaries[:6, 1, :, 0] if both else out.boundaries[:6, 1]
    assert found.boundaries.tolist() == z.tolist()
    assert "".join(found.segments(1)) == text[:6]
    np.testing.assert_allclose(found.norms[:, 2], out.hidden[2][:6, 1].norm(dim=-1).detach(), rtol=1e-5)
    across = HMLSTM(3, (4, 5, 6), layer_norm=True, bidirectional=both, batch_first=True)
    across.load_state_dict(rnn.state_dict())
    for other in (
        Segmentation.of(across(x.transpose(0, 1), lengths=[9, 6])[0], text[:6], 1),
        Segmentation.of(across(x[:6, 1])[0], text[:6]),
        Segmentation.of(rnn(pack_padded_sequence(x, torch.tensor([9, 6])))[0], text[:6], 1),
        Segmentation.of(rnn(x[:6, 1])[0], text[:6]),
    ):
        assert other.operations.tolist() == found.operations.tolist()
        np.testing.assert_allclose(other.norms, found.norms, rtol=1e-5)
    with refused():
        Segmentation.of(out, text + "g")
