"""Import rules of the elementwise operators: each is one Map."""
from __future__ import annotations

import functools
import math

import numpy as np

from ... import dtypes, expr, ops
from ...builder import Builder
from ...expr import Expr
from ...ir import Value
from .common import along, checked, floating, generate, one_of, scalar, with_axis, with_consumed_inputs, zeros
from .rules import onnx_op

# Arithmetic --------------------------------------------------------------------------------------


@onnx_op(since=1)
def Identity(b, input):
    return input


@onnx_op(since=7)
def Add(b, A, B):
    return b.map(A, B, lambda x, y: x + y)


@onnx_op(since=7)
def Sub(b, A, B):
    return b.map(A, B, lambda x, y: x - y)


@onnx_op(since=7)
def Mul(b, A, B):
    return b.map(A, B, lambda x, y: x * y)


def _divided(x: Expr, y: Expr) -> Expr:
    return expr.check(y._with("ne", 0), x / y, "division_by_zero") if dtypes.is_integer(x.dtype) else x / y


@onnx_op(since=7)
def Div(b, A, B):
    """Integers divide toward zero; dividing one by zero fails the run."""
    return b.map(A, B, _divided)


@onnx_op(since=10)
def Mod(b, A, B, *, fmod=0):
    """The remainder with B's sign, or with A's if fmod."""
    one_of(fmod, (0, 1), "fmod")
    op = "fmod" if fmod else "mod"

    def remainder(x: Expr, y: Expr) -> Expr:
        result = expr.apply(op, x, y)
        return expr.check(y._with("ne", 0), result, "division_by_zero") if dtypes.is_integer(x.dtype) else result

    return b.map(A, B, remainder)


@onnx_op(since=7)
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
    return b.map(input, expr.erf)


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


@onnx_op(since=7)
def Equal(b, A, B):
    return b.map(A, B, lambda x, y: x.equals(y))


@onnx_op(since=7)
def Greater(b, A, B):
    return b.map(A, B, lambda x, y: x > y)


@onnx_op(since=12)
def GreaterOrEqual(b, A, B):
    return b.map(A, B, lambda x, y: x >= y)


@onnx_op(since=7)
def Less(b, A, B):
    return b.map(A, B, lambda x, y: x < y)


@onnx_op(since=12)
def LessOrEqual(b, A, B):
    return b.map(A, B, lambda x, y: x <= y)


@onnx_op(since=7)
def And(b, A, B):
    return b.map(A, B, lambda x, y: x & y)


@onnx_op(since=7)
def Or(b, A, B):
    return b.map(A, B, lambda x, y: x | y)


@onnx_op(since=7)
def Xor(b, A, B):
    return b.map(A, B, lambda x, y: x ^ y)


@onnx_op(since=1)
def Not(b, X):
    return b.map(X, lambda x: ~x)


@onnx_op(since=18)
def BitwiseAnd(b, A, B):
    return b.map(A, B, lambda x, y: x & y)


@onnx_op(since=18)
def BitwiseOr(b, A, B):
    return b.map(A, B, lambda x, y: x | y)


@onnx_op(since=18)
def BitwiseXor(b, A, B):
    return b.map(A, B, lambda x, y: x ^ y)


@onnx_op(since=18)
def BitwiseNot(b, X):
    return b.map(X, lambda x: ~x)


@onnx_op(since=11)
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


@onnx_op(since=9)
def Where(b, condition, X, Y):
    return b.map(condition, X, Y, expr.where)


# Any number of operands --------------------------------------------------------------------------


def _folded(b: Builder, values: tuple[Value, ...], combine) -> Value:
    if not values:
        raise ops.TypeMismatch("it has no inputs")
    return functools.reduce(lambda x, y: b.map(x, y, combine), values)


@onnx_op(since=6)
def Max(b, *data_0):
    return _folded(b, data_0, Expr.maximum)


@onnx_op(since=6)
def Min(b, *data_0):
    return _folded(b, data_0, Expr.minimum)


