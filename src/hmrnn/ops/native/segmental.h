// Segments of a text: sums over all segmentations, the best of them, and the GRU that spells them.
#pragma once

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "pass.h"

namespace hm {

// Scores (T, K, B) of the segment of k + 1 symbols from t; none that ends after T is read. All sums
// are in double precision.
template <class T>
struct Segments {
    static constexpr double NEVER = -1e30, ZERO = -700;  // of e^ZERO nothing is left in a sum
    int N, K, B;
    const T *scores;

    explicit Segments(Words &w) { w.read(N, K, B, scores); }

    const T *at(int t, int k) const { return scores + (size_t(t) * K + k) * B; }

    // to[b] = log of the sum over the terms of exp(term), and exp(lowest) in any case.
    template <class F>
    void log_sum(int terms, const double *lowest, F term, double *to) {
        values.resize(size_t(terms) * B), most.resize(B), total.resize(B);
        for (int b = 0; b < B; b++) most[b] = lowest ? lowest[b] : -1e300;
        for (int k = 0; k < terms; k++)
            for (int b = 0; b < B; b++) {
                double value = term(k, b);
                values[size_t(k) * B + b] = value;
                most[b] = value > most[b] ? value : most[b];
            }
        std::fill(total.begin(), total.end(), 0.0);
        auto count = [&](const double *value) {
            each<double>(B, [&](int b, int n) {
                V<double> x = load(value + b, n) - load(&most[b], n);
                V<double> y = exp(limited<double>(x, -ZERO));
                store(&total[b], load(&total[b], n) + (x < ZERO ? V<double>{} : y), n);
            });
        };
        if (lowest) count(lowest);
        for (int k = 0; k < terms; k++) count(&values[size_t(k) * B]);
        for (int b = 0; b < B; b++) to[b] = most[b] + std::log(total[b]);
    }

    // The log of the sum over all segmentations (B), and the probability of each segment (T, K, B).
    void sum(const double *first, double *sums, T *posterior) {
        std::vector<double> alpha(size_t(N + 1) * B), beta(alpha.size(), 0.0);
        std::copy(first, first + B, alpha.begin());
        for (int t = 1; t <= N; t++)
            log_sum(
                std::min(t, K), first + size_t(t) * B,
                [&](int k, int b) {
                    return alpha[size_t(t - 1 - k) * B + b] + at(t - 1 - k, k)[b];
                },
                &alpha[size_t(t) * B]);
        for (int t = N - 1; t >= 0; t--)
            log_sum(
                std::min(N - t, K), nullptr,
                [&](int k, int b) { return beta[size_t(t + 1 + k) * B + b] + at(t, k)[b]; },
                &beta[size_t(t) * B]);
        std::copy(alpha.end() - B, alpha.end(), sums);
        std::vector<double> log_p(B);
        for (int t = 0; t < N; t++)
            for (int k = 0; k < K; k++) {
                T *to = posterior + (size_t(t) * K + k) * B;
                std::fill(to, to + B, T(0));
                if (t + k >= N) continue;
                for (int b = 0; b < B; b++)
                    log_p[b] = alpha[size_t(t) * B + b] + double(at(t, k)[b]) +
                               beta[size_t(t + k + 1) * B + b] - sums[b];
                each<double>(B, [&](int b, int n) {
                    V<double> x = load(&log_p[b], n), y = exp(limited<double>(x, -ZERO));
                    store(&log_p[b], x < ZERO ? V<double>{} : y, n);
                });
                for (int b = 0; b < B; b++) to[b] = T(log_p[b]);
            }
    }

    // (T + 1, B): the length of the last segment of the best segmentation that ends at t.
    void best(int64_t *length) {
        std::vector<double> weight(size_t(N + 1) * B, 0.0);
        std::fill(length, length + B, 0);
        for (int t = 1; t <= N; t++)
            for (int b = 0; b < B; b++) {
                double highest = -HUGE_VAL;
                int64_t chosen = 1;
                for (int k = 0; k < K && k < t; k++) {
                    double value = weight[size_t(t - 1 - k) * B + b] + double(at(t - 1 - k, k)[b]);
                    if (value > highest) highest = value, chosen = k + 1;
                }
                weight[size_t(t) * B + b] = highest, length[size_t(t) * B + b] = chosen;
            }
    }

