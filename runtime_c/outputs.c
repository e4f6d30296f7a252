/* SPDX-License-Identifier: Apache-2.0 */
/* outputs.c - what generated code calls for memory and results: slots, outputs, operators. */

static void onnxc_free_list(void *list) {
    for (void *next; list != NULL; list = next) {
        next = *(void **)list;
        onnxc_free(list);
    }
}

static void *onnxc_buffer(onnxc_context *context, int32_t slot_index, int64_t bytes) {
    onnxc_slot *slot = &context->slots[slot_index];
    if (bytes <= slot->capacity && slot->data != NULL && bytes >= 0) return slot->data;
    if (bytes < 0) {
        onnxc_fail(context, context->node, ONNXC_SIZE_OVERFLOW, bytes);
        return NULL;
    }
    int64_t room = slot->capacity <= INT64_MAX / 2 && 2 * slot->capacity > bytes ? 2 * slot->capacity
                                                                               : bytes;
    char *data = onnxc_allocate(room);
    if (data == NULL) data = onnxc_allocate(room = bytes);
    if (data == NULL) {
        onnxc_fail(context, context->node, ONNXC_OUT_OF_MEMORY, bytes);
        return NULL;
    }
    if (slot->capacity > 0) memcpy(data, slot->data, (size_t)slot->capacity);
    onnxc_free(slot->data);
    slot->data = data;
    slot->capacity = room;
    return data;
}

/* Places buffers `first` to `end` for context->sizes in one arena, larger ones with room to grow when `generous`;
 * false when the sum overflows. */
static bool onnxc_place(onnxc_context *context, int64_t first, int64_t end, bool generous,
                        int64_t *arena_bytes) {
    int64_t *planned = context->planned_sizes;
    for (int64_t i = first; i < end; i++) {
        int64_t needed = context->sizes[i];
        bool outgrown = generous && needed > planned[i] && needed / 2 < planned[i];
        if (outgrown && needed < INT64_MAX / 2) needed += needed / 4;
        planned[i] = generous && planned[i] > needed ? planned[i] : needed;
    }
    return onnxc_plan(end - first, context->lowered->lifetimes + first, planned + first,
                      context->offsets + first, context->plan_memory, arena_bytes);
}

/* What a branch's buffers were placed in, where that holds context->sizes; else -1. */
static int64_t onnxc_placed_bytes(const onnxc_context *context, int64_t first, int64_t end) {
    int64_t bytes = 0;
    for (int64_t i = first; i < end; i++) {
        if (context->sizes[i] > context->planned_sizes[i]) return -1;
        int64_t top = context->offsets[i] + onnxc_rounded(context->planned_sizes[i]);
        if (top > bytes) bytes = top;
    }
    return bytes;
}

static void *onnxc_enter_branch(onnxc_context *context, int32_t slot, int64_t first, int64_t end,
                                int32_t node) {
    int64_t bytes = onnxc_placed_bytes(context, first, end);
    void *memory = NULL;
    context->node = node;
    if (bytes >= 0 || onnxc_place(context, first, end, true, &bytes))
        memory = onnxc_buffer(context, slot, bytes);
    if (memory == NULL) { /* without room to grow there may be enough */
        context->status = ONNXC_OK;
        if (onnxc_place(context, first, end, false, &bytes)) memory = onnxc_buffer(context, slot, bytes);
        else onnxc_raise(context, ONNXC_SIZE_OVERFLOW, -1);
    }
    context->node = -1;
    return memory;
}

static void onnxc_hold(onnxc_context *context, int32_t slot, onnxc_object *object) {
    onnxc_retain(object); /* first: it may be the one that the slot holds */
    onnxc_drop(context->slots[slot].object);
    context->slots[slot].object = object;
}

static void onnxc_move(onnxc_context *context, int32_t to, int32_t from) {
    if (to == from) return;
    onnxc_slot *target = &context->slots[to], *source = &context->slots[from], swapped = *target;
    onnxc_drop(target->object);
    *target = *source;
    source->data = swapped.data;
    source->capacity = swapped.capacity;
    source->object = NULL;
}

