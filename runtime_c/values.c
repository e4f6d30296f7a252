/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - heap values: tensors, sequences, optionals and maps that outlive a step of the run.
 *
 * An object holds an onnxc_value, exactly as callers see it, and counts its references. Objects are
 * immutable once shared; at a count of one they may change in place. Items of a sequence are
 * onnxc_values: with an object they hold a reference to it, without one they are tensors that the
 * caller lent for the run, copied before they leave it. An object may lie in the memory of an owner, and is
 * never freed itself: the maps of a sequence, or its tensors, which share one block. */

struct onnxc_object {
    atomic_int references;
    onnxc_value value;
    char *text;     /* what the elements of a string tensor point to */
    int64_t room;   /* items that fit, of sequences; bytes that are free, of a block of texts */
    onnxc_object *owner; /* whose memory this is in, kept by a reference; or null */
    bool whole;     /* a sequence or map in which nothing is lent */
    int64_t dims[]; /* what value.dims points to */
};

static void onnxc_retain(onnxc_object *object) {
    if (object != NULL) atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
}

static void onnxc_drop(onnxc_object *object) {
    if (object == NULL) return;
    if (atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) != 1) return;
    if (object->value.kind != ONNXC_TENSOR) {
        onnxc_value *items = object->value.data;
        for (int64_t i = 0; i < object->dims[0]; i++) onnxc_drop(items[i].object);
        if (object->owner == NULL) onnxc_free(items);
    }
    if (object->owner != NULL) {
        onnxc_drop(object->owner);
        return;
    }
    onnxc_free(object->text);
    onnxc_free(object);
}

ONNXC_HIDDEN void ONNXC_SYMBOL(release)(onnxc_value *value) {
    if (value == NULL || value->object == NULL) return;
    onnxc_drop(value->object);
    value->object = NULL;
    value->data = NULL;
    value->dims = NULL;
    value->bytes = 0;
}

/* The bytes before the elements of a tensor object. */
static int64_t onnxc_tensor_head(int32_t rank) {
    int64_t head;
    onnxc_round_up((int64_t)sizeof(onnxc_object) + 8 * rank, &head);
    return head;
}

/* A tensor of these (valid) dims in memory that has room for it, its elements not initialised. owner: whose
 * memory that is, or null. */
static onnxc_object *onnxc_tensor_in(void *memory, onnxc_object *owner, int32_t dtype, int32_t rank,
                                     const int64_t *dims) {
    onnxc_object *object = memory;
    memset(object, 0, sizeof *object);
    atomic_init(&object->references, 1);
    object->owner = owner;
    onnxc_retain(owner);
    if (rank > 0) memcpy(object->dims, dims, sizeof *dims * (size_t)rank);
    object->value = (onnxc_value){sizeof(onnxc_value), ONNXC_TENSOR, dtype, rank, object->dims,
                                  (char *)memory + onnxc_tensor_head(rank),
                                  (uint64_t)onnxc_tensor_bytes(dtype, rank, dims), 0, object};
    return object;
}

/* A tensor of these (valid) dims, its elements not initialised; null when there is no memory. */
static onnxc_object *onnxc_new_tensor(int32_t dtype, int32_t rank, const int64_t *dims) {
    int64_t bytes = onnxc_tensor_bytes(dtype, rank, dims), total;
    if (bytes < 0 || !onnxc_add(onnxc_tensor_head(rank), bytes, &total)) return NULL;
    void *memory = onnxc_allocate_tensor(total);
    return memory == NULL ? NULL : onnxc_tensor_in(memory, NULL, dtype, rank, dims);
}

/* The bytes of `count` strings with a NUL behind each; false when they overflow. */
static bool onnxc_text_bytes(const onnxc_string *strings, int64_t count, int64_t *bytes) {
    *bytes = 0;
    for (int64_t i = 0; i < count; i++)
        if (strings[i].length < 0 || !onnxc_add(*bytes, strings[i].length + 1, bytes)) return false;
    return true;
}

/* Copies the bytes of strings to `text`, with a NUL behind each, and lets the strings be there. */
static void onnxc_move_text(onnxc_string *strings, int64_t count, char *text) {
    for (int64_t i = 0; i < count; i++) {
        size_t length = (size_t)strings[i].length;
        if (length > 0) memcpy(text, strings[i].data, length);
        strings[i].data = text;
        text[length] = 0;
        text += length + 1;
    }
}

/* Gives `count` strings bytes of their own, in one block; false when there is no memory. */
static bool onnxc_own_text(onnxc_string *strings, int64_t count, char **block) {
    int64_t bytes;
    *block = NULL;
    if (!onnxc_text_bytes(strings, count, &bytes)) return false;
    char *text = onnxc_allocate(bytes);
    if (text == NULL) return false;
    *block = text;
    onnxc_move_text(strings, count, text);
    return true;
}

ONNXC_HIDDEN int64_t ONNXC_SYMBOL(read_texts)(void *const *handles, int64_t count,
                                              const char *(*text)(void *handle, int64_t *length),
                                              onnxc_string *strings) {
    for (int64_t i = 0; i < count; i++)
        if ((strings[i].data = text(handles[i], &strings[i].length)) == NULL) return i;
    return count;
}

/* `errors`: bytes that are no UTF-8 become what Python calls surrogates. */
ONNXC_HIDDEN int64_t ONNXC_SYMBOL(write_texts)(const onnxc_string *strings, int64_t count,
                                               void *(*make)(const char *data, int64_t length, const char *errors),
                                               void (*drop)(void *handle), void **handles) {
    for (int64_t i = 0; i < count; i++) {
        void *text = make(strings[i].data, strings[i].length, "surrogateescape"), *before = handles[i];
        if (text == NULL) return i;
        handles[i] = text;
        drop(before);
    }
    return count;
}

