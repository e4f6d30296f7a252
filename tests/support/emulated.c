/* emulated.c - runs kernels and compiled models on the processor that it was built for; tests/support/emulated.py
 * builds it, starts it in an emulator and asks it over pipes. A request is a word that says what follows; all
 * numbers are words of 64 bits, texts and memory come after their length. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "onnxc.h"

enum { LOAD = 1, RUN = 2, CALL = 3 };

static void take(void *memory, size_t bytes) {
    if (fread(memory, 1, bytes, stdin) != bytes) exit(0); /* nobody asks any more */
}
static int64_t word(void) {
    int64_t value;
    take(&value, sizeof value);
    return value;
}
static void *room(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 128) / 64 * 64);
    if (memory == NULL) abort();
    return memory;
}
static char *text(void) {
    int64_t length = word();
    char *found = room((size_t)length + 1);
    take(found, (size_t)length);
    found[length] = 0;
    return found;
}
static void give(const void *memory, size_t bytes) { fwrite(memory, 1, bytes, stdout); }
static void give_word(int64_t value) { give(&value, sizeof value); }
static void give_text(const char *text) {
    give_word((int64_t)strlen(text));
    give(text, strlen(text));
}

/* Models ------------------------------------------------------------------------------------------ */

static int64_t count_of(const onnxc_value *value) {
    int64_t count = 1;
    for (int32_t k = 0; k < value->rank; k++) count *= value->dims[k];
    return count;
}

static void take_value(onnxc_value *value) {
    *value = (onnxc_value){.struct_size = sizeof *value, .kind = (int32_t)word()};
    if (value->kind == ONNXC_NONE) return;
    value->dtype = (int32_t)word();
    value->rank = (int32_t)word();
    int64_t *dims = room((size_t)value->rank * sizeof *dims);
    take(dims, (size_t)value->rank * sizeof *dims);
    value->dims = dims;
    int64_t count = count_of(value);
    if (value->kind != ONNXC_TENSOR) {
        onnxc_value *items = value->data = room((size_t)count * sizeof *items);
        value->bytes = (size_t)count * sizeof *items;
        for (int64_t k = 0; k < count; k++) take_value(&items[k]);
    } else if (value->dtype == ONNXC_STRING) {
        onnxc_string *strings = value->data = room((size_t)count * sizeof *strings);
        value->bytes = (size_t)count * sizeof *strings;
        for (int64_t k = 0; k < count; k++) {
            strings[k].length = word();
            char *data = room((size_t)strings[k].length);
            take(data, (size_t)strings[k].length);
            strings[k].data = data;
        }
    } else {
        value->bytes = (size_t)word();
        value->data = room(value->bytes);
        take(value->data, value->bytes);
    }
}

static void free_value(onnxc_value *value) {
    if (value->kind == ONNXC_NONE) return;
    int64_t count = count_of(value);
    for (int64_t k = 0; k < count; k++) {
        if (value->kind != ONNXC_TENSOR) free_value((onnxc_value *)value->data + k);
        else if (value->dtype == ONNXC_STRING) free((void *)((onnxc_string *)value->data)[k].data);
        else break;
    }
    free(value->data);
    free((void *)value->dims);
}

static void give_value(const onnxc_value *value) {
    give_word(value->kind);
    if (value->kind == ONNXC_NONE) return;
    give_word(value->dtype);
    give_word(value->rank);
    give(value->dims, (size_t)value->rank * sizeof *value->dims);
    int64_t count = count_of(value);
    if (value->kind != ONNXC_TENSOR) {
        for (int64_t k = 0; k < count; k++) give_value((const onnxc_value *)value->data + k);
    } else if (value->dtype == ONNXC_STRING) {
        const onnxc_string *strings = value->data;
        for (int64_t k = 0; k < count; k++) {
            give_word(strings[k].length);
            give(strings[k].data, (size_t)strings[k].length);
        }
    } else {
        give_word((int64_t)value->bytes);
        give(value->data, value->bytes);
    }
}

static void *library;
static const onnxc_model *model;
static onnxc_context *context;

