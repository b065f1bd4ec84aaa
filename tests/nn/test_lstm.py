"""hmrnn.nn.LSTM: torch's numbers, calls and shapes; with layer norm its equations, in every way to call it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import hmrnn
from hmrnn.nn import LSTM
from hmrnn.nn.baselines.recurrent import LSTM as Stacked
from hmrnn.nn.lstm import swapped
from refusals import refused

T, B, INPUT, H = 11, 4, 3, 6
LENGTHS = torch.tensor([5, 11, 1, 8])
VARIANTS: list[dict[str, Any]] = [
    {}, {"num_layers": 3}, {"num_layers": 2, "bidirectional": True}, {"num_layers": 2, "batch_first": True},
    {"num_layers": 2, "bias": False}, {"num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True},
]  # fmt: skip
every_variant = pytest.mark.parametrize("options", VARIANTS, ids=str)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def pair(engine: str = "auto", **options: Any) -> tuple[nn.LSTM, LSTM]:
    theirs = nn.LSTM(INPUT, H, **options).double()
    return theirs, LSTM.from_torch(theirs, engine=engine)


def perturbed(module: nn.Module) -> Any:
    """With random numbers in every parameter: zero biases and unit gains would hide what is not read."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return module


def batch(options: dict[str, Any]) -> Tensor:
    x = torch.randn(T, B, INPUT, dtype=torch.float64)
    return x.transpose(0, 1).contiguous() if options.get("batch_first") else x


def start(options: dict[str, Any], *sizes: int) -> tuple[Tensor, Tensor]:
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    h, c = torch.randn(2, rows, *sizes, H, dtype=torch.float64).requires_grad_()
    return h, c


