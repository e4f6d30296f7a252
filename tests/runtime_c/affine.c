/* What code generation might write for y = scale * x + b with x and b of one symbolic length n; the
 * scale is the only weight. Elements from number fail_at on are errors. Two planned buffers. */
#include "internal.h"

#define JOIN_(prefix, name) prefix##__##name
#define JOIN(prefix, name) JOIN_(prefix, name)

enum { PART = 16 };

static int64_t end_of(int64_t last, int64_t count) {
    return last * PART < count ? last * PART : count;
}

/* args: out, x, scale, count, fail_at */
static int32_t multiply(const uint64_t *args, int64_t first, int64_t last, void *scratch) {
    float *out = (float *)args[0], *copy = scratch;
    const char *x = (const char *)args[1];
    float scale = *(const float *)args[2];
    int64_t count = (int64_t)args[3], fail_at = (int64_t)args[4];
    for (int64_t i = first * PART; i < end_of(last, count); i++) {
        if (i >= fail_at) {
            *(int64_t *)scratch = i;
            return ONNXC_INDEX_OUT_OF_RANGE;
        }
        __builtin_memcpy(&copy[i % PART], x + 4 * i, 4); /* inputs may have any alignment */
        out[i] = scale * copy[i % PART];
    }
    return 0;
}

/* args: out, a, b, count */
static int32_t add(const uint64_t *args, int64_t first, int64_t last, void *scratch) {
    (void)scratch;
    float *out = (float *)args[0], b;
    const float *a = (const float *)args[1];
    const char *from = (const char *)args[2];
    for (int64_t i = first * PART; i < end_of(last, (int64_t)args[3]); i++) {
        __builtin_memcpy(&b, from + 4 * i, 4);
        out[i] = a[i] + b;
    }
    return 0;
}

/* args: out, in, count */
static int32_t store(const uint64_t *args, int64_t first, int64_t last, void *scratch) {
    (void)scratch;
    for (int64_t i = first * PART; i < end_of(last, (int64_t)args[2]); i++)
        __builtin_memcpy((char *)args[0] + 4 * i, (const float *)args[1] + i, 4);
    return 0;
}

ONNXC_HIDDEN int32_t JOIN(PREFIX, bind)(onnxc_context *context, const onnxc_value *inputs) {
    int64_t n = inputs[0].dims[0], bytes;
    if (inputs[1].dims[0] != n) return context->api->fail_input(context, 1, 0, n);
    if (__builtin_mul_overflow(n, 4, &bytes))
        return context->api->fail(context, -1, ONNXC_SIZE_OVERFLOW, n);
    context->dims[0] = n;
    context->sizes[0] = context->sizes[1] = bytes;
    context->scratch_bytes = 4 * PART;
    return 0;
}

ONNXC_HIDDEN int32_t JOIN(PREFIX, run)(onnxc_context *context, const onnxc_value *inputs,
                                       onnxc_value *outputs) {
    const onnxc_api *api = context->api;
    int64_t n = context->dims[0], parts = (n + PART - 1) / PART, work = (int64_t)1 << 40, fail_at;
    __builtin_memcpy(&fail_at, inputs[2].data, 8);
    char *scaled = context->arena + context->offsets[0], *sum = context->arena + context->offsets[1];
    char *y = api->output(context, outputs, 0, 1, context->dims);
    if (y == 0) return 1;
    uint64_t first[] = {(uint64_t)scaled, (uint64_t)inputs[0].data, (uint64_t)context->weights,
                        (uint64_t)n, (uint64_t)fail_at};
    if (api->parallel(context, multiply, first, parts, work, 1, 0)) return 1;
    uint64_t second[] = {(uint64_t)sum, (uint64_t)scaled, (uint64_t)inputs[1].data, (uint64_t)n};
    if (api->parallel(context, add, second, parts, work, 1, 1)) return 1;
    uint64_t third[] = {(uint64_t)y, (uint64_t)sum, (uint64_t)n};
    return api->parallel(context, store, third, parts, work, 1, 2);
}
