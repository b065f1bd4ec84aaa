// The functions that Python calls, for float and double.

#include <memory>

#include "pass.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace {

using namespace hm;

// A network whose matrices are packed, and a call that a backward pass may follow.
struct Held {
    virtual ~Held() = default;
};

template <class T>
struct Weights : Held {
    Matrices<T> matrices;
};

template <class T>
struct Kept : Held {
    Pass<T> pass;
    Kept(const Network &net, const Call &call, Matrices<T> &m) : pass(net, call, m) {}
};

// Numbers too small to be normal count as zero while this exists: computing with them takes a
// hundred times as long.
class Flush {
#if defined(__SSE__)
    unsigned before = _mm_getcsr();

  public:
    Flush() { _mm_setcsr(before | 0x8040); }
    ~Flush() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;

  public:
    Flush() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" : : "r"(before | (uint64_t(1) << 24)));
    }
    ~Flush() { asm volatile("msr fpcr, %0" : : "r"(before)); }
#else
  public:
    Flush() {}
#endif
};

template <class T>
int forward(const Network &net, const Call &call, Held *weights, Held **kept) {
    auto &matrices = static_cast<Weights<T> *>(weights)->matrices;
    auto made = std::make_unique<Kept<T>>(net, call, matrices);
    made->pass.forward();
    if (call.keep) *kept = made.release();
    return 0;
}

template <class F>
int guarded(F f) {
    try {
        Flush flush;
        return f();
    } catch (...) {  // memory or threads ran out
        return 1;
    }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int hm_version() { return 1; }

// Room for the packed matrices of a network whose weights stay as they are.
EXPORT Held *hm_weights(int doubles) {
    Held *made = nullptr;
    guarded([&] {
        made = doubles ? static_cast<Held *>(new Weights<double>) : new Weights<float>;
        return 0;
    });
    return made;
}

EXPORT void hm_free(Held *held) { delete held; }

EXPORT int hm_forward(const Network *net, const Call *call, Held *weights, Held **kept) {
    return guarded([&] {
        return net->doubles ? forward<double>(*net, *call, weights, kept)
                            : forward<float>(*net, *call, weights, kept);
    });
}

EXPORT int hm_backward(int doubles, Held *kept, Gradients *g) {
    return guarded([&] {
        if (doubles)
            static_cast<Kept<double> *>(kept)->pass.backward(*g);
        else
            static_cast<Kept<float> *>(kept)->pass.backward(*g);
        return 0;
    });
}
