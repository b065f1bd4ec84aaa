"""LSTM: called like ``torch.nn.LSTM``, with layer normalisation if wanted, on the engines of HMLSTM."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from hmrnn import ops
from hmrnn.config.checks import Count, Share
from hmrnn.errors import InputError
from hmrnn.nn import checks
from hmrnn.nn.bidirectional import reverse_steps
from hmrnn.nn.checks import Recurrent
from hmrnn.nn.dropout import drop_weights
from hmrnn.nn.output import pack_like, unpack
from hmrnn.nn.weights import gate_blocks, new_weights, reset
from hmrnn.ops import LayerWeights, Options, State, Symbols, interface

Engine = Literal["auto", "native", "cuda", "torch", "reference"]


@dataclasses.dataclass(eq=False, repr=False)
class LSTM(Recurrent):
    r"""A fast LSTM, called like ``torch.nn.LSTM``; with ``layer_norm`` that of Ba, Kiros and Hinton (2016).

    .. math::
        f, i, o, g = \sigma, \sigma, \sigma, \tanh \text{ of the four parts of }
        N(U h_{t-1}) + N(W x_t) + b \qquad c_t = f c_{t-1} + i g \qquad h_t = o \tanh N(c_t)

    With ``layer_norm`` :math:`N` subtracts the mean over all units, divides by the standard deviation and multiplies
    by a gain; for c it also adds a bias. Without it :math:`N` changes nothing, and the equations are those of
    ``torch.nn.LSTM``.

    Args:
        input_size: size of x at one time step.
        hidden_size: size of every layer.
        num_layers: number of layers; each reads the outputs of the one below.
        layer_norm: normalise both products over their 4H rows, and c before its tanh.
        bias: whether there is b.
        batch_first: whether x and the output are (B, T, ...).
        dropout: probability that a number that a layer reads from the one below is zero while training.
        bidirectional: whether each layer also reads its input from the end to the start, with weights of its own.
        zoneout: probability that a unit keeps its c, drawn at every step while training; in ``eval()`` every unit keeps
            that share of its c (Krueger et al., 2017).
        recurrent_dropout: probability that a weight of U is zero while training (DropConnect, Merity et al., 2018);
            drawn once per call.
        engine: "native" (C++, on a CPU), "cuda" (Triton), "torch" (torch's own, without ``layer_norm`` and ``zoneout``
            only), "reference" (plain operations of torch), or "auto", the fastest of them: "native" on a CPU, and on a
            GPU "torch" where it can, else "cuda".
        device, dtype: of the parameters.

    Inputs: x, (h_0, c_0)
        - **x**: (T, B, input_size), (T, input_size) for one sequence, or a ``PackedSequence``.
        - **h_0**, **c_0**: (num_layers * directions, B, hidden_size); zeros if they are not given.

    Outputs: out, (h_n, c_n)
        - **out**: h of the last layer at every step, (T, B, directions * hidden_size), packed if x was.
        - **h_n**, **c_n**: the state after the last step of each sequence, in the shape of h_0.

    Parameters, for layer l and direction d with k = directions * l + d: ``U.k`` (4H, H), ``W.k`` (4H, size below) and
    ``b.k`` (4H), rows in the order f, i, o, g; with layer norm also ``gain_U.k``, ``gain_W.k`` (4H), ``gain_c.k`` and
    ``bias_c.k`` (H). They start as orthogonal blocks, one per gate, with zero biases and gains of 1. To start as
    ``torch.nn.LSTM`` does, use :meth:`from_torch`.

    Example::

        >>> lstm = hmrnn.nn.LSTM(10, 20, num_layers=2, layer_norm=True)
        >>> out, (h, c) = lstm(torch.randn(50, 4, 10))
        >>> tuple(out.shape), tuple(h.shape)
        ((50, 4, 20), (2, 4, 20))
    """

    input_size: Count
    hidden_size: Count
    num_layers: Count = 1
    _: KW_ONLY
    layer_norm: bool = False
    bias: bool = True
    batch_first: bool = False
    dropout: Share = 0.0
    bidirectional: bool = False
    zoneout: Share = 0.0
    recurrent_dropout: Share = 0.0
    engine: Engine = "auto"

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        self.directions = 1 + self.bidirectional
        below = [self.input_size] + [self.directions * self.hidden_size] * (self.num_layers - 1)
        weights = [
            new_weights(self.hidden_size, size, layer_norm=self.layer_norm, **self._made)
            for size in below
            for _ in range(self.directions)
        ]
        for name, values in zip(LayerWeights._fields, zip(*weights)):
            if values[0] is not None and (self.bias or name != "b"):
                setattr(self, name, nn.ParameterList(values))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, zero biases, gains of 1."""
        for w in self.cells():
            reset(w, recurrent_gain=1.0)

    @classmethod
    @torch.no_grad()
    def from_torch(cls, lstm: nn.LSTM, **options: Any) -> LSTM:
        """An LSTM with the sizes and weights of an ``nn.LSTM``; ``options`` are those of this class."""
        if not isinstance(lstm, nn.LSTM) or lstm.proj_size:
            raise InputError(f"expected an nn.LSTM without a projection; got {lstm}")
        p = lstm.weight_hh_l0
        options = {
            "bias": lstm.bias, "batch_first": lstm.batch_first, "dropout": lstm.dropout,
            "bidirectional": lstm.bidirectional, "device": p.device, "dtype": p.dtype, **options,
        }  # fmt: skip
        made = cls(lstm.input_size, lstm.hidden_size, lstm.num_layers, **options)
        if (made.bias, made.bidirectional) != (lstm.bias, lstm.bidirectional):
            raise InputError(f"bias and bidirectional must be those of {lstm}")
        for k, w in enumerate(made.cells()):
            layer, direction = divmod(k, made.directions)
            end = f"l{layer}{'_reverse' if direction else ''}"
            w.U.copy_(swapped(getattr(lstm, f"weight_hh_{end}")))
            w.W.copy_(swapped(getattr(lstm, f"weight_ih_{end}")))
            if lstm.bias:
                w.b.copy_(swapped(getattr(lstm, f"bias_ih_{end}") + getattr(lstm, f"bias_hh_{end}")))
        return made.train(lstm.training)

    def cells(self) -> list[LayerWeights]:
        """The parameters of each layer and direction, as the engines take them."""
        count = self.num_layers * self.directions
        lists = {name: getattr(self, name) for name in LayerWeights._fields if name in self._modules}
        if not self.bias:
            lists["b"] = [self.parameter.new_zeros(4 * self.hidden_size)] * count
        return [LayerWeights(**{name: values[k] for name, values in lists.items()}) for k in range(count)]

    @property
    def parameter(self) -> Tensor:
        """One of the parameters, whose dtype and device all have."""
        return cast(nn.ParameterList, self.U)[0]

    def gate_blocks(self) -> list[tuple[Tensor, int]]:
        """Each matrix, and the number of blocks of rows in it, one per gate."""
        return [block for w in self.cells() for block in gate_blocks(w)]

    def forward(  # type: ignore[override]
        self, x: Tensor | PackedSequence, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        packed = x if isinstance(x, PackedSequence) else None
        x, lengths = unpack(x, None, self.batch_first)
        x, (h0, c0), alone = self._checked(x, state)
        lengths = checks.check_lengths(lengths, x.shape[0], x.shape[1], x.device)
        ends: list[tuple[Tensor, Tensor]] = []
        for k, w in enumerate(self.cells()):
            layer, direction = divmod(k, self.directions)
            if direction == 0:
                parts: list[Tensor] = []
                x = F.dropout(x, self.dropout, self.training and layer > 0)
            steps, *end = run_layer(
                reverse_steps(x, lengths) if direction else x, w, h0[k], c0[k], lengths, self.engine, self.training,
                self.zoneout, self.recurrent_dropout,
            )  # fmt: skip
            parts.append(reverse_steps(steps, lengths) if direction else steps)
            ends.append((end[0], end[1]))
            if direction == self.directions - 1:
                x = torch.cat(parts, dim=-1) if direction else steps
        h, c = (torch.stack(values) for values in zip(*ends))
        if alone:
            return x.squeeze(1), (h.squeeze(1), c.squeeze(1))
        out = x.transpose(0, 1) if self.batch_first else x
        return out if packed is None else pack_like(x, packed), (h, c)

    def _checked(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor], bool]:
        """x (T, B, size); h and c (layers, B, H) to start from; and whether x had no batch dimension."""
        parameter = self.parameter
        alone = isinstance(x, Tensor) and x.dim() == 2
        checks.check_tensor("x", x, ("T", self.input_size) if alone else ("T", "B", self.input_size), parameter)
        x = x.unsqueeze(1) if alone else x.transpose(0, 1) if self.batch_first else x
        if 0 in x.shape[:2]:
            raise InputError(f"x must hold at least one step and one sequence; got shape {tuple(x.shape)}")
        shape = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        if state is None:
            return x, (parameter.new_zeros(shape),) * 2, alone
        if not isinstance(state, tuple) or len(state) != 2:
            raise InputError(f"state must be h and c; got {interface.shapes(state)}")
        for name, a in zip("hc", state):
            checks.check_tensor(f"state {name}", a, (shape[0], shape[2]) if alone else shape, parameter)
        h, c = (a.unsqueeze(1) if alone else a for a in state)
        return x, (h, c), alone

    def extra_repr(self) -> str:
        return f"{super().extra_repr()} ({engine_of(self.engine, self.cells()[0], self.zoneout)})"


