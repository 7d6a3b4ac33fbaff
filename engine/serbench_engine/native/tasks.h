// How a step's attention is cut into pieces of work and shared out among threads. It does not know how they are done.
//
// A task is some queries of one row; with each key head, the query heads that share it are worked on together. Which
// tasks there are depends on their row alone, so that neither threads nor batch mates change a bit of a result.
#pragma once

#include <algorithm>
#include <vector>

#include "attention.h"
#include "few_queries.h"

namespace serbench {

constexpr int VECTORS = 64;        // query vectors of one task: queries × heads that share a key head
constexpr int HELD = VECTORS;      // query vectors that a thread works on at a time, over several key heads
constexpr int SEGMENT = 1024;      // so many keys of a row with few queries are one task
constexpr int UNITS = 4;           // a thread, at least, where there is enough to do: so that threads end together

// So few query vectors are not worth packing keys and values for.
inline int few_vectors() {
#if defined(SERBENCH_FEW_QUERIES)
    if (may_use_matrix_units()) return TILE;
#endif
    return 6;
}

struct Task {
    int row, first, count;  // queries of the step's tokens first … first + count
    int begin, end;         // keys by position
    int part;               // its place among the parts of split rows; -1: it is whole
    bool writes;            // no other task reads the keys that its queries come with: it writes them itself
};

// A task with some of the key heads: what one thread does at a time.
struct Unit {
    int task, head, heads;
};

// The parts from which a split row's result is put together.
struct Merge {
    int first, count, part, parts;
};

class Tasks {
  public:
    std::vector<Task> all;
    std::vector<Merge> merges;
    std::vector<int> shared;  // tokens whose keys several tasks read: written before all tasks
    int64_t parts = 0;
    int split_vectors = 0;  // at most, of a task that is a part
    int64_t pairs = 0;  // of a query and a key that it sees

    // `vectors` at most, in a task.
    Tasks(const Shape& shape, const Layer& layer, const Step& step, int vectors)
        : group_(shape.heads / shape.kv_heads), kv_heads_(shape.kv_heads), window_(int(layer.window)), step_(step) {
        for (int row = 0; row < step.rows; ++row) cut(row, vectors / group_);
    }

    // Prompts head by head, so that their keys are still in the processor's cache for the next queries; then rows with
    // few queries, longest first and with all heads together, because those of one page lie side by side.
    std::vector<Unit> share_out(int threads) const {
        std::vector<Unit> units;
        std::vector<int> few;
        for (size_t begin = 0, end; begin < all.size(); begin = end) {
            for (end = begin + 1; end < all.size() && all[end].row == all[begin].row;) ++end;
            if (all[begin].count * group_ <= few_vectors() && (end == begin + 1 || all[begin].part >= 0)) {
                for (size_t i = begin; i < end; ++i) few.push_back(int(i));
            } else {
                for (int head = 0; head < kv_heads_; ++head)
                    for (size_t i = end; i-- > begin;) units.push_back({int(i), head, 1});
            }
        }
        const auto keys = [this](int task) { return all[task].end - all[task].begin; };
        std::stable_sort(few.begin(), few.end(), [&](int a, int b) { return keys(a) > keys(b); });
        const int fair = int(std::max<int64_t>(1, int64_t(few.size()) * kv_heads_ / (UNITS * threads)));
        for (const int task : few) {
            const int heads = std::clamp(HELD / (all[task].count * group_), 1, std::min(fair, kv_heads_));
            for (int head = 0; head < kv_heads_; head += heads)
                units.push_back({task, head, std::min(heads, kv_heads_ - head)});
        }
        return units;
    }

  private:
    void cut(int row, int most) {
        const int begin = step_.query_starts[row], count = step_.query_starts[row + 1] - begin;
        const int start = step_.seq_lens[row] - count;
        for (int done = 0; done < count; done += most) {
            const int now = std::min(most, count - done), end = start + done + now;
            const int first = window_ ? std::max(0, start + done + 1 - window_) : 0;
            pairs += int64_t(end - first) * now;
            if (count > most || end - first <= SEGMENT)
                all.push_back({row, begin + done, now, first, end, -1, now == count});
            else
                split(row, begin, count, first, end);
        }
        if (!all.back().writes)
            for (int token = begin; token < begin + count; ++token) shared.push_back(token);
    }

    void split(int row, int first, int count, int begin, int end) {
        const int pieces = (end - begin + SEGMENT - 1) / SEGMENT;
        split_vectors = std::max(split_vectors, count * group_);
        merges.push_back({first, count, int(parts), pieces});
        for (int i = 0; i < pieces; ++i) {
            const int from = begin + i * SEGMENT;
            all.push_back({row, first, count, from, std::min(end, from + SEGMENT), int(parts + i), false});
        }
        parts += pieces;
    }

    const int group_, kv_heads_, window_;
    const Step& step_;
};

}  // namespace serbench
