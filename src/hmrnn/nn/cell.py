"""HMLSTMCell: one layer of the recurrence for one time step."""

from __future__ import annotations

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.checks import not_negative, one_of, positive, truth
from hmrnn.nn.weights import Sloped, gate_blocks, new_weights, reset, shown_options
from hmrnn.ops import LayerWeights, Options
from hmrnn.ops.estimators import BOUNDARIES, DRAWN, ON_COPY, Boundary, OnCopy
from hmrnn.ops.interface import TOP_DOWN, TopDown
from hmrnn.ops.reference import layer_step, next_gate


class HMLSTMCell(Sloped):
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

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        above_size: int | None = None,
        *,
        layer_norm: bool = False,
        boundary: Boundary = "step",
        on_copy: OnCopy = "evaluate",
        flush: bool = True,
        top_down: TopDown = "boundary",
        copy: bool = True,
        detector_hidden: int = 0,
        check_values: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = positive("input_size", input_size)
        self.hidden_size = positive("hidden_size", hidden_size)
        self.above_size = above_size if above_size is None else positive("above_size", above_size)
        self.layer_norm = truth("layer_norm", layer_norm)
        self.boundary: Boundary = one_of("boundary", boundary, BOUNDARIES)  # type: ignore[assignment]
        self.on_copy: OnCopy = one_of("on_copy", on_copy, ON_COPY)  # type: ignore[assignment]
        self.flush, self.copy = truth("flush", flush), truth("copy", copy)
        self.top_down: TopDown = one_of("top_down", top_down, TOP_DOWN)  # type: ignore[assignment]
        self.check_values = truth("check_values", check_values)
        self.detector_hidden = not_negative("detector_hidden", detector_hidden)
        self._register_schedules(boundary, device, dtype)
        sizes = self.hidden_size, self.input_size, self.above_size
        weights = new_weights(*sizes, layer_norm, device, dtype, top_down != "none", self.detector_hidden)
        for name, parameter in weights._asdict().items():
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as :class:`HMLSTM` does."""
        self._reset_schedules()
        reset(self.weights())

    def weights(self) -> LayerWeights:
        """The parameters, as the engines take them."""
        return LayerWeights(**{name: getattr(self, name) for name in LayerWeights._fields})

    def gate_blocks(self) -> list[tuple[Tensor, int]]:
        """As of :class:`HMLSTM`."""
        return gate_blocks(self.weights())

    def options(self) -> Options:
        return Options(
            slope=self.a, boundary=self.boundary, on_copy=self.on_copy, flush=self.flush, top_down=self.top_down,
            copy=self.copy, temperature=1.0 if self.tau is None else self.tau, detector_hidden=self.detector_hidden,
        )  # fmt: skip

    def initial_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """The state at the start of a sequence, zeros: h, c, z and, if the cell has one, the pending gate."""
        sizes = (self.hidden_size, self.hidden_size, 1, 1)[: 4 if self._pends else 3]
        return tuple(self.weights().b.new_zeros(batch_size, size) for size in sizes)

    @property
    def _pends(self) -> bool:
        return self.above_size is not None and self.options().gate == "pending"

    def forward(
        self,
        x: Tensor,  # (B, input_size)
        state: tuple[Tensor, ...] | None = None,  # h (B, H), c (B, H), z (B, 1), pending (B, 1); zeros if None
        z_below: Tensor | None = None,  # (B, 1); ones if None, as below the first layer
        above: Tensor | None = None,  # (B, above_size); not needed with top_down="none"
    ) -> tuple[Tensor, ...]:
        """The new h, c, z and, if the cell has one, the pending gate; z of a top layer is always zero."""
        if x.dim() != 2 or x.shape[1] != self.input_size:
            raise InputError(f"x must have shape (B, {self.input_size}); got {tuple(x.shape)}")
        if self.above_size is None and above is not None:
            raise InputError(f"above must be None in a top layer (no above_size); got shape {tuple(above.shape)}")
        if self.above_size is not None and self.top_down != "none" and above is None:
            raise InputError(f"above must have shape (B, {self.above_size}), h of the layer above; got None")
        h, c, z, *gates = self.initial_state(len(x)) if state is None else state
        if len(gates) > self._pends:
            raise InputError(f"state must hold h, c and z{' and pending' * self._pends}; got {3 + len(gates)} tensors")
        pending = (*gates, z)[0] if self._pends else None
        z_below = torch.ones_like(z) if z_below is None else z_below
        given: dict[str, Tensor] = {"x": x, "h": h, "c": c, "z": z, "z_below": z_below}
        given |= {name: a for name, a in (("above", above), ("pending", pending)) if a is not None}
        sizes = {"x": self.input_size, "h": self.hidden_size, "c": self.hidden_size, "above": self.above_size}
        for name, value in given.items():
            size = sizes.get(name, 1)
            if tuple(value.shape) != (len(x), size):
                raise InputError(f"{name} must have shape ({len(x)}, {size}); got {tuple(value.shape)}")
            checks.check_kind(name, value, self.weights().b)
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

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, above_size={self.above_size}, layer_norm={self.layer_norm}, "
            f"boundary={self.boundary!r}, on_copy={self.on_copy!r}{shown_options(self)}"
        )