static int32_t onnxc_keep_texts(onnxc_context *context, int32_t slot, void *tensor, int64_t bytes) {
    onnxc_string *strings = tensor;
    int64_t count = bytes / (int64_t)sizeof *strings, needed;
    if (count == 0) return ONNXC_OK;
    if (!onnxc_text_bytes(strings, count, &needed))
        return onnxc_fail(context, context->node, ONNXC_SIZE_OVERFLOW, count);
    onnxc_object **list = &context->slots[slot].object;
    if (*list == NULL) *list = onnxc_new_list(ONNXC_SEQUENCE, ONNXC_UINT8, 1);
    char *text = *list != NULL ? onnxc_list_text(*list, needed) : NULL;
    if (text == NULL) return onnxc_fail(context, context->node, ONNXC_OUT_OF_MEMORY, needed);
    onnxc_move_text(strings, count, text);
    return ONNXC_OK;
}

static int32_t onnxc_scratch(onnxc_context *context, int64_t bytes) {
    int64_t stride, total;
    if (bytes <= context->scratch_stride) return ONNXC_OK;
    if (!onnxc_round_up(bytes, &stride) || !onnxc_multiply(stride, context->threads, &total))
        return onnxc_fail(context, -1, ONNXC_SIZE_OVERFLOW, bytes);
    if (total > context->own_scratch_bytes) {
        onnxc_free(context->own_scratch);
        context->own_scratch_bytes = 0;
        context->own_scratch = onnxc_allocate(total);
        if (context->own_scratch == NULL) return onnxc_out_of_memory(context, total);
        context->own_scratch_bytes = total;
    }
    context->scratch = context->own_scratch;
    context->scratch_stride = stride;
    return ONNXC_OK;
}

/* Memory for output `index`, whose value is described completely. */
static void *onnxc_tensor_output(onnxc_context *context, onnxc_value *outputs, int32_t index,
                                 int32_t dtype, int32_t rank, const int64_t *dims) {
    const onnxc_port *port = &context->library->model->outputs[index];
    onnxc_value *output = &outputs[index];
    char shape[256];
    int64_t bytes = rank >= 0 && rank <= ONNXC_MAX_RANK ? onnxc_tensor_bytes(dtype, rank, dims) : -1;
    if (bytes < 0) {
        onnxc_report(context, ONNXC_SIZE_OVERFLOW, "output '%.80s': rank %d or its size overflows",
                     port->name, (int)rank);
        return NULL;
    }
    if (output->data == NULL || output->object != NULL) {
        onnxc_object *object = onnxc_new_tensor(dtype, rank, dims);
        if (object == NULL) {
            onnxc_out_of_memory(context, bytes);
            return NULL;
        }
        onnxc_drop(output->object);
        *output = object->value;
        return output->data;
    }
    if (output->capacity < (uint64_t)bytes) {
        onnxc_report(context, ONNXC_BUFFER_TOO_SMALL,
                     "output '%.80s': %lld bytes are needed for shape %s, got %llu", port->name,
                     (long long)bytes, onnxc_shape_text(shape, sizeof shape, rank, dims, NULL),
                     (unsigned long long)output->capacity);
        return NULL;
    }
    int64_t *own_dims = context->output_dims + (int64_t)ONNXC_MAX_RANK * index;
    if (rank > 0) memcpy(own_dims, dims, sizeof *dims * (size_t)rank);
    output->kind = ONNXC_TENSOR;
    output->dtype = dtype;
    output->rank = rank;
    output->dims = own_dims;
    output->bytes = (uint64_t)bytes;
    return output->data;
}

static void *onnxc_output(onnxc_context *context, onnxc_value *outputs, int32_t index, int32_t rank,
                          const int64_t *dims) {
    return onnxc_tensor_output(context, outputs, index, context->library->model->outputs[index].dtype,
                               rank, dims);
}

