"""HandwritingModel: the likelihood of its mixture, padding, halts and autocast."""

from __future__ import annotations

import dataclasses

import torch

from hmrnn import HandwritingModel
from hmrnn.kinds.strokes.mixture import Halting, StrokeMixture
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from refusals import refused

T, B = 12, 4
CONFIG = StrokeModelConfig(hidden_size=(6, 5, 4), num_layers=3, output_size=8)


def test_handwriting_log_likelihood_is_that_of_its_mixture() -> None:
    model = HandwritingModel(dataclasses.replace(CONFIG, mixtures=3)).double()
    points = torch.randn(T, B, 3, dtype=torch.float64)
    points[..., 2] = (points[..., 2] > 0).double()
    lengths = torch.tensor([T, 5, 2, 9])
    mixture, out, _ = model(points)
    got, same = model.log_likelihood(points, lengths)
    with refused():
        model.log_likelihood(points, lengths + 1)
    assert got.shape == (T - 1, B)
    assert mixture.means.shape == (T, B, 3, 2)
    torch.testing.assert_close(same.hidden[2], out.hidden[2][:-1], rtol=0, atol=1e-12)
    expected, _ = model.rnn(points)
    vector = model.output(expected.hidden) @ model.density.weight.T + model.density.bias
    by_hand = StrokeMixture.from_vector(vector[:-1]).log_prob(points[1:])
    for n, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(got[: length - 1, n], by_hand[: length - 1, n], rtol=0, atol=1e-12)
        assert (got[length - 1 :, n] == 0).all()
    torch.testing.assert_close(model.log_likelihood(points)[0], by_hand, rtol=0, atol=1e-12)


def test_halts_are_a_bernoulli_beside_the_mixture() -> None:
    plain, model = (
        HandwritingModel(dataclasses.replace(CONFIG, mixtures=2, halt=halt)).double() for halt in (False, True)
    )
    weights = dict(model.state_dict())
    for name in ("density.weight", "density.bias"):
        weights[name] = weights[name][:-1]
    plain.load_state_dict(weights)
    points = torch.randn(T, B, 3, dtype=torch.float64)
    points[..., 2] = (points[..., 2] > 0).double()
    last = torch.zeros(T, B, 1, dtype=torch.float64)
    last[-1] = 1
    (mixture, _, _), (found, out, _) = plain(points), model(points)
    assert isinstance(found, Halting)
    logits = (model.output(out.hidden) @ model.density.weight[-1]) + model.density.bias[-1]
    p = torch.sigmoid(logits)
    want = mixture.log_prob(points) + torch.where(last[..., 0] > 0, p, 1 - p).log()
    torch.testing.assert_close(found.log_prob(torch.cat([points, last], dim=-1)), want)
    torch.testing.assert_close(found.log_prob(points), mixture.log_prob(points))
    many = Halting(*(part for part in (found.mixture, found.halt)))
    drawn = torch.stack([many.sample(torch.Generator().manual_seed(k))[..., 3] for k in range(400)]).mean(0)
    assert (drawn - p).abs().max() < 0.12
    assert torch.equal(many.sample(temperature=0)[..., 3] > 0, logits > 0)


def test_padding_of_strokes_is_never_seen() -> None:
    """Neither the likelihood nor a gradient depends on what stands behind the end of a line."""
    model = HandwritingModel(dataclasses.replace(CONFIG, mixtures=2)).double()
    points = torch.randn(T, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([T, 4])
    results = []
    for fill in (0.0, 100.0):
        model.zero_grad()
        padded = points.clone()
        padded[4:, 1] = fill
        total = model.log_likelihood(padded, lengths)[0].sum()
        total.backward()
        results.append([total.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    alone = model.log_likelihood(points[:4, 1:])[0].sum() + model.log_likelihood(points[:, :1])[0].sum()
    torch.testing.assert_close(results[0][0], alone.detach(), rtol=1e-12, atol=0)


def test_mixture_is_computed_in_float32_under_autocast() -> None:
    model = HandwritingModel(dataclasses.replace(CONFIG, mixtures=2))
    points = torch.randn(T, B, 3)
    with torch.autocast("cpu", torch.bfloat16):
        mixture, _, _ = model(points)
        result, _ = model.log_likelihood(points)
    assert mixture.means.dtype == result.dtype == torch.float32
    plain, _ = model.log_likelihood(points)
    assert (result - plain).abs().mean() < 0.05
