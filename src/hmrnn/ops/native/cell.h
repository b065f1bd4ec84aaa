// One row of one layer for one step: the gates, the cell and, backwards, their derivatives.
#pragma once

#include "vector.h"

namespace hm {

template <class T>
struct Moments {
    T mean = 0, scale = 1;  // scale is one over the deviation
};

template <class T>
Moments<T> moments(const T *s, int n) {
    V<T> total = {};
    each<T>(n, [&](int j, int lanes) { total += load(s + j, lanes); });
    Moments<T> result;
    result.mean = sum<T>(total) / n;
    T variance = 0;
    V<T> squares = {};
    each<T>(n, [&](int j, int lanes) {
        V<T> d = load(s + j, lanes) - result.mean;
        if (lanes == LANES<T>)
            squares += d * d;
        else
            for (int i = 0; i < lanes; i++) variance += d[i] * d[i];
    });
    variance += sum<T>(squares);
    result.scale = 1 / std::sqrt(variance / n + T(1e-5)) +
                   (variance - variance);  // NaN if a square overflowed
    return result;
}

template <class T>
T dot(const T *a, const T *b, int n) {
    V<T> s[4] = {};
    int j = 0;
    for (; j + 4 * LANES<T> <= n; j += 4 * LANES<T>)
        for (int i = 0; i < 4; i++) s[i] += load(a + j + i * LANES<T>) * load(b + j + i * LANES<T>);
    for (; j + LANES<T> <= n; j += LANES<T>) s[0] += load(a + j) * load(b + j);
    if (j < n) s[1] += load(a + j, n - j) * load(b + j, n - j);
    return sum<T>((s[0] + s[1]) + (s[2] + s[3]));
}

// y += a x
template <class T>
void add(T *y, T a, const T *x, int n) {
    each<T>(n, [&](int j, int lanes) {
        store(y + j, load(y + j, lanes) + a * load(x + j, lanes), lanes);
    });
}

// A contribution to the pre-activations: a matrix times a vector, normalised if there is a gain.
template <class T>
struct Contribution {
    const T *s = nullptr;  // (4H); null if there is none
    const T *gain = nullptr;
    Moments<T> of;

