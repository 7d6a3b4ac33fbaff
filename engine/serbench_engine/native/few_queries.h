// Attention of a few queries that share a key head, by matrix units: keys are read where they are, values are paired on
// the way. It does not know pages.
//
// Compiled for one head_dim, HEAD_DIM. Sums are interleaved while they grow: `straighten` puts them in order.
#pragma once

#include "dtype.h"

#if defined(SERBENCH_MATRIX_UNITS) && DTYPE == 1 && HEAD_DIM % 32 == 0
#define SERBENCH_FEW_QUERIES 1

namespace serbench {

constexpr int QUERY_WORDS = HEAD_DIM / 2;

// For the functions below, on this thread. Tiles 0: scores, a row for each key; 2: keys; 3: queries, one a column.
// 4 and 5: sums, a row for each query; 6: weights; 7: values.
inline void shape_for_few_queries(int count) {
    const TileShapes shapes({TILE, TILE, TILE, TILE, count, count, count, TILE});
    _tile_loadconfig(&shapes);
}

// columns[QUERY_WORDS][TILE] from queries[count][QUERY_WORDS].
INLINE void queries_as_columns(const float* queries, int count, float* columns) {
    for (int word = 0; word < QUERY_WORDS; word += TILE) {
        Floats lines[TILE];
        UNROLLED for (int i = 0; i < TILE; ++i)
            lines[i] = i < count ? load(queries + i * QUERY_WORDS + word) : Floats{};
        transpose(lines, columns + word * TILE, TILE);
    }
}

// scores[count][TILE], `stride` from one query to the next, of TILE keys that lie side by side.
INLINE void score_keys(const BFloat16* keys, const float* columns, int count, float* scores, int stride) {
    alignas(64) float by_key[TILE * TILE];
    _tile_zero(0);
    UNROLLED for (int word = 0; word < QUERY_WORDS; word += TILE) {
        _tile_loadd(2, keys + 2 * word, HEAD_DIM * sizeof(BFloat16));
        _tile_loadd(3, columns + word * TILE, TILE * sizeof(float));
        _tile_dpbf16ps(0, 2, 3);
    }
    _tile_stored(0, by_key, TILE * sizeof(float));
    const __m512i places = _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
    for (int query = 0; query < count; ++query)
        store(scores + query * stride, _mm512_i32gather_ps(places, by_key + query, sizeof(float)));
}

// sums[count][HEAD_DIM] += weights[count][2 · TILE] · the values at values + at[…], of so many keys. `stride`: words
// from one query's weights to the next; `paired` has room for 2 · TILE keys' values.
INLINE void add_values(const BFloat16* values, const int64_t* at, const float* weights, int stride, float* paired,
                       float* sums) {
    for (int pair = 0; pair < TILE; ++pair) {
        const BFloat16 *even = values + at[2 * pair], *odd = values + at[2 * pair + 1];
        UNROLLED for (int d = 0; d < HEAD_DIM; d += 2 * TILE) {
            const __m512i a = _mm512_loadu_si512(even + d), b = _mm512_loadu_si512(odd + d);
            store(paired + pair * HEAD_DIM + d, (Floats)_mm512_unpacklo_epi16(a, b));
            store(paired + pair * HEAD_DIM + d + TILE, (Floats)_mm512_unpackhi_epi16(a, b));
        }
    }
    constexpr int BYTES = HEAD_DIM * sizeof(float);
    _tile_loadd(6, weights, stride * sizeof(float));
    UNROLLED for (int d = 0; d < HEAD_DIM; d += 2 * TILE) {
        _tile_loadd(4, sums + d, BYTES);
        _tile_loadd(7, paired + d, BYTES);
        _tile_dpbf16ps(4, 6, 7);
        _tile_stored(4, sums + d, BYTES);
        _tile_loadd(5, sums + d + TILE, BYTES);
        _tile_loadd(7, paired + d + TILE, BYTES);
        _tile_dpbf16ps(5, 6, 7);
        _tile_stored(5, sums + d + TILE, BYTES);
    }
}

// Numbers were interleaved by fours: 0–3, 8–11, … came first, then 4–7, 12–15, …
INLINE void straighten(float* sums, int count) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int d = 0; d < count * HEAD_DIM; d += 2 * TILE) {
        const __m512 low = load(sums + d), high = load(sums + d + TILE);
        store(sums + d, _mm512_permutex2var_ps(low, first, high));
        store(sums + d + TILE, _mm512_permutex2var_ps(low, second, high));
    }
}

}  // namespace serbench
#endif
