/* A C program with three compiled models in it: `images` is static, `text` takes any batch and length, `fragile`
 * divides, gathers and loops.
 *
 *   program bits      four threads call each of two models at once; every result has the bits of a single call
 *   program errors    wrong calls get a status and a sentence each, and the next call works
 *   program cancel    a run that would take years is stopped by another thread
 *   program outputs   writes what `images` and `text` give for the inputs below to standard output */
#include "fragile.h"
#include "images.h"
#include "text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/check.h"

enum { INPUTS = 4, BATCH = 2, LENGTH = 19, TOKENS = BATCH * LENGTH, LOGITS = TOKENS * 101, THREADS = 4 };

static float image[INPUTS][IMAGES_IMAGE_ELEMENTS];
static float classes[INPUTS][IMAGES_PROBABILITIES_ELEMENTS]; /* what a single call gives */
static int64_t ids[INPUTS][TOKENS], mask[INPUTS][TOKENS];
static float logits[INPUTS][LOGITS];

static void fill_inputs(void) {
    uint32_t state = 1;
    for (int k = 0; k < INPUTS; k++) {
        for (int i = 0; i < IMAGES_IMAGE_ELEMENTS; i++) {
            state = state * 1664525u + 1013904223u;
            image[k][i] = (float)(int32_t)(state >> 8) / (1 << 23) - 1.0f;
        }
        for (int i = 0; i < TOKENS; i++) {
            state = state * 1664525u + 1013904223u;
            ids[k][i] = state >> 8 & 63;
            mask[k][i] = i % LENGTH < 7 + k;
        }
    }
}

static onnxc_value tensor(int32_t dtype, int32_t rank, const int64_t *dims, void *data) {
    onnxc_value value = {sizeof value, ONNXC_TENSOR, dtype, rank, dims, data, 0, 0, NULL};
    return value;
}

static onnxc_value room(void *data, size_t bytes) {
    onnxc_value value = {sizeof value, 0, 0, 0, NULL, data, 0, bytes, NULL};
    return value;
}

/* The first `length` tokens of every row of 19. */
static int run_text(onnxc_context *context, int k, int64_t length, float *result) {
    int64_t dims[] = {BATCH, length}, some_ids[TOKENS], some_mask[TOKENS];
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < length; i++) {
            some_ids[b * length + i] = ids[k][b * LENGTH + i];
            some_mask[b * length + i] = mask[k][b * LENGTH + i];
        }
    onnxc_value inputs[] = {tensor(ONNXC_INT64, 2, dims, some_ids), tensor(ONNXC_INT64, 2, dims, some_mask)};
    onnxc_value output = room(result, LOGITS * sizeof(float));
    int status = text_model()->run(context, inputs, 2, &output, 1);
    if (status == ONNXC_OK)
        CHECK(output.rank == 3 && output.dims[1] == length && output.bytes == BATCH * 101 * 4 * (size_t)length);
    return status;
}

static void run_single_calls(void) {
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    onnxc_context *context;
    CHECK(images_model()->create(&options, &context) == ONNXC_OK);
    for (int k = 0; k < INPUTS; k++) CHECK(images_run(context, image[k], classes[k]) == ONNXC_OK);
    images_model()->destroy(context);
    CHECK(text_model()->create(&options, &context) == ONNXC_OK);
    for (int k = 0; k < INPUTS; k++) CHECK(run_text(context, k, LENGTH, logits[k]) == ONNXC_OK);
    text_model()->destroy(context);
}

/* Threads. */

typedef struct caller {
    onnxc_pool *pool; /* null: threads of its own */
    int32_t threads;
    long wrong;
} caller;

static void *call_images(void *argument) {
    caller *self = argument;
    onnxc_options options = {.struct_size = sizeof options, .threads = self->threads, .pool = self->pool};
    onnxc_context *context;
    float result[IMAGES_PROBABILITIES_ELEMENTS];
    CHECK(images_model()->create(&options, &context) == ONNXC_OK);
    for (int round = 0; round < 40; round++) {
        CHECK(images_run(context, image[round % INPUTS], result) == ONNXC_OK);
        self->wrong += memcmp(result, classes[round % INPUTS], sizeof result) != 0;
    }
    images_model()->destroy(context);
    return NULL;
}

static void *call_text(void *argument) {
    static _Thread_local float result[LOGITS];
    caller *self = argument;
    onnxc_options options = {.struct_size = sizeof options, .threads = self->threads, .pool = self->pool};
    onnxc_context *context;
    CHECK(text_model()->create(&options, &context) == ONNXC_OK);
    for (int round = 0; round < 40; round++) {
        CHECK(run_text(context, round % INPUTS, 1 + round % LENGTH, result) == ONNXC_OK);
        CHECK(run_text(context, round % INPUTS, LENGTH, result) == ONNXC_OK);
        self->wrong += memcmp(result, logits[round % INPUTS], sizeof result) != 0;
    }
    text_model()->destroy(context);
    return NULL;
}

