"""What the native library is given: the structures that ``interface.h`` declares, and a network's weights in them."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options
from hmrnn.ops.native import library

FIELDS = LayerWeights._fields
SHARED = ("U", "W", "V", "b", "gain_U", "gain_W", "gain_V", "gain_c", "bias_c", "D2", "d2")  # of Layer, too
GATES = {"none": 0, "boundary": 1, "pending": 2, "always": 3}
ESTIMATORS = {"step": 0, "sample": 1, "gumbel": 2, "reinforce": 3}

INT, POINTER, LIST = ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Layer(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_fields(INT, "H below above K Uz_stride Wz_stride Vz_stride unused"),
        *_fields(POINTER, "U W V b gain_U gain_W gain_V gain_c bias_c Uz Wz Vz bz D2 d2"),
    ]


class Network(ctypes.Structure):
    _fields_: ClassVar[Any] = [*_fields(INT, "doubles layers"), ("layer", ctypes.POINTER(Layer))]


class Call(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_fields(INT, "T B symbols keep traces hold flush copy straight_through gate estimator threads"),
        *_fields(ctypes.c_double, "slope temperature zoneout"),
        *_fields(POINTER, "x indices lengths forced noise"),
        *_fields(LIST, "kept seen h0 c0"),
        *_fields(POINTER, "z0 pending0"),
        *_fields(LIST, "hidden h c"),
        *_fields(POINTER, "boundaries probabilities z pending moved"),
    ]


class Gradients(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        *_fields(LIST, "hidden h c"),
        *_fields(POINTER, "boundaries probabilities z pending"),
        ("layer", ctypes.POINTER(Layer)),
        *_fields(POINTER, "x"),
        *_fields(LIST, "h0 c0"),
        *_fields(POINTER, "z0 pending0 forced"),
        ("slope", ctypes.c_double),
    ]


class Weights:
    """The weights of a network as the library reads them, and their packed copies."""

    def __init__(self, weights: Sequence[LayerWeights]) -> None:
        self.given = [a for w in weights for a in w if a is not None]
        # changes of tensors that were made in inference mode are not counted, so that these cannot be used again
        self.reusable = not any(a.is_inference() for a in self.given)
        self.versions = [(a.data_ptr(), a._version) for a in self.given] if self.reusable else []
        self.tensors = [by_layer([None if a is None else plain(a) for a in w])[0] for w in weights]
        self.dtype = weights[0].b.dtype
        self.layers = layers_of(self.tensors, self.tensors)
        self.network = Network(self.dtype == torch.float64, len(weights), self.layers)
        self.code = library.loaded()
        self.code.hm_weights.restype = POINTER
        self.packed = Held(self.code.hm_weights(self.network.doubles), self.code)
        self.at_packed = POINTER(self.packed.pointer)

    def run(self, call: Call, kept: Any = None) -> None:
        """The forward pass; ``kept`` is where the library leaves what it needs for a backward pass."""
        if self.code.hm_forward(ctypes.byref(self.network), ctypes.byref(call), self.at_packed, kept):
            raise MemoryError("the native engine ran out of memory")

    def fit(self, weights: Sequence[LayerWeights]) -> bool:
        """Whether they are those of ``weights``, and unchanged."""
        given = [a for w in weights for a in w if a is not None]
        return (
            self.reusable
            and len(given) == len(self.given)
            and all(map(operator.is_, given, self.given))
            and [(a.data_ptr(), a._version) for a in given] == self.versions
        )


class Held:
    """Something that the library made, freed with this object."""

    def __init__(self, pointer: int | None, owner: ctypes.CDLL) -> None:
        self.pointer, self.owner = pointer, owner
        if pointer is None:
            raise MemoryError("the native engine ran out of memory")

    def __del__(self) -> None:
        self.owner.hm_free(ctypes.c_void_p(self.pointer))


def layers_of(weights: Sequence[LayerWeights], shapes: Sequence[LayerWeights]) -> ctypes.Array[Layer]:
    """The structures of layers whose weights (or gradients, where None is one that is not wanted) are ``weights``."""
    layers = (Layer * len(weights))()
    for layer, w, shape in zip(layers, weights, shapes):
        H, below = shape.hidden_size, shape.W.shape[1]
        above = 0 if shape.V is None else shape.V.shape[1]
        layer.H, layer.below, layer.above = H, below, above
        for name in SHARED:
            setattr(layer, name, address(getattr(w, name)))
        layer.Uz_stride, layer.Wz_stride, layer.Vz_stride = H, below, above
        if shape.D1 is not None:
            N, total = shape.D1.shape
            layer.K, layer.Uz_stride, layer.Wz_stride, layer.Vz_stride = N, total, total, total
            layer.bz = address(w.d1)
            if w.D1 is not None:
                layer.Uz, layer.Vz, layer.Wz = (address(w.D1[:, at:]) for at in (0, H, H + above))
        elif shape.has_detector:
            layer.K = 1
            layer.Uz, layer.Wz, layer.Vz, layer.bz = (
                None if a is None else address(a[4 * H :]) for a in (w.U, w.W, w.V, w.b)
            )
    return layers


def by_layer(flat: Sequence[Tensor | None]) -> list[LayerWeights]:
    """The fields of one layer after the other, as layers; of gradients some are None."""
    return [LayerWeights(*flat[i : i + len(FIELDS)]) for i in range(0, len(flat), len(FIELDS))]  # type: ignore[arg-type]


def plain(a: Tensor) -> Tensor:
    """The numbers of ``a``, one after the other in memory, as they are."""
    return a.detach().resolve_neg().contiguous()


def address(a: Tensor | None) -> int | None:
    return None if a is None else a.data_ptr()


def addresses(tensors: Iterable[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    pointers = [address(a) for a in tensors]
    return (POINTER * len(pointers))(*pointers)


def new_call(weights: Weights, options: Options, T: int, B: int) -> Call:
    """A call for ``options``, without the tensors that it reads and writes."""
    call = Call()
    call.T, call.B, call.threads = T, B, threads(T, B, weights.tensors)
    cell = options.variant
    call.hold, call.flush, call.copy = cell.on_copy == "hold", cell.flush, cell.copy
    call.gate, call.estimator = GATES[cell.gate], ESTIMATORS[cell.boundary]
    call.straight_through = options.straight_through
    call.slope, call.temperature, call.zoneout = float(options.slope), float(options.temperature), options.zoneout
    return call


def threads(T: int, B: int, weights: Sequence[LayerWeights]) -> int:
    """The threads that a call takes: a few rows, or little work, take one."""
    work = T * B * sum(w.U.numel() + w.W.numel() for w in weights)
    return max(1, min(torch.get_num_threads(), B // 4, work // 2_000_000))
