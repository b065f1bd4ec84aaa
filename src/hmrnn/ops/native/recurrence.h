// The recurrence over the steps of a slice of the batch, forwards with a log and backwards from it.
//
// Work is done for events: the rows of a layer that move at a step. What a step reads of other steps and layers (h of
// the same layer, of the one below and of the one above) is read where the outputs hold it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "cell.h"
#include "interface.h"
#include "matrix.h"

namespace hm {

template <class T>
T *as(void *p) {
    return static_cast<T *>(p);
}
template <class T>
const T *as(const void *p) {
    return static_cast<const T *>(p);
}

// The matrices of a network in the order in which products read them.
template <class T>
struct Matrices {
    struct OfLayer {
        Packed<T> U, W, V;
    };
    std::vector<OfLayer> forward, backward;

    static void pack(const Network &net, std::vector<OfLayer> &to, bool transposed) {
        if (!to.empty()) return;
        to = std::vector<OfLayer>(net.layers);
        for (int l = 0; l < net.layers; l++) {
            const Layer &w = net.layer[l];
            auto put = [&](Packed<T> &p, const void *a, int k) {
                if (a == nullptr || k == 0) return;
                transposed ? p.transposed(as<T>(a), 4 * w.H, k) : p.as_is(as<T>(a), 4 * w.H, k);
            };
            put(to[l].U, w.U, w.H), put(to[l].W, w.W, w.below), put(to[l].V, w.V, w.above);
        }
    }
};

// What one layer remembers of a slice.
template <class T>
struct Track {
    // of each event, in the order of time
    std::vector<int> row, step, before, entry;  // before: the row's last event; entry: the row of v that it read
    std::vector<uint8_t> fed, open, flushed;
    Rows<T> gates, c, squashed, u, w, masked, v;
    std::vector<Moments<T>> of_u, of_w, of_v, of_c;
    std::vector<int> start;           // (T + 1): the first event of each step
    std::vector<int> now, used;       // (T, n): the event that made h; the row of v that was read, -1 for none
    std::vector<uint8_t> z, pending;  // (T + 1, n): at [0] those before the first step
    std::vector<uint8_t> decided;     // (T, n): z before hold and forced values
    std::vector<T> s_z;               // (T, n)
    std::vector<T> detector;          // (T, n, K): the hidden layer's pre-activations
    std::vector<int> last;            // (n): the row of u for h at the end
    int entries = 0;                  // rows of v
    int first = 0;                    // event of the step that is being computed

    // of each row of the batch, now
    std::vector<int> event, read;     // event that made h; row of v that holds V h of the layer above, -1: none yet
    std::vector<T> Uh, Vh;            // (n, K)
    std::vector<uint8_t> knows_Uh, knows_Vh;
};

// The products with x, or with the embedding of each symbol, for the first layer.
template <class T>
struct Table {
    Rows<T> s;
    std::vector<Moments<T>> of;
};

template <class T>
class Pass;

template <class T>
class Slice {
  public:
    Slice(const Pass<T> &pass, int from, int n) : p(pass), from(from), n(n) {}
    void forward();
    void backward(const Gradients &g);

    // sums of gradients over the rows of this slice; in the order of Layer's fields
    struct Sum {
        std::vector<T> b, gain_U, gain_W, gain_V, gain_c, bias_c, Uz, Wz, Vz, bz, D2, d2;
    };
    std::vector<Sum> sums;
    // pairs of rows whose outer products are the gradients of U, W and V
    struct Pairs {
        std::vector<const T *> left, right;
    };
    std::vector<Pairs> of_U, of_W, of_V;
    std::vector<T> of_symbols, of_symbols_z;  // (symbols, 4H), (symbols, K): by rows of the table
    std::vector<T> of_input;                  // (T, n, below): where rows of the embedding are read as they come
    double slope = 0;

  private:
    friend class Pass<T>;
    const Pass<T> &p;
    int from, n;
    std::vector<Track<T>> tracks;
    Table<T> input;                                // of this slice, unless symbols share one
    std::vector<Rows<T>> ds, dw, dv;               // of each layer's events, for the pairs
    Rows<T> temporary, c_now;
    std::vector<T> input_z;                        // (T, n, K): of the first detector, if the input's gradient is wanted

