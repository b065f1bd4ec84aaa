"""The state of a run in a checkpoint, and the way back to it."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from hmrnn.checkpoint import Checkpoint
from hmrnn.errors import InputError
from hmrnn.training.processes import gather
from hmrnn.training.progress import Progress
from hmrnn.training.task import Training

ON_GPU = "random.cuda."
"""What a run on a CPU lacks: a run may go on where it did not begin."""


def tensors(run: Training) -> dict[str, Tensor]:
    """The tensors of a run apart from its weights; a collective call under torchrun."""
    result, own = _shared(run), {**_own(run), "random.cpu": torch.get_rng_state()}
    if run.device.type == "cuda":
        own["random.cuda"] = torch.cuda.get_rng_state(run.device)
    for name, part in own.items():
        result |= {f"{name}.{rank}": a for rank, a in enumerate(gather(part.to(run.device), run.world))}
    return result | {name: torch.cat(gather(part, run.world)) for name, part in _carried(run).items()}


def _shared(run: Training) -> dict[str, Tensor]:
    """What all processes have alike."""
    parts = {f"optimizer.{name}": run.optimizer.state[p] for name, p in run.model.named_parameters()}
    parts |= {type(term).__name__.lower(): term.tensors() for term in run.terms}
    return {
        "watch": run.watch.counts,
        **{f"{part}.{name}": a for part, its in parts.items() for name, a in its.items()},
    }


def _own(run: Training) -> dict[str, Tensor]:
    """What each process has of its own."""
    return {"window": run.window, "epoch": run.epoch}


def _carried(run: Training) -> dict[str, Tensor]:
    """What each process has of its rows of the batch."""
    return {} if run.state is None else {f"state.{name}": a for name, a in run.state.named().items()}


def snapshot(run: Training, *, training: bool) -> Checkpoint:
    """The checkpoint of now: with ``training`` a state to resume from, else the model to use."""
    if training:
        progress = dataclasses.asdict(run.progress)
        return Checkpoint(run.config, run.task.reads, dict(run.model.state_dict()), progress, tensors(run))
    with run.validating():
        weights = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    return Checkpoint(run.config, run.task.reads, weights)


def restore(run: Training, saved: Checkpoint) -> None:
    """Return to the state in which ``saved`` was written, but with the settings that a resumed run may change."""
    assert saved.progress is not None
    assert saved.training is not None
    p, given, t, rank = Progress.of(saved.progress), saved.training, run.config.train, run.rank
    if (p.corpus, saved.reads) != (run.task.checksum, run.task.reads):
        raise InputError(
            "the training or validation data are not those this run began with; bring them back, or start a new run"
        )
    made_by = sum(name.startswith("random.cpu.") for name in given)
    if made_by != run.world:
        raise InputError(f"this run was made by {made_by} process(es) and can only go on with as many; got {run.world}")
    own = tensors(run)
    names = sorted(name for name in own.keys() | given.keys() if not name.startswith(ON_GPU))
    wrong = [
        f"{name} is {_shape(given.get(name))}" for name in names if _shape(own.get(name)) != _shape(given.get(name))
    ]
    wrong = wrong or [f"{name} is {given[name]}" for name in names if name.endswith(".step") and not given[name] >= 0]
    wrong += [f"it is at chunk {p.chunk} of an epoch"] * (p.chunk >= run.task.chunks)
    if wrong:
        raise InputError(f"the checkpoint does not fit this run: {wrong[0]}")
    try:
        run.model.load_state_dict(saved.weights)
        for name, mine in _shared(run).items():
            mine.copy_(given[name])
        for name, mine in _own(run).items():
            mine.copy_(given[f"{name}.{rank}"])
        for name, mine in _carried(run).items():
            mine.copy_(given[name][rank * len(mine) : (rank + 1) * len(mine)])
        torch.set_rng_state(given[f"random.cpu.{rank}"])
        if run.device.type == "cuda" and f"{ON_GPU}{rank}" in given:
            torch.cuda.set_rng_state(given[f"{ON_GPU}{rank}"], run.device)
    except RuntimeError as error:
        raise InputError(f"the checkpoint does not fit this run: {' '.join(str(error).split())}") from error
    run.progress = p
    if p.chunk > 0:  # a network without detectors does not store its slope
        run.set_schedules()
    if not t.skip_nonfinite and run.watch.counts[1]:  # the run skipped updates until now
        run.count_skipped()
    if p.finished is not None:  # epochs, patience or divisions may have been raised
        p.finished = None
        p.apply_limits(t)
    elif t.validate_every == 0 or p.step % t.validate_every == 0:  # otherwise the last validation is still due
        p.end_if_done(t)
    run.set_rate()


def _shape(tensor: Tensor | None) -> str:
    """The dtype and the shape of a tensor, for messages."""
    return "absent" if tensor is None else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
