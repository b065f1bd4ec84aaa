"""Baseline: a stack of recurrent layers with the interface of HMLSTM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config.checks import Count, Share
from hmrnn.nn import checks
from hmrnn.nn.checks import Recurrent, Sizes, layer_sizes
from hmrnn.nn.dropout import drop_units, drop_weights
from hmrnn.nn.output import Operation, Output
from hmrnn.nn.weights import orthogonal
from hmrnn.ops import State, Step
from hmrnn.ops.interface import within

_FIRST = ("layers.0.weight_ih_l0", "layers.0.W.0", "W.0", "K.0")
"""Names of the matrix that multiplies the input."""


Cell = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class LayerInput(NamedTuple):
    """The input of one layer of a baseline."""

    x: Tensor  # (T, B, size below); padding is zero
    h: Tensor  # (B, H)
    c: Tensor  # (B, H)
    lengths: Tensor | None = None  # (B,)
    embedding: Tensor | None = None  # only with ``looks_up``: then x holds symbols, (T, B)
    draws: bool = False  # whether weight drop and zoneout are on


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


@dataclasses.dataclass(eq=False, repr=False)
class Baseline(Recurrent):
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

    num_boundaries = 0
    batch_first = False
    layer_norm = False
    settable = False
    late = 0
    default_gain = 1.0
    gates = 1
    """How many gates the rows of each matrix belong to, one block of rows after the other."""
    looks_up = False
    """Whether the first layer takes symbols and their embedding; otherwise it gets embedded symbols."""

    input_size: Count
    hidden_size: Count | Sizes
    num_layers: Count = 3
    _: KW_ONLY
    weight_drop: Share = 0.0
    dropout: Share = 0.0
    engine: Literal["auto"] = "auto"
    check_values: bool = False
    W: nn.ParameterList = dataclasses.field(init=False)
    b: nn.ParameterList = dataclasses.field(init=False)

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        self.hidden_sizes = layer_sizes(self.hidden_size, self.num_layers)
        self._below = (self.input_size, *self.hidden_sizes[:-1])
        self.slope = 1.0  # not used: schedules set it, and there are no detectors
        self.make()

    def make(self) -> None:
        """Make the parameters and initialise them."""
        raise NotImplementedError

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, all else zero."""
        for l in range(self.num_layers):
            for p in (list(each.parameters())[l] for each in self.children()):
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

    @property
    def output_sizes(self) -> tuple[int, ...]:
        """The sizes of ``out.hidden``, the lowest layer first."""
        return self.hidden_sizes

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        """The sizes of ``state.c``, the lowest layer first."""
        return self.hidden_sizes

    @property
    def parameter(self) -> Tensor:
        """One of the parameters, whose dtype and device all have."""
        return next(self.parameters())

    def initial_state(self, batch_size: int) -> State:
        """The state at the start of a sequence: zeros."""
        p = self.parameter
        h, c = (tuple(p.new_zeros(batch_size, n) for n in sizes) for sizes in (self.hidden_sizes, self.cell_sizes))
        return State(h, c, p.new_zeros(batch_size, self.num_boundaries))

    def read(
        self,
        x: Tensor,
        state: State,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
        embedding: Tensor | None = None,
        still: bool = False,
    ) -> tuple[Output, State]:
        """``forward`` of what was checked; ``still``: without dropout."""
        draws = self.training and not still
        x, embedding, active = self._masked(x, lengths, embedding)
        hidden: list[Tensor] = []
        ends: list[tuple[Tensor, Tensor]] = []
        for l in range(self.num_layers):
            steps, *end = self._layer(l, hidden[-1] if l else x, state, lengths, draws, None if l else embedding)
            hidden.append(steps)
            ends.append((end[0], end[1]))
        h_end, c_end = zip(*ends)
        none = state.z.new_zeros(*active.shape, 0)
        operations = torch.where(active, Operation.UPDATE, Operation.COPY)[..., None].repeat(1, 1, self.num_layers)
        return Output(tuple(hidden), none, none, operations), State(h_end, c_end, state.z)

    def _masked(
        self, x: Tensor, lengths: Tensor | None, embedding: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """x with zeros in the padding, which may hold anything; its embedding, if looked up; (T, B): what is read."""
        active = x.new_ones(x.shape[:2], dtype=torch.bool) if lengths is None else within(lengths, len(x))
        if lengths is not None:
            x = x.masked_fill(~(active if embedding is not None else active[..., None]), 0)
        if embedding is not None and not self.looks_up:
            x, embedding = F.embedding(x, embedding), None
        return x, embedding, active

    def _layer(
        self,
        l: int,
        x: Tensor,
        state: State,
        lengths: Tensor | None,
        draws: bool,
        embedding: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """:meth:`layer` after dropout; h and c at the end have the dtype of the state."""
        if l > 0 and self.dropout > 0 and draws:
            x = drop_units(x, self.dropout)
        steps, h, c = self.layer(l, LayerInput(x, state.h[l], state.c[l], lengths, embedding, draws))
        return steps, h.to(state.h[l].dtype), c.to(state.c[l].dtype)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        """One layer over the sequence: h at every step (T, B, H), zero in the padding; h and c after the last step."""
        x, h, c, lengths, _, draws = given
        fed = F.linear(x, self.W[l]).to(h.dtype) + self.b[l]
        hidden, (h, c) = unroll(fed, (h, c), lengths, self.cell(l, draws))
        return hidden, h, c

    def cell(self, l: int, draws: bool) -> Cell:
        """One step of layer l: the new h and c from W x + b, h and c."""
        raise NotImplementedError

    def step(self, x: Tensor, state: State | None = None, boundaries: Tensor | None = None) -> Step:
        """One time step without a gradient, for streaming; ``x`` is (B, input_size).

        Always computes as in ``eval()``: without dropout.
        """
        x, state, _, forced = checks.check_pass(self, x, state, None, boundaries, sequence=False)
        with torch.no_grad():
            out, state = self.read(x[None], state, boundaries=None if forced is None else forced[None], still=True)
        return Step(state, out.operations[0] != Operation.COPY, out.probabilities[0])

    def engine_for(self, device: torch.device) -> str:
        """As of HMLSTM."""
        return "torch"

    def multiply_adds(self, out: Output, before: State | None = None, looked_up: bool = False) -> Tensor:
        """(T, B or 1): those of each step: every matrix, or ``looked_up`` every one but the first."""
        read = [p for name, p in self.named_parameters() if p.dim() > 1 and not (looked_up and name in _FIRST)]
        return torch.full((len(out.operations), 1), sum(p.numel() for p in read), device=out.operations.device)

    def _dropped(self, U: Tensor, draws: bool) -> Tensor:
        """The recurrent weights after weight drop."""
        return drop_weights(U, self.weight_drop, len(U)) if self.weight_drop > 0 and draws else U
