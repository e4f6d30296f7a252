/* SPDX-License-Identifier: Apache-2.0 */
/* onnxc.hpp - compiled models in C++17: what onnxc.h has, with owners, spans and exceptions.
 *
 *     #include "digits.h"
 *     #include <onnxc.hpp>
 *
 *     onnxc::Context context(digits_model());
 *     std::vector<onnxc::Value> outputs = context.run({onnxc::tensor(image, {1, 8, 8})});
 *     onnxc::Span<const float> probabilities = outputs[0].elements<float>();
 *
 * What can fail throws onnxc::Error. With an onnxc::Status as last argument the same call throws nothing and says
 * there how it went, also that memory is short; without exceptions (-fno-exceptions) there are only those, and
 * std::vector ends the program where there is no memory for it. Thread-safety is that of onnxc.h:
 * contexts of one model may run at the same time, one context may not. */
#ifndef ONNXC_HPP
#define ONNXC_HPP

#include "onnxc.h"

#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#include <stdexcept>
#define ONNXC_EXCEPTIONS 1
#endif

namespace onnxc {

/* Elements that are somebody else's: pointer and count, as std::span of C++20, which one is made into and from. */
template <class T>
class Span {
public:
    constexpr Span() = default;
    constexpr Span(T *data, std::size_t size) : data_(data), size_(size) {}
    template <std::size_t N>
    constexpr Span(T (&array)[N]) : data_(array), size_(N) {}
    /* Of whatever has data() and size(): vectors, arrays, strings, other spans. */
    template <class C, class = std::enable_if_t<std::is_convertible_v<
                           std::remove_pointer_t<decltype(std::declval<C &>().data())> (*)[], T (*)[]>>>
    constexpr Span(C &&container) : data_(container.data()), size_(container.size()) {}

