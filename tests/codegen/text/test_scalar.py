"""Expressions as vector code against their meaning in numpy, on every processor that runs here and any
number of lanes."""

import ctypes
import math

import numpy as np
import pytest
from onnxc.codegen import abi
from onnxc.codegen.kernel import KernelText
from onnxc.codegen.text import scalar
from onnxc.codegen.text.memory import load_lanes, store_lanes
from support import harness

from onnxc.ir import dtypes, expr
from onnxc.ir.expr import apply, const, input_

INTEGERS = (*dtypes.SIGNED, *dtypes.UNSIGNED)
NARROW = ("float16", "bfloat16")
targets = pytest.mark.parametrize("target", harness.RUNNABLE, ids=str)


def run(target, roots, arrays, lanes=None, index=None, sizes=None):
    """The roots for each element of the arrays of one length, or (code, value) of a failed check."""
    lanes = lanes or target.lanes("float32")
    kinds, kernel = [dtypes.from_numpy(a.dtype) for a in arrays], KernelText(target)
    with kernel.entry() as f:
        inputs, outputs = ([f.input(i) for i in range(len(arrays))], [f.output(i) for i in range(len(roots))])
        with f.loop("%first", "%last") as loop:

            def place(pointer, dtype):
                return f.element(pointer, loop.index, dtypes.itemsize(dtype) * lanes)

            def numbers(axis):
                base = f.broadcast("i64", f.mul(loop.index, lanes), lanes)
                if lanes == 1:
                    return base
                return f.value(f"add <{lanes} x i64> {base}, <{', '.join(f'i64 {k}' for k in range(lanes))}>")

            values = scalar.lower(
                f,
                roots,
                lambda i: load_lanes(f, kinds[i], place(inputs[i], kinds[i]), lanes),
                lanes,
                lambda d: f.size(d),
                numbers,
                scalar.Checks(f),
            )
            for root, output, value in zip(roots, outputs, values):
                store_lanes(f, root.dtype, value, place(output, root.dtype), lanes)
    count = len(arrays[0])
    vectors = -(-count // lanes)
    memory = {
        "input": [],
        "output": [harness.aligned(vectors * lanes * dtypes.itemsize(r.dtype)) for r in roots],
    }
    for array in arrays:
        memory["input"].append(harness.aligned(vectors * lanes * array.itemsize, fill=0))
        memory["input"][-1][: array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
        if vectors * lanes > count:  # idle lanes repeat the last element
            padding = np.repeat(array[-1:], vectors * lanes - count).view(np.uint8)
            memory["input"][-1][array.nbytes :] = padding
    words = [
        sizes[str(a.dimension)] if a.kind == "size" else memory[a.kind][a.index].ctypes.data
        for a in kernel.arguments
    ]
    arguments, scratch = (ctypes.c_int64 * max(1, len(words)))(*words), harness.aligned(64)
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    function = kind(harness.compiled(str(kernel), target).get_function_address("KERNEL"))
    failed = function(ctypes.addressof(arguments), 0, vectors, scratch.ctypes.data)
    if failed:
        return failed, int(scratch[:8].view(np.int64)[0])
    return [m.view(dtypes.numpy_dtype(r.dtype))[:count].copy() for m, r in zip(memory["output"], roots)]


def meaning(root, arrays):
    return expr.evaluate(root, arrays, arrays[0].shape, lambda d: d, lambda code: None)


def samples(dtype, count=1000, seed=0):
    """Every bit pattern is as likely as another, and special values come first."""
    generator, kind = np.random.default_rng(seed), dtypes.numpy_dtype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, count).astype(bool)
    if dtypes.is_integer(dtype):
        low, high = dtypes.integer_range(dtype)
        special = [n for n in (0, 1, -1, 2, 3, -3, low, high, low + 1) if low <= n <= high]
        wide = generator.integers(low, high, count, endpoint=True, dtype=np.int64 if low < 0 else np.uint64)
        small = generator.integers(max(low, -7), 8 if high > 8 else high, count)
        return np.concatenate([np.array(special * 9).astype(kind), wide.astype(kind), small.astype(kind)])
    bits = generator.integers(0, 2 ** min(32, 8 * kind.itemsize), count, dtype=np.uint64)
    if kind.itemsize == 8:
        bits = bits << np.uint64(32) | generator.integers(0, 2**32, count, dtype=np.uint64)
    if dtypes.bits(dtype) < 8:
        bits &= np.uint64((1 << dtypes.bits(dtype)) - 1)
    patterns = bits.astype(f"u{kind.itemsize}").view(kind)
    with np.errstate(all="ignore"):
        special = np.array(
            [
                0.0,
                -0.0,
                1,
                -1,
                np.inf,
                -np.inf,
                np.nan,
                0.5,
                1.5,
                2.5,
                -2.5,
                2**31,
                -(2.0**31),
                2.0**63,
                1e300,
                255.5,
            ]
        )
        small = generator.uniform(-9, 9, count)
        return np.concatenate([special.astype(kind), patterns, small.astype(kind)])


def same(got, want):
    """Equal element for element, NaN with NaN; numbers of narrow types are compared exactly in float64."""
    if got.dtype.kind in "fV":
        got, want = got.astype(np.float64), want.astype(np.float64)
        return bool(np.all((got == want) | (np.isnan(got) & np.isnan(want))))
    return np.array_equal(got, want)


def check_exact(target, roots, *arrays, lanes=None):
    """One kernel for all the roots, which must give what they mean to the last bit."""
    for root, got in zip(roots, run(target, roots, arrays, lanes), strict=True):
        want = meaning(root, arrays)
        if not same(got, want):
            wrong = [i for i in range(len(got)) if not same(got[i : i + 1], want[i : i + 1])]
            raise AssertionError(f"{root}: {[(*(a[i] for a in arrays), got[i], want[i]) for i in wrong[:5]]}")


def pair(dtype):
    a = samples(dtype)
    return a, samples(dtype, seed=1)[np.random.default_rng(2).permutation(len(a))]


# Integers and bool --------------------------------------------------------------------------------


@targets
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(target, dtype):
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


@targets
@pytest.mark.parametrize("dtype", ("int8", "uint8", "int32", "int64", "uint64"))
def test_integers_with_constants(target, dtype):
    values = (0, 1, 2, 3, 7, 100, *((-1, -3) if dtypes.is_signed(dtype) else ()))
    roots = [
        apply(op, input_(0, dtype), const(value, dtype))
        for op in ("div", "mod", "fmod", "shl", "shr")
        for value in values
    ]
    check_exact(target, roots, samples(dtype))


@targets
def test_bool(target):
    x, y = input_(0, "bool"), input_(1, "bool")
    pairs = ("and", "or", "xor", "add", "mul", "min", "max", "eq", "ne", "lt", "ge")
    roots = [*(apply(op, x, y) for op in pairs), apply("not", x), apply("select", x, y, const(True, "bool"))]
    check_exact(target, roots, samples("bool"), samples("bool", seed=1))


@targets
def test_a_bool_in_memory_is_true_where_its_byte_is_not_zero(target):
    bytes_ = np.arange(256, dtype=np.uint8)
    (got,) = run(target, [input_(0, "bool").cast("uint8")], [bytes_.view(bool)])
    assert np.array_equal(got, bytes_ != 0)


# Floats, exact operations --------------------------------------------------------------------------


@targets
@pytest.mark.parametrize("dtype", ("float32", "float64", *NARROW))
def test_floats(target, dtype):
    x, y = input_(0, dtype), input_(1, dtype)
    pairs = ("add", "sub", "mul", "div", "min", "max", "eq", "ne", "lt", "le", "gt", "ge")
    single = ("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "sqrt", "isnan", "isinf")
    check_exact(target, [*(apply(op, x, y) for op in pairs), *(apply(op, x) for op in single)], *pair(dtype))


@targets
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_float_remainders_are_exact(target, dtype):
    check_exact(
        target, [apply(op, input_(0, dtype), input_(1, dtype)) for op in ("fmod", "mod")], *pair(dtype)
    )


@targets
def test_extremes_with_a_constant_keep_nan(target):
    x = input_(0, "float32")
    roots = [x.maximum(0.0), const(1.5, "float32").minimum(x), x.clip(-1.0, 6.0)]
    check_exact(target, roots, samples("float32"))


@targets
def test_selection_and_comparison(target):
    x, y = input_(0, "float32"), input_(1, "float32")
    check_exact(target, [expr.where(x < y, x, y * 2)], *pair("float32"))


# Conversions --------------------------------------------------------------------------------------


@targets
@pytest.mark.parametrize("dtype", ("bool", *INTEGERS, *dtypes.FLOATS))
def test_casts(target, dtype):
    x, small = input_(0, dtype), ("int4", "uint4", "int2", "uint2")
    to = [
        d for d in ("bool", *INTEGERS, *dtypes.FLOATS) if d != dtype and not (d in small and dtype in small)
    ]
    check_exact(target, [x.cast(d) for d in to], samples(dtype))


@targets
@pytest.mark.parametrize("dtype", ("int4", "uint4", "int2", "uint2"))
def test_casts_between_integers_of_a_few_bits_wrap(target, dtype):
    a = samples(dtype)
    for to in {"int4", "uint4", "int2", "uint2"} - {dtype}:
        (got,) = run(target, [input_(0, dtype).cast(to).cast("int8")], [a])
        low, high = dtypes.integer_range(to)
        assert np.array_equal(got, (a.astype(np.int64) - low) % (high - low + 1) + low)


def sameness_of_codes(got, want):
    """Bytes are equal but for the payload and sign of NaN."""
    a, b = got.view(np.uint8), want.view(np.uint8)
    return bool(np.all((a == b) | (np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32)))))


