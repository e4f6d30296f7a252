/* A program with two models that share a runtime: what becomes of contexts that are destroyed or another model's,
 * and where memory comes from, and what forks find. Ends with status 0 when all that it expects is so.
 *
 *   handles wrong        both models check handles: a status and a sentence for each misuse, printed
 *   handles allocator    every byte of a context and its outputs is asked of the caller's allocator, and given back
 *   handles pool         a pool of the caller's runs the parts
 *   handles fork         a child uses both models, whichever lock another thread held at its fork */
#include "onnxc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const onnxc_model *affine_model(void), *divide_model(void);

#include "../support/check.h"

static int divide(const onnxc_model *model, onnxc_context *context, onnxc_value *out) {
    int64_t dims[] = {2, 3};
    int32_t x[] = {6, 7, 8, 9, 10, 11}, d[] = {1, 2, 3, 4, 5, 6};
    onnxc_value in[] = {{sizeof *in, ONNXC_TENSOR, ONNXC_INT32, 2, dims, x, 0, 0, NULL},
                        {sizeof *in, ONNXC_TENSOR, ONNXC_INT32, 2, dims, d, 0, 0, NULL}};
    *out = (onnxc_value){.struct_size = sizeof *out};
    return model->run(context, in, 2, out, 1);
}

static void expect(const onnxc_model *model, onnxc_context *context, int status) {
    CHECK(status == ONNXC_WRONG_HANDLE);
    puts(model->last_error(context));
}

static void test_wrong(void) {
    const onnxc_model *affine = affine_model(), *model = divide_model();
    onnxc_context *context, *other, *later[40];
    onnxc_value out;
    size_t bytes;
    CHECK(model->create(NULL, &context) == ONNXC_OK && affine->create(NULL, &other) == ONNXC_OK);
    CHECK(divide(model, context, &out) == ONNXC_OK);
    model->release(&out);
    expect(model, other, divide(model, other, &out));
    expect(affine, context, affine->set_workspace(context, NULL, 0));
    expect(affine, context, affine->destroy(context));
    CHECK(model->target(other) == NULL);
    model->cancel(other);
    CHECK(divide(model, context, &out) == ONNXC_OK); /* nothing came of it */
    model->release(&out);
    CHECK(model->destroy(context) == ONNXC_OK);
    for (int k = 0; k < 40; k++) { /* none lies where the first one did */
        CHECK(model->create(NULL, &later[k]) == ONNXC_OK && later[k] != context);
        expect(model, context, divide(model, context, &out));
    }
    for (int k = 0; k < 40; k++) CHECK(model->destroy(later[k]) == ONNXC_OK);
    expect(model, context, model->destroy(context));
    expect(model, context, model->workspace_bytes_for(context, NULL, 0, &bytes));
    expect(model, context, model->set_profile(context, NULL));
    expect(model, (onnxc_context *)&out, model->destroy((onnxc_context *)&out));
    CHECK(model->destroy(NULL) == ONNXC_OK && affine->destroy(other) == ONNXC_OK);
}

typedef struct counting {
    onnxc_allocator base;
    atomic_long blocks, asked, most;
} counting;

static void *allocate(onnxc_allocator *allocator, size_t bytes) {
    counting *self = (counting *)allocator;
    if (self->asked == self->most) return NULL;
    self->asked++;
    self->blocks++;
    return malloc(bytes);
}

static void deallocate(onnxc_allocator *allocator, void *memory) {
    ((counting *)allocator)->blocks--;
    free(memory);
}

static void test_allocator(void) {
    counting memory = {{sizeof memory.base, 0, allocate, deallocate}, 0, 0, 1000};
    onnxc_options options = {.struct_size = sizeof options, .threads = 2, .allocator = &memory.base};
    const onnxc_model *model = divide_model();
    onnxc_context *context, *plain;
    onnxc_value out;
    CHECK(model->create(&options, &context) == ONNXC_OK && memory.blocks >= 2);
    long before = memory.blocks;
    CHECK(model->create(NULL, &plain) == ONNXC_OK && divide(model, plain, &out) == ONNXC_OK);
    model->release(&out);
    CHECK(memory.blocks == before); /* that one has malloc's */
    CHECK(divide(model, context, &out) == ONNXC_OK && ((int32_t *)out.data)[1] == 3);
    CHECK(memory.blocks == before + 1);
    model->destroy(plain);
    CHECK(model->destroy(context) == ONNXC_OK && memory.blocks == 1); /* the output's */
    model->release(&out);
    CHECK(memory.blocks == 0);
    memory.most = memory.asked + 1;
    CHECK(model->create(&options, &context) == ONNXC_OUT_OF_MEMORY && context == NULL && memory.blocks == 0);
    memory.base.allocate = NULL;
    CHECK(model->create(&options, &context) == ONNXC_INVALID_VALUE);
    puts(model->last_error(NULL));
}

