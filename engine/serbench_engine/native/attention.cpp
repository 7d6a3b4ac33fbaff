// Attention over pages of keys and values, read in place: softmax(q·k) v by tiles, with a running maximum and sum
// (Milakov and Gimelshein 2018; Dao et al. 2022). It does not know models, nor which tokens are prompts.
//
// Compiled for one head_dim, HEAD_DIM, and one dtype: only with loops of known length do compilers keep all that
// matters in registers.
#include "attention.h"

#include <omp.h>

#include <algorithm>
#include <new>

#include "dtype.h"
#include "memory.h"
#include "pages.h"
#include "scratch.h"
#include "stacked.h"
#include "tasks.h"

namespace serbench {
namespace {

constexpr int64_t SMALL = 1 << 16;  // multiplications for which waking threads takes longer than doing them
constexpr int TOGETHER = 3;         // query vectors for which a key is read once
constexpr float LOG2_E = 1.4426950408889634f;

class Attention {
  public:
    Attention(const Shape& shape, const Layer& layer, const Step& step, const Vectors& vectors)
        : shape_(shape), layer_(layer), step_(step), vectors_(vectors), stacked_(shape, vectors),
          group_(shape.heads / shape.kv_heads), size_(group_), page_(int64_t(shape.block_size) * DIM),
          tasks_(shape, layer, step, size_.vectors) {}

    void run(int threads) {
        if (tasks_.pairs * shape_.heads * DIM < SMALL) threads = 1;
        const std::vector<Unit> units = tasks_.share_out(threads);
        const int64_t merges = int64_t(tasks_.merges.size()) * shape_.kv_heads;
        const int64_t parts = tasks_.parts * shape_.kv_heads * tasks_.split_vectors * Sizes::STATE;
        float* memory = take(threads * size_.all() + parts);
        parts_memory_ = memory + threads * size_.all();
#pragma omp parallel num_threads(threads)
        {
            const Scratch scratch(size_, memory + omp_get_thread_num() * size_.all());
            if (!tasks_.shared.empty()) {
#pragma omp for schedule(static)
                for (size_t i = 0; i < tasks_.shared.size(); ++i) write(tasks_.shared[i], 0, shape_.kv_heads);
            }
#pragma omp for schedule(dynamic) nowait
            for (size_t i = 0; i < units.size(); ++i) attend(units[i], scratch);
        }
        if (merges) {
#pragma omp parallel for num_threads(threads) schedule(static)
            for (int64_t i = 0; i < merges; ++i)
                merge(tasks_.merges[i / shape_.kv_heads], int(i % shape_.kv_heads),
                      Scratch(size_, memory + omp_get_thread_num() * size_.all()));
        }
    }

  private:
    void write(int64_t token, int head, int heads) const {
        const int64_t block = step_.slots[token] / shape_.block_size, place = step_.slots[token] % shape_.block_size;
        for (int h = head; h < head + heads; ++h) {
            const int64_t to = (block * shape_.kv_heads + h) * page_ + place * DIM;
            T room[DIM];
            std::memcpy((T*)layer_.keys + to, stacked_.key(token, h, room), sizeof(T) * DIM);
            std::memcpy((T*)layer_.values + to, stacked_.value(token, h), sizeof(T) * DIM);
        }
    }

    void attend(const Unit& unit, const Scratch& scratch) const {
        const Task& task = tasks_.all[unit.task];
        if (task.writes)
            for (int i = 0; i < task.count; ++i) write(task.first + i, unit.head, unit.heads);
        for (int h = 0; h < unit.heads; ++h) {
            load_queries(task, unit.head + h, queries(task, h, scratch));
            clear(task, state(task, unit, h, scratch));
        }
        const bool by_units = prepare_units(task, unit, scratch);
        Tile tiles[2];
        find(task, task.begin, tiles[0]);
        for (int key = task.begin, turn = 0; key < task.end; key += KEYS, turn ^= 1) {
            find(task, std::min(key + KEYS, task.end - 1), tiles[turn ^ 1]);
            if (by_units)
                see_by_units(task, unit, tiles[turn], tiles[turn ^ 1], scratch);
            else if (task.count * group_ <= few_vectors())
                see_in_place(task, unit, tiles[turn], tiles[turn ^ 1], scratch);
            else
                for (int h = 0; h < unit.heads; ++h) see_packed(task, unit, h, tiles[turn], scratch);
        }
        if (by_units) finish_units(task, unit, scratch);
        if (task.part < 0)
            for (int h = 0; h < unit.heads; ++h)
                write_out(task.first, task.count, unit.head + h, state(task, unit, h, scratch));
    }

