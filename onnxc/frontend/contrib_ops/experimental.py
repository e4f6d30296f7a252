"""What ONNX had as experiments until operator set 9: converters wrote them, ONNX Runtime runs them still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ...ir import expr, ops
from ...ir.graph import Value
from ..onnx_ops import activations, movement, normalization
from ..onnx_ops.common import along
from ..rules import Types, onnx_op
from .schema import INTEGERS, Wide

Any = Annotated[
    Value, Types.of("T", "float16", "float", "double", *INTEGERS, "string", "bool", "complex64", "complex128")
]
Indices = Annotated[Value, Types.of("Tind", "int32", "int64")]


@onnx_op(since=1, outputs="Y")
def Affine(b, X: Wide, *, alpha=1.0, beta=0.0):
    return b.map(X, lambda x: alpha * x + beta)


@onnx_op(since=1, outputs="output")
def Scale(b, input: Wide, *, scale=1.0):
    return b.map(input, lambda x: scale * x)


@onnx_op(since=1, outputs="output")
def ScaledTanh(b, input: Wide, *, alpha: float | None = None, beta: float | None = None):
    outer, inner = 1.0 if alpha is None else alpha, 1.0 if beta is None else beta
    return b.map(input, lambda x: outer * expr.tanh(inner * x))


@onnx_op(since=1, outputs="Y")
def ParametricSoftplus(b, X: Wide, *, alpha: float | None = None, beta: float | None = None):
    outer, inner = 1.0 if alpha is None else alpha, 1.0 if beta is None else beta
    return b.map(X, lambda x: outer * expr.softplus(inner * x))


@onnx_op(since=1, outputs="output")
def ImageScaler(b, input: Wide, *, bias: Sequence[float] | None = None, scale=1.0):
    """Images times one factor, and a number more for each channel."""
    scaled = Scale(b, input, scale=scale)
    if bias is None:
        return scaled
    shifts = b.constant(np.array(bias), input.dtype)
    return b.map(scaled, along(b, shifts, 1, input.rank), lambda x, shift: x + shift)


@onnx_op(since=1, outputs="output")
def Crop(b, input: Wide, *, border: Sequence[int] | None = None, scale: Sequence[int] | None = None):
    """Images without their left, top, right and bottom border; with a scale, that height and width from the
    left and top border on."""
    if input.rank != 4 or border is None or len(border) != 4 or (scale is not None and len(scale) != 2):
        raise ops.TypeMismatch(f"{input.type} is not cropped by a border {border} and a scale {scale}")
    left, top, right, bottom = border
    if min(border) < 0:
        raise ops.TypeMismatch(f"the border {border} has a negative width")
    height, width = scale or (input.shape[2] - top - bottom, input.shape[3] - left - right)
    return b.slice(input, (0, 0, top, left), (*input.shape[:2], height, width))


@onnx_op(since=1, outputs="output")
def DynamicSlice(b, data: Any, starts: Indices, ends: Indices, axes: Indices | None = None):
    return movement.Slice(b, data, starts, ends, axes)


@onnx_op(since=1, outputs="Y")
def ThresholdedRelu(b, X: Wide, *, alpha=1.0):
    return activations.ThresholdedRelu(b, X, alpha=alpha)


@onnx_op(since=1, outputs="output")
def MeanVarianceNormalization(b, input: Wide, *, across_channels=0, normalize_variance=1):
    """Over batch and image, or over all axes."""
    axes = range(input.rank) if across_channels else [a for a in range(input.rank) if a != 1]
    if normalize_variance:
        return normalization.MeanVarianceNormalization(b, input, axes=axes)
    dtype = normalization.wide(input.dtype)
    return b.cast(normalization.standardized(b, input, axes, dtype)[0], input.dtype)
