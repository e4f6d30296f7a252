"""The register tile on registers that hold matrices: what `microkernel.py` is on vectors.

                         rhs 6     rhs 7       panel [depth / group][vectors][columns][group]
    lhs 4  [16 rows] ──▶ sums 0    sums 1
    lhs 5  [16 rows] ──▶ sums 2    sums 3      up to 32 rows x 32 columns
A step takes 64 bytes of every row: 64 bytes or 32 bfloat16s. Sums leave the registers through memory, where
epilogues read them. How many rows the registers have is set by the run, so that one function does tiles of
any height. Operands are whole steps long: who packs them puts zeros behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...records import dataclass
from ...target import (
    LINE,
    MATRIX_LOAD,
    MATRIX_RELEASE,
    MATRIX_SIZES,
    MATRIX_STORE,
    MATRIX_ZERO,
    Matrix,
    Target,
)
from ..text.emitter import Function
from .panel_operand import Ahead

STEP_BYTES = 64  # of every row, in a step
HIGH, WIDE = 2, 2  # registers of rows and of columns that a tile has at most
_LHS, _RHS = HIGH * WIDE, HIGH * WIDE + HIGH  # the numbers of the operands' registers

#: What the processor is told of its registers: 16 bytes, the first one the number of this form, then the
#: bytes of a row of each, in 2 bytes, then the rows of each, in one.
_SIZES_BYTES, _ROW_BYTES, _ROWS = 64, 16, 48


Writer = Callable[[], None]  # of some instructions


def image_blocks(target: Target, dtype: str) -> list[int]:
    """Channels that a block of an image of such numbers may have, most first: as many as matrix registers
    multiply in a step, where a panel of theirs has as many, and the target's."""
    steps = {m.depth for m in target.matrices if m.lhs == dtype and m.depth == WIDE * m.columns}
    return sorted({target.block, *steps}, reverse=True)


@dataclass(frozen=True)
class MatrixTile:
    """Up to `high` registers of rows x `vectors` registers of columns of sums."""

    unit: Matrix
    vectors: int
    high: int = HIGH

    @property
    def rows(self) -> int:
        """At most."""
        return self.high * self.unit.rows

    @property
    def columns(self) -> int:
        return self.vectors * self.unit.columns

    @property
    def line(self) -> int:
        """Bytes of a panel that a group of k takes, for all columns."""
        return self.vectors * self.unit.row_bytes

    @property
    def panel_step(self) -> int:
        """Bytes of a panel that a step takes."""
        return self.unit.depth // self.unit.group * self.line


