"""Gated, the parameters of HMLSTM, HMLSTMCell and LSTM, and Cell, the options that the first two share."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from hmrnn.config.checks import Natural, Positive
from hmrnn.errors import InputError
from hmrnn.nn.checks import argument
from hmrnn.nn.dropout import drop_weights
from hmrnn.nn.recurrent import Recurrent, arguments, declared
from hmrnn.ops import LayerWeights, Options, Variant
from hmrnn.ops.estimators import Boundary, OnCopy
from hmrnn.ops.interface import TopDown

RECURRENT_GAIN = 0.1
"""Initial gain of U and V with layer norm. With 1 the gradient explodes at the start (docs/decisions.md)."""

NAMES = ("U", "V", "W", "b", *LayerWeights._fields[4:])
"""Parameters in the order in which they are registered and drawn."""


class Gated(Recurrent):
    """A network whose layers have the gates of an LSTM, and maybe a detector."""

    recurrent_gain = RECURRENT_GAIN
    top_down = "boundary"
    detector_hidden = 0

    def new_weights(self, size: int, below: int, above: int | None = None) -> LayerWeights:
        """Uninitialised parameters of a layer; without a layer above there is neither V nor a detector."""

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, **self._made))

        N = self.detector_hidden
        rows = 4 * size + (above is not None and N == 0)
        read = None if self.top_down == "none" else above
        more: dict[str, nn.Parameter] = {}
        if above is not None and N > 0:
            more = {"D1": empty(N, size + (read or 0) + below), "d1": empty(N), "D2": empty(1, N), "d2": empty(1)}
        if self.layer_norm:
            more |= {"gain_U": empty(4 * size), "gain_W": empty(4 * size), "gain_c": empty(size), "bias_c": empty(size)}
            if read is not None:
                more["gain_V"] = empty(4 * size)
        V = None if read is None else empty(rows, read)
        return LayerWeights(U=empty(rows, size), W=empty(rows, below), b=empty(rows), V=V, **more)

    def keep(self, layers: list[LayerWeights], bias: bool = True) -> None:
        """Register and initialise the parameters of layers: a list for each name, those of the paper first."""
        for name in NAMES:
            if values := [value for w in layers if (value := getattr(w, name)) is not None and (bias or name != "b")]:
                setattr(self, name, nn.ParameterList(values))
        self.reset_parameters()

    def layers(self) -> list[LayerWeights]:
        """The parameters of each layer, as the engines take them."""
        made = self._modules
        lists = [(name, cast(nn.ParameterList, made[name])) for name in LayerWeights._fields if name in made]
        for _, values in lists:
            for hook in values._forward_pre_hooks.values():  # by which torch.nn.utils.prune computes its weights
                hook(values, ())
        layers: list[LayerWeights] = []
        for key in map(str, range(len(lists[0][1]))):
            found: dict[str, Tensor] = {}
            for name, values in lists:
                tensor = values._parameters.get(key)  # values[l] takes ten times as long
                if tensor is None and int(key) < len(values):
                    tensor = getattr(values, key)  # a parametrization
                if tensor is not None:
                    found[name] = tensor
            if "b" not in found:
                found["b"] = found["U"].new_zeros(len(found["U"]))
            layers.append(LayerWeights(**found))
        return layers

    def dropped(self, p: float) -> list[LayerWeights]:
        """The parameters, while training after weight drop with probability ``p``."""
        layers = self.layers()
        if not self.training or p == 0:
            return layers
        parts = [
            {name: drop_weights(a, p, 4 * w.hidden_size) for name in "UV" if (a := getattr(w, name)) is not None}
            for w in layers
        ]
        # _replace is wrong under torch.compile of 2.11
        return [LayerWeights(**(w._asdict() | part)) for w, part in zip(layers, parts)]

    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, Glorot detector rows, zero biases, gains of 1 but those of U and V."""
        for w in self.layers():
            reset(w, self.recurrent_gain)

    def gate_blocks(self) -> list[tuple[Tensor, int]]:
        """Each matrix, and the number of blocks of rows at its beginning, one per gate; a last row is a detector's."""
        return [(matrix, 4) for w in self.layers() for matrix in (w.U, w.V, w.W) if matrix is not None]


@declared
class Cell(Gated):
    """The options of a layer, which :class:`hmrnn.HMLSTM` describes.

    The slope of its detectors is the buffer ``a`` and, with "gumbel", their temperature the buffer ``tau``.
    """

    layer_norm: bool = False
    boundary: Boundary = "step"
    on_copy: OnCopy = "evaluate"
    flush: bool = True
    top_down: TopDown = "boundary"
    copy: bool = True
    detector_hidden: Natural = 0
    a: Tensor = dataclasses.field(init=False)
    tau: Tensor | None = dataclasses.field(init=False)

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        self.variant = Variant(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Variant) if f.init})
        self.register_buffer("a", torch.tensor(1.0, **self._made))
        self.register_buffer("tau", torch.tensor(1.0, **self._made) if self.boundary == "gumbel" else None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Variant.__match_args__ and "variant" in self.__dict__:
            value = argument(name, value, arguments(type(self))[name])
            self.variant = dataclasses.replace(self.variant, **{name: value})
        super().__setattr__(name, value)

    @property
    def slope(self) -> float:
        """The slope a of the hard sigmoid; saved with the weights as ``a``."""
        return self.a.item()

    @slope.setter
    def slope(self, value: float) -> None:
        self.a.fill_(argument("slope", value, Positive))

    @property
    def temperature(self) -> float:
        """The temperature of the relaxation with ``boundary="gumbel"``; saved with the weights as ``tau``."""
        return 1.0 if self.tau is None else self.tau.item()

    @temperature.setter
    def temperature(self, value: float) -> None:
        if self.tau is None:
            raise InputError('only boundary="gumbel" has a temperature; make the network with it')
        self.tau.fill_(argument("temperature", value, Positive))

    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, Glorot detector rows, zero biases, slope 1; gains 1, of U and V 0.1."""
        for buffer in (self.a, self.tau):
            if buffer is not None:
                buffer.fill_(1)
        super().reset_parameters()

    def options(self, **more: Any) -> Options:
        """How the recurrence behaves now."""
        return Options(self.variant, self.a, 1.0 if self.tau is None else self.tau, **more)


@torch.no_grad()
def orthogonal(block: Tensor) -> None:
    """Fill ``block`` with an orthogonal matrix, computed in float32 if its dtype is shorter.

    A ``TorchFunctionMode`` may take its place, as in torch's own initialisations.
    """
    if has_torch_function_unary(block):
        handle_torch_function(orthogonal, (block,), block)
        return
    if block.dtype in (torch.float32, torch.float64):
        nn.init.orthogonal_(block)
    else:
        block.copy_(nn.init.orthogonal_(torch.empty_like(block, dtype=torch.float32)))


@torch.no_grad()
def reset(w: LayerWeights, recurrent_gain: float) -> None:
    """Initialise the parameters of a layer; ``recurrent_gain`` is the gain of U and V."""
    for name in NAMES:
        p, gates = getattr(w, name), 4 * w.hidden_size
        if p is None:
            continue
        if name in "UVW":
            for block in p[:gates].view(4, w.hidden_size, -1):
                orthogonal(block)
            if len(p) > gates:
                nn.init.xavier_uniform_(p[-1:])
        elif name in ("D1", "D2"):
            nn.init.xavier_uniform_(p)
        else:
            nn.init.constant_(p, {"gain_U": recurrent_gain, "gain_V": recurrent_gain}.get(name, "gain" in name))
