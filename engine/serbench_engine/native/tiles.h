// Products of small tiles, and how vectors of keys, values and queries become tiles. It does not know pages or softmax.
//
// A tile is made of words of 32 bits: one float, or two neighbours in the summed dimension in bfloat16, which AVX-512
// multiplies and adds in pairs. A line is as many words as a vector register holds.
#pragma once

#include <type_traits>

#include "matrix_units.h"
#include "simd.h"

namespace serbench {

constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// Words that hold one float.
struct Single {
    static constexpr int PER_WORD = 1, TURNS = 1;

    static INLINE Floats multiply_add(Floats sum, Floats a, Floats b) { return sum + a * b; }
    static INLINE Floats broadcast(const float* word) { return all(*word); }
    static INLINE Floats part(Floats line, int) { return line; }

    // The first line of a vector of which `dims` are left.
    template <class T>
    static INLINE Floats line(const T* from, int dims) {
        return load_part(from, dims);
    }

    // A line of values, of one key.
    template <class T>
    static INLINE Floats values(const T* from, const int64_t* key, int dims) {
        return line(from + key[0], dims);
    }

    static INLINE void put(float* to, Floats v) { store(to, v); }
};

// Lines of words that hold two neighbours in bfloat16, times floats: one neighbour, then the other.
struct Halves {
    static constexpr int PER_WORD = 2, TURNS = 2;

    static INLINE Floats multiply_add(Floats sum, Floats a, Floats b) { return sum + a * b; }
    static INLINE Floats broadcast(const float* number) { return all(*number); }
    static INLINE Floats part(Floats line, int turn) {
        return turn == 0 ? (Floats)((Words)line << 16) : (Floats)((Words)line & 0xffff0000u);
    }
};

#if defined(SERBENCH_PAIRS)
// Words that hold two neighbours in bfloat16.
struct Pairs {
    static constexpr int PER_WORD = 2, TURNS = 1;

    static INLINE Floats multiply_add(Floats sum, Floats a, Floats b) {
        return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }

    static INLINE Floats broadcast(const float* word) {
        int32_t bits;
        std::memcpy(&bits, word, sizeof bits);
        return (Floats)_mm512_set1_epi32(bits);
    }

    static INLINE Floats part(Floats line, int) { return line; }

    static INLINE Floats line(const BFloat16* from, int dims) {
        if (dims >= 2 * WIDTH) return _mm512_loadu_ps(from);
        return (Floats)_mm512_maskz_loadu_epi16(0xffffffffu >> (2 * WIDTH - dims), from);
    }

    // A line of values, of two keys.
    static INLINE Floats values(const BFloat16* from, const int64_t* keys, int dims) {
        return (Floats)(wide(from + keys[0], dims) | wide(from + keys[1], dims) << 16);
    }

    static INLINE void put(float* to, Floats v) {
        const __m256bh narrow = _mm512_cvtneps_pbh(v);
        std::memcpy(to, &narrow, sizeof narrow);
    }

