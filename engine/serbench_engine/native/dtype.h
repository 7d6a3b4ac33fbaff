// The type of number that a library is compiled for, DTYPE (0: float32, 1: bfloat16, 2: float16). It knows no kernel.
#pragma once

#include "tiles.h"

namespace serbench {

#if DTYPE == 0
using T = float;
using Kind = Single;
#elif DTYPE == 1
using T = BFloat16;
#if defined(SERBENCH_AVX512_BF16)
using Kind = Pairs;
#else
using Kind = Single;
#endif
#else
using T = Float16;
using Kind = Single;
#endif

constexpr int PER_WORD = Kind::PER_WORD;

}  // namespace serbench
