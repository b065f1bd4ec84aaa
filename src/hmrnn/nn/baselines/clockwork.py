"""The clockwork RNN: modules with fixed periods."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes
from hmrnn.nn.checks import positive, truth
from hmrnn.nn.output import Output
from hmrnn.nn.weights import orthogonal
from hmrnn.ops import State
from hmrnn.ops.interface import autocast_dtype, first_only
from hmrnn.ops.reference import LAYER_NORM_EPS


class _Ticks(torch.autograd.Function):
    """All steps of one clockwork layer.

    In the backward pass the gradient of U is one product per set of modules that move together, not one per step.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,  # (B, H), before the first step
        U: Tensor,  # (H, H), in the precision of the products
        gain: Tensor | None,  # (H,); None without layer norm
        b: Tensor,  # (H,)
        moves: Tensor | None,  # (T, B, H or 1): False where a computed unit keeps its old value; None: all move
        size: int,  # of a module
        *fed: Tensor,  # T of (B, rows): W·x of the modules that are computed at each step
    ) -> Tensor:
        before, hidden = h, h.new_empty(len(fed), *h.shape)
        sums, means, scales = [], [], []  # of layer norm, for the backward pass
        for t, product in enumerate(fed):
            rows = product.shape[1]
            s = torch.mm(h.to(U.dtype), U[:rows].t()) + product
            if gain is not None:
                normal, mean, scale = torch.native_layer_norm(s.view(-1, size), (size,), None, None, LAYER_NORM_EPS)
                sums.append(s)
                means.append(mean)
                scales.append(scale)
                s = torch.addcmul(b[:rows], normal.view_as(s), gain[:rows])
            else:
                s = s + b[:rows]
            if moves is None:
                torch.tanh(s, out=hidden[t, :, :rows])
            else:
                torch.where(moves[t, :, :rows], torch.tanh(s), h[:, :rows], out=hidden[t, :, :rows])
            hidden[t, :, rows:] = h[:, rows:]
            h = hidden[t]
        ctx.save_for_backward(before, hidden, U, gain, moves, *sums, *means, *scales)
        ctx.rows, ctx.size = [product.shape[1] for product in fed], size
        return hidden

    @staticmethod
    @first_only("a ClockworkRNN gives first derivatives only; leave create_graph=True out")
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        before, hidden, U, gain, moves, *normed = ctx.saved_tensors
        count, size = len(hidden), ctx.size
        d_h = torch.zeros_like(before)
        d_squashed: list[Tensor] = [d_h] * count  # gradient of the argument of tanh
        d_fed: list[Tensor] = [d_h] * count
        for t in reversed(range(count)):
            rows = ctx.rows[t]
            total = gradients[0][t] + d_h
            d = total[:, :rows] if moves is None else total[:, :rows] * moves[t, :, :rows]
            d_squashed[t] = d_s = torch.ops.aten.tanh_backward(d, hidden[t, :, :rows])
            if gain is not None:
                s, mean, scale = (normed[k * count + t] for k in range(3))
                d_s = torch.ops.aten.native_layer_norm_backward(
                    (d_s * gain[:rows]).view(-1, size), s.view(-1, size), (size,), mean, scale, None, None,
                    [True, False, False],
                )[0].view_as(s)  # fmt: skip
            d_fed[t] = d_s
            total[:, :rows] -= d  # what is left belongs to units that kept their value
            d_h = torch.mm(d_s.to(U.dtype), U[:rows]) + total

        d_U, d_b = torch.zeros_like(U), before.new_zeros(len(U))
        d_gain = None if gain is None else torch.zeros_like(gain)
        for rows in set(ctx.rows):
            times = [t for t, r in enumerate(ctx.rows) if r == rows]
            read = torch.cat([hidden[t - 1] if t > 0 else before for t in times])
            d_U[:rows] += torch.mm(torch.cat([d_fed[t] for t in times]).to(U.dtype).t(), read.to(U.dtype))
            d_s = torch.cat([d_squashed[t] for t in times])
            d_b[:rows] += d_s.sum(0)
            if d_gain is not None:
                s, mean, scale = (torch.cat([normed[k * count + t] for t in times]) for k in range(3))
                d_gain[:rows] += (d_s * ((s.view(-1, size) - mean) * scale).view_as(s)).sum(0)
        return (d_h, d_U, d_gain, d_b, None, None, *d_fed)