@targets
@pytest.mark.parametrize("dtype", [d for d in dtypes.SMALL_FLOATS if d != "float8e8m0"])
def test_small_floats_convert_like_their_definition(target, dtype):
    codes = np.arange(1 << (4 if dtype == "float4e2m1" else 8), dtype=np.uint8).view(
        dtypes.numpy_dtype(dtype)
    )
    check_exact(target, [input_(0, dtype).cast("float32")], codes)
    generator = np.random.default_rng(0)
    parts = [samples("float32", 20000), generator.normal(0, 30, 20000), generator.normal(0, 1e-3, 20000)]
    values = np.concatenate(parts).astype(np.float32)
    (got,) = run(target, [input_(0, "float32").cast(dtype)], [values])
    with np.errstate(all="ignore"):
        want = values.astype(dtypes.numpy_dtype(dtype))
    if dtype == "float4e2m1":  # which has no NaN, so that anything may stand for it
        got, want = got[~np.isnan(values)], want[~np.isnan(values)]
    assert sameness_of_codes(got, want)


@targets
def test_powers_of_two_as_eight_bit_exponents(target):
    kind = dtypes.numpy_dtype("float8e8m0")
    check_exact(target, [input_(0, "float8e8m0").cast("float32")], np.arange(256, dtype=np.uint8).view(kind))
    values = np.random.default_rng(0).lognormal(0, 20, 5000).astype(np.float32)
    values = values[values > 2.0**-126]
    (got,) = run(target, [input_(0, "float32").cast("float8e8m0")], [values])
    with np.errstate(all="ignore"):
        assert np.array_equal(got.view(np.uint8), values.astype(kind).view(np.uint8))