    V<T> normal(int j, int lanes) const { return (load(s + j, lanes) - of.mean) * of.scale; }
    template <bool NORM>
    V<T> at(int j, int lanes) const {
        return NORM ? normal(j, lanes) * load(gain + j, lanes) : load(s + j, lanes);
    }
};

// What a move reads. A contribution whose factor is 0 is only there for the gradient of that
// factor.
template <class T>
struct Move {
    int H;
    Contribution<T> u, w, v;
    bool fed, open, flushed;  // factors of w and v; whether c before is erased
    const T *b, *gain_c, *bias_c;
    const T *c_before;
    const T *kept = nullptr;  // zoneout: (H) shares, or null: `share` for all
    T share;
};

template <class T, bool NORM, bool W, bool OPEN>
V<T> pre(const Move<T> &m, int j, int lanes) {
    V<T> s = load(m.b + j, lanes) + m.u.template at<NORM>(j, lanes);
    if (W) s += m.w.template at<NORM>(j, lanes);
    if (OPEN) s += m.v.template at<NORM>(j, lanes);
    return s;
}

// tanh of the cell, normalised where there is a gain for it; returns its moments.
template <class T>
Moments<T> squash(int H, const T *c, const T *gain, const T *bias, T *squashed) {
    Moments<T> of;
    if (gain == nullptr) {
        each<T>(H,
                [&](int j, int lanes) { store(squashed + j, tanh<T>(load(c + j, lanes)), lanes); });
        return of;
    }
    of = moments(c, H);
    each<T>(H, [&](int j, int lanes) {
        V<T> x = (load(c + j, lanes) - of.mean) * of.scale * load(gain + j, lanes) +
                 load(bias + j, lanes);
        store(squashed + j, tanh<T>(x), lanes);
    });
    return of;
}

template <class T, bool NORM, bool W, bool OPEN>
Moments<T> forward_of(const Move<T> &m, T *gates, T *c, T *squashed, T *h) {
    int H = m.H;
    each<T>(H, [&](int j, int lanes) {
        V<T> f = sigmoid<T>(pre<T, NORM, W, OPEN>(m, j, lanes));
        V<T> i = sigmoid<T>(pre<T, NORM, W, OPEN>(m, H + j, lanes));
        V<T> o = sigmoid<T>(pre<T, NORM, W, OPEN>(m, 2 * H + j, lanes));
        V<T> g = tanh<T>(pre<T, NORM, W, OPEN>(m, 3 * H + j, lanes));
        store(gates + j, f, lanes), store(gates + H + j, i, lanes);
        store(gates + 2 * H + j, o, lanes), store(gates + 3 * H + j, g, lanes);
        V<T> before = load(m.c_before + j, lanes), now = i * g;
        if (!m.flushed) now += f * before;
        V<T> share = m.kept ? load(m.kept + j, lanes) : all(m.share);
        store(c + j, share * before + (1 - share) * now, lanes);
    });
    auto of = squash(H, c, m.gain_c, m.bias_c, squashed);
    each<T>(H, [&](int j, int lanes) {
        store(h + j, load(gates + 2 * H + j, lanes) * load(squashed + j, lanes), lanes);
    });
    return of;
}

// Computes gates (4H), c, its tanh and h of a row that moves; returns the moments of c.
template <class T>
Moments<T> forward(const Move<T> &m, T *gates, T *c, T *squashed, T *h) {
    bool w = m.fed, v = m.open;
    if (m.u.gain == nullptr)
        return w   ? v ? forward_of<T, false, true, true>(m, gates, c, squashed, h)
                       : forward_of<T, false, true, false>(m, gates, c, squashed, h)
               : v ? forward_of<T, false, false, true>(m, gates, c, squashed, h)
                   : forward_of<T, false, false, false>(m, gates, c, squashed, h);
    return w   ? v ? forward_of<T, true, true, true>(m, gates, c, squashed, h)
                   : forward_of<T, true, true, false>(m, gates, c, squashed, h)
           : v ? forward_of<T, true, false, true>(m, gates, c, squashed, h)
               : forward_of<T, true, false, false>(m, gates, c, squashed, h);
}

// Of a row that moved: what its step left, and the sums over units that the gradients of boundaries
// need.
template <class T>
struct Moved {
    const T *gates, *c, *squashed, *h_before;
    Moments<T> of_c;
};

template <class T>
struct Choice {
    T alpha = 0, beta = 0,
      gamma = 0;     // derivatives by the factors of equation 2's three operations
    T w = 0, v = 0;  // by the factors of the contributions
};

template <class T>
struct Sums {  // of a layer's parameters, over rows
    T *b, *gain_U, *gain_W, *gain_V, *gain_c, *bias_c;
};

// The derivative of normalisation: ds from dy (times the gain), given the sums over n of dy and dy
// * normal.
template <class T>
void normal_back(int n, const T *dy, const Contribution<T> &x, T total, T along, T *ds) {
    T a = total / n, b = along / n;
    each<T>(n, [&](int j, int lanes) {
        V<T> y = load(dy + j, lanes) * load(x.gain + j, lanes);
        store(ds + j, (y - a - x.normal(j, lanes) * b) * x.of.scale, lanes);
    });
}

// Adds to the gain's gradient, and to the sums that normal_back and the contribution's factor need.
template <class T>
struct Gained {
    V<T> total = {}, along = {};

