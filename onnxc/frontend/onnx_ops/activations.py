"""Import rules of activations: each is one Map, written so that nothing overflows on the way."""

from __future__ import annotations

import math

from ...ir import dtypes, expr, ops
from ...ir.expr import Expr
from ..rules import BROADCAST, onnx_op
from .common import along, floating, one_of, scalar, with_consumed_inputs


@onnx_op(since=6)
def Relu(b, X):
    return b.map(X, lambda x: x.maximum(0))


@onnx_op(since=6)
def LeakyRelu(b, X, *, alpha=0.01):
    return b.map(X, lambda x: expr.where(x < 0, alpha * x, x))


@onnx_op(since=7, ranks={"X": "n", "slope": "<=n"})
def PRelu(b, X, slope):
    result = b.map(X, slope, lambda x, s: expr.where(x < 0, s * x, x))
    if result.rank != X.rank:
        raise ops.TypeMismatch(f"the slope {slope.type} does not broadcast to {X.type}")
    return result


@onnx_op(since=6, name="PRelu")
def _prelu_6(b, X, slope):
    """Before operator set 7 a vector of slopes lies along the channels, unless it is one for all."""
    if slope.shape == (1,):
        slope = b.reshape(slope, ())
    elif slope.rank == 1 and X.rank > 1:
        slope = along(b, slope, 1, X.rank)
    return PRelu(b, X, slope)


@onnx_op(since=1, name="PRelu")
def _prelu_1(b, X, slope, *, consumed_inputs=None):
    return _prelu_6(b, X, slope)


@onnx_op(since=6)
def Elu(b, X, *, alpha=1.0):
    return b.map(X, lambda x: expr.where(x < 0, alpha * expr.expm1(x), x))


@onnx_op(since=6)
def Selu(b, X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return b.map(X, lambda x: gamma * expr.where(x > 0, x, alpha * expr.expm1(x)))


@onnx_op(since=1, name="Selu")
def _selu_1(b, X, *, alpha=1.6732, gamma=1.0507, consumed_inputs=None):
    return Selu(b, X, alpha=alpha, gamma=gamma)


@onnx_op(since=12)
def Celu(b, X, *, alpha=1.0):
    return b.map(X, lambda x: x.maximum(0) + (alpha * expr.expm1(x / alpha)).minimum(0))


@onnx_op(since=10)
def ThresholdedRelu(b, X, *, alpha=1.0):
    return b.map(X, lambda x: expr.where(x > alpha, x, 0))


@onnx_op(since=9)
def Shrink(b, input, *, bias=0.0, lambd=0.5):
    low = -lambd
    if dtypes.is_integer(input.dtype) and math.isfinite(lambd):  # the same for integers, of their type
        lambd = math.floor(lambd)
        low = max(-lambd, dtypes.integer_range(input.dtype)[0])

    def shrunk(x: Expr) -> Expr:
        return expr.where(x < low, x + bias, expr.where(x > lambd, x - bias, 0))

    return b.map(input, floating(shrunk, bias, low, lambd))


@onnx_op(since=6)
def Sigmoid(b, X):
    return b.map(X, expr.sigmoid)


@onnx_op(since=6)
def HardSigmoid(b, X, *, alpha=0.2, beta=0.5):
    return b.map(X, lambda x: (alpha * x + beta).clip(0, 1))


@onnx_op(since=14)
def HardSwish(b, X):
    return b.map(X, lambda x: x * (x * (1 / 6) + 0.5).clip(0, 1))


@onnx_op(since=24)
def Swish(b, X, *, alpha=1.0):
    return b.map(X, lambda x: x * expr.sigmoid(alpha * x))


@onnx_op(since=28, ranks=BROADCAST)
def SwiGLU(b, A, B, *, alpha=1.0):
    return b.map(A, B, lambda x, y: x * expr.sigmoid(alpha * x) * y)


@onnx_op(since=1)
def Softplus(b, X):
    return b.map(X, expr.softplus)


@onnx_op(since=1)
def Softsign(b, input):
    return b.map(input, lambda x: x / (1 + abs(x)))


@onnx_op(since=18)
def Mish(b, X):
    return b.map(X, mish)


def mish(x: Expr) -> Expr:
    """x tanh(log(1 + exp(x))) = x ((1 + e)² - 1) / ((1 + e)² + 1) with e = exp(x), both sides divided by e²
    where that may overflow."""
    e, positive = expr.exp(-abs(x)), x >= 0
    above = expr.where(positive, 1 + 2 * e, e * (e + 2))
    return x * (above / (above + expr.where(positive, 2 * e * e, 2)))


def gelu(x: Expr) -> Expr:
    return 0.5 * x * (1 + expr.erf(x * math.sqrt(0.5)))


def tanh_gelu(x: Expr) -> Expr:
    return 0.5 * x * (1 + expr.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


@onnx_op(since=20)
def Gelu(b, X, *, approximate="none"):
    one_of(approximate, ("none", "tanh"), "approximate")
    return b.map(X, tanh_gelu if approximate == "tanh" else gelu)


@onnx_op(since=11, ranks={"min": "<=1", "max": "<=1"})
def Clip(b, input, min=None, max=None):
    """max wins where min is greater."""
    if min is not None:
        input = b.map(input, scalar(b, min, "minimum"), Expr.maximum)
    return input if max is None else b.map(input, scalar(b, max, "maximum"), Expr.minimum)


@onnx_op(since=6, name="Clip")
def _clip_6(b, input, *, min=-3.4028234663852886e38, max=3.4028234663852886e38):
    return b.map(input, lambda x: x.clip(min, max))


@onnx_op(since=1, name="Clip")
def _clip_1(b, input, *, min=None, max=None, consumed_inputs=None):
    low, high = (None if limit is None else b.constant(limit, input.dtype) for limit in (min, max))
    return Clip(b, input, low, high)


_elu_1, _hard_sigmoid_1, _leaky_relu_1, _relu_1, _sigmoid_1 = (
    with_consumed_inputs(rule) for rule in (Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid)
)
