// A slice of the batch forwards, step by step and layer by layer: equations 2 to 9 for the rows
// that move.
#pragma once

#include "slice.h"

namespace hm {

template <class T>
const T *Slice<T>::h(int l, int t, int k) const {
    return t < 0 ? as<T>(p.call.h0[l]) + size_t(from + k) * p.layer(l).H
                 : &p.output(l, t, from + k);
}

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

// Products with x for some steps at once: a few rows at a time would read all of W for each of
// them.
template <class T>
void Slice<T>::read_input(int t) {
    if (p.tabled() || t % chunk()) return;
    int count = std::min(chunk(), p.call.T - t), start = keeps_w(0) ? t : 0, R = 4 * p.layer(0).H;
    input.s.grow(size_t(start + count) * n);
    lists.clear();
    for (int s = 0; s < count; s++)
        for (int k = 0; k < n; k++) {
            lists.a.push_back(p.input(t + s < steps(k) ? t + s : 0, from + k));
            lists.c.push_back(input.s[size_t(start + s) * n + k]);
        }
    lists.multiply(p.matrices.forward[0].W);
    if (p.layer(0).gain_W == nullptr) return;
    input.of.resize(size_t(start + count) * n);
    for (size_t i = 0; i < lists.c.size(); i++)
        input.of[size_t(start) * n + i] = moments(lists.c[i], R);
}

// The contribution of the layer below to event e.
template <class T>
Contribution<T> Slice<T>::read_below(int l, int t, int k, int e) const {
    Contribution<T> w;
    w.gain = as<T>(p.layer(l).gain_W);
    if (l > 0) {
        w.s = tracks[l].w[keeps_w(l) ? e : e - tracks[l].first];
        if (w.gain) w.of = tracks[l].of_w[e];
        return w;
    }
    const Table<T> &from_x = p.tabled() ? p.table : input;
    size_t i = p.tabled() ? p.call.indices[p.at(t, from + k)]
                          : size_t(keeps_w(0) ? t : t % chunk()) * n + k;
    w.s = from_x.s[i];
    if (w.gain) w.of = from_x.of[i];
    return w;
}

template <class T>
Move<T> Slice<T>::what_moves(int l, int t, int k, int e, bool reads, bool back) const {
    const Track<T> &a = tracks[l];
    const Layer &w = p.layer(l);
    Move<T> m;
    m.H = w.H;
    if (keeps_u(l) || !back) m.u.s = a.u[keeps_u(l) ? e : e - a.first];
    if (w.gain_U) m.u.gain = as<T>(w.gain_U), m.u.of = a.of_u[e];
    m.fed = a.fed[e], m.open = a.open[e], m.flushed = a.flushed[e];
    if (reads) m.w = read_below(l, t, k, e);
    int entry = a.entry[e];
    if (entry >= 0) m.v = {a.v[entry], as<T>(w.gain_V), w.gain_V ? a.of_v[entry] : Moments<T>()};
    m.b = as<T>(w.b), m.gain_c = as<T>(w.gain_c), m.bias_c = as<T>(w.bias_c);
    int before = a.before[e];
    m.c_before = p.call.keep ? a.c[before] : c_now[l * n + k];
    if (p.call.kept[l]) m.kept = as<T>(p.call.kept[l]) + p.at(t, from + k) * w.H;
    m.share = T(p.call.zoneout);
    return m;
}

template <class T>
void Slice<T>::forward() {
    const Call &call = p.call;
    int L = p.top() + 1, T_ = call.T, D = L - 1;
    bool keep = call.keep;
    tracks = std::vector<Track<T>>(L);
    int widest = 0;
    for (int l = 0; l < L; l++) widest = std::max(widest, p.layer(l).H);
    c_now.set_width(widest);
    if (!keep) c_now.grow(size_t(L) * n);
    stale.assign(size_t(L) * n, 1);
    for (int l = 0; l < L; l++) {
        Track<T> &a = tracks[l];
        const Layer &w = p.layer(l);
        a.gates.set_width(4 * w.H), a.u.set_width(4 * w.H), a.w.set_width(4 * w.H),
            a.v.set_width(4 * w.H);
        if (l == 0) input.s.set_width(4 * w.H);
        a.c.set_width(w.H), a.squashed.set_width(w.H), a.masked.set_width(w.below);
        a.event.resize(n), a.read.assign(n, -1);
        a.Uh.resize(size_t(n) * w.K), a.Vh.resize(size_t(n) * w.K);
        a.knows_Uh.assign(n, 0), a.knows_Vh.assign(n, 0);
        a.z.assign(size_t(T_ + 1) * n, 0), a.pending = a.z;
        if (l < D)
            for (int k = 0; k < n; k++) {
                a.z[k] = as<T>(call.z0)[size_t(from + k) * D + l] > 0;
                if (call.gate == PENDING)
                    a.pending[k] = as<T>(call.pending0)[size_t(from + k) * D + l] > 0;
            }
        if (keep) {
            a.now.resize(size_t(T_) * n), a.used.assign(size_t(T_) * n, -1);
            a.decided.assign(size_t(T_) * n, 0), a.s_z.assign(size_t(T_) * n, 0),
                a.start.resize(T_ + 1);
            if (w.D2) a.detector.resize(size_t(T_) * n * w.K);
            a.c.grow(n), a.squashed.grow(n);
        }
        for (int k = 0; k < n; k++) {  // the state before the first step is event k
            const T *c = as<T>(call.c0[l]) + size_t(from + k) * w.H;
            std::copy(c, c + w.H, keep ? a.c[k] : c_now[l * n + k]);
            a.event[k] = k;
        }
        if (keep) {
            a.row.assign(n, 0), a.step.assign(n, -1), a.before.assign(n, -1), a.entry.assign(n, -1);
            a.fed.assign(n, 0), a.open.assign(n, 0), a.flushed.assign(n, 0);
            a.of_c.resize(n);
            for (int k = 0; k < n; k++) {
                a.row[k] = k;
                if (l && call.traces)
                    a.of_c[k] =
                        squash<T>(w.H, a.c[k], as<T>(w.gain_c), as<T>(w.bias_c), a.squashed[k]);
            }
            if (w.gain_U) a.of_u.resize(n);
            if (w.gain_W) a.of_w.resize(n);
        }
    }
    for (int t = 0; t < T_; t++) {
        if (call.drawing.layers) draw(t);
        read_input(t);
        for (int l = 0; l < L; l++) move(l, t);
    }
    for (int l = 0; l < L; l++) {
        Track<T> &a = tracks[l];
        const Layer &w = p.layer(l);
        if (keep) a.start[T_] = int(a.row.size());
        for (int k = 0; k < n; k++) {
            size_t at = size_t(from + k) * w.H;
            const T *h_end = h(l, steps(k) - 1, k),
                    *c_end = keep ? a.c[a.event[k]] : c_now[l * n + k];
            std::copy(h_end, h_end + w.H, as<T>(call.h[l]) + at);
            std::copy(c_end, c_end + w.H, as<T>(call.c[l]) + at);
            if (l == D) continue;
            as<T>(call.z)[size_t(from + k) * D + l] = a.z[size_t(steps(k)) * n + k];
            if (call.gate == PENDING)
                as<T>(call.pending)[size_t(from + k) * D + l] = a.pending[size_t(steps(k)) * n + k];
        }
        if (!keep || !call.traces || l == 0) continue;
        // rows that end with copies need the gates that they did not compute
        lists.clear();
        a.last.assign(n, -1);
        size_t e = a.row.size();
        for (int k = 0; k < n; k++) {
            if (steps(k) == 0 || a.step[a.event[k]] == steps(k) - 1) continue;
            a.u.grow(e + 1);
            lists.a.push_back(h(l, steps(k) - 1, k)), lists.c.push_back(a.u[e]);
            a.last[k] = int(e++);
        }
        lists.multiply(p.matrices.forward[l].U);
        if (w.gain_U)
            for (T *row : lists.c) a.of_u.push_back(moments(row, 4 * w.H));
    }
}

// One step of one layer for all rows.
template <class T>
void Slice<T>::move(int l, int t) {
    Track<T> &a = tracks[l];
    const Call &call = p.call;
    const Layer &w = p.layer(l);
    const auto &matrices = p.matrices.forward[l];
    int top = p.top(), R = 4 * w.H;
    bool keep = call.keep, traces = keep && call.traces, norm = w.gain_U != nullptr;
    if (!keep)
        a.row.clear(), a.step.clear(), a.before.clear(), a.entry.clear(), a.fed.clear(),
            a.open.clear(), a.flushed.clear();
    int first = a.first = int(a.row.size());
    if (keep) a.start[t] = first;

    // which rows move: those that are fed, then those that only flush
    auto moves = [&](int k, bool fed, bool flush) {
        a.row.push_back(k), a.step.push_back(t), a.before.push_back(a.event[k]);
        a.fed.push_back(fed), a.open.push_back(is_open(l, t, k)), a.flushed.push_back(flush),
            a.entry.push_back(-1);
    };
    auto is_fed = [&](int k) {
        return l == 0 || !call.copy || tracks[l - 1].z[size_t(t + 1) * n + k];
    };
    auto flushes = [&](int k) { return call.flush && l < top && a.z[size_t(t) * n + k]; };
    for (int k = 0; k < n; k++)
        if (t < steps(k) && is_fed(k)) moves(k, true, flushes(k));
    int fed = int(a.row.size());
    for (int k = 0; k < n; k++)
        if (t < steps(k) && !is_fed(k) && flushes(k)) moves(k, false, true);
    int end = int(a.row.size());
    int u_at = keeps_u(l) ? 0 : first,
        w_at = keeps_w(l) ? 0 : first;  // event of the first row of u, of w
    a.gates.grow(end), a.u.grow(end - u_at), a.squashed.grow(end);
    if (keep) a.c.grow(end), a.of_c.resize(end);

    if (w.above && l < top) {  // V h: once for each h of the layer above
        lists.clear();
        std::vector<int> &fresh = scratch;
        fresh.clear();
        auto read = [&](int k) {
            if (a.read[k] < 0) {
                a.read[k] = keep ? a.entries++ : k;
                a.v.grow(a.read[k] + 1);
                fresh.push_back(a.read[k]);
                lists.a.push_back(h(l + 1, t - 1, k)), lists.c.push_back(a.v[a.read[k]]);
            }
            return a.read[k];
        };
        for (int e = first; e < end; e++)
            if (a.open[e] || traces) a.entry[e] = read(a.row[e]);
        if (traces && l > 0)
            for (int k = 0; k < n; k++)
                if (t < steps(k) && is_open(l, t, k)) a.used[size_t(t) * n + k] = read(k);
        lists.multiply(matrices.V);
        if (norm) a.of_v.resize(keep ? a.entries : n);
        for (int i : fresh)
            if (norm) a.of_v[i] = moments(a.v[i], R);
    }
    lists.clear();
    for (int e = first; e < end; e++)
        lists.a.push_back(h(l, t - 1, a.row[e])), lists.c.push_back(a.u[e - u_at]);
    lists.multiply(matrices.U);
    if (norm) {
        a.of_u.resize(end);
        for (int e = first; e < end; e++) a.of_u[e] = moments(a.u[e - u_at], R);
    }
    if (l > 0) {
        lists.clear();
        int reading = traces ? end : fed;
        a.w.grow(end - w_at);
        if (call.seen[l - 1]) a.masked.grow(end);
        for (int e = first; e < reading; e++) {
            const T *x = h(l - 1, t, a.row[e]);
            if (call.seen[l - 1]) {
                const T *factors = as<T>(call.seen[l - 1]) + size_t(from + a.row[e]) * w.below;
                for (int j = 0; j < w.below; j++) a.masked[e][j] = x[j] * factors[j];
                x = a.masked[e];
            }
            lists.a.push_back(x), lists.c.push_back(a.w[e - w_at]);
        }
        lists.multiply(matrices.W);
        if (norm) {
            a.of_w.resize(end);
            for (int e = first; e < reading; e++) a.of_w[e] = moments(a.w[e - w_at], R);
        }
    }
    for (int e = first; e < end; e++) {
        int k = a.row[e];
        Move<T> m = what_moves(l, t, k, e, a.fed[e], false);
        auto of_c = hm::forward(m, a.gates[e], keep ? a.c[e] : c_now[l * n + k], a.squashed[e],
                                &p.output(l, t, from + k));
        if (keep) a.of_c[e] = of_c;
    }

    // boundaries, and h of the rows that stood still
    std::vector<int> &event = scratch;
    event.assign(n, -1);
    for (int e = first; e < end; e++) event[a.row[e]] = e;
    for (int k = 0; k < n; k++) {
        T *to = &p.output(l, t, from + k);
        bool moved = event[k] >= 0;
        if (call.moved) call.moved[p.at(t, from + k) * (top + 1) + l] = moved;
        if (t >= steps(k)) {
            std::fill(to, to + w.H, T(0));
            if (l < top) {
                size_t at = p.at(t, from + k) * top + l;
                as<T>(call.boundaries)[at] = as<T>(call.probabilities)[at] = 0;
            }
        } else {
            const T *before = h(l, t - 1, k);
            if (!moved) std::copy(before, before + w.H, to);
            if (l < top) detect(l, t, k, moved, is_fed(k));
        }
        if (moved) {
            a.event[k] = event[k];
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
void Slice<T>::detect(int l, int t, int k, bool moved, bool fed) {
    Track<T> &a = tracks[l];
    const Call &call = p.call;
    const Layer &w = p.layer(l);
    int K = w.K, top = p.top();
    size_t here = size_t(t) * n + k, next = here + n;
    bool open = is_open(l, t, k);
    T *Uh = &a.Uh[size_t(k) * K], *Vh = &a.Vh[size_t(k) * K];
    if (!a.knows_Uh[k]) {
        for (int i = 0; i < K; i++)
            Uh[i] = dot(as<T>(w.Uz) + size_t(i) * w.Uz_stride, h(l, t - 1, k), w.H);
        a.knows_Uh[k] = 1;
    }
    if (open && !a.knows_Vh[k]) {
        for (int i = 0; i < K; i++)
            Vh[i] = dot(as<T>(w.Vz) + size_t(i) * w.Vz_stride, h(l + 1, t - 1, k), w.above);
        a.knows_Vh[k] = 1;
    }
    T s_z = w.D2 ? *as<T>(w.d2) : T(0);
    for (int i = 0; i < K; i++) {
        T s = Uh[i] + as<T>(w.bz)[i];
        if (fed) s += dot(as<T>(w.Wz) + size_t(i) * w.Wz_stride, below(l, t, k), w.below);
        if (open) s += Vh[i];
        if (w.D2 && call.keep) a.detector[here * K + i] = s;
        s_z += w.D2 ? as<T>(w.D2)[i] * gelu(s) : s;
    }
    T probability = (T(call.slope) * s_z + 1) / 2;
    probability = probability > 1 ? T(1) : probability < 0 ? T(0) : probability;  // NaN stays
    size_t at = p.at(t, from + k) * top + l;
    bool decided =
        probability > (call.estimator != STEP && call.noise ? as<T>(call.noise)[at] : T(0.5));
    bool z = decided && (moved || !call.hold);
    if (call.forced && !std::isnan(as<T>(call.forced)[at])) z = as<T>(call.forced)[at] > 0;
    as<T>(call.boundaries)[at] = z;
    as<T>(call.probabilities)[at] = probability;
    a.z[next] = z;
    if (call.gate == PENDING) a.pending[next] = z || (!fed && a.pending[here]);
    if (call.keep) a.decided[here] = decided, a.s_z[here] = s_z;
}

}  // namespace hm