@every_variant
@pytest.mark.parametrize("engine", ["native", "torch", "reference"])
def test_outputs_and_gradients_are_those_of_torch(options: dict[str, Any], engine: str) -> None:
    theirs, ours = pair(engine, **options)
    x, (h0, c0) = batch(options).requires_grad_(), start(options, B)
    wanted, (h, c) = theirs(x, (h0, c0))
    out, (h_n, c_n) = ours(x, (h0, c0))
    close(out, wanted)
    close(h_n, h)
    close(c_n, c)

    def gradients(module: nn.Module, *ends: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
        names, parameters = zip(*module.named_parameters())
        loss = ends[0].pow(3).sum() + ends[1].sin().sum() + ends[2].pow(2).sum()
        found = torch.autograd.grad(loss, (x, h0, c0, *parameters))
        return list(found[:3]), dict(zip(names, found[3:]))

    wanted_inputs, by_name = gradients(theirs, wanted, h, c)
    inputs, mine = gradients(ours, out, h_n, c_n)
    for a, b in zip(inputs, wanted_inputs):
        close(a, b)
    assert len(mine) == len(by_name) * (3 if ours.bias else 4) // 4
    for name, gradient in mine.items():
        kind, k = name.split(".")
        layer, direction = divmod(int(k), ours.directions)
        end = f"l{layer}{'_reverse' if direction else ''}"
        close(gradient, swapped(by_name[{"U": "weight_hh_", "W": "weight_ih_", "b": "bias_ih_"}[kind] + end]))


@every_variant
def test_packed_sequences(options: dict[str, Any]) -> None:
    theirs, ours = pair(**options)
    first, (h0, c0) = bool(options.get("batch_first")), start(options, B)
    packed = pack_padded_sequence(batch(options), LENGTHS, batch_first=first, enforce_sorted=False)
    for state in (None, (h0, c0)):
        wanted, (h, c) = theirs(packed, state)
        out, (h_n, c_n) = ours(packed, state)
        assert isinstance(out, PackedSequence)
        close(out.data, wanted.data)
        close(h_n, h)
        close(c_n, c)
        close(pad_packed_sequence(out)[0], pad_packed_sequence(wanted)[0])


@every_variant
def test_a_sequence_without_a_batch_dimension(options: dict[str, Any]) -> None:
    theirs, ours = pair(**options)
    x, state = torch.randn(T, INPUT, dtype=torch.float64), start(options)
    for given in (None, state):
        wanted, (h, c) = theirs(x, given)
        out, (h_n, c_n) = ours(x, given)
        close(out, wanted)
        close(h_n, h)
        close(c_n, c)


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("options", [{"zoneout": 0.3}, {"layer_norm": True}, {"layer_norm": True, "zoneout": 0.3}])
def test_it_is_a_stack_of_hmlstms_of_one_layer(options: dict[str, Any], engine: str) -> None:
    """Forwards and backwards, while training and in eval()."""
    ours = perturbed(LSTM(INPUT, H, 2, engine=engine, **options).double())
    layers = [hmrnn.HMLSTM(size, H, 1, engine="reference", **options).double() for size in (INPUT, H)]
    for k, layer in enumerate(layers):
        layer.load_state_dict({f"{name}.0": getattr(ours, name)[k] for name in ours._modules}, strict=False)
    x = batch({})
    for training in (True, False):
        torch.manual_seed(1)
        out, (h, c) = ours.train(training)(x)
        torch.manual_seed(1)
        below, ends = x, []
        for layer in layers:
            made, state = layer.train(training)(below)
            below = made.hidden[0]
            ends.append(state)
        close(out, below)
        close(h, torch.stack([state.h[0] for state in ends]))
        close(c, torch.stack([state.c[0] for state in ends]))
        mine = torch.autograd.grad(out.pow(3).sum(), ours.parameters())
        for (name, _), gradient in zip(ours.named_parameters(), mine):
            kind, k = name.split(".")
            theirs = getattr(layers[int(k)], kind)[0]
            close(gradient, torch.autograd.grad(below.pow(3).sum(), theirs, retain_graph=True)[0])


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_baseline_runs_the_same_code(layer_norm: bool) -> None:
    ours = perturbed(LSTM(INPUT, H, 3, layer_norm=layer_norm).double())
    baseline = Stacked(INPUT, H, 3, layer_norm=layer_norm).double()
    baseline.load_state_dict(
        {f"layers.{name.split('.')[1]}.{name.split('.')[0]}.0": p for name, p in ours.state_dict().items()}
    )
    x = batch({})
    out, (h, c) = ours(x)
    hidden, state = baseline(x)
    assert torch.equal(out, hidden.hidden[2])
    assert torch.equal(h, torch.stack(state.h))
    assert torch.equal(c, torch.stack(state.c))


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_recurrent_dropout_takes_weights_of_u_away_for_a_call(engine: str) -> None:
    ours, x = LSTM(INPUT, H, 1, recurrent_dropout=0.4, engine=engine).double(), batch({})
    out, _ = ours(x)
    kept = torch.autograd.grad(out.pow(3).sum(), ours.U[0])[0] != 0
    assert 0.4 < kept.double().mean() < 0.8
    ours.eval()
    with torch.no_grad():
        ours.U[0].mul_(kept.double() / 0.6)
    close(ours(x)[0], out)


def test_dropout_is_between_layers_and_while_training() -> None:
    ours, x = LSTM(INPUT, H, 2, dropout=0.9).double(), batch({})
    assert not torch.equal(ours(x)[0], ours(x)[0])
    ours.eval()
    whole = ours(x)[0]
    close(whole, ours(x)[0])
    one = LSTM(INPUT, H, 1, dropout=0.9).double()
    assert torch.equal(one(x)[0], one(x)[0])


def test_engines() -> None:
    assert "native" in repr(LSTM(INPUT, H))
    assert "torch" in repr(LSTM(INPUT, H, dtype=torch.bfloat16))
    assert "reference" in repr(LSTM(INPUT, H, layer_norm=True, dtype=torch.bfloat16))
    assert LSTM(INPUT, H, dtype=torch.bfloat16)(torch.randn(T, B, INPUT).bfloat16())[0].dtype == torch.bfloat16
    for options in ({"layer_norm": True}, {"zoneout": 0.1}):
        with refused():
            LSTM(INPUT, H, engine="torch", **options)(torch.randn(T, B, INPUT))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: LSTM(INPUT, H)(torch.randn(T, B, 5)), "x"),
        (lambda: LSTM(INPUT, H)(torch.randn(T, B, INPUT), (torch.zeros(1, 1, H),) * 2), "state"),
        (lambda: LSTM(INPUT, H)(torch.randn(T, INPUT), (torch.zeros(1, 1, H),) * 2), "state"),
        (lambda: LSTM(INPUT, H)(torch.randn(T, B, INPUT), torch.zeros(1, B, H)), "state"),
        (lambda: LSTM(INPUT, H)(torch.randn(T, B, INPUT), (torch.zeros(1, B, H).double(),) * 2), "state"),
        (lambda: LSTM(INPUT, H, engine="cudnn"), "engine"),
        (lambda: LSTM(INPUT, H, recurrent_dropout=-0.1), "recurrent_dropout"),
        (lambda: LSTM.from_torch(nn.LSTM(INPUT, H, proj_size=2)), ""),
        (lambda: LSTM.from_torch(nn.GRU(INPUT, H)), ""),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused(call: Any, name: str) -> None:
    with refused(name):
        call()
