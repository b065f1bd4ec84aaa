"""The recurrence as a function, ``hmlstm``, and its engines; engines are chosen here only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops import reference
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Step, Symbols, Variant
from hmrnn.ops.native import engine as native

__all__ = [
    "ENGINES",
    "Engine",
    "LayerWeights",
    "Options",
    "Result",
    "State",
    "Step",
    "Symbols",
    "Variant",
    "choose_engine",
    "describe_auto",
    "hmlstm",
    "step",
]

Engine = Literal["auto", "reference", "native", "cuda"]
ENGINES: tuple[str, ...] = get_args(Engine)


def choose_engine(engine: str, device: torch.device, options: Options, dtype: torch.dtype = torch.float32) -> str:
    """The engine that will run: for "auto" the fastest one that can, otherwise ``engine``, or InputError if it cannot.

    ``dtype`` is that of the parameters; on a GPU under autocast, that of autocast counts instead.
    """
    if engine not in ENGINES:
        raise InputError(f"must be one of {', '.join(ENGINES)}", setting="engine", value=repr(engine))
    if engine != "auto":
        if (reason := _why_not(engine, device, options, dtype)) is not None:
            raise InputError(f"cannot run here: {reason}; use auto or reference", setting="engine", value=engine)
        return engine
    fast = "cuda" if device.type == "cuda" else "native"
    return fast if _why_not(fast, device, options, dtype) is None else "reference"


def describe_auto(device: torch.device, options: Options, dtype: torch.dtype) -> str:
    """The engine that "auto" chooses; on a CPU why it is the reference, if it is."""
    chosen = choose_engine("auto", device, options, dtype)
    if chosen == "reference" and device.type == "cpu":
        return f"{chosen}, as native cannot run: {_why_not('native', device, options, dtype)}"
    return chosen


def _why_not(engine: str, device: torch.device, options: Options, dtype: torch.dtype) -> str | None:
    """Why an engine cannot run; None if it can."""
    if engine == "reference":
        return None
    if (transformed := why_plain_torch()) is not None:
        return transformed
    if engine == "native":
        return native.why_not(device, dtype, options)
    return cuda.why_not(device, autocast_dtype(device) or dtype)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of products under autocast; None if it is off. (torch 2.11 cannot compile is_autocast_available.)"""
    kind = device.type
    on = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def why_plain_torch() -> str | None:
    """Why only the reference, in plain PyTorch, can run now; None if the other engines can."""
    if torch._C._are_functorch_transforms_active():
        return "torch.func cannot transform it"
    if torch.jit.is_tracing():
        return "torch.jit.trace cannot trace it"
    if torch.compiler._is_exporting_flag:  # is_exporting() is true in all that torch 2.11 compiles
        return "torch.export cannot export it"
    if torch.autograd.forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    if not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() > 0:
        return "a TorchDispatchMode, such as FlopCounterMode, does not see it"
    return None


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
        state: the state before the first step.
        options: how the recurrence behaves; see :class:`Options`.
        lengths: (B,) number of steps of each sequence; the rest is padding.
        boundaries: (T, B, L-1) boundary states to force; NaN leaves the choice to the detector.
        noise: (T, B, L-1) uniform random numbers for ``boundary`` "sample", "gumbel" and "reinforce"; without them z is
            1 if its probability is above 0.5.
        kept: for each layer (T, B, H_l), 1 for the units whose c zoneout keeps; replaces ``options.zoneout``.
        seen: for each layer but the last (B, H_l), factors that its h is multiplied by where the gates of the layer
            above read it: dropout masks. Detectors read h without them.
        engine: which implementation runs. "auto" is the fastest one that can: on a GPU "cuda"; on a CPU "native", or
            the reference if boundaries are "soft", or if those given or the state's z lie between 0 and 1.
    """
    if seen is not None and any(a.requires_grad for a in seen):
        raise InputError("seen must not require a gradient: no engine computes one; detach it")
    if isinstance(options.temperature, Tensor) and options.temperature.requires_grad:
        raise InputError("temperature must not require a gradient: no engine computes one; detach it")
    device = inputs.indices.device if isinstance(inputs, Symbols) else inputs.device
    chosen = choose_engine(engine, device, options, weights[0].b.dtype)
    given: dict[str, Any] = {"lengths": lengths, "boundaries": boundaries, "noise": noise, "kept": kept, "seen": seen}
    if chosen != "reference" and torch.compiler.is_compiling():
        return _uncompiled(hmlstm, inputs, weights, state, options, engine=engine, **given)
    if (engine, chosen) == ("auto", "native") and not native.all_binary(state, lengths, boundaries):
        chosen = "reference"
    run = {"reference": reference.hmlstm, "native": native.hmlstm, "cuda": cuda.hmlstm}[chosen]
    return run(inputs, weights, state, options, **given)


@torch.no_grad()
def step(
    x: Tensor,  # (B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    boundaries: Tensor | None = None,  # (B, L-1), NaN: not forced
    engine: str = "auto",
) -> Step:
    """One time step without gradients. Nothing is sampled: with "sample", z is 1 if its probability is above 0.5."""
    forced = None if boundaries is None else boundaries[None]
    result = hmlstm(x[None], weights, state, options, boundaries=forced, engine=engine)
    changed = x.new_ones(len(x), len(weights)).bool()
    if options.variant.copy and options.variant.boundary != "soft":
        own = F.pad(state.z[:, 1:] > 0, (0, 1))
        changed[:, 1:] = options.variant.moved(result.boundaries[0] > 0, own)
    return Step(result.state, changed, result.probabilities[0])


@torch._disable_dynamo  # the first call imports the compiler, which takes seconds: call it only if compiling
def _uncompiled(run: Callable[..., Result], *given: Any, **named: Any) -> Result:
    return run(*given, **named)
