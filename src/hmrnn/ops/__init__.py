"""The recurrence as a function. ``hmlstm`` is the only place where an engine is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops import reference, single
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols, autocast_dtype
from hmrnn.ops.sparse import forward as sparse

__all__ = ["ENGINES", "Engine", "LayerWeights", "Options", "Result", "State", "Symbols", "choose_engine", "hmlstm"]

Engine = Literal["auto", "reference", "sparse", "cuda"]
ENGINES: tuple[str, ...] = get_args(Engine)


def choose_engine(engine: str, device: torch.device, options: Options, dtype: torch.dtype = torch.float32) -> str:
    """The engine that will run: what was asked for, or for "auto" the fastest that can. Never a silent substitute.

    ``dtype`` is that of the parameters; under autocast the products take autocast's.
    """
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    dtype = autocast_dtype(device) or dtype
    transformed = _transformed()
    hidden = "it has no detectors with a hidden layer" if options.detector_hidden else None
    no_cuda = transformed or hidden or cuda.why_not(device, dtype)
    no_sparse = transformed or hidden or _why_not_sparse(device, options)
    if engine == "auto":
        if device.type == "cuda" and no_cuda is None:
            return "cuda"
        return "sparse" if device.type == "cpu" and no_sparse is None else "reference"
    reason = {"cuda": no_cuda, "sparse": no_sparse, "reference": None}[engine]
    if reason is not None:
        raise InputError(f'engine "{engine}" cannot run here: {reason}; use engine="auto" or "reference"')
    return engine


def _transformed() -> str | None:
    """Why only plain PyTorch can run now, if that is so."""
    if torch._C._are_functorch_transforms_active():
        return "torch.func does not see through it"
    if torch.jit.is_tracing():
        return "torch.jit.trace does not see through it"
    if torch.compiler.is_exporting():
        return "torch.export does not see through it"
    if torch.autograd.forward_ad._current_level >= 0:
        return "it has no forward derivatives"
    return None


def _why_not_sparse(device: torch.device, options: Options) -> str | None:
    if options.boundary == "soft":
        return "soft boundaries leave nothing out"
    return "tensors on meta hold no boundaries that could leave something out" if device.type == "meta" else None


def hmlstm(
    inputs: Tensor | Symbols,
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,
    boundaries: Tensor | None = None,
    noise: Tensor | None = None,
    kept: Sequence[Tensor] | None = None,
    seen: Sequence[Tensor] | None = None,
    engine: str = "auto",
) -> Result:
    """Run an HM-LSTM over a sequence.

    Args:
        inputs: x of shape (T, B, size), or :class:`Symbols`.
        weights: one :class:`LayerWeights` per layer, the lowest first.
        state: where to start.
        options: slope, kind of boundary, what a detector does on COPY.
        lengths: (B,) steps that count in each sequence; the rest is padding.
        boundaries: (T, B, L-1) boundary states to force; NaN leaves the choice to the detector.
        noise: (T, B, L-1) uniform draws for ``boundary="sample"``; without it the likelier state is taken.
        kept: for each layer (T, B, H_l), ones for the units that zoneout keeps from moving; see ``options.zoneout``.
        seen: for each layer but the last (B, H_l), what the gates of the layer above see of its units, as factors:
            zero for those that dropout hides. Detectors see all of every unit.
        engine: which implementation runs. "auto" is the fastest that can: on a CPU the sparse engine, but NumPy for one
            sequence without a gradient (:mod:`hmrnn.ops.single`, the same up to rounding), and the reference where
            boundaries or the state's z lie between 0 and 1.
    """
    if seen is not None and any(a.requires_grad for a in seen):
        raise InputError("seen must not require a gradient: no engine gives one; detach it")
    device = inputs.indices.device if isinstance(inputs, Symbols) else inputs.device
    engines: dict[str, Callable[..., Result]] = {
        "reference": reference.hmlstm, "sparse": sparse.hmlstm, "cuda": cuda.hmlstm,
    }  # fmt: skip
    chosen = choose_engine(engine, device, options, weights[0].b.dtype)
    run = engines[chosen]
    if (engine, chosen) == ("auto", "sparse"):
        run = _left_as_it_is if torch.compiler.is_compiling() else _on_a_cpu
    given = {"lengths": lengths, "boundaries": boundaries, "noise": noise, "kept": kept, "seen": seen}
    return run(inputs, weights, state, options, **given)


def _on_a_cpu(
    inputs: Tensor | Symbols, weights: Sequence[LayerWeights], state: State, options: Options, **given: Any
) -> Result:
    """The fastest that can run what is given."""
    lengths, boundaries, noise = (given[name] for name in ("lengths", "boundaries", "noise"))
    if not sparse.all_binary(state, lengths, boundaries):
        return reference.hmlstm(inputs, weights, state, options, **given)
    drops = given["kept"] is not None or given["seen"] is not None
    if drops or single.why_not(inputs, weights, state, options, lengths, boundaries, noise):
        return sparse.hmlstm(inputs, weights, state, options, **given)
    return single.hmlstm(inputs, weights, state, options, boundaries=boundaries)


_left_as_it_is = torch._disable_dynamo(_on_a_cpu)  # which imports the compiler when it is called, for seconds
