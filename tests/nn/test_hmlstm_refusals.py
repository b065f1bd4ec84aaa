"""HMLSTM says what is wrong with its arguments, inputs and state."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from hmrnn import HMLSTM, HMLSTMCell, State, nn
from hmrnn.nn import ReadOut, SequenceReadOut
from hmrnn.nn.baselines.cells import PeepholeLSTM
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.recurrent import LSTM
from refusals import refused

T, B, INPUT, SIZES = 9, 4, 5, (6, 4, 3)
LENGTHS = [4, 9, 1, 6]


Call = Callable[[HMLSTM], object]
X = torch.zeros(T, B, INPUT)
SYMBOLS, TABLE = torch.zeros(T, B, dtype=torch.int64), torch.zeros(7, INPUT)


def changed(rnn: HMLSTM, **parts: Any) -> State:
    return rnn.initial_state(B)._replace(**parts)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda r: r(torch.zeros(T, B, 7)), "x"),
        (lambda r: r(X[:, 0], lengths=[3]), "lengths"),
        (lambda r: r(X[:, 0], r.initial_state(1)), "state"),
        (lambda r: r(X[:, 0], boundaries=torch.zeros(T, 1, 2)), "boundaries"),
        (lambda r: r(torch.zeros(0, B, INPUT)), "x"),
        (lambda r: r(X.tolist()), "x"),
        (lambda r: r(X.double()), "x"),
        (lambda r: r(X.to("meta")), "x"),
        (lambda r: r(SYMBOLS.float(), embedding=TABLE), "x"),
        (lambda r: r(SYMBOLS, embedding=TABLE[:, 1:]), "embedding"),
        (lambda r: r(SYMBOLS, embedding=TABLE.to("meta")), "embedding"),
        (lambda r: r(X, r.initial_state(3)), "state"),
        (lambda r: r(X, changed(r, c=r.initial_state(B).c[:2])), "state"),
        (lambda r: r(X, changed(r, z=torch.zeros(B, 2, device="meta"))), "state"),
        (lambda r: r(X, (X, X)), "state"),
        (lambda r: r(X.to_sparse()), "x"),
        (lambda r: r.step(X[0].to_sparse_csr()), "x"),
        (lambda r: r(SYMBOLS, embedding=TABLE.to_sparse()), "embedding"),
        (lambda r: r(X, lengths=torch.tensor(LENGTHS).to_sparse()), "lengths"),
        (lambda r: r(torch.nested.as_nested_tensor([X[0]], layout=torch.jagged)), "x"),
        (lambda r: r(X, lengths=[1, 2, 3]), "lengths"),
        (lambda r: r(X, lengths=[True] * 4), "lengths"),
        (lambda r: r(X, lengths=[[1], [2, 3], [4], [5]]), "lengths"),
        (lambda r: r(X, lengths=[9, 10, 1, 1]), "lengths"),
        (lambda r: r(pack_padded_sequence(X, torch.tensor([9] * 4)), lengths=LENGTHS), "lengths"),
        (lambda r: r(X, boundaries=torch.zeros(T, B, 3)), "boundaries"),
        (lambda r: r(X, boundaries=torch.zeros(T, B, 2, device="meta")), "boundaries"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Call, name: str) -> None:
    with refused(name):
        call(HMLSTM(INPUT, SIZES, 3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_size", 0), ("input_size", 2.0), ("num_layers", 0), ("num_layers", True), ("hidden_size", -3),
        ("hidden_size", 2.5), ("hidden_size", (4, 0, 4)), ("hidden_size", (4, 5)), ("hidden_size", ()),
        ("boundary", "hard"), ("on_copy", "skip"), ("detector_hidden", -1), ("detector_hidden", True),
        ("engine", "fastest"),
    ],
)  # fmt: skip
def test_bad_construction_is_named(name: str, value: Any) -> None:
    with refused(name):
        HMLSTM(**({"input_size": 5, "hidden_size": 4, "num_layers": 3} | {name: value}))


WITH_SWITCHES: dict[type, tuple[Any, ...]] = {
    HMLSTM: (5, 4), HMLSTMCell: (5, 4), ClockworkRNN: (5, 4), PeepholeLSTM: (5, 4),
    LSTM: (5, 4), nn.LSTM: (5, 4), ReadOut: ([4], 2), SequenceReadOut: ([4], 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", WITH_SWITCHES)
def test_a_switch_is_true_or_false(kind: type) -> None:
    """Each option whose default is one of them: other values would count as True."""
    options = inspect.signature(kind).parameters | inspect.signature(kind.__mro__[1]).parameters
    switches = [name for name, option in options.items() if isinstance(option.default, bool)]
    assert switches
    for name in switches:
        for wrong in ("no", 1, None, [False]):
            with refused(name):
                kind(*WITH_SWITCHES[kind], **{name: wrong})
