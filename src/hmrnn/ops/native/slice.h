// What a call remembers: of each layer in each slice of the batch, the events and the boundaries.
//
// An event is a row of a layer that moves at a step; only for events work is done. h of other steps
// and layers is read where the outputs hold it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "cell.h"
#include "matrix.h"

namespace hm {

// The matrices of a network in the order in which products read them.
template <class T>
struct Matrices {
    struct OfLayer {
        Packed<T> U, W, V;
    };
    std::vector<OfLayer> forward, backward;
    bool halve = false;  // whether those of the pass forwards are rounded to bfloat16
    std::mutex busy;     // while they are packed
};

// Products of a matrix with vectors, which are computed at once.
template <class T>
struct Products {
    std::vector<const T *> a;
    std::vector<T *> c;

    void add(const T *x, T *to) { a.push_back(x), c.push_back(to); }
    // With `norm` there is room for the moments of each behind it.
    void compute(const Packed<T> &m, bool norm = false) {
        multiply<T>(int(a.size()), a.data(), m, c.data());
        for (T *row : c)
            if (norm) moments(row, m.columns, row + m.columns);
        a.clear(), c.clear();
    }
};

// A row that moved at a step, or that there was before the first (step -1).
struct Event {
    int row, step = -1;
    int before = -1, entry = -1;  // the row's last event; the row of v that was read
    bool fed = false, open = false, flushed = false;
};

// What one layer remembers of a slice: without a backward pass the events of one step, and c now.
template <class T>
struct Track {
    std::vector<Event> events;  // in the order of time, first those of the state at the start
    Rows<T> gates, c, squashed, u, w, masked;  // of each event
    Rows<T> v;                                 // of each h of the layer above that was read
    std::vector<int> start;                    // (T + 1): the first event of each step
    // (T, n): the event that made h; the row of v that was read, -1 for none
    std::vector<int> now, used;
    std::vector<uint8_t> z, pending;  // (T + 1, n): at [0] those before the first step
    std::vector<uint8_t> decided;     // (T, n): z before hold and forced values
    std::vector<T> s_z;               // (T, n)
    std::vector<T> detector;          // (T, n, K): the hidden layer's pre-activations
    std::vector<int> last;            // (n): the row of u for h at the end
    int entries = 0;                  // rows of v
    int first = 0;                    // event of the step that is being computed

    // of each row of the batch, now: the event that made h; the row of v that holds V h of the
    // layer above, -1 for none yet; the detector's products with h and h of the layer above
    std::vector<int> event, read;
    std::vector<T> Uh, Vh;  // (n, K)
    std::vector<uint8_t> knows_Uh, knows_Vh;
};

template <class T>
class Pass;
template <class T>
class Window;

template <class T>
class Slice {
  public:
    Slice(const Pass<T> &pass, int from, int n) : p(pass), from(from), n(n) {}
    void forward();
    void backward(const Gradients<T> &g);

    std::vector<Layer<T>> sums;  // of gradients over the rows of this slice
    // pairs of rows whose outer products are the gradients of U, W and V
    struct Pairs {
        std::vector<const T *> left, right;
        void add(const T *a, const T *b) { left.push_back(a), right.push_back(b); }
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
    Rows<T> input;                       // products with x, unless symbols share them
    std::vector<std::vector<T>> memory;  // of sums
    std::vector<Rows<T>> ds, dw, dv;     // of each layer's events, for the pairs
    Rows<T> temporary;
    Rows<T> terms, embedded, scores;  // of draws: (L, n, size + L), (n, size), (n, outputs)
    std::vector<uint8_t> stale;       // (L, n): whether h has changed since its term was made
    std::vector<int> scratch;
    std::vector<T> input_z;  // (T, n, K): of the first detector, if the input's gradient is wanted
    Products<T> products;

    int chunk() const { return p.call.drawing.layers ? 1 : std::max(1, 64 / std::max(1, n)); }
    // The row of u and of w for an event: overwritten at each step if nothing needs it backwards.
    int u_at(int l, int e) const {
        bool keep = p.call.keep && (p.layer(l).gain_U || (p.call.traces && l > 0));
        return keep ? e : e - tracks[l].first;
    }
    bool keeps_w(int l) const { return p.call.keep && p.layer(l).gain_W; }
    int w_at(int l, int e) const { return keeps_w(l) ? e : e - tracks[l].first; }