typedef struct backwards {
    onnxc_pool base;
    long calls;
} backwards;

static int32_t run_backwards(onnxc_pool *pool, int32_t count, void (*work)(void *, int32_t), void *data) {
    ((backwards *)pool)->calls++;
    while (count-- > 0) work(data, count);
    return 1;
}

static void test_pool(void) {
    backwards pool = {{run_backwards, 3}, 0};
    onnxc_options options = {.struct_size = sizeof options, .pool = &pool.base};
    onnxc_context *context;
    enum { COUNT = 100000 };
    static float x[COUNT], b[COUNT], y[COUNT];
    int64_t n = COUNT, nowhere = INT64_MAX;
    for (int i = 0; i < COUNT; i++) x[i] = b[i] = (float)i;
    CHECK(affine_model()->create(&options, &context) == ONNXC_OK);
    onnxc_value in[] = {{sizeof *in, ONNXC_TENSOR, ONNXC_FLOAT32, 1, &n, x, 0, 0, NULL},
                        {sizeof *in, ONNXC_TENSOR, ONNXC_FLOAT32, 1, &n, b, 0, 0, NULL},
                        {sizeof *in, ONNXC_TENSOR, ONNXC_INT64, 0, NULL, &nowhere, 0, 0, NULL}};
    onnxc_value out = {.struct_size = sizeof out, .data = y, .capacity = sizeof y};
    CHECK(affine_model()->run(context, in, 3, &out, 1) == ONNXC_OK && pool.calls > 0);
    for (int i = 0; i < COUNT; i++) CHECK(y[i] == 4.0f * (float)i); /* 3 x + b */
    affine_model()->destroy(context);
}

/* In place of the C library's: a thread that lingers keeps each lock until there is a fork, and a while. */
static _Thread_local int lingers;
static atomic_int held, begun, ended, through;

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static int (*unlock)(pthread_mutex_t *);
    if (unlock == NULL) unlock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (lingers) {
        int before = atomic_load(&ended);
        atomic_store(&held, 1);
        while (atomic_load(&begun) == before) sched_yield();
        usleep(20000);
    }
    return unlock(mutex);
}

static void use(const onnxc_model *affine, const onnxc_model *model) {
    onnxc_context *context, *mapped; /* the file of weights */
    onnxc_value out;
    CHECK(affine->create(NULL, &mapped) == ONNXC_OK && affine->destroy(mapped) == ONNXC_OK);
    CHECK(model->create(NULL, &context) == ONNXC_OK && divide(model, context, &out) == ONNXC_OK);
    model->release(&out);
    CHECK(model->destroy(context) == ONNXC_OK);
}

static void *linger(void *unused) {
    lingers = 1;
    use(affine_model(), divide_model());
    atomic_store(&through, 1);
    return unused;
}

static void test_fork(void) {
    pthread_t thread;
    int status;
    CHECK(pthread_create(&thread, NULL, linger, NULL) == 0);
    while (!atomic_load(&through)) {
        if (!atomic_exchange(&held, 0)) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&begun, 1);
        pid_t child = fork();
        atomic_fetch_add(&ended, 1);
        if (child == 0) {
            alarm(30); /* a lock that is never released ends it */
            use(affine_model(), divide_model());
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0 && begun > 0);
}

int main(int count, char **arguments) {
    const char *test = count > 1 ? arguments[1] : "";
    if (strcmp(test, "wrong") == 0) test_wrong();
    else if (strcmp(test, "allocator") == 0) test_allocator();
    else if (strcmp(test, "pool") == 0) test_pool();
    else if (strcmp(test, "fork") == 0) test_fork();
    else return 2;
    return 0;
}