  private:
    std::vector<double> values, most, total;
};

// A GRU that spells segments symbol by symbol, from `count` starts, at most `longest` symbols each.
// What it reads is given as rows of a table of products; its output layer has a row for each symbol
// and one for the end.
template <class T>
class Speller {
    static constexpr int BLOCK = 8 * TALL;  // starts that are spelt side by side

    struct Given {
        int count, longest, H, signs, rows, keep;
        double least;                  // share of the largest gradient below which one is left out
        const int64_t *read, *symbol;  // (longest, count): row of the table, symbol; -1: none
        const T *start, *table;        // (count, H), (rows, 3H)
        const T *U, *b;                // (3H, H), (3H): rows in the order r, z, n
        const T *weight, *offset;      // (signs + 1, H), (signs + 1)
        const T *mask;                 // (count, H): factors of the output, or null
        T *spelt,
            *stop;  // (longest, count): log-probability of the symbol; that of an end after it

        explicit Given(Words &w) {
            w.read(least, count, longest, H, signs, rows, keep, read, symbol);
            w.read(start, table, U, b, weight, offset, mask, spelt, stop);
        }
    } g;
    // of each symbol: r, z, n and U h + b of n, then h
    Rows<T> kept;
    std::vector<int>
        length;  // of each start: its symbols, and one step more for the end after them
    Packed<T> U, weight;
    Rows<T> outputs, scores;
    std::vector<const T *> from;
    std::vector<T *> to;

    size_t at(int k, int i) const { return size_t(k) * g.count + i; }
    T *state(int k, int i, int first) const { return kept[size_t(i - first) * g.longest + k]; }
    const T *before(int k, int i, int first) const {
        return k ? state(k - 1, i, first) + 4 * g.H : g.start + size_t(i) * g.H;
    }

    // The output after symbol k of the starts in `who`, and the scores of what follows.
    void score(int k, const std::vector<int> &who, int first) {
        from.clear(), to.clear();
        for (size_t j = 0; j < who.size(); j++) {
            const T *h = state(k, who[j], first) + 4 * g.H;
            T *out = outputs[j];
            each<T>(g.H, [&](int u, int n) {
                V<T> kept = g.mask ? load(g.mask + size_t(who[j]) * g.H + u, n) : all(T(1));
                store(out + u, load(h + u, n) * kept, n);
            });
            from.push_back(out), to.push_back(scores[j]);
        }
        multiply<T>(int(who.size()), from.data(), weight, to.data());
        for (T *s : to)
            each<T>(g.signs + 1,
                    [&](int v, int n) { store(s + v, load(s + v, n) + load(g.offset + v, n), n); });
    }

    void advance(int k, const std::vector<int> &who, int first) {
        int H = g.H;
        from.clear(), to.clear();
        for (int i : who) from.push_back(before(k, i, first)), to.push_back(state(k, i, first));
        multiply<T>(int(who.size()), from.data(), U, to.data());
        for (size_t j = 0; j < who.size(); j++) {
            const T *x = g.table + size_t(g.read[at(k, who[j])]) * 3 * H, *h = from[j];
            T *s = to[j];
            each<T>(H, [&](int u, int n) {
                auto sum = [&](int gate) {
                    return load(s + gate * H + u, n) + load(g.b + gate * H + u, n);
                };
                auto input = [&](int gate) { return load(x + gate * H + u, n); };
                V<T> r = sigmoid<T>(sum(0) + input(0)), z = sigmoid<T>(sum(1) + input(1)),
                     q = sum(2);
                V<T> c = tanh<T>(input(2) + r * q);
                store(s + 3 * H + u, q, n), store(s + u, r, n), store(s + H + u, z, n);
                store(s + 4 * H + u, c + z * (load(h + u, n) - c), n);
                store(s + 2 * H + u, c, n);
            });
        }
    }

