"""Matrix products of few rows with a B that is computed and lies along k, as keys of attention do: rather
than bringing B into panels, which takes longer than to multiply a few rows by it, lanes run along k.

      k →  lanes at a time                                sums of a tile: rows x vectors of columns, a
      ┌────┬────┬──┐                                      vector of partial sums each; at the end those of
   m  │ A  │    │  │    n  ┌────┬────┬──┐                 a row's columns are added up across their
   ↓  └────┴────┴──┘    ↓  │ B  │    │  │ a column each   lanes, and are one vector of C
                           └────┴────┴──┘
Columns behind the last are those of the last again, which nobody stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node
from ...ir.ops import Contract
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, Offer, as_it_is, lasting, nearest, offered
from ..text.emitter import Function
from ..text.memory import load_first
from ..text.shuffles import row_sums
from ..text.vectors import Vectors
from ..tiles import gemm_tiling
from ..tiles import microkernel as mk
from ..tiles.contraction import A, B, Product, contraction_of, itemsizes, product_of, tiled_product
from ..tiles.gemm_tiling import Tiling
from ..tiles.panel_operand import load_widened, widened
from .gemm import Gemm

MOST_ROWS = 4  # of a tile


# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tile by estimate, where both operands are floats that lie along k."""
    contraction = contraction_of(node)
    product = None if contraction is None else tiled_product(contraction)
    if contraction is None or product is None or not fits(product, target):
        return
    product = gemm_tiling.expected(product)
    timed = partial(estimate, contraction, product, target=target)
    found = nearest((timed(tiling), tiling) for tiling in tilings(product, target))
    for cost, tiling in lasting(product.m.size, found, timed):
        yield Offer(cost, tiling)


def fits(product: Product, target: Target) -> bool:
    """Whether terms lie together in both operands, and what is left of them can be loaded."""
    along = len(product.k) == 1 and product.k[0].strides[A] == product.k[0].strides[B] == 1
    loaded = target.masked or isinstance(product.depth, int)
    return along and loaded and not product.constant and dtypes.is_float(product.accumulate)


def tilings(product: Product, target: Target) -> Iterator[Tiling]:
    """Tiles of a vector of columns."""
    lanes, m = target.lanes(product.accumulate), product.m.size
    for rows in range(1, MOST_ROWS + 1):
        if isinstance(m, int) and rows > max(1, m):
            return
        order, block, group = gemm_tiling.parts_of_tiles(
            product, target, rows, lanes, _tile_time(product, target, rows)
        )
        yield Tiling(rows, 1, lanes, order, block, group, "direct")


def together(target: Target, rows: int, lanes: int) -> int:
    """How many columns a tile adds up at a time."""
    count = lanes
    while count > 1 and rows * count + rows + 1 > target.vector_registers - target.broadcasts:
        count //= 2
    return count


