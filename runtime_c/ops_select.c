/* SPDX-License-Identifier: Apache-2.0 */
/* ops_select.c - operators whose results are as long as the data says: NonZero, Unique,
 * NonMaxSuppression and DynamicTimeWarping. Their numpy twins are in onnxc/ir/runtime_twins.py. */

enum { ONNXC_SKIPPED = 8 }; /* elements that are skipped together where all are zero, which are as many words */

/* How many of a row's elements are not zero, and their indices, where there is room for them. Each is stored, and
 * the next one over it unless it counts: nobody can guess which do. */
ONNXC_HERE int64_t onnxc_nonzero_row(const char *x, int64_t elements, int32_t dtype, uint64_t mask, int64_t *indices,
                                     int64_t room) {
    int64_t size = onnxc_dtype_bytes(dtype), count = 0, i = 0;
    uint64_t bits = size < 8 ? UINT64_MAX >> (64 - 8 * size) : UINT64_MAX, word = UINT64_MAX / bits * (mask & bits);
    bool skips = dtype != ONNXC_FLOAT8E8M0 && dtype != ONNXC_STRING;
    while (i < elements && (indices == NULL || count < room)) {
        bool whole = i + ONNXC_SKIPPED <= elements;
        int64_t end = whole ? i + ONNXC_SKIPPED : elements;
        uint64_t any = 0;
        for (int64_t k = 0; skips && whole && k < size; k++) any |= ONNXC_LOAD(uint64_t, x + size * i + 8 * k);
        if (skips && whole && (any & word) == 0) i = end;
        if (indices == NULL) {
            for (; i < end; i++) count += onnxc_is_nonzero(dtype, mask, x + size * i);
        } else if (room - count >= ONNXC_SKIPPED) { /* for all of them */
            for (; i < end; i++) {
                indices[count] = i;
                count += onnxc_is_nonzero(dtype, mask, x + size * i);
            }
        } else {
            for (; i < end && count < room; i++) {
                indices[count] = i;
                count += onnxc_is_nonzero(dtype, mask, x + size * i);
            }
        }
    }
    return count;
}

/* The same, where the number of bytes and the bits that count are all there is to a type. */
static int64_t onnxc_nonzero_of(const char *x, int64_t elements, int32_t dtype, int64_t *indices, int64_t room) {
    uint64_t mask = onnxc_value_bits(dtype);
    switch (dtype) {
    case ONNXC_BOOL: case ONNXC_INT8: case ONNXC_UINT8:
        return onnxc_nonzero_row(x, elements, ONNXC_BOOL, mask, indices, room);
    case ONNXC_FLOAT16: case ONNXC_INT16: case ONNXC_UINT16:
        return onnxc_nonzero_row(x, elements, ONNXC_INT16, mask, indices, room);
    case ONNXC_FLOAT32: case ONNXC_INT32: case ONNXC_UINT32:
        return onnxc_nonzero_row(x, elements, ONNXC_INT32, mask, indices, room);
    case ONNXC_FLOAT64: case ONNXC_INT64: case ONNXC_UINT64:
        return onnxc_nonzero_row(x, elements, ONNXC_INT64, mask, indices, room);
    default: return onnxc_nonzero_row(x, elements, dtype, mask, indices, room);
    }
}

enum { ONNXC_SHORT_ROW = 32 }; /* elements: shorter rows are joined, and what is found in them divided */

/* Divides places: what is left of each stays where it is. They are below 2^51, of which a product with the reciprocal
 * is off by less than the half that is added. */
static void onnxc_divide_places(int64_t *places, int64_t count, int64_t by, int64_t *quotients) {
    double reciprocal = 1.0 / (double)by;
    for (int64_t k = 0; k < count; k++) {
        int64_t quotient = (int64_t)(((double)places[k] + 0.5) * reciprocal);
        quotients[k] = quotient;
        places[k] -= quotient * by;
    }
}

/* nonzero: x -> int64 [rank, n], the positions of the elements that are not zero in row-major order.
 * No attributes. */
