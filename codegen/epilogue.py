"""What happens to a tile of sums before it is done: the epilogue's Expr, and the store.

A cheap epilogue (a bias, a residual, a clip) runs on the accumulators in registers. Anything longer runs
as a loop over the tile just stored, which is still in the first-level cache: on the accumulators it would
need the registers that they occupy.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import dtypes, expr
from ..expr import Expr
from .emitter import Function, memory_type, vector_type
from .microkernel import Count, Tile, lanes_left, load_lanes, store_lanes


CHEAP = {
    "input", "const", "neg", "abs", "add", "sub", "mul", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "select",
    "cast", "wrap",
}
MOST_IN_REGISTERS = 6  # instructions


@dataclass(frozen=True)
class Operand:
    """An operand where a tile begins: `row` bytes lie between its rows (0: one row serves all); `along` says whether it has an
    element for every column or one for all."""

    pointer: str
    dtype: str
    row: int | str
    along: bool


@dataclass(frozen=True)
class Place:
    """Where a tile is stored: its first element, and the bytes from one row to the next."""

    pointer: str
    dtype: str
    row: int | str


def supported(body: Expr | None) -> bool:
    """Whether the epilogue depends on nothing but its operands: no index of the element, no check."""
    return body is None or not any(node.op in ("index", "check", "size") for node in expr.topological(body))


def in_registers(body: Expr | None) -> bool:
    if body is None:
        return True
    return expr.instructions(body) <= MOST_IN_REGISTERS and all(n.op in CHEAP for n in expr.topological(body))


def scratch_bytes(tile: Tile, body: Expr | None, result: str) -> int:
    """What `finish` needs of its own memory: a tile of sums, where they have another type than the result."""
    if in_registers(body) or result == tile.accumulate:
        return 0
    return tile.rows * tile.columns * dtypes.itemsize(tile.accumulate)


def finish(f: Function, tile: Tile, sums: Sequence[str], body: Expr | None, operands: Mapping[int, Operand], out: Place,
           columns: Count = None, scratch: str | None = None) -> None:
    """Stores body(sums, operands) as a tile of the output; only its first `columns` columns. `operands` are numbered as the
    body's inputs, from 1 on; `scratch` holds `scratch_bytes`."""
    size = dtypes.itemsize(out.dtype)

    def address(r: int | str, j: int) -> str:
        return f.offset(f.offset(out.pointer, f.mul(out.row, r)), j * tile.lanes * size)

    if in_registers(body):
        loaded: dict[tuple, str] = {}
        for r in range(tile.rows):
            for j in range(tile.vectors):
                count = lanes_left(f, tile, columns, j)
                if count != 0:
                    value = _apply(f, tile, sums[r * tile.vectors + j], body, operands, r, j, count, loaded)
                    _store(f, tile, out.dtype, value, address(r, j), count)
        return
    raw = out if scratch is None else Place(scratch, tile.accumulate, tile.columns * dtypes.itemsize(tile.accumulate))
    width = tile.lanes * dtypes.itemsize(tile.accumulate)
    counts = [lanes_left(f, tile, columns, j) for j in range(tile.vectors)]
    for r in range(tile.rows):
        for j, count in enumerate(counts):
            if count != 0:
                place = f.offset(f.offset(raw.pointer, f.mul(raw.row, r)), j * width)
                store_lanes(f, tile.accumulate, tile.lanes, sums[r * tile.vectors + j], place, count)
    with f.loop(0, tile.rows) as rows:
        loaded = {}
        for j, count in enumerate(counts):
            if count != 0:
                place = f.offset(f.offset(raw.pointer, f.mul(raw.row, rows.index)), j * width)
                total = load_lanes(f, tile.accumulate, tile.lanes, place, count)
                value = _apply(f, tile, total, body, operands, rows.index, j, count, loaded)
                _store(f, tile, out.dtype, value, address(rows.index, j), count)


def _apply(f: Function, tile: Tile, total: str, body: Expr | None, operands: Mapping[int, Operand], r: int | str, j: int,
           count: Count, loaded: dict[tuple, str]) -> str:
    """The body for the vector (r, j) of the tile; `loaded` keeps operands that several vectors share."""
    if body is None:
        return total
    values = {0: total}
    for index in expr.inputs(body):
        if index == 0:
            continue
        operand = operands[index]
        key = index, (0 if str(operand.row) == "0" else r), (j if operand.along else 0)
        if key not in loaded:
            loaded[key] = _load(f, tile, operand, r, j, count)
        values[index] = loaded[key]
    from .scalar import lower

    return lower(f, body, values, tile.lanes)


def _load(f: Function, tile: Tile, operand: Operand, r: int | str, j: int, count: Count) -> str:
    row = f.offset(operand.pointer, f.mul(operand.row, r))
    size = dtypes.itemsize(operand.dtype)
    if operand.along:
        value = load_lanes(f, operand.dtype, tile.lanes, f.offset(row, j * tile.lanes * size), count)
    else:
        value = f.broadcast(memory_type(operand.dtype), f.load(memory_type(operand.dtype), row, size), tile.lanes)
    if operand.dtype == "bool":
        value = f.value(f"icmp ne {vector_type('i8', tile.lanes)} {value}, {'0' if tile.lanes == 1 else 'zeroinitializer'}")
    return value


def _store(f: Function, tile: Tile, dtype: str, value: str, pointer: str, count: Count) -> None:
    if dtype == "bool":
        value = f.value(f"zext {vector_type('i1', tile.lanes)} {value} to {vector_type('i8', tile.lanes)}")
    store_lanes(f, dtype, tile.lanes, value, pointer, count)


