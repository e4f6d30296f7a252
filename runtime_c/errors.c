/* SPDX-License-Identifier: Apache-2.0 */
/* errors.c - one sentence for every failure, kept in the context.
 *
 * Calls without a context leave theirs in a buffer of the thread. Names are cut at 80 bytes. */

static _Thread_local char onnxc_thread_error[ONNXC_ERROR_BYTES];

static const char *onnxc_dtype_name(int32_t dtype) {
    static const char *const names[] = {
        [ONNXC_FLOAT32] = "float32", [ONNXC_UINT8] = "uint8", [ONNXC_INT8] = "int8",
        [ONNXC_UINT16] = "uint16", [ONNXC_INT16] = "int16", [ONNXC_INT32] = "int32",
        [ONNXC_INT64] = "int64", [ONNXC_STRING] = "string", [ONNXC_BOOL] = "bool",
        [ONNXC_FLOAT16] = "float16", [ONNXC_FLOAT64] = "float64", [ONNXC_UINT32] = "uint32",
        [ONNXC_UINT64] = "uint64", [ONNXC_COMPLEX64] = "complex64",
        [ONNXC_COMPLEX128] = "complex128", [ONNXC_BFLOAT16] = "bfloat16",
        [ONNXC_FLOAT8E4M3FN] = "float8e4m3fn", [ONNXC_FLOAT8E4M3FNUZ] = "float8e4m3fnuz",
        [ONNXC_FLOAT8E5M2] = "float8e5m2", [ONNXC_FLOAT8E5M2FNUZ] = "float8e5m2fnuz",
        [ONNXC_UINT4] = "uint4", [ONNXC_INT4] = "int4", [ONNXC_FLOAT4E2M1] = "float4e2m1",
        [ONNXC_FLOAT8E8M0] = "float8e8m0", [ONNXC_UINT2] = "uint2", [ONNXC_INT2] = "int2",
        [ONNXC_FLOAT6E2M3] = "float6e2m3", [ONNXC_FLOAT6E3M2] = "float6e3m2"};
    return dtype > 0 && dtype <= ONNXC_FLOAT6E3M2 ? names[dtype] : "an unknown type";
}

static const char *onnxc_kind_name(int32_t kind) {
    static const char *const names[] = {"nothing", "a tensor", "a sequence", "an optional", "a map"};
    return kind >= 0 && kind <= ONNXC_MAP ? names[kind] : "an unknown kind";
}

/* Records the sentence and returns the status, so that callers write `return onnxc_report(...)`. */
__attribute__((format(printf, 3, 4)))
static int32_t onnxc_report(onnxc_context *context, int32_t status, const char *format, ...) {
    char *text = context != NULL ? context->error : onnxc_thread_error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, ONNXC_ERROR_BYTES, format, arguments);
    va_end(arguments);
    if (context != NULL) context->status = status;
    return status;
}

ONNXC_HIDDEN const char *ONNXC_SYMBOL(last_error)(const onnxc_context *context) {
    return context != NULL ? context->error : onnxc_thread_error;
}

static int32_t onnxc_out_of_memory(onnxc_context *context, int64_t bytes) {
    return onnxc_report(context, ONNXC_OUT_OF_MEMORY, "out of memory: %lld bytes are needed",
                        (long long)bytes);
}

/* "[2, N, 3]" of dims, -1 printed as its symbol or `?`; cut when it does not fit. */
static const char *onnxc_shape_text(char *text, size_t room, int32_t rank, const int64_t *dims,
                                    const char *const *symbols) {
    size_t used = 0;
    text[used++] = '[';
    for (int32_t axis = 0; axis < rank && used + 44 < room; axis++) {
        const char *comma = axis > 0 ? ", " : "";
        const char *symbol = symbols != NULL && symbols[axis] != NULL ? symbols[axis] : "?";
        int written = dims[axis] == -1 && symbols != NULL
            ? snprintf(text + used, room - used, "%s%.20s", comma, symbol)
            : snprintf(text + used, room - used, "%s%lld", comma, (long long)dims[axis]);
        used += written > 0 ? (size_t)written : 0;
    }
    snprintf(text + used, room - used, "]");
    return text;
}

