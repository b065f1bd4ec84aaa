"""What the HM-LSTM is compared with: LSTM, layer-norm LSTM and GRU, called as HMLSTM is and answering as it does.

The networks with fixed time scales are in :mod:`hmrnn.nn.baselines.clockwork`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.checks import layer_sizes, positive
from hmrnn.nn.dropout import drop_units, drop_weights, probability
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.output import Operation, Output
from hmrnn.nn.weights import orthogonal
from hmrnn.ops import LayerWeights, State, Symbols, choose_engine, hmlstm
from hmrnn.ops.streaming import Step


class LayerInput(NamedTuple):
    """What one layer of a baseline is given."""

    x: Tensor  # (T, B, size below); padding is zero
    h: Tensor  # (B, H)
    c: Tensor  # (B, H)
    lengths: Tensor | None = None  # (B,)
    embedding: Tensor | None = None  # given only where ``looks_up``: then x holds symbols, (T, B)
    draws: bool = False  # weight drop and zoneout


class Baseline(nn.Module, ABC):
    """A stack of recurrent layers without detectors: every layer reads the one below at every step.

    Inputs and outputs are those of :class:`hmrnn.HMLSTM`, but for packed sequences, with no detector to report on:
    ``boundaries``, ``probabilities`` and ``state.z`` have a last dimension of 0, and every operation is UPDATE (COPY in
    the padding). ``state.c`` holds zeros where a network has no cell.

    Args:
        input_size: size of x at one time step.
        hidden_size: size of every layer, or one size per layer (the lowest first).
        num_layers: number of layers.
        weight_drop: share of the recurrent weights that are zero, while training (DropConnect); drawn once per call,
            for all its time steps and sequences.
        dropout: share of a layer's units that the layer above does not see, while training; drawn once per call for
            each sequence, for all its time steps.
        engine: "auto": there is but one implementation, PyTorch's.
        device, dtype: of the parameters, as in every module of torch.
    """

    num_boundaries = 0
    batch_first = False
    layer_norm = False
    looks_up = False
    """Whether ``layer`` takes symbols and their embedding; else it gets the embedded symbols."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 3,
        *,
        weight_drop: float = 0.0,
        dropout: float = 0.0,
        engine: str = "auto",
    ) -> None:
        super().__init__()
        self.input_size = positive("input_size", input_size)
        self.num_layers = positive("num_layers", num_layers)
        self.hidden_sizes = layer_sizes(hidden_size, self.num_layers)
        self.weight_drop = probability("weight_drop", weight_drop)
        self.dropout = probability("dropout", dropout)
        self.slope = 1.0  # of detectors it does not have: schedules may set it, nothing reads it
        if engine != "auto":
            raise InputError(
                f'{type(self).__name__} has no engines to choose from; got engine "{engine}", leave it at "auto"'
            )

    @property
    def engine(self) -> str:
        """What runs."""
        return "torch"

    def initial_state(self, batch_size: int) -> State:
        """Zeros, as every sequence starts."""
        p = next(self.parameters())
        h, c = (tuple(p.new_zeros(batch_size, size) for size in self.hidden_sizes) for _ in range(2))
        return State(h, c, p.new_zeros(batch_size, 0))

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        boundaries: Tensor | None = None,
        *,
        embedding: Tensor | None = None,
    ) -> tuple[Output, State]:
        return self._pass(x, state, lengths, boundaries, embedding, draws=self.training)

    def _pass(
        self,
        x: Tensor,
        state: State | None,
        lengths: Tensor | Sequence[int] | None,
        boundaries: Tensor | None,
        embedding: Tensor | None,
        draws: bool,
    ) -> tuple[Output, State]:
        """``forward``, told whether to draw what is dropped."""
        checks.check_input(self, x, embedding, sequence=True)
        boundaries = checks.check_boundaries(self, boundaries, x.shape[:2])
        T, B = x.shape[:2]
        state = self.initial_state(B) if state is None else state
        checks.check_state(self, state, B)
        lengths = checks.check_lengths(lengths, T, B, x.device)
        settle = checks.check_values(x, state, boundaries, self.layer_norm, lengths)
        operations = x.new_full((T, B, self.num_layers), Operation.UPDATE, dtype=torch.int64)
        if lengths is not None:  # whatever the padding holds, nothing of it is read
            padding = torch.arange(T, device=x.device)[:, None] >= lengths  # (T, B)
            x = x.masked_fill(padding if embedding is not None else padding[..., None], 0)
            operations = operations.masked_fill(padding[..., None], Operation.COPY)
        if embedding is not None and not self.looks_up:
            x, embedding = F.embedding(x, embedding), None

        hidden: list[Tensor] = []
        ends: list[tuple[Tensor, Tensor]] = []
        for l in range(self.num_layers):
            below = x if l == 0 else hidden[-1]
            if l > 0 and self.dropout > 0 and draws:
                below = drop_units(below, self.dropout)
            looked_up = embedding if l == 0 else None
            steps, h, c = self.layer(l, LayerInput(below, state.h[l], state.c[l], lengths, looked_up, draws))
            hidden.append(steps)
            ends.append((h.to(state.h[l].dtype), c.to(state.c[l].dtype)))
        settle()
        h_end, c_end = zip(*ends)
        none = state.z.new_zeros(T, B, 0)
        return Output(tuple(hidden), none, none, operations), State(h_end, c_end, state.z)

    @abstractmethod
    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        """One layer over the sequence: h at every step (T, B, H), zero in the padding; h and c at the ends."""

    def step(self, x: Tensor, state: State | None = None, boundaries: Tensor | None = None) -> Step:
        """One time step without a gradient, for streaming; ``x`` is (B, input_size).

        As in ``eval()``, whatever the mode of the module: a stream draws nothing.
        """
        checks.check_input(self, x, None, sequence=False)
        checks.check_boundaries(self, boundaries, x.shape[:1])
        with torch.no_grad():
            _, state = self._pass(x[None], state, None, None, None, draws=False)
        return Step(state, x.new_ones(len(x), self.num_layers, dtype=torch.bool), x.new_zeros(len(x), 0))

    def _dropped(self, U: Tensor, draws: bool) -> Tensor:
        """The recurrent weights without those that weight drop takes."""
        return drop_weights(U, self.weight_drop, len(U)) if self.weight_drop > 0 and draws else U

    def extra_repr(self) -> str:
        sizes = self.hidden_sizes
        shown = str(sizes[0]) if len(set(sizes)) == 1 else str(sizes)
        return f"{self.input_size}, {shown}, num_layers={self.num_layers}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class _OfTorch(Baseline):
    """One layer of PyTorch's own per layer, as the output module reads all of them.

    On a CPU they run in float32 under autocast, too: not every CPU has a kernel for less.
    """

    kind: type[nn.LSTM] | type[nn.GRU]
    gates: int

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 3,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        below = (self.input_size, *self.hidden_sizes[:-1])
        self.layers = nn.ModuleList(self.kind(*sizes, **made) for sizes in zip(below, self.hidden_sizes))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Orthogonal gate blocks and zero biases, as in HMLSTM."""
        for name, parameter in self.layers.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                for block in parameter.chunk(self.gates):
                    orthogonal(block)

    @torch.no_grad()
    def load_stacked(self, stacked: nn.RNNBase) -> None:
        """Take the weights of a stacked PyTorch network of the same kind and sizes."""
        if not isinstance(stacked, self.kind) or stacked.bidirectional or not stacked.bias or stacked.proj_size:
            raise InputError(f"expected a one-way nn.{self.kind.__name__} with biases, no projection; got {stacked}")
        if (stacked.input_size, (stacked.hidden_size,) * stacked.num_layers) != (self.input_size, self.hidden_sizes):
            raise InputError(f"the sizes must be those of {self}; got {stacked}")
        for l, layer in enumerate(self.layers):
            for name, parameter in layer.named_parameters():
                parameter.copy_(getattr(stacked, name.replace("_l0", f"_l{l}")))

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        with torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else contextlib.nullcontext():
            if lengths is None:
                return self._run(l, x, h, c, draws)
            packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
            steps, h, c = self._run(l, packed, h, c, draws)
            return pad_packed_sequence(steps, total_length=len(x))[0], h, c

    def _run(self, l: int, x: Any, h: Tensor, c: Tensor, draws: bool) -> tuple[Any, Tensor, Tensor]:
        """Layer ``l`` by the function that it calls itself, which takes weights as they are.

        With ``torch.func.functional_call`` the layer would move its own to another place of a GPU, away from where
        captured graphs look for them; and it would have to be told that it trains.
        """
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        W, U, *biases = (getattr(self.layers[l], name) for name in names)
        weights = [W, self._dropped(U, draws), *biases]
        run: Any = torch.lstm if self.kind is nn.LSTM else torch.gru
        quiet = _in_pieces() if self.weight_drop > 0 and draws and h.is_cuda else contextlib.nullcontext()
        learns = torch.is_grad_enabled()  # nothing is dropped here, but cuDNN gives no gradient outside training
        once: tuple[Any, ...] = (True, 1, 0.0, learns, False)  # biases, layers, dropout, training, one way
        if isinstance(x, Tensor):
            with quiet:
                steps, *after = run(x, self._before(h, c), weights, *once, False)
        else:  # packed, the longest sequence first
            order, back = x.sorted_indices, x.unsorted_indices
            with quiet:
                data, *after = run(x.data, x.batch_sizes, self._before(h[order], c[order]), weights, *once)
            steps, after = x._replace(data=data), [a[:, back] for a in after]
        return steps, after[0][0], after[1][0] if len(after) > 1 else c

    @abstractmethod
    def _before(self, h: Tensor, c: Tensor) -> Any:
        """The state as PyTorch's layer takes it."""


