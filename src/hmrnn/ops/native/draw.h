// What follows a step: the output module (equations 11 and 12), a linear layer, and a draw from the
// softmax or the mixture that its numbers describe.
#pragma once

#include <numeric>

#include "forward.h"
#include "window.h"

namespace hm {

// exp of n numbers divided by `temperature`, the largest of which becomes 1.
template <class T>
std::vector<double> softmax(const T *s, int n, double temperature) {
    double most = *std::max_element(s, s + n);
    std::vector<double> p;
    for (int i = 0; i < n; i++) p.push_back(std::exp((s[i] - most) / temperature));
    return p;
}

// The first of the shares p whose sum with those before it exceeds the part u of all.
inline int choose(const std::vector<double> &p, double u) {
    double total = std::accumulate(p.begin(), p.end(), 0.0), sum = p[0];
    int i = 0;
    while (i + 1 < int(p.size()) && sum <= u * total) sum += p[++i];
    return i;
}

template <class T>
int draw_symbol(const Drawing<T> &d, const T *s, double u) {
    std::vector<double> p = softmax(s, d.outputs, d.temperature);
    if (d.top_k < d.outputs || d.top_p < 1) {
        std::vector<int> order(d.outputs);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return s[a] > s[b]; });
        double among = 0, before = 0;
        for (int i = 0; i < d.top_k; i++) among += p[order[i]];
        for (int i = 0; i < d.outputs; i++) {
            double &share = p[order[i]], after = before + share;
            if (i >= d.top_k || (i > 0 && before >= d.top_p * among)) share = 0;
            before = after;
        }
    }
    return choose(p, u);
}

// A point from K Gaussians, whether the pen is lifted after it and, perhaps, whether it is the
// last.
template <class T>
void draw_point(const Drawing<T> &d, const T *s, const double *u, double *to) {
    int K = d.components;
    bool likeliest = d.temperature == 0;
    auto happens = [&](double odds, double u) {
        return likeliest ? odds > 0 : u < 1 / (1 + std::exp(-odds / d.temperature));
    };
    auto deviation = [&](double log) {
        double least = std::log(d.floor), most = std::max(log, least);
        return std::exp(most + std::log1p(std::exp(-std::abs(log - least))) - d.bias) *
               std::sqrt(d.temperature);
    };
    const T *of = s + (likeliest ? std::max_element(s, s + K) - s
                                 : choose(softmax(s, K, d.temperature / (1 + d.bias)), u[0]));
    double fade = std::exp(-2 * std::abs(double(of[5 * K]))), square = d.bound * d.bound;
    double correlation = d.bound * std::tanh(double(of[5 * K]));
    double rest = 1 - square + square * 4 * fade / ((1 + fade) * (1 + fade));
    double radius = std::sqrt(-2 * std::log1p(-u[2])), angle = 2 * 3.14159265358979323846 * u[3];
    double x = radius * std::cos(angle), y = radius * std::sin(angle);
    to[0] = of[K] + deviation(of[3 * K]) * x;
    to[1] = of[2 * K] + deviation(of[4 * K]) * (correlation * x + std::sqrt(rest) * y);
    to[2] = happens(s[6 * K], u[1]);
    if (d.halts) to[3] = happens(s[6 * K + 1], u[4]);
}

// Draws step t of the rows to which it is not given, and writes it where the network reads it.
template <class T>
void Slice<T>::draw(int t) {
    const Drawing<T> &d = p.call.drawing;
    int M = d.layers, above = p.top() + 1;  // the terms from there on are the window's
    if (t == 0) {
        terms.set_width(d.size + M), terms.grow(size_t(M) * n);
        embedded.set_width(d.size), embedded.grow(n);
        scores.set_width(d.outputs), scores.grow(n);
    }
    auto drawn = [&](int k) { return d.starts[from + k] <= t; };
    for (int l = 0; l < M; l++) {  // the terms of layers that copied stay
        for (int k = 0; k < n; k++)
            if (drawn(k) && l >= above) {
                products.add(p.window->out(l - above, t - 1, from + k), terms[l * n + k]);
            } else if (drawn(k) && stale[l * n + k]) {
                products.add(h(l, t - 1, k), terms[l * n + k]);
                stale[l * n + k] = 0;
            }
        products.compute(p.of_terms[l]);
    }
    for (int k = 0; k < n; k++) {
        if (!drawn(k)) continue;
        T *to = embedded[k];
        std::fill(to, to + d.size, T(0));
        for (int l = 0; l < M; l++) {
            T s = 0;
            for (int m = 0; m < M; m++) s += terms[m * n + k][d.size + l];
            add(to, 1 / (1 + std::exp(-s)), terms[l * n + k], d.size);
        }
        for (int j = 0; j < d.size; j++) to[j] = std::max(to[j], T(0));  // NaN stays
        products.add(to, scores[k]);
    }
    products.compute(p.of_scores);
    for (int k = 0; k < n; k++) {
        if (!drawn(k)) continue;
        T *s = scores[k];
        add(s, T(1), d.offset, d.outputs);
        size_t at = p.at(t, from + k);
        double *to = d.drawn + at * d.width;
        const double *u = d.uniform + at * d.numbers;
        bool finite = std::all_of(s, s + d.outputs, [](T x) { return std::isfinite(x); });
        if (!finite)
            std::fill(to, to + d.width, NAN);
        else if (d.components)
            draw_point(d, s, u, to);
        else
            *to = draw_symbol(d, s, *u);
        if (p.call.symbols)
            p.call.indices[at] = finite ? int64_t(*to) : 0;
        else
            std::copy(to, to + 3, p.call.x + at * p.layer(0).below);
    }
    if (!p.window) return;
    p.window->advance(t, from, from + n);
    for (int k = 0; k < n; k++) {
        T *to = p.call.x + p.at(t, from + k) * p.layer(0).below + 3;
        for (int part : {0, 1})
            to = std::copy_n(p.window->out(part, t, from + k), p.window->size(part), to);
    }
}

}  // namespace hm
