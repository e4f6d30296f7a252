"""Import rules of operators that combine elements along axes: Reduce*, ArgMax, CumSum, and the
softmax family.

16-bit floats are summed in float32. Axes that only the run knows become one If an axis, which
reduces or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ..rules import onnx_op
from .common import (
    axis_flags,
    axis_switch,
    choose,
    floating,
    generate,
    known_axes,
    number_of,
    wide,
    widened,
    without,
)

Axes = Value | Sequence[int] | None

# Reduce* -----------------------------------------------------------------------------------------


def _reduced(
    b: Builder,
    kind: ops.ReduceKind,
    data: Value,
    axes: Axes,
    keepdims: int,
    noop: int,
    before: Callable[[Expr], Expr] | None = None,
    after: Callable[[Expr], Expr] | None = None,
) -> Value:
    """after(reduction of before(x)) in the type of data. Without axes all are reduced, or none
    when `noop`."""
    return _finished(b, _combined(b, kind, data, axes, keepdims, noop, before), data.dtype, after)


def _finished(b: Builder, x: Value, dtype: str, after: Callable[[Expr], Expr] | None) -> Value:
    return b.cast(x, dtype) if after is None else b.map(x, lambda e: after(e).cast(dtype))


def _combined(
    b: Builder,
    kind: ops.ReduceKind,
    data: Value,
    axes: Axes,
    keepdims: int,
    noop: int,
    before: Callable[[Expr], Expr] | None = None,
) -> Value:
    """The reduction of before(x), in the wide type of data for sums and products."""
    target = wide(data.dtype) if kind in ("sum", "prod") else data.dtype
    body = None
    if before is not None or target != data.dtype:
        body = lambda x: before(x.cast(target)) if before else x.cast(target)  # noqa: E731
    flags = _flags(b, data, axes, noop)
    if all(isinstance(f, int) for f in flags):
        chosen = [a for a, flag in enumerate(flags) if flag]
        if not chosen:
            return b.map(data, body) if body else data
        return b.reduce(kind, data, chosen, bool(keepdims), body)
    x = b.map(data, body) if body else data
    for axis, flag in enumerate(flags):
        x = _maybe_reduced(b, kind, x, axis, flag)
    return x if keepdims or axes is None else b.reshape(x, without(b, data.shape, axes))


def _flags(b: Builder, data: Value, axes: Axes, noop: int) -> list[Dimension]:
    """For each axis of data 1 if it is reduced, else 0."""
    if axes is None or number_of(b, axes, "axes", data.rank) == 0:
        return [0 if noop else 1] * data.rank
    known = known_axes(b, axes, data.rank, repeated=True)
    if known is None:
        return b.dimensions(axis_flags(b, axes, data.rank), 0, "reduced")
    return [int(a in known) for a in range(data.rank)]


def _maybe_reduced(b: Builder, kind: ops.ReduceKind, x: Value, axis: int, flag: Dimension) -> Value:
    """x with one axis reduced to size 1 if flag is 1."""
    shape = list(x.shape)
    shape[axis] = flag + (1 - flag) * shape[axis]
    return choose(
        b,
        flag,
        TensorType(x.dtype, tuple(shape)),
        lambda inner: inner.reduce(kind, inner.capture(x), [axis], True),
        lambda inner: inner.capture(x),
    )


def _square(x: Expr) -> Expr:
    return x * x


@onnx_op(since=13, ranks={"axes": "<=1"})
def ReduceSum(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "sum", data, axes, keepdims, noop_with_empty_axes)


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceProd(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "prod", data, axes, keepdims, noop_with_empty_axes)


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceMax(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "or" if data.dtype == "bool" else "max", data, axes, keepdims, noop_with_empty_axes)


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceMin(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "and" if data.dtype == "bool" else "min", data, axes, keepdims, noop_with_empty_axes)


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceMean(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    """The mean of no elements, which is undefined, is 0, as in ONNX Runtime."""
    total = _combined(b, "sum", data, axes, keepdims, noop_with_empty_axes)
    flags = _flags(b, data, axes, noop_with_empty_axes)
    count = dims.product(1 + f * (d - 1) for d, f in zip(data.shape, flags))
    return _finished(b, total, data.dtype, lambda t: t / expr.size(dims.maximum(count, 1)).cast(t.dtype))


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceL1(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "sum", data, axes, keepdims, noop_with_empty_axes, abs)


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceL2(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "sum", data, axes, keepdims, noop_with_empty_axes, _square, floating(expr.sqrt))


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceSumSquare(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "sum", data, axes, keepdims, noop_with_empty_axes, _square)


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceLogSum(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduced(b, "sum", data, axes, keepdims, noop_with_empty_axes, None, floating(expr.log))


@onnx_op(since=18, ranks={"axes": "<=1"})
def ReduceLogSumExp(b, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    """max + log(sum(exp(x - max))), so that nothing overflows."""
    x = b.cast(data, "float64") if dtypes.is_integer(data.dtype) else widened(b, data)
    greatest = _combined(b, "max", x, axes, 1, noop_with_empty_axes)
    shift = b.map(greatest, lambda m: expr.where(expr.isinf(m), 0, m))
    exponentials = b.map(x, shift, lambda e, m: expr.exp(e - m))
    total = _combined(b, "sum", exponentials, axes, 1, noop_with_empty_axes)
    result = b.map(total, shift, lambda t, m: (expr.log(t) + m).cast(data.dtype))
    reduced = _flags(b, data, axes, noop_with_empty_axes)
    if keepdims or not any(reduced[k] != 0 for k in range(data.rank)):
        return result
    everything = axes is None or number_of(b, axes, "axes", data.rank) == 0
    return b.reshape(result, [] if everything else without(b, data.shape, axes))


@onnx_op(since=1, name="ReduceSum")
def _reduce_sum_1(b, data, *, axes=None, keepdims=1):
    return ReduceSum(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceProd")
def _reduce_prod_1(b, data, *, axes=None, keepdims=1):
    return ReduceProd(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceMax")
def _reduce_max_1(b, data, *, axes=None, keepdims=1):
    return ReduceMax(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceMin")
def _reduce_min_1(b, data, *, axes=None, keepdims=1):
    return ReduceMin(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceMean")
def _reduce_mean_1(b, data, *, axes=None, keepdims=1):
    return ReduceMean(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceL1")
def _reduce_l1_1(b, data, *, axes=None, keepdims=1):
    return ReduceL1(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceL2")
def _reduce_l2_1(b, data, *, axes=None, keepdims=1):
    return ReduceL2(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceSumSquare")
def _reduce_sum_square_1(b, data, *, axes=None, keepdims=1):
    return ReduceSumSquare(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceLogSum")
def _reduce_log_sum_1(b, data, *, axes=None, keepdims=1):
    return ReduceLogSum(b, data, axes, keepdims=keepdims)


@onnx_op(since=1, name="ReduceLogSumExp")
def _reduce_log_sum_exp_1(b, data, *, axes=None, keepdims=1):
    return ReduceLogSumExp(b, data, axes, keepdims=keepdims)


# Extremes' places --------------------------------------------------------------------------------


@onnx_op(since=1)
def ArgMax(b, data, *, axis=0, keepdims=1, select_last_index=0):
    kind = "argmax_last" if select_last_index else "argmax"
    return b.reduce(kind, data, [b.axis(axis, data.rank)], bool(keepdims))


@onnx_op(since=1)
def ArgMin(b, data, *, axis=0, keepdims=1, select_last_index=0):
    kind = "argmin_last" if select_last_index else "argmin"
    return b.reduce(kind, data, [b.axis(axis, data.rank)], bool(keepdims))


# Running sums ------------------------------------------------------------------------------------


def _cumulated(
    b: Builder, kind: Literal["sum", "prod"], x: Value, axis: Value, exclusive: int, reverse: int
) -> Value:
    """The axis may be data: then each possible one is a branch. A total of one element needs no sum."""
    if x.rank == 0:
        raise ops.TypeMismatch("its input has no axes")

    def along(inner: Builder, k: int) -> Value:
        if x.shape[k] != 1:
            return inner.emit(ops.Cumulate(kind, k, bool(exclusive), bool(reverse)), x)[0]
        neutral = inner.constant(int(kind == "prod"), x.dtype)
        return inner.broadcast(neutral, x.shape) if exclusive else x

    return axis_switch(b, axis, x.rank, x.rank, lambda k: x.tensor, along)


@onnx_op(since=11, ranks={"axis": "<=1"})
def CumSum(b, x, axis, *, exclusive=0, reverse=0):
    return _cumulated(b, "sum", x, axis, exclusive, reverse)


@onnx_op(since=26, ranks={"axis": "<=1"})
def CumProd(b, x, axis, *, exclusive=0, reverse=0):
    return _cumulated(b, "prod", x, axis, exclusive, reverse)


# Softmax -----------------------------------------------------------------------------------------


def softmax(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """exp(x - max) over their sum, along axes."""
    greatest = b.reduce("max", x, axes, True)
    exponentials = b.map(x, greatest, lambda e, m: expr.exp(e.cast(wide(x.dtype)) - m.cast(wide(x.dtype))))
    total = b.reduce("sum", exponentials, axes, True)
    return b.map(exponentials, total, lambda e, t: (e / t).cast(x.dtype))


def log_softmax(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """x - max - log(sum(exp(x - max))) along axes."""
    greatest = b.reduce("max", x, axes, True)
    shifted = b.map(x, greatest, lambda e, m: e.cast(wide(x.dtype)) - m.cast(wide(x.dtype)))
    total = b.reduce("sum", shifted, axes, True, expr.exp)
    return b.map(shifted, total, lambda e, t: (e - expr.log(t)).cast(x.dtype))


def hardmax(b: Builder, x: Value, axis: int) -> Value:
    """1 at the first greatest element along an axis, 0 elsewhere. An axis that may be empty gets an element
    behind its end, which is never found before others."""
    searched = x
    if not dims.at_least(x.shape[axis], 1):
        after = tuple(int(a == axis) for a in range(x.rank))
        lowest = b.constant(float("-inf"), x.dtype)
        searched = b.emit(ops.Pad("constant", (0,) * x.rank, after), x, lowest)[0]
    place = b.reduce("argmax", searched, [axis], True)
    here = expr.index(axis).equals(expr.input_(0, "int64"))
    return generate(b, x.shape, here.cast(x.dtype), place)


def _trailing(x: Value, axis: int) -> range:
    """Before operator set 13 the axes from `axis` on count as one."""
    if not -x.rank <= axis <= x.rank:
        raise ops.TypeMismatch(f"axis {axis} is outside a tensor of {x.rank} axes")
    return range(axis % max(x.rank, 1) if axis < x.rank else x.rank, x.rank)


@onnx_op(since=13)
def Softmax(b, input, *, axis=-1):
    return softmax(b, input, [b.axis(axis, input.rank)])


@onnx_op(since=1, name="Softmax")
def _softmax_1(b, input, *, axis=1):
    return softmax(b, input, _trailing(input, axis))


@onnx_op(since=13)
def LogSoftmax(b, input, *, axis=-1):
    return log_softmax(b, input, [b.axis(axis, input.rank)])


@onnx_op(since=1, name="LogSoftmax")
def _log_softmax_1(b, input, *, axis=1):
    return log_softmax(b, input, _trailing(input, axis))


@onnx_op(since=13)
def Hardmax(b, input, *, axis=-1):
    return hardmax(b, input, b.axis(axis, input.rank))


@onnx_op(since=1, name="Hardmax")
def _hardmax_1(b, input, *, axis=1):
    axes = _trailing(input, axis)
    rows = tuple(input.shape[a] for a in range(input.rank) if a not in axes)
    matrix = b.reshape(input, (dims.product(rows), dims.product(input.shape[a] for a in axes)))
    return b.reshape(hardmax(b, matrix, 1), input.shape)
