// A whole call: its slices at once, and the sums over them.
#pragma once

#include <atomic>
#include <exception>
#include <thread>

#include "backward.h"
#include "draw.h"

namespace hm {

// Runs f(0), ..., f(n - 1) at once, the first on this thread.
template <class F>
void parallel(int n, F f) {
    std::atomic<bool> failed{false};
    auto run = [&](int i) {
        // this call also takes the memory that a throw needs; taking it when none is left would
        // abort
        if (std::uncaught_exceptions() > 0) failed = true;
        try {
            f(i);
        } catch (...) {
            failed = true;
        }
    };
    std::vector<std::thread> threads;
    threads.reserve(n);
    for (int i = 1; i < n; i++) {
        try {
            threads.emplace_back(run, i);
        } catch (...) {  // no more threads, or no memory for them
            run(i);
        }
    }
    run(0);
    for (auto &t : threads) t.join();
    if (failed) throw std::bad_alloc();
}

template <class T>
void Pass<T>::forward() {
    const Layer<T> &w = layer(0);
    if (tabled()) {
        Products<T> products;
        table.set_width(4 * w.H + 2), table.grow(call.symbols);
        for (int i = 0; i < call.symbols; i++) products.add(call.x + size_t(i) * w.below, table[i]);
        products.compute(matrices.forward[0].W, w.gain_W);
    }
    const Drawing<T> &d = call.drawing;
    of_terms = std::vector<Packed<T>>(d.layers);
    for (int l = 0; l < d.layers; l++)
        of_terms[l].pack(d.terms[l], layer(l).H, d.size + d.layers, 1, layer(l).H);
    if (d.layers) of_scores.pack(d.weight, d.size, d.outputs, 1, d.size);
    parallel(int(parts.size()), [&](int i) { parts[i]->forward(); });
}

template <class T>
void Pass<T>::backward(Words words) {
    std::lock_guard<std::mutex> alone(busy);
    Gradients<T> g(words, layers);
    Matrices<T>::pack(layers, matrices.backward, false);
    parallel(int(parts.size()), [&](int i) { parts[i]->backward(g); });
    if (tabled()) add_input(g);
    for (int l = 0; l <= top(); l++) add_weights(g, l);
    for (auto &part : parts) {
        if (g.slope) *g.slope += part->slope;
        const T *from = part->of_input.data();  // empty unless rows of the embedding learn from it
        int below = layer(0).below;
        for (size_t i = 0; i < part->of_input.size() / below; i++, from += below)
            if (int t = int(i / part->n), k = int(i % part->n); t < part->steps(k))
                add(g.x + call.indices[at(t, part->from + k)] * below, T(1), from, below);
    }
}

// The gradients of a layer's parameters: sums over the slices, in their order.
template <class T>
void Pass<T>::add_weights(const Gradients<T> &g, int l) {
    const Layer<T> &w = layer(l), &d = g.layers[l];
    w.each_sum([&](auto field, int rows, int columns, int stride) {
        if (d.*field == nullptr) return;
        for (auto &part : parts)
            for (int i = 0; i < rows; i++)
                add(d.*field + size_t(i) * stride, T(1), part->sums[l].*field + size_t(i) * columns,
                    columns);
    });
    auto outer = [&](auto pairs, T *to, int columns) {
        if (to == nullptr || columns == 0) return;
        std::vector<const T *> left, right;
        for (auto &part : parts) {
            auto &of = ((*part).*pairs)[l];
            left.insert(left.end(), of.left.begin(), of.left.end());
            right.insert(right.end(), of.right.begin(), of.right.end());
        }
        int threads = int(parts.size()), tiles = (4 * w.H + TALL - 1) / TALL;
        parallel(threads, [&](int i) {
            int a = tiles * i / threads * TALL, b = tiles * (i + 1) / threads * TALL;
            add_outer<T>(int(left.size()), left.data(), right.data(), a, std::min(4 * w.H, b),
                         columns, to);
        });
    };
    outer(&Slice<T>::of_U, d.U, w.H), outer(&Slice<T>::of_W, d.W, w.below),
        outer(&Slice<T>::of_V, d.V, w.above);
}

// The gradients of W of the first layer and of the embedding, from those of the products of
// symbols.
template <class T>
void Pass<T>::add_input(const Gradients<T> &g) {
    const Layer<T> &w = layer(0), &d = g.layers[0];
    int R = 4 * w.H, K = w.K, symbols = call.symbols;
    Rows<T> total;
    total.assign(symbols, R, nullptr);
    typename Slice<T>::Pairs pairs;
    Products<T> products;
    for (int i = 0; i < symbols; i++) {
        T *row = total[i];
        for (auto &part : parts) add(row, T(1), &part->of_symbols[size_t(i) * R], R);
        if (w.gain_W) {
            Contribution<T> c(table[i], w.gain_W, R);
            Gained<T> gained;
            each<T>(R, [&](int j, int lanes) {
                gained.add(load(row + j, lanes), c, d.gain_W, j, lanes);
            });
            normal_back(R, row, c, sum<T>(gained.total), sum<T>(gained.along), row);
        }
        pairs.add(row, call.x + size_t(i) * w.below);
        if (g.x) products.add(row, g.x + size_t(i) * w.below);
    }
    if (d.W) add_outer<T>(symbols, pairs.left.data(), pairs.right.data(), 0, R, w.below, d.W);
    products.compute(matrices.backward[0].W);
    for (int i = 0; i < symbols; i++)
        for (int q = 0; q < K; q++) {
            T z = 0;
            for (auto &part : parts) z += part->of_symbols_z[size_t(i) * K + q];
            if (d.Wz) add(d.Wz + size_t(q) * d.Wz_stride, z, pairs.right[i], w.below);
            if (g.x) add(g.x + size_t(i) * w.below, z, w.Wz + size_t(q) * w.Wz_stride, w.below);
        }
}

}  // namespace hm
