/* main.c - a C program around a compiled model: digits.h and digits.so are all it needs.
 *
 *     cc -O2 main.c digits.so -Wl,-rpath,. -o digits && ./digits images.f32
 *
 * The file holds images of 8 x 8 floats from 0 to 16. Prints the digit on each, one a line, and at
 * last, on standard error, the time that one image takes. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "digits.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, DIGITS = 10, REPETITIONS = 2000 };

/* All images of a file; their number in *count. Null when it cannot be read. */
static float *read_images(const char *path, int64_t *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    float *images = NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    *count = bytes / (long)(PIXELS * sizeof(float));
    if (*count > 0 && (images = malloc((size_t)bytes)) != NULL &&
        fread(images, PIXELS * sizeof(float), (size_t)*count, file) != (size_t)*count) {
        free(images);
        images = NULL;
    }
    fclose(file);
    return images;
}

/* Runs the model on `count` images; their probabilities are written to `probabilities`. */
static int classify(onnxc_context *context, const float *images, int64_t count,
                    float *probabilities) {
    return digits_run(context, count, images, probabilities, (size_t)count * DIGITS, NULL);
}

static int largest(const float *values) {
    int best = 0;
    for (int k = 1; k < DIGITS; k++)
        if (values[k] > values[best])
            best = k;
    return best;
}

static double now(void) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    int64_t count = 0;
    float *images = argc == 2 ? read_images(argv[1], &count) : NULL;
    float *probabilities = images ? malloc((size_t)count * DIGITS * sizeof(float)) : NULL;
    if (probabilities == NULL) {
        fprintf(stderr, "usage: %s images.f32\n", argv[0]);
        free(images);
        return 2;
    }
    const onnxc_model *model = digits_model();
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    onnxc_context *context = NULL;
    int status = model->create(&options, &context);
    if (status == ONNXC_OK)
        status = classify(context, images, count, probabilities);
    if (status == ONNXC_OK) {
        for (int64_t k = 0; k < count; k++)
            printf("%d\n", largest(probabilities + k * DIGITS));
        double best = 1e9;
        for (int k = 0; k < REPETITIONS && status == ONNXC_OK; k++) {
            double began = now();
            status = classify(context, images, 1, probabilities);
            best = now() - began < best ? now() - began : best;
        }
        fprintf(stderr, "%.0f nanoseconds\n", 1e9 * best);
    }
    if (status != ONNXC_OK)
        fprintf(stderr, "%s\n", model->last_error(context));
    model->destroy(context);
    free(probabilities);
    free(images);
    return status != ONNXC_OK;
}