ONNXC_OPERATOR(nonzero) {
    int32_t rank = in->rank, dtype = in->dtype;
    int64_t elements = onnxc_elements(rank, in->dims), size = onnxc_dtype_bytes(dtype);
    const char *x = in->data;
    int64_t count = onnxc_nonzero_of(x, elements, dtype, NULL, 0);
    int64_t *positions = onnxc_call_output(context, out, attributes[0], ONNXC_INT64, 2,
                                           (int64_t[]){rank, count});
    if (positions == NULL) return context->status;
    if (rank == 0) return ONNXC_OK;
    int64_t place[ONNXC_MAX_RANK] = {0}, row = in->dims[rank - 1], *last = positions + count * (rank - 1);
    int32_t outer = rank - 1; /* axes that rows lie along */
    while (outer > 0 && row < ONNXC_SHORT_ROW) row *= in->dims[--outer];
    for (int64_t found = 0; found < count; x += size * row) {
        int64_t more = onnxc_nonzero_of(x, row, dtype, last + found, count - found);
        for (int32_t axis = 0; axis < outer; axis++)
            for (int64_t k = 0; k < more; k++) positions[count * axis + found + k] = place[axis];
        for (int32_t axis = rank - 1; axis > outer; axis--)
            onnxc_divide_places(last + found - count * (rank - 1 - axis), more, in->dims[axis],
                                last + found - count * (rank - axis));
        found += more;
        for (int32_t axis = outer - 1; axis >= 0 && ++place[axis] == in->dims[axis]; axis--) place[axis] = 0;
    }
    return ONNXC_OK;
}

/* Slices of x along an axis: slice s consists of `outer` runs of `inner` elements. */
typedef struct onnxc_slices {
    const char *data;
    int32_t dtype;
    int64_t size, count, outer, inner;
} onnxc_slices;

static onnxc_slices onnxc_slices_of(const onnxc_value *x, int64_t axis) {
    onnxc_slices slices = {x->data, x->dtype, onnxc_dtype_bytes(x->dtype), 0, 1, 1};
    if (axis < 0) {
        slices.count = onnxc_elements(x->rank, x->dims);
        return slices;
    }
    slices.count = x->dims[axis];
    slices.outer = onnxc_elements((int32_t)axis, x->dims);
    slices.inner = onnxc_elements(x->rank - (int32_t)axis - 1, x->dims + axis + 1);
    if (slices.inner == 0) slices.outer = 0; /* however many runs of nothing there are */
    return slices;
}

static const char *onnxc_slice_run(const onnxc_slices *x, int64_t slice, int64_t outer) {
    return x->data + x->size * x->inner * (x->count * outer + slice);
}

static int onnxc_compare_slices(const onnxc_slices *x, int64_t a, int64_t b) {
    for (int64_t o = 0; o < x->outer; o++) {
        const char *left = onnxc_slice_run(x, a, o), *right = onnxc_slice_run(x, b, o);
        for (int64_t i = 0; i < x->inner; i++) {
            int order = onnxc_compare(x->dtype, left + x->size * i, right + x->size * i);
            if (order != 0) return order;
        }
    }
    return 0;
}

static bool onnxc_slice_has_nan(const onnxc_slices *x, int64_t slice) {
    for (int64_t o = 0; o < x->outer; o++)
        for (int64_t i = 0; i < x->inner; i++)
            if (onnxc_is_nan(x->dtype, onnxc_slice_run(x, slice, o) + x->size * i)) return true;
    return false;
}

/* Whether slices are real numbers, so that a word of bits says their order. */
static bool onnxc_slices_have_keys(const onnxc_slices *x) {
    bool real = x->dtype != ONNXC_STRING && x->dtype != ONNXC_COMPLEX64 && x->dtype != ONNXC_COMPLEX128;
    return real && x->outer == 1 && x->inner == 1;
}

enum { ONNXC_NAN_KEY = -1 }; /* the last of all unsigned ones, as NaN is */

