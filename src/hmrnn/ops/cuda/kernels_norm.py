# mypy: allow-untyped-defs
"""Layer norm in the Triton kernels, forward and backward; see :mod:`hmrnn.ops.cuda.kernels`."""

import triton
import triton.language as tl

from hmrnn.ops.cuda.kernels_common import EPS, MEANS, OF_U, OF_V, OF_W, STATS, load4, store4, sum2, sum3


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
def normalised(
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
def standardised(row, stats, cols, mask, H: tl.constexpr):
    """x̂ of a contribution: minus its mean, divided by its deviation, both from the forward pass."""
    mean, scale = tl.load(stats), tl.load(stats + 1)
    f, i, o, g = load4(row, cols, mask, H)
    return (f - mean) * scale, (i - mean) * scale, (o - mean) * scale, (g - mean) * scale


@triton.jit
def add_standardised(f, i, o, g, row, gain, gate, stats, cols, mask, H: tl.constexpr):
    """f, i, o, g plus ``gate`` · ``gain`` · x̂ of a contribution."""
    pf, pi, po, pg = standardised(row, stats, cols, mask, H)
    gf, gi, go, gg = load4(gain, cols, mask, H)
    return f + gate * pf * gf, i + gate * pi * gi, o + gate * po * go, g + gate * pg * gg


@triton.jit
def by_gain(df, di, do, dg, gain, cols, mask, H: tl.constexpr):
    """The gradient of x̂ of a contribution without the factor of its gate, from the gradient of the gates."""
    gf, gi, go, gg = load4(gain, cols, mask, H)
    return df * gf, di * gi, do * go, dg * gg


@triton.jit
def unnormalise(
    out, one, two,  # output: the gradient, with offsets as in store4
    df, di, do, dg,  # d, the result of by_gain
    xf, xi, xo, xg,  # x̂
    total, along,  # the sums of d and of d·x̂
    gate, stats, cols, mask, H: tl.constexpr,
):  # fmt: skip
    """Layer norm backward: store the gradient of a contribution to ``out``, the means of d and d·x̂ to ``stats``."""
    mean, k = total / (4 * H), along / (4 * H)
    tl.store(stats + MEANS, mean)
    tl.store(stats + MEANS + 1, k)
    if out is not None:
        scale = tl.load(stats + 1) * gate
        df, di = scale * (df - mean - xf * k), scale * (di - mean - xi * k)
        do, dg = scale * (do - mean - xo * k), scale * (dg - mean - xg * k)
        store4(out, df, di, do, dg, one, two, cols, mask)
