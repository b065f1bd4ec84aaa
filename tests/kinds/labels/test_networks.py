"""Models of whole sequences: attention decoder against enumeration, both directions, what is read off where."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import hmrnn
from hmrnn.config import Config, DetectorConfig
from hmrnn.kinds.labels.batches import Batch
from hmrnn.kinds.labels.networks import PlacedModel, PooledModel, TransducerModel
from hmrnn.kinds.labels.settings import LabelData, PooledModelConfig
from hmrnn.nn.baselines.recurrent import LSTM
from hmrnn.nn.bidirectional import Bidirectional
from hmrnn.nn.decoder import AttentionDecoder, Memory
from hmrnn.nn.output import Operation
from hmrnn.nn.predictor import multiply_adds
from hmrnn.nn.rates import search_biases
from hmrnn.training.terms import make_terms

LENGTHS = torch.tensor([7, 4, 1])


def config(**changes: Any) -> PooledModelConfig:
    usual: dict[str, Any] = {
        "embedding_size": 4, "hidden_size": (5,), "num_layers": 3, "output_size": 6, "flush": False,
        "top_down": "pending", "layer_norm": False,
    }  # fmt: skip
    return PooledModelConfig(**{**usual, **changes})


def batch(x: torch.Tensor, lengths: torch.Tensor, places: torch.Tensor) -> Batch:
    """Sequences with as many answers each, without right ones."""
    N, B = places.shape
    return Batch(x, lengths, torch.zeros_like(places), torch.full((B,), N), places, torch.ones(B))


def decoder() -> tuple[AttentionDecoder, Memory]:
    torch.manual_seed(0)
    made = AttentionDecoder(2, 3, 4, 5).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)
    mask = torch.arange(4)[:, None] < torch.tensor([4, 2])
    return made, Memory(torch.randn(4, 2, 4, dtype=torch.float64), mask)


@torch.no_grad()
def every(made: AttentionDecoder, memory: Memory, limit: int) -> list[dict[tuple[int, ...], float]]:
    """For each sequence the log-probability of every writing of at most ``limit`` symbols, the end included."""
    found: list[dict[tuple[int, ...], float]] = [{}, {}]
    for count in range(limit + 1):
        for symbols in itertools.product(range(2), repeat=count):
            targets = torch.tensor([*symbols, made.end])[:, None].expand(-1, 2)
            logp = made(targets, memory).double().log_softmax(-1).gather(2, targets[..., None])[..., 0]
            for b in range(2):
                found[b][symbols] = float(logp[:, b].sum())
    return found


def test_wide_beams_find_the_best_of_all_writings_and_greedy_takes_the_likeliest_symbols() -> None:
    made, memory = decoder()
    limit = 3
    scores = every(made, memory, limit)
    wide = made.write(memory, 30, torch.tensor([limit, limit]))
    for b in range(2):
        best = max(scores[b], key=lambda symbols: scores[b][symbols] / (len(symbols) + 1))
        assert tuple(wide[b][0]) == best
        assert torch.tensor(wide[b][1]).double().log().sum().item() == pytest.approx(scores[b][best], abs=1e-6)
        torch.testing.assert_close(wide[b][2].sum(1), torch.ones(len(best), dtype=torch.float64))
        assert not wide[1][2][:, 2:].any()  # the padding of the memory
    greedy = made.write(memory, 1, torch.tensor([limit, limit]))
    for b in range(2):
        symbols: list[int] = []
        while len(symbols) < limit:
            targets = torch.tensor([*symbols, 0])[:, None].expand(-1, 2)
            following = int(made(targets, memory)[-1, b].argmax())
            if following == made.end:
                break
            symbols.append(following)
        assert greedy[b][0] == symbols


@pytest.mark.parametrize("beam", [2, 3])
def test_a_writing_does_not_depend_on_the_others_in_the_batch(beam: int) -> None:
    made, _ = decoder()
    states, mask = torch.randn(4, 12, 4, dtype=torch.float64), torch.ones(4, 12, dtype=torch.bool)
    limits = torch.arange(12) + 3
    together = made.write(Memory(states, mask), beam, limits)
    for b, (symbols, _, _) in enumerate(together):
        one = slice(b, b + 1)
        assert made.write(Memory(states[:, one], mask[:, one]), beam, limits[one])[0][0] == symbols


def test_two_way_baseline_is_torchs_bidirectional_lstm() -> None:
    torch.manual_seed(0)
    one = Bidirectional(LSTM(4, 5, 1), LSTM(4, 5, 1))
    torch_lstm = nn.LSTM(4, 5, bidirectional=True)
    weights = hmrnn.nn.LSTM.from_torch(torch_lstm).state_dict()
    for k, mine in enumerate((one.ahead, one.back)):
        mine.load_state_dict({f"layers.0.{name}.0": weights[f"{name}.{k}"] for name in ("U", "W", "b")})
    x = torch.randn(7, 3, 4)
    out, _ = one(x, None, LENGTHS)
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS)
    expected, _ = nn.utils.rnn.pad_packed_sequence(torch_lstm(packed)[0], total_length=7)
    torch.testing.assert_close(out.hidden[0], expected)
    assert one.output_sizes == (10,)
    one.dropout = 0.5
    assert (one.ahead.dropout, one.back.dropout) == (0.5, 0.5)


@pytest.mark.parametrize("rnn", ["hm-lstm", "lstm"])
def test_both_directions_are_counted(rnn: Any) -> None:
    torch.manual_seed(0)
    costs = []
    x = torch.randn(7, 3, 2)
    for both in (False, True):
        model = PooledModel(2, False, 3, config(rnn=rnn, bidirectional=both)).eval()
        out, _ = model.encode(x, LENGTHS)
        costs.append((multiply_adds(model, out), model, out))
    (one, _, _), (two, model, out) = costs
    if rnn == "lstm":
        recurrent = sum(p.numel() for name, p in model.rnn.named_parameters() if p.dim() == 2)
        output = sum(p.numel() for p in (*model.output.parameters(), model.channels.weight))
        assert (two[:7, 0] == recurrent + output).all()
        return
    moved = (out.operations != Operation.COPY)[:, 0].float().mean((0, 2)).tolist()
    assert moved[0] == 1
    U = [w.U.numel() for w in model.rnn.directions[0].layers()]
    assert (two[:, 0] > 2 * U[0]).all()
    assert two.sum() > one.sum()


def test_detectors_of_both_directions_are_held_at_the_rates() -> None:
    torch.manual_seed(0)
    model = PooledModel(2, False, 3, config(bidirectional=True, num_layers=2))
    prior = make_terms(Config(LabelData(), model.config, detectors=DetectorConfig(rates=(0.3,))))[0]
    rates = prior.config.detectors.rates
    assert rates == (0.3, 0.3)
    assert len(model.rnn.detector_biases()) == 2
    x = torch.randn(40, 8, 2)

    def measured() -> torch.Tensor:
        out, _ = model.encode(x, torch.full((8,), 40))
        return out.boundaries.mean((0, 1)).flatten()

    search_biases(model.rnn, measured, rates)
    torch.testing.assert_close(measured(), torch.tensor([0.3, 0.3]), atol=0.05, rtol=0)


@pytest.mark.parametrize("both", [False, True])
def test_tokens_are_read_off_after_they_were_read(both: bool) -> None:
    """The tag of a spelled token depends on all its characters in each direction's own state."""
    torch.manual_seed(0)
    model = PlacedModel(5, True, 3, config(bidirectional=both)).eval()
    x = torch.randint(5, (7, 3))
    places = torch.tensor([[2, 1, 0], [6, 3, 0]])
    out, _ = model.encode(x, LENGTHS)
    scores, _ = model.scores(out, batch(x, LENGTHS, places))
    hidden = [h[:, 0] for h in out.hidden]
    read = [torch.cat([h[6, :5], h[3, 5:]]) if both else h[6] for h in hidden]  # the second token: steps 3 to 6
    torch.testing.assert_close(scores[1, 0], model.softmax(model.output([h[None, None] for h in read]))[0, 0])