static uint64_t onnxc_double_key(double value) {
    const uint64_t top = (uint64_t)1 << 63;
    value += 0.0; /* no -0 */
    uint64_t bits = ONNXC_LOAD(uint64_t, &value);
    return isnan(value) ? (uint64_t)ONNXC_NAN_KEY : bits & top ? ~bits : bits | top;
}

/* Keys of numbers, unsigned words in the order of onnxc_compare; equal where that finds numbers equal. */
static void onnxc_order_keys(const onnxc_slices *x, uint64_t *keys) {
    const uint64_t top = x->dtype == ONNXC_INT64 ? (uint64_t)1 << 63 : 0;
    if (x->dtype == ONNXC_INT64 || x->dtype == ONNXC_UINT64)
        for (int64_t i = 0; i < x->count; i++) keys[i] = ONNXC_LOAD(uint64_t, x->data + 8 * i) ^ top;
    else if (x->dtype == ONNXC_FLOAT32)
        for (int64_t i = 0; i < x->count; i++) keys[i] = onnxc_double_key(ONNXC_LOAD(float, x->data + 4 * i));
    else
        for (int64_t i = 0; i < x->count; i++)
            keys[i] = onnxc_double_key(onnxc_to_double(x->dtype, x->data + x->size * i));
}

/* Sorts numbers 0 .. count by their keys, equal ones by number: by one byte after the other, those that differ.
 * `other` is as long. */
static int64_t *onnxc_sort_keys(const uint64_t *keys, int64_t *order, int64_t *other, int64_t count) {
    uint64_t differ = 0;
    for (int64_t i = 0; i < count; i++) {
        order[i] = i;
        differ |= keys[i] ^ keys[0];
    }
    for (int shift = 0; shift < 64; shift += 8) {
        if ((differ >> shift & 255) == 0) continue;
        int64_t places[257] = {0};
        for (int64_t i = 0; i < count; i++) places[(keys[i] >> shift & 255) + 1]++;
        for (int k = 0; k < 256; k++) places[k + 1] += places[k];
        for (int64_t i = 0; i < count; i++) other[places[keys[order[i]] >> shift & 255]++] = order[i];
        int64_t *swapped = order;
        order = other;
        other = swapped;
    }
    return order;
}

/* Sorts slice numbers, equal ones by number: a merge sort from the bottom up. `other` is as long. */
static int64_t *onnxc_sort_slices(const onnxc_slices *x, int64_t *order, int64_t *other) {
    int64_t count = x->count;
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * width) {
            int64_t middle = begin + width < count ? begin + width : count;
            int64_t end = middle + width < count ? middle + width : count;
            for (int64_t a = begin, b = middle, k = begin; k < end; k++) {
                bool left = b >= end
                    || (a < middle && onnxc_compare_slices(x, order[a], order[b]) <= 0);
                other[k] = left ? order[a++] : order[b++];
            }
        }
        int64_t *swapped = order;
        order = other;
        other = swapped;
    }
    return order;
}

/* Which group of equal slices each is in, and which slice is the first of a group; the number of groups. */
typedef struct onnxc_groups {
    int64_t *group_of, *first, count;
} onnxc_groups;

/* Groups in the order of slices, of slices sorted by comparing them. `memory` has two numbers for each. */
static void onnxc_group_slices(const onnxc_slices *x, int64_t *memory, onnxc_groups *groups) {
    int64_t *order = onnxc_sort_slices(x, memory, memory + x->count);
    for (int64_t k = 0; k < x->count; k++) { /* equal slices are neighbours, the first of them leads */
        bool same = k > 0 && onnxc_compare_slices(x, order[k - 1], order[k]) == 0 && !onnxc_slice_has_nan(x, order[k]);
        if (!same) groups->first[groups->count++] = order[k];
        groups->group_of[order[k]] = groups->count - 1;
    }
}

