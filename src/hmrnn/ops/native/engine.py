"""The native engine: the recurrence in C++ on a CPU, forwards and backwards, without work for layers that copy.

It computes what :mod:`hmrnn.ops.reference` computes, for boundaries of 0 and 1, in float32 or float64. The sequences of
a batch are divided among threads, each of which takes its own through all steps. The number of threads changes nothing
but the order in which the gradients of weights are summed. ``interface.h`` declares the structures that are passed.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import threading
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops.interface import (
    LayerWeights,
    Options,
    Result,
    State,
    Step,
    Symbols,
    autocast_dtype,
    first_only,
    why_plain_torch,
)
from hmrnn.ops.native import library

FIELDS = LayerWeights._fields
SHARED = ("U", "W", "V", "b", "gain_U", "gain_W", "gain_V", "gain_c", "bias_c", "D2", "d2")  # of _Layer, too
GATES = {"none": 0, "boundary": 1, "pending": 2, "always": 3}
ORDINARY = 1e18  # sum of squares below which the values of x need no further check
ESTIMATORS = {"step": 0, "sample": 1, "gumbel": 2, "reinforce": 3}

_int, _pointer, _list = ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_fields(_int, "H below above K Uz_stride Wz_stride Vz_stride unused"),
        *_fields(_pointer, "U W V b gain_U gain_W gain_V gain_c bias_c Uz Wz Vz bz D2 d2"),
    ]


class _Network(ctypes.Structure):
    _fields_: ClassVar[Any] = [*_fields(_int, "doubles layers"), ("layer", ctypes.POINTER(_Layer))]


class _Call(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_fields(_int, "T B symbols keep traces hold flush copy straight_through gate estimator threads"),
        *_fields(ctypes.c_double, "slope temperature zoneout"),
        *_fields(_pointer, "x indices lengths forced noise"),
        *_fields(_list, "kept seen h0 c0"),
        *_fields(_pointer, "z0 pending0"),
        *_fields(_list, "hidden h c"),
        *_fields(_pointer, "boundaries probabilities z pending moved"),
    ]


class _Gradients(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_fields(_list, "hidden h c"),
        *_fields(_pointer, "boundaries probabilities z pending"),
        ("layer", ctypes.POINTER(_Layer)),
        *_fields(_pointer, "x"),
        *_fields(_list, "h0 c0"),
        *_fields(_pointer, "z0 pending0 forced"),
        ("slope", ctypes.c_double),
    ]


def why_not(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    """Why this engine cannot run; None if it can."""
    if device.type != "cpu":
        return "it needs tensors on a CPU"
    if dtype not in (torch.float32, torch.float64):
        return "it computes in float32 and float64 only"
    if options.boundary == "soft":
        return "it takes boundaries of 0 and 1 only, not soft ones"
    return library.why_not()


def all_binary(state: State, lengths: Tensor | None, boundaries: Tensor | None) -> bool:
    """Whether all given boundaries outside the padding are 0, 1 or, if not forced, NaN."""
    given = [z for z in (state.z, state.pending) if z is not None]
    if boundaries is not None:
        free = boundaries.isnan()
        if lengths is not None:
            free = free | (torch.arange(len(boundaries))[:, None] >= lengths)[..., None]
        given.append(boundaries.masked_fill(free, 0))
    return all(bool(((z == 0) | (z == 1)).all()) for z in given)


class _Weights:
    """The weights of a network as the library reads them, and their packed copies."""

    def __init__(self, weights: Sequence[LayerWeights]) -> None:
        self.given = [a for w in weights for a in w if a is not None]
        # changes of tensors that were made in inference mode are not counted, so that these cannot be used again
        self.reusable = not any(a.is_inference() for a in self.given)
        self.versions = [(a.data_ptr(), a._version) for a in self.given] if self.reusable else []
        self.tensors = [_by_layer([None if a is None else a.detach().contiguous() for a in w])[0] for w in weights]
        self.dtype = weights[0].b.dtype
        self.layers = _layers(self.tensors, self.tensors)
        self.network = _Network(self.dtype == torch.float64, len(weights), self.layers)
        self.library = library.library()
        self.library.hm_weights.restype = _pointer
        self.at_network = ctypes.byref(self.network)
        self.packed = _Held(self.library.hm_weights(self.network.doubles), self.library)
        self.at_packed = _pointer(self.packed.pointer)

    def fit(self, weights: Sequence[LayerWeights]) -> bool:
        """Whether they are those of ``weights``, and unchanged."""
        given = [a for w in weights for a in w if a is not None]
        return (
            self.reusable
            and len(given) == len(self.given)
            and all(map(operator.is_, given, self.given))
            and [(a.data_ptr(), a._version) for a in given] == self.versions
        )


class _Held:
    """Something that the library made, freed with this object."""

    def __init__(self, pointer: int | None, owner: ctypes.CDLL) -> None:
        self.pointer, self.owner = pointer, owner
        if pointer is None:
            raise MemoryError("the native engine ran out of memory")

    def __del__(self) -> None:
        self.owner.hm_free(ctypes.c_void_p(self.pointer))


class Streamed(State):
    """A state with the packed weights of the pass or step that it comes from, for the next one.

    A state made from it by ``_replace``, ``detach`` or a copy has none. Changes of weights are noticed by autograd's
    version counters, which do not count changes by ``.data``, NumPy or a fused optimizer.
    """

    cache: _Weights | None = None
    flow: _Flow | None = None
    memory: Tensor  # what a flow has written: all tensors of this state are parts of it

    def detach(self) -> State:
        """The same values alone: nothing is remembered."""
        return State(*self).detach()

    def __reduce__(self) -> tuple[Any, ...]:
        return State, tuple(self)  # which torch.load reads


class _Flow:
    """Steps of one network that follow each other: nothing is checked again that cannot have changed."""

    def __init__(self, weights: _Weights, tensors: list[Tensor], options: Options, settings: object, B: int) -> None:
        self.weights, self.tensors, self.settings, self.B = weights, tensors, settings, B
        self.busy = threading.Lock()  # of the call, which a step fills in
        self.versions = [a._version for a in tensors]
        self.input_shape = (B, weights.tensors[0].W.shape[1])
        sizes = [w.hidden_size for w in weights.tensors]
        self.L, D = len(sizes), len(sizes) - 1
        pends = options.gate == "pending"
        self.shapes = [(B, size) for size in sizes] * 2 + [(B, D)] * (3 if pends else 2)
        self.parts = [B * size for _, size in self.shapes]
        self.call = call = _Call()
        call.T, call.B = 1, B
        # h and c of all layers, before the step and after it
        self.before, self.after = ((_pointer * (2 * self.L))() for _ in range(2))
        half = self.L * ctypes.sizeof(_pointer)
        call.h0, call.c0 = (ctypes.cast(ctypes.addressof(self.before) + at, _list) for at in (0, half))
        call.h, call.c = (ctypes.cast(ctypes.addressof(self.after) + at, _list) for at in (0, half))
        call.hidden = call.h
        call.hold, call.flush, call.copy = options.on_copy == "hold", options.flush, options.copy
        call.gate, call.threads = GATES[options.gate], threads(1, B, weights.tensors)
        call.slope, call.zoneout = float(options.slope), options.zoneout
        self.size = weights.dtype.itemsize
        starts = itertools.accumulate(self.parts, initial=0)
        self.offsets = [start * self.size for start in starts]

    def fits(self, tensors: list[Tensor], settings: object) -> bool:
        """Whether the network is as it was."""
        return (
            len(tensors) == len(self.tensors)
            and all(map(operator.is_, tensors, self.tensors))
            and [a._version for a in tensors] == self.versions
            and settings == self.settings
        )

    def step(self, x: Tensor, state: Streamed, forced: Tensor | None) -> Step:
        call, L, offsets = self.call, self.L, self.offsets
        memory = torch.empty(offsets[-1] // self.size, dtype=self.weights.dtype)
        moved = torch.empty(self.B, L, dtype=torch.bool)
        was, now = state.memory.data_ptr(), memory.data_ptr()
        for i in range(2 * L):
            self.before[i], self.after[i] = was + offsets[i], now + offsets[i]
        call.z0, call.z = was + offsets[2 * L], now + offsets[2 * L]
        call.boundaries, call.probabilities = call.z, now + offsets[-2]
        call.pending0, call.pending = was + offsets[2 * L + 1], now + offsets[2 * L + 1]
        call.x, call.forced, call.moved = x.data_ptr(), None if forced is None else forced.data_ptr(), moved.data_ptr()
        owner = self.weights
        if owner.library.hm_forward(owner.at_network, ctypes.byref(call), owner.at_packed, None):
            raise MemoryError("the native engine ran out of memory")
        return self.read(memory, moved)

    def read(self, memory: Tensor, moved: Tensor) -> Step:
        """The step whose numbers ``memory`` holds."""
        parts = [a.view(shape) for a, shape in zip(memory.split(self.parts), self.shapes)]
        new = Streamed(tuple(parts[: self.L]), tuple(parts[self.L : 2 * self.L]), *parts[2 * self.L : -1])
        new.cache, new.flow, new.memory = self.weights, self, memory
        return Step(new, moved, parts[-1])


def flowing(made: Step, tensors: list[Tensor], options: Options, settings: object) -> Step:
    """A first step, ready to be followed by :func:`go_on`; ``tensors`` and ``settings`` are all that its network is."""
    state = made.state
    if not isinstance(state, Streamed) or state.cache is None or any(a.is_inference() for a in (*tensors, state.z)):
        return made
    if not {*map(id, state.cache.given)} <= {*map(id, tensors)}:  # some are computed anew for each step
        return made
    flow = _Flow(state.cache, tensors, options, settings, len(state.z))
    last = () if state.pending is None else (state.pending,)
    memory = torch.cat([a.flatten() for a in (*state.h, *state.c, state.z, *last, made.probabilities)])
    return flow.read(memory, made.changed)


def go_on(x: Tensor, state: State, forced: Tensor | None, tensors: list[Tensor], settings: object) -> Step | None:
    """The step after the one that ``state`` comes from; None if something but x has changed or needs to be checked."""
    if not isinstance(state, Streamed) or state.flow is None:
        return None
    flow = state.flow
    if (
        torch.compiler.is_compiling()
        or why_plain_torch() is not None
        or type(x) is not Tensor
        or x.shape != flow.input_shape
        or x.dtype != flow.weights.dtype
        or not x.is_cpu
        or not flow.fits(tensors, settings)
        or state.memory._version
        or torch.is_inference_mode_enabled()
    ):
        return None
    x = x.detach().contiguous()
    values = x.numpy().ravel()
    if not np.vdot(values, values) < ORDINARY:
        return None
    if forced is not None:
        if forced.shape != state.z.shape or forced.dtype != x.dtype or not forced.is_cpu:
            return None
        forced = forced.detach().contiguous()
        if not all(v in (0, 1) or v != v for v in forced.flatten().tolist()):
            return None
    if not flow.busy.acquire(blocking=False):  # another thread goes on from the same step
        return None
    try:
        return flow.step(x, state, forced)
    finally:
        flow.busy.release()


def _layers(weights: Sequence[LayerWeights], shapes: Sequence[LayerWeights]) -> ctypes.Array[_Layer]:
    """The structures of layers whose weights (or gradients, where None is one that is not wanted) are ``weights``."""
    layers = (_Layer * len(weights))()
    for layer, w, shape in zip(layers, weights, shapes):
        H, below = shape.hidden_size, shape.W.shape[1]
        above = 0 if shape.V is None else shape.V.shape[1]
        layer.H, layer.below, layer.above = H, below, above
        for name in SHARED:
            setattr(layer, name, _address(getattr(w, name)))
        layer.Uz_stride, layer.Wz_stride, layer.Vz_stride = H, below, above
        if shape.D1 is not None:
            N, total = shape.D1.shape
            layer.K, layer.Uz_stride, layer.Wz_stride, layer.Vz_stride = N, total, total, total
            layer.bz = _address(w.d1)
            if w.D1 is not None:
                layer.Uz, layer.Vz, layer.Wz = (_address(w.D1[:, at:]) for at in (0, H, H + above))
        elif shape.has_detector:
            layer.K = 1
            layer.Uz, layer.Wz, layer.Vz, layer.bz = (
                None if a is None else _address(a[4 * H :]) for a in (w.U, w.W, w.V, w.b)
            )
    return layers


def _by_layer(flat: Sequence[Tensor | None]) -> list[LayerWeights]:
    """The fields of one layer after the other, as layers; of gradients some are None."""
    return [LayerWeights(*flat[i : i + len(FIELDS)]) for i in range(0, len(flat), len(FIELDS))]  # type: ignore[arg-type]


def _address(a: Tensor | None) -> int | None:
    return None if a is None else a.data_ptr()


def _addresses(tensors: Iterable[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    pointers = [_address(a) for a in tensors]
    return (_pointer * len(pointers))(*pointers)


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
        self, weights: _Weights, given: _Given, x: Tensor, forced: Tensor | None, state: State, keep: bool, traces: bool
    ) -> None:
        options, L = given.options, len(weights.tensors)
        T, B = (x if given.indices is None else given.indices).shape[:2]
        sizes = [w.hidden_size for w in weights.tensors]
        self.weights, self.call = weights, _Call()
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
        call = self.call
        call.T, call.B, call.symbols = T, B, 0 if given.indices is None else len(x)
        call.keep, call.traces = keep, traces
        call.hold, call.flush, call.copy = options.on_copy == "hold", options.flush, options.copy
        call.straight_through = options.straight_through
        call.gate, call.estimator = GATES[options.gate], ESTIMATORS[options.boundary]
        call.slope, call.temperature, call.zoneout = float(options.slope), float(options.temperature), options.zoneout
        call.threads = threads(T, B, weights.tensors)
        self.held: list[object] = []  # what the library reads, also in the backward pass
        for name, a in read.items():
            if a is not None:
                a = a.detach().contiguous()
                self.held.append(a)
                setattr(call, name, a.data_ptr())
        for name, many in lists.items():
            if many:
                many = [a.detach().contiguous() for a in many]
                array = _addresses(many)
                self.held += [many, array]
                setattr(call, name, array)
        for name, written in (("hidden", hidden), ("h", h), ("c", c)):
            array = _addresses(written)
            self.held.append(array)
            setattr(call, name, array)
        for name, a in zip(("boundaries", "probabilities", "z", "pending"), single):
            setattr(call, name, _address(a))
        kept = _pointer()
        failed = weights.library.hm_forward(
            ctypes.byref(weights.network),
            ctypes.byref(call),
            ctypes.c_void_p(weights.packed.pointer),
            ctypes.byref(kept),
        )
        if failed:
            raise MemoryError("the native engine ran out of memory")
        self.log = _Held(kept.value, weights.library) if keep else None

    def give(self) -> tuple[Tensor, ...]:
        """The outputs. Autograd's tensors hold this object, which therefore keeps not them but their memory."""
        outputs = tuple(self.outputs)
        self.outputs = [a.detach() for a in outputs]
        return outputs


