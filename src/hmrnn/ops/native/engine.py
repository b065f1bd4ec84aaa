"""The native engine: the recurrence in C++ on a CPU, forwards and backwards, without work for layers that copy.

It computes what :mod:`hmrnn.ops.reference` computes, for boundaries of 0 and 1, in float32 or float64. The sequences of
a batch are divided among threads, each of which takes its own through all steps. The number of threads changes nothing
but the order in which the gradients of weights are summed. ``interface.h`` declares the structures that are passed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Symbols, first_only
from hmrnn.ops.native import library
from hmrnn.ops.native.stream import Streamed
from hmrnn.ops.native.structs import (
    FIELDS,
    POINTER,
    Gradients,
    Held,
    Weights,
    address,
    addresses,
    by_layer,
    layers_of,
    new_call,
    plain,
)


def why_not(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    """Why this engine cannot run; None if it can."""
    if device.type != "cpu":
        return "it needs tensors on a CPU"
    if dtype not in (torch.float32, torch.float64):
        return "it computes in float32 and float64 only"
    if options.variant.boundary == "soft":
        return "it takes boundaries of 0 and 1 only, not soft ones"
    return library.why_not()


def all_binary(state: State, lengths: Tensor | None, boundaries: Tensor | None) -> bool:
    """Whether all given boundaries outside the padding are 0, 1 or, if not forced, NaN."""
    given = [z for z in (state.z, state.pending) if z is not None and z.numel()]
    if boundaries is not None:
        free = boundaries.isnan()
        if lengths is not None:
            free = free | (torch.arange(len(boundaries))[:, None] >= lengths)[..., None]
        given.append(boundaries.masked_fill(free, 0))
    return all(bool(((z == 0) | (z == 1)).all()) for z in given)


class _Given(NamedTuple):
    """The arguments of a call apart from those that have gradients."""

    options: Options
    indices: Tensor | None  # (T, B); then x is the embedding
    lengths: Tensor | None  # (B,)
    noise: Tensor | None  # (T, B, L-1)
    kept: list[Tensor]  # L of (T, B, H_l), or none
    seen: list[Tensor]  # L-1 of (B, H_l), or none


class _Pass:
    """One call of the library, with all that it reads and writes."""

    def __init__(
        self, weights: Weights, given: _Given, x: Tensor, forced: Tensor | None, state: State, keep: bool, traces: bool
    ) -> None:
        options, L = given.options, len(weights.tensors)
        T, B = (x if given.indices is None else given.indices).shape[:2]
        sizes = [w.hidden_size for w in weights.tensors]
        self.weights, self.call = weights, new_call(weights, options, T, B)
        call = self.call
        new = weights.tensors[0].b.new_empty
        hidden = [new(T, B, size) for size in sizes]
        h, c = ([new(B, size) for size in sizes] for _ in range(2))
        last = [] if state.pending is None else [new(B, L - 1)]
        single = [new(T, B, L - 1), new(T, B, L - 1), new(B, L - 1), *last]
        self.outputs = [*hidden, *single[:3], *h, *c, *last]
        read: dict[str, Tensor | None] = {
            "x": x, "indices": given.indices, "lengths": given.lengths, "forced": forced, "noise": given.noise,
            "z0": state.z, "pending0": state.pending,
        }  # fmt: skip
        lists: dict[str, Sequence[Tensor]] = {"h0": state.h, "c0": state.c, "kept": given.kept, "seen": given.seen}
        call.symbols = 0 if given.indices is None else len(x)
        call.keep, call.traces = keep, traces
        self.held: list[object] = []  # what the library reads, also in the backward pass
        for name, a in read.items():
            if a is not None:
                a = plain(a)
                self.held.append(a)
                setattr(call, name, a.data_ptr())
        for name, many in lists.items():
            if many:
                many = [plain(a) for a in many]
                array = addresses(many)
                self.held += [many, array]
                setattr(call, name, array)
        for name, written in (("hidden", hidden), ("h", h), ("c", c)):
            array = addresses(written)
            self.held.append(array)
            setattr(call, name, array)
        for name, a in zip(("boundaries", "probabilities", "z", "pending"), single):
            setattr(call, name, address(a))
        kept = POINTER()
        weights.run(call, ctypes.byref(kept))
        self.log = Held(kept.value, weights.code) if keep else None

    def give(self) -> tuple[Tensor, ...]:
        """The outputs. Autograd's tensors hold this object, which therefore keeps not them but their memory."""
        outputs = tuple(self.outputs)
        self.outputs = [a.detach() for a in outputs]
        return outputs


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
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`. All boundaries, forced and in the state too, must be 0 or 1."""
    if not all_binary(state, lengths, boundaries):
        raise InputError('boundaries must be zeros and ones for engine "native"; use engine="reference"')
    prepared = state.cache if isinstance(state, Streamed) else None
    if options.variant.gate != "pending":
        state = state._replace(pending=None)
    elif state.pending is None:
        state = state._replace(pending=state.z)
    dtype, L = weights[0].b.dtype, len(weights)
    x, indices = (inputs.embedding, inputs.indices) if isinstance(inputs, Symbols) else (inputs, None)
    if torch.is_autocast_enabled("cpu"):
        x = x.to(dtype)
    slope = options.slope if isinstance(options.slope, Tensor) else None
    flat = [a for w in weights for a in w]
    tensors = [x, boundaries, slope, state.z, state.pending, *state.h, *state.c, *flat]
    learn = torch.is_grad_enabled() and any(a is not None and a.requires_grad for a in tensors)

    def own(a: Any, dtype: torch.dtype = dtype) -> Any:  # a copy for the backward pass: the caller may refill ``a``
        return None if a is None else a.to(dtype, copy=learn)

    if indices is not None and lengths is not None:
        indices = indices.masked_fill(torch.arange(len(indices))[:, None] >= lengths, 0)
    tensors[1] = own(boundaries)
    given = _Given(
        options, own(indices, torch.int64), own(lengths, torch.int64), own(noise),
        [own(a) for a in kept or ()], [own(a) for a in seen or ()],
    )  # fmt: skip
    _check(given, x, weights, state, boundaries)
    if learn:
        outputs = _Native.apply(given, *tensors)
        made: type[State] = State
    else:
        if prepared is None or not prepared.fit(weights):
            prepared = Weights(weights)
        outputs = _Pass(prepared, given, x, boundaries, state, False, False).give()
        made = Streamed
    hidden, (z, probabilities, last_z), rest = outputs[:L], outputs[L : L + 3], outputs[L + 3 :]
    new = made(rest[:L], rest[L : 2 * L], last_z, *rest[2 * L :])
    if isinstance(new, Streamed):
        new.cache = prepared
    return Result(hidden, z, probabilities, new)


def _check(given: _Given, x: Tensor, weights: Sequence[LayerWeights], state: State, forced: Tensor | None) -> None:
    """Refuse what the library could not read: other shapes, other dtypes, symbols that the embedding does not have."""
    b, L, D = weights[0].b, len(weights), len(weights) - 1
    T, B = (x if given.indices is None else given.indices).shape[:2]
    below = [weights[0].W.shape[1], *(w.hidden_size for w in weights)]
    most = max((T + 2) * B, len(x), *below)
    if min(below) < 1 or most >= 2**31:
        raise InputError(f"sizes must lie between 1 and 2**31 - 1, also (T + 2) * B; got {min(below)} and {most}")
    several = {"state.h": (state.h, L), "state.c": (state.c, L), "kept": (given.kept, L), "seen": (given.seen, D)}
    for name, (many, count) in several.items():
        if len(many) != count and (many or name.startswith("state")):
            raise InputError(f"{name} must hold {count} tensors; got {len(many)}")
    wanted: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("x", x, (T, B, below[0]) if given.indices is None else (len(x), below[0])),
        ("boundaries", forced, (T, B, D)), ("noise", given.noise, (T, B, D)),
        ("state.z", state.z, (B, D)), ("state.pending", state.pending, (B, D)),
    ]  # fmt: skip
    for l, w in enumerate(weights):
        H, rows = w.hidden_size, 4 * w.hidden_size + (l < D and w.D1 is None)
        above = None if w.V is None else weights[l + 1].hidden_size
        reads = (w.D1.shape[0], H + (above or 0) + below[l]) if w.D1 is not None else ()
        shapes: dict[str, tuple[int, ...]] = {
            "U": (rows, H), "W": (rows, below[l]), "b": (rows,), "V": (rows, above or 0), "gain_U": (4 * H,),
            "gain_W": (4 * H,), "gain_V": (4 * H,), "gain_c": (H,), "bias_c": (H,), "D1": reads, "d1": reads[:1],
            "D2": (1, *reads[:1]), "d2": (1,),
        }  # fmt: skip
        groups = [w.gain_U, w.gain_W, w.gain_c, w.bias_c, *([w.gain_V] * (w.V is not None))], [w.D1, w.d1, w.D2, w.d2]
        if any(len({a is None for a in group}) > 1 for group in groups):
            raise InputError(f"layer {l} must have all gains or none, and all of D1, d1, D2 and d2 or none of them")
        wanted += [(f"{name}.{l}", a, shapes[name]) for name, a in w._asdict().items()]
        wanted += [("state.h", state.h[l], (B, H)), ("state.c", state.c[l], (B, H))]
    wanted += [("kept", a, (T, B, w.hidden_size)) for a, w in zip(given.kept, weights)]
    wanted += [("seen", a, (B, w.hidden_size)) for a, w in zip(given.seen, weights)]
    for name, a, shape in wanted:
        if a is not None and (a.shape != shape or a.dtype != b.dtype or a.device.type != "cpu"):
            raise InputError(f"{name} must be {b.dtype} {shape} on cpu; got {a.dtype} {tuple(a.shape)} on {a.device}")
    if given.indices is not None and T * B > 0:
        low, high = (int(a) for a in given.indices.aminmax())
        if low < 0 or high >= len(x):
            raise InputError(f"symbols must lie between 0 and {len(x) - 1}; got {low if low < 0 else high}")
    if (n := given.lengths) is not None and (n.shape != (B,) or not bool(((n >= 0) & (n <= T)).all())):
        raise InputError(f"lengths must hold {B} numbers between 0 and {T}; got shape {tuple(n.shape)}")


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: _Given, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        made = _Native.run(ctx, given, tensors)
        outputs = made.give()
        ctx.given = given
        ctx.set_materialize_grads(False)
        # the log lives as long as autograd keeps what was saved: until the backward pass, not as long as the graph
        token = torch.empty(0)
        token.made = made  # type: ignore[attr-defined]
        ctx.save_for_backward(token, *tensors, *outputs)
        return outputs

    @staticmethod
    def run(ctx: Any, given: _Given, tensors: Sequence[Any]) -> _Pass:
        x, forced, _, z, pending, *rest = tensors
        L = len(rest) // (2 + len(FIELDS))
        weights = by_layer(rest[2 * L :])
        options = given.options
        learn = options.variant.boundary != "reinforce" and (
            forced is None or options.straight_through or bool(forced.isnan().any())
        )
        traces = L > 1 and (learn or any(ctx.needs_input_grad[i] for i in (2, 4, 5)))
        state = State(tuple(rest[:L]), tuple(rest[L : 2 * L]), z, pending)
        return _Pass(Weights(weights), given, x, forced, state, True, traces)

    @staticmethod
    @first_only('engine "native" gives first derivatives only; for create_graph=True use engine="reference"')
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        token, *saved = ctx.saved_tensors
        tensors = saved[: len(ctx.needs_input_grad) - 1]
        made: _Pass | None = getattr(token, "made", None)
        if made is None:  # saved tensors were stored elsewhere and have come back, without the log
            made = _Native.run(ctx, ctx.given, tensors)
        L = len(made.weights.tensors)
        dtype = made.weights.dtype
        given = [None if a is None else plain(a.to(dtype)) for a in grads]
        needed = ctx.needs_input_grad[1:]
        found = [
            torch.zeros_like(a, memory_format=torch.contiguous_format) if want else None
            for a, want in zip(tensors, needed)
        ]
        x, forced, slope, z, pending, *rest = found
        layers = by_layer(rest[2 * L :])
        g = Gradients()
        ends = given[L + 3 :]
        lists = {
            "hidden": given[:L], "h": ends[:L], "c": ends[L : 2 * L], "h0": rest[:L], "c0": rest[L : 2 * L],
        }  # fmt: skip
        alive = {name: addresses(many) for name, many in lists.items()}
        for name, array in alive.items():
            setattr(g, name, array)
        g.boundaries, g.probabilities, g.z = (address(a) for a in given[L : L + 3])
        g.pending = address(ends[2 * L]) if len(ends) > 2 * L else None
        g.x, g.forced, g.z0, g.pending0 = address(x), address(forced), address(z), address(pending)
        structures = layers_of(layers, made.weights.tensors)
        g.layer = structures
        assert made.log is not None
        failed = made.weights.code.hm_backward(
            made.weights.network.doubles, ctypes.c_void_p(made.log.pointer), ctypes.byref(g)
        )
        if failed:
            raise MemoryError("the native engine ran out of memory")
        if slope is not None:
            slope.fill_(g.slope)
        return (None, *found)
