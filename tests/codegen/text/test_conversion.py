"""Conversions between types as vector code: to the last bit what numpy and ml_dtypes give."""

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS
from support.lanes import INTEGERS, check_exact, meaning, pair, run, same, samples
from support.rounding import beside_middles

from onnxc.codegen.kernel import KernelText
from onnxc.codegen.text import scalar
from onnxc.codegen.text.memory import load_lanes
from onnxc.ir import dtypes, expr
from onnxc.ir.expr import apply, input_
from onnxc.target import TARGETS as PROCESSORS
from onnxc.target import Ability


@TARGETS
@pytest.mark.parametrize("dtype", ("bool", *INTEGERS, *dtypes.FLOATS))
def test_every_type_is_cast_to_every_other(target, dtype):
    x, small = input_(0, dtype), ("int4", "uint4", "int2", "uint2")
    to = [
        d for d in ("bool", *INTEGERS, *dtypes.FLOATS) if d != dtype and not (d in small and dtype in small)
    ]
    check_exact(target, [x.cast(d) for d in to], samples(dtype))


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("limit", [100.0, 2.0**31, 2.0**53, 2.0**66])
def test_numbers_of_one_magnitude_become_64_bit_integers(target, dtype, limit):
    values = np.random.default_rng(0).uniform(-limit, limit, 1000).astype(dtype)
    edges = [limit, -limit, np.nextafter(limit, 0, dtype=dtype), np.nan if limit > 2**31 else -0.5]
    values[:: len(edges)] = np.resize(edges, len(values) // len(edges))
    check_exact(target, [input_(0, dtype).cast(to) for to in ("int64", "uint64")], values)


@TARGETS
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


@TARGETS
@pytest.mark.parametrize("dtype", [d for d in dtypes.SMALL_FLOATS if d != "float8e8m0"])
def test_small_floats_convert_like_their_definition(target, dtype):
    codes = np.arange(1 << dtypes.bits(dtype), dtype=np.uint8).view(dtypes.numpy_dtype(dtype))
    check_exact(target, [input_(0, dtype).cast("float32")], codes)
    generator = np.random.default_rng(0)
    parts = [samples("float32", 20000), generator.normal(0, 30, 20000), generator.normal(0, 1e-3, 20000)]
    values = np.concatenate(parts).astype(np.float32)
    (got,) = run(target, [input_(0, "float32").cast(dtype)], [values])
    with np.errstate(all="ignore"):
        want = values.astype(dtypes.numpy_dtype(dtype))
    if dtypes.bits(dtype) < 8:  # these have no NaN, so that anything may stand for it
        got, want = got[~np.isnan(values)], want[~np.isnan(values)]
    assert sameness_of_codes(got, want)


@TARGETS
def test_powers_of_two_as_eight_bit_exponents(target):
    kind = dtypes.numpy_dtype("float8e8m0")
    check_exact(target, [input_(0, "float8e8m0").cast("float32")], np.arange(256, dtype=np.uint8).view(kind))
    (there,) = run(
        target, [input_(0, "float8e8m0").cast("bool")], [np.arange(256, dtype=np.uint8).view(kind)]
    )
    assert there.all()  # its least number is 2 ** -127
    values = np.random.default_rng(0).lognormal(0, 20, 5000).astype(np.float32)
    values = values[values > 2.0**-126]
    (got,) = run(target, [input_(0, "float32").cast("float8e8m0")], [values])
    with np.errstate(all="ignore"):
        assert np.array_equal(got.view(np.uint8), values.astype(kind).view(np.uint8))


@TARGETS
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_rounding_to_sixteen_bits_is_to_nearest_even(target, dtype):
    middle = np.arange(1 << 16, dtype=np.uint16).view(dtypes.numpy_dtype(dtype)).astype(np.float64)
    with np.errstate(all="ignore"):
        halves = (middle[:-1] + middle[1:]) / 2
        values = np.concatenate([middle, halves, np.nextafter(halves, np.inf), np.nextafter(halves, -np.inf)])
        for source in ("float64", "float32"):
            (got,) = run(target, [input_(0, source).cast(dtype)], [values.astype(source)])
            assert same(got, expr.saturating_cast(values.astype(source), got.dtype))


@TARGETS
@pytest.mark.parametrize("source", ("float64", "int64", "uint64", "int32", "uint32"))
def test_wide_numbers_are_rounded_to_narrow_ones_once(target, source):
    for dtype in ("bfloat16", "float16", "float8e4m3fn", "float8e5m2"):
        check_exact(target, [input_(0, source).cast(dtype)], beside_middles(source, dtype))


#: With the processors that have arithmetic of float16.
WITH_HALVES = [
    t
    for t in PROCESSORS.values()
    if t in harness.RUNNABLE or (Ability.HALF_ARITHMETIC in t.abilities and harness.runs(t))
]


@pytest.mark.parametrize("target", WITH_HALVES, ids=str)
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_every_operation_of_sixteen_bits_is_rounded_once(target, dtype):
    a, b = pair(dtype)
    x, y = input_(0, dtype), input_(1, dtype)
    roots = [x + y, x - y, x * y, x / y, (x * y + x) * y - x, x * y < y]
    generator = np.random.default_rng(3)
    check_exact(target, roots, *(generator.normal(0, s, 4000).astype(a.dtype) for s in (1, 1e-4)))
    flushes = dtype == "bfloat16" and Ability.CONVERT_BF16 in target.abilities
    with np.errstate(all="ignore"):
        for root, got in zip(roots, run(target, roots, [a, b]), strict=True):
            want = meaning(root, [a, b])
            small = np.abs(want.astype(np.float64)) < 2.0**-126 if flushes else np.zeros(want.shape, bool)
            assert same(got[~small], want[~small])
            assert same(got[small & (got != 0)], want[small & (got != 0)])  # a subnormal may be 0


@TARGETS
def test_no_nan_of_sixteen_bits_becomes_a_number(target):
    nan = np.arange(1 << 16, dtype=np.uint16).view(dtypes.numpy_dtype("bfloat16"))
    nan = nan[np.isnan(nan.astype(np.float64))]
    x = input_(0, "bfloat16")
    wide = x.cast("float32")
    named = ("exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "floor", "atan", "cosh")
    roots = [*(apply(op, x) for op in named), *(apply(op, wide).cast("bfloat16") for op in named)]
    roots += [apply("pow", wide, wide * 0.5 + 1.0).cast("bfloat16"), expr.sigmoid(wide).cast("bfloat16")]
    for got in run(target, roots, [nan]):
        assert np.isnan(got.astype(np.float32)).all()


@pytest.mark.parametrize("target", PROCESSORS.values(), ids=str)
def test_float16_is_added_as_it_is_where_the_target_can(target):
    kernel, x = KernelText(target), input_(0, "float16")
    with kernel.entry() as f:
        scalar.lower(f, [x * x + x], lambda i: load_lanes(f, "float16", f.input(i), 8), 8)
    assert ("fadd <8 x half>" in str(kernel)) == (Ability.HALF_ARITHMETIC in target.abilities)


@TARGETS
def test_clip_before_a_cast(target):
    x = input_(0, "float32")
    roots = [apply("round", x).clip(-128.0, 127.0).cast("int8"), x.minimum(255.0).maximum(0.0).cast("uint8")]
    check_exact(target, roots, samples("float32"))


SCALED = [("uint8", 0, 255, 120), ("int8", -128, 127, 0), ("int8", -127, 127, -3), ("uint16", 0, 65535, 999)]


@TARGETS
@pytest.mark.parametrize(("dtype", "low", "high", "zero"), SCALED)
def test_quantising_by_a_constant_divides_to_the_last_bit(target, dtype, low, high, zero):
    generator = np.random.default_rng(high)
    scales = [0.02, 1.0, 0.99999994, 1.0000001, *generator.lognormal(-4, 3, 4)]
    ties = np.arange(low - zero - 1, high - zero + 2, 1 if high < 300 else 61) + 0.5
    wild = samples("float32")
    for scale in map(float, np.float32(scales)):
        near = np.float32(ties * scale)
        steps = [near, *(np.nextafter(near, np.float32(s * np.inf)) for s in (1, -1)), near * np.float32(0.7)]
        quotient = apply("round", input_(0, "float32") / scale)
        total = quotient + float(zero) if zero else quotient
        roots = [total.maximum(float(low)).minimum(float(high)).cast(dtype)]
        check_exact(target, roots, np.concatenate([*steps, wild, wild * np.float32(scale)]))


@TARGETS
@pytest.mark.parametrize("registers", [0.5, 1, 2, 4, 8])
@pytest.mark.parametrize(
    ("dtype", "low", "high", "zero"), [*SCALED, ("uint8", 9, 200, 9), ("int8", -9, 40, 7)]
)
def test_registers_that_become_bytes_together(target, dtype, low, high, zero, registers):
    sums = np.concatenate([np.arange(-900, 900, 7), 2 ** np.arange(31), -(2 ** np.arange(32))]).astype(
        np.int32
    )
    for scale in (0.5, 0.0117, 0.7):  # of the first each second sum lies between two integers
        real = input_(0, "int32").cast("float32") * scale
        for x in (real, real.minimum(1000.0).maximum(-1000.0)):
            whole = apply("round", x) + float(zero) if zero else apply("round", x)
            root = whole.maximum(float(low)).minimum(float(high)).cast(dtype)
            check_exact(target, [root], sums, lanes=int(registers * target.lanes("float32")))


@TARGETS
@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_what_small_operands_make_becomes_bytes_without_bounds(target, dtype, low, high):
    """As they saturate: sums at their ends times the greatest scales among them."""
    sums = np.concatenate([np.arange(-900, 900, 7), 2 ** np.arange(31), -(2 ** np.arange(32))]).astype(
        np.int32
    )
    generator = np.random.default_rng(0)
    scales, factors = (
        np.resize(np.float32([most, -most, *generator.normal(0, most / 40, 61)]), len(sums))
        for most in (0.5, 1e3)
    )
    product = input_(0, "int32").cast("float32") * input_(1, "float32")
    first = apply("round", product).maximum(-112.0).minimum(143.0)
    second = apply("fma", first, input_(2, "float32"), input_(2, "float32"))
    roots = [
        apply("round", x).maximum(float(low)).minimum(float(high)).cast(dtype) for x in (product, second)
    ]
    for registers in (1, 4):
        lanes = registers * target.lanes("float32")
        check_exact(target, roots, sums, scales, factors, lanes=lanes, bounds={1: 0.5, 2: 1024.0})


@TARGETS
def test_bits_stay_as_they_are_in_another_type(target):
    check_exact(target, [expr.bitcast(input_(0, "float32"), "int32")], samples("float32"))
    check_exact(target, [expr.bitcast(input_(0, "int16"), "float16")], samples("int16"))
    check_exact(
        target, [expr.bitcast(expr.bitcast(input_(0, "bfloat16"), "uint16"), "int16")], samples("bfloat16")
    )