static int32_t onnxc_output_value(onnxc_context *context, onnxc_value *outputs, int32_t index,
                                  const onnxc_value *value) {
    onnxc_value *output = &outputs[index];
    if (value->kind == ONNXC_TENSOR && (value->object == NULL || output->data != NULL)) {
        void *data = onnxc_tensor_output(context, outputs, index, value->dtype, value->rank,
                                         value->dims);
        if (data == NULL) return context->status;
        if (output->bytes > 0) onnxc_copy(data, value->data, output->bytes);
        return ONNXC_OK;
    }
    onnxc_object *object = onnxc_own(value);
    if (object == NULL) return onnxc_out_of_memory(context, (int64_t)value->bytes);
    onnxc_drop(output->object);
    *output = object->value;
    return ONNXC_OK;
}

/* Gives the strings of a tensor bytes of their own, which `owner` holds. */
static int32_t onnxc_give_text(onnxc_context *context, const onnxc_value *tensor, onnxc_object *owner) {
    int64_t count = onnxc_elements(tensor->rank, tensor->dims), bytes;
    if (onnxc_own_text(tensor->data, count, &owner->text)) return ONNXC_OK;
    if (!onnxc_text_bytes(tensor->data, count, &bytes)) return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, count);
    return onnxc_raise_refused(context);
}

/* The characters of string results become the outputs' own. */
static int32_t onnxc_own_strings(onnxc_context *context, onnxc_value *output) {
    if (output->kind != ONNXC_TENSOR || output->dtype != ONNXC_STRING) return ONNXC_OK;
    if (output->object != NULL && output->object->text != NULL) return ONNXC_OK; /* has them */
    if (output->object == NULL) { /* the caller's array: an object owns the characters alone */
        output->object = onnxc_new_tensor(ONNXC_UINT8, 0, NULL);
        if (output->object == NULL) return onnxc_raise_refused(context);
    }
    return onnxc_give_text(context, output, output->object);
}

/* Makes the tensor that an object is output `index`. Takes over the caller's reference. */
static int32_t onnxc_object_output(onnxc_context *context, int32_t index, onnxc_object *object) {
    onnxc_value *output = &context->outputs[index];
    bool alone = atomic_load_explicit(&object->references, memory_order_acquire) == 1;
    if (alone && output->data == NULL) {
        *output = object->value;
        return ONNXC_OK;
    }
    const onnxc_value *value = &object->value;
    void *data = onnxc_tensor_output(context, context->outputs, index, value->dtype, value->rank, value->dims);
    if (data != NULL && output->bytes > 0) onnxc_copy(data, value->data, output->bytes);
    if (data != NULL && alone && value->dtype == ONNXC_STRING) {
        output->object = object; /* for the characters */
        return ONNXC_OK;
    }
    int32_t status = data != NULL ? onnxc_own_strings(context, output) : context->status;
    onnxc_drop(object);
    return status;
}

/* The bytes before a result's elements hold its dims. */
enum { ONNXC_DIMS_BYTES = 8 * ONNXC_MAX_RANK };

static void *onnxc_call_output(onnxc_context *context, onnxc_value *out, int64_t slot, int32_t dtype,
                               int32_t rank, const int64_t *dims) {
    if (slot < 0) {
        void *data = onnxc_tensor_output(context, context->outputs, (int32_t)~slot, dtype, rank, dims);
        if (data != NULL) *out = context->outputs[~slot];
        return data;
    }
    int64_t total, bytes = onnxc_tensor_bytes(dtype, rank, dims);
    if (bytes < 0 || !onnxc_add(bytes, ONNXC_DIMS_BYTES, &total)) {
        onnxc_raise(context, ONNXC_SIZE_OVERFLOW, bytes);
        return NULL;
    }
    char *memory = onnxc_buffer(context, (int32_t)slot, total);
    if (memory == NULL) return NULL;
    if (rank > 0) memcpy(memory, dims, sizeof *dims * (size_t)rank);
    *out = (onnxc_value){sizeof *out, ONNXC_TENSOR, dtype, rank, (int64_t *)memory,
                         memory + ONNXC_DIMS_BYTES, (uint64_t)bytes, 0, NULL};
    return out->data;
}

