"""Cell, the options that HMLSTM and its cell share, and HMLSTMCell: one layer of the recurrence for one time step."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from hmrnn.config.checks import Count, Natural, Positive
from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.recurrent import arguments, declared
from hmrnn.nn.weights import Gated
from hmrnn.ops import LayerWeights, Options, Variant
from hmrnn.ops.estimators import DRAWN, Boundary, OnCopy
from hmrnn.ops.interface import TopDown
from hmrnn.ops.reference import layer_step, next_gate


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
            value = checks.argument(name, value, arguments(type(self))[name])
            self.variant = dataclasses.replace(self.variant, **{name: value})
        super().__setattr__(name, value)

    @property
    def slope(self) -> float:
        """The slope a of the hard sigmoid; saved with the weights as ``a``."""
        return self.a.item()

    @slope.setter
    def slope(self, value: float) -> None:
        self.a.fill_(checks.argument("slope", value, Positive))

    @property
    def temperature(self) -> float:
        """The temperature of the relaxation with ``boundary="gumbel"``; saved with the weights as ``tau``."""
        return 1.0 if self.tau is None else self.tau.item()

    @temperature.setter
    def temperature(self, value: float) -> None:
        if self.tau is None:
            raise InputError('only boundary="gumbel" has a temperature; make the network with it')
        self.tau.fill_(checks.argument("temperature", value, Positive))

    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, Glorot detector rows, zero biases, slope 1; gains 1, of U and V 0.1."""
        for buffer in (self.a, self.tau):
            if buffer is not None:
                buffer.fill_(1)
        super().reset_parameters()

    def options(self, **more: Any) -> Options:
        """How the recurrence behaves now."""
        return Options(self.variant, self.a, 1.0 if self.tau is None else self.tau, **more)


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
        checks.check_tensor("x", x, ("B", self.input_size))
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
