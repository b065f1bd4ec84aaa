// Memory in slabs, which are used again: fresh pages cost more than what is computed in them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace hm {

#ifndef SLAB_BYTES  // make sanitize has small ones, to find reads past their ends
#define SLAB_BYTES (1 << 20)
#endif
constexpr size_t SLAB = SLAB_BYTES;
constexpr size_t KEPT = 384;  // slabs that are kept for later calls

class Slabs {
  public:
    void *take() {
        if (lock.try_lock()) {  // fails, too, in a child that was forked while a thread held it
            std::lock_guard<std::mutex> held(lock, std::adopt_lock);
            if (!free.empty()) {
                void *slab = free.back();
                free.pop_back();
                return slab;
            }
        }
        void *slab = std::aligned_alloc(64, SLAB);
        if (slab == nullptr) throw std::bad_alloc();
        return slab;
    }

    void give(void *slab) {
        if (lock.try_lock()) {
            std::lock_guard<std::mutex> held(lock, std::adopt_lock);
            if (free.size() < KEPT) {
                free.push_back(slab);
                return;
            }
        }
        std::free(slab);
    }

    static Slabs &all() {
        static Slabs *slabs = new Slabs;  // never destroyed: threads may outlive static objects
        return *slabs;
    }

  private:
    std::mutex lock;
    std::vector<void *> free;

    Slabs() { free.reserve(KEPT); }  // giving a slab back must not take memory
};

// A growing list of rows of equal width; a row never moves.
template <class T>
class Rows {
  public:
    Rows() = default;
    Rows(const Rows &) = delete;
    Rows &operator=(const Rows &) = delete;
    ~Rows() {
        for (T *slab : slabs) give(slab);
    }

    void set_width(size_t n) {
        size_t line = 64 / sizeof(T);  // a row has whole cache lines
        width = (std::max<size_t>(n, 1) + line - 1) / line * line;
        shift = 0;
        while ((size_t(2) << shift) * width * sizeof(T) <= SLAB) shift++;
    }

    T *operator[](size_t i) const {
        return slabs[i >> shift] + (i & ((size_t(1) << shift) - 1)) * width;
    }

    // One row of n numbers, which are not initialised.
    T *only(size_t n) {
        set_width(n), grow(1);
        return slabs[0];
    }

    // n rows of `numbers`, or of zeros.
    void assign(size_t n, size_t width, const T *numbers) {
        set_width(width), grow(n);
        for (size_t i = 0; i < n; i++)
            numbers ? (void)std::copy_n(numbers + i * width, width, (*this)[i])
                    : (void)std::fill_n((*this)[i], width, T(0));
    }

    // Makes room for rows below n.
    void grow(size_t n) {
        while ((slabs.size() << shift) < n) slabs.push_back(take());
    }

  private:
    size_t width = 0;
    int shift = 0;
    std::vector<T *> slabs;

    bool large() const { return width * sizeof(T) > SLAB; }
    T *take() const {
        if (!large()) return static_cast<T *>(Slabs::all().take());
        size_t page = SLAB > 64 ? size_t(1) << 21 : 64;  // of 2 MB, which are found faster
        size_t bytes = (width * sizeof(T) + page - 1) / page * page;
        void *slab = std::aligned_alloc(page, bytes);
        if (slab == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
        if (page > 64) madvise(slab, bytes, MADV_HUGEPAGE);
#endif
        return static_cast<T *>(slab);
    }
    void give(T *slab) const {
        if (large())
            std::free(slab);
        else
            Slabs::all().give(slab);
    }
};

}  // namespace hm