@targets
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_rounding_to_sixteen_bits_is_to_nearest_even(target, dtype):
    middle = np.arange(1 << 16, dtype=np.uint16).view(dtypes.numpy_dtype(dtype)).astype(np.float64)
    with np.errstate(all="ignore"):
        halves = (middle[:-1] + middle[1:]) / 2
        values = np.concatenate([middle, halves, np.nextafter(halves, np.inf), np.nextafter(halves, -np.inf)])
        for source in ("float64", "float32"):
            (got,) = run(target, [input_(0, source).cast(dtype)], [values.astype(source)])
            assert same(got, values.astype(source).astype(got.dtype))


@targets
def test_clip_before_a_cast(target):
    x = input_(0, "float32")
    roots = [apply("round", x).clip(-128.0, 127.0).cast("int8"), x.minimum(255.0).maximum(0.0).cast("uint8")]
    check_exact(target, roots, samples("float32"))


@targets
def test_bitcast(target):
    check_exact(target, [expr.bitcast(input_(0, "float32"), "int32")], samples("float32"))
    check_exact(target, [expr.bitcast(input_(0, "int16"), "float16")], samples("int16"))
    check_exact(
        target, [expr.bitcast(expr.bitcast(input_(0, "bfloat16"), "uint16"), "int16")], samples("bfloat16")
    )


# Functions: error in units of the last place ---------------------------------------------------------

