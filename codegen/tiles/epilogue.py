"""What happens to a tile of sums before it is done: the epilogue's Expr, and the store.

A cheap epilogue (a bias, a residual, a clip) runs on the accumulators in registers. A longer one runs as
a loop over the tile just stored to scratch memory, in the first-level cache: on the accumulators it would
need the registers that they occupy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from ...ir import dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node
from ...ir.ops import Contract, Conv
from ...ir.ranges import bound_of, bounds_in
from ...records import dataclass
from ..text.conversion import NARROW
from ..text.emitter import Function, memory_type, vector_type
from ..text.memory import Count, from_bits, load_first, store_first
from ..text.scalar import lower
from .microkernel import Tile, lanes_left

CHEAP = frozenset(
    (
        "input",
        "const",
        "size",
        "neg",
        "abs",
        "add",
        "sub",
        "mul",
        "min",
        "max",
        "select",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "cast",
        "round",
        "fma",
    )
)
MOST_IN_REGISTERS = 8  # instructions


@dataclass(frozen=True)
class Operand:
    """An operand where a tile begins: `row` bytes lie between its rows (0: one row serves all), and
    `along` says whether it has an element for every column or one for all."""

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


@dataclass(frozen=True)
class Epilogue:
    """The body (None: the sums themselves) with its operands, numbered from 1 on as its inputs are.
    `size` gives the code's word for a dimension. `bounds`: what no absolute value of some operands
    exceeds."""

    body: Expr | None
    operands: Mapping[int, Operand]
    size: Callable[[Dimension], str] | None = None
    bounds: Mapping[int, float] = field(default_factory=dict)


def bounds_of(node: Node[Conv] | Node[Contract]) -> dict[int, float]:
    """{input of the node's body: what no absolute value of it exceeds} of small constants."""
    constants = {i - 1: v.constant for i, v in enumerate(node.inputs) if i > 1 and v.constant is not None}
    bounds = bounds_in(node.op.epilogue)
    found = {i: bound_of(constant, bounds) for i, constant in constants.items()}
    return {i: bound for i, bound in found.items() if bound < math.inf}


def supported(body: Expr | None) -> bool:
    """Whether the body depends on nothing but operands and sizes: no element's index, no check."""
    return body is None or all(n.op not in ("index", "check") for n in expr.topological(body))


def in_registers(body: Expr | None) -> bool:
    """Whether an epilogue is applied to sums in registers: few instructions, none of them long."""
    if body is None:
        return True
    cheap = all(node.op in CHEAP or _by_constant(node) for node in expr.topological(body))
    return cheap and expr.instructions(body) <= MOST_IN_REGISTERS


def _by_constant(node: Expr) -> bool:
    """Whether node is a quotient by a constant, which takes two instructions."""
    return node.op == "div" and node.args[1].op == "const" and node.dtype == "float32"


def scratch_bytes(tile: Tile, body: Expr | None) -> int:
    """What `finish` needs as scratch: a tile of sums, where the body does not run in registers."""
    if in_registers(body):
        return 0
    return tile.rows * tile.columns * dtypes.itemsize(tile.accumulate)


def finish(
    f: Function,
    tile: Tile,
    sums: Sequence[str],
    epilogue: Epilogue,
    out: Place,
    columns: Count = None,
    scratch: str | None = None,
) -> None:
    """Stores body(sums, operands) as a tile of the output; only its first `columns` columns."""
    if in_registers(epilogue.body):
        finish_in_registers(f, tile, sums, epilogue, out, columns)
    else:
        raw = raw_place(tile, scratch)
        finish_in_registers(f, tile, sums, Epilogue(None, {}), raw, columns)
        finish_rows(f, tile, tile.rows, epilogue, raw, out, columns)


def raw_place(tile: Tile, scratch: str | None) -> Place:
    """Where sums wait for a body that does not run in registers: together, and not in rows of the result,
    which may be far apart and in one set of the cache."""
    if scratch is None:
        raise TypeError("sums wait for their epilogue, which needs scratch memory")
    return Place(scratch, tile.accumulate, tile.columns * dtypes.itemsize(tile.accumulate))


def finish_in_registers(
    f: Function, tile: Tile, sums: Sequence[str], epilogue: Epilogue, out: Place, columns: Count
) -> None:
    """Applies the epilogue to a tile's sums, as far as there are columns, and stores the results."""
    shared: dict[tuple, str] = {}
    for r in range(tile.rows):
        for j in range(tile.vectors):
            count = lanes_left(f, tile, columns, j)
            if count != 0:
                total = sums[r * tile.vectors + j]
                value = _apply(f, tile, total, epilogue, r, j, count, shared)
                _store(f, tile, value, out, r, j, count)


def finish_rows(
    f: Function, tile: Tile, rows: int | str, epilogue: Epilogue, raw: Place, out: Place, columns: Count
) -> None:
    """The body for `rows` rows of sums in memory; of the tile only the width matters."""
    with f.loop(0, rows) as loop:
        shared: dict[tuple, str] = {}
        for j in range(tile.vectors):
            count = lanes_left(f, tile, columns, j)
            if count != 0:
                place = _address(f, tile, raw, loop.index, j)
                total = load_first(f, raw.dtype, tile.lanes, place, count)
                value = _apply(f, tile, total, epilogue, loop.index, j, count, shared)
                _store(f, tile, value, out, loop.index, j, count)


def _address(f: Function, tile: Tile, place: Place, r: int | str, j: int) -> str:
    row = f.offset(place.pointer, f.mul(place.row, r))
    return f.offset(row, j * tile.lanes * dtypes.itemsize(place.dtype))


def _apply(
    f: Function,
    tile: Tile,
    total: str,
    epilogue: Epilogue,
    r: int | str,
    j: int,
    count: Count,
    shared: dict[tuple, str],
) -> str:
    """The body for vector (r, j) of the tile; `shared` keeps what several vectors read."""
    if epilogue.body is None:
        return total

    def operand(index: int) -> str:
        if index == 0:
            return total
        reads = epilogue.operands[index]
        key = index, (0 if str(reads.row) == "0" else r), (j if reads.along else 0)
        if key not in shared:
            shared[key] = _load(f, tile, reads, r, j, count)
        value = shared[key]
        return from_bits(f, reads.dtype, tile.lanes, value) if _held(reads.dtype) != reads.dtype else value

    (value,) = lower(f, [epilogue.body], operand, tile.lanes, epilogue.size, bounds=epilogue.bounds)
    return value


def _load(f: Function, tile: Tile, reads: Operand, r: int | str, j: int, count: Count) -> str:
    """Elements; of narrow floats and of bool their bits, since several vectors share them and a store under a
    mask may end a basic block."""
    row, size = f.offset(reads.pointer, f.mul(reads.row, r)), dtypes.itemsize(reads.dtype)
    held = _held(reads.dtype)
    if reads.along:
        return load_first(f, held, tile.lanes, f.offset(row, j * tile.lanes * size), count)
    kind = memory_type(held)
    return f.broadcast(kind, f.load(kind, row, size), tile.lanes)


def _held(dtype: str) -> str:
    """As what an operand's elements live between the vectors of a tile."""
    return f"uint{8 * dtypes.itemsize(dtype)}" if dtype in (*NARROW, "bool") else dtype


def _store(f: Function, tile: Tile, value: str, place: Place, r: int | str, j: int, count: Count) -> None:
    if place.dtype == "bool":
        condition, byte = (vector_type(kind, tile.lanes) for kind in ("i1", "i8"))
        value = f.cast("zext", value, byte, condition)
    store_first(f, place.dtype, tile.lanes, value, _address(f, tile, place, r, j), count)
