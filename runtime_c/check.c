/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - holds what a caller passes against what the model declares, before any code trusts it. */

/* The element after `value` in a caller's array, whose structs may be larger than ours. */
static const onnxc_value *onnxc_step(const onnxc_value *first, int64_t index) {
    return (const onnxc_value *)((const char *)first + (size_t)first->struct_size * (size_t)index);
}

/* Whether a caller's struct may have this size in its version of the interface, the first of which has `least`
 * bytes: fields are added in words, so that none is there by half. */
static bool onnxc_sound_size(uint32_t struct_size, size_t least) {
    return struct_size >= least && struct_size <= 4096 && struct_size % 8 == 0;
}

static int32_t onnxc_wrong_size(onnxc_context *context, const char *what, uint32_t got, size_t expected) {
    return onnxc_report(context, ONNXC_WRONG_ABI, "%s: struct_size is %u, expected %u", what, (unsigned)got,
                        (unsigned)expected);
}

static int32_t onnxc_check_array(onnxc_context *context, const onnxc_value *values, int32_t got,
                                 int32_t expected, const char *what) {
    if (got != expected)
        return onnxc_report(context, ONNXC_WRONG_COUNT, "model '%.80s' has %d %s, got %d",
                            context->library->model->name, (int)expected, what, (int)got);
    if (expected > 0 && values == NULL)
        return onnxc_report(context, ONNXC_NULL_POINTER, "the array of %s is null", what);
    for (int32_t i = 0; i < expected; i++)
        if (!onnxc_sound_size(values->struct_size, sizeof *values)
            || onnxc_step(values, i)->struct_size != values->struct_size)
            return onnxc_report(context, ONNXC_WRONG_ABI,
                                "%s: struct_size of value %d is %u; sizeof(onnxc_value) is expected",
                                what, (int)i, (unsigned)onnxc_step(values, i)->struct_size);
    return ONNXC_OK;
}

/* Whether dims are what the port declares, symbolic ones aside. */
static bool onnxc_fits_port(const onnxc_port *port, const int64_t *dims) {
    for (int32_t axis = 0; axis < port->rank; axis++)
        if (port->dims[axis] >= 0 && port->dims[axis] != dims[axis]) return false;
    return true;
}

/* The first string whose length is negative or whose text is null; -1 when all are sound. */
static int64_t onnxc_unsound_string(const char *strings, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        onnxc_string string;
        memcpy(&string, strings + (int64_t)sizeof string * i, sizeof string);
        if (string.length < 0 || (string.length > 0 && string.data == NULL)) return i;
    }
    return -1;
}

/* Checks a tensor and sets its size. `port` is null for items of sequences. */
static int32_t onnxc_check_tensor(onnxc_context *context, const char *name, const onnxc_port *port,
                                  int32_t dtype, onnxc_value *value, bool needs_data) {
    char expected[256], got[256];
    if ((dtype != 0 && value->dtype != dtype) || onnxc_dtype_bytes(value->dtype) == 0)
        return onnxc_report(context, ONNXC_WRONG_DTYPE, "input '%.80s': expected %s, got %s",
                            name, dtype != 0 ? onnxc_dtype_name(dtype) : "a known element type",
                            onnxc_dtype_name(value->dtype));
    if (value->rank < 0 || value->rank > ONNXC_MAX_RANK)
        return onnxc_report(context, ONNXC_WRONG_RANK, "input '%.80s': rank %d is not in [0, %d]",
                            name, (int)value->rank, ONNXC_MAX_RANK);
    if (value->rank > 0 && value->dims == NULL)
        return onnxc_report(context, ONNXC_NULL_POINTER, "input '%.80s': dims is null", name);
    bool ranked = port != NULL && port->rank >= 0;
    if (ranked && port->rank != value->rank)
        return onnxc_report(context, ONNXC_WRONG_RANK,
                            "input '%.80s': expected rank %d (shape %s), got rank %d (shape %s)",
                            name, (int)port->rank,
                            onnxc_shape_text(expected, sizeof expected, port->rank, port->dims,
                                             port->symbols),
                            (int)value->rank,
                            onnxc_shape_text(got, sizeof got, value->rank, value->dims, NULL));
    for (int32_t axis = 0; axis < value->rank; axis++)
        if (value->dims[axis] < 0)
            return onnxc_report(context, ONNXC_WRONG_SHAPE,
                                "input '%.80s': dimension %d is negative: %lld", name, (int)axis,
                                (long long)value->dims[axis]);
    if (ranked && !onnxc_fits_port(port, value->dims))
        return onnxc_report(context, ONNXC_WRONG_SHAPE, "input '%.80s': expected shape %s, got %s",
                            name,
                            onnxc_shape_text(expected, sizeof expected, port->rank, port->dims,
                                             port->symbols),
                            onnxc_shape_text(got, sizeof got, value->rank, value->dims, NULL));
    int64_t bytes = onnxc_tensor_bytes(value->dtype, value->rank, value->dims);
    if (bytes < 0)
        return onnxc_report(context, ONNXC_SIZE_OVERFLOW,
                            "input '%.80s': the size of shape %s overflows", name,
                            onnxc_shape_text(got, sizeof got, value->rank, value->dims, NULL));
    if (needs_data && bytes > 0 && value->data == NULL)
        return onnxc_report(context, ONNXC_NULL_POINTER, "input '%.80s': data is null", name);
    if (needs_data && value->bytes != 0 && value->bytes < (uint64_t)bytes)
        return onnxc_report(context, ONNXC_BUFFER_TOO_SMALL,
                            "input '%.80s': %lld bytes are needed, got %llu", name,
                            (long long)bytes, (unsigned long long)value->bytes);
    int64_t unsound = needs_data && value->dtype == ONNXC_STRING
        ? onnxc_unsound_string(value->data, bytes / (int64_t)sizeof(onnxc_string)) : -1;
    if (unsound >= 0)
        return onnxc_report(context, ONNXC_INVALID_VALUE,
                            "input '%.80s': string %lld has a negative length or no text", name,
                            (long long)unsound);
    value->bytes = (uint64_t)bytes;
    return ONNXC_OK;
}

