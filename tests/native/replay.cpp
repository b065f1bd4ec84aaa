// Makes the calls of the library that sanitize.py recorded once more, and compares what they write.
//
// Each piece of memory that Python handed over is an allocation of its own, so that sanitizers see
// where it ends. A recording has these lines, some of which are followed by as many bytes as they
// say:
//   block ID BYTES NAME           memory with its content
//   fill ID BYTES                 other content, which Python wrote since
//   point ID AT TARGET OFFSET     at byte AT of a block, the address of a byte of another
//   call NAME COUNT WORD... MADE  a word is a number, or the address of a block (&ID) or of what a
//                                 call made (@NUMBER); MADE is such a number, or 0
//   expect ID AT BYTES SIZE ERROR what a call wrote: floating-point numbers of SIZE bytes, whose
//                                 relative error may be so large
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

// What the library takes from slabs is then an allocation of its own, too.
#define SLAB_BYTES 64
#include "../../src/hmrnn/ops/native/hmrnn.cpp"

namespace {

using Word = uint64_t;

template <class A>
A *at(Word word) {
    return reinterpret_cast<A *>(word);
}

const std::map<std::string, Word (*)(const Word *)> FUNCTIONS = {
    {"hm_network",
     [](const Word *w) {
         return Word(hm_network(int(w[0]), int(w[1]), int(w[2]), at<int64_t>(w[3])));
     }},
    {"hm_free", [](const Word *w) { return hm_free(at<Held>(w[0])), Word(0); }},
    {"hm_forward",
     [](const Word *w) { return Word(hm_forward(at<Held>(w[0]), at<int64_t>(w[1]))); }},
    {"hm_backward",
     [](const Word *w) { return Word(hm_backward(at<Held>(w[0]), at<int64_t>(w[1]))); }},
    {"hm_segments", [](const Word *w) { return Word(hm_segments(int(w[0]), at<int64_t>(w[1]))); }},
    {"hm_spell", [](const Word *w) { return Word(hm_spell(int(w[0]), at<int64_t>(w[1]))); }},
    {"hm_window", [](const Word *w) { return Word(hm_window(int(w[0]), at<int64_t>(w[1]))); }},
};

struct Block {
    std::vector<char> bytes;
    std::string name;
};

class Replay {
  public:
    explicit Replay(const char *path) : file(path, std::ios::binary) {
        std::string line;
        while (std::getline(file, line)) {
            std::istringstream words(line);
            words.exceptions(std::ios::failbit);
            std::string what;
            words >> what;
            step(what, words);
        }
        if (calls == 0) throw std::runtime_error("no calls");
    }
    double worst = 0;  // of all errors, in units of what is allowed
    std::string where;
    int calls = 0;

  private:
    std::ifstream file;
    std::map<Word, Block> blocks;
    std::map<Word, Word> made;

    void read(std::vector<char> &bytes, size_t n) {
        bytes = std::vector<char>(n);
        if (!file.read(bytes.data(), n)) throw std::runtime_error("the file ends too early");
    }

    void step(const std::string &what, std::istream &words) {
        Word id, a, b, c;
        std::string name;
        if (what == "call") {
            words >> name >> a;
            std::vector<Word> given;
            for (std::string word; given.size() < a;) {
                words >> word;
                Word n = std::stoull(word.substr(word[0] == '&' || word[0] == '@'));
                given.push_back(word[0] == '&'   ? Word(blocks.at(n).bytes.data())
                                : word[0] == '@' ? made.at(n)
                                                 : n);
            }
            Word result = FUNCTIONS.at(name)(given.data());
            words >> b;
            if ((b != 0) != (result != 0)) throw std::runtime_error(name + " failed");
            if (b) made[b] = result;
            calls++;
            return;
        }
        words >> id >> a;
        Block &block = blocks[id];
        if (what == "block") {
            words >> block.name;
            read(block.bytes, a);
        } else if (what == "fill") {
            std::vector<char> bytes;
            read(bytes, a);
            std::copy(bytes.begin(), bytes.end(), block.bytes.begin());
        } else if (what == "point") {
            words >> b >> c;
            char *target = blocks.at(b).bytes.data() + c;
            memcpy(block.bytes.data() + a, &target, sizeof target);
        } else if (what == "expect") {
            double allowed;
            words >> b >> c >> allowed;
            std::vector<char> wanted;
            read(wanted, b);
            double found = c == sizeof(double) ? error<double>(block, a, wanted)
                                               : error<float>(block, a, wanted);
            if (!(found / allowed <= worst)) worst = found / allowed, where = block.name;
        } else {
            throw std::runtime_error("what is " + what);
        }
    }

    // The norm of the difference beside that of what is wanted; NaN is equal to NaN.
    template <class T>
    static double error(const Block &block, size_t at, const std::vector<char> &wanted) {
        double difference = 0, norm = 0;
        for (size_t i = 0; i < wanted.size(); i += sizeof(T)) {
            T got, want;
            memcpy(&got, block.bytes.data() + at + i, sizeof(T));
            memcpy(&want, wanted.data() + i, sizeof(T));
            if (std::isnan(got) && std::isnan(want)) continue;
            difference += double(got - want) * (got - want);
            norm += double(want) * want;
        }
        return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-3);
    }
};

}  // namespace

int main(int count, char **paths) {
    int failed = 0, calls = 0;
    for (int i = 1; i < count; i++) {
        std::string why;
        try {
            Replay replay(paths[i]);
            calls += replay.calls;
            if (!(replay.worst <= 1))
                why = replay.where + " has " + std::to_string(replay.worst) +
                      " times the error allowed";
        } catch (const std::exception &error) {
            why = error.what();
        }
        if (!why.empty()) failed++, std::cerr << paths[i] << ": " << why << "\n";
    }
    std::cout << count - 1 << " recordings, " << calls << " calls, " << failed << " failed\n";
    return failed || count == 1;
}
