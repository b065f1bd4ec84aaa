"""Networks of one equation each, with the interface of HMLSTM."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor

from hmrnn.config.checks import LARGEST_NUMBER, Count
from hmrnn.nn.baselines.base import Baseline, Cell
from hmrnn.nn.output import at_steps
from hmrnn.nn.recurrent import declared
from hmrnn.ops.interface import within


@declared
class LeakyRNN(Baseline):
    r"""Leaky integrator units with a spectrum of time constants.

    .. math::
        h_t = (1 - 1/\tau) h_{t-1} + (1/\tau) \tanh(U h_{t-1} + W x_t + b)

    τ grows by equal factors from 1 (a plain RNN) in the first unit of a layer to ``time_constant`` in the last.

    Args:
        time_constant: τ of the slowest unit, in steps.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Parameters, for layer l counted
    from 0: ``U.l`` (H, H), ``W.l`` (H, size below), ``b.l`` (H).
    """

    time_constant: Annotated[float, Meta(ge=1, le=LARGEST_NUMBER)] = 64.0

    def cell(self, l: int) -> Cell:
        U = self._dropped(self.U[l])
        place = torch.arange(len(U), device=U.device, dtype=torch.float64) / max(1, len(U) - 1)  # from 0 to 1
        rate = (self.time_constant**-place).to(U.dtype)  # 1/τ
        return lambda fed, h, c: (torch.lerp(h, torch.tanh(F.linear(h, U).to(h.dtype) + fed), rate), c)


@declared
class SkipRNN(Baseline):
    r"""An RNN that also reads its own state of d steps ago (Lin et al., 1996).

    .. math::
        h_t = \tanh(U h_{t-1} + V h_{t-d} + W x_t + b)

    Gradients reach d steps back in one step.

    Args:
        delay: d.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`; ``state.c`` holds h of the last
    d steps, (B, dH), the oldest first. Parameters, for layer l counted from 0: ``U.l``, ``V.l`` (H, H), ``W.l``
    (H, size below), ``b.l`` (H).
    """

    delay: Count = 8

    def make(self) -> None:
        self.V = self._new(self.hidden_sizes, self.hidden_sizes)
        super().make()

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return tuple(self.delay * size for size in self.hidden_sizes)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal matrices, U and V halved so that the state does not grow; zero biases."""
        super().reset_parameters()
        for matrix in (*self.U, *self.V):
            matrix.mul_(0.5)

    def cell(self, l: int) -> Cell:
        U, V, size = self._dropped(self.U[l]), self._dropped(self.V[l]), self.hidden_sizes[l]

        def step(fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh((F.linear(h, U) + F.linear(c[:, :size], V)).to(h.dtype) + fed)
            return h, torch.cat([c[:, size:], h], dim=-1)

        return step


@declared
class OutputRNN(Baseline):
    r"""An RNN that remembers nothing but its last output (Jordan, 1986).

    .. math::
        h_t = \tanh(U o_{t-1} + W x_t + b) \qquad o_t = V h_t + d

    o is smaller than h, so what it leaves out of the past is lost.

    Args:
        outputs: the size of o, in every layer; by default a quarter of the layer.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`; ``state.c`` holds o. For
    layer l counted from 0 the parameters are ``U.l`` (H, outputs), ``V.l`` (outputs, H), ``W.l`` (H, size below),
    ``b.l`` (H) and ``d.l`` (outputs).
    """

    outputs: Count | None = None

    def make(self) -> None:
        H, O = self.hidden_sizes, self.cell_sizes
        self.U, self.V, self.W = self._new(H, O), self._new(O, H), self._new(H, self._below)
        self.b, self.d = self._new(H), self._new(O)
        self.reset_parameters()

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return tuple(self.outputs or max(1, size // 4) for size in self.hidden_sizes)

    def cell(self, l: int) -> Cell:
        U, V, d = self._dropped(self.U[l]), self.V[l], self.d[l]

        def step(fed: Tensor, h: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(F.linear(o, U).to(h.dtype) + fed)
            return h, F.linear(h, V).to(h.dtype) + d

        return step


@declared
class PeepholeLSTM(Baseline):
    r"""An LSTM whose gates see the cell (Gers and Schmidhuber, 2000).

    .. math::
        i, f = \sigma(U_{i,f} h_{t-1} + W_{i,f} x_t + p_{i,f} c_{t-1} + b_{i,f}) \qquad
        g = \tanh(U_g h_{t-1} + W_g x_t + b_g)

        c_t = f c_{t-1} + i g \qquad o = \sigma(U_o h_{t-1} + W_o x_t + p_o c_t + b_o) \qquad h_t = o \tanh c_t

    Args:
        coupled: f = 1 - i: the cell forgets as much as it takes in (Greff et al., 2017).

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Parameters, for layer l counted
    from 0: ``U.l`` (4H, H), ``W.l`` (4H, size below), ``b.l`` (4H), rows in the order i, o, g, f; ``p.l`` (3H) in the
    order i, o, f. Coupled gates have no f.
    """

    coupled: bool = False

    def make(self) -> None:
        self.gates = 3 if self.coupled else 4
        self.p = self._new([(self.gates - 1) * size for size in self.hidden_sizes])
        super().make()

    def cell(self, l: int) -> Cell:
        U, size = self._dropped(self.U[l]), self.hidden_sizes[l]
        p_i, p_o, *p_f = self.p[l].split(size)

        def step(fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            s_i, s_o, s_g, *s_f = (F.linear(h, U).to(h.dtype) + fed).split(size, dim=-1)
            i = torch.sigmoid(s_i + p_i * c)
            f = 1 - i if self.coupled else torch.sigmoid(s_f[0] + p_f[0] * c)
            c = f * c + i * torch.tanh(s_g)
            o = torch.sigmoid(s_o + p_o * c)
            return o * torch.tanh(c), c

        return step


@declared
class TimeDelayNetwork(Baseline):
    r"""A stack of causal convolutions over time (Lang and Hinton, 1988), without recurrence.

    .. math::
        h_t = \tanh\left(\sum_{j=0}^{k-1} K_j x_{t-j} + b\right)

    L layers see the last L(k - 1) + 1 steps.

    Args:
        kernel: k, the steps that a layer reads of the one below.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`; ``state.c`` holds the last
    k - 1 inputs of the layer, the oldest first. Parameters, for layer l counted from 0: ``K.l`` (H, k, size below), the
    newest step last, and ``b.l`` (H).
    """

    kernel: Count = 8

    def make(self) -> None:
        self.K = self._new(self.hidden_sizes, [self.kernel] * self.num_layers, self._below)
        self.b = self._new(self.hidden_sizes)
        self.reset_parameters()

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return tuple((self.kernel - 1) * size for size in self._below)

    def layer(self, l: int, x: Any, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
        T, B, size = x.shape
        before = c.view(B, self.kernel - 1, size).transpose(0, 1)
        read = torch.cat([before.to(x.dtype), x])  # (k - 1 + T, B, size)
        windows = read.unfold(0, self.kernel, 1)  # (T, B, size, k)
        K = self.K[l].transpose(1, 2)  # (H, size, k)
        hidden = torch.tanh(F.linear(windows.flatten(2), K.flatten(1)).to(h.dtype) + self.b[l])
        lengths = torch.full((B,), T, device=x.device) if lengths is None else lengths
        hidden = hidden * within(lengths, T)[..., None]
        kept = lengths + torch.arange(self.kernel - 1, device=x.device)[:, None]  # (k - 1, B)
        return hidden, at_steps(hidden, lengths[None] - 1)[0], at_steps(read, kept).transpose(0, 1).flatten(1)
