"""Import rules of the elementwise operators: each is one Map."""

from __future__ import annotations

import functools
from collections.abc import Callable

from ...ir import dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ..rules import ANY_RANKS, BROADCAST, onnx_op
from .common import one_of, with_axis, with_consumed_inputs

# Arithmetic --------------------------------------------------------------------------------------


@onnx_op(since=1, ranks=ANY_RANKS)
def Identity(b, input):
    return input


@onnx_op(since=7, ranks=BROADCAST)
def Add(b, A, B):
    return b.map(A, B, lambda x, y: x + y)


@onnx_op(since=7, ranks=BROADCAST)
def Sub(b, A, B):
    return b.map(A, B, lambda x, y: x - y)


@onnx_op(since=7, ranks=BROADCAST)
def Mul(b, A, B):
    return b.map(A, B, lambda x, y: x * y)


def _divided(x: Expr, y: Expr) -> Expr:
    return expr.check(y._with("ne", 0), x / y, "division_by_zero") if dtypes.is_integer(x.dtype) else x / y


@onnx_op(since=7, ranks=BROADCAST)
def Div(b, A, B):
    """Integers divide toward zero; dividing one by zero fails the run."""
    return b.map(A, B, _divided)


@onnx_op(since=10, ranks=BROADCAST)
def Mod(b, A, B, *, fmod=0):
    """The remainder with B's sign, or with A's if fmod."""
    one_of(fmod, (0, 1), "fmod")
    op = "fmod" if fmod else "mod"

    def remainder(x: Expr, y: Expr) -> Expr:
        result = expr.apply(op, x, y)
        return (
            expr.check(y._with("ne", 0), result, "division_by_zero") if dtypes.is_integer(x.dtype) else result
        )

    return b.map(A, B, remainder)


@onnx_op(since=7, ranks=BROADCAST)
def Pow(b, X, Y):
    return b.map(X, Y, lambda x, y: x**y)


@onnx_op(since=6)
def Neg(b, X):
    return b.map(X, lambda x: -x)


@onnx_op(since=6)
def Abs(b, X):
    return b.map(X, abs)


@onnx_op(since=6)
def Reciprocal(b, X):
    return b.map(X, lambda x: 1 / x)


@onnx_op(since=6)
def Floor(b, X):
    return b.map(X, expr.floor)


@onnx_op(since=6)
def Ceil(b, X):
    return b.map(X, expr.ceil)


@onnx_op(since=11)
def Round(b, X):
    return b.map(X, expr.round_)


@onnx_op(since=9)
def Sign(b, input):
    return b.map(input, expr.sign)


@onnx_op(since=6)
def Sqrt(b, X):
    return b.map(X, expr.sqrt)


@onnx_op(since=6)
def Exp(b, input):
    return b.map(input, expr.exp)


@onnx_op(since=6)
def Log(b, input):
    return b.map(input, expr.log)


@onnx_op(since=9)
def Erf(b, input):
    """Of integers as the specification's reference does: the nearest float32, truncated."""
    if not dtypes.is_integer(input.dtype):
        return b.map(input, expr.erf)
    return b.map(input, lambda x: expr.erf(x.cast("float64")).cast("float32").cast(x.dtype))


# Trigonometry ------------------------------------------------------------------------------------


@onnx_op(since=7)
def Sin(b, input):
    return b.map(input, lambda x: expr.apply("sin", x))


@onnx_op(since=7)
def Cos(b, input):
    return b.map(input, lambda x: expr.apply("cos", x))


@onnx_op(since=7)
def Tan(b, input):
    return b.map(input, lambda x: expr.apply("tan", x))


@onnx_op(since=7)
def Asin(b, input):
    return b.map(input, lambda x: expr.apply("asin", x))


@onnx_op(since=7)
def Acos(b, input):
    return b.map(input, lambda x: expr.apply("acos", x))


@onnx_op(since=7)
def Atan(b, input):
    return b.map(input, lambda x: expr.apply("atan", x))


@onnx_op(since=9)
def Sinh(b, input):
    return b.map(input, lambda x: expr.apply("sinh", x))


@onnx_op(since=9)
def Cosh(b, input):
    return b.map(input, lambda x: expr.apply("cosh", x))


@onnx_op(since=6)
def Tanh(b, input):
    return b.map(input, expr.tanh)


@onnx_op(since=9)
def Asinh(b, input):
    return b.map(input, lambda x: expr.apply("asinh", x))


@onnx_op(since=9)
def Acosh(b, input):
    return b.map(input, lambda x: expr.apply("acosh", x))


@onnx_op(since=9)
def Atanh(b, input):
    return b.map(input, lambda x: expr.apply("atanh", x))


# Comparison and logic ----------------------------------------------------------------------------


