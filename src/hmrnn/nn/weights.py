"""Gated: the parameters of layers and their initialisation, shared by HMLSTM, HMLSTMCell and LSTM."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from hmrnn.nn.dropout import drop_weights
from hmrnn.nn.recurrent import Recurrent
from hmrnn.ops import LayerWeights

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
