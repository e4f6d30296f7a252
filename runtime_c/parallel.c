/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - runs a kernel's parts on a pool.
 *
 * Parts are cut into contiguous pieces, one a thread. What a part computes never depends on the cut,
 * so results are the same bits for any number of threads; of failing parts the lowest is reported. */

/* To start and join threads takes about half a microsecond: no step is cut into shorter pieces than this. */
enum { ONNXC_PIECE_NS = 2000 };

typedef struct onnxc_region {
    _Alignas(ONNXC_ALIGNMENT) onnxc_context *context;
    onnxc_kernel *kernel;
    const uint64_t *args;
    int64_t parts;
    int32_t pieces;
    atomic_int failed; /* whether a piece has */
} onnxc_region;

/* Where piece `index` of `pieces` begins: the first ones are longer by one part if need be. */
static int64_t onnxc_piece_begin(int64_t parts, int32_t pieces, int32_t index) {
    int64_t each = parts / pieces, longer = parts % pieces;
    return each * index + (index < longer ? index : longer);
}

static void onnxc_run_piece(void *data, int32_t index) {
    onnxc_region *region = data;
    onnxc_context *context = region->context;
    onnxc_float_mode mode = onnxc_enter_float_mode();
    char *scratch = context->scratch + context->scratch_stride * index;
    int32_t code = region->kernel(region->args,
                                  onnxc_piece_begin(region->parts, region->pieces, index),
                                  onnxc_piece_begin(region->parts, region->pieces, index + 1),
                                  scratch);
    if (code != 0) {
        context->pieces[index].code = code;
        memcpy(&context->pieces[index].value, scratch, sizeof(int64_t));
        atomic_store_explicit(&region->failed, 1, memory_order_relaxed);
    }
    onnxc_leave_float_mode(mode);
}

static int32_t onnxc_cancelled(onnxc_context *context) {
    if (!atomic_load_explicit(&context->cancel_requested, memory_order_relaxed)) return 0;
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

/* The error of the lowest piece that failed. */
static int32_t onnxc_fail_pieces(onnxc_context *context, int32_t pieces, int32_t node) {
    int32_t status = 0;
    for (int32_t i = 0; i < pieces; i++) {
        onnxc_piece *piece = &context->pieces[i];
        if (piece->code != 0 && status == 0) status = onnxc_fail(context, node, piece->code, piece->value);
        piece->code = 0;
    }
    return status;
}

static int32_t onnxc_run_parts(onnxc_context *context, onnxc_kernel *kernel, const uint64_t *args,
                               int64_t parts, int64_t work_ns, int32_t node) {
    int64_t pieces = context->threads;
    if (pieces > work_ns / ONNXC_PIECE_NS) pieces = work_ns / ONNXC_PIECE_NS;
    if (pieces > parts) pieces = parts;
    if (pieces <= 1 || !onnxc_worth_threads(context, (int32_t)pieces, work_ns)) {
        /* no detour: this is every region of a context with one thread */
        int32_t code = kernel(args, 0, parts, context->scratch);
        if (code == 0) return 0;
        int64_t value;
        memcpy(&value, context->scratch, sizeof value);
        return onnxc_fail(context, node, code, value);
    }
    onnxc_region region = {context, kernel, args, parts, (int32_t)pieces, 0};
    if (!context->pool->run(context->pool, region.pieces, onnxc_run_piece, &region)) {
        region.pieces = 1;
        onnxc_run_piece(&region, 0);
    }
    return atomic_load_explicit(&region.failed, memory_order_relaxed) == 0
        ? 0
        : onnxc_fail_pieces(context, region.pieces, node);
}

static int32_t onnxc_parallel(onnxc_context *context, onnxc_kernel *kernel, const uint64_t *args,
                              int64_t parts, int64_t work_ns, int32_t node) {
    if (parts <= 0) return 0;
    if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
    if (context->profile == NULL) return onnxc_run_parts(context, kernel, args, parts, work_ns, node);
    int64_t began = onnxc_now_ns();
    int32_t code = onnxc_run_parts(context, kernel, args, parts, work_ns, node);
    onnxc_time_step(context, began, parts, work_ns, node);
    return code;
}
