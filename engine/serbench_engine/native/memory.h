// Memory that a thread keeps from call to call. It does not know what for.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace serbench {

// A caller's own memory, in whole cache lines, kept for its next call.
inline float* take(int64_t floats) {
    struct Free {
        void operator()(float* from) const { std::free(from); }
    };
    static thread_local std::unique_ptr<float[], Free> kept;
    static thread_local int64_t size = 0;
    if (floats > size) {
        size = 0;
        kept.reset((float*)std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64));
        if (!kept) throw std::bad_alloc();
        size = floats;
    }
    return kept.get();
}

}  // namespace serbench
