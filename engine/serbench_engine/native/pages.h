// Where keys and values are in pages, and how memory is asked for them in advance. It does not know what for.
#pragma once

#include "dtype.h"
#include "scratch.h"

namespace serbench {

// Where the keys of one tile are, as offsets into the layer's keys and values; past its end the last one repeats.
struct Tile {
    int first, count;
    int64_t at[KEYS];
};

// Pages are too far apart for the CPU to guess.
INLINE void fetch(const T* from) {
    constexpr int TO_SECOND_LEVEL = 2;  // the first level's few outstanding misses would hold up other loads
    UNROLLED for (int byte = 0; byte < DIM * int(sizeof(T)); byte += 64)
        __builtin_prefetch((const char*)from + byte, 0, TO_SECOND_LEVEL);
}

// Lines of values that ask for those that come next, key by key.
template <class Lines>
struct Fetching {
    Lines lines;
    const int64_t* after;
    INLINE Floats operator()(int k, int column) const {
        if (column == 0)
            UNROLLED for (int i = 0; i < PER_WORD; ++i) fetch(lines.from + after[k * PER_WORD + i]);
        return lines(k, column);
    }
};

}  // namespace serbench
