/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - places buffers whose sizes only the run knows in one arena.
 *
 * The rule of codegen/lowering/plan_memory.py, where it is applied to sizes that the compiler knows: first
 * fit in the order of use, which needs to look at the buffers alive only; where that leaves gaps, first fit
 * of the largest first too, and the smaller of the two. All offsets are multiples of 64. */

static bool onnxc_alive_together(onnxc_lifetime a, onnxc_lifetime b) {
    return a.first <= b.last && b.first <= a.last;
}

/* Whether buffer a is placed before b: in use earlier (unless `lifetimes` is null), larger, first named. */
static bool onnxc_places_first(const onnxc_lifetime *lifetimes, const int64_t *sizes, int64_t a,
                               int64_t b) {
    if (lifetimes != NULL && lifetimes[a].first != lifetimes[b].first)
        return lifetimes[a].first < lifetimes[b].first;
    return sizes[a] != sizes[b] ? sizes[a] > sizes[b] : a < b;
}

/* Writes the buffers' numbers sorted by onnxc_places_first: a heap sort, which needs no memory. */
static void onnxc_sort_buffers(int64_t *order, int64_t count, const onnxc_lifetime *lifetimes,
                               const int64_t *sizes) {
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t start = count / 2, end = count; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            int64_t first = order[0];
            order[0] = order[--end];
            order[end] = first;
        }
        int64_t root = start, moving = order[root];
        for (int64_t child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && onnxc_places_first(lifetimes, sizes, order[child], order[child + 1]))
                child++;
            if (!onnxc_places_first(lifetimes, sizes, moving, order[child])) break;
            order[root] = order[child];
        }
        order[root] = moving;
    }
}

/* What a placement takes: its bytes, and the most that are in use at one step. */
typedef struct onnxc_extent {
    int64_t end;
    int64_t most; /* of a placement in the order of use */
} onnxc_extent;

static int64_t onnxc_rounded(int64_t bytes) { /* did not overflow when its buffer was placed */
    onnxc_round_up(bytes, &bytes);
    return bytes;
}

/* Drops what is out of use at `step` from the `count` buffers placed; how many are left. */
static int64_t onnxc_keep_alive(int64_t *placed, int64_t count, const onnxc_lifetime *lifetimes,
                                int64_t step) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (lifetimes[placed[i]].last >= step) placed[kept++] = placed[i];
    return kept;
}

/* Places buffers one after the other at the lowest place that is free while they are in use; false when
 * the sum overflows. `placed` has room for all; by ascending offset. */
static bool onnxc_first_fit(int64_t count, const int64_t *order, bool by_use,
                            const onnxc_lifetime *lifetimes, const int64_t *sizes, int64_t *offsets,
                            int64_t *placed, onnxc_extent *extent) {
    *extent = (onnxc_extent){0, 0};
    for (int64_t k = 0, there = 0; k < count; k++, there++) {
        int64_t buffer = order[k], offset = 0, size, top;
        if (!onnxc_round_up(sizes[buffer], &size)) return false;
        top = size;
        if (by_use) there = onnxc_keep_alive(placed, there, lifetimes, lifetimes[buffer].first);
        for (int64_t i = 0; i < there; i++) {
            if (!onnxc_alive_together(lifetimes[buffer], lifetimes[placed[i]])) continue;
            if (top <= offsets[placed[i]]) break;
            int64_t end = offsets[placed[i]] + onnxc_rounded(sizes[placed[i]]);
            if (end > offset) offset = end;
            if (!onnxc_add(offset, size, &top)) return false;
        }
        if (top > extent->end) extent->end = top;
        int64_t in_use = size; /* what is alive lies apart: no more than the end */
        for (int64_t i = 0; by_use && i < there; i++) in_use += onnxc_rounded(sizes[placed[i]]);
        if (in_use > extent->most) extent->most = in_use;
        offsets[buffer] = offset;
        int64_t place = there;
        for (; place > 0 && offsets[placed[place - 1]] > offset; place--)
            placed[place] = placed[place - 1];
        placed[place] = buffer;
    }
    return true;
}

/* Writes offsets of `count` buffers and the arena's size. `memory` has room for 3 * count words.
 * Returns false when the sum overflows. Sizes are not negative. */
static bool onnxc_plan(int64_t count, const onnxc_lifetime *lifetimes, const int64_t *sizes,
                       int64_t *offsets, int64_t *memory, int64_t *arena_bytes) {
    int64_t *order = memory, *placed = memory + count, *others = memory + 2 * count;
    onnxc_extent by_use, by_size;
    onnxc_sort_buffers(order, count, lifetimes, sizes);
    if (!onnxc_first_fit(count, order, true, lifetimes, sizes, offsets, placed, &by_use)) return false;
    *arena_bytes = by_use.end;
    if (by_use.end == by_use.most) return true;
    onnxc_sort_buffers(order, count, NULL, sizes);
    if (onnxc_first_fit(count, order, false, lifetimes, sizes, others, placed, &by_size)
        && by_size.end < by_use.end) {
        if (count > 0) memcpy(offsets, others, sizeof *offsets * (size_t)count);
        *arena_bytes = by_size.end;
    }
    return true;
}
