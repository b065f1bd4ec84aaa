"""The recurrence on NVIDIA GPUs: matrix products and fused Triton cell kernels, captured into CUDA graphs.

Results and gradients are those of :mod:`hmrnn.ops.reference`. Matrix products, hidden and ``state.h`` are in the dtype
of the weights or of autocast (float32 or bfloat16); c, the detectors, z and every sum are in float32. The logs of c and
of the pre-activations for the backward pass are in the dtype of the products.

A call has its own buffers (:class:`hmrnn.ops.cuda.plan.Plan`) from its forward to its backward pass. Launches of shapes
that repeat are captured and kept (:mod:`hmrnn.ops.cuda.cache`). Inside a capture of the caller's, the launches become
part of the caller's graph.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from hmrnn.errors import InputError
from hmrnn.ops.cuda import cache as cuda_cache
from hmrnn.ops.cuda.cache import Lease
from hmrnn.ops.cuda.cache import forget as forget
from hmrnn.ops.cuda.gradients import source_gradient, weight_gradients
from hmrnn.ops.cuda.layer import Spec
from hmrnn.ops.cuda.plan import Call
from hmrnn.ops.estimators import DRAWN
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols, first_only

STEPS_WITHOUT_GRADIENT = 128
"""Steps per piece of a sequence without gradients: memory does not grow with its length."""


@functools.cache
def _triton_is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why this engine cannot run on ``device`` with matrix products in ``dtype``; None if it can."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, and the tensors are on {device.type}"
    if torch.version.cuda is None:
        return "it needs an NVIDIA GPU, and this PyTorch is not built for one"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"it works in float32 or bfloat16, not in {str(dtype).removeprefix('torch.')}"
    if not _triton_is_installed():
        return "it needs Triton, which is not installed (pip install triton)"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 makes Triton run kernels on the CPU"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        name = torch.cuda.get_device_name(device)
        return f"it needs a GPU of compute capability 8.0 or more, and {name} has {major}.{minor}"
    return None


def _run(lease: Lease, call: Call, tensors: Sequence[Any], form: TreeSpec) -> list[Tensor]:
    source, state, forced, weights = tree_unflatten(tensors, form)
    lease.held[0].load_weights(weights)
    lease.plan.load_inputs(call, source, state, forced)
    lease.forward()
    return lease.plan.result()


def _unflattened(flat: Sequence[Tensor], layers: int) -> Result:
    ends = flat[layers + 2 :]
    state = State(tuple(ends[:layers]), tuple(ends[layers : 2 * layers]), *ends[2 * layers :])
    return Result(tuple(flat[:layers]), flat[layers], flat[layers + 1], state)


class _Recurrence(torch.autograd.Function):
    """The whole sequence as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, call: Call, form: TreeSpec, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        device = cuda_cache.on(call.spec.device)
        with device.turn():
            lease = device.lend(call.spec)
            result = _run(lease, call, tensors, form)
        ctx.lease, ctx.form = lease, form
        ctx.dtypes = [None if a is None else a.dtype for a in tensors]
        ctx.save_for_backward(result[0].new_empty(0))  # torch then reports a second backward pass as an error
        ctx.set_materialize_grads(False)
        return tuple(result)

    @staticmethod
    @first_only("the engine 'cuda' gives first derivatives only; for create_graph=True choose engine='reference'")
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        lease, plan = ctx.lease, ctx.lease.plan
        wanted = [dtype if needed else None for dtype, needed in zip(ctx.dtypes, ctx.needs_input_grad[2:])]
        source, _, _, weights = tree_unflatten(wanted, ctx.form)
        with lease.owner.turn():
            lease.backward(grads)
            named = [{name: dtype for name, dtype in w._asdict().items() if dtype is not None} for w in weights]
            d_source = None if source is None else source_gradient(plan, source)
            d_weights = weight_gradients(plan, named)
            d_states = [
                None if a is None or dtype is None else a.to(dtype, copy=True)
                for a, dtype in zip(plan.state_gradients(), wanted[1:])
            ]
            if not torch._C._autograd._get_current_graph_task_keep_graph():
                lease.release()
        return (None, None, d_source, *d_states, *(of.get(name) for of in d_weights for name in LayerWeights._fields))