/* path, threads, target ("": the best) -> 0, the library's description, its target; or status, sentence */
static void load(void) {
    char *path = text();
    int32_t threads = (int32_t)word();
    char *target = text();
    if (context != NULL) model->destroy(context);
    if (library != NULL) dlclose(library);
    context = NULL;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const onnxc_model *(*entry)(void) = NULL;
    if (library != NULL) *(void **)&entry = dlsym(library, ONNXC_ENTRY_POINT);
    if (entry == NULL) {
        give_word(-1);
        give_text(dlerror());
    } else {
        onnxc_options options = {.struct_size = sizeof options, .threads = threads};
        options.target = *target ? target : NULL;
        model = entry();
        int32_t status = model->create(&options, &context);
        give_word(status);
        give_text(status == ONNXC_OK ? model->description : model->last_error(NULL));
        if (status == ONNXC_OK) give_text(model->target(context));
    }
    free(path);
    free(target);
}

/* count, inputs -> 0, outputs; or status, sentence */
static void run(void) {
    int32_t count = (int32_t)word();
    onnxc_value *inputs = room((size_t)count * sizeof *inputs);
    for (int32_t k = 0; k < count; k++) take_value(&inputs[k]);
    onnxc_value *outputs = room((size_t)model->output_count * sizeof *outputs);
    memset(outputs, 0, (size_t)model->output_count * sizeof *outputs);
    for (int32_t k = 0; k < model->output_count; k++) outputs[k].struct_size = sizeof *outputs;
    int32_t status = model->run(context, inputs, count, outputs, model->output_count);
    give_word(status);
    if (status != ONNXC_OK) give_text(model->last_error(context));
    for (int32_t k = 0; status == ONNXC_OK && k < model->output_count; k++) {
        give_value(&outputs[k]);
        model->release(&outputs[k]);
    }
    for (int32_t k = 0; k < count; k++) free_value(&inputs[k]);
    free(inputs);
    free(outputs);
}

/* Kernels ----------------------------------------------------------------------------------------- */

typedef int32_t kernel(void *arguments, int64_t first, int64_t last, void *scratch);

/* Memory at an offset into a page, with a forbidden page behind the last one that it touches or, where it is not
 * `guarded`, behind 64 bytes more. */
typedef struct region { char *memory, *pages; size_t bytes, mapped; } region;

static region take_region(void) {
    enum { PAGE = 4096 };
    size_t bytes = (size_t)word(), offset = (size_t)word(), slack = word() ? 0 : 64;
    size_t usable = (offset + bytes + slack + PAGE - 1) / PAGE * PAGE;
    char *pages = mmap(NULL, usable + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + usable, PAGE, PROT_NONE) != 0) abort();
    memset(pages, 0xff, usable);
    take(pages + offset, bytes);
    return (region){pages + offset, pages, bytes, usable + PAGE};
}

/* path of a library, name of its kernel; regions of memory (bytes, offset into a page, whether guarded, content), of
 * which the first is scratch memory; arguments (region or -1, number); ranges of parts -> what the first failing
 * range returned, or 0; the regions */
static void call(void) {
    char *path = text(), *name = text();
    void *kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    kernel *entry = NULL;
    if (kernels != NULL) *(void **)&entry = dlsym(kernels, name);
    if (entry == NULL) fprintf(stderr, "%s\n", dlerror()), abort();
    int64_t count = word();
    region *regions = room((size_t)count * sizeof *regions);
    for (int64_t k = 0; k < count; k++) regions[k] = take_region();
    int64_t words = word(), *arguments = room((size_t)words * sizeof *arguments);
    for (int64_t k = 0; k < words; k++) {
        int64_t place = word(), number = word();
        arguments[k] = place < 0 ? number : (int64_t)(intptr_t)regions[place].memory;
    }
    int32_t failed = 0;
    for (int64_t ranges = word(); ranges > 0; ranges--) {
        int64_t first = word(), last = word();
        if (failed == 0) failed = entry(arguments, first, last, regions[0].memory);
    }
    give_word(failed);
    for (int64_t k = 0; k < count; k++) {
        give(regions[k].memory, regions[k].bytes);
        munmap(regions[k].pages, regions[k].mapped);
    }
    dlclose(kernels);
    free(path), free(name), free(regions), free(arguments);
}

int main(void) {
    for (;;) {
        switch (word()) {
        case LOAD: load(); break;
        case RUN: run(); break;
        case CALL: call(); break;
        default: return 1;
        }
        fflush(stdout);
    }
}
