"""The state of a run in a checkpoint, and the way back to it."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from hmrnn.checkpoint import Checkpoint
from hmrnn.errors import InputError
from hmrnn.optim import Muon
from hmrnn.training.processes import gather
from hmrnn.training.progress import Progress
from hmrnn.training.task import Training


def tensors(run: Training) -> dict[str, Tensor]:
    """The tensors of a run apart from its weights; a collective call under torchrun."""
    result, own = _shared(run), {**_own(run), "random.cpu": torch.get_rng_state()}
    if run.device.type == "cuda":
        own["random.cuda"] = torch.cuda.get_rng_state(run.device)
    for name, part in own.items():
        result |= {f"{name}.{rank}": a for rank, a in enumerate(gather(part.to(run.device), run.world))}
    for name, part in ({} if run.state is None else run.state.named()).items():
        result[f"state.{name}"] = torch.cat(gather(part, run.world))
    for name, parameter in run.model.named_parameters():
        for key, value in run.optimizer.state[parameter].items():
            result[f"optimizer.{name}.{key}"] = value
    return result


def _shared(run: Training) -> dict[str, Tensor]:
    """What all processes have alike."""
    kept = [(type(term).__name__.lower(), term.tensors()) for term in run.terms]
    return {"watch": run.watch.counts, **{f"{term}.{name}": a for term, its in kept for name, a in its.items()}}


def _own(run: Training) -> dict[str, Tensor]:
    """What each process has of its own."""
    return {"window": run.window, "epoch": run.epoch}


def snapshot(run: Training, *, training: bool) -> Checkpoint:
    """The checkpoint of now: with ``training`` a state to resume from, else the model to use."""
    if training:
        progress = dataclasses.asdict(run.progress)
        return Checkpoint(run.config, run.task.reads, dict(run.model.state_dict()), progress, tensors(run))
    with run.validating():
        weights = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    return Checkpoint(run.config, run.task.reads, weights)


def restore(run: Training, saved: Checkpoint) -> None:
    """Return to the state in which ``saved`` was written."""
    assert saved.progress is not None
    assert saved.training is not None
    progress, given = Progress.of(saved.progress), saved.training
    if (progress.corpus, saved.reads) != (run.task.checksum, run.task.reads):
        raise InputError(
            "the training or validation data are not those this run began with; bring them back, or start a new run"
        )
    made_by = sum(name.startswith("random.cpu.") for name in given)
    if made_by != run.world:
        raise InputError(f"this run was made by {made_by} process(es) and can only go on with as many; got {run.world}")
    if progress.chunk >= run.task.chunks:
        raise InputError(f"the checkpoint does not fit this run: it is at chunk {progress.chunk} of an epoch")
    _check(run, given)
    try:
        run.progress = progress
        run.model.load_state_dict(saved.weights)
        for name, mine in _shared(run).items():
            mine.copy_(given[name])
        for name, mine in _own(run).items():
            mine.copy_(given[f"{name}.{run.rank}"])
        for name, mine in ({} if run.state is None else run.state.named()).items():
            mine.copy_(given[f"state.{name}"][run.rank * len(mine) : (run.rank + 1) * len(mine)])
        for name, parameter in run.model.named_parameters():
            prefix = f"optimizer.{name}."
            run.optimizer.state[parameter] = {
                key.removeprefix(prefix): a.to(run.device) for key, a in given.items() if key.startswith(prefix)
            }
        torch.set_rng_state(given[f"random.cpu.{run.rank}"])
        drawn = given.get(f"random.cuda.{run.rank}")
        if run.device.type == "cuda" and drawn is not None:  # it is None if the run began on a CPU
            torch.cuda.set_rng_state(drawn, run.device)
    except (KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the checkpoint does not fit this run: {reason}") from error
    _apply_changed_settings(run)
    run.set_rate()


def _check(run: Training, given: dict[str, Tensor]) -> None:
    """Raise InputError unless the state in a checkpoint has the names, shapes and dtypes that this run's has."""
    own = {name: tensor for name, tensor in tensors(run).items() if not name.startswith("optimizer.")}
    needed = {name for name in own if not name.startswith("random.cuda.")}  # which a run on a CPU does not have
    fresh = run.optimizer.new_states() if isinstance(run.optimizer, Muon) else {}
    for name, parameter in run.model.named_parameters():
        adam = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
        optimizer = {f"optimizer.{name}.{key}": a for key, a in fresh.get(parameter, adam).items()}
        own |= optimizer
        needed |= optimizer.keys() & given.keys() and optimizer.keys()  # there is none before the first update
    extra = sorted(name for name in given.keys() - own.keys() if not name.startswith("random.cuda."))
    for name in [*sorted(needed | (given.keys() & own.keys())), *extra]:
        found, wanted = (_shown(a.get(name)) for a in (given, own))
        if found != wanted:
            raise InputError(f"the checkpoint does not fit this run: {name} must be {wanted}, and is {found}")
        if name.endswith(".step") and not given[name] >= 0:
            raise InputError(f"the checkpoint does not fit this run: {name} must count updates, and is {given[name]}")


def _shown(tensor: Tensor | None) -> str:
    """The dtype and the shape of a tensor, for messages."""
    return "absent" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _apply_changed_settings(run: Training) -> None:
    """After a restore: apply settings that a resumed run may change."""
    p, t = run.progress, run.config.train
    if p.chunk > 0:  # a network without detectors does not store its slope
        run.set_schedules()
    if not t.skip_nonfinite and run.watch.skipped():  # the run skipped updates until now
        run.count_skipped()
    if p.finished is not None:  # epochs, patience or divisions may have been raised
        p.finished = None
        p.apply_limits(t)
    elif t.validate_every == 0 or p.step % t.validate_every == 0:  # otherwise the last validation is still due
        p.end_if_done(t)
