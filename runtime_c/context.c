/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - creating, running and destroying contexts: all that one caller of a model needs.
 *
 * A context is one block of memory for its tables, plus a workspace (arena, then scratch of each
 * thread), plus slots that grow with data. Runs of static models allocate nothing. */

/* Takes `count` elements from the block, or only measures when the block is null. */
static void *onnxc_carve(char *block, int64_t *used, int64_t count, int64_t bytes) {
    char *memory = block != NULL ? block + *used : NULL;
    *used += (count * bytes + ONNXC_ALIGNMENT - 1) & ~(int64_t)(ONNXC_ALIGNMENT - 1);
    return memory;
}

/* Lays out the tables of a context in its block and returns the bytes they take. */
static int64_t onnxc_lay_out(onnxc_context *context, char *block, const onnxc_library *library,
                             const onnxc_lowered *lowered, int32_t threads) {
    int64_t used = 0, buffers = (int64_t)lowered->buffer_count + lowered->branch_buffer_count;
    int64_t inputs = library->model->input_count, outputs = library->model->output_count;
    onnxc_carve(block, &used, 1, sizeof *context);
    context->dims = onnxc_carve(block, &used, lowered->dim_count, 8);
    context->values = onnxc_carve(block, &used, lowered->value_count, sizeof(void *));
    context->offsets = onnxc_carve(block, &used, buffers, 8);
    context->sizes = onnxc_carve(block, &used, buffers, 8);
    context->planned_sizes = onnxc_carve(block, &used, buffers, 8);
    context->plan_memory = onnxc_carve(block, &used, 4 * buffers, 8);
    context->slots = onnxc_carve(block, &used, lowered->slot_count, sizeof(onnxc_slot));
    context->inputs = onnxc_carve(block, &used, inputs, sizeof(onnxc_value));
    context->outputs = onnxc_carve(block, &used, outputs, sizeof(onnxc_value));
    context->output_dims = onnxc_carve(block, &used, ONNXC_MAX_RANK * outputs, 8);
    context->borrowed = onnxc_carve(block, &used, inputs, sizeof(onnxc_object *));
    context->pieces = onnxc_carve(block, &used, threads, sizeof(onnxc_piece));
    context->strings = onnxc_carve(block, &used, library->string_count, sizeof(onnxc_string));
    return used;
}

/* Sets arena and scratch for a plan of `arena_bytes`, in new memory if what there is is too small. */
static int32_t onnxc_set_arena(onnxc_context *context, int64_t arena_bytes) {
    int64_t arena, stride, total;
    int64_t scratch = context->scratch_bytes < ONNXC_ALIGNMENT ? ONNXC_ALIGNMENT
                                                               : context->scratch_bytes;
    if (!onnxc_round_up(arena_bytes, &arena) || !onnxc_round_up(scratch, &stride)
        || !onnxc_multiply(stride, context->threads, &total) || !onnxc_add(total, arena, &total))
        return onnxc_report(context, ONNXC_SIZE_OVERFLOW, "the size of the workspace overflows");
    if (total > context->workspace_bytes) {
        if (context->workspace != NULL && context->own_workspace == NULL)
            return onnxc_report(context, ONNXC_BUFFER_TOO_SMALL,
                                "a workspace of %lld bytes is needed, got %lld", (long long)total,
                                (long long)context->workspace_bytes);
        onnxc_free(context->own_workspace);
        context->workspace = context->own_workspace = onnxc_allocate(total);
        context->workspace_bytes = context->workspace != NULL ? total : 0;
        if (context->workspace == NULL) return onnxc_out_of_memory(context, total);
    }
    context->arena_bytes = arena_bytes;
    context->arena = context->workspace;
    context->scratch = context->workspace + arena;
    context->scratch_stride = stride;
    return ONNXC_OK;
}

/* Places the buffers of the run's own arena. */
static int32_t onnxc_place_own(onnxc_context *context, bool generous) {
    int64_t arena_bytes;
    if (!onnxc_place(context, 0, context->lowered->buffer_count, generous, &arena_bytes))
        return onnxc_report(context, ONNXC_SIZE_OVERFLOW, "the size of the workspace overflows");
    return onnxc_set_arena(context, arena_bytes);
}

/* Makes the plan hold context->sizes. One that is outgrown gets room to spare where there is memory,
 * so that growing by a little each run seldom plans anew. */