enum { ONNXC_MAX_NESTING = 64 };

/* Makes an object of a caller's sequence, optional or map, whose tensors stay the caller's. `type` is the value's,
 * as onnxc_library has it. */
static int32_t onnxc_borrow_list(onnxc_context *context, const onnxc_port *port, const char *type,
                                 const onnxc_value *value, int32_t depth, onnxc_object **result) {
    const char *name = port->name;
    *result = NULL;
    if (value->rank != 1 || value->dims == NULL || value->dims[0] < 0
        || (value->dims[0] > 0 && value->data == NULL))
        return onnxc_report(context, ONNXC_WRONG_KIND,
                            "input '%.80s': %s needs rank 1, dims = {count} and its items as data",
                            name, onnxc_kind_name(value->kind));
    int64_t count = value->dims[0];
    if ((value->kind == ONNXC_OPTIONAL && count > 1) || (value->kind == ONNXC_MAP && count != 2)
        || depth > ONNXC_MAX_NESTING)
        return onnxc_report(context, ONNXC_WRONG_COUNT, "input '%.80s': %s of %lld items, depth %d",
                            name, onnxc_kind_name(value->kind), (long long)count, (int)depth);
    onnxc_object *list = onnxc_new_list(value->kind, port->dtype, count);
    if (list == NULL)
        return onnxc_out_of_memory(context, count < INT64_MAX / 64 ? 64 * count : INT64_MAX);
    const onnxc_value *items = value->data;
    int32_t status = ONNXC_OK;
    for (int64_t i = 0; i < count && status == ONNXC_OK; i++) {
        if (!onnxc_sound_size(items->struct_size, sizeof *items)) {
            status = onnxc_report(context, ONNXC_WRONG_ABI,
                                  "input '%.80s': struct_size of an item is %u", name,
                                  (unsigned)items->struct_size);
            break;
        }
        onnxc_value item = *onnxc_step(items, i);
        item.object = NULL;
        /* Behind the keys' kind and element type, in a map, are those of its values. */
        const char *held = *type == 0 ? type : type + 1 + (value->kind == ONNXC_MAP ? 2 * i : 0);
        if (*held != 0 && item.kind != *held) {
            status = onnxc_report(context, ONNXC_WRONG_KIND, "input '%.80s': item %lld: expected %s, got %s",
                                  name, (long long)i, onnxc_kind_name(*held), onnxc_kind_name(item.kind));
        } else if (item.kind == ONNXC_TENSOR) {
            status = onnxc_check_tensor(context, name, NULL, *held == 0 ? 0 : held[1], &item, true);
        } else if (item.kind == ONNXC_SEQUENCE || item.kind == ONNXC_MAP) {
            onnxc_object *inner;
            status = onnxc_borrow_list(context, port, held, &item, depth + 1, &inner);
            if (status == ONNXC_OK) item = inner->value;
        } else {
            status = onnxc_report(context, ONNXC_WRONG_KIND, "input '%.80s': item %lld is %s", name,
                                  (long long)i, onnxc_kind_name(item.kind));
        }
        if (status == ONNXC_OK) onnxc_list_insert(list, i, item); /* there is room */
    }
    if (status != ONNXC_OK) onnxc_drop(list);
    else *result = list;
    return status;
}

