/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - runs a kernel's parts on a pool.
 *
 * Parts are cut into contiguous pieces, one a thread, and long pieces into chunks of a half, a quarter and two
 * eighths: processors are not equally fast, nor left alone. A thread takes the chunks of its piece in order, then
 * those of others that nobody has begun. What a part computes never depends on the cut, so results are the same
 * bits for any number of threads; of failing parts the lowest is reported. */

/* To start and join threads takes about half a microsecond: no step is cut into shorter pieces than this. */
enum { ONNXC_PIECE_NS = 2000 };
/* To look at another thread's piece takes a tenth of one, to begin a chunk little more: pieces that are shorter
 * than this stay whole. */
enum { ONNXC_SHARED_NS = 20000 };

typedef struct onnxc_region {
    _Alignas(ONNXC_ALIGNMENT) onnxc_context *context;
    onnxc_kernel *kernel;
    const uint64_t *args;
    int64_t parts;
    int64_t unit; /* of parts, where chunks may begin; 0: pieces are one chunk each */
    int32_t pieces;
    atomic_int failed; /* whether a chunk has */
} onnxc_region;

/* Where piece `index` of `pieces` begins: the first ones are longer by one part if need be. */
static int64_t onnxc_piece_begin(int64_t parts, int32_t pieces, int32_t index) {
    int64_t each = parts / pieces, longer = parts % pieces;
    return each * index + (index < longer ? index : longer);
}

/* Where a chunk of the parts [first, last) begins. */
static int64_t onnxc_chunk_begin(int64_t first, int64_t last, int64_t unit, int32_t chunk) {
    if (chunk == 0) return first;
    if (chunk == ONNXC_CHUNKS) return last;
    int64_t begin = last - ((last - first) >> chunk), over = begin % unit;
    if (over != 0) begin += unit - over < last - begin ? unit - over : last - begin;
    return begin;
}

static void onnxc_run_chunk(onnxc_region *region, int32_t index, int32_t chunk, char *scratch) {
    int64_t first = onnxc_piece_begin(region->parts, region->pieces, index);
    int64_t last = onnxc_piece_begin(region->parts, region->pieces, index + 1);
    if (region->unit > 0) {
        int64_t begin = onnxc_chunk_begin(first, last, region->unit, chunk);
        last = onnxc_chunk_begin(first, last, region->unit, chunk + 1);
        first = begin;
        if (first == last) return;
    }
    int32_t code = region->kernel(region->args, first, last, scratch);
    if (code == 0) return;
    onnxc_piece *piece = &region->context->pieces[index];
    piece->codes[chunk] = code;
    memcpy(&piece->told[chunk], scratch, sizeof *piece->told);
    atomic_store_explicit(&region->failed, 1, memory_order_relaxed);
}

/* The chunks of piece `index`, then what others have left. */
static void onnxc_run_piece(void *data, int32_t index) {
    onnxc_region *region = data;
    onnxc_context *context = region->context;
    onnxc_float_mode mode = onnxc_enter_float_mode();
    char *scratch = context->scratch + context->scratch_stride * index;
    if (region->unit == 0) onnxc_run_chunk(region, index, 0, scratch);
    for (int32_t other = 0; region->unit > 0 && other < region->pieces; other++) {
        int32_t of = index + other < region->pieces ? index + other : index + other - region->pieces;
        atomic_int *begun = &context->pieces[of].begun;
        while (atomic_load_explicit(begun, memory_order_relaxed) < ONNXC_CHUNKS) {
            int32_t chunk = atomic_fetch_add_explicit(begun, 1, memory_order_relaxed);
            if (chunk < ONNXC_CHUNKS) onnxc_run_chunk(region, of, chunk, scratch);
        }
    }
    onnxc_leave_float_mode(mode);
}

static int32_t onnxc_cancelled(onnxc_context *context) {
    bool asked = atomic_load_explicit(&context->cancel_requested, memory_order_relaxed)
                 || (context->stop != NULL && __atomic_load_n(context->stop, __ATOMIC_RELAXED) != 0);
    if (!asked) return 0;
    return onnxc_report(context, ONNXC_CANCELLED, "the run was cancelled");
}

