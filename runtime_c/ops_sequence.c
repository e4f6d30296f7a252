/* SPDX-License-Identifier: Apache-2.0 */
/* ops_sequence.c - operators on sequences and optionals. Their numpy twins are in
 * onnxc/ir/runtime_twins.py.
 *
 * The slot of a result holds a reference to it. Tensors that enter a sequence are copied once, from
 * then on only references move. */

static int32_t onnxc_fail_position(onnxc_context *context, int64_t given, int64_t length) {
    return onnxc_report(context, ONNXC_INDEX_OUT_OF_RANGE,
                        "%.300s: index %lld is out of range: the sequence has %lld items",
                        onnxc_node_name(context, context->node), (long long)given, (long long)length);
}

/* Where a position tensor points to in a list, counted from the end if negative; `length` itself is
 * allowed when `past` is set. False, the error recorded, when it is outside. */
static bool onnxc_position(onnxc_context *context, const onnxc_value *tensor, int64_t length, bool past,
                           int64_t *position) {
    int64_t given = onnxc_integer_at(tensor, 0);
    *position = given < 0 ? given + length : given;
    if (*position >= 0 && *position < length + past) return true;
    onnxc_fail_position(context, given, length);
    return false;
}

/* Appends a copy of, or a new reference to, a value; false when there is no memory. */
static bool onnxc_append(onnxc_object *list, const onnxc_value *value, int64_t position) {
    onnxc_object *item = onnxc_own(value);
    if (item != NULL && onnxc_list_insert(list, position, item->value)) return true;
    onnxc_drop(item);
    return false;
}

/* Makes `out` the list, or records that there is no memory for it. */
static int32_t onnxc_return_list(onnxc_context *context, onnxc_value *out, int64_t slot,
                                 onnxc_object *list, bool complete) {
    if (!complete) {
        onnxc_drop(list);
        list = NULL;
    }
    return onnxc_call_object(context, out, slot, list);
}

static int32_t onnxc_make_list(onnxc_context *context, int32_t kind, const onnxc_value *in,
                               int32_t count, onnxc_value *out, int64_t slot) {
    onnxc_object *list = onnxc_new_list(kind, count > 0 ? in->dtype : 0, count);
    bool complete = list != NULL;
    for (int32_t i = 0; i < count && complete; i++) complete = onnxc_append(list, &in[i], i);
    return onnxc_return_list(context, out, slot, list, complete);
}

/* Makes `out` one of a list's items. One that the caller lent stays lent. */
static int32_t onnxc_return_item(onnxc_context *context, onnxc_value *out, int64_t slot,
                                 const onnxc_value *item) {
    if (slot < 0) { /* an output of the model */
        int32_t status = onnxc_output_value(context, context->outputs, (int32_t)~slot, item);
        *out = context->outputs[~slot];
        return status;
    }
    if (item->object != NULL) onnxc_hold(context, (int32_t)slot, item->object);
    *out = *item;
    return ONNXC_OK;
}

/* sequence_construct: values... -> the sequence of them. No attributes. */
ONNXC_OPERATOR(sequence_construct) {
    return onnxc_make_list(context, ONNXC_SEQUENCE, in, in_count, out, attributes[0]);
}

/* sequence_empty: -> the sequence of nothing. No attributes. */
ONNXC_OPERATOR(sequence_empty) {
    return onnxc_make_list(context, ONNXC_SEQUENCE, in, 0, out, attributes[0]);
}

/* sequence_at: sequence, position -> the value there. No attributes. */
ONNXC_OPERATOR(sequence_at) {
    int64_t position;
    if (!onnxc_position(context, &in[1], onnxc_list_length(in->object), false, &position))
        return context->status;
    return onnxc_return_item(context, out, attributes[0], &onnxc_list_items(in->object)[position]);
}

/* sequence_length: sequence -> its number of values, int64 scalar. No attributes. */
ONNXC_OPERATOR(sequence_length) {
    int64_t *length = onnxc_call_output(context, out, attributes[0], ONNXC_INT64, 0, NULL);
    if (length == NULL) return context->status;
    *length = onnxc_list_length(in->object);
    return ONNXC_OK;
}

/* sequence_insert: sequence, value[, position] -> the sequence with the value before that position,
 * or at its end. No attributes. */
ONNXC_OPERATOR(sequence_insert) {
    int64_t position = onnxc_list_length(in->object);
    if (in_count > 2 && in[2].kind != ONNXC_NONE
        && !onnxc_position(context, &in[2], position, true, &position))
        return context->status;
    onnxc_object *list = onnxc_copy_list(in->object);
    bool complete = list != NULL && onnxc_append(list, &in[1], position);
    return onnxc_return_list(context, out, attributes[0], list, complete);
}

