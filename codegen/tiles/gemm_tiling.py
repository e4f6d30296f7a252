"""How a matrix product is cut: register tiles, panels, groups of them, and what that takes. `kernels/gemm.py`
draws it and writes the code; kernels that store or read matrices in other ways extend both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...records import dataclass
from ...target import LINE, Dot, Target
from .. import costs
from ..costs import Estimate
from ..kernel import ALL
from . import microkernel as mk
from .contraction import A, B, Product, itemsizes

MOST_ROWS, MOST_VECTORS = 24, 4  # of a tile
SHARED_SET = 8  # rows whose elements at one k may fall into one set of the first-level cache
# How many tiles may read B as it lies, for more of which it is packed once; where vectors lie across lines.
MOST_DIRECT, MOST_ASKEW = 64, 12
GROUPS = 16  # of panels at least, where each part packs its own, for threads to have equal shares
RUN = 384  # columns that are long runs of the rows they are written to: memory takes short ones slowly
UNKNOWN = 640  # rows, columns and terms at least of a product of which no size is known

Order = Literal["panels", "rows"]
Source = Literal["constant", "packed", "in_parts", "direct"]


@dataclass(frozen=True)
class Tiling:
    """Tiles of `rows` x (`vectors` * `lanes`), of which at most a `block` goes through all groups of `group`
    panels before the next does. B's `source` is `constant` (packed when compiling), `packed` (by a step
    before), `in_parts` (each part packs its group of panels) or `direct` (as it is). `k_step` neighbours
    along k are one product of the processor's, for which B is `stored` wider than it is. copied: the rows of
    a tile, which lie side by side in every step of k, are brought together before its panels."""

    rows: int
    vectors: int
    lanes: int
    order: Order
    block: int
    group: int
    source: Source
    k_step: int = 1
    stored: str | None = None
    copied: bool = False


def expected(product: Product) -> Product:
    """The product to choose by: one of which no size is known counts as one of matrices, whatever its sizes
    are taken for elsewhere: small ones waste much of little, with large ones all depends on the tile."""
    if any(isinstance(d, int) for d in (product.m.size, product.n.size, product.depth)):
        return product
    m, n, *k = (
        replace(axis, size=dims.maximum(axis.size, UNKNOWN)) for axis in (product.m, product.n, *product.k)
    )
    return replace(product, m=m, n=n, k=tuple(k))


def tilings(product: Product, target: Target) -> Iterator[Tiling]:
    """One for each width of panels, by multiply-adds and by the processor's dot product, if any."""
    lanes, m = target.lanes(product.accumulate), product.m.size
    found = dot_of(product, target)
    for dot in [found] if found is not None and found.widened else dict.fromkeys((None, found)):
        for vectors in range(1, MOST_VECTORS + 1):
            if vectors > 1 and (vectors - 1) * lanes >= dims.typical(product.n.size):
                break
            most = min(most_rows(product), mk.most_rows(target, vectors, dot))
            rows = max(1, min(most, m)) if isinstance(m, int) else most
            yield _tiling(product, target, rows, vectors, lanes, dot)


def dot_of(product: Product, target: Target) -> Dot | None:
    """The processor's dot product for these types, where neighbours along k lie together in A."""
    together = len(product.k) == 1 and product.k[0].strides[A] == 1
    types = product.lhs, product.rhs, product.accumulate
    found = target.integer_dot(*types) if product.constant else target.dot(*types)
    return found if together and found is not None and found.group > 1 else None


def most_rows(product: Product) -> int:
    """How many rows of A a tile may read: rows a multiple of 4 KiB apart evict each other."""
    step = product.m.strides[A]
    if not isinstance(step, int) or step == 0:
        return MOST_ROWS
    return min(MOST_ROWS, SHARED_SET * _sets(step * dtypes.itemsize(product.lhs)))


