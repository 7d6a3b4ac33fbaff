// What layers do to each row of numbers by itself: norms, gates, and the likeliest of a row's scores. It
// does not know models.
#include <omp.h>

#include <algorithm>

#include "dtype.h"
#include "layers.h"

namespace serbench {
namespace {

constexpr int64_t SMALL = 1 << 15;  // numbers for which waking threads takes longer than doing the work

constexpr int64_t PART = 1024;      // numbers of a row that are looked through one by one

// work(i) for each row, on several threads where there are many numbers.
template <class Work>
INLINE void each_row(int64_t rows, int64_t size, int threads, Work work) {
    if (rows * size < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; ++i) work(i);
}

// Σ of(x) over a row; what `of` gives past the row's end counts as 0.
template <class Of>
INLINE float total(const T* x, int64_t size, Of of) {
    Floats sums{};
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) sums += of(load(x + i));
    float rest = 0;
    if (i < size) {
        const Floats last = of(load_part(x + i, int(size - i)));
        for (int j = 0; j < size - i; ++j) rest += last[j];
    }
    return sum(sums) + rest;
}

// out = of(x, i) for the numbers of a row, a line at a time.
template <class Of>
INLINE void map(const T* x, int64_t size, T* out, Of of) {
    for (int64_t i = 0; i < size; i += WIDTH) {
        const int count = int(std::min<int64_t>(WIDTH, size - i));
        store_part(out + i, of(load_part(x + i, count), i, count), count);
    }
}

// The highest of some numbers; NaN where one is.
INLINE float highest(const T* scores, int64_t size) {
    Floats most = all(-INFINITY);
    Ints odd{};  // lanes that have met one
    for (int64_t i = 0; i < size; i += WIDTH) {
        const int count = int(std::min<int64_t>(WIDTH, size - i));
        Floats x = load_part(scores + i, count);
        for (int lane = count; lane < WIDTH; ++lane) x[lane] = -INFINITY;
        most = greater(x, most);
        odd |= x != x;
    }
    for (int lane = 0; lane < WIDTH; ++lane)
        if (odd[lane]) return NAN;
    return greatest(most);
}

int32_t likeliest(const T* scores, int64_t size) {
    float best = -INFINITY;
    int64_t begin = 0;  // of the first part that holds it
    for (int64_t i = 0; i < size; i += PART) {
        const float here = highest(scores + i, std::min(PART, size - i));
        if (here != here) return -1;
        if (here > best) best = here, begin = i;
    }
    if (!std::isfinite(best)) return -1;
    while (to_float(scores[begin]) != best) ++begin;
    return int32_t(begin);
}

}  // namespace
}  // namespace serbench

using namespace serbench;

void serbench_rms_norm(const void* x, int64_t outer, int64_t stride, int64_t inner, int64_t size, const void* weight,
                       float eps, void* out, int threads) {
    each_row(outer * inner, size, threads, [=](int64_t i) {
        const T* row = (const T*)x + i / inner * stride + i % inner * size;
        const float mean = total(row, size, [](Floats v) { return v * v; }) / float(size);
        const float scale = 1 / std::sqrt(mean + eps);
        map(row, size, (T*)out + i * size, [=](Floats v, int64_t at, int count) {
            return v * scale * load_part((const T*)weight + at, count);
        });
    });
}

void serbench_layer_norm(const void* x, int64_t rows, int64_t size, const void* weight, const void* bias, float eps,
                         void* out, int threads) {
    each_row(rows, size, threads, [=](int64_t i) {
        const T* row = (const T*)x + i * size;
        const float mean = total(row, size, [](Floats v) { return v; }) / float(size);
        const float variance = total(row, size, [=](Floats v) { return (v - mean) * (v - mean); }) / float(size);
        const float scale = 1 / std::sqrt(variance + eps);
        map(row, size, (T*)out + i * size, [=](Floats v, int64_t at, int count) {
            return (v - mean) * scale * load_part((const T*)weight + at, count) +
                   load_part((const T*)bias + at, count);
        });
    });
}

void serbench_gate(const void* x, int64_t rows, int64_t size, void* out, int threads) {
    each_row(rows, size, threads, [=](int64_t i) {
        const T* row = (const T*)x + i * 2 * size;
        map(row, size, (T*)out + i * size, [=](Floats v, int64_t at, int count) {
            return silu(v) * load_part(row + size + at, count);
        });
    });
}

void serbench_likeliest(const void* scores, int64_t rows, int64_t size, int32_t* ids, int threads) {
    each_row(rows, size, threads, [=](int64_t i) { ids[i] = likeliest((const T*)scores + i * size, size); });
}