  private:
    static INLINE Words wide(const BFloat16* from, int dims) {
        const __m256i narrow = dims >= WIDTH ? _mm256_loadu_si256((const __m256i*)from)
                                             : _mm256_maskz_loadu_epi16(0xffffu >> (WIDTH - dims), from);
        return (Words)_mm512_cvtepu16_epi32(narrow);
    }
};
#endif

// Lines that were packed into one piece of memory.
struct Packed {
    const float* from;
    int stride;
    INLINE Floats operator()(int k, int column) const { return load(from + k * stride + column); }
};

// Lines of values where they are, the i-th key's at from + keys[i].
template <class T, class Kind>
struct InPlace {
    const T* from;
    const int64_t* keys;
    int dims;
    INLINE Floats operator()(int k, int column) const {
        return Kind::values(from + column, keys + k * Kind::PER_WORD, dims - column);
    }
};

// out[r][c] (+)= Σ_k a[r][k] · lines(k, c) for R rows and C lines: all sums stay in registers. `depth` is in words of
// the lines; each takes as many words of a row as it takes turns.
template <class Kind, int R, int C, class Lines>
INLINE void block_product(
    const float* a, int a_stride, const Lines& lines, int column, int depth, float* out, int out_stride, bool add) {
    Floats sums[R][C];
    UNROLLED for (int r = 0; r < R; ++r)
        UNROLLED for (int c = 0; c < C; ++c)
            sums[r][c] = add ? load(out + r * out_stride + column + c * WIDTH) : Floats{};
    for (int k = 0; k < depth; ++k)
        UNROLLED for (int turn = 0; turn < Kind::TURNS; ++turn) {
            Floats line[C];
            UNROLLED for (int c = 0; c < C; ++c) line[c] = Kind::part(lines(k, column + c * WIDTH), turn);
            UNROLLED for (int r = 0; r < R; ++r) {
                const Floats word = Kind::broadcast(a + r * a_stride + k * Kind::TURNS + turn);
                UNROLLED for (int c = 0; c < C; ++c) sums[r][c] = Kind::multiply_add(sums[r][c], word, line[c]);
            }
        }
    UNROLLED for (int r = 0; r < R; ++r)
        UNROLLED for (int c = 0; c < C; ++c) store(out + r * out_stride + column + c * WIDTH, sums[r][c]);
}

constexpr int MANY_ROWS = 8;  // from here on, matrix units are faster
constexpr int BLOCK_ROWS = WIDTH == 16 ? 6 : 2;  // with four lines, as many as there are registers for

// C lines for R rows at a time, then for what is left of the rows.
template <class Kind, int R, int C, class Lines>
INLINE void column_product(
    const float* a, int a_stride, int rows, const Lines& lines, int column, int depth, float* out, int out_stride,
    bool add) {
    for (; rows >= R; rows -= R, a += R * a_stride, out += R * out_stride)
        block_product<Kind, R, C>(a, a_stride, lines, column, depth, out, out_stride, add);
    if constexpr (R > 1) column_product<Kind, R / 2, C>(a, a_stride, rows, lines, column, depth, out, out_stride, add);
}

// out[rows][COLUMNS] (+)= a[rows][depth] · lines[depth][COLUMNS]; COLUMNS is a multiple of WIDTH, strides are in words.
template <class Kind, int COLUMNS, class Lines>
INLINE void product(
    const float* a, int a_stride, int rows, const Lines& lines, int depth, float* out, int out_stride, bool add) {
#if defined(SERBENCH_MATRIX_UNITS)
    if constexpr (std::is_same_v<Kind, Pairs> && std::is_same_v<Lines, Packed> && COLUMNS % (2 * TILE) == 0)
        if (rows >= MANY_ROWS && depth % TILE == 0 && may_use_matrix_units())
            return matrix_product(a, a_stride, rows, lines.from, lines.stride, COLUMNS, depth, out, out_stride, add);
#endif
    constexpr int FOURS = COLUMNS / (4 * WIDTH), REST = COLUMNS / WIDTH % 4;
    UNROLLED for (int c = 0; c < FOURS; ++c)
        column_product<Kind, BLOCK_ROWS, 4>(a, a_stride, rows, lines, c * 4 * WIDTH, depth, out, out_stride, add);
    if constexpr (REST > 0)
        column_product<Kind, BLOCK_ROWS, REST>(
            a, a_stride, rows, lines, FOURS * 4 * WIDTH, depth, out, out_stride, add);
}

#if defined(SERBENCH_AVX512)
// to[i][j] = lines[j][i]: 16 × 16 words.
INLINE void transpose(const Floats (&lines)[16], float* to, int to_stride) {
    __m512d fours[16];
    UNROLLED for (int i = 0; i < 16; i += 4) {
        const __m512 a = _mm512_unpacklo_ps(lines[i], lines[i + 1]), b = _mm512_unpackhi_ps(lines[i], lines[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(lines[i + 2], lines[i + 3]);
        const __m512 d = _mm512_unpackhi_ps(lines[i + 2], lines[i + 3]);
        fours[i] = _mm512_unpacklo_pd((__m512d)a, (__m512d)c);
        fours[i + 1] = _mm512_unpackhi_pd((__m512d)a, (__m512d)c);
        fours[i + 2] = _mm512_unpacklo_pd((__m512d)b, (__m512d)d);
        fours[i + 3] = _mm512_unpackhi_pd((__m512d)b, (__m512d)d);
    }
    UNROLLED for (int i = 0; i < 4; ++i) {  // fours[4 g + i]: words i, 4 + i, 8 + i, 12 + i of lines 4 g … 4 g + 3
        const __m512 a = (__m512)fours[i], b = (__m512)fours[4 + i], c = (__m512)fours[8 + i], d = (__m512)fours[12 + i];
        const __m512 even_ab = _mm512_shuffle_f32x4(a, b, 0x88), even_cd = _mm512_shuffle_f32x4(c, d, 0x88);
        const __m512 odd_ab = _mm512_shuffle_f32x4(a, b, 0xdd), odd_cd = _mm512_shuffle_f32x4(c, d, 0xdd);
        store(to + i * to_stride, _mm512_shuffle_f32x4(even_ab, even_cd, 0x88));
        store(to + (4 + i) * to_stride, _mm512_shuffle_f32x4(odd_ab, odd_cd, 0x88));
        store(to + (8 + i) * to_stride, _mm512_shuffle_f32x4(even_ab, even_cd, 0xdd));
        store(to + (12 + i) * to_stride, _mm512_shuffle_f32x4(odd_ab, odd_cd, 0xdd));
    }
}
#endif

// The sum of each of WIDTH vectors.
INLINE Floats sum_each(const Floats (&v)[WIDTH]) {
#if defined(__AVX512F__)
    __m512 fours[4];
    UNROLLED for (int i = 0; i < 16; i += 4) {  // sums of a quarter each: lane by lane, of v[i] … v[i + 3]
        const __m512 ab = _mm512_unpacklo_ps(v[i], v[i + 1]) + _mm512_unpackhi_ps(v[i], v[i + 1]);
        const __m512 cd = _mm512_unpacklo_ps(v[i + 2], v[i + 3]) + _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
        fours[i / 4] = (__m512)(_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd)) +
                       (__m512)(_mm512_unpackhi_pd((__m512d)ab, (__m512d)cd));
    }
    const __m512 low = _mm512_shuffle_f32x4(fours[0], fours[1], 0x88) + _mm512_shuffle_f32x4(fours[0], fours[1], 0xdd);
    const __m512 high = _mm512_shuffle_f32x4(fours[2], fours[3], 0x88) + _mm512_shuffle_f32x4(fours[2], fours[3], 0xdd);
    return _mm512_shuffle_f32x4(low, high, 0x88) + _mm512_shuffle_f32x4(low, high, 0xdd);
#else
    Floats sums;
    for (int i = 0; i < WIDTH; ++i) sums[i] = sum(v[i]);
    return sums;
#endif
}

}  // namespace serbench
