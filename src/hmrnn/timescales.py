"""Networks whose time scales are fixed beforehand: clockwork modules and leaky units. The HM-LSTM learns its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.baselines import Baseline
from hmrnn.checks import positive
from hmrnn.errors import InputError
from hmrnn.ops.reference import LAYER_NORM_EPS


class ClockworkRNN(Baseline):
    r"""The clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014), stacked.

    The units of a layer are split into ``modules`` groups of equal size. Module i, counted from 1, has the period
    :math:`2^{i-1}` and is due at the steps t = 0, 1, ... that this divides. It reads itself and the slower modules:

    .. math::
        h^i_t = \tanh\Big(\sum_{j \ge i} U_{ij} h^j_{t-1} + W_i x_t + b_i\Big) \text{ if } 2^{i-1} \text{ divides } t,
        \text{ else } h^i_{t-1}

    Only what is due is computed: the modules that are due at a step are the first few, and one product with their rows
    of U moves them all. Where the sequences of a batch are not in step, or in a CUDA graph, whose launches cannot
    depend on the clock, all modules are computed and those not due are put back; the result is the same.

    With ``layer_norm``, a module's sum of the two products is normalised over the units of the module, then multiplied
    by a gain, before the bias is added. So what a module computes does not depend on which others are due.

    ``state.c`` holds the clock, for each unit: the number of steps read so far, modulo its period. A sequence read in
    parts gives what it gives in one piece.

    Args:
        modules: number of modules; divides the size of every layer.
        layer_norm: see above.

    The other arguments, and the outputs: see :class:`hmrnn.baselines.Baseline`. Parameters, for layer l and module i
    counted from 0: ``U.l.i`` (H/modules, H of modules i and up), ``W.l`` (H, size below), ``b.l`` and ``gain.l`` (H).
    """

    periods: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 3,
        *,
        modules: int = 4,
        layer_norm: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.num_modules = positive("modules", modules)
        self.layer_norm = layer_norm
        if any(size % modules for size in self.hidden_sizes):
            raise InputError(
                f"hidden_size must be a multiple of the number of clockwork modules, {modules}; got {self.hidden_sizes}"
            )
        if layer_norm and modules in self.hidden_sizes:
            raise InputError(
                f"layer_norm needs modules of more than one unit, as one alone is its own mean; got {modules} modules "
                f"in layers of {self.hidden_sizes}"
            )
        below = (input_size, *self.hidden_sizes[:-1])
        self.U = nn.ModuleList(
            nn.ParameterList(torch.empty(size // modules, size - i * size // modules) for i in range(modules))
            for size in self.hidden_sizes
        )
        self.W = nn.ParameterList(torch.empty(*sizes) for sizes in zip(self.hidden_sizes, below))
        self.b = nn.ParameterList(torch.empty(size) for size in self.hidden_sizes)
        if layer_norm:
            self.gain = nn.ParameterList(torch.empty(size) for size in self.hidden_sizes)
        self.register_buffer("periods", 2.0 ** torch.arange(modules), persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Orthogonal blocks, zero biases, unit gains."""
        for l in range(self.num_layers):
            for block in (*self.U[l].parameters(), *self.W[l].chunk(self.num_modules)):
                nn.init.orthogonal_(block)
            nn.init.zeros_(self.b[l])
            if self.layer_norm:
                nn.init.ones_(self.gain[l])

    def layer(
        self, l: int, x: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None, embedding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        T, size = len(x), self.hidden_sizes[l] // self.num_modules
        phase = self._phase(c)
        due = [self.num_modules] * T if phase is None else [self._due(phase + t) for t in range(T)]
        moves = self._moves(c, T, lengths, phase is None)
        U = self._recurrent(l)
        rows = {count: U[: count * size] for count in set(due)}
        fed = self._fed(l, x, phase)

        steps: list[Tensor] = []
        for t, count in enumerate(due):
            s = F.linear(h, rows[count]).to(h.dtype) + fed[t]
            new = torch.cat([self._squash(l, s), h[:, count * size :]], dim=1)
            h = new if moves is None else torch.where(moves[t], new, h)
            steps.append(h)
        hidden = torch.stack(steps)
        clock = c.unflatten(1, (self.num_modules, size)) + (T if lengths is None else lengths[:, None, None])
        if lengths is not None:
            hidden = hidden * (torch.arange(T, device=x.device)[:, None] < lengths)[..., None]
        return hidden, h, (clock % self.periods[:, None]).flatten(1)

    def _phase(self, c: Tensor) -> int | None:
        """The time that all sequences of the batch start at, modulo the longest period; None where it is not known."""
        if c.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        earliest, latest = torch.stack(c[:, -1].aminmax()).tolist()
        return int(earliest) if earliest == latest else None

    def _due(self, time: int) -> int:
        """How many modules are due."""
        return sum(time % 2**i == 0 for i in range(self.num_modules))

    def _moves(self, c: Tensor, T: int, lengths: Tensor | None, all_modules: bool) -> Tensor | None:
        """(T, B, H or 1): False where a unit that was computed must stay as it was; None if there is no such unit."""
        time = torch.arange(T, device=c.device)[:, None]  # (T, 1)
        moves = None if lengths is None else (time < lengths)[..., None]  # (T, B, 1)
        if all_modules:
            due = (c[:, -1] + time)[..., None] % self.periods == 0  # (T, B, modules)
            due = due[..., None].expand(-1, -1, -1, c.shape[1] // self.num_modules).flatten(2)  # (T, B, H)
            moves = due if moves is None else due & moves
        return moves

    def _recurrent(self, l: int) -> Tensor:
        """(H, H): zero where a faster module would feed a slower one."""
        H = self.hidden_sizes[l]
        return self._dropped(torch.cat([F.pad(block, (H - block.shape[1], 0)) for block in self.U[l].parameters()]))

    def _fed(self, l: int, x: Tensor, phase: int | None) -> list[Tensor]:
        """T of (B, rows due): the products with W, one for all the steps at which the same modules are due."""
        W, size, last = self.W[l], self.hidden_sizes[l] // self.num_modules, self.num_modules
        if phase is None:
            return list(F.linear(x, W).to(W.dtype).unbind())
        fed = [x] * len(x)
        for count in range(1, last + 1):
            # exactly so many are due at odd multiples of the last one's period; all of them at any multiple of it
            period = 2 ** (count - 1)
            start, stride = (period - phase, 2 * period) if count < last else (-phase, period)
            times = range(start % stride, len(x), stride)
            if times:
                products = F.linear(x[times.start :: stride], W[: count * size]).to(W.dtype)
                fed[times.start :: stride] = products.unbind()
        return fed

    def _squash(self, l: int, s: Tensor) -> Tensor:
        """tanh, after layer normalisation and the bias."""
        rows = s.shape[1]
        if self.layer_norm:
            size = self.hidden_sizes[l] // self.num_modules
            s = F.layer_norm(s.unflatten(1, (-1, size)), (size,), eps=LAYER_NORM_EPS).flatten(1) * self.gain[l][:rows]
        return torch.tanh(s + self.b[l][:rows])

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, modules={self.num_modules}, layer_norm={self.layer_norm}"


class LeakyRNN(Baseline):
    r"""Leaky integrator units with a spectrum of time constants.

    .. math::
        h_t = (1 - 1/\tau) h_{t-1} + (1/\tau) \tanh(U h_{t-1} + W x_t + b)

    τ grows from 1, a plain RNN, in the first unit of a layer to ``time_constant`` in the last, by equal factors.

    Args:
        time_constant: of the slowest unit, in steps.

    The other arguments, and the outputs: see :class:`hmrnn.baselines.Baseline`. Parameters, for layer l counted from
    0: ``U.l`` (H, H), ``W.l`` (H, size below), ``b.l`` (H).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 3,
        *,
        time_constant: float = 64.0,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        if not 1 <= time_constant < float("inf"):
            raise InputError(f"time_constant must be at least 1 and finite; got {time_constant}")
        self.time_constant = time_constant
        below = (input_size, *self.hidden_sizes[:-1])
        self.U = nn.ParameterList(torch.empty(size, size) for size in self.hidden_sizes)
        self.W = nn.ParameterList(torch.empty(*sizes) for sizes in zip(self.hidden_sizes, below))
        self.b = nn.ParameterList(torch.empty(size) for size in self.hidden_sizes)
        for l, size in enumerate(self.hidden_sizes):
            place = torch.arange(size) / max(1, size - 1)  # from 0 to 1
            self.register_buffer(f"rate_{l}", time_constant**-place, persistent=False)  # 1/τ
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Orthogonal matrices, zero biases."""
        for l in range(self.num_layers):
            nn.init.orthogonal_(self.U[l])
            nn.init.orthogonal_(self.W[l])
            nn.init.zeros_(self.b[l])

    def layer(
        self, l: int, x: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None, embedding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        U, rate = self._dropped(self.U[l]), self.get_buffer(f"rate_{l}")
        fed = F.linear(x, self.W[l]).to(h.dtype) + self.b[l]
        active = None if lengths is None else (torch.arange(len(x), device=x.device)[:, None] < lengths)[..., None]
        steps: list[Tensor] = []
        for t in range(len(x)):
            new = torch.lerp(h, torch.tanh(F.linear(h, U).to(h.dtype) + fed[t]), rate)
            h = new if active is None else torch.where(active[t], new, h)
            steps.append(h)
        hidden = torch.stack(steps)
        return hidden if active is None else hidden * active, h, c

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, time_constant={self.time_constant:g}"
