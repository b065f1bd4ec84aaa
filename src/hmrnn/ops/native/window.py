"""The window over letters in the native library, forwards and backwards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hmrnn.ops.interface import first_only
from hmrnn.ops.native.engine import call, check, plain, threads, words


def follow(
    x: Tensor,  # (T, B, X)
    letters: Tensor,  # (B, U, W): embeddings
    weight: Tensor,  # (4H, X + W + H): of x, of what was shown and of h; rows in the order i, f, g, o
    bias: Tensor,  # (4H,)
    moves: Tensor,  # (3K, H): logarithms of alpha, beta and step; one row more for a detector
    offset: Tensor,  # (3K,), or one more
    *start: Tensor,  # h, what was shown, c and the places of components: (B, ...)
) -> tuple[Tensor, ...]:
    """h, what is shown, the weights of letters, c and the places of components after each point, all (T, B, ...)."""
    outputs: tuple[Tensor, ...] = _Window.apply(x, letters, weight, bias, moves, offset, *start)
    return outputs


class Pass:
    """A pass of the window over points, the first numbers of x (T, B, ...): all that the library reads and writes."""

    def __init__(self, *given: Tensor) -> None:
        x, letters, weight, _, moves, _, *start = self.given = tuple(map(plain, given))
        (T, B, stride), (_, U, W), (N, H), K = x.shape, letters.shape, moves.shape, start[3].shape[1]
        X = weight.shape[1] - W - H
        shapes = [
            (T, B, max(X, stride)), (B, U, W), (4 * H, X + W + H), (4 * H,), (3 * K + N % 3, H), (N,), (B, H), (B, W),
            (B, H), (B, K),
        ]  # fmt: skip
        names = ("x", "letters", "weight", "bias", "moves", "offset", "h", "read", "c", "at")
        check(weight.dtype, zip(names, self.given, shapes))
        self.made = [x.new_empty(T, B, n) for n in (H, W, U, H, K, 4 * H, N)]
        self.numbers = [T, B, threads(T, B, 4 * H * (X + W + H)), X, stride, H, W, K, U, N % 3]

    def words(self) -> bytes:
        return words([False, *self.numbers, *self.given, *self.made])


class _Window(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, ...]:
        made = Pass(*given)
        call("hm_window", given[0].dtype == torch.float64, made.words())
        ctx.save_for_backward(*made.given, *made.made)
        ctx.numbers = made.numbers
        ctx.set_materialize_grads(False)
        return tuple(made.made[:5])

    @staticmethod
    @first_only("the window gives first derivatives only")
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, letters, weight, _, _, _, *start, h, read, shown, _, _, _, _ = saved = ctx.saved_tensors
        X, W = x.shape[2], letters.shape[2]
        of_gates, of_said, of_read = (torch.empty_like(a) for a in (saved[-2], saved[-1], read))
        of_start, of_c, of_at = (torch.zeros_like(a) for a in (torch.cat(start[1::-1], dim=1), *start[2:]))
        found = [of_gates, of_said, of_read, of_start, of_c, of_at]
        given = [None if a is None else plain(a) for a in grads]
        call("hm_window", x.dtype == torch.float64, words([True, *ctx.numbers, *saved, *given, *found]))
        before = [torch.cat([a[None], b[:-1]]) for a, b in ((start[1], read), (start[0], h))]
        rows = of_gates.flatten(0, 1)
        return (
            of_gates @ weight[:, :X] if ctx.needs_input_grad[0] else None,
            shown.permute(1, 2, 0) @ of_read.transpose(0, 1),
            rows.T @ torch.cat([x, *before], dim=2).flatten(0, 1),
            rows.sum(0),
            of_said.flatten(0, 1).T @ h.flatten(0, 1),
            of_said.sum((0, 1)),
            of_start[:, W:], of_start[:, :W], of_c, of_at,
        )  # fmt: skip
