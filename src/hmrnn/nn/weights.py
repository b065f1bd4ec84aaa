"""Parameters of a layer and their initialisation, shared by HMLSTM, HMLSTMCell and LSTM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from hmrnn.ops import LayerWeights

RECURRENT_GAIN = 0.1
"""Initial gain of U and V with layer norm. With 1 the gradient explodes at the start (docs/decisions.md)."""


def new_weights(
    size: int,
    below: int,
    above: int | None = None,
    *,
    layer_norm: bool,
    top_down: bool = True,
    detector_hidden: int = 0,
    **made: Any,
) -> LayerWeights:
    """Uninitialised parameters of a layer; without ``top_down`` or a layer above there is no V.

    ``made``: device and dtype.
    """

    def empty(*shape: int) -> nn.Parameter:
        return nn.Parameter(torch.empty(*shape, **made))

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
