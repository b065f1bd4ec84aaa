"""Baseline: a stack of recurrent layers with the interface of HMLSTM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.nn.dropout import drop_units, drop_weights
from hmrnn.nn.output import Operation, Output
from hmrnn.nn.recurrent import Pass, Stacked, declared, evaluating
from hmrnn.nn.weights import orthogonal
from hmrnn.ops import State, Step, Symbols
from hmrnn.ops.interface import within

_FIRST = ("layers.0.weight_ih_l0", "layers.0.W.0", "W.0", "K.0")
"""Names of the matrix that multiplies the input."""


Cell = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""One step of a layer: the new h and c from W x + b, h and c."""


def unroll(
    fed: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None, step: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Apply ``step(fed[t], *state)`` to each of T steps; the first part of the state is the output.

    Returns the outputs (T, B, H), zero in the padding, and the state after the last step of each sequence.
    """
    active = None if lengths is None else within(lengths, len(fed))[..., None]
    steps: list[Tensor] = []
    for t, given in enumerate(fed.unbind()):  # fed[t] would have a gradient of T steps for each t
        new = step(given, *state)
        if active is not None:
            new = tuple(torch.where(active[t], now, before) for now, before in zip(new, state))
        state = new
        steps.append(state[0])
    hidden = torch.stack(steps)
    return hidden if active is None else hidden * active, state


@declared
class Baseline(Stacked):
    """A stack of recurrent layers without detectors: every layer reads the one below at every step.

    Inputs and outputs are those of :class:`hmrnn.HMLSTM`. As there are no detectors, ``boundaries``, ``probabilities``
    and ``state.z`` have a last dimension of 0, and every operation is UPDATE (COPY in the padding). ``state.c`` holds
    zeros if the network has no cell, and what else it must remember otherwise.

    Args:
        input_size: size of x at one time step.
        hidden_size: size of every layer, or one size per layer (the lowest first).
        num_layers: number of layers.
        weight_drop: probability that a recurrent weight is zero while training (DropConnect); drawn once per call, for
            all time steps and sequences.
        dropout: probability that a unit is zero for the layer above while training; drawn once per call and sequence,
            for all time steps.
        engine: "auto", as there is only one implementation, torch's.
        check_values, device, dtype: as in :class:`hmrnn.HMLSTM`.
    """

    gates = 1
    """How many gates the rows of each matrix belong to, one block of rows after the other."""
    looks_up = False
    """Whether the first layer takes symbols and their embedding; otherwise it gets embedded symbols."""

    engine: Literal["auto"] = "auto"
    W: nn.ParameterList = dataclasses.field(init=False)
    b: nn.ParameterList = dataclasses.field(init=False)

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        self.slope = 1.0  # not used: schedules set it, and there are no detectors
        self.make()

    def make(self) -> None:
        """Make the parameters and initialise them: U, W and b, and those that a subclass has made before."""
        rows = [self.gates * size for size in self.hidden_sizes]
        self.U, self.W, self.b = self._new(rows, self.hidden_sizes), self._new(rows, self._below), self._new(rows)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, all else zero."""
        for l in range(self.num_layers):
            for p in (p for name, p in self.named_parameters() if name.split(".")[1] == str(l)):
                for block in p.chunk(self.gates) if p.dim() > 1 else ():
                    orthogonal(block)
                if p.dim() == 1:
                    nn.init.zeros_(p)

    def _new(self, *sizes: Sequence[int]) -> nn.ParameterList:
        """A parameter per layer, not yet initialised; of each layer, ``sizes`` has the rows and the columns."""
        return nn.ParameterList(torch.empty(shape, **self._made) for shape in zip(*sizes))

    def gate_blocks(self) -> list[tuple[nn.Parameter, int]]:
        """Each matrix, and the number of blocks of rows in it, one per gate."""
        return [(p, self.gates) for p in self.parameters() if p.dim() > 1]

    def read(self, given: Pass) -> tuple[Output, State]:
        x, active = self._masked(given)
        state = given.state
        hidden: list[Tensor] = []
        ends: list[tuple[Tensor, ...]] = []
        for l in range(self.num_layers):
            steps, *end = self._layer(l, hidden[-1] if l else x, state, given.lengths)
            hidden.append(steps)
            ends.append(tuple(end))
        h_end, c_end = zip(*ends)
        none = state.z.new_zeros(*active.shape, 0)
        operations = torch.where(active, Operation.UPDATE, Operation.COPY)[..., None].repeat(1, 1, self.num_layers)
        return Output(tuple(hidden), none, none, operations), State(h_end, c_end, state.z)

    def _masked(self, given: Pass) -> tuple[Any, Tensor]:
        """x with zeros in the padding, which may hold anything, embedded if need be; (T, B): what is read."""
        x, lengths = given.x, given.lengths
        steps = x.indices if isinstance(x, Symbols) else x
        active = steps.new_ones(steps.shape[:2], dtype=torch.bool) if lengths is None else within(lengths, len(steps))
        if lengths is not None:
            steps = steps.masked_fill(~active.view(*active.shape, *[1] * (steps.dim() - 2)), 0)
        if not isinstance(x, Symbols):
            return steps, active
        return Symbols(steps, x.embedding) if self.looks_up else F.embedding(steps, x.embedding), active

    def _layer(self, l: int, x: Any, state: State, lengths: Tensor | None) -> tuple[Tensor, ...]:
        """:meth:`layer` after dropout; h and c at the end have the dtype of the state."""
        if l > 0 and self.dropout > 0 and self.training:
            x = drop_units(x, self.dropout)
        steps, *end = self.layer(l, x, state.h[l], state.c[l], lengths)
        return steps, *(a.to(state.h[l].dtype) for a in end)

    def layer(self, l: int, x: Any, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
        """One layer over a sequence x (T, B, size below), whose padding is zero, from h and c.

        Returns h at every step (T, B, H), zero in the padding; h and c after the last step.
        """
        fed = F.linear(x, self.W[l]).to(h.dtype) + self.b[l]
        hidden, end = unroll(fed, (h, c), lengths, self.cell(l))
        return hidden, *end

    def cell(self, l: int) -> Cell:
        """What layer l does at each step."""
        raise NotImplementedError

    def step(self, x: Tensor, state: State | None = None, boundaries: Tensor | None = None) -> Step:
        """One time step without a gradient, for streaming; ``x`` is (B, input_size).

        Always computes as in ``eval()``: without dropout.
        """
        x, state, _, boundaries = self.checked(x, state, None, boundaries, order="B")
        with torch.no_grad(), evaluating(self):
            out, state = self.read(Pass(x[None], state, None, None if boundaries is None else boundaries[None]))
        return Step(state, out.operations[0] != Operation.COPY, out.probabilities[0])

    def engine_for(self, device: torch.device) -> str:
        """As of HMLSTM."""
        return "torch"

    def multiply_adds(self, out: Output, before: State | None = None, looked_up: bool = False) -> Tensor:
        """(T, B or 1): those of each step: every matrix, or ``looked_up`` every one but the first."""
        read = [p for name, p in self.named_parameters() if p.dim() > 1 and not (looked_up and name in _FIRST)]
        return torch.full((len(out.operations), 1), sum(p.numel() for p in read), device=out.operations.device)

    def _dropped(self, U: Tensor) -> Tensor:
        """The recurrent weights, while training after weight drop."""
        return drop_weights(U, self.weight_drop, len(U)) if self.weight_drop > 0 and self.training else U
