// Products of rows with a packed matrix, and sums of outer products.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "memory.h"
#include "vector.h"

namespace hm {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int TALL = 12;  // rows of a tile; with WIDE vectors each they fill the registers
#else
constexpr int TALL = 6;
#endif
constexpr int WIDE = 2;
template <class T>
constexpr int PANEL = WIDE * LANES<T>;  // columns of a tile

// Calls f with m as a type, 1 <= m <= M.
template <int M, class F>
void with_height(int m, F f) {
    if constexpr (M > 1)
        if (m < M) return with_height<M - 1>(m, f);
    f(std::integral_constant<int, M>{});
}

// Two numbers in bfloat16: of a panel's row those of one lane, of its first vector in the lower
// half.
struct Pair {
    uint32_t bits;
};
template <class T, class E>
constexpr int ROW = std::is_same_v<E, Pair> ? LANES<T> : PANEL<T>;  // what holds a panel's row

template <class T>
inline void read_row(const T *row, V<T> *to) {
    for (int v = 0; v < WIDE; v++) to[v] = load(row + v * LANES<T>);
}
inline void read_row(const Pair *row, V<float> *to) {
    static_assert(WIDE == 2);
    Kind<float>::Ints both;
    memcpy(&both, row, BYTES);
    to[0] = (V<float>)(both << 16), to[1] = (V<float>)(both & int32_t(0xffff0000));
}

// A matrix (depth, columns) in panels of columns: what the tiles read, in the order they read it.
template <class T>
struct Packed {
    int depth = 0, columns = 0;
    const T *data = nullptr;
    const Pair *pairs = nullptr;  // instead of data: its numbers, rounded

    int panels() const { return (columns + PANEL<T> - 1) / PANEL<T>; }

    // The matrix whose element (i, j) is a[i * down + j * across].
    void pack(const T *a, int k, int n, size_t down, size_t across, bool halve = false) {
        depth = k, columns = n;
        size_t size = size_t(panels()) * PANEL<T> * k;
        Rows<T> whole;
        T *to = (halve ? whole : memory).only(size);
        data = to;
        if (int whole = n / PANEL<T>; whole < panels())
            std::fill_n(to + size_t(whole) * PANEL<T> * k, size_t(k) * PANEL<T>, T(0));
        for (int first = 0, deep = 64; first < k; first += deep)  // by pieces that stay in caches
            for (int p = 0; p < n; p += PANEL<T>) {
                T *panel = to + size_t(p) * k;
                int width = std::min(PANEL<T>, n - p), end = std::min(k, first + deep);
                for (int i = first; across == 1 && i < end; i++)
                    memcpy(panel + i * PANEL<T>, a + i * down + p, width * sizeof(T));
                for (int j = 0; across > 1 && j < width; j++)
                    for (int i = first; i < end; i++)
                        panel[i * PANEL<T> + j] = a[(p + j) * across + i * down];
            }
        if (!halve) return;
        Pair *pair = of_pairs.only(size / WIDE);
        for (size_t i = 0; i < size / WIDE; i++) {
            const T *lane = data + i / LANES<T> * PANEL<T> + i % LANES<T>;
            pair[i] = {upper_half(float(lane[0])) >> 16 | upper_half(float(lane[LANES<T>]))};
        }
        data = nullptr, pairs = pair;
    }

