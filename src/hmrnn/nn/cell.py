"""Cell, the options that HMLSTM and its cell share, and HMLSTMCell: one layer of the recurrence for one time step."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from typing import Any

import torch
from torch import Tensor

from hmrnn.config.checks import Count, Natural, Positive
from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.checks import Recurrent
from hmrnn.nn.weights import gate_blocks, new_weights, reset
from hmrnn.ops import LayerWeights, Options, Variant
from hmrnn.ops.estimators import DRAWN, Boundary, OnCopy
from hmrnn.ops.interface import TopDown
from hmrnn.ops.reference import layer_step, next_gate


@dataclasses.dataclass(eq=False, repr=False)
class Cell(Recurrent):
    """The options of a layer, which :class:`hmrnn.HMLSTM` describes.

    The slope of its detectors is the buffer ``a`` and, with "gumbel", their temperature the buffer ``tau``.
    """

    _: KW_ONLY
    layer_norm: bool = False
    boundary: Boundary = "step"
    on_copy: OnCopy = "evaluate"
    flush: bool = True
    top_down: TopDown = "boundary"
    copy: bool = True
    detector_hidden: Natural = 0
    check_values: bool = False
    a: Tensor = dataclasses.field(init=False)
    tau: Tensor | None = dataclasses.field(init=False)

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        self.variant = Variant(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Variant) if f.init})
        self.register_buffer("a", torch.tensor(1.0, **self._made))
        self.register_buffer("tau", torch.tensor(1.0, **self._made) if self.boundary == "gumbel" else None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Variant.__match_args__ and "variant" in self.__dict__:
            value = checks.argument(name, value, checks.arguments(type(self))[name])
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

    def new_weights(self, size: int, below: int, above: int | None) -> LayerWeights:
        """Uninitialised parameters of a layer."""
        return new_weights(
            size, below, above, layer_norm=self.layer_norm, top_down=self.top_down != "none",
            detector_hidden=self.detector_hidden, **self._made,
        )  # fmt: skip

    def layers(self) -> list[LayerWeights]:
        """The parameters of each layer, as the engines take them."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, Glorot detector rows, zero biases, slope 1; gains 1, of U and V 0.1."""
        for buffer in (self.a, self.tau):
            if buffer is not None:
                buffer.fill_(1)
        for w in self.layers():
            reset(w)

    def gate_blocks(self) -> list[tuple[Tensor, int]]:
        """Each matrix, and the number of blocks of rows at its beginning, one per gate; a last row is a detector's."""
        return [block for w in self.layers() for block in gate_blocks(w)]

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

    input_size: Count
    hidden_size: Count
    above_size: Count | None = None

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        weights = self.new_weights(self.hidden_size, self.input_size, self.above_size)
        for name, parameter in weights._asdict().items():
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def weights(self) -> LayerWeights:
        """The parameters, as the engines take them."""
        return LayerWeights(**{name: getattr(self, name) for name in LayerWeights._fields})

    def layers(self) -> list[LayerWeights]:
        return [self.weights()]

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """The state at the start of a sequence, zeros: h, c, z and, if the cell has one, the pending gate."""
        sizes = (self.hidden_size, self.hidden_size, 1, 1)[: 4 if self._pends else 3]
        return tuple(self.weights().b.new_zeros(batch_size, size) for size in sizes)

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
        if (above is None) != (self.above_size is None or (self.top_down == "none" and above is None)):
            wanted = None if self.above_size is None else f"h of the layer above, (B, {self.above_size})"
            raise InputError(f"above must be {wanted}; got {above if above is None else tuple(above.shape)}")
        h, c, z, *gates = self.initial_state(len(x)) if state is None else state
        if len(gates) > self._pends:
            raise InputError(f"state must hold h, c and z{' and pending' * self._pends}; got {3 + len(gates)} tensors")
        pending = (*gates, z)[0] if self._pends else None
        z_below = torch.ones_like(z) if z_below is None else z_below
        given: dict[str, Tensor] = {"x": x, "h": h, "c": c, "z": z, "z_below": z_below}
        given |= {name: a for name, a in (("above", above), ("pending", pending)) if a is not None}
        sizes = {"x": self.input_size, "h": self.hidden_size, "c": self.hidden_size, "above": self.above_size or 0}
        for name, value in given.items():
            checks.check_tensor(name, value, (len(x), sizes.get(name, 1)), self.weights().b)
            if self.check_values and checks.readable(value):
                if name in ("z", "z_below", "pending"):
                    checks.check_range(name, value)
                else:
                    checks.check_size(name, value, self.layer_norm)
        noise = torch.rand_like(z) if self.boundary in DRAWN and self.training else None
        z = torch.zeros_like(z) if self.above_size is None else z  # a top layer never flushes
        h, c, z_new, _ = layer_step(
            self.weights(), h, c, z, x, z_below, above, self.options(), noise, pending=pending
        )  # fmt: skip
        z = z if z_new is None else z_new
        return (h, c, z) if pending is None else (h, c, z, next_gate(pending, z, z_below))