class ClockworkRNN(Baseline):
    r"""The clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014), stacked.

    The units of a layer are split into ``modules`` groups of equal size. Module i, counted from 1, has the period
    :math:`2^{i-1}` and is due at the steps t = 0, 1, ... that this divides. It reads itself and the slower modules:

    .. math::
        h^i_t = \tanh\left(\sum_{j \ge i} U_{ij} h^j_{t-1} + W_i x_t + b_i\right)
        \text{ if } 2^{i-1} \text{ divides } t, \text{ else } h^i_{t-1}

    Only the modules that are due are computed. These are always the first few, so one product with their rows of U
    moves them all. If the sequences of a batch are at different times, and inside a CUDA graph, whose launches are
    fixed, all modules are computed and those that are not due keep their old value; the result is the same.

    With ``layer_norm``, the sum of a module's two products is normalised over the units of that module and multiplied
    by a gain before the bias is added. So the value of a module does not depend on which others are due.

    ``state.c`` holds the clock, for each unit: the number of steps read so far, modulo its period. So a sequence read
    in parts gives the same result as in one piece.

    Args:
        modules: number of modules; must divide the size of every layer.
        layer_norm: see above.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Parameters, for layer l and
    module i counted from 0: ``U.l.i`` (H/modules, H of modules i and up), ``W.l`` (H, size below), ``b.l`` and
    ``gain.l`` (H).
    """

    periods: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: Sizes,
        num_layers: int = 3,
        *,
        modules: int = 4,
        layer_norm: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.num_modules = modules = positive("modules", modules)
        self.layer_norm = truth("layer_norm", layer_norm)
        if any(size % modules for size in self.hidden_sizes):
            raise InputError(
                f"hidden_size must be a multiple of the number of clockwork modules, {modules}; got {self.hidden_sizes}"
            )
        if layer_norm and modules in self.hidden_sizes:
            raise InputError(
                f"layer_norm needs modules of at least two units; got {modules} modules "
                f"in layers of {self.hidden_sizes}"
            )
        H = self.hidden_sizes
        self.U = nn.ModuleList(
            nn.ParameterList(
                torch.empty(size // modules, size - i * size // modules, **self._made) for i in range(modules)
            )
            for size in H
        )
        self.W = self._new(H, self._below)
        self.b = self._new(H)
        if layer_norm:
            self.gain = self._new(H)
        self.register_buffer(
            "periods", torch.empty(modules, device=self._made["device"], dtype=torch.int64), persistent=False
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal blocks, zero biases, gains of 1, and the periods."""
        self.periods.copy_(2 ** torch.arange(self.num_modules, device=self.periods.device))
        for l in range(self.num_layers):
            for block in (*self.U[l].parameters(), *self.W[l].chunk(self.num_modules)):
                orthogonal(block)
            nn.init.zeros_(self.b[l])
            if self.layer_norm:
                nn.init.ones_(self.gain[l])

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        T, size, device = len(x), self.hidden_sizes[l] // self.num_modules, x.device
        self._check_clock(c.dtype)
        clock = c.long()
        phase = self._phase(clock)
        moves = self._moves(clock, T, lengths, phase is None)
        U = self._recurrent(l, draws)
        U = U.to(autocast_dtype(device) or U.dtype)
        gain = self.gain[l] if self.layer_norm else None
        hidden = _Ticks.apply(h, U, gain, self.b[l], moves, size, *self._fed(l, x, phase))
        h = hidden[-1]
        clock = clock.unflatten(1, (self.num_modules, size)) + (T if lengths is None else lengths[:, None, None])
        if lengths is not None:
            hidden = hidden * (torch.arange(T, device=device)[:, None] < lengths)[..., None]
        return hidden, h, (clock % self.periods[:, None]).flatten(1).to(c.dtype)

    def _check_clock(self, dtype: torch.dtype) -> None:
        """Raise InputError if the dtype of the state cannot hold the clock's whole numbers exactly."""
        longest = 2 ** (self.num_modules - 1)
        if longest * torch.finfo(dtype).eps > 2:
            raise InputError(
                f"the clock of {self.num_modules} modules counts up to {longest - 1}, which {dtype} does not hold "
                "exactly; use float32 parameters or fewer modules"
            )

    def _phase(self, clock: Tensor) -> int | None:
        """The time at which all sequences start, modulo the longest period; None if they differ or cannot be read."""
        if clock.is_meta or (clock.is_cuda and torch.cuda.is_current_stream_capturing()):
            return None
        earliest, latest = torch.stack(clock[:, -1].aminmax()).tolist()
        return earliest if earliest == latest else None

    def _moves(self, clock: Tensor, T: int, lengths: Tensor | None, all_modules: bool) -> Tensor | None:
        """(T, B, H or 1): False where a computed unit must keep its old value; None if every computed unit moves."""
        time = torch.arange(T, device=clock.device)[:, None]  # (T, 1)
        moves = None if lengths is None else (time < lengths)[..., None]  # (T, B, 1)
        if all_modules:
            due = (clock[:, -1] + time)[..., None] % self.periods == 0  # (T, B, modules)
            due = due[..., None].expand(-1, -1, -1, clock.shape[1] // self.num_modules).flatten(2)  # (T, B, H)
            moves = due if moves is None else due & moves
        return moves

    def _recurrent(self, l: int, draws: bool = False) -> Tensor:
        """(H, H): U of all modules, zero where a slower module would read a faster one."""
        H = self.hidden_sizes[l]
        blocks = [F.pad(block, (H - block.shape[1], 0)) for block in self.U[l].parameters()]
        return self._dropped(torch.cat(blocks), draws)

    def _fed(self, l: int, x: Tensor, phase: int | None) -> list[Tensor]:
        """T of (B, rows due): W·x, as one product for all steps at which the same modules are due."""
        W, size, last = self.W[l], self.hidden_sizes[l] // self.num_modules, self.num_modules
        if phase is None:
            return list(F.linear(x, W).to(W.dtype).unbind())
        fed = [x] * len(x)
        for count in range(1, last + 1):
            # exactly `count` modules are due at odd multiples of the period of module `count`; all, at every multiple
            period = 2 ** (count - 1)
            start, stride = (period - phase, 2 * period) if count < last else (-phase, period)
            times = range(start % stride, len(x), stride)
            if times:
                products = F.linear(x[times.start :: stride], W[: count * size]).to(W.dtype)
                fed[times.start :: stride] = products.unbind()
        return fed

    def multiply_adds(self, out: Output, before: State | None = None, looked_up: bool = False) -> Tensor:
        """(T, B or 1): the rows of U and W of the modules that are due."""
        device = self.periods.device
        start = self.periods.new_zeros(1) if before is None else before.c[0][:, -1].long()  # the slowest module's clock
        time = start + torch.arange(len(out.operations), device=device)[:, None]  # (T, B or 1)
        due = time[..., None] % self.periods == 0  # (T, B or 1, modules)
        sizes = torch.zeros_like(self.periods)
        for l, (blocks, W) in enumerate(zip(self.U, self.W)):
            fed = 0 if l == 0 and looked_up else W.numel() // self.num_modules
            sizes += torch.tensor([U.numel() + fed for U in blocks.parameters()], device=device)
        return (due * sizes).sum(-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, modules={self.num_modules}, layer_norm={self.layer_norm}"
