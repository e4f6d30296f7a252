"""Scalar expressions: interning, exact simplification, and arithmetic of every element type."""

import math

import numpy as np
import pytest
from support.rounding import beside_middles, nearest

from onnxc.ir import dims, dtypes, expr
from onnxc.ir.expr import apply, cast, const, index, input_, size

x, y = input_(0, "float32"), input_(1, "float32")
i, j = input_(0, "int32"), input_(1, "int32")


def run(root, *operands, shape=None, env=None):
    """root over arrays; failed checks raise ArithmeticError."""

    def failed(code):
        raise ArithmeticError(code)

    arrays = [np.asarray(a) for a in operands]
    shape = np.broadcast_shapes(*(a.shape for a in arrays)) if shape is None else shape
    return expr.evaluate(root, arrays, shape, lambda d: dims.evaluate(d, env or {}), failed)


def array(values, dtype):
    return np.array(values).astype(dtypes.numpy_dtype(dtype))


# Identity ----------------------------------------------------------------------------------------


def test_equal_expressions_are_one_object():
    assert x + y is x + y
    assert x + y is not y + x
    assert const(1, "float32") is const(1.0, "float32")
    assert size(dims.symbol("n") + 1) is size(1 + dims.symbol("n"))


def test_constants_of_different_types_differ():
    assert const(1, "int32") is not const(1, "int64")
    assert const(True, "bool") is not const(1, "uint8")


def test_zero_and_negative_zero_differ():
    assert const(0.0, "float32") is not const(-0.0, "float32")


def test_nan_is_itself():
    assert const(math.nan, "float32") is const(math.nan, "float32")


def test_doubling_64_times_is_65_nodes():
    total = x
    for _ in range(64):
        total = total + total
    assert len(expr.topological(total)) == 65
    assert expr.instructions(total) == 64
    assert run(total, np.float32(1)) == np.float32(2.0**64)


@pytest.mark.slow
def test_a_chain_of_10000_is_walked_without_recursion():
    chain = x
    for _ in range(10_000):
        chain = expr.tanh(chain) + 1
    assert expr.instructions(chain) == 20_000
    assert expr.inputs(chain) == [0]
    shifted = expr.substitute(chain, {0: y})
    assert expr.inputs(shifted) == [1]
    assert run(chain, np.float32(0)).shape == ()
    assert len(repr(chain)) > 10_000


def test_what_nothing_holds_is_forgotten():
    before = len(expr._interned)
    chain = input_(99, "float64")
    for k in range(10_000):
        chain = chain * (k + 0.5)
    assert len(expr._interned) > before + 10_000
    del chain
    assert len(expr._interned) <= before + 1


def test_arguments_come_before_their_users():
    root = (x + y) * expr.exp(x + y)
    order = expr.topological(root)
    assert all(order.index(a) < k for k, node in enumerate(order) for a in node.args)
    assert order[-1] is root


# Simplification ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        x * 1,
        1 * x,
        x / 1,
        x - 0.0,
        x + -0.0,
        x**1,
        apply("neg", -x),
        x.minimum(x),
        x.maximum(x),
        expr.where(const(True, "bool"), x, y),
        expr.where(const(False, "bool"), y, x),
        expr.where(x < y, x, x),
        cast(x, "float32"),
        expr.bitcast(x, "float32"),
        expr.check(const(True, "bool"), x, "invalid_value"),
    ],
)
def test_identities_of_floats(same):
    assert same is x


@pytest.mark.parametrize(
    "same", [i + 0, i - 0, i * 1, i / 1, i & i, i | i, apply("not", ~i), apply("neg", -i)]
)
def test_identities_of_integers(same):
    assert same is i


@pytest.mark.parametrize("kept", [x * 0, x - x, x + 0.0, 0.0 + x, x / x, x - -0.0, expr.sqrt(x * x)])
def test_what_fails_for_nan_infinity_or_negative_zero_is_kept(kept):
    assert kept.op not in ("const", "input")


SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)


@pytest.mark.parametrize(
    ("simplified", "numpy"),
    [
        (x * 1, lambda a: a * np.float32(1)),
        (x - 0.0, lambda a: a - np.float32(0)),
        (x + -0.0, lambda a: a + np.float32(-0.0)),
        (x / 1, lambda a: a / np.float32(1)),
        (apply("neg", -x), lambda a: -np.negative(a)),
        (x.minimum(x), lambda a: np.minimum(a, a)),
    ],
)
def test_simplified_floats_keep_their_bits(simplified, numpy):
    result = run(simplified, SPECIAL)
    assert np.array_equal(result, numpy(SPECIAL), equal_nan=True)
    assert np.array_equal(np.signbit(result[:-3]), np.signbit(numpy(SPECIAL)[:-3]))


