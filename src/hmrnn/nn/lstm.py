"""LSTM: called like ``torch.nn.LSTM``, with layer normalisation if wanted, on the engines of HMLSTM."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from hmrnn import ops
from hmrnn.config.checks import Count, Share
from hmrnn.errors import InputError
from hmrnn.nn.bidirectional import reverse_steps
from hmrnn.nn.output import Output
from hmrnn.nn.recurrent import Pass
from hmrnn.nn.weights import Gated
from hmrnn.ops import LayerWeights, Options, State, Symbols, interface
from hmrnn.ops.interface import PAPER

Engine = Literal["auto", "native", "cuda", "torch", "reference"]


@dataclasses.dataclass(eq=False, repr=False)
class LSTM(Gated):
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

    recurrent_gain = 1.0

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
        self.hidden_sizes = (self.hidden_size,) * (self.num_layers * self.directions)
        below = (self.input_size,) * self.directions + (self.directions * self.hidden_size,) * len(self.hidden_sizes)
        self.keep([self.new_weights(*sizes) for sizes in zip(self.hidden_sizes, below)], self.bias)

    @classmethod
    def from_torch(cls, lstm: nn.LSTM, **options: Any) -> LSTM:
        """An LSTM with the sizes and weights of an ``nn.LSTM``; ``options`` are those of this class."""
        if not isinstance(lstm, nn.LSTM) or lstm.proj_size:
            raise InputError(f"expected an nn.LSTM without a projection; got {lstm}")
        p = lstm.weight_hh_l0
        options = {
            "batch_first": lstm.batch_first, "dropout": lstm.dropout, "device": p.device, "dtype": p.dtype, **options,
        }  # fmt: skip
        sizes = (lstm.input_size, lstm.hidden_size, lstm.num_layers)
        made = cls(*sizes, bias=lstm.bias, bidirectional=lstm.bidirectional, **options)
        made.load_state_dict(lstm.state_dict(), strict=not made.layer_norm)
        return made.train(lstm.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """Also the weights of an ``nn.LSTM``, by their names there."""
        for k in range(len(self.hidden_sizes)):
            layer, direction = divmod(k, self.directions)
            end = f"l{layer}{'_reverse' if direction else ''}"
            for theirs, ours in (("weight_hh", "U"), ("weight_ih", "W"), ("bias_ih", "b"), ("bias_hh", "b")):
                if (a := state_dict.pop(f"{prefix}{theirs}_{end}", None)) is not None:
                    name = f"{prefix}{ours}.{k}"
                    state_dict[name] = swapped(a) + state_dict.get(name, 0)
        super()._load_from_state_dict(state_dict, prefix, *more)

    def forward(  # type: ignore[override]
        self, x: Tensor | PackedSequence, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        start = None
        if state is not None:
            if (
                not isinstance(state, tuple)
                or len(state) != 2
                or not all(isinstance(a, Tensor) and a.dim() for a in state)
            ):
                raise InputError(f"state must be h and c; got {interface.shapes(state)}")
            h, c = state
            start = State(tuple(h), tuple(c), h.new_zeros(*h.shape[1:-1], 0))
        out, end = super().forward(x, start)
        return out.hidden[0], (torch.stack(end.h), torch.stack(end.c))

    def read(self, given: Pass) -> tuple[Output, State]:
        x, state, lengths, _ = given
        weights = self.dropped(self.recurrent_dropout)
        ends: list[list[Tensor]] = []
        for l in range(self.num_layers):
            x, parts = F.dropout(x, self.dropout, self.training and l > 0), []
            for back in range(self.directions):
                k = len(ends)
                steps, *end = run_layer(
                    reverse_steps(x, lengths) if back else x, weights[k], state.h[k], state.c[k], lengths, self.engine,
                    self.training, self.zoneout,
                )  # fmt: skip
                parts.append(reverse_steps(steps, lengths) if back else steps)
                ends.append(end)
            x = torch.cat(parts, dim=-1) if self.bidirectional else steps
        h, c = zip(*ends)
        none = state.z.new_zeros(*x.shape[:2], 0)
        return Output((x,), none, none, none), State(h, c, state.z)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()} ({engine_of(self.engine, self.layers()[0], self.zoneout)})"


def run_layer(
    x: Tensor | Symbols,  # (T, B, size)
    w: LayerWeights,
    h: Tensor,  # (B, H)
    c: Tensor,  # (B, H)
    lengths: Tensor | None = None,  # (B,)
    engine: str = "auto",
    draws: bool = False,
    zoneout: float = 0.0,
) -> tuple[Tensor, ...]:
    """One layer over a sequence: h at every step (T, B, H), zero in the padding; h and c after the last step.

    It is an HM-LSTM of one layer, which has no detector and does UPDATE at every step. ``draws``: whether units of
    zoneout are drawn, as while training.
    """
    chosen = engine_of(engine, w, zoneout, lengths)
    T, B = x.shape[:2]
    if chosen == "torch":
        fed = F.embedding(x.indices, x.embedding) if isinstance(x, Symbols) else x
        weights = [*map(swapped, (w.W, w.U, w.b)), torch.zeros_like(w.b)]
        return by_torch(torch.lstm, fed, (h, c), weights, lengths)
    kept = [torch.rand(T, B, w.hidden_size, device=h.device) < zoneout] if zoneout > 0 and draws else None
    state, options = State((h,), (c,), h.new_zeros(B, 0)), Options(PAPER, zoneout=zoneout)
    result = ops.hmlstm(x, [w], state, options, lengths=lengths, kept=kept, engine=chosen)
    return result.hidden[0], result.state.h[0], result.state.c[0]


def engine_of(engine: str, w: LayerWeights, zoneout: float = 0.0, lengths: Tensor | None = None) -> str:
    """The engine that runs a layer: for "auto" the fastest one that can, otherwise ``engine``, or InputError."""
    device, dtype = w.b.device, w.b.dtype
    why_not = "it has neither layer norm nor zoneout" if w.gain_c is not None or zoneout > 0 else None
    if lengths is not None and not interface.readable(lengths):
        why_not = "it cannot read lengths in a CUDA graph, nor under torch.func"
    if engine == "torch":
        if why_not is not None:
            raise InputError(f"cannot run here: {why_not}; use auto", setting="engine", value=engine)
        return engine
    chosen = ops.choose_engine(engine, device, Options(PAPER), dtype)
    by_torch = engine == "auto" and chosen != "native" and why_not is None and ops.why_plain_torch() is None
    return "torch" if by_torch else chosen


def swapped(rows: Tensor) -> Tensor:
    """The four blocks of rows in torch's order, i, f, g, o, for rows in the order f, i, o, g, and the other way."""
    return rows.view(2, 2, -1, *rows.shape[1:]).flip(1).reshape(rows.shape)


