"""HMLSTMCell: one layer of the recurrence for one time step."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.nn.recurrent import check_tensor
from hmrnn.nn.weights import Cell
from hmrnn.ops import LayerWeights
from hmrnn.ops.estimators import DRAWN
from hmrnn.ops.reference import layer_step, next_gate


@dataclasses.dataclass(eq=False, repr=False)
class HMLSTMCell(Cell):
    """One layer of an HM-LSTM for one time step, with gradients, for your own loops.

    Args:
        input_size: size of the layer below.
        hidden_size: size of this layer.
        above_size: size of the layer above; None makes it a top layer, without detector and top-down input.
        layer_norm: as in :class:`HMLSTM`, and so are the other arguments.

    The state is h, c and z. With ``top_down="pending"``, unless FLUSH makes that "boundary", it has a fourth tensor
    (B, 1): the gate of the top-down input.

    Example::

        >>> cell = hmrnn.HMLSTMCell(10, 20, above_size=30)
        >>> h, c, z = cell(torch.randn(4, 10), above=torch.zeros(4, 30))
        >>> h, c, z = cell(torch.randn(4, 10), (h, c, z), z_below=torch.ones(4, 1), above=torch.zeros(4, 30))
    """

    hidden_size: Count
    above_size: Count | None = None

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        weights = self.new_weights(self.hidden_size, self.input_size, self.above_size)
        for name, parameter in weights._asdict().items():
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def layers(self) -> list[LayerWeights]:
        return [LayerWeights(**{name: getattr(self, name) for name in LayerWeights._fields})]

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """The state at the start of a sequence, zeros: h, c, z and, if the cell has one, the pending gate."""
        sizes = (self.hidden_size, self.hidden_size, 1, 1)[: 4 if self._pends else 3]
        return tuple(self.parameter.new_zeros(batch_size, size) for size in sizes)

    @property
    def _pends(self) -> bool:
        return self.above_size is not None and self.variant.gate == "pending"

    def forward(  # type: ignore[override]
        self,
        x: Tensor,  # (B, input_size)
        state: tuple[Tensor, ...] | None = None,  # h (B, H), c (B, H), z (B, 1), pending (B, 1); zeros if None
        z_below: Tensor | None = None,  # (B, 1); ones if None, as below the first layer
        above: Tensor | None = None,  # (B, above_size); not needed with top_down="none"
    ) -> tuple[Tensor, ...]:
        """The new h, c, z and, if the cell has one, the pending gate; z of a top layer is always zero."""
        check_tensor("x", x, ("B", self.input_size))
        B, H, size = len(x), self.hidden_size, self.above_size
        if above is not None and size is None:
            raise InputError("above must be None, as there is no layer above; give above_size")
        state = self.initial_state(B) if state is None else state
        if not 3 <= len(state) <= 3 + self._pends:
            raise InputError(f"state must hold h, c and z{' and pending' * self._pends}; got {len(state)} tensors")
        h, c, z = state[:3]
        pending = state[-1] if self._pends else None  # z itself at first
        z_below = torch.ones_like(z) if z_below is None else z_below
        self.check_part("x", x, (B, self.input_size))
        self.check_part("h", h, (B, H))
        self.check_part("c", c, (B, H))
        if size is not None and (above is not None or self.top_down != "none"):
            self.check_part("above", above, (B, size))
        for name, a in (("z", z), ("z_below", z_below), ("pending", pending)):
            if a is not None:
                self.check_part(name, a, (B, 1), gate=True)
        noise = torch.rand_like(z) if self.boundary in DRAWN and self.training else None
        z = torch.zeros_like(z) if self.above_size is None else z  # a top layer never flushes
        h, c, z_new, _ = layer_step(
            self.layers()[0], h, c, z, x, z_below, above, self.options(), noise, pending=pending
        )  # fmt: skip
        z = z if z_new is None else z_new
        return (h, c, z) if pending is None else (h, c, z, next_gate(pending, z, z_below))
