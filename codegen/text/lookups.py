"""Tables that are looked up by vectors of bytes: `expr.lookup` as instructions.

    row k of the table = its entries k n .. k n + n - 1, as many as one instruction finds (`Target.lookup`)
All rows are asked for the lower bits of the number; its higher bits choose between two rows, again and again.
Of elements of several bytes each byte has a table of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ...ir import dtypes
from .emitter import Function, Reg, vector_constant, vector_type
from .memory import from_bits
from .vectors import Vectors


def lookup(v: Vectors, codes: str, table: bytes) -> str:
    """The elements of type v.dtype that a table holds for `codes`, a vector of i8 of which as many bits count
    as it has entries for."""
    size, table = dtypes.itemsize(v.dtype), _whole_bytes(v.dtype, table)
    count = len(table) // size
    if v.lanes == 1:
        return _element(v, codes, table, count)
    f, width = v.f, v.f.target.vector_bits // 8
    if v.lanes > width:
        half, bytes_ = Vectors(f, v.dtype, v.lanes // 2), v.of("uint8")
        return v.joined(*(lookup(half, bytes_.part(k, codes), table) for k in (0, 1)))
    codes = _sized(f, codes, v.lanes, width)
    planes = [_bytes(f, codes, table[k::size]) for k in range(size)]
    planes = [_sized(f, plane, width, v.lanes) for plane in planes]
    if size == 1:
        return from_bits(f, v.dtype, v.lanes, planes[0])
    words = v.of(f"uint{8 * size}")
    total, *others = (f.cast("zext", plane, words.type, vector_type("i8", v.lanes)) for plane in planes)
    for k, plane in enumerate(others, 1):
        total = words.bit_or(total, words.shift_left(plane, 8 * k))
    return from_bits(f, v.dtype, v.lanes, total)


def _whole_bytes(dtype: str, table: bytes) -> bytes:
    """The table with integers of fewer bits than their byte as they are computed: all its bits are theirs."""
    if not dtypes.is_integer(dtype) or dtypes.bits(dtype) >= 8:
        return table
    numbers = np.frombuffer(table, np.uint8).view(dtypes.numpy_dtype(dtype))
    return numbers.astype(np.int8 if dtypes.is_signed(dtype) else np.uint8).tobytes()


def _element(v: Vectors, code: str, table: bytes, count: int) -> str:
    """The same of one element: an array in memory."""
    f, size = v.f, dtypes.itemsize(v.dtype)
    word = f"i{8 * size}"
    values = [int.from_bytes(table[k : k + size], "little") for k in range(0, len(table), size)]
    name = f.text.table(word, list(map(str, values)), f"table_{hashlib.blake2s(table).hexdigest()[:16]}")
    place = f.binary("and", f.cast("zext", code, "i64", "i8"), count - 1)
    found = f.load(word, f.value(f"getelementptr {word}, ptr {name}, i64 {place}", "ptr"))
    return from_bits(f, v.dtype, 1, found)


def _sized(f: Function, x: str, have: int, want: int) -> str:
    """The first lanes of a vector of i8, or more lanes of any value."""
    if have == want:
        return x
    return f.shuffle(x, "poison", [k if k < have else None for k in range(want)], vector_type("i8", have))


def _bytes(f: Function, codes: str, table: bytes) -> str:
    """A whole register of bytes looked up."""
    unit, width = f.target.lookup, f.target.vector_bits // 8
    vectors = Vectors(f, "uint8", width)
    rows = [table[k : k + unit.entries] for k in range(0, len(table), unit.entries)]
    within = vectors.bit_and(codes, vectors.constant(min(len(table), unit.entries) - 1))
    found: list[str] = [_row(f, within, row) for row in rows]
    bit = unit.entries
    while len(found) > 1:
        zero = vectors.compare("eq", vectors.bit_and(codes, vectors.constant(bit)), vectors.constant(0))
        found = [vectors.select(zero, low, high) for low, high in zip(found[::2], found[1::2])]
        bit *= 2
    return found[0]


def _row(f: Function, numbers: str, row: bytes) -> Reg:
    """The entries of one row, which is repeated where a register holds more."""
    unit, width = f.target.lookup, f.target.vector_bits // 8
    register = vector_type("i8", width)
    row = row * (unit.entries // len(row))
    share = unit.entries // unit.registers
    parts = [row[k : k + share] * (width // share) for k in range(0, unit.entries, share)]
    operands: Sequence[str] = [vector_constant("i8", list(part)) for part in parts]
    if unit.between:
        operands = [operands[0], numbers, *operands[1:]]
    else:
        operands = [*operands, numbers]
    name = f.text.declare(unit.intrinsic, register, [register] * len(operands))
    return f.call(register, name, *(f"{register} {x}" for x in operands))
