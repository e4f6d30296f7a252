"""Import rules of operators that make tensors of nothing but sizes and numbers."""

from __future__ import annotations

import numpy as np

from ...ir import dims, dtypes, expr, ops, runtime_twins
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import TensorType, Value
from ...ir.ranges import repeated_element
from ..rules import onnx_op
from .common import checked, element_type, generate, insert_axes, require, scalar, wide, zeros

#: Of data of more elements than this places are found by the run.
KNOWN_PLACES = 1 << 12

# Constants ---------------------------------------------------------------------------------------


@onnx_op(since=1)
def Constant(
    b,
    *,
    value=None,
    sparse_value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
):
    given = {
        np.float32: value_float if value_floats is None else value_floats,
        np.int64: value_int if value_ints is None else value_ints,
        object: value_string if value_strings is None else value_strings,
    }
    found = [np.asarray(data, dtype) for dtype, data in given.items() if data is not None]
    found += [array for array in (value, sparse_value) if array is not None]
    if len(found) != 1:
        raise ops.TypeMismatch(f"it has {len(found)} values where one is needed")
    return b.constant(found[0])


@onnx_op(since=9)
def ConstantOfShape(b, input, *, value=None):
    shape = b.dimensions(input, 0, "size")
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ops.TypeMismatch(f"the size {min(d for d in shape if isinstance(d, int))} is negative")
    if value is None:
        return zeros(b, "float32", shape)
    if value.size != 1:
        raise ops.TypeMismatch(f"its value has {value.size} elements where one is needed")
    return zeros(b, dtypes.from_numpy(value.dtype), shape, value.reshape(-1)[0])


# Numbers from indices ----------------------------------------------------------------------------


@onnx_op(since=11, ranks={"*": "<=1"})
def Range(b, start, limit, delta, *, stash_type=1):
    """max(ceil((limit - start) / delta), 0) numbers: start + i * delta. 16-bit floats compute in
    float32."""
    dtype = start.dtype
    start, limit, delta = (scalar(b, v) for v in (start, limit, delta))
    first, end, step = (_whole(b, v) for v in (start, limit, delta))
    if first is not None and end is not None and step is not None:
        if isinstance(step, int) and step == 0:
            raise ops.TypeMismatch("delta is 0")
        count = dims.maximum(-dims.floor_divide(first - end, step), 0)
    else:
        count = b.dimension(_range_length(b, start, limit, delta), 0, "count")
    at, begin, by = (e.cast(wide(dtype)) for e in (expr.index(0), *(expr.input_(k, dtype) for k in range(2))))
    return generate(b, (count,), (begin + at * by).cast(dtype), start, delta)


def _whole(b: Builder, x: Value) -> Dimension | None:
    """The integer that a scalar is, where that is known: also that of a float that a size was
    converted to."""
    if x.elements is not None:
        return b.dimension(x)
    known, node = b.known(x), x.producer
    if known is not None:
        return int(known) if np.isfinite(known) and float(known).is_integer() else None
    if (
        node is not None
        and isinstance(node.op, ops.Map)
        and len(node.inputs) == 1
        and x.dtype in ("float32", "float64")
    ):
        source = node.inputs[0]
        if source.elements is not None and node.op.body is expr.input_(0, source.dtype).cast(x.dtype):
            return b.dimension(source)
    return None


def _range_length(b: Builder, start: Value, limit: Value, delta: Value) -> Value:
    if dtypes.is_integer(start.dtype):
        start, limit, delta = (b.cast(v, "int64") for v in (start, limit, delta))
        delta = checked(b, delta, lambda d: d._with("ne", 0), "invalid_value", "its step is {}")
        return b.map(start, limit, delta, _steps)
    start, limit, delta = (b.cast(v, "float64") for v in (start, limit, delta))
    delta = checked(b, delta, lambda d: d._with("ne", 0), "invalid_value", "its step is {}")
    return b.map(start, limit, delta, lambda s, e, d: expr.ceil((e - s) / d).maximum(0).cast("int64"))


def _steps(start: expr.Expr, limit: expr.Expr, delta: expr.Expr) -> expr.Expr:
    """How many integers there are from start to before limit, whose difference may need all 64 bits."""
    up = delta > 0
    between = expr.where(up, limit - start, start - limit).cast("uint64")
    count = (between - 1) / expr.where(up, delta, -delta).cast("uint64") + 1
    some = expr.where(up, start < limit, limit < start)
    return expr.where(some, count.minimum((1 << 63) - 1).cast("int64"), 0)


