// A bigram model of words in hierarchical Chinese restaurants, by which a text is cut by sampling.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "interface.h"

namespace hm {

class Random {
    std::mt19937_64 bits;

  public:
    explicit Random(uint64_t seed) : bits(seed) {}
    double below(double most) { return double(bits() >> 11) * 0x1p-53 * most; }
    size_t index(size_t count) { return size_t(bits() % count); }
};

// Numbers from 0 for keys, in the order in which they come.
class Numbers {
    static constexpr uint64_t NONE = ~uint64_t(0);
    std::vector<uint64_t> keys = std::vector<uint64_t>(1024, NONE);
    std::vector<int> numbers = std::vector<int>(1024);

    size_t place(uint64_t key) const {
        size_t i = mixed(key) & (keys.size() - 1);
        while (keys[i] != NONE && keys[i] != key) i = (i + 1) & (keys.size() - 1);
        return i;
    }

  public:
    int count = 0;

    static uint64_t mixed(uint64_t x) {
        x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15;
        x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9;
        return x ^ (x >> 32);
    }
    int find(uint64_t key) const {  // -1: none
        size_t i = place(key);
        return keys[i] == key ? numbers[i] : -1;
    }
    int add(uint64_t key) {
        size_t i = place(key);
        if (keys[i] == key) return numbers[i];
        keys[i] = key, numbers[i] = count++;
        if (size_t(count) * 2 > keys.size()) {
            std::vector<uint64_t> old(keys.size() * 2, NONE);
            std::vector<int> of(old.size());
            old.swap(keys), of.swap(numbers);
            for (size_t k = 0; k < old.size(); k++)
                if (old[k] != NONE) i = place(old[k]), keys[i] = old[k], numbers[i] = of[k];
        }
        return count - 1;
    }
};

// The customers of a dish, at tables. Where one sits down or leaves, the result is whether its
// table is new or now empty.
struct Dish {
    int customers = 0;
    std::vector<int> tables;

    double weight(double discount) const { return customers - discount * double(tables.size()); }
    bool enter(Random &random, double fresh, double discount) {
        double x = random.below(fresh + weight(discount)) - fresh;
        bool opened = !customers++ || x < 0;
        if (opened) {
            tables.push_back(1);
        } else {
            size_t k = 0;
            while (k + 1 < tables.size() && (x -= tables[k] - discount) >= 0) k++;
            tables[k]++;
        }
        return opened;
    }
    bool leave(Random &random) {
        int x = int(random.index(size_t(customers--)));
        size_t k = 0;
        while ((x -= tables[k]) >= 0) k++;
        if (--tables[k]) return false;
        tables[k] = tables.back(), tables.pop_back();
        return true;
    }
};

// How words are spelt: each symbol given the two before it, with interpolated Kneser-Ney smoothing.
// In a large alphabet few trigrams are seen, so smoothing also grows with the number of symbols:
// without that, whatever is made of known trigrams would be a likely word.
class Trigrams {
    static constexpr double DISCOUNT = 0.75, SMOOTH = 0.2;

    struct Level {
        Numbers grams, contexts;
        std::vector<int> count, total, kinds;  // of each gram; of each context

        bool add(uint64_t context, uint64_t gram,
                 int n) {  // whether the gram is new, or is no more
            size_t i = size_t(grams.add(gram)), j = size_t(contexts.add(context));
            count.resize(size_t(grams.count)), total.resize(size_t(contexts.count));
            kinds.resize(total.size());
            bool was = count[i] > 0;
            count[i] += n, total[j] += n;
            bool changed = was != (count[i] > 0);
            kinds[j] += changed ? n : 0;
            return changed;
        }
        double mixed(uint64_t context, uint64_t gram, double shorter, double smooth) const {
            int j = contexts.find(context);
            if (j < 0 || !total[size_t(j)]) return shorter;
            int i = grams.find(gram);
            double own = i < 0 ? 0 : std::max(count[size_t(i)] - DISCOUNT, 0.0);
            double others = DISCOUNT * kinds[size_t(j)] + smooth;
            return (own + others * shorter) / (total[size_t(j)] + smooth);
        }
    };
    uint64_t signs;
    Level two, three;
    std::vector<int> one;
    int total = 0;