@torch._disable_dynamo  # torch.compiler.disable would do the same, but takes seconds to import the compiler
def hmlstm(
    inputs: Tensor | Symbols,  # (T, B, size)
    weights: Sequence[LayerWeights],
    state: State,
    options: Options,
    *,
    lengths: Tensor | None = None,  # (B,)
    boundaries: Tensor | None = None,  # (T, B, L-1), NaN: not forced
    noise: Tensor | None = None,  # (T, B, L-1)
    kept: Sequence[Tensor] | None = None,  # L of (T, B, H_l)
    seen: Sequence[Tensor] | None = None,  # L-1 of (B, H_l)
) -> Result:
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`."""
    indices, source = (inputs.indices, inputs.embedding) if isinstance(inputs, Symbols) else (None, inputs)
    T, B = (inputs.indices if isinstance(inputs, Symbols) else inputs).shape[:2]
    device, dtype = weights[0].U.device, weights[0].U.dtype
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    reason = why_not(device, dtype)
    if reason is not None:
        raise InputError(f"the engine 'cuda' cannot run here: {reason}; choose another engine")
    if isinstance(options.slope, Tensor) and options.slope.requires_grad:
        raise InputError("the engine 'cuda' has no gradient for the slope; detach it or choose another engine")
    if len(weights) == 1:
        boundaries = None
    if options.variant.boundary not in DRAWN or len(weights) == 1:
        noise = None
    pending = (state.z if state.pending is None else state.pending) if options.variant.gate == "pending" else None
    state = State(tuple(state.h), tuple(state.c), state.z, pending)
    tensors, form = tree_flatten((source, state, boundaries, list(weights)))
    training = torch.is_grad_enabled() and any(a is not None and a.requires_grad for a in tensors)
    norm = weights[0].gain_U is not None
    spec = Spec(
        steps=T,
        batch=B,
        sizes=tuple(w.hidden_size for w in weights),
        input_size=source.shape[-1],
        symbols=0 if indices is None else len(source),
        norm=norm,
        dtype=dtype,
        variant=options.variant,
        forced=boundaries is not None,
        straight_through=boundaries is not None and options.straight_through,
        noise=noise is not None,
        zoneout=options.zoneout if kept is None else 0.0,
        masks=kept is not None,
        seen=seen is not None,
        lengths=lengths is not None,
        training=training,
        input_gradient=training and norm and source.requires_grad,
        precision=torch.backends.cuda.matmul.fp32_precision if dtype == torch.float32 else "",
        device=device,
    )
    call = Call(spec, options.slope, options.temperature, indices, lengths, noise, kept, seen)
    if not training:
        return _without_gradient(call, tensors, form)
    return _unflattened(_Recurrence.apply(call, form, *tensors), len(weights))


def _without_gradient(call: Call, tensors: Sequence[Tensor | None], form: TreeSpec) -> Result:
    """Run the sequence in pieces of STEPS_WITHOUT_GRADIENT steps, each from the final state of the one before."""
    T, limit, device = call.spec.steps, STEPS_WITHOUT_GRADIENT, cuda_cache.on(call.spec.device)
    L = len(call.spec.sizes)
    if limit >= T:
        with device.turn():
            return _unflattened(_run(device.lend(call.spec), call, tensors, form), L)
    source, state, forced, weights = tree_unflatten(tensors, form)
    whole: list[Tensor] = []
    for begin in range(0, T, limit):
        span = slice(begin, min(begin + limit, T))
        now = dataclasses.replace(
            call,
            spec=dataclasses.replace(call.spec, steps=span.stop - begin),
            indices=None if call.indices is None else call.indices[span],
            lengths=None if call.lengths is None else call.lengths - begin,
            noise=None if call.noise is None else call.noise[span],
            kept=None if call.kept is None else [mask[span] for mask in call.kept],
        )
        x = source if call.indices is not None else source[span]
        here, form = tree_flatten((x, state, None if forced is None else forced[span], weights))
        with device.turn():
            lease = device.lend(now.spec, often=2 * limit < T)
            piece = _run(lease, now, here, form)
        lease.release()
        state = _unflattened(piece, L).state
        whole = whole or [a.new_empty(T, *a.shape[1:]) for a in piece[: L + 2]]
        for into, a in zip(whole, piece):
            into[span] = a
    return Result(tuple(whole[:-2]), whole[-2], whole[-1], state)