/* An object with the tensor's elements; null when there is no memory. */
static onnxc_object *onnxc_copy_tensor(const onnxc_value *tensor) {
    onnxc_object *copy = onnxc_new_tensor(tensor->dtype, tensor->rank, tensor->dims);
    if (copy == NULL) return NULL;
    if (copy->value.bytes > 0) onnxc_copy(copy->value.data, tensor->data, copy->value.bytes);
    int64_t count = onnxc_elements(tensor->rank, tensor->dims);
    if (tensor->dtype == ONNXC_STRING && !onnxc_own_text(copy->value.data, count, &copy->text)) {
        onnxc_drop(copy);
        return NULL;
    }
    return copy;
}

/* An empty sequence, optional or map with room for items; null when there is no memory. */
static onnxc_object *onnxc_new_list(int32_t kind, int32_t dtype, int64_t room) {
    int64_t bytes;
    if (!onnxc_multiply(room > 0 ? room : 1, (int64_t)sizeof(onnxc_value), &bytes)) return NULL;
    onnxc_object *object = onnxc_allocate((int64_t)sizeof *object + 8);
    onnxc_value *items = onnxc_allocate(bytes);
    if (object == NULL || items == NULL) {
        onnxc_free(object);
        onnxc_free(items);
        return NULL;
    }
    memset(object, 0, sizeof *object + 8);
    atomic_init(&object->references, 1);
    object->room = room;
    object->value = (onnxc_value){sizeof(onnxc_value), kind, dtype, 1, object->dims, items, 0, 0,
                                  object};
    return object;
}

static int64_t onnxc_list_length(const onnxc_object *list) {
    return list->dims[0];
}

static onnxc_value *onnxc_list_items(const onnxc_object *list) {
    return list->value.data;
}

/* Inserts `item`, whose reference (if any) the list takes over, at `position`; false, the item
 * untouched, when there is no memory. */
static bool onnxc_list_insert(onnxc_object *list, int64_t position, onnxc_value item) {
    int64_t count = onnxc_list_length(list), bytes;
    if (count >= list->room) {
        int64_t room = list->room < 4 ? 8 : list->room / 2 * 3;
        if (!onnxc_multiply(room, (int64_t)sizeof(onnxc_value), &bytes)) return false;
        onnxc_value *items = onnxc_allocate(bytes);
        if (items == NULL) return false;
        memcpy(items, list->value.data, sizeof *items * (size_t)count);
        onnxc_free(list->value.data);
        list->value.data = items;
        list->room = room;
    }
    onnxc_value *items = onnxc_list_items(list);
    memmove(items + position + 1, items + position, sizeof *items * (size_t)(count - position));
    items[position] = item;
    list->dims[0] = count + 1;
    list->value.bytes += sizeof(onnxc_value);
    if (list->value.dtype == 0) list->value.dtype = item.dtype;
    return true;
}

/* Memory for texts in the last block of a list of such, or in a new one that is twice as large; null when there is
 * none. Blocks stay where they are, and go when the list does. */
static char *onnxc_list_text(onnxc_object *list, int64_t bytes) {
    int64_t count = onnxc_list_length(list);
    onnxc_object *block = count > 0 ? onnxc_list_items(list)[count - 1].object : NULL;
    if (block == NULL || block->room < bytes) {
        int64_t last = block != NULL ? (int64_t)block->value.bytes : 0, room = last > bytes / 2 ? 2 * last : bytes;
        block = onnxc_new_tensor(ONNXC_UINT8, 1, &room);
        if (block == NULL) block = onnxc_new_tensor(ONNXC_UINT8, 1, &bytes);
        if (block == NULL || !onnxc_list_insert(list, count, block->value)) {
            onnxc_drop(block);
            return NULL;
        }
        block->room = (int64_t)block->value.bytes;
    }
    char *text = (char *)block->value.data + ((int64_t)block->value.bytes - block->room);
    block->room -= bytes;
    return text;
}

/* The same items, lent ones stay lent; null when there is no memory. */
static onnxc_object *onnxc_copy_list(const onnxc_object *list) {
    int64_t count = onnxc_list_length(list);
    onnxc_object *copy = onnxc_new_list(list->value.kind, list->value.dtype, count + 1);
    if (copy == NULL) return NULL;
    for (int64_t i = 0; i < count; i++) {
        onnxc_value item = onnxc_list_items(list)[i];
        onnxc_retain(item.object);
        onnxc_list_insert(copy, i, item); /* there is room */
    }
    return copy;
}

/* A new reference to the value that depends on no lent memory; null when there is no memory. */
static onnxc_object *onnxc_own(const onnxc_value *value) {
    if (value->kind == ONNXC_TENSOR && value->object == NULL) return onnxc_copy_tensor(value);
    if (value->kind == ONNXC_TENSOR || value->object->whole) {
        onnxc_retain(value->object);
        return value->object;
    }
    onnxc_object *copy = onnxc_new_list(value->kind, value->dtype, onnxc_list_length(value->object));
    for (int64_t i = 0; copy != NULL && i < onnxc_list_length(value->object); i++) {
        onnxc_object *item = onnxc_own(&onnxc_list_items(value->object)[i]);
        if (item == NULL) {
            onnxc_drop(copy);
            return NULL;
        }
        onnxc_list_insert(copy, i, item->value);
    }
    return copy;
}
