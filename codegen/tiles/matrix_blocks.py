"""How convolutions on registers that hold matrices cut a plane: blocks of lines, and tiles of these.

    line 0   1 1 1 1 1 2 2 2 · ·    Sums of a block wait together for the epilogue. Where windows move by
    line 1   2 2 3 3 3 3 3 4 · ·    single pixels, its tiles (1, 2, 3 ...) are cut from one run of positions,
    line 2   4 4 4 4 5 5 5 5 · ·    what lies between lines (·) included; else from one line after the other.

Planes of known sizes are cut when compiling. Of others, and of those whose lines are too long to wait, the
run tells the rows of a tile, and long lines wait in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

from ...ir import dims
from ...ir.dims import Dimension
from ...records import dataclass
from ...target import Matrix
from ..kernel import KernelFunction
from . import matrix
from .blocked import equal_width
from .lines import Lines

MOST_POSITIONS = 128  # whose sums wait together, where lines are not longer
LONGEST_LINE = 512  # that waits whole

Place = tuple[str | int, str | int]  # a line of a block, and a column
Tile = Callable[[list[Place], str], None]  # (where each register of rows begins, number of the tile)


@dataclass(frozen=True)
class Plane:
    """Results [height][width], lines `pitch` positions apart; `run`: whether several lines are one run."""

    height: Dimension
    width: Dimension
    pitch: Dimension
    run: bool

    def apart(self, f: KernelFunction, columns: str) -> str:
        """Sums from one line of a block of so many columns to the next."""
        return f.size(self.pitch) if self.run else columns


@dataclass(frozen=True)
class Block:
    """Some lines from `first` on, and of these the columns from `column` on. words: what the function of a
    block is told besides."""

    number: str
    first: str
    lines: str
    column: str
    words: tuple[str, ...] = ()


Cutter = Callable[[tuple[str, str]], AbstractContextManager[Block]]  # of the chunk of lines first..last-1


def blocks_of(unit: Matrix, plane: Plane, chunks: Lines, together: int) -> KnownBlocks | OpenBlocks:
    """Blocks of about `together` lines of chunks of a plane."""
    if is_known(plane.height, plane.width):
        return KnownBlocks(unit, plane, chunks, together)
    return OpenBlocks(unit, plane, chunks, together)


def is_known(height: Dimension, width: Dimension) -> bool:
    """Whether a plane is cut when compiling."""
    return isinstance(height, int) and isinstance(width, int) and width <= LONGEST_LINE


def heights(positions: int, unit: Matrix) -> tuple[int, ...]:
    """The rows of each register with which as few tiles as possible cover the positions."""
    rows = equal_width(positions, matrix.HIGH * unit.rows)
    return (rows,) if rows <= unit.rows else (unit.rows, rows - unit.rows)


@dataclass(frozen=True)
class KnownBlocks:
    """Blocks whose tiles all have the same rows."""

    unit: Matrix
    plane: Plane
    chunks: Lines
    together: int

    #: What the function of a block is told besides.
    parameters = ()

    @property
    def height(self) -> int:
        return dims.number(self.plane.height)

    @property
    def width(self) -> int:
        return dims.number(self.plane.width)

    @property
    def columns(self) -> str:
        """Of a block."""
        return str(self.width)

    @property
    def _short(self) -> bool:
        """Whether a register holds a line, and a tile some lines."""
        return not self.plane.run and self.width <= self.unit.rows

    def _positions(self, lines: int) -> int:
        return (lines - 1) * dims.number(self.plane.pitch) + self.width

    @cached_property
    def _lines(self) -> tuple[int, int]:
        """The fewest and the most lines of a block: chunks are cut into equal ones."""
        each, count = self.chunks.each, dims.number(self.chunks.count)
        chunks = {self.height - (count - 1) * each, each} if count > 1 else {self.height}
        blocks = {length: -(-length // self.together) for length in chunks}
        return min(a // b for a, b in blocks.items()), max(-(-a // b) for a, b in blocks.items())

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """The rows of the registers of a tile."""
        fewest, most = self._lines
        if self.plane.run:
            rows = equal_width(self._positions(most), matrix.HIGH * self.unit.rows)
            return heights(min(rows, self._positions(fewest)), self.unit)
        if self._short:
            return (self.width,) * min(fewest, matrix.HIGH)
        return heights(self.width, self.unit)

    @property
    def high(self) -> int:
        """Registers of rows of a tile."""
        return len(self.heights)

    @property
    def positions(self) -> int:
        """Whose sums wait, at most."""
        return self._positions(self.together)

    @property
    def tiles(self) -> int:
        """Of a block, at most."""
        most = self._lines[1]
        if self.plane.run:
            return -(-self._positions(most) // sum(self.heights))
        if self._short:
            return -(-most // self.high)
        return most * -(-self.width // sum(self.heights))

    def begin(self, f: KernelFunction) -> Cutter:
        """Before all parts of a call: what goes through the blocks of a chunk."""
        upper, *lower = self.heights
        matrix.set_heights(f, self.unit, upper, lower[0] if lower else 1)

        @contextmanager
        def each(lines: tuple[str, str]) -> Iterator[Block]:
            with _Cut(f, lines, self.together).each(f) as (number, first, count):
                yield Block(number, first, count, "0")

        return each

    def emit_tiles(self, f: KernelFunction, tile: Tile) -> None:
        """The tiles of the %lines lines of a block, the last two of each run overlapping."""
        if not self._short:
            registers = [k * self.unit.rows for k in range(self.high)]
            _emit_runs(f, self.plane, self.columns, sum(self.heights), registers, tile)
            return
        with f.loop(0, _rounded_up(f, "%lines", self.high)) as loop:
            first = f.minimum(f.mul(loop.index, self.high), f.sub("%lines", self.high))
            tile([(f.add(first, k), 0) for k in range(self.high)], loop.index)


@dataclass(frozen=True)
class OpenBlocks:
    """Blocks of as many lines as MOST_POSITIONS have room for, or of a piece of one. Their tiles have %rows
    rows; where one register holds them the other has the last row once more."""

    unit: Matrix
    plane: Plane
    chunks: Lines
    together: int

    parameters = ("i64 %columns", "i64 %rows")
    columns = "%columns"
    high = matrix.HIGH
    positions = MOST_POSITIONS

    @property
    def tiles(self) -> int:
        """Of a block, about."""
        lines = self.together * dims.typical(self.plane.width)
        return -(-min(lines, MOST_POSITIONS) // (matrix.HIGH * self.unit.rows))

    def begin(self, f: KernelFunction) -> Cutter:
        """Before all parts of a call: what goes through the blocks of a chunk. It tells registers how many
        rows tiles have where that is another number than before."""
        width, most = f.size(self.plane.width), self._together(f)
        pieces = f.maximum(_rounded_up(f, width, MOST_POSITIONS), 1)
        known = f.hoisted("alloca i64, align 8", "ptr")
        f.store("i64", "0", known, 8)

        @contextmanager
        def each(lines: tuple[str, str]) -> Iterator[Block]:
            cut = _Cut(f, lines, most)
            rows = self._rows(f, cut, pieces)
            with f.when(f.compare("ne", rows, f.load("i64", known, 8), "i64")):
                matrix.set_rows(f, self.unit, rows)
                f.store("i64", rows, known, 8)
            with cut.each(f) as (number, first, count), f.loop(0, pieces) as piece:
                edges = (piece.index, f.add(piece.index, 1))
                column, behind = (f.divide(f.mul(n, width), pieces)[0] for n in edges)
                words = f"i64 {f.sub(behind, column)}", f"i64 {rows}"
                yield Block(f.add(f.mul(number, pieces), piece.index), first, count, column, words)

        return each

    def _together(self, f: KernelFunction) -> str:
        """The lines of a block, at most."""
        width, pitch = (f.size(size) for size in (self.plane.width, self.plane.pitch))
        room = f.maximum(f.sub(MOST_POSITIONS, width), 0)
        return f.add(f.divide(room, f.maximum(pitch, 1))[0], 1)

    def _rows(self, f: KernelFunction, cut: _Cut, pieces: str) -> str:
        """The rows of a tile: such that few cover the most positions of a block, and no more than the
        fewest."""
        width = f.size(self.plane.width)
        fewest, most = f.divide(width, pieces)[0], _rounded_up(f, width, pieces)
        if self.plane.run:
            pitch = f.size(self.plane.pitch)
            low, high = (f.sub(lines, 1) for lines in (cut.low, f.add(cut.low, cut.is_more(f, "0"))))
            fewest, most = (f.add(f.mul(n, pitch), end) for n, end in ((low, fewest), (high, most)))
        tiles = f.maximum(_rounded_up(f, most, matrix.HIGH * self.unit.rows), 1)
        return f.maximum(f.minimum(_rounded_up(f, most, tiles), fewest), 1)

    def emit_tiles(self, f: KernelFunction, tile: Tile) -> None:
        """The tiles of the %lines lines of a block, the last two of each run overlapping."""
        registers: list[str | int] = [0, f.minimum(self.unit.rows, f.sub("%rows", 1))]
        _emit_runs(f, self.plane, self.columns, "%rows", registers, tile)


class _Cut:
    """Lines first..last-1 in as few blocks of at most `most` lines as there can be, nearly equal ones."""

    def __init__(self, f: KernelFunction, lines: tuple[str, str], most: str | int):
        self.first, length = lines[0], f.sub(lines[1], lines[0])
        self.count = _rounded_up(f, length, most)
        low, more = f.divide(length, f.maximum(self.count, 1))
        self.low, self.more = low, more  # the first `more` blocks have a line more

    def is_more(self, f: KernelFunction, number: str) -> str:
        """1 where a block has a line more, else 0."""
        return f.cast("zext", f.compare("slt", number, self.more), "i64")

    @contextmanager
    def each(self, f: KernelFunction) -> Iterator[tuple[str, str, str]]:
        """Goes through (number of a block, first line, lines)."""
        with f.loop(0, self.count) as loop:
            first = f.add(f.add(self.first, f.mul(loop.index, self.low)), f.minimum(loop.index, self.more))
            yield loop.index, first, f.add(self.low, self.is_more(f, loop.index))


def _rounded_up(f: KernelFunction, a: str | int, b: str | int) -> str:
    """a / b, upwards."""
    return f.divide(f.add(a, f.sub(b, 1)), b)[0]


def _emit_runs(
    f: KernelFunction, plane: Plane, columns: str, rows: str | int, registers: Sequence[str | int], tile: Tile
) -> None:
    """Tiles of so many rows over the run of a block's positions, or over one of each line. registers: the
    rows of a tile with which they begin."""

    def run(line: str | int, count: str) -> None:
        with f.loop(0, _rounded_up(f, count, rows)) as loop:
            first = f.minimum(f.mul(loop.index, rows), f.sub(count, rows))
            tile([(line, f.add(first, at)) for at in registers], loop.index)

    if plane.run:
        run(0, f.add(f.mul(f.sub("%lines", 1), f.size(plane.pitch)), columns))
        return
    with f.loop(0, "%lines") as line:
        run(line.index, columns)
