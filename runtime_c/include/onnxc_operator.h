/* SPDX-License-Identifier: Apache-2.0 */
/* onnxc_operator.h - operators of your own, written in C.
 *
 *     #include "onnxc_operator.h"
 *
 *     ONNXC_DECLARE_OPERATOR(clamp, "my.domain", 1, "Clamp(T X[...], float low = 0.0) -> T Y[...]")
 *     {
 *         const onnxc_value *x = &call->inputs[0], *low = &call->inputs[1];
 *         if (x->dtype != ONNXC_FLOAT32) return call->fail(call, "only floats can be clamped");
 *         float *y = call->output(call, 0, x->rank, x->dims);
 *         if (y == NULL) return 1;
 *         ...
 *         return 0;
 *     }
 *
 * The macro takes a name for the function, the operator's domain, the first version of its operator set that has
 * this form, and the form: `OPERATOR(INPUTS) -> OUTPUTS`. A tensor is written TYPE NAME[SIZES]: the type is
 * ONNX's (float, int64, string, ...) or a variable (T) that stands for any, the same wherever it is written; sizes
 * are numbers, names (the same name is the same size) and, first, `...` for any number of others. A name that
 * only outputs have is a size that the function finds. An attribute is written without brackets: float, int,
 * string, floats, ints or strings, `= VALUE` behind it where it has a default value ({1, 2} for several). `?`
 * behind a parameter: it may be left out.
 *
 * A model is compiled with such operators by `onnxc compile --operators FILE`, which is a C source, an object or
 * an archive that becomes part of the library, or a shared library that it looks for at the same place. */
#ifndef ONNXC_OPERATOR_H
#define ONNXC_OPERATOR_H

#include "onnxc.h"

#ifdef __cplusplus
#define ONNXC_C_LINKAGE extern "C"
#else
#define ONNXC_C_LINKAGE extern
#endif

/* One call of an operator. Several may be under way in several threads: keep no state. */
typedef struct onnxc_operator_call onnxc_operator_call;
struct onnxc_operator_call {
    uint32_t struct_size;
    int32_t input_count;
    int32_t output_count;
    /* Every tensor and attribute in the order of the declaration; kind ONNXC_NONE: left out. Attributes are
     * tensors, too: float32, int64 or string, of rank 0 or, of several values, 1. All is borrowed, and read
     * only: kind, dtype, rank, dims, data and bytes (see onnxc.h). Strings are onnxc_string. */
    const onnxc_value *inputs;
    /* The memory of output `index` with these dims, 64-byte aligned, to be filled in full; once for each output.
     * Null after an error, upon which the function returns 1. Strings may point anywhere that is valid until the
     * function returns. */
    void *(*output)(onnxc_operator_call *call, int32_t index, int32_t rank, const int64_t *dims);
    /* Memory until the function returns, 64-byte aligned; null after an error, upon which it returns 1. */
    void *(*memory)(onnxc_operator_call *call, int64_t bytes);
    /* The run fails, with this sentence; returns 1, which the function then returns too. */
    int32_t (*fail)(onnxc_operator_call *call, const char *sentence);
};

/* Declares an operator, and begins the definition of its function, which returns 0 when all is well. */
#define ONNXC_DECLARE_OPERATOR(function, domain, version, signature)                              \
    ONNXC_C_LINKAGE __attribute__((visibility("default"))) int32_t onnxc_custom_##function(       \
        onnxc_operator_call *call);                                                               \
    __attribute__((used)) static const char onnxc_declaration_##function[] =                      \
        "onnxc operator 1\n" #function "\n" domain "\n" #version "\n" signature;              \
    int32_t onnxc_custom_##function(onnxc_operator_call *call)

#endif
