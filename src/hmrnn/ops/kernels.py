# mypy: allow-untyped-defs
"""The Triton kernels of the cuda engine: everything of a step but its matrix products.

One program per row of the batch handles the whole width of a layer, so layer norm, the detector and the sums behind the
gradient of z stay inside a program: no atomics, the same bits every time. Whatever the storage, arithmetic is float32.
Pointers are to the start of a buffer and ``t`` picks the step: a kernel is compiled once per layer, not once per step.
"""

import triton
import triton.language as tl

from hmrnn.ops.reference import LAYER_NORM_EPS

EPS = tl.constexpr(LAYER_NORM_EPS)
STATS = tl.constexpr(16)  # per row: mean and 1/deviation of the U, V and W contributions and of c; see MEANS
MEANS = tl.constexpr(8)  # after each of the first three: mean of the gradient d of what was normalised, and of d·x̂


def block(width: int) -> dict[str, int]:
    """The launch arguments of a kernel whose programs are ``width`` wide."""
    size = triton.next_power_of_2(width)
    per_thread = 2 if size <= 512 else 4  # a narrow program is over sooner when more threads share it
    return {"BLOCK": size, "num_warps": min(max(size // (32 * per_thread), 1), 16)}


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def load(pointer, cols, mask):
    return tl.load(pointer + cols, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load4(row, cols, mask, H: tl.constexpr):
    """The slices f, i, o, g of a row of gates."""
    return (
        load(row, cols, mask),
        load(row + H, cols, mask),
        load(row + 2 * H, cols, mask),
        load(row + 3 * H, cols, mask),
    )


@triton.jit
def store4(row, f, i, o, g, one, two, cols, mask):
    """``one`` and ``two`` are how far i and o lie behind f; g lies as far behind o as i behind f."""
    tl.store(row + cols, f, mask=mask)
    tl.store(row + one + cols, i, mask=mask)
    tl.store(row + two + cols, o, mask=mask)
    tl.store(row + one + two + cols, g, mask=mask)


@triton.jit
def store_dot(pointer, h, weight, cols, mask):
    """What a detector gets from h, summed in float32: its row of the matrix never goes through a matrix product."""
    tl.store(pointer, tl.sum(h * load(weight, cols, mask)))


@triton.jit
def _moments(f, i, o, g, mask, H: tl.constexpr):
    mean = tl.sum(f + i + o + g) / (4 * H)
    f, i, o, g = f - mean, i - mean, o - mean, g - mean
    variance = tl.sum(tl.where(mask, f * f + i * i + o * o + g * g, 0.0)) / (4 * H)
    return mean, 1.0 / tl.sqrt(variance + EPS)


@triton.jit
def _add_normalised(f, i, o, g, row, gain, gate, stats, KEEP: tl.constexpr, cols, mask, H: tl.constexpr):
    """f, i, o, g plus ``gate`` times the layer-normalised contribution in ``row``; KEEP stores its moments."""
    pf, pi, po, pg = load4(row, cols, mask, H)
    mean, scale = _moments(pf, pi, po, pg, mask, H)
    if KEEP:
        tl.store(stats, mean)
        tl.store(stats + 1, scale)
    gf, gi, go, gg = load4(gain, cols, mask, H)
    scale = scale * gate
    return (
        f + (pf - mean) * scale * gf,
        i + (pi - mean) * scale * gi,
        o + (po - mean) * scale * go,
        g + (pg - mean) * scale * gg,
    )


@triton.jit
def share_kept(kept, row, cols, mask, H: tl.constexpr, ZONEOUT: tl.constexpr):
    """How much of its old c each unit keeps: all or nothing by the mask ``kept``, or ZONEOUT."""
    if kept is not None:
        return load(kept + row * H, cols, mask)
    return tl.full(cols.shape, ZONEOUT, tl.float32)


@triton.jit
def row_below(below, below_row, below_step, index, step, b, B, LAYER: tl.constexpr):
    """Where the contribution from below lies: W·h of this step, in the first layer W·x or its row of the table."""
    if LAYER > 0:
        at = (step + 1) * below_step + b * below_row
    elif index is not None:
        at = tl.load(index + step * B + b).to(tl.int64) * below_row
    else:
        at = step * below_step + b * below_row
    return below + at


@triton.jit(do_not_specialize=["t"])
def cell_forward(
    t,
    B,
    own, own_row, own_step,  # (·, B, ·) U·h of this layer, one step ago
    above, above_row, above_step,  # V·h of the layer above, one step ago
    below, below_row, below_step,  # W·h of the layer below, now; in the first layer W·x, or a table for symbols
    index,  # (T, B) the row of that table
    bias, gain_U, gain_V, gain_W, gain_c, bias_c,
    slope, noise, forced, lengths,
    kept,  # (T, B, H) zoneout: ones for units that keep their c; if None, all keep the share ZONEOUT
    h,  # (T+1, B, H), row t holds what step t finds
    c,  # (2, B, H) float32, by turns
    c_log,  # (T+1, B, H)
    s, s_row,  # (T, B, ·) pre-activations of the gates, kept for the backward pass
    z,  # (T+1, B, D)
    s_z, probability,  # (T, B, D)
    dot_own, dot_above, dot_below,  # (T+1, B, D) what the detectors get from h, h above and h below
    u_z, v_z, w_z,  # the detectors' rows that read this h: this layer's, the one's below, the one's above
    stats,  # (T, B, 16)
    H: tl.constexpr,
    LAYER: tl.constexpr,
    D: tl.constexpr,  # detectors, one less than layers
    SOFT: tl.constexpr,
    HOLD: tl.constexpr,
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
    if LAYER > 0:
        zb = tl.load(z + (row + B) * D + LAYER - 1)

    # (4)-(7): the three contributions
    own_at = own + step * own_step + b * own_row
    above_at = above
    if LAYER < D:
        above_at = above + step * above_step + b * above_row
    below_at = row_below(below, below_row, below_step, index, step, b, B, LAYER)
    f, i, o, g = load4(bias, cols, mask, H)
    if gain_U is not None:
        KEEP: tl.constexpr = stats is not None
        at = stats
        if KEEP:
            at = stats + row * STATS
        f, i, o, g = _add_normalised(f, i, o, g, own_at, gain_U, 1.0, at, KEEP, cols, mask, H)
        if LAYER < D:
            if KEEP:
                at = at + 2
            f, i, o, g = _add_normalised(f, i, o, g, above_at, gain_V, zp, at, KEEP, cols, mask, H)
        if KEEP:
            at = stats + row * STATS + 4
        f, i, o, g = _add_normalised(f, i, o, g, below_at, gain_W, zb, at, KEEP, cols, mask, H)
    else:
        pf, pi, po, pg = load4(own_at, cols, mask, H)
        f, i, o, g = f + pf, i + pi, o + po, g + pg
        if LAYER < D:
            pf, pi, po, pg = load4(above_at, cols, mask, H)
            f, i, o, g = f + zp * pf, i + zp * pi, o + zp * po, g + zp * pg
        pf, pi, po, pg = load4(below_at, cols, mask, H)
        f, i, o, g = f + zb * pf, i + zb * pi, o + zb * po, g + zb * pg
        if s is not None:
            tl.debug_barrier()  # W·x may lie where s goes
            store4(s + row * s_row, f, i, o, g, H, 2 * H, cols, mask)
    f, i, o, g = sigmoid(f), sigmoid(i), sigmoid(o), tanh(g)

    # (2), (3): the choice of operation, as a polynomial
    alpha, beta, gamma = zp + (1 - zp) * zb, (1 - zp) * zb, (1 - zp) * (1 - zb)
    c_old = load(c + ((step % 2) * B + b) * H, cols, mask)
    h_old = load(h + row * H, cols, mask)
    c_new = alpha * i * g + (beta * f + gamma) * c_old
    share = share_kept(kept, row, cols, mask, H, ZONEOUT)
    c_new = share * c_old + (1 - share) * c_new
    squashed = c_new
    if gain_c is not None:
        mean = tl.sum(c_new) / H
        scale = 1.0 / tl.sqrt(tl.sum(tl.where(mask, (c_new - mean) * (c_new - mean), 0.0)) / H + EPS)
        if stats is not None:
            tl.store(stats + row * STATS + 6, mean)
            tl.store(stats + row * STATS + 7, scale)
        squashed = (c_new - mean) * scale * load(gain_c, cols, mask) + load(bias_c, cols, mask)
    h_new = alpha * o * tanh(squashed) + gamma * h_old
    if lengths is not None:  # past its end a sequence stands still
        live = t < tl.load(lengths + b)
        c_new, h_new = tl.where(live, c_new, c_old), tl.where(live, h_new, h_old)
    stored = h_new.to(h.dtype.element_ty)
    h_new = tl.where(mask, stored.to(tl.float32), 0.0)
    tl.store(c + (((step + 1) % 2) * B + b) * H + cols, c_new, mask=mask)
    tl.store(h + (row + B) * H + cols, stored, mask=mask)
    if c_log is not None:
        tl.store(c_log + (row + B) * H + cols, c_new, mask=mask)

    # (8), (9): the boundary
    if LAYER < D:
        at_z = row * D + LAYER
        pre = tl.load(dot_own + at_z) + tl.load(bias + 4 * H)
        pre += zp * tl.load(dot_above + at_z) + zb * tl.load(dot_below + at_z)
        p = tl.minimum(tl.maximum((tl.load(slope) * pre + 1) / 2, 0.0), 1.0)
        z_new = p
        if not SOFT:
            threshold = 0.5
            if noise is not None:
                threshold = tl.load(noise + at_z)
            z_new = tl.where(p > threshold, 1.0, 0.0)
        if HOLD:
            z_new = alpha * z_new
        if forced is not None:
            given = tl.load(forced + at_z)
            z_new = tl.where(given == given, given, z_new)
        if lengths is not None:
            z_new = tl.where(live, z_new, zp)
        tl.store(z + at_z + B * D, z_new)
        tl.store(probability + at_z, p)
        tl.store(s_z + at_z, pre)
        store_dot(dot_own + at_z + B * D, h_new, u_z, cols, mask)
    if LAYER > 0:
        store_dot(dot_above + (row + B) * D + LAYER - 1, h_new, v_z, cols, mask)
    if LAYER + 1 < D:
        store_dot(dot_below + row * D + LAYER + 1, h_new, w_z, cols, mask)


@triton.jit
def start(
    c_start, h, c, c_log, dot_own, dot_above, u_z, v_z,
    H: tl.constexpr, LAYER: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The state before the first step: c where the first step finds it, and what the detectors get from h."""
    b = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    cell = load(c_start + b * H, cols, mask)
    tl.store(c + b * H + cols, cell, mask=mask)
    if c_log is not None:
        tl.store(c_log + b * H + cols, cell, mask=mask)
    value = load(h + b * H, cols, mask)
    if LAYER < D:
        store_dot(dot_own + b * D + LAYER, value, u_z, cols, mask)
    if LAYER > 0:
        store_dot(dot_above + b * D + LAYER - 1, value, v_z, cols, mask)


@triton.jit
def row_dots(x, weight, out, out_step, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out[r · out_step] = x[r] · weight, summed in float32."""
    r = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    store_dot(out + r * out_step, load(x + r * WIDTH, cols, mask), weight, cols, mask)