    int steps(int k) const { return p.call.lengths ? int(p.call.lengths[from + k]) : p.call.steps; }
    // h after step t; t = -1: before the first
    const T *h(int l, int t, int k) const {
        return t < 0 ? p.call.h0[l] + size_t(from + k) * p.layer(l).H : p.output(l, t, from + k);
    }
    const T *below(int l, int t, int k) const { return l ? h(l - 1, t, k) : p.input(t, from + k); }
    const T *factors(int l, int k) const {  // of h of the layer below
        return p.call.seen[l - 1] + size_t(from + k) * p.layer(l).below;
    }
    bool is_open(int l, int t, int k) const;
    bool is_fed(int l, int t, int k) const {
        return l == 0 || !p.call.copy || tracks[l - 1].z[size_t(t + 1) * n + k];
    }
    bool moved(int l, int t, int k) const {
        return tracks[l].events[tracks[l].now[size_t(t) * n + k]].step == t;
    }
    void begin(int l);
    void end(int l);
    void read_input(int t);
    void input_back(const Gradients<T> &g);
    void move(int l, int t);
    void draw(int t);
    void detect(int l, int t, int k, bool moved);
    Move<T> what_moves(int l, int t, int e, bool reads) const;
    Contribution<T> read_below(int l, int t, int e) const;

    struct Back;
    void begin_back(Back &s, int l, const Gradients<T> &g);
    void moved_back(Back &s, int l, int t);
    void copied_back(Back &s, int l, int t, int k);
    void detector_back(Back &s, int l, int t, int k, const Gradients<T> &g);
};

// What Python holds: a network, or a call of it that a backward pass may follow.
struct Held {
    virtual ~Held() = default;
    virtual Held *forward(Words) { return nullptr; }
    virtual void backward(Words) {}
};

// A call, and what its backward pass needs of it.
template <class T>
class Pass : public Held {
  public:
    const std::vector<Layer<T>> &layers;
    const Call<T> call;
    Matrices<T> &matrices;

    Pass(const std::vector<Layer<T>> &network, Words words, Matrices<T> &packed)
        : layers(network), call(words, network.size()), matrices(packed) {
        int slices = std::max(1, std::min(call.threads, call.B / 4));
        for (int i = 0; i < slices; i++) {
            int a = int(int64_t(call.B) * i / slices), b = int(int64_t(call.B) * (i + 1) / slices);
            parts.emplace_back(new Slice<T>(*this, a, b - a));
        }
    }

    void forward();
    void backward(Words words) override;

    const Layer<T> &layer(int l) const { return layers[l]; }
    int top() const { return int(layers.size()) - 1; }
    bool tabled() const { return call.symbols && call.symbols <= int64_t(call.steps) * call.B; }
    size_t at(int t, int b) const { return size_t(t) * call.B + b; }
    const T *input(int t, int b) const {
        return call.x + (call.symbols ? call.indices[at(t, b)] : at(t, b)) * layer(0).below;
    }
    T *output(int l, int t, int b) const { return call.hidden[l] + at(t, b) * layer(l).H; }

    Rows<T> table;                    // the product of W of the first layer with each symbol
    std::vector<Packed<T>> of_terms;  // of what is drawn from
    Packed<T> of_scores;
    std::shared_ptr<const Window<T>> window;  // which goes along with draws, or null
    std::vector<std::unique_ptr<Slice<T>>> parts;

  private:
    std::mutex busy;  // threads may go backwards through one graph at the same time

    struct Outer {  // the gradient of a matrix: the sum of the outer products of pairs
        std::vector<const T *> left, right;
        T *to;
        int rows, columns;
    };

    void pack(std::vector<typename Matrices<T>::OfLayer> &to, bool transposed);
    void add_weights(const Gradients<T> &g, int l, std::vector<Outer> &outers);
    void add_input(const Gradients<T> &g);
};

}  // namespace hm
