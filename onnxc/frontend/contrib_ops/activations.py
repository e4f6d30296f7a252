"""GELU and its kin, and which activations other operators name by an attribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops import activations
from ..onnx_ops.activations import gelu, tanh_gelu
from ..onnx_ops.common import fitted, scalar, wide, with_length
from ..rules import Types
from .schema import FLOATS, FUSED_FLOATS, Half, T, contrib_op

All = Annotated[Value, Types.of("T", *FLOATS, "bfloat16")]
Other = Annotated[Value, Types.of("M", *FUSED_FLOATS)]

#: What an attribute may name, and the keywords that take its parameters in their order.
_NAMED = {
    "Celu": (activations.Celu, ("alpha",)),
    "Clip": (activations._clip_6, ("min", "max")),
    "Elu": (activations.Elu, ("alpha",)),
    "HardSigmoid": (activations.HardSigmoid, ("alpha", "beta")),
    "HardSwish": (activations.HardSwish, ()),
    "LeakyRelu": (activations.LeakyRelu, ("alpha",)),
    "Relu": (activations.Relu, ()),
    "Selu": (activations.Selu, ("alpha", "gamma")),
    "Sigmoid": (activations.Sigmoid, ()),
    "Softplus": (activations.Softplus, ()),
    "Softsign": (activations.Softsign, ()),
    "Tanh": (lambda b, x: b.map(x, expr.tanh), ()),
    "ThresholdedRelu": (activations.ThresholdedRelu, ("alpha",)),
}


def activated(b: Builder, x: Value, name: str | None, parameters: Sequence[float | None]) -> Value:
    """x after the activation that an attribute names; parameters that are None have their default value."""
    if not name:
        return x
    if name not in _NAMED:
        raise ops.TypeMismatch(f"the activation {name} is none of {', '.join(_NAMED)}")
    function, keywords = _NAMED[name]
    return function(b, x, **{k: p for k, p in zip(keywords, parameters) if p is not None})


def _in_wide(b: Builder, function: Callable[..., Expr], *operands: Value) -> Value:
    """function of the operands' elements in their wide type, as the fused operator rounds once."""
    x = operands[0]
    return b.map(*operands, lambda *each: function(*(e.cast(wide(e.dtype)) for e in each)).cast(x.dtype))


@contrib_op(outputs="Y")
def Gelu(b, X: All):
    return _in_wide(b, gelu, X)


def _bias(b: Builder, x: Value, bias: Value) -> Value:
    """A bias of each element of x's rows."""
    return with_length(b, bias, x.shape[-1], "the bias")


@contrib_op(outputs="C", ranks={"B": 1})
def BiasGelu(b, A: All, B: All):
    return _in_wide(b, lambda a, c: gelu(a + c), A, _bias(b, A, B))


@contrib_op(outputs="Y", ranks={"X": 3, "bias": 1, "skip": 3})
def BiasAdd(b, X: Half, bias: Half, skip: Half):
    X, skip = fitted(b, X, skip, "skip")
    return _in_wide(b, lambda x, c, s: x + c + s, X, _bias(b, X, bias), skip)


@contrib_op(outputs="Y", ranks={"X": 3, "bias": 1})
def BiasSplitGelu(b, X: Half, bias: Half):
    """left * gelu(right) of the halves of X + bias"""
    half = dims.floor_divide(X.shape[-1], 2)
    if dims.equal(2 * half, X.shape[-1]) is False:
        raise ops.TypeMismatch(f"{X.shape[-1]} numbers have no halves")
    bias = _bias(b, X, bias)
    halves = (b.take(v, v.rank - 1, start, half) for start in (0, half) for v in (X, bias))
    return _in_wide(b, lambda x, c, y, d: (x + c) * gelu(y + d), *halves)


@contrib_op(outputs="Y", ranks={"bias": 1})
def FastGelu(b, X: All, bias: All | None = None):
    if bias is None:
        return _in_wide(b, tanh_gelu, X)
    return _in_wide(b, lambda x, c: tanh_gelu(x + c), X, _bias(b, X, bias))


@contrib_op(outputs="Y")
def QuickGelu(b, X: All, *, alpha=1.702):
    return _in_wide(b, lambda x: x * expr.sigmoid(x * alpha), X)


@contrib_op(outputs="Y", ranks={"scale": "<=1"})
def ScaledSiLU(b, X: T, scale: Other | None = None, *, alpha=1.0):
    """silu(x * scale), alpha being the scale where none is given."""
    factor = b.constant(alpha, X.dtype) if scale is None else scalar(b, scale, "scale")
    return _in_wide(b, lambda x, s: x * s * expr.sigmoid(x * s), X, factor)