  public:
    explicit Speller(Words &w) : g(w), length(g.count, 0) {
        for (int i = 0; i < g.count; i++) {
            while (length[i] < g.longest && g.symbol[at(length[i], i)] >= 0) length[i]++;
            length[i] = std::min(length[i] + 1, g.longest);  // the end after the last symbol
        }
        kept.set_width(5 * size_t(g.H));
        kept.grow(size_t(g.keep ? g.count : std::min(BLOCK, g.count)) * g.longest);
    }

    void forward() {
        prepare(true);
        std::vector<int> who;
        for (int block = 0; block < g.count; block += BLOCK) {
            int first = g.keep ? 0 : block, end = std::min(g.count, block + BLOCK);
            for (int k = 0; k < g.longest; k++) {
                who.clear();
                for (int i = block; i < end; i++)
                    if (length[i] > k) who.push_back(i);
                if (who.empty()) break;
                advance(k, who, first);
                score(k, who, first);
                for (size_t j = 0; j < who.size(); j++) {
                    const T *s = scores[j];
                    int64_t symbol = g.symbol[at(k, who[j])];
                    g.spelt[at(k, who[j])] = symbol < 0 ? T(0) : s[symbol] - log_total(s);
                    g.stop[at(k, who[j])] = s[g.signs];
                }
            }
        }
    }