@pytest.mark.parametrize("extreme", ["min", "max"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_of_zeros_of_either_sign_the_first_is_the_extreme(extreme, dtype):
    zeros = np.array([0.0, -0.0] * 20, dtype)
    root = apply(extreme, expr.input_(0, dtype), expr.input_(1, dtype))
    np.testing.assert_array_equal(np.signbit(run(root, zeros, -zeros)), np.signbit(zeros))
    both = [const(zero, dtype) for zero in (0.0, -0.0)]
    assert apply(extreme, *both) is both[0] and apply(extreme, *both[::-1]) is both[1]


def test_a_bound_that_comes_first_is_the_second_where_that_is_the_same():
    assert const(1.5, "float32").maximum(x) is x.maximum(1.5)
    for bound in (0.0, -0.0, math.nan):
        assert const(bound, "float32").maximum(x).args[1] is x


def test_an_expression_of_constants_is_a_constant():
    assert const(2, "float32") * const(3, "float32") is const(6, "float32")
    assert const(7, "int32") / const(-2, "int32") is const(-3, "int32")
    assert (const(1, "float32") < const(2, "float32")) is const(True, "bool")
    assert expr.sqrt(const(-1, "float32")) is const(math.nan, "float32")
    assert cast(const(3.9, "float32"), "int8") is const(3, "int8")


def test_folded_integers_wrap():
    assert const(200, "uint8") + const(100, "uint8") is const(44, "uint8")
    assert -const(-128, "int8") is const(-128, "int8")


def test_a_constant_is_rounded_to_its_type():
    assert const(0.1, "float32").value == float(np.float32(0.1))
    assert const(1 + 2**-10, "bfloat16").value == 1.0
    assert const(70000, "float16").value == math.inf


def test_an_integer_constant_must_fit():
    with pytest.raises(ValueError, match="300 is no uint8"):
        const(300, "uint8")


def test_there_are_no_constants_of_strings():
    with pytest.raises(TypeError, match="string"):
        const(1, "string")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: apply("add", x, i),
        lambda: apply("exp", x, y),
        lambda: apply("select", x, x, y),
        lambda: apply("select", x < y, x, i),
    ],
)
def test_operands_of_other_types_are_refused(wrong):
    with pytest.raises(TypeError):
        wrong()


# Rewriting ---------------------------------------------------------------------------------------


def test_what_is_substituted_is_the_expression_of_it():
    inner = expr.exp(x)
    assert expr.substitute(x * 2 + x, {0: inner}) is inner * 2 + inner


def test_substitution_simplifies_again():
    assert expr.substitute(x * y, {1: const(1, "float32")}) is x
    assert expr.substitute(x + y, {0: const(1, "float32"), 1: const(2, "float32")}).value == 3.0


def test_a_rewrite_that_changes_nothing_gives_the_same_object():
    root = expr.tanh(x * y).cast("float16")
    assert expr.rewrite(root, lambda node: None) is root


# Evaluation --------------------------------------------------------------------------------------

FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "int4", "uint4"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic_rounds_after_each_operation(dtype):
    a, b = input_(0, dtype), input_(1, dtype)
    left, right = array([1.1, -2.3, 1e3], dtype), array([0.7, 1.9, -1e-3], dtype)
    result = run((a * b + a) / b, left, right)
    assert result.dtype == dtypes.numpy_dtype(dtype)
    with np.errstate(over="ignore"):
        assert np.array_equal(result, (left * right + left) / right)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "floor",
        "ceil",
        "trunc",
        "round",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "abs",
        "sign",
        "neg",
    ],
)
def test_functions_of_floats(name, dtype):
    reference = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
        "round": "rint",
        "neg": "negative",
    }
    values = array([-1.5, -0.5, 0.0, 0.25, 0.5, 1.5, 2.5], dtype)
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        expected = (
            np.vectorize(math.erf)(wide) if name == "erf" else getattr(np, reference.get(name, name))(wide)
        )
    result = run(apply(name, input_(0, dtype)), values)
    assert result.dtype == values.dtype
    eps = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=eps, atol=eps)


def test_rounding_is_half_to_even():
    halves = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    assert run(expr.round_(x), halves).tolist() == [0, 2, 2, 0]


