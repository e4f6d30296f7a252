"""Functions as vector code: their errors in units of the last place."""

import math

import numpy as np
import pytest
from support.harness import TARGETS
from support.lanes import NARROW, check_exact, run, samples

from onnxc.codegen.text.exponentials import FAR_BELOW
from onnxc.codegen.text.scalar import softmax_exp
from onnxc.ir import dtypes, expr
from onnxc.ir.expr import apply, const, input_

LIMITS = {
    "exp": ((-110, 90), (-746, 710)),
    "expm1": ((-110, 90), (-746, 710), (-1, 1), (-1e-3, 1e-3)),
    "log": ((0, 2), (0.9, 1.1), (0, 1e6)),
    "log1p": ((-1, 1), (-1e-3, 1e-3), (0, 1e6)),
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


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("name", LIMITS)
def test_functions_are_within_a_few_units_of_the_last_place(target, name, dtype):
    x = arguments(dtype, *LIMITS[name], count=2000 if name == "erf" else 20000)
    (got,) = run(target, [apply(name, input_(0, dtype))], [x])
    units, message = worst(got, precise(name, x), x)
    assert units <= (3 if dtype == "float32" else 4), message


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("name", ("erf", "tanh"))
def test_functions_are_as_exact_where_their_pieces_meet(target, name, dtype):
    widths = (1 / 8, 9 / 32, 3 / 8)
    borders = np.concatenate([(np.arange(34) + 0.5) * width for width in widths]).astype(dtype)
    x = np.concatenate([np.nextafter(borders, 0), borders, np.nextafter(borders, 99)]).astype(dtype)
    (got,) = run(target, [apply(name, input_(0, dtype))], [x])
    units, message = worst(got, precise(name, x), x)
    assert units <= (3 if dtype == "float32" else 4), message
    assert got.max() <= 1


@TARGETS
@pytest.mark.parametrize("name", LIMITS)
def test_functions_keep_the_sign_of_zero(target, name):
    x = np.array([0.0, -0.0], np.float32)
    (got,) = run(target, [apply(name, input_(0, "float32"))], [x])
    with np.errstate(all="ignore"):
        want = precise(name, x).astype(np.float32)
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[number]), np.signbit(want[number]))


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_softplus_is_as_exact_where_it_vanishes(target, dtype):
    x = arguments(dtype, (-110, 90), (-746, 710), (-20, 5))
    (got,) = run(target, [expr.softplus(input_(0, dtype))], [x])
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        want = np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide)))
    units, message = worst(got, want, x)
    assert units <= 3, message


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_sigmoids_are_recognised(target, dtype):
    check_sigmoid(target, expr.sigmoid(input_(0, dtype)), dtype, 1)


@TARGETS
def test_a_tanh_beside_one_is_a_sigmoid(target):
    """1 + tanh x is 2 / (1 + exp(-2x)), where nothing cancels."""
    check_sigmoid(target, 1 + apply("tanh", input_(0, "float32")), "float32", 2)


def check_sigmoid(target, made, dtype, height):
    end, least = (88, -126) if dtype == "float32" else (709, -1022)
    x = arguments(dtype, (-end / height, end / height), (-5, 5))
    (got,) = run(target, [made], [x])
    with np.errstate(all="ignore"):
        want = height / (1 + np.exp(-height * x.astype(np.longdouble)))
    normal = (want > height * 2.0**least) | np.isnan(want)
    units, message = worst(got[normal], want[normal], x[normal])
    assert units <= 3, message
    assert np.all(got[~normal] < height * 2.0**least)


@TARGETS
@pytest.mark.parametrize("dtype, error, each", [("float32", 2e-7, 6e-8), ("float64", 5e-16, 0)])
def test_exponentials_of_a_softmax_vanish_far_below_its_greatest(target, dtype, error, each):
    end = FAR_BELOW[dtype]
    x = -np.abs(arguments(dtype, (int(end) - 10, 0), (-1, 0)))
    (got,) = run(target, [softmax_exp(input_(0, dtype))], [x])
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.longdouble))
        off = np.abs(got - want) / want
    near, far = x >= end + 0.01, x < end - 0.01
    assert np.all(off[near] <= error - each * x[near])
    assert not got[far].any()
    assert np.all(np.isnan(got) == np.isnan(x))


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_powers_are_within_a_few_units_of_the_last_place(target, dtype):
    generator = np.random.default_rng(0)
    a, b = (arguments(dtype) for _ in range(2))
    b = generator.permutation(b)
    x = np.concatenate([a, generator.lognormal(0, 3, 20000), generator.uniform(-9, 9, 20000)]).astype(dtype)
    y = np.concatenate([b, generator.normal(0, 30, 20000), generator.integers(-9, 9, 20000)]).astype(dtype)
    (got,) = run(target, [apply("pow", input_(0, dtype), input_(1, dtype))], [x, y])
    units, message = worst(got, precise("power", x, y), x, y)
    assert units <= 4, message


@TARGETS
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


@TARGETS
@pytest.mark.parametrize(
    "exponent", (2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0, 0.25, 0.5, 0.75, 1.75, 0.0, -0.25, -0.5, -0.75)
)
def test_powers_by_a_known_exponent_are_as_exact(target, exponent):
    x = arguments("float32", (-10, 10))
    (got,) = run(target, [apply("pow", input_(0, "float32"), const(exponent, "float32"))], [x])
    units, message = worst(got, precise("power", x, np.array([exponent], np.float32)), x)
    assert units <= 4, message


@TARGETS
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_constant_powers_of_integers_are_those_of_floats(target, dtype):
    x = np.concatenate([np.arange(-40, 41), [1 << 20, -(1 << 30)]]).astype(dtype)
    for exponent in (2.0, 3.0, -1.0, -2.0, 0.0, 5.0):
        check_exact(target, [apply("pow", input_(0, dtype), const(exponent, "float32"))], x)


@TARGETS
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_squares_of_integers_end_at_the_greatest(target, dtype):
    limits = np.iinfo(dtype)
    root = math.isqrt(1 << 53 if limits.bits == 64 else limits.max)
    ends = [limits.min, limits.min + 1, limits.max, root - 1, root, root + 1, -root - 1, -root, 0, 1]
    ends = [x for x in ends if limits.min <= x <= limits.max]
    for x in (np.array(ends), np.arange(max(-100, limits.min), 101), np.array([root] * 64)):
        check_exact(target, [apply("pow", input_(0, dtype), const(2.0, "float32"))], x.astype(dtype))


@TARGETS
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


@TARGETS
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ("exp", "expm1", "tanh", "erf", "log", "log1p", "sin"))
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
