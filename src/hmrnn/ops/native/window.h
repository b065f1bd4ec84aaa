// A soft window over the letters of a text, moved by an LSTM that reads what it shows; the
// equations are in kinds/strokes/window.py.
#pragma once

#include <numeric>

#include "slice.h"

namespace hm {

// Arrays of T steps are (T, B, ...). Of said, N = 3K numbers are the logarithms of alpha, beta and
// step, and one more belongs to the detector.
template <class T>
class Window {
    static constexpr T MOST = 10;                        // of those logarithms
    static constexpr T FAR = sizeof(T) == 4 ? 87 : 700;  // of e^-FAR nothing is left in a sum

    int back, steps, B, threads, X, stride, H, W, K, U, detects;
    const T *x, *letters;           // (T, B, stride), of which X are read; (B, U, W): embeddings
    const T *weight, *bias;         // (4H, X + W + H), (4H): of i, f, g, o
    const T *moves, *offset;        // (N, H), (N)
    const T *h0, *read0, *c0, *k0;  // (B, H), (B, W), (B, H), (B, K)
    T *h, *read, *shown, *c, *k;    // (T, B, ...): H, W, U, H, K
    T *gates, *said;                // (T, B, ...): 4H, N
    // Of a backward pass: the gradients of h, read, shown, c and k, or null; those of what the
    // gates and said are made of, and of read with all that it leads to; then, zeros at first, of
    // the start: (B, W + H), (B, H), (B, K).
    const T *of_h, *of_read, *of_shown, *of_c, *of_k;
    T *d_gates, *d_said, *d_read, *d_start, *d_c0, *d_k0;

    Packed<T> of_gates, of_said;
    std::vector<T> places;  // 0, 1, ...

    size_t at(int t, int b) const { return size_t(t) * B + b; }
    const T *before(const T *a, const T *start, int t, int b, int n) const {
        return t ? a + at(t - 1, b) * n : start + size_t(b) * n;
    }
    const T *letter(int b, int u) const { return letters + (size_t(b) * U + u) * W; }
    T step(const T *s) const { return detects ? T(likely(s) > T(0.5)) : T(1); }
    T likely(const T *s) const { return 1 / (1 + std::exp(-s[3 * K])); }
    // alpha, beta and step
    void limit(const T *s, T *to) const {
        each<T>(3 * K, [&](int j, int n) {
            V<T> a = load(s + j, n);
            store(to + j, exp(limited<T>(a > MOST ? all(MOST) : a, FAR)), n);
        });
    }
    // exp(-beta d²)
    static V<T> near(V<T> d, T beta) {
        V<T> a = -beta * d * d;
        return a < -FAR ? V<T>{} : exp(limited<T>(a, FAR));
    }

    void cell(int t, int b) const {
        const T *before = this->before(c, c0, t, b, H), *bias = this->bias;
        T *s = gates + at(t, b) * 4 * H, *now = c + at(t, b) * H, *out = h + at(t, b) * H;
        each<T>(H, [=, H = H](int j, int n) {
            auto sum = [&](int gate) {
                return load(s + gate * H + j, n) + load(bias + gate * H + j, n);
            };
            V<T> i = sigmoid<T>(sum(0)), f = sigmoid<T>(sum(1)), g = tanh<T>(sum(2));
            V<T> o = sigmoid<T>(sum(3)), cell = f * load(before + j, n) + i * g;
            store(s + j, i, n), store(s + H + j, f, n), store(s + 2 * H + j, g, n);
            store(s + 3 * H + j, o, n), store(now + j, cell, n);
            store(out + j, o * tanh<T>(cell), n);
        });
    }

    void show(int t, int b, T *e) const {
        T *s = said + at(t, b) * (3 * K + detects), *now = k + at(t, b) * K;
        T *phi = shown + at(t, b) * U, *to = read + at(t, b) * W;
        add(s, T(1), offset, 3 * K + detects);
        limit(s, e);
        std::fill_n(phi, U, T(0)), std::fill_n(to, W, T(0));
        for (int i = 0; i < K; i++) {
            now[i] = before(k, k0, t, b, K)[i] + step(s) * e[2 * K + i];
            each<T>(U, [&](int u, int n) {
                increase<T>(phi + u, e[i] * near(now[i] - load(&places[u], n), e[K + i]), n);
            });
        }
        for (int u = 0; u < U; u++)
            if (phi[u] != 0) add(to, phi[u], letter(b, u), W);
    }

    void show_back(int t, int b, T *e, T *of_phi) const {
        const T *s = said + at(t, b) * (3 * K + detects), *now = k + at(t, b) * K;
        const T *phi = shown + at(t, b) * U, *of = d_read + at(t, b) * W;
        T *d = d_said + at(t, b) * (3 * K + detects), *dk = d_k0 + size_t(b) * K;
        limit(s, e);
        for (int u = 0; u < U; u++) {
            of_phi[u] = phi[u] != 0 ? dot(of, letter(b, u), W) : T(0);
            if (of_shown) of_phi[u] += of_shown[at(t, b) * U + u];
        }
        T of_step = 0;
        for (int i = 0; i < K; i++) {
            V<T> total = {}, along = {}, square = {};
            each<T>(U, [&](int u, int n) {
                V<T> away = now[i] - load(&places[u], n);
                V<T> a = load(of_phi + u, n) * near(away, e[K + i]);
                total += a, along += a * away, square += a * away * away;
            });
            T alpha = e[i], beta = e[K + i];
            if (of_k) dk[i] += of_k[at(t, b) * K + i];
            dk[i] -= 2 * alpha * beta * sum<T>(along);
            d[i] = alpha * sum<T>(total), d[K + i] = -alpha * beta * sum<T>(square);
            d[2 * K + i] = dk[i] * step(s) * e[2 * K + i];
            of_step += dk[i] * e[2 * K + i];
        }
        for (int j = 0; j < 3 * K; j++)
            if (s[j] > MOST) d[j] = 0;
        if (detects) d[3 * K] = of_step * likely(s) * (1 - likely(s));
    }