    struct Lists {
        std::vector<const T *> a;
        std::vector<T *> c;
        void clear() { a.clear(), c.clear(); }
        void multiply(const Packed<T> &m) { hm::multiply<T>(int(a.size()), a.data(), m, c.data()); }
    } lists;

    int chunk() const { return std::max(1, 64 / n); }
    // Does the backward pass need the products with h and with the layer below? Otherwise those of a step overwrite them.
    bool keeps_u(int l) const { return p.call.keep && (p.layer(l).gain_U || (p.call.traces && l > 0)); }
    bool keeps_w(int l) const { return p.call.keep && p.layer(l).gain_W; }
    int steps(int k) const { return p.call.lengths ? int(p.call.lengths[from + k]) : p.call.T; }
    const T *h(int l, int t, int k) const;  // after step t; t = -1: before the first
    const T *below(int l, int t, int k) const { return l ? h(l - 1, t, k) : p.input(t, from + k); }
    bool is_open(int l, int t, int k) const;
    void read_input(int t);
    void input_back(const Gradients &g);
    void move(int l, int t);
    void detect(int l, int t, int k, bool moved, bool fed);
    Move<T> what_moves(int l, int t, int k, int e, bool reads, bool back) const;
    Contribution<T> read_below(int l, int t, int k, int e) const;

