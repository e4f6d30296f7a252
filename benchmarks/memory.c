/* memory.c - what a compiled model costs a C program: `memory LIBRARY [N,N,...[=V] for each input]`.
 *
 * Opens the library as any program would, runs it on zeros (or integers V) in one thread, and prints JSON: the
 * seconds from dlopen to a context that can run, those of runs, and the peak of the process's
 * resident memory with what it is made of. Dims are needed where the model leaves them open. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "onnxc.h"

enum { RUNS = 5, MAX_PORTS = 64 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fail(const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static int64_t element_bytes(int32_t dtype) {
    switch (dtype) {
    case ONNXC_FLOAT64: case ONNXC_INT64: case ONNXC_UINT64: case ONNXC_COMPLEX64: return 8;
    case ONNXC_COMPLEX128: return 16;
    case ONNXC_FLOAT32: case ONNXC_INT32: case ONNXC_UINT32: return 4;
    case ONNXC_FLOAT16: case ONNXC_BFLOAT16: case ONNXC_INT16: case ONNXC_UINT16: return 2;
    case ONNXC_STRING: fail("an input is of strings"); return 0;
    default: return 1;
    }
}

/* A tensor of the port's declared dims, or those that `text` gives, of zeros or the integer that it
 * gives ("1,3,224,224", "2,1=7", "=16000"). */
static onnxc_value tensor(const onnxc_port *port, const char *text) {
    static int64_t dims[MAX_PORTS][ONNXC_MAX_RANK];
    static int used;
    int64_t *mine = dims[used++], count = 1;
    if (port->kind != ONNXC_TENSOR || port->rank < 0)
        fail("an input is no tensor of known rank");
    for (int32_t axis = 0; axis < port->rank; axis++) {
        char *end = NULL;
        mine[axis] = port->dims[axis];
        if (text != NULL && *text != '\0' && *text != '=') {
            mine[axis] = strtoll(text, &end, 10);
            text = *end == ',' ? end + 1 : end;
        }
        if (mine[axis] < 0)
            fail("the dims of an input are not known; give them as N,N,...");
        count *= mine[axis];
    }
    int64_t size = element_bytes(port->dtype), bytes = count * size;
    char *data = malloc((size_t)bytes + 1);
    if (data == NULL)
        fail("out of memory");
    memset(data, 0, (size_t)bytes);
    int64_t value = text != NULL && *text == '=' ? strtoll(text + 1, NULL, 10) : 0;
    for (int64_t k = 0; value != 0 && k < count; k++) /* its low bytes, which come first */
        memcpy(data + k * size, &value, (size_t)(size < 8 ? size : 8));
    return (onnxc_value){.struct_size = sizeof(onnxc_value), .kind = ONNXC_TENSOR,
                         .dtype = port->dtype, .rank = port->rank, .dims = mine, .data = data,
                         .bytes = (uint64_t)bytes};
}

/* Kilobytes of a line of /proc/self/status, or -1. */
static long status_line(const char *name) {
    char line[256];
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ": %ld", &kilobytes);
    if (file != NULL)
        fclose(file);
    return kilobytes;
}

int main(int argc, char **argv) {
    if (argc < 2)
        fail("usage: memory LIBRARY [N,N,...[=V]]...");
    double began = now();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(dlerror());
    const onnxc_model *(*entry)(void);
    *(void **)&entry = dlsym(library, ONNXC_ENTRY_POINT);
    if (entry == NULL)
        fail("not a library compiled by onnxc");
    const onnxc_model *model = entry();
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    onnxc_context *context = NULL;
    if (model->create(&options, &context) != ONNXC_OK)
        fail(model->last_error(NULL));
    double load = now() - began;
    long loaded = status_line("VmRSS");

    onnxc_value inputs[MAX_PORTS], outputs[MAX_PORTS];
    uint64_t input_bytes = 0, output_bytes = 0;
    if (model->input_count > MAX_PORTS || model->output_count > MAX_PORTS)
        fail("too many inputs or outputs");
    const char *port = (const char *)model->inputs;
    for (int k = 0; k < model->input_count; k++) {
        const onnxc_port *declared = (const onnxc_port *)(const void *)port;
        inputs[k] = tensor(declared, k + 2 < argc ? argv[k + 2] : NULL);
        input_bytes += inputs[k].bytes;
        port += declared->struct_size;
    }
    size_t workspace = 0;
    if (model->workspace_bytes_for(context, inputs, model->input_count, &workspace) != ONNXC_OK)
        fail(model->last_error(context));
    double first = 0, fastest = 1e9;
    for (int run = 0; run < RUNS; run++) {
        memset(outputs, 0, sizeof outputs);
        for (int k = 0; k < model->output_count; k++)
            outputs[k].struct_size = sizeof(onnxc_value);
        began = now();
        if (model->run(context, inputs, model->input_count, outputs, model->output_count) != ONNXC_OK)
            fail(model->last_error(context));
        double seconds = now() - began;
        first = run == 0 ? seconds : first;
        fastest = seconds < fastest ? seconds : fastest;
        output_bytes = 0;
        for (int k = 0; k < model->output_count; k++) {
            output_bytes += outputs[k].bytes;
            model->release(&outputs[k]);
        }
    }
    printf("{\"load_seconds\": %.9f, \"first_run_seconds\": %.9f, \"fastest_run_seconds\": %.9f,\n"
           " \"loaded_bytes\": %ld, \"peak_bytes\": %ld, \"weights_bytes\": %llu,\n"
           " \"workspace_bytes\": %zu, \"input_bytes\": %llu, \"output_bytes\": %llu}\n",
           load, first, fastest, loaded * 1024, status_line("VmHWM") * 1024,
           (unsigned long long)model->weights_bytes, workspace, (unsigned long long)input_bytes,
           (unsigned long long)output_bytes);
    model->destroy(context);
    return 0;
}
