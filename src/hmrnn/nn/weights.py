"""Parameters of a layer, their initialisation, and the slope: shared by HMLSTM and HMLSTMCell."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from hmrnn.errors import InputError
from hmrnn.ops import LayerWeights, Options

RECURRENT_GAIN = 0.1
"""Initial gain of U and V with layer norm. With 1 the gradient explodes at the start (docs/decisions.md)."""


class Sloped(nn.Module):
    """A module with the slope of its detectors in the buffer ``a`` and, with "gumbel", their temperature in ``tau``."""

    a: Tensor
    tau: Tensor | None

    @property
    def slope(self) -> float:
        """The slope a of the hard sigmoid; saved with the weights as ``a``."""
        return self.a.item()

    @slope.setter
    def slope(self, value: float) -> None:
        if not 0 < value < math.inf:
            raise InputError(f"slope must be positive and finite; got {value}")
        self.a.fill_(value)

    @property
    def temperature(self) -> float:
        """The temperature of the relaxation with ``boundary="gumbel"``; saved with the weights as ``tau``."""
        return 1.0 if self.tau is None else self.tau.item()

    @temperature.setter
    def temperature(self, value: float) -> None:
        if self.tau is None:
            raise InputError('only boundary="gumbel" has a temperature; make the network with it')
        if not 0 < value < math.inf:
            raise InputError(f"temperature must be positive and finite; got {value}")
        self.tau.fill_(value)

    def _register_schedules(
        self, boundary: str, device: torch.device | str | int | None, dtype: torch.dtype | None
    ) -> None:
        self.register_buffer("a", torch.tensor(1.0, device=device, dtype=dtype))
        tau = torch.tensor(1.0, device=device, dtype=dtype) if boundary == "gumbel" else None
        self.register_buffer("tau", tau)

    def _reset_schedules(self) -> None:
        for buffer in (self.a, self.tau):
            if buffer is not None:
                buffer.fill_(1)


def shown_options(module: nn.Module) -> str:
    """The options that differ from the paper's cell, for a module's repr."""
    default = Options()
    names = ("flush", "top_down", "copy", "detector_hidden")
    given = {name: getattr(module, name) for name in names if getattr(module, name) != getattr(default, name)}
    return "".join(f", {name}={value!r}" for name, value in given.items())


def new_weights(
    size: int,
    below: int,
    above: int | None,
    layer_norm: bool,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype | None = None,
    top_down: bool = True,
    detector_hidden: int = 0,
) -> LayerWeights:
    """Uninitialised parameters of a layer; without ``top_down`` or a layer above there is no V."""

    def empty(*shape: int) -> nn.Parameter:
        return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

    rows = 4 * size + (above is not None and detector_hidden == 0)
    gains: dict[str, nn.Parameter] = {}
    detector: dict[str, nn.Parameter] = {}
    if above is not None and detector_hidden > 0:
        read = size + (above if top_down else 0) + below
        detector = {"D1": empty(detector_hidden, read), "d1": empty(detector_hidden)}
        detector |= {"D2": empty(1, detector_hidden), "d2": empty(1)}
    if layer_norm:
        gains = {"gain_U": empty(4 * size), "gain_W": empty(4 * size), "gain_c": empty(size), "bias_c": empty(size)}
        if above is not None and top_down:
            gains["gain_V"] = empty(4 * size)
    V = None if above is None or not top_down else empty(rows, above)
    return LayerWeights(U=empty(rows, size), W=empty(rows, below), b=empty(rows), V=V, **gains, **detector)


def gate_blocks(w: LayerWeights) -> list[tuple[Tensor, int]]:
    """The matrices of a layer, and the number of gates in each; a row after their blocks is the detector's."""
    return [(matrix, 4) for matrix in (w.U, w.V, w.W) if matrix is not None]


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
def reset(w: LayerWeights, recurrent_gain: float = RECURRENT_GAIN) -> None:
    """Initialise the parameters of a layer; ``recurrent_gain`` is the gain of U and V."""
    for matrix in (w.U, w.V, w.W):
        if matrix is None:
            continue
        for gate in range(4):
            orthogonal(matrix[gate * w.hidden_size : (gate + 1) * w.hidden_size])
        if len(matrix) > 4 * w.hidden_size:
            nn.init.xavier_uniform_(matrix[-1:])
    if w.D1 is not None and w.D2 is not None:
        nn.init.xavier_uniform_(w.D1)
        nn.init.xavier_uniform_(w.D2)
    for bias in (w.b, w.d1, w.d2):
        if bias is not None:
            nn.init.zeros_(bias)
    for gain, value in ((w.gain_U, recurrent_gain), (w.gain_V, recurrent_gain), (w.gain_W, 1.0), (w.gain_c, 1.0)):
        if gain is not None:
            nn.init.constant_(gain, value)
    if w.bias_c is not None:
        nn.init.zeros_(w.bias_c)