def _tiling(product: Product, target: Target, rows: int, vectors: int, lanes: int, dot: Dot | None) -> Tiling:
    """Tiles of that size with the parts that suit them, and where B comes from."""
    depth, tiles = dims.typical(product.depth), -(-dims.typical(product.m.size) // rows)
    k_step = 1 if dot is None else dot.group
    tile_time = -(-depth // k_step) * mk.step_time(target, rows, vectors, 1, dot) + costs.cycles(
        target, costs.TILE
    )
    panel = depth * dtypes.itemsize(product.rhs) * lanes * vectors
    if product.constant:  # few rows take what their panel takes to arrive
        tile_time = max(tile_time, costs.stored(target, panel).memory / max(1, tiles))
    source = _source(product, target, tiles)
    if dot is not None and source == "direct":
        source = "packed"
    near = source != "constant" or not mk.waits(target)
    order, block, group = parts_of_tiles(product, target, rows, lanes * vectors, tile_time, near)
    # Not for what decodes panels, or loads them into matrix registers, which goes by columns.
    held = target.facts.level2_bytes // 4 // max(1, panel)
    if order == "panels" and tiles > 1 and held * lanes * vectors >= RUN:
        order, group = "rows", held
    stored = None if dot is None else dot.widened
    return Tiling(rows, vectors, lanes, order, block, group, source, k_step, stored)


def parts_of_tiles(
    product: Product, target: Target, rows: int, width: int, tile_time: float, by_rows: bool = True
) -> tuple[Order, int, int]:
    """The order of tiles of so many rows and columns, how many of them are a block, and how many panels a
    group: by rows where B stays in the second-level cache, else by columns, with as many rows as leave A
    there."""
    depth, m, n = (dims.typical(d) for d in (product.depth, product.m.size, product.n.size))
    tiles, panels = -(-m // rows), -(-n // width)
    a_row, b_column = (max(1, depth * dtypes.itemsize(t)) for t in (product.lhs, product.rhs))
    if b_column * n <= target.facts.level2_bytes * 3 // 4 and tiles >= panels and by_rows:
        return "rows", ALL, ALL
    block = max(1, target.facts.level2_bytes // 2 // (a_row * rows))
    if isinstance(product.m.size, int) and tiles:
        block = -(-tiles // -(-tiles // block))  # blocks of equal size
    return "panels", block, max(1, round(costs.PART_NS / (tile_time * max(1, min(block, tiles)))))


def _source(product: Product, target: Target, tiles: int) -> Source:
    if product.constant:
        return "constant"
    if not lies_along(product, target):
        return "packed"
    most = MOST_DIRECT if _whole(product, target) else MOST_ASKEW
    return "direct" if tiles < 3 or (tiles <= most and _panel_stays(product, target)) else "packed"


def lies_along(product: Product, target: Target) -> bool:
    """Whether rows of B can be read where they lie, in vectors."""
    partly = isinstance(product.n.size, int) and target.loads_partly and dtypes.itemsize(product.rhs) >= 4
    return product.n.strides[B] == 1 and (target.masked or _whole(product, target) or partly)


def _whole(product: Product, target: Target) -> bool:
    """Whether a row of C is known to be of whole vectors."""
    n = product.n.size
    return isinstance(n, int) and n % target.lanes(product.accumulate) == 0


def _panel_stays(product: Product, target: Target) -> bool:
    """Whether a panel of B, read where it lies, stays near from tile to tile: its rows share sets of the
    first-level cache where they are far apart. Tiles of vectors as long as a line read two a step, and wait
    for what the second-level cache holds (figures in docs/performance.md)."""
    step, depth = product.k[0].strides[B], product.depth
    if len(product.k) > 1 or not isinstance(step, int) or not isinstance(depth, int):
        return False
    sets = _sets(step * dtypes.itemsize(product.rhs))
    if target.vector_bits > 256:
        return depth < SHARED_SET * min(sets, 4096 // (2 * LINE))
    return sets >= 4 and depth <= 4 * SHARED_SET * sets


def _sets(step: int) -> int:
    """Among how many of what 4 KiB of the first-level cache have rows are spread that lie so many bytes
    apart."""
    return 4096 // math.gcd(step, 4096)


def in_parts(product: Product, tiling: Tiling, target: Target) -> Tiling:
    """The tiling with a B that each part packs itself where it has whole groups of panels, or matrices, which
    stay near until all rows are multiplied: none is written to memory and read again."""
    depth, group = product.depth, tiling.group
    if tiling.source != "packed" or tiling.k_step > 1 or not isinstance(depth, int):
        return tiling
    width, tiles = tiling.lanes * tiling.vectors, -(-dims.typical(product.m.size) // tiling.rows)
    panel = depth * dtypes.itemsize(product.rhs) * width
    if group == ALL and isinstance(product.n.size, int) and dims.typical(product.repeats) >= GROUPS:
        group = max(1, -(-product.n.size // width))
        near = group * panel <= target.facts.level2_bytes // 2
        return replace(tiling, source="in_parts", group=group) if near else tiling
    if group == ALL or tiles > tiling.block != ALL or group * panel > target.facts.level2_bytes // 2:
        return tiling
    if product.n.strides[B] != 1:
        return tiling
    panels = -(-dims.typical(product.n.size) // width)
    return replace(tiling, source="in_parts", group=min(group, max(-(-panels // GROUPS), RUN // width)))


def copied(product: Product, tiling: Tiling) -> list[Tiling]:
    """The tiling that brings the rows of a tile together, where it reads them for several panels."""
    apart = product.m.strides[A] == 1 and len(product.k) == 1 and isinstance(product.depth, int)
    several = dims.typical(product.n.size) > tiling.vectors * tiling.lanes
    if not apart or not several or tiling.k_step > 1 or (tiling.order, tiling.group) != ("rows", ALL):
        return []
    return [replace(tiling, copied=True)]


def _waiting(product: Product, tiling: Tiling, target: Target, panels: float) -> Estimate:
    """What tiles wait for rows that lie side by side: a step of k reads lines far from those of the one
    before, of another page as a rule, which evict each other where they share sets of a cache."""
    step = product.k[-1].strides[A]
    size, depth = dtypes.itemsize(product.lhs), dims.typical(product.depth)
    if product.m.strides[A] != 1 or dims.typical(step) * size < LINE:
        return Estimate()
    m = max(1, dims.typical(product.m.size))
    tiles = -(-m // tiling.rows)
    lines = depth * max(LINE, m / tiles * size)  # bytes, of a tile
    once = costs.HIDDEN * costs.move(target, tiles * lines, m * depth * size).memory
    if tiling.copied:
        copies = 2 * costs.move(target, tiles * lines, lines).memory
        return Estimate(memory=copies, overhead=once) + costs.overhead(
            target, costs.COPIED_STEP * depth * tiles
        )
    sets = min(_sets(step * size), 4096 // LINE) if isinstance(step, int) else 4096 // LINE
    more = costs.again(target, tiles * lines, lines * (4096 // LINE) / sets) * max(0, panels - 1)
    return Estimate(overhead=once + costs.HIDDEN * more.memory)


def estimate(
    node: Node, product: Product, tiling: Tiling, target: Target, near: int | None = None
) -> Estimate:
    """The multiply-adds of all tiles, the epilogue, reading and writing everything once, packing B. `near`:
    of how many terms all panels use the rows in turns, if not of all."""
    m, n, depth, repeats = (
        dims.typical(d) for d in (product.m.size, product.n.size, product.depth, product.repeats)
    )
    width = tiling.vectors * tiling.lanes
    tail = -(-(n % width) // tiling.lanes)
    panels: list[tuple[int, float]] = [(tiling.vectors, n // width), (tail, 1 if tail else 0)]
    if not isinstance(product.n.size, int):  # half of an edge is wasted on average
        panels = [(tiling.vectors, n / width + 0.5)]
    inside, calls, steps = 0.0, 0.0, -(-depth // tiling.k_step)
    together = 1.0  # panels that are read before one is again
    if tiling.order == "rows":
        together = sum(count for _, count in panels)
        together = together if tiling.group == ALL else min(together, tiling.group)
    dot = dot_of(product, target) if tiling.k_step > 1 else None
    found, sizes = Estimate(), itemsizes(product, tiling.stored)
    for height, rows in mk.height_counts(m, tiling.rows).items():
        for vectors, count in panels:
            if count:
                chains = mk.chains_for(target, height, tiling.vectors)
                inside += rows * count * steps * mk.step_time(target, height, vectors, chains, dot)
                calls += rows * count * costs.cycles(target, costs.TILE)
                if m > tiling.rows:
                    panel = depth * vectors * tiling.lanes * sizes[B]
                    found += costs.again(target, panel, panel * together) * (rows * count)
    rows_together = tiling.rows if tiling.order == "rows" else min(m, tiling.block * tiling.rows)
    block = (near or depth) * rows_together * sizes[A]  # of A, which each panel reads
    found += costs.again(target, m * depth * sizes[A], block) * max(0, sum(count for _, count in panels) - 1)
    found += _waiting(product, tiling, target, sum(count for _, count in panels))
    found += Estimate(compute=inside, overhead=calls)
    columns = sum(vectors * tiling.lanes * count for vectors, count in panels)
    if product.constant:
        found += costs.stored(target, depth * columns * sizes[B])
        if tiling.order == "panels":  # each further block of rows reads all of B again
            blocks, again = -(-m // (tiling.block * tiling.rows)), (near or depth) * columns * sizes[B]
            found += costs.again(target, depth * columns * sizes[B], again) * max(0, blocks - 1)
    if tiling.source == "packed":
        found += packing(target, depth * columns * sizes[B], tiling.k_step, sizes[B])
    elif tiling.source == "in_parts":  # reading it once is counted below
        found += costs.move(target, 2 * depth * columns * sizes[B], tiling.group * depth * width * sizes[B])
    if tiling.source in ("direct", "in_parts") and n > width:
        found += costs.apart(target, depth * n * sizes[B], depth * n * sizes[B] * repeats)
    found = found * repeats + costs.epilogue(target, node, product.accumulate) + costs.traffic(target, node)
    lhs = node.inputs[product.operands[A]]
    if lhs.constant is not None:  # a convolution's weights, where pixels are the panels
        found += costs.stored(target, dims.number(lhs.tensor.nbytes))
    return found + costs.step(target, 2 if tiling.source == "packed" else 1)


def packing(target: Target, nbytes: float, group: int, size: int) -> Estimate:
    """To bring B into panels of so many bytes when it runs, where a word holds a group of neighbours along k
    of that size each."""
    joined = costs.overhead(target, costs.PACKED_WORD * (group > 1) * nbytes / (group * size))
    return costs.move(target, costs.PACKING * nbytes, 2 * nbytes) + joined
