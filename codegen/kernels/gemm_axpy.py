"""Matrix products of few rows with a B that is computed and lies along n, larger than one panel is wide: B is
read once, in the order of memory, as in BLAS' axpy, for all rows at a time. In panels a tile would go down
columns of B, whose rows are far apart: each step of k begins anew in memory, on another page as a rule, and
lines of the cache that two panels share are read twice.

      n →  pieces of `width` columns, a thread's one after the other
      ┌──────────┬─────┐
   k  │ b0       │     │   some rows of B at a time: to the sums of row m of A, which wait in scratch memory
   ↓  │ b1       │     │   near, the vector a[m, 0] * b0 + a[m, 1] * b1 + ... is added
      ├──────────┼─────┤
      └──────────┴─────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...ir.ops import Contract
from ...target import LINE, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelText, Offer, Step, as_it_is, offered
from ..text.emitter import ENTRY, Function, Text, scalar_type
from ..text.memory import Count, load_first
from ..text.vectors import Vectors
from ..tiles import epilogue as epilogues
from ..tiles import gemm_tiling
from ..tiles import microkernel as mk
from ..tiles.contraction import A, B, Product, contraction_of, product_of, tiled_product
from ..tiles.gemm_tiling import Tiling
from ..tiles.lines import Lines, cut_lines, joined
from ..tiles.panel_operand import load_widened, widened
from .gemm import Gemm

MOST_ROWS = 4  # of A
STEPS = 4  # rows of B at a time, fewer where their factors do not fit in the registers
PART = 1024  # bytes of a row of sums at least, which a part has


# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    contraction = contraction_of(node)
    product = None if contraction is None else tiled_product(contraction)
    if contraction is None or product is None or not fits(product, target):
        return
    tiling = tiling_of(product, target)
    yield Offer(estimate(contraction, product, tiling, target), tiling)


def fits(product: Product, target: Target) -> bool:
    """Whether rows are few, and those of B longer than a panel and can be read where they lie."""
    m, lanes = product.m.size, target.lanes(product.accumulate)
    few = isinstance(m, int) and 0 < m <= MOST_ROWS and len(product.k) == 1
    long = dims.typical(product.n.size) > gemm_tiling.MOST_VECTORS * lanes
    return few and long and not product.constant and gemm_tiling.lies_along(product, target)


def tiling_of(product: Product, target: Target) -> Tiling:
    """Pieces of which the sums fill half of the first-level cache, and no more than the columns."""
    rows, lanes = dims.number(product.m.size), target.lanes(product.accumulate)
    vector = lanes * dtypes.itemsize(product.accumulate)
    vectors = max(1, target.facts.level1_bytes // 2 // (rows * vector))
    if isinstance(product.n.size, int):
        vectors = min(vectors, -(-product.n.size // lanes))
    return Tiling(rows, vectors, lanes, "panels", 1, 1, "direct")


def steps_together(target: Target, rows: int) -> int:
    """How many rows of B are added to the sums of so many rows of A at a time."""
    needed = STEPS * (rows + 1) + 2  # factors, vectors of B, and the sums of one row
    return STEPS if needed <= target.vector_registers else STEPS // 2


def estimate(node: Node[Contract], product: Product, tiling: Tiling, target: Target) -> Estimate:
    """All products, the sums read and written again and again, the epilogue, and everything else once."""
    n, depth, repeats = (dims.typical(d) for d in (product.n.size, product.depth, product.repeats))
    rows, some = tiling.rows, steps_together(target, tiling.rows)
    vectors, pieces = -(-n // tiling.lanes), -(-n // (tiling.vectors * tiling.lanes))
    step = costs.step_time(target, rows * (some + 1), some + 2 * rows, others=some + 2 * rows)
    found = Estimate(compute=step * vectors * (-(-depth // some) + costs.AROUND_ROWS))
    found += costs.overhead(target, pieces * (costs.TILE + costs.PIECE_ROW * -(-depth // some)))
    found = found * repeats + costs.epilogue(target, node, product.accumulate) + costs.traffic(target, node)
    return found + costs.step(target)


pack = as_it_is


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice[Tiling], target: Target) -> Code:
    node = offered(contraction_of(node), node)
    return Axpy(node, offered(product_of(node), node), choice.tiling, choice.cost, target).code()


class Axpy(Gemm):
    """Writes the step, whose tiles are pieces of all rows."""

    @cached_property
    def columns_of_parts(self) -> Lines:
        p = self.product
        step = max(self.tiling.lanes, PART // dtypes.itemsize(p.accumulate))
        return cut_lines(p.n.size, step, p.repeats, self.cost.total)

    @property
    def row_of_sums(self) -> int:
        """Bytes from one row of sums to the next, which do not share sets of the cache."""
        return self.width * dtypes.itemsize(self.product.accumulate) + LINE

    def product_step(self) -> Step:
        k, lines, rows = KernelText(self.target), self.columns_of_parts, self.tiling.rows
        self.emit_tile(k, f"{ENTRY}.tile", self.tile(rows, 1), "%columns")
        with (
            k.entry() as f,
            joined(f, lines, "%first", "%last", self.product.repeats) as (matrix, (first, behind)),
        ):
            places = self.places(f, matrix)
            for operand, pointer in places.items():
                across = f.size(self.step_of(self.product.n, operand))
                places[operand] = f.offset(pointer, f.mul(first, across))
            columns = f.sub(behind, first)
            with f.loop(0, f.divide(f.add(columns, self.width - 1), self.width)[0]) as piece:
                left = f.sub(columns, f.mul(piece.index, self.width))
                self.call_tile(f, places, rows, "0", "tile", piece.index, f.minimum(left, self.width))
        parts, work = self.product.repeats * lines.count, costs.work(self.cost, self.multiply_adds())
        return k.step(parts, work, rows * self.row_of_sums, unit=1)

    def emit_tile(self, text: Text, name: str, tile: mk.Tile, columns: int | str | None) -> None:
        """The function of a piece: sums of 0, what some rows of B add to them, the epilogue."""
        pointers, numbers = self.parameters()
        parameters = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in numbers]
        with text.function(f"{name}{tile.rows}", parameters, attributes="nounwind noinline") as f:
            depth, together = self.words.of(self.product.depth), steps_together(self.target, tile.rows)
            self.for_vectors(f, lambda at, count: self.store_sums(f, tile, at, tile.zeros()))
            even = f.round_down(depth, together)
            with f.loop(0, even, together) as loop:
                self.add_rows(f, tile, loop.index, together)
            with f.loop(even, depth) as loop:
                self.add_rows(f, tile, loop.index, 1)
            self.for_vectors(f, lambda at, count: self.finish_vector(f, tile, at, count))
            f.statement("ret void")

    def for_vectors(self, f: Function, body: Callable[[str, Count], None]) -> None:
        """body(column, how many there are) for the vectors of a piece."""
        n, lanes = self.product.n.size, self.tiling.lanes
        whole = f.round_down("%columns", lanes)
        with f.loop(0, whole, lanes) as loop:
            body(loop.index, None)
        if not isinstance(n, int):
            with f.when(f.compare("slt", whole, "%columns")):
                body(whole, f.sub("%columns", whole))
        elif n % lanes:
            with f.when(f.compare("slt", whole, "%columns")):
                body(whole, n % lanes)

    def add_rows(self, f: Function, tile: mk.Tile, k: str, count: int) -> None:
        """Adds what rows k..k + count - 1 of B give to the sums of all rows of A. Their products are summed
        up before, so that sums of many terms lose less than one by one."""
        p, v = self.product, Vectors(f, tile.accumulate, tile.lanes)
        down, along = (self.words.of(self.step_of(axis, A)) for axis in (p.m, p.k[0]))
        size = dtypes.itemsize(tile.rhs)
        row = self.words.of(self.step_of(p.k[0], B))
        steps = [f.add(k, step) for step in range(count)]
        starts = [f.offset("%b", f.mul(step, row)) for step in steps]

        def factor(r: int, step: str) -> str:
            at = f.offset("%a", f.add(f.mul(down, r), f.mul(step, along)))
            number = load_widened(f, tile.lhs, tile.accumulate, 1, at, dtypes.itemsize(tile.lhs))
            return f.broadcast(scalar_type(tile.accumulate), number, tile.lanes)

        factors = [[factor(r, step) for step in steps] for r in range(tile.rows)]

        def add(at: str, present: Count) -> None:
            found = []
            for start in starts:
                stored = load_first(f, tile.rhs, tile.lanes, f.element(start, at, size), present)
                found.append(widened(f, stored, tile.rhs, tile.accumulate, tile.lanes))
            sums = []
            for r, total in enumerate(self.load_sums(f, tile, at)):
                added = v.mul(factors[r][0], found[0])
                for a, b in zip(factors[r][1:], found[1:], strict=True):
                    added = v.fma(a, b, added)
                sums.append(v.add(total, added))
            self.store_sums(f, tile, at, sums)

        self.for_vectors(f, add)

    # Sums ----------------------------------------------------------------------------------------

    def sums_at(self, f: Function, tile: mk.Tile, at: str, r: int = 0) -> str:
        row = f.offset("%scratch", r * self.row_of_sums)
        return f.element(row, at, dtypes.itemsize(tile.accumulate))

    def load_sums(self, f: Function, tile: mk.Tile, at: str) -> list[str]:
        align = min(LINE, tile.lanes * dtypes.itemsize(tile.accumulate))
        return [f.load(tile.vector, self.sums_at(f, tile, at, r), align) for r in range(tile.rows)]

    def store_sums(self, f: Function, tile: mk.Tile, at: str, sums: Sequence[str]) -> None:
        align = min(LINE, tile.lanes * dtypes.itemsize(tile.accumulate))
        for r, total in enumerate(sums):
            f.store(tile.vector, total, self.sums_at(f, tile, at, r), align)

    def finish_vector(self, f: Function, tile: mk.Tile, at: str, count: Count) -> None:
        """The epilogue of one vector of every row."""
        raw = epilogues.Place(self.sums_at(f, tile, at), tile.accumulate, self.row_of_sums)
        out, whole = self.out(), self.epilogue()
        out = replace(out, pointer=f.element(out.pointer, at, dtypes.itemsize(out.dtype)))
        operands = {
            k: replace(x, pointer=f.element(x.pointer, at, dtypes.itemsize(x.dtype))) if x.along else x
            for k, x in whole.operands.items()
        }
        here = replace(whole, operands=operands)
        epilogues.finish_rows(f, tile, tile.rows, here, raw, out, count)
