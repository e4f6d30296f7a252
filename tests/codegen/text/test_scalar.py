"""Expressions as vector code against their meaning in numpy, on every processor that runs here and any
number of lanes."""

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS
from support.lanes import INTEGERS, NARROW, check_exact, meaning, pair, run, samples

from onnxc.codegen import abi
from onnxc.codegen.kernel import KernelText
from onnxc.codegen.text import scalar
from onnxc.codegen.text.memory import load_lanes, store_lanes
from onnxc.ir import dtypes, expr
from onnxc.ir.expr import apply, const, input_
from onnxc.target import TARGETS as PROCESSORS

# Integers and bool --------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("dtype", INTEGERS)
def test_operations_of_integers_are_exact(target, dtype):
    x, y = input_(0, dtype), input_(1, dtype)
    pairs = [
        "add",
        "sub",
        "mul",
        "div",
        "mod",
        "fmod",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ]
    pairs += ["shl", "shr"] if dtypes.bits(dtype) >= 8 else []
    single = ["abs", "sign", "not", "floor", "isnan"] + (["neg"] if dtypes.bits(dtype) >= 8 else [])
    roots = [apply(op, x, y) for op in pairs] + [apply("pow", x, y)] + [apply(op, x) for op in single]
    check_exact(target, roots, *pair(dtype))


@TARGETS
@pytest.mark.parametrize("dtype", ("int8", "uint8", "int32", "int64", "uint64"))
def test_integers_with_constants(target, dtype):
    values = (0, 1, 2, 3, 7, 100, *((-1, -3) if dtypes.is_signed(dtype) else ()))
    roots = [
        apply(op, input_(0, dtype), const(value, dtype))
        for op in ("div", "mod", "fmod", "shl", "shr", "pow")
        for value in values
    ]
    check_exact(target, roots, samples(dtype))


@TARGETS
@pytest.mark.parametrize("dtype", [t for t in INTEGERS if dtypes.bits(t) >= 8])
def test_quotients_by_powers_of_two(target, dtype):
    low, high = dtypes.integer_range(dtype)
    powers = [s << k for s in (1, -1) for k in range(64) if low <= s << k <= high]
    divided = [apply(op, input_(0, dtype), const(p, dtype)) for p in powers for op in ("div", "mod", "fmod")]
    near = [p + s for p in (*powers, *(3 * p for p in powers)) for s in (-1, 0, 1) if low <= p + s <= high]
    check_exact(target, divided, np.concatenate([samples(dtype), np.array(near, dtype)]))


@TARGETS
@pytest.mark.parametrize("narrow", ("int8", "uint8", "int16", "uint16"))
@pytest.mark.parametrize("wide", ("int32", "int64", "uint64"))
def test_products_of_narrow_numbers_are_divided_and_shifted_as_wide_ones(target, narrow, wide):
    x, signs = input_(0, narrow).cast(wide), (1, -1) if dtypes.is_signed(wide) else (1,)
    products = [x * x, *(x * (3 * s) for s in signs)]
    found = [
        apply(op, product, const(s << k, wide))
        for product in products
        for op in ("div", "mod")
        for s in signs
        for k in (1, 2, 15, 17, 20, 30)
    ]
    found += [apply("shr", p, const(k, wide)) for p in products for k in (1, 16, 17, 20, 31, 32, 40, 63)]
    found += [apply("lt", p, const(0, wide)).cast("int16") for p in products]
    check_exact(target, [root for q in found for root in (q, q.cast("int16"))], samples(narrow))