/* The slots of a table of keys: at least two for each, a power of two. */
static int64_t onnxc_key_slots(int64_t keys) {
    int64_t slots = 64;
    while (slots < 2 * keys) slots *= 2;
    return slots;
}

/* The slot of a key in a table of groups (counted from 1) by their keys, or the empty one where it belongs. */
static int64_t onnxc_key_slot(const int64_t *table, int64_t slots, const uint64_t *distinct, uint64_t key) {
    uint64_t hash = (key ^ key >> 32) * 0x9E3779B97F4A7C15u; /* the upper bits depend on all */
    int64_t slot = (int64_t)(hash >> 32) & (slots - 1);
    while (table[slot] != 0 && distinct[table[slot] - 1] != key) slot = (slot + 1) & (slots - 1);
    return slot;
}

/* Groups in the order of their first slices, by looking up keys in a table that grows with them. `distinct`: the
 * keys of groups, as many as slices; `table` has onnxc_key_slots(count) slots. */
static void onnxc_group_keys(const onnxc_slices *x, const uint64_t *keys, uint64_t *distinct, int64_t *table,
                             onnxc_groups *groups) {
    int64_t slots = onnxc_key_slots(0), kept = 0;
    memset(table, 0, sizeof *table * (size_t)slots);
    for (int64_t s = 0; s < x->count; s++) {
        bool nan = keys[s] == (uint64_t)ONNXC_NAN_KEY && onnxc_slice_has_nan(x, s); /* is like no other */
        int64_t slot = nan ? 0 : onnxc_key_slot(table, slots, distinct, keys[s]), group = nan ? 0 : table[slot];
        if (group == 0) {
            distinct[groups->count] = keys[s];
            groups->first[groups->count] = s;
            group = ++groups->count;
            if (!nan) {
                table[slot] = group;
                kept++;
            }
            if (2 * kept > slots) {
                slots *= 2;
                memset(table, 0, sizeof *table * (size_t)slots);
                for (int64_t g = 0; g < groups->count; g++)
                    if (distinct[g] != (uint64_t)ONNXC_NAN_KEY || !onnxc_slice_has_nan(x, groups->first[g]))
                        table[onnxc_key_slot(table, slots, distinct, distinct[g])] = g + 1;
            }
        }
        groups->group_of[s] = group - 1;
    }
}

/* unique: x -> its distinct slices along the axis; where each is first; which one each slice is; how
 * often each occurs. A NaN is distinct from every other. Attributes: axis (-1: elements of the
 * flattened x), 1 to sort them (0: in order of first occurrence). */
ONNXC_OPERATOR(unique) {
    int64_t axis = attributes[4], sorted = attributes[5];
    onnxc_slices x = onnxc_slices_of(in, axis);
    int64_t n = x.count, *memory = onnxc_call_scratch(context, n, 7 * sizeof *memory);
    if (memory == NULL) return context->status;
    onnxc_groups found = {memory + 2 * n, memory + 3 * n, 0};
    int64_t *rank_of = memory + 4 * n;
    if (onnxc_slices_have_keys(&x)) {
        uint64_t *keys = (uint64_t *)(memory + 5 * n), *distinct = (uint64_t *)(memory + 6 * n);
        int64_t *table = onnxc_call_scratch(context, onnxc_key_slots(n), sizeof *table);
        if (table == NULL) return context->status;
        onnxc_order_keys(&x, keys);
        onnxc_group_keys(&x, keys, distinct, table, &found);
        int64_t *order = sorted ? onnxc_sort_keys(distinct, memory, memory + n, found.count) : NULL;
        for (int64_t r = 0; r < found.count; r++) rank_of[order == NULL ? r : order[r]] = r;
    } else {
        onnxc_group_slices(&x, memory, &found);
        for (int64_t g = 0; g < found.count; g++) rank_of[g] = g;
        for (int64_t s = 0, rank = 0; s < n && !sorted; s++)
            if (found.first[found.group_of[s]] == s) rank_of[found.group_of[s]] = rank++;
    }
    int64_t groups = found.count, *first = found.first, *group_of = found.group_of;
    int64_t dims[ONNXC_MAX_RANK];
    if (axis >= 0) memcpy(dims, in->dims, sizeof *dims * (size_t)in->rank);
    dims[axis < 0 ? 0 : axis] = groups;
    char *y = onnxc_call_output(context, &out[0], attributes[0], in->dtype, axis < 0 ? 1 : in->rank,
                                dims);
    if (y == NULL) return context->status;
    int64_t *places[3]; /* first, inverse, counts */
    for (int k = 0; k < 3; k++) {
        places[k] = onnxc_call_output(context, &out[k + 1], attributes[k + 1], ONNXC_INT64, 1,
                                      k == 1 ? &n : &groups);
        if (places[k] == NULL) return context->status;
    }
    for (int64_t g = 0; g < groups; g++) {
        int64_t run = x.size * x.inner, r = rank_of[g];
        places[0][r] = first[g];
        places[2][r] = 0;
        for (int64_t o = 0; o < x.outer && run > 0; o++)
            onnxc_copy(y + run * (groups * o + r), onnxc_slice_run(&x, first[g], o), (uint64_t)run);
    }
    for (int64_t s = 0; s < n; s++) {
        places[1][s] = rank_of[group_of[s]];
        places[2][places[1][s]]++;
    }
    return ONNXC_OK;
}