static int32_t onnxc_check_input(onnxc_context *context, int32_t index, bool needs_data) {
    static const int64_t nothing = 0;
    const onnxc_port *port = &context->library->model->inputs[index];
    onnxc_value *value = &context->inputs[index];
    value->object = NULL;
    if (value->kind == ONNXC_NONE && port->optional) {
        if (port->kind != ONNXC_OPTIONAL) return ONNXC_OK;
        *value = (onnxc_value){sizeof *value, ONNXC_OPTIONAL, port->dtype, 1, &nothing, NULL, 0, 0, NULL};
    }
    if (value->kind != port->kind)
        return onnxc_report(context, ONNXC_WRONG_KIND, "input '%.80s': expected %s, got %s",
                            port->name, onnxc_kind_name(port->kind), onnxc_kind_name(value->kind));
    if (value->kind == ONNXC_TENSOR)
        return onnxc_check_tensor(context, port->name, port, port->dtype, value, needs_data);
    int32_t status = onnxc_borrow_list(context, port, context->library->input_types[index], value, 0,
                                       &context->borrowed[index]);
    if (status == ONNXC_OK) *value = context->borrowed[index]->value;
    return status;
}

static bool onnxc_overlaps(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && (x <= y ? y - x < a_bytes : x - y < b_bytes);
}

/* Whether memory overlaps the tensor or a tensor in the list. */
static bool onnxc_overlaps_value(const void *memory, uint64_t bytes, const onnxc_value *value) {
    if (value->kind == ONNXC_NONE) return false;
    if (value->kind == ONNXC_TENSOR)
        return onnxc_overlaps(memory, bytes, value->data, value->bytes);
    for (int64_t i = 0; i < onnxc_list_length(value->object); i++)
        if (onnxc_overlaps_value(memory, bytes, &onnxc_list_items(value->object)[i])) return true;
    return false;
}

/* The memory of an input must be none that the run works in. */
static int32_t onnxc_check_apart(onnxc_context *context, int32_t index) {
    if (!onnxc_overlaps_value(context->workspace, (uint64_t)context->workspace_bytes,
                              &context->inputs[index]))
        return ONNXC_OK;
    return onnxc_report(context, ONNXC_OVERLAP, "the memory of input '%.80s' overlaps the workspace",
                        context->library->model->inputs[index].name);
}

/* Copies the inputs into the context and checks them. */
static int32_t onnxc_check_inputs(onnxc_context *context, const onnxc_value *inputs, int32_t count,
                                  bool needs_data) {
    int32_t expected = context->library->model->input_count;
    int32_t status = onnxc_check_array(context, inputs, count, expected, "inputs");
    for (int32_t i = 0; i < expected && status == ONNXC_OK; i++) {
        context->inputs[i] = *onnxc_step(inputs, i);
        status = onnxc_check_input(context, i, needs_data);
        if (status == ONNXC_OK && needs_data) status = onnxc_check_apart(context, i);
    }
    return status;
}

/* Whether an output has the memory of the input whose next value it is. */
static bool onnxc_is_state(const onnxc_model *model, const onnxc_context *context, int32_t input,
                           int32_t output) {
    return model->inputs[input].state == output + 1
        && context->inputs[input].data == context->outputs[output].data;
}

/* The memory that the caller gives for output `index` must be nobody else's, or that of its state. */
static int32_t onnxc_check_output(onnxc_context *context, int32_t index) {
    const onnxc_model *model = context->library->model;
    const onnxc_value *output = &context->outputs[index];
    const char *name = model->outputs[index].name;
    if (output->object != NULL)
        return onnxc_report(context, ONNXC_INVALID_VALUE,
                            "output '%.80s' still owns the result of an earlier run: release it first",
                            name);
    if (output->data == NULL) return ONNXC_OK;
    for (int32_t i = 0; i < model->input_count; i++)
        if (!onnxc_is_state(model, context, i, index)
            && onnxc_overlaps_value(output->data, output->capacity, &context->inputs[i]))
            return onnxc_report(context, ONNXC_OVERLAP,
                                "the memory of output '%.80s' overlaps input '%.80s'", name,
                                model->inputs[i].name);
    for (int32_t i = 0; i < index; i++)
        if (onnxc_overlaps(output->data, output->capacity, context->outputs[i].data,
                           context->outputs[i].capacity))
            return onnxc_report(context, ONNXC_OVERLAP,
                                "the memory of output '%.80s' overlaps output '%.80s'", name,
                                model->outputs[i].name);
    if (onnxc_overlaps(output->data, output->capacity, context->workspace,
                       (uint64_t)context->workspace_bytes))
        return onnxc_report(context, ONNXC_OVERLAP,
                            "the memory of output '%.80s' overlaps the workspace", name);
    return ONNXC_OK;
}

/* Copies what the caller says about outputs into the context and checks it. */
static int32_t onnxc_check_outputs(onnxc_context *context, const onnxc_value *outputs,
                                   int32_t count) {
    int32_t expected = context->library->model->output_count;
    int32_t status = onnxc_check_array(context, outputs, count, expected, "outputs");
    for (int32_t i = 0; i < expected && status == ONNXC_OK; i++) {
        onnxc_value *output = &context->outputs[i];
        *output = *onnxc_step(outputs, i);
        if (output->data == NULL) output->capacity = 0;
        status = onnxc_check_output(context, i);
        output->object = NULL;
        output->kind = ONNXC_NONE; /* until the run produces it */
    }
    return status;
}
