# mypy: allow-untyped-defs
"""The Triton kernels of the cuda engine's backward pass; see :mod:`hmrnn.ops.kernels`."""

import triton
import triton.language as tl

from hmrnn.ops.kernels import STATS, load, load4, row_below, sigmoid, store4, tanh


@triton.jit
def _standardised(row, stats, cols, mask, H: tl.constexpr):
    """A contribution minus its mean, over its deviation, by the moments the forward pass kept."""
    mean, scale = tl.load(stats), tl.load(stats + 1)
    f, i, o, g = load4(row, cols, mask, H)
    return (f - mean) * scale, (i - mean) * scale, (o - mean) * scale, (g - mean) * scale


@triton.jit
def _add_standardised(f, i, o, g, row, gain, gate, stats, cols, mask, H: tl.constexpr):
    """As _add_normalised, by the moments the forward pass kept."""
    pf, pi, po, pg = _standardised(row, stats, cols, mask, H)
    gf, gi, go, gg = load4(gain, cols, mask, H)
    return f + gate * pf * gf, i + gate * pi * gi, o + gate * po * go, g + gate * pg * gg


@triton.jit
def _store_unnormalised(
    out, df, di, do, dg, ds_z, row, gain, gate, stats, Z: tl.constexpr, cols, mask, H: tl.constexpr
):
    """Layer norm backwards: writes the gradient of one contribution, gives the gradient of ``gate``'s gate rows."""
    xf, xi, xo, xg = _standardised(row, stats, cols, mask, H)
    gf, gi, go, gg = load4(gain, cols, mask, H)
    df, di, do, dg = df * gf, di * gi, do * go, dg * gg
    mean = tl.sum(df + di + do + dg) / (4 * H)
    along = tl.sum(df * xf + di * xi + do * xo + dg * xg)
    scale = tl.load(stats + 1) * gate
    k = along / (4 * H)
    df, di = scale * (df - mean - xf * k), scale * (di - mean - xi * k)
    do, dg = scale * (do - mean - xo * k), scale * (dg - mean - xg * k)
    store4(out, df, di, do, dg, cols, mask, H)
    if Z:
        tl.store(out + 4 * H, (gate * ds_z))
    return along


