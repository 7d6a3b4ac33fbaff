// The type of number that a library is compiled for, DTYPE (0: float32, 1: bfloat16, 2: float16). It knows no kernel.
#pragma once

#include "tiles.h"

namespace serbench {

#if DTYPE == 0
using T = float;
using Kind = Single;
#elif DTYPE == 1
using T = BFloat16;
#if defined(SERBENCH_PAIRS)
using Kind = Pairs;
#else
using Kind = Single;
#endif
#else
using T = Float16;
using Kind = Single;
#endif

constexpr int PER_WORD = Kind::PER_WORD;

// Weights in bfloat16 stay so in memory, whatever they are multiplied as.
#if DTYPE == 1 && !defined(SERBENCH_PAIRS)
using WeightKind = Halves;
#else
using WeightKind = Kind;
#endif

}  // namespace serbench