/* A box as (low y, low x, high y, high x). */
typedef struct onnxc_box {
    float low[2], high[2], area;
} onnxc_box;

static onnxc_box onnxc_read_box(const char *data, bool centred) {
    float v[4];
    onnxc_box box;
    memcpy(v, data, sizeof v);
    for (int k = 0; k < 2; k++) {
        float half = v[k + 2] / 2;
        box.low[k] = centred ? v[k] - half : v[k] < v[k + 2] ? v[k] : v[k + 2];
        box.high[k] = centred ? v[k] + half : v[k] < v[k + 2] ? v[k + 2] : v[k];
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    return box;
}

enum { ONNXC_BOXES = 8 };

/* Boxes side by side, so that as many are compared at once; those that are missing are empty. */
typedef struct onnxc_boxes {
    float low[2][ONNXC_BOXES], high[2][ONNXC_BOXES], area[ONNXC_BOXES];
} onnxc_boxes;

static void onnxc_keep_box(onnxc_boxes *boxes, int64_t number, const onnxc_box *box) {
    int64_t lane = number % ONNXC_BOXES;
    boxes += number / ONNXC_BOXES;
    if (lane == 0) memset(boxes, 0, sizeof *boxes);
    for (int k = 0; k < 2; k++) boxes->low[k][lane] = box->low[k], boxes->high[k][lane] = box->high[k];
    boxes->area[lane] = box->area;
}

/* Whether the area that one of the first `count` boxes shares with `b` is more than `limit` of that which the two
 * cover. */
static bool onnxc_is_covered(const onnxc_boxes *a, int64_t count, const onnxc_box *b, float limit) {
    const float low[2] = {b->low[0], b->low[1]}, high[2] = {b->high[0], b->high[1]}, area = b->area;
    for (; count > 0; count -= ONNXC_BOXES, a++) {
        int32_t covers[ONNXC_BOXES], any = 0;
        for (int i = 0; i < ONNXC_BOXES; i++) {
            float bottom = a->low[0][i] > low[0] ? a->low[0][i] : low[0];
            float left = a->low[1][i] > low[1] ? a->low[1][i] : low[1];
            float height = (a->high[0][i] < high[0] ? a->high[0][i] : high[0]) - bottom;
            float width = (a->high[1][i] < high[1] ? a->high[1][i] : high[1]) - left;
            float shared = (height > 0 ? height : 0) * (width > 0 ? width : 0);
            float covered = a->area[i] + area - shared, part = shared / covered;
            covers[i] = (((shared > 0) & (covered > 0)) ? part : 0) > limit;
        }
        for (int i = 0; i < ONNXC_BOXES; i++) any |= covers[i] & (i < count);
        if (any) return true;
    }
    return false;
}

/* A key whose unsigned order is that of falling scores. */
static uint64_t onnxc_falling_key(float score) {
    const uint32_t top = (uint32_t)1 << 31;
    score += 0.0f; /* no -0 */
    uint32_t bits = ONNXC_LOAD(uint32_t, &score);
    return bits & top ? bits : ~(bits | top);
}

enum { ONNXC_RANGES = 256 };

/* Moves keys and their numbers, in order, into ranges of keys that follow each other; where each ends. */
static void onnxc_part_keys(const uint64_t *keys, const int64_t *numbers, int64_t count, uint64_t *to_keys,
                            int64_t *to_numbers, int64_t *ends) {
    uint64_t least = UINT64_MAX, greatest = 0;
    for (int64_t i = 0; i < count; i++) {
        least = keys[i] < least ? keys[i] : least;
        greatest = keys[i] > greatest ? keys[i] : greatest;
    }
    int shift = 0;
    while (count > 0 && (greatest - least) >> shift >= ONNXC_RANGES) shift++;
    int64_t places[ONNXC_RANGES + 1] = {0};
    for (int64_t i = 0; i < count; i++) places[((keys[i] - least) >> shift) + 1]++;
    for (int k = 0; k < ONNXC_RANGES; k++) ends[k] = places[k + 1] += places[k];
    for (int64_t i = 0; i < count; i++) {
        int64_t to = places[(keys[i] - least) >> shift]++;
        to_keys[to] = keys[i];
        to_numbers[to] = numbers[i];
    }
}

/* non_max_suppression: boxes float32 [B, N, 4], scores float32 [B, C, N], most boxes a class (int64),
 * greatest overlap (float32), score that must be exceeded (float32) -> int64 [n, 3] of (batch, class,
 * box), best first. Attribute: 1 where boxes are (centre x, centre y, width, height), 0 for (y, x, y,
 * x) of two opposite corners. */
ONNXC_OPERATOR(non_max_suppression) {
    int64_t batches = in[1].dims[0], classes = in[1].dims[1], count = in[1].dims[2], found = 0;
    int64_t most = ONNXC_LOAD(int64_t, in[2].data);
    float overlap = ONNXC_LOAD(float, in[3].data), least = ONNXC_LOAD(float, in[4].data);
    if (!onnxc_same_size(context, in[0].dims[0], batches) || !onnxc_same_size(context, in[0].dims[1], count)
        || !onnxc_same_size(context, 4, in[0].dims[2]))
        return context->status;
    if (most > count) most = count;
    if (most < 0) most = 0;
    uint64_t *keys = onnxc_call_scratch(context, count, 2 * sizeof *keys), *parted = keys + count;
    int64_t *memory = onnxc_call_scratch(context, count, 4 * sizeof *memory), rows, *kept;
    onnxc_boxes *chosen = /* of a class */
        onnxc_call_scratch(context, (most + ONNXC_BOXES - 1) / ONNXC_BOXES, sizeof *chosen);
    if (keys == NULL || memory == NULL || chosen == NULL) return context->status;
    if (!onnxc_multiply(batches, classes, &rows) || !onnxc_multiply(rows, most, &rows))
        return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, classes);
    kept = onnxc_call_scratch(context, rows, 3 * sizeof *kept);
    if (kept == NULL) return context->status;
    for (int64_t row = 0; row < batches * classes && most > 0; row++) {
        int64_t batch = row / classes, candidates = 0, first = found;
        const char *boxes = (const char *)in[0].data + 16 * batch * count;
        const char *scores = (const char *)in[1].data + 4 * count * row;
        int64_t *candidate = memory + 2 * count; /* numbers of boxes, moved on where the score is enough */
        for (int64_t i = 0; i < count; i++) {
            float score = ONNXC_LOAD(float, scores + 4 * i);
            candidate[candidates] = i;
            keys[candidates] = onnxc_falling_key(score);
            candidates += score > least;
        }
        int64_t *numbers = memory + 3 * count, ends[ONNXC_RANGES], begin = 0;
        onnxc_part_keys(keys, candidate, candidates, parted, numbers, ends);
        for (int range = 0; range < ONNXC_RANGES && found - first < most; range++) {
            int64_t length = ends[range] - begin; /* sorted once they are as many as are wanted, or all */
            if (length == 0 || (length < most && ends[range] < candidates)) continue;
            const int64_t *order = onnxc_sort_keys(parted + begin, memory, memory + count, length);
            for (int64_t k = 0; k < length && found - first < most; k++) {
                int64_t number = numbers[begin + order[k]];
                onnxc_box box = onnxc_read_box(boxes + 16 * number, attributes[1] != 0);
                if (onnxc_is_covered(chosen, found - first, &box, overlap)) continue;
                onnxc_keep_box(chosen, found - first, &box);
                kept[3 * found] = batch;
                kept[3 * found + 1] = row % classes;
                kept[3 * found++ + 2] = number;
            }
            begin = ends[range];
        }
    }
    void *selected = onnxc_call_output(context, out, attributes[0], ONNXC_INT64, 2,
                                       (int64_t[]){found, 3});
    if (selected == NULL) return context->status;
    if (found > 0) memcpy(selected, kept, (size_t)(24 * found));
    return ONNXC_OK;
}

