/* What code generation might write for a static model: y = x / d, integers, element by element. */
#include "internal.h"

#define JOIN_(prefix, name) prefix##__##name
#define JOIN(prefix, name) JOIN_(prefix, name)

static int32_t divide(const uint64_t *args, int64_t first, int64_t last, void *scratch) {
    for (int64_t i = first; i < last; i++) {
        int32_t x, d;
        __builtin_memcpy(&x, (const char *)args[1] + 4 * i, 4);
        __builtin_memcpy(&d, (const char *)args[2] + 4 * i, 4);
        if (d == 0) {
            *(int64_t *)scratch = i;
            return ONNXC_DIVISION_BY_ZERO;
        }
        x = d == -1 ? (int32_t)(0 - (uint32_t)x) : x / d;
        __builtin_memcpy((char *)args[0] + 4 * i, &x, 4);
    }
    return 0;
}

ONNXC_HIDDEN int32_t JOIN(PREFIX, bind)(onnxc_context *context, const onnxc_value *inputs) {
    (void)inputs;
    context->scratch_bytes = 64;
    return 0;
}

ONNXC_HIDDEN int32_t JOIN(PREFIX, run)(onnxc_context *context, const onnxc_value *inputs,
                                       onnxc_value *outputs) {
    static const int64_t dims[] = {2, 3};
    void *y = context->api->output(context, outputs, 0, 2, dims);
    if (y == 0) return 1;
    uint64_t args[] = {(uint64_t)y, (uint64_t)inputs[0].data, (uint64_t)inputs[1].data};
    return context->api->parallel(context, divide, args, 6, 100, 1, 0);
}