def test_memory_of_segments_is_as_long_as_there_are_segments() -> None:
    torch.manual_seed(0)
    model = TransducerModel(5, True, 3, config(attend="segments")).eval()
    x = torch.randint(5, (7, 3))
    out, _ = model.encode(x, LENGTHS)
    memory, ends = model.memory(out, LENGTHS)
    z = out.boundaries[..., 0] > 0.5
    for b, length in enumerate(LENGTHS.tolist()):
        wanted = [t for t in range(length) if z[t, b] or t == length - 1]
        assert memory.mask[:, b].sum() == len(wanted)
        assert ends[: len(wanted), b].tolist() == wanted
        expected = model.output([h[wanted, b : b + 1] for h in out.hidden])  # type: ignore[call-overload]
        torch.testing.assert_close(memory.states[: len(wanted), b : b + 1], expected)


def test_what_an_answer_depends_on_is_seen_through_a_reservoir() -> None:
    torch.manual_seed(0)
    model = PlacedModel(5, True, 3, config(rnn="echo-state", bidirectional=True)).eval()
    x, lengths = torch.randint(5, (6, 2)), torch.tensor([6, 3])
    places = torch.tensor([[0, 0], [1, 1]])
    shares = model.shares(batch(x, lengths, places), torch.zeros_like(places))
    torch.testing.assert_close(shares.sum(1), torch.ones(2, 2))
    assert (shares[0, 1:] > 0).any()  # from the other direction
    assert not model.encode(x, lengths)[0].hidden[0].requires_grad  # training still stops at the reservoir
