/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - a digit is read by a program that needs nothing: no Python, no shared library, no file.
 *
 *     sh build.sh && ./digits < ../models/seven.txt */
#include <stdio.h>

#include "digits.h"

enum { DIGITS = 10 };

int main(void) {
    float image[DIGITS_IMAGE_ELEMENTS], probabilities[DIGITS_PROBABILITIES_ELEMENTS];
    for (int k = 0; k < DIGITS_IMAGE_ELEMENTS; k++) {
        if (scanf("%f", &image[k]) != 1) {
            fprintf(stderr, "64 numbers from 0 to 16 are expected\n");
            return 2;
        }
    }
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    onnxc_context *context;
    int status = digits_model()->create(&options, &context);
    if (status == ONNXC_OK) status = digits_run(context, image, probabilities);
    if (status != ONNXC_OK) {
        fprintf(stderr, "%s\n", digits_model()->last_error(context));
        return 1;
    }
    int best = 0;
    for (int k = 1; k < DIGITS; k++)
        if (probabilities[k] > probabilities[best]) best = k;
    printf("%d\n", best);
    digits_model()->destroy(context);
    return 0;
}