@TARGETS
@pytest.mark.parametrize("narrow", ("int8", "int16"))
@pytest.mark.parametrize("wide", ("int64", "uint64"))
def test_products_of_two_narrow_numbers_are_shifted_as_wide_ones_in_one_step_or_several(target, narrow, wide):
    product = input_(0, narrow).cast(wide) * input_(1, narrow).cast(wide)
    shifts = [(16,), (17,), (32,), (40,), (8, 8), (1, 15), (16, 8), (8, 10), (1, 7, 8), (2, 2, 12)]
    found = []
    for several in shifts:
        shifted = divided = product
        for k in several:
            shifted = apply("shr", shifted, const(k, wide))
            divided = apply("div", divided, const(1 << k, wide))
        found += [shifted, divided]
    roots = [root for q in found for root in (q, q.cast("int32"), q.cast("int16"), q.cast("float32"))]
    check_exact(target, roots, samples(narrow), samples(narrow, seed=1))


@TARGETS
@pytest.mark.parametrize("dtype", ("int64", "uint64"))
def test_quotients_of_long_integers_are_exact_below_and_above_what_float64_holds(target, dtype):
    draw = np.random.default_rng(0)
    divisors = 1 + draw.integers(0, 1 << draw.integers(1, 52, 4000))
    quotients = draw.integers(0, (1 << 52) // divisors)
    for bound, near in ((1 << 52, (-1, 0, 1)), (1 << 62, (-1, 1))):
        a = np.concatenate([np.clip(divisors * quotients + n, 0, bound - 1) for n in near])
        b = np.tile(divisors, len(near))
        if bound > 1 << 52:
            a[::1000] = bound - 1
        sign = draw.choice((-1, 1), (2, len(a))) if dtype == "int64" else 1
        x, y = (sign * np.stack([a, b])).astype(dtype)
        check_exact(target, [apply(op, input_(0, dtype), input_(1, dtype)) for op in ("div", "mod")], x, y)
        check_exact(target, [apply(op, input_(0, dtype), const(7, dtype)) for op in ("div", "mod")], x)


@TARGETS
def test_operations_of_bools_are_exact(target):
    x, y = input_(0, "bool"), input_(1, "bool")
    pairs = ("and", "or", "xor", "add", "mul", "min", "max", "eq", "ne", "lt", "ge")
    roots = [*(apply(op, x, y) for op in pairs), apply("not", x), apply("select", x, y, const(True, "bool"))]
    check_exact(target, roots, samples("bool"), samples("bool", seed=1))


@TARGETS
def test_a_product_and_a_sum_are_within_a_rounding_of_both(target):
    draw = np.random.default_rng(0)
    x, y, z = (draw.standard_normal(100).astype(np.float32) for _ in range(3))
    (got,) = run(target, [apply("fma", *(input_(k, "float32") for k in range(3)))], [x, y, z])
    exact = x.astype(np.float64) * y + z
    assert np.all(np.abs(got - exact) <= (np.abs(x.astype(np.float64) * y) + np.abs(exact)) * 2.0**-24)


@TARGETS
def test_a_bool_in_memory_is_true_where_its_byte_is_not_zero(target):
    bytes_ = np.arange(256, dtype=np.uint8)
    (got,) = run(target, [input_(0, "bool").cast("uint8")], [bytes_.view(bool)])
    assert np.array_equal(got, bytes_ != 0)


# Floats, exact operations --------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64", *NARROW))
def test_operations_of_floats_are_exact(target, dtype):
    x, y = input_(0, dtype), input_(1, dtype)
    pairs = ("add", "sub", "mul", "div", "min", "max", "eq", "ne", "lt", "le", "gt", "ge")
    single = ("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "sqrt", "isnan", "isinf")
    check_exact(target, [*(apply(op, x, y) for op in pairs), *(apply(op, x) for op in single)], *pair(dtype))


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_float_remainders_are_exact(target, dtype):
    check_exact(
        target, [apply(op, input_(0, dtype), input_(1, dtype)) for op in ("fmod", "mod")], *pair(dtype)
    )


@TARGETS
def test_extremes_with_a_constant_keep_nan(target):
    x = input_(0, "float32")
    roots = [x.maximum(0.0), const(1.5, "float32").minimum(x), x.clip(-1.0, 6.0)]
    check_exact(target, roots, samples("float32"))


@TARGETS
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
def test_extremes_of_zeros_have_the_signs_that_they_mean(target, dtype):
    x, y, zero = input_(0, dtype), input_(1, dtype), const(0.0, dtype)
    operands = [np.array(zeros * 21).astype(dtypes.numpy_dtype(dtype)) for zeros in ([0.0, -0.0], [0.0, 0.0])]
    roots = [x.maximum(y), y.minimum(x), x.maximum(0.0), zero.maximum(x), x.clip(-0.0, 0.0)]
    for root, got in zip(roots, run(target, roots, operands), strict=True):
        np.testing.assert_array_equal(np.signbit(got), np.signbit(meaning(root, operands)), str(root))


@TARGETS
def test_selection_and_comparison(target):
    x, y = input_(0, "float32"), input_(1, "float32")
    check_exact(target, [expr.where(x < y, x, y * 2)], *pair("float32"))


# Structure ----------------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("lanes", (1, 2, 4, 8, 16, 32, 64))
def test_any_number_of_lanes_gives_the_same_bits(target, lanes):
    x, a = input_(0, "float32"), samples("float32", 100)
    roots = [
        expr.exp(x),
        expr.tanh(x),
        expr.log(x),
        expr.sigmoid(x),
        apply("sin", x),
        (x * 3).cast("int32"),
        (x.cast("float16") + 1.0).cast("float32"),
        apply("isnan", x),
    ]
    reference = run(target, roots, [a], target.lanes("float32"))
    for got, want, root in zip(run(target, roots, [a], lanes), reference, roots):
        assert np.array_equal(got, want, equal_nan=got.dtype.kind == "f"), root


@TARGETS
def test_several_roots_share_their_parts(target):
    x, a = input_(0, "float32"), samples("float32")
    shared = expr.exp(x)
    one, two = run(target, [shared + 1, shared * 2], [a])
    (both,) = run(target, [shared], [a])
    with np.errstate(all="ignore"):
        assert np.array_equal(one, both + np.float32(1), equal_nan=True)
        assert np.array_equal(two, both * np.float32(2), equal_nan=True)


@TARGETS
def test_sizes_and_indices(target):
    from onnxc.ir.dims import symbol

    a = np.zeros(100, np.int64)
    root = input_(0, "int64") + expr.index(0) * 2 + expr.size(symbol("n"))
    (got,) = run(target, [root], [a], sizes={"n": 1000})
    assert np.array_equal(got, np.arange(100) * 2 + 1000)


@TARGETS
@pytest.mark.parametrize("lanes", (1, 4, 16))
def test_a_failed_check_reports_its_code_and_the_first_failing_value(target, lanes):
    x, y = input_(0, "int32"), input_(1, "int32")
    root = expr.check(apply("ne", y, const(0, "int32")), x, "division_by_zero") / y
    a, b = np.arange(100, dtype=np.int32) + 500, np.ones(100, np.int32)
    (got,) = run(target, [root], [a, b], lanes)
    assert np.array_equal(got, a)
    b[[37, 41, 90]] = 0
    assert run(target, [root], [a, b], lanes) == (abi.ERRORS["division_by_zero"], 537)


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "bfloat16"))
def test_a_failed_check_of_floats_reports_a_double(target, dtype):
    x, a = input_(0, dtype), np.ones(100, dtypes.numpy_dtype(dtype))
    for wrong in (-0.25, np.nan):
        a[[37, 41]] = wrong
        code, word = run(target, [expr.check(x > 0, x, "invalid_value")], [a])
        assert code == abi.ERRORS["invalid_value"] + abi.OF_DOUBLE
        assert np.array_equal(np.int64(word).view(np.float64), wrong, equal_nan=True)


