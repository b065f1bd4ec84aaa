"""The reference engine: values and gradients against another writing of the equations."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from against_reference import Case, evaluate, expected, make, worst
from hmrnn.nn.output import Operation
from literal import polynomial
from pairs import CELLS, grid

STRAIGHT = {"straight_through": True}
OPTIONS = [
    {"sizes": sizes, "layer_norm": layer_norm, "on_copy": on_copy, "boundary": boundary, **extras}
    for sizes, layer_norm, on_copy, boundary, extras in grid(
        [(5,), (5, 4), (4, 6, 3), (3, 5, 4, 2)],
        (False, True),
        ("hold", "evaluate"),
        ("step", "sample", "soft", "gumbel", "reinforce"),
        (
            {},
            {"lengths": True, "zoneout": "masks"},
            {"forced": "some", "dropout": True},
            {"forced": "all", **STRAIGHT},
        ),
        strength=3,
    )
]
OPTIONS += [
    {"T": 6, **more, **cell}
    for cell in CELLS
    for more in (
        {},
        {"layer_norm": True, "on_copy": "hold", "forced": "some", "lengths": True, **STRAIGHT},
        {"boundary": "sample", "layer_norm": True, "lengths": True, "symbols": 7, "hidden": 7, "zoneout": "share"},
        {"boundary": "soft", "on_copy": "hold", "layer_norm": True, "detector": 0.3, "dropout": True},
        {"on_copy": "hold", "hidden": 5, "learn_slope": True, "detector": 0.3},
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_and_gradients_are_those_of_the_literal_writing(options: dict[str, Any]) -> None:
    """Through every use of z: the choice, and the gates of what comes from above and below."""
    case = Case(**{"T": 9, "B": 4, **options})
    given, done = make(case, torch.float64), list[Tensor]()
    want = evaluate(functools.partial(polynomial, operations=done), given, torch.float64)
    error, name = worst(expected(given), want)
    assert error < 1e-10, f"{name}: {error}"
    assert all(bool(a.any()) for name, a in want.items() if name.startswith(("gradient of U", "gradient of W")))
    active = None if given.lengths is None else torch.arange(case.T)[:, None] < given.lengths
    found = case.variant.operations(want["boundaries"], given.state.z, active)
    assert torch.equal(found, torch.stack(done))
    if case.boundary != "soft" and len(case.sizes) > 1:  # the comparison met every operation
        met = {Operation.UPDATE, *([Operation.FLUSH] * case.flush), *([Operation.COPY] * case.copy)}
        assert set((found if active is None else found[active]).flatten().tolist()) == met