def _tile_time(product: Product, target: Target, rows: int) -> float:
    """Nanoseconds of a tile."""
    lanes = target.lanes(product.accumulate)
    columns, steps = together(target, rows, lanes), -(-dims.typical(product.depth) // lanes)
    sums = costs.cycles(target, costs.ROW_SUM * rows * (lanes - 1))
    inside = lanes // columns * steps * mk.step_time(target, rows, columns)
    return inside + sums + costs.cycles(target, costs.TILE)


def estimate(node: Node[Contract], product: Product, tiling: Tiling, target: Target) -> Estimate:
    """All tiles, the epilogue, reading and writing everything once, and what tiles read again."""
    m, n, depth, repeats = (
        dims.typical(d) for d in (product.m.size, product.n.size, product.depth, product.repeats)
    )
    sizes, panels = itemsizes(product), -(-n // tiling.lanes)
    found = Estimate()
    for height, count in mk.height_counts(m, tiling.rows).items():
        found += Estimate(compute=_tile_time(product, target, height)) * (count * panels)
    tiles = -(-m // tiling.rows)
    panel, strip = depth * tiling.lanes * sizes[B], depth * tiling.rows * sizes[A]
    if tiling.order == "panels":
        block = min(m, tiling.block * tiling.rows)
        found += costs.again(target, panel * panels * (tiles - 1), panel + strip)
        found += costs.again(target, m * depth * sizes[A] * (panels - 1), depth * block * sizes[A])
    else:
        found += costs.again(target, panel * panels * (tiles - 1), panel * panels)
        found += costs.again(target, m * depth * sizes[A] * (panels - 1), strip)
    found = found * repeats + costs.epilogue(target, node, product.accumulate) + costs.traffic(target, node)
    return found + costs.step(target)


pack = as_it_is


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice[Tiling], target: Target) -> Code:
    node = offered(contraction_of(node), node)
    return Dots(node, offered(product_of(node), node), choice.tiling, choice.cost, target).code()


class Dots(Gemm):
    """Writes the tiles, whose sums run along k."""

    def _told(self) -> list[Dimension]:
        return [*super()._told(), self.step_of(self.product.n, B)]

    def sums(
        self,
        f: Function,
        tile: mk.Tile,
        level: int,
        a: str,
        b: str,
        start: Sequence[str],
        columns: int | str | None,
    ) -> list[str]:
        """The sums of every row of a tile as a vector of C."""
        p, lanes = self.product, tile.lanes
        count = together(self.target, tile.rows, lanes)
        rows = [f.offset(a, f.mul(self.words.of(self.step_of(p.m, A)), r)) for r in range(tile.rows)]
        across = self.words.of(self.step_of(p.n, B))
        parts: list[list[str]] = [[] for _ in rows]
        for first in range(0, lanes, count):
            places: list[int | str] = list(range(first, first + count))
            if columns is not None:
                places = [f.minimum(place, f.sub(columns, 1)) for place in places]
            found = self.dots(f, tile, rows, [f.offset(b, f.mul(across, place)) for place in places])
            for part, sums in zip(parts, found, strict=True):
                part += sums
        v = Vectors(f, tile.accumulate, lanes)
        return [row_sums(v, part) for part in parts]

    def dots(
        self, f: Function, tile: mk.Tile, rows: Sequence[str], columns: Sequence[str]
    ) -> list[list[str]]:
        """Of every row and column a vector whose lanes add up to their product."""
        p, lanes, zero = self.product, tile.lanes, Vectors(f, tile.accumulate, tile.lanes).constant(0)
        steps, left = f.divide(self.words.of(p.k[0].size), lanes)
        types = (p.lhs, *rows), (p.rhs, *columns)

        def added(sums: Sequence[str], index: str, count: str | None) -> list[str]:
            v = Vectors(f, tile.accumulate, lanes)
            operands: list[list[str]] = []
            for dtype, *pointers in types:
                operands.append([])
                for pointer in pointers:
                    at = f.element(pointer, f.mul(index, lanes), dtypes.itemsize(dtype))
                    if count is None:
                        loaded = load_widened(f, dtype, tile.accumulate, lanes, at, dtypes.itemsize(dtype))
                    else:
                        loaded = load_first(f, dtype, lanes, at, count)
                        loaded = widened(f, loaded, dtype, tile.accumulate, lanes)
                    operands[-1].append(loaded)
            pairs = ((x, y) for x in operands[0] for y in operands[1])
            return [v.fma(x, y, total) for (x, y), total in zip(pairs, sums, strict=True)]

        sums: list[str] = [zero] * (len(rows) * len(columns))
        with f.loop(0, steps, 1, [(tile.vector, x) for x in sums]) as loop:
            loop.carry(*added(loop.carried, loop.index, None))
        sums = list(loop.results)
        if left != "0":
            sums = added(sums, steps, left)
        return [sums[k : k + len(columns)] for k in range(0, len(sums), len(columns))]
