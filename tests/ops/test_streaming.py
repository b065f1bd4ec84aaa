"""``rnn.step``: the forward pass one step at a time, and what a state remembers of the step that it comes from."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils import parametrize

from hmrnn import HMLSTM, State
from hmrnn.nn.output import changes
from hmrnn.ops import Step, reference
from hmrnn.ops.estimators import BOUNDARIES, ON_COPY
from hmrnn.ops.interface import TOP_DOWN
from refusals import refused

T, INPUT, SIZES = 10, 4, (6, 5, 4)


def stream(rnn: HMLSTM, x: Tensor, forced: Tensor | None = None, state: State | None = None) -> list[Step]:
    steps: list[Step] = []
    for t, x_t in enumerate(x):
        last = steps[-1].state if steps else state
        steps.append(rnn.step(x_t, last, None if forced is None else forced[t]))
    return steps


@given(
    st.fixed_dictionaries(
        {
            "layer_norm": st.booleans(),
            "boundary": st.sampled_from(BOUNDARIES),
            "on_copy": st.sampled_from(ON_COPY),
            "flush": st.booleans(),
            "top_down": st.sampled_from(TOP_DOWN),
            "copy": st.booleans(),
            "detector_hidden": st.sampled_from([0, 3]),
            "zoneout": st.sampled_from([0.0, 0.3]),
        }
    ),
    st.sampled_from([SIZES, (4,), (4, 5, 3, 2)]),
    st.sampled_from([1, 5]),
    st.sampled_from([None, 0.0, 0.4]),
)
def test_steps_are_the_forward_pass(options: dict, sizes: tuple[int, ...], batch: int, free: float | None) -> None:
    rnn = HMLSTM(INPUT, sizes, len(sizes), **options).double().eval()
    rnn.slope = 1.6
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    x, forced = torch.randn(T, batch, INPUT).double(), None
    if free is not None:
        forced = (torch.rand(T, batch, len(sizes) - 1) < 0.4).double()
        forced[torch.rand_like(forced) < free] = torch.nan
    out, end = rnn(x, boundaries=forced)
    exact = reference.hmlstm(x, rnn.layers(), rnn.initial_state(batch), rnn.options(), boundaries=forced)
    steps = stream(rnn, x, forced)
    for l in range(len(sizes)):
        torch.testing.assert_close(torch.stack([step.state.h[l] for step in steps]), exact.hidden[l])
        torch.testing.assert_close(out.hidden[l], exact.hidden[l])
    torch.testing.assert_close(torch.stack([step.probabilities for step in steps]), exact.probabilities)
    torch.testing.assert_close(torch.stack([step.state.z for step in steps]), exact.boundaries)
    assert torch.equal(torch.stack([step.changed for step in steps]), changes(out, rnn))
    for got, want in zip(steps[-1].state, end):
        torch.testing.assert_close(got, want)
    assert not any(a.requires_grad for a in (*steps[-1].state.h, *steps[-1].state.c, steps[-1].state.z))


def test_a_stream_may_go_on_from_a_pass_and_a_pass_from_a_stream() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3)
    x = torch.randn(T, 2, INPUT)
    out, _ = rnn(x)
    _, state = rnn(x[:4])
    rest, _ = rnn(x[8:], stream(rnn, x[4:8], state=state)[-1].state)
    assert torch.equal(rest.hidden[2], out.hidden[2][8:])


def test_a_stream_draws_nothing() -> None:
    """While training, too, it is that of eval(): neither boundaries nor what is dropped."""
    rnn = HMLSTM(INPUT, 16, 3, boundary="sample", weight_drop=0.5, dropout=0.5, zoneout=0.3)
    x = torch.randn(9, 3, INPUT)
    ends = [stream(rnn, x)[-1].state, stream(rnn, x)[-1].state, rnn.eval()(x)[1]]
    for end in ends[1:]:
        assert all(map(torch.equal, (*end.h, *end.c, end.z), (*ends[0].h, *ends[0].c, ends[0].z)))


def test_bad_input_is_named() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3)
    later = stream(rnn, torch.randn(2, 3, INPUT))[-1].state
    x = torch.zeros(3, 4)
    for state in (None, later):  # at the start of a stream and in it
        for bad in (torch.zeros(3, 2), torch.zeros(4), [0.0] * 4, x.fill_(torch.nan).clone(), x.fill_(1e33).clone()):
            with refused("x"):
                rnn.step(bad, state)
        for boundaries in (torch.zeros(3, 1), torch.full((3, 2), 7.0)):
            with refused("boundaries"):
                rnn.step(x.zero_(), state, boundaries)
    for state in (rnn.initial_state(3)._replace(z=torch.zeros(2, 2)), rnn.initial_state(2)):
        with refused("state"):
            rnn.step(x, state)


class Scaled(torch.nn.Module):
    """Of a weight: a parametrization, by which it is computed anew whenever it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.k = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, weight: Tensor) -> Tensor:
        return self.k * weight