    constexpr T *data() const { return data_; }
    constexpr std::size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    constexpr T *begin() const { return data_; }
    constexpr T *end() const { return data_ + size_; }
    constexpr T &operator[](std::size_t index) const { return data_[index]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* How a call went: a code of enum onnxc_status, and a sentence where it is not ONNXC_OK, cut as those of onnxc.h. It
 * allocates nothing. */
class Status {
public:
    Status() = default;
    Status(std::int32_t code, std::string_view message) noexcept : code_(code) {
        message.copy(message_, sizeof message_ - 1);
    }

    explicit operator bool() const { return code_ == ONNXC_OK; }
    bool ok() const { return code_ == ONNXC_OK; }
    std::int32_t code() const { return code_; }
    std::string message() const { return message_; }
    const char *what() const noexcept { return message_; } /* the same, without memory of its own */

private:
    std::int32_t code_ = ONNXC_OK;
    char message_[ONNXC_ERROR_BYTES] = {};
};

#ifdef ONNXC_EXCEPTIONS
class Error : public std::runtime_error {
public:
    explicit Error(const Status &status) : std::runtime_error(status.what()), code_(status.code()) {}
    std::int32_t code() const { return code_; } /* of enum onnxc_status */

private:
    std::int32_t code_;
};
#endif

namespace detail {

template <class T>
constexpr std::int32_t dtype() {
    if constexpr (std::is_same_v<T, float>) return ONNXC_FLOAT32;
    else if constexpr (std::is_same_v<T, double>) return ONNXC_FLOAT64;
    else if constexpr (std::is_same_v<T, bool>) return ONNXC_BOOL;
    else if constexpr (std::is_same_v<T, onnxc_string>) return ONNXC_STRING;
    else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
        return sizeof(T) == 1 ? ONNXC_INT8 : sizeof(T) == 2 ? ONNXC_INT16
             : sizeof(T) == 4 ? ONNXC_INT32 : ONNXC_INT64;
    else if constexpr (std::is_integral_v<T>)
        return sizeof(T) == 1 ? ONNXC_UINT8 : sizeof(T) == 2 ? ONNXC_UINT16
             : sizeof(T) == 4 ? ONNXC_UINT32 : ONNXC_UINT64;
    else static_assert(!sizeof(T *), "no element type of a tensor; give its number");
}

inline unsigned char nowhere; /* memory of no bytes: null would be a result that owns its own */

inline onnxc_value empty_value() {
    onnxc_value value{};
    value.struct_size = sizeof value;
    return value;
}

/* Whether there was memory for what `work` makes. */
template <class F>
Status allocating(F &&work) noexcept {
#ifdef ONNXC_EXCEPTIONS
    try {
        work();
    } catch (const std::bad_alloc &) {
        return Status(ONNXC_OUT_OF_MEMORY, "out of memory");
    }
#else
    work();
#endif
    return Status();
}

#ifdef ONNXC_EXCEPTIONS
inline void check(const Status &status) {
    if (!status) throw Error(status);
}
#endif

} // namespace detail

static_assert(sizeof(bool) == 1, "tensors of bool have one byte an element");

/* An input: its shape, and elements that are borrowed until the run returns. */
class Input {
public:
    Input() : value_(detail::empty_value()) {} /* an optional input that is left out */
    Input(std::int32_t dtype, const void *data, std::size_t bytes, std::vector<std::int64_t> shape)
        : shape_(std::move(shape)), value_(detail::empty_value()) {
        value_.kind = ONNXC_TENSOR;
        value_.dtype = dtype;
        value_.rank = static_cast<std::int32_t>(shape_.size());
        value_.data = bytes != 0 ? const_cast<void *>(data) : nullptr; /* to C no bytes are as many as dims tell */
        value_.bytes = bytes;
    }
    /* A value as onnxc.h describes it: sequences, maps. What it points to is borrowed. */
    explicit Input(const onnxc_value &value)
        : shape_(value.dims, value.dims + value.rank), value_(value) {}

    onnxc_value get() const {
        onnxc_value value = value_;
        value.dims = shape_.data();
        return value;
    }

private:
    std::vector<std::int64_t> shape_;
    onnxc_value value_;
};

/* A tensor of these elements, whose type is that of T. */
template <class C, class T = std::remove_pointer_t<decltype(std::declval<const C &>().data())>>
Input tensor(const C &elements, std::vector<std::int64_t> shape) {
    using E = std::remove_cv_t<T>;
    return Input(detail::dtype<E>(), elements.data(), elements.size() * sizeof(E), std::move(shape));
}
template <class T, std::size_t N>
Input tensor(const T (&elements)[N], std::vector<std::int64_t> shape) {
    return Input(detail::dtype<std::remove_cv_t<T>>(), elements, N * sizeof(T), std::move(shape));
}
template <class T>
Input scalar(const T &element) {
    return Input(detail::dtype<T>(), &element, sizeof element, {});
}

/* An output. It owns its elements, unless it was made to write to memory of the caller's; that of such a one, and
 * its shape, are those of the last run and its context. */
class Value {
public:
    Value() : value_(detail::empty_value()) {}
    /* One whose elements are written to `memory`; ONNXC_BUFFER_TOO_SMALL where they do not fit. */
    template <class T>
    static Value into(Span<T> memory) {
        Value made;
        made.memory_ = memory.empty() ? &detail::nowhere : static_cast<void *>(memory.data());
        made.capacity_ = memory.size() * sizeof(T);
        made.clear();
        return made;
    }
    template <class T, std::size_t N>
    static Value into(T (&array)[N]) {
        return into(Span<T>(array));
    }
    template <class C>
    static Value into(C &container) {
        return into(Span<std::remove_pointer_t<decltype(container.data())>>(container));
    }
    Value(Value &&other) noexcept : Value() { *this = std::move(other); }
    Value &operator=(Value &&other) noexcept {
        std::swap(model_, other.model_);
        std::swap(memory_, other.memory_);
        std::swap(capacity_, other.capacity_);
        std::swap(value_, other.value_);
        return *this;
    }
    Value(const Value &) = delete;
    Value &operator=(const Value &) = delete;
    ~Value() {
        if (value_.object != nullptr) model_->release(&value_);
    }

    std::int32_t kind() const { return value_.kind; }   /* of enum onnxc_kind */
    std::int32_t dtype() const { return value_.dtype; } /* of enum onnxc_dtype */
    Span<const std::int64_t> shape() const { return {value_.dims, static_cast<std::size_t>(value_.rank)}; }
    /* The elements of a tensor; none if they are not of type T. */
    template <class T>
    Span<const T> elements() const {
        if (value_.kind != ONNXC_TENSOR || value_.dtype != detail::dtype<T>()) return {};
        return Span<const T>(static_cast<const T *>(value_.data), value_.bytes / sizeof(T));
    }
    /* The text of element `index` of a tensor of strings. */
    std::string_view text(std::size_t index) const {
        const onnxc_string &string = elements<onnxc_string>()[index];
        return {string.data, static_cast<std::size_t>(string.length)};
    }
    /* The items of a sequence, the one of an optional, or keys and values of a map, as onnxc.h has them. */
    Span<const onnxc_value> items() const {
        if (value_.kind == ONNXC_TENSOR || value_.kind == ONNXC_NONE) return {};
        return {static_cast<const onnxc_value *>(value_.data), static_cast<std::size_t>(value_.dims[0])};
    }
    const onnxc_value &get() const { return value_; }

private:
    friend class Context;
    /* Until the next run it holds nothing but the memory that it was made to write to. */
    void clear() noexcept {
        if (value_.object != nullptr) model_->release(&value_);
        value_ = detail::empty_value();
        value_.data = memory_;
        value_.capacity = capacity_;
    }

    const onnxc_model *model_ = nullptr;
    void *memory_ = nullptr; /* the caller's */
    std::size_t capacity_ = 0;
    onnxc_value value_;
};

/* Threads that several contexts share, of any models. */
class Pool {
public:
    Pool(const onnxc_model *model, std::int32_t threads, Status &status) noexcept : model_(model) {
        std::int32_t code = model->pool_create(threads, &pool_);
        status = code == ONNXC_OK ? Status() : Status(code, model->last_error(nullptr));
    }
#ifdef ONNXC_EXCEPTIONS
    explicit Pool(const onnxc_model *model, std::int32_t threads = 0) : model_(model) {
        Status status;
        *this = Pool(model, threads, status);
        detail::check(status);
    }
#endif
    Pool(Pool &&other) noexcept : model_(other.model_), pool_(std::exchange(other.pool_, nullptr)) {}
    Pool &operator=(Pool &&other) noexcept {
        std::swap(model_, other.model_);
        std::swap(pool_, other.pool_);
        return *this;
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    ~Pool() { model_->pool_destroy(pool_); }

    onnxc_pool *get() const { return pool_; }

private:
    const onnxc_model *model_;
    onnxc_pool *pool_ = nullptr;
};

/* onnxc_options, all of it as it is when nothing is said. */
struct Options : onnxc_options {
    Options() : onnxc_options{} { struct_size = sizeof(onnxc_options); }
};

/* What one caller of a model needs. */
class Context {
public:
    Context(const onnxc_model *model, const onnxc_options &options, Status &status) noexcept : model_(model) {
        status = said(model->create(&options, &context_));
    }
    /* All outputs, which hold nothing after a failure; none where there is no memory for them. */
    std::vector<Value> run(Span<const Input> inputs, Status &status) noexcept {
        std::vector<Value> outputs;
        status = detail::allocating([&] { outputs.resize(static_cast<std::size_t>(model_->output_count)); });
        if (status) run(inputs, outputs, status);
        return outputs;
    }
    std::vector<Value> run(std::initializer_list<Input> inputs, Status &status) noexcept {
        return run(Span<const Input>(inputs.begin(), inputs.size()), status);
    }
    /* Results go where `outputs` say (Value::into), or into memory of their own. */
    void run(Span<const Input> inputs, Span<Value> outputs, Status &status) noexcept {
        for (Value &output : outputs) output.clear();
        status = give(inputs);
        if (status) status = detail::allocating([&] {
            results_.clear();
            for (const Value &output : outputs) results_.push_back(output.value_);
        });
        if (!status) return;
        status = said(model_->run(context_, given_.data(), static_cast<std::int32_t>(given_.size()),
                                  results_.data(), static_cast<std::int32_t>(results_.size())));
        if (!status) return;
        for (std::size_t k = 0; k < results_.size(); k++) {
            outputs[k].model_ = model_;
            outputs[k].value_ = results_[k];
        }
    }
    void run(std::initializer_list<Input> inputs, Span<Value> outputs, Status &status) noexcept {
        run(Span<const Input>(inputs.begin(), inputs.size()), outputs, status);
    }
    /* Bytes of arena and scratch that a run on inputs of these shapes takes. */
    std::size_t workspace_bytes(Span<const Input> inputs, Status &status) noexcept {
        std::size_t bytes = 0;
        status = give(inputs);
        if (!status) return 0;
        status = said(model_->workspace_bytes_for(context_, given_.data(),
                                                  static_cast<std::int32_t>(given_.size()), &bytes));
        return bytes;
    }
    /* 64-byte aligned memory that runs work in; an empty span: the context's own. */
    void set_workspace(Span<unsigned char> memory, Status &status) noexcept {
        status = said(model_->set_workspace(context_, memory.data(), memory.size()));
    }
#ifdef ONNXC_EXCEPTIONS
    explicit Context(const onnxc_model *model, const onnxc_options &options = Options()) : model_(model) {
        check(model->create(&options, &context_));
    }
    std::vector<Value> run(Span<const Input> inputs) {
        Status status;
        std::vector<Value> outputs = run(inputs, status);
        detail::check(status);
        return outputs;
    }
    std::vector<Value> run(std::initializer_list<Input> inputs) {
        return run(Span<const Input>(inputs.begin(), inputs.size()));
    }
    void run(Span<const Input> inputs, Span<Value> outputs) {
        Status status;
        run(inputs, outputs, status);
        detail::check(status);
    }
    void run(std::initializer_list<Input> inputs, Span<Value> outputs) {
        run(Span<const Input>(inputs.begin(), inputs.size()), outputs);
    }
    std::size_t workspace_bytes(Span<const Input> inputs) {
        Status status;
        std::size_t bytes = workspace_bytes(inputs, status);
        detail::check(status);
        return bytes;
    }
    void set_workspace(Span<unsigned char> memory) {
        Status status;
        set_workspace(memory, status);
        detail::check(status);
    }
    /* Throws what a function of onnxc.h or the model's typed one returned: check(NAME_run(get(), ...)). */
    void check(std::int32_t code) const { detail::check(said(code)); }
#endif
    Context(Context &&other) noexcept : model_(other.model_), context_(std::exchange(other.context_, nullptr)) {}
    Context &operator=(Context &&other) noexcept {
        std::swap(model_, other.model_);
        std::swap(context_, other.context_);
        return *this;
    }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context() { model_->destroy(context_); }

    /* From another thread: the run under way ends soon with ONNXC_CANCELLED. */
    void cancel() const noexcept { model_->cancel(context_); }
    const char *target() const noexcept { return model_->target(context_); }
    const onnxc_model &model() const noexcept { return *model_; }
    onnxc_context *get() const noexcept { return context_; }

private:
    Status give(Span<const Input> inputs) noexcept {
        return detail::allocating([&] {
            given_.clear();
            for (const Input &input : inputs) given_.push_back(input.get());
        });
    }
    Status said(std::int32_t code) const noexcept {
        if (code == ONNXC_OK) return Status();
        return Status(code, model_->last_error(code == ONNXC_BUSY ? nullptr : context_)); /* then another thread's */
    }

    const onnxc_model *model_;
    onnxc_context *context_ = nullptr;
    std::vector<onnxc_value> given_, results_; /* kept, so that runs need not allocate them */
};

/* The ports of a model (`model.inputs`, `model.input_count`), whose structs may be larger than this header's. */
inline const onnxc_port &port(const onnxc_port *first, std::int32_t index) {
    const char *at = reinterpret_cast<const char *>(first);
    return *reinterpret_cast<const onnxc_port *>(at + std::size_t{first->struct_size} * std::size_t(index));
}

} // namespace onnxc
#endif
