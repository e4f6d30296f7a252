/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - aligned allocation and checked arithmetic on sizes.
 *
 * Memory comes from the allocator of the context that the thread has entered, else from ONNXC_MALLOC, which tests
 * replace to make the nth request fail. Every block knows where it came from: outputs are freed anywhere. What large
 * tensors leave is kept for the next ones. */

#ifndef ONNXC_MALLOC
#define ONNXC_MALLOC(bytes) malloc(bytes)
#define ONNXC_FREE(pointer) free(pointer)
#endif

static _Thread_local onnxc_allocator *onnxc_entered_allocator;

/* Whether there was a context with an allocator of its own. Until then no thread touches its variable: in a library
 * that was opened at run time the first touch takes memory, and the C library ends the process where it has none. */
static atomic_int onnxc_allocators_given;

static onnxc_allocator *onnxc_thread_allocator(void) {
    bool given = atomic_load_explicit(&onnxc_allocators_given, memory_order_relaxed);
    return given ? onnxc_entered_allocator : NULL;
}

/* Has the thread's memory come from an allocator, or null; from where it came before. */
static onnxc_allocator *onnxc_allocate_from(onnxc_allocator *allocator) {
    onnxc_allocator *outer = onnxc_thread_allocator();
    if (allocator != NULL) atomic_store_explicit(&onnxc_allocators_given, 1, memory_order_relaxed);
    if (allocator != outer) onnxc_entered_allocator = allocator;
    return outer;
}

/* memcpy of what may be long, in pieces where the target begins 1 to 31 bytes behind the source, but for a multiple
 * of 4096: the instruction by which C libraries copy 2 KiB and more is twenty times slower there on some
 * processors. */
static void onnxc_copy(void *target, const void *source, uint64_t bytes) {
    enum { ALIASED = 4096, STALLED = 31, PIECE = 1024 };
    char *to = target;
    const char *from = source;
    if (((uintptr_t)to - (uintptr_t)from - 1) % ALIASED < STALLED)
        for (; bytes > PIECE; bytes -= PIECE, to += PIECE, from += PIECE) memcpy(to, from, PIECE);
    memcpy(to, from, (size_t)bytes);
}

/* What precedes a block. */
typedef struct {
    onnxc_allocator *allocator; /* that frees it, or null */
    void *start;                /* what it is freed by */
    int64_t room;               /* its bytes, where it may be kept for another tensor, else 0 */
} onnxc_block;

static onnxc_block *onnxc_block_of(void *pointer) {
    return (onnxc_block *)pointer - 1;
}

static void onnxc_give_back(void *pointer) {
    onnxc_block *block = onnxc_block_of(pointer);
    if (block->allocator != NULL) block->allocator->deallocate(block->allocator, block->start);
    else ONNXC_FREE(block->start);
}

/* The blocks of large tensors that nobody has any more, for those to come, the latest last. The system gives fresh
 * memory as pages that it clears when they are first touched, which takes longer than to write a result. Who finds
 * the list in use goes on without it: nobody waits. */
enum { ONNXC_SPARES = 64, ONNXC_LEAST_SPARE = 1 << 15, ONNXC_SPARE_BYTES = 1 << 28 };
static void *onnxc_spares[ONNXC_SPARES];
static int32_t onnxc_spare_count;
static int64_t onnxc_spare_bytes;
static atomic_int onnxc_context_count; /* without a context there are no tensors to come */

static void *onnxc_spare_taken(int32_t index) {
    void *pointer = onnxc_spares[index];
    size_t after = (size_t)(--onnxc_spare_count - index);
    memmove(&onnxc_spares[index], &onnxc_spares[index + 1], after * sizeof pointer);
    onnxc_spare_bytes -= onnxc_block_of(pointer)->room;
    return pointer;
}

/* Gives the oldest spares back, until so many are left with so many bytes. */
static void onnxc_drop_spares(int32_t count, int64_t bytes) {
    while (onnxc_spare_count > count || onnxc_spare_bytes > bytes) onnxc_give_back(onnxc_spare_taken(0));
}

/* Memory of the system, where need be that of all spares. */
static void *onnxc_system_memory(size_t bytes) {
    void *found = ONNXC_MALLOC(bytes);
    if (found != NULL || !onnxc_try_lock(ONNXC_SPARES_LOCK)) return found;
    bool any = onnxc_spare_count > 0;
    onnxc_drop_spares(0, 0);
    onnxc_unlock(ONNXC_SPARES_LOCK);
    return any ? ONNXC_MALLOC(bytes) : NULL;
}

/* What this thread was last refused. */
static _Thread_local int64_t onnxc_refused_bytes;

static void *onnxc_refuse(int64_t bytes) {
    onnxc_refused_bytes = bytes;
    return NULL;
}

/* `bytes` of 64-byte aligned memory, null when there is none. */
static void *onnxc_allocate(int64_t bytes) {
    if (bytes < 0 || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX - 2 * ONNXC_ALIGNMENT) return onnxc_refuse(bytes);
    onnxc_allocator *allocator = onnxc_thread_allocator();
    size_t total = (size_t)bytes + ONNXC_ALIGNMENT + sizeof(onnxc_block);
    char *start = allocator != NULL ? allocator->allocate(allocator, total) : onnxc_system_memory(total);
    if (start == NULL) return onnxc_refuse(bytes);
    uintptr_t address = (uintptr_t)start + sizeof(onnxc_block) + ONNXC_ALIGNMENT - 1;
    void *aligned = (void *)(address & ~(uintptr_t)(ONNXC_ALIGNMENT - 1));
    *onnxc_block_of(aligned) = (onnxc_block){allocator, start, 0};
    return aligned;
}

