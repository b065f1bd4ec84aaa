// A slice of the batch forwards, step by step and layer by layer: equations 2 to 9, for what moves.
#pragma once

#include "slice.h"

namespace hm {

// Whether layer l reads the layer above at step t.
template <class T>
bool Slice<T>::is_open(int l, int t, int k) const {
    if (l == p.top() || p.layer(l).above == 0) return false;
    const Track<T> &a = tracks[l];
    switch (p.call.gate) {
        case ALWAYS:
            return true;
        case BOUNDARY:
            return a.z[size_t(t) * n + k];
        case PENDING:
            return a.pending[size_t(t) * n + k];
        default:
            return false;
    }
}

// Products with x for some steps at once: a few rows at a time would read all of W each time.
template <class T>
void Slice<T>::read_input(int t) {
    if (p.tabled() || t % chunk()) return;
    int count = std::min(chunk(), p.call.steps - t), start = keeps_w(0) ? t : 0;
    input.grow(size_t(start + count) * n);
    for (int s = 0; s < count; s++)
        for (int k = 0; k < n; k++)
            products.add(p.input(t + s < steps(k) ? t + s : 0, from + k),
                         input[size_t(start + s) * n + k]);
    products.compute(p.matrices.forward[0].W, p.layer(0).gain_W);
}

// The contribution of the layer below to event e.
template <class T>
Contribution<T> Slice<T>::read_below(int l, int t, int e) const {
    int k = tracks[l].events[e].row;
    const Layer<T> &w = p.layer(l);
    const T *row = l            ? tracks[l].w[w_at(l, e)]
                   : p.tabled() ? p.table[p.call.indices[p.at(t, from + k)]]
                                : input[size_t(keeps_w(0) ? t : t % chunk()) * n + k];
    return {row, w.gain_W, 4 * w.H};
}

// Backwards there may be no product with h, and it is not needed.
template <class T>
Move<T> Slice<T>::what_moves(int l, int t, int e, bool reads) const {
    const Track<T> &a = tracks[l];
    const Layer<T> &w = p.layer(l);
    const Event &event = a.events[e];
    int u = u_at(l, e), v = event.entry, R = 4 * w.H;
    const T *kept = p.call.kept[l] ? p.call.kept[l] + p.at(t, from + event.row) * w.H : nullptr;
    Contribution<T> from_h(u < 0 ? nullptr : a.u[u], w.gain_U, R);
    Contribution<T> from_above(v < 0 ? nullptr : a.v[v], w.gain_V, R);
    return {w,
            from_h,
            reads ? read_below(l, t, e) : Contribution<T>(),
            from_above,
            event.fed,
            event.open,
            event.flushed,
            a.c[event.before],
            kept,
            T(p.call.zoneout)};
}

template <class T>
void Slice<T>::forward() {
    tracks = std::vector<Track<T>>(p.top() + 1);
    stale.assign(tracks.size() * n, 1);
    for (int l = 0; l <= p.top(); l++) begin(l);
    for (int t = 0; t < p.call.steps; t++) {
        if (p.call.drawing.layers) draw(t);
        read_input(t);
        for (int l = 0; l <= p.top(); l++) move(l, t);
    }
    for (int l = 0; l <= p.top(); l++) end(l);
}

template <class T>
void Slice<T>::begin(int l) {
    const Call<T> &call = p.call;
    Track<T> &a = tracks[l];
    const Layer<T> &w = p.layer(l);
    size_t all = size_t(call.steps) * n;
    for (Rows<T> *rows : {&a.gates, &a.u, &a.w, &a.v}) rows->set_width(4 * w.H + 2);
    if (l == 0) input.set_width(4 * w.H + 2);
    a.c.set_width(w.H), a.squashed.set_width(w.H + 2), a.masked.set_width(w.below);
    a.event.resize(n), a.read.assign(n, -1);
    a.Uh.resize(size_t(n) * w.K), a.Vh.resize(size_t(n) * w.K);
    a.knows_Uh.assign(n, 0), a.knows_Vh.assign(n, 0);
    a.z.assign(all + n, 0), a.pending = a.z;
    a.c.grow(n);
    if (call.keep) {
        a.now.resize(all), a.used.assign(all, -1), a.decided.assign(all, 0), a.s_z.assign(all, 0);
        a.start.resize(call.steps + 1);
        if (w.D2) a.detector.resize(all * w.K);
        a.squashed.grow(n);
    }
    for (int k = 0; k < n; k++) {
        const T *c = call.c0[l] + size_t(from + k) * w.H;
        std::copy(c, c + w.H, a.c[k]);
        a.event[k] = k;
        if (call.keep) a.events.push_back({k});
        if (l && call.keep && call.traces) squash(w, a.c[k], a.squashed[k]);
        if (l == p.top()) continue;
        size_t at = size_t(from + k) * p.top() + l;
        a.z[k] = call.z0[at] > 0;
        if (call.gate == PENDING) a.pending[k] = call.pending0[at] > 0;
    }
}

template <class T>
void Slice<T>::end(int l) {
    const Call<T> &call = p.call;
    Track<T> &a = tracks[l];
    const Layer<T> &w = p.layer(l);
    int events = int(a.events.size());
    if (call.keep) a.start[call.steps] = events, a.last.assign(n, -1);
    for (int k = 0; k < n; k++) {
        const T *h_end = h(l, steps(k) - 1, k), *c_end = a.c[a.event[k]];
        std::copy(h_end, h_end + w.H, call.h[l] + size_t(from + k) * w.H);
        std::copy(c_end, c_end + w.H, call.c[l] + size_t(from + k) * w.H);
        if (l < p.top()) {
            size_t at = size_t(from + k) * p.top() + l, end = size_t(steps(k)) * n + k;
            call.z[at] = a.z[end];
            if (call.gate == PENDING) call.pending[at] = a.pending[end];
        }
        // rows that end with copies need the gates that they did not compute
        if (call.keep && call.traces && l > 0 && steps(k) && !moved(l, steps(k) - 1, k)) {
            a.u.grow(events + 1);
            products.add(h_end, a.u[events]);
            a.last[k] = events++;
        }
    }
    products.compute(p.matrices.forward[l].U, w.gain_U);
}

// One step of one layer for all rows.
template <class T>
void Slice<T>::move(int l, int t) {
    Track<T> &a = tracks[l];
    const Call<T> &call = p.call;
    const Layer<T> &w = p.layer(l);
    const auto &matrices = p.matrices.forward[l];
    int top = p.top();
    bool keep = call.keep, traces = keep && call.traces, norm = w.gain_U;
    if (!keep) a.events.clear();
    int first = a.first = int(a.events.size());
    if (keep) a.start[t] = first;

    for (int k = 0; k < n; k++) {  // which rows move
        bool fed = is_fed(l, t, k), flushed = call.flush && l < top && a.z[size_t(t) * n + k];
        if (t < steps(k) && (fed || flushed))
            a.events.push_back({k, t, a.event[k], -1, fed, is_open(l, t, k), flushed});
    }
    int end = int(a.events.size());
    a.gates.grow(end), a.u.grow(u_at(l, end)), a.squashed.grow(end);
    if (keep) a.c.grow(end);

    if (w.above && l < top) {  // V h: once for each h of the layer above
        auto read = [&](int k) {
            if (a.read[k] < 0) {
                a.read[k] = keep ? a.entries++ : k;
                a.v.grow(a.read[k] + 1);
                products.add(h(l + 1, t - 1, k), a.v[a.read[k]]);
            }
            return a.read[k];
        };
        for (int e = first; e < end; e++)
            if (a.events[e].open || traces) a.events[e].entry = read(a.events[e].row);
        if (traces && l > 0)
            for (int k = 0; k < n; k++)
                if (t < steps(k) && is_open(l, t, k)) a.used[size_t(t) * n + k] = read(k);
        products.compute(matrices.V, norm);
    }
    for (int e = first; e < end; e++) products.add(h(l, t - 1, a.events[e].row), a.u[u_at(l, e)]);
    products.compute(matrices.U, norm);
    if (l > 0) {
        a.w.grow(w_at(l, end));
        if (call.seen[l - 1]) a.masked.grow(end);
        for (int e = first; e < end; e++) {
            if (!a.events[e].fed && !traces) continue;
            const T *x = h(l - 1, t, a.events[e].row);
            if (call.seen[l - 1]) {
                const T *by = factors(l, a.events[e].row);
                for (int j = 0; j < w.below; j++) a.masked[e][j] = x[j] * by[j];
                x = a.masked[e];
            }
            products.add(x, a.w[w_at(l, e)]);
        }
        products.compute(matrices.W, norm);
    }
    std::vector<int> &event = scratch;
    event.assign(n, -1);
    for (int e = first; e < end; e++) {
        int k = a.events[e].row;
        event[k] = e;
        hm::forward(what_moves(l, t, e, a.events[e].fed), a.gates[e], a.c[keep ? e : k],
                    a.squashed[e], p.output(l, t, from + k));
    }

    // boundaries, and h of the rows that stood still
    for (int k = 0; k < n; k++) {
        T *to = p.output(l, t, from + k);
        bool moved = event[k] >= 0;
        if (call.moved) call.moved[p.at(t, from + k) * (top + 1) + l] = moved;
        if (t >= steps(k)) {
            std::fill(to, to + w.H, T(0));
            size_t at = p.at(t, from + k) * top + l;
            if (l < top) call.boundaries[at] = call.probabilities[at] = 0;
        } else {
            const T *before = h(l, t - 1, k);
            if (!moved) std::copy(before, before + w.H, to);
            if (l < top) detect(l, t, k, moved);
        }
        if (moved) {
            if (keep) a.event[k] = event[k];
            a.knows_Uh[k] = 0, stale[l * n + k] = 1;
            if (l > 0) tracks[l - 1].read[k] = -1, tracks[l - 1].knows_Vh[k] = 0;
        }
        if (keep) a.now[size_t(t) * n + k] = a.event[k];
    }
}

template <class T>
T gelu(T x) {
    return x * T(0.5) * std::erfc(-x * T(0.70710678118654752440));
}
template <class T>
T gelu_slope(T x) {
    return T(0.5) * std::erfc(-x * T(0.70710678118654752440)) +
           x * T(0.39894228040143267794) * std::exp(-x * x / 2);
}

// Equations 8 and 9 for one row.
template <class T>
void Slice<T>::detect(int l, int t, int k, bool moved) {
    Track<T> &a = tracks[l];
    const Call<T> &call = p.call;
    const Layer<T> &w = p.layer(l);
    int K = w.K;
    size_t here = size_t(t) * n + k, next = here + n, at = p.at(t, from + k) * p.top() + l;
    bool fed = is_fed(l, t, k), open = is_open(l, t, k);
    T *Uh = &a.Uh[size_t(k) * K], *Vh = &a.Vh[size_t(k) * K];
    auto multiply = [&](T *to, const T *of, int stride, const T *x, int size) {
        for (int i = 0; i < K; i++) to[i] = dot(of + size_t(i) * stride, x, size);
        return 1;
    };
    if (!a.knows_Uh[k]) a.knows_Uh[k] = multiply(Uh, w.Uz, w.Uz_stride, h(l, t - 1, k), w.H);
    if (open && !a.knows_Vh[k])
        a.knows_Vh[k] = multiply(Vh, w.Vz, w.Vz_stride, h(l + 1, t - 1, k), w.above);
    T s_z = w.D2 ? *w.d2 : T(0);
    for (int i = 0; i < K; i++) {
        T s = Uh[i] + w.bz[i];
        if (fed) s += dot(w.Wz + size_t(i) * w.Wz_stride, below(l, t, k), w.below);
        if (open) s += Vh[i];
        if (w.D2 && call.keep) a.detector[here * K + i] = s;
        s_z += w.D2 ? w.D2[i] * gelu(s) : s;
    }
    T probability = (T(call.slope) * s_z + 1) / 2;
    probability = probability > 1 ? T(1) : probability < 0 ? T(0) : probability;  // NaN stays
    bool decided = probability > (call.estimator != STEP && call.noise ? call.noise[at] : T(0.5));
    bool z = decided && (moved || !call.hold);
    if (call.forced && !std::isnan(call.forced[at])) z = call.forced[at] > 0;
    call.boundaries[at] = z, call.probabilities[at] = probability;
    a.z[next] = z;
    if (call.gate == PENDING) a.pending[next] = z || (!fed && a.pending[here]);
    if (call.keep) a.decided[here] = decided, a.s_z[here] = s_z;
}

}  // namespace hm
