/* A C program with three models: `first` and `second` compute y = scale * x + b, `divide` is static.
 *
 *   program bits      four threads call two models at once; every result has the bits of a single call
 *   program errors    wrong calls get a status and a sentence each, and the next call works
 *   program memory    every allocation fails once: a status each time, no leak, and the next call works
 *   program workspace the caller's workspace is used and nothing else is allocated */
#include "divide.h"
#include "first.h"
#include "second.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"

enum { LONGEST = 5000 };

/* What the models' runtimes allocate with: see ONNXC_MALLOC. */
static long allocations, allowed = -1, in_use;

void *counted_malloc(size_t bytes) {
    long number = __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    if (number == allowed) return NULL;
    __atomic_add_fetch(&in_use, 1, __ATOMIC_RELAXED);
    return malloc(bytes);
}

void counted_free(void *pointer) {
    __atomic_add_fetch(&in_use, -1, __ATOMIC_RELAXED);
    free(pointer);
}

static float x[LONGEST], b[LONGEST];
static int64_t nowhere = (int64_t)1 << 62;

static void set_inputs(onnxc_value *inputs, const int64_t *n, int64_t *fail_at) {
    memset(inputs, 0, 3 * sizeof *inputs);
    for (int i = 0; i < 3; i++) {
        inputs[i].struct_size = sizeof *inputs;
        inputs[i].kind = ONNXC_TENSOR;
        inputs[i].dtype = i < 2 ? ONNXC_FLOAT32 : ONNXC_INT64;
        inputs[i].rank = i < 2;
        inputs[i].dims = i < 2 ? n : NULL;
    }
    inputs[0].data = x;
    inputs[1].data = b;
    inputs[2].data = fail_at;
}

/* Runs on n elements into y, or into memory of the model's when y is null. */
static int run(const onnxc_model *model, onnxc_context *context, int64_t n, float *y,
               onnxc_value *output) {
    onnxc_value inputs[3];
    set_inputs(inputs, &n, &nowhere);
    memset(output, 0, sizeof *output);
    output->struct_size = sizeof *output;
    output->data = y;
    output->capacity = y != NULL ? 4 * (size_t)n : 0;
    return model->run(context, inputs, 3, output, 1);
}

/* Whether a call gives scale * x + b. */
static int works(const onnxc_model *model, onnxc_context *context, float scale, int64_t n) {
    static _Thread_local float y[LONGEST];
    onnxc_value output;
    if (run(model, context, n, y, &output) != ONNXC_OK) return 0;
    for (int64_t i = 0; i < n; i++)
        if (y[i] != scale * x[i] + b[i]) return 0;
    return output.rank == 1 && output.dims[0] == n && output.bytes == 4 * (size_t)n;
}

static onnxc_pool *pool; /* made by the first model, used by both; half of the callers have their own */

static void *caller(void *argument) {
    const onnxc_model *models[] = {first_model(), second_model()};
    long number = (long)argument, wrong = 0;
    onnxc_options options = {.struct_size = sizeof options, .threads = 2, .pool = number % 2 ? pool : NULL};
    onnxc_context *contexts[2];
    for (int k = 0; k < 2; k++) CHECK(models[k]->create(&options, &contexts[k]) == ONNXC_OK);
    for (int round = 0; round < 30; round++)
        for (int k = 0; k < 2; k++)
            wrong += !works(models[k], contexts[k], k ? 5 : 2, 1 + (number * 977 + round * 131) % LONGEST);
    for (int k = 0; k < 2; k++) models[k]->destroy(contexts[k]);
    return (void *)wrong;
}

static void test_bits(void) {
    pthread_t threads[4];
    void *wrong;
    CHECK(first_model()->pool_create(3, &pool) == ONNXC_OK && pool->threads == 3);
    for (long k = 0; k < 4; k++) CHECK(pthread_create(&threads[k], NULL, caller, (void *)k) == 0);
    for (int k = 0; k < 4; k++) CHECK(pthread_join(threads[k], &wrong) == 0 && wrong == NULL);
    first_model()->pool_destroy(pool);
    CHECK(in_use == 0);
}

