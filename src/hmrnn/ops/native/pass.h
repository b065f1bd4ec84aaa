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
void fill_table(Table<T> &table, const Packed<T> &W, int n, const T *const *rows, int R,
                bool norm) {
    table.s.set_width(R);
    table.s.grow(n);
    std::vector<T *> to(n);
    for (int i = 0; i < n; i++) to[i] = table.s[i];
    multiply<T>(n, rows, W, to.data());
    if (!norm) return;
    table.of.resize(n);
    for (int i = 0; i < n; i++) table.of[i] = moments(table.s[i], R);
}

template <class T>
void Pass<T>::forward() {
    if (tabled()) {
        std::vector<const T *> rows(call.symbols);
        for (int i = 0; i < call.symbols; i++) rows[i] = as<T>(call.x) + size_t(i) * layer(0).below;
        fill_table(table, matrices.forward[0].W, call.symbols, rows.data(), 4 * layer(0).H,
                   layer(0).gain_W != nullptr);
    }
    if (const Drawing &d = call.drawing; d.layers) {
        of_terms = std::vector<Packed<T>>(d.layers);
        for (int l = 0; l < d.layers; l++)
            of_terms[l].transposed(as<T>(d.terms[l]), d.size + d.layers, layer(l).H);
        of_scores.transposed(as<T>(d.weight), d.outputs, d.size);
    }
    parallel(int(parts.size()), [&](int i) { parts[i]->forward(); });
}

template <class T>
void Pass<T>::backward(const Gradients &g) {
    std::lock_guard<std::mutex> alone(busy);
    Matrices<T>::pack(layers, matrices.backward, false);
    parallel(int(parts.size()), [&](int i) { parts[i]->backward(g); });
    if (g.slope)
        for (auto &part : parts) *g.slope += part->slope;
    if (tabled()) add_input(g);
    for (int l = 0; l <= top(); l++) add_weights(g, l);
    if (g.x && call.symbols && !tabled())
        for (auto &part : parts)
            for (int t = 0; t < call.T; t++)
                for (int k = 0; k < part->n && int(t) < call.T; k++)
                    if (t < part->steps(k)) {
                        int below = layer(0).below;
                        add(as<T>(g.x) + call.indices[at(t, part->from + k)] * below, T(1),
                            &part->of_input[(size_t(t) * part->n + k) * below], below);
                    }
}

// The gradients of a layer's parameters: sums over the slices, in their order.
template <class T>
void Pass<T>::add_weights(const Gradients &g, int l) {
    const Layer &w = layer(l), &d = g.layers[l];
    auto total = [&](std::vector<T> Slice<T>::Sum::*field, void *to, int rows, int width,
                     int stride) {
        if (to == nullptr) return;
        for (auto &part : parts) {
            const std::vector<T> &sum = part->sums[l].*field;
            for (int i = 0; i < rows && !sum.empty(); i++)
                add(as<T>(to) + size_t(i) * stride, T(1), &sum[size_t(i) * width], width);
        }
    };
    using Sum = typename Slice<T>::Sum;
    total(&Sum::b, d.b, 1, 4 * w.H, 0), total(&Sum::gain_U, d.gain_U, 1, 4 * w.H, 0);
    total(&Sum::gain_W, d.gain_W, 1, 4 * w.H, 0), total(&Sum::gain_V, d.gain_V, 1, 4 * w.H, 0);
    total(&Sum::gain_c, d.gain_c, 1, w.H, 0), total(&Sum::bias_c, d.bias_c, 1, w.H, 0);
    if (w.K) {
        total(&Sum::Uz, d.Uz, w.K, w.H, d.Uz_stride),
            total(&Sum::Wz, d.Wz, w.K, w.below, d.Wz_stride);
        if (w.above) total(&Sum::Vz, d.Vz, w.K, w.above, d.Vz_stride);
        total(&Sum::bz, d.bz, 1, w.K, 0);
        if (w.D2) total(&Sum::D2, d.D2, 1, w.K, 0), total(&Sum::d2, d.d2, 1, 1, 0);
    }
    auto outer = [&](auto field, void *to, int columns) {
        if (to == nullptr || columns == 0) return;
        std::vector<const T *> left, right;
        for (auto &part : parts) {
            auto &pairs = ((*part).*field)[l];
            left.insert(left.end(), pairs.left.begin(), pairs.left.end());
            right.insert(right.end(), pairs.right.begin(), pairs.right.end());
        }
        int threads = int(parts.size()), tiles = (4 * w.H + TALL - 1) / TALL;
        parallel(threads, [&](int i) {
            int a = tiles * i / threads * TALL,
                b = std::min(4 * w.H, tiles * (i + 1) / threads * TALL);
            add_outer<T>(int(left.size()), left.data(), right.data(), a, b, columns, as<T>(to));
        });
    };
    outer(&Slice<T>::of_U, d.U, w.H), outer(&Slice<T>::of_W, d.W, w.below),
        outer(&Slice<T>::of_V, d.V, w.above);
}

// The gradients of W of the first layer and of the embedding, from those of the products of
// symbols.
template <class T>
void Pass<T>::add_input(const Gradients &g) {
    const Layer &w = layer(0), &d = g.layers[0];
    int R = 4 * w.H, K = w.K;
    std::vector<T> total(size_t(call.symbols) * R, 0), product(R);
    std::vector<const T *> left, right;
    std::vector<T *> to;
    for (int i = 0; i < call.symbols; i++) {
        T *row = &total[size_t(i) * R];
        const T *x = as<T>(call.x) + size_t(i) * w.below;
        for (auto &part : parts) add(row, T(1), &part->of_symbols[size_t(i) * R], R);
        if (w.gain_W) {
            Contribution<T> c{table.s[i], as<T>(w.gain_W), table.of[i]};
            Gained<T> gained;
            each<T>(R, [&](int j, int lanes) {
                gained.add(load(row + j, lanes), c, as<T>(d.gain_W), j, lanes);
            });
            normal_back(R, row, c, sum<T>(gained.total), sum<T>(gained.along), product.data());
            std::copy(product.begin(), product.end(), row);
        }
        left.push_back(row), right.push_back(x);
        if (g.x) to.push_back(as<T>(g.x) + size_t(i) * w.below);
    }
    if (d.W) add_outer<T>(call.symbols, left.data(), right.data(), 0, R, w.below, as<T>(d.W));
    if (g.x) multiply<T>(call.symbols, left.data(), matrices.backward[0].W, to.data());
    for (int i = 0; i < call.symbols; i++)
        for (int q = 0; q < K; q++) {
            T z = 0;
            for (auto &part : parts) z += part->of_symbols_z[size_t(i) * K + q];
            if (d.Wz) add(as<T>(d.Wz) + size_t(q) * d.Wz_stride, z, right[i], w.below);
            if (g.x) add(to[i], z, as<T>(w.Wz) + size_t(q) * w.Wz_stride, w.below);
        }
}

}  // namespace hm
