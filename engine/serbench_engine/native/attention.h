// What attention is asked, as its caller lays it out (library.py). It does not know how it is answered.
#pragma once

#include <cstdint>

extern "C" {

// What a model's layers share; head_dim and dtype are compiled in.
struct Shape {
    int32_t heads, kv_heads, block_size;
    float scale;
};

// One layer's pages [num_blocks, kv_heads, block_size, head_dim]; window 0: none.
struct Layer {
    void* keys;
    void* values;
    int64_t window;
};

// One step: b rows with t tokens, the row's blocks [b, width], and the slot of each token.
struct Step {
    int64_t rows, tokens, width;
    const int32_t* query_starts;  // [b + 1]
    const int32_t* seq_lens;      // [b]
    const int32_t* blocks;
    const int64_t* slots;
};

// One layer's vectors: each token's queries, keys and values side by side, [tokens, heads + 2 · kv_heads, head_dim] with
// `stride` numbers from token to token. Queries and keys are turned by the tokens' angles, cos and sin [tokens, head_dim],
// unless these are null. `out` [tokens, heads, head_dim] is dense.
struct Vectors {
    const void *stacked, *cos, *sin;
    void* out;
    int64_t stride;
};

// Turn queries and keys, write the step's keys and values into their slots, then attend. 0, or 1: no memory.
int serbench_attend(const Shape*, const Layer*, const Step*, const Vectors*, int threads);
}
