/* SPDX-License-Identifier: Apache-2.0 */
/* main.cpp - two models one after the other: a drawing of 32 x 32 characters becomes an image, which is read. */
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <onnxc.hpp>

#include "digits.h"
#include "shrink.h"

namespace {

constexpr std::size_t side = 32;

std::vector<std::uint8_t> read_bitmap(std::istream &in) {
    std::vector<std::uint8_t> dots;
    for (std::string line; dots.size() < side * side && std::getline(in, line);) {
        line.resize(side, ' ');
        for (char c : line) dots.push_back(c != ' ' && c != '.');
    }
    dots.resize(side * side);
    return dots;
}

/* Both models, with threads that they share. */
class Reader {
public:
    int read(std::span<const std::uint8_t> bitmap) {
        auto image = shrink_.run({onnxc::tensor(bitmap, {1, side, side})});
        std::vector<float> probabilities(10); /* without a copy: the caller's memory */
        std::vector<onnxc::Value> results;
        results.push_back(onnxc::Value::into(probabilities));
        std::vector<onnxc::Input> inputs{onnxc::tensor(image[0].elements<float>(), {1, 8, 8})};
        digits_.run(inputs, results);
        return static_cast<int>(std::ranges::max_element(probabilities) - probabilities.begin());
    }
    onnxc::Context &digits() { return digits_; }

private:
    static onnxc::Options options(const onnxc::Pool &pool) {
        onnxc::Options options;
        options.pool = pool.get();
        return options;
    }

    onnxc::Pool pool_{digits_model(), 2};
    onnxc::Context shrink_{shrink_model(), options(pool_)};
    onnxc::Context digits_{digits_model(), options(pool_)};
};

} // namespace

int main() {
    try {
        Reader reader;
        std::cout << reader.read(read_bitmap(std::cin)) << '\n';
        onnxc::Status status; /* a call that reports there instead of throwing */
        reader.digits().run({onnxc::scalar(1.0f)}, status);
        std::cout << status.code() << ": " << status.message() << '\n';
    } catch (const onnxc::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
