/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - aligned allocation and checked arithmetic on sizes.
 *
 * Memory comes from the allocator of the context that the thread has entered, else from ONNXC_MALLOC, which tests
 * replace to make the nth request fail. Every block knows where it came from: outputs are freed anywhere. */

#ifndef ONNXC_MALLOC
#define ONNXC_MALLOC(bytes) malloc(bytes)
#define ONNXC_FREE(pointer) free(pointer)
#endif

static _Thread_local onnxc_allocator *onnxc_thread_allocator;

/* `bytes` of 64-byte aligned memory, null when there is none; the address to free and the allocator that frees
 * it precede it. */
static void *onnxc_allocate(int64_t bytes) {
    if (bytes < 0 || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX - 2 * ONNXC_ALIGNMENT) return NULL;
    onnxc_allocator *allocator = onnxc_thread_allocator;
    size_t total = (size_t)bytes + ONNXC_ALIGNMENT + 2 * sizeof(void *);
    char *block = allocator != NULL ? allocator->allocate(allocator, total) : ONNXC_MALLOC(total);
    if (block == NULL) return NULL;
    uintptr_t address = (uintptr_t)block + 2 * sizeof(void *) + ONNXC_ALIGNMENT - 1;
    void **aligned = (void **)(address & ~(uintptr_t)(ONNXC_ALIGNMENT - 1));
    aligned[-1] = block;
    aligned[-2] = allocator;
    return aligned;
}

static void onnxc_free(void *pointer) {
    if (pointer == NULL) return;
    void **aligned = pointer;
    onnxc_allocator *allocator = aligned[-2];
    if (allocator != NULL) allocator->deallocate(allocator, aligned[-1]);
    else ONNXC_FREE(aligned[-1]);
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
