// Products of small tiles by the matrix units that some CPUs have (Intel's AMX), of pairs in bfloat16. It does not know
// where the tiles come from.
#pragma once

#include "simd.h"

#if defined(SERBENCH_AVX512_BF16) && defined(__AMX_BF16__) && defined(__linux__)
#define SERBENCH_MATRIX_UNITS 1

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace serbench {

constexpr int TILE = 16;  // rows of a tile, and words of each

// Whether the system lets this process use them: its threads need more memory then.
inline bool may_use_matrix_units() {
    constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    static const bool granted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return granted;
}

// What the instruction that shapes tiles reads: the rows of each, all of TILE words.
struct alignas(64) TileShapes {
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    explicit TileShapes(const int (&counts)[8]) {
        std::fill_n(row_bytes, 8, uint16_t(TILE * 4));
        std::copy_n(counts, 8, rows);
    }
};

// 2 tiles of rows, or 1, times 2 tiles of columns. Tiles 0 and 1 are sums of the upper rows, 2 and 3 of the lower ones;
// 4 and 5 these rows of the left matrix, 6 and 7 what they are multiplied by. Strides are in bytes, `depth` in words and
// a multiple of TILE.
template <bool LOWER>
INLINE void tile_product(const float* a, int64_t a_stride, const float* lines, int64_t stride, int depth, float* out,
                         int64_t out_stride, bool add) {
    const float* below = (const float*)((const char*)a + TILE * a_stride);
    float* out_below = (float*)((char*)out + TILE * out_stride);
    if (add) {
        _tile_loadd(0, out, out_stride);
        _tile_loadd(1, out + TILE, out_stride);
        if constexpr (LOWER) {
            _tile_loadd(2, out_below, out_stride);
            _tile_loadd(3, out_below + TILE, out_stride);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if constexpr (LOWER) {
            _tile_zero(2);
            _tile_zero(3);
        }
    }
    for (int word = 0; word < depth; word += TILE, lines = (const float*)((const char*)lines + TILE * stride)) {
        _tile_loadd(4, a + word, a_stride);
        _tile_loadd(6, lines, stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, lines + TILE, stride);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (LOWER) {
            _tile_loadd(5, below + word, a_stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, out, out_stride);
    _tile_stored(1, out + TILE, out_stride);
    if constexpr (LOWER) {
        _tile_stored(2, out_below, out_stride);
        _tile_stored(3, out_below + TILE, out_stride);
    }
}

// out[rows][columns] (+)= a[rows][depth] · lines[depth][columns], of words; depth is a multiple of TILE, columns of
// 2 · TILE. Strides are in words.
inline void matrix_product(const float* a, int a_stride, int rows, const float* lines, int stride, int columns,
                           int depth, float* out, int out_stride, bool add) {
    for (; rows > 0; rows -= 2 * TILE, a += 2 * TILE * a_stride, out += 2 * TILE * out_stride) {
        const int upper = std::min(rows, TILE), lower = std::min(rows - upper, TILE);
        const int below = std::max(lower, 1);
        const TileShapes shapes({upper, upper, below, below, upper, below, TILE, TILE});
        _tile_loadconfig(&shapes);
        for (int c = 0; c < columns; c += 2 * TILE) {
            const auto product = lower ? tile_product<true> : tile_product<false>;
            product(a, a_stride * 4, lines + c, stride * 4, depth, out + c, out_stride * 4, add);
        }
    }
}

}  // namespace serbench
#endif