def by_torch(
    run: Callable[..., Any], x: Tensor, state: tuple[Tensor, ...], weights: list[Tensor], lengths: Tensor | None
) -> tuple[Tensor, ...]:
    """One layer by ``torch.lstm`` or ``torch.gru``, on a CPU in float32 even under autocast: h at every step, the
    state after the last one.

    It takes weights, as ``torch.func.functional_call`` of a module would move them to new memory on a GPU, where
    captured graphs do not find them.
    """
    learns = torch.is_grad_enabled()  # as "training": without it cuDNN gives no gradient
    once = (True, 1, 0.0, learns, False)  # biases, layers, dropout, training, one way
    packed = None if lengths is None else pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
    start = [a[None] if packed is None else a[None, packed.sorted_indices] for a in state]
    first = start if len(start) > 1 else start[0]
    with torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else in_pieces():
        if packed is None:
            steps, *end = run(x, first, weights, *once, False)
            return steps, *(a[0] for a in end)
        data, *end = run(packed.data, packed.batch_sizes, first, weights, *once)
    steps, _ = pad_packed_sequence(packed._replace(data=data), total_length=len(x))
    return steps, *(a[0][packed.unsorted_indices] for a in end)


@contextlib.contextmanager
def in_pieces() -> Iterator[None]:
    """Suppress cuDNN's warning about weights in several pieces of memory, as computed weights always are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        yield
