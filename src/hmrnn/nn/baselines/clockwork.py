"""The clockwork RNN: modules with fixed periods."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import Baseline, unroll
from hmrnn.nn.output import Output
from hmrnn.nn.recurrent import declared
from hmrnn.nn.weights import orthogonal
from hmrnn.ops import State
from hmrnn.ops.reference import LAYER_NORM_EPS


@declared
class ClockworkRNN(Baseline):
    r"""The clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014), stacked.

    The units of a layer are split into ``num_modules`` groups of equal size. Module i, counted from 1, has the period
    :math:`2^{i-1}` and is due at the steps t = 0, 1, ... that this divides. It reads itself and the slower modules:

    .. math::
        h^i_t = \tanh\left(\sum_{j \ge i} U_{ij} h^j_{t-1} + W_i x_t + b_i\right)
        \text{ if } 2^{i-1} \text{ divides } t, \text{ else } h^i_{t-1}

    All modules are computed at every step, and those that are not due keep their old value.

    With ``layer_norm``, the sum of a module's two products is normalised over the units of that module and multiplied
    by a gain before the bias is added. So the value of a module does not depend on which others are due.

    ``state.c`` holds the clock, for each unit: the number of steps read so far, modulo its period. So a sequence read
    in parts gives the same result as in one piece.

    Args:
        num_modules: number of modules; must divide the size of every layer.
        layer_norm: see above.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Parameters, for layer l and
    module i counted from 0: ``U.l.i`` (H/modules, H of modules i and up), ``W.l`` (H, size below), ``b.l`` and
    ``gain.l`` (H).
    """

    num_modules: Count = 4
    layer_norm: bool = False

    def make(self) -> None:
        modules = self.num_modules
        if any(size % modules or (self.layer_norm and size == modules) for size in self.hidden_sizes):
            raise InputError(
                f"hidden_size must be a multiple of the number of clockwork modules, {modules}, and with layer_norm "
                f"not that number itself; got {self.hidden_sizes}"
            )
        H = self.hidden_sizes
        self.U: Any = nn.ModuleList(
            nn.ParameterList(
                torch.empty(size // modules, size - i * size // modules, **self._made) for i in range(modules)
            )
            for size in H
        )
        self.W, self.b = self._new(H, self._below), self._new(H)
        if self.layer_norm:
            self.gain = self._new(H)
        self.reset_parameters()

    @property
    def periods(self) -> Tensor:
        """The period of each module."""
        return 2 ** torch.arange(self.num_modules, device=self.parameter.device)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal blocks, zero biases, gains of 1."""
        for l in range(self.num_layers):
            for block in (*self.U[l].parameters(), *self.W[l].chunk(self.num_modules)):
                orthogonal(block)
            nn.init.zeros_(self.b[l])
            if self.layer_norm:
                nn.init.ones_(self.gain[l])

    def layer(self, l: int, x: Any, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
        H, modules = self.hidden_sizes[l], self.num_modules
        longest = 2 ** (modules - 1)
        if longest * torch.finfo(c.dtype).eps > 2:
            raise InputError(
                f"the clock of {modules} modules counts up to {longest - 1}, which {c.dtype} does not hold exactly; "
                "use float32 parameters or fewer modules"
            )
        blocks = [F.pad(block, (H - block.shape[1], 0)) for block in self.U[l].parameters()]
        U = self._dropped(torch.cat(blocks))  # zero where a slower module would read a faster one
        periods = self.periods.repeat_interleave(H // modules)  # (H,)

        def tick(fed: Tensor, h: Tensor, clock: Tensor) -> tuple[Tensor, Tensor]:
            s = F.linear(h, U).to(h.dtype) + fed
            if self.layer_norm:
                normal = F.layer_norm(s.unflatten(1, (modules, -1)), (H // modules,), eps=LAYER_NORM_EPS)
                s = normal.flatten(1) * self.gain[l]
            moved = torch.where(clock == 0, torch.tanh(s + self.b[l]), h)
            return moved, (clock + 1) % periods

        hidden, end = unroll(F.linear(x, self.W[l]).to(h.dtype), (h, c), lengths, tick)
        return hidden, *end

    def multiply_adds(self, out: Output, before: State | None = None, looked_up: bool = False) -> Tensor:
        """(T, B or 1): the rows of U and W of the modules that are due."""
        periods = self.periods
        start = periods.new_zeros(1) if before is None else before.c[0][:, -1].long()  # the slowest module's clock
        time = start + torch.arange(len(out.operations), device=periods.device)[:, None]  # (T, B or 1)
        due = time[..., None] % periods == 0  # (T, B or 1, modules)
        sizes = torch.zeros_like(periods)
        for l, (blocks, W) in enumerate(zip(self.U, self.W)):
            fed = 0 if l == 0 and looked_up else W.numel() // self.num_modules
            sizes += torch.tensor([U.numel() + fed for U in blocks.parameters()], device=periods.device)
        return (due * sizes).sum(-1)
