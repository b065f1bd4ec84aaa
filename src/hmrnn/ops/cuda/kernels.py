# mypy: allow-untyped-defs
"""The Triton kernels of the cuda engine's forward pass: everything in a step except its matrix products.

One program handles one row of the batch over the whole width of a layer. So the sums of layer norm, of the detector and
of the gradient of z need no atomics, and results are the same bits every time. Arithmetic is float32 for any storage
dtype. Pointers are to the start of a buffer and ``t`` selects the step, so a kernel is compiled once per layer.
"""

import triton
import triton.language as tl

from hmrnn.ops.cuda import layer as cuda_layer
from hmrnn.ops.reference import LAYER_NORM_EPS

EPS = tl.constexpr(LAYER_NORM_EPS)
STATS, MEANS = tl.constexpr(cuda_layer.STATS), tl.constexpr(cuda_layer.MEANS)
OF_U, OF_V, OF_W, OF_C = (tl.constexpr(cuda_layer.OF_STATS[name]) for name in "UVWc")


def block(width: int, per_thread: int | None = None) -> dict[str, int]:
    """The launch arguments of a kernel whose programs are ``width`` wide."""
    size = triton.next_power_of_2(width)
    if per_thread is None:
        per_thread = 2 if size <= 512 else 4  # narrow programs are faster with more threads
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
    """Store f, i, o and g at the offsets 0, ``one``, ``two`` and ``one + two``."""
    tl.store(row + cols, f, mask=mask)
    tl.store(row + one + cols, i, mask=mask)
    tl.store(row + two + cols, o, mask=mask)
    tl.store(row + one + two + cols, g, mask=mask)


# Several sums in one reduction: the threads of a program synchronise once instead of once per sum.


@triton.jit
def _add2(a, b, c, d):
    return a + c, b + d


@triton.jit
def _add3(a, b, c, d, e, f):
    return a + d, b + e, c + f


@triton.jit
def _add4(a, b, c, d, e, f, g, h):
    return a + e, b + f, c + g, d + h


@triton.jit
def _add6(a, b, c, d, e, f, g, h, i, j, k, l):
    return a + g, b + h, c + i, d + j, e + k, f + l


@triton.jit
def sum2(a, b):
    return tl.reduce((a, b), 0, _add2)


@triton.jit
def sum3(a, b, c):
    return tl.reduce((a, b, c), 0, _add3)


@triton.jit
def sum4(a, b, c, d):
    return tl.reduce((a, b, c, d), 0, _add4)


@triton.jit
def sum6(a, b, c, d, e, f):
    return tl.reduce((a, b, c, d, e, f), 0, _add6)


@triton.jit
def gelu_share(x):
    """The factor of x in gelu(x): the standard normal distribution function."""
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def store_dot(pointer, h, weight, cols, mask):
    """Store the product of h with a detector's row, summed in float32."""
    tl.store(pointer, tl.sum(h * load(weight, cols, mask)))


@triton.jit
def _centred(f, i, o, g, mean, mask):
    """Gates minus their mean; 0 outside the mask."""
    return (
        tl.where(mask, f - mean, 0.0),
        tl.where(mask, i - mean, 0.0),
        tl.where(mask, o - mean, 0.0),
        tl.where(mask, g - mean, 0.0),
    )


@triton.jit
def _scale(squares, H: tl.constexpr):
    """1/deviation of 4H numbers, from the sum of their squared distances from the mean."""
    return 1.0 / tl.sqrt(squares / (4 * H) + EPS)


@triton.jit
def _add_scaled(f, i, o, g, pf, pi, po, pg, scale, gain, cols, mask, H: tl.constexpr):
    """f, i, o, g plus ``scale`` · ``gain`` times a centred contribution."""
    gf, gi, go, gg = load4(gain, cols, mask, H)
    return f + pf * scale * gf, i + pi * scale * gi, o + po * scale * go, g + pg * scale * gg


