"""The recurrence as a function, ``hmlstm``, and its engines; engines are chosen here only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops import reference
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols, autocast_dtype
from hmrnn.ops.single import forward as single
from hmrnn.ops.small import forward as small
from hmrnn.ops.sparse import forward as sparse

__all__ = [
    "ENGINES",
    "Engine",
    "LayerWeights",
    "Options",
    "Result",
    "State",
    "Symbols",
    "choose_engine",
    "describe_auto",
    "hmlstm",
]

Engine = Literal["auto", "reference", "sparse", "cuda", "cuda-rows"]
ENGINES: tuple[str, ...] = get_args(Engine)


def choose_engine(
    engine: str,
    device: torch.device,
    options: Options,
    dtype: torch.dtype = torch.float32,
    batch: int = 0,
    sizes: Sequence[int] = (),
) -> str:
    """The engine that will run: for "auto" the fastest one that can, otherwise ``engine``, or InputError if it cannot.

    ``dtype`` is that of the parameters; under autocast, that of autocast counts instead. Which engine is the fastest
    on a GPU also depends on the batch and the sizes of the layers in a training step, if ``options.rates`` are known.
    """
    if engine not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    dtype = autocast_dtype(device) or dtype
    transformed = _why_plain_torch()
    no_cuda = transformed or cuda.why_not(device, dtype)
    no_sparse = transformed or _why_not_sparse(device, options)
    if engine == "auto":
        if device.type == "cuda" and no_cuda is None:
            least = cuda.least_batch(sizes, options)
            return "cuda-rows" if least is not None and batch >= least else "cuda"
        return "sparse" if device.type == "cpu" and no_sparse is None else "reference"
    no_rows = no_cuda or cuda.why_not_rows(options)
    reason = {"cuda": no_cuda, "cuda-rows": no_rows, "sparse": no_sparse, "reference": None}[engine]
    if reason is not None:
        raise InputError(f'engine "{engine}" cannot run here: {reason}; use engine="auto" or "reference"')
    return engine


def describe_auto(
    device: torch.device, options: Options, weights: Sequence[LayerWeights], dropout: bool = False
) -> str:
    """The engine that "auto" chooses, and what replaces it for some batches: small ones if the layers are small, on a
    GPU large ones if the boundary rates are known. ``dropout`` says whether there is any between layers.
    """
    chosen = choose_engine("auto", device, options, weights[0].b.dtype)
    least = cuda.least_batch([w.hidden_size for w in weights], options)
    if chosen == "cuda" and least is not None:
        return f"cuda; in training steps cuda-rows from {least} sequences on"
    most = small.most_sequences(weights) if small.why_not(weights, options, dropout) is None else 0
    return f"{chosen}; dense products for up to {most} sequences" if chosen == "sparse" and most else chosen


def _why_plain_torch() -> str | None:
    """Why only the reference, in plain PyTorch, can run now; None if the other engines can."""
    if torch._C._are_functorch_transforms_active():
        return "torch.func cannot transform it"
    if torch.jit.is_tracing():
        return "torch.jit.trace cannot trace it"
    if torch.compiler._is_exporting_flag:  # is_exporting() is true in all that torch 2.11 compiles
        return "torch.export cannot export it"
    if torch.autograd.forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    return None


def _why_not_sparse(device: torch.device, options: Options) -> str | None:
    if options.boundary == "soft":
        return "it takes boundaries of 0 and 1 only, not soft ones"
    return "it reads the values of boundaries, and tensors on meta have none" if device.type == "meta" else None


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
        engine: which implementation runs. "auto" is the fastest one that can: on a GPU "cuda", or "cuda-rows" where a
            training step is faster with it at ``options.rates``, if these are given; on a CPU "sparse", or
            what is faster than it and equal up to rounding: NumPy for a single sequence without gradients
            (:mod:`hmrnn.ops.single`), dense products for small layers in small batches
            (:mod:`hmrnn.ops.small`); or the reference if given boundaries or the state's z lie between 0 and 1.
            "cuda-rows" is "cuda" without products for rows that copy: faster in large batches at low rates, slower in
            others. With ``options.rates`` it takes less memory than "cuda", without them more.
    """
    if seen is not None and any(a.requires_grad for a in seen):
        raise InputError("seen must not require a gradient: no engine computes one; detach it")
    if isinstance(options.temperature, Tensor) and options.temperature.requires_grad:
        raise InputError("temperature must not require a gradient: no engine computes one; detach it")
    device = inputs.indices.device if isinstance(inputs, Symbols) else inputs.device
    engines: dict[str, Callable[..., Result]] = {
        "reference": reference.hmlstm, "sparse": sparse.hmlstm, "cuda": cuda.hmlstm, "cuda-rows": cuda.hmlstm_rows,
    }  # fmt: skip
    batch = len(state.z) if torch.is_grad_enabled() else 0
    sizes = [w.hidden_size for w in weights]
    chosen = choose_engine(engine, device, options, weights[0].b.dtype, batch, sizes)
    run = engines[chosen]
    if (engine, chosen) == ("auto", "sparse"):
        run = _on_cpu
    given = {"lengths": lengths, "boundaries": boundaries, "noise": noise, "kept": kept, "seen": seen}
    if chosen != "reference" and torch.compiler.is_compiling():
        return _uncompiled(run, inputs, weights, state, options, **given)
    return run(inputs, weights, state, options, **given)


def _on_cpu(
    inputs: Tensor | Symbols, weights: Sequence[LayerWeights], state: State, options: Options, **given: Any
) -> Result:
    """Run the fastest of the sparse engine, NumPy, dense products and the reference that can take these arguments."""
    lengths, boundaries, noise = (given[name] for name in ("lengths", "boundaries", "noise"))
    if not sparse.all_binary(state, lengths, boundaries):
        return reference.hmlstm(inputs, weights, state, options, **given)
    drops = given["kept"] is not None or given["seen"] is not None
    if small.suits(weights, options, len(state.z), drops):
        return small.hmlstm(inputs, weights, state, options, lengths=lengths, boundaries=boundaries, noise=noise)
    if drops or single.why_not(inputs, weights, state, options, lengths, boundaries, noise):
        return sparse.hmlstm(inputs, weights, state, options, **given)
    return single.hmlstm(inputs, weights, state, options, boundaries)


@torch._disable_dynamo  # the first call imports the compiler, which takes seconds: call it only if compiling
def _uncompiled(run: Callable[..., Result], *given: Any, **named: Any) -> Result:
    return run(*given, **named)