/* sequence_erase: sequence[, position] -> the sequence without the value there, or the last. No
 * attributes. */
ONNXC_OPERATOR(sequence_erase) {
    int64_t length = onnxc_list_length(in->object), position = length - 1;
    if (in_count > 1 && in[1].kind != ONNXC_NONE) {
        if (!onnxc_position(context, &in[1], length, false, &position)) return context->status;
    } else if (length == 0) {
        return onnxc_fail_position(context, -1, length);
    }
    onnxc_object *list = onnxc_copy_list(in->object);
    if (list != NULL) {
        onnxc_value *items = onnxc_list_items(list);
        onnxc_drop(items[position].object);
        memmove(items + position, items + position + 1,
                sizeof *items * (size_t)(length - position - 1));
        list->dims[0] = length - 1;
        list->value.bytes -= sizeof *items;
    }
    return onnxc_return_list(context, out, attributes[0], list, list != NULL);
}

/* optional: [value] -> the optional that holds it, or nothing. No attributes. */
ONNXC_OPERATOR(optional) {
    bool given = in_count > 0 && in->kind != ONNXC_NONE;
    return onnxc_make_list(context, ONNXC_OPTIONAL, in, given, out, attributes[0]);
}

/* optional_get_element: optional -> what it holds. Anything else is returned as it is. No attributes. */
ONNXC_OPERATOR(optional_get_element) {
    if (in->kind != ONNXC_OPTIONAL) return onnxc_return_item(context, out, attributes[0], in);
    if (onnxc_list_length(in->object) == 0) return onnxc_raise(context, ONNXC_EMPTY_OPTIONAL, 0);
    return onnxc_return_item(context, out, attributes[0], onnxc_list_items(in->object));
}

/* optional_has_element: [optional] -> whether it holds a value, bool scalar. No attributes. */
ONNXC_OPERATOR(optional_has_element) {
    uint8_t *has = onnxc_call_output(context, out, attributes[0], ONNXC_BOOL, 0, NULL);
    if (has == NULL) return context->status;
    bool given = in_count > 0 && in->kind != ONNXC_NONE;
    *has = given && (in->kind != ONNXC_OPTIONAL || onnxc_list_length(in->object) > 0);
    return ONNXC_OK;
}

/* rank_of: tensor -> its number of axes, int64 scalar. No attributes. */
ONNXC_OPERATOR(rank_of) {
    int64_t *rank = onnxc_call_output(context, out, attributes[0], ONNXC_INT64, 0, NULL);
    if (rank == NULL) return context->status;
    *rank = in->rank;
    return ONNXC_OK;
}

/* with_any_rank: tensor -> the same as an object that knows its dims. No attributes. */
ONNXC_OPERATOR(with_any_rank) {
    return onnxc_call_object(context, out, attributes[0], onnxc_own(in));
}

/* with_rank: tensor -> the same; who asks checks its rank. No attributes. */
ONNXC_OPERATOR(with_rank) {
    return onnxc_return_item(context, out, attributes[0], in);
}

/* with_leading_ones: tensor -> the same of at least so many axes, ones before those that it has. Attributes:
 * how many, and how many of the ones come behind the axis of a vector. */
ONNXC_OPERATOR(with_leading_ones) {
    int32_t rank = (int32_t)attributes[1], ones = rank > in->rank ? rank - in->rank : 0;
    int32_t before = ones - (in->rank == 1 ? (int32_t)attributes[2] : 0), behind = before + in->rank;
    int64_t padded[ONNXC_MAX_RANK], slot = attributes[0], *dims = padded;
    if (ones == 0) return onnxc_return_item(context, out, slot, in);
    onnxc_value item = *in;
    if (slot < 0) item.object = NULL; /* an output of the model is a copy with these dims */
    else dims = onnxc_buffer(context, (int32_t)slot, sizeof padded);
    if (dims == NULL) return context->status;
    for (int32_t a = 0; a < rank; a++) dims[a] = a < before || a >= behind ? 1 : in->dims[a - before];
    item.rank = rank;
    item.dims = dims;
    return onnxc_return_item(context, out, slot, &item);
}

/* elements_of: tensor of numbers -> its elements along one axis. No attributes. */
ONNXC_OPERATOR(elements_of) {
    int64_t count = onnxc_elements(in->rank, in->dims);
    void *elements = onnxc_call_output(context, out, attributes[0], in->dtype, 1, &count);
    if (elements == NULL) return context->status;
    memcpy(elements, in->data, (size_t)(count * onnxc_dtype_bytes(in->dtype)));
    return ONNXC_OK;
}