    // From the gradients of `spelt` and `stop` those of the start, the table and the weights, which
    // are added to what is there.
    void backward(Words w) {
        const T *of_spelt, *of_stop;
        T *start, *table, *of_U, *of_b, *of_weight, *of_offset;
        w.read(of_spelt, of_stop, start, table, of_U, of_b, of_weight, of_offset);
        int H = g.H, R = 3 * H, signs = g.signs;
        std::lock_guard<std::mutex> alone(busy);
        prepare(false);
        Packed<T> U_back, weight_back;
        U_back.pack(g.U, R, H, H, 1), weight_back.pack(g.weight, signs + 1, H, H, 1);
        T most = 0;
        for (size_t i = 0; i < size_t(g.longest) * g.count; i++)
            most = std::max({most, std::abs(of_spelt[i]), std::abs(of_stop[i])});
        T least = T(g.least) * most;
        std::vector<int> used(g.count, 0), starts;
        for (int i = 0; i < g.count; i++) {
            for (int k = 0; k < length[i]; k++)
                if (!(std::abs(of_spelt[at(k, i)]) <= least &&
                      std::abs(of_stop[at(k, i)]) <= least))
                    used[i] = k + 1;
            if (used[i]) starts.push_back(i);
        }
        Rows<T> of_sums, of_h, of_outputs;
        of_sums.set_width(R), of_sums.grow(size_t(BLOCK) * g.longest);
        of_h.set_width(H), of_h.grow(2 * BLOCK);
        of_outputs.set_width(H), of_outputs.grow(BLOCK);
        std::vector<int> who;
        std::vector<const T *> left, right;
        std::vector<T> of_input(R);
        for (size_t block = 0; block < starts.size(); block += BLOCK) {
            size_t end = std::min(starts.size(), block + BLOCK), pairs = 0;
            left.clear(), right.clear();
            for (size_t j = block; j < end; j++) std::fill_n(of_h[j - block], H, T(0));
            for (int k = g.longest - 1; k >= 0; k--) {
                who.clear();
                std::vector<T *> of_state;
                for (size_t j = block; j < end; j++)
                    if (used[starts[j]] > k)
                        who.push_back(starts[j]), of_state.push_back(of_h[j - block]);
                if (who.empty()) continue;
                int n_who = int(who.size());
                score(k, who, 0);
                for (int j = 0; j < n_who; j++) {
                    T *s = scores[j];
                    int64_t symbol = g.symbol[at(k, who[j])];
                    if (symbol < 0) {
                        std::fill_n(s, signs, T(0));
                    } else {
                        T given = of_spelt[at(k, who[j])];
                        T total = s[symbol] - g.spelt[at(k, who[j])];
                        each<T>(signs, [&](int v, int n) {
                            store(s + v, -given * exp(limited<T>(load(s + v, n) - total, 80)), n);
                        });
                        s[symbol] += given;
                    }
                    s[signs] = of_stop[at(k, who[j])];
                    add(of_offset, T(1), s, signs + 1);
                    to[j] = of_outputs[j];
                }
                std::vector<const T *> of_scores(n_who);
                for (int j = 0; j < n_who; j++) of_scores[j] = scores[j];
                multiply<T>(n_who, of_scores.data(), weight_back, to.data());
                add_outer<T>(n_who, of_scores.data(), from.data(), 0, signs + 1, H, of_weight);
                for (int j = 0; j < n_who; j++) {
                    const T *s = state(k, who[j], 0), *h = before(k, who[j], 0);
                    T *dh = of_state[j], *ds = of_sums[pairs + j], *dx = of_input.data();
                    each<T>(H, [&](int u, int n) {
                        auto part = [&](int i) { return load(s + i * H + u, n); };
                        V<T> r = part(0), z = part(1), c = part(2), q = part(3);
                        V<T> d = load(of_outputs[j] + u, n);
                        if (g.mask) d *= load(g.mask + size_t(who[j]) * H + u, n);
                        d += load(dh + u, n);
                        V<T> dc = d * (T(1) - z) * (T(1) - c * c);
                        V<T> dz = d * (load(h + u, n) - c) * z * (T(1) - z);
                        V<T> dr = dc * q * r * (T(1) - r);
                        store(ds + u, dr, n), store(ds + H + u, dz, n);
                        store(ds + 2 * H + u, dc * r, n), store(dx + 2 * H + u, dc, n);
                        store(dh + u, d * z, n);
                    });
                    std::copy(ds, ds + 2 * H, dx);
                    add(table + size_t(g.read[at(k, who[j])]) * R, T(1), dx, R);
                    add(of_b, T(1), ds, R);
                    left.push_back(ds), right.push_back(h), to[j] = of_h[BLOCK + j];
                }
                multiply<T>(n_who, left.data() + pairs, U_back, to.data());
                for (int j = 0; j < n_who; j++) add(of_state[j], T(1), to[j], H);
                pairs += n_who;
            }
            add_outer<T>(int(pairs), left.data(), right.data(), 0, R, H, of_U);
            for (size_t j = block; j < end; j++)
                add(start + size_t(starts[j]) * H, T(1), of_h[j - block], H);
        }
    }

  private:
    std::mutex busy;  // threads may go backwards through one graph at the same time

    void prepare(bool forward) {
        if (forward) {
            U.pack(g.U, g.H, 3 * g.H, 1, g.H);
            weight.pack(g.weight, g.H, g.signs + 1, 1, g.H);
        }
        outputs.set_width(g.H), outputs.grow(BLOCK);
        scores.set_width(g.signs + 1), scores.grow(BLOCK);
    }

    // log of the sum of exp over the symbols
    T log_total(const T *s) const {
        T most = s[0];
        for (int v = 1; v < g.signs; v++) most = s[v] > most ? s[v] : most;
        V<T> total = {};
        int v = 0;
        for (; v + LANES<T> <= g.signs; v += LANES<T>)
            total += exp(limited<T>(load(s + v) - most, 80));
        T rest = sum<T>(total);
        for (; v < g.signs; v++) rest += std::exp(s[v] - most);
        return most + std::log(rest);
    }
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
    const double *first;
    words.read(first);
    if (first) {
        double *sums;
        T *posterior;
        words.read(sums, posterior);
        segments.sum(first, sums, posterior);
    } else {
        int64_t *best;
        words.read(best);
        segments.best(best);
    }
    return &done;
}

}  // namespace hm
