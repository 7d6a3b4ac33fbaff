// The vectors that a token brings to attention: its queries, keys and values as the layer before left them, side by side.
// It does not know pages, nor what is done with the vectors.
#pragma once

#include <algorithm>

#include "attention.h"
#include "dtype.h"

namespace serbench {

class Stacked {
  public:
    Stacked(const Shape& shape, const Vectors& vectors) : shape_(shape), vectors_(vectors) {}

    // Turned by the token's angles, in `room` [DIM] if need be.
    const T* query(int64_t token, int head, T* room) const { return turned(token, head, room); }
    const T* key(int64_t token, int head, T* room) const { return turned(token, shape_.heads + head, room); }

    const T* value(int64_t token, int head) const { return vector(token, shape_.heads + shape_.kv_heads + head); }

  private:
    const T* vector(int64_t token, int which) const {
        return (const T*)vectors_.stacked + token * vectors_.stride + int64_t(which) * DIM;
    }

    // Dimension i pairs with i + DIM / 2.
    const T* turned(int64_t token, int which, T* room) const {
        const T* from = vector(token, which);
        if (!vectors_.cos) return from;
        const T *cos = (const T*)vectors_.cos + token * DIM, *sin = (const T*)vectors_.sin + token * DIM;
        constexpr int HALF = DIM / 2;
        for (int i = 0; i < HALF; i += WIDTH) {
            const int count = std::min(WIDTH, HALF - i);
            const auto part = [&](const T* of) { return load_part(of + i, count); };
            const Floats a = part(from), b = part(from + HALF);
            store_part(room + i, a * part(cos) - b * part(sin), count);
            store_part(room + HALF + i, b * part(cos + HALF) + a * part(sin + HALF), count);
        }
        return room;
    }

    const Shape& shape_;
    const Vectors& vectors_;
};

}  // namespace serbench
