// The functions that Python calls, for float and double.

#include <memory>

#include "bigrams.h"
#include "segmental.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace {

using namespace hm;

template <class T>
struct Network : Held {
    std::vector<Layer<T>> layers;
    Matrices<T> matrices;

    Network(Words words, int L, bool halve = false) : layers(L) {
        matrices.halve = halve;
        for (Layer<T> &layer : layers) layer.read_sizes(words);
        for (Layer<T> &layer : layers) layer.read_addresses(words);
    }
    Held *forward(Words words) override {
        auto pass = std::make_unique<Pass<T>>(layers, words, matrices);
        pass->forward();
        return pass->call.keep ? static_cast<Held *>(pass.release()) : this;
    }
};

// Numbers too small to be normal, which take a hundred times as long, are zero while this exists.
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
Held *follow(Words words) {
    static Held done;
    Window<T> window(words);
    parallel(window.slices(), window.slices(), [&](int i) { window.run(i); });
    return &done;
}

template <class F>
Held *guarded(F f) {
    try {
        Flush flush;
        return f();
    } catch (...) {  // memory or threads ran out
        return nullptr;
    }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int hm_version() { return 6; }

// A network of L layers, whose weights stay as they are; without a backward pass those of floats
// may be read as bfloat16. Null here and below: it failed.
EXPORT Held *hm_network(int doubles, int halve, int L, const int64_t *words) {
    return guarded([&]() -> Held * {
        if (doubles) return new Network<double>(Words(words), L);
        return new Network<float>(Words(words), L, halve);
    });
}

// What hm_backward needs, if that was asked for, else the network itself.
EXPORT Held *hm_forward(Held *network, const int64_t *words) {
    return guarded([&] { return network->forward(Words(words)); });
}

EXPORT Held *hm_backward(Held *run, const int64_t *words) {
    return guarded([&] { return run->backward(Words(words)), run; });
}

// Sums over all segmentations, or the best one.
EXPORT Held *hm_segments(int doubles, const int64_t *words) {
    return guarded([&] { return doubles ? sum<double>(Words(words)) : sum<float>(Words(words)); });
}

// Where a bigram model of words cuts a text.
EXPORT Held *hm_bigrams(const int64_t *words) {
    return guarded([&]() -> Held * {
        static Held done;
        return Bigrams(Words(words)).run(), &done;
    });
}

// What hm_backward needs.
EXPORT Held *hm_spell(int doubles, const int64_t *words) {
    return guarded([&]() -> Held * {
        if (doubles) return new Spelling<double>(Words(words));
        return new Spelling<float>(Words(words));
    });
}

// A pass of the window over letters, or back through one.
EXPORT Held *hm_window(int doubles, const int64_t *words) {
    return guarded(
        [&] { return doubles ? follow<double>(Words(words)) : follow<float>(Words(words)); });
}

EXPORT void hm_free(Held *held) { delete held; }
