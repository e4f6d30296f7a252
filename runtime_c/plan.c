/* plan.c - places buffers whose sizes only the run knows in one arena.
 *
 * Greedy by size: the largest buffer first, each into the smallest gap that is free during its whole
 * lifetime, all offsets multiples of 64. The result depends only on lifetimes and sizes. */

static bool onnxc_alive_together(onnxc_lifetime a, onnxc_lifetime b) {
    return a.first <= b.last && b.first <= a.last;
}

/* Whether buffer a is placed before b: larger, then earlier. */
static bool onnxc_places_first(const int64_t *sizes, int64_t a, int64_t b) {
    return sizes[a] != sizes[b] ? sizes[a] > sizes[b] : a < b;
}

/* Sorts buffer numbers by onnxc_places_first: a heap sort, which needs no memory. */
static void onnxc_sort_buffers(int64_t *order, int64_t count, const int64_t *sizes) {
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
            if (child + 1 < end && onnxc_places_first(sizes, order[child], order[child + 1])) child++;
            if (!onnxc_places_first(sizes, moving, order[child])) break;
            order[root] = order[child];
        }
        order[root] = moving;
    }
}

/* Writes offsets of `count` buffers and the arena's size. `memory` has room for 2 * count words.
 * Returns false when the sum overflows. Sizes are not negative. */
static bool onnxc_plan(int64_t count, const onnxc_lifetime *lifetimes, const int64_t *sizes,
                       int64_t *offsets, int64_t *memory, int64_t *arena_bytes) {
    int64_t *order = memory, *placed = memory + count; /* placed: by increasing offset */
    for (int64_t i = 0; i < count; i++) order[i] = i;
    onnxc_sort_buffers(order, count, sizes);
    *arena_bytes = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t buffer = order[k], size, end = 0, best = -1, best_gap = INT64_MAX;
        if (!onnxc_round_up(sizes[buffer], &size)) return false;
        for (int64_t i = 0; i < k && size > 0; i++) {
            int64_t other = placed[i], other_size;
            if (!onnxc_alive_together(lifetimes[buffer], lifetimes[other])) continue;
            int64_t gap = offsets[other] - end;
            if (gap >= size && gap < best_gap) best = end, best_gap = gap;
            onnxc_round_up(sizes[other], &other_size); /* did not overflow when it was placed */
            if (offsets[other] + other_size > end) end = offsets[other] + other_size;
        }
        int64_t offset = best >= 0 ? best : end, top;
        if (!onnxc_add(offset, size, &top)) return false;
        if (top > *arena_bytes) *arena_bytes = top;
        offsets[buffer] = offset;
        int64_t place = k;
        for (; place > 0 && offsets[placed[place - 1]] > offset; place--)
            placed[place] = placed[place - 1];
        placed[place] = buffer;
    }
    return true;
}
