"""Forms of an input; bidirectional networks, of which each direction is an HMLSTM of its own; stacks of networks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import hmrnn
from hmrnn import HMLSTM, Operation
from hmrnn.nn import Bidirectional
from hmrnn.nn.bidirectional import reverse_steps
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
        parts += [*one.h, *one.c, one.z, *([] if one.pending is None else [one.pending])]
    return parts


def some_forced(*directions: int) -> Tensor:
    """Boundaries of which a third is left to the detectors."""
    forced = torch.randint(3, (T, B, 2, *directions)).double().sub(1)
    return forced.where(forced >= 0, torch.nan)


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
    rnn, x, forced = network(engine=engine, **options), inputs(), some_forced(2)
    start = rnn(inputs(3, B, INPUT))[1].detach()
    out, state = rnn(x, start, lengths=LENGTHS, boundaries=forced)
    total = 0.0
    alone = [one_way(rnn, name, **options) for name in ("ahead", "back")]
    for n, length in enumerate(LENGTHS):
        for way, net in enumerate(alone):

            def own(a: Tensor, n: int = n, length: int = length, way: int = way) -> Tensor:
                """The steps of this sequence, in the order in which this network reads them."""
                return a[:length, n : n + 1].flip(0) if way else a[:length, n : n + 1]

            want, end = net(own(x), start[way].apply(lambda a, n=n: a[n : n + 1]), boundaries=own(forced[..., way]))
            hidden = [own(h.chunk(2, dim=-1)[way]) for h in out.hidden]
            got = out.apply(lambda a, own=own, way=way: own(a[..., way]), hidden=hidden)
            after = state[way].apply(lambda a, n=n: a[n : n + 1])
            assert_close(tensors(got, [after]), tensors(want, [end]))
            total = total + sum(h.pow(2).sum() for h in want.hidden)
        assert not any(h[length:, n].any() for h in out.hidden)
        assert (out.operations[length:, n] == Operation.COPY).all()
    sum(h.pow(2).sum() for h in out.hidden).backward()
    total.backward()
    for name, net in zip(("ahead", "back"), alone):
        for key, p in net.named_parameters():
            torch.testing.assert_close(rnn.get_parameter(f"{name}.{key}").grad, p.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"flush": False, "top_down": "pending"}])
def test_every_form_of_an_input_is_the_same_pass(options: dict[str, Any], in_order: bool, batch_first: bool) -> None:
    """B before T, packed, symbols of an embedding, and one sequence without a batch dimension."""
    rnn, both = HMLSTM(INPUT, SIZES, 3, **options).double(), "bidirectional" in options
    table, symbols, lengths = inputs(7, INPUT), torch.randint(7, (T, B)), sorted(LENGTHS, reverse=in_order)
    x, forced = table[symbols], some_forced(*[2] * both)
    start = rnn(inputs())[1].detach()

    def form(a: Tensor) -> Tensor:
        return a.transpose(0, 1) if batch_first else a

    def all_of(out: hmrnn.Output, end: Any) -> list[Tensor]:
        hidden = [pad_packed_sequence(h, batch_first)[0] if isinstance(h, PackedSequence) else h for h in out.hidden]
        return tensors(out.apply(form, hidden=map(form, hidden)), end if both else [end])

    out, end = rnn(x, start, lengths, forced)
    want = tensors(out, end if both else [end])
    rnn.batch_first = batch_first
    packed = pack_padded_sequence(form(x), torch.tensor(lengths), batch_first, enforce_sorted=in_order)
    assert_close(all_of(*rnn(form(x), start, lengths, form(forced))), want)
    assert_close(all_of(*rnn(packed, start, boundaries=form(forced))), want)
    assert_close(all_of(*rnn(form(symbols), start, lengths, form(forced), embedding=table)), want)
    n = lengths.index(6)
    one = rnn(x[:6, n], start.apply(lambda a: a[n]), boundaries=forced[:6, n])
    assert_close(
        tensors(one[0], one[1] if both else [one[1]]),
        [*(a[:6, n] for a in want[:6]), *(a[n] for a in want[6:])],
    )


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
        found = way.slope, way.temperature, way.weight_drop, way.engine, way.dropout
        assert found == (2.5, 0.5, 0.1, "reference", 0.25)
    rnn.set_detector_bias((0.5, -0.25))
    assert [b[-1].item() for b in rnn.detector_biases()] == [0.5, -0.25] * 2
    rnn.reset_parameters()
    assert rnn.slope == rnn.back.slope == 1.0


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
    with refused():
        HMLSTM(INPUT, SIZES, 3, bidirectional="yes")  # type: ignore[arg-type]