/* What went wrong in a node, without its name. `value` is the number that the sentence has. */
static void onnxc_failure_text(char *text, size_t room, int32_t code, const char *value) {
    const char *format;
    switch (code) {
    case ONNXC_WRONG_KIND: format = "a value is %s, which is not allowed here"; break;
    case ONNXC_WRONG_DTYPE: format = "a value is of type %s, which is not allowed here"; break;
    case ONNXC_WRONG_SHAPE: format = "a dimension is %s, which does not fit"; break;
    case ONNXC_DIMS_MISMATCH: format = "dimensions do not match: %s"; break;
    case ONNXC_RANK_MISMATCH: format = "a value has rank or size %s, which is not allowed here"; break;
    case ONNXC_INDEX_OUT_OF_RANGE: format = "index %s is out of range"; break;
    case ONNXC_DIVISION_BY_ZERO: format = "integer division by zero"; break;
    case ONNXC_INVALID_VALUE: format = "%s is not a valid value"; break;
    case ONNXC_INVALID_RESHAPE: format = "%s elements cannot take the requested shape"; break;
    case ONNXC_SIZE_OVERFLOW: format = "the size of a value overflows"; break;
    case ONNXC_OUT_OF_MEMORY: format = "out of memory: %s bytes are needed"; break;
    case ONNXC_CANCELLED: format = "the run was cancelled"; break;
    case ONNXC_EMPTY_OPTIONAL: format = "the optional holds no value"; break;
    case ONNXC_UNSUPPORTED: format = "this input is not supported (%s)"; break;
    default: snprintf(text, room, "failed with status %d (%s)", (int)code, value); return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    snprintf(text, room, format, value);
#pragma GCC diagnostic pop
}

static const char *onnxc_node_name(const onnxc_context *context, int32_t node) {
    const onnxc_lowered *lowered = context->lowered;
    return node >= 0 && node < lowered->node_count ? lowered->node_names[node] : "the model";
}

static int32_t onnxc_fail_with(onnxc_context *context, int32_t node, int32_t code, const char *value) {
    char text[160];
    onnxc_failure_text(text, sizeof text, code, value);
    return onnxc_report(context, code, "%.300s: %s", onnxc_node_name(context, node), text);
}

static const char *onnxc_number_text(char *text, size_t room, int64_t number, bool is_double) {
    double value;
    memcpy(&value, &number, sizeof value);
    if (!is_double) snprintf(text, room, "%lld", (long long)number);
    else if (isnan(value)) snprintf(text, room, "NaN"); /* whose sign says nothing */
    else snprintf(text, room, "%g", value);
    return text;
}

static int32_t onnxc_fail(onnxc_context *context, int32_t node, int32_t code, int64_t value) {
    char text[32];
    if (code == ONNXC_WRONG_KIND) return onnxc_fail_with(context, node, code, onnxc_kind_name((int32_t)value));
    if (code == ONNXC_WRONG_DTYPE) return onnxc_fail_with(context, node, code, onnxc_dtype_name((int32_t)value));
    return onnxc_fail_with(context, node, code, onnxc_number_text(text, sizeof text, value, false));
}

static int32_t onnxc_fail_double(onnxc_context *context, int32_t node, int32_t code, double value) {
    char text[32];
    int64_t word;
    memcpy(&word, &value, sizeof word);
    return onnxc_fail_with(context, node, code, onnxc_number_text(text, sizeof text, word, true));
}

/* What a kernel returned, with what it told. */
static int32_t onnxc_fail_kernel(onnxc_context *context, int32_t node, int32_t code, const onnxc_told *told) {
    char text[32];
    const char *number = onnxc_number_text(text, sizeof text, told->number, (code & ONNXC_OF_DOUBLE) != 0);
    const char *gap = (code & ONNXC_SAYS) != 0 ? strstr(told->says, "{}") : NULL;
    int32_t status = code & ~(ONNXC_OF_DOUBLE | ONNXC_SAYS);
    if ((code & ONNXC_SAYS) == 0) return onnxc_fail_with(context, node, status, number);
    if (gap == NULL) return onnxc_report(context, status, "%.300s: %s", onnxc_node_name(context, node), told->says);
    return onnxc_report(context, status, "%.300s: %.*s%s%s", onnxc_node_name(context, node),
                        (int)(gap - told->says), told->says, number, gap + 2);
}

static int32_t onnxc_fail_expected(onnxc_context *context, int32_t node, int32_t code,
                                   int64_t expected, int64_t got) {
    static const char *const what[] = {
        [ONNXC_WRONG_SHAPE] = "dimension", [ONNXC_DIMS_MISMATCH] = "dimensions do not match",
        [ONNXC_RANK_MISMATCH] = "rank", [ONNXC_INVALID_RESHAPE] = "number of elements"};
    int32_t known = (int32_t)(sizeof what / sizeof *what);
    const char *least = (code & ONNXC_AT_LEAST) != 0 ? " at least" : "";
    code &= ~ONNXC_AT_LEAST;
    const char *subject = code > 0 && code < known ? what[code] : NULL;
    return onnxc_report(context, code, "%.300s: %s: expected %lld%s, got %lld", onnxc_node_name(context, node),
                        subject != NULL ? subject : "invalid value", (long long)expected, least,
                        (long long)got);
}

static int32_t onnxc_fail_input(onnxc_context *context, int32_t input, int32_t axis,
                                int64_t expected) {
    const onnxc_port *port = &context->library->model->inputs[input];
    const char *symbol = port->symbols != NULL && axis < port->rank ? port->symbols[axis] : NULL;
    return onnxc_report(context, ONNXC_WRONG_SHAPE,
                        "input '%.80s': dimension %d%s%.40s%s: expected %lld, got %lld", port->name,
                        (int)axis, symbol ? " (" : "", symbol ? symbol : "", symbol ? ")" : "",
                        (long long)expected, (long long)context->inputs[input].dims[axis]);
}

static int32_t onnxc_raise(onnxc_context *context, int32_t code, int64_t value) {
    return onnxc_fail(context, context->node, code, value);
}

/* Unless a size is the one that is expected, records that it is not; whether it is. */
static bool onnxc_same_size(onnxc_context *context, int64_t expected, int64_t got) {
    if (got != expected) onnxc_fail_expected(context, context->node, ONNXC_DIMS_MISMATCH, expected, got);
    return got == expected;
}

/* Records that this thread was just refused memory. */
static int32_t onnxc_raise_refused(onnxc_context *context) {
    return onnxc_raise(context, ONNXC_OUT_OF_MEMORY, onnxc_refused_bytes);
}