/* Keeps a block that has room; false where it is to be given back. */
static bool onnxc_keep(void *pointer) {
    int64_t room = onnxc_block_of(pointer)->room;
    if (room > ONNXC_SPARE_BYTES || !onnxc_try_lock(ONNXC_SPARES_LOCK)) return false;
    bool kept = atomic_load(&onnxc_context_count) > 0;
    if (kept) {
        onnxc_drop_spares(ONNXC_SPARES - 1, ONNXC_SPARE_BYTES - room);
        onnxc_spares[onnxc_spare_count++] = pointer;
        onnxc_spare_bytes += room;
    }
    onnxc_unlock(ONNXC_SPARES_LOCK);
    return kept;
}

static void onnxc_context_begins(void) {
    atomic_fetch_add(&onnxc_context_count, 1);
}

static void onnxc_context_ends(void) {
    if (atomic_fetch_sub(&onnxc_context_count, 1) != 1) return;
    onnxc_lock(ONNXC_SPARES_LOCK);
    if (atomic_load(&onnxc_context_count) == 0) onnxc_drop_spares(0, 0);
    onnxc_unlock(ONNXC_SPARES_LOCK);
}

/* As onnxc_allocate, for a tensor: where it is large a spare, or more than is needed now, for the tensors of a
 * decoder grow with each run. */
static void *onnxc_allocate_tensor(int64_t bytes) {
    if (bytes < ONNXC_LEAST_SPARE || bytes > ONNXC_SPARE_BYTES || onnxc_thread_allocator() != NULL)
        return onnxc_allocate(bytes);
    void *found = NULL;
    if (onnxc_try_lock(ONNXC_SPARES_LOCK)) {
        for (int32_t i = onnxc_spare_count - 1; i >= 0 && found == NULL; i--) {
            int64_t room = onnxc_block_of(onnxc_spares[i])->room;
            if (bytes <= room && room / 2 <= bytes) found = onnxc_spare_taken(i);
        }
        onnxc_unlock(ONNXC_SPARES_LOCK);
    }
    if (found != NULL) return found;
    int64_t room = bytes + bytes / 8;
    found = onnxc_allocate(room);
    if (found != NULL) onnxc_block_of(found)->room = room;
    return found != NULL ? found : onnxc_allocate(bytes);
}

static void onnxc_free(void *pointer) {
    if (pointer != NULL && (onnxc_block_of(pointer)->room == 0 || !onnxc_keep(pointer))) onnxc_give_back(pointer);
}

static bool onnxc_add(int64_t a, int64_t b, int64_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

static bool onnxc_multiply(int64_t a, int64_t b, int64_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

/* `bytes` rounded up to the alignment; false when that overflows. */
static bool onnxc_round_up(int64_t bytes, int64_t *rounded) {
    if (!onnxc_add(bytes, ONNXC_ALIGNMENT - 1, rounded)) return false;
    *rounded &= ~(int64_t)(ONNXC_ALIGNMENT - 1);
    return true;
}

static int64_t onnxc_dtype_bytes(int32_t dtype) {
    static const int8_t bytes[] = {
        [ONNXC_FLOAT32] = 4, [ONNXC_UINT8] = 1, [ONNXC_INT8] = 1, [ONNXC_UINT16] = 2,
        [ONNXC_INT16] = 2, [ONNXC_INT32] = 4, [ONNXC_INT64] = 8, [ONNXC_STRING] = 16,
        [ONNXC_BOOL] = 1, [ONNXC_FLOAT16] = 2, [ONNXC_FLOAT64] = 8, [ONNXC_UINT32] = 4,
        [ONNXC_UINT64] = 8, [ONNXC_COMPLEX64] = 8, [ONNXC_COMPLEX128] = 16, [ONNXC_BFLOAT16] = 2,
        [ONNXC_FLOAT8E4M3FN] = 1, [ONNXC_FLOAT8E4M3FNUZ] = 1, [ONNXC_FLOAT8E5M2] = 1,
        [ONNXC_FLOAT8E5M2FNUZ] = 1, [ONNXC_UINT4] = 1, [ONNXC_INT4] = 1, [ONNXC_FLOAT4E2M1] = 1,
        [ONNXC_FLOAT8E8M0] = 1, [ONNXC_UINT2] = 1, [ONNXC_INT2] = 1,
        [ONNXC_FLOAT6E2M3] = 1, [ONNXC_FLOAT6E3M2] = 1};
    return dtype > 0 && dtype <= ONNXC_FLOAT6E3M2 ? bytes[dtype] : 0;
}

/* The bytes of elements of `size` bytes, or -1 when a dimension is negative or the product overflows.
 * A zero does not excuse other dimensions: strides are computed from them. */
static int64_t onnxc_array_bytes(int64_t size, int32_t rank, const int64_t *dims) {
    int64_t bytes = size;
    bool empty = false;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (dims[axis] < 0) return -1;
        if (dims[axis] == 0) empty = true;
        else if (!onnxc_multiply(bytes, dims[axis], &bytes)) return -1;
    }
    return empty ? 0 : bytes;
}

/* The number of elements, or -1 as above. */
static int64_t onnxc_elements(int32_t rank, const int64_t *dims) {
    return onnxc_array_bytes(1, rank, dims);
}

static int64_t onnxc_tensor_bytes(int32_t dtype, int32_t rank, const int64_t *dims) {
    return onnxc_array_bytes(onnxc_dtype_bytes(dtype), rank, dims);
}
