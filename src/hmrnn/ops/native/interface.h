// What Python passes: engine.py declares the same, field by field.
#pragma once

#include <cstdint>

namespace hm {

enum Gate : int32_t { NEVER, BOUNDARY, PENDING, ALWAYS };     // when a layer reads the layer above
enum Estimator : int32_t { STEP, DRAWN, GUMBEL, REINFORCE };  // how a detector decides and learns

// The parameters of a layer, or their gradients. The gate matrices have 4H rows; the detector's K
// rows stand apart.
struct Layer {
    int32_t H, below, above, K;  // sizes; above is 0 without top-down input, K without a detector
    int32_t Uz_stride, Wz_stride, Vz_stride, unused;
    void *U, *W, *V, *b;                               // (4H, H), (4H, below), (4H, above), (4H)
    void *gain_U, *gain_W, *gain_V, *gain_c, *bias_c;  // null without layer norm
    void *Uz, *Wz, *Vz, *bz;                           // (K, H), (K, below), (K, above), (K)
    void *D2, *d2;  // (K), (1): null unless the detector has a hidden layer
};

struct Network {
    int32_t doubles, layers;
    const Layer *layer;
};

struct Call {
    int32_t T, B, symbols;  // symbols: rows of the embedding, 0 if x is given
    int32_t keep, traces;   // is there a backward pass; does it reach the boundaries
    int32_t hold, flush, copy, straight_through;
    int32_t gate, estimator, threads;
    double slope, temperature, zoneout;
    const void *x;               // (T, B, below), or the embedding (symbols, below)
    const int64_t *indices;      // (T, B)
    const int64_t *lengths;      // (B)
    const void *forced, *noise;  // (T, B, L-1); a NaN in forced leaves the choice to the detector
    const void *const *kept;     // L of (T, B, H): the share of c that zoneout keeps
    const void *const *seen;     // L-1 of (B, H): factors of h where the gates above read it
    const void *const *h0, *const *c0;  // L of (B, H)
    const void *z0, *pending0;          // (B, L-1)
    void *const *hidden;                // L of (T, B, H)
    void *const *h, *const *c;          // L of (B, H): the state at the end
    void *boundaries, *probabilities;   // (T, B, L-1)
    void *z, *pending;                  // (B, L-1)
    uint8_t *moved;                     // (T, B, L), may be null: who did UPDATE or FLUSH
};

// Every gradient of an output may be null; so may those of inputs that are not wanted. All that is
// returned was zeroed.
struct Gradients {
    const void *const *hidden, *const *h, *const *c;
    const void *boundaries, *probabilities, *z, *pending;
    Layer *layer;
    void *x;  // (T, B, below) or (symbols, below)
    void *const *h0, *const *c0;
    void *z0, *pending0, *forced;
    double slope;
};

}  // namespace hm