@contextlib.contextmanager
def _in_pieces() -> Iterator[None]:
    """Weights may lie apart in memory without a warning of cuDNN's: those left after weight drop are new every time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        yield


class LSTM(_OfTorch):
    r"""A stacked LSTM, as ``torch.nn.LSTM`` computes it; ``load_stacked`` takes the weights of one.

    .. math::
        i, f, g, o = \sigma(\cdot), \sigma(\cdot), \tanh(\cdot), \sigma(\cdot) \text{ of the four parts of }
        W x_t + U h_{t-1} + b \qquad c_t = f c_{t-1} + i g \qquad h_t = o \tanh c_t

    Arguments and outputs: see :class:`Baseline`.
    """

    kind, gates = nn.LSTM, 4

    def _before(self, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return h[None], c[None]


class GRU(_OfTorch):
    r"""A stacked GRU, as ``torch.nn.GRU`` computes it; ``load_stacked`` takes the weights of one.

    .. math::
        r, u = \sigma(W_r x_t + U_r h_{t-1} + b_r), \sigma(W_u x_t + U_u h_{t-1} + b_u) \qquad
        n = \tanh(W_n x_t + b_n + r (U_n h_{t-1} + b'_n)) \qquad h_t = (1 - u) n + u h_{t-1}

    Arguments and outputs: see :class:`Baseline`.
    """

    kind, gates = nn.GRU, 3

    def _before(self, h: Tensor, c: Tensor) -> Tensor:
        return h[None]


class _WithUnitGains(HMLSTM):
    """HMLSTM whose gain of U starts at 1, too."""

    _recurrent_gain = 1.0


class LayerNormLSTM(Baseline):
    r"""A stacked LSTM with layer normalisation (Ba, Kiros and Hinton, 2016).

    .. math::
        f, i, o, g = \sigma, \sigma, \sigma, \tanh \text{ of the four parts of }
        LN(U h_{t-1}) + LN(W x_t) + b \qquad c_t = f c_{t-1} + i g \qquad h_t = o \tanh LN(c_t)

    Each layer is an :class:`hmrnn.HMLSTM` of one layer. That has no detector and so makes an UPDATE at every step,
    which is this; and it runs on all its engines. All gains start at 1, as is usual.

    Arguments and outputs: see :class:`Baseline`; ``zoneout`` and ``engine`` are those of :class:`hmrnn.HMLSTM`.
    """

    looks_up = layer_norm = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 3,
        *,
        zoneout: float = 0.0,
        engine: str = "auto",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.zoneout = probability("zoneout", zoneout)
        made: dict[str, Any] = {"layer_norm": True, "engine": engine, "device": device, "dtype": dtype}
        below = (self.input_size, *self.hidden_sizes[:-1])
        self.layers = nn.ModuleList(
            _WithUnitGains(*sizes, num_layers=1, **made) for sizes in zip(below, self.hidden_sizes)
        )

    def reset_parameters(self) -> None:
        """As in HMLSTM, but with gains of 1 for U, too."""
        for layer in self.layers:
            cast(HMLSTM, layer).reset_parameters()

    @property
    def engine(self) -> str:
        first = cast(HMLSTM, self.layers[0])
        return choose_engine(first.engine, first.a.device, first.options(), first.a.dtype)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, embedding, draws = given
        layer = cast(HMLSTM, self.layers[l])
        (w,) = layer.layers()
        w, kept = LayerWeights(**(w._asdict() | {"U": self._dropped(w.U, draws)})), None
        if self.zoneout > 0 and draws:
            kept = [torch.rand(*x.shape[:2], h.shape[1], device=x.device) < self.zoneout]
        result = hmlstm(
            x if embedding is None else Symbols(x, embedding),
            [w],
            State((h,), (c,), h.new_zeros(len(h), 0)),
            dataclasses.replace(layer.options(), zoneout=self.zoneout),
            lengths=lengths,
            kept=kept,
            engine=layer.engine,
        )
        return result.hidden[0], result.state.h[0], result.state.c[0]