static int32_t onnxc_prepare_arena(onnxc_context *context) {
    int64_t count = context->lowered->buffer_count;
    if (count == 0) return onnxc_set_arena(context, context->lowered->arena_bytes);
    bool fits = true, planned = context->planned_sizes[0] >= 0;
    for (int64_t i = 0; i < count; i++) {
        if (context->sizes[i] < 0)
            return onnxc_report(context, ONNXC_SIZE_OVERFLOW, "the size of a value overflows");
        if (context->sizes[i] > context->planned_sizes[i]) fits = false;
    }
    if (fits) return onnxc_set_arena(context, context->arena_bytes);
    int32_t status = onnxc_place_own(context, planned);
    if (status != ONNXC_OK && planned) status = onnxc_place_own(context, false);
    if (status != ONNXC_OK) context->planned_sizes[0] = -1; /* no plan */
    return status;
}

/* Claims the context for a call; its error is the thread's, as the context is someone else's. */
static int32_t onnxc_enter(onnxc_context *context) {
    if (context == NULL) return onnxc_report(NULL, ONNXC_NULL_POINTER, "context is null");
    if (atomic_exchange_explicit(&context->running, 1, memory_order_acquire))
        return onnxc_report(NULL, ONNXC_BUSY, "the context is in use by another thread");
    context->outer_allocator = onnxc_allocate_from(context->allocator);
    return ONNXC_OK;
}

static void onnxc_leave(onnxc_context *context) {
    for (int32_t i = 0; i < context->library->model->input_count; i++) {
        onnxc_drop(context->borrowed[i]);
        context->borrowed[i] = NULL;
    }
    onnxc_allocate_from(context->outer_allocator);
    atomic_store_explicit(&context->running, 0, memory_order_release);
}

/* The status of the error that generated code recorded before it returned nonzero. */
static int32_t onnxc_recorded(onnxc_context *context, int32_t returned) {
    return context->status != ONNXC_OK ? context->status : onnxc_fail(context, -1, returned, 0);
}

/* What reading the clock takes: the least of some times, since more would make steps shorter than they are. */
static int64_t onnxc_reading_ns(void) {
    int64_t least = INT64_MAX;
    for (int k = 0; k < 32; k++) {
        int64_t now = onnxc_now_ns(), taken = onnxc_now_ns() - now;
        if (taken < least) least = taken;
    }
    return least;
}

/* Runs the model on the checked inputs. */
static int32_t onnxc_execute(onnxc_context *context) {
    const onnxc_model *model = context->library->model;
    context->status = ONNXC_OK;
    if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
    int32_t status = context->lowered->bind(context, context->inputs);
    if (status != 0) return onnxc_recorded(context, status);
    status = onnxc_prepare_arena(context);
    if (status != ONNXC_OK) return status;
    if (context->profile != NULL) {
        context->profile->count = 0;
        context->clock_ns = onnxc_reading_ns();
    }
    context->alone_ns = 0;
    status = context->lowered->run(context, context->inputs, context->outputs);
    context->run_count++;
    if (status != 0) return onnxc_recorded(context, status);
    for (int32_t i = 0; i < model->output_count; i++) {
        if (context->outputs[i].kind == ONNXC_NONE)
            return onnxc_report(context, ONNXC_INVALID_VALUE, "output '%.80s' was not computed",
                                model->outputs[i].name);
        status = onnxc_own_strings(context, &context->outputs[i]);
        if (status != ONNXC_OK) return status;
    }
    return ONNXC_OK;
}