def test_minimum_and_maximum_propagate_nan():
    assert np.isnan(run(x.minimum(y), np.float32(np.nan), np.float32(1)))
    assert np.isnan(run(x.maximum(y), np.float32(1), np.float32(np.nan)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_as_their_type_does(dtype):
    low, high = dtypes.integer_range(dtype)
    a, b = input_(0, dtype), input_(1, dtype)
    for op, exact in (("add", high + 1), ("sub", low - 1), ("mul", high * high)):
        left, right = {"add": (high, 1), "sub": (low, 1), "mul": (high, high)}[op]
        result = run(apply(op, a, b), array(left, dtype), array(right, dtype))
        assert result.dtype == dtypes.numpy_dtype(dtype)
        assert int(result) == (exact - low) % (high - low + 1) + low


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_rounds_toward_zero(dtype):
    signed = dtypes.is_signed(dtype)
    left, right = ([7, -7, 7, -7], [2, 2, -2, -2]) if signed else ([7, 6, 5, 1], [2, 2, 3, 7])
    a, b = array(left, dtype), array(right, dtype)
    x_, y_ = input_(0, dtype), input_(1, dtype)
    quotients = [math.trunc(p / q) for p, q in zip(left, right, strict=True)]
    assert run(x_ / y_, a, b).astype(int).tolist() == quotients
    remainders = [p - q * t for p, q, t in zip(left, right, quotients, strict=True)]
    assert run(apply("fmod", x_, y_), a, b).astype(int).tolist() == remainders
    assert run(x_ % y_, a, b).astype(int).tolist() == [p % q for p, q in zip(left, right, strict=True)]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_by_zero_is_division_by_one(dtype):
    a, zero = array([5, 0], dtype), array([0, 0], dtype)
    for op, expected in (("div", [5, 0]), ("mod", [0, 0]), ("fmod", [0, 0])):
        result = run(apply(op, input_(0, dtype), input_(1, dtype)), a, zero)
        assert result.astype(int).tolist() == expected


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8"])
def test_the_least_integer_divided_by_minus_one_wraps(dtype):
    low, _ = dtypes.integer_range(dtype)
    a, b = array(low, dtype), array(-1, dtype)
    assert int(run(input_(0, dtype) / input_(1, dtype), a, b)) == low
    assert int(run(input_(0, dtype) % input_(1, dtype), a, b)) == 0
    assert int(run(abs(input_(0, dtype)), a)) == low


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "uint16", "uint8", "int32"])
def test_shifts_by_the_width_or_more_give_zero(dtype):
    width = dtypes.bits(dtype)
    a, b = array([1, 1, 1, 100], dtype), array([0, 3, width, width + 1], dtype)
    assert run(input_(0, dtype) << input_(1, dtype), a, b).tolist() == [1, 8, 0, 0]
    assert run(input_(0, dtype) >> input_(1, dtype), array([8, 8, 8, 8], dtype), b).tolist() == [8, 1, 0, 0]


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "uint64"])
def test_powers_of_integers_are_exact(dtype):
    a, b = array([2, 3, 0, 0, 1], dtype), array([6, 4, 0, 3, 7], dtype)
    assert run(input_(0, dtype) ** input_(1, dtype), a, b).tolist() == [64, 81, 1, 0, 1]


def test_negative_powers_of_integers_round_toward_zero():
    bases, exponents = np.array([2, 1, -1, -1], np.int32), np.array([-1, -5, -3, -2], np.int32)
    assert run(i**j, bases, exponents).tolist() == [0, 1, -1, 1]


def test_the_exponent_may_have_another_type():
    assert run(apply("pow", x, j), np.float32(1.5), np.int32(2)) == np.float32(2.25)
    assert run(apply("pow", i, y), np.int32(3), np.float32(2)) == 9


def test_logic_of_bools():
    a, b = input_(0, "bool"), input_(1, "bool")
    left, right = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert run(a & b, left, right).tolist() == [False, False, False, True]
    assert run(a | b, left, right).tolist() == [False, True, True, True]
    assert run(a ^ b, left, right).tolist() == [False, True, True, False]
    assert run(~a, left).tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_comparisons_give_bools(dtype):
    a, b = input_(0, dtype), input_(1, dtype)
    left, right = array([1, 2, 3], dtype), array([2, 2, 2], dtype)
    for op, expected in (
        ("lt", "100"),
        ("le", "110"),
        ("gt", "001"),
        ("ge", "011"),
        ("eq", "010"),
        ("ne", "101"),
    ):
        result = run(apply(op, a, b), left, right)
        assert result.dtype == bool
        assert "".join("01"[int(v)] for v in result) == expected


def test_nothing_equals_nan():
    nan = np.float32(np.nan)
    assert not run(x.equals(y), nan, nan)
    assert run(apply("ne", x, y), nan, nan)
    assert run(expr.isnan(x), nan)
    assert run(expr.isinf(x), np.float32(-np.inf))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_saturate_to_integers(source, target):
    low, high = dtypes.integer_range(target)
    values = array([np.nan, np.inf, -np.inf, 1.9, 0.0], source)
    assert run(cast(input_(0, source), target), values).astype(object).tolist() == [0, high, low, 1, 0]
    if low < 0:
        assert int(run(cast(input_(0, source), target), array(-1.9, source))) == -1


