"""Elementwise operators, pools and softmax over quantised tensors: (q - zero) * scale, the operator, and
back.

Each is one Map where the operator is one; ONNX Runtime looks most of them up in tables or computes with
integers, and a result may be one step apart where it lies in the middle of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops import activations, convolution, pooling, quantization
from ..onnx_ops.common import mean, require_least, scalar
from ..onnx_ops.quantization import centred, quantised, refuse_bad_scale
from ..onnx_ops.reductions import softmax
from ..rules import Rank, Types
from .schema import BYTES, Bytes, Scale, contrib_op

# From and to numbers -----------------------------------------------------------------------------


def _parameters(b: Builder, x: Value, scale: Value, zero: Value | None) -> list[Value]:
    """x, its scale and its zero point as operands of a Map."""
    refuse_bad_scale(b, scale, divides=False)
    zero = b.constant(0, x.dtype) if zero is None else scalar(b, zero, "zero point")
    return [x, scalar(b, scale, "scale"), zero]


def _real(x: Expr, scale: Expr, zero: Expr) -> Expr:
    return centred(x, zero).cast("float32") * scale


def _number(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    return b.map(*_parameters(b, x, scale, zero), _real)


def _stored(b: Builder, x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    """Numbers as dtype."""
    refuse_bad_scale(b, scale)
    zero = b.constant(0, dtype) if zero is None else scalar(b, zero, "zero point")
    return b.map(x, scalar(b, scale, "scale"), zero, lambda e, s, z: quantised(e / s, z, dtype))


def _channels_second(b: Builder, x: Value, last: int, compute: Callable[[Value], Value]) -> Value:
    """compute(x), which has the channels as axis 1, of images that have them last."""
    if not last:
        return compute(x)
    rank = x.rank
    y = compute(b.transpose(x, (0, rank - 1, *range(1, rank - 1))))
    return b.transpose(y, (0, *range(2, rank), 1))


# Elementwise -------------------------------------------------------------------------------------


@contrib_op(outputs="C", ranks={"A": "<=n", "B": "<=n", "*": "<=1"})
def QLinearAdd(
    b,
    A: Bytes,
    A_scale: Scale,
    A_zero_point: Bytes | None,
    B: Bytes,
    B_scale: Scale,
    B_zero_point: Bytes | None,
    C_scale: Scale,
    C_zero_point: Bytes | None = None,
):
    x, y = _number(b, A, A_scale, A_zero_point), _number(b, B, B_scale, B_zero_point)
    return _stored(b, b.map(x, y, lambda p, q: p + q), C_scale, C_zero_point, A.dtype)


@contrib_op(outputs="C", ranks={"A": "<=n", "B": "<=n", "*": "<=1"})
def QLinearMul(
    b,
    A: Bytes,
    A_scale: Scale,
    A_zero_point: Bytes | None,
    B: Bytes,
    B_scale: Scale,
    B_zero_point: Bytes | None,
    C_scale: Scale,
    C_zero_point: Bytes | None = None,
):
    x, y = _number(b, A, A_scale, A_zero_point), _number(b, B, B_scale, B_zero_point)
    return _stored(b, b.map(x, y, lambda p, q: p * q), C_scale, C_zero_point, A.dtype)


@contrib_op(outputs="Y", ranks={"X": "n", "*": "<=1"})
def QLinearSigmoid(
    b, X: Bytes, X_scale: Scale, X_zero_point: Bytes | None, Y_scale: Scale, Y_zero_point: Bytes | None = None
):
    y = activations.Sigmoid(b, _number(b, X, X_scale, X_zero_point))
    return _stored(b, y, Y_scale, Y_zero_point, X.dtype)


@contrib_op(outputs="Y", ranks={"X": "n", "*": "<=1"})
def QLinearLeakyRelu(
    b,
    X: Bytes,
    X_scale: Scale,
    X_zero_point: Bytes | None,
    Y_scale: Scale,
    Y_zero_point: Bytes | None = None,
    *,
    alpha=0.01,
):
    y = activations.LeakyRelu(b, _number(b, X, X_scale, X_zero_point), alpha=alpha)
    return _stored(b, y, Y_scale, Y_zero_point, X.dtype)


Condition = Annotated[Value, Types.of("B", "bool")]
Float = Annotated[Value, Types.of("TF", "float")]


@contrib_op(outputs="Z", ranks={"condition": "<=n", "X": "<=n", "Y": "<=n", "*": "<=1"})
def QLinearWhere(
    b,
    condition: Condition,
    X: Bytes,
    x_scale: Float,
    x_zero_point: Bytes,
    Y: Bytes,
    y_scale: Float,
    y_zero_point: Bytes,
    z_scale: Float,
    z_zero_point: Bytes,
):
    x, y = _number(b, X, x_scale, x_zero_point), _number(b, Y, y_scale, y_zero_point)
    return _stored(b, b.map(condition, x, y, expr.where), z_scale, z_zero_point, X.dtype)


Result = Annotated[Value, Types.of("T8", *BYTES)]
Any = Annotated[Value, Types.of("", "float", *BYTES)]


@contrib_op(outputs="Y", ranks={"inputs": "any", "*": "<=1"})
def QLinearConcat(b, Y_scale: Float, Y_zero_point: Result, *inputs: Any, axis: int):
    """The inputs are tensors, each with its scale and zero point behind it."""
    if not inputs or len(inputs) % 3:
        raise ops.TypeMismatch(f"{len(inputs)} inputs are no tensors with scales and zero points")
    stated = [Rank.of(rank) for rank in ("n", "<=1", "<=1")] * (len(inputs) // 3)
    found = b.site.of_ranks(b, stated, inputs)
    parts = [_number(b, *found[k : k + 3]) for k in range(0, len(found), 3)]
    return b.concat([_stored(b, x, Y_scale, Y_zero_point, Y_zero_point.dtype) for x in parts], axis)


# Reductions --------------------------------------------------------------------------------------


@contrib_op(outputs="Y", ranks={"X": "n", "*": "<=1"})
def QLinearAveragePool(
    b,
    X: Bytes,
    x_scale: Scale,
    x_zero_point: Bytes | None,
    y_scale: Scale,
    y_zero_point: Bytes | None = None,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    channels_last=0,
    count_include_pad=0,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    def pooled(x: Value) -> Value:
        return pooling.AveragePool(
            b,
            x,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            kernel_shape=kernel_shape,
            pads=pads,
            strides=strides,
        )

    y = _channels_second(b, _number(b, X, x_scale, x_zero_point), channels_last, pooled)
    return _stored(b, y, y_scale, y_zero_point, X.dtype)


@contrib_op(outputs="Y", ranks={"X": "n", "*": "<=1"})
def QLinearGlobalAveragePool(
    b, X: Bytes, x_scale: Scale, x_zero_point: Bytes, y_scale: Scale, y_zero_point: Bytes, *, channels_last=0
):
    axes = range(1, X.rank - 1) if channels_last else range(2, X.rank)
    for axis in axes:
        require_least(b, X.shape[axis], 1, f"{X.type} has nothing to average")
    return _mean(b, X, x_scale, x_zero_point, y_scale, y_zero_point, axes, True)


@contrib_op(outputs="reduced", ranks={"data": "n", "*": "<=1"})
def QLinearReduceMean(
    b,
    data: Bytes,
    data_scale: Scale,
    data_zero_point: Bytes | None,
    reduced_scale: Scale,
    reduced_zero_point: Bytes | None = None,
    *,
    axes: Sequence[int],
    keepdims: int,
):
    return _mean(
        b, data, data_scale, data_zero_point, reduced_scale, reduced_zero_point, axes, bool(keepdims)
    )


def _mean(
    b: Builder,
    x: Value,
    scale: Value,
    zero: Value | None,
    to_scale: Value,
    to_zero: Value | None,
    axes: Sequence[int],
    keepdims: bool,
) -> Value:
    y = mean(b, _number(b, x, scale, zero), axes, keepdims)
    return _stored(b, y, to_scale, to_zero, x.dtype)


@contrib_op(outputs="Y", ranks={"X": "n", "*": "<=1"})
def QLinearSoftmax(
    b,
    X: Bytes,
    X_scale: Scale,
    x_zero_point: Bytes | None,
    y_scale: Scale,
    y_zero_point: Bytes,
    *,
    axis=-1,
    opset: int,
):
    """Before operator set 13 a softmax is over all axes from `axis` on."""
    first = b.axis(axis, X.rank)
    axes = [first] if opset >= 13 else range(first, X.rank)
    y = softmax(b, _number(b, X, X_scale, x_zero_point), axes)
    return _stored(b, y, y_scale, y_zero_point, X.dtype)


# Forms of the specification's operators ----------------------------------------------------------

Q1 = Annotated[Value, Types.of("T1", *BYTES)]
Q2 = Annotated[Value, Types.of("T2", *BYTES)]
Q3 = Annotated[Value, Types.of("T3", *BYTES)]
Bias = Annotated[Value, Types.of("T4", "int32")]


@contrib_op(outputs="y", ranks={"x": "n", "w": "n", "B": 1, "*": "<=1"})
def QLinearConv(
    b,
    x: Q1,
    x_scale: Scale,
    x_zero_point: Q1,
    w: Q2,
    w_scale: Scale,
    w_zero_point: Q2,
    y_scale: Scale,
    y_zero_point: Q3,
    B: Bias | None = None,
    *,
    auto_pad="NOTSET",
    channels_last=0,
    dilations: Sequence[int] | None = None,
    group=1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    def convolved(image: Value) -> Value:
        return convolution.QLinearConv(
            b,
            image,
            x_scale,
            x_zero_point,
            w,
            w_scale,
            w_zero_point,
            y_scale,
            y_zero_point,
            B,
            auto_pad=auto_pad,
            dilations=dilations,
            group=group,
            kernel_shape=kernel_shape,
            pads=pads,
            strides=strides,
        )

    return _channels_second(b, x, channels_last, convolved)


@contrib_op(outputs="y")
def NhwcMaxPool(
    b,
    x: Bytes,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    def pooled(image: Value) -> Value:
        return pooling.MaxPool(
            b,
            image,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            dilations=dilations,
            kernel_shape=kernel_shape,
            pads=pads,
            strides=strides,
        )

    return _channels_second(b, x, 1, pooled)


_INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")
Number = Annotated[Value, Types.of("T1", "float", "float16")]
Quantised = Annotated[Value, Types.of("T2", *_INTEGERS)]
Integer = Annotated[Value, Types.of("T1", *_INTEGERS, "int32")]
Factor = Annotated[Value, Types.of("T2", "float", "float16")]


@contrib_op(outputs="y", ranks={"y_scale": "<=s", "y_zero_point": "<=s"})
def QuantizeLinear(
    b, x: Number, y_scale: Number, y_zero_point: Quantised | None = None, *, axis: int | None = None
):
    return quantization.quantize_linear_10(b, x, y_scale, y_zero_point, axis=1 if axis is None else axis)


@contrib_op(outputs="y", ranks={"x_scale": "<=s", "x_zero_point": "<=s"})
def DequantizeLinear(
    b, x: Integer, x_scale: Factor, x_zero_point: Integer | None = None, *, axis: int | None = None
):
    return quantization.DequantizeLinear(b, x, x_scale, x_zero_point, axis=1 if axis is None else axis)
