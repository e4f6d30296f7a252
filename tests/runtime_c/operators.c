/* A model that calls whichever operator of the runtime its first input says:
 * program = {operator, number of operands, which inputs they are ..., number of results, attributes ...}.
 * Operator -1 inserts tensor `a` into sequence `s` as often as its attribute says, in a loop. */
#include "internal.h"

enum { RESULTS = 4, REPEAT = -1 };

ONNXC_HIDDEN int32_t operators__bind(onnxc_context *context, const onnxc_value *inputs) {
    (void)inputs;
    context->scratch_bytes = 64;
    return 0;
}

/* What a compiled Loop does with a sequence that it carries: slot 0 holds it, slot 1 the next one. */
static int32_t repeat(onnxc_context *context, const onnxc_value *inputs, int64_t insert, int64_t times,
                      onnxc_value *result) {
    const onnxc_api *api = context->api;
    onnxc_value operands[2] = {inputs[7], inputs[1]}, *carried = &operands[0];
    int64_t attributes[] = {1};
    api->hold(context, 0, carried->object);
    for (int64_t k = 0; k < times; k++) {
        if (api->cancelled(context)) return 1;
        if (api->call(context, (int32_t)insert, operands, 2, result, 1, attributes, 0)) return 1;
        api->move(context, 0, 1);
        *carried = *result;
    }
    *result = *carried;
    return 0;
}

ONNXC_HIDDEN int32_t operators__run(onnxc_context *context, const onnxc_value *inputs,
                                    onnxc_value *outputs) {
    static uint8_t nothing;
    const int64_t *program = inputs[0].data;
    onnxc_value operands[8], results[RESULTS];
    int32_t count = (int32_t)program[1], given = 0, status;
    for (int32_t i = 0; i < count; i++) operands[i] = inputs[program[2 + i]];
    if (program[0] == REPEAT) {
        given = 1;
        status = repeat(context, inputs, program[2], program[3], results);
    } else {
        given = (int32_t)program[2 + count];
        status = context->api->call(context, (int32_t)program[0], operands, count, results, given,
                                    program + 3 + count, 0);
    }
    for (int32_t i = 0; i < RESULTS && status == 0; i++) {
        if (i >= given)
            results[i] = (onnxc_value){sizeof *results, ONNXC_TENSOR, ONNXC_UINT8, 0, 0, &nothing, 1};
        status = context->api->output_value(context, outputs, i, &results[i]);
    }
    return status;
}
