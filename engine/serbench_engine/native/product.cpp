// Products of many rows with a weight, which is kept in panels: as many outputs as a block of sums has lines, input by
// input. It does not know models.
//
// A row's result does not depend on the others: each of its sums runs over the inputs in order.
#include <omp.h>

#include <algorithm>

#include "dtype.h"
#include "layers.h"
#include "memory.h"

namespace serbench {
namespace {

constexpr int IN_WORD = WeightKind::PER_WORD;  // so many inputs
constexpr bool WIDENS = WeightKind::TURNS > 1;  // rows are made floats first
constexpr int ROWS = WIDTH == 16 ? 8 : 4;  // of a block of sums: with LINES, as many as there are registers for
constexpr int LINES = 3;
constexpr int PANEL = LINES * WIDTH;       // outputs
constexpr int BLOCK = 16 * ROWS;           // rows that use a panel while it is in the processor's cache
constexpr int64_t SMALL = 1 << 18;         // multiplications for which waking threads takes longer than doing them
enum Then { NOTHING, RELU, GATED };

int64_t words_of(int64_t inputs) { return (inputs + IN_WORD - 1) / IN_WORD; }
int64_t panels_of(int64_t outputs) { return (outputs + PANEL - 1) / PANEL; }

// Lines of a panel, whose readers ask for a part of the next panel: as many lines as words.
struct Ahead {
    Packed lines;
    const float* next;
    INLINE Floats operator()(int k, int column) const {
        constexpr int TO_SECOND_LEVEL = 2;
        if (column == 0) __builtin_prefetch(next + k * WIDTH, 0, TO_SECOND_LEVEL);
        return lines(k, column);
    }
};

class RowsTimesWeight {
  public:
    RowsTimesWeight(const Weight& weight, const Product& product)
        : weight_(weight), product_(product), words_(words_of(weight.inputs)), panels_(panels_of(weight.outputs)) {}

    void run(int threads) const {
        const int64_t units = (product_.rows + BLOCK - 1) / BLOCK * panels_;
        if (product_.rows * weight_.inputs * weight_.outputs < SMALL) threads = 1;
        const int64_t own = WIDENS ? std::min<int64_t>(BLOCK, product_.rows) * words_ * IN_WORD : 0;
        float* memory = take(threads * own);
#pragma omp parallel num_threads(threads)
        {
            float* wide = memory + omp_get_thread_num() * own;
            Rows x;
#pragma omp for schedule(guided)  // a thread's units follow each other: it asks for the next panel ahead
            for (int64_t i = 0; i < units; ++i) {
                const int64_t begin = i / panels_ * BLOCK, end = std::min(product_.rows, begin + BLOCK);
                if (begin != x.begin) x = read(begin, end, wide);
                rows<ROWS>(x, begin, end, i % panels_);
            }
        }
    }

  private:
    // Rows from `begin` on, as they are multiplied: `stride` words from one to the next.
    struct Rows {
        int64_t begin = -1, stride = 0;
        const float* from = nullptr;
    };

    Rows read(int64_t begin, int64_t end, float* wide) const {
        const T* x = (const T*)product_.x + begin * product_.x_stride;
        if (!WIDENS) return {begin, product_.x_stride / IN_WORD, (const float*)x};
        const int64_t inputs = weight_.inputs, stride = words_ * IN_WORD;
        for (int64_t row = 0; row < end - begin; ++row)
            for (int64_t i = 0; i < inputs; i += WIDTH) {
                const int count = int(std::min<int64_t>(WIDTH, inputs - i));
                store_part(wide + row * stride + i, load_part(x + row * product_.x_stride + i, count), count);
            }
        return {begin, stride, wide};
    }

    template <int R>
    INLINE void rows(const Rows& x, int64_t row, int64_t end, int64_t panel) const {
        for (; row + R <= end; row += R) block<R>(x, row, panel);
        if constexpr (R > 1) rows<R / 2>(x, row, end, panel);
    }