@TARGETS
def test_a_failed_check_tells_where_its_sentence_is(target):
    x, a = input_(0, "int32"), np.zeros(100, np.int32)
    found = run(target, [expr.check(x > 0, x, "invalid_value", "a step is {}")], [a])
    assert found == (abi.ERRORS["invalid_value"] + abi.SAYS, 0)


def test_what_a_kernel_cannot_do_is_refused():
    kernel = KernelText(harness.RUNNABLE[0])
    with kernel.entry() as f:
        checked = expr.check(input_(0, "int32") > 0, input_(0, "int32"), "invalid_value")
        for root in (checked, expr.index(0), apply("exp", input_(0, "int32"))):
            with pytest.raises(TypeError):
                scalar.lower(f, [root], lambda i: "0", 4)


def test_deep_and_repeated_expressions_take_linear_work():
    kernel, x = KernelText(harness.RUNNABLE[0]), input_(0, "float32")
    deep = x
    for _ in range(5000):
        deep = deep + 1.5
    twice = x
    for _ in range(64):
        twice = twice + twice
    with kernel.entry() as f:
        scalar.lower(f, [deep, twice], lambda i: "%x", 8)
        assert len(f.lines) == 5064


def test_bounds_of_bytes_take_no_instruction_where_operands_are_known_to_be_small():
    scaled = input_(0, "int32").cast("float32") * input_(1, "float32")
    root = apply("round", scaled).maximum(0.0).minimum(255.0).cast("uint8")

    def comparisons(bounds):
        kernel = KernelText(PROCESSORS["icelake-server"])
        with kernel.entry() as f:
            scalar.lower(f, [root], lambda i: "%x", 64, bounds=bounds)
        return sum("fcmp" in line or "x86.avx512.m" in line for line in f.lines)

    assert comparisons({1: 0.5}) == comparisons({1: 0.1}) == 0 < comparisons({}) == comparisons({1: 1.0})