  private:
    Rows<T> memory;
    Rows<Pair> of_pairs;
};

// M rows of c = M rows of a times P panels that follow each other, from column `at` on. Every
// element is one sum in the order of `depth`, so that a row does not depend on the rows beside it.
// Many sums at once hide the latency of each.
template <class T, int M, int P, class E>
void tile(int depth, const T *const *a, const E *panel, T *const *c, int at, int columns) {
    constexpr int AHEAD = 24 * PANEL<T>;  // what is fetched early: a core alone waits at each page
    constexpr int LINE = 64 / sizeof(E), STEP = ROW<T, E>;
    const T *row[M];
    V<T> s[M][P * WIDE];
    for (int m = 0; m < M; m++) {
        row[m] = a[m];
        for (int v = 0; v < P * WIDE; v++) s[m][v] = V<T>{};
    }
    for (int k = 0; k < depth; k++, panel += STEP) {
        V<T> b[P * WIDE];
        for (int p = 0; p < P; p++) {
            const E *row = panel + p * size_t(depth) * STEP;
            for (int j = 0; j < STEP; j += LINE) __builtin_prefetch(row + j + AHEAD);
            read_row(row, b + p * WIDE);
        }
        for (int m = 0; m < M; m++)
            for (int v = 0; v < P * WIDE; v++) s[m][v] += row[m][k] * b[v];
    }
    for (int m = 0; m < M; m++)
        for (int v = 0; v < P * WIDE; v++) {
            int lanes = std::min(LANES<T>, columns - at - v * LANES<T>);
            if (lanes > 0) store(c[m] + at + v * LANES<T>, s[m][v], lanes);
        }
}

// c[i] = a[i] * matrix for n rows, each at an address of its own.
template <class T, class E>
void multiply(int n, const T *const *a, const Packed<T> &matrix, const E *panels_of, T *const *c) {
    int tiles = (n + TALL - 1) / TALL, panels = matrix.panels();
    for (int p = 0, taken = 1; p < panels && n > 0; p += taken) {
        int at = p * PANEL<T>;
        const E *panel = panels_of + size_t(p) * ROW<T, E> * matrix.depth;
        for (int i = 0; i < tiles; i++) {  // of nearly equal heights
            int from = int(int64_t(n) * i / tiles), to = int(int64_t(n) * (i + 1) / tiles);
            with_height<TALL>(to - from, [&](auto m) {
                constexpr int M = m, P = M == 1 ? 4 : M <= 3 ? 2 : 1;
                taken = tiles > 1 || panels - p < P ? 1 : P;
                if (taken == P)
                    tile<T, M, P>(matrix.depth, a + from, panel, c + from, at, matrix.columns);
                else
                    tile<T, M, 1>(matrix.depth, a + from, panel, c + from, at, matrix.columns);
            });
        }
    }
}

template <class T>
void multiply(int n, const T *const *a, const Packed<T> &matrix, T *const *c) {
    if constexpr (std::is_same_v<T, float>)
        if (matrix.pairs) return multiply(n, a, matrix, matrix.pairs, c);
    multiply(n, a, matrix, matrix.data, c);
}

// M x PANEL of c += the sum over `depth` of a column of `a` (M numbers) times a row of panel `b`.
template <class T, int M>
void outer_tile(int depth, const T *a, const T *b, T *c, size_t stride, int width) {
    V<T> s[M][WIDE];
    for (int m = 0; m < M; m++)
        for (int v = 0; v < WIDE; v++) s[m][v] = V<T>{};
    for (int k = 0; k < depth; k++, a += TALL, b += PANEL<T>) {
        V<T> row[WIDE];
        for (int v = 0; v < WIDE; v++) row[v] = load(b + v * LANES<T>);
        for (int m = 0; m < M; m++)
            for (int v = 0; v < WIDE; v++) s[m][v] += a[m] * row[v];
    }
    for (int m = 0; m < M; m++)
        for (int v = 0; v < WIDE; v++) {
            int lanes = std::min(LANES<T>, width - v * LANES<T>);
            T *to = c + m * stride + v * LANES<T>;
            if (lanes > 0) store(to, load(to, lanes) + s[m][v], lanes);
        }
}

// Rows from..to of c (rows, columns) += the sum of the outer products of n pairs, left and right.
template <class T>
void add_outer(int n, const T *const *left, const T *const *right, int from, int to, int columns,
               T *c) {
    constexpr int DEPTH = 256, ROWS = 16 * TALL;
    int panels = (columns + PANEL<T> - 1) / PANEL<T>;
    Rows<T> of_a, of_b;
    T *a = of_a.only(DEPTH * ROWS), *b = of_b.only(size_t(DEPTH) * panels * PANEL<T>);
    for (int start = 0; start < n; start += DEPTH) {
        int depth = std::min(DEPTH, n - start);
        for (int k = 0; k < depth; k++)
            for (int p = 0; p < panels; p++) {
                T *to_b = &b[(size_t(p) * depth + k) * PANEL<T>];
                int width = std::min(PANEL<T>, columns - p * PANEL<T>);
                memcpy(to_b, right[start + k] + p * PANEL<T>, width * sizeof(T));
                std::fill(to_b + width, to_b + PANEL<T>, T(0));
            }
        for (int block = from; block < to; block += ROWS) {
            int rows = std::min(ROWS, to - block);
            for (int i = 0; i < rows; i += TALL) {
                T *to_a = &a[size_t(i) * depth];
                for (int k = 0; k < depth; k++, to_a += TALL)
                    if (i + TALL <= rows)
                        memcpy(to_a, left[start + k] + block + i, TALL * sizeof(T));
                    else
                        std::copy(left[start + k] + block + i, left[start + k] + block + rows,
                                  to_a);
            }
            for (int p = 0; p < panels; p++)
                for (int i = 0; i < rows; i += TALL)
                    with_height<TALL>(std::min(TALL, rows - i), [&](auto m) {
                        outer_tile<T, m>(depth, &a[size_t(i) * depth],
                                         &b[size_t(p) * depth * PANEL<T>],
                                         c + size_t(block + i) * columns + p * PANEL<T>, columns,
                                         std::min(PANEL<T>, columns - p * PANEL<T>));
                    });
        }
    }
}

}  // namespace hm
