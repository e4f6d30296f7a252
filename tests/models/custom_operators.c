/* Operators for test_custom_operators.py. */
#include "onnxc_operator.h"

#include <string.h>

static int64_t elements(const onnxc_value *x) {
    int64_t count = 1;
    for (int32_t axis = 0; axis < x->rank; axis++) count *= x->dims[axis];
    return count;
}

/* Attributes come behind the tensors; one that is left out has its default value. */
ONNXC_DECLARE_OPERATOR(clamp, "my.domain", 1, "Clamp(float X[...], float low = 0.0, float high = 6.0) -> float Y[...]") {
    const onnxc_value *x = &call->inputs[0];
    float low = *(float *)call->inputs[1].data, high = *(float *)call->inputs[2].data;
    if (low > high) return call->fail(call, "low is above high");
    float *y = call->output(call, 0, x->rank, x->dims);
    if (y == NULL) return 1;
    for (int64_t i = 0; i < elements(x); i++) {
        float value = ((float *)x->data)[i];
        y[i] = value < low ? low : value > high ? high : value;
    }
    return 0;
}

/* A newer form of the same. */
ONNXC_DECLARE_OPERATOR(clamp2, "my.domain", 2, "Clamp(float X[...], float high?) -> float Y[...]") {
    const onnxc_value *x = &call->inputs[0];
    float *y = call->output(call, 0, x->rank, x->dims);
    if (y == NULL) return 1;
    for (int64_t i = 0; i < elements(x); i++)
        y[i] = call->inputs[1].kind == ONNXC_NONE ? -1.0f : *(float *)call->inputs[1].data;
    return 0;
}

/* The words of each row that begin with a letter: how many there are only the function knows. */
ONNXC_DECLARE_OPERATOR(words, "my.domain", 1,
                       "Words(string text[n], string bias[n]?, ints lengths = {1, 2}, string letter = \"a\")"
                       " -> string found[m], int64 places[m], float sizes[2]") {
    const onnxc_value *text = &call->inputs[0];
    const onnxc_string *letter = call->inputs[3].data, *from = text->data;
    int64_t *kept = call->memory(call, 8 * text->dims[0] + 8), count = 0;
    if (kept == NULL) return 1;
    for (int64_t i = 0; i < text->dims[0]; i++)
        if (from[i].length > 0 && letter->length > 0 && from[i].data[0] == letter->data[0]) kept[count++] = i;
    onnxc_string *found = call->output(call, 0, 1, &count);
    int64_t *places = call->output(call, 1, 1, &count), two = 2;
    float *sizes = call->output(call, 2, 1, &two);
    if (found == NULL || places == NULL || sizes == NULL) return 1;
    for (int64_t k = 0; k < count; k++) found[k] = from[places[k] = kept[k]];
    sizes[0] = (float)((int64_t *)call->inputs[2].data)[0];
    sizes[1] = call->inputs[1].kind == ONNXC_NONE ? -1 : (float)call->inputs[1].dims[0];
    return 0;
}

/* Rows of one length, of which the declaration says so; and a function that leaves its output out. */
ONNXC_DECLARE_OPERATOR(dots, "my.domain", 1, "Dots(T A[..., k], T B[..., k]) -> T Y[...]") {
    const onnxc_value *a = &call->inputs[0], *b = &call->inputs[1];
    if (a->dtype != ONNXC_FLOAT64) return a->dtype == ONNXC_FLOAT32 ? 0 : 1;
    double *y = call->output(call, 0, a->rank - 1, a->dims);
    if (y == NULL) return 1;
    int64_t length = a->dims[a->rank - 1], rows = length > 0 ? elements(a) / length : 0;
    for (int64_t i = 0; i < rows; i++) {
        y[i] = 0;
        for (int64_t k = 0; k < length; k++)
            y[i] += ((double *)a->data)[i * length + k] * ((double *)b->data)[i * length + k];
    }
    return 0;
}