@pytest.mark.parametrize("target", harness.LEVELS.values(), ids=str)
def test_a_chain_of_many_instructions_needs_no_stack(target):
    kernel, x = KernelText(target), input_(0, "float32")
    chain = x
    for k in range(16):
        chain = (chain * (1.0 + k)).maximum(0.1 * k) + x
    lanes = target.lanes("float32")
    with kernel.entry() as f, f.loop("%first", "%last") as loop:
        source, result = (f.element(p, loop.index, 4 * lanes) for p in (f.input(0), f.output()))
        (value,) = scalar.lower(
            f, [expr.sigmoid(chain)], lambda i: load_lanes(f, "float32", source, lanes), lanes
        )
        store_lanes(f, "float32", value, result, lanes)
    assert "Spill" not in harness.assembly(str(kernel), target)


@pytest.mark.parametrize("target", harness.LEVELS.values(), ids=str)
@pytest.mark.parametrize(
    "dtype", ("float16", "bfloat16", "float8e5m2", "float32", "float64", "int64", "uint8")
)
def test_code_calls_no_other_library(target, dtype):
    kernel, x = KernelText(target), input_(0, dtype)
    ops = ("exp", "log", "tanh", "erf", "sin", "tan", "asin", "atan", "cosh", "asinh", "sqrt", "round")
    roots = (
        [apply(op, x) for op in ops]
        if dtypes.is_float(dtype)
        else [apply("div", x, x + 1), apply("mod", x, x + 1)]
    )
    roots += [
        apply("pow", x, x + x),
        *(x.cast(d) for d in ("float16", "bfloat16", "float64", "int8", "uint64")),
    ]
    with kernel.entry() as f:
        source = f.input(0)
        for lanes in (1, 8):
            values = scalar.lower(f, roots, lambda i, n=lanes: load_lanes(f, dtype, source, n), lanes)
            for k, (root, value) in enumerate(zip(roots, values)):
                store_lanes(f, root.dtype, value, f.offset(f.output(), 64 * k), lanes)
    lines = harness.assembly(str(kernel), target).splitlines()
    calls = [line.split() for line in lines if line.split()[:1] in (["callq"], ["bl"], ["call"], ["jmpq"])]
    assert not calls
