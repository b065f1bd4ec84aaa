# mypy: allow-untyped-defs
"""The Triton kernels that leave out rows that copy: lists of rows, and products over them; see rows.py.

How many rows a list has is read on the device, so that a captured graph serves any boundary rates. The programs of a
product share its tiles in turn; those that find none do nothing.
"""

import triton
import triton.language as tl

from hmrnn.ops.cuda.kernels_common import shares


@triton.jit
def _list(
    step, B, z, gate, rows, counts, base, event, place,
    LAYER: tl.constexpr, D: tl.constexpr, FLUSH: tl.constexpr, TOP_DOWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List the rows in which layer LAYER moves at a step, and give them rows in its log; see list_rows.

    Loads are from L2, as programs of this launch on other multiprocessors may have written z and the gates.
    """
    b = tl.arange(0, BLOCK)
    inside = b < B
    at = step.to(tl.int64) * B + b
    moved = inside
    if LAYER > 0:
        zp = tl.zeros((BLOCK,), tl.float32)
        if LAYER < D:
            zp = tl.load(z + at * D + LAYER, mask=inside, other=0.0, cache_modifier=".cg")
        zb = tl.load(z + (at + B) * D + LAYER - 1, mask=inside, other=0.0, cache_modifier=".cg")
        alpha, _, _ = shares(zp, zb, FLUSH)
        moved = inside & (alpha != 0.0)
    reads = moved & TOP_DOWN
    if TOP_DOWN and gate is not None:
        reads = moved & (tl.load(gate + at * D + LAYER, mask=inside, other=0.0, cache_modifier=".cg") != 0.0)
    first, later = reads.to(tl.int32), (moved & ~reads).to(tl.int32)
    n_first, n = tl.sum(first, axis=0), tl.sum(moved.to(tl.int32), axis=0)
    rank = tl.where(reads, tl.cumsum(first, axis=0), n_first + tl.cumsum(later, axis=0)) - 1
    tl.store(rows + step.to(tl.int64) * B + rank, b, mask=moved)
    tl.store(counts + 2 * step, n)
    tl.store(counts + 2 * step + 1, n_first)
    if event is not None:
        index = b
        if place is not None:
            begin = tl.load(base + step)
            tl.store(base + step + 1, begin + n)
            tl.store(place + begin + rank, at.to(tl.int32), mask=moved)
            index = B + begin + rank  # the first B rows of the log are those of the initial state
        before = tl.load(event + at, mask=inside, other=0)
        tl.store(event + at + B, tl.where(moved, index, before), mask=inside)


@triton.jit
def list_if_last(
    t, B, z, gate,
    arrived,  # number of programs that have stored their z at this step; the last one resets it to 0
    rows, counts, base, event, place,
    LAYER: tl.constexpr, D: tl.constexpr, FLUSH: tl.constexpr, TOP_DOWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List the rows of layer LAYER at step t in the program that is the last to arrive here."""
    tl.debug_barrier()  # the atomic operation publishes what this program has stored
    if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == B - 1:
        tl.store(arrived, 0)
        _list(t, B, z, gate, rows, counts, base, event, place, LAYER, D, FLUSH, TOP_DOWN, BLOCK)


@triton.jit
def list_rows(
    B, z, gate,
    rows,  # output (T, B): the rows that move at step t, first those that read the layer above
    counts,  # output (T, 2): how many move, and how many of them read the layer above
    LAYER: tl.constexpr, D: tl.constexpr, FLUSH: tl.constexpr, TOP_DOWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List the rows in which a layer moves at each step, one program per step.

    With an event log, ``base`` (T+1,) is the number of events before each step, ``event`` (T+2, B) the row in the log
    that is valid before each step, and ``place`` (T · B,) is t · B + b of each event; place is None if the log has
    only one row per sequence.
    """
    _list(tl.program_id(0), B, z, gate, rows, counts, None, None, None, LAYER, D, FLUSH, TOP_DOWN, BLOCK)


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


@triton.jit(do_not_specialize=["t"])
def multiply_rows(
    t, B, rows, counts, event,
    left, left_step, left_row, left_part,  # (PARTS, ·, K) at step t; by row, or by row of the log if LEFT_LOGGED
    matrix, matrix_row, matrix_column, matrix_part,  # (PARTS, K, N)
    out, out_row, out_part,  # (PARTS, ·, N); by row, or by row of the log if OUT_LOGGED
    K: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr,
    READERS_PARTS: tl.constexpr,  # parts and columns that only rows need that read the layer above
    READERS_COLUMNS: tl.constexpr,
    LEFT_LOGGED: tl.constexpr, OUT_LOGGED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out[part, row] = left[part, row] @ matrix[part] for the rows in the list of step t."""
    n, n_readers = tl.load(counts + 2 * t), tl.load(counts + 2 * t + 1)
    if READERS_PARTS == PARTS:
        n = n_readers
    across, along = tl.cdiv(n, BM), tl.cdiv(N, BN)
    listed, in_log = rows + t.to(tl.int64) * B, event
    if LEFT_LOGGED or OUT_LOGGED:
        in_log = event + (t + 1).to(tl.int64) * B
    for tile in range(tl.program_id(0), across * along * PARTS, tl.num_programs(0)):
        slot = (tile % across) * BM + tl.arange(0, BM)
        cols = (tile // across % along) * BN + tl.arange(0, BN)
        part = tile // (across * along)
        bound = n
        if READERS_PARTS < PARTS and READERS_PARTS > 0:
            bound = tl.where(part < READERS_PARTS, n_readers, n)
        if READERS_COLUMNS > 0:
            bound = tl.where((tile // across % along + 1) * BN <= READERS_COLUMNS, n_readers, n)
        if (tile % across) * BM < bound:
            inside = slot < bound
            row = tl.load(listed + slot, mask=inside, other=0)
            logged = row
            if LEFT_LOGGED or OUT_LOGGED:
                logged = tl.load(in_log + row)
            at = logged if LEFT_LOGGED else row
            k = tl.arange(0, BK)
            a = left + t.to(tl.int64) * left_step + part.to(tl.int64) * left_part
            a = a + at.to(tl.int64)[:, None] * left_row + k[None, :]
            m = matrix + part.to(tl.int64) * matrix_part
            if N % BN == 0:
                m = m + k[:, None] * matrix_row + cols[None, :] * matrix_column
            else:  # what lies beyond is not stored
                m = m + k[:, None] * matrix_row + (cols % N)[None, :] * matrix_column
            total = tl.zeros((BM, BN), tl.float32)
            for first in range(0, K, BK):
                if K % BK == 0:
                    x, y = tl.load(a), tl.load(m)
                else:
                    x = tl.load(a, mask=(first + k < K)[None, :], other=0.0)
                    y = tl.load(m, mask=(first + k < K)[:, None], other=0.0)
                total = tl.dot(x, y, total, input_precision=PRECISION)
                a += BK
                m += BK * matrix_row
            into = logged if OUT_LOGGED else row
            o = out + part.to(tl.int64) * out_part + into.to(tl.int64)[:, None] * out_row + cols[None, :]
            tl.store(o, total.to(out.dtype.element_ty), mask=inside[:, None] & (cols < N)[None, :])


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
