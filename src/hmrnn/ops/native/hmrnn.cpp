// The functions that Python calls, for float and double.

#include <memory>

#include "segmental.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace {

using namespace hm;

// What Python holds: a network, or a call of it that a backward pass may follow.
struct Held {
    virtual ~Held() = default;
    virtual Held *forward(Words) { return nullptr; }
    virtual void backward(Words) {}
};

template <class T>
struct Run : Held {
    Pass<T> pass;
    Run(const std::vector<Layer> &layers, const Call &call, Matrices<T> &m)
        : pass(layers, call, m) {}
    void backward(Words words) override { pass.backward(Gradients(words, pass.layers, sizeof(T))); }
};

template <class T>
struct Spelling : Held {
    Speller<T> speller;
    explicit Spelling(Words words) : speller(words) { speller.forward(); }
    void backward(Words words) override { speller.backward(words); }
};

template <class T>
Held *sum(Words words) {
    static Held done;
    Segments<T> segments(words);
    if (const double *first = words.pointer<const double>()) {
        double *sums = words.pointer<double>();
        segments.sum(first, sums, words.pointer<T>());
    } else {
        segments.best(words.pointer<int64_t>());
    }
    return &done;
}

template <class T>
struct Network : Held {
    std::vector<Layer> layers;
    Matrices<T> matrices;

    Network(Words words, int L) : layers(L) {
        for (Layer &layer : layers) layer.read_sizes(words);
        for (Layer &layer : layers) layer.read_addresses(words, sizeof(T));
        Matrices<T>::pack(layers, matrices.forward, true);
    }
    Held *forward(Words words) override {
        Call call(words, layers.size());
        auto run = std::make_unique<Run<T>>(layers, call, matrices);
        run->pass.forward();
        return call.keep ? static_cast<Held *>(run.release()) : this;
    }
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

EXPORT int hm_version() { return 3; }

// A network of L layers, whose weights stay as they are. Null here and below: it failed.
EXPORT Held *hm_network(int doubles, int L, const int64_t *words) {
    return guarded([&]() -> Held * {
        if (doubles) return new Network<double>(Words(words), L);
        return new Network<float>(Words(words), L);
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

// What hm_backward needs.
EXPORT Held *hm_spell(int doubles, const int64_t *words) {
    return guarded([&]() -> Held * {
        if (doubles) return new Spelling<double>(Words(words));
        return new Spelling<float>(Words(words));
    });
}

EXPORT void hm_free(Held *held) { delete held; }
