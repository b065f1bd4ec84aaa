"""H-Net, of recurrent layers, with the interface of HMLSTM."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import unroll
from hmrnn.nn.baselines.recurrent import LSTM
from hmrnn.nn.output import Operation, Output, at_steps, marked
from hmrnn.nn.recurrent import Pass, declared
from hmrnn.ops import State
from hmrnn.ops.estimators import straight_through
from hmrnn.ops.interface import Variant


@declared
class HNet(LSTM):
    r"""An H-Net of one stage (Hwang, Wang and Gu, 2025) whose networks are LSTMs.

    The first layer is the encoder and reads every step, and so does the last, the decoder. The layers between them
    move only where a chunk begins; they read h of the encoder there. A chunk begins where h of the encoder turns:

    .. math::
        p_t = \tfrac12 (1 - \cos(Q h_t, K h_{t-1})) \qquad z_t = [p_t > 1/2] \qquad p_1 = 1

    Of the chunk that begins at t, the layers between give v, and the decoder reads d at each of its steps:

    .. math::
        \bar v = p_t v + (1 - p_t) \bar v' \qquad d = c\, \bar v + R h \qquad c = 1

    where v̄' is that of the chunk before. The gradient of c is that of the confidence, p or 1 - p, and the gradient of z
    is that of p. The ratio loss of H-Net for chunks of N steps, of weight α, is ``rate_loss`` with the rate 1/N and the
    weight α N² / (2N - 2): the gradients are the same.

    Arguments and outputs: see :class:`Baseline`; at least two layers, and with two there are none in between. There is
    one level: ``boundaries``, ``probabilities`` and ``state.z`` have a last dimension of 1. A boundary is on the step
    that begins a chunk, one step late. ``state.c`` of the last layer holds v̄ beside its c. Parameters, beside those of
    the LSTMs: ``Q``, ``K`` (H of the encoder, twice) and ``R`` (size that the decoder reads, H of the encoder).
    """

    num_boundaries = 1
    settable = True
    late = 1
    boundary = "step"
    on_copy = "evaluate"
    variant = Variant(flush=False)

    def make(self) -> None:
        if self.num_layers < 2:
            raise InputError(
                "must be at least 2: an H-Net has an encoder and a decoder", setting="num_layers", value=self.num_layers
            )
        super().make()
        first, read = self.hidden_sizes[0], self._below[-1]
        self.Q, self.K, self.R = (nn.Parameter(torch.empty(n, first, **self._made)) for n in (first, first, read))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the LSTMs as ever, Q and K to the identity, and R to zero."""
        super().reset_parameters()
        nn.init.eye_(self.Q), nn.init.eye_(self.K), nn.init.zeros_(self.R)

    def gate_blocks(self) -> list[tuple[nn.Parameter, int]]:
        return [(p, self.gates if "." in name else 1) for name, p in self.named_parameters() if p.dim() > 1]

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return (*self.hidden_sizes[:-1], self.hidden_sizes[-1] + self._below[-1])

    def read(self, given: Pass) -> tuple[Output, State]:
        x, active = self._masked(given)
        _, state, lengths, boundaries = given
        size, top = self.hidden_sizes[-1], self.num_layers - 1
        smooth, state = state.c[-1][:, size:], state._replace(c=(*state.c[:-1], state.c[-1][:, :size]))

        first, *end = self._layer(0, x, state, lengths)
        p = self.route(first, state.h[0]) * active
        chosen = p if boundaries is None else boundaries[..., 0].where(~boundaries[..., 0].isnan(), p) * active
        starts = chosen > 0.5  # (T, B)
        places, counts = marked(starts)  # (K, B), (B,)
        begun = starts.cumsum(0)

        def spread(chunks: Tensor, before: Tensor) -> Tensor:
            """(T, B, H): that of the chunk that each step belongs to; ``before`` (B, H): until the first one begins."""
            return at_steps(torch.cat([before[None], chunks.to(before.dtype)]), begun)

        hidden, ends, vectors = [first], [end], at_steps(first, places)  # vectors: (K, B, H)
        for l in range(1, top):
            vectors, *end = self._layer(l, vectors, state, counts.clamp(min=1))
            hidden.append(spread(vectors, state.h[l]) * active[..., None])
            ends.append([now.where(counts[:, None] > 0, old) for now, old in zip(end, (state.h[l], state.c[l]))])

        weighed = torch.cat([at_steps(chosen[..., None], places), vectors.to(smooth.dtype)], dim=-1)
        smoothed, _ = unroll(weighed, (smooth,), None, lambda fed, v: (torch.lerp(v, fed[:, 1:], fed[:, :1]),))
        level = spread(smoothed, smooth)
        sure = chosen.where(starts, 1 - chosen)[..., None]
        fed = level * straight_through(sure, torch.ones_like(sure)) + F.linear(first, self.R).to(level.dtype)
        last, h, c = self._layer(top, fed, state, lengths)
        hidden.append(last)
        ends.append([h, torch.cat([c, level[-1]], dim=-1)])

        z = straight_through(chosen, starts.to(p.dtype))[..., None]  # (T, B, 1)
        moved = active[..., None].repeat(1, 1, self.num_layers)
        moved[..., 1:top] &= starts[..., None]
        out = Output(tuple(hidden), z, p[..., None], torch.where(moved, Operation.UPDATE, Operation.COPY))
        z_end = z[-1] if lengths is None else at_steps(z, lengths[None] - 1)[0]
        h_end, c_end = zip(*ends)
        return out, State(h_end, c_end, z_end)

    def route(self, h: Tensor, before: Tensor) -> Tensor:
        """(T, B): p, from h of the encoder (T, B, H) and that before the first step (B, H), zeros at the start."""
        h = h.to(before.dtype)
        before = torch.cat([before[None], h[:-1]])
        # The cosine has no gradient at zero, which padding and the start are.
        q, k = (
            F.linear(a.where(a.any(-1, keepdim=True), 1.0), W).to(a.dtype) for a, W in ((h, self.Q), (before, self.K))
        )
        return ((1 - F.cosine_similarity(q, k, dim=-1)) / 2).where(before.any(-1), 1.0)

    def multiply_adds(self, out: Output, before: State | None = None, looked_up: bool = False) -> Tensor:
        """(T, B): every matrix, or ``looked_up`` every one but the first; those in between where a chunk begins."""
        between = [p.numel() for layer in self.layers[1:-1] for p in layer.parameters() if p.dim() > 1]
        return super().multiply_adds(out, before, looked_up) - sum(between) * (out.boundaries[..., 0] <= 0.5)
