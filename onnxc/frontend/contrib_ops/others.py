"""What ONNX had not yet when ONNX Runtime needed it: distances, inverses, and early forms of operators."""

from __future__ import annotations

from typing import Annotated

from ...ir import dims, expr, ops
from ...ir.graph import TensorType, Value
from ..onnx_ops import constants, convolution, indexing, movement, sampling
from ..onnx_ops.common import generate, one_of, require, require_least, require_square
from ..rules import Types
from .schema import FLOATS, INTEGERS, Int64, Wide, contrib_op

_ANY = (*FLOATS, *INTEGERS, "bool", "string", "complex64", "complex128")
Any = Annotated[Value, Types.of("T", *_ANY)]
Real = Annotated[Value, Types.of("T", *FLOATS, *INTEGERS, "bool", "bfloat16")]
Point = Annotated[Value, Types.of("T", "float", "double")]
Axis = Annotated[Value, Types.of("tensor(int32)", "int32")]
Indices = Annotated[Value, Types.of("Tind", "int32", "int64")]
Number = Annotated[Value, Types.of("T", "float", "double", "int16", "int32", "int64")]


@contrib_op(outputs="C", ranks={"*": 2})
def CDist(b, A: Point, B: Point, *, metric="sqeuclidean"):
    """The distance of each row of A from each row of B: |a|^2 + |b|^2 - 2 a b, or its root."""
    one_of(metric, ("sqeuclidean", "euclidean"), "metric")
    if A.rank != 2 or B.rank != 2 or dims.equal(A.shape[1], B.shape[1]) is False:
        raise ops.TypeMismatch(f"{A.type} and {B.type} are no points of one space")
    rows = b.reduce("sum", A, [1], True, lambda x: x * x)
    columns = b.reduce("sum", B, [1], False, lambda x: x * x)
    products = b.contract("mk", "nk", "mn", A, B)
    squares = b.map(products, rows, columns, lambda p, r, c: (r + c - 2 * p).maximum(0))
    return squares if metric == "sqeuclidean" else b.map(squares, expr.sqrt)


@contrib_op(outputs="Y")
def Inverse(b, X: Wide):
    """Of each square matrix; where one has none, infinities or what elimination leaves."""
    require_square(X)
    return b.call("inverse", [X], [X.type])[0]


@contrib_op(outputs="Y", ranks={"axis": "<=1"})
def ExpandDims(b, X: Any, axis: Axis):
    return movement.Unsqueeze(b, X, b.reshape(axis, (1,)))


@contrib_op(outputs="Y", ranks={"k": "<=1"})
def Trilu(b, X: Real, k: Int64 | None = None, *, upper=1):
    return constants.Trilu(b, X, k, upper=upper)


@contrib_op(outputs="y idx counts", ranks={"*": 1})
def Unique(b, x: Any):
    """The distinct elements as they first occur, which one each element is, and how often it occurs."""
    y, _, which, counts = constants.Unique(b, x, sorted=0)
    return y, which, counts


@contrib_op(outputs="output", ranks={"pads": "<=2", "value": "<=1"})
def Pad(b, data: Wide, pads: Int64, value: Wide | None = None, *, mode="constant"):
    return movement.Pad(b, data, b.reshape(pads, (pads.tensor.count,)), value, mode=mode)


@contrib_op(outputs="output")
def GatherND(b, data: Any, indices: Indices):
    return indexing.GatherND(b, data, indices)


@contrib_op(outputs="Y", ranks={"*": "<=1"})
def Range(b, start: Number, limit: Number, delta: Number | None = None):
    return constants.Range(b, start, limit, b.constant(1, start.dtype) if delta is None else delta)


Sampled = Annotated[Value, Types.of("T1", *_ANY)]
Unfolded = Annotated[Value, Types.of("T", *_ANY, "bfloat16")]
Echoed = Annotated[Value, Types.of("T", *FLOATS, "int32", "int64", "uint32", "uint64")]
Chars = Annotated[Value, Types.of("T", "int32")]
Weights = Annotated[Value, Types.of("T1", "float")]


