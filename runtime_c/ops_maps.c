/* SPDX-License-Identifier: Apache-2.0 */
/* ops_maps.c - maps: made of rows of numbers, and taken apart. A map's items are its keys and its values, two
 * vectors of one length. */

/* A map in the memory of `owner`, which has ONNXC_MAP_BYTES for it: of keys, and of values that are there too. */
enum { ONNXC_MAP_BYTES = sizeof(onnxc_object) + 8 + 2 * sizeof(onnxc_value) };

static onnxc_value onnxc_map_in(onnxc_object *owner, char *memory, onnxc_object *keys, onnxc_value values) {
    onnxc_object *map = (onnxc_object *)memory;
    onnxc_value *items = (onnxc_value *)(memory + sizeof *map + 8);
    memset(map, 0, sizeof *map + 8);
    atomic_init(&map->references, 1);
    map->owner = owner;
    map->whole = true;
    map->dims[0] = 2;
    map->value = (onnxc_value){sizeof(onnxc_value), ONNXC_MAP, values.dtype, 1, map->dims, items,
                               2 * sizeof *items, 0, map};
    items[0] = keys->value;
    items[1] = values;
    onnxc_retain(keys);
    onnxc_retain(owner);
    return map->value;
}

/* zip_map: x float32 [N, C] or [C], keys [C] -> the sequence of the maps from keys to each row. No
 * attributes. */
ONNXC_OPERATOR(zip_map) {
    int64_t rows = in->rank > 1 ? in->dims[0] : 1, columns = in->dims[in->rank - 1], maps, bytes;
    if (!onnxc_same_size(context, in[1].dims[0], columns)) return context->status;
    if (!onnxc_multiply(rows, ONNXC_MAP_BYTES, &maps) || !onnxc_add(maps, (int64_t)in->bytes, &bytes))
        return onnxc_raise(context, ONNXC_SIZE_OVERFLOW, rows);
    onnxc_object *list = onnxc_new_list(ONNXC_SEQUENCE, 0, rows), *keys = onnxc_copy_tensor(&in[1]);
    onnxc_object *block = onnxc_new_tensor(ONNXC_UINT8, 1, &bytes);
    bool complete = list != NULL && keys != NULL && block != NULL;
    if (complete) {
        list->whole = true;
        char *values = (char *)block->value.data + maps;
        if (in->bytes > 0) memcpy(values, in->data, in->bytes);
        for (int64_t i = 0; i < rows; i++, values += 4 * columns) {
            onnxc_value row = {sizeof row, ONNXC_TENSOR, in->dtype, 1, keys->dims, values,
                               (uint64_t)(4 * columns), 0, NULL};
            char *memory = (char *)block->value.data + ONNXC_MAP_BYTES * i;
            onnxc_list_insert(list, i, onnxc_map_in(block, memory, keys, row)); /* there is room */
        }
    }
    onnxc_drop(keys);
    onnxc_drop(block);
    return onnxc_return_list(context, out, attributes[0], list, complete);
}

/* map_parts: map -> its keys [n] and its values [n]. Attributes: the types of both. */
ONNXC_OPERATOR(map_parts) {
    const onnxc_value *items = onnxc_list_items(in->object);
    if (items[0].kind != ONNXC_TENSOR || items[1].kind != ONNXC_TENSOR || items[0].rank != 1
        || items[1].rank != 1 || items[0].dims[0] != items[1].dims[0])
        return onnxc_raise(context, ONNXC_DIMS_MISMATCH, onnxc_list_length(in->object));
    for (int32_t k = 0; k < out_count; k++) {
        if (items[k].dtype != attributes[out_count + k]) return onnxc_raise(context, ONNXC_WRONG_DTYPE, items[k].dtype);
        void *part = onnxc_call_output(context, &out[k], attributes[k], items[k].dtype, 1, items[k].dims);
        if (part == NULL) return context->status;
        if (out[k].bytes > 0) memcpy(part, items[k].data, out[k].bytes);
    }
    return ONNXC_OK;
}
