"""The native engine: the recurrence in C++ on a CPU, forwards and backwards, without work for layers that copy.

It computes what :mod:`hmrnn.ops.reference` computes, for boundaries of 0 and 1, in float32 or float64. The sequences of
a batch are divided among threads, each of which takes its own through all steps. The number of threads changes nothing
but the order in which the gradients of weights are summed. ``interface.h`` says what is passed, in which order.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops.interface import LayerWeights, Options, Result, State, Step, Symbols, first_only, within
from hmrnn.ops.native import library

FIELDS = len(LayerWeights._fields)
GATES = ("none", "boundary", "pending", "always")
ESTIMATORS = ("step", "sample", "gumbel", "reinforce")
ORDINARY = 1e18
"""The sum of squares below which the numbers that a step reads need no further check."""


def why_not(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    """Why this engine cannot run; None if it can."""
    if device.type != "cpu":
        return "it needs tensors on a CPU"
    if dtype not in (torch.float32, torch.float64):
        return "it computes in float32 and float64 only"
    if options.variant.boundary == "soft":
        return "it takes boundaries of 0 and 1 only, not soft ones"
    return missing()


def missing() -> str | None:
    """Why there is no library; None if there is one."""
    return library.why_not()


missing._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile calls it and does not trace it


def all_binary(state: State, lengths: Tensor | None, boundaries: Tensor | None) -> bool:
    """Whether all given boundaries outside the padding are 0, 1 or, if not forced, NaN."""
    given = [z for z in (state.z, state.pending) if z is not None]
    if boundaries is not None:
        free = boundaries.isnan()
        if lengths is not None:
            free = free | ~within(lengths, len(boundaries))[..., None]
        given.append(boundaries.masked_fill(free, 0))
    return all(bool(((z == 0) | (z == 1)).all()) for z in given)


def plain(a: Tensor) -> Tensor:
    """The numbers of ``a``, one after the other in memory, as they are."""
    return a.detach().resolve_neg().contiguous()


def words(values: Iterable[Tensor | int | None], reals: Sequence[float] = ()) -> bytes:
    """Numbers and the addresses of tensors, as the library reads them."""
    found = [0 if a is None else a.data_ptr() if isinstance(a, Tensor) else a for a in values]
    return struct.pack(f"{len(reals)}d{len(found)}q", *reals, *found)


def call(name: str, *given: Any) -> ctypes.c_void_p:
    """Call a function of the library; what it made."""
    if library.code is None:
        library.why_not()  # loads it
    function = getattr(library.code, name)
    function.restype = ctypes.c_void_p
    if (made := function(*given)) is None:
        raise MemoryError("the native engine ran out of memory")
    return ctypes.c_void_p(made)


def freed_with(owner: object, made: ctypes.c_void_p) -> ctypes.c_void_p:
    assert library.code is not None
    weakref.finalize(owner, library.code.hm_free, made)
    return made


def takes(a: Tensor) -> bool:
    """Whether the library computes with tensors such as ``a``."""
    return a.device.type == "cpu" and a.dtype in (torch.float32, torch.float64) and missing() is None


def check(dtype: torch.dtype, wanted: Iterable[tuple[str, Tensor | None, tuple[int, ...]]]) -> None:
    """Refuse tensors of other shapes or dtypes, which the library could not read."""
    for name, a, shape in wanted:
        if a is not None and (a.shape != shape or a.dtype != dtype or a.device.type != "cpu"):
            raise InputError(f"{name} must be {dtype} {shape} on cpu; got {a.dtype} {tuple(a.shape)} on {a.device}")


class Network:
    """The weights of a network, packed for the library; with ``halve`` those of products in bfloat16."""

    def __init__(self, weights: Sequence[LayerWeights], halve: bool = False) -> None:
        self.halve = halve
        self.given = [a for w in weights for a in w]
        counted = not any(a is not None and a.is_inference() for a in self.given)
        self.versions = _versions(self.given) if counted else None
        self.tensors = [None if a is None else plain(a) for a in self.given]
        self.sizes = [w.hidden_size for w in weights]
        self.dtype = weights[0].b.dtype
        self.work = sum(w.U.numel() + w.W.numel() for w in weights)
        numbers: list[int] = []
        for w in weights:
            units, columns = (int(w.has_detector), 0) if w.D1 is None else w.D1.shape
            numbers += [w.hidden_size, w.W.shape[1], 0 if w.V is None else w.V.shape[1], units, columns]
        packed = words([*numbers, *self.tensors])
        self.pointer = freed_with(self, call("hm_network", self.dtype == torch.float64, halve, len(weights), packed))

    def fits(self, weights: Sequence[LayerWeights], halve: bool) -> bool:
        """Whether it is made of these, and they are unchanged."""
        given = [a for w in weights for a in w]
        return (
            self.versions is not None
            and self.halve == halve
            and len(given) == len(self.given)
            and all(map(operator.is_, given, self.given))
            and _versions(given) == self.versions
        )


def _versions(tensors: Sequence[Tensor | None]) -> list[tuple[int, int]]:
    return [(a.data_ptr(), a._version) for a in tensors if a is not None]


def halves(dtype: torch.dtype) -> bool:
    """Whether a pass without a gradient reads the weights of products as bfloat16."""
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return autocast and dtype == torch.float32


def threads(T: int, B: int, work: int) -> int:
    """The threads that a call takes whose steps each multiply ``work`` times: a few rows, or little work, take one."""
    return max(1, min(torch.get_num_threads(), B // 4, T * B * work // 2_000_000))


class Streamed(State):
    """A state with the packed weights of the pass or step that it comes from, for the next one.

    A state made from it by ``detach`` or a copy has none. Changes of weights are noticed by autograd's
    version counters, which do not count changes by ``.data``, NumPy or a fused optimizer.
    """

    network: Network | None = None

    def _replace(self, **parts: Any) -> Streamed:
        made = super()._replace(**parts)
        made.network = self.network
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return State, tuple(self)  # which torch.load reads


class Drawing(NamedTuple):
    """Steps that are drawn while the network reads, from a linear layer over the output module."""

    terms: Sequence[Tensor]  # of the first M layers (O + M, H_l): their embeddings, then their columns of the gates
    weight: Tensor  # (N, O)
    offset: Tensor  # (N,)
    starts: Tensor  # (B,) int64: the first step that is drawn
    uniform: Tensor  # (T, B, n) float64: what draws are made of, between 0 and 1
    drawn: Tensor  # (T, B, m) float64: what was drawn, which is also written where the network reads it
    choices: tuple[int, ...]  # top_k; components of a stroke mixture, 0 for a softmax; whether halts are drawn
    reals: tuple[float, ...]  # temperature, bias, top_p; the least deviation and the largest correlation
    window: Any = None  # a Pass of the window that goes along; it adds a term for its h, and one for what it shows

    def words(self) -> bytes:
        sizes = [len(self.terms), *self.weight.shape[::-1], self.uniform.shape[2], self.drawn.shape[2]]
        tensors = [*self.terms, self.weight, self.offset, self.starts, self.uniform, self.drawn]
        code = words([*self.choices, *sizes, self.window is not None, *tensors], self.reals)
        return code if self.window is None else code + self.window.words()


class _Given(NamedTuple):
    """The arguments of a call apart from those that have gradients."""

    options: Options
    indices: Tensor | None  # (T, B); then x is the embedding
    lengths: Tensor | None  # (B,)
    noise: Tensor | None  # (T, B, L-1)
    kept: list[Tensor]  # L of (T, B, H_l), or none
    seen: list[Tensor]  # L-1 of (B, H_l), or none
    drawing: Drawing | None


def _header(o: Options, boundary: str) -> tuple[list[int], list[float]]:
    """How the recurrence behaves."""
    cell = o.variant
    choices = [cell.on_copy == "hold", cell.flush, cell.copy, o.straight_through, GATES.index(cell.gate)]
    return [*choices, ESTIMATORS.index(boundary)], [float(o.slope), float(o.temperature), float(o.zoneout)]


class _Pass:
    """One call of the library, with all that it reads and writes."""

    def __init__(
        self, network: Network, given: _Given, x: Tensor, forced: Tensor | None, state: State, keep: bool, traces: bool
    ) -> None:
        self.network = network
        T, B = (x if given.indices is None else given.indices).shape[:2]
        new, D = x.new_empty, len(network.sizes) - 1
        h, c = ([new(B, size) for size in network.sizes] for _ in range(2))
        z = [new(T, B, D), new(T, B, D), new(B, D)]
        pending = [] if state.pending is None else [new(B, D)]
        self.outputs = [*(new(T, B, size) for size in network.sizes), *z, *h, *c, *pending]
        none: list[Tensor | None] = [None] * (D + 1)
        kept, seen = given.kept or none, [*given.seen, *none[len(given.seen) :]]
        read = [x, forced, state.z, state.pending, *state.h, *state.c, *given[1:4], *kept, *seen]
        self.read = [None if a is None else plain(a) for a in read]  # also in the backward pass
        numbers = [T, B, 0 if given.indices is None else len(x), keep, traces, threads(T, B, network.work)]
        written = [*self.outputs, *([None] if pending else [None, None])]
        choices, reals = _header(given.options, given.options.variant.boundary)
        code = words([*numbers, *choices, *written, *self.read, given.drawing is not None], reals)
        if given.drawing is not None:
            code += given.drawing.words()
        made = call("hm_forward", network.pointer, code)
        self.log = freed_with(self, made) if keep else None

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
    drawing: Drawing | None = None,
) -> Result:
    """Run the sequence; see :func:`hmrnn.ops.hmlstm`. All boundaries, forced and in the state too, must be 0 or 1.

    With ``drawing`` there is no gradient, and inputs must be contiguous and have the library's dtypes.
    """
    if not all_binary(state, lengths, boundaries):
        raise InputError('boundaries must be zeros and ones for engine "native"; use engine="reference"')
    network = state.network if isinstance(state, Streamed) else None
    if options.variant.gate != "pending":
        state = state._replace(pending=None)
    elif state.pending is None:
        state = state._replace(pending=state.z)
    dtype, L = weights[0].b.dtype, len(weights)
    x, indices = (inputs.embedding, inputs.indices) if isinstance(inputs, Symbols) else (inputs, None)
    if torch.is_autocast_enabled("cpu"):
        x = x.to(dtype)
    slope = options.slope if isinstance(options.slope, Tensor) else None
    tensors = [x, boundaries, slope, state.z, state.pending, *state.h, *state.c, *(a for w in weights for a in w)]
    learn = torch.is_grad_enabled() and any(a is not None and a.requires_grad for a in tensors)

    def own(a: Any, dtype: torch.dtype = dtype) -> Any:  # a copy for the backward pass: the caller may refill ``a``
        return None if a is None else a.to(dtype, copy=learn)

    if indices is not None and lengths is not None:
        indices = indices.masked_fill(~within(lengths, len(indices)), 0)
    tensors[1] = own(boundaries)
    given = _Given(
        options, own(indices, torch.int64), own(lengths, torch.int64), own(noise),
        [own(a) for a in kept or ()], [own(a) for a in seen or ()], drawing,
    )  # fmt: skip
    _check(given, x, weights, state, boundaries)
    if learn:
        outputs = _Native.apply(given, *tensors)
    else:
        if network is None or not network.fits(weights, halves(dtype)):
            network = Network(weights, halves(dtype))
        outputs = _Pass(network, given, x, boundaries, state, False, False).give()
    hidden, (z, probabilities, last_z), rest = outputs[:L], outputs[L : L + 3], outputs[L + 3 :]
    new = (State if learn else Streamed)(rest[:L], rest[L : 2 * L], last_z, *rest[2 * L :])
    if isinstance(new, Streamed):
        new.network = network
    return Result(hidden, z, probabilities, new)


def step(
    x: Tensor,  # (B, size)
    weights: Sequence[LayerWeights],
    state: State | None,
    options: Options,
    forced: Tensor | None = None,  # (B, L-1), NaN: not forced
) -> Step | None:
    """The step after that which ``state`` comes from; None if anything but x and ``forced`` may need to be checked."""
    if torch.compiler.is_compiling() or not isinstance(state, Streamed) or (network := state.network) is None:
        return None
    if options.variant.boundary == "soft":
        return None
    B, L, pends = len(x), len(weights), options.variant.gate == "pending"
    before = [*state.h, *state.c, state.z, state.pending if pends and state.pending is not None else state.z]
    after = [torch.empty_like(a) for a in before]
    widths = [*network.sizes, *network.sizes, L - 1, L - 1]
    given = [(x, weights[0].W.shape[1]), *zip(before, widths), *([] if forced is None else [(forced, L - 1)])]
    for a, n in given:
        if type(a) is not Tensor or a.shape != (B, n) or a.dtype != network.dtype or not a.is_cpu:
            return None
    x, forced = plain(x), forced if forced is None else plain(forced)
    values, marks = x.numpy(), [*state.z.view(-1).tolist(), *before[-1].view(-1).tolist()]
    marks += [] if forced is None else [z for z in forced.view(-1).tolist() if z == z]
    if not (
        np.vdot(values, values) < ORDINARY
        and {0.0, 1.0}.issuperset(marks)
        and network.fits(weights, halves(network.dtype))
    ):
        return None
    h, c, z, pending = after[:L], after[L : 2 * L], after[-2], after[-1] if pends else None
    probabilities, moved = torch.empty_like(z), x.new_empty(B, L, dtype=torch.bool)
    choices, reals = _header(options, "step")
    numbers = [1, B, 0, False, False, threads(1, B, network.work), *choices]
    read = [x, forced, *before[-2:], *before[:-2], *[None] * (4 + 2 * L)]
    written = [*h, z, probabilities, z, *h, *c, pending, moved]
    call("hm_forward", network.pointer, words([*numbers, *written, *read], reals))
    new = Streamed(tuple(h), tuple(c), z, pending)
    new.network = network
    return Step(new, moved, probabilities)


def _check(given: _Given, x: Tensor, weights: Sequence[LayerWeights], state: State, forced: Tensor | None) -> None:
    """Refuse what the library could not read: other shapes, other dtypes, symbols that the embedding does not have."""
    b, L, D = weights[0].b, len(weights), len(weights) - 1
    T, B = (x if given.indices is None else given.indices).shape[:2]
    sizes = [w.hidden_size for w in weights]
    below = [weights[0].W.shape[1], *sizes]
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
    for name, (many, _) in several.items():
        wanted += [(name, a, (T, B, H) if name == "kept" else (B, H)) for a, H in zip(many, sizes)]
    for l, (w, H) in enumerate(zip(weights, sizes)):
        rows, gates, above = 4 * H + (l < D and w.D1 is None), (4 * H,), 0 if w.V is None else below[l + 2]
        units, columns = (0, 0) if w.D1 is None else (len(w.D1), H + above + below[l])
        shapes = (
            (rows, H), (rows, below[l]), (rows,), (rows, above), gates, gates, gates, (H,), (H,),
            (units, columns), (units,), (1, units), (1,),
        )  # fmt: skip
        groups = [w.gain_U, w.gain_W, w.gain_c, w.bias_c, *([w.gain_V] * (w.V is not None))], [w.D1, w.d1, w.D2, w.d2]
        if any(len({a is None for a in group}) > 1 for group in groups):
            raise InputError(f"layer {l} must have all gains or none, and all of D1, d1, D2 and d2 or none of them")
        wanted += [(f"{name}.{l}", a, shape) for name, a, shape in zip(w._fields, w, shapes)]
    check(b.dtype, wanted)
    if (d := given.drawing) is not None:
        _check_drawing(d, x, given.indices is None)
    if given.indices is not None and T * B > 0:
        low, high = (int(a) for a in given.indices.aminmax())
        if low < 0 or high >= len(x):
            raise InputError(f"symbols must lie between 0 and {len(x) - 1}; got {low if low < 0 else high}")
    if (n := given.lengths) is not None and (n.shape != (B,) or not bool(((n >= 0) & (n <= T)).all())):
        raise InputError(f"lengths must hold {B} numbers between 0 and {T}; got shape {tuple(n.shape)}")


def _check_drawing(d: Drawing, x: Tensor, points: bool) -> None:
    """Refuse a head from which the library could not draw; all else is made where steps are drawn."""
    top_k, components, halts = d.choices
    N, temperature = len(d.weight), d.reals[0]
    wanted = 6 * components + 1 + halts if points else len(x)
    if wanted != N or points != (components > 0) or not d.terms or {d.weight.dtype, d.offset.dtype} != {x.dtype}:
        raise InputError(f"what is drawn needs {wanted} numbers of {x.dtype}; got {N} of {d.weight.dtype}")
    if not (0 < top_k <= N and temperature >= 0 and (points or temperature > 0)):
        raise InputError(
            f"top_k must lie between 1 and {N} and the temperature be positive; got {top_k}, {temperature}"
        )


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
        L = len(rest) // (2 + FIELDS)
        weights = [LayerWeights(*rest[i : i + FIELDS]) for i in range(2 * L, len(rest), FIELDS)]
        learn = given.options.variant.boundary != "reinforce" and (
            forced is None or given.options.straight_through or bool(forced.isnan().any())
        )
        traces = L > 1 and (learn or any(ctx.needs_input_grad[i] for i in (2, 4, 5)))
        state = State(tuple(rest[:L]), tuple(rest[L : 2 * L]), z, pending)
        return _Pass(Network(weights), given, x, forced, state, True, traces)

    @staticmethod
    @first_only('engine "native" gives first derivatives only; for create_graph=True use engine="reference"')
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        token, *saved = ctx.saved_tensors
        tensors = saved[: len(ctx.needs_input_grad) - 1]
        made: _Pass | None = getattr(token, "made", None)
        if made is None:  # saved tensors were stored elsewhere and have come back, without the log
            made = _Native.run(ctx, ctx.given, tensors)
        given = [None if a is None else plain(a.to(made.network.dtype)) for a in grads]
        found = [
            torch.zeros_like(a, memory_format=torch.contiguous_format) if want else None
            for a, want in zip(tensors, ctx.needs_input_grad[1:])
        ]
        if found[2] is not None:
            found[2] = torch.zeros_like(found[2], dtype=torch.float64)
        pending = [None] if len(given) == 3 * len(made.network.sizes) + 3 else []
        call("hm_backward", made.log, words([*given, *pending, *found]))
        return (None, *found)