/* Where the cheapest way to a cell comes from. */
enum { ONNXC_DIAGONAL, ONNXC_UP, ONNXC_LEFT };

/* dynamic_time_warping: costs float32 [M, N] -> int32 [2, n], rows and columns of the cells of the cheapest way
 * from the first cell to the last by steps down, to the right or both. Where sums are equal it comes from the
 * left. No attributes. */
ONNXC_OPERATOR(dynamic_time_warping) {
    int64_t rows = in->dims[0], columns = in->dims[1], cells, length = 0;
    if (!onnxc_multiply(rows, columns, &cells)) return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, rows);
    if (cells == 0) rows = columns = 0; /* the other may be very large */
    const char *costs = in->data;
    char *from = onnxc_call_scratch(context, cells, sizeof *from);
    float *sums = onnxc_call_scratch(context, rows + 1, sizeof *sums); /* of the column before, then of this */
    if (from == NULL || sums == NULL) return context->status;
    for (int64_t i = 0; i <= rows; i++) sums[i] = i == 0 ? 0 : INFINITY;
    for (int64_t j = 0; j < columns; j++) {
        float diagonal = sums[0];
        sums[0] = INFINITY;
        for (int64_t i = 0; i < rows; i++) {
            float up = sums[i], left = sums[i + 1];
            char step = diagonal < up && diagonal < left ? ONNXC_DIAGONAL
                : up < diagonal && up < left             ? ONNXC_UP
                                                         : ONNXC_LEFT;
            float least = step == ONNXC_DIAGONAL ? diagonal : step == ONNXC_UP ? up : left;
            diagonal = left;
            sums[i + 1] = least + ONNXC_LOAD(float, costs + 4 * (columns * i + j));
            from[columns * i + j] = step;
        }
    }
    for (int64_t pass = 0; pass < 2; pass++) { /* counts the cells, then writes them from the last */
        int32_t *path = NULL;
        if (pass == 1) {
            path = onnxc_call_output(context, out, attributes[0], ONNXC_INT32, 2, (int64_t[]){2, length});
            if (path == NULL) return context->status;
        }
        for (int64_t i = rows - 1, j = columns - 1, n = length; i >= 0 && j >= 0;) {
            if (pass == 0) length++;
            else path[--n] = (int32_t)i, path[length + n] = (int32_t)j;
            char step = from[columns * i + j];
            if (step != ONNXC_LEFT) i--;
            if (step != ONNXC_UP) j--;
        }
    }
    return ONNXC_OK;
}