/* The result's memory: strings need an object, which keeps their characters. */
static char *onnxc_joined_output(onnxc_context *context, onnxc_value *out, int64_t slot, int32_t dtype,
                                 int32_t rank, const int64_t *dims) {
    if (dtype != ONNXC_STRING) return onnxc_call_output(context, out, slot, dtype, rank, dims);
    onnxc_object *object = onnxc_new_strings(context, rank, dims, 0);
    if (object == NULL) return NULL;
    return onnxc_call_object(context, out, slot, object) == ONNXC_OK ? out->data : NULL;
}

/* Sets the dims of tensors joined along an axis, an old one or a new one; a status. */
static int32_t onnxc_joined_dims(onnxc_context *context, const onnxc_object *list, int64_t axis,
                                 bool new_axis, int64_t *dims) {
    const onnxc_value *items = onnxc_list_items(list), *first = items;
    int32_t rank = first->rank + new_axis;
    int64_t count = onnxc_list_length(list);
    for (int32_t a = 0, from = 0; a < rank; a++) dims[a] = new_axis && a == axis ? count : first->dims[from++];
    for (int64_t i = 1; i < count; i++) {
        if (items[i].kind != ONNXC_TENSOR) return onnxc_raise(context, ONNXC_WRONG_KIND, items[i].kind);
        if (items[i].rank != first->rank || items[i].dtype != first->dtype)
            return onnxc_report(context, ONNXC_RANK_MISMATCH,
                                "%.300s: %s of rank %d cannot be joined with %s of rank %d",
                                onnxc_node_name(context, context->node), onnxc_dtype_name(items[i].dtype),
                                (int)items[i].rank, onnxc_dtype_name(first->dtype), (int)first->rank);
        for (int32_t a = 0; a < first->rank; a++)
            if ((new_axis || a != axis) && !onnxc_same_size(context, first->dims[a], items[i].dims[a]))
                return context->status;
        if (!new_axis && !onnxc_add(dims[axis], items[i].dims[axis], &dims[axis]))
            return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, dims[axis]);
    }
    return ONNXC_OK;
}

/* concat_from_sequence: sequence -> its tensors one after the other. Attributes: axis (negative: from
 * the end), 1 where that is a new axis. */
ONNXC_OPERATOR(concat_from_sequence) {
    const onnxc_value *items = onnxc_list_items(in->object);
    int64_t count = onnxc_list_length(in->object), axis = attributes[1], dims[ONNXC_MAX_RANK + 1];
    bool new_axis = attributes[2] != 0;
    if (count == 0)
        return onnxc_report(context, ONNXC_INVALID_VALUE, "%.300s: the sequence has no tensors to join",
                            onnxc_node_name(context, context->node));
    if (items->kind != ONNXC_TENSOR) return onnxc_raise(context, ONNXC_WRONG_KIND, items->kind);
    int32_t rank = items->rank + new_axis, dtype = items->dtype;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || rank > ONNXC_MAX_RANK)
        return onnxc_report(context, ONNXC_RANK_MISMATCH, "%.300s: tensors of rank %d have no axis %lld to join",
                            onnxc_node_name(context, context->node), (int)items->rank,
                            (long long)attributes[1]);
    int32_t status = onnxc_joined_dims(context, in->object, axis, new_axis, dims);
    if (status != ONNXC_OK) return status;
    char *joined = onnxc_joined_output(context, out, attributes[0], dtype, rank, dims);
    if (joined == NULL) return context->status;
    int64_t outer = onnxc_elements((int32_t)axis, dims);
    for (int64_t o = 0; o < outer && out->bytes > 0; o++)
        for (int64_t i = 0; i < count; i++) {
            size_t run = (size_t)(items[i].bytes / (uint64_t)outer);
            if (run > 0) onnxc_copy(joined, (const char *)items[i].data + run * (size_t)o, run);
            joined += run;
        }
    return dtype == ONNXC_STRING ? onnxc_give_text(context, out, out->object) : ONNXC_OK;
}

/* Where parts of a tensor are put: one after the other in `block`, or each in memory of its own where that is
 * null (texts also have characters). */
typedef struct onnxc_parts {
    onnxc_object *block;
    char *next;
} onnxc_parts;

/* Room for so many parts of x, of any sizes that add up to it; false when there is no memory. */
static bool onnxc_parts_of(const onnxc_value *x, int64_t count, onnxc_parts *parts) {
    int64_t bytes;
    *parts = (onnxc_parts){NULL, NULL};
    if (x->dtype == ONNXC_STRING) return true;
    if (!onnxc_multiply(count, onnxc_tensor_head(x->rank) + ONNXC_ALIGNMENT, &bytes)
        || !onnxc_add(bytes, (int64_t)x->bytes, &bytes))
        return false;
    parts->block = onnxc_new_tensor(ONNXC_UINT8, 1, &bytes);
    if (parts->block != NULL) parts->next = parts->block->value.data;
    return parts->block != NULL;
}