static void *take(onnxc_allocator *allocator, size_t bytes) { return (void)allocator, malloc(bytes); }
static void give(onnxc_allocator *allocator, void *memory) { (void)allocator, free(memory); }

/* Expects the status, prints the sentence, and expects that the next call works. */
#define REFUSES(expected, call)                                                              \
    do {                                                                                     \
        CHECK((call) == (expected));                                                         \
        printf("%s\n", model->last_error(context));                                          \
        CHECK(works(model, context, 2, 100));                                                \
    } while (0)

/* Sizes that are no version's are refused, those of newer callers are not. */
static void test_sizes(const onnxc_model *model, onnxc_context *context) {
    union { onnxc_options options; char newer[8192]; } given = {.options = {.threads = 1}};
    onnxc_allocator allocator = {0, 0, take, give};
    onnxc_timing timings[8];
    onnxc_profile profile = {.timings = timings, .capacity = 8};
    onnxc_context *made;
    for (uint32_t size = 0; size <= 8192; size++) {
        int whole = size % 8 == 0 && size <= 4096;
        given.options.struct_size = size;
        int status = model->create(&given.options, &made);
        CHECK(status == (whole && size >= 24 ? ONNXC_OK : ONNXC_WRONG_ABI) && (status == 0) == (made != NULL));
        model->destroy(made);
        allocator.struct_size = size;
        onnxc_options options = {.struct_size = sizeof options, .threads = 1, .allocator = &allocator};
        status = model->create(&options, &made);
        CHECK(status == (whole && size >= sizeof allocator ? ONNXC_OK : ONNXC_WRONG_ABI));
        model->destroy(made);
        profile.struct_size = size;
        status = model->set_profile(context, &profile);
        CHECK(status == (whole && size >= sizeof profile ? ONNXC_OK : ONNXC_WRONG_ABI));
    }
    CHECK(model->set_profile(context, NULL) == ONNXC_OK);
}

