# mypy: allow-untyped-defs
"""The Triton kernels of the cuda engine's forward pass: everything in a step except its matrix products.

One program handles one row of the batch over the whole width of a layer. So the sums of layer norm, of the detector and
of the gradient of z need no atomics, and results are the same bits every time. Arithmetic is float32 for any storage
dtype. Pointers are to the start of a buffer and ``t`` selects the step, so a kernel is compiled once per layer.
"""

import triton
import triton.language as tl

from hmrnn.ops.cuda.kernels_common import (
    EPS,
    OF_C,
    STATS,
    boundary,
    gelu_share,
    load,
    load4,
    row_below,
    share_kept,
    shares,
    sigmoid,
    store4,
    store_dot,
    sum2,
    sum3,
    tanh,
)
from hmrnn.ops.cuda.kernels_norm import normalised


def block(width: int) -> dict[str, int]:
    """The launch arguments of a kernel whose programs are ``width`` wide."""
    size = triton.next_power_of_2(width)
    per_thread = 2 if size <= 512 else 4  # narrow programs are faster with more threads
    return {"BLOCK": size, "num_warps": min(max(size // (32 * per_thread), 1), 16)}


@triton.jit
def _store_dots(
    h_new, row_u, row_v, row_w, dot_own, dot_above, dot_below, row, B, LAYER: tl.constexpr, D: tl.constexpr
):
    """Store the products of h with the rows of this layer's detector and of its neighbours'."""
    at_z = row * D + LAYER
    if LAYER < D:
        if row_u is not None:
            for_own = h_new * row_u
            if row_v is not None:
                for_below = h_new * row_v
                if row_w is not None:
                    for_own, for_below, for_above = sum3(for_own, for_below, h_new * row_w)
                    tl.store(dot_below + at_z + 1, for_above)
                else:
                    for_own, for_below = sum2(for_own, for_below)
                tl.store(dot_above + at_z + B * D - 1, for_below)
            elif row_w is not None:
                for_own, for_above = sum2(for_own, h_new * row_w)
                tl.store(dot_below + at_z + 1, for_above)
            else:
                for_own = tl.sum(for_own)
            tl.store(dot_own + at_z + B * D, for_own)
    elif row_v is not None:
        tl.store(dot_above + (row + B) * D + LAYER - 1, tl.sum(h_new * row_v))


@triton.jit(do_not_specialize=["t"])
def cell_forward(
    t,
    B,
    own, own_row, own_step,  # (·, B, ·) U·h of this layer, one step ago
    above, above_row, above_step,  # V·h of the layer above, one step ago; None without top-down input
    below, below_row, below_step,  # W·h of the layer below, now; in the first layer W·x, or a table for symbols
    index,  # (T, B) the row of that table
    bias, gain_U, gain_V, gain_W, gain_c, bias_c,
    slope, noise, forced, lengths,
    kept,  # (T, B, H) zoneout: 1 for units that keep their c; None: all keep the share ZONEOUT
    seen,  # (B, H) factors of h for the gates of the layer above; None: all 1
    h_seen,  # (B, H) output: h · seen
    h,  # (T+1, B, H): step t reads row t
    hidden,  # (T, B, H) output: h after each step, rows 1 to T of ``h``
    c,  # (2, B, H) float32: step t reads c[t % 2] and writes the other
    c_log,  # as h
    s, s_row,  # (T, B, ·) log of the gates' pre-activations for the backward pass
    z,  # (T+1, B, D)
    gate,  # (T+1, B, D) of the top-down input: z itself, or pending gates; None: always open
    s_z, probability,  # (T, B, D)
    dot_own, dot_above, dot_below,  # (T+1, B, D) the products of the detectors' rows with h, h above and h below
    u_z, v_z, w_z,  # the detectors' rows that read this h: of this layer, the layer below and the layer above
    stats,  # (T, B, STATS)
    units_own, units_above,  # of a detector with a hidden layer: the products of D1, beside those of U and V,
    units_below, units_below_row, units_below_step,  # and W
    d1, D2, d2,
    unit_log,  # (T, B, UNITS) output: the hidden layer before gelu
    H: tl.constexpr,
    LAYER: tl.constexpr,
    D: tl.constexpr,  # detectors, one less than layers
    UNITS: tl.constexpr,
    UNIT_BLOCK: tl.constexpr,
    SOFT: tl.constexpr,
    HOLD: tl.constexpr,
    FLUSH: tl.constexpr,
    COPY: tl.constexpr,
    PENDING: tl.constexpr,
    ZONEOUT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Equations 2-9 for layer LAYER at step t, from the three contributions."""
    b = tl.program_id(0)
    step = t.to(tl.int64)
    row = step * B + b
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    zp = 0.0
    if LAYER < D:
        zp = tl.load(z + row * D + LAYER)
    zb = 1.0
    if LAYER > 0 and COPY:
        zb = tl.load(z + (row + B) * D + LAYER - 1)
    alpha, beta, gamma = shares(zp, zb, FLUSH)

    # (5)-(7): where the three contributions are
    own_at = own + (step * own_step + b * own_row)
    above_at = above
    gate_V = 1.0
    if above is not None:
        above_at = above + (step * above_step + b * above_row)
        if gate is not None:
            gate_V = tl.load(gate + row * D + LAYER)
    below_at = row_below(below, below_row, below_step, index, step, b, B, LAYER)

    # (4): the gates; everything is loaded before the first store, to wait for memory once
    c_old = load(c + ((step % 2) * B + b) * H, cols, mask)
    h_old = load(h + row * H, cols, mask)
    row_u, row_v, row_w = u_z, v_z, w_z
    if u_z is not None:
        row_u = load(u_z, cols, mask)
    if v_z is not None:
        row_v = load(v_z, cols, mask)
    if w_z is not None:
        row_w = load(w_z, cols, mask)
    if gain_U is None:
        f, i, o, g = load4(bias, cols, mask, H)
        pf, pi, po, pg = load4(own_at, cols, mask, H)
        f, i, o, g = f + pf, i + pi, o + po, g + pg
        if above is not None:
            pf, pi, po, pg = load4(above_at, cols, mask, H)
            f, i, o, g = f + gate_V * pf, i + gate_V * pi, o + gate_V * po, g + gate_V * pg
        pf, pi, po, pg = load4(below_at, cols, mask, H)
        f, i, o, g = f + zb * pf, i + zb * pi, o + zb * po, g + zb * pg

    # (8), (9): the boundary
    at_z = row * D + LAYER
    if LAYER < D:
        if D2 is not None:
            k = tl.arange(0, UNIT_BLOCK)
            some = k < UNITS
            units = load(d1, k, some) + load(units_own + step * own_step + b * own_row, k, some)
            units_at = row_below(units_below, units_below_row, units_below_step, index, step, b, B, LAYER)
            units += zb * load(units_at, k, some)
            if above is not None:
                units += gate_V * load(units_above + step * above_step + b * above_row, k, some)
            if unit_log is not None:
                tl.store(unit_log + row * UNITS + k, units, mask=some)
            pre = tl.sum(units * gelu_share(units) * load(D2, k, some)) + tl.load(d2)
        else:
            pre = tl.load(dot_own + at_z) + tl.load(bias + 4 * H)
            pre += zb * tl.load(dot_below + at_z)
            if above is not None:
                pre += gate_V * tl.load(dot_above + at_z)
        boundary(
            pre, zp, zb, alpha, gate_V, t, b, slope, noise, forced, lengths, z, gate, s_z, probability, at_z,
            B * D, SOFT, HOLD, PENDING,
        )  # fmt: skip

    if gain_U is not None:
        f, i, o, g = normalised(
            own_at, above_at, below_at, bias, gain_U, gain_V, gain_W, gate_V, zb, stats, row, cols, mask, H
        )
    elif s is not None:
        tl.debug_barrier()  # s may overwrite W·x or W·h
        store4(s + row * s_row, f, i, o, g, H, 2 * H, cols, mask)
    f, i, o, g = sigmoid(f), sigmoid(i), sigmoid(o), tanh(g)

    # (2), (3): the choice of operation, as a polynomial
    c_new = alpha * i * g + (beta * f + gamma) * c_old
    share = share_kept(kept, row, cols, mask, H, ZONEOUT)
    c_new = share * c_old + (1 - share) * c_new
    squashed = c_new
    if gain_c is not None:
        mean = tl.sum(c_new) / H
        scale = 1.0 / tl.sqrt(tl.sum(tl.where(mask, (c_new - mean) * (c_new - mean), 0.0)) / H + EPS)
        if stats is not None:
            tl.store(stats + row * STATS + OF_C, mean)
            tl.store(stats + row * STATS + OF_C + 1, scale)
        squashed = (c_new - mean) * scale * load(gain_c, cols, mask) + load(bias_c, cols, mask)
    h_new = alpha * o * tanh(squashed) + gamma * h_old
    if lengths is not None:  # the state does not change after the end of a sequence
        live = t < tl.load(lengths + b)
        c_new, h_new = tl.where(live, c_new, c_old), tl.where(live, h_new, h_old)
    stored = h_new.to(h.dtype.element_ty)
    h_new = tl.where(mask, stored.to(tl.float32), 0.0)
    tl.store(c + (((step + 1) % 2) * B + b) * H + cols, c_new, mask=mask)
    tl.store(hidden + row * H + cols, h_new, mask=mask)
    if seen is not None:
        tl.store(h_seen + b * H + cols, h_new * load(seen + b * H, cols, mask), mask=mask)
    if c_log is not None:
        tl.store(c_log + (row + B) * H + cols, c_new, mask=mask)
    _store_dots(h_new, row_u, row_v, row_w, dot_own, dot_above, dot_below, row, B, LAYER, D)


@triton.jit
def start(
    c_start, h, c, c_log, dot_own, dot_above, u_z, v_z,
    H: tl.constexpr, LAYER: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Prepare the initial state: copy c, and compute the products of h with the detectors' rows."""
    b = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    cell = load(c_start + b * H, cols, mask)
    tl.store(c + b * H + cols, cell, mask=mask)
    if c_log is not None:
        tl.store(c_log + b * H + cols, cell, mask=mask)
    value = load(h + b * H, cols, mask)
    if u_z is not None:
        store_dot(dot_own + b * D + LAYER, value, u_z, cols, mask)
    if v_z is not None:
        store_dot(dot_above + b * D + LAYER - 1, value, v_z, cols, mask)


@triton.jit
def row_dots(x, weight, out, out_step, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out[r · out_step] = x[r] · weight, summed in float32."""
    r = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    store_dot(out + r * out_step, load(x + r * WIDTH, cols, mask), weight, cols, mask)
