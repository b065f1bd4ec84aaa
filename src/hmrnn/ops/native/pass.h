// A whole call: its slices at once, and the sums over them.
#pragma once

#include <atomic>
#include <exception>
#include <thread>

#include "backward.h"
#include "draw.h"

namespace hm {

// Runs f(0), ..., f(count - 1) on so many threads, this one among them, each of which takes the
// next as soon as it is free: one whose core is busy elsewhere does not keep the others waiting.
template <class F>
void parallel(int threads, int count, F f) {
    std::atomic<bool> failed{false};
    std::atomic<int> next{0};
    auto run = [&] {
        // this also takes the memory that a throw needs; taking it when none is left would abort
        if (std::uncaught_exceptions() > 0) failed = true;
        try {
            for (int i; (i = next++) < count;) f(i);
        } catch (...) {
            failed = true;
        }
    };
    std::vector<std::thread> others;
    others.reserve(threads);
    try {
        while (int(others.size()) + 1 < std::min(threads, count)) others.emplace_back(run);
    } catch (...) {  // no more threads, or no memory for them: there are enough
    }
    run();
    for (auto &t : others) t.join();
    if (failed) throw std::bad_alloc();
}

template <class T>
void Pass<T>::pack(std::vector<typename Matrices<T>::OfLayer> &to, bool transposed) {
    std::lock_guard<std::mutex> alone(matrices.busy);
    if (!to.empty()) return;
    std::vector<typename Matrices<T>::OfLayer> made(layers.size());
    parallel(int(parts.size()), 3 * int(layers.size()), [&](int i) {
        const Layer<T> &w = layer(i / 3);
        auto &[U, W, V] = made[i / 3];
        Packed<T> &p = *std::array{&U, &W, &V}[i % 3];
        const T *a = std::array{w.U, w.W, w.V}[i % 3];
        int R = 4 * w.H, k = std::array{w.H, w.below, w.above}[i % 3];
        if (a && k) transposed ? p.pack(a, k, R, 1, k, matrices.halve) : p.pack(a, R, k, k, 1);
    });
    to = std::move(made);  // all of them, or none if memory runs out
}

template <class T>
void Pass<T>::forward() {
    const Layer<T> &w = layer(0);
    int threads = int(parts.size());
    pack(matrices.forward, true);
    if (tabled()) {
        Products<T> products;
        table.set_width(4 * w.H + 2), table.grow(call.symbols);
        for (int i = 0; i < call.symbols; i++) products.add(call.x + size_t(i) * w.below, table[i]);
        products.compute(matrices.forward[0].W, w.gain_W);
    }
    const Drawing<T> &d = call.drawing;
    if (d.layers && d.shows) window = std::make_shared<const Window<T>>(d.window);
    of_terms = std::vector<Packed<T>>(d.layers);
    for (int l = 0; l < d.layers; l++) {
        int H = l <= top() ? layer(l).H : window->size(l - top() - 1);
        of_terms[l].pack(d.terms[l], H, d.size + d.layers, 1, H);
    }
    if (d.layers) of_scores.pack(d.weight, d.size, d.outputs, 1, d.size);
    parallel(threads, threads, [&](int i) { parts[i]->forward(); });
}

template <class T>
void Pass<T>::backward(Words words) {
    std::lock_guard<std::mutex> alone(busy);
    Gradients<T> g(words, layers);
    int threads = int(parts.size());
    pack(matrices.backward, false);
    parallel(threads, threads, [&](int i) { parts[i]->backward(g); });
    if (tabled()) add_input(g);
    std::vector<Outer> outers;
    for (int l = 0; l <= top(); l++) add_weights(g, l, outers);
    parallel(threads, threads * int(outers.size()), [&](int i) {  // some rows of each matrix
        const Outer &o = outers[i / threads];
        int tiles = (o.rows + TALL - 1) / TALL, part = i % threads;
        int a = tiles * part / threads * TALL, b = tiles * (part + 1) / threads * TALL;
        add_outer<T>(int(o.left.size()), o.left.data(), o.right.data(), a, std::min(o.rows, b),
                     o.columns, o.to);
    });
    for (auto &part : parts) {
        if (g.slope) *g.slope += part->slope;
        const T *from = part->of_input.data();  // empty unless rows of the embedding learn from it
        int below = layer(0).below;
        for (size_t i = 0; i < part->of_input.size() / below; i++, from += below)
            if (int t = int(i / part->n), k = int(i % part->n); t < part->steps(k))
                add(g.x + call.indices[at(t, part->from + k)] * below, T(1), from, below);
    }
}

// The gradients of a layer's parameters, sums over the slices in their order, and those of its
// matrices that are still to be computed.
template <class T>
void Pass<T>::add_weights(const Gradients<T> &g, int l, std::vector<Outer> &outers) {
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
        Outer &made = outers.emplace_back(Outer{{}, {}, to, 4 * w.H, columns});
        for (auto &part : parts) {
            auto &of = ((*part).*pairs)[l];
            made.left.insert(made.left.end(), of.left.begin(), of.left.end());
            made.right.insert(made.right.end(), of.right.begin(), of.right.end());
        }
    };
    outer(&Slice<T>::of_U, d.U, w.H), outer(&Slice<T>::of_W, d.W, w.below),
        outer(&Slice<T>::of_V, d.V, w.above);
}

// The gradients of W of the first layer and of the embedding, from those of symbols' products.
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