    float* queries(const Task& task, int h, const Scratch& scratch) const {
        return scratch.queries + h * task.count * group_ * WORDS;
    }

    State state(const Task& task, const Unit& unit, int h, const Scratch& scratch) const {
        const int vectors = task.count * group_;
        return place(task.part < 0 ? scratch.states + h * vectors * Sizes::STATE : part(task.part, unit.head + h),
                     vectors);
    }

    State place(float* from, int vectors) const {
        return {from, from + vectors * LINES_DIM, from + vectors * LINES_DIM + vectors};
    }

    float* part(int64_t number, int head) const {
        return parts_memory_ + (number * shape_.kv_heads + head) * tasks_.split_vectors * Sizes::STATE;
    }

    void clear(const Task& task, const State& state) const {
        const int vectors = task.count * group_;
        std::fill_n(state.sums, vectors * LINES_DIM, 0.0f);
        std::fill_n(state.most, vectors, -INFINITY);
        std::fill_n(state.total, vectors, 0.0f);
    }

    // Vector v is of query v / group and head v % group.
    void load_queries(const Task& task, int head, float* to) const {
        for (int v = 0; v < task.count * group_; ++v) {
            T room[DIM];
            const T* query = stacked_.query(task.first + v / group_, head * group_ + v % group_, room);
            for (int w = 0; w < WORDS; w += WIDTH) store(to + v * WORDS + w, line(query, w));
        }
    }

    void find(const Task& task, int key, Tile& tile) const {
        tile.first = key;
        tile.count = std::min(KEYS, task.end - key);
        const int size = shape_.block_size;
        const int32_t* blocks = step_.blocks + task.row * step_.width;
        int i = 0;
        for (int block = key / size, place = key % size; i < tile.count; ++block, place = 0) {
            int64_t at = int64_t(blocks[block]) * shape_.kv_heads * page_ + int64_t(place) * DIM;
            for (const int end = std::min(tile.count, i + size - place); i < end; ++i, at += DIM)
                tile.at[i] = at;
        }
        for (; i < KEYS; ++i) tile.at[i] = tile.at[tile.count - 1];
    }

    // Where the keys are that come next, of which memory should be asked for in time.
    static const int64_t* following(const Tile& tile, const Tile& next, int key, int columns) {
        return key < columns ? tile.at + key : next.at;
    }

    // All heads of WIDTH keys, then of the next: in the order in which they lie in memory.
    void see_in_place(const Task& task, const Unit& unit, const Tile& tile, const Tile& next,
                      const Scratch& scratch) const {
        const int vectors = task.count * group_, columns = round_up(tile.count, WIDTH);
        const T* keys = (const T*)layer_.keys + unit.head * page_;
        const T* values = (const T*)layer_.values + unit.head * page_;
        for (int c = 0; c < columns; c += WIDTH) {
            const int64_t* after = following(tile, next, c + WIDTH, columns);
            for (int h = 0; h < unit.heads; ++h) {
                const T* head = keys + h * page_;
                score_in_place<TOGETHER, true>(scratch.queries + h * vectors * WORDS, vectors, head, tile.at + c, after,
                                               scratch.scores + h * vectors * KEYS + c);
            }
        }
        for (int h = 0; h < unit.heads; ++h)
            weigh(task, tile, columns, state(task, unit, h, scratch), scratch, h * vectors);
        for (int c = 0; c < columns; c += WIDTH) {
            const int64_t* after = following(tile, next, c + WIDTH, columns);
            for (int h = 0; h < unit.heads; ++h) {
                const Fetching<InPlace<T, Kind>> lines{{values + h * page_, tile.at + c, DIM}, after};
                product<Kind, LINES_DIM>(scratch.weights + h * vectors * KEYS + c / PER_WORD, KEYS, vectors, lines,
                                         WIDTH / PER_WORD, state(task, unit, h, scratch).sums, LINES_DIM, true);
            }
        }
    }

#if defined(SERBENCH_FEW_QUERIES)
    // Whether the task's queries are few, and enough, for matrix units, which then are ready for them.
    bool prepare_units(const Task& task, const Unit& unit, const Scratch& scratch) const {
        const int vectors = task.count * group_;
        if (vectors < 2 || vectors > TILE || !may_use_matrix_units()) return false;
        shape_for_few_queries(vectors);
        for (int h = 0; h < unit.heads; ++h)
            queries_as_columns(queries(task, h, scratch), vectors, scratch.columns + h * WORDS * TILE);
        return true;
    }

