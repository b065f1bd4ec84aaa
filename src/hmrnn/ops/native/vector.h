// Vectors of the machine's width, by the compiler's extensions; exp and tanh by polynomials.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace hm {

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

template <class T>
struct Kind {
    using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    typedef T Vector __attribute__((vector_size(BYTES)));
    typedef Int Ints __attribute__((vector_size(BYTES)));
};
template <class T>
using V = typename Kind<T>::Vector;
template <class T>
constexpr int LANES = BYTES / sizeof(T);

template <class T>
inline V<T> all(T x) {
    return x - V<T>{};  // x in every lane
}

template <class T>
inline V<T> load(const T *p) {
    V<T> v;
    memcpy(&v, p, BYTES);
    return v;
}

template <class T>
inline void store(T *p, V<T> v) {
    memcpy(p, &v, BYTES);
}

// The bits of a float that bfloat16 keeps, rounded to nearest, ties to even.
inline uint32_t upper_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000 : 0x7fc00000;
}

// The first n lanes; the others are zero.
template <class T>
inline V<T> load(const T *p, int n) {
    if (n == LANES<T>) return load(p);
    V<T> v = {};
    memcpy(&v, p, n * sizeof(T));
    return v;
}

template <class T>
inline void store(T *p, V<T> v, int n) {
    n == LANES<T> ? store(p, v) : (void)memcpy(p, &v, n * sizeof(T));
}

template <class T>
inline void increase(T *p, V<T> v, int n) {
    store(p, load(p, n) + v, n);
}

template <class T>
inline T sum(V<T> v) {
    T total = 0;
    for (int i = 0; i < LANES<T>; i++) total += v[i];
    return total;
}

// Calls step(j, lanes) for j = 0, LANES, 2 LANES, ... below n.
template <class T, class F>
inline void each(int n, F step) {
    int j = 0;
    for (; j + LANES<T> <= n; j += LANES<T>) step(j, LANES<T>);
    if (j < n) step(j, n - j);
}

// e^x for |x| <= 80, NaN for NaN: 2^k e^r with |r| <= ln(2)/2, within 2 units in the last place.
inline V<float> exp(V<float> x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds, to what low bits then hold
    V<float> t = x * 1.44269504088896341f + magic;
    V<float> k = t - magic;
    V<float> r = x - k * 0.693145751953125f - k * 1.42860682030941723e-6f;
    V<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * (V<float>)(((Kind<float>::Ints)t << 23) + 0x3f800000);
}

inline V<double> exp(V<double> x) {
    const double magic = 6755399441055744.0;  // 1.5 * 2^52
    V<double> t = x * 1.4426950408889634074 + magic;
    V<double> k = t - magic;
    V<double> r = x - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10;
    V<double> p = all(1.0 / 6227020800.0);
    for (double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0,
                             120.0, 24.0, 6.0, 2.0})
        p = p * r + 1.0 / factorial;
    p = p * (r * r) + r + 1.0;
    return p * (V<double>)(((Kind<double>::Ints)t << 52) + 0x3ff0000000000000);
}

template <class T>
inline V<T> limited(V<T> x, T most) {
    x = x > most ? all(most) : x;
    return x < -most ? all(-most) : x;
}

template <class T>
inline V<T> sigmoid(V<T> x) {
    return T(1) / (T(1) + exp(limited<T>(-x, 80)));
}

template <class T>
inline V<T> tanh(V<T> x) {
    return T(1) - T(2) / (exp(limited<T>(x + x, 80)) + T(1));
}

}  // namespace hm