    void add(V<T> ds, const Contribution<T> &x, T *d_gain, int j, int lanes) {
        V<T> normal = x.normal(j, lanes), y = ds * load(x.gain + j, lanes);
        total += y, along += y * normal;
        if (d_gain) store(d_gain + j, load(d_gain + j, lanes) + ds * normal, lanes);
    }
};

// The backward pass of a move. dh and dc are of its h and c; dc becomes that of c before, ds (4H)
// that of the pre-activations. With layer norm du, dw and dv are those of the products, where
// wanted.
template <class T>
Choice<T> backward(const Move<T> &m, const Moved<T> &e, const T *dh, T *dc, T *ds, T *du, T *dw,
                   T *dv, Sums<T> into) {
    int H = m.H;
    Choice<T> result;
    const T *f_ = e.gates, *i_ = f_ + H, *o_ = i_ + H, *g_ = o_ + H;
    T *ds_f = ds, *ds_i = ds + H, *ds_o = ds + 2 * H, *ds_g = ds + 3 * H;

    // h = o tanh(c): ds_i holds the derivative by the argument of tanh for now
    V<T> along_h = {}, stay = {}, total = {}, along = {};
    each<T>(H, [&](int j, int lanes) {
        V<T> d = load(dh + j, lanes), o = load(o_ + j, lanes),
             squashed = load(e.squashed + j, lanes);
        V<T> by_o = d * squashed, by_c = d * o * (1 - squashed * squashed);
        along_h += by_o * o, stay += d * load(e.h_before + j, lanes);
        store(ds_o + j, by_o * o * (1 - o), lanes);
        if (m.gain_c) {
            V<T> normal = (load(e.c + j, lanes) - e.of_c.mean) * e.of_c.scale;
            store(into.gain_c + j, load(into.gain_c + j, lanes) + by_c * normal, lanes);
            store(into.bias_c + j, load(into.bias_c + j, lanes) + by_c, lanes);
            by_c *= load(m.gain_c + j, lanes);
            total += by_c, along += by_c * normal;
        }
        store(ds_i + j, by_c, lanes);
    });
    T mean_c = 0, along_c = 0;
    if (m.gain_c) mean_c = sum<T>(total) / H, along_c = sum<T>(along) / H;

    V<T> alpha = along_h, beta = {}, gamma = stay;
    each<T>(H, [&](int j, int lanes) {
        V<T> f = load(f_ + j, lanes), i = load(i_ + j, lanes), g = load(g_ + j, lanes);
        V<T> before = load(m.c_before + j, lanes), by_c = load(ds_i + j, lanes);
        if (m.gain_c) {
            V<T> normal = (load(e.c + j, lanes) - e.of_c.mean) * e.of_c.scale;
            by_c = (by_c - mean_c - normal * along_c) * e.of_c.scale;
        }
        V<T> share = m.kept ? load(m.kept + j, lanes) : all(m.share);
        V<T> whole = load(dc + j, lanes) + by_c, d = (1 - share) * whole;
        V<T> forgotten = m.flushed ? V<T>{} : d * f;
        alpha += d * i * g, beta += d * f * before, gamma += d * before;
        store(dc + j, share * whole + forgotten, lanes);
        store(ds_f + j, forgotten * before * (1 - f), lanes);
        store(ds_i + j, d * g * i * (1 - i), lanes);
        store(ds_g + j, d * i * (1 - g * g), lanes);
    });
    result.alpha = sum<T>(alpha), result.beta = sum<T>(beta), result.gamma = sum<T>(gamma);

    int R = 4 * H;
    if (m.u.gain == nullptr) {
        each<T>(R, [&](int j, int lanes) {
            store(into.b + j, load(into.b + j, lanes) + load(ds + j, lanes), lanes);
        });
        if (m.v.s) result.v = dot(ds, m.v.s, R);
        return result;
    }
    Gained<T> u, w, v;
    each<T>(R, [&](int j, int lanes) {
        V<T> d = load(ds + j, lanes);
        store(into.b + j, load(into.b + j, lanes) + d, lanes);
        u.add(d, m.u, into.gain_U, j, lanes);
        if (m.w.s) w.add(d, m.w, m.fed ? into.gain_W : nullptr, j, lanes);
        if (m.v.s) v.add(d, m.v, m.open ? into.gain_V : nullptr, j, lanes);
    });
    normal_back(R, ds, m.u, sum<T>(u.total), sum<T>(u.along), du);
    result.w = sum<T>(w.along), result.v = sum<T>(v.along);
    if (m.w.s && m.fed && dw) normal_back(R, ds, m.w, sum<T>(w.total), result.w, dw);
    if (m.v.s && m.open) normal_back(R, ds, m.v, sum<T>(v.total), result.v, dv);
    return result;
}

// What a layer that copied would have done: differences to what it did, for the gradient of the
// boundary below.
template <class T>
struct Alternative {
    T *write, *keep, *show;  // (H): i g - c, f c, o tanh(c) - h

    void fill(const Move<T> &m, const T *c, const T *squashed, const T *h) const {
        m.u.gain ? m.open ? fill_of<true, true>(m, c, squashed, h)
                          : fill_of<true, false>(m, c, squashed, h)
        : m.open ? fill_of<false, true>(m, c, squashed, h)
                 : fill_of<false, false>(m, c, squashed, h);
    }

    template <bool NORM, bool OPEN>
    void fill_of(const Move<T> &m, const T *c_, const T *squashed, const T *h) const {
        int H = m.H;
        each<T>(H, [&](int j, int lanes) {
            V<T> f = sigmoid<T>(pre<T, NORM, false, OPEN>(m, j, lanes));
            V<T> i = sigmoid<T>(pre<T, NORM, false, OPEN>(m, H + j, lanes));
            V<T> o = sigmoid<T>(pre<T, NORM, false, OPEN>(m, 2 * H + j, lanes));
            V<T> g = tanh<T>(pre<T, NORM, false, OPEN>(m, 3 * H + j, lanes));
            V<T> c = load(c_ + j, lanes);
            store(write + j, i * g - c, lanes);
            store(keep + j, f * c, lanes);
            store(show + j, o * load(squashed + j, lanes) - load(h + j, lanes), lanes);
        });
    }
};

// The sum over H of d * x, where zoneout lets the rest of d through.
template <class T>
T dot_changed(const T *d, const T *x, const T *kept, T share, int n) {
    if (kept == nullptr) return (1 - share) * dot(d, x, n);
    V<T> s = {};
    each<T>(n, [&](int j, int lanes) {
        s += (1 - load(kept + j, lanes)) * load(d + j, lanes) * load(x + j, lanes);
    });
    return sum<T>(s);
}

}  // namespace hm