@triton.jit
def _normalised(
    own, above, below, bias, gain_U, gain_V, gain_W, gate_V, gate_W, stats, row, cols, mask, H: tl.constexpr,
):  # fmt: skip
    """The sum of the bias and the layer-normalised contributions; stores their moments to ``stats``, if given."""
    f, i, o, g = load4(bias, cols, mask, H)
    uf, ui, uo, ug = load4(own, cols, mask, H)
    wf, wi, wo, wg = load4(below, cols, mask, H)
    if above is not None:
        vf, vi, vo, vg = load4(above, cols, mask, H)
        sum_U, sum_V, sum_W = sum3(uf + ui + uo + ug, vf + vi + vo + vg, wf + wi + wo + wg)
        mean_V = sum_V / (4 * H)
        vf, vi, vo, vg = _centred(vf, vi, vo, vg, mean_V, mask)
    else:
        sum_U, sum_W = sum2(uf + ui + uo + ug, wf + wi + wo + wg)
    mean_U, mean_W = sum_U / (4 * H), sum_W / (4 * H)
    uf, ui, uo, ug = _centred(uf, ui, uo, ug, mean_U, mask)
    wf, wi, wo, wg = _centred(wf, wi, wo, wg, mean_W, mask)
    square_U, square_W = uf * uf + ui * ui + uo * uo + ug * ug, wf * wf + wi * wi + wo * wo + wg * wg
    if above is not None:
        squares_U, squares_V, squares_W = sum3(square_U, vf * vf + vi * vi + vo * vo + vg * vg, square_W)
        scale_V = _scale(squares_V, H)
        f, i, o, g = _add_scaled(f, i, o, g, vf, vi, vo, vg, scale_V * gate_V, gain_V, cols, mask, H)
        if stats is not None:
            tl.store(stats + row * STATS + OF_V, mean_V)
            tl.store(stats + row * STATS + OF_V + 1, scale_V)
    else:
        squares_U, squares_W = sum2(square_U, square_W)
    scale_U, scale_W = _scale(squares_U, H), _scale(squares_W, H)
    f, i, o, g = _add_scaled(f, i, o, g, uf, ui, uo, ug, scale_U, gain_U, cols, mask, H)
    if stats is not None:
        tl.store(stats + row * STATS + OF_U, mean_U)
        tl.store(stats + row * STATS + OF_U + 1, scale_U)
        tl.store(stats + row * STATS + OF_W, mean_W)
        tl.store(stats + row * STATS + OF_W + 1, scale_W)
    return _add_scaled(f, i, o, g, wf, wi, wo, wg, scale_W * gate_W, gain_W, cols, mask, H)


@triton.jit
def share_kept(kept, row, cols, mask, H: tl.constexpr, ZONEOUT: tl.constexpr):
    """The share of its old c that each unit keeps: 0 or 1 by the mask ``kept``, or ZONEOUT without a mask."""
    if kept is not None:
        return load(kept + row * H, cols, mask)
    return tl.full(cols.shape, ZONEOUT, tl.float32)


@triton.jit
def shares(zp, zb, FLUSH: tl.constexpr):
    """alpha, beta and gamma: the factors of the operations, given zˡ one step ago (zp) and zˡ⁻¹ (zb)."""
    flush = zp
    if not FLUSH:
        flush = 0.0
    return flush + (1 - flush) * zb, (1 - flush) * zb, (1 - flush) * (1 - zb)


