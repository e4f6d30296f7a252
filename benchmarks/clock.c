/* clock.c - the time of a run that a C program sees: the fastest of `times` calls, in nanoseconds. */
#include <time.h>

#include "onnxc.h"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

double fastest(int32_t (*run)(onnxc_context *, const onnxc_value *, int32_t, onnxc_value *, int32_t),
               onnxc_context *context, const onnxc_value *inputs, int32_t input_count, onnxc_value *outputs,
               int32_t output_count, int64_t times) {
    double best = 1e18;
    for (int64_t k = 0; k < times; k++) {
        double began = now();
        if (run(context, inputs, input_count, outputs, output_count) != ONNXC_OK) return -1;
        double took = now() - began;
        if (took < best) best = took;
    }
    return best;
}
