/* The planner alone, for a test that gives it lifetimes and sizes. */
#include "runtime.c"

bool plan(int64_t count, const onnxc_lifetime *lifetimes, const int64_t *sizes, int64_t *offsets,
          int64_t *memory, int64_t *arena_bytes) {
    return onnxc_plan(count, lifetimes, sizes, offsets, memory, arena_bytes);
}