    template <int R>
    void block(const Rows& x, int64_t row, int64_t panel) const {
        alignas(64) float sums[R * PANEL], seconds[R * PANEL];
        multiply<R>(x, row, panel, sums);
        if (product_.then == GATED) {
            multiply<R>(x, row, panels_ + panel, seconds);
            finish<R>(row, panel, [&](int r, int c, int dims) {
                const Floats gate = load(sums + r * PANEL + c) + bias(panel * PANEL + c, dims);
                const Floats up = load(seconds + r * PANEL + c) + bias(weight_.outputs + panel * PANEL + c, dims);
                return silu(gate) * up;
            });
        } else {
            finish<R>(row, panel, [&](int r, int c, int dims) {
                const Floats y = load(sums + r * PANEL + c) + bias(panel * PANEL + c, dims);
                return product_.then == RELU ? (y < 0.0f ? Floats{} : y) : y;
            });
        }
    }

    template <int R>
    INLINE void multiply(const Rows& x, int64_t row, int64_t panel, float* sums) const {
        const float* from = x.from + (row - x.begin) * x.stride;
        const Packed lines{weight_.panels + panel * words_ * PANEL, PANEL};
        const int64_t turn = (row - x.begin) / R;
        if (turn < LINES) {
            const Ahead ahead{lines, lines.from + (PANEL + turn * WIDTH) * words_};
            block_product<WeightKind, R, LINES>(from, int(x.stride), ahead, 0, int(words_), sums, PANEL, false);
        } else {
            block_product<WeightKind, R, LINES>(from, int(x.stride), lines, 0, int(words_), sums, PANEL, false);
        }
    }

    template <int R, class Result>
    INLINE void finish(int64_t row, int64_t panel, Result result) const {
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < PANEL; c += WIDTH) {
                const int64_t column = panel * PANEL + c;
                const int dims = int(std::min<int64_t>(WIDTH, weight_.outputs - column));
                if (dims <= 0) break;
                Floats y = result(r, c, dims);
                if (product_.other)
                    y += load_part((const T*)product_.other + (row + r) * product_.other_stride + column, dims);
                store_part((T*)product_.out + (row + r) * weight_.outputs + column, y, dims);
            }
    }

    INLINE Floats bias(int64_t column, int dims) const {
        return weight_.bias ? load_part((const T*)weight_.bias + column, dims) : Floats{};
    }

    const Weight& weight_;
    const Product& product_;
    const int64_t words_, panels_;
};

// One word of one output's row: its inputs from word · IN_WORD on.
float word_at(const T* row, int64_t word, int64_t inputs) {
    float packed = 0;
    std::memcpy(&packed, row + word * IN_WORD, sizeof(T) * std::min<int64_t>(IN_WORD, inputs - word * IN_WORD));
    return packed;
}

}  // namespace
}  // namespace serbench

using namespace serbench;

int serbench_product_pays() {
#if defined(SERBENCH_AVX512) && !defined(__AMX_BF16__)
    return sizeof(T) * IN_WORD == sizeof(float);  // words hold what is in memory, as it is
#else
    return 0;
#endif
}

int64_t serbench_panel_words(int64_t outputs, int64_t inputs) { return panels_of(outputs) * PANEL * words_of(inputs); }

void serbench_pack(const void* weight, int64_t outputs, int64_t inputs, float* panels, int threads) {
    const int64_t words = words_of(inputs);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t panel = 0; panel < panels_of(outputs); ++panel)
        for (int64_t word = 0; word < words; ++word)
            for (int64_t c = 0; c < PANEL; ++c) {
                const int64_t output = panel * PANEL + c;
                panels[(panel * words + word) * PANEL + c] =
                    output < outputs ? word_at((const T*)weight + output * inputs, word, inputs) : 0;
            }
}

int serbench_product(const Weight* weight, const Product* product, int threads) {
    try {
        RowsTimesWeight(*weight, *product).run(threads);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

void serbench_embed(const Weight* weight, const int32_t* ids, int64_t count, void* out, int threads) {
    const int64_t inputs = weight->inputs, words = words_of(inputs);
    if (count * inputs < SMALL) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; ++i) {
        const float* from = weight->panels + ids[i] / PANEL * words * PANEL + ids[i] % PANEL;
        T* to = (T*)out + i * inputs;
        for (int64_t word = 0; word < words; ++word)
            std::memcpy(to + word * IN_WORD, from + word * PANEL,
                        sizeof(T) * std::min<int64_t>(IN_WORD, inputs - word * IN_WORD));
    }
}