@onnx_op(since=7, ranks=BROADCAST)
def Equal(b, A, B):
    if A.dtype == B.dtype == "string":
        shape = ops.broadcast_shapes(A.shape, B.shape)
        operands = [b.broadcast(x, shape) for x in (A, B)]
        return b.call("strings_equal", operands, [TensorType("bool", shape)])[0]
    return b.map(A, B, lambda x, y: x.equals(y))


@onnx_op(since=7, ranks=BROADCAST)
def Greater(b, A, B):
    return b.map(A, B, lambda x, y: x > y)


@onnx_op(since=12, ranks=BROADCAST)
def GreaterOrEqual(b, A, B):
    return b.map(A, B, lambda x, y: x >= y)


@onnx_op(since=7, ranks=BROADCAST)
def Less(b, A, B):
    return b.map(A, B, lambda x, y: x < y)


@onnx_op(since=12, ranks=BROADCAST)
def LessOrEqual(b, A, B):
    return b.map(A, B, lambda x, y: x <= y)


@onnx_op(since=7, ranks=BROADCAST)
def And(b, A, B):
    return b.map(A, B, lambda x, y: x & y)


@onnx_op(since=7, ranks=BROADCAST)
def Or(b, A, B):
    return b.map(A, B, lambda x, y: x | y)


@onnx_op(since=7, ranks=BROADCAST)
def Xor(b, A, B):
    return b.map(A, B, lambda x, y: x ^ y)


@onnx_op(since=1)
def Not(b, X):
    return b.map(X, lambda x: ~x)


@onnx_op(since=18, ranks=BROADCAST)
def BitwiseAnd(b, A, B):
    return b.map(A, B, lambda x, y: x & y)


@onnx_op(since=18, ranks=BROADCAST)
def BitwiseOr(b, A, B):
    return b.map(A, B, lambda x, y: x | y)


@onnx_op(since=18, ranks=BROADCAST)
def BitwiseXor(b, A, B):
    return b.map(A, B, lambda x, y: x ^ y)


@onnx_op(since=18)
def BitwiseNot(b, X):
    return b.map(X, lambda x: ~x)


@onnx_op(since=11, ranks=BROADCAST)
def BitShift(b, X, Y, *, direction):
    """Shifting by the width or more leaves copies of the sign on the right, else zeros."""
    one_of(direction, ("LEFT", "RIGHT"), "direction")
    width = dtypes.bits(X.dtype)

    def right(x: Expr, y: Expr) -> Expr:
        if dtypes.is_signed(x.dtype):
            y = expr.where((y < 0) | (y >= width), width - 1, y)
        return x >> y

    return b.map(X, Y, right if direction == "RIGHT" else lambda x, y: x << y)


@onnx_op(since=9)
def IsNaN(b, X):
    return b.map(X, expr.isnan)


@onnx_op(since=10)
def IsInf(b, X, *, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return b.map(X, expr.isinf)
    if detect_negative or detect_positive:
        return b.map(X, lambda x: expr.isinf(x) & (x > 0 if detect_positive else x < 0))
    return b.map(X, lambda x: expr.const(False, "bool"))


@onnx_op(since=9, ranks=BROADCAST)
def Where(b, condition, X, Y):
    return b.map(condition, X, Y, expr.where)


# Any number of operands --------------------------------------------------------------------------


def _folded(b: Builder, values: tuple[Value, ...], combine: Callable[[Expr, Expr], Expr]) -> Value:
    if not values:
        raise ops.TypeMismatch("it has no inputs")
    return functools.reduce(lambda x, y: b.map(x, y, combine), values)


@onnx_op(since=6, ranks=BROADCAST)
def Max(b, *data_0):
    return _folded(b, data_0, Expr.maximum)


@onnx_op(since=6, ranks=BROADCAST)
def Min(b, *data_0):
    return _folded(b, data_0, Expr.minimum)


@onnx_op(since=6, ranks=BROADCAST)
def Sum(b, *data_0):
    return _folded(b, data_0, lambda x, y: x + y)


@onnx_op(since=6, ranks=BROADCAST)
def Mean(b, *data_0):
    return b.map(Sum(b, *data_0), lambda x: x / len(data_0))


# Old call forms ----------------------------------------------------------------------------------

_add_1, _sub_1, _mul_1, _div_1 = (with_axis(rule, consumed_inputs=None) for rule in (Add, Sub, Mul, Div))
_pow_1, _equal_1, _greater_1, _less_1 = (with_axis(rule) for rule in (Pow, Equal, Greater, Less))
_and_1, _or_1, _xor_1 = (with_axis(rule) for rule in (And, Or, Xor))

_abs_1, _ceil_1, _exp_1, _floor_1, _log_1, _neg_1 = (
    with_consumed_inputs(rule) for rule in (Abs, Ceil, Exp, Floor, Log, Neg)
)
_reciprocal_1, _sqrt_1, _tanh_1, _max_1, _mean_1, _min_1, _sum_1 = (
    with_consumed_inputs(rule) for rule in (Reciprocal, Sqrt, Tanh, Max, Mean, Min, Sum)
)
