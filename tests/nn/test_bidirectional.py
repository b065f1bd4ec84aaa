"""Bidirectional networks: each direction is an HMLSTM of its own; stacks of networks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import hmrnn
from hmrnn import HMLSTM, Operation, State
from hmrnn.nn import Bidirectional, ReadOut, Stack
from hmrnn.nn.bidirectional import States, reverse_steps
from refusals import refused

T, B, INPUT, SIZES = 9, 4, 5, (6, 4, 3)
LENGTHS = [4, 9, 1, 6]
NAMES = ("boundaries", "probabilities", "operations")


def network(**options: Any) -> Bidirectional:
    rnn = HMLSTM(INPUT, SIZES, 3, bidirectional=True, **options).double()
    assert isinstance(rnn, Bidirectional)
    return rnn


def inputs(*shape: int) -> Tensor:
    return torch.randn(*(shape or (T, B, INPUT)), dtype=torch.float64)


def tensors(out: hmrnn.Output, state: Any) -> list[Tensor]:
    parts = [*out.hidden, *(getattr(out, name) for name in NAMES)]
    for one in state:
        parts += [*one.h, *one.c, one.z]
    return parts


def assert_close(got: list[Tensor], want: list[Tensor]) -> None:
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def one_way(rnn: Bidirectional, name: str, **options: Any) -> HMLSTM:
    """An HMLSTM with the parameters of one direction."""
    alone = HMLSTM(INPUT, SIZES, 3, **options).double()
    prefix = f"{name}."
    alone.load_state_dict({k.removeprefix(prefix): v for k, v in rnn.state_dict().items() if k.startswith(prefix)})
    return alone


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("options", [{}, {"layer_norm": True, "flush": False, "top_down": "pending"}])
def test_each_direction_is_a_network_of_its_own(engine: str, options: dict[str, Any]) -> None:
    """Sequence by sequence, from a state, with some boundaries forced; the gradient, too."""
    rnn, x, start = network(engine=engine, **options), inputs(), None
    _, start = rnn(inputs(3, B, INPUT))
    start = start.detach()
    forced = torch.randint(3, (T, B, 2, 2)).double().sub(1)
    forced[forced < 0] = torch.nan
    out, state = rnn(x, start, lengths=LENGTHS, boundaries=forced)
    assert [h.shape for h in out.hidden] == [(T, B, 2 * size) for size in SIZES]
    assert out.boundaries.shape == out.probabilities.shape == (T, B, 2, 2)
    assert out.operations.shape == (T, B, 3, 2)
    alone = [one_way(rnn, name, **options) for name in ("ahead", "back")]
    total = 0.0
    for n, length in enumerate(LENGTHS):
        for way, (net, order) in enumerate(zip(alone, (1, -1))):
            own = start[way].apply(lambda a, n=n: a[n : n + 1])
            mine = [
                a[:length, n : n + 1].flip(0) if order < 0 else a[:length, n : n + 1] for a in (x, forced[..., way])
            ]
            want, end = net(mine[0], own, boundaries=mine[1])
            for l, size in enumerate(SIZES):
                got = out.hidden[l][:length, n : n + 1, way * size : (way + 1) * size]
                torch.testing.assert_close(got[::1] if order > 0 else got.flip(0), want.hidden[l], rtol=0, atol=1e-12)
                assert not out.hidden[l][length:, n].any()
                total = total + want.hidden[l].pow(2).sum()
            for name in NAMES:
                got = getattr(out, name)[:length, n : n + 1, :, way]
                assert_close([got if order > 0 else got.flip(0)], [getattr(want, name)])
            after = state[way].apply(lambda a, n=n: a[n : n + 1])
            assert_close([*after.h, *after.c, after.z], [*end.h, *end.c, end.z])
        assert (out.operations[length:, n] == Operation.COPY).all()
    sum(h.pow(2).sum() for h in out.hidden).backward()
    total.backward()
    for name, net in zip(("ahead", "back"), alone):
        for key, p in net.named_parameters():
            got = rnn.get_parameter(f"{name}.{key}").grad
            torch.testing.assert_close(got, p.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"layer_norm": True, "flush": False, "top_down": "pending"}])
def test_packed_sequences_on_a_gpu_give_what_the_reference_gives(options: dict[str, Any]) -> None:
    rnn, x = network(engine="reference", **options).float(), inputs().float()
    want, state = rnn(pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False))
    rnn = rnn.cuda()
    rnn.engine = "cuda"
    got, end = rnn(pack_padded_sequence(x.cuda(), torch.tensor(LENGTHS), enforce_sorted=False))
    for a, b in zip((*got.hidden, *got.boundaries, *end[1].h), (*want.hidden, *want.boundaries, *state[1].h)):
        mine, theirs = (one.data if isinstance(one, PackedSequence) else one for one in (a, b))
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)
    sum(h.data.square().sum() for h in got.hidden).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in rnn.parameters())


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_batch_first_packed_symbols_and_one_sequence_are_the_same_pass(engine: str) -> None:
    rnn, embedding, symbols = network(engine=engine), inputs(7, INPUT), torch.randint(7, (T, B))
    x, forced = embedding[symbols], torch.randint(2, (T, B, 2, 2)).double()
    want = tensors(*rnn(x, lengths=LENGTHS, boundaries=forced))
    assert_close(tensors(*rnn(symbols, lengths=LENGTHS, boundaries=forced, embedding=embedding)), want)
    order = torch.tensor(LENGTHS)
    for batch_first in (False, True):
        rnn.batch_first = batch_first
        given = x.transpose(0, 1) if batch_first else x
        packed = pack_padded_sequence(given, order, batch_first, enforce_sorted=False)
        also = forced.transpose(0, 1) if batch_first else forced
        padded = rnn(given, lengths=LENGTHS, boundaries=also)
        turned, state = rnn(packed, boundaries=also)
        hidden = [pad_packed_sequence(h, batch_first)[0] for h in turned.hidden]
        for got, end in ((padded[0].hidden, padded[1]), (hidden, state)):
            steps = [*got, *(getattr(turned, name) for name in NAMES)]
            steps = [a.transpose(0, 1) for a in steps] if batch_first else steps
            assert_close([*steps, *[a for s in end for a in (*s.h, *s.c, s.z)]], want)
        one, ends = rnn(x[:6, 3], boundaries=forced[:6, 3])
        assert one.hidden[0].shape == (6, 12)
        assert_close([one.hidden[0], one.operations, ends[1].h[2]], [want[0][:6, 3], want[5][:6, 3], want[15][3]])


def test_reversed_steps_leave_the_padding_where_it_is() -> None:
    a = torch.arange(8).view(4, 2)
    assert reverse_steps(a).tolist() == [[6, 7], [4, 5], [2, 3], [0, 1]]
    turned = reverse_steps(a, [3, 2])
    assert turned.tolist() == [[4, 3], [2, 1], [0, 5], [6, 7]]
    x = inputs()
    x[4:, 0] = torch.nan
    out, _ = network()(x, lengths=LENGTHS)
    assert all(h.isfinite().all() for h in out.hidden)


def test_names_copies_and_saving() -> None:
    rnn, x = network(layer_norm=True), inputs()
    one = HMLSTM(INPUT, SIZES, 3, layer_norm=True)
    assert set(rnn.state_dict()) == {f"{way}.{name}" for way in ("ahead", "back") for name in one.state_dict()}
    want = tensors(*rnn(x))
    for twin in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        assert_close(tensors(*twin(x)), want)
    with torch.no_grad():
        twin.ahead.U[0].zero_()
        twin.back.b[0].add_(1)
    assert_close(tensors(*rnn(x)), want)
    parameters = {name: torch.zeros_like(p) for name, p in rnn.named_parameters()}
    assert not torch.func.functional_call(rnn, parameters, (x,))[0].hidden[2].any()

    class Mine(HMLSTM):
        pass

    assert [type(way) for way in Mine(INPUT, 4, bidirectional=True).directions] == [Mine, Mine]


def test_options_are_those_of_both_directions() -> None:
    rnn = network(boundary="gumbel", dropout=0.25)
    assert (rnn.input_size, rnn.num_layers, rnn.num_boundaries, rnn.hidden_sizes) == (INPUT, 3, 2, SIZES)
    assert rnn.output_sizes == (12, 8, 6)
    rnn.slope, rnn.temperature, rnn.weight_drop, rnn.engine = 2.5, 0.5, 0.1, "reference"
    for way in rnn.directions:
        assert (way.slope, way.temperature, way.weight_drop, way.engine, way.dropout) == (
            2.5,
            0.5,
            0.1,
            "reference",
            0.25,
        )
    rnn.set_detector_bias((0.5, -0.25))
    assert [b[-1].item() for b in rnn.detector_biases()] == [0.5, -0.25] * 2
    rnn.reset_parameters()
    assert rnn.slope == rnn.back.slope == 1.0
    start = rnn.initial_state(B)
    assert isinstance(start, States)
    rnn.eval()
    x = inputs()
    assert_close(tensors(*rnn(x, start)), tensors(*rnn(x)))
    read_out = ReadOut(rnn.output_sizes, 2).double()
    assert read_out(rnn(x)[0].hidden).shape == (T, B, 2)


def test_what_is_refused() -> None:
    rnn, x = network(), inputs()
    _, state = rnn(x)
    for bad in (state[0], (state[0],), 3):
        with refused("state"):
            rnn(x, bad)
    with refused("state"):
        rnn(x, (1, 2))
    for shape in ((T, B, 2), (T, B, 2, 3)):
        with refused():
            rnn(x, boundaries=torch.zeros(shape))
    with refused("boundaries"):
        rnn(x, boundaries=torch.zeros(T, B, 1, 2))
    with refused("boundaries"):
        rnn(x, boundaries=[1])
    with refused("lengths"):
        rnn(x, lengths=[4, 10, 1, 6])
    with refused("lengths"):
        rnn(pack_padded_sequence(x, torch.tensor([9, 9, 9, 9])), lengths=LENGTHS)
    with refused():
        HMLSTM(INPUT, SIZES, 3, bidirectional="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_stack_feeds_all_layers_to_the_next_network(bidirectional: bool) -> None:
    low = HMLSTM(INPUT, (6, 4), 2, bidirectional=bidirectional)
    high = HMLSTM(sum(low.output_sizes), (3, 5), 2, bidirectional=bidirectional)
    stack, x = Stack([low, high]).double(), inputs()
    outs, states = stack(x, lengths=LENGTHS)
    first, end = low(x, lengths=LENGTHS)
    second, top = high(torch.cat(first.hidden, dim=-1), lengths=LENGTHS)
    assert stack.output_sizes == high.output_sizes
    assert_close([*outs[0].hidden, *outs[1].hidden], [*first.hidden, *second.hidden])
    packed, _ = stack(pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False))
    assert_close([pad_packed_sequence(h)[0] for h in packed[1].hidden], [*second.hidden])
    again, _ = stack(x, states, boundaries=[None, torch.ones_like(second.boundaries)])
    want, _ = low(x, end)
    assert_close(
        [*again[0].hidden, *again[1].hidden],
        [
            *want.hidden,
            *high(torch.cat(want.hidden, dim=-1), top, boundaries=torch.ones_like(second.boundaries))[0].hidden,
        ],
    )
    symbols, embedding = torch.randint(7, (T, B)), inputs(7, INPUT)
    by_symbol, _ = stack(symbols, embedding=embedding)
    assert_close([*by_symbol[1].hidden], [*stack(embedding[symbols])[0][1].hidden])
    with refused("states"):
        stack(x, states[:1])
    with refused():
        Stack([low, low])
    with refused():
        Stack([low, HMLSTM(sum(low.output_sizes), 3, 2, batch_first=True)])
    with refused():
        Stack([])


def test_a_state_of_one_direction_is_an_ordinary_state() -> None:
    rnn, x = network(), inputs()
    _, (ahead, back) = rnn(x)
    assert isinstance(ahead, State)
    assert isinstance(back, State)
    alone = one_way(rnn, "back")
    assert_close([*back.h], [*alone(x.flip(0))[1].h])
