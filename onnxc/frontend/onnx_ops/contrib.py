"""Operators of com.microsoft, which ONNX Runtime's optimisers write into models: GELU and its kin.

The reference is ONNX Runtime's behaviour, and the signatures are its schemas:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ...ir import expr
from ...ir.graph import Value
from . import activations
from .rules import Types, onnx_op

contrib_op = partial(onnx_op, since=1, domain="com.microsoft")

T = Annotated[Value, Types.of("T", "float", "double", "float16", "bfloat16")]


@contrib_op(outputs="Y")
def Gelu(b, X: T):
    return activations.Gelu(b, X)


@contrib_op(outputs="C")
def BiasGelu(b, A: T, B: T):
    return activations.Gelu(b, b.map(A, B, lambda a, c: a + c))


@contrib_op(outputs="Y")
def FastGelu(b, X: T, bias: T | None = None):
    x = X if bias is None else b.map(X, bias, lambda x, c: x + c)
    return activations.Gelu(b, x, approximate="tanh")


@contrib_op(outputs="Y")
def QuickGelu(b, X: T, *, alpha=1.702):
    return b.map(X, lambda x: x * expr.sigmoid(x * alpha))
