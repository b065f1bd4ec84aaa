// What a call remembers: of each layer in each slice of the batch, the events and the boundaries.
//
// An event is a row of a layer that moves at a step; only for events work is done. What a step
// reads of other steps and layers (h of the same layer, of the one below and of the one above) is
// read where the outputs hold it.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
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

    static void pack(const std::vector<Layer> &layers, std::vector<OfLayer> &to, bool transposed) {
        if (!to.empty()) return;
        std::vector<OfLayer> made(layers.size());
        for (size_t l = 0; l < layers.size(); l++) {
            const Layer &w = layers[l];
            auto put = [&](Packed<T> &p, const void *a, int k) {
                if (a == nullptr || k == 0) return;
                transposed ? p.transposed(as<T>(a), 4 * w.H, k) : p.as_is(as<T>(a), 4 * w.H, k);
            };
            put(made[l].U, w.U, w.H), put(made[l].W, w.W, w.below), put(made[l].V, w.V, w.above);
        }
        to = std::move(made);  // all of them, or none if memory runs out
    }
};

// What one layer remembers of a slice.
template <class T>
struct Track {
    // of each event, in the order of time
    std::vector<int> row, step, before,
        entry;  // before: the row's last event; entry: the row of v that it read
    std::vector<uint8_t> fed, open, flushed;
    Rows<T> gates, c, squashed, u, w, masked, v;
    std::vector<Moments<T>> of_u, of_w, of_v, of_c;
    std::vector<int> start;  // (T + 1): the first event of each step
    std::vector<int> now,
        used;  // (T, n): the event that made h; the row of v that was read, -1 for none
    std::vector<uint8_t> z, pending;  // (T + 1, n): at [0] those before the first step
    std::vector<uint8_t> decided;     // (T, n): z before hold and forced values
    std::vector<T> s_z;               // (T, n)
    std::vector<T> detector;          // (T, n, K): the hidden layer's pre-activations
    std::vector<int> last;            // (n): the row of u for h at the end
    int entries = 0;                  // rows of v
    int first = 0;                    // event of the step that is being computed

    // of each row of the batch, now
    std::vector<int> event,
        read;  // event that made h; row of v that holds V h of the layer above, -1: none yet
    std::vector<T> Uh, Vh;  // (n, K)
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
    std::vector<T> of_input;  // (T, n, below): where rows of the embedding are read as they come
    double slope = 0;

  private:
    friend class Pass<T>;
    const Pass<T> &p;
    int from, n;
    std::vector<Track<T>> tracks;
    Table<T> input;                   // of this slice, unless symbols share one
    std::vector<Rows<T>> ds, dw, dv;  // of each layer's events, for the pairs
    Rows<T> temporary, c_now;
    Rows<T> terms, embedded, scores;  // of draws: (L, n, size + L), (n, size), (n, outputs)
    std::vector<uint8_t> stale;       // (L, n): whether h has changed since its term was made
    std::vector<int> scratch;
    std::vector<T> input_z;  // (T, n, K): of the first detector, if the input's gradient is wanted

    struct Lists {
        std::vector<const T *> a;
        std::vector<T *> c;
        void clear() { a.clear(), c.clear(); }
        void multiply(const Packed<T> &m) { hm::multiply<T>(int(a.size()), a.data(), m, c.data()); }
    } lists;

    int chunk() const { return p.call.drawing.layers ? 1 : std::max(1, 64 / std::max(1, n)); }
    // Does the backward pass need the products with h and with the layer below? Otherwise those of
    // a step overwrite them.
    bool keeps_u(int l) const {
        return p.call.keep && (p.layer(l).gain_U || (p.call.traces && l > 0));
    }
    bool keeps_w(int l) const { return p.call.keep && p.layer(l).gain_W; }
    int steps(int k) const { return p.call.lengths ? int(p.call.lengths[from + k]) : p.call.T; }
    const T *h(int l, int t, int k) const;  // after step t; t = -1: before the first
    const T *below(int l, int t, int k) const { return l ? h(l - 1, t, k) : p.input(t, from + k); }
    bool is_open(int l, int t, int k) const;
    void read_input(int t);
    void input_back(const Gradients &g);
    void move(int l, int t);
    void draw(int t);
    void detect(int l, int t, int k, bool moved, bool fed);
    Move<T> what_moves(int l, int t, int k, int e, bool reads, bool back) const;
    Contribution<T> read_below(int l, int t, int k, int e) const;

    struct Back;
    void moved_back(Back &s, int l, int t);
    void copied_back(Back &s, int l, int t, int k);
    void detector_back(Back &s, int l, int t, int k, const Gradients &g);
};

// A call, and what its backward pass needs of it.
template <class T>
class Pass {
  public:
    const std::vector<Layer> &layers;
    const Call call;
    Matrices<T> &matrices;

    Pass(const std::vector<Layer> &network, const Call &given, Matrices<T> &packed)
        : layers(network), call(given), matrices(packed) {
        int slices = std::max(1, std::min(call.threads, call.B / 4));
        for (int i = 0; i < slices; i++) {
            int a = int(int64_t(call.B) * i / slices), b = int(int64_t(call.B) * (i + 1) / slices);
            parts.emplace_back(new Slice<T>(*this, a, b - a));
        }
    }

    void forward();
    void backward(const Gradients &g);

    const Layer &layer(int l) const { return layers[l]; }
    int top() const { return int(layers.size()) - 1; }
    bool tabled() const { return call.symbols && call.symbols <= int64_t(call.T) * call.B; }
    const T *input(int t, int b) const {
        int64_t i = int64_t(t) * call.B + b;
        return as<T>(call.x) + (call.symbols ? call.indices[i] : i) * layer(0).below;
    }
    size_t at(int t, int b) const { return size_t(t) * call.B + b; }
    T &output(int l, int t, int b) const { return as<T>(call.hidden[l])[at(t, b) * layer(l).H]; }

    Table<T> table;
    std::vector<Packed<T>> of_terms;  // of what is drawn from
    Packed<T> of_scores;
    std::vector<std::unique_ptr<Slice<T>>> parts;

  private:
    std::mutex busy;  // threads may go backwards through one graph at the same time

    void add_weights(const Gradients &g, int l);
    void add_input(const Gradients &g);
};

}  // namespace hm