  public:
    int start, end;  // stand before and after a word

    explicit Trigrams(int symbols)
        : signs(uint64_t(symbols) + 2), one(signs), start(symbols), end(symbols + 1) {}

    void add(int x, int y, int z, int n) {  // n is 1 or -1
        uint64_t xy = uint64_t(x) * signs + uint64_t(y), yz = uint64_t(y) * signs + uint64_t(z);
        if (three.add(xy, xy * signs + uint64_t(z), n) && two.add(uint64_t(y), yz, n))
            one[size_t(z)] += n, total += n;
    }
    double log_share(int x, int y, int z) const {
        double each = DISCOUNT + 1.0 / double(signs);
        double p =
            (std::max(one[size_t(z)] - DISCOUNT, 0.0) + each) / (total + each * double(signs));
        uint64_t xy = uint64_t(x) * signs + uint64_t(y), yz = uint64_t(y) * signs + uint64_t(z);
        double smooth = SMOOTH * double(signs);
        p = two.mixed(uint64_t(y), yz, p, smooth);
        return std::log(three.mixed(xy, xy * signs + uint64_t(z), p, smooth));
    }
};

// Lines of a text as words, of which each is drawn given the one before it.
class Bigrams {
    static constexpr double WORDS = 0.5, NEW_WORDS = 300;  // discount and strength: of words
    static constexpr double PAIRS = 0.7, NEW_PAIRS = 3;    // and of those after a word
    static constexpr double HALT = 0.1;                    // the end of a line as a new word
    static constexpr double BROKEN = 2e-9;                 // factor of an end where none may be

    struct Given {
        int symbols, lines, longest, signs, sweeps, kept, seed;
        int counted;            // lines that are counted; those after them are only cut
        const int64_t *text;    // (symbols)
        const int64_t *starts;  // (lines + 1)
        const int8_t *rules;    // (symbols): 1 where a word must end, -1 where none may
        const int8_t *fixed;    // (lines): whether the words are given
        const int8_t *first;    // (symbols): whether a word ends there at first
        double spelt, listed;   // share of new words that are spelt, and of each that is listed
        const int8_t *in_list;  // (symbols, longest): whether the segment is a listed word, or null
        float *ends;            // (symbols): in how many kept samples a word ends there

        explicit Given(Words w) {
            w.read(spelt, listed, symbols, lines, longest, signs, sweeps, kept, seed, counted);
            w.read(text, starts, rules, fixed, first, in_list, ends);
        }
    } g;
    Random random;
    Trigrams spelling;
    Numbers kinds;  // of segments in counted lines
    struct Example {
        int at, length;
    };
    std::vector<Example> examples;
    std::vector<int> counted,
        other;  // (symbols, longest): kinds in counted lines, in another; -1: none
    std::vector<float> begin, second, inner, stop_first, stop;  // log-shares in the line at hand
    std::vector<double> so_far;
    int halt = 0;  // the kind of the end of a line, which also stands before the first word
    std::vector<Dish> words, pairs;
    Numbers pair_of;
    std::vector<int> customers, tables;  // after each kind
    int all_customers = 0, all_tables = 0;
    std::vector<std::vector<int>> cut;  // lengths of the words of each counted line

    // The line at hand: its first symbol, its length, and its kinds.
    int at = 0, n = 0;
    int *of_line = nullptr;

    void go_to(int line) {
        at = int(g.starts[line]), n = int(g.starts[line + 1]) - at;
        if (line < g.counted) of_line = &counted[size_t(at) * g.longest];
    }
    void number_line(bool count) {
        int K = g.longest;
        for (int s = 0; s < n; s++) {
            uint64_t h = 0;
            for (int k = 0; k < K && s + k < n && !(k && g.rules[at + s + k - 1] > 0); k++) {
                h = Numbers::mixed(h + uint64_t(g.text[at + s + k]) + 1) >> 1;
                int kind = count ? kinds.add(h) : kinds.find(h);
                of_line[size_t(s) * K + k] = kind < 0 ? halt + 1 : kind;
                if (kind == int(examples.size())) examples.push_back({at + s, k + 1});
            }
        }
    }
    int kind(int s, int k) const { return of_line[size_t(s) * g.longest + k]; }