    void see_by_units(const Task& task, const Unit& unit, const Tile& tile, const Tile& next,
                      const Scratch& scratch) const {
        const int vectors = task.count * group_, columns = round_up(tile.count, TILE);
        const T* keys = (const T*)layer_.keys + unit.head * page_;
        const T* values = (const T*)layer_.values + unit.head * page_;
        for (int c = 0; c < columns; c += TILE) {
            const int64_t* after = following(tile, next, c + TILE, columns);
            for (int h = 0; h < unit.heads; ++h) {
                UNROLLED for (int i = 0; i < TILE; ++i) fetch(keys + h * page_ + after[i]);
                alignas(64) T together[TILE * DIM];
                score_keys(side_by_side(keys + h * page_, tile, c, together), scratch.columns + h * WORDS * TILE,
                           vectors, scratch.scores + h * vectors * KEYS + c, KEYS);
            }
        }
        for (int h = 0; h < unit.heads; ++h) {
            weigh(task, tile, columns, state(task, unit, h, scratch), scratch, h * vectors);
            for (int v = h * vectors; v < (h + 1) * vectors; ++v)
                std::fill(scratch.weights + v * KEYS + columns / 2, scratch.weights + v * KEYS + KEYS / 2, 0.0f);
        }
        for (int c = 0; c < columns; c += 2 * TILE) {
            const int64_t* after = following(tile, next, c + 2 * TILE, columns);
            for (int h = 0; h < unit.heads; ++h) {
                UNROLLED for (int i = 0; i < 2 * TILE; ++i) fetch(values + h * page_ + after[i]);
                add_values(values + h * page_, tile.at + c, scratch.weights + h * vectors * KEYS + c / 2, KEYS,
                           scratch.values, state(task, unit, h, scratch).sums);
            }
        }
    }

    // TILE keys where they are, or copied to `together` where pages part them. Past the tile's end they may be any.
    const T* side_by_side(const T* keys, const Tile& tile, int c, T* together) const {
        if (shape_.block_size % TILE == 0 && (tile.first + c) % TILE == 0) return keys + tile.at[c];
        for (int i = 0; i < TILE; ++i) std::memcpy(together + i * DIM, keys + tile.at[c + i], sizeof(T) * DIM);
        return together;
    }

    void finish_units(const Task& task, const Unit& unit, const Scratch& scratch) const {
        for (int h = 0; h < unit.heads; ++h) straighten(state(task, unit, h, scratch).sums, task.count * group_);
    }
#else
    static bool prepare_units(const Task&, const Unit&, const Scratch&) { return false; }
    static void see_by_units(const Task&, const Unit&, const Tile&, const Tile&, const Scratch&) {}
    static void finish_units(const Task&, const Unit&, const Scratch&) {}
#endif

