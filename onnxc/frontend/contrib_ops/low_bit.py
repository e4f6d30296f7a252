"""Products and embeddings over weights of a few bits, several in a byte, which have scales for each block.

What is stored becomes a constant of its bits with DequantizeLinear over it, or the table of a format: whoever
reads weights widens them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ...errors import UnsupportedError
from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Constant, TensorType, Value
from ...ir.ranges import value_range
from ..onnx_ops.common import choose, generate, one_of, zeros
from ..onnx_ops.linear import product
from ..onnx_ops.quantization import DequantizeLinear, dequantised, refuse_bad_scale, views
from ..rules import Types
from ..tensors import unpacked
from .schema import FUSED_FLOATS, contrib_op

A = Annotated[Value, Types.of("T1", *FUSED_FLOATS)]
Stored = Annotated[Value, Types.of("T2", "uint8")]
Zero = Annotated[Value, Types.of("T3", "uint8", *FUSED_FLOATS)]
_DATA = [
    "int4",
    "uint4",
    "uint8",
    "float4e2m1",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
]
Group = Annotated[Value, Types.of("T4", "int32")]
Single = Annotated[Value, Types.of("T1", "float")]
Blob = Annotated[Value, Types.of("T2", "uint8")]
Shape = Annotated[Value, Types.of("T3", "int64")]

# Fields of bytes ---------------------------------------------------------------------------------


def fields(
    b: Builder,
    x: Value,
    bits: int,
    shape: Sequence[Dimension],
    count: Dimension | None = None,
    high_first: bool = False,
) -> Value:
    """The bytes x in this shape [..., n] as [..., 8 n / bits] numbers of so many bits, the lowest or the
    highest of a byte first; of each row the first `count`."""
    one_of(bits, (2, 3, 4, 8), "bits")
    if bits == 3:
        return _stream_of_three(b, x, shape, count)
    *before, size = shape
    each = 8 // bits
    whole = size * each
    count = whole if count is None else count
    data, dtype = b.known(x), f"uint{bits}"
    if bits == 8:
        return b.take(b.reshape(x, shape), len(before), 0, count)
    if data is None or not dims.is_static((*shape, count)):
        place = (each - 1) - expr.index(len(shape)) if high_first else expr.index(len(shape))
        field = (expr.input_(0, "uint8") >> (place * bits).cast("uint8")) & ((1 << bits) - 1)
        parts = generate(b, (*shape, each), field, b.reshape(x, (*shape, 1)))
        return b.take(b.reshape(parts, (*before, whole)), len(before), 0, count)
    *rows, stored, kept = dims.numbers((*before, whole, count))
    if data.size != dims.product(shape):
        raise ops.TypeMismatch(f"{x.type} are no {dims.product(shape)} bytes")

    def make() -> np.ndarray:
        parts = unpacked(data.reshape(-1), bits, data.size * each).reshape(-1, each)
        parts = parts[:, ::-1] if high_first else parts
        return parts.reshape(*rows, stored)[..., :kept].view(dtypes.numpy_dtype(dtype))

    return b.constant(Constant(dtype, (*rows, kept), make))


def _stream_of_three(b: Builder, x: Value, shape: Sequence[Dimension], count: Dimension | None) -> Value:
    """The same of 3 bits, which cross bytes: each row is a stream, the lowest bit first."""
    data = b.known(x)
    if data is None or not dims.is_static((*shape, *(() if count is None else (count,)))):
        raise UnsupportedError("numbers of 3 bits that only the run knows", "store them in the model")
    *rows, size = dims.numbers(shape)
    kept = 8 * size // 3 if count is None else dims.number(count)
    if data.size != dims.product((*rows, size)) or 3 * kept > 8 * size:
        raise ops.TypeMismatch(f"{x.type} are no {dims.product((*rows, kept))} numbers of 3 bits")

    def make() -> np.ndarray:
        bits = np.unpackbits(data.reshape(*rows, size), axis=-1, bitorder="little")[..., : 3 * kept]
        codes = np.packbits(bits.reshape(*rows, kept, 3), axis=-1, bitorder="little")
        return codes.reshape(*rows, kept).astype(dtypes.numpy_dtype("uint4"))

    return b.constant(Constant("uint4", (*rows, kept), make))


def widened_blocks(b: Builder, q: Value, scales: Value, zero: Value | None, bits: int, block: int) -> Value:
    """(q - zero) * scale of [..., n] numbers of so many bits in blocks along the last axis; zero is the
    middle of their range unless it is given, and may be a fraction."""
    if zero is None:
        zero = zeros(b, q.dtype, scales.shape, 1 << (bits - 1))
    if zero.dtype == q.dtype:
        return DequantizeLinear(b, q, scales, zero, axis=-1, block_size=block)
    parts = b.reshape(q, (*q.shape[:-1], scales.shape[-1], block))
    scale, shift = (b.reshape(v, (*scales.shape, 1)) for v in (scales, zero))
    wide = b.map(
        parts,
        scale,
        shift,
        lambda e, s, z: ((e.cast("float32") - z.cast("float32")) * s.cast("float32")).cast(s.dtype),
    )
    return b.reshape(wide, q.shape)


# Products ----------------------------------------------------------------------------------------


@contrib_op(outputs="Y", ranks={"B": 3, "scales": "<=2", "zero_points": "<=2", "g_idx": 1, "bias": 1})
def MatMulNBits(
    b,
    A: A,
    B: Stored,
    scales: A,
    zero_points: Zero | None = None,
    g_idx: Group | None = None,
    bias: A | None = None,
    *,
    K: int,
    N: int,
    accuracy_level=0,
    bits=4,
    block_size: int,
    weight_prepacked=0,
):
    """A times the transpose of the weights [N, K], plus the bias; 0 in the place of the product where the
    weights are omitted, a size of them being 0. With accuracy_level 4 A has 8 bits, too."""
    if weight_prepacked:
        raise UnsupportedError("weights that are packed for another processor", "export them as they are")
    if N < 0 or K < 1 or block_size < 16 or block_size & (block_size - 1):
        raise ops.TypeMismatch(f"{N} x {K} weights in blocks of {block_size}")
    blocks, count = -(-K // block_size), B.tensor.count
    result = TensorType(A.dtype, (*A.shape[:-1], N))

    def multiplied(b: Builder) -> Value:
        q = fields(b, B, bits, (N, blocks * block_size * bits // 8))
        scale = b.reshape(scales, (N, blocks))
        zero = None if zero_points is None else _zero_points(b, zero_points, bits, N, blocks)
        order = None if g_idx is None else _in_blocks(b.known(g_idx), K, blocks, block_size)
        x = A
        if order is not None:  # columns and what they are multiplied with, block by block
            columns = np.concatenate([order, np.arange(K, blocks * block_size)])
            q = b.emit(ops.Gather("axis", 1), q, b.constant(columns))[0]
            x = b.emit(ops.Gather("axis", A.rank - 1), A, b.constant(order))[0]
        if g_idx is None or order is not None:
            weights = widened_blocks(b, q, scale, zero, bits, block_size)
        else:
            weights = _grouped(b, q, scale, zero, bits, g_idx)
        eight = accuracy_level == 4 and g_idx is None and (zero is None or zero.dtype == q.dtype)
        transposed = b.transpose(b.take(weights, 1, 0, K), (1, 0))
        return product(b, x, transposed, rounded=block_size if eight else 0)

    def omitted(b: Builder) -> Value:
        whole = N, blocks, block_size * bits // 8
        if not A.rank or dims.equal(A.shape[-1], K) is False:
            raise ops.TypeMismatch(f"{A.type} are no rows of {K} numbers")
        others = [n for d, n in zip(B.shape, whole) if d != 0 and dims.equal(d, n) is False]
        if count == 0 and (B.rank != len(whole) or others):
            raise ops.TypeMismatch(f"{B.type} are neither weights {[*whole]} nor omitted ones")
        return zeros(b, A.dtype, result.shape)

    y = choose(b, dims.minimum(count, 1), result, multiplied, omitted)
    return y if bias is None else b.map(y, bias, lambda e, c: e + c)


def _in_blocks(group: np.ndarray | None, depth: int, blocks: int, block: int) -> np.ndarray | None:
    """The order in which the columns of each block follow each other, `group` naming the block of each; None
    where that is not known, or blocks are not full but for the last."""
    if group is None or group.shape != (depth,):
        return None
    order = np.argsort(group, kind="stable").astype(np.int64)
    whole = np.repeat(np.arange(blocks), block)[:depth]
    return order if np.array_equal(group[order], whole) else None


def _zero_points(b: Builder, zero: Value, bits: int, rows: int, blocks: int) -> Value:
    """[rows, blocks] zero points, each row of bytes by itself where they are of few bits."""
    if zero.dtype != "uint8":
        return b.reshape(zero, (rows, blocks))
    return fields(b, zero, bits, (rows, -(-blocks * bits // 8)), blocks)


def _grouped(b: Builder, q: Value, scales: Value, zero: Value | None, bits: int, group: Value) -> Value:
    """The weights where the columns of a block lie apart: `group` names the block of each."""
    columns = b.take(q, 1, 0, group.shape[0])
    zero = zeros(b, q.dtype, scales.shape, 1 << (bits - 1)) if zero is None else zero
    scale, shift = (b.emit(ops.Gather("axis", 1), v, group)[0] for v in (scales, zero))
    return b.map(columns, scale, shift, lambda e, s, z: (e.cast(s.dtype) - z.cast(s.dtype)) * s)


#: What four bits stand for in bitsandbytes' formats FP4 and NF4, times the block's greatest magnitude.
_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_BNB4 = {
    0: (*_FP4, *(-x for x in _FP4)),
    1: (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
}


def _looked_up(code: Expr, table: Sequence[float]) -> Expr:
    """table[code], the table halved by each bit of the code from the highest on."""
    if len(table) == 1:
        return expr.const(table[0], "float32")
    half = len(table) // 2
    low, high = _looked_up(code, table[:half]), _looked_up(code, table[half:])
    return expr.where((code & half).equals(0), low, high)


@contrib_op(outputs="Y", ranks={"B": 1})
def MatMulBnb4(
    b,
    A: A,
    B: Stored,
    absmax: A,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode=0,
    transB=1,
):
    """A times weights [N, K] of four bits, the high ones first, which transB, the default, transposes."""
    one_of(quant_type, tuple(_BNB4), "quant_type")
    if N < 1 or K < 1 or block_size < 1:
        raise ops.TypeMismatch(f"{N} x {K} weights in blocks of {block_size}")
    count = N * K
    codes = fields(b, B, 4, ((count + 1) // 2,), count, high_first=True)
    scales = b.reshape(absmax, (-(-count // block_size), 1))
    if count % block_size:
        place = generate(b, (count,), expr.index(0) / block_size)
        scales = b.emit(ops.Gather("axis"), scales, place)[0]
    blocks = b.reshape(codes, (scales.shape[0], block_size if count % block_size == 0 else 1))
    table = _BNB4[quant_type]
    wide = b.map(blocks, scales, lambda c, s: _looked_up(c.cast("int32"), table).cast(s.dtype) * s)
    weights = b.reshape(wide, (N, K))
    return product(b, A, b.transpose(weights, (1, 0)) if transB else weights)


@contrib_op(outputs="Y", ranks={"B": 1, "B_shape": 1})
def MatMulFpQ4(b, A: Single, B: Blob, B_shape: Shape, *, blk_quant_type=1):
    """A times weights [K, N] of four bits: column after column of blocks of 32, each a float32, a byte for
    the zero point, and 16 bytes whose low bits come first. Type 0 has no zero points; 2, which should have
    blocks of 64, is 1 to ONNX Runtime."""
    block, has_zero = 32, blk_quant_type != 0
    shape = b.required(B_shape, "the shape of the weights").reshape(-1).tolist()
    if len(shape) != 2:
        raise ops.TypeMismatch(f"the shape of the weights has {len(shape)} sizes, not 2")
    depth, columns = shape
    blocks, size = -(-depth // block), 4 + has_zero + block // 2
    blob = b.required(B, "the weights").reshape(-1)
    if blob.size != columns * blocks * size:
        raise ops.TypeMismatch(f"{B.type} are no {columns} columns of {blocks} blocks of {size} bytes")
    parts = blob.reshape(columns, blocks, size)
    scales = np.ascontiguousarray(parts[..., :4]).view(np.float32).reshape(columns, blocks)
    zero = parts[..., 4] if has_zero else np.full((columns, blocks), 8, np.uint8)

    def codes() -> np.ndarray:
        halves = parts[..., size - block // 2 :]
        numbers = np.concatenate([halves & 15, halves >> 4], axis=2)
        return numbers.reshape(columns, blocks * block).astype(dtypes.numpy_dtype("uint4"))

    q = b.constant(Constant("uint4", (columns, blocks * block), codes))
    own = b.constant(zero.astype(dtypes.numpy_dtype("uint4")))
    weights = widened_blocks(b, q, b.constant(scales), own, 4, block)
    return product(b, A, b.transpose(b.take(weights, 1, 0, depth), (1, 0)))


# Embeddings --------------------------------------------------------------------------------------

Data = Annotated[Value, Types.of("T1", *_DATA)]
Indices = Annotated[Value, Types.of("Tind", "int32", "int64")]
Scales = Annotated[Value, Types.of("T2", *FUSED_FLOATS)]


@contrib_op(outputs="output", ranks={"data": "n", "scales": "n", "zero_points": "n"})
def GatherBlockQuantized(
    b,
    data: Data,
    indices: Indices,
    scales: Scales,
    zero_points: Data | None = None,
    *,
    bits=4,
    block_size=128,
    gather_axis=0,
    quantize_axis=1,
):
    """Entries of a table with scales for each block along an axis, 0 where an index is outside; bytes hold
    several numbers along the last axis."""
    axis = b.axis(quantize_axis, data.rank)
    zero = zero_points
    if data.dtype == "uint8":
        if axis != data.rank - 1:
            raise ops.TypeMismatch(f"the blocks of bytes lie along axis {axis}, which is not the last")
        data = fields(b, data, bits, data.shape)
        zero = zeros(b, data.dtype, scales.shape, 1 << (bits - 1))
        if zero_points is not None:
            zero = fields(b, zero_points, bits, zero_points.shape, scales.shape[-1])
    floats = data.dtype in dtypes.SMALL_FLOATS
    if floats and zero is not None:
        raise ops.TypeMismatch(f"a table of {data.dtype} has no zero points")
    refuse_bad_scale(b, scales, divides=False)
    operands = views(b, data, axis, block_size, scales, zero, shared=floats)
    table, place = dequantised(b, operands, scales.dtype), b.axis(gather_axis, data.rank)
    if place == axis:
        table = b.reshape(table, data.shape)
    behind = table.rank - data.rank if place > axis else 0  # of the blocks, which are an axis of the table
    found = _entries(b, table, place + behind, b.cast(indices, "int64"))
    return b.reshape(found, (*data.shape[:place], *indices.shape, *data.shape[place + 1 :]))


def _entries(b: Builder, table: Value, axis: int, indices: Value) -> Value:
    """Gather, but 0 where an index is outside."""
    size, gather = table.shape[axis], ops.Gather("axis", axis)
    if size == 0:
        return zeros(b, table.dtype, (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :]))
    low, high = value_range(indices)
    if isinstance(size, int) and -size <= low and high < size:
        return b.emit(gather, table, indices)[0]
    end = expr.size(size)
    places = b.map(indices, lambda i: i.maximum(-end).minimum(end - 1))
    own = b.reshape(indices, (*indices.shape, *(1,) * (table.rank - axis - 1)))
    found = b.emit(gather, table, places)[0]
    return b.map(found, own, lambda e, i: expr.where((i >= -end) & (i < end), e, 0))