static void test_errors(void) {
    const onnxc_model *model = first_model();
    onnxc_context *context;
    onnxc_value good[3], inputs[3], output;
    float y[100];
    int64_t n = 100, other = 99, negative = -1, huge = INT64_MAX, square[2] = {10, 10}, fail_at = 42;
    CHECK(model->create(NULL, &context) == ONNXC_OK && works(model, context, 2, 100));
    set_inputs(good, &n, &nowhere);
    memset(&output, 0, sizeof output);
    output.struct_size = sizeof output;
    output.data = y;
    output.capacity = sizeof y;
#define WITH(change) (memcpy(inputs, good, sizeof good), (change), model->run(context, inputs, 3, &output, 1))
    REFUSES(ONNXC_WRONG_SHAPE, WITH(inputs[1].dims = &other));
    REFUSES(ONNXC_WRONG_SHAPE, WITH(inputs[0].dims = &negative));
    REFUSES(ONNXC_WRONG_RANK, WITH((inputs[0].rank = 2, inputs[0].dims = square)));
    REFUSES(ONNXC_WRONG_RANK, WITH(inputs[0].rank = -1));
    REFUSES(ONNXC_WRONG_RANK, WITH(inputs[0].rank = 1 << 30));
    REFUSES(ONNXC_SIZE_OVERFLOW, WITH(inputs[0].dims = &huge));
    REFUSES(ONNXC_WRONG_DTYPE, WITH(inputs[0].dtype = ONNXC_INT32));
    REFUSES(ONNXC_WRONG_DTYPE, WITH(inputs[0].dtype = 12345));
    REFUSES(ONNXC_WRONG_KIND, WITH(inputs[0].kind = ONNXC_SEQUENCE));
    REFUSES(ONNXC_WRONG_KIND, WITH(inputs[0].kind = ONNXC_NONE));
    REFUSES(ONNXC_WRONG_KIND, WITH(inputs[0].kind = -7));
    REFUSES(ONNXC_NULL_POINTER, WITH(inputs[0].data = NULL));
    REFUSES(ONNXC_NULL_POINTER, WITH(inputs[1].dims = NULL));
    REFUSES(ONNXC_BUFFER_TOO_SMALL, WITH(inputs[0].bytes = 399));
    REFUSES(ONNXC_WRONG_ABI, WITH(inputs[0].struct_size = 8));
    REFUSES(ONNXC_WRONG_ABI, WITH(inputs[2].struct_size = 64));
    REFUSES(ONNXC_INDEX_OUT_OF_RANGE, WITH(inputs[2].data = &fail_at));
    REFUSES(ONNXC_WRONG_COUNT, model->run(context, good, 2, &output, 1));
    REFUSES(ONNXC_WRONG_COUNT, model->run(context, good, 3, &output, 0));
    REFUSES(ONNXC_NULL_POINTER, model->run(context, NULL, 3, &output, 1));
    REFUSES(ONNXC_NULL_POINTER, model->run(context, good, 3, NULL, 1));
    REFUSES(ONNXC_BUFFER_TOO_SMALL, (output.capacity = 399, model->run(context, good, 3, &output, 1)));
    output.capacity = sizeof y;
    REFUSES(ONNXC_OVERLAP, (output.data = x + 50, model->run(context, good, 3, &output, 1)));
    output.data = NULL;
    CHECK(model->run(context, good, 3, &output, 1) == ONNXC_OK && output.object != NULL);
    REFUSES(ONNXC_INVALID_VALUE, model->run(context, good, 3, &output, 1));
    onnxc_value kept = output;
    CHECK(model->run(NULL, good, 3, &output, 1) == ONNXC_NULL_POINTER);
    CHECK(strlen(model->last_error(NULL)) > 0);
    CHECK(model->create(NULL, NULL) == ONNXC_NULL_POINTER);
    onnxc_options old = {.struct_size = 4, .threads = 1};
    onnxc_context *none = context;
    CHECK(model->create(&old, &none) == ONNXC_WRONG_ABI && none == NULL);
    test_sizes(model, context);
    model->destroy(NULL);
    model->release(NULL);
    model->cancel(NULL);
    model->destroy(context);
    CHECK(((float *)kept.data)[99] == 2 * x[99] + b[99]); /* outlives its context */
    model->release(&kept);
    model->release(&kept);
    CHECK(kept.object == NULL && kept.data == NULL && in_use == 0);

    int32_t a[6] = {1, 2, 3, 4, 5, 6}, d[6] = {1, 1, 1, 0, 1, 1}, q[6];
    CHECK(divide_model()->create(NULL, &context) == ONNXC_OK);
    CHECK(divide_run(context, a, d, q) == ONNXC_DIVISION_BY_ZERO);
    printf("%s\n", divide_model()->last_error(context));
    CHECK(divide_run(context, a, NULL, q) == ONNXC_NULL_POINTER);
    d[3] = 4;
    CHECK(divide_run(context, a, d, q) == ONNXC_OK && q[3] == 1 && q[5] == 6);
    divide_model()->destroy(context);
}

/* Creating a context, running twice with growing sizes, giving the result back. */
static int session(const onnxc_model *model) {
    onnxc_options options = {.struct_size = sizeof options, .threads = 3};
    onnxc_context *context = NULL;
    onnxc_value output;
    int status = model->create(&options, &context);
    for (int64_t n = 1000; n <= 4000 && status == ONNXC_OK; n += 3000) {
        status = run(model, context, n, NULL, &output);
        if (status == ONNXC_OK) model->release(&output);
        else if (!works(model, context, 2, n)) status = -1;
    }
    model->destroy(context);
    return status;
}

/* What options say of the end of runs counts for those that begin; what `cancel` says of none is gone by then. */
static void test_stop(void) {
    const onnxc_model *model = first_model();
    int32_t stop = 0;
    onnxc_options options = {.struct_size = sizeof options, .threads = 2, .stop = &stop};
    onnxc_context *context;
    onnxc_value output;
    static float y[100];
    CHECK(model->create(&options, &context) == ONNXC_OK && works(model, context, 2, 100));
    for (int k = 0; k < 2; k++) {
        stop = k + 1;
        CHECK(run(model, context, 100, y, &output) == ONNXC_CANCELLED);
        CHECK(run(model, context, 100, y, &output) == ONNXC_CANCELLED);
        printf("%s\n", model->last_error(context));
        stop = 0;
        model->cancel(context);
        CHECK(works(model, context, 2, 100));
    }
    model->destroy(context);
}

