"""Products and convolutions with what was fused into them, and softmax with a bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ...ir import dtypes
from ...ir.builder import Builder
from ...ir.graph import Value
from ..onnx_ops import convolution, linear
from ..onnx_ops.common import fitted, widened, with_shape
from ..onnx_ops.reductions import softmax
from ..rules import Types
from .activations import activated
from .schema import FLOATS, Wide, contrib_op

Matrix = Annotated[Value, Types.of("T", *FLOATS, "bfloat16")]
Number = Annotated[Value, Types.of("T", *FLOATS, "int32", "int64", "uint32", "uint64")]
_NUMBERS = ("float", "double", "int32", "int64", "uint32", "uint64")
Sparse = Annotated[Value, Types("T", frozenset(f"sparse_tensor({name})" for name in _NUMBERS))]
Dense = Annotated[Value, Types.of("T1", *_NUMBERS)]


@contrib_op(outputs="Y", ranks={"X": "n", "W": "n", "B": 1, "Z": "n"})
def FusedConv(
    b,
    X: Wide,
    W: Wide,
    B: Wide | None = None,
    Z: Wide | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    auto_pad="NOTSET",
    dilations: Sequence[int] | None = None,
    group=1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """activation(conv(X, W) + B + Z)"""
    y = convolution.Conv(
        b,
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if Z is not None:
        y = b.map(y, with_shape(b, Z, y.shape, "Z"), lambda e, z: e + z)
    return activated(b, y, activation, activation_params or ())


@contrib_op(outputs="Y", ranks={"A": 2, "B": 2, "C": "<=2"})
def FusedGemm(
    b,
    A: Number,
    B: Number,
    C: Number | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha=1.0,
    beta=1.0,
    transA=0,
    transB=0,
):
    y = linear.Gemm(b, A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    second = activation_gamma if activation == "Selu" else activation_beta
    return activated(b, y, activation, (activation_alpha, second))


@contrib_op(outputs="Y")
def FusedMatMul(b, A: Matrix, B: Matrix, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """alpha * A B of transposed operands; `transBatch` moves the first axis of an operand behind the others
    of its batch."""
    x, y = _turned(b, widened(b, A), transA, transBatchA), _turned(b, widened(b, B), transB, transBatchB)
    return b.cast(b.map(linear.product(b, x, y), lambda e: e * alpha), A.dtype)


def _turned(b: Builder, x: Value, matrix: int, batch: int) -> Value:
    if x.rank < 2:
        return x
    perm = list(range(x.rank))
    if batch:
        perm = [*perm[1:-1], 0, perm[-1]]
    if matrix:
        perm[-2:] = perm[:-3:-1]
    return b.transpose(x, perm)


@contrib_op(outputs="Y", ranks={"A": 2})
def SparseToDenseMatMul(b, A: Sparse, B: Dense, *, alpha=1.0, transA=0, transB=0):
    """alpha * A B, where A is sparse for whoever feeds it."""
    factor = alpha if dtypes.is_float(A.dtype) else int(alpha)
    product = linear.product(b, _turned(b, A, transA, 0), _turned(b, B, transB, 0))
    return b.map(product, lambda e: e * factor)


@contrib_op(outputs="Y")
def TransposeMatMul(b, A: Matrix, B: Matrix, *, alpha=1.0, transA=0, transB=0):
    return FusedMatMul(b, A, B, alpha=alpha, transA=transA, transB=transB)


@contrib_op(outputs="output", ranks={"data": "n", "bias": "<=n"})
def BiasSoftmax(b, data: Wide, bias: Wide, *, axis=1, is_inner_broadcast: int):
    """The softmax over all axes from `axis` on of data + bias; the shape of the bias says how it is
    broadcast."""
    data, bias = fitted(b, data, bias, "the bias")
    scores = b.map(data, bias, lambda x, c: x + c)
    return softmax(b, scores, range(b.axis(axis, data.rank), data.rank))
