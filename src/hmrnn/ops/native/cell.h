// One row of one layer for one step: the gates, the cell and, backwards, their derivatives.
#pragma once

#include <type_traits>

#include "interface.h"
#include "vector.h"

namespace hm {

// Calls f with truth values as types, so that loops are compiled for each combination. What they
// use again and again they had better copy: each store could change what is elsewhere.
template <class F>
void compiled(F f) {
    f();
}
template <class F, class... Rest>
void compiled(F f, bool first, Rest... rest) {
    auto with = [&](auto b) { compiled([&](auto... others) { f(b, others...); }, rest...); };
    first ? with(std::true_type{}) : with(std::false_type{});
}

// Writes the mean of n numbers and one over their deviation.
template <class T>
void moments(const T *s, int n, T *to) {
    V<T> total = {}, squares = {};
    each<T>(n, [&](int j, int lanes) { total += load(s + j, lanes); });
    T mean = sum<T>(total) / n, variance = 0;
    each<T>(n, [&](int j, int lanes) {
        V<T> d = load(s + j, lanes) - mean;
        if (lanes == LANES<T>)
            squares += d * d;
        else
            for (int i = 0; i < lanes; i++) variance += d[i] * d[i];
    });
    variance += sum<T>(squares);
    to[0] = mean;  // and NaN if a square overflowed
    to[1] = 1 / std::sqrt(variance / n + T(1e-5)) + (variance - variance);
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
    each<T>(n, [&](int j, int lanes) { increase<T>(y + j, a * load(x + j, lanes), lanes); });
}

// A vector, such as a matrix times another, that is normalised if there is a gain.
template <class T>
struct Contribution {
    const T *s = nullptr, *gain = nullptr;  // s is null if there is none
    T mean = 0, scale = 1;

    Contribution() = default;
    Contribution(const T *s, const T *gain, const T *moments) : s(s), gain(gain) {
        if (s && gain) mean = moments[0], scale = moments[1];
    }
    // whose moments follow its n numbers
    Contribution(const T *s, const T *gain, int n) : Contribution(s, gain, s ? s + n : s) {}
    V<T> normal(int j, int lanes) const { return (load(s + j, lanes) - mean) * scale; }
    template <bool NORM>
    V<T> at(int j, int lanes) const {
        return NORM ? normal(j, lanes) * load(gain + j, lanes) : load(s + j, lanes);
    }
};

// What a move reads. A contribution whose factor is 0 is there for that factor's gradient only.
template <class T>
struct Move {
    const Layer<T> &layer;
    Contribution<T> u, w, v;
    bool fed, open, flushed;  // factors of w and v; whether c before is erased
    const T *c_before;
    const T *kept = nullptr;  // zoneout: (H) shares, or null: `share` for all
    T share = 0;

    V<T> kept_at(int j, int lanes) const { return kept ? load(kept + j, lanes) : all(share); }
};

template <class T>
struct Gates {
    V<T> f, i, o, g;
};

template <bool NORM, bool FED, bool OPEN, class T>
Gates<T> gates_of(const Move<T> &m, const T *b, int H, int j, int lanes) {
    auto pre = [&](int j) {
        V<T> s = load(b + j, lanes) + m.u.template at<NORM>(j, lanes);
        if (FED) s += m.w.template at<NORM>(j, lanes);
        if (OPEN) s += m.v.template at<NORM>(j, lanes);
        return s;
    };
    return {sigmoid<T>(pre(j)), sigmoid<T>(pre(H + j)), sigmoid<T>(pre(2 * H + j)),
            tanh<T>(pre(3 * H + j))};
}

// tanh of the cell, normalised where there is a gain for it; then the moments of the cell.
template <class T>
[[gnu::flatten]] void squash(const Layer<T> &w, const T *c, T *squashed) {
    if (w.gain_c) moments(c, w.H, squashed + w.H);
    Contribution<T> cell(c, w.gain_c, squashed + w.H);
    each<T>(w.H, [&](int j, int lanes) {
        V<T> x = load(c + j, lanes);
        if (w.gain_c) x = cell.template at<true>(j, lanes) + load(w.bias_c + j, lanes);
        store(squashed + j, tanh<T>(x), lanes);
    });
}

// Computes gates (4H), c, its tanh (see squash) and h of a row that moves.
template <class T>
[[gnu::flatten]] void forward(const Move<T> &m, T *gates, T *c, T *squashed, T *h) {
    int H = m.layer.H;
    const T *b = m.layer.b;
    auto cell = [&](auto norm, auto fed, auto open) {
        each<T>(H, [=](int j, int lanes) {
            auto [f, i, o, g] = gates_of<norm, fed, open>(m, b, H, j, lanes);
            store(gates + j, f, lanes), store(gates + H + j, i, lanes);
            store(gates + 2 * H + j, o, lanes), store(gates + 3 * H + j, g, lanes);
            V<T> before = load(m.c_before + j, lanes), now = i * g, share = m.kept_at(j, lanes);
            if (!m.flushed) now += f * before;
            store(c + j, share * before + (1 - share) * now, lanes);
        });
    };
    compiled(cell, m.u.gain != nullptr, m.fed, m.open);
    squash(m.layer, c, squashed);
    each<T>(H, [&](int j, int lanes) {
        store(h + j, load(gates + 2 * H + j, lanes) * load(squashed + j, lanes), lanes);
    });
}

// Of a row that moved: what its step left.
template <class T>
struct Moved {
    const T *gates, *c, *squashed, *h_before;
};

// Sums over units that the gradients of boundaries need: derivatives by the factors of equation 2's
// three operations, and by those of the contributions.
template <class T>
struct Choice {
    T alpha, beta, gamma;
    T w = 0, v = 0;
};

// The derivative of normalisation: ds from dy (times the gain), given the sums of dy and dy *
// normal.
template <class T>
[[gnu::flatten]] void normal_back(int n, const T *dy, const Contribution<T> &x, T total, T along,
                                  T *ds) {
    T a = total / n, b = along / n;
    each<T>(n, [=](int j, int lanes) {
        V<T> y = load(dy + j, lanes) * load(x.gain + j, lanes);
        store(ds + j, (y - a - x.normal(j, lanes) * b) * x.scale, lanes);
    });
}

// Adds to the gain's gradient, and to the sums that normal_back and the contribution's factor need.
template <class T>
struct Gained {
    V<T> total = {}, along = {};