/* Four threads for each model, all at once. */
static void call_at_once(int32_t threads, onnxc_pool *pool) {
    pthread_t running[2 * THREADS];
    caller callers[2 * THREADS];
    for (int k = 0; k < 2 * THREADS; k++) {
        callers[k] = (caller){pool, threads, 0};
        CHECK(pthread_create(&running[k], NULL, k % 2 ? call_text : call_images, &callers[k]) == 0);
    }
    for (int k = 0; k < 2 * THREADS; k++) CHECK(pthread_join(running[k], NULL) == 0 && callers[k].wrong == 0);
}

static void test_bits(void) {
    onnxc_pool *pool;
    run_single_calls();
    call_at_once(1, NULL);
    call_at_once(3, NULL);
    CHECK(text_model()->pool_create(2, &pool) == ONNXC_OK); /* one model's pool serves both */
    call_at_once(0, pool);
    text_model()->pool_destroy(pool);
}

/* Wrong calls. */

static void expect(const onnxc_model *model, onnxc_context *context, int status, int expected) {
    CHECK(status == expected);
    CHECK(strlen(model->last_error(context)) > 0);
    printf("%s\n", model->last_error(context));
}

static void test_image_errors(void) {
    const onnxc_model *model = images_model();
    onnxc_context *context;
    float result[IMAGES_PROBABILITIES_ELEMENTS];
    int64_t dims[] = {1, 3, 32, 32}, narrow[] = {1, 3, 32, 31}, empty[] = {1, 3, 0, 32};
    CHECK(model->create(NULL, &context) == ONNXC_OK);
    onnxc_value good = tensor(ONNXC_FLOAT32, 4, dims, image[0]), in[2], out = room(result, sizeof result);
#define REFUSES(expected, change, inputs, outputs)                                                   \
    do {                                                                                             \
        in[0] = in[1] = good;                                                                        \
        out = room(result, sizeof result);                                                           \
        change;                                                                                      \
        expect(model, context, model->run(context, in, inputs, &out, outputs), expected);            \
        CHECK(images_run(context, image[1], result) == ONNXC_OK);                                    \
        CHECK(memcmp(result, classes[1], sizeof result) == 0);                                       \
    } while (0)
    REFUSES(ONNXC_WRONG_SHAPE, in[0].dims = narrow, 1, 1);
    REFUSES(ONNXC_WRONG_SHAPE, in[0].dims = empty, 1, 1);
    REFUSES(ONNXC_WRONG_RANK, in[0].rank = 3, 1, 1);
    REFUSES(ONNXC_WRONG_DTYPE, in[0].dtype = ONNXC_FLOAT64, 1, 1);
    REFUSES(ONNXC_WRONG_KIND, in[0].kind = ONNXC_SEQUENCE, 1, 1);
    REFUSES(ONNXC_NULL_POINTER, in[0].data = NULL, 1, 1);
    REFUSES(ONNXC_BUFFER_TOO_SMALL, in[0].bytes = sizeof image[0] - 1, 1, 1);
    REFUSES(ONNXC_BUFFER_TOO_SMALL, out.capacity = sizeof result - 1, 1, 1);
    REFUSES(ONNXC_WRONG_COUNT, (void)0, 2, 1);
    REFUSES(ONNXC_WRONG_COUNT, (void)0, 1, 0);
    REFUSES(ONNXC_OVERLAP, out = room(image[0] + 5, sizeof result), 1, 1);
    expect(model, context, images_run(context, NULL, result), ONNXC_NULL_POINTER);
    expect(model, NULL, images_run(NULL, image[0], result), ONNXC_NULL_POINTER);
    CHECK(images_run(context, image[1], NULL) == ONNXC_OK); /* computed and dropped */
    model->destroy(context);
}