    void see_packed(const Task& task, const Unit& unit, int h, const Tile& tile, const Scratch& scratch) const {
        const int vectors = task.count * group_, columns = round_up(tile.count, WIDTH);
        const T* keys = (const T*)layer_.keys + (unit.head + h) * page_;
        const T* values = (const T*)layer_.values + (unit.head + h) * page_;
        const State into = state(task, unit, h, scratch);
        score_packed(queries(task, h, scratch), vectors, keys, tile, columns, scratch);
        weigh(task, tile, columns, into, scratch, 0);
        const InPlace<T, Kind> lines{values, tile.at, DIM};
        for (int k = 0; k < columns / PER_WORD; ++k)
            UNROLLED for (int d = 0; d < LINES_DIM; d += WIDTH) store(scratch.values + k * LINES_DIM + d, lines(k, d));
        const Packed packed{scratch.values, LINES_DIM};
        product<Kind, LINES_DIM>(
            scratch.weights, KEYS, vectors, packed, columns / PER_WORD, into.sums, LINES_DIM, true);
    }

    void score_packed(const float* queries, int vectors, const T* keys, const Tile& tile, int columns,
                      const Scratch& scratch) const {
#if defined(SERBENCH_AVX512)
        for (int c = 0; c < columns; c += WIDTH) pack_keys(keys, tile.at + c, scratch.keys + c);
        score_columns<KEYS>(queries, vectors, columns, scratch);
#else
        for (int c = 0; c < columns; c += WIDTH)
            score_in_place<TOGETHER, false>(queries, vectors, keys, tile.at + c, nullptr, scratch.scores + c);
#endif
    }

    template <int COLUMNS>
    static void score_columns(const float* queries, int vectors, int columns, const Scratch& scratch) {
        if constexpr (COLUMNS > WIDTH)
            if (columns < COLUMNS) return score_columns<COLUMNS - WIDTH>(queries, vectors, columns, scratch);
        const int depth = (DIM + PER_WORD - 1) / PER_WORD;
        product<Kind, COLUMNS>(
            queries, WORDS, vectors, Packed{scratch.keys, KEYS}, depth, scratch.scores, KEYS, false);
    }

    // Query vectors with WIDTH keys: V at a time, then what is left of them. FETCH: ask for those that come next.
    template <int V, bool FETCH>
    static void score_in_place(const float* queries, int vectors, const T* keys, const int64_t* at,
                               const int64_t* after, float* scores) {
        if (vectors >= V) {
            dots<V, FETCH>(queries, keys, at, after, scores);
            if (vectors > V)
                score_in_place<V, false>(queries + V * WORDS, vectors - V, keys, at, after, scores + V * KEYS);
        } else if constexpr (V > 1) {
            score_in_place<V - 1, FETCH>(queries, vectors, keys, at, after, scores);
        }
    }

    template <int V, bool FETCH>
    static void dots(const float* queries, const T* keys, const int64_t* at, const int64_t* after, float* scores) {
        Floats sums[V][WIDTH];
        UNROLLED for (int i = 0; i < WIDTH; ++i) {
            if constexpr (FETCH) fetch(keys + after[i]);
            UNROLLED for (int v = 0; v < V; ++v) sums[v][i] = Floats{};
            UNROLLED for (int w = 0; w < WORDS; w += WIDTH) {
                const Floats key = line(keys + at[i], w);
                UNROLLED for (int v = 0; v < V; ++v)
                    sums[v][i] = Kind::multiply_add(sums[v][i], load(queries + v * WORDS + w), key);
            }
        }
        UNROLLED for (int v = 0; v < V; ++v) store(scores + v * KEYS, sum_each(sums[v]));
    }

    static INLINE Floats line(const T* from, int word) {
        return Kind::line(from + word * PER_WORD, DIM - word * PER_WORD);
    }

#if defined(SERBENCH_AVX512)
    // WIDTH keys become WIDTH columns.
    static INLINE void pack_keys(const T* keys, const int64_t* at, float* to) {
        for (int w = 0; w < WORDS; w += WIDTH) {
            Floats lines[WIDTH];
            UNROLLED for (int i = 0; i < WIDTH; ++i) lines[i] = line(keys + at[i], w);
            transpose(lines, to + w * KEYS, KEYS);
        }
    }
#endif

