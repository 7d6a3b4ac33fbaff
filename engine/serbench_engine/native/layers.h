// What the layers of a model are asked, as library.py lays it out. It does not know how it is answered.
//
// Compiled for one dtype, DTYPE (dtype.h). Matrices are rows of numbers that lie side by side; a stride is the distance
// of two rows in numbers.
#pragma once

#include <cstdint>

extern "C" {

// Whether products here are faster than oneDNN's, which has the matrix units of some CPUs.
int serbench_product_pays();

// A weight [outputs, inputs] in panels; gated: two of them, one after the other, with so many outputs each.
struct Weight {
    const float* panels;
    const void* bias;  // [outputs], gated: [2 · outputs]; or null
    int64_t inputs, outputs;
};

// Words of 32 bits that the panels of one weight take, and the panels themselves.
int64_t serbench_panel_words(int64_t outputs, int64_t inputs);
void serbench_pack(const void* weight, int64_t outputs, int64_t inputs, float* panels, int threads);

// out[rows, outputs] = then(x Wᵀ + b) + other, where `other` may be null. 0, or 1: no memory.
// `then` 0: nothing, 1: relu, 2: silu(its first weight's) · its second one's.
struct Product {
    const void *x, *other;
    void* out;
    int64_t rows, x_stride, other_stride;
    int32_t then;
};
int serbench_product(const Weight*, const Product*, int threads);

// out[count, inputs]: the weight's rows `ids`.
void serbench_embed(const Weight*, const int32_t* ids, int64_t count, void* out, int threads);

// x / rms(x) · weight, over the last dimension, of `outer` groups of `inner` rows that lie side by side.
void serbench_rms_norm(const void* x, int64_t outer, int64_t stride, int64_t inner, int64_t size, const void* weight,
                       float eps, void* out, int threads);
// (x - mean(x)) / deviation(x) · weight + bias.
void serbench_layer_norm(const void* x, int64_t rows, int64_t size, const void* weight, const void* bias, float eps,
                         void* out, int threads);
// out[rows, size] = silu(x[:, :size]) · x[:, size:].
void serbench_gate(const void* x, int64_t rows, int64_t size, void* out, int threads);
// The first place of the highest number of each row; -1 where that is infinite, or any is no number.
void serbench_likeliest(const void* scores, int64_t rows, int64_t size, int32_t* ids, int threads);
}
