"""Import rules of conversions between real numbers and quantised ones: x = (q - zero) * scale.

Scales are one for all, one for each index along an axis, or one for each block along an axis;
blocks become an axis of their own, so that scales broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..rules import onnx_op
from .casting import convert
from .common import along, element_type, generate, require

QUANTISED = ("uint8", "int8", "uint16", "int16", "uint4", "int4", "uint2", "int2", *dtypes.SMALL_FLOATS)


def quantised(ratio: Expr, zero: Expr | None, dtype: str, saturate: bool = True) -> Expr:
    """ratio, which is x / scale, rounded to the nearest even, plus the zero point, as dtype."""
    if not dtypes.is_integer(dtype):
        ratio = ratio if zero is None else ratio + zero.cast(ratio.dtype)
        return convert(ratio, dtype, saturate)
    rounded = expr.round_(ratio).cast("float32")
    low, high = dtypes.integer_range(dtype)
    return (rounded if zero is None else rounded + zero.cast("float32")).clip(low, high).cast(dtype)


def centred(x: Expr, zero: Expr | None) -> Expr:
    """x - zero: int32 for integers, float32 for small floats."""
    target = "int32" if dtypes.is_integer(x.dtype) else "float32"
    return x.cast(target) if zero is None else x.cast(target) - zero.cast(target)


def refuse_bad_scale(b: Builder, scale: Value, divides: bool = True) -> None:
    """A known scale must be a number, and one that divides must not be 0. Quantisers give it to weights that
    are 0, all of them, as those of words that do not exist."""
    data = b.known(scale)
    if data is None or dtypes.is_integer(scale.dtype):
        return
    wide = data.astype(np.float32)
    wrong = "NaN" if np.any(np.isnan(wide)) else "0" if divides and np.any(wide == 0) else ""
    if wrong:
        raise ops.TypeMismatch(f"the scale is {wrong} somewhere")


# Granularity -------------------------------------------------------------------------------------


def views(
    b: Builder,
    x: Value,
    axis: int,
    block_size: int,
    scale: Value,
    zero: Value | None = None,
    shared: bool = False,
) -> list[Value]:
    """x, its scale and, where there is one, its zero point in shapes that broadcast. shared: the scales of
    blocks may have the size 1 along other axes, and a block of 0 is the whole axis."""
    one = scale.tensor.count == 1
    if zero is not None and (not one or _differ(zero.tensor.count, 1)) and _shapes_differ(scale, zero):
        raise ops.TypeMismatch(f"the scale {scale.type} and zero point {zero.type} differ in shape")
    if zero is not None and not one:
        require(b, zip(zero.shape, scale.shape), f"the zero point {zero.type}")
    parameters = [scale] if zero is None else [scale, zero]
    if one and (scale.rank < 2 or not block_size):
        return [x, *(b.reshape(p, ()) for p in parameters)]
    axis = b.axis(axis, x.rank) if x.rank != 1 else 0  # which needs none to be named
    if scale.rank == 1 and not block_size:
        if _differ(scale.shape[0], x.shape[axis]):
            raise ops.TypeMismatch(f"the scale {scale.type} does not fit axis {axis} of {x.type}")
        return [x, *(along(b, p, axis, x.rank) for p in parameters)]
    return _blocks(b, x, axis, block_size, parameters, shared)


def _differ(x: Dimension, y: Dimension) -> bool:
    return dims.equal(x, y) is False


def _shapes_differ(x: Value, y: Value) -> bool:
    return x.rank != y.rank or any(map(_differ, x.shape, y.shape))


def _blocks(
    b: Builder, x: Value, axis: int, size: int, parameters: Sequence[Value], shared: bool
) -> list[Value]:
    """The axis of x as (blocks, size); where it does not divide, scales are gathered for each
    index instead."""
    scale, whole = parameters[0], x.shape[axis]
    one = (shared and size == 0) or (isinstance(whole, int) and 0 < whole <= size)
    expected = [1 if shared and s == 1 else d for s, d in zip(scale.shape, x.shape)]
    expected[axis : axis + 1] = [1 if one else dims.ceil_divide(whole, max(size, 1))]
    if not (one or size > 0) or scale.rank != x.rank or any(map(_differ, scale.shape, expected)):
        raise ops.TypeMismatch(
            f"the scale {scale.type} does not fit blocks of {size} along axis {axis} of {x.type}"
        )
    agreeing = [axis] if shared else range(x.rank)  # a shared scale may be one along other axes
    require(b, [(scale.shape[a], expected[a]) for a in agreeing], f"the scale {scale.type}")
    if one:
        return [x, *parameters]
    if isinstance(whole, int) and whole % size == 0:
        x = b.reshape(x, (*x.shape[:axis], whole // size, size, *x.shape[axis + 1 :]))
        spread = lambda p: b.reshape(p, (*p.shape[: axis + 1], 1, *p.shape[axis + 1 :]))  # noqa: E731
    else:
        block = generate(b, (whole,), expr.index(0) / size)
        spread = lambda p: b.emit(ops.Gather("axis", axis), p, block)[0]  # noqa: E731
    return [x, *map(spread, parameters)]


# Rules -------------------------------------------------------------------------------------------


@onnx_op(since=23, ranks={"y_scale": "<=s", "y_zero_point": "<=s"})
def QuantizeLinear(
    b, x, y_scale, y_zero_point=None, *, axis=1, saturate=1, block_size=0, output_dtype=0, precision=0
):
    """The division is of the type `precision`, by default that of the scale."""
    dtype = element_type(output_dtype, "output_dtype") if output_dtype else "uint8"
    if y_zero_point is not None:
        if output_dtype and dtype != y_zero_point.dtype:
            raise ops.TypeMismatch(f"output_dtype is {dtype} where the zero point is {y_zero_point.dtype}")
        dtype = y_zero_point.dtype
    if dtype not in QUANTISED:
        raise ops.TypeMismatch(f"{dtype} is no quantised type")
    refuse_bad_scale(b, y_scale)
    exact = element_type(precision, "precision") if precision else y_scale.dtype
    exact = exact if exact in dtypes.FLOATS else "float32"
    operands = views(b, x, axis, block_size, y_scale, y_zero_point)

    def body(e: Expr, s: Expr, z: Expr | None = None) -> Expr:
        return quantised(_held(_held(e, exact) / _held(s, exact), exact), z, dtype, bool(saturate))

    return b.reshape(b.map(*operands, body), x.shape)


def _held(x: Expr, dtype: str) -> Expr:
    """x as a number that the type holds: narrow ones are computed in float32 (`passes/round_late.py`), but
    for those whose bits are asked for."""
    x = x.cast(dtype)
    return x if dtypes.itemsize(dtype) > 2 else expr.bitcast(expr.bitcast(x, "uint16"), dtype)


@onnx_op(since=10, name="QuantizeLinear", ranks={"y_scale": "<=s", "y_zero_point": "<=s"})
def quantize_linear_10(b, x, y_scale, y_zero_point=None, *, axis=1, saturate=1, block_size=0, output_dtype=0):
    """Before the type could be told the division is of float32, as in ONNX Runtime."""
    single = dtypes.NUMBERS["float32"]
    return QuantizeLinear(
        b,
        x,
        y_scale,
        y_zero_point,
        axis=axis,
        saturate=saturate,
        block_size=block_size,
        output_dtype=output_dtype,
        precision=single,
    )


@onnx_op(since=10, ranks={"x_scale": "<=s", "x_zero_point": "<=s"})
def DequantizeLinear(b, x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    dtype = element_type(output_dtype, "output_dtype") if output_dtype else x_scale.dtype
    refuse_bad_scale(b, x_scale, divides=False)
    operands = views(b, x, axis, block_size, x_scale, x_zero_point)
    return b.reshape(dequantised(b, operands, dtype), x.shape)


def dequantised(b: Builder, operands: Sequence[Value], dtype: str) -> Value:
    """What quantised numbers, their scale and, where there is one, their zero point stand for."""

    def body(e: Expr, s: Expr, z: Expr | None = None) -> Expr:
        return (centred(e, z).cast("float32") * s.cast("float32")).cast(dtype)

    return b.map(*operands, body)


@onnx_op(since=11)
def DynamicQuantizeLinear(b, x):
    """uint8 with the range of x, extended to hold 0; of nothing but zeros the scale is 1."""
    axes = range(x.rank)
    low, high = (b.reduce(kind, x, axes, keepdims=True) if x.rank else x for kind in ("min", "max"))
    span = b.map(high, low, lambda h, m: (h.maximum(0) - m.minimum(0)) / 255)
    scale = b.map(span, lambda s: expr.where(s.equals(0), 1, s))
    start = b.map(low, scale, lambda m, s: expr.round_((-m.minimum(0) / s).clip(0, 255)))
    zero = b.cast(start, "uint8")
    y = b.map(x, scale, zero, lambda e, s, z: quantised(e / s, z, "uint8"))
    return y, b.reshape(scale, ()), b.reshape(zero, ())