LIMITS = {
    "exp": ((-110, 90), (-746, 710)),
    "log": ((0, 2), (0.9, 1.1), (0, 1e6)),
    "tanh": ((-10, 10), (-1, 1)),
    "sin": ((-10, 10), (-1e4, 1e4), (-1e7, 1e7)),
    "cos": ((-10, 10), (-1e4, 1e4), (-1e7, 1e7)),
    "tan": ((-10, 10), (-1e4, 1e4)),
    "asin": ((-1, 1),),
    "acos": ((-1, 1), (0.9, 1)),
    "atan": ((-3, 3), (-50, 50)),
    "sinh": ((-1.5, 1.5), (-90, 90), (-711, 711)),
    "cosh": ((-3, 3), (-711, 711)),
    "asinh": ((-2, 2), (-1e3, 1e3)),
    "acosh": ((1, 1.1), (1, 100)),
    "atanh": ((-1, 1), (-0.1, 0.1)),
    "erf": ((-6, 6), (-1, 1)),
}
NUMPY = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
SPECIAL = [
    0.0,
    -0.0,
    1,
    -1,
    np.inf,
    -np.inf,
    np.nan,
    5e-324,
    -5e-324,
    1e-310,
    1e-45,
    1e-40,
    3e38,
    -3e38,
    1.7e308,
    1e10,
    -1e10,
    1e22,
    1 - 1e-7,
    1 + 1e-7,
    math.pi,
    math.pi / 2,
    100 * math.pi,
    88.72,
    88.73,
    -103.97,
    709.78,
    -745.13,
]


def arguments(dtype, *ranges, count=20000):
    generator, kind = np.random.default_rng(0), np.dtype(dtype)
    with np.errstate(all="ignore"):
        parts = [np.array(SPECIAL).astype(kind), samples(dtype, count)]
        return np.concatenate(
            [*parts, *(generator.uniform(low, high, count).astype(kind) for low, high in ranges)]
        )


def precise(name, *x):
    """The function in the longest type there is."""
    if name == "erf":
        return np.array([math.erf(float(v)) for v in x[0]])
    with np.errstate(all="ignore"):
        return getattr(np, NUMPY.get(name, name))(*(v.astype(np.longdouble) for v in x))


def error(got, want):
    """In units of the last place of the exact result; infinite where only one of the two is finite or a
    number."""
    with np.errstate(all="ignore"):
        near = want.astype(got.dtype)
        distance = np.abs(got.astype(np.longdouble) - want) / np.spacing(np.abs(near)).astype(np.longdouble)
        special = ~np.isfinite(near) | ~np.isfinite(got)
        agree = (got == near) | (np.isnan(got) & np.isnan(near))
    return np.where(special, np.where(agree, 0, np.inf), distance)


def worst(got, want, *x):
    units = error(got, want)
    i = int(np.argmax(units))
    return units[i], f"{units[i]} ulp at {[v[i] for v in x]}: {got[i]!r}, not {want[i]!r}"


@targets
@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("name", LIMITS)
def test_functions(target, name, dtype):
    x = arguments(dtype, *LIMITS[name], count=2000 if name == "erf" else 20000)
    (got,) = run(target, [apply(name, input_(0, dtype))], [x])
    units, message = worst(got, precise(name, x), x)
    assert units <= (3 if dtype == "float32" else 4), message


@targets
@pytest.mark.parametrize("name", LIMITS)
def test_functions_keep_the_sign_of_zero(target, name):
    x = np.array([0.0, -0.0], np.float32)
    (got,) = run(target, [apply(name, input_(0, "float32"))], [x])
    with np.errstate(all="ignore"):
        want = precise(name, x).astype(np.float32)
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[number]), np.signbit(want[number]))


@targets
def test_sigmoid_is_recognised(target):
    x = arguments("float32", (-88, 88), (-5, 5))
    (got,) = run(target, [expr.sigmoid(input_(0, "float32"))], [x])
    with np.errstate(all="ignore"):
        want = 1 / (1 + np.exp(-x.astype(np.longdouble)))
    normal = (want > 2.0**-126) | np.isnan(want)
    units, message = worst(got[normal], want[normal], x[normal])
    assert units <= 3, message
    assert np.all(got[~normal] < 2.0**-126)


@targets
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_powers(target, dtype):
    generator = np.random.default_rng(0)
    a, b = (arguments(dtype) for _ in range(2))
    b = generator.permutation(b)
    x = np.concatenate([a, generator.lognormal(0, 3, 20000), generator.uniform(-9, 9, 20000)]).astype(dtype)
    y = np.concatenate([b, generator.normal(0, 30, 20000), generator.integers(-9, 9, 20000)]).astype(dtype)
    (got,) = run(target, [apply("pow", input_(0, dtype), input_(1, dtype))], [x, y])
    units, message = worst(got, precise("power", x, y), x, y)
    assert units <= 4, message