static void test_text_errors(void) {
    const onnxc_model *model = text_model();
    onnxc_context *context;
    static float result[LOGITS];
    int64_t dims[] = {BATCH, LENGTH}, other[] = {BATCH, LENGTH - 1}, longer[] = {BATCH, 65};
    static int64_t many[BATCH * 65];
    CHECK(model->create(NULL, &context) == ONNXC_OK);
    onnxc_value good = tensor(ONNXC_INT64, 2, dims, ids[0]), in[2], out;
#define REFUSES_TEXT(expected, change)                                                               \
    do {                                                                                             \
        in[0] = in[1] = good;                                                                        \
        in[1].data = mask[0];                                                                        \
        out = room(result, sizeof result);                                                           \
        change;                                                                                      \
        expect(model, context, model->run(context, in, 2, &out, 1), expected);                       \
        CHECK(run_text(context, 1, LENGTH, result) == ONNXC_OK);                                     \
        CHECK(memcmp(result, logits[1], sizeof result) == 0);                                        \
    } while (0)
    REFUSES_TEXT(ONNXC_WRONG_SHAPE, in[1].dims = other);
    REFUSES_TEXT(ONNXC_DIMS_MISMATCH,
                 (in[0] = tensor(ONNXC_INT64, 2, longer, many), in[1] = in[0])); /* 64 places are known */
    REFUSES_TEXT(ONNXC_BUFFER_TOO_SMALL, out.capacity = sizeof result - 4);
    int64_t known = ids[0][5];
    REFUSES_TEXT(ONNXC_INDEX_OUT_OF_RANGE, ids[0][5] = 101);
    REFUSES_TEXT(ONNXC_INDEX_OUT_OF_RANGE, ids[0][5] = INT64_MIN);
    ids[0][5] = known;
    model->destroy(context);
}

static int run_fragile(onnxc_context *context, int32_t *x, int32_t *d, int64_t at, int64_t rounds,
                       int32_t *picked) {
    int64_t n = 3, k = 1;
    float left;
    onnxc_value in[] = {tensor(ONNXC_INT32, 1, &n, x), tensor(ONNXC_INT32, 1, &n, d),
                        tensor(ONNXC_INT64, 1, &k, &at), tensor(ONNXC_INT64, 0, NULL, &rounds)};
    onnxc_value out[] = {room(picked, sizeof *picked), room(&left, sizeof left)};
    return fragile_model()->run(context, in, 4, out, 2);
}

static void test_data_errors(void) {
    onnxc_context *context;
    int32_t x[] = {7, INT32_MIN, -7}, d[] = {2, -1, 2}, none[] = {1, 0, 1}, picked;
    CHECK(fragile_model()->create(NULL, &context) == ONNXC_OK);
    for (int k = 0; k < 2; k++) {
        CHECK(run_fragile(context, x, d, -2, 3, &picked) == ONNXC_OK && picked == INT32_MIN); /* it wraps */
        CHECK(run_fragile(context, x, d, 2, 3, &picked) == ONNXC_OK && picked == -3); /* toward zero */
        expect(fragile_model(), context, run_fragile(context, x, none, 0, 3, &picked), ONNXC_DIVISION_BY_ZERO);
        expect(fragile_model(), context, run_fragile(context, x, d, 3, 3, &picked), ONNXC_INDEX_OUT_OF_RANGE);
    }
    fragile_model()->destroy(context);
}

/* Stopping. */

static onnxc_context *endless;

static void *stop(void *argument) {
    (void)argument;
    usleep(100000);
    fragile_model()->cancel(endless);
    return NULL;
}

static void test_cancel(void) {
    pthread_t stopper;
    int32_t x[] = {1, 2, 3}, d[] = {1, 1, 1}, picked;
    CHECK(fragile_model()->create(NULL, &endless) == ONNXC_OK);
    for (int k = 0; k < 2; k++) {
        CHECK(pthread_create(&stopper, NULL, stop, NULL) == 0);
        expect(fragile_model(), endless, run_fragile(endless, x, d, 0, INT64_MAX, &picked), ONNXC_CANCELLED);
        CHECK(pthread_join(stopper, NULL) == 0);
        CHECK(run_fragile(endless, x, d, 1, 5, &picked) == ONNXC_OK && picked == 2);
    }
    fragile_model()->destroy(endless);
}

int main(int count, char **arguments) {
    const char *test = count > 1 ? arguments[1] : "";
    fill_inputs();
    if (strcmp(test, "bits") == 0) {
        test_bits();
    } else if (strcmp(test, "errors") == 0) {
        run_single_calls();
        test_image_errors();
        test_text_errors();
        test_data_errors();
    } else if (strcmp(test, "cancel") == 0) {
        test_cancel();
    } else if (strcmp(test, "outputs") == 0) {
        run_single_calls();
        CHECK(fwrite(image, sizeof image, 1, stdout) == 1 && fwrite(classes, sizeof classes, 1, stdout) == 1);
        CHECK(fwrite(ids, sizeof ids, 1, stdout) == 1 && fwrite(mask, sizeof mask, 1, stdout) == 1);
        CHECK(fwrite(logits, sizeof logits, 1, stdout) == 1);
    } else {
        return 2;
    }
    return 0;
}
