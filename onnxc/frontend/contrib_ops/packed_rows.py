"""GatherPacked: rows of an embedding table in the formats of GGML, numbered as there. Rows are gathered as
the bytes that they are, and these decoded.

https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops.common import element_type, generate
from ..rules import Types
from .schema import contrib_op

Packed = Annotated[Value, Types.of("T1", "uint8")]
Indices = Annotated[Value, Types.of("Tind", "int32", "int64")]


class Blocks(NamedTuple):
    """Blocks of bytes, [rows, blocks, bytes], as its decoder reads them."""

    b: Builder
    bytes: Value

    def part(self, at: int, *shape: int) -> Value:
        """uint8 [rows, blocks, *shape]: the bytes of each block from `at` on."""
        found = self.b.take(self.bytes, 2, at, int(np.prod(shape)))
        return self.b.reshape(found, (*found.shape[:2], *shape))

    def word(self, at: int, rank: int) -> Value:
        """uint16 [rows, blocks, 1, ...] with `rank` axes: that of two bytes."""
        low, high = (self.part(at + k, *(1,) * (rank - 2)) for k in range(2))
        return self.b.map(low, high, lambda x, y: x.cast("uint16") | (y.cast("uint16") << 8))

    def half(self, at: int, rank: int) -> Value:
        """The same two bytes as a float16, in float32."""
        return self.b.map(self.word(at, rank), lambda e: expr.bitcast(e, "float16").cast("float32"))

    def decoded(self, body: Expr, *operands: Value) -> Value:
        """body of operands that broadcast, [rows, blocks, numbers]."""
        shape = operands[0].shape
        for x in operands[1:]:
            shape = ops.broadcast_shapes(shape, x.shape)
        return self.b.reshape(generate(self.b, shape, body, *operands), (*shape[:2], dims.product(shape[2:])))


def _byte(operand: int) -> Expr:
    return expr.input_(operand, "uint8").cast("int32")


def _number(operand: int) -> Expr:
    return expr.input_(operand, "float32")


def _nth(axis: int) -> Expr:
    return expr.index(axis).cast("int32")


def _halves(x: Blocks, at: int) -> Value:
    """[rows, blocks, 2, 16] of 16 bytes: their low four bits, then their high ones."""
    parts = x.part(at, 1, 16)
    shape = (*parts.shape[:2], 2, 16)
    return generate(x.b, shape, ((_byte(0) >> (_nth(2) * 4)) & 15).cast("uint8"), parts)


def _f32(x: Blocks) -> Value:
    words = x.part(0, 1, 4)
    shifted = generate(x.b, words.shape, _byte(0).cast("uint32") << (_nth(3) * 8).cast("uint32"), words)
    bits = x.b.reduce("sum", shifted, [3])
    return x.b.map(bits, lambda e: expr.bitcast(e, "float32"))


def _f16(x: Blocks) -> Value:
    return x.half(0, 3)


def _bf16(x: Blocks) -> Value:
    return x.b.map(x.word(0, 3), lambda e: expr.bitcast(e, "bfloat16").cast("float32"))


def _q4_0(x: Blocks) -> Value:
    return x.decoded((_byte(0) - 8).cast("float32") * _number(1), _halves(x, 2), x.half(0, 4))


def _q5_0(x: Blocks) -> Value:
    """The fifth bits of all numbers follow the scale."""
    fifth = (_byte(1) >> (_nth(3) & 7)) & 1
    high = x.b.broadcast(x.part(2, 2, 2, 1), (*x.bytes.shape[:2], 2, 2, 8))
    high = x.b.reshape(high, (*high.shape[:2], 2, 16))
    code = _byte(0) | (fifth << 4)
    return x.decoded((code - 16).cast("float32") * _number(2), _halves(x, 6), high, x.half(0, 4))


def _q8_0(x: Blocks) -> Value:
    code = expr.bitcast(expr.input_(0, "uint8"), "int8")
    return x.decoded(code.cast("float32") * _number(1), x.part(2, 32), x.half(0, 3))


def _q2_0(x: Blocks) -> Value:
    code = (_byte(0) >> (_nth(3) * 2)) & 3
    codes = generate(x.b, (*x.bytes.shape[:2], 16, 4), code.cast("uint8"), x.part(2, 16, 1))
    return x.decoded((_byte(0) - 1).cast("float32") * _number(1), codes, x.half(0, 4))


def _q5_k(x: Blocks) -> Value:
    """8 parts of 32 with scales and minima of 6 bits: in bytes 4 to 11 the first four of each, whose highest
    two bits complete the last four in bytes 12 to 15."""
    first, minima, last = (x.part(at, 4) for at in (4, 8, 12))

    def both(whole: Value, shift: int) -> Value:
        parts = [
            x.b.map(whole, lambda e: e & 63),
            x.b.map(last, whole, lambda e, w: ((e >> shift) & 15) | ((w >> 6) << 4)),
        ]
        found = x.b.concat(parts, 2)
        return x.b.reshape(found, (*found.shape[:2], 4, 2, 1))

    code = ((_byte(0) >> (_nth(3) * 4)) & 15) | (((_byte(1) >> (_nth(2) * 2 + _nth(3))) & 1) << 4)
    scale, least = _number(4) * _byte(2).cast("float32"), _number(5) * _byte(3).cast("float32")
    operands = [x.part(48, 4, 1, 32), x.part(16, 1, 1, 32), both(first, 0), both(minima, 4)]
    return x.decoded(scale * code.cast("float32") - least, *operands, x.half(0, 5), x.half(2, 5))


def _q6_k(x: Blocks) -> Value:
    """Two halves of four quarters of 32, which share bytes; a scale for each 16."""
    code = ((_byte(0) >> (_nth(3) * 4)) & 15) | (((_byte(1) >> (_nth(3) * 4 + _nth(4) * 2)) & 3) << 4)
    scale = _number(3) * expr.bitcast(expr.input_(2, "uint8"), "int8").cast("float32")
    operands = [x.part(0, 2, 1, 2, 2, 16), x.part(128, 2, 1, 1, 2, 16), x.part(192, 2, 2, 2, 2, 1)]
    return x.decoded(scale * (code - 32).cast("float32"), *operands, x.half(208, 7))


#: What the four bits of the formats IQ4_* stand for.
_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _uneven(operand: int) -> Expr:
    table = np.array(_UNEVEN, np.float32).tobytes()
    return expr.lookup(expr.input_(operand, "uint8").cast("uint4"), "float32", table)


def _iq4_nl(x: Blocks) -> Value:
    return x.decoded(_uneven(0) * _number(1), _halves(x, 2), x.half(0, 4))


def _iq4_xs(x: Blocks) -> Value:
    """8 parts of 32, whose scales have 4 bits in one place and 2 in another."""
    low, high = x.part(4, 4, 1), x.word(2, 4)
    above = (expr.input_(1, "uint16").cast("int32") >> ((_nth(2) * 2 + _nth(3)) * 2)) & 3
    scale = ((_byte(0) >> (_nth(3) * 4)) & 15) | (above << 4)
    scales = generate(x.b, (*low.shape[:2], 4, 2), scale.cast("uint8"), low, high)
    scales = x.b.reshape(scales, (*low.shape[:2], 8, 1, 1))
    bytes_ = x.part(8, 8, 1, 16)
    codes = generate(
        x.b, (*bytes_.shape[:3], 2, 16), ((_byte(0) >> (_nth(3) * 4)) & 15).cast("uint8"), bytes_
    )
    body = _number(2) * (_byte(1) - 32).cast("float32") * _uneven(0)
    return x.decoded(body, codes, scales, x.half(0, 5))


class Format(NamedTuple):
    """numbers: how many a block has. bytes: how many it takes."""

    numbers: int
    bytes: int
    decode: Callable[[Blocks], Value]


_FORMATS = {
    0: Format(1, 4, _f32),
    1: Format(1, 2, _f16),
    2: Format(32, 18, _q4_0),
    6: Format(32, 22, _q5_0),
    8: Format(32, 34, _q8_0),
    13: Format(256, 176, _q5_k),
    14: Format(256, 210, _q6_k),
    20: Format(32, 18, _iq4_nl),
    23: Format(256, 136, _iq4_xs),
    30: Format(1, 2, _bf16),
    42: Format(64, 18, _q2_0),
}


@contrib_op(outputs="output", ranks={"data": 2})
def GatherPacked(b, data: Packed, indices: Indices, *, K: int, output_dtype=16, packed_type: int):
    """Rows of K numbers; an index outside the table is that of the first row."""
    form = _FORMATS.get(packed_type)
    if form is None:
        raise UnsupportedError(
            f"the packed format {packed_type}", "pack the table as Q4_0, Q5_K, Q6_K or Q8_0"
        )
    if data.rank != 2 or K < 1 or K % form.numbers:
        raise ops.TypeMismatch(f"{data.type} are no rows of {K} numbers in blocks of {form.numbers}")
    blocks = K // form.numbers
    if dims.equal(data.shape[1], blocks * form.bytes) is False:
        raise ops.TypeMismatch(f"{data.type} are no rows of {blocks} blocks of {form.bytes} bytes")
    count: Dimension = indices.tensor.count
    known = expr.input_(0, "int64")
    place = expr.where((known >= 0) & (known < expr.size(data.shape[0])), known, 0)
    rows = generate(b, (count,), place, b.reshape(b.cast(indices, "int64"), (count,)))
    found = b.reshape(b.emit(ops.Gather("axis"), data, rows)[0], (count, blocks, form.bytes))
    wide = b.reshape(form.decode(Blocks(b, found)), (*indices.shape, K))
    return b.cast(wide, element_type(output_dtype, "output_dtype"))