def threads(T: int, B: int, weights: Sequence[LayerWeights]) -> int:
    """The threads that a call takes: a few rows, or little work, take one."""
    work = T * B * sum(w.U.numel() + w.W.numel() for w in weights)
    return max(1, min(torch.get_num_threads(), B // 4, work // 2_000_000))


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
    if options.gate != "pending":
        state = state._replace(pending=None)
    elif state.pending is None:
        state = state._replace(pending=state.z)
    dtype, L = weights[0].b.dtype, len(weights)
    x, indices = (inputs.embedding, inputs.indices) if isinstance(inputs, Symbols) else (inputs, None)
    if autocast_dtype(x.device) is not None:
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
            prepared = _Weights(weights)
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
    if given.indices is not None:
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
        weights = _by_layer(rest[2 * L :])
        options = given.options
        learn = options.boundary != "reinforce" and (
            forced is None or options.straight_through or bool(forced.isnan().any())
        )
        traces = L > 1 and (learn or any(ctx.needs_input_grad[i] for i in (2, 4, 5)))
        state = State(tuple(rest[:L]), tuple(rest[L : 2 * L]), z, pending)
        return _Pass(_Weights(weights), given, x, forced, state, True, traces)

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
        given = [None if a is None else a.to(dtype).contiguous() for a in grads]
        needed = ctx.needs_input_grad[1:]
        found = [
            torch.zeros_like(a, memory_format=torch.contiguous_format) if want else None
            for a, want in zip(tensors, needed)
        ]
        x, forced, slope, z, pending, *rest = found
        layers = _by_layer(rest[2 * L :])
        g = _Gradients()
        ends = given[L + 3 :]
        lists = {
            "hidden": given[:L], "h": ends[:L], "c": ends[L : 2 * L], "h0": rest[:L], "c0": rest[L : 2 * L],
        }  # fmt: skip
        alive = {name: _addresses(many) for name, many in lists.items()}
        for name, array in alive.items():
            setattr(g, name, array)
        g.boundaries, g.probabilities, g.z = (_address(a) for a in given[L : L + 3])
        g.pending = _address(ends[2 * L]) if len(ends) > 2 * L else None
        g.x, g.forced, g.z0, g.pending0 = _address(x), _address(forced), _address(z), _address(pending)
        structures = _layers(layers, made.weights.tensors)
        g.layer = structures
        assert made.log is not None
        failed = made.weights.library.hm_backward(
            made.weights.network.doubles, ctypes.c_void_p(made.log.pointer), ctypes.byref(g)
        )
        if failed:
            raise MemoryError("the native engine ran out of memory")
        if slope is not None:
            slope.fill_(g.slope)
        return (None, *found)
