"""Matrix products: every Contract with a normal form (`contraction.py`), cut into register tiles.

    C [M, N]      ← n: panels of NR = nv * lanes columns →      part: a block of tiles x a group of panels
      ↑           ┌──────┬──────┬──────┬───┐                    order "panels": for each panel, the tiles of the block
      m: tiles    │ tile │      │      │tail                    order "rows": for each tile, the panels of the group
      of mr rows  ├──────┼──────┼──────┼───┤
      ↓           │      │      │      │                        M is cut into tiles of equal heights: 49 = 13 + 12 + 12 + 12
A constant B is packed at compile time, another one by a step of its own when enough tiles reuse it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ... import dims, dtypes, expr
from ...dims import Dim, Dimension
from ...ir import Constant, Node
from ...target import Target
from .. import epilogue as epilogues
from .. import microkernel as mk
from ..contraction import A, Axis, B, C, Product, estimate, itemsizes, product_of
from ..emitter import Function
from ..epilogue import Operand, Place
from ..kernel import ENTRY, Choice, Code, KernelText, Step
from ..packing import pack_columns, pack_panel, padded

TILE_OVERHEAD = 12.0  # nanoseconds of a call, its stores and its loop's misprediction
PART_TIME = 4000.0  # nanoseconds that a part should take at least
MOST_ROWS = 24  # taller tiles suffer when rows lie a multiple of 4 KiB apart


# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling:
    """The shape of tiles, how many of them make a part, and where B comes from: `constant` (packed at compile time), `packed`
    (by the run) or `direct` (read where it is)."""

    rows: int
    vectors: int
    lanes: int
    order: str
    block: int  # tiles of a part
    group: int  # panels of a part
    source: str

    def pairs(self) -> tuple[tuple[str, int | str], ...]:
        return tuple(vars(self).items())


def candidates(node: Node, target: Target) -> Iterable[Choice]:
    """The best tiling, where the product has a normal form and tiles can widen its element types."""
    product = product_of(node)
    if product is None or not mk.supported(product.lhs, product.rhs, product.accumulate):
        return
    if not epilogues.supported(node.op.epilogue):
        return
    options = [
        (_time(product, tiling, node, target), -tiling.rows * tiling.vectors, tiling)
        for tiling in _tilings(product, target)
    ]
    cost, _, tiling = min(options, key=lambda option: option[:2])
    packed = (product.operands[1],) if product.constant else ()
    yield Choice(_this_module(), cost, tiling.pairs(), packed=packed)


def _this_module():
    import sys

    return sys.modules[__name__]


def _tilings(product: Product, target: Target) -> Iterator[Tiling]:
    lanes = target.lanes(product.accumulate)
    for vectors in range(1, 5):
        if vectors > 1 and (vectors - 1) * lanes >= estimate(product.n.size):
            break
        most = min(MOST_ROWS, mk.most_rows(target, vectors))
        rows = min(most, product.m.size) if isinstance(product.m.size, int) else most
        yield from _orders(product, target, max(1, rows), vectors)


def _orders(product: Product, target: Target, rows: int, vectors: int) -> Iterator[Tiling]:
    """How tiles and panels form parts: parts cut by rows where B stays in the second-level cache, by columns otherwise, with
    as many rows as leave A there."""
    depth, n, m = (estimate(d) for d in (product.depth, product.n.size, product.m.size))
    lanes = target.lanes(product.accumulate)
    tiles, panels = -(-m // rows), -(-n // (lanes * vectors))
    a_row, b_column = (max(1, depth * dtypes.itemsize(t)) for t in (product.lhs, product.rhs))
    tile_time = depth * mk.step_time(target, rows, vectors) + TILE_OVERHEAD
    source = _source(product, target, tiles)
    if b_column * n <= target.level2_bytes // 2 and tiles >= panels:
        block = max(1, min(tiles, round(PART_TIME / (tile_time * panels) + 0.5)))
        group = panels if isinstance(product.n.size, int) else 1 << 30
        yield Tiling(rows, vectors, lanes, "rows", block, group, source)
        return
    block = max(1, target.level2_bytes // 2 // (a_row * rows))
    if isinstance(product.m.size, int):
        block = -(-tiles // -(-tiles // block))  # blocks of equal size
    group = max(1, round(PART_TIME / (tile_time * min(block, tiles))))
    yield Tiling(rows, vectors, lanes, "panels", block, group, source)


def _source(product: Product, target: Target, tiles: int) -> str:
    if product.constant:
        return "constant"
    contiguous = product.n.strides[B] == 1
    whole = isinstance(product.n.size, int) and product.n.size % target.lanes(product.accumulate) == 0
    return "direct" if contiguous and (target.masked or whole) and tiles < 3 else "packed"


def _time(product: Product, tiling: Tiling, node: Node, target: Target) -> float:
    """Estimated nanoseconds on one core."""
    m, n, depth, repeats = (estimate(d) for d in (product.m.size, product.n.size, product.depth, product.repeats))
    lanes = target.lanes(product.accumulate)
    widths = [tiling.vectors] * (n // (tiling.vectors * lanes))
    tail = n % (tiling.vectors * lanes)
    if tail:
        widths.append(-(-tail // lanes) if isinstance(product.n.size, int) else tiling.vectors)
    heights = mk.equal_heights(m, tiling.rows)
    compute = 0.0
    for height in set(heights):
        for width in set(widths):
            chains = mk.chains_for(target, height, width)
            one = depth * mk.step_time(target, height, width, chains) + TILE_OVERHEAD
            compute += heights.count(height) * widths.count(width) * one
    body = node.op.epilogue
    if body is not None:
        compute += m * -(-n // lanes) * expr.instructions(body) / target.fma_per_ns
    sizes = itemsizes(product)
    weights = depth * n * sizes[B]
    memory = (weights + m * depth * sizes[A] + m * n * sizes[C]) / target.bytes_per_ns
    if tiling.source == "packed":
        compute += 2.5 * weights / target.bytes_per_ns
    return 20.0 + repeats * max(compute, memory)


# Packing -----------------------------------------------------------------------------------------


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    """B as [outer axes of B..., panels]: one row of panels for every product that has its own B."""
    product = product_of(node)
    if not product.constant or operand != product.operands[1]:
        return None
    value = node.inputs[operand]
    labels = node.op.lhs if operand == 0 else node.op.rhs
    width, lanes = choice["vectors"] * choice["lanes"], choice["lanes"]
    groups = ["".join(a.labels for a in axes if a.labels) for axes in
              (product.panels_axes, product.k, (product.n,))]
    sizes = dict(zip(labels, value.shape))
    shape = [dims.product(sizes[label] for label in group) for group in groups]
    order = [labels.index(label) for group in groups for label in group]
    order += [axis for axis in range(value.rank) if axis not in order]  # of size 1
    total = padded(shape[2], lanes)

    def make() -> np.ndarray:
        return pack_columns(value.constant.array.transpose(order).reshape(shape), width, lanes)

    return Constant(value.dtype, (shape[0], shape[1] * total), make)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice, target: Target) -> Code:
    return _Gemm(node, product_of(node), Tiling(**dict(choice.tiling)), target).code()


class _Gemm:
    """Writes the steps of one product. Distances are in bytes; a `Dimension` is a literal in the code where it is a number,
    else a word that the entry hands to the tiles."""

    def __init__(self, node: Node, product: Product, tiling: Tiling, target: Target):
        self.node, self.product, self.tiling, self.target = node, product, tiling, target
        self.body = node.op.epilogue
        self.sizes = itemsizes(product)
        self.width = tiling.vectors * tiling.lanes
        self.used = [i + 2 for i in range(len(product.extra)) if i + 1 in (expr.inputs(self.body) if self.body else ())]
        self.tiles = dims.ceil_divide(product.m.size, tiling.rows)
        self.panels = dims.ceil_divide(product.n.size, self.width)
        self.words = self._words()
        self.heights = self._heights()

    # Sizes ---------------------------------------------------------------------------------------

    def step_of(self, axis: Axis, operand: int) -> Dimension:
        """Bytes from one element of an operand to the next along axis."""
        return axis.strides[operand] * self.sizes[operand]

    @property
    def direct(self) -> bool:
        return self.tiling.source == "direct"

    @cached_property
    def columns(self) -> Dimension:
        """N as packed: up to whole vectors where the size is known, else up to whole panels."""
        n = self.product.n.size
        return padded(n, self.tiling.lanes) if isinstance(n, int) else self.panels * self.width

    def _words(self) -> list[Dim]:
        """What the tiles must be told because only the run knows it."""
        p = self.product
        needed = [self.step_of(p.m, A), self.step_of(p.m, C), *(self.step_of(p.m, k + 1) for k in self.used)]
        for k, axis in enumerate(p.k):
            inside = dims.product(x.size for x in p.k[k + 1 :])
            needed += [axis.size, self.step_of(axis, A), self.step_of(axis, B) if self.direct else inside]
        return list(dict.fromkeys(d for d in needed if isinstance(d, Dim)))

    def _heights(self) -> list[int]:
        """The tile heights that occur."""
        m, most = self.product.m.size, self.tiling.rows
        return sorted(set(mk.equal_heights(m, most))) if isinstance(m, int) else list(range(1, most + 1))

    def versions(self) -> list[tuple[str, int, int | str | None]]:
        """Panels as (name, vectors, columns): the whole ones, and the last one if it has fewer columns."""
        n, lanes, vectors = self.product.n.size, self.tiling.lanes, self.tiling.vectors
        if not isinstance(n, int):
            return [("tile", vectors, None), ("edge", vectors, "%columns")]
        tail = n % self.width
        edge = [("edge", -(-tail // lanes), tail if tail % lanes else None)] if tail else []
        return ([("tile", vectors, None)] if n >= self.width else []) + edge

    # Tiles ---------------------------------------------------------------------------------------

    def parameters(self) -> list[str]:
        pointers = ["%a", "%b", "%c", *(f"%e{k}" for k in self.used)]
        words = [f"i64 %w{k}" for k in range(len(self.words))]
        return [*(f"ptr noalias {p}" if p == "%c" else f"ptr {p}" for p in pointers), "ptr %scratch", *words, "i64 %columns"]

    def word(self, dimension: Dimension) -> int | str:
        """A dimension inside a tile's function."""
        return f"%w{self.words.index(dimension)}" if isinstance(dimension, Dim) else dimension

    def tile(self, height: int, vectors: int) -> mk.Tile:
        p = self.product
        return mk.Tile(height, vectors, self.tiling.lanes, p.lhs, p.rhs, p.accumulate)

    def emit_tile(self, text, name: str, height: int, vectors: int, columns: int | str | None) -> None:
        """One tile: the sum over k, then the epilogue."""
        p, tile = self.product, self.tile(height, vectors)
        with text.function(name, self.parameters(), attributes="nounwind noinline") as f:
            sums = self.sums(f, tile, 0, "%a", "%b", tile.zeros(), columns)
            operands = {
                k - 1: Operand(f"%e{k}", p.extra[k - 2], self.word(self.step_of(p.m, k + 1)), p.n.strides[k + 1] == 1)
                for k in self.used
            }
            out = Place("%c", p.result, self.word(self.step_of(p.m, C)))
            scratch = "%scratch" if epilogues.scratch_bytes(tile, self.body, p.result) else None
            epilogues.finish(f, tile, sums, self.body, operands, out, columns, scratch)
            f.statement("ret void")

    def sums(self, f: Function, tile: mk.Tile, level: int, a: str, b: str, start: Sequence[str],
             columns: int | str | None) -> list[str]:
        """start + the sum over the axes of k from `level` on, the last of them in the tile's own loop."""
        p = self.product
        axis, a_step, b_step = p.k[level], self.word(self.step_of(p.k[level], A)), tile.panel_step
        if self.direct:
            b_step = self.word(self.step_of(axis, B))
        if level == len(p.k) - 1:
            rows = mk.strided_rows(f, a, self.word(self.step_of(p.m, A)), tile.rows, a_step)
            return mk.multiply_add(
                f, tile, start, rows, b, self.word(axis.size), panel_step=b_step,
                chains=mk.chains_for(self.target, tile.rows, tile.vectors),
                columns=columns if self.direct else None,
            )
        if not self.direct:
            b_step = f.mul(b_step, self.word(dims.product(x.size for x in p.k[level + 1 :])))
        with f.loop(0, self.word(axis.size), 1, [(tile.vector, v) for v in start]) as loop:
            a_next, b_next = f.offset(a, f.mul(loop.index, a_step)), f.offset(b, f.mul(loop.index, b_step))
            loop.carry(*self.sums(f, tile, level + 1, a_next, b_next, loop.carried, columns))
        return loop.results

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        steps, temporaries = [], ()
        if self.tiling.source == "packed":
            steps.append(self.packing_step())
            temporaries = (self.packed_repeats * self.product.depth * self.columns * self.sizes[B],)
        return Code((*steps, self.product_step()), temporaries)

    @property
    def packed_repeats(self) -> Dimension:
        return dims.product(axis.size for axis in self.product.panels_axes)

    def product_step(self) -> Step:
        k, t, p = KernelText(self.target), self.tiling, self.product
        for name, vectors, columns in self.versions():
            for height in self.heights:
                self.emit_tile(k.text, f"{ENTRY}.{name}{height}", height, vectors, columns)
        blocks, groups = dims.ceil_divide(self.tiles, t.block), dims.ceil_divide(self.panels, t.group)
        with k.entry() as f, f.loop("%first", "%last") as parts:
            rest, block = f.divide(parts.index, k.size(f, blocks))
            rest, group = f.divide(rest, k.size(f, groups))
            self.emit_part(k, f, self.places(k, f, rest), block, group)
        scratch = max(
            (epilogues.scratch_bytes(self.tile(h, v), self.body, p.result) for _, v, _ in self.versions() for h in self.heights),
            default=0,
        )
        parts = p.repeats * blocks * groups
        rate = max(1, int(self.target.fma_per_ns * t.lanes))
        work = dims.floor_divide(p.repeats * p.m.size * p.n.size * p.depth, rate) + parts * 20
        return k.step(parts, work, max(64, scratch))

    def places(self, k: KernelText, f: Function, index: str) -> dict[int, str]:
        """The addresses of A, B, C and the epilogue's operands for an index of the outer axes."""
        p, source = self.product, self.tiling.source
        a, b = p.operands
        base = {A: k.input(f, a), B: k.temporary(f, 0) if source == "packed" else k.input(f, b), C: k.output(f)}
        base |= {e + 1: k.input(f, e) for e in self.used}
        distance = {operand: "0" for operand in base}
        packed: Dimension = p.depth * self.columns * self.sizes[B]
        for axis in reversed(p.outer):
            index, here = f.divide(index, k.size(f, axis.size))
            for operand in base:
                step = self.step_of(axis, operand)
                if operand == B and source != "direct" and axis in p.panels_axes:
                    step, packed = packed, packed * axis.size
                distance[operand] = f.add(distance[operand], f.mul(here, k.size(f, step)))
        return {operand: f.offset(pointer, distance[operand]) for operand, pointer in base.items()}

    def emit_part(self, k: KernelText, f: Function, places: dict[int, str], block: str, group: str) -> None:
        """The tiles of a block and the panels of a group, in the tiling's order."""
        t = self.tiling
        words = [f"i64 {k.size(f, word)}" for word in self.words]

        def tile(height: int, row: str, name: str, panel: str, columns: str) -> None:
            at = self.tile_places(k, f, places, row, panel)
            arguments = [f"ptr {p}" for p in (*at, "%scratch")] + [*words, f"i64 {columns}"]
            f.statement(f"call void @{ENTRY}.{name}{height}({', '.join(arguments)})")

        if t.order == "panels":
            def panel(name: str, panel: str, columns: str) -> None:
                self.for_tiles(k, f, block, lambda height, row: tile(height, row, name, panel, columns))

            self.for_panels(k, f, group, panel)
        else:
            def row(height: int, row: str) -> None:
                self.for_panels(k, f, group, lambda *panel: tile(height, row, *panel))

            self.for_tiles(k, f, block, row)

    def tile_places(self, k: KernelText, f: Function, places: dict[int, str], row: str, panel: str) -> list[str]:
        """The addresses of everything for the tile that begins at a row and a panel."""
        p, result = self.product, []
        for operand, pointer in places.items():
            across = k.size(f, self.step_of(p.n, operand) * self.width)
            if operand == B and not self.direct:
                across = k.size(f, p.depth * (self.width * self.sizes[B]))
            down = "0" if operand == B else k.size(f, self.step_of(p.m, operand))
            pointer = f.offset(pointer, f.mul(row, down))
            result.append(f.offset(pointer, f.mul(panel, across)))
        return result

    def for_tiles(self, k: KernelText, f: Function, block: str, body: Callable[[int, str], None]) -> None:
        """body(height, first row) for the tiles of a block: `extra` of them are one row higher than the others."""
        m, t = self.product.m.size, self.tiling
        first = f.mul(block, t.block)
        last = f.minimum(f.add(first, t.block), k.size(f, self.tiles))
        if isinstance(m, int):
            low, extra = divmod(m, max(1, self.tiles))
        else:
            count = f.maximum(k.size(f, self.tiles), 1)
            low, extra = f.divide(k.size(f, m), count)
        for one_more in (1, 0):
            if isinstance(m, int) and (extra == 0 if one_more else extra == self.tiles):
                continue
            start, stop = (first, f.minimum(last, extra)) if one_more else (f.maximum(first, extra), last)
            with f.loop(start, stop) as loop:
                row = f.add(f.mul(loop.index, f.add(low, one_more)), "0" if one_more else extra)
                if isinstance(m, int):
                    body(low + one_more, row)
                else:
                    self.switch(f, f.add(low, one_more), lambda height, row=row: body(height, row))

    def switch(self, f: Function, height: str, body: Callable[[int], None]) -> None:
        """body(height) for a height that only the run knows."""
        after = f.fresh_label("after")
        labels = [(h, f.fresh_label("height")) for h in self.heights]
        cases = " ".join(f"i64 {h}, label %{label}" for h, label in labels)
        f.statement(f"switch i64 {height}, label %{after} [{cases}]")
        for h, label in labels:
            f.label(label)
            body(h)
            f.branch(after)
        f.label(after)

    def for_panels(self, k: KernelText, f: Function, group: str, body: Callable[[str, str, str], None]) -> None:
        """body(kind, panel, columns) for the panels of a group; the last panel of all may be an edge."""
        n, t = self.product.n.size, self.tiling
        names = [name for name, _, _ in self.versions()]
        first = f.mul(group, t.group)
        last = f.minimum(f.add(first, t.group), k.size(f, self.panels))
        whole = k.size(f, dims.floor_divide(n, self.width))
        if "tile" in names:
            with f.loop(first, f.minimum(last, whole)) as loop:
                body("tile", loop.index, "0")
        if "edge" in names:
            with f.loop(f.maximum(first, whole), last) as loop:
                body("edge", loop.index, f.sub(k.size(f, n), f.mul(loop.index, self.width)))

    # Packing B at run time -----------------------------------------------------------------------

    def packing_step(self) -> Step:
        """Copies B into panels; a part is a panel."""
        k, p = KernelText(self.target), self.product
        size, n = self.sizes[B], p.n.size
        with k.entry() as f, f.loop("%first", "%last") as parts:
            index, panel = f.divide(parts.index, k.size(f, self.panels))
            source, target = k.input(f, p.operands[1]), k.temporary(f, 0)
            whole = p.depth * self.columns * size
            target = f.offset(target, f.mul(index, k.size(f, whole)))
            target = f.offset(target, f.mul(panel, k.size(f, p.depth * (self.width * size))))
            for axis in reversed(p.panels_axes):
                index, here = f.divide(index, k.size(f, axis.size))
                source = f.offset(source, f.mul(here, k.size(f, self.step_of(axis, B))))
            source = f.offset(source, f.mul(panel, k.size(f, self.step_of(p.n, B) * self.width)))
            left = f.sub(k.size(f, n), f.mul(panel, self.width))
            for name, vectors, _ in self.versions():
                if not isinstance(n, int):
                    condition = f.compare("sge" if name == "tile" else "slt", left, self.width)
                else:
                    condition = f.compare("slt" if name == "tile" else "sge", panel, n // self.width)
                with f.when(condition):
                    present = self.width if name == "tile" else left
                    if isinstance(n, int) and name == "edge":
                        present = n % self.width
                    self.pack_nest(k, f, 0, source, target, vectors, present)
        parts = dims.product(axis.size for axis in p.panels_axes) * self.panels
        rate = max(1, int(self.target.bytes_per_ns))
        work = dims.floor_divide(self.packed_repeats * p.depth * n * (2 * size), rate) + parts * 20
        return k.step(parts, work)

    def pack_nest(self, k: KernelText, f: Function, level: int, source: str, target: str, vectors: int,
                  columns: int | str) -> str:
        """Packs the axes of k from `level` on; returns the address behind what it wrote."""
        p = self.product
        axis = p.k[level]
        if level == len(p.k) - 1:
            return pack_panel(
                f, p.rhs, self.tiling.lanes, vectors, source, target, k.size(f, axis.size),
                k.size(f, self.step_of(axis, B)), k.size(f, self.step_of(p.n, B)), columns,
            )
        with f.loop(0, k.size(f, axis.size), 1, [("ptr", target)]) as loop:
            inner = f.offset(source, f.mul(loop.index, k.size(f, self.step_of(axis, B))))
            loop.carry(self.pack_nest(k, f, level + 1, inner, loop.carried[0], vectors, columns))
        return loop.results[0]