@onnx_op(since=6)
def Sum(b, *data_0):
    return _folded(b, data_0, lambda x, y: x + y)


@onnx_op(since=6)
def Mean(b, *data_0):
    return b.map(Sum(b, *data_0), lambda x: x / len(data_0))


# Activations -------------------------------------------------------------------------------------


@onnx_op(since=6)
def Relu(b, X):
    return b.map(X, lambda x: x.maximum(0))


@onnx_op(since=6)
def LeakyRelu(b, X, *, alpha=0.01):
    return b.map(X, lambda x: expr.where(x < 0, alpha * x, x))


@onnx_op(since=7)
def PRelu(b, X, slope):
    body = floating(lambda x, s: expr.where(x < 0, s * x, x))
    result = b.map(X, slope, body)
    if result.rank != X.rank:
        raise ops.TypeMismatch(f"the slope {slope.type} does not broadcast to {X.type}")
    return result


@onnx_op(since=6, name="PRelu")
def _prelu_6(b, X, slope):
    """Before operator set 7 a vector of slopes lies along the channels."""
    if slope.rank == 1 and X.rank > 1 and slope.shape != (1,):
        slope = along(b, slope, 1, X.rank)
    return PRelu(b, X, slope)


@onnx_op(since=1, name="PRelu")
def _prelu_1(b, X, slope, *, consumed_inputs=None):
    return _prelu_6(b, X, slope)


@onnx_op(since=6)
def Elu(b, X, *, alpha=1.0):
    return b.map(X, lambda x: expr.where(x < 0, alpha * (expr.exp(x) - 1), x))