static void test_memory(void) {
    long failures = 0;
    CHECK(session(first_model()) == ONNXC_OK && in_use == 0);
    for (long n = 1;; n++) {
        allocations = 0;
        allowed = n;
        int status = session(first_model());
        CHECK(in_use == 0);
        if (status == ONNXC_OK && allocations < n) break;
        CHECK(status == ONNXC_OUT_OF_MEMORY || status == ONNXC_OK);
        failures += status == ONNXC_OUT_OF_MEMORY;
    }
    allowed = -1;
    printf("%ld of the allocations are needed\n", failures);
    CHECK(failures >= 5);
}

static void test_workspace(void) {
    const onnxc_model *model = first_model();
    onnxc_context *context;
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    onnxc_value inputs[3], output;
    int64_t n = 1000;
    size_t bytes = 0;
    static _Alignas(64) char memory[1 << 15];
    static float y[LONGEST];
    CHECK(model->create(&options, &context) == ONNXC_OK);
    set_inputs(inputs, &n, &nowhere);
    inputs[0].data = inputs[1].data = inputs[2].data = NULL;
    CHECK(model->workspace_bytes_for(context, inputs, 3, &bytes) == ONNXC_OK);
    CHECK(bytes == 2 * 4032 + 64);
    CHECK(model->set_workspace(context, memory + 1, bytes) == ONNXC_INVALID_VALUE);
    CHECK(model->set_workspace(context, memory, bytes) == ONNXC_OK);
    long before = allocations;
    CHECK(run(model, context, 1000, y, &output) == ONNXC_OK && run(model, context, 10, y, &output) == ONNXC_OK);
    CHECK(allocations == before);
    CHECK(run(model, context, 1017, y, &output) == ONNXC_BUFFER_TOO_SMALL);
    printf("%s\n", model->last_error(context));
    CHECK(works(model, context, 2, 1000));
    CHECK(run(model, context, 100, (float *)(memory + 64), &output) == ONNXC_OVERLAP);
    n = 100;
    set_inputs(inputs, &n, &nowhere);
    inputs[1].data = memory + bytes - 1;
    output.data = y;
    CHECK(model->run(context, inputs, 3, &output, 1) == ONNXC_OVERLAP);
    printf("%s\n", model->last_error(context));
    CHECK(model->set_workspace(context, NULL, 0) == ONNXC_OK && works(model, context, 2, 1017));
    model->destroy(context);

    int32_t a[6] = {1, 2, 3, 4, 5, 6}, d[6] = {1, 1, 1, 1, 1, 1}, q[6];
    CHECK(divide_model()->workspace_bytes == DIVIDE_WORKSPACE_BYTES && DIVIDE_Y_BYTES == sizeof q);
    CHECK(divide_model()->create(&options, &context) == ONNXC_OK);
    before = allocations;
    for (int k = 0; k < 10; k++) CHECK(divide_run(context, a, d, q) == ONNXC_OK);
    CHECK(allocations == before); /* a run of a static model allocates nothing */
    divide_model()->destroy(context);
}

int main(int count, char **arguments) {
    for (int i = 0; i < LONGEST; i++) x[i] = (float)(i % 97) - 40, b[i] = (float)(i % 31);
    const char *test = count > 1 ? arguments[1] : "";
    if (strcmp(test, "bits") == 0) test_bits();
    else if (strcmp(test, "errors") == 0) test_errors();
    else if (strcmp(test, "stop") == 0) test_stop();
    else if (strcmp(test, "memory") == 0) test_memory();
    else if (strcmp(test, "workspace") == 0) test_workspace();
    else return 2;
    return 0;
}