    void spell_line() {
        for (auto *part : {&begin, &second, &inner, &stop_first, &stop}) part->assign(n, 0);
        so_far.assign(n + 1, 0);
        const int64_t *x = g.text + at;
        int start = spelling.start, end = spelling.end;
        auto share = [&](int64_t a, int64_t b, int64_t c) {
            return float(spelling.log_share(int(a), int(b), int(c)));
        };
        for (int t = 0; t < n; t++) {
            begin[t] = share(start, start, x[t]), stop_first[t] = share(start, x[t], end);
            if (t) second[t] = share(start, x[t - 1], x[t]), stop[t] = share(x[t - 1], x[t], end);
            if (t > 1) inner[t] = share(x[t - 2], x[t - 1], x[t]);
            so_far[t + 1] = so_far[t] + inner[t];
        }
    }

    // The share of the segment of k + 1 symbols from s among new words.
    double as_new(int s, int k) const {
        double log = begin[s];
        log += k ? second[s + 1] + stop[s + k] + so_far[s + k + 1] - so_far[s + 2] : stop_first[s];
        double p = std::exp(log);
        if (!g.in_list) return p;
        return g.spelt * p + g.listed * g.in_list[size_t(at + s) * g.longest + k];
    }

    double share(int kind, double fresh) const {  // of a word, whatever is before it
        const Dish &dish = words[kind];
        double old = dish.customers ? dish.weight(WORDS) : 0;
        return (old + (NEW_WORDS + WORDS * all_tables) * fresh) / (NEW_WORDS + all_customers);
    }
    double rest(int before) const {  // what is left after a word for words by their own share
        return (NEW_PAIRS + PAIRS * tables[before]) / (NEW_PAIRS + customers[before]);
    }
    double pair(int before, int kind) const {
        if (!customers[before] || !words[kind].customers) return 0;
        int i = pair_of.find(uint64_t(before) << 32 | uint32_t(kind));
        if (i < 0 || !pairs[i].customers) return 0;
        return pairs[i].weight(PAIRS) / (NEW_PAIRS + customers[before]);
    }

    void spell(int kind, int times) {
        if (kind == halt) return;
        int x = spelling.start, y = x;
        for (int k = 0; k < examples[kind].length; k++) {
            int z = int(g.text[examples[kind].at + k]);
            spelling.add(x, y, z, times), x = y, y = z;
        }
        spelling.add(x, y, spelling.end, times);
    }
    void enter(int before, int kind, double fresh) {
        int i = pair_of.add(uint64_t(before) << 32 | uint32_t(kind));
        pairs.resize(pair_of.count);
        double as_any = (NEW_PAIRS + PAIRS * tables[before]) * share(kind, fresh);
        customers[before]++;
        if (!pairs[i].enter(random, as_any, PAIRS)) return;
        tables[before]++, all_customers++;
        if (!words[kind].enter(random, (NEW_WORDS + WORDS * all_tables) * fresh, WORDS)) return;
        all_tables++, spell(kind, 1);
    }
    void leave(int before, int kind) {
        customers[before]--;
        if (!pairs[pair_of.find(uint64_t(before) << 32 | uint32_t(kind))].leave(random)) return;
        tables[before]--, all_customers--;
        if (!words[kind].leave(random)) return;
        all_tables--, spell(kind, -1);
    }
    // f(word before, word, symbols before it, its length) for each word of the line at hand, and
    // its end.
    template <class F>
    void each_word(const std::vector<int> &lengths, F f) {
        int before = halt, s = 0;
        for (int length : lengths) {
            int word = kind(s, length - 1);
            f(before, word, s, length), before = word, s += length;
        }
        f(before, halt, s, 0);
    }

