# mypy: allow-untyped-defs
"""The Triton kernels for the gradients of weights, which sum over rows; see :mod:`hmrnn.ops.cuda.gradients`."""

import triton
import triton.language as tl

from hmrnn.ops.cuda.kernels_common import MEANS, OF_U, OF_V, OF_W, STATS, load


@triton.jit
def _tile(rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The part that a program sums: columns, their mask, number of the chunk of rows, its first and last row."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chunk = tl.program_id(1)
    share = tl.cdiv(rows, tl.num_programs(1))
    return cols, cols < WIDTH, chunk, chunk * share, tl.minimum((chunk + 1) * share, rows)


@triton.jit
def weigh(
    a, rows,  # (·, WIDTH) what a matrix was multiplied with, and number of rows
    gate, gate_step, d_detector,  # its gate, and the gradient of the detector's pre-activation
    seen, B,  # (B, WIDTH) factors of a for the gates, not for the detector; None: all 1
    stats,  # of its contribution, with layer norm
    weighted,  # output (rows, WIDTH): a · gate, with layer norm a · gate / deviation; None if that is a itself
    gram_left,  # output (rows, WIDTH) with layer norm: -a · k / deviation
    sums, sums_row,  # output (chunks, ·): float32 sums of a · gate · d_detector over each chunk of rows
    means,  # output (chunks, ·) with layer norm: sums of (m - k · mean / deviation) · a · gate / deviation
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The operands of the products for a matrix's gradient, and the gradient of the detector's row as partial sums."""
    cols, width, chunk, first, end = _tile(rows, WIDTH, BLOCK)
    for_detector = tl.zeros((ROWS, BLOCK), tl.float32)  # summed over rows once, at the end
    for_all = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(first, end, ROWS):
        r = (begin + tl.arange(0, ROWS)).to(tl.int64)
        across = r < end
        keep = across[:, None] & width[None, :]
        at = r[:, None] * WIDTH + cols[None, :]
        value = tl.load(a + at, mask=keep, other=0.0).to(tl.float32)
        gated = value
        if gate is not None:
            gated = value * tl.load(gate + r * gate_step, mask=across, other=0.0)[:, None]
        if d_detector is not None:
            d = tl.load(d_detector + r * gate_step, mask=across, other=0.0)
            for_detector += gated * d[:, None]
        if seen is not None:
            share = tl.load(seen + (r % B)[:, None] * WIDTH + cols[None, :], mask=keep, other=0.0)
            value, gated = value * share, gated * share
        if stats is not None:
            moments = stats + r * STATS
            scale = tl.load(moments + 1, mask=across, other=0.0)
            k = tl.load(moments + MEANS + 1, mask=across, other=0.0) * scale
            gated = gated * scale[:, None]
            tl.store(gram_left + at, -value * k[:, None], mask=keep)
            mean = tl.load(moments + MEANS, mask=across, other=0.0)
            mean -= k * tl.load(moments, mask=across, other=0.0)
            for_all += gated * mean[:, None]
        if weighted is not None:
            tl.store(weighted + at, gated, mask=keep)
    if d_detector is not None:
        tl.store(sums + chunk * sums_row + cols, tl.sum(for_detector, axis=0), mask=width)
    if stats is not None:
        tl.store(means + chunk * sums_row + cols, tl.sum(for_all, axis=0), mask=width)


@triton.jit
def _mean(stats, gate, across):
    """gate · mean / deviation of a contribution."""
    weight = tl.load(stats, mask=across, other=0.0) * tl.load(stats + 1, mask=across, other=0.0)
    if gate is not None:
        weight = weight * tl.load(gate, mask=across, other=0.0)
    return weight[:, None]


@triton.jit
def column_sums(
    d, d_row, rows,  # (rows, ·)
    sums, sums_row,  # output (chunks, ·): float32 sums of d over each chunk of rows; with layer norm (stats given),
    stats,  # at WIDTH, 2 WIDTH and 3 WIDTH also of d · gate · mean / deviation of the contributions U, V and W
    gate_V, gate_W, gate_step,
    WIDTH: tl.constexpr, TOP_DOWN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Partial sums of the gradient of the bias and, with layer norm, of the term that gains subtract."""
    cols, width, chunk, first, end = _tile(rows, WIDTH, BLOCK)
    total_d = tl.zeros((ROWS, BLOCK), tl.float32)  # summed over rows once, at the end
    total_U = tl.zeros((ROWS, BLOCK), tl.float32)
    total_V = tl.zeros((ROWS, BLOCK), tl.float32)
    total_W = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(first, end, ROWS):
        r = (begin + tl.arange(0, ROWS)).to(tl.int64)
        across = r < end
        keep = across[:, None] & width[None, :]
        value = tl.load(d + r[:, None] * d_row + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        total_d += value
        if stats is not None:
            at = stats + r * STATS
            total_U += value * _mean(at + OF_U, None, across)
            if TOP_DOWN:
                by_V = gate_V
                if gate_V is not None:
                    by_V = gate_V + r * gate_step
                total_V += value * _mean(at + OF_V, by_V, across)
            by_W = gate_W
            if gate_W is not None:
                by_W = gate_W + r * gate_step
            total_W += value * _mean(at + OF_W, by_W, across)
    at = sums + chunk * sums_row + cols
    tl.store(at, tl.sum(total_d, axis=0), mask=width)
    if stats is not None:
        tl.store(at + WIDTH, tl.sum(total_U, axis=0), mask=width)
        tl.store(at + 2 * WIDTH, tl.sum(total_V, axis=0), mask=width)
        tl.store(at + 3 * WIDTH, tl.sum(total_W, axis=0), mask=width)


@triton.jit
def apply_gain(
    p,  # (4H, WIDTH) float32: P, replaced by gain · P - means
    matrix, gain, means,
    sums,  # (4H,) Σ d · gate · mean / deviation
    d_gain,  # output (4H,)
    GATES: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the gain, and that of the matrix without its last term, from P.

    The last term is a matrix product, which the caller adds; see :mod:`hmrnn.ops.cuda.gradients`.
    """
    j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    across = j < GATES
    mask = across[:, None] & (cols < WIDTH)[None, :]
    at = j[:, None] * WIDTH + cols[None, :]
    value = load(p, at, mask)
    total = tl.sum(value * load(matrix, at, mask), axis=1) - load(sums, j, across)
    tl.store(d_gain + j, total, mask=across)
    value = load(gain, j, across)[:, None] * value - load(means, cols, cols < WIDTH)[None, :]
    tl.store(p + at, value, mask=mask)