@pytest.mark.parametrize("source", ("float64", "int64", "uint64", "int32", "uint32"))
@pytest.mark.parametrize("target", ("bfloat16", "float16", "float8e4m3fn", "float8e5m2", "float4e2m1"))
def test_wide_numbers_are_rounded_to_narrow_ones_once(source, target):
    values = beside_middles(source, target)
    found = run(cast(input_(0, source), target), values).astype(np.float64)
    assert np.array_equal(found, nearest(values, target), equal_nan=True)


def test_a_constant_is_rounded_once():
    above = 1 + 2.0**-8 + 2.0**-40  # the middle of 1 and the next bfloat16, and a little more
    assert const(above, "bfloat16").value == const(above, "float64").cast("bfloat16").value == 1 + 2.0**-7


def test_integers_wrap_to_narrower_integers():
    assert run(cast(i, "int8"), np.array([300, -129], np.int32)).tolist() == [44, 127]
    assert run(cast(i, "uint8"), np.array([-1], np.int32)).tolist() == [255]


@pytest.mark.parametrize("source", ("int4", "uint4", "int2", "uint2"))
@pytest.mark.parametrize("target", ("int4", "uint4", "int2", "uint2"))
def test_integers_of_few_bits_wrap_into_each_other(source, target):
    low, high = dtypes.integer_range(target)
    values = list(range(dtypes.integer_range(source)[0], dtypes.integer_range(source)[1] + 1))
    wrapped = [(v - low) % (high - low + 1) + low for v in values]
    assert [int(v) for v in run(cast(input_(0, source), target), array(values, source))] == wrapped


def test_what_is_not_zero_is_true():
    assert run(cast(x, "bool"), np.array([0, -0.0, 0.5, np.nan], np.float32)).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert run(cast(input_(0, "bool"), "float32"), np.array([True, False])).tolist() == [1.0, 0.0]


def test_every_power_of_two_is_true():
    codes = np.arange(256, dtype=np.uint8).view(dtypes.numpy_dtype("float8e8m0"))
    assert run(cast(input_(0, "float8e8m0"), "bool"), codes).all()


def test_bits_are_kept_by_a_bitcast():
    assert run(expr.bitcast(x, "int32"), np.float32(1)) == 0x3F800000
    assert run(expr.bitcast(i, "float32"), np.array([0x40490FDB], np.int32)) == np.float32(np.pi)


def test_an_index_counts_along_its_axis():
    assert run(index(1), shape=(2, 3)).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert run(index(0), shape=(2, 1)).tolist() == [[0], [1]]


def test_a_size_is_taken_from_the_environment():
    assert run(size(dims.symbol("n") * 2), shape=(), env={"n": 21}) == 42
    assert size(7) is const(7, "int64")


def test_operands_are_broadcast_to_each_other():
    result = run(x + y, np.ones((2, 1), np.float32), np.arange(3, dtype=np.float32))
    assert result.tolist() == [[1, 2, 3], [1, 2, 3]]
    assert run(const(1, "float32"), shape=(0, 3)).shape == (0, 3)


def test_a_check_that_fails_is_heard():
    guarded = expr.check(apply("ne", j, const(0, "int32")), i / j, "division_by_zero")
    assert run(guarded, np.int32(6), np.int32(3)) == 2
    with pytest.raises(ArithmeticError, match="division_by_zero"):
        run(guarded, np.array([1, 2], np.int32), np.array([1, 0], np.int32))


def test_a_check_of_no_elements_holds():
    guarded = expr.check(apply("ne", j, const(0, "int32")), i / j, "division_by_zero")
    assert run(guarded, np.zeros(0, np.int32), np.zeros(0, np.int32)).shape == (0,)


def test_strings_are_compared_and_selected():
    a, b = input_(0, "string"), input_(1, "string")
    left, right = np.array(["a", "b"], object), np.array(["a", "c"], object)
    assert run(a.equals(b), left, right).tolist() == [True, False]
    assert run(expr.where(a.equals(b), a, b), left, right).tolist() == ["a", "c"]


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_half_that_is_widened_and_narrowed_is_itself(half):
    x = input_(0, half)
    assert x.cast("float32").cast(half) is x
    assert x.cast("float64").cast(half) is x


def test_other_casts_there_and_back_may_round():
    wide = input_(0, "float32")
    assert wide.cast("bfloat16").cast("float32") is not wide
    assert input_(0, "float16").cast("bfloat16").cast("float16").op == "cast"