@contrib_op(outputs="Y", ranks={"*": 4})
def GridSample(b, X: Sampled, Grid: Sampled, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    return sampling.GridSample(b, X, Grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@contrib_op(outputs="Y")
def SampleOp(b, X: Echoed):
    """X"""
    return X


@contrib_op(outputs="output")
def UnfoldTensor(b, input: Unfolded, *, dim=-1, size: int, step=1):
    """All windows of `size` elements along an axis, `step` apart, along a new last axis."""
    axis = b.axis(dim, input.rank)
    length = input.shape[axis]
    if step < 1 or size < 1 or dims.less(length, size):
        raise ops.TypeMismatch(f"windows of {size} in steps of {step} are not in {input.type}")
    count = dims.floor_divide(length - size, step) + 1
    places = generate(b, (count, size), expr.index(0) * step + expr.index(1))
    windows = b.emit(ops.Gather("axis", axis), input, places)[0]
    order = [k for k in range(windows.rank) if k != axis + 1]
    return b.transpose(windows, (*order, axis + 1))


@contrib_op(outputs="Y", ranks={"Sequence": 2, "W": 4, "B": 1, "C": 2})
def WordConvEmbedding(
    b,
    Sequence: Chars,
    W: Weights,
    B: Weights,
    C: Weights,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
):
    """Of each word, as many characters as are greater than 0, the greatest tanh of a convolution of their
    embeddings; 0 of words that begin with none. Characters that the table lacks are embedded as zeros."""
    if Sequence.rank != 2 or W.rank != 4:
        raise ops.TypeMismatch(f"{Sequence.type} are no words for the convolution {W.type}")
    (count, chars), window = Sequence.shape, W.shape[2]
    for size, asked in (
        (C.shape[1], char_embedding_size),
        (window, conv_window_size),
        (W.shape[0], embedding_size),
    ):
        if asked not in (None, -1):
            require(b, [(size, asked)], f"the convolution {W.type} of {C.type}")
    require(b, [(C.shape[1], W.shape[3])], f"an embedding of {C.type}")
    require_least(b, chars, window, f"the convolution {W.type} is wider than words of {chars} characters")
    table, rows = movement.padded(b, C, (0, 0), (1, 0)), expr.size(C.shape[0]).cast("int32")
    places = b.map(Sequence, lambda c: expr.where((c >= 0) & (c < rows), c, rows))
    embedded = b.emit(ops.Gather("axis"), table, places)[0]
    found = convolution.Conv(b, b.reshape(embedded, (count, 1, chars, C.shape[1])), W, B)
    present = b.map(Sequence, lambda c: (c > 0).cast("int32"))
    length = b.map(b.reduce("sum", present, [1], True), b.take(present, 1, 0, 1), lambda n, first: n * first)
    values = b.reshape(found, (count, W.shape[0], found.shape[2]))
    last = (expr.input_(1, "int32").cast("int64") - expr.size(window)).maximum(0)
    seen = expr.where(expr.index(2) <= last, expr.tanh(expr.input_(0, "float32")), -1.0)
    best = b.reduce("max", generate(b, values.shape, seen, values, b.reshape(length, (count, 1, 1))), [2])
    return b.map(best, length, lambda e, n: expr.where(n > 0, e, 0))


Costs = Annotated[Value, Types.of("F", "float")]


@contrib_op(outputs="output", ranks={"input": "2 or 3"})
def DynamicTimeWarping(b, input: Costs):
    """int32 [2, n]: rows and columns of the cheapest way through costs [M, N] or [1, M, N]."""
    if input.rank not in (2, 3) or (input.rank == 3 and dims.equal(input.shape[0], 1) is False):
        raise ops.TypeMismatch(f"{input.type} is no table of costs")
    costs = b.reshape(input, input.shape[-2:])
    return b.call("dynamic_time_warping", [costs], [TensorType("int32", (2, b.fresh("steps")))])[0]
