/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - two models one after the other: a drawing of 32 x 32 characters becomes an image, which is read. All
 * memory of both comes from a block of the program's own; no run asks the system for any. */
#include <stdio.h>
#include <string.h>

#include "digits.h"
#include "shrink.h"

enum { SIDE = 32, PIXELS = 64, DIGITS = 10 };

/* Memory that is given out once and never taken back. */
typedef struct arena {
    onnxc_allocator base;
    size_t used;
    _Alignas(16) unsigned char bytes[1 << 20];
} arena;

static void *allocate(onnxc_allocator *allocator, size_t bytes) {
    arena *self = (arena *)allocator;
    size_t room = (bytes + 15) & ~(size_t)15;
    if (room > sizeof self->bytes - self->used) return NULL;
    self->used += room;
    return self->bytes + self->used - room;
}

static void deallocate(onnxc_allocator *allocator, void *memory) {
    (void)allocator, (void)memory;
}

static void read_bitmap(uint8_t *dots) {
    char line[256];
    memset(dots, 0, SIDE * SIDE);
    for (int row = 0; row < SIDE && fgets(line, sizeof line, stdin) != NULL; row++)
        for (int k = 0; k < SIDE && line[k] != '\n' && line[k] != 0; k++)
            dots[row * SIDE + k] = line[k] != ' ' && line[k] != '.';
}

int main(void) {
    static arena memory = {{sizeof memory.base, 0, allocate, deallocate}, 0, {0}};
    onnxc_options options = {.struct_size = sizeof options, .threads = 1, .allocator = &memory.base};
    onnxc_context *shrink = NULL, *digits = NULL;
    uint8_t bitmap[SIDE * SIDE];
    float image[PIXELS], probabilities[DIGITS];
    int status = shrink_model()->create(&options, &shrink);
    if (status == ONNXC_OK) status = digits_model()->create(&options, &digits);
    read_bitmap(bitmap);
    const char *error = NULL;
    if (status != ONNXC_OK)
        error = digits_model()->last_error(NULL);
    else if (shrink_run(shrink, 1, bitmap, image, PIXELS, NULL) != ONNXC_OK)
        error = shrink_model()->last_error(shrink);
    else if (digits_run(digits, 1, image, probabilities, DIGITS, NULL) != ONNXC_OK)
        error = digits_model()->last_error(digits);
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    int best = 0;
    for (int k = 1; k < DIGITS; k++)
        if (probabilities[k] > probabilities[best]) best = k;
    printf("%d\n", best);
    fprintf(stderr, "%zu bytes\n", memory.used);
    digits_model()->destroy(digits);
    shrink_model()->destroy(shrink);
    return 0;
}
