// What Python passes: words of 8 bytes, numbers and addresses, in the order of engine.py.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace hm {

enum Gate { NEVER, BOUNDARY, PENDING, ALWAYS };     // when a layer reads the layer above
enum Estimator { STEP, DRAWN, GUMBEL, REINFORCE };  // how a detector decides and learns

class Words {
  public:
    explicit Words(const int64_t *words) : at(words) {}

    template <class... A>
    void read(A &...all) {
        (one(all), ...);
    }

  private:
    const int64_t *at;

    void one(int &i) { i = int(*at++); }
    void one(double &x) { memcpy(&x, at++, sizeof x); }
    template <class A>
    void one(A *&p) {
        p = reinterpret_cast<A *>(*at++);
    }
    template <class A>
    void one(std::vector<A> &list) {
        for (A &a : list) one(a);
    }
};

// The parameters of a layer, or their gradients: 4H rows of gates, and apart K of the detector.
template <class T>
struct Layer {
    int H, below, above, K;  // sizes; above is 0 without top-down input, K without a detector
    int columns;             // of D1; 0 unless the detector has a hidden layer
    T *U, *W, *b, *V;        // (4H, H), (4H, below), (4H), (4H, above)
    T *gain_U, *gain_W, *gain_V, *gain_c, *bias_c;  // null without layer norm
    T *D1, *d1, *D2, *d2;                           // (K, columns), (K), (K), (1)
    T *Uz, *Wz, *Vz, *bz;                           // (K, H), (K, below), (K, above), (K)
    int Uz_stride, Wz_stride, Vz_stride;

    void read_sizes(Words &w) { w.read(H, below, above, K, columns); }
    void read_addresses(Words &w) {
        w.read(U, W, b, V, gain_U, gain_W, gain_V, gain_c, bias_c, D1, d1, D2, d2);
        auto at = [](T *a, size_t n) { return a ? a + n : nullptr; };
        size_t R = 4 * size_t(H);
        if (columns) {
            Uz = D1, Vz = at(D1, H), Wz = at(D1, H + above), bz = d1;
            Uz_stride = Wz_stride = Vz_stride = columns;
        } else {  // the last row of each matrix, if there is a detector
            Uz = at(U, R * H), Wz = at(W, R * below), Vz = at(V, R * above), bz = at(b, R);
            Uz_stride = H, Wz_stride = below, Vz_stride = above;
        }
    }

    // Calls f(field, rows, columns, stride) for the parameters whose gradients slices sum up.
    template <class F>
    void each_sum(F f) const {
        f(&Layer::b, 1, 4 * H, 0);
        if (gain_U) {
            for (auto gain : {&Layer::gain_U, &Layer::gain_W, &Layer::gain_V}) f(gain, 1, 4 * H, 0);
            f(&Layer::gain_c, 1, H, 0), f(&Layer::bias_c, 1, H, 0);
        }
        f(&Layer::Uz, K, H, Uz_stride), f(&Layer::Wz, K, below, Wz_stride);
        f(&Layer::Vz, K, above, Vz_stride), f(&Layer::bz, 1, K, 0);
        if (D2) f(&Layer::D2, 1, K, 0), f(&Layer::d2, 1, 1, 0);
    }
};

// How the steps from `starts` on are drawn, each from the numbers of a linear layer over the output
// module of the first `layers` layers.
template <class T>
struct Drawing {
    double temperature, bias, top_p;  // of points, bias shrinks deviations
    double floor, bound;              // of deviations and correlations
    int top_k, components, halts;     // components: of a mixture of points, 0 for a softmax
    int layers = 0, size, outputs, numbers, width;  // sizes; layers is 0 if nothing is drawn
    std::vector<const T *> terms;                   // (size + layers, H): embeddings, then gates
    const T *weight, *offset;                       // (outputs, size), (outputs)
    const int64_t *starts;                          // (B)
    const double *uniform;                          // (T, B, numbers): of what the draws are made
    double *drawn;                                  // (T, B, width): NaN if it could not be drawn
    int shows;  // whether a window goes along with what is drawn
    Words window{nullptr};

    void read(Words w) {
        w.read(temperature, bias, top_p, floor, bound, top_k, components, halts);
        w.read(layers, size, outputs, numbers, width, shows);
        terms.resize(layers);
        w.read(terms, weight, offset, starts, uniform, drawn);
        window = w;
    }
};

// Lists have L elements. Those of `kept` and `seen`, and single addresses, may be null.
template <class T>
struct Call {
    double slope, temperature, zoneout;
    int steps, B, symbols;  // symbols: rows of the embedding, 0 if x is given
    int keep, traces;       // is there a backward pass; does it reach the boundaries
    int threads;
    int hold, flush, copy, straight_through, gate, estimator;
    std::vector<T *> hidden;            // (T, B, H)
    T *boundaries, *probabilities, *z;  // (T, B, L-1), the same, (B, L-1)
    std::vector<T *> h, c;              // (B, H): the state at the end
    T *pending;                         // (B, L-1)
    uint8_t *moved;                     // (T, B, L): who did UPDATE or FLUSH
    T *x;                               // (T, B, below), or the embedding (symbols, below)
    const T *forced;                    // (T, B, L-1); where NaN, the detector chooses
    const T *z0, *pending0;             // (B, L-1)
    std::vector<const T *> h0, c0;      // (B, H)
    int64_t *indices;                   // (T, B)
    const int64_t *lengths;             // (B)
    const T *noise;                     // (T, B, L-1)
    std::vector<const T *> kept;        // (T, B, H): the share of c that zoneout keeps
    std::vector<const T *> seen;        // (B, H): factors of h where the gates above read it
    Drawing<T> drawing;

    Call(Words w, size_t L) : hidden(L), h(L), c(L), h0(L), c0(L), kept(L), seen(L) {
        int drawn;
        w.read(slope, temperature, zoneout, steps, B, symbols, keep, traces, threads);
        w.read(hold, flush, copy, straight_through, gate, estimator);
        w.read(hidden, boundaries, probabilities, z, h, c, pending, moved);
        w.read(x, forced, z0, pending0, h0, c0, indices, lengths, noise, kept, seen, drawn);
        if (drawn) drawing.read(w);
    }
};

// The gradients of outputs, and where those of inputs are added. Null: none, or not wanted.
template <class T>
struct Gradients {
    std::vector<const T *> hidden, h, c;
    const T *boundaries, *probabilities, *z, *pending;
    T *x;  // (T, B, below) or (symbols, below)
    T *forced, *z0, *pending0;
    double *slope;
    std::vector<T *> h0, c0;
    std::vector<Layer<T>> layers;

    Gradients(Words w, const std::vector<Layer<T>> &of)
        : hidden(of.size()), h(hidden), c(hidden), h0(of.size()), c0(h0), layers(of) {
        w.read(hidden, boundaries, probabilities, z, h, c, pending);
        w.read(x, forced, slope, z0, pending0, h0, c0);
        for (Layer<T> &layer : layers) layer.read_addresses(w);
    }
};

}  // namespace hm
