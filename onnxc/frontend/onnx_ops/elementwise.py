"""Import rules of the elementwise operators: each is one Map."""
from __future__ import annotations

import math

from ... import dtypes, expr
from .rules import onnx_op


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


@onnx_op(since=7)
def Div(b, A, B):
    """Integers divide toward zero; dividing one by zero fails the run."""
    if dtypes.is_integer(A.dtype):
        return b.map(A, B, lambda x, y: expr.check(y._with("ne", 0), x / y, "division_by_zero"))
    return b.map(A, B, lambda x, y: x / y)


@onnx_op(since=6)
def Relu(b, X):
    return b.map(X, lambda x: x.maximum(0))


@onnx_op(since=6)
def Sigmoid(b, X):
    return b.map(X, expr.sigmoid)


@onnx_op(since=6)
def HardSigmoid(b, X, *, alpha=0.2, beta=0.5):
    return b.map(X, lambda x: (alpha * x + beta).clip(0, 1))


@onnx_op(since=20)
def Gelu(b, X, *, approximate="none"):
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        return b.map(X, lambda x: 0.5 * x * (1 + expr.tanh(scale * (x + 0.044715 * (x * x * x)))))
    return b.map(X, lambda x: 0.5 * x * (1 + expr.erf(x * math.sqrt(0.5))))
