# mypy: allow-untyped-defs
"""The Triton kernels that leave out rows that copy: lists of rows, and products over them; see rows.py.

How many rows a list has is read on the device, so that a captured graph serves any boundary rates. The programs of a
product share its tiles in turn; those that find none do nothing.
"""

import triton
import triton.language as tl

from hmrnn.ops.cuda.kernels_common import boundary, shares


@triton.jit
def _list(step, B, b, moved, reads, rows, counts):
    """List the rows that move at a step, first those that read the layer above; returns their places in the list."""
    first, later = reads.to(tl.int32), (moved & ~reads).to(tl.int32)
    n_first, n = tl.sum(first, axis=0), tl.sum(moved.to(tl.int32), axis=0)
    rank = tl.where(reads, tl.cumsum(first, axis=0), n_first + tl.cumsum(later, axis=0)) - 1
    tl.store(rows + step * B + rank, b, mask=moved)
    tl.store(counts + 2 * step, n)
    tl.store(counts + 2 * step + 1, n_first)
    return rank, n


@triton.jit(do_not_specialize=["t", "room"])
def detect(
    t,
    B,
    bias, slope, noise, forced, lengths, z, gate, s_z, probability, dot_own, dot_above, dot_below,  # as in cell_forward
    above,  # None without top-down input
    rows,  # output (T, B): the rows that move in the layer above at step t, first those that read the layer above it
    counts,  # output (T, 2): how many move, and how many of them read
    base,  # (T+1,) output: events of the layer above before each step
    event,  # (T+2, B) output: the row in the log of the layer above that is valid before each step
    place, room,  # (room,) output: t · B + b of each event; None and 0: the log has only one row per sequence
    H: tl.constexpr,
    LAYER: tl.constexpr,
    D: tl.constexpr,
    SOFT: tl.constexpr,
    HOLD: tl.constexpr,
    FLUSH: tl.constexpr,
    PENDING: tl.constexpr,
    READS_ABOVE: tl.constexpr,  # whether the layer above has top-down input
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the boundaries of layer LAYER at step t; list the rows that then move in the layer above. One program."""
    step = t.to(tl.int64)
    b = tl.arange(0, BLOCK)
    inside = b < B
    at = step * B + b
    at_z = at * D + LAYER
    zp = tl.load(z + at_z, mask=inside, other=0.0)
    zb = tl.full((BLOCK,), 1.0, tl.float32)
    if LAYER > 0:
        zb = tl.load(z + at_z + B * D - 1, mask=inside, other=0.0)
    pre = tl.load(dot_own + at_z, mask=inside, other=0.0) + tl.load(bias + 4 * H)
    pre += zb * tl.load(dot_below + at_z, mask=inside, other=0.0)
    gate_V = tl.full((BLOCK,), 1.0, tl.float32)
    if above is not None:
        if gate is not None:
            gate_V = tl.load(gate + at_z, mask=inside, other=0.0)
        pre += gate_V * tl.load(dot_above + at_z, mask=inside, other=0.0)
    alpha, _, _ = shares(zp, zb, FLUSH)
    z_new = boundary(
        pre, zp, zb, alpha, gate_V, t, b, inside, slope, noise, forced, lengths, z, gate, s_z, probability, at_z,
        B * D, SOFT, HOLD, PENDING,
    )  # fmt: skip

    zp_above = tl.zeros((BLOCK,), tl.float32)
    if LAYER + 1 < D:
        zp_above = tl.load(z + at_z + 1, mask=inside, other=0.0)
    alpha, _, _ = shares(zp_above, z_new, FLUSH)
    moved = inside & (alpha != 0.0)
    reads = moved & READS_ABOVE
    if READS_ABOVE and gate is not None:
        reads = moved & (tl.load(gate + at_z + 1, mask=inside, other=0.0) != 0.0)
    rank, n = _list(step, B, b, moved, reads, rows, counts)
    index = b
    if place is not None:
        begin = tl.load(base + step)
        tl.store(base + step + 1, begin + n)
        fits = begin + rank < room
        tl.store(place + begin + rank, at.to(tl.int32), mask=moved & fits)
        index = tl.where(fits, B + begin + rank, b)  # the first B rows of the log are those of the initial state
    before = tl.load(event + at, mask=inside, other=0)
    tl.store(event + at + B, tl.where(moved, index, before), mask=inside)


@triton.jit
def list_rows(B, gate, rows, counts, D: tl.constexpr, TOP_DOWN: tl.constexpr, BLOCK: tl.constexpr):
    """List the rows of the first layer, all of which move, as detect does; one program per step."""
    step = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, BLOCK)
    moved = b < B
    reads = moved & TOP_DOWN
    if TOP_DOWN and gate is not None:
        reads = moved & (tl.load(gate + (step * B + b) * D, mask=moved, other=0.0) != 0.0)
    _list(step, B, b, moved, reads, rows, counts)


@triton.jit
def list_readers(
    B, rows, counts,
    ends,  # (T,) readers up to and with step t
    event,
    place, log,  # output (T · B,): t · B + b of each reader, and its row in the log of gradients
    BLOCK: tl.constexpr,
):  # fmt: skip
    """List the rows that read the layer above, of all steps; one program per step."""
    step = tl.program_id(0)
    n = tl.load(counts + 2 * step + 1)
    begin = tl.load(ends + step) - n
    i = tl.arange(0, BLOCK)
    at = step.to(tl.int64) * B
    b = tl.load(rows + at + i, mask=i < n, other=0)
    tl.store(place + begin + i, (at + b).to(tl.int32), mask=i < n)
    if event is not None:
        tl.store(log + begin + i, tl.load(event + at + B + b, mask=i < n, other=0), mask=i < n)


@triton.jit(do_not_specialize=["t", "room"])
def multiply_rows(
    t, B,
    rows, counts,  # the list of rows; None: all rows
    base, room,  # events before each step, whose rows in the log are in the order of the list, and how many fit in;
    # the others, and all if base is None, have row b
    left, left_step, left_row, left_part,  # (PARTS, ·, K) at step t; by row, or by row of the log if LEFT_LOGGED
    matrix, matrix_row, matrix_column, matrix_part,  # (PARTS, K, N)
    out, out_row, out_part,  # (PARTS, ·, N); by row, or by row of the log if OUT_LOGGED
    K,  # not a constant: otherwise the loop is unrolled, and instructions that run once are slow to fetch
    N: tl.constexpr, PARTS: tl.constexpr, EVEN: tl.constexpr,  # whether K is a multiple of BK
    READERS: tl.constexpr,  # whether to leave out rows that do not read the layer above
    LEFT_LOGGED: tl.constexpr, OUT_LOGGED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out[part, row] = left[part, row] @ matrix[part] for the rows in the list of step t."""
    SWAPPED: tl.constexpr = BM < 64 and BN >= 64  # tensor cores of an H100 or H200 take 64 rows of the left operand
    n, first = B, 0
    if rows is not None:
        n = tl.load(counts + 2 * t + READERS)
    if (LEFT_LOGGED or OUT_LOGGED) and base is not None:
        first = B + tl.load(base + t)
    across, along = tl.cdiv(n, BM), tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), across * along * PARTS, tl.num_programs(0)):
        slot = (tile % across) * BM + tl.arange(0, BM)
        cols = (tile // across % along) * BN + tl.arange(0, BN)
        part = tile // (across * along)
        row = slot
        if rows is not None:  # loaded without waiting for n
            row = tl.load(rows + t.to(tl.int64) * B + slot, mask=slot < B, other=0)
        row = tl.where(slot < n, row, 0)
        logged = row
        if base is not None:
            logged = first + tl.minimum(slot, n - 1)
            logged = tl.where(logged < B + room, logged, row)
        at, into = row, row
        if LEFT_LOGGED:
            at = logged
        if OUT_LOGGED:
            into = logged
        k = tl.arange(0, BK)
        a = left + t.to(tl.int64) * left_step + part.to(tl.int64) * left_part
        a = a + at.to(tl.int64)[:, None] * left_row + k[None, :]
        m = matrix + part.to(tl.int64) * matrix_part
        if N % BN == 0:
            m = m + k[:, None] * matrix_row + cols[None, :] * matrix_column
        else:  # what lies beyond is not stored
            m = m + k[:, None] * matrix_row + (cols % N)[None, :] * matrix_column
        total = tl.zeros((BN, BM) if SWAPPED else (BM, BN), tl.float32)
        for done in range(0, K, BK):
            if EVEN:
                x, y = tl.load(a), tl.load(m)
            else:
                x = tl.load(a, mask=(done + k < K)[None, :], other=0.0)
                y = tl.load(m, mask=(done + k < K)[:, None], other=0.0)
            if SWAPPED:
                total = tl.dot(tl.trans(y), tl.trans(x), total, input_precision=PRECISION)
            else:
                total = tl.dot(x, y, total, input_precision=PRECISION)
            a += BK
            m += BK * matrix_row
        if SWAPPED:
            total = tl.trans(total)
        o = out + part.to(tl.int64) * out_part + into.to(tl.int64)[:, None] * out_row + cols[None, :]
        tl.store(o, total.to(out.dtype.element_ty), mask=(slot < n)[:, None] & (cols < N)[None, :])


@triton.jit
def sum_products(
    left, left_row, left_index,  # (·, M)
    right, right_row, right_index,  # (·, N)
    total,  # number of products, on the device
    out, out_row,  # (M, N) float32
    M: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = Σ left[left_index[i]] ⊗ right[right_index[i]] over i < total; indices None: left[i] ⊗ right[i]."""
    n = tl.load(total)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    at_M, at_N = rows, cols
    if M % BM != 0:
        at_M = rows % M
    if N % BN != 0:
        at_N = cols % N
    result = tl.zeros((BM, BN), tl.float32)
    for first in range(0, n, BK):
        i = first + tl.arange(0, BK)
        inside = i < n
        l, r = i, i
        if left_index is not None:
            l = tl.load(left_index + i, mask=inside, other=0)
            r = tl.load(right_index + i, mask=inside, other=0)
        x = tl.load(left + l.to(tl.int64)[None, :] * left_row + at_M[:, None], mask=inside[None, :], other=0.0)
        y = tl.load(right + r.to(tl.int64)[:, None] * right_row + at_N[None, :], mask=inside[:, None], other=0.0)
        result = tl.dot(x, y, result, input_precision=PRECISION)
    into = out + rows.to(tl.int64)[:, None] * out_row + cols[None, :]
    tl.store(into, result, mask=(rows < M)[:, None] & (cols < N)[None, :])