def replace_a_weight(rnn: HMLSTM, state: State) -> None:
    rnn.U[1] = torch.nn.Parameter(-rnn.U[1], requires_grad=False)


CHANGES: dict[str, Callable[[HMLSTM, State], object]] = {
    "a weight": lambda rnn, state: rnn.U[0].neg_(),
    "a gain": lambda rnn, state: rnn.gain_c[0].add_(0.3),
    "the detector's hidden layer": lambda rnn, state: rnn.d2[0].sub_(0.3),
    "another weight": replace_a_weight,
    "the memory of a weight": lambda rnn, state: setattr(rnn.U[0], "data", -rnn.U[0].data),
    "a loaded weight": lambda rnn, state: rnn.load_state_dict({name: a + 0.3 for name, a in rnn.state_dict().items()}),
    "the slope": lambda rnn, state: setattr(rnn, "slope", 3.0),
    "what a weight is computed from": lambda rnn, state: rnn.U.parametrizations["0"][0].k.mul_(-3),  # type: ignore[union-attr]
    "flush": lambda rnn, state: setattr(rnn, "flush", False),
    "zoneout": lambda rnn, state: setattr(rnn, "zoneout", 0.5),
    "the engine": lambda rnn, state: setattr(rnn, "engine", "reference"),
    "h in place": lambda rnn, state: state.h[1].add_(0.3),
    "h in inference mode": lambda rnn, state: state.h[1].add_(0.3),
    "another h": lambda rnn, state: state._replace(h=(state.h[0], state.h[1] + 0.3, state.h[2])),
    "another z": lambda rnn, state: state._replace(z=1 - state.z),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_network_or_the_state_is_noticed(what: str) -> None:
    rnn = HMLSTM(INPUT, SIZES, 3, layer_norm=True, detector_hidden=3).requires_grad_(False)
    rnn.slope = 0.1  # in the linear range, where every change is seen
    if what == "what a weight is computed from":
        parametrize.register_parametrization(rnn.U, "0", Scaled())
    x, ones = torch.randn(3, 2, INPUT), torch.ones(3, 2, 2)
    with torch.inference_mode(what == "h in inference mode"), torch.no_grad():
        state = stream(rnn, x, ones)[-1].state
        before = rnn.step(x[0], state)
        given = CHANGES[what](rnn, state)
    state = given if isinstance(given, State) else state
    found, wanted = rnn.step(x[0], state), rnn.step(x[0], state.detach())
    pairs = [*zip(found.state.h, wanted.state.h), (found.probabilities, wanted.probabilities)]
    torch.testing.assert_close(*zip(*pairs), rtol=0, atol=0 if what != "the engine" else 1e-6)
    changed = not all(map(torch.equal, (*found.state.h, found.probabilities), (*before.state.h, before.probabilities)))
    assert changed or what == "the engine"


def test_a_state_may_be_copied_pickled_saved_and_taken_apart() -> None:
    rnn, x = HMLSTM(INPUT, SIZES, 3), torch.randn(2, 1, INPUT)
    state = stream(rnn, x)[-1].state
    wanted = rnn.step(x[0], state).state
    for copied in (copy.deepcopy(state), pickle.loads(pickle.dumps(state)), state.detach(), State(*state)):
        assert type(copied) is State
        assert all(map(torch.equal, rnn.step(x[0], copied).state.h, wanted.h))
    h, c, z, pending = state
    assert (len(h), len(c), z.shape, pending) == (3, 3, (1, 2), None)


def test_threads_may_go_on_from_one_state() -> None:
    rnn, x = HMLSTM(16, 64, 3), torch.randn(64, 1, 16)
    state = stream(rnn, x[:2])[-1].state
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x_t: rnn.step(x_t, state), x))
    for step, x_t in zip(found, x):
        assert torch.equal(step.state.h[2], rnn.step(x_t, state.detach()).state.h[2])


@pytest.mark.slow
@pytest.mark.filterwarnings("error:Dynamo does not know")
def test_a_compiled_stream() -> None:
    rnn, x = HMLSTM(INPUT, SIZES, 3), torch.randn(3, 2, INPUT)
    found = torch.compile(lambda: stream(rnn, x)[-1].state, backend="eager")()
    assert all(map(torch.equal, found.h, stream(rnn, x)[-1].state.h))


def test_a_transformed_step_goes_on_from_a_plain_one() -> None:
    rnn, x = HMLSTM(INPUT, SIZES, 3), torch.randn(7, 2, INPUT)
    state = stream(rnn, x[:2])[-1].state
    mapped = torch.func.vmap(lambda x_t: rnn.step(x_t, state).state.h[2])(x)
    torch.testing.assert_close(mapped, torch.stack([rnn.step(x_t, state).state.h[2] for x_t in x]))