@targets
def test_powers_of_special_values(target):
    values = np.array(
        [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 2.5, 1e9 + 1], np.float64
    )
    x, y = (m.ravel() for m in np.meshgrid(values, values))
    (got,) = run(target, [apply("pow", input_(0, "float64"), input_(1, "float64"))], [x, y])
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    units, message = worst(got, want, x, y)
    assert units <= 1, message
    assert np.array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


@targets
@pytest.mark.parametrize("exponent", (2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0, 0.5, 1.75, 0.0))
def test_constant_powers(target, exponent):
    x = arguments("float32", (-10, 10))
    (got,) = run(target, [apply("pow", input_(0, "float32"), const(exponent, "float32"))], [x])
    units, message = worst(got, precise("power", x, np.array([exponent], np.float32)), x)
    assert units <= 4, message


@targets
def test_powers_of_mixed_types(target):
    generator = np.random.default_rng(0)
    base = generator.uniform(-3, 3, 500).astype(np.float32)
    exponent = generator.integers(-9, 9, 500)
    (got,) = run(target, [apply("pow", input_(0, "float32"), input_(1, "int64"))], [base, exponent])
    units, message = worst(got, precise("power", base, exponent), base, exponent)
    assert units <= 1, message
    whole = generator.integers(-9, 9, 500).astype(np.int32)
    root = apply("pow", input_(0, "int32"), input_(1, "float32"))
    check_exact(target, [root], whole, np.abs(np.round(base)))


@targets
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ("exp", "tanh", "erf", "log", "sin"))
def test_functions_of_narrow_floats_round_once(target, name, dtype):
    kind = dtypes.numpy_dtype(dtype)
    x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    x = x[np.isfinite(x.astype(np.float32))][::7]
    (got,) = run(target, [apply(name, input_(0, dtype))], [x])
    with np.errstate(all="ignore"):
        want = precise(name, x.astype(np.float64)).astype(np.float32).astype(kind)
    near = got.view(np.int16).astype(int) - want.view(np.int16).astype(int)
    number = ~np.isnan(want.astype(np.float32))
    assert np.array_equal(number, ~np.isnan(got.astype(np.float32)))
    assert np.abs(near[number]).max() <= 1
    assert np.mean(near[number] != 0) < 1e-3


# Structure ----------------------------------------------------------------------------------------


@targets
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


@targets
def test_several_roots_share_their_parts(target):
    x, a = input_(0, "float32"), samples("float32")
    shared = expr.exp(x)
    one, two = run(target, [shared + 1, shared * 2], [a])
    (both,) = run(target, [shared], [a])
    with np.errstate(all="ignore"):
        assert np.array_equal(one, both + np.float32(1), equal_nan=True)
        assert np.array_equal(two, both * np.float32(2), equal_nan=True)


@targets
def test_sizes_and_indices(target):
    from onnxc.ir.dims import symbol

    a = np.zeros(100, np.int64)
    root = input_(0, "int64") + expr.index(0) * 2 + expr.size(symbol("n"))
    (got,) = run(target, [root], [a], sizes={"n": 1000})
    assert np.array_equal(got, np.arange(100) * 2 + 1000)


@targets
@pytest.mark.parametrize("lanes", (1, 4, 16))
def test_a_failed_check_reports_its_code_and_the_first_failing_value(target, lanes):
    x, y = input_(0, "int32"), input_(1, "int32")
    root = expr.check(apply("ne", y, const(0, "int32")), x, "division_by_zero") / y
    a, b = np.arange(100, dtype=np.int32) + 500, np.ones(100, np.int32)
    (got,) = run(target, [root], [a, b], lanes)
    assert np.array_equal(got, a)
    b[[37, 41, 90]] = 0
    assert run(target, [root], [a, b], lanes) == (abi.ERRORS["division_by_zero"], 537)


def test_what_a_kernel_cannot_do_is_refused():
    kernel = KernelText(harness.RUNNABLE[0])
    with kernel.entry() as f:
        checked = expr.check(input_(0, "int32") > 0, input_(0, "int32"), "invalid_value")
        for root in (checked, expr.index(0), apply("exp", input_(0, "int32"))):
            with pytest.raises(TypeError):
                scalar.lower(f, [root], lambda i: "0", 4)
    assert scalar.can_fail(checked + 1)
    assert not scalar.can_fail(input_(0, "int32") + 1)


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