    void add(V<T> ds, const Contribution<T> &x, T *d_gain, int j, int lanes) {
        V<T> normal = x.normal(j, lanes), y = ds * load(x.gain + j, lanes);
        total += y, along += y * normal;
        if (d_gain) increase<T>(d_gain + j, ds * normal, lanes);
    }
};

// The backward pass of a move. dh and dc are of its h and c; dc becomes that of c before, ds (4H)
// that of the pre-activations. With layer norm du, dw and dv are those of the products, where
// wanted. What concerns parameters is added to `into`.
template <class T>
[[gnu::flatten]] Choice<T> backward(Move<T> m, Moved<T> e, const T *dh, T *dc, T *ds, T *du, T *dw,
                                    T *dv, Layer<T> into) {
    int H = m.layer.H, R = 4 * H;
    const T *f_ = e.gates, *i_ = f_ + H, *o_ = i_ + H, *g_ = o_ + H;
    T *ds_f = ds, *ds_i = ds + H, *ds_o = ds + 2 * H, *ds_g = ds + 3 * H;
    Contribution<T> cell(e.c, m.layer.gain_c, e.squashed + H);
    Gained<T> of_c, u, w, v;

    // h = o tanh(c): ds_i holds the derivative by the argument of tanh for now
    V<T> along_h = {}, stay = {};
    each<T>(H, [&](int j, int lanes) {
        V<T> d = load(dh + j, lanes), o = load(o_ + j, lanes);
        V<T> squashed = load(e.squashed + j, lanes);
        V<T> by_o = d * squashed, by_c = d * o * (1 - squashed * squashed);
        along_h += by_o * o, stay += d * load(e.h_before + j, lanes);
        store(ds_o + j, by_o * o * (1 - o), lanes);
        store(ds_i + j, by_c, lanes);
        if (cell.gain) {
            of_c.add(by_c, cell, into.gain_c, j, lanes);
            increase<T>(into.bias_c + j, by_c, lanes);
        }
    });
    if (cell.gain) normal_back(H, ds_i, cell, sum<T>(of_c.total), sum<T>(of_c.along), ds_i);

    V<T> alpha = along_h, beta = {}, gamma = stay;
    each<T>(H, [&](int j, int lanes) {
        V<T> f = load(f_ + j, lanes), i = load(i_ + j, lanes), g = load(g_ + j, lanes);
        V<T> before = load(m.c_before + j, lanes), share = m.kept_at(j, lanes);
        V<T> whole = load(dc + j, lanes) + load(ds_i + j, lanes), d = (1 - share) * whole;
        V<T> forgotten = m.flushed ? V<T>{} : d * f;
        alpha += d * i * g, beta += d * f * before, gamma += d * before;
        store(dc + j, share * whole + forgotten, lanes);
        store(ds_f + j, forgotten * before * (1 - f), lanes);
        store(ds_i + j, d * g * i * (1 - i), lanes);
        store(ds_g + j, d * i * (1 - g * g), lanes);
    });
    Choice<T> result{sum<T>(alpha), sum<T>(beta), sum<T>(gamma)};

    if (m.u.gain == nullptr) {
        add(into.b, T(1), ds, R);
        if (m.v.s) result.v = dot(ds, m.v.s, R);
        return result;
    }
    each<T>(R, [&](int j, int lanes) {
        V<T> d = load(ds + j, lanes);
        increase<T>(into.b + j, d, lanes);
        u.add(d, m.u, into.gain_U, j, lanes);
        if (m.w.s) w.add(d, m.w, m.fed ? into.gain_W : nullptr, j, lanes);
        if (m.v.s) v.add(d, m.v, m.open ? into.gain_V : nullptr, j, lanes);
    });
    normal_back(R, ds, m.u, sum<T>(u.total), sum<T>(u.along), du);
    result.w = sum<T>(w.along), result.v = sum<T>(v.along);
    if (m.w.s && m.fed) normal_back(R, ds, m.w, sum<T>(w.total), result.w, dw);
    if (m.v.s && m.open) normal_back(R, ds, m.v, sum<T>(v.total), result.v, dv);
    return result;
}

// What a layer that copied would have done, for the gradient of the boundary below, as differences
// to what it did: i g - c, f c and o tanh(c) - h.
template <class T>
[[gnu::flatten]] void differences(const Move<T> &m, const T *squashed, const T *h, T *d) {
    int H = m.layer.H;
    const T *b = m.layer.b;
    auto fill = [&](auto norm, auto open) {
        each<T>(H, [=](int j, int lanes) {
            auto [f, i, o, g] = gates_of<norm, false, open>(m, b, H, j, lanes);
            V<T> c = load(m.c_before + j, lanes);
            store(d + j, i * g - c, lanes);
            store(d + H + j, f * c, lanes);
            store(d + 2 * H + j, o * load(squashed + j, lanes) - load(h + j, lanes), lanes);
        });
    };
    compiled(fill, m.u.gain != nullptr, m.open);
}

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
