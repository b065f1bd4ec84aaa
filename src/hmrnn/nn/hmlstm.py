"""HMLSTM: the recurrence with its parameters, used like ``torch.nn.LSTM``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn

from hmrnn import ops
from hmrnn.config.checks import Share
from hmrnn.errors import InputError
from hmrnn.nn.bidirectional import Bidirectional
from hmrnn.nn.dropout import factors
from hmrnn.nn.output import Output, changes
from hmrnn.nn.recurrent import Pass, Stacked, declared
from hmrnn.nn.weights import Cell
from hmrnn.ops import Options, State, Step
from hmrnn.ops.estimators import DRAWN
from hmrnn.ops.interface import within
from hmrnn.ops.native import engine as native


@declared
class HMLSTM(Cell, Stacked):
    r"""The Hierarchical Multiscale LSTM (Chung, Ahn and Bengio, 2017).

    Layer :math:`\ell` at time :math:`t`, with :math:`h^0_t = x_t` and :math:`z^0_t = 1`:

    .. math::
        s = U_\ell h^\ell_{t-1} + z^\ell_{t-1} V_\ell h^{\ell+1}_{t-1} + z^{\ell-1}_t W_\ell h^{\ell-1}_t + b_\ell

        f, i, o, g = \sigma(s_f), \sigma(s_i), \sigma(s_o), \tanh(s_g) \qquad
        \tilde z = \max(0, \min(1, (a s_z + 1) / 2)) \qquad z = [\tilde z > 1/2]

    =================  =================  =========  ======================================  =====================
    :math:`z_{t-1}^ℓ`  :math:`z_t^{ℓ-1}`  operation  c                                       h
    =================  =================  =========  ======================================  =====================
    0                  1                  UPDATE     :math:`f c_{t-1} + i g`                 :math:`o \tanh c`
    0                  0                  COPY       :math:`c_{t-1}`                         :math:`h_{t-1}`
    1                  any                FLUSH      :math:`i g`                             :math:`o \tanh c`
    =================  =================  =========  ======================================  =====================

    The top layer has no detector, no top-down input and never flushes. Gradients of the binary z are
    straight-through unless ``boundary`` is "reinforce".

    The defaults are the paper's cell. Where boundaries are rare, ``flush=False, top_down="pending", on_copy="hold"``
    predicts better, as FLUSH erases what the layer remembers: at word rates on enwik8 1.46 bits, not 1.58 to 1.67.

    Args:
        input_size: size of x at one time step.
        hidden_size: size of every layer, or one size per layer (the lowest first).
        num_layers: number of layers L.
        layer_norm: normalise each contribution over its gate rows and c before its tanh (Ba et al., 2016).
        boundary: "step" (equation 9), "sample" (a Bernoulli draw while training; in ``eval()`` the likelier state),
            "soft" (z̃ itself), "gumbel" (drawn as "sample"; the gradient is that of a binary concrete variable, whose
            temperature is ``rnn.temperature``) or "reinforce" (drawn as "sample"; no gradient goes through z, and the
            loss needs the terms of :func:`hmrnn.ops.estimators.score_function`).
        on_copy: the boundary on COPY: "evaluate" (equation 4, of which U·h and b are left) or "hold" (0: nothing was
            read, so no segment ends).
        flush: whether a boundary erases the cell: FLUSH. If False, a layer chooses between UPDATE and COPY by
            :math:`z_t^{ℓ-1}` alone, and its own boundary opens the top-down input and moves the layer above, no more.
        top_down: when a layer reads the layer above through V: "boundary" (the step after its own boundary, as in the
            paper), "pending" (from its boundary until it next moves; differs from "boundary" without FLUSH only),
            "always" (every step) or "none" (there is no V).
        copy: whether a layer stands still until the layer below ends a segment. If False, :math:`z_t^{ℓ-1}` counts as 1
            everywhere: a dense stack, which never does COPY.
        detector_hidden: units in a hidden layer of each detector, 0 for none as in the paper. With N of them
            :math:`s_z = D_2 \operatorname{gelu}(D_1 r + d_1) + d_2`, where r is :math:`h^\ell_{t-1}`, the gated
            :math:`h^{\ell+1}_{t-1}` and the gated :math:`h^{\ell-1}_t` side by side.
        batch_first: whether x and the output are (B, T, ...).
        bidirectional: whether a second network reads each sequence from its end to its start; shapes and names are
            then those of :class:`hmrnn.nn.Bidirectional`.
        weight_drop: probability that a weight in the gate rows of U and V is zero while training (DropConnect); drawn
            once per call, for all time steps and sequences.
        dropout: probability that a unit is zero for the gates of the layer above while training; drawn once per call
            and sequence, for all time steps. Neither weight_drop nor dropout affects detectors.
        zoneout: probability that a unit keeps its c when its layer moves, drawn at every step while training; in
            ``eval()`` every unit keeps that share of its c.
        engine: the implementation, "auto" or one of ``hmrnn.ops.ENGINES``; ``repr`` says what "auto" chooses.
        check_values: whether every call checks all values; see "Values" below.
        device, dtype: of the parameters.

    Inputs: x, state, lengths, boundaries
        - **x**: (T, B, input_size), or a ``PackedSequence``. With ``embedding`` (a row per symbol) x holds symbol
          indices, (T, B). One sequence may come without the batch dimension, as (T, input_size) or (T,); state,
          boundaries and outputs then have no batch dimension either.
        - **state**: a :class:`hmrnn.State` to start from; zeros if None.
        - **lengths**: (B,) the number of steps of each sequence; the rest is padding.
        - **boundaries**: (T, B, L-1) boundary states to use instead of the detectors'; where NaN, the detector decides.

    Outputs: out, state
        - **out**: an :class:`Output` with ``hidden``, ``boundaries``, ``probabilities`` and ``operations``.
        - **state**: h and c (L tensors (B, H_l) each) and z (B, L-1) at the end of each sequence; with
          ``top_down="pending"`` also ``pending`` (B, L-1), the gates of the top-down input at the next step.

    Values: every call checks shapes, dtypes and devices, and that forced boundaries lie between 0 and 1. On a CPU it
    also checks that x, or the embedding, is finite and not too large (1e31, with layer norm 1e15) and that symbols are
    rows of the embedding. On a GPU, which it would have to wait for, NaN in x makes h of the first layer NaN for the
    rest of the sequence, as in ``torch.nn.LSTM``, and a detector that gets NaN does not fire. ``check_values=True``
    (or ``rnn.check_values = True``) checks x, symbols, embedding and state on every device. Padding is never checked.

    Parameters, for layer l counted from 0: ``U.l`` (4H+1, H), ``V.l`` (4H+1, H of the layer above), ``W.l`` (4H+1, size
    of the layer below) and ``b.l`` (4H+1), rows in the order f, i, o, g, z; the top layer has 4H rows and no V; with
    ``top_down="none"`` no layer has V. With layer norm also ``gain_U.l``, ``gain_V.l``, ``gain_W.l`` (4H), ``gain_c.l``
    and ``bias_c.l`` (H). With ``detector_hidden=N`` these matrices have 4H rows, and a detector has ``D1.l``
    (N, size of r), ``d1.l`` (N), ``D2.l`` (1, N) and ``d2.l`` (1).

    Example::

        >>> rnn = hmrnn.HMLSTM(input_size=10, hidden_size=20, num_layers=3)
        >>> out, state = rnn(torch.randn(50, 4, 10))
        >>> [tuple(h.shape) for h in out.hidden], tuple(out.boundaries.shape)
        ([(50, 4, 20), (50, 4, 20), (50, 4, 20)], (50, 4, 2))
    """

    settable = True
    default_gain = 0.3

    batch_first: bool = False
    bidirectional: bool = False
    zoneout: Share = 0.0
    engine: ops.Engine = "auto"

    def __post_init__(self, *made: Any) -> None:
        super().__post_init__(*made)
        self.num_boundaries = self.num_layers - 1
        above = (*self.hidden_sizes[1:], None)
        self.keep([self.new_weights(*sizes) for sizes in zip(self.hidden_sizes, self._below, above)])

    def __new__(cls, *args: Any, bidirectional: bool = False, **options: Any) -> Any:
        if bidirectional is True:
            return Bidirectional(cls(*args, **options), cls(*args, **options))
        return super().__new__(cls)

    @torch.no_grad()
    def set_detector_bias(self, values: Sequence[float]) -> None:
        """Set the biases of the detectors, to one value for all or one per detector, the lowest first."""
        if len(values) not in (1, self.num_boundaries):
            raise InputError(f"expected a bias for all detectors or {self.num_boundaries}, one each; got {values}")
        for l, bias in enumerate(self.detector_biases()):
            bias[-1] = values[l % len(values)]

    def detector_biases(self) -> list[nn.Parameter]:
        """For each detector, the lowest first, the parameter whose last number is its bias."""
        name = "d2" if self.detector_hidden > 0 else "b"
        return [getattr(self, name)[l] for l in range(self.num_boundaries)]

    def options(self, **more: Any) -> Options:
        return super().options(zoneout=self.zoneout, **more)

    def engine_for(self, device: torch.device) -> str:
        """The engine that trains on ``device``; InputError if the chosen one cannot."""
        return ops.choose_engine(self.engine, device, self.options())

    def multiply_adds(self, out: Output, before: State | None = None, looked_up: bool = False) -> Tensor:
        """(T, B): multiply-adds at each step; ``looked_up``: the first W is a table."""
        moved = changes(out, self)  # (T, B, L)
        total = torch.zeros(moved.shape[:2], dtype=torch.int64, device=moved.device)
        fed, open_gate, new_above = _inputs(self, out, moved, before)
        for l, w in enumerate(self.layers()):
            gates, here = 4 * w.hidden_size, moved[..., l]
            detector = {name: w.detector_rows(name).numel() for name in "UW"}  # 0 in the top layer
            total += here * (w.U[:gates].numel() + detector["U"])
            if not (l == 0 and looked_up):
                total += fed[..., l] * (w.W[:gates].numel() + detector["W"])
            if not w.has_detector:
                continue
            evaluates = self.on_copy == "evaluate"
            above = torch.zeros_like(here)  # where the detector's product with h above is made anew
            if w.V is not None:
                by_gates = moved[..., l + 1] if self.top_down == "always" else open_gate[..., l] & here
                above = new_above[..., l] if evaluates and self.top_down != "always" else by_gates
                total += by_gates * w.V[:gates].numel() + above * w.detector_rows("V").numel()
            if w.D2 is not None:
                total += here * w.D2.numel()
                if l > 0 and self.copy and self.boundary != "soft" and evaluates:
                    total += (here | above) * w.D2.numel()
        return total

    @property
    def parameter(self) -> Tensor:
        """One of the parameters, whose dtype and device all have."""
        return cast(Tensor, getattr(self.b, "0"))  # self.b[0] takes twice as long

    def initial_state(self, batch_size: int) -> State:
        state: State = super().initial_state(batch_size)
        return state._replace(pending=state.z.clone()) if self.variant.gate == "pending" else state

    def read(self, given: Pass) -> tuple[Output, State]:
        x, state, lengths, boundaries = given
        result = ops.hmlstm(
            x, self.dropped(self.weight_drop), state, self.options(), lengths=lengths, boundaries=boundaries,
            engine=self.engine, **self._drawn(x.shape, state),
        )  # fmt: skip
        active = None if lengths is None else within(lengths, len(result.boundaries))
        done = self.variant.operations(result.boundaries, state.z, active)
        out = Output(result.hidden, result.boundaries, result.probabilities, done)
        new, dtype = result.state, self.a.dtype  # under autocast the cuda engine returns h in a lower precision
        return out, new if new.z.dtype == new.h[0].dtype == dtype else new.to(dtype)

    def step(self, x: Tensor, state: State | None = None, boundaries: Tensor | None = None) -> Step:
        """One time step without a gradient, for streaming; a layer that copies is not computed.

        ``x`` is (B, input_size); ``boundaries`` (B, L-1) are forced as in ``forward``. Returns the new state, which
        rows of which layers changed, and z̃. Always computes as in ``eval()``: no dropout, no draws.
        """
        if not self.check_values and self.engine in ("auto", "native") and ops.why_plain_torch() is None:
            found = native.step(x, self.layers(), state, self.options(), boundaries)
            if found is not None:
                return found
        x, state, _, boundaries = self.checked(x, state, None, boundaries, order="B")
        return ops.step(x, self.layers(), state, self.options(), boundaries, self.engine)

    def register_full_backward_hook(self, *given: Any, **how: Any) -> NoReturn:
        raise InputError("a backward hook would never be called, as the output is no tensor; hook out.hidden[l]")

    register_full_backward_pre_hook = register_full_backward_hook

    def extra_repr(self) -> str:
        if self.engine != "auto":
            return super().extra_repr()
        chosen = ops.describe_auto(self.a.device, self.options(), self.a.dtype)
        return f"{super().extra_repr()}, engine='auto' ({chosen})"

    def _drawn(self, shape: torch.Size, state: State) -> dict[str, Any]:
        """What a pass draws while training: noise for boundaries, units that zoneout keeps, factors of dropout."""
        drawn: dict[str, Any] = {}
        (T, B), a = shape[:2], self.a
        if self.training and self.boundary in DRAWN:
            drawn["noise"] = torch.rand(T, B, self.num_boundaries, device=a.device, dtype=a.dtype)
        if self.training and self.zoneout > 0:
            drawn["kept"] = [torch.rand(T, B, size, device=a.device) < self.zoneout for size in self.hidden_sizes]
        if self.training and self.dropout > 0:
            drawn["seen"] = [factors(h, self.dropout) for h in state.h[:-1]]
        return drawn


HMLSTM.__new__.__wrapped__ = HMLSTM.__init__  # type: ignore[attr-defined]  # for inspect.signature


def hmlstms(model: nn.Module) -> list[HMLSTM]:
    """Every HM-LSTM in ``model``; of a bidirectional network, both."""
    return [module for module in model.modules() if isinstance(module, HMLSTM)]


def _inputs(rnn: HMLSTM, out: Output, moved: Tensor, before: State | None) -> tuple[Tensor, Tensor, Tensor]:
    """(T, B, L): where a layer reads the one below; (T, B, L-1): where its top-down gate is open, and where h above has
    changed since the gate was last open, which is after a boundary."""
    dense = rnn.boundary == "soft" or not rnn.copy
    z = out.boundaries > 0.5
    fed = torch.ones_like(moved) if dense else torch.cat([torch.ones_like(moved[..., :1]), z], dim=-1)
    if rnn.boundary == "soft":
        return fed, torch.ones_like(z), torch.ones_like(z)
    start = torch.zeros_like(z[0]) if before is None else before.z > 0.5
    earlier = torch.cat([start[None], z[:-1]])
    if rnn.variant.gate != "pending":
        return fed, earlier, earlier
    opens = earlier.clone()
    if before is not None and before.pending is not None:
        opens[0] |= before.pending > 0.5
    step = torch.arange(1, len(z) + 1, device=z.device)[:, None, None]
    opened = (opens * step).cummax(0).values  # the last step so far that opened a gate
    closed = (moved[..., :-1] * step).cummax(0).values  # the last step so far that closed it for those after it
    return fed, opened > torch.cat([torch.zeros_like(closed[:1]), closed[:-1]]), earlier