@onnx_op(since=9, ranks={"input": 2})
def EyeLike(b, input, *, dtype=None, k=0):
    """1 on the k-th diagonal of a matrix of the input's shape."""
    if input.rank != 2:
        raise ops.TypeMismatch(f"{input.type} is no matrix")
    name = input.dtype if dtype is None else element_type(dtype, "dtype")
    return generate(b, input.shape, (expr.index(0) + k).equals(expr.index(1)).cast(name))


@onnx_op(since=14, ranks={"k": "<=1"})
def Trilu(b, input, k=None, *, upper=1):
    """The triangle on and above (below) the k-th diagonal; zeros elsewhere."""
    if input.rank < 2:
        raise ops.TypeMismatch(f"{input.type} is no matrix")
    offset = b.constant(0, "int64") if k is None else b.cast(scalar(b, k, "diagonal"), "int64")
    row, column = expr.index(input.rank - 2), expr.index(input.rank - 1)

    def triangle(x: expr.Expr, k: expr.Expr, zero: expr.Expr) -> expr.Expr:
        return expr.where(column - row >= k if upper else column - row <= k, x, zero)

    return b.map(input, offset, zeros(b, input.dtype, ()), triangle)


@onnx_op(since=9, ranks={"depth": "<=1", "values": 1})
def OneHot(b, indices, depth, values, *, axis=-1):
    """values[1] where the place along a new axis is the index, else values[0]; negative indices
    count from the end."""
    if dims.equal(values.tensor.count, 2) is False:
        raise ops.TypeMismatch(f"its values are {values.type} where two are needed")
    require(b, [(values.tensor.count, 2)], "a pair of values")
    place = b.axis(axis, indices.rank + 1)
    count = b.dimension(b.cast(scalar(b, depth, "depth"), "int64"), 0, "depth")
    if isinstance(count, int) and count < 0:
        raise ops.TypeMismatch(f"the depth {count} is negative")
    off, on = (b.reshape(b.take(values, 0, k, 1), ()) for k in range(2))
    hot = insert_axes(b, b.cast(indices, "int64"), [place])
    shape = (*hot.shape[:place], count, *hot.shape[place + 1 :])
    at, low, high = (expr.input_(0, "int64"), expr.input_(1, values.dtype), expr.input_(2, values.dtype))
    at = expr.where(at < 0, at + expr.size(count), at)
    return generate(b, shape, expr.where(expr.index(place).equals(at), high, low), hot, off, on)


# Places found in data ----------------------------------------------------------------------------


def nonzero(b: Builder, x: Value) -> Value:
    """The places of the elements of x that are not zero, int64 [rank, n]. Of data that is known, or of one
    number repeated, sizes tell how many: exporters write ranges so."""
    data, repeated = b.known(x), repeated_element(x)
    if data is not None and data.size <= KNOWN_PLACES:
        return b.constant(runtime_twins.nonzero([data], [])[0])
    if repeated is None or x.rank == 0:
        return b.call("nonzero", [x], [TensorType("int64", (x.rank, b.fresh("nonzero")))])[0]
    if not repeated.data.array:
        return zeros(b, "int64", (x.rank, 0))
    count = x.tensor.count
    places = (generate(b, x.shape, expr.index(axis)) for axis in range(x.rank))
    return b.concat([b.reshape(place, (1, count)) for place in places], 0)


@onnx_op(since=9)
def NonZero(b, X):
    return nonzero(b, X)


@onnx_op(since=9)
def Compress(b, input, condition, *, axis=None):
    """The slices along an axis (the elements, without one) whose condition is true. Exporters of masks
    write a condition of the input's rank; its elements count in their order, as in ONNX Runtime."""
    if condition.dtype != "bool":
        raise ops.TypeMismatch(f"the condition is {condition.type} where bool is needed")
    condition = b.reshape(condition, (condition.tensor.count,))
    if axis is None:
        input, axis = b.reshape(input, (input.tensor.count,)), 0
    place = b.axis(axis, input.rank)
    chosen = nonzero(b, condition)
    return b.emit(ops.Gather("axis", place), input, b.reshape(chosen, (chosen.shape[1],)))[0]


@onnx_op(since=11)
def Unique(b, X, *, axis=None, sorted=1):
    """The distinct elements (slices along an axis), where each is first, which one each is, and
    how often it occurs."""
    count = b.fresh("unique")
    place = -1 if axis is None else b.axis(axis, X.rank)
    shape = (count,) if axis is None else (*X.shape[:place], count, *X.shape[place + 1 :])
    length = X.tensor.count if axis is None else X.shape[place]
    places = [TensorType("int64", (n,)) for n in (count, length, count)]
    return b.call("unique", [X], [TensorType(X.dtype, shape), *places], [place, int(bool(sorted))])
