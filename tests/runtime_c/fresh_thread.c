/* A library that is opened at run time, and a thread that runs it first when there is no memory left. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "onnxc.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

static volatile int exhausted;

void *malloc(size_t bytes) {
    return exhausted ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return exhausted ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    return exhausted ? NULL : __libc_realloc(memory, bytes);
}

static const onnxc_model *model;
static onnxc_context *context;

static int32_t run(void) {
    static const int64_t dims[] = {2, 3};
    int32_t x[] = {6, 6, 6, 6, 6, 6}, d[] = {1, 2, 3, 1, 2, 3}, y[6] = {0};
    onnxc_value inputs[] = {{sizeof *inputs, ONNXC_TENSOR, ONNXC_INT32, 2, dims, x, sizeof x, 0, NULL},
                            {sizeof *inputs, ONNXC_TENSOR, ONNXC_INT32, 2, dims, d, sizeof d, 0, NULL}};
    onnxc_value output = {sizeof output, ONNXC_TENSOR, ONNXC_INT32, 2, NULL, y, 0, sizeof y, NULL};
    const int32_t status = model->run(context, inputs, 2, &output, 1);
    return status == ONNXC_OK && y[4] != 3 ? -1 : status;
}

static void *first_in_the_thread(void *status) {
    exhausted = 1;
    *(int32_t *)status = run();
    exhausted = 0;
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    int32_t status = -1;
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    CHECK(library != NULL);
    const onnxc_model *(*find)(void);
    *(void **)&find = dlsym(library, "onnxc_model");
    model = find();
    CHECK(model->create(&options, &context) == ONNXC_OK);
    CHECK(pthread_create(&thread, NULL, first_in_the_thread, &status) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && status == ONNXC_OK);
    model->destroy(context);
    return 0;
}
