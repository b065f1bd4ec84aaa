// A slice of the batch backwards: the exact straight-through gradient, from the events.
#pragma once

#include "forward.h"

namespace hm {

// What the backward pass of a slice carries from step to step.
template <class T>
struct Slice<T>::Back {
    std::vector<std::vector<T>> dh, dc;        // of each layer (n, H): of the state after the step
    std::vector<std::vector<T>> dz, dpending;  // (n)
    std::vector<std::vector<T>> dq;      // (n, K): of the detectors' pre-activations at this step
    std::vector<std::vector<T>> others;  // (n, 3, H): see Alternative
    std::vector<std::vector<int>> key,
        next_u;  // (n, 3): what it was made from; (n): row of u with the h of now
    std::vector<std::vector<T>> written;  // (n, 2): its products with dc
    std::vector<T> z_below;               // (n): gradient of the boundary below
    std::vector<T> z_before;              // (n): of the layer's own, one step ago
};

template <class T>
void Slice<T>::backward(const Gradients &g) {
    const Call &call = p.call;
    int L = p.top() + 1, D = L - 1;
    Back s;
    sums = std::vector<Sum>(L);
    of_U = of_W = of_V = std::vector<Pairs>(L);
    slope = 0;
    ds = std::vector<Rows<T>>(L), dw = std::vector<Rows<T>>(L), dv = std::vector<Rows<T>>(L);
    int widest = 0;
    for (int l = 0; l < L; l++) {
        const Layer &w = p.layer(l);
        widest = std::max({widest, 4 * w.H, w.below, w.above});
        auto state = [&](const void *of_end, int width) {
            std::vector<T> d(size_t(n) * width, 0);
            if (of_end) {
                const T *given = as<T>(of_end) + size_t(from) * width;
                d.assign(given, given + d.size());
            }
            return d;
        };
        s.dh.push_back(state(g.h[l], w.H)), s.dc.push_back(state(g.c[l], w.H));
        auto of_end = [&](const void *given) {
            std::vector<T> d(n, 0);
            if (given && l < D)
                for (int k = 0; k < n; k++) d[k] = as<T>(given)[size_t(from + k) * D + l];
            return d;
        };
        s.dz.push_back(of_end(g.z)), s.dpending.push_back(of_end(g.pending));
        s.dq.emplace_back(size_t(n) * w.K, T(0));
        s.others.emplace_back(call.traces && l ? size_t(n) * 3 * w.H : 0);
        s.key.emplace_back(size_t(n) * 3, -2), s.written.emplace_back(size_t(n) * 2);
        s.next_u.push_back(tracks[l].last);
        s.next_u.back().resize(n, -1);
        Sum &sum = sums[l];
        bool norm = w.gain_U != nullptr;
        sum.b.assign(4 * w.H, 0);
        if (norm) {
            sum.gain_U.assign(4 * w.H, 0), sum.gain_W = sum.gain_V = sum.gain_U;
            sum.gain_c.assign(w.H, 0), sum.bias_c = sum.gain_c;
        }
        sum.Uz.assign(size_t(w.K) * w.H, 0), sum.Wz.assign(size_t(w.K) * w.below, 0);
        sum.Vz.assign(size_t(w.K) * w.above, 0), sum.bz.assign(w.K, 0), sum.D2.assign(w.K, 0),
            sum.d2.assign(1, 0);
        ds[l].set_width(4 * w.H), ds[l].grow(tracks[l].row.size());
        if (norm) dw[l].set_width(4 * w.H), dv[l].set_width(4 * w.H);
        if (norm) dw[l].grow(tracks[l].row.size());
    }
    temporary.set_width(widest);
    temporary.grow(n + 1);
    s.z_below.resize(n), s.z_before.resize(n);
    of_symbols.assign(p.tabled() ? size_t(call.symbols) * 4 * p.layer(0).H : 0, 0);
    of_symbols_z.assign(p.tabled() ? size_t(call.symbols) * p.layer(0).K : 0, 0);
    bool by_rows = g.x && !p.tabled();
    input_z.assign(by_rows ? size_t(call.T) * n * p.layer(0).K : 0, 0);
    of_input.assign(by_rows && call.symbols ? size_t(call.T) * n * p.layer(0).below : 0, 0);

    for (int t = call.T - 1; t >= 0; t--)
        for (int l = L - 1; l >= 0; l--) {
            Track<T> &a = tracks[l];
            const Layer &w = p.layer(l);
            if (g.hidden[l])
                for (int k = 0; k < n; k++)
                    if (t < steps(k))
                        add(&s.dh[l][size_t(k) * w.H], T(1),
                            as<T>(g.hidden[l]) + p.at(t, from + k) * w.H, w.H);
            std::fill(s.z_below.begin(), s.z_below.end(), T(0));
            std::fill(s.z_before.begin(), s.z_before.end(), T(0));
            if (l < D)
                for (int k = 0; k < n; k++)
                    if (t < steps(k)) detector_back(s, l, t, k, g);
            moved_back(s, l, t);
            if (l > 0 && call.traces && call.copy)
                for (int k = 0; k < n; k++)
                    if (t < steps(k) && a.step[a.now[size_t(t) * n + k]] != t)
                        copied_back(s, l, t, k);
            for (int k = 0; k < n; k++) {
                if (t >= steps(k)) continue;
                for (int i = 0; i < w.K; i++)  // the detector read h before the step
                    if (T q = s.dq[l][size_t(k) * w.K + i]; q != 0)
                        add(&s.dh[l][size_t(k) * w.H], q, as<T>(w.Uz) + size_t(i) * w.Uz_stride,
                            w.H);
                if (l < D) s.dz[l][k] = s.z_before[k];
                if (l > 0 && call.copy) s.dz[l - 1][k] += s.z_below[k];
            }
        }

    for (int l = 0; l < L; l++) {
        const Layer &w = p.layer(l);
        size_t at = size_t(from) * w.H;
        if (g.h0[l]) std::copy(s.dh[l].begin(), s.dh[l].end(), as<T>(g.h0[l]) + at);
        if (g.c0[l]) std::copy(s.dc[l].begin(), s.dc[l].end(), as<T>(g.c0[l]) + at);
        for (int k = 0; k < n && l < D; k++) {
            if (g.z0) as<T>(g.z0)[size_t(from + k) * D + l] = s.dz[l][k];
            if (g.pending0) as<T>(g.pending0)[size_t(from + k) * D + l] = s.dpending[l][k];
        }
    }
    if (by_rows) input_back(g);
}

template <class T>
void Slice<T>::input_back(const Gradients &g) {
    const Track<T> &a = tracks[0];
    const Layer &w = p.layer(0);
    auto of_row = [&](int e) {
        return of_input.empty() ? as<T>(g.x) + p.at(a.step[e], from + a.row[e]) * w.below
                                : &of_input[(size_t(a.step[e]) * n + a.row[e]) * w.below];
    };
    lists.clear();
    for (int e = n; e < int(a.row.size()); e++)
        lists.a.push_back(w.gain_W ? dw[0][e] : ds[0][e]), lists.c.push_back(of_row(e));
    lists.multiply(p.matrices.backward[0].W);
    for (int e = n; e < int(a.row.size()); e++)
        for (int i = 0; i < w.K; i++)
            add(of_row(e), input_z[(size_t(a.step[e]) * n + a.row[e]) * w.K + i],
                as<T>(w.Wz) + size_t(i) * w.Wz_stride, w.below);
}

// The derivative of the boundary of layer l at step t, of its detector and of what the detector
// read.
template <class T>
void Slice<T>::detector_back(Back &s, int l, int t, int k, const Gradients &g) {
    const Call &call = p.call;
    Track<T> &a = tracks[l];
    const Layer &w = p.layer(l);
    int K = w.K, top = p.top();
    size_t here = size_t(t) * n + k, at = p.at(t, from + k) * top + l;
    bool fed = l == 0 || !call.copy || tracks[l - 1].z[here + n], open = is_open(l, t, k);
    bool moved = a.step[a.now[here]] == t, z = a.z[here + n];
    T dz = s.dz[l][k];
    if (g.boundaries) dz += as<T>(g.boundaries)[at];
    if (call.gate == PENDING) {  // the gate of the next step is z + (1 - z) (1 - z_below) gate
        T d = s.dpending[l][k], was = a.pending[here];
        dz += d * (1 - (fed ? T(0) : was));
        s.z_below[k] -= d * (1 - T(z)) * was;
        s.dpending[l][k] = z || fed ? T(0) : d;
    }
    if (call.forced && !std::isnan(as<T>(call.forced)[at]) && !call.straight_through) {
        if (g.forced) as<T>(g.forced)[at] = dz;
        dz = 0;
    }
    if (call.hold) {  // z = alpha z
        if (!(call.flush && a.z[here])) s.z_below[k] += dz * a.decided[here];
        if (call.flush && !fed) s.z_before[k] += dz * a.decided[here];
        if (!moved) dz = 0;
    }
    T s_z = a.s_z[here], probability = (T(call.slope) * s_z + 1) / 2;
    if (call.estimator == REINFORCE) dz = 0;
    if (call.estimator == GUMBEL && call.noise) {
        T q = std::min(std::max(probability, T(0)), T(1)),
          clamped = std::min(std::max(q, T(0.01)), T(0.99));
        T noise = as<T>(call.noise)[at];
        T y =
            1 / (1 + std::exp(-(std::log(clamped / (1 - clamped)) - std::log(noise / (1 - noise))) /
                              T(call.temperature)));
        dz *= q >= T(0.01) && q <= T(0.99)
                  ? y * (1 - y) / (T(call.temperature) * clamped * (1 - clamped))
                  : T(0);
    }
    if (g.probabilities) dz += as<T>(g.probabilities)[at];
    if (!(probability >= 0 && probability <= 1)) dz = 0;
    slope += double(dz) * s_z / 2;
    T d = dz * T(call.slope) / 2;
    if (w.D2) sums[l].d2[0] += d;
    bool wants_gate = call.traces && w.above && call.gate != ALWAYS;
    T by_gate = 0;
    for (int i = 0; i < K; i++) {
        T q = d;
        if (w.D2) {
            T u = a.detector[here * K + i];
            sums[l].D2[i] += d * gelu(u);
            q *= as<T>(w.D2)[i] * gelu_slope(u);
        }
        s.dq[l][size_t(k) * K + i] = q;
        if (q == 0) continue;
        Sum &sum = sums[l];
        sum.bz[i] += q;
        add(&sum.Uz[size_t(i) * w.H], q, h(l, t - 1, k), w.H);
        const T *Wz = as<T>(w.Wz) + size_t(i) * w.Wz_stride;
        if (l > 0 && call.traces && call.copy) s.z_below[k] += q * dot(Wz, below(l, t, k), w.below);
        if (fed && p.tabled() && l == 0)
            of_symbols_z[size_t(call.indices[p.at(t, from + k)]) * K + i] += q;
        else if (fed) {
            add(&sum.Wz[size_t(i) * w.below], q, below(l, t, k), w.below);
            if (l > 0)
                add(&s.dh[l - 1][size_t(k) * w.below], q, Wz, w.below);
            else if (!input_z.empty())
                input_z[here * K + i] = q;
        }
        if (w.above == 0) continue;
        const T *Vz = as<T>(w.Vz) + size_t(i) * w.Vz_stride;
        if (wants_gate) by_gate += q * dot(Vz, h(l + 1, t - 1, k), w.above);
        if (open) {
            add(&sum.Vz[size_t(i) * w.above], q, h(l + 1, t - 1, k), w.above);
            add(&s.dh[l + 1][size_t(k) * w.above], q, Vz, w.above);
        }
    }
    if (wants_gate) (call.gate == PENDING ? s.dpending[l][k] : s.z_before[k]) += by_gate;
}

// The derivatives of all rows of layer l that moved at step t.
template <class T>
void Slice<T>::moved_back(Back &s, int l, int t) {
    const Call &call = p.call;
    Track<T> &a = tracks[l];
    const Layer &w = p.layer(l);
    const auto &matrices = p.matrices.backward[l];
    Sum &sum = sums[l];
    bool norm = w.gain_U != nullptr, tabled = l == 0 && p.tabled();
    bool z_below_learns = call.traces && l > 0 && call.copy;
    int first = a.start[t], end = a.start[t + 1], R = 4 * w.H;
    Sums<T> into{sum.b.data(),      sum.gain_U.data(), sum.gain_W.data(),
                 sum.gain_V.data(), sum.gain_c.data(), sum.bias_c.data()};

    for (int e = first; e < end; e++) {
        int k = a.row[e];
        bool fed = a.fed[e], open = a.open[e];
        Move<T> m = what_moves(l, t, k, e, norm && !tabled && (fed || z_below_learns), true);
        Moved<T> was{a.gates[e], a.c[e], a.squashed[e], h(l, t - 1, k), a.of_c[e]};
        T *d = norm ? temporary[n] : ds[l][e];
        if (norm && open) dv[l].grow(of_V[l].left.size() + 1);
        T *d_V = open ? norm ? dv[l][of_V[l].left.size()] : d : nullptr;
        Choice<T> choice =
            hm::backward(m, was, &s.dh[l][size_t(k) * w.H], &s.dc[l][size_t(k) * w.H], d, ds[l][e],
                         norm ? dw[l][e] : nullptr, d_V, into);
        if (call.traces) {
            s.z_below[k] +=
                (a.flushed[e] ? T(0) : choice.alpha + choice.beta - choice.gamma) + choice.w;
            if (call.flush) s.z_before[k] += fed ? -choice.beta : choice.alpha - choice.gamma;
            if (call.gate == PENDING) s.dpending[l][k] += choice.v;
            if (call.gate == BOUNDARY) s.z_before[k] += choice.v;
        }
        of_U[l].left.push_back(ds[l][e]), of_U[l].right.push_back(was.h_before);
        if (open) of_V[l].left.push_back(d_V), of_V[l].right.push_back(h(l + 1, t - 1, k));
        if (tabled)
            add(&of_symbols[size_t(call.indices[p.at(t, from + k)]) * R], T(1), d, R);
        else if (fed) {
            of_W[l].left.push_back(norm ? dw[l][e] : ds[l][e]);
            of_W[l].right.push_back(l && call.seen[l - 1] ? a.masked[e] : below(l, t, k));
        }
        if (l > 0) s.next_u[l][k] = e;
    }

    lists.clear();
    for (int e = first; e < end; e++)
        lists.a.push_back(ds[l][e]), lists.c.push_back(&s.dh[l][size_t(a.row[e]) * w.H]);
    lists.multiply(matrices.U);

    if (l > 0) {
        lists.clear();
        int reading = end;
        if (norm || !z_below_learns)
            while (reading > first && !a.fed[reading - 1]) reading--;
        for (int e = first; e < reading; e++)
            lists.a.push_back(norm ? dw[l][e] : ds[l][e]), lists.c.push_back(temporary[e - first]);
        lists.multiply(matrices.W);
        for (int e = first; e < reading; e++) {
            int k = a.row[e];
            T *d = temporary[e - first];
            if (call.seen[l - 1]) {
                const T *factors = as<T>(call.seen[l - 1]) + size_t(from + k) * w.below;
                for (int j = 0; j < w.below; j++) d[j] *= factors[j];
            }
            if (!norm && z_below_learns) s.z_below[k] += dot(d, h(l - 1, t, k), w.below);
            if (a.fed[e]) add(&s.dh[l - 1][size_t(k) * w.below], T(1), d, w.below);
        }
    }
    lists.clear();
    size_t pair = of_V[l].left.size();
    for (int e = end - 1; e >= first; e--)
        if (a.open[e])
            lists.a.push_back(of_V[l].left[--pair]), lists.c.push_back(temporary[e - first]);
    lists.multiply(matrices.V);
    for (int e = first; e < end; e++)
        if (a.open[e])
            add(&s.dh[l + 1][size_t(a.row[e]) * w.above], T(1), temporary[e - first], w.above);
}

// The gradient of the boundaries around a row that copied: equation 2 is a sum over what it did and
// what it did not do.
template <class T>
void Slice<T>::copied_back(Back &s, int l, int t, int k) {
    const Call &call = p.call;
    Track<T> &a = tracks[l];
    const Layer &w = p.layer(l);
    int e = a.now[size_t(t) * n + k], entry = a.used[size_t(t) * n + k], next = s.next_u[l][k];
    T *d = &s.others[l][size_t(k) * 3 * w.H], *dc = &s.dc[l][size_t(k) * w.H];
    Alternative<T> other{d, d + w.H, d + 2 * w.H};
    int *key = &s.key[l][size_t(k) * 3];
    const T *kept = call.kept[l] ? as<T>(call.kept[l]) + p.at(t, from + k) * w.H : nullptr;
    bool same = key[0] == e && key[1] == entry && key[2] == next;
    if (!same) {
        Move<T> m;
        m.H = w.H, m.b = as<T>(w.b), m.open = entry >= 0;
        m.u = {a.u[next], as<T>(w.gain_U), w.gain_U ? a.of_u[next] : Moments<T>()};
        if (m.open) m.v = {a.v[entry], as<T>(w.gain_V), w.gain_V ? a.of_v[entry] : Moments<T>()};
        other.fill(m, a.c[e], a.squashed[e], h(l, t - 1, k));
        key[0] = e, key[1] = entry, key[2] = next;
    }
    T *written = &s.written[l][size_t(k) * 2];
    if (!same || kept) {
        T share = T(call.zoneout);
        written[0] = dot_changed(dc, other.write, kept, share, w.H);
        written[1] = dot_changed(dc, other.keep, kept, share, w.H);
    }
    T shown = dot(&s.dh[l][size_t(k) * w.H], other.show, w.H);
    s.z_below[k] += written[0] + written[1] + shown;
    if (call.flush) s.z_before[k] += written[0] + shown;
}

}  // namespace hm