    void cell_back(int t, int b, const T *dh) const {
        const T *before = this->before(c, c0, t, b, H), *now = c + at(t, b) * H;
        const T *s = gates + at(t, b) * 4 * H, *given = of_c ? of_c + at(t, b) * H : nullptr;
        T *ds = d_gates + at(t, b) * 4 * H, *dc = d_c0 + size_t(b) * H;
        each<T>(H, [=, H = H](int j, int n) {
            auto gate = [&](int g) { return load(s + g * H + j, n); };
            V<T> i = gate(0), f = gate(1), g = gate(2), o = gate(3), y = tanh<T>(load(now + j, n));
            V<T> of_h = load(dh + j, n), d = load(dc + j, n) + of_h * o * (1 - y * y);
            if (given) d += load(given + j, n);
            store(ds + j, d * g * i * (1 - i), n);
            store(ds + H + j, d * load(before + j, n) * f * (1 - f), n);
            store(ds + 2 * H + j, d * i * (1 - g * g), n);
            store(ds + 3 * H + j, of_h * y * o * (1 - o), n);
            store(dc + j, d * f, n);
        });
    }

    void backward(int from, int to) const {
        Rows<T> of_hidden;
        Products<T> products;
        std::vector<T> e(3 * K), of_phi(U);
        of_hidden.set_width(H), of_hidden.grow(to - from);
        for (int t = steps - 1; t >= 0; t--) {
            for (int b = from; b < to; b++) {
                T *dr = d_read + at(t, b) * W;
                std::copy_n(d_start + size_t(b) * (W + H), W, dr);
                if (of_read) add(dr, T(1), of_read + at(t, b) * W, W);
                show_back(t, b, e.data(), of_phi.data());
                products.add(d_said + at(t, b) * (3 * K + detects), of_hidden[b - from]);
            }
            products.compute(of_said);
            for (int b = from; b < to; b++) {
                T *dh = of_hidden[b - from], *later = d_start + size_t(b) * (W + H);
                add(dh, T(1), later + W, H);
                if (of_h) add(dh, T(1), of_h + at(t, b) * H, H);
                cell_back(t, b, dh);
                products.add(d_gates + at(t, b) * 4 * H, later);
            }
            products.compute(of_gates);
        }
    }

  public:
    explicit Window(Words w) {
        w.read(back, steps, B, threads, X, stride, H, W, K, U, detects);
        w.read(x, letters, weight, bias, moves, offset, h0, read0, c0, k0);
        w.read(h, read, shown, c, k, gates, said);
        int N = 3 * K + detects, R = X + W + H;
        if (back) {
            w.read(of_h, of_read, of_shown, of_c, of_k);
            w.read(d_gates, d_said, d_read, d_start, d_c0, d_k0);
            of_gates.pack(weight + X, 4 * H, W + H, R, 1), of_said.pack(moves, N, H, H, 1);
        } else {
            of_gates.pack(weight, R, 4 * H, 1, R), of_said.pack(moves, H, N, 1, H);
        }
        places.resize(U), std::iota(places.begin(), places.end(), T(0));
    }

    int slices() const { return threads; }
    void run(int slice) const {
        int from = int(int64_t(B) * slice / threads), to = int(int64_t(B) * (slice + 1) / threads);
        if (back) return backward(from, to);
        for (int t = 0; t < steps; t++) advance(t, from, to);
    }

    // Step t of some rows.
    void advance(int t, int from, int to) const {
        Rows<T> inputs;
        Products<T> products;
        std::vector<T> e(3 * K);
        inputs.set_width(X + W + H), inputs.grow(to - from);
        for (int b = from; b < to; b++) {
            T *v = inputs[b - from];
            std::copy_n(x + at(t, b) * stride, X, v);
            std::copy_n(out(1, t - 1, b), W, v + X);
            std::copy_n(out(0, t - 1, b), H, v + X + W);
            products.add(v, gates + at(t, b) * 4 * H);
        }
        products.compute(of_gates);
        for (int b = from; b < to; b++) {
            cell(t, b);
            products.add(h + at(t, b) * H, said + at(t, b) * (3 * K + detects));
        }
        products.compute(of_said);
        for (int b = from; b < to; b++) show(t, b, e.data());
    }

    // Of h and what is shown: the size, and the numbers after step t.
    int size(int part) const { return part ? W : H; }
    const T *out(int part, int t, int b) const {
        return part ? before(read, read0, t + 1, b, W) : before(h, h0, t + 1, b, H);
    }
};

}  // namespace hm
