// A slice of the batch backwards: the exact straight-through gradient, from the events.
#pragma once

#include "forward.h"

namespace hm {

// What the backward pass of a slice carries from step to step, of each layer.
template <class T>
struct Slice<T>::Back {
    std::vector<Rows<T>> dh, dc, dq;  // (n, H), of the state after the step; (n, K)
    std::vector<Rows<T>> others;      // (n, 3 H + 2): differences, and products with dc
    std::vector<std::vector<std::array<int, 3>>> key;  // (n): what they were made from
    std::vector<std::vector<int>> next_u;              // (n): row of u with the h of now
    std::vector<std::vector<T>> dz, dpending;          // (n)
    std::vector<T> z_below, z_before;  // (n): of the boundary below; of its own, one step ago

    explicit Back(size_t L)
        : dh(L), dc(L), dq(L), others(L), key(L), next_u(L), dz(L), dpending(L) {}
};

template <class T>
void Slice<T>::backward(const Gradients<T> &g) {
    const Call<T> &call = p.call;
    int L = p.top() + 1, D = L - 1, widest = 0;
    Back s(L);
    sums = g.layers;
    memory = std::vector<std::vector<T>>(L);
    of_U = of_W = of_V = std::vector<Pairs>(L);
    slope = 0;
    ds = std::vector<Rows<T>>(L), dw = std::vector<Rows<T>>(L), dv = std::vector<Rows<T>>(L);
    for (int l = 0; l < L; l++) {
        begin_back(s, l, g);
        widest = std::max({widest, 4 * p.layer(l).H, p.layer(l).below, p.layer(l).above});
    }
    temporary.set_width(widest), temporary.grow(n + 1);
    s.z_below.resize(n), s.z_before.resize(n);
    const Layer<T> &lowest = p.layer(0);
    of_symbols.assign(p.tabled() ? size_t(call.symbols) * 4 * lowest.H : 0, 0);
    of_symbols_z.assign(p.tabled() ? size_t(call.symbols) * lowest.K : 0, 0);
    size_t by_rows = g.x && !p.tabled() ? size_t(call.steps) * n : 0;
    input_z.assign(by_rows * lowest.K, 0);
    of_input.assign(call.symbols ? by_rows * lowest.below : 0, 0);

    for (int t = call.steps - 1; t >= 0; t--)
        for (int l = L - 1; l >= 0; l--) {
            const Layer<T> &w = p.layer(l);
            std::fill(s.z_below.begin(), s.z_below.end(), T(0));
            std::fill(s.z_before.begin(), s.z_before.end(), T(0));
            for (int k = 0; k < n; k++) {
                if (t >= steps(k)) continue;
                if (g.hidden[l]) add(s.dh[l][k], T(1), g.hidden[l] + p.at(t, from + k) * w.H, w.H);
                if (l < D) detector_back(s, l, t, k, g);
            }
            moved_back(s, l, t);
            for (int k = 0; k < n; k++) {
                if (t >= steps(k)) continue;
                if (l > 0 && call.traces && call.copy && !moved(l, t, k)) copied_back(s, l, t, k);
                for (int i = 0; i < w.K; i++)  // the detector read h before the step
                    if (T q = s.dq[l][k][i]; q != 0)
                        add(s.dh[l][k], q, w.Uz + size_t(i) * w.Uz_stride, w.H);
                if (l < D) s.dz[l][k] = s.z_before[k];
                if (l > 0 && call.copy) s.dz[l - 1][k] += s.z_below[k];
            }
        }

    for (int l = 0; l < L; l++)
        for (int k = 0; k < n; k++) {
            int H = p.layer(l).H;
            size_t at = size_t(from + k) * H, z = size_t(from + k) * D + l;
            if (g.h0[l]) std::copy(s.dh[l][k], s.dh[l][k] + H, g.h0[l] + at);
            if (g.c0[l]) std::copy(s.dc[l][k], s.dc[l][k] + H, g.c0[l] + at);
            if (l < D && g.z0) g.z0[z] = s.dz[l][k];
            if (l < D && g.pending0) g.pending0[z] = s.dpending[l][k];
        }
    if (by_rows) input_back(g);
}

template <class T>
void Slice<T>::begin_back(Back &s, int l, const Gradients<T> &g) {
    const Layer<T> &w = p.layer(l);
    int D = p.top();
    size_t size = 0;
    w.each_sum([&](auto, int rows, int columns, int) { size += size_t(rows) * columns; });
    memory[l].assign(size, 0);
    T *free = memory[l].data();
    w.each_sum([&](auto field, int rows, int columns, int) {
        sums[l].*field = free;
        free += size_t(rows) * columns;
    });
    s.dh[l].assign(n, w.H, g.h[l] ? g.h[l] + size_t(from) * w.H : nullptr);
    s.dc[l].assign(n, w.H, g.c[l] ? g.c[l] + size_t(from) * w.H : nullptr);
    s.dq[l].assign(n, w.K, nullptr), s.others[l].assign(n, 3 * w.H + 2, nullptr);
    s.dz[l].assign(n, 0), s.dpending[l].assign(n, 0);
    for (int k = 0; k < n && l < D; k++) {
        size_t at = size_t(from + k) * D + l;
        if (g.z) s.dz[l][k] = g.z[at];
        if (g.pending) s.dpending[l][k] = g.pending[at];
    }
    s.key[l].assign(n, {-2, -2, -2});
    s.next_u[l] = tracks[l].last;
    size_t events = tracks[l].events.size();
    ds[l].set_width(4 * w.H), dw[l].set_width(4 * w.H), dv[l].set_width(4 * w.H);
    ds[l].grow(events), dw[l].grow(w.gain_U ? events : 0);
}

template <class T>
void Slice<T>::input_back(const Gradients<T> &g) {
    const std::vector<Event> &events = tracks[0].events;
    const Layer<T> &w = p.layer(0);
    auto of_row = [&](const Event &e) {
        return of_input.empty() ? g.x + p.at(e.step, from + e.row) * w.below
                                : &of_input[(size_t(e.step) * n + e.row) * w.below];
    };
    for (size_t e = n; e < events.size(); e++)
        products.add(w.gain_W ? dw[0][e] : ds[0][e], of_row(events[e]));
    products.compute(p.matrices.backward[0].W);
    for (size_t e = n; e < events.size(); e++)
        for (int i = 0; i < w.K; i++)
            add(of_row(events[e]), input_z[(size_t(events[e].step) * n + events[e].row) * w.K + i],
                w.Wz + size_t(i) * w.Wz_stride, w.below);
}

// The derivative of the boundary of layer l at step t, of its detector and of what that read.
template <class T>
void Slice<T>::detector_back(Back &s, int l, int t, int k, const Gradients<T> &g) {
    const Call<T> &call = p.call;
    Track<T> &a = tracks[l];
    const Layer<T> &w = p.layer(l);
    int K = w.K, top = p.top();
    size_t here = size_t(t) * n + k, at = p.at(t, from + k) * top + l;
    bool fed = is_fed(l, t, k), open = is_open(l, t, k), z = a.z[here + n];
    T dz = s.dz[l][k];
    if (g.boundaries) dz += g.boundaries[at];
    if (call.gate == PENDING) {  // the gate of the next step is z + (1 - z) (1 - z_below) gate
        T d = s.dpending[l][k], was = a.pending[here];
        dz += d * (1 - (fed ? T(0) : was));
        s.z_below[k] -= d * (1 - T(z)) * was;
        s.dpending[l][k] = z || fed ? T(0) : d;
    }
    if (call.forced && !std::isnan(call.forced[at]) && !call.straight_through) {
        if (g.forced) g.forced[at] = dz;
        dz = 0;
    }
    if (call.hold) {  // z = alpha z
        if (!(call.flush && a.z[here])) s.z_below[k] += dz * a.decided[here];
        if (call.flush && !fed) s.z_before[k] += dz * a.decided[here];
        if (!moved(l, t, k)) dz = 0;
    }
    T s_z = a.s_z[here], probability = (T(call.slope) * s_z + 1) / 2;
    if (call.estimator == REINFORCE) dz = 0;
    if (call.estimator == GUMBEL && call.noise) {
        T least = T(0.01), most = T(0.99), temperature = T(call.temperature);
        T q = std::min(std::max(probability, least), most), noise = call.noise[at];
        T odds = std::log(q / (1 - q)) - std::log(noise / (1 - noise));
        T y = 1 / (1 + std::exp(-odds / temperature));
        bool inside = probability >= least && probability <= most;
        dz *= inside ? y * (1 - y) / (temperature * q * (1 - q)) : T(0);
    }
    if (g.probabilities) dz += g.probabilities[at];
    if (!(probability >= 0 && probability <= 1)) dz = 0;
    slope += double(dz) * s_z / 2;
    T d = dz * T(call.slope) / 2;
    const Layer<T> &sum = sums[l];
    if (w.D2) *sum.d2 += d;
    bool wants_gate = call.traces && w.above && call.gate != ALWAYS;
    T by_gate = 0;
    for (int i = 0; i < K; i++) {
        T q = d;
        if (w.D2) {
            T u = a.detector[here * K + i];
            sum.D2[i] += d * gelu(u);
            q *= w.D2[i] * gelu_slope(u);
        }
        s.dq[l][k][i] = q;
        if (q == 0) continue;
        sum.bz[i] += q;
        add(sum.Uz + size_t(i) * w.H, q, h(l, t - 1, k), w.H);
        const T *Wz = w.Wz + size_t(i) * w.Wz_stride;
        if (l > 0 && call.traces && call.copy) s.z_below[k] += q * dot(Wz, below(l, t, k), w.below);
        if (fed && p.tabled() && l == 0)
            of_symbols_z[size_t(call.indices[p.at(t, from + k)]) * K + i] += q;
        else if (fed) {
            add(sum.Wz + size_t(i) * w.below, q, below(l, t, k), w.below);
            if (l > 0)
                add(s.dh[l - 1][k], q, Wz, w.below);
            else if (!input_z.empty())
                input_z[here * K + i] = q;
        }
        if (w.above == 0) continue;
        const T *Vz = w.Vz + size_t(i) * w.Vz_stride;
        if (wants_gate) by_gate += q * dot(Vz, h(l + 1, t - 1, k), w.above);
        if (open) {
            add(sum.Vz + size_t(i) * w.above, q, h(l + 1, t - 1, k), w.above);
            add(s.dh[l + 1][k], q, Vz, w.above);
        }
    }
    if (wants_gate) (call.gate == PENDING ? s.dpending[l][k] : s.z_before[k]) += by_gate;
}

// The derivatives of all rows of layer l that moved at step t.
template <class T>
void Slice<T>::moved_back(Back &s, int l, int t) {
    const Call<T> &call = p.call;
    Track<T> &a = tracks[l];
    const Layer<T> &w = p.layer(l);
    const auto &matrices = p.matrices.backward[l];
    bool norm = w.gain_U, tabled = l == 0 && p.tabled();
    bool z_below_learns = call.traces && l > 0 && call.copy;
    int first = a.start[t], end = a.start[t + 1], R = 4 * w.H;

    for (int e = first; e < end; e++) {
        auto [k, step, before, entry, fed, open, flushed] = a.events[e];
        Move<T> m = what_moves(l, t, e, norm && !tabled && (fed || z_below_learns));
        Moved<T> was{a.gates[e], a.c[e], a.squashed[e], h(l, t - 1, k)};
        T *d = norm ? temporary[n] : ds[l][e], *d_W = norm ? dw[l][e] : d, *d_V = d;
        if (norm && open) {
            dv[l].grow(of_V[l].left.size() + 1);
            d_V = dv[l][of_V[l].left.size()];
        }
        Choice<T> by = hm::backward(m, was, s.dh[l][k], s.dc[l][k], d, ds[l][e], d_W, d_V, sums[l]);
        if (call.traces) {
            s.z_below[k] += (flushed ? T(0) : by.alpha + by.beta - by.gamma) + by.w;
            if (call.flush) s.z_before[k] += fed ? -by.beta : by.alpha - by.gamma;
            if (call.gate == PENDING) s.dpending[l][k] += by.v;
            if (call.gate == BOUNDARY) s.z_before[k] += by.v;
        }
        of_U[l].add(ds[l][e], was.h_before);
        if (open) of_V[l].add(d_V, h(l + 1, t - 1, k));
        if (tabled)
            add(&of_symbols[size_t(call.indices[p.at(t, from + k)]) * R], T(1), d, R);
        else if (fed)
            of_W[l].add(d_W, l && call.seen[l - 1] ? a.masked[e] : below(l, t, k));
        if (l > 0) s.next_u[l][k] = e;
    }

    for (int e = first; e < end; e++) products.add(ds[l][e], s.dh[l][a.events[e].row]);
    products.compute(matrices.U);

    auto read = [&](const Event &e) { return e.fed || (!norm && z_below_learns); };
    for (int e = first; e < end && l > 0; e++)
        if (read(a.events[e])) products.add(norm ? dw[l][e] : ds[l][e], temporary[e - first]);
    products.compute(matrices.W);
    for (int e = first; e < end && l > 0; e++) {
        if (!read(a.events[e])) continue;
        int k = a.events[e].row;
        T *d = temporary[e - first];
        for (int j = 0; call.seen[l - 1] && j < w.below; j++) d[j] *= factors(l, k)[j];
        if (!norm && z_below_learns) s.z_below[k] += dot(d, h(l - 1, t, k), w.below);
        if (a.events[e].fed) add(s.dh[l - 1][k], T(1), d, w.below);
    }
    size_t pair = of_V[l].left.size();
    for (int e = end - 1; e >= first; e--)
        if (a.events[e].open) products.add(of_V[l].left[--pair], temporary[e - first]);
    products.compute(matrices.V);
    for (int e = first; e < end; e++)
        if (a.events[e].open)
            add(s.dh[l + 1][a.events[e].row], T(1), temporary[e - first], w.above);
}

// The gradient of the boundaries around a row that copied: equation 2 sums what it did and did not.
template <class T>
void Slice<T>::copied_back(Back &s, int l, int t, int k) {
    const Call<T> &call = p.call;
    Track<T> &a = tracks[l];
    const Layer<T> &w = p.layer(l);
    int e = a.now[size_t(t) * n + k], entry = a.used[size_t(t) * n + k], next = s.next_u[l][k];
    T *d = s.others[l][k], *dc = s.dc[l][k], *written = d + 3 * w.H;
    const T *kept = call.kept[l] ? call.kept[l] + p.at(t, from + k) * w.H : nullptr;
    std::array<int, 3> key{e, entry, next};
    bool same = s.key[l][k] == key;
    if (!same) {
        Contribution<T> from_h(a.u[next], w.gain_U, 4 * w.H), from_above;
        if (entry >= 0) from_above = {a.v[entry], w.gain_V, 4 * w.H};
        Move<T> m{w, from_h, {}, from_above, false, entry >= 0, false, a.c[e]};
        differences(m, a.squashed[e], h(l, t - 1, k), d);
        s.key[l][k] = key;
    }
    for (int i = 0; i < 2 && (!same || kept); i++)
        written[i] = dot_changed(dc, d + i * w.H, kept, T(call.zoneout), w.H);
    T shown = dot(s.dh[l][k], d + 2 * w.H, w.H);
    s.z_below[k] += written[0] + written[1] + shown;
    if (call.flush) s.z_before[k] += written[0] + shown;
}

}  // namespace hm
