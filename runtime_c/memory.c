/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - aligned allocation and checked arithmetic on sizes.
 *
 * All memory comes from ONNXC_MALLOC, which tests replace to make the nth request fail. */

#ifndef ONNXC_MALLOC
#define ONNXC_MALLOC(bytes) malloc(bytes)
#define ONNXC_FREE(pointer) free(pointer)
#endif

/* `bytes` of 64-byte aligned memory, null when there is none; the address to free precedes it. */
static void *onnxc_allocate(int64_t bytes) {
    if (bytes < 0 || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX - 2 * ONNXC_ALIGNMENT) return NULL;
    char *block = ONNXC_MALLOC((size_t)bytes + ONNXC_ALIGNMENT + sizeof(void *));
    if (block == NULL) return NULL;
    uintptr_t address = (uintptr_t)block + sizeof(void *) + ONNXC_ALIGNMENT - 1;
    void **aligned = (void **)(address & ~(uintptr_t)(ONNXC_ALIGNMENT - 1));
    aligned[-1] = block;
    return aligned;
}

static void onnxc_free(void *pointer) {
    if (pointer != NULL) ONNXC_FREE(((void **)pointer)[-1]);
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
        [ONNXC_FLOAT8E8M0] = 1, [ONNXC_UINT2] = 1, [ONNXC_INT2] = 1};
    return dtype > 0 && dtype <= ONNXC_INT2 ? bytes[dtype] : 0;
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