@onnx_op(since=6)
def Selu(b, X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return b.map(X, lambda x: gamma * expr.where(x > 0, x, alpha * expr.exp(x) - alpha))


@onnx_op(since=1, name="Selu")
def _selu_1(b, X, *, alpha=1.6732, gamma=1.0507, consumed_inputs=None):
    return Selu(b, X, alpha=alpha, gamma=gamma)


@onnx_op(since=12)
def Celu(b, X, *, alpha=1.0):
    return b.map(X, lambda x: x.maximum(0) + (alpha * (expr.exp(x / alpha) - 1)).minimum(0))


@onnx_op(since=10)
def ThresholdedRelu(b, X, *, alpha=1.0):
    return b.map(X, lambda x: expr.where(x > alpha, x, 0))


@onnx_op(since=9)
def Shrink(b, input, *, bias=0.0, lambd=0.5):
    shrunk = floating(lambda x: expr.where(x < -lambd, x + bias, expr.where(x > lambd, x - bias, 0)))
    return b.map(input, shrunk)


@onnx_op(since=6)
def Sigmoid(b, X):
    return b.map(X, expr.sigmoid)


@onnx_op(since=6)
def HardSigmoid(b, X, *, alpha=0.2, beta=0.5):
    return b.map(X, lambda x: (alpha * x + beta).clip(0, 1))


@onnx_op(since=14)
def HardSwish(b, X):
    return b.map(X, lambda x: x * (x / 6 + 0.5).clip(0, 1))


@onnx_op(since=24)
def Swish(b, X, *, alpha=1.0):
    return b.map(X, lambda x: x * expr.sigmoid(alpha * x))


@onnx_op(since=28)
def SwiGLU(b, A, B, *, alpha=1.0):
    return b.map(A, B, lambda x, y: x * expr.sigmoid(alpha * x) * y)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow."""
    return x.maximum(0) + expr.log(1 + expr.exp(-abs(x)))


@onnx_op(since=1)
def Softplus(b, X):
    return b.map(X, softplus)


@onnx_op(since=1)
def Softsign(b, input):
    return b.map(input, lambda x: x / (1 + abs(x)))


@onnx_op(since=18)
def Mish(b, X):
    return b.map(X, lambda x: x * expr.tanh(softplus(x)))


@onnx_op(since=20)
def Gelu(b, X, *, approximate="none"):
    one_of(approximate, ("none", "tanh"), "approximate")
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        return b.map(X, lambda x: 0.5 * x * (1 + expr.tanh(scale * (x + 0.044715 * (x * x * x)))))
    return b.map(X, lambda x: 0.5 * x * (1 + expr.erf(x * math.sqrt(0.5))))


@onnx_op(since=11)
def Clip(b, input, min=None, max=None):
    """max wins where min is greater."""
    if min is not None:
        input = b.map(input, scalar(b, min, "minimum"), Expr.maximum)
    return input if max is None else b.map(input, scalar(b, max, "maximum"), Expr.minimum)


@onnx_op(since=6, name="Clip")
def _clip_6(b, input, *, min=-3.4028234663852886e+38, max=3.4028234663852886e+38):
    return b.map(input, lambda x: x.clip(min, max))


@onnx_op(since=1, name="Clip")
def _clip_1(b, input, *, min=None, max=None, consumed_inputs=None):
    low, high = (None if limit is None else b.constant(limit, input.dtype) for limit in (min, max))
    return Clip(b, input, low, high)


# Dropout -----------------------------------------------------------------------------------------


@onnx_op(since=12)
def Dropout(b, data, ratio=None, training_mode=None, *, seed=None):
    """Passes data on; while training each element is dropped with probability `ratio` and the rest scaled to make up for it."""
    training = b.constant(False) if training_mode is None else scalar(b, training_mode, "training_mode")
    mode = b.known(training)
    if mode is not None and not mode.any():
        return data, generate(b, data.shape, expr.const(True, "bool"))
    ratio = b.constant(np.float32(0.5)) if ratio is None else b.cast(scalar(b, ratio, "ratio"), "float32")
    ratio = checked(b, ratio, lambda r: (r >= 0) & (r < 1), "invalid_value")
    drawn = b.emit(ops.Random("uniform", "float32", data.shape, 0.0, 1.0, seed))[0]
    mask = b.map(drawn, ratio, training, lambda u, r, on: (u >= r) | ~on)
    scale = b.map(ratio, training, lambda r, on: expr.where(on, 1 / (1 - r), 1).cast(data.dtype))
    return b.map(data, mask, scale, lambda x, kept, s: expr.where(kept, x * s, 0)), mask


@onnx_op(since=10, name="Dropout")
def _dropout_10(b, data, *, ratio=0.5):
    return Dropout(b, data)


@onnx_op(since=7, name="Dropout")
def _dropout_7(b, data, *, ratio=0.5):
    """Before operator set 10 the mask is of the type of the data."""
    return data, zeros(b, data.dtype, data.shape, 1) if b.wanted[1:2] == (True,) else None


@onnx_op(since=1, name="Dropout")
def _dropout_1(b, data, *, is_test=0, ratio=0.5, consumed_inputs=None):
    return _dropout_7(b, data)


# Old call forms ----------------------------------------------------------------------------------

_add_1, _sub_1, _mul_1, _div_1 = (with_axis(rule, consumed_inputs=None) for rule in (Add, Sub, Mul, Div))
_pow_1, _equal_1, _greater_1, _less_1 = (with_axis(rule) for rule in (Pow, Equal, Greater, Less))
_and_1, _or_1, _xor_1 = (with_axis(rule) for rule in (And, Or, Xor))

_abs_1, _ceil_1, _elu_1, _exp_1, _floor_1, _hard_sigmoid_1, _leaky_relu_1, _log_1, _neg_1 = (
    with_consumed_inputs(rule) for rule in (Abs, Ceil, Elu, Exp, Floor, HardSigmoid, LeakyRelu, Log, Neg)
)
_reciprocal_1, _relu_1, _sigmoid_1, _sqrt_1, _tanh_1, _max_1, _mean_1, _min_1, _sum_1 = (
    with_consumed_inputs(rule) for rule in (Reciprocal, Relu, Sigmoid, Sqrt, Tanh, Max, Mean, Min, Sum)
)
