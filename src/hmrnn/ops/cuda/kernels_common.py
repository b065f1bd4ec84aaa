# mypy: allow-untyped-defs
"""Functions that the Triton kernels of the cuda engine share; see :mod:`hmrnn.ops.cuda.kernels`."""

import triton
import triton.language as tl

from hmrnn.ops.cuda import layer as cuda_layer
from hmrnn.ops.estimators import MARGIN
from hmrnn.ops.reference import LAYER_NORM_EPS

EPS = tl.constexpr(LAYER_NORM_EPS)
STATS, MEANS = tl.constexpr(cuda_layer.STATS), tl.constexpr(cuda_layer.MEANS)
OF_U, OF_V, OF_W, OF_C = (tl.constexpr(cuda_layer.OF_STATS[name]) for name in "UVWc")
NEAREST = tl.constexpr(MARGIN)


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
def share_kept(kept, row, cols, mask, H: tl.constexpr, ZONEOUT: tl.constexpr):
    """The share of its old c that each unit keeps: 0 or 1 by the mask ``kept``, or ZONEOUT without a mask."""
    if kept is not None:
        return load(kept + row * H, cols, mask)
    return tl.full(cols.shape, ZONEOUT, tl.float32)


@triton.jit
def shares(zp, zb, FLUSH: tl.constexpr):
    """alpha, beta and gamma: the factors of the operations, given zˡ one step ago (zp) and zˡ⁻¹ (zb)."""
    erase = zp
    if not FLUSH:
        erase = 0.0
    return erase + (1 - erase) * zb, (1 - erase) * zb, (1 - erase) * (1 - zb)


@triton.jit
def boundary(
    pre, zp, zb, alpha, gate_V, t, b, slope, noise, forced, lengths, z, gate, s_z, probability, at, next_step,
    SOFT: tl.constexpr, HOLD: tl.constexpr, PENDING: tl.constexpr,
):  # fmt: skip
    """(8), (9): find z from the pre-activation of a detector, and store it."""
    p = tl.minimum(tl.maximum((tl.load(slope) * pre + 1) / 2, 0.0), 1.0)
    z_new = p
    if not SOFT:
        threshold = 0.5
        if noise is not None:
            threshold = tl.load(noise + at)
        z_new = tl.where(p > threshold, 1.0, 0.0)
    if HOLD:
        z_new = alpha * z_new
    if forced is not None:
        given = tl.load(forced + at)
        z_new = tl.where(given == given, given, z_new)
    if PENDING:
        gate_new = z_new + (1 - z_new) * (1 - zb) * gate_V
        if lengths is not None:
            gate_new = tl.where(t < tl.load(lengths + b), gate_new, gate_V)
        tl.store(gate + at + next_step, gate_new)
    if lengths is not None:
        z_new = tl.where(t < tl.load(lengths + b), z_new, zp)
    tl.store(z + at + next_step, z_new)
    tl.store(probability + at, p)
    tl.store(s_z + at, pre)


@triton.jit
def row_below(below, below_row, below_step, index, step, b, B, LAYER: tl.constexpr):
    """The address of the contribution from below: W·h of this step; in the first layer W·x or a row of its table."""
    if index is not None:
        at = tl.load(index + step * B + b).to(tl.int64) * below_row
    elif LAYER > 0:
        at = (step + 1) * below_step + b * below_row
    else:
        at = step * below_step + b * below_row
    return below + at


@triton.jit
def gradient_from(via, row, part, PARTS: tl.constexpr, seen, d_detector, weight, cols, mask):
    """The gradient of h from one layer that reads it: by the matrix product, times the factors ``seen``, and by that
    layer's detector if it has one."""
    total = load(via + row, cols, mask)
    for p in tl.static_range(1, PARTS):
        total += load(via + p * part + row, cols, mask)
    if seen is not None:
        total *= load(seen, cols, mask)
    if weight is not None:
        total += tl.load(d_detector) * load(weight, cols, mask)
    return total


@triton.jit
def relaxed_gradient(p, noise, temperature):
    """:func:`hmrnn.ops.estimators.relaxed_gradient`."""
    inside = (p >= NEAREST) & (p <= 1 - NEAREST)
    p = tl.minimum(tl.maximum(p, NEAREST), 1 - NEAREST)
    y = sigmoid((tl.log(p / (1 - p)) - tl.log(noise / (1 - noise))) / temperature)
    return tl.where(inside, y * (1 - y) / (temperature * p * (1 - p)), 0.0)


@triton.jit
def boundary_gradient(
    dz, d_p, p, pre, a, alpha, live, at, noise, forced, d_forced, temperature,
    SOFT: tl.constexpr, HOLD: tl.constexpr, STRAIGHT: tl.constexpr, DETACHED: tl.constexpr,
):  # fmt: skip
    """The gradients of a detector's pre-activation and of alpha, from those of z (dz) and of its probability (d_p)."""
    used = dz
    d_alpha = 0.0
    if forced is not None:
        given = tl.load(forced + at)
        if not STRAIGHT:
            used = tl.where(given == given, 0.0, dz)
            tl.store(d_forced + at, tl.where(live, dz - used, 0.0))
    if HOLD:
        decided = p
        if not SOFT:
            threshold = 0.5
            if noise is not None:
                threshold = tl.load(noise + at)
            decided = tl.where(p > threshold, 1.0, 0.0)
        d_alpha = used * decided
        used = used * alpha
    if DETACHED:
        used = 0.0
    if temperature is not None:
        used = used * relaxed_gradient(p, tl.load(noise + at), tl.load(temperature))
    linear = (a * pre + 1) / 2
    inside = (linear >= 0.0) & (linear <= 1.0) & live
    return tl.where(inside, (used + d_p) * a / 2, 0.0), d_alpha