@triton.jit
def row_below(below, below_row, below_step, index, step, b, B, LAYER: tl.constexpr):
    """The address of the contribution from below: W·h of this step; in the first layer W·x or a row of its table."""
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
    above, above_row, above_step,  # V·h of the layer above, one step ago; None without top-down input
    below, below_row, below_step,  # W·h of the layer below, now; in the first layer W·x, or a table for symbols
    index,  # (T, B) the row of that table
    bias, gain_U, gain_V, gain_W, gain_c, bias_c,
    slope, noise, forced, lengths,
    kept,  # (T, B, H) zoneout: 1 for units that keep their c; None: all keep the share ZONEOUT
    seen,  # (B, H) factors of h for the gates of the layer above; None: all 1
    h_seen,  # (B, H) output: h · seen
    h,  # (T+1, B, H): step t reads row t and writes row t+1
    c,  # (2, B, H) float32: step t reads c[t % 2] and writes the other
    c_log,  # (T+1, B, H)
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

    # (4)-(7): the three contributions
    own_at = own + step * own_step + b * own_row
    above_at = above
    gate_V = 1.0
    if above is not None:
        above_at = above + step * above_step + b * above_row
        if gate is not None:
            gate_V = tl.load(gate + row * D + LAYER)
    below_at = row_below(below, below_row, below_step, index, step, b, B, LAYER)
    if gain_U is not None:
        f, i, o, g = _normalised(
            own_at, above_at, below_at, bias, gain_U, gain_V, gain_W, gate_V, zb, stats, row, cols, mask, H
        )
    else:
        f, i, o, g = load4(bias, cols, mask, H)
        pf, pi, po, pg = load4(own_at, cols, mask, H)
        f, i, o, g = f + pf, i + pi, o + po, g + pg
        if above is not None:
            pf, pi, po, pg = load4(above_at, cols, mask, H)
            f, i, o, g = f + gate_V * pf, i + gate_V * pi, o + gate_V * po, g + gate_V * pg
        pf, pi, po, pg = load4(below_at, cols, mask, H)
        f, i, o, g = f + zb * pf, i + zb * pi, o + zb * po, g + zb * pg
        if s is not None:
            tl.debug_barrier()  # s may overwrite W·x
            store4(s + row * s_row, f, i, o, g, H, 2 * H, cols, mask)
    f, i, o, g = sigmoid(f), sigmoid(i), sigmoid(o), tanh(g)

    # (2), (3): the choice of operation, as a polynomial
    alpha, beta, gamma = shares(zp, zb, FLUSH)
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
    tl.store(h + (row + B) * H + cols, stored, mask=mask)
    if seen is not None:
        tl.store(h_seen + b * H + cols, h_new * load(seen + b * H, cols, mask), mask=mask)
    if c_log is not None:
        tl.store(c_log + (row + B) * H + cols, c_new, mask=mask)

    # (8), (9): the boundary
    if LAYER < D:
        at_z = row * D + LAYER
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
        if PENDING:
            gate_new = z_new + (1 - z_new) * (1 - zb) * gate_V
            if lengths is not None:
                gate_new = tl.where(live, gate_new, gate_V)
            tl.store(gate + at_z + B * D, gate_new)
        if lengths is not None:
            z_new = tl.where(live, z_new, zp)
        tl.store(z + at_z + B * D, z_new)
        tl.store(probability + at_z, p)
        tl.store(s_z + at_z, pre)

        # the products of this h with the rows of this detector and of its neighbours
        if u_z is not None:
            for_own = h_new * load(u_z, cols, mask)
            if v_z is not None:
                for_below = h_new * load(v_z, cols, mask)
                if w_z is not None:
                    for_own, for_below, for_above = sum3(for_own, for_below, h_new * load(w_z, cols, mask))
                    tl.store(dot_below + at_z + 1, for_above)
                else:
                    for_own, for_below = sum2(for_own, for_below)
                tl.store(dot_above + at_z + B * D - 1, for_below)
            elif w_z is not None:
                for_own, for_above = sum2(for_own, h_new * load(w_z, cols, mask))
                tl.store(dot_below + at_z + 1, for_above)
            else:
                for_own = tl.sum(for_own)
            tl.store(dot_own + at_z + B * D, for_own)
    elif v_z is not None:
        store_dot(dot_above + (row + B) * D + LAYER - 1, h_new, v_z, cols, mask)


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
