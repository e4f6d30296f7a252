/* SPDX-License-Identifier: Apache-2.0 */
/* ops_custom.c - calls of operators that users brought (onnxc_operator.h). */
#include "onnxc_operator.h"

typedef struct onnxc_custom_call {
    onnxc_operator_call call; /* first: what the function is given */
    onnxc_context *context;
    onnxc_value *out;
    const int64_t *attributes; /* the slot of each output, its element type; then the parameters */
} onnxc_custom_call;

static void *onnxc_custom_output(onnxc_operator_call *call, int32_t index, int32_t rank, const int64_t *dims) {
    onnxc_custom_call *own = (onnxc_custom_call *)call;
    if (index < 0 || index >= call->output_count || rank < 0 || rank > ONNXC_MAX_RANK) {
        onnxc_raise(own->context, ONNXC_INDEX_OUT_OF_RANGE, index);
        return NULL;
    }
    int32_t dtype = (int32_t)own->attributes[call->output_count + index];
    if (dtype != ONNXC_STRING)
        return onnxc_call_output(own->context, &own->out[index], own->attributes[index], dtype, rank, dims);
    onnxc_object *tensor = onnxc_new_strings(own->context, rank, dims, 0);
    if (tensor == NULL
        || onnxc_call_object(own->context, &own->out[index], own->attributes[index], tensor) != ONNXC_OK)
        return NULL;
    return own->out[index].data;
}

static void *onnxc_custom_memory(onnxc_operator_call *call, int64_t bytes) {
    return onnxc_call_scratch(((onnxc_custom_call *)call)->context, bytes, 1);
}

static int32_t onnxc_custom_fail(onnxc_operator_call *call, const char *sentence) {
    onnxc_context *context = ((onnxc_custom_call *)call)->context;
    onnxc_report(context, ONNXC_INVALID_VALUE, "%.300s: %.300s", onnxc_node_name(context, context->node),
                 sentence != NULL ? sentence : "failed");
    return 1;
}

/* The outputs as they are to be: there, and with characters of their own. */
static int32_t onnxc_custom_results(onnxc_custom_call *own) {
    for (int32_t i = 0; i < own->call.output_count; i++) {
        onnxc_value *out = &own->out[i];
        if (out->kind != ONNXC_TENSOR) {
            char sentence[64];
            snprintf(sentence, sizeof sentence, "its function did not make output %d", (int)i);
            return onnxc_custom_fail(&own->call, sentence);
        }
        if (out->dtype == ONNXC_STRING && onnxc_give_text(own->context, out, out->object) != ONNXC_OK)
            return own->context->status;
    }
    return ONNXC_OK;
}

/* Calls an operator. Attributes: of each output slot and then element type; the number of parameters, and of
 * each its operand, -1 for none. */
ONNXC_HIDDEN int32_t ONNXC_SYMBOL(custom)(onnxc_context *context, const onnxc_value *in, onnxc_value *out,
                                          int32_t out_count, const int64_t *attributes,
                                          int32_t (*function)(onnxc_operator_call *call)) {
    const int64_t *places = attributes + 2 * out_count + 1;
    int64_t count = places[-1];
    onnxc_value *inputs = onnxc_call_scratch(context, count, sizeof *inputs);
    if (inputs == NULL) return context->status;
    for (int64_t i = 0; i < count; i++)
        inputs[i] = places[i] >= 0 ? in[places[i]] : (onnxc_value){.struct_size = sizeof *inputs};
    onnxc_custom_call own = {
        {sizeof(onnxc_operator_call), (int32_t)count, out_count, inputs, onnxc_custom_output, onnxc_custom_memory,
         onnxc_custom_fail},
        context, out, attributes};
    context->status = ONNXC_OK;
    int32_t status = function(&own.call);
    if (context->status != ONNXC_OK) return context->status;
    if (status != 0) return onnxc_fail(context, context->node, status, 0);
    return onnxc_custom_results(&own);
}
