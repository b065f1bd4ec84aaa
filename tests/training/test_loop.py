"""One update by hand, the schedules, the end of a run: it is what the config says."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import hmrnn
import tiny
from hmrnn import checkpoint
from hmrnn.kind import of as kind_of
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.task import Streams
from hmrnn.training.finite import Diverged
from hmrnn.training.loop import train
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.task import Validation
from hmrnn.training.trainer import Trainer
from refusals import refused

CPU = torch.device("cpu")


def test_streams_read_the_text_side_by_side() -> None:
    text = np.arange(48)
    streams = Streams(text, batch_size=3, length=5, rows=slice(0, 3), device=CPU)
    assert streams.chunks == 3  # 15 symbols a stream; the last two of the text are left over
    read = torch.cat([streams[k][0] for k in range(3)])
    assert read.T.tolist() == [list(range(s, s + 15)) for s in (0, 15, 30)]
    assert all(torch.equal(streams[k][1], streams[k][0] + 1) for k in range(3))
    streams.shift = 20  # which moves every cut; the beginning follows the end
    inputs, targets = (torch.cat([streams[k][i] for k in range(3)]).T for i in (0, 1))
    assert inputs.tolist() == [[at % 47 for at in range(s, s + 15)] for s in (20, 35, 50)]
    assert torch.equal(targets, inputs + 1)
    streams.shift = 0
    half = Streams(text, batch_size=3, length=5, rows=slice(1, 3), device=CPU)
    assert torch.equal(half[2][0], streams[2][0][:, 1:])


def test_every_epoch_is_shifted_by_its_own_draw() -> None:
    task = kind_of(tiny.config(shift=True)).task(tiny.config(shift=True), tiny.corpus(), CPU)
    first, again, other = (task.batch(epoch, 2)[0] for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    still = kind_of(tiny.config()).task(tiny.config(), tiny.corpus(), CPU)
    assert torch.equal(still.batch(0, 2)[0], still.batch(1, 2)[0])


def test_streams_need_one_chunk() -> None:
    assert Streams(np.arange(16), 3, 5, slice(0, 3), CPU).chunks == 1
    with refused():
        Streams(np.arange(15), 3, 5, slice(0, 3), CPU)


@pytest.mark.parametrize("clip_norm", [0.05, 0.0])
def test_two_updates_by_hand(clip_norm: float) -> None:
    """The state goes over to the next chunk without its gradient; the gradient is clipped; Adam does the rest."""
    config = tiny.config(clip_norm=clip_norm, bounds=(0.0, 0.0))
    trainer = tiny.trainer(config)
    model = copy.deepcopy(trainer.model)
    trainer.step()
    trainer.step()

    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.learning_rate)
    streams = torch.from_numpy(trainer.task.corpus.train[: 4 * 32 + 1].astype(np.int64))  # (132 - 1) // 4 = 32 each
    state, carried = None, []
    for k in range(2):
        at = torch.arange(4) * 32 + torch.arange(3 * k, 3 * k + 3)[:, None]
        (logits,), _, state = model(streams[at], state)
        loss = -F.log_softmax(logits, -1).gather(2, streams[at + 1][..., None]).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        assert norm > 0.05
        for p in model.parameters():
            p.grad *= clip_norm / norm if clip_norm else 1.0
        optimizer.step()
        state = state.detach()
        carried.append(state)
    assert all(float(h.abs().max()) > 1e-3 for h in carried[0].h)
    for ours, theirs in zip((*carried[1].h, *carried[1].c), (*trainer.state.h, *trainer.state.c)):
        torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=1e-5)
    for (name, ours), theirs in zip(model.named_parameters(), trainer.model.parameters()):
        torch.testing.assert_close(theirs, ours, atol=2e-6, rtol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
        moment = trainer.optimizer.state[theirs]["exp_avg"]  # Adam hides the scale of the gradient, this does not
        torch.testing.assert_close(moment, optimizer.state[ours]["exp_avg"], atol=1e-6, rtol=1e-4)


def test_state_starts_anew_with_each_epoch() -> None:
    trainer = tiny.trainer(tiny.config(slope=(0.5, 1.8)))
    chunks = trainer.task.chunks
    slopes = []
    for _ in range(2 * chunks + 1):
        trainer.step()
        slopes.append(trainer.model.rnn.slope)
    assert slopes == [1.0] * chunks + [1.5] * chunks + [pytest.approx(1.8)]
    inputs, _ = trainer.task.batch(0, 0)
    assert (trainer.progress.epoch, trainer.progress.chunk) == (2, 1)
    before = trainer.state.h[0].clone()
    trainer.progress.chunk = 0  # the same chunk again, at what would be the start of an epoch
    trainer.model.requires_grad_(False)
    expected = trainer.model(inputs)[2]
    trainer.model.requires_grad_(True)
    trainer.step()
    torch.testing.assert_close(trainer.state.h, expected.h)
    assert not torch.equal(trainer.state.h[0], before)


@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_accumulation_gives_the_update_of_the_whole_batch(boundary: str) -> None:
    whole, parts = (tiny.trainer(tiny.config(accumulate=k, estimator=boundary, layer_norm=True)) for k in (1, 4))
    for trainer in (whole, parts):
        tiny.in_precision(trainer)
        for _ in range(3):
            trainer.step()
    for name, parameter in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], parameter, atol=1e-10, rtol=1e-9)
    torch.testing.assert_close(parts.state, whole.state, atol=1e-10, rtol=1e-9)
    assert parts.window_means()[0] == pytest.approx(whole.window_means()[0], abs=1e-6)


def test_bf16_runs_and_keeps_float32_weights(tmp_path: Path) -> None:
    end = tiny.run(tmp_path / "bf16", tiny.config(precision="bf16", epochs=1))
    tiny.run(tmp_path / "float32", tiny.config(epochs=1))
    assert end["reason"] == "1 epoch done"
    ours, theirs = (checkpoint.read(checkpoint.find(tmp_path / name)).weights for name in ("bf16", "float32"))
    assert all(weight.dtype == torch.float32 for weight in ours.values())
    assert not torch.equal(ours["rnn.U.0"], theirs["rnn.U.0"])
    torch.testing.assert_close(ours["rnn.U.0"], theirs["rnn.U.0"], atol=0.1, rtol=0)


def test_training_learns(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.config(epochs=4, learning_rate=0.03))
    bits = [line["bits"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["event"] == "valid"]
    assert bits[-1] < bits[0] - 0.2
    assert bits[0] < math.log2(9) + 0.2


def test_metrics_say_what_happened(tmp_path: Path) -> None:
    config = tiny.config(slope=(0.5, 5.0))
    tiny.run(tmp_path, config)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["event"], line["step"]) for line in lines] == [
        ("train", 4), ("train", 8), ("train", 10), ("valid", 10),
        ("train", 12), ("train", 16), ("train", 20), ("valid", 20),
    ]  # fmt: skip
    assert [line["epoch"] for line in lines if line["event"] == "train"] == [0.4, 0.8, 1.0, 1.2, 1.6, 2.0]
    assert {line["slope"] for line in lines[:3]} == {1.0}
    assert {line["slope"] for line in lines[4:7]} == {1.5}

    trainer = tiny.trainer(config)  # the mean of the losses since the line before
    losses = []
    for _ in range(8):
        trainer.step()
        losses.append(trainer.window_means())
    assert lines[1]["bits"] == pytest.approx(np.mean([bits for bits, _ in losses[4:]]))
    assert lines[1]["rates"] == pytest.approx(np.mean([rates for _, rates in losses[4:]], axis=0))
    for _ in range(2):
        trainer.step()
    assert (lines[3]["updates"], lines[3]["multiply_adds"]) == (
        list(trainer.validate().updates), trainer.validate().multiply_adds,
    )  # fmt: skip
    assert all(0 <= rate <= 1 for line in lines for rate in line["rates"])


def test_a_seed_repeats_a_run_bit_for_bit(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        torch.manual_seed(99 if name == "b" else 7)  # what came before must not matter
        tiny.run(tmp_path / name, tiny.config(estimator="sample", seed=seed, epochs=1))
    a, b, c = (tiny.contents(tmp_path / name) for name in "abc")
    assert a == b
    assert a["best-00000010/model.safetensors"] != c["best-00000010/model.safetensors"]


def judged(trainer: Trainer, bits: float) -> tuple[bool, float, str | None]:
    trainer.progress.step += 1
    best = trainer.judge(bits)
    assert all(group["lr"] == trainer.progress.learning_rate for group in trainer.optimizer.param_groups)
    return best, trainer.progress.learning_rate, trainer.progress.finished


def test_plateaus_divide_the_rate_and_end_the_run() -> None:
    trainer = tiny.trainer(
        tiny.config(learning_rate=1.0, patience=2, divisions=1, divide_rate_by=4.0, min_improvement=0.1)
    )
    trainer.progress.chunk = 1
    trainer.progress.step = 96
    assert judged(trainer, 3.2) == (True, 1.0, None)
    assert judged(trainer, 3.2) == (False, 1.0, None)
    assert judged(trainer, 3.2) == (False, 1.0, None)  # the second, but no epoch divides before update 100
    assert judged(trainer, 3.0) == (True, 1.0, None)
    assert judged(trainer, 2.95) == (False, 1.0, None)  # better, but not by 0.1
    assert judged(trainer, 2.8) == (True, 1.0, None)
    assert judged(trainer, 2.8) == (False, 1.0, None)
    assert judged(trainer, 2.75) == (False, 0.25, None)  # the second in a row without improvement
    assert judged(trainer, 2.75) == (False, 0.25, None)
    assert judged(trainer, 2.6) == (True, 0.25, None)
    assert judged(trainer, 2.7) == (False, 0.25, None)
    best, rate, finished = judged(trainer, 2.7)
    assert (best, rate) == (False, 0.25)
    assert finished == "validation stopped improving after 1 division(s) of the learning rate"
    assert (trainer.progress.best, trainer.progress.best_step) == (2.6, 106)


def scripted(trainer: Trainer, bits: list[float]) -> Trainer:
    values = iter(bits)
    trainer.validate = lambda progress=None: Validation(next(values), (0.0, 0.0), (1.0, 0.0, 0.0), 1.0, 1)  # type: ignore
    return trainer


def test_early_stop_and_the_best_model_by_validation(tmp_path: Path) -> None:
    config = tiny.config(validate_every=2, divisions=1, patience=1, epochs=9)
    trainer = scripted(tiny.trainer(config), [3.0, 2.0, 2.5, 2.2, 9.0])
    here = RunDirectory(tmp_path)
    best: dict[str, torch.Tensor] = {}
    with here.open():
        for event in train(trainer, here):
            if event["event"] == "valid" and event["best"]:
                best = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    assert event["reason"] == "validation stopped improving after 1 division(s) of the learning rate"
    assert event["step"] == 8
    rates = [(line["step"], line["best"]) for line in read_metrics(tmp_path / "metrics.jsonl") if "best" in line]
    assert rates == [(2, True), (4, True), (6, False), (8, False)]
    assert trainer.progress.best_step == 4
    loaded = hmrnn.load(tmp_path).network.state_dict()
    assert all(torch.equal(loaded[name], best[name]) for name in best)
    assert not torch.equal(loaded["rnn.U.0"], trainer.model.rnn.U[0])


@pytest.mark.parametrize(("changes", "noticed"), [({"log_every": 1}, 7), ({"checkpoint_every": 0.0}, 6)])
def test_a_loss_that_is_not_finite_ends_the_run_and_spares_the_checkpoints(
    tmp_path: Path, changes: dict[str, Any], noticed: int
) -> None:
    config = tiny.config(validate_every=5, **{"log_every": 1000, **changes})
    here, trainer = RunDirectory(tmp_path), tiny.trainer(config)

    def poison() -> None:
        for event in train(trainer, here):
            if event["event"] == "step" and event["step"] == 6:
                trainer.model.softmax.bias.data[0] = math.nan

    with here.open(), refused(kind=Diverged) as info:
        poison()
    assert info.value.trouble.endswith(f" {noticed}")
    saved = here.newest_state()
    assert saved.progress is not None
    assert saved.progress["step"] == 5
    assert all(bool(weight.isfinite().all()) for weight in saved.weights.values())
    assert all(math.isfinite(line["bits"]) for line in read_metrics(tmp_path / "metrics.jsonl"))


def test_a_validation_that_is_not_finite_is_no_best_model(tmp_path: Path) -> None:
    config = tiny.config(validate_every=2)
    here, trainer = RunDirectory(tmp_path), scripted(tiny.trainer(config), [math.nan])
    with here.open(), refused(kind=Diverged):
        list(train(trainer, here))
    assert checkpoint.checkpoints(tmp_path) == []


def test_batches_are_cut_evenly() -> None:
    with refused("train.batch_size"):
        tiny.trainer(tiny.config(accumulate=3))
    with refused():
        Trainer(tiny.config(accumulate=4), tiny.corpus(), torch.device("cpu"), 0, 2)


def test_validation_reads_what_it_is_told_to() -> None:
    trainer = tiny.trainer(tiny.config())
    assert trainer.validate().count == 62
    assert tiny.trainer(tiny.config(validation_symbols=40)).validate().count == 39
    assert trainer.model.training


def test_the_model_of_a_run_depends_on_the_seed_alone() -> None:
    config = tiny.config()
    torch.manual_seed(config.train.seed)
    model = LanguageModel(9, config.model)
    assert torch.equal(model.softmax.weight, tiny.trainer(config).model.softmax.weight)


def test_the_rate_cools_down_in_a_straight_line() -> None:
    trainer = tiny.trainer(tiny.config(epochs=2, cool_down=0.5, learning_rate=0.01))
    total = 2 * trainer.task.chunks
    used = []
    while trainer.progress.step < total:
        trainer.step()
        used.append(trainer.optimizer.param_groups[0]["lr"])
    expected = [0.01 * min(1.0, (total - step) / (total / 2)) for step in range(total)]
    assert used == pytest.approx(expected)
    assert used[0] == 0.01
    assert used[-1] == pytest.approx(0.02 / total)
    trainer.progress.step = total + 3  # as after --resume with fewer epochs
    assert trainer.rate() == 0.0


LINE: dict[str, Any] = {"event": "train", "step": 5, "epoch": 1, "bits": 2, "rates": [0.5], "symbols_per_second": 9}
VALID: dict[str, Any] = {
    "event": "valid", "step": 5, "epoch": 1.0, "bits": 2.0, "rates": [0.25], "updates": [1, 0.5], "multiply_adds": 9.0,
}  # fmt: skip


@pytest.mark.parametrize("wrong", [
    [1], {"event": "train"}, {**LINE, "event": "trained"},
    *({key: value for key, value in LINE.items() if key != left_out} for left_out in LINE),
    *({key: value for key, value in VALID.items() if key != left_out} for left_out in VALID),
    {**LINE, "step": "5"}, {**LINE, "nats": 3.0}, {**LINE, "rates": [0.5, 0.5]}, {**VALID, "updates": []},
    {**{key: value for key, value in LINE.items() if key != "bits"}, "nats": 3.0},
])  # fmt: skip
def test_metrics_that_are_not_what_was_written(wrong: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    detector = {"event": "detector", "step": 5, "epoch": 1.0, "layer": 1}
    path.write_text("".join(json.dumps(line) + "\n" for line in (LINE, VALID, detector)))
    assert read_metrics(path) == [LINE, VALID, detector]
    with open(path, "a") as file:
        file.write(json.dumps(wrong))
    with refused():
        read_metrics(path)


def test_metrics_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe")
    with refused():
        read_metrics(tmp_path / "metrics.jsonl")