@triton.jit(do_not_specialize=["t", "r"])
def cell_backward(
    t,
    r,  # the row of ds for this step
    B,
    own, own_row, own_step, above, above_row, above_step, below, below_row, below_step, index,  # with layer norm only
    s, s_row,  # without layer norm only
    ds, ds_slot, ds_row,  # (slots, ·, B, ·) gradients of the contributions U, V, W; one slot without layer norm
    raw, raw_row,  # (·, B, ·) with layer norm: the gradient of their sum
    d_squashed,  # (·, B, H) with layer norm: the gradient of what tanh is given
    bias, gain_U, gain_V, gain_W, gain_c, bias_c,
    slope, noise, forced, lengths,
    h, c_log, z, s_z, probability, dot_above, dot_below, stats,
    d_hidden,  # (T, B, H)
    d_boundaries, d_probabilities, d_forced,  # (T, B, D)
    via_U, via_U_row,  # (B, ·) what h gets back from this layer one step later,
    via_V, via_V_row,  # from the layer below one step later,
    via_W, via_W_row,  # and from the layer above now
    d_h, d_c,  # (B, H) float32, carried from step to step
    d_before,  # (B, D) float32: of z, from this layer one step later
    d_now,  # (B, D) float32: of z, from the layer above now
    H: tl.constexpr,
    LAYER: tl.constexpr,
    D: tl.constexpr,
    SOFT: tl.constexpr,
    HOLD: tl.constexpr,
    STRAIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of cell_forward, given that of everything that used its h, c and z."""
    NORM: tl.constexpr = gain_U is not None
    b = tl.program_id(0)
    step = t.to(tl.int64)
    row = step * B + b
    log = r.to(tl.int64) * B + b
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    zp = 0.0
    if LAYER < D:
        zp = tl.load(z + row * D + LAYER)
    zb = 1.0
    if LAYER > 0:
        zb = tl.load(z + (row + B) * D + LAYER - 1)
    alpha, beta, gamma = zp + (1 - zp) * zb, (1 - zp) * zb, (1 - zp) * (1 - zb)

    # the gates again, from what the forward pass kept
    if NORM:
        at = stats + row * STATS
        own_at = own + step * own_step + b * own_row
        above_at = above
        if LAYER < D:
            above_at = above + step * above_step + b * above_row
        below_at = row_below(below, below_row, below_step, index, step, b, B, LAYER)
        f, i, o, g = load4(bias, cols, mask, H)
        f, i, o, g = _add_standardised(f, i, o, g, own_at, gain_U, 1.0, at, cols, mask, H)
        if LAYER < D:
            f, i, o, g = _add_standardised(f, i, o, g, above_at, gain_V, zp, at + 2, cols, mask, H)
        f, i, o, g = _add_standardised(f, i, o, g, below_at, gain_W, zb, at + 4, cols, mask, H)
    else:
        f, i, o, g = load4(s + row * s_row, cols, mask, H)
    f, i, o, g = sigmoid(f), sigmoid(i), sigmoid(o), tanh(g)
    c_old = load(c_log + row * H, cols, mask)
    h_old = load(h + row * H, cols, mask)
    c_new = alpha * i * g + (beta * f + gamma) * c_old
    if gain_c is not None:
        scale_c = tl.load(stats + row * STATS + 7)
        x_c = (c_new - tl.load(stats + row * STATS + 6)) * scale_c
        squashed = tanh(x_c * load(gain_c, cols, mask) + load(bias_c, cols, mask))
    else:
        squashed = tanh(c_new)

    # everything that used h and z
    live = b >= 0
    if lengths is not None:
        live = t < tl.load(lengths + b)
    dh = load(d_h + b * H, cols, mask) + load(via_U + b * via_U_row, cols, mask)
    dh += tl.where(live, load(d_hidden + row * H, cols, mask), 0.0)
    dc = load(d_c + b * H, cols, mask)
    h_new = h_old
    if not NORM:
        h_new = load(h + (row + B) * H, cols, mask)
    from_V = 0.0  # of z of the layer below, through V there one step later
    if LAYER > 0:
        via = load(via_V + b * via_V_row, cols, mask)
        if NORM:
            dh += via
        else:
            dh += zb * via
            from_V = tl.sum(via * h_new)
    dz = 0.0
    if LAYER < D:
        at_z = row * D + LAYER
        z_new = tl.load(z + at_z + B * D)
        dz = tl.load(d_before + b * D + LAYER) + tl.load(d_now + b * D + LAYER)
        dz += tl.where(live, tl.load(d_boundaries + at_z), 0.0)
        via = load(via_W + b * via_W_row, cols, mask)
        if NORM:
            dh += via
        else:
            dh += z_new * via
            dz += tl.sum(via * h_new)

    # the boundary
    ds_z = 0.0
    d_alpha = 0.0
    if LAYER < D:
        p = tl.load(probability + at_z)
        used = dz
        if forced is not None:
            given = tl.load(forced + at_z)
            if not STRAIGHT:
                used = tl.where(given == given, 0.0, dz)
                tl.store(d_forced + at_z, tl.where(live, dz - used, 0.0))
        if HOLD:
            decided = p
            if not SOFT:
                threshold = 0.5
                if noise is not None:
                    threshold = tl.load(noise + at_z)
                decided = tl.where(p > threshold, 1.0, 0.0)
            d_alpha = used * decided
            used = used * alpha
        a = tl.load(slope)
        linear = (a * tl.load(s_z + at_z) + 1) / 2
        inside = (linear >= 0.0) & (linear <= 1.0) & live
        ds_z = tl.where(inside, (used + tl.load(d_probabilities + at_z)) * a / 2, 0.0)

    # the cell and its gates
    d_out = alpha * dh
    d_c_new = d_out * o * (1 - squashed * squashed)
    if gain_c is not None:
        tl.store(d_squashed + log * H + cols, tl.where(live, d_c_new, 0.0), mask=mask)
        d_x = d_c_new * load(gain_c, cols, mask)
        d_c_new = scale_c * (d_x - tl.sum(d_x) / H - x_c * (tl.sum(d_x * x_c) / H))
    d_c_new = tl.where(mask, d_c_new + dc, 0.0)
    by_alpha = d_c_new * i * g + dh * o * squashed
    by_beta = d_c_new * f * c_old
    by_gamma = d_c_new * c_old + dh * h_old
    d_zp = tl.sum((1 - zb) * (by_alpha - by_gamma) - zb * by_beta) + (1 - zb) * d_alpha
    d_zb = (1 - zp) * (tl.sum(by_alpha + by_beta - by_gamma) + d_alpha)
    df = tl.where(live, beta * d_c_new * c_old * f * (1 - f), 0.0)
    di = tl.where(live, alpha * d_c_new * g * i * (1 - i), 0.0)
    do = tl.where(live, d_out * squashed * o * (1 - o), 0.0)
    dg = tl.where(live, alpha * d_c_new * i * (1 - g * g), 0.0)

    # the contributions
    Z: tl.constexpr = LAYER < D
    out = ds + log * ds_row
    tl.debug_barrier()  # ds may lie where s was, and d_h, d_c, d_before are changed in place
    if NORM:
        store4(raw + log * raw_row, df, di, do, dg, cols, mask, H)
        if Z:
            tl.store(raw + log * raw_row + 4 * H, ds_z)
        _store_unnormalised(out, df, di, do, dg, ds_z, own_at, gain_U, 1.0, at, Z, cols, mask, H)
        out += ds_slot
        if LAYER < D:
            along = _store_unnormalised(out, df, di, do, dg, ds_z, above_at, gain_V, zp, at + 2, Z, cols, mask, H)
            d_zp += along + ds_z * tl.load(dot_above + row * D + LAYER)
            out += ds_slot
        along = _store_unnormalised(out, df, di, do, dg, ds_z, below_at, gain_W, zb, at + 4, Z, cols, mask, H)
        if LAYER > 0:
            d_zb += along
            if LAYER < D:
                d_zb += ds_z * tl.load(dot_below + row * D + LAYER)
    else:
        store4(out, df, di, do, dg, cols, mask, H)
        if Z:
            tl.store(out + 4 * H, ds_z)
    tl.store(d_c + b * H + cols, tl.where(live, d_c_new * (beta * f + gamma), dc), mask=mask)
    tl.store(d_h + b * H + cols, tl.where(live, gamma * dh, dh), mask=mask)
    if LAYER < D:
        tl.store(d_before + b * D + LAYER, tl.where(live, d_zp, dz))
    if LAYER > 0:
        tl.store(d_now + b * D + LAYER - 1, tl.where(live, d_zb, 0.0) + from_V)


@triton.jit
def finish(
    h, z, via_U, via_U_row, via_V, via_V_row, d_h, d_now,
    H: tl.constexpr, LAYER: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the state before the first step, from what the first step used of it."""
    b = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    dh = load(d_h + b * H, cols, mask) + load(via_U + b * via_U_row, cols, mask)
    if LAYER > 0:
        via = load(via_V + b * via_V_row, cols, mask)
        from_V = 0.0
        if NORM:
            dh += via
        else:
            dh += tl.load(z + b * D + LAYER - 1) * via
            from_V = tl.sum(via * load(h + b * H, cols, mask))
        tl.store(d_now + b * D + LAYER - 1, from_V)
    tl.debug_barrier()
    tl.store(d_h + b * H + cols, dh, mask=mask)


@triton.jit
def _add_columns(total, d, p, p_row, rows, stats, gate, cols, keep, across):
    """Adds the sum over rows of d·gate·x̂ to ``total``, x̂ standardised by the kept moments."""
    x = tl.load(p + rows[:, None] * p_row + cols[None, :], mask=keep, other=0.0).to(tl.float32)
    mean = tl.load(stats, mask=across, other=0.0)
    weight = tl.load(stats + 1, mask=across, other=0.0)
    if gate is not None:
        weight = weight * tl.load(gate, mask=across, other=0.0)
    return total + tl.sum(tl.where(keep, d * (x - mean[:, None]) * weight[:, None], 0.0), axis=0)


@triton.jit
def column_sums(
    total,  # (chunks, 4, WIDTH) float32, added to: of d, and of d times the standardised contributions p_0, p_1, p_2
    d, d_row,
    rows, first,  # rows of d, and which row of everything else its first one is
    p_0, p_0_row, p_1, p_1_row, p_2, p_2_row,
    index,  # which row of p_2; None for the same
    stats,
    gate_1, gate_2, gate_step,
    WIDTH: tl.constexpr, GATES: tl.constexpr,  # columns of d, and how many of them p has
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of a bias and of layer-norm gains: sums over time and batch, each chunk of rows on its own."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chunk = tl.program_id(1)
    share = tl.cdiv(rows, tl.num_programs(1))
    width = cols < WIDTH
    at = total + chunk * 4 * WIDTH + cols
    sum_d = tl.load(at, mask=width, other=0.0)
    sum_0 = tl.load(at + WIDTH, mask=width, other=0.0)
    sum_1 = tl.load(at + 2 * WIDTH, mask=width, other=0.0)
    sum_2 = tl.load(at + 3 * WIDTH, mask=width, other=0.0)
    end = tl.minimum((chunk + 1) * share, rows)
    for begin in range(chunk * share, end, ROWS):
        r = (begin + tl.arange(0, ROWS)).to(tl.int64)
        across = r < end
        value = tl.load(d + r[:, None] * d_row + cols[None, :], mask=across[:, None] & width[None, :], other=0.0)
        value = value.to(tl.float32)
        keep = across[:, None] & (cols < GATES)[None, :]
        sum_d += tl.sum(value, axis=0)
        q = r + first
        moments = stats + q * STATS
        sum_0 = _add_columns(sum_0, value, p_0, p_0_row, q, moments, None, cols, keep, across)
        if p_1 is not None:
            gate = gate_1 + q * gate_step
            sum_1 = _add_columns(sum_1, value, p_1, p_1_row, q, moments + 2, gate, cols, keep, across)
        if p_2 is not None:
            gate = gate_2
            if gate_2 is not None:
                gate = gate_2 + q * gate_step
            source = q
            if index is not None:
                source = tl.load(index + q, mask=across, other=0).to(tl.int64)
            sum_2 = _add_columns(sum_2, value, p_2, p_2_row, source, moments + 4, gate, cols, keep, across)
    tl.store(at, sum_d, mask=width)
    tl.store(at + WIDTH, sum_0, mask=width)
    tl.store(at + 2 * WIDTH, sum_1, mask=width)
    tl.store(at + 3 * WIDTH, sum_2, mask=width)
