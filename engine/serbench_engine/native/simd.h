// Vectors of floats of the width that the CPU has, and numbers of 16 bits. It does not know attention or layers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define SERBENCH_AVX512 1
#endif
#if defined(SERBENCH_AVX512) && defined(__AVX512BF16__)
#define SERBENCH_AVX512_BF16 1
#endif
// Whether vectors of pairs in bfloat16 are multiplied faster than of floats. On Intel's CPUs they are not: a
// product of 16 pairs takes as long as four of 16 floats. But its matrix units want pairs.
#if defined(SERBENCH_AVX512_BF16) && (defined(__AMX_BF16__) || !defined(SERBENCH_INTEL))
#define SERBENCH_PAIRS 1
#endif

// A loop whose turns must all be written out, for what it works on to stay in registers.
#define UNROLLED _Pragma("GCC unroll 32")
#define INLINE inline __attribute__((always_inline))

namespace serbench {

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif

// Vector types of GCC and Clang: + and * are per lane, comparisons give masks, and both fit any instruction set.
typedef float Floats __attribute__((vector_size(WIDTH * 4)));
typedef int32_t Ints __attribute__((vector_size(WIDTH * 4)));
typedef uint32_t Words __attribute__((vector_size(WIDTH * 4)));
typedef uint16_t Shorts __attribute__((vector_size(WIDTH * 2)));

struct BFloat16 {
    uint16_t bits;
};
struct Float16 {
    uint16_t bits;
};

INLINE Floats load(const float* from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

INLINE Floats load(const BFloat16* from) {
    Shorts narrow;
    std::memcpy(&narrow, from, sizeof narrow);
    return (Floats)(__builtin_convertvector(narrow, Words) << 16);
}

INLINE float to_float(float x) { return x; }

INLINE float to_float(BFloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

__attribute__((noinline)) inline float to_float(Float16 x) {
    const uint32_t sign = uint32_t(x.bits & 0x8000) << 16;
    const uint32_t rest = x.bits & 0x7fff;
    uint32_t bits = (rest << 13) + (112u << 23);
    if (rest >= 0x7c00) bits += 112u << 23;  // infinite, or none
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    if (rest < 0x0400) wide = float(rest) * 0x1p-24f;  // subnormal
    return sign ? -wide : wide;
}

INLINE Floats load(const Float16* from) {
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
    Floats v;
    for (int i = 0; i < WIDTH; ++i) v[i] = to_float(from[i]);
    return v;
#endif
}

INLINE void store(float* to, Floats v) { std::memcpy(to, &v, sizeof v); }

// To the nearest, ties to even; what is no number stays so.
INLINE void store(BFloat16* to, Floats v) {
#if defined(SERBENCH_AVX512_BF16)
    const __m256bh narrow = _mm512_cvtneps_pbh(v);
#else
    const Words bits = (Words)v;
    const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const Words quiet = (bits >> 16) | 0x40;
    const Shorts narrow = __builtin_convertvector((Words)(v == v ? rounded : quiet), Shorts);
#endif
    std::memcpy(to, &narrow, sizeof narrow);
}

__attribute__((noinline)) inline uint16_t half_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
    const float size = std::fabs(x);
    if (!(size < 65520.0f)) return sign | (x == x ? 0x7c00 : 0x7e00);
    if (size < 0x1p-14f) return sign | uint16_t(std::nearbyint(size * 0x1p24f));
    std::memcpy(&bits, &size, sizeof bits);
    bits += 0xfff + ((bits >> 13) & 1);
    return sign | uint16_t((bits - (112u << 23)) >> 13);
}

INLINE void store(Float16* to, Floats v) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < WIDTH; ++i) to[i].bits = half_bits(v[i]);
#endif
}

// The first `count` (at least 1) of what would be loaded; the other lanes are 0, and nothing past them is read.
template <class T>
INLINE Floats load_part(const T* from, int count) {
    if (count >= WIDTH) return load(from);
    T padded[WIDTH] = {};
    std::memcpy(padded, from, sizeof(T) * count);
    return load(padded);
}

template <class T>
INLINE void store_part(T* to, Floats v, int count) {
    if (count >= WIDTH) return store(to, v);
    T padded[WIDTH];
    store(padded, v);
    std::memcpy(to, padded, sizeof(T) * count);
}

INLINE Floats all(float x) { return x - Floats{}; }

INLINE Floats greater(Floats a, Floats b) { return a > b ? a : b; }

INLINE float sum(Floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(v);
#else
    float s = 0;
    for (int i = 0; i < WIDTH; ++i) s += v[i];
    return s;
#endif
}

INLINE float greatest(Floats v) {
    float most = v[0];
    for (int i = 1; i < WIDTH; ++i) most = v[i] > most ? v[i] : most;
    return most;
}

// 2^x for x ≤ 127 to 2 units in the last place; 0 far below 2^-126, NaN for NaN.
INLINE Floats exp2(Floats x) {
#if defined(__AVX512F__)
    const Floats whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const float shift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, which is then in the low bits
    const Floats shifted = (x < -127.0f ? all(-127.0f) : x) + shift;
    const Floats whole = shifted - shift;
#endif
    const Floats f = x - whole;             // -0.5 … 0.5
    Floats p = all(1.540353039338161e-4f);  // ln(2)^k / k!, Taylor's series
    p = p * f + 1.333355814642844e-3f;
    p = p * f + 9.618129107628477e-3f;
    p = p * f + 5.550410866482158e-2f;
    p = p * f + 2.402265069591007e-1f;
    p = p * f + 6.931471805599453e-1f;
    p = p * f + 1.0f;
#if defined(__AVX512F__)
    return _mm512_scalef_ps(p, whole);  // 0 for -infinity, though p is NaN then
#else
    const Floats power = (Floats)((Ints)p + ((Ints)shifted << 23));  // which drops all of 1.5 · 2^23
    return x < -126.0f ? all(0.0f) : (x == x ? power : x);
#endif
}

// x / (1 + e^-x).
INLINE Floats silu(Floats x) {
    const Floats exponent = x * -1.4426950408889634f;
    return x / (exp2(exponent > 126.0f ? all(126.0f) : exponent) + 1.0f);
}

}  // namespace serbench