/* Writes down what a step took that began at `began`. */
static void onnxc_time_step(onnxc_context *context, int64_t began, int64_t parts, int64_t work_ns,
                            int32_t node) {
    onnxc_profile *profile = context->profile;
    int64_t ended = onnxc_now_ns(), index = profile->count++;
    if (index >= profile->capacity) return;
    const char *name = onnxc_node_name(context, node);
    int64_t taken = ended - began - context->clock_ns;
    profile->timings[index] = (onnxc_timing){name, parts, work_ns, taken > 0 ? taken : 0};
}

/* Whether a step that could be shared is worth its threads: those that sleep are woken once a run has had as
 * much such work as waking takes. A run that is shorter leaves them asleep, whatever happens between runs. */
static bool onnxc_worth_threads(onnxc_context *context, int32_t pieces, int64_t work_ns) {
    if (onnxc_awake(context->pool, pieces)) return true;
    context->alone_ns += work_ns;
    return context->alone_ns >= ONNXC_WAKE_NS;
}

/* The error of the lowest chunk that failed. */
static int32_t onnxc_fail_pieces(onnxc_context *context, int32_t pieces, int32_t node) {
    int32_t status = 0;
    for (int32_t i = 0; i < pieces * ONNXC_CHUNKS; i++) {
        onnxc_piece *piece = &context->pieces[i / ONNXC_CHUNKS];
        int32_t *code = &piece->codes[i % ONNXC_CHUNKS];
        if (*code != 0 && status == 0)
            status = onnxc_fail_kernel(context, node, *code, &piece->told[i % ONNXC_CHUNKS]);
        *code = 0;
    }
    return status;
}

static int32_t onnxc_run_parts(onnxc_context *context, onnxc_kernel *kernel, const uint64_t *args,
                               int64_t parts, int64_t work_ns, int64_t unit, int32_t node) {
    int64_t pieces = context->threads;
    if (pieces > work_ns / ONNXC_PIECE_NS) pieces = work_ns / ONNXC_PIECE_NS;
    if (pieces > parts) pieces = parts;
    if (pieces <= 1 || !onnxc_worth_threads(context, (int32_t)pieces, work_ns)) {
        /* no detour: this is every region of a context with one thread */
        int32_t code = kernel(args, 0, parts, context->scratch);
        if (code == 0) return 0;
        onnxc_told told;
        memcpy(&told, context->scratch, sizeof told);
        return onnxc_fail_kernel(context, node, code, &told);
    }
    onnxc_region region = {context, kernel, args, parts, 0, (int32_t)pieces, 0};
    if (work_ns / pieces >= ONNXC_SHARED_NS) region.unit = unit;
    for (int32_t i = 0; region.unit > 0 && i < region.pieces; i++) /* posting the region publishes this */
        atomic_store_explicit(&context->pieces[i].begun, 0, memory_order_relaxed);
    if (!context->pool->run(context->pool, region.pieces, onnxc_run_piece, &region)) {
        region.pieces = 1;
        onnxc_run_piece(&region, 0);
    }
    return atomic_load_explicit(&region.failed, memory_order_relaxed) == 0
        ? 0
        : onnxc_fail_pieces(context, region.pieces, node);
}

static int32_t onnxc_parallel(onnxc_context *context, onnxc_kernel *kernel, const uint64_t *args,
                              int64_t parts, int64_t work_ns, int64_t unit, int32_t node) {
    if (parts <= 0) return 0;
    if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
    if (context->profile == NULL) return onnxc_run_parts(context, kernel, args, parts, work_ns, unit, node);
    int64_t began = onnxc_now_ns();
    int32_t code = onnxc_run_parts(context, kernel, args, parts, work_ns, unit, node);
    onnxc_time_step(context, began, parts, work_ns, node);
    return code;
}