    // From scores to weights 2^(score - the most so far); what was summed before is put on the same footing.
    void weigh(const Task& task, const Tile& tile, int columns, const State& state, const Scratch& scratch,
               int at) const {
        for (int v = 0; v < task.count * group_; ++v)
            weigh(task, v, tile, columns, state, scratch.scores + (at + v) * KEYS, scratch.weights + (at + v) * KEYS);
    }

    void weigh(const Task& task, int v, const Tile& tile, int columns, const State& state, float* scores,
               float* weights) const {
        const int position = step_.seq_lens[task.row] - step_.query_starts[task.row + 1] + task.first + v / group_;
        const int end = std::clamp(position + 1 - tile.first, 0, tile.count);
        const int begin = layer_.window ? std::clamp<int64_t>(position + 1 - layer_.window - tile.first, 0, end) : 0;
        if (begin == end) {
            std::fill_n(weights, columns / PER_WORD, 0.0f);
            return;
        }
        std::fill_n(scores, begin, -INFINITY);
        std::fill(scores + end, scores + columns, -INFINITY);
        const float scale = shape_.scale * LOG2_E, before = state.most[v];
        Floats most = load(scores);
        for (int c = WIDTH; c < columns; c += WIDTH) most = greater(load(scores + c), most);
        const float now = std::max(before, greatest(most) * scale);
        Floats total{};
        for (int c = 0; c < columns; c += WIDTH) {
            const Floats weight = exp2(load(scores + c) * scale - now);
            Kind::put(weights + c / PER_WORD, weight);
            total += weight;
        }
        if (now != before) {
            const float kept = std::exp2(before - now);
            float* sums = state.sums + v * LINES_DIM;
            for (int d = 0; d < LINES_DIM; d += WIDTH) store(sums + d, load(sums + d) * kept);
            state.total[v] *= kept;
            state.most[v] = now;
        }
        state.total[v] += sum(total);
    }

    void write_out(int first, int count, int head, const State& state) const {
        for (int v = 0; v < count * group_; ++v) {
            const int64_t token = first + v / group_, of = head * group_ + v % group_;
            T* out = (T*)vectors_.out + (token * shape_.heads + of) * DIM;
            const float share = 1 / state.total[v];
            for (int d = 0; d < DIM; d += WIDTH)
                store_part(out + d, load(state.sums + v * LINES_DIM + d) * share, DIM - d);
        }
    }

    void merge(const Merge& merge, int head, const Scratch& scratch) const {
        const int vectors = merge.count * group_;
        const State whole = place(scratch.states, vectors);
        for (int v = 0; v < vectors; ++v) {
            float most = -INFINITY, total = 0;
            for (int i = 0; i < merge.parts; ++i)
                most = std::max(most, place(part(merge.part + i, head), vectors).most[v]);
            std::fill_n(whole.sums + v * LINES_DIM, LINES_DIM, 0.0f);
            for (int i = 0; i < merge.parts; ++i) {
                const State piece = place(part(merge.part + i, head), vectors);
                const float kept = std::exp2(piece.most[v] - most);
                total += piece.total[v] * kept;
                for (int d = v * LINES_DIM; d < (v + 1) * LINES_DIM; d += WIDTH)
                    store(whole.sums + d, load(whole.sums + d) + load(piece.sums + d) * kept);
            }
            whole.total[v] = total;
        }
        write_out(merge.first, merge.count, head, whole);
    }

    const Shape& shape_;
    const Layer& layer_;
    const Step& step_;
    const Vectors& vectors_;
    const Stacked stacked_;
    const int group_;
    const Sizes size_;
    const int64_t page_;  // numbers in one head's part of a block
    const Tasks tasks_;
    float* parts_memory_ = nullptr;
};

}  // namespace
}  // namespace serbench

int serbench_attend(const Shape* shape, const Layer* layer, const Step* step, const Vectors* vectors, int threads) {
    try {
        serbench::Attention(*shape, *layer, *step, *vectors).run(threads);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}