def run_layer(
    x: Tensor | Symbols,  # (T, B, size)
    w: LayerWeights,
    h: Tensor,  # (B, H)
    c: Tensor,  # (B, H)
    lengths: Tensor | None = None,  # (B,)
    engine: str = "auto",
    draws: bool = False,
    zoneout: float = 0.0,
    recurrent_dropout: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer over a sequence: h at every step (T, B, H), zero in the padding; h and c after the last step.

    It is an HM-LSTM of one layer, which has no detector and does UPDATE at every step. ``draws``: whether weights are
    dropped and units of zoneout drawn, as while training.
    """
    chosen = engine_of(engine, w, zoneout, lengths)
    T, B = (x.indices if isinstance(x, Symbols) else x).shape[:2]
    if recurrent_dropout > 0 and draws:
        w = LayerWeights(**(w._asdict() | {"U": drop_weights(w.U, recurrent_dropout, len(w.U))}))
    if chosen == "torch":
        return _by_torch(F.embedding(x.indices, x.embedding) if isinstance(x, Symbols) else x, w, h, c, lengths)
    kept = [torch.rand(T, B, w.hidden_size, device=h.device) < zoneout] if zoneout > 0 and draws else None
    state, options = State((h,), (c,), h.new_zeros(B, 0)), Options(zoneout=zoneout)
    result = ops.hmlstm(x, [w], state, options, lengths=lengths, kept=kept, engine=chosen)
    return result.hidden[0], result.state.h[0], result.state.c[0]


def engine_of(engine: str, w: LayerWeights, zoneout: float = 0.0, lengths: Tensor | None = None) -> str:
    """The engine that runs a layer: for "auto" the fastest one that can, otherwise ``engine``, or InputError."""
    device, dtype = w.b.device, w.b.dtype
    why_not = "it has neither layer norm nor zoneout" if w.gain_c is not None or zoneout > 0 else None
    if lengths is not None and not checks.readable(lengths):
        why_not = "it cannot read lengths in a CUDA graph, nor under torch.func"
    if engine == "torch":
        if why_not is not None:
            raise InputError(f"cannot run here: {why_not}; use auto", setting="engine", value=engine)
        return engine
    chosen = ops.choose_engine(engine, device, Options(), dtype)
    return "torch" if engine == "auto" and chosen != "native" and why_not is None else chosen


def swapped(rows: Tensor) -> Tensor:
    """The four blocks of rows in torch's order, i, f, g, o, for rows in the order f, i, o, g, and the other way."""
    return rows.view(2, 2, -1, *rows.shape[1:]).flip(1).reshape(rows.shape)


def _by_torch(
    x: Tensor, w: LayerWeights, h: Tensor, c: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`run_layer` without layer norm, by torch's own LSTM; on a CPU in float32 even under autocast."""
    weights = [swapped(w.W), swapped(w.U), swapped(w.b), torch.zeros_like(w.b)]
    learns = torch.is_grad_enabled()  # as "training": without it cuDNN gives no gradient
    once = (True, 1, 0.0, learns, False)  # biases, layers, dropout, training, one way
    with torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else in_pieces():
        if lengths is None:
            steps, h_end, c_end = torch.lstm(x, (h[None], c[None]), weights, *once, False)
            return steps, h_end[0], c_end[0]
        packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        before = (h[None, order], c[None, order])
        data, h_end, c_end = torch.lstm(packed.data, packed.batch_sizes, before, weights, *once)
    steps, _ = pad_packed_sequence(packed._replace(data=data), total_length=len(x))
    return steps, h_end[0][back], c_end[0][back]


@contextlib.contextmanager
def in_pieces() -> Iterator[None]:
    """Suppress cuDNN's warning about weights in several pieces of memory, as computed weights always are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        yield