    // A sample of the lengths of the words in the line at hand, given those of the other lines.
    std::vector<int> sample() {
        int K = g.longest;
        std::vector<double> ways(size_t(n + 1) * K), left(n + 1), scale(n + 1, -HUGE_VAL);
        struct Before {
            int kind;
            double share;
        };
        std::vector<std::vector<Before>> known(n +
                                               1);  // words before each place that have followers
        left[0] = rest(halt), scale[0] = 0, known[0] = {{halt, 1.0}};
        for (int t = 1; t <= n; t++) {
            double most = *std::max_element(&scale[std::max(0, t - K)], &scale[t]), total = 0;
            for (int k = 0; k < K && k < t; k++) {
                int s = t - 1 - k, word = kind(s, k);
                if (word < 0 || !left[s]) continue;
                double p = share(word, as_new(s, k)) * left[s];
                if (words[word].customers)
                    for (const Before &b : known[s]) p += b.share * pair(b.kind, word);
                p *= std::exp(scale[s] - most);
                if (t < n && g.rules[at + t - 1] < 0) p *= BROKEN;
                total += ways[size_t(t) * K + k] = p;
            }
            if (!(total > 0)) continue;
            scale[t] = most + std::log(total);
            for (int k = 0; k < K && k < t; k++) {
                double &p = ways[size_t(t) * K + k];
                if (!p) continue;
                int word = kind(t - 1 - k, k);
                p /= total, left[t] += p * rest(word);
                if (customers[word]) known[t].push_back({word, p});
            }
        }
        std::vector<int> lengths;
        std::vector<double> p(K);
        double fresh = HALT;
        for (int t = n, after = halt; t > 0; t -= lengths.back()) {
            double total = 0;
            for (int k = 0; k < K; k++) {
                p[k] = k < t ? ways[size_t(t) * K + k] : 0;
                if (!p[k]) continue;
                int word = kind(t - 1 - k, k);
                total += p[k] *= rest(word) * share(after, fresh) + pair(word, after);
            }
            double x = random.below(total);
            int k = int(std::max_element(p.begin(), p.end()) - p.begin());
            for (int j = 0; j < K; j++)
                if (p[j] && (x -= p[j]) < 0) {
                    k = j;
                    break;
                }
            lengths.push_back(k + 1);
            after = kind(t - 1 - k, k), fresh = as_new(t - 1 - k, k);
        }
        std::reverse(lengths.begin(), lengths.end());
        return lengths;
    }

    void note(const std::vector<int> &lengths, float weight) {
        int end = at;
        for (int length : lengths) g.ends[(end += length) - 1] += weight;
    }

  public:
    explicit Bigrams(Words given) : g(given), random(uint64_t(g.seed)), spelling(g.signs) {}

    void run() {
        cut.resize(g.counted);
        counted.assign(size_t(g.starts[g.counted]) * g.longest, -1);
        std::vector<int> order(g.counted);
        for (int line = 0; line < g.counted; line++) {
            order[line] = line, go_to(line), number_line(true);
            for (int t = 0, s = 0; t < n; t++)
                if (g.first[at + t] || t == n - 1 || t + 1 - s == g.longest || g.rules[at + t] > 0)
                    cut[line].push_back(t + 1 - s), s = t + 1;
        }
        halt = kinds.count;  // and the next one is for all that are in no counted line
        words.resize(halt + 2), customers.resize(halt + 2), tables.resize(halt + 2);
        for (int sweep = 0; sweep <= g.sweeps; sweep++) {
            for (int k = g.counted - 1; k > 0; k--) std::swap(order[k], order[random.index(k + 1)]);
            for (int line : order) {
                if (sweep && g.fixed[line]) continue;
                go_to(line);
                if (sweep)
                    each_word(cut[line],
                              [&](int before, int word, int, int) { leave(before, word); });
                spell_line();
                if (sweep) cut[line] = sample();
                each_word(cut[line], [&](int before, int word, int s, int length) {
                    enter(before, word, length ? as_new(s, length - 1) : HALT);
                });
                if (sweep > g.sweeps - g.kept) note(cut[line], 1.0f);
            }
        }
        for (int line = g.counted; line < g.lines; line++) {
            go_to(line), other.assign(size_t(n) * g.longest, -1), of_line = other.data();
            number_line(false), spell_line();
            note(sample(), float(g.kept));
        }
    }
};

}  // namespace hm