static onnxc_object *onnxc_new_part(onnxc_parts *parts, int32_t dtype, int32_t rank, const int64_t *dims) {
    if (parts->block == NULL) return onnxc_new_tensor(dtype, rank, dims);
    onnxc_object *part = onnxc_tensor_in(parts->next, parts->block, dtype, rank, dims);
    int64_t bytes;
    onnxc_round_up((int64_t)part->value.bytes, &bytes);
    parts->next += onnxc_tensor_head(rank) + bytes;
    return part;
}

/* The part [begin, end) of a tensor along an axis, which is dropped unless `keeps`; null when there is
 * no memory. */
static onnxc_object *onnxc_cut(const onnxc_value *x, int64_t axis, int64_t begin, int64_t end, bool keeps,
                               onnxc_parts *parts) {
    int64_t dims[ONNXC_MAX_RANK], size = onnxc_dtype_bytes(x->dtype);
    int32_t rank = 0;
    for (int32_t a = 0; a < x->rank; a++)
        if (a != axis || keeps) dims[rank++] = a == axis ? end - begin : x->dims[a];
    onnxc_object *part = onnxc_new_part(parts, x->dtype, rank, dims);
    if (part == NULL || part->value.bytes == 0) return part;
    int64_t outer = onnxc_elements((int32_t)axis, x->dims);
    int64_t inner = size * onnxc_elements(x->rank - (int32_t)axis - 1, x->dims + axis + 1);
    char *to = part->value.data;
    for (int64_t o = 0; o < outer; o++, to += (end - begin) * inner)
        onnxc_copy(to, (const char *)x->data + inner * (x->dims[axis] * o + begin),
                   (uint64_t)((end - begin) * inner));
    if (x->dtype == ONNXC_STRING
        && !onnxc_own_text(part->value.data, onnxc_elements(rank, dims), &part->text)) {
        onnxc_drop(part);
        return NULL;
    }
    return part;
}

/* split_to_sequence: x[, split] -> x cut along an axis: into parts of the sizes that split has, whatever its
 * rank, into parts of one size (the last may be smaller) when split is a scalar, else into single slices.
 * Attributes: axis, 0 where single slices lose the axis. */
ONNXC_OPERATOR(split_to_sequence) {
    const onnxc_value *split = in_count > 1 && in[1].kind != ONNXC_NONE ? &in[1] : NULL;
    int64_t axis = attributes[1], length = in->dims[axis], begin = 0;
    bool listed = split != NULL && split->rank > 0, keeps = split != NULL || attributes[2] != 0;
    int64_t size = split != NULL && !listed ? onnxc_integer_at(split, 0) : 1;
    if (size < 1)
        return onnxc_report(context, ONNXC_INVALID_VALUE, "%.300s: the parts have %lld elements",
                            onnxc_node_name(context, context->node), (long long)size);
    int64_t parts = listed ? onnxc_elements(split->rank, split->dims) : length / size + (length % size != 0);
    onnxc_object *list = onnxc_new_list(ONNXC_SEQUENCE, in->dtype, parts);
    onnxc_parts made;
    bool complete = onnxc_parts_of(in, parts, &made) && list != NULL;
    int32_t status = ONNXC_OK;
    for (int64_t k = 0; k < parts && complete; k++) {
        if (listed) size = onnxc_integer_at(split, k);
        if (listed && (size < 0 || size > length - begin)) {
            status = onnxc_report(context, ONNXC_INVALID_VALUE,
                                  "%.300s: part %lld has %lld elements where %lld are left",
                                  onnxc_node_name(context, context->node), (long long)k, (long long)size,
                                  (long long)(length - begin));
            break;
        }
        int64_t end = size < length - begin ? begin + size : length;
        onnxc_object *part = onnxc_cut(in, axis, begin, end, keeps, &made);
        complete = part != NULL;
        if (complete) onnxc_list_insert(list, k, part->value); /* there is room */
        begin = end;
    }
    onnxc_drop(made.block);
    if (complete && status == ONNXC_OK && begin != length)
        status = onnxc_report(context, ONNXC_INVALID_VALUE,
                              "%.300s: the parts have %lld elements together where there are %lld",
                              onnxc_node_name(context, context->node), (long long)begin, (long long)length);
    if (status != ONNXC_OK) {
        onnxc_drop(list);
        return status;
    }
    return onnxc_return_list(context, out, attributes[0], list, complete);
}
