# mypy: allow-untyped-defs
"""The Triton kernels of the cuda engine's backward pass; see :mod:`hmrnn.ops.cuda.kernels`."""

import triton
import triton.language as tl

from hmrnn.ops.cuda.kernels_common import (
    OF_C,
    OF_U,
    OF_V,
    OF_W,
    STATS,
    boundary_gradient,
    gelu_share,
    gradient_from,
    load,
    load4,
    row_below,
    share_kept,
    shares,
    sigmoid,
    store4,
    sum2,
    sum4,
    sum6,
    tanh,
)
from hmrnn.ops.cuda.kernels_norm import add_standardised, by_gain, standardised, unnormalise


@triton.jit(do_not_specialize=["t"])
def cell_backward(
    t,
    B,
    own, own_row, own_step,  # with layer norm only: U·h, overwritten by the gradient of the sum of contributions
    above, above_row, above_step, below, below_row, below_step, index,  # with layer norm only
    s, s_row,  # without layer norm only: pre-activations, overwritten by their gradient
    slots, slot_step, slot_row, slot_one, slot_two,  # output with layer norm: gradients of the contributions V, W, U
    ds_x, ds_x_row,  # (T · B, ·) output in the first layer with layer norm, if wanted: the gradient of W·x
    bias, gain_U, gain_V, gain_W, gain_c, bias_c,
    slope, noise, forced, lengths, kept, seen,
    temperature,  # of "gumbel" only
    h,
    c_log,  # with layer norm c after step t is overwritten by d·x̂, where d is the gradient of the normalised c
    z, gate, s_z, probability, dot_above, dot_below, stats,
    u_z, v_z, w_z,  # the detectors' rows that read this h: of this layer, the layer below and the layer above
    d_s_z,  # (T+1, B, D) gradients of the detectors' pre-activations
    d_hidden,  # (T, B, H); with layer norm overwritten by that d
    d_boundaries, d_probabilities, d_forced,  # (T, B, D)
    via_U, via_U_row, via_U_part,  # (PARTS, B, ·) gradient of h from this layer at step t+1,
    via_V, via_V_row, via_V_part,  # from the layer below at step t+1,
    via_W, via_W_row, via_W_part,  # and from the layer above at step t
    d_h, d_c,  # (B, H) float32, carried from step to step
    d_before,  # (B, D) float32: gradient of z from this layer at step t+1
    d_now,  # (B, D) float32: gradient of z from the layer above at step t
    d_gate_before, d_gate_now,  # (B, D) float32: the same for pending gates
    D2, unit_log,  # of a detector with a hidden layer
    d_units,  # (T, B, UNITS) output: the gradient of that layer before gelu
    unit_U, unit_U_row, unit_V, unit_V_row, unit_W, unit_W_row,  # (B, ·) as via_*, from the hidden layers of detectors
    H: tl.constexpr,
    LAYER: tl.constexpr,
    D: tl.constexpr,
    UNITS: tl.constexpr,
    UNIT_BLOCK: tl.constexpr,
    SOFT: tl.constexpr,
    HOLD: tl.constexpr,
    FLUSH: tl.constexpr,
    COPY: tl.constexpr,
    PENDING: tl.constexpr,
    ZONEOUT: tl.constexpr,
    STRAIGHT: tl.constexpr,
    DETACHED: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The backward pass of cell_forward, given the gradients from everything that used its h, c and z."""
    NORM: tl.constexpr = gain_U is not None
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
    gate_V = 1.0
    if above is not None and gate is not None:
        gate_V = tl.load(gate + row * D + LAYER)
    alpha, beta, gamma = shares(zp, zb, FLUSH)

    # recompute the gates from the logs of the forward pass
    own_at = own + (step * own_step + b * own_row)
    above_at = above
    if above is not None:
        above_at = above + (step * above_step + b * above_row)
    below_at = row_below(below, below_row, below_step, index, step, b, B, LAYER)
    if NORM:
        moments = stats + row * STATS
        f, i, o, g = load4(bias, cols, mask, H)
        f, i, o, g = add_standardised(f, i, o, g, own_at, gain_U, 1.0, moments + OF_U, cols, mask, H)
        if above is not None:
            f, i, o, g = add_standardised(f, i, o, g, above_at, gain_V, gate_V, moments + OF_V, cols, mask, H)
        f, i, o, g = add_standardised(f, i, o, g, below_at, gain_W, zb, moments + OF_W, cols, mask, H)
    else:
        s_at = s + row * s_row
        f, i, o, g = load4(s_at, cols, mask, H)
    f, i, o, g = sigmoid(f), sigmoid(i), sigmoid(o), tanh(g)
    before, after = row * H, (row + B) * H
    c_old, h_old = load(c_log + before, cols, mask), load(h + before, cols, mask)
    share = share_kept(kept, row, cols, mask, H, ZONEOUT)
    c_new = share * c_old + (1 - share) * (alpha * i * g + (beta * f + gamma) * c_old)
    if gain_c is not None:
        scale_c = tl.load(stats + row * STATS + OF_C + 1)
        x_c = (c_new - tl.load(stats + row * STATS + OF_C)) * scale_c
        squashed = tanh(x_c * load(gain_c, cols, mask) + load(bias_c, cols, mask))
    else:
        squashed = tanh(c_new)

    # sum the gradients of h and z from everything that used them
    live = b >= 0
    if lengths is not None:
        live = t < tl.load(lengths + b)
    at_z = row * D + LAYER
    dh = load(d_h + b * H, cols, mask)
    dh += gradient_from(via_U, b * via_U_row, via_U_part, PARTS, None, d_s_z + at_z + B * D, u_z, cols, mask)
    dh += tl.where(live, load(d_hidden + row * H, cols, mask), 0.0)
    dc = load(d_c + b * H, cols, mask)
    if unit_U is not None:
        dh += load(unit_U + b * unit_U_row, cols, mask)
    h_new = h_old
    if (not NORM) or (unit_V is not None) or (unit_W is not None):
        h_new = load(h + after, cols, mask)
    nothing = tl.zeros((BLOCK,), tl.float32)
    by_V, by_W = nothing, nothing  # their sums are gradients of gates: of V in the layer below and W in that above
    if via_V is not None:
        at = d_s_z + at_z + B * D - 1
        gate_below = 1.0
        if gate is not None:
            gate_below = tl.load(gate + (row + B) * D + LAYER - 1)
        if NORM:
            dh += gradient_from(via_V, b * via_V_row, via_V_part, PARTS, None, at, None, cols, mask)
            if v_z is not None:
                dh += gate_below * tl.load(at) * load(v_z, cols, mask)
        else:
            via = gradient_from(via_V, b * via_V_row, via_V_part, PARTS, None, at, v_z, cols, mask)
            dh += gate_below * via
            if gate is not None:
                by_V = via * h_new
        if unit_V is not None:
            via = load(unit_V + b * unit_V_row, cols, mask)
            dh += gate_below * via
            if gate is not None:
                by_V += via * h_new
    dz = 0.0
    d_gate = 0.0  # gradient of the gate of V at step t+1
    if LAYER < D:
        z_new = tl.load(z + at_z + B * D)
        dz = tl.load(d_before + b * D + LAYER) + tl.load(d_now + b * D + LAYER)
        dz += tl.where(live, tl.load(d_boundaries + at_z), 0.0)
        if PENDING:
            d_gate = tl.load(d_gate_before + b * D + LAYER) + tl.load(d_gate_now + b * D + LAYER)
            dz += tl.where(live, d_gate * (1 - (1 - zb) * gate_V), 0.0)
        at = d_s_z + at_z + 1
        gate_W = 1.0  # gate of W in the layer above
        if COPY:
            gate_W = z_new
        in_W = seen
        if seen is not None:
            in_W = seen + b * H
        if NORM:
            dh += gradient_from(via_W, b * via_W_row, via_W_part, PARTS, in_W, at, None, cols, mask)
            if w_z is not None:
                dh += gate_W * tl.load(at) * load(w_z, cols, mask)
        else:
            via = gradient_from(via_W, b * via_W_row, via_W_part, PARTS, in_W, at, w_z, cols, mask)
            dh += gate_W * via
            if COPY:
                by_W = via * h_new
        if unit_W is not None:
            via = load(unit_W + b * unit_W_row, cols, mask)
            dh += gate_W * via
            if COPY:
                by_W += via * h_new
        # for the boundary, here as all threads wait for each other below
        p, a, pre = tl.load(probability + at_z), tl.load(slope), tl.load(s_z + at_z)
        d_p = tl.load(d_probabilities + at_z)
        dot_V = tl.load(dot_above + at_z)

    # the cell and its gates
    d_out = alpha * dh
    d_c_new = d_out * o * (1 - squashed * squashed)
    if gain_c is not None:
        d_c_new = tl.where(live, d_c_new, 0.0)
        tl.debug_barrier()
        tl.store(d_hidden + row * H + cols, d_c_new, mask=mask)
        tl.store(c_log + after + cols, d_c_new * x_c, mask=mask)
        d_x = d_c_new * load(gain_c, cols, mask)
        total_c, along_c = sum2(d_x, d_x * x_c)
        d_c_new = scale_c * (d_x - total_c / H - x_c * (along_c / H))
    d_c_new = tl.where(mask, d_c_new + dc, 0.0)
    d_kept, d_c_new = share * d_c_new, (1 - share) * d_c_new
    by_alpha = d_c_new * i * g + dh * o * squashed
    by_beta = d_c_new * f * c_old
    by_gamma = d_c_new * c_old + dh * h_old
    df = tl.where(live, beta * d_c_new * c_old * f * (1 - f), 0.0)
    di = tl.where(live, alpha * d_c_new * g * i * (1 - i), 0.0)
    do = tl.where(live, d_out * squashed * o * (1 - o), 0.0)
    dg = tl.where(live, alpha * d_c_new * i * (1 - g * g), 0.0)
    d_gate_V, from_V, from_W = 0.0, 0.0, 0.0  # gradients of the gates: of V at t, V below at t+1, W above at t
    by_zp, by_zb = (1 - zb) * (by_alpha - by_gamma) - zb * by_beta, by_alpha + by_beta - by_gamma
    if NORM and unit_V is None and unit_W is None:
        d_zp, d_zb = sum2(by_zp, by_zb)
    else:
        d_zp, d_zb, from_W, from_V = sum4(by_zp, by_zb, by_W, by_V)

    # the boundary
    ds_z = 0.0
    d_alpha = 0.0
    dz += from_W
    if LAYER < D:
        ds_z, d_alpha = boundary_gradient(
            dz, d_p, p, pre, a, alpha, live, at_z, noise, forced, d_forced, temperature, SOFT, HOLD, STRAIGHT, DETACHED
        )
        tl.store(d_s_z + at_z, ds_z)
        if D2 is not None:
            k = tl.arange(0, UNIT_BLOCK)
            some = k < UNITS
            unit = load(unit_log + row * UNITS, k, some)
            slope_gelu = gelu_share(unit) + unit * 0.3989422804014327 * tl.exp(-0.5 * unit * unit)
            tl.store(d_units + row * UNITS + k, ds_z * load(D2, k, some) * slope_gelu, mask=some)
    d_zp += (1 - zb) * d_alpha
    d_zb = d_zb + d_alpha
    if FLUSH:
        d_zb = (1 - zp) * d_zb
    else:
        d_zp = 0.0
    if PENDING and LAYER < D:
        d_gate_V += d_gate * (1 - z_new) * (1 - zb)
        d_zb -= d_gate * (1 - z_new) * gate_V

    # the contributions
    tl.debug_barrier()  # ds may overwrite s; d_h, d_c and d_before are changed in place
    if NORM:
        xuf, xui, xuo, xug = standardised(own_at, moments + OF_U, cols, mask, H)
        duf, dui, duo, dug = by_gain(df, di, do, dg, gain_U, cols, mask, H)
        xwf, xwi, xwo, xwg = standardised(below_at, moments + OF_W, cols, mask, H)
        dwf, dwi, dwo, dwg = by_gain(df, di, do, dg, gain_W, cols, mask, H)
        all_U, all_W = duf + dui + duo + dug, dwf + dwi + dwo + dwg
        by_U, by_W = duf * xuf + dui * xui + duo * xuo + dug * xug, dwf * xwf + dwi * xwi + dwo * xwo + dwg * xwg
        if above is not None:
            xvf, xvi, xvo, xvg = standardised(above_at, moments + OF_V, cols, mask, H)
            dvf, dvi, dvo, dvg = by_gain(df, di, do, dg, gain_V, cols, mask, H)
            by_V = dvf * xvf + dvi * xvi + dvo * xvo + dvg * xvg
            total_U, along_U, total_V, along_V, total_W, along_W = sum6(
                all_U, by_U, dvf + dvi + dvo + dvg, by_V, all_W, by_W
            )
        else:
            total_U, along_U, total_W, along_W = sum4(all_U, by_U, all_W, by_W)
        tl.debug_barrier()  # gradients may overwrite the contributions
        out = slots + b * slot_row
        if above is not None:
            unnormalise(
                out, slot_one, slot_two, dvf, dvi, dvo, dvg, xvf, xvi, xvo, xvg, total_V, along_V,
                gate_V, moments + OF_V, cols, mask, H,
            )  # fmt: skip
            d_gate_V += along_V
            if u_z is not None:
                d_gate_V += ds_z * dot_V
            out += slot_step
        if LAYER > 0:
            unnormalise(
                out, slot_one, slot_two, dwf, dwi, dwo, dwg, xwf, xwi, xwo, xwg, total_W, along_W,
                zb, moments + OF_W, cols, mask, H,
            )  # fmt: skip
            d_zb += along_W
            if u_z is not None:
                d_zb += ds_z * tl.load(dot_below + at_z)
            out += slot_step
        else:
            at_x = ds_x
            if ds_x is not None:
                at_x = ds_x + row * ds_x_row
            unnormalise(
                at_x, H, 2 * H, dwf, dwi, dwo, dwg, xwf, xwi, xwo, xwg, total_W, along_W,
                zb, moments + OF_W, cols, mask, H,
            )  # fmt: skip
        unnormalise(
            out, slot_one, slot_two, duf, dui, duo, dug, xuf, xui, xuo, xug, total_U, along_U,
            1.0, moments + OF_U, cols, mask, H,
        )  # fmt: skip
        store4(own_at, df, di, do, dg, H, 2 * H, cols, mask)
    else:
        store4(s_at, df, di, do, dg, H, 2 * H, cols, mask)
    tl.store(d_c + b * H + cols, tl.where(live, d_c_new * (beta * f + gamma) + d_kept, dc), mask=mask)
    tl.store(d_h + b * H + cols, tl.where(live, gamma * dh, dh), mask=mask)
    if LAYER < D:
        if PENDING:
            tl.store(d_gate_before + b * D + LAYER, tl.where(live, d_gate_V, d_gate))
        elif gate is not None:
            d_zp += d_gate_V
        tl.store(d_before + b * D + LAYER, tl.where(live, d_zp, dz))
    if LAYER > 0:
        if not COPY:
            d_zb = 0.0
        d_zb = tl.where(live, d_zb, 0.0)
        if PENDING:
            tl.store(d_gate_now + b * D + LAYER - 1, from_V)
        else:
            d_zb += from_V
        tl.store(d_now + b * D + LAYER - 1, d_zb)


@triton.jit
def finish(
    B, h, gate, via_U, via_U_row, via_U_part, via_V, via_V_row, via_V_part, u_z, v_z, d_s_z, d_h,
    d_now, d_gate_now, unit_U, unit_U_row, unit_V, unit_V_row,
    H: tl.constexpr, LAYER: tl.constexpr, D: tl.constexpr, PENDING: tl.constexpr, NORM: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the initial state, from what the first step read of it."""
    b = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    at_z = d_s_z + b * D + LAYER
    dh = load(d_h + b * H, cols, mask)
    dh += gradient_from(via_U, b * via_U_row, via_U_part, PARTS, None, at_z, u_z, cols, mask)
    if unit_U is not None:
        dh += load(unit_U + b * unit_U_row, cols, mask)
    from_V = 0.0
    if via_V is not None:
        gate_below = 1.0
        if gate is not None:
            gate_below = tl.load(gate + b * D + LAYER - 1)
        if NORM:
            dh += gradient_from(via_V, b * via_V_row, via_V_part, PARTS, None, at_z, None, cols, mask)
            if v_z is not None:
                dh += gate_below * tl.load(at_z - 1) * load(v_z, cols, mask)
        else:
            via = gradient_from(via_V, b * via_V_row, via_V_part, PARTS, None, at_z - 1, v_z, cols, mask)
            dh += gate_below * via
            if gate is not None:
                from_V = tl.sum(via * load(h + b * H, cols, mask))
        if unit_V is not None:
            via = load(unit_V + b * unit_V_row, cols, mask)
            dh += gate_below * via
            if gate is not None:
                from_V += tl.sum(via * load(h + b * H, cols, mask))
    if LAYER > 0:
        if PENDING:
            tl.store(d_gate_now + b * D + LAYER - 1, from_V)
            from_V = 0.0
        tl.store(d_now + b * D + LAYER - 1, from_V)
    tl.debug_barrier()
    tl.store(d_h + b * H + cols, dh, mask=mask)