/* Hands the results to the caller, or frees them after an error. */
static void onnxc_deliver(onnxc_context *context, onnxc_value *outputs, int32_t status) {
    for (int32_t i = 0; i < context->library->model->output_count; i++) {
        onnxc_value *output = &context->outputs[i];
        if (status == ONNXC_OK) {
            onnxc_value *target = (onnxc_value *)(uintptr_t)onnxc_step(outputs, i);
            output->struct_size = target->struct_size;
            output->capacity = target->capacity;
            memcpy(target, output, sizeof *output);
        } else {
            onnxc_drop(output->object);
        }
        output->object = NULL;
        output->data = NULL;
    }
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(run)(onnxc_context *context, const onnxc_value *inputs,
                                       int32_t input_count, onnxc_value *outputs,
                                       int32_t output_count) {
    int32_t status = onnxc_enter(context);
    if (status != ONNXC_OK) return status;
    onnxc_float_mode mode = onnxc_enter_float_mode();
    atomic_store_explicit(&context->cancel_requested, 0, memory_order_relaxed);
    status = onnxc_check_inputs(context, inputs, input_count, true);
    if (status == ONNXC_OK) status = onnxc_check_outputs(context, outputs, output_count);
    if (status == ONNXC_OK) status = onnxc_execute(context);
    onnxc_deliver(context, outputs, status);
    for (int32_t i = 0; i < context->lowered->slot_count; i++) {
        onnxc_drop(context->slots[i].object);
        context->slots[i].object = NULL;
    }
    onnxc_leave_float_mode(mode);
    onnxc_leave(context);
    return status;
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(workspace_bytes_for)(onnxc_context *context,
                                                       const onnxc_value *inputs,
                                                       int32_t input_count, size_t *bytes) {
    int32_t status = onnxc_enter(context);
    if (status != ONNXC_OK) return status;
    const onnxc_lowered *lowered = context->lowered;
    int64_t count = lowered->buffer_count, arena = lowered->arena_bytes, stride = 0, total = 0;
    if (bytes == NULL) status = onnxc_report(context, ONNXC_NULL_POINTER, "bytes is null");
    if (status == ONNXC_OK) status = onnxc_check_inputs(context, inputs, input_count, false);
    context->status = ONNXC_OK;
    if (status == ONNXC_OK && lowered->bind(context, context->inputs) != 0)
        status = onnxc_recorded(context, ONNXC_INVALID_VALUE);
    for (int64_t i = 0; i < count && status == ONNXC_OK; i++)
        if (context->sizes[i] < 0) status = ONNXC_SIZE_OVERFLOW;
    int64_t scratch = context->scratch_bytes < ONNXC_ALIGNMENT ? ONNXC_ALIGNMENT
                                                               : context->scratch_bytes;
    if (status == ONNXC_OK
        && ((count > 0 && !onnxc_plan(count, lowered->lifetimes, context->sizes,
                                      context->plan_memory + 3 * count, context->plan_memory, &arena))
            || !onnxc_round_up(arena, &arena) || !onnxc_round_up(scratch, &stride)
            || !onnxc_multiply(stride, context->threads, &total) || !onnxc_add(total, arena, &total)))
        status = ONNXC_SIZE_OVERFLOW;
    if (status == ONNXC_SIZE_OVERFLOW)
        onnxc_report(context, status, "the size of the workspace overflows");
    if (status == ONNXC_OK) *bytes = (size_t)total;
    onnxc_leave(context);
    return status;
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(set_workspace)(onnxc_context *context, void *memory,
                                                 size_t bytes) {
    int32_t status = onnxc_enter(context);
    if (status != ONNXC_OK) return status;
    if ((uintptr_t)memory % ONNXC_ALIGNMENT != 0 || bytes > (size_t)PTRDIFF_MAX) {
        status = onnxc_report(context, ONNXC_INVALID_VALUE, "the workspace is not 64-byte aligned");
    } else {
        onnxc_free(context->own_workspace);
        context->own_workspace = NULL;
        context->workspace = memory;
        context->workspace_bytes = memory != NULL ? (int64_t)bytes : 0;
        if (context->lowered->buffer_count > 0) context->planned_sizes[0] = -1;
    }
    onnxc_leave(context);
    return status;
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(destroy)(onnxc_context *context) {
    if (context == NULL) return ONNXC_OK;
    for (int32_t i = 0; i < context->lowered->slot_count; i++) {
        onnxc_drop(context->slots[i].object);
        onnxc_free(context->slots[i].data);
    }
    ONNXC_SYMBOL(pool_destroy)(context->own_pool);
    onnxc_free(context->own_workspace);
    onnxc_free(context->own_scratch);
    onnxc_leave_weights(context);
    if (context->library->checks_handles) onnxc_handle_ends(context);
    else onnxc_free(context);
    onnxc_context_ends();
    return ONNXC_OK;
}

/* The bytes of options in version 1.0 of the interface. */
enum { ONNXC_LEAST_OPTIONS = offsetof(onnxc_options, target) };

/* What a caller's options say, ours where it says nothing. */
static int32_t onnxc_read_options(const onnxc_options *given, onnxc_options *options) {
    *options = (onnxc_options){.struct_size = sizeof *options};
    if (given == NULL) return ONNXC_OK;
    if (!onnxc_sound_size(given->struct_size, ONNXC_LEAST_OPTIONS))
        return onnxc_wrong_size(NULL, "options", given->struct_size, sizeof *given);
    memcpy(options, given, given->struct_size < sizeof *options ? given->struct_size : sizeof *options);
    if (options->pool != NULL && (options->pool->run == NULL || options->pool->threads < 1))
        return onnxc_report(NULL, ONNXC_INVALID_VALUE, "options: the pool has no threads");
    const onnxc_allocator *allocator = options->allocator;
    if (allocator != NULL && !onnxc_sound_size(allocator->struct_size, sizeof *allocator))
        return onnxc_wrong_size(NULL, "options: the allocator", allocator->struct_size, sizeof *allocator);
    if (allocator != NULL && (allocator->allocate == NULL || allocator->deallocate == NULL))
        return onnxc_report(NULL, ONNXC_INVALID_VALUE, "options: the allocator lacks a function");
    return ONNXC_OK;
}

/* A context whose memory the thread's allocator gives. */
static int32_t onnxc_create(const onnxc_library *library, const onnxc_lowered *lowered,
                            const onnxc_options *given, onnxc_context **result) {
    const onnxc_options options = *given;
    int32_t status = ONNXC_OK, threads = options.threads > 0 ? options.threads : library->threads;
    threads = onnxc_clamp_threads(options.pool != NULL ? options.pool->threads : threads);
    onnxc_context sizes;
    int64_t bytes = onnxc_lay_out(&sizes, NULL, library, lowered, threads);
    onnxc_context *context = onnxc_allocate(bytes);
    if (context == NULL) return onnxc_out_of_memory(NULL, bytes);
    memset(context, 0, (size_t)bytes);
    onnxc_lay_out(context, (char *)context, library, lowered, threads);
    context->api = &onnxc_functions;
    context->library = library;
    context->lowered = lowered;
    context->threads = threads;
    context->node = -1;
    context->pool = options.pool;
    context->allocator = options.allocator;
    context->stop = options.stop;
    onnxc_context_begins();
    if (library->checks_handles) onnxc_handle_begins(context);
    context->scratch_bytes = lowered->scratch_bytes;
    if (lowered->buffer_count > 0) context->planned_sizes[0] = -1;
    else if (lowered->branch_buffer_count == 0) context->offsets = NULL;
    status = onnxc_find_weights(context, options.weights_path);
    if (status == ONNXC_OK) onnxc_make_strings(context);
    if (status == ONNXC_OK && threads > 1 && context->pool == NULL) {
        status = ONNXC_SYMBOL(pool_create)(threads, &context->own_pool);
        context->pool = context->own_pool;
    }
    if (status == ONNXC_OK && lowered->buffer_count == 0) {
        status = onnxc_set_arena(context, lowered->arena_bytes);
        if (status != ONNXC_OK) memcpy(onnxc_thread_error, context->error, sizeof context->error);
    }
    if (status != ONNXC_OK) ONNXC_SYMBOL(destroy)(context);
    else *result = context;
    return status;
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(create)(const onnxc_library *library, const onnxc_options *given,
                                          onnxc_context **result) {
    const onnxc_lowered *lowered = NULL;
    onnxc_options options;
    if (result == NULL) return onnxc_report(NULL, ONNXC_NULL_POINTER, "context is null");
    *result = NULL;
    int32_t status = onnxc_read_options(given, &options);
    if (status == ONNXC_OK) status = onnxc_choose_target(library, options.target, &lowered);
    if (status != ONNXC_OK) return status;
    onnxc_allocator *outer = onnxc_allocate_from(options.allocator);
    status = onnxc_create(library, lowered, &options, result);
    onnxc_allocate_from(outer);
    return status;
}

ONNXC_HIDDEN void ONNXC_SYMBOL(cancel)(onnxc_context *context) {
    if (context != NULL) atomic_store_explicit(&context->cancel_requested, 1, memory_order_relaxed);
}

ONNXC_HIDDEN int32_t ONNXC_SYMBOL(set_profile)(onnxc_context *context, onnxc_profile *profile) {
    int32_t status = onnxc_enter(context);
    if (status != ONNXC_OK) return status;
    if (profile != NULL && !onnxc_sound_size(profile->struct_size, sizeof *profile))
        status = onnxc_wrong_size(context, "the profile", profile->struct_size, sizeof *profile);
    else if (profile != NULL
             && (profile->capacity < 0 || (profile->capacity > 0 && profile->timings == NULL)))
        status = onnxc_report(context, ONNXC_INVALID_VALUE, "the profile has no memory for its timings");
    else
        context->profile = profile;
    onnxc_leave(context);
    return status;
}

/* The target whose code the context runs. */
ONNXC_HIDDEN const char *ONNXC_SYMBOL(target)(const onnxc_context *context) {
    return context != NULL ? context->lowered->target : NULL;
}
