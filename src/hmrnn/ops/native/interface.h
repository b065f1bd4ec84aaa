// What Python passes: words of 8 bytes, numbers and addresses, which engine.py writes in the order
// in which they are read here.
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

    int integer() { return int(*at++); }
    double real() {
        double x;
        memcpy(&x, at++, sizeof x);
        return x;
    }
    template <class T = void>
    T *pointer() {
        return reinterpret_cast<T *>(*at++);
    }
    std::vector<void *> pointers(size_t n) {
        std::vector<void *> list;
        for (size_t i = 0; i < n; i++) list.push_back(pointer());
        return list;
    }

  private:
    const int64_t *at;
};

// The parameters of a layer, or their gradients. The gate matrices have 4H rows; the detector's K
// rows stand apart.
struct Layer {
    int H, below, above, K;  // sizes; above is 0 without top-down input, K without a detector
    int columns;             // of D1; 0 unless the detector has a hidden layer
    void *U, *W, *b, *V;     // (4H, H), (4H, below), (4H), (4H, above)
    void *gain_U, *gain_W, *gain_V, *gain_c, *bias_c;  // null without layer norm
    void *D1, *d1, *D2, *d2;                           // (K, columns), (K), (K), (1)
    void *Uz, *Wz, *Vz, *bz;                           // (K, H), (K, below), (K, above), (K)
    int Uz_stride, Wz_stride, Vz_stride;

    void read_sizes(Words &w) {
        H = w.integer(), below = w.integer(), above = w.integer(), K = w.integer();
        columns = w.integer();
    }
    void read_addresses(Words &w, size_t size) {
        for (void **p :
             {&U, &W, &b, &V, &gain_U, &gain_W, &gain_V, &gain_c, &bias_c, &D1, &d1, &D2, &d2})
            *p = w.pointer();
        auto at = [&](void *a, size_t n) -> void * {
            return a ? static_cast<char *>(a) + n * size : nullptr;
        };
        size_t R = 4 * size_t(H);
        if (columns) {
            Uz = D1, Vz = at(D1, H), Wz = at(D1, H + above), bz = d1;
            Uz_stride = Wz_stride = Vz_stride = columns;
        } else {  // the last row of each matrix, if there is a detector
            Uz = at(U, R * H), Wz = at(W, R * below), Vz = at(V, R * above), bz = at(b, R);
            Uz_stride = H, Wz_stride = below, Vz_stride = above;
        }
    }
};

// How the steps from `starts` on are drawn, each from the numbers of a linear layer over the output
// module of the first `layers` layers.
struct Drawing {
    double temperature, bias, top_p;  // of points, bias shrinks deviations
    double floor, bound;              // of deviations and correlations
    int top_k, components, halts;     // components: of a mixture of points, 0 for a softmax
    int layers = 0, size, outputs, numbers, width;  // sizes; layers is 0 if nothing is drawn
    std::vector<void *> terms;                      // (size + layers, H): embeddings, then gates
    const void *weight, *offset;                    // (outputs, size), (outputs)
    const int64_t *starts;                          // (B)
    const double *uniform;                          // (T, B, numbers): of what the draws are made
    double *drawn;                                  // (T, B, width): NaN if it could not be drawn

    void read(Words w) {
        for (double *x : {&temperature, &bias, &top_p, &floor, &bound}) *x = w.real();
        for (int *i : {&top_k, &components, &halts, &layers, &size, &outputs, &numbers, &width})
            *i = w.integer();
        terms = w.pointers(layers), weight = w.pointer(), offset = w.pointer();
        starts = w.pointer<int64_t>(), uniform = w.pointer<double>(), drawn = w.pointer<double>();
    }
};

// Lists have L elements. Those of `kept` and `seen`, and single addresses, may be null.
struct Call {
    double slope, temperature, zoneout;
    int T, B, symbols;  // symbols: rows of the embedding, 0 if x is given
    int keep, traces;   // is there a backward pass; does it reach the boundaries
    int threads;
    int hold, flush, copy, straight_through, gate, estimator;
    std::vector<void *> hidden;            // (T, B, H)
    void *boundaries, *probabilities, *z;  // (T, B, L-1), the same, (B, L-1)
    std::vector<void *> h, c;              // (B, H): the state at the end
    void *pending;                         // (B, L-1)
    uint8_t *moved;                        // (T, B, L): who did UPDATE or FLUSH
    void *x;                               // (T, B, below), or the embedding (symbols, below)
    const void *forced;                    // (T, B, L-1); where NaN, the detector chooses
    const void *z0, *pending0;             // (B, L-1)
    std::vector<void *> h0, c0;            // (B, H)
    int64_t *indices;                      // (T, B)
    const int64_t *lengths;                // (B)
    const void *noise;                     // (T, B, L-1)
    std::vector<void *> kept;              // (T, B, H): the share of c that zoneout keeps
    std::vector<void *> seen;              // (B, H): factors of h where the gates above read it
    Drawing drawing;

    Call(Words w, size_t L) {
        slope = w.real(), temperature = w.real(), zoneout = w.real();
        for (int *n : {&T, &B, &symbols, &keep, &traces, &threads, &hold, &flush, &copy,
                       &straight_through, &gate, &estimator})
            *n = w.integer();
        hidden = w.pointers(L);
        boundaries = w.pointer(), probabilities = w.pointer(), z = w.pointer();
        h = w.pointers(L), c = w.pointers(L), pending = w.pointer(), moved = w.pointer<uint8_t>();
        x = w.pointer(), forced = w.pointer(), z0 = w.pointer(), pending0 = w.pointer();
        h0 = w.pointers(L), c0 = w.pointers(L);
        indices = w.pointer<int64_t>(), lengths = w.pointer<int64_t>(), noise = w.pointer();
        kept = w.pointers(L), seen = w.pointers(L);
        if (w.integer()) drawing.read(w);
    }
};

// The gradients of outputs, and where those of inputs are added. Null: there is none, or it is not
// wanted.
struct Gradients {
    std::vector<void *> hidden, h, c;
    const void *boundaries, *probabilities, *z, *pending;
    void *x;  // (T, B, below) or (symbols, below)
    void *forced, *z0, *pending0;
    double *slope;
    std::vector<void *> h0, c0;
    std::vector<Layer> layers;

    Gradients(Words w, const std::vector<Layer> &of, size_t size) : layers(of) {
        size_t L = of.size();
        hidden = w.pointers(L);
        boundaries = w.pointer(), probabilities = w.pointer(), z = w.pointer();
        h = w.pointers(L), c = w.pointers(L), pending = w.pointer();
        x = w.pointer(), forced = w.pointer(), slope = w.pointer<double>();
        z0 = w.pointer(), pending0 = w.pointer(), h0 = w.pointers(L), c0 = w.pointers(L);
        for (Layer &layer : layers) layer.read_addresses(w, size);
    }
};

}  // namespace hm
