/* onnxc.hpp around two models of any number of elements, y = 3 x + b and texts in lower case: what becomes of memory;
 * and around models that hand an optional on. Ends with status 0 when all that it expects is so.
 *
 *   wrapper elements     elements and memory of no bytes are refused where the shape has some
 *   wrapper memory       calls that have a status throw nothing, whichever allocation of theirs fails
 *   wrapper again        results go to the caller's memory in every run, and are gone after one that fails
 *   wrapper busy         a context that is running says so
 *   wrapper left_out     an optional input that is left out is an empty optional, of a tensor and of a sequence */
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <onnxc.hpp>

#include "affine.h"
#include "inside.h"
#include "list.h"
#include "lower.h"
#include "tensor.h"

#include "../support/check.h"

static long left = -1; /* allocations that are granted; -1: all */

void *operator new(std::size_t bytes) {
    void *memory = left == 0 ? nullptr : std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    if (left > 0) left--;
    return memory;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

namespace {

const std::vector<float> four{1, 2, 3, 4}, none;
const std::int64_t nowhere = INT64_MAX; /* where the model is to fail: not at all */

std::vector<onnxc::Value> run(onnxc::Context &context, const onnxc::Input &x, const onnxc::Input &b,
                              onnxc::Status &status) {
    return context.run({x, b, onnxc::scalar(nowhere)}, status);
}

void elements() {
    onnxc::Context context(affine_model());
    onnxc::Status status;
    auto results = run(context, onnxc::tensor(four, {4}), onnxc::tensor(four, {4}), status);
    CHECK(status && results[0].elements<float>().size() == 4 && results[0].elements<float>()[3] == 16);

    /* Given values tell by no bytes that memory is as long as their dims. */
    const std::int64_t length = 4;
    onnxc_value value{};
    value.struct_size = sizeof value;
    value.kind = ONNXC_TENSOR;
    value.dtype = ONNXC_FLOAT32;
    value.rank = 1;
    value.dims = &length;
    value.data = const_cast<float *>(four.data());
    results = run(context, onnxc::Input(value), onnxc::tensor(four, {4}), status);
    CHECK(status && results[0].elements<float>()[3] == 16);

    /* Elements that are not there are no such memory, whatever their address. */
    for (const float *address : {none.data(), four.data()}) {
        run(context, onnxc::tensor(four, {4}), onnxc::Input(ONNXC_FLOAT32, address, 0, {4}), status);
        CHECK(status.code() == ONNXC_NULL_POINTER);
        std::puts(status.message().c_str());
    }
    run(context, onnxc::tensor(none, {4}), onnxc::tensor(four, {4}), status);
    std::puts(status.message().c_str());
    results = run(context, onnxc::tensor(none, {0}), onnxc::tensor(none, {0}), status);
    CHECK(status && results[0].shape()[0] == 0 && results[0].elements<float>().empty());

    /* Memory of no bytes is not the result's own. */
    std::vector<float> memory;
    std::vector<onnxc::Value> outputs;
    outputs.push_back(onnxc::Value::into(memory));
    for (std::int64_t n : {0, 4}) {
        const std::vector<float> x(four.begin(), four.begin() + n);
        const std::vector<onnxc::Input> inputs{onnxc::tensor(x, {n}), onnxc::tensor(x, {n}),
                                               onnxc::scalar(nowhere)};
        context.run(inputs, outputs, status);
        CHECK(status.code() == (n == 0 ? ONNXC_OK : ONNXC_BUFFER_TOO_SMALL));
    }
    std::puts(status.message().c_str());

    float array[4];
    outputs[0] = onnxc::Value::into(array);
    context.run({onnxc::tensor(four, {4}), onnxc::tensor(four, {4}), onnxc::scalar(nowhere)}, outputs);
    CHECK(outputs[0].elements<float>().data() == array && array[3] == 16);
    context.run({onnxc::tensor(four, {4}), onnxc::tensor(four, {4}), onnxc::scalar(nowhere)}, outputs, status);
    CHECK(status && outputs[0].elements<float>().data() == array);
}

void memory() {
    onnxc::Status status, unlike(ONNXC_INVALID_VALUE, std::string(2 * ONNXC_ERROR_BYTES, '-'));
    CHECK(unlike.message() == std::string(ONNXC_ERROR_BYTES - 1, '-') && status.message().empty());
    onnxc::Options options;
    options.target = "another";
    left = 0;
    onnxc::Context refused(affine_model(), options, status);
    onnxc::Pool pool(affine_model(), 2, unlike);
    left = -1;
    CHECK(status.code() == ONNXC_INVALID_VALUE && unlike && unlike.message().empty());
    std::puts(status.message().c_str());

    const std::vector<onnxc::Input> inputs{onnxc::tensor(four, {4}), onnxc::tensor(four, {4}),
                                           onnxc::scalar(nowhere)};
    for (long granted = 0; granted == 0 || !status; granted++) {
        onnxc::Context context(affine_model());
        left = granted;
        const std::vector<onnxc::Value> results = context.run(inputs, status);
        left = -1;
        CHECK(status || (status.code() == ONNXC_OUT_OF_MEMORY && granted < 10));
        CHECK(!status || results[0].elements<float>()[3] == 16);
    }
    onnxc::Context context(affine_model());
    left = 0;
    CHECK(context.workspace_bytes(inputs, status) == 0 && status.code() == ONNXC_OUT_OF_MEMORY);
    left = -1;
    std::puts(status.what());
    CHECK(context.workspace_bytes(inputs, status) > 0 && status);
}

void again() {
    onnxc::Context context(lower_model());
    onnxc::Status status;
    std::vector<onnxc_string> memory(2);
    std::vector<onnxc::Value> outputs;
    outputs.push_back(onnxc::Value::into(memory));
    for (const char *text : {"ONE", "TWO"}) {
        const std::vector<onnxc_string> texts(2, onnxc_string{text, 3});
        const std::vector<onnxc::Input> inputs{onnxc::tensor(texts, {2})};
        context.run(inputs, outputs, status);
        CHECK(status && outputs[0].elements<onnxc_string>().data() == memory.data());
        std::puts(std::string(outputs[0].text(1)).c_str());
    }
    const std::vector<onnxc::Input> wrong{onnxc::scalar(1.0f)};
    context.run(wrong, outputs, status);
    CHECK(!status && outputs[0].kind() == ONNXC_NONE && outputs[0].shape().empty());
}

/* A pool of the caller's whose work is to use a context that is running. */
struct Reentrant : onnxc_pool {
    onnxc::Context *context = nullptr;
    onnxc::Status status;
};

void busy() {
    Reentrant pool;
    pool.threads = 2;
    pool.run = [](onnxc_pool *self, std::int32_t, void (*)(void *, std::int32_t), void *) -> std::int32_t {
        Reentrant &reentrant = *static_cast<Reentrant *>(self);
        reentrant.context->set_workspace({}, reentrant.status);
        return 0;
    };
    onnxc::Options options;
    options.pool = &pool;
    onnxc::Context context(affine_model(), options);
    pool.context = &context;
    const std::vector<float> many(1000);
    onnxc::Status status;
    run(context, onnxc::tensor(many, {1000}), onnxc::tensor(many, {1000}), status);
    CHECK(status && pool.status.code() == ONNXC_BUSY);
    std::puts(pool.status.what());
}

void left_out() {
    for (const onnxc_model *model : {tensor_model(), list_model()}) {
        onnxc::Context context(model);
        onnxc::Status status;
        const bool chosen = true;
        const std::vector<onnxc::Input> inputs{onnxc::Input(), onnxc::scalar(chosen)};
        const std::vector<onnxc::Value> results = context.run(inputs, status);
        CHECK(status && results.size() == 5 && !results[4].elements<bool>()[0]);
        for (int i = 0; i < 4; i++)
            CHECK(results[i].kind() == ONNXC_OPTIONAL && results[i].items().size() == 0);
        CHECK(context.workspace_bytes(inputs, status) > 0 && status);
    }
    onnxc::Context context(inside_model());
    onnxc::Status status;
    context.run({onnxc::Input()}, status);
    CHECK(status.code() == ONNXC_EMPTY_OPTIONAL);
    std::puts(status.what());
}

} // namespace

int main(int count, char **arguments) {
    const std::string test = count > 1 ? arguments[1] : "";
    if (test == "elements") elements();
    else if (test == "memory") memory();
    else if (test == "again") again();
    else if (test == "busy") busy();
    else if (test == "left_out") left_out();
    else return 2;
    return 0;
}
