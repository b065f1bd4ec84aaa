"""Segments of a text in the native library: sums over all segmentations, the best one, and the GRU that spells them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.ops.interface import first_only
from hmrnn.ops.native.engine import call, check, freed_with, plain, words
from hmrnn.ops.native.engine import takes as takes

LEAST = 1e-6
"""The speller has no gradient, in float32, where that of its scores is below this share of the largest one."""


def sums(scores: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """The log of the sum over all segmentations (B,), in float64, and the posterior of each segment (T, K, B)."""
    T, K, B = scores.shape
    scores, first = plain(scores), plain(first)
    total, posterior = first.new_empty(B), torch.empty_like(scores)
    given = words([T, K, B, scores, first, total, posterior])
    call("hm_segments", scores.dtype == torch.float64, given)
    return total, posterior


def best(scores: Tensor) -> Tensor:
    """(T + 1, B): the length of the last segment of the best segmentation that ends at t."""
    T, K, B = scores.shape
    scores, lengths = plain(scores), torch.empty(T + 1, B, dtype=torch.int64)
    call("hm_segments", scores.dtype == torch.float64, words([T, K, B, scores, None, lengths]))
    return lengths


def sample_ends(
    text: Tensor,  # (N,) int64
    starts: Tensor,  # (lines + 1,) int64: where lines begin; the last one is N
    rules: Tensor,  # (N,) int8: 1 where a word must end, -1 where none may, else 0
    first: Tensor,  # (N,) int8: whether a word ends there at first
    fixed: Tensor,  # (lines,) int8: whether the words of a line stay
    listed: Tensor | None,  # (N, longest) int8: whether a segment is in a list of known words
    *,
    counted: int,  # lines whose words are counted, the first ones; the others are only cut
    longest: int,
    signs: int,  # symbols are less than that
    sweeps: int,
    kept: int,  # the last sweeps, whose samples are averaged
    known: tuple[float, float],  # shares of new words: of all that are spelt, of each listed one
    seed: int = 1,
) -> Tensor:
    """(N,) float32: the share of samples in which a word ends after each symbol, by a bigram model of words."""
    ends = torch.zeros(len(text))
    numbers = [len(text), len(fixed), longest, signs, sweeps, kept, seed, counted]
    tensors = [text, starts, rules, fixed, first, listed, ends]
    call("hm_bigrams", words([*numbers, *tensors], known))
    return ends / kept


def spell(
    start: Tensor,  # (N, H)
    table: Tensor,  # (rows, 3H): what may be read, multiplied by the input matrix, with its bias
    U: Tensor,  # (3H, H), rows in the order r, z, n
    b: Tensor,  # (3H,)
    weight: Tensor,  # (signs + 1, H): the output layer; its last row scores an end
    offset: Tensor,  # (signs + 1,)
    mask: Tensor | None,  # (N, H): factors of the output
    read: Tensor,  # (K, N) int64: the row of the table that is read before each symbol
    symbols: Tensor,  # (K, N) int64: the symbols that are spelt; negative after the last one
) -> tuple[Tensor, Tensor]:
    """The log-probability of each symbol and the score of an end before it, both (K, N); 0 where there is none."""
    N, H = start.shape
    wanted = [
        ("start", start, (N, H)), ("table", table, (len(table), 3 * H)), ("U", U, (3 * H, H)), ("b", b, (3 * H,)),
        ("weight", weight, (len(weight), H)), ("offset", offset, (len(weight),)), ("mask", mask, (N, H)),
    ]  # fmt: skip
    check(start.dtype, wanted)
    for indices, most in ((read, len(table)), (symbols, len(weight) - 1)):
        if indices.shape != (len(read), N) or indices.dtype != torch.int64 or bool((indices >= most).any()):
            raise InputError(f"symbols must be int64 {(len(read), N)} below {most}; got {tuple(indices.shape)}")
    if bool((read < 0).any()):
        raise InputError("rows of the table must not be negative")
    spelt, stop = _Spell.apply(start, table, U, b, weight, offset, mask, read, symbols)
    return spelt, stop


class _Spell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor | None) -> tuple[Tensor, Tensor]:
        tensors = [None if a is None else plain(a) for a in given]
        start, table, _, _, _, offset, _, read, _ = tensors
        assert start is not None
        assert table is not None
        assert offset is not None
        assert read is not None
        (N, H), K, keep = start.shape, len(read), any(ctx.needs_input_grad)
        spelt, stop = start.new_zeros(K, N), start.new_zeros(K, N)
        exact = start.dtype == torch.float64
        numbers = [N, K, H, len(offset) - 1, len(table), keep]
        order = [*tensors[7:], *tensors[:7], spelt.detach(), stop.detach()]  # what autograd gives would hold itself
        made = call("hm_spell", exact, words([*numbers, *order], [0.0 if exact else LEAST]))
        token = torch.empty(0)  # holds what was made as long as autograd holds what was saved
        token.made, token.read = freed_with(token, made), order  # type: ignore[attr-defined]
        ctx.save_for_backward(token, *tensors[:6])
        return spelt, stop

    @staticmethod
    @first_only("the segmental head gives first derivatives only")
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        token, *tensors = ctx.saved_tensors
        found = [torch.zeros_like(a) for a in tensors]
        call("hm_backward", token.made, words([*(plain(a) for a in grads), *found]))
        return (*found, None, None, None)
