"""Strokes under the trainer: the loss and the measure, padding, parts of a batch, going on, and that it learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny_strokes
from hmrnn import checkpoint
from hmrnn.config import DetectorConfig
from hmrnn.kind import of as kind_of
from hmrnn.kinds.strokes.evaluate import evaluate_strokes
from hmrnn.kinds.strokes.mixture import StrokeMixture
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.strokes.task import StrokeTask
from hmrnn.nn.output import Operation
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from refusals import refused
from tiny import contents

CPU = torch.device("cpu")


def task(**changes: Any) -> StrokeTask:
    made = kind_of(tiny_strokes.config(**changes)).task(tiny_strokes.config(**changes), tiny_strokes.corpus(), CPU)
    assert isinstance(made, StrokeTask)
    return made


def line_by_line(network: HandwritingModel, strokes: Strokes, scale: Scale) -> list[float]:
    """The log-likelihood of every line, each read alone and without padding."""
    totals = []
    for line in strokes:
        points = torch.from_numpy(scale.encode(line))[:, None]
        with torch.no_grad():
            totals.append(float(network.log_likelihood(points)[0].double().sum()))
    return totals


def run(directory: Path, config: Any, *, resume: bool = False, stop: int | None = None, data: Any = None) -> None:
    """Train; with ``stop`` until that step, where the process is gone."""
    here = RunDirectory(directory)
    here.check(resume=resume, overwrite=False)
    with here.open():
        events = train(Trainer(config, data or tiny_strokes.corpus(), CPU), here, resume=resume)
        for event in events:
            if event["event"] == "step" and event["step"] == stop:
                break
        events.close()


def test_evaluation_is_the_mean_over_lines_of_their_log_likelihoods() -> None:
    model, corpus = tiny_strokes.model(), tiny_strokes.corpus()
    totals = line_by_line(model.network, corpus.valid, corpus.spec)
    for batch_size in (1, 2, 5, 8):
        result = evaluate_strokes(model.network, corpus.valid, corpus.spec, batch_size=batch_size)
        assert result.log_likelihood == pytest.approx(np.mean(totals), rel=1e-5)
        assert (result.sequences, result.points) == (5, int(corpus.valid.lengths.sum()) - 5)
        assert result.per_point == pytest.approx(sum(totals) / result.points, rel=1e-5)


def test_evaluation_counts_boundaries_and_updates_of_real_points_only() -> None:
    model, corpus = tiny_strokes.model(), tiny_strokes.corpus()
    fired, changed, points = np.zeros(2), np.zeros(3), 0
    for line in corpus.valid:
        with torch.no_grad():
            _, out, _ = model.network(torch.from_numpy(corpus.spec.encode(line))[:-1, None])
        fired += out.boundaries.sum((0, 1)).numpy()
        changed += (out.operations != Operation.COPY).sum((0, 1)).numpy()
        points += len(line) - 1
    result = evaluate_strokes(model.network, corpus.valid, corpus.spec, batch_size=5)
    assert result.rates == pytest.approx(fired / points)
    assert result.updates == pytest.approx(changed / points)
    assert result.saved == pytest.approx(1 - changed.sum() / points / 3)
    assert 0 < result.rates[0] < 1


def test_losses_of_an_epoch_average_to_the_measure() -> None:
    """Nats per sequence of the whole training part, although batches differ in length and some rows only fill up."""
    it = task(batch_size=4)
    corpus = tiny_strokes.corpus()
    assert it.chunks == 5  # of 18 lines: 20 rows
    with torch.no_grad():
        losses = [float(it.loss(it.model, it.batch(0, chunk), None).value) for chunk in range(it.chunks)]
    expected = -np.mean(line_by_line(it.model, corpus.train, corpus.spec))
    assert it.measure(float(np.mean(losses))) == pytest.approx(expected, rel=1e-5)
    assert np.mean(losses) == pytest.approx(expected / (np.mean(corpus.train.lengths) - 1), rel=1e-5)


def test_rates_leave_padding_out_and_keep_their_gradient() -> None:
    it = task()
    inputs, targets, counted = it.batch(0, 0)
    assert int(counted.min()) < len(inputs)
    rates = it.loss(it.model, (inputs, targets, counted), None).rates()
    _, out, _ = it.model(inputs)
    by_hand = torch.cat([out.boundaries[:n, b] for b, n in enumerate(counted.tolist())]).mean(0)
    torch.testing.assert_close(rates, by_hand)
    assert rates.requires_grad


def test_each_process_takes_its_share_of_the_rows() -> None:
    config, corpus = tiny_strokes.config(), tiny_strokes.corpus()
    whole = kind_of(config).task(config, corpus, CPU).batch(1, 2)
    shares = [kind_of(config).task(config, corpus, CPU, rank, 2).batch(1, 2) for rank in (0, 1)]
    for k, a in enumerate(whole):
        assert torch.equal(torch.cat([share[k] for share in shares], dim=min(1, a.dim() - 1)), a)


def test_bf16_reads_a_batch_and_gives_finite_float32() -> None:
    it = task()
    with torch.autocast("cpu", torch.bfloat16):
        made = it.loss(it.model, it.batch(0, 0), None)
    loss = made.value
    assert made.surprise is not None
    assert made.surprise.dtype == loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in it.model.parameters())


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path: Path) -> None:
    config = tiny_strokes.config(estimator="sample")
    run(tmp_path / "whole", config)
    saving = dataclasses.replace(config, train=dataclasses.replace(config.train, checkpoint_every=0.0))
    run(tmp_path / "parts", saving, stop=7)
    run(tmp_path / "parts", config, resume=True)
    whole, parts = contents(tmp_path / "whole"), contents(tmp_path / "parts")
    last = "last-00000010"
    assert whole[f"{last}/model.safetensors"] == parts[f"{last}/model.safetensors"]
    assert whole[f"{last}/training.safetensors"] == parts[f"{last}/training.safetensors"]
    assert whole["metrics"] == parts["metrics"]


def test_other_lines_are_refused_on_resume(tmp_path: Path) -> None:
    config = tiny_strokes.config()
    run(tmp_path / "run", config)
    longer = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=3))
    with refused():
        run(tmp_path / "run", longer, resume=True, data=tiny_strokes.corpus(seed=7))


def test_a_checkpoint_holds_the_scale(tmp_path: Path) -> None:
    run(tmp_path / "run", tiny_strokes.config())
    best = checkpoint.find(tmp_path / "run")
    assert sorted(path.name for path in best.iterdir()) == [
        "config.json", "input.json", "manifest.json", "model.safetensors",
    ]  # fmt: skip
    assert checkpoint.read(best).reads == tiny_strokes.corpus().spec


def test_the_mixture_passes_through_the_network_whole() -> None:
    mixture, _, _ = task().model(torch.zeros(3, 2, 3))
    assert isinstance(mixture, StrokeMixture)
    assert mixture.pen.shape == (3, 2)


def test_parts_of_a_batch_count_by_their_points() -> None:
    """Nine lines in batches of eight: most rows of a batch, and some parts of it, hold no line at all."""

    def rates(accumulate: int, control: float, updates: int) -> tuple[list[float], list[float]]:
        config = tiny_strokes.config(batch_size=8, accumulate=accumulate, epochs=99, learning_rate=1e-9)
        aims = DetectorConfig(rates=(0.3, 0.1), rate_weight=0.0, rate_control=control)
        trainer = Trainer(dataclasses.replace(config, detectors=aims), tiny_strokes.corpus(train=9), CPU)
        for _ in range(updates):
            trainer.step()
        means = trainer.window_means()
        assert means is not None
        return means[1], [float(b[-1].detach()) for b in list(trainer.model.rnn.b)[:2]]

    whole, _ = rates(1, 0.0, 4)
    _, moved = rates(1, 0.2, 8)
    assert all(bias < -0.1 for bias in moved)
    parts, _ = rates(8, 0.0, 4)
    assert parts == pytest.approx(whole, abs=1e-6)
    _, moved_in_parts = rates(8, 0.2, 8)
    assert moved_in_parts == pytest.approx(moved, abs=0.1)