    struct Back;
    void moved_back(Back &s, int l, int t);
    void copied_back(Back &s, int l, int t, int k);
    void detector_back(Back &s, int l, int t, int k, const Gradients &g);
};

// Runs f(0), ..., f(n - 1) at once, the first on this thread.
template <class F>
void parallel(int n, F f) {
    std::atomic<bool> failed{false};
    auto run = [&](int i) {
        try {
            f(i);
        } catch (...) {
            failed = true;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < n; i++) threads.emplace_back(run, i);
    run(0);
    for (auto &t : threads) t.join();
    if (failed) throw std::bad_alloc();
}

// A call, and what its backward pass needs of it.
template <class T>
class Pass {
  public:
    const Network net;
    const Call call;
    Matrices<T> &matrices;

    Pass(const Network &network, const Call &given, Matrices<T> &packed) : net(network), call(given), matrices(packed) {
        layers.assign(net.layer, net.layer + net.layers);
        hidden.assign(call.hidden, call.hidden + net.layers);
        h0.assign(call.h0, call.h0 + net.layers), c0.assign(call.c0, call.c0 + net.layers);
        if (call.kept) kept.assign(call.kept, call.kept + net.layers);
        if (call.seen) seen.assign(call.seen, call.seen + net.layers - 1);
        int slices = std::max(1, std::min(call.threads, call.B / 4));
        for (int i = 0; i < slices; i++) {
            int a = int(int64_t(call.B) * i / slices), b = int(int64_t(call.B) * (i + 1) / slices);
            parts.emplace_back(new Slice<T>(*this, a, b - a));
        }
    }

    void forward();
    void backward(Gradients &g);

    const Layer &layer(int l) const { return layers[l]; }
    int top() const { return net.layers - 1; }
    bool tabled() const { return call.symbols && call.symbols <= int64_t(call.T) * call.B; }
    const T *input(int t, int b) const {
        int64_t i = int64_t(t) * call.B + b;
        return as<T>(call.x) + (call.symbols ? call.indices[i] : i) * layer(0).below;
    }
    size_t at(int t, int b) const { return size_t(t) * call.B + b; }
    T &output(int l, int t, int b) const { return as<T>(hidden[l])[at(t, b) * layer(l).H]; }

    std::vector<Layer> layers;
    std::vector<void *> hidden;
    std::vector<const void *> h0, c0, kept, seen;
    Table<T> table;
    std::vector<std::unique_ptr<Slice<T>>> parts;

  private:
    void add_weights(Gradients &g, int l);
    void add_input(Gradients &g);
};

template <class T>
void fill_table(Table<T> &table, const Packed<T> &W, int n, const T *const *rows, int R, bool norm) {
    table.s.set_width(R);
    table.s.grow(n);
    std::vector<T *> to(n);
    for (int i = 0; i < n; i++) to[i] = table.s[i];
    multiply<T>(n, rows, W, to.data());
    if (!norm) return;
    table.of.resize(n);
    for (int i = 0; i < n; i++) table.of[i] = moments(table.s[i], R);
}

template <class T>
void Pass<T>::forward() {
    Matrices<T>::pack(net, matrices.forward, true);
    if (tabled()) {
        std::vector<const T *> rows(call.symbols);
        for (int i = 0; i < call.symbols; i++) rows[i] = as<T>(call.x) + size_t(i) * layer(0).below;
        fill_table(table, matrices.forward[0].W, call.symbols, rows.data(), 4 * layer(0).H, layer(0).gain_W != nullptr);
    }
    parallel(int(parts.size()), [&](int i) { parts[i]->forward(); });
}

template <class T>
const T *Slice<T>::h(int l, int t, int k) const {
    return t < 0 ? as<T>(p.h0[l]) + size_t(from + k) * p.layer(l).H : &p.output(l, t, from + k);
}

// Whether layer l reads the layer above at step t.
template <class T>
bool Slice<T>::is_open(int l, int t, int k) const {
    if (l == p.top() || p.layer(l).above == 0) return false;
    const Track<T> &a = tracks[l];
    switch (p.call.gate) {
        case ALWAYS: return true;
        case BOUNDARY: return a.z[size_t(t) * n + k];
        case PENDING: return a.pending[size_t(t) * n + k];
        default: return false;
    }
}

// Products with x for some steps at once: a few rows at a time would read all of W for each of them.
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
    for (size_t i = 0; i < lists.c.size(); i++) input.of[size_t(start) * n + i] = moments(lists.c[i], R);
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
    size_t i = p.tabled() ? p.call.indices[p.at(t, from + k)] : size_t(keeps_w(0) ? t : t % chunk()) * n + k;
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
    m.kept = p.kept.empty() ? nullptr : as<T>(p.kept[l]) + p.at(t, from + k) * w.H;
    m.share = T(p.call.zoneout);
    return m;
}

template <class T>
void Slice<T>::forward() {
    const Call &call = p.call;
    int L = p.net.layers, T_ = call.T, D = L - 1;
    bool keep = call.keep;
    tracks = std::vector<Track<T>>(L);
    int widest = 0;
    for (int l = 0; l < L; l++) widest = std::max(widest, p.layer(l).H);
    c_now.set_width(widest);
    if (!keep) c_now.grow(size_t(L) * n);
    for (int l = 0; l < L; l++) {
        Track<T> &a = tracks[l];
        const Layer &w = p.layer(l);
        a.gates.set_width(4 * w.H), a.u.set_width(4 * w.H), a.w.set_width(4 * w.H), a.v.set_width(4 * w.H);
        if (l == 0) input.s.set_width(4 * w.H);
        a.c.set_width(w.H), a.squashed.set_width(w.H), a.masked.set_width(w.below);
        a.event.resize(n), a.read.assign(n, -1);
        a.Uh.resize(size_t(n) * w.K), a.Vh.resize(size_t(n) * w.K);
        a.knows_Uh.assign(n, 0), a.knows_Vh.assign(n, 0);
        a.z.assign(size_t(T_ + 1) * n, 0), a.pending = a.z;
        if (l < D)
            for (int k = 0; k < n; k++) {
                a.z[k] = as<T>(call.z0)[size_t(from + k) * D + l] > 0;
                if (call.gate == PENDING) a.pending[k] = as<T>(call.pending0)[size_t(from + k) * D + l] > 0;
            }
        if (keep) {
            a.now.resize(size_t(T_) * n), a.used.assign(size_t(T_) * n, -1);
            a.decided.assign(size_t(T_) * n, 0), a.s_z.assign(size_t(T_) * n, 0), a.start.resize(T_ + 1);
            if (w.D2) a.detector.resize(size_t(T_) * n * w.K);
            a.c.grow(n), a.squashed.grow(n);
        }
        for (int k = 0; k < n; k++) {  // the state before the first step is event k
            const T *c = as<T>(p.c0[l]) + size_t(from + k) * w.H;
            std::copy(c, c + w.H, keep ? a.c[k] : c_now[l * n + k]);
            a.event[k] = k;
        }
        if (keep) {
            a.row.assign(n, 0), a.step.assign(n, -1), a.before.assign(n, -1), a.entry.assign(n, -1);
            a.fed.assign(n, 0), a.open.assign(n, 0), a.flushed.assign(n, 0);
            a.of_c.resize(n);
            for (int k = 0; k < n; k++) {
                a.row[k] = k;
                if (l && call.traces) a.of_c[k] = squash<T>(w.H, a.c[k], as<T>(w.gain_c), as<T>(w.bias_c), a.squashed[k]);
            }
            if (w.gain_U) a.of_u.resize(n);
            if (w.gain_W) a.of_w.resize(n);
        }
    }
    for (int t = 0; t < T_; t++) {
        read_input(t);
        for (int l = 0; l < L; l++) move(l, t);
    }
    for (int l = 0; l < L; l++) {
        Track<T> &a = tracks[l];
        const Layer &w = p.layer(l);
        if (keep) a.start[T_] = int(a.row.size());
        for (int k = 0; k < n; k++) {
            size_t at = size_t(from + k) * w.H;
            const T *h_end = h(l, steps(k) - 1, k), *c_end = keep ? a.c[a.event[k]] : c_now[l * n + k];
            std::copy(h_end, h_end + w.H, as<T>(call.h[l]) + at);
            std::copy(c_end, c_end + w.H, as<T>(call.c[l]) + at);
            if (l == D) continue;
            as<T>(call.z)[size_t(from + k) * D + l] = a.z[size_t(steps(k)) * n + k];
            if (call.gate == PENDING) as<T>(call.pending)[size_t(from + k) * D + l] = a.pending[size_t(steps(k)) * n + k];
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
    if (!keep) a.row.clear(), a.step.clear(), a.before.clear(), a.entry.clear(), a.fed.clear(), a.open.clear(), a.flushed.clear();
    int first = a.first = int(a.row.size());
    if (keep) a.start[t] = first;

    // which rows move: those that are fed, then those that only flush
    auto moves = [&](int k, bool fed, bool flush) {
        a.row.push_back(k), a.step.push_back(t), a.before.push_back(a.event[k]);
        a.fed.push_back(fed), a.open.push_back(is_open(l, t, k)), a.flushed.push_back(flush), a.entry.push_back(-1);
    };
    auto is_fed = [&](int k) { return l == 0 || !call.copy || tracks[l - 1].z[size_t(t + 1) * n + k]; };
    auto flushes = [&](int k) { return call.flush && l < top && a.z[size_t(t) * n + k]; };
    for (int k = 0; k < n; k++)
        if (t < steps(k) && is_fed(k)) moves(k, true, flushes(k));
    int fed = int(a.row.size());
    for (int k = 0; k < n; k++)
        if (t < steps(k) && !is_fed(k) && flushes(k)) moves(k, false, true);
    int end = int(a.row.size());
    int u_at = keeps_u(l) ? 0 : first, w_at = keeps_w(l) ? 0 : first;  // event of the first row of u, of w
    a.gates.grow(end), a.u.grow(end - u_at), a.squashed.grow(end);
    if (keep) a.c.grow(end), a.of_c.resize(end);

    if (w.above && l < top) {  // V h: once for each h of the layer above
        lists.clear();
        int entries = a.entries;
        auto read = [&](int k) {
            if (a.read[k] < 0) {
                a.read[k] = keep ? a.entries++ : k;
                a.v.grow(a.read[k] + 1);
                lists.a.push_back(h(l + 1, t - 1, k)), lists.c.push_back(a.v[a.read[k]]);
                if (norm && !keep) a.of_v.resize(n);
            }
            return a.read[k];
        };
        for (int e = first; e < end; e++)
            if (a.open[e] || traces) a.entry[e] = read(a.row[e]);
        if (traces && l > 0)
            for (int k = 0; k < n; k++)
                if (t < steps(k) && is_open(l, t, k)) a.used[size_t(t) * n + k] = read(k);
        lists.multiply(matrices.V);
        if (norm && keep) {
            a.of_v.resize(a.entries);
            for (int i = entries; i < a.entries; i++) a.of_v[i] = moments(a.v[i], R);
        } else if (norm)
            for (T *row : lists.c)
                for (int k = 0; k < n; k++)
                    if (row == a.v[k]) a.of_v[k] = moments(row, R);
    }
    lists.clear();
    for (int e = first; e < end; e++) lists.a.push_back(h(l, t - 1, a.row[e])), lists.c.push_back(a.u[e - u_at]);
    lists.multiply(matrices.U);
    if (norm) {
        a.of_u.resize(end);
        for (int e = first; e < end; e++) a.of_u[e] = moments(a.u[e - u_at], R);
    }
    if (l > 0) {
        lists.clear();
        int reading = traces ? end : fed;
        a.w.grow(end - w_at);
        if (call.seen) a.masked.grow(end);
        for (int e = first; e < reading; e++) {
            const T *x = h(l - 1, t, a.row[e]);
            if (call.seen) {
                const T *factors = as<T>(p.seen[l - 1]) + size_t(from + a.row[e]) * w.below;
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
        auto of_c = hm::forward(m, a.gates[e], keep ? a.c[e] : c_now[l * n + k], a.squashed[e], &p.output(l, t, from + k));
        if (keep) a.of_c[e] = of_c;
    }

    // boundaries, and h of the rows that stood still
    std::vector<uint8_t> &mark = a.knows_Uh;
    int e = first, e_flush = fed;
    for (int k = 0; k < n; k++) {
        T *to = &p.output(l, t, from + k);
        bool is_moved = (e < fed && a.row[e] == k) || (e_flush < end && a.row[e_flush] == k), by_feeding = e < fed && a.row[e] == k;
        if (by_feeding) e++;
        else if (is_moved) e_flush++;
        if (call.moved) call.moved[p.at(t, from + k) * p.net.layers + l] = is_moved;
        if (t >= steps(k)) {
            std::fill(to, to + w.H, T(0));
            if (keep) a.now[size_t(t) * n + k] = a.event[k];
            if (l < top) {
                size_t at = p.at(t, from + k) * top + l;
                as<T>(call.boundaries)[at] = as<T>(call.probabilities)[at] = 0;
            }
            continue;
        }
        if (!is_moved) {
            const T *before = h(l, t - 1, k);
            std::copy(before, before + w.H, to);
        }
        if (l < top) detect(l, t, k, is_moved, is_fed(k));
        if (is_moved) {
            a.event[k] = by_feeding ? e - 1 : e_flush - 1;
            mark[k] = 0;
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
    return T(0.5) * std::erfc(-x * T(0.70710678118654752440)) + x * T(0.39894228040143267794) * std::exp(-x * x / 2);
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
        for (int i = 0; i < K; i++) Uh[i] = dot(as<T>(w.Uz) + size_t(i) * w.Uz_stride, h(l, t - 1, k), w.H);
        a.knows_Uh[k] = 1;
    }
    if (open && !a.knows_Vh[k]) {
        for (int i = 0; i < K; i++) Vh[i] = dot(as<T>(w.Vz) + size_t(i) * w.Vz_stride, h(l + 1, t - 1, k), w.above);
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
    bool decided = probability > (call.estimator != STEP && call.noise ? as<T>(call.noise)[at] : T(0.5));
    bool z = decided && (moved || !call.hold);
    if (call.forced && !std::isnan(as<T>(call.forced)[at])) z = as<T>(call.forced)[at] > 0;
    as<T>(call.boundaries)[at] = z;
    as<T>(call.probabilities)[at] = probability;
    a.z[next] = z;
    if (call.gate == PENDING) a.pending[next] = z || (!fed && a.pending[here]);
    if (call.keep) a.decided[here] = decided, a.s_z[here] = s_z;
}

// What the backward pass of a slice carries from step to step.
template <class T>
struct Slice<T>::Back {
    std::vector<std::vector<T>> dh, dc;          // of each layer (n, H): of the state after the step
    std::vector<std::vector<T>> dz, dpending;    // (n)
    std::vector<std::vector<T>> dq;              // (n, K): of the detectors' pre-activations at this step
    std::vector<std::vector<T>> others;          // (n, 3, H): see Alternative
    std::vector<std::vector<int>> key, next_u;   // (n, 3): what it was made from; (n): row of u with the h of now
    std::vector<std::vector<T>> written;         // (n, 2): its products with dc
    std::vector<T> z_below;                      // (n): gradient of the boundary below
    std::vector<T> z_before;                     // (n): of the layer's own, one step ago
};

template <class T>
void Slice<T>::backward(const Gradients &g) {
    const Call &call = p.call;
    int L = p.net.layers, D = L - 1;
    Back s;
    sums = std::vector<Sum>(L);
    of_U = of_W = of_V = std::vector<Pairs>(L);
    slope = 0;
    ds = std::vector<Rows<T>>(L), dw = std::vector<Rows<T>>(L), dv = std::vector<Rows<T>>(L);
    int widest = 0;
    for (int l = 0; l < L; l++) {
        const Layer &w = p.layer(l);
        widest = std::max({widest, 4 * w.H, w.below, w.above});
        auto state = [&](const void *const *from_above, int width) {
            std::vector<T> d(size_t(n) * width, 0);
            if (from_above && from_above[l]) {
                const T *given = as<T>(from_above[l]) + size_t(from) * width;
                d.assign(given, given + d.size());
            }
            return d;
        };
        s.dh.push_back(state(g.h, w.H)), s.dc.push_back(state(g.c, w.H));
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
        sum.Vz.assign(size_t(w.K) * w.above, 0), sum.bz.assign(w.K, 0), sum.D2.assign(w.K, 0), sum.d2.assign(1, 0);
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
            if (g.hidden && g.hidden[l])
                for (int k = 0; k < n; k++)
                    if (t < steps(k)) add(&s.dh[l][size_t(k) * w.H], T(1), as<T>(g.hidden[l]) + p.at(t, from + k) * w.H, w.H);
            std::fill(s.z_below.begin(), s.z_below.end(), T(0));
            std::fill(s.z_before.begin(), s.z_before.end(), T(0));
            if (l < D)
                for (int k = 0; k < n; k++)
                    if (t < steps(k)) detector_back(s, l, t, k, g);
            moved_back(s, l, t);
            if (l > 0 && call.traces && call.copy)
                for (int k = 0; k < n; k++)
                    if (t < steps(k) && a.step[a.now[size_t(t) * n + k]] != t) copied_back(s, l, t, k);
            for (int k = 0; k < n; k++) {
                if (t >= steps(k)) continue;
                for (int i = 0; i < w.K; i++)  // the detector read h before the step
                    if (T q = s.dq[l][size_t(k) * w.K + i]; q != 0)
                        add(&s.dh[l][size_t(k) * w.H], q, as<T>(w.Uz) + size_t(i) * w.Uz_stride, w.H);
                if (l < D) s.dz[l][k] = s.z_before[k];
                if (l > 0 && call.copy) s.dz[l - 1][k] += s.z_below[k];
            }
        }

    for (int l = 0; l < L; l++) {
        const Layer &w = p.layer(l);
        size_t at = size_t(from) * w.H;
        if (g.h0 && g.h0[l]) std::copy(s.dh[l].begin(), s.dh[l].end(), as<T>(g.h0[l]) + at);
        if (g.c0 && g.c0[l]) std::copy(s.dc[l].begin(), s.dc[l].end(), as<T>(g.c0[l]) + at);
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
            add(of_row(e), input_z[(size_t(a.step[e]) * n + a.row[e]) * w.K + i], as<T>(w.Wz) + size_t(i) * w.Wz_stride, w.below);
}

// The derivative of the boundary of layer l at step t, of its detector and of what the detector read.
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
        T q = std::min(std::max(probability, T(0)), T(1)), clamped = std::min(std::max(q, T(0.01)), T(0.99));
        T noise = as<T>(call.noise)[at];
        T y = 1 / (1 + std::exp(-(std::log(clamped / (1 - clamped)) - std::log(noise / (1 - noise))) / T(call.temperature)));
        dz *= q >= T(0.01) && q <= T(0.99) ? y * (1 - y) / (T(call.temperature) * clamped * (1 - clamped)) : T(0);
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
            if (l > 0) add(&s.dh[l - 1][size_t(k) * w.below], q, Wz, w.below);
            else if (!input_z.empty()) input_z[here * K + i] = q;
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
    Sums<T> into{sum.b.data(), sum.gain_U.data(), sum.gain_W.data(), sum.gain_V.data(), sum.gain_c.data(), sum.bias_c.data()};

    for (int e = first; e < end; e++) {
        int k = a.row[e];
        bool fed = a.fed[e], open = a.open[e];
        Move<T> m = what_moves(l, t, k, e, norm && !tabled && (fed || z_below_learns), true);
        Moved<T> was{a.gates[e], a.c[e], a.squashed[e], h(l, t - 1, k), a.of_c[e]};
        T *d = norm ? temporary[n] : ds[l][e];
        if (norm && open) dv[l].grow(of_V[l].left.size() + 1);
        T *d_V = open ? norm ? dv[l][of_V[l].left.size()] : d : nullptr;
        Choice<T> choice = hm::backward(m, was, &s.dh[l][size_t(k) * w.H], &s.dc[l][size_t(k) * w.H], d, ds[l][e],
                                        norm ? dw[l][e] : nullptr, d_V, into);
        if (call.traces) {
            s.z_below[k] += (a.flushed[e] ? T(0) : choice.alpha + choice.beta - choice.gamma) + choice.w;
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
            of_W[l].right.push_back(l && call.seen ? a.masked[e] : below(l, t, k));
        }
        if (l > 0) s.next_u[l][k] = e;
    }

    lists.clear();
    for (int e = first; e < end; e++) lists.a.push_back(ds[l][e]), lists.c.push_back(&s.dh[l][size_t(a.row[e]) * w.H]);
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
            if (call.seen) {
                const T *factors = as<T>(p.seen[l - 1]) + size_t(from + k) * w.below;
                for (int j = 0; j < w.below; j++) d[j] *= factors[j];
            }
            if (!norm && z_below_learns) s.z_below[k] += dot(d, h(l - 1, t, k), w.below);
            if (a.fed[e]) add(&s.dh[l - 1][size_t(k) * w.below], T(1), d, w.below);
        }
    }
    lists.clear();
    size_t pair = of_V[l].left.size();
    for (int e = end - 1; e >= first; e--)
        if (a.open[e]) lists.a.push_back(of_V[l].left[--pair]), lists.c.push_back(temporary[e - first]);
    lists.multiply(matrices.V);
    for (int e = first; e < end; e++)
        if (a.open[e]) add(&s.dh[l + 1][size_t(a.row[e]) * w.above], T(1), temporary[e - first], w.above);
}

// The gradient of the boundaries around a row that copied: equation 2 is a sum over what it did and what it did not do.
template <class T>
void Slice<T>::copied_back(Back &s, int l, int t, int k) {
    const Call &call = p.call;
    Track<T> &a = tracks[l];
    const Layer &w = p.layer(l);
    int e = a.now[size_t(t) * n + k], entry = a.used[size_t(t) * n + k], next = s.next_u[l][k];
    T *d = &s.others[l][size_t(k) * 3 * w.H], *dc = &s.dc[l][size_t(k) * w.H];
    Alternative<T> other{d, d + w.H, d + 2 * w.H};
    int *key = &s.key[l][size_t(k) * 3];
    const T *kept = p.kept.empty() ? nullptr : as<T>(p.kept[l]) + p.at(t, from + k) * w.H;
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

template <class T>
void Pass<T>::backward(Gradients &g) {
    Matrices<T>::pack(net, matrices.backward, false);
    parallel(int(parts.size()), [&](int i) { parts[i]->backward(g); });
    for (auto &part : parts) g.slope += part->slope;
    if (tabled()) add_input(g);
    for (int l = 0; l < net.layers; l++) add_weights(g, l);
    if (g.x && call.symbols && !tabled())
        for (auto &part : parts)
            for (int t = 0; t < call.T; t++)
                for (int k = 0; k < part->n && int(t) < call.T; k++)
                    if (t < part->steps(k)) {
                        int below = layer(0).below;
                        add(as<T>(g.x) + call.indices[at(t, part->from + k)] * below, T(1),
                            &part->of_input[(size_t(t) * part->n + k) * below], below);
                    }
}

// The gradients of a layer's parameters: sums over the slices, in their order.
template <class T>
void Pass<T>::add_weights(Gradients &g, int l) {
    const Layer &w = layer(l), &d = g.layer[l];
    auto total = [&](std::vector<T> Slice<T>::Sum::*field, void *to, int rows, int width, int stride) {
        if (to == nullptr) return;
        for (auto &part : parts) {
            const std::vector<T> &sum = part->sums[l].*field;
            for (int i = 0; i < rows && !sum.empty(); i++) add(as<T>(to) + size_t(i) * stride, T(1), &sum[size_t(i) * width], width);
        }
    };
    using Sum = typename Slice<T>::Sum;
    total(&Sum::b, d.b, 1, 4 * w.H, 0), total(&Sum::gain_U, d.gain_U, 1, 4 * w.H, 0);
    total(&Sum::gain_W, d.gain_W, 1, 4 * w.H, 0), total(&Sum::gain_V, d.gain_V, 1, 4 * w.H, 0);
    total(&Sum::gain_c, d.gain_c, 1, w.H, 0), total(&Sum::bias_c, d.bias_c, 1, w.H, 0);
    if (w.K) {
        total(&Sum::Uz, d.Uz, w.K, w.H, d.Uz_stride), total(&Sum::Wz, d.Wz, w.K, w.below, d.Wz_stride);
        if (w.above) total(&Sum::Vz, d.Vz, w.K, w.above, d.Vz_stride);
        total(&Sum::bz, d.bz, 1, w.K, 0);
        if (w.D2) total(&Sum::D2, d.D2, 1, w.K, 0), total(&Sum::d2, d.d2, 1, 1, 0);
    }
    auto outer = [&](auto field, void *to, int columns) {
        if (to == nullptr || columns == 0) return;
        std::vector<const T *> left, right;
        for (auto &part : parts) {
            auto &pairs = ((*part).*field)[l];
            left.insert(left.end(), pairs.left.begin(), pairs.left.end());
            right.insert(right.end(), pairs.right.begin(), pairs.right.end());
        }
        int threads = int(parts.size()), tiles = (4 * w.H + TALL - 1) / TALL;
        parallel(threads, [&](int i) {
            int a = tiles * i / threads * TALL, b = std::min(4 * w.H, tiles * (i + 1) / threads * TALL);
            add_outer<T>(int(left.size()), left.data(), right.data(), a, b, columns, as<T>(to));
        });
    };
    outer(&Slice<T>::of_U, d.U, w.H), outer(&Slice<T>::of_W, d.W, w.below), outer(&Slice<T>::of_V, d.V, w.above);
}

// The gradients of W of the first layer and of the embedding, from those of the products of symbols.
template <class T>
void Pass<T>::add_input(Gradients &g) {
    const Layer &w = layer(0), &d = g.layer[0];
    int R = 4 * w.H, K = w.K;
    std::vector<T> total(size_t(call.symbols) * R, 0), product(R);
    std::vector<const T *> left, right;
    std::vector<T *> to;
    for (int i = 0; i < call.symbols; i++) {
        T *row = &total[size_t(i) * R];
        const T *x = as<T>(call.x) + size_t(i) * w.below;
        for (auto &part : parts) add(row, T(1), &part->of_symbols[size_t(i) * R], R);
        if (w.gain_W) {
            Contribution<T> c{table.s[i], as<T>(w.gain_W), table.of[i]};
            Gained<T> gained;
            each<T>(R, [&](int j, int lanes) { gained.add(load(row + j, lanes), c, as<T>(d.gain_W), j, lanes); });
            normal_back(R, row, c, sum<T>(gained.total), sum<T>(gained.along), product.data());
            std::copy(product.begin(), product.end(), row);
        }
        left.push_back(row), right.push_back(x);
        if (g.x) to.push_back(as<T>(g.x) + size_t(i) * w.below);
    }
    if (d.W) add_outer<T>(call.symbols, left.data(), right.data(), 0, R, w.below, as<T>(d.W));
    if (g.x) multiply<T>(call.symbols, left.data(), matrices.backward[0].W, to.data());
    for (int i = 0; i < call.symbols; i++)
        for (int q = 0; q < K; q++) {
            T z = 0;
            for (auto &part : parts) z += part->of_symbols_z[size_t(i) * K + q];
            if (d.Wz) add(as<T>(d.Wz) + size_t(q) * d.Wz_stride, z, right[i], w.below);
            if (g.x) add(to[i], z, as<T>(w.Wz) + size_t(q) * w.Wz_stride, w.below);
        }
}

}  // namespace hm
