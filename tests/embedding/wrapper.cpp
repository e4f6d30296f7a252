// onnxc.hpp around two models: `images` is static, `text` takes any batch and length. Ends with status 0 when all that
// it expects is so; without exceptions what needs them is left out.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include <onnxc.hpp>

#include "images.h"
#include "text.h"

#include "../support/check.h"

namespace {

std::vector<float> image(IMAGES_IMAGE_ELEMENTS, 0.5f);
const std::array<std::int64_t, 6> ids{1, 2, 3, 4, 5, 6}, mask{1, 1, 1, 1, 1, 0};

void with_statuses() {
    onnxc::Status status;
    onnxc::Options options;
    options.threads = 1;
    onnxc::Context context(text_model(), options, status);
    CHECK(status);
    auto outputs = context.run({onnxc::tensor(ids, {2, 3}), onnxc::tensor(mask, {2, 3})}, status);
    CHECK(status && outputs.size() == 1);
    CHECK(outputs[0].shape().size() == 3 && outputs[0].shape()[2] == 101 && outputs[0].dtype() == ONNXC_FLOAT32);
    auto logits = outputs[0].elements<float>();
    CHECK(logits.size() == 606 && outputs[0].elements<double>().empty() && outputs[0].items().empty());

    std::vector<onnxc::Input> inputs{onnxc::tensor(ids, {2, 3}), onnxc::tensor(mask, {2, 3})};
    std::vector<float> memory(606);
    std::vector<onnxc::Value> results;
    results.push_back(onnxc::Value::into(memory));
    for (int k = 0; k < 2; k++) { // as often as one likes
        memory.assign(606, 0.0f);
        context.run(inputs, results, status);
        CHECK(status && results[0].elements<float>().data() == memory.data());
        for (std::size_t i = 0; i < 606; i++) CHECK(memory[i] == logits[i]);
    }
    results[0] = onnxc::Value();
    for (int k = 0; k < 2; k++) context.run(inputs, results, status); // what the first gave is freed
    CHECK(status && results[0].elements<float>()[605] == logits[605]);
    CHECK(context.workspace_bytes(inputs, status) > 0 && status);

    std::array<float, 605> short_memory{};
    results[0] = onnxc::Value::into(short_memory);
    context.run(inputs, results, status);
    CHECK(!status && status.code() == ONNXC_BUFFER_TOO_SMALL && !status.message().empty());
    outputs = context.run({onnxc::tensor(ids, {2, 3})}, status);
    CHECK(!status.ok() && status.code() == ONNXC_WRONG_COUNT && outputs[0].elements<float>().empty());
    options.struct_size = 1;
    onnxc::Context wrong(text_model(), options, status);
    CHECK(status.code() == ONNXC_WRONG_ABI && wrong.get() == nullptr);

    onnxc::Pool pool(images_model(), 2, status);
    CHECK(status && pool.get()->threads == 2);
    onnxc::Options shared;
    shared.pool = pool.get();
    onnxc::Context first(images_model(), shared, status);
    onnxc::Context second(std::move(first));
    first = std::move(second); // back again
    outputs = first.run({onnxc::tensor(image, {1, 3, 32, 32})}, status);
    CHECK(status && outputs[0].elements<float>().size() == IMAGES_PROBABILITIES_ELEMENTS);
    onnxc::Value moved = std::move(outputs[0]);
    CHECK(outputs[0].kind() == ONNXC_NONE && moved.kind() == ONNXC_TENSOR);
#if __cplusplus >= 202002L
    std::span<const float> standard = moved.elements<float>();
    onnxc::Input again = onnxc::tensor(std::span<float>(image), {1, 3, 32, 32});
    CHECK(standard.size() == 10 && first.run({again}, status)[0].elements<float>()[3] == standard[3]);
#endif
    CHECK(std::string_view(onnxc::port(text_model()->inputs, 1).name) == "mask");
}

#ifdef ONNXC_EXCEPTIONS
void with_exceptions() {
    onnxc::Context context(images_model());
    auto outputs = context.run({onnxc::tensor(image, {1, 3, 32, 32})});
    std::array<float, IMAGES_PROBABILITIES_ELEMENTS> typed{};
    context.check(images_run(context.get(), image.data(), typed.data()));
    for (std::size_t k = 0; k < typed.size(); k++) CHECK(outputs[0].elements<float>()[k] == typed[k]);
    std::int32_t code = 0;
    try {
        context.run({onnxc::tensor(image, {1, 3, 16, 64})});
    } catch (const onnxc::Error &error) {
        code = error.code();
        CHECK(std::string_view(error.what()).find("expected shape [1, 3, 32, 32]") != std::string_view::npos);
    }
    CHECK(code == ONNXC_WRONG_SHAPE);
    try {
        context.check(images_run(context.get(), nullptr, typed.data()));
        CHECK(false);
    } catch (const std::runtime_error &) {
    }
}
#endif

} // namespace

int main() {
    with_statuses();
#ifdef ONNXC_EXCEPTIONS
    with_exceptions();
#endif
    return 0;
}
