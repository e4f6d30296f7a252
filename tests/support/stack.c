/* How much of its stack a run uses: on a thread whose stack is filled with a pattern. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

typedef int32_t run_function(void *context, void *inputs, int32_t input_count, void *outputs,
                             int32_t output_count);

struct call {
    run_function *run;
    void *context, *inputs, *outputs;
    int32_t input_count, output_count, status;
};

enum { STACK_BYTES = 8 << 20, PATTERN = 0x5a };

static void *begin(void *argument) {
    struct call *call = argument;
    call->status = call->run(call->context, call->inputs, call->input_count, call->outputs, call->output_count);
    return NULL;
}

/* The bytes used, -1 when the run failed. */
long stack_of_run(run_function *run, void *context, void *inputs, int32_t input_count, void *outputs,
                  int32_t output_count) {
    unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct call call = {run, context, inputs, outputs, input_count, output_count, -1};
    pthread_attr_t attributes;
    pthread_t thread;
    long untouched = 0;
    if (stack == MAP_FAILED) return -1;
    memset(stack, PATTERN, STACK_BYTES);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK_BYTES);
    if (pthread_create(&thread, &attributes, begin, &call) == 0) pthread_join(thread, NULL);
    while (untouched < STACK_BYTES && stack[untouched] == PATTERN) untouched++;
    munmap(stack, STACK_BYTES);
    return call.status == 0 ? STACK_BYTES - untouched : -1;
}
