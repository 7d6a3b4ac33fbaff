// What threads need to themselves in attention, and where it is. It does not know what is done with it.
//
// Compiled for one head_dim, HEAD_DIM, and one dtype.
#pragma once

#include <algorithm>

#include "dtype.h"
#include "tasks.h"

namespace serbench {

constexpr int DIM = HEAD_DIM, LINES_DIM = round_up(DIM, WIDTH);    // of values, in whole lines
constexpr int WORDS = round_up(DIM, WIDTH * PER_WORD) / PER_WORD;  // of keys, likewise
constexpr int KEYS = 64;                                           // of one tile

// The running result of some query vectors with one key head.
struct State {
    float *sums, *most, *total;
};

// Sizes of what a thread needs to itself, in floats.
struct Sizes {
    static constexpr int64_t KEY_TILE = WORDS * KEYS, VALUE_TILE = KEYS / PER_WORD * LINES_DIM;
    static constexpr int64_t COLUMNS = WORDS * WIDTH / 2;  // queries once more, one a column, of two vectors or more
    static constexpr int64_t STATE = round_up(LINES_DIM + 2, WIDTH);
    int vectors, held;

    explicit Sizes(int group)
        : vectors(std::max(VECTORS / group, 1) * group), held(std::max(HELD, vectors)) {}

    int64_t all() const { return held * (WORDS + STATE + 2 * KEYS + COLUMNS) + KEY_TILE + VALUE_TILE; }
};

struct Scratch {
    float *queries, *keys, *values, *scores, *weights, *states, *columns;

    Scratch(const Sizes& size, float* from) {
        keys = from;
        values = keys + Sizes::KEY_TILE;
        scores = values + Sizes::VALUE_TILE;
        weights = scores + size.held * KEYS;
        states = weights + size.held * KEYS;
        queries = states + size.held * Sizes::STATE;
        columns = queries + size.held * WORDS;
    }
};

}  // namespace serbench