static int32_t onnxc_call_object(onnxc_context *context, onnxc_value *out, int64_t slot,
                                 onnxc_object *object) {
    if (object == NULL) return onnxc_raise_refused(context);
    if (slot < 0) {
        int32_t status = onnxc_object_output(context, (int32_t)~slot, object);
        *out = context->outputs[~slot];
        return status;
    }
    onnxc_hold(context, (int32_t)slot, object);
    onnxc_drop(object);
    *out = object->value;
    return ONNXC_OK;
}

static onnxc_object *onnxc_new_strings(onnxc_context *context, int32_t rank, const int64_t *dims,
                                       int64_t bytes) {
    if (onnxc_tensor_bytes(ONNXC_STRING, rank, dims) < 0) {
        onnxc_raise(context, ONNXC_SIZE_OVERFLOW, rank);
        return NULL;
    }
    onnxc_object *tensor = onnxc_new_tensor(ONNXC_STRING, rank, dims);
    if (tensor != NULL && tensor->value.bytes > 0) memset(tensor->value.data, 0, tensor->value.bytes);
    if (tensor != NULL && (bytes == 0 || (tensor->text = onnxc_allocate(bytes)) != NULL)) return tensor;
    onnxc_raise_refused(context);
    onnxc_drop(tensor);
    return NULL;
}

static int32_t onnxc_call_strings(onnxc_context *context, onnxc_value *out, int64_t slot,
                                  onnxc_object *tensor) {
    if (tensor == NULL) return context->status;
    if (tensor->text != NULL || onnxc_give_text(context, &tensor->value, tensor) == ONNXC_OK)
        return onnxc_call_object(context, out, slot, tensor);
    onnxc_drop(tensor);
    return context->status;
}

static void *onnxc_call_scratch(onnxc_context *context, int64_t count, int64_t size) {
    int64_t bytes;
    if (!onnxc_multiply(count, size, &bytes) || !onnxc_add(bytes, ONNXC_ALIGNMENT, &bytes)) {
        onnxc_raise(context, ONNXC_SIZE_OVERFLOW, count);
        return NULL;
    }
    void **memory = onnxc_allocate(bytes);
    if (memory == NULL) {
        onnxc_raise(context, ONNXC_OUT_OF_MEMORY, bytes);
        return NULL;
    }
    *memory = context->temporaries;
    context->temporaries = memory;
    return (char *)memory + ONNXC_ALIGNMENT;
}

static int32_t onnxc_call(onnxc_context *context, int32_t op, const onnxc_value *in,
                          int32_t in_count, onnxc_value *out, int32_t out_count,
                          const int64_t *attributes, int32_t node) {
    if (onnxc_cancelled(context)) return ONNXC_CANCELLED;
    context->node = node;
    for (int32_t i = 0; i < out_count; i++) out[i] = (onnxc_value){.struct_size = sizeof *out};
    int64_t began = context->profile != NULL ? onnxc_now_ns() : 0;
    int32_t status = context->lowered->operators[op](context, in, in_count, out, out_count, attributes);
    if (context->profile != NULL) onnxc_time_step(context, began, 1, 0, node);
    onnxc_free_list(context->temporaries);
    context->temporaries = NULL;
    context->node = -1;
    return status;
}

static const onnxc_api onnxc_functions = {
    onnxc_parallel, onnxc_fail, onnxc_buffer, onnxc_output, onnxc_output_value, onnxc_call,
    onnxc_cancelled, onnxc_fail_expected, onnxc_fail_input, onnxc_hold, onnxc_move,
    onnxc_scratch, onnxc_keep_texts, onnxc_enter_branch,
};