def bytes_ahead(tile: MatrixTile, tiles: int) -> int:
    """The bytes that each of `tiles` tiles of a panel fetches in a step, so that together they fetch one."""
    return -(-tile.panel_step // LINE // max(1, tiles)) * LINE


def set_rows(f: Function, unit: Matrix, rows: int | str) -> None:
    """Gives the registers sizes for tiles of so many rows, 1 to 32; what they held is lost. The first
    register of rows is filled first."""
    set_heights(f, unit, f.minimum(rows, unit.rows), f.maximum(f.sub(rows, unit.rows), 1))


def set_heights(f: Function, unit: Matrix, upper: int | str, lower: int | str) -> None:
    """The same with the rows of each register of rows; one has a row at least, used or not."""
    memory = f.hoisted(f"alloca [{_SIZES_BYTES} x i8], align {_SIZES_BYTES}", "ptr")
    f.store("<64 x i8>", "zeroinitializer", memory, _SIZES_BYTES)
    f.store("i8", "1", memory)
    row_bytes = f"splat (i16 {unit.row_bytes})"
    f.store(f"<{unit.registers} x i16>", row_bytes, f.offset(memory, _ROW_BYTES))
    sizes = [upper] * WIDE + [lower] * WIDE + [upper, lower] + [unit.row_bytes // 4] * WIDE
    for register, count in enumerate(sizes):
        place = f.offset(memory, _ROWS + register)
        value = str(count) if str(count).isdigit() else f.cast("trunc", str(count), "i8", "i64")
        f.store("i8", value, place)
    f.run(f.text.declare(MATRIX_SIZES, "void", ["ptr"]), f"ptr {memory}")


def release(f: Function) -> None:
    """Gives the registers back: the system need not save them when threads change places."""
    f.run(f.text.declare(MATRIX_RELEASE, "void", []))


def clear(f: Function, tile: MatrixTile) -> None:
    """Sums begin with zero."""
    zero = f.text.declare(MATRIX_ZERO, "void", ["i8"])
    for i in range(tile.high):
        for j in range(tile.vectors):
            f.run(zero, f"i8 {i * WIDE + j}")


def start(f: Function, tile: MatrixTile, row: str) -> None:
    """The sums of every row begin with what is there: a row of sums."""
    for i in range(tile.high):
        for j in range(tile.vectors):
            _load(f, i * WIDE + j, f.offset(row, j * tile.unit.row_bytes), 0)


def load_sums(f: Function, tile: MatrixTile, pointers: Sequence[str], row: int | str) -> None:
    """The sums are what `store` stored."""
    for i, pointer in enumerate(pointers):
        for j in range(tile.vectors):
            _load(f, i * WIDE + j, f.offset(pointer, j * tile.unit.row_bytes), row)


def clear_or_load(f: Function, tile: MatrixTile, first: str, pointers: Sequence[str], row: int | str) -> None:
    """Sums begin with zero where these are the `first` that are added up, else with what `store` stored."""
    with f.when(first):
        clear(f, tile)
    with f.when(f.invert(first)):
        load_sums(f, tile, pointers, row)


def multiply_add(
    f: Function,
    tile: MatrixTile,
    lhs: Sequence[str],
    row: int | str,
    step: int | str,
    panel: str,
    steps: int | str,
    ahead: Ahead | None = None,
) -> tuple[str, Ahead | None]:
    """Adds the products of `steps` steps of k to the sums; returns where the panel, and what is ahead, go on.
    lhs: for each register of rows the address of its first row; the rows lie `row` bytes apart, the next step
    `step` bytes on."""
    fetched = [ahead.pointer] if ahead is not None else []
    pointers = [*fetched, *lhs, panel]
    with f.loop(0, steps, 1, [("ptr", p) for p in pointers]) as loop:
        *a, b = loop.carried[len(fetched) :]
        load_operands(f, tile, a, row, b)
        moved = []
        if ahead is not None:
            here = replace(ahead, pointer=loop.carried[0])
            here.fetch(f)
            moved = [here.after(f, 1).pointer]
        add_products(f, tile)
        loop.carry(*moved, *(f.offset(p, step) for p in a), f.offset(b, tile.panel_step))
    return loop.results[-1], ahead and replace(ahead, pointer=loop.results[0])


def load_operands(f: Function, tile: MatrixTile, lhs: Sequence[str], row: int | str, panel: str) -> None:
    """What one step multiplies."""
    load_columns(f, tile, panel)
    load_rows(f, lhs, row)


def load_columns(f: Function, tile: MatrixTile, panel: str) -> None:
    """A step of a panel, into the registers of columns."""
    for j in range(tile.vectors):
        _load(f, _RHS + j, f.offset(panel, j * tile.unit.row_bytes), tile.line)


def load_rows(f: Function, lhs: Sequence[str], row: int | str) -> None:
    """A step of rows, which lie `row` bytes apart, into the registers of rows."""
    for i, pointer in enumerate(lhs):
        _load(f, _LHS + i, pointer, row)


def add_products(f: Function, tile: MatrixTile, others: Sequence[Writer] = ()) -> None:
    """Adds the products of what was loaded to the sums. `others` write what vectors do meanwhile, a share of
    it behind every product."""
    product = f.text.declare(tile.unit.intrinsic, "void", ["i8"] * 3)
    places = [(i, j) for i in range(tile.high) for j in range(tile.vectors)]
    for (i, j), share in zip(places, shares(others, len(places))):
        f.run(product, f"i8 {i * WIDE + j}", f"i8 {_LHS + i}", f"i8 {_RHS + j}")
        for write in share:
            write()


def shares(others: Sequence[Writer], count: int) -> list[Sequence[Writer]]:
    """In so many parts, about equal."""
    return [others[len(others) * k // count : len(others) * (k + 1) // count] for k in range(count)]


def store(f: Function, tile: MatrixTile, pointers: Sequence[str], row: int | str) -> None:
    """The sums as [rows][columns] in memory, rows `row` bytes apart; `pointers`: the first row of each
    register of rows."""
    function = f.text.declare(MATRIX_STORE, "void", ["i8", "ptr", "i64"])
    for i, pointer in enumerate(pointers):
        for j in range(tile.vectors):
            at = f.offset(pointer, j * tile.unit.row_bytes)
            f.run(function, f"i8 {i * WIDE + j}", f"ptr {at}", f"i64 {row}")


def _load(f: Function, register: int, pointer: str, row: int | str) -> None:
    function = f.text.declare(MATRIX_LOAD, "void", ["i8", "ptr", "i64"])
    f.run(function, f"i8 {register}", f"ptr {pointer}", f"i64 {row}")
