"""Matrix products: every Contract with a normal form (`contraction.py`), and dense convolutions of single
pixels, cut into register tiles.

      ┌──────┬──────┬───┐   n →  panels of NR = vectors * lanes columns; the last may be an edge
      │ tile │      │   │   m ↓  tiles of equal heights: 49 rows by 14 are 13 + 12 + 12 + 12
      ├──────┼──────┼───┤   A part is a strip of tiles, or a piece of it, x a group of panels. Those of a
      │      │      │   │   strip follow each other, so that a thread reads rows that it wrote itself, and
strips that it has whole are gone through together. Order "panels" runs a panel through all tiles of a strip,
"rows" a tile through the group's. A constant B is packed when compiling, another by a step of its own if
enough tiles share it. A transposed A is read in place, each step of k a line far from the last; where panels
wait for these lines again and again, a tile copies its rows first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...target import LINE, Target
from .. import costs
from ..costs import Estimate
from ..kernel import ALL, Choice, Code, KernelFunction, KernelText, Offer, Step, lasting, nearest, offered
from ..text.emitter import ENTRY, Function, Text
from ..tiles import epilogue as epilogues
from ..tiles import microkernel as mk
from ..tiles.contraction import A, Axis, B, C, Product, contraction_of, itemsizes, product_of, tiled_product
from ..tiles.epilogue import Epilogue, Operand, Place
from ..tiles.gemm_tiling import Tiling, copied, dot_of, estimate, expected, in_parts, packing, tilings
from ..tiles.lines import Lines, shared_lines
from ..tiles.packing import pack_columns, pack_panel, padded
from ..tiles.panel_operand import Ahead, Panel
from ..tiles.stored_form import stored_form
from ..tiles.words import Words

# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tilings by estimate, where the product has a normal form that tiles can do."""
    contraction = contraction_of(node)
    product = None if contraction is None else tiled_product(contraction)
    if contraction is None or product is None:
        return
    if stored_form(contraction, product, target) is not None:
        return  # gemm_stored's, so that the library is no larger than the model
    packed = (product.operands[1],) if product.constant else ()
    product = expected(product)
    found = sorted(tilings(product, target), key=lambda tiling: -tiling.rows)
    found = [in_parts(product, tiling, target) for tiling in found]
    found += [with_copies for tiling in found for with_copies in copied(product, tiling)]
    timed = partial(estimate, contraction, product, target=target)
    for cost, tiling in lasting(product.m.size, nearest((timed(tiling), tiling) for tiling in found), timed):
        yield Offer(cost, tiling, packed=packed)


# Packing -----------------------------------------------------------------------------------------


def pack(node: Node, choice: Choice[Tiling], operand: int) -> Constant | None:
    """B as [outer axes of B][panels]."""
    node = offered(contraction_of(node), node)
    product = product_of(node)
    if product is None or not product.constant or operand != product.operands[1]:
        return None
    return pack_product(node, product, choice.tiling, choice.tiling.k_step, choice.tiling.k_step)


def pack_product(node: Node[Contract], product: Product, tiling: Tiling, group: int, whole: int) -> Constant:
    """B in panels in which `group` neighbours along k stand together, and k is a multiple of `whole`."""
    of_k, columns = dims.number(product.depth), dims.number(product.n.size)
    matrices = dims.number(dims.product(axis.size for axis in product.panels_axes))
    lanes, depth, stored = tiling.lanes, padded(of_k, whole), tiling.stored or product.rhs
    matrix_of = constant_matrix(node, product)

    def make() -> np.ndarray:
        matrix = matrix_of().astype(dtypes.numpy_dtype(stored), copy=False)
        if whole > group:
            matrix = np.pad(matrix, [(0, 0), (0, depth - of_k), (0, 0)])
        return pack_columns(matrix, tiling.vectors * lanes, lanes, group, tiling.stored is not None)

    return Constant(stored, (matrices, depth * padded(columns, lanes)), make)


def constant_matrix(node: Node[Contract], product: Product) -> Callable[[], np.ndarray]:
    """A function that gives a constant B as [matrices, K, N]."""
    operand = product.operands[1]
    value = node.inputs[operand].data
    labels = node.op.lhs if operand == 0 else node.op.rhs
    groups = [
        "".join(axis.labels for axis in axes) for axes in (product.panels_axes, product.k, (product.n,))
    ]
    sizes = dict(zip(labels, value.shape, strict=True))
    shape = [dims.product(sizes[label] for label in group) for group in groups]
    order = [labels.index(label) for group in groups for label in group]
    order += [axis for axis in range(len(value.shape)) if axis not in order]  # those of size 1
    return lambda: value.array.transpose(order).reshape(shape)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice[Tiling], target: Target) -> Code:
    node = offered(contraction_of(node), node)
    return Gemm(node, offered(product_of(node), node), choice.tiling, choice.cost, target).code()


class Gemm:
    """Writes the steps of one product. Distances are in bytes. What is a number stands in the code;
    what only the run knows is a word that the entry hands to the tiles."""

    def __init__(
        self, node: Node[Contract], product: Product, tiling: Tiling, cost: Estimate, target: Target
    ):
        self.cost = cost
        self.product, self.tiling, self.target = product, tiling, target
        self.body, self.bounds = node.op.epilogue, epilogues.bounds_of(node)
        self.sizes = itemsizes(product, tiling.stored)
        self.width = tiling.vectors * tiling.lanes
        self.direct, self.packs = (tiling.source == source for source in ("direct", "in_parts"))
        self.dot = dot_of(product, target) if tiling.k_step > 1 else None
        self.k_group = tiling.k_step  # neighbours along k that stand together
        # What a packed matrix has of k, whole groups.
        self.depth = dims.ceil_divide(product.depth, tiling.k_step) * tiling.k_step
        used = expr.inputs(self.body) if self.body is not None else []
        self.extra = [index + 1 for index in used if index > 0]  # the node's inputs
        self.tiles = dims.ceil_divide(product.m.size, tiling.rows)
        self.panels = dims.ceil_divide(product.n.size, self.width)
        self.words = Words(self._told())
        self.heights = self._heights()
        self.versions = self._versions()

    # Sizes ---------------------------------------------------------------------------------------

    def step_of(self, axis: Axis, operand: int) -> Dimension:
        """Bytes from one element of an operand to the next along axis."""
        return axis.strides[operand] * self.sizes[operand]

    @property
    def columns(self) -> Dimension:
        """N as packed: whole vectors where the size is known, else whole panels."""
        n = self.product.n.size
        return padded(n, self.tiling.lanes) if isinstance(n, int) else self.panels * self.width

    def panel_bytes(self) -> Dimension:
        """Of a panel of whole width."""
        return self.depth * (self.width * self.sizes[B])

    def panels_bytes(self) -> Dimension:
        """Of one matrix of panels."""
        return self.depth * self.columns * self.sizes[B]

    def _told(self) -> list[Dimension]:
        """What tiles must be told where only the run knows it."""
        p = self.product
        needed = [self.step_of(p.m, operand) for operand in (A, C, *(k + 1 for k in self.extra))]
        for level, axis in enumerate(p.k):
            needed += [axis.size, self.step_of(axis, A)]
            needed.append(self.step_of(axis, B) if self.direct else self.steps_inside(level))
        if self.body is not None:
            needed += [n.value for n in expr.topological(self.body) if n.op == "size"]
        return needed

    def steps_inside(self, level: int) -> Dimension:
        """Steps of k in one step of its axis `level`."""
        return dims.product(axis.size for axis in self.product.k[level + 1 :])

    def _heights(self) -> list[int]:
        """The tile heights that occur."""
        m, most = self.product.m.size, self.tiling.rows
        if isinstance(m, int):
            return sorted(mk.height_counts(m, most))
        return list(range(1, most + 1))

    def _versions(self) -> list[tuple[str, int, int | str | None]]:
        """The kinds of panels as (name, vectors, columns, None being all)."""
        n, lanes, vectors = self.product.n.size, self.tiling.lanes, self.tiling.vectors
        if not isinstance(n, int):
            return [("tile", vectors, None), ("edge", vectors, "%columns")]
        tail = n % self.width
        whole = [("tile", vectors, None)] if n >= self.width else []
        return whole + ([("edge", -(-tail // lanes), tail)] if tail else [])

    # Tiles ---------------------------------------------------------------------------------------

    def tile(self, height: int, vectors: int) -> mk.Tile:
        p = self.product
        stored = self.tiling.stored or p.rhs
        return mk.Tile(height, vectors, self.tiling.lanes, p.lhs, stored, p.accumulate, self.dot)

    def parameters(self) -> tuple[list[str], list[str]]:
        """Pointers and numbers that a tile's function takes."""
        pointers = ["%a", "%b", "%c", *(f"%e{k}" for k in self.extra), "%scratch", *["%ahead"] * self.shared]
        return pointers, [*self.words.names, *["%share"] * self.shared, "%columns"]

    def emit_tile(self, text: Text, name: str, tile: mk.Tile, columns: int | str | None) -> None:
        """The function of one kind of tile: the sum over k, then the epilogue, or its call."""
        pointers, numbers = self.parameters()
        parameters = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in numbers]
        with text.function(f"{name}{tile.rows}", parameters, attributes="nounwind noinline") as f:
            sums = self.sums(f, tile, 0, "%a", "%b", self.start(f, tile), columns)
            self.finish(f, name, tile, sums, columns)
            f.statement("ret void")

    def start(self, f: Function, tile: mk.Tile) -> list[str]:
        """What a tile's sums begin with."""
        return tile.zeros()

    def finish(
        self, f: Function, name: str, tile: mk.Tile, sums: Sequence[str], columns: int | str | None
    ) -> None:
        """What becomes of a tile's sums."""
        out = self.out()
        if epilogues.in_registers(self.body):
            return epilogues.finish_in_registers(f, tile, sums, self.epilogue(), out, columns)
        raw = epilogues.raw_place(tile, "%scratch")
        epilogues.finish_in_registers(f, tile, sums, Epilogue(None, {}), raw, columns)
        pointers, numbers = self.parameters()
        arguments = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (*numbers, tile.rows)]
        f.statement(f"call void @{name}.done({', '.join(arguments)})")

    def emit_done(self, text: Text, name: str, tile: mk.Tile, columns: int | str | None) -> None:
        """The function that ends tiles of any height whose epilogue does not run in registers."""
        pointers, numbers = self.parameters()
        parameters = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (*numbers, "%rows")]
        with text.function(f"{name}.done", parameters, attributes="nounwind noinline") as f:
            out = self.out()
            raw = epilogues.raw_place(tile, "%scratch")
            epilogues.finish_rows(f, tile, "%rows", self.epilogue(), raw, out, columns)
            f.statement("ret void")

    def out(self) -> Place:
        return Place("%c", self.product.result, self.words.of(self.step_of(self.product.m, C)))

    def epilogue(self) -> Epilogue:
        p = self.product
        operands = {
            k - 1: Operand(
                f"%e{k}", p.extra[k - 2], self.words.of(self.step_of(p.m, k + 1)), p.n.strides[k + 1] == 1
            )
            for k in self.extra
        }
        return Epilogue(self.body, operands, lambda d: str(self.words.of(d)), self.bounds)

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
        """start + the sum over the axes of k from `level` on, the last in the tile's own loop."""
        p = self.product
        axis, a_step = p.k[level], self.words.of(self.step_of(p.k[level], A))
        b_step = self.words.of(self.step_of(axis, B)) if self.direct else tile.panel_step
        if level == len(p.k) - 1:
            a_row = self.words.of(self.step_of(p.m, A))
            if self.tiling.copied:
                a_row, a_step = self.copied_apart
            a_rows = mk.strided_rows(f, a, a_row, tile.rows, a_step)
            streams = self.streams(tile, axis.size)
            if self.direct:
                panel = Panel(b, b_step, columns)
            elif streams > 1:
                panel = Panel(b, prefetch=mk.fetched_ahead(streams))
            else:
                panel = Panel(b, ahead=self.ahead(tile) if self.shared else None)
            return mk.multiply_add(
                f,
                tile,
                start,
                a_rows,
                panel,
                self.words.of(axis.size),
                # Every column of a row is summed in one order: an edge splits its sums as whole panels do.
                chains=mk.chains_for(self.target, tile.rows, self.tiling.vectors),
                streams=streams,
            )
        if not self.direct:
            b_step = f.mul(b_step, self.words.of(self.steps_inside(level)))
        with f.loop(0, self.words.of(axis.size), 1, [(tile.vector, v) for v in start]) as loop:
            a_next = f.offset(a, f.mul(loop.index, a_step))
            b_next = f.offset(b, f.mul(loop.index, b_step))
            loop.carry(*self.sums(f, tile, level + 1, a_next, b_next, loop.carried, columns))
        return loop.results

    def streams(self, tile: mk.Tile, depth: Dimension) -> int:
        """From how many places a panel is read that no other tile reads."""
        rows = self.product.m.size
        once = self.tiling.source == "constant" and (rows == tile.rows or not isinstance(rows, int))
        whole = replace(tile, vectors=self.tiling.vectors)
        return mk.streams_for(self.target, whole, self.words.of(depth)) if once else 1

    # The next panel ------------------------------------------------------------------------------

    @cached_property
    def shared(self) -> bool:
        """Whether each tile of a panel fetches its share of the next one, for which tiles would wait."""
        p, tiling = self.product, self.tiling
        if tiling.source != "constant" or len(p.k) > 1 or (tiling.order == "rows" and tiling.group == ALL):
            return False
        tiles = max(1, dims.typical(self.tiles))
        tile = self.tile(min(tiling.rows, max(self.heights, default=1)), tiling.vectors)
        if tiles == 1 and self.streams(tile, self.product.depth) > 1:
            return False  # it fetches what it reads itself
        return mk.waits(self.target)

    @property
    def depth_bytes(self) -> int:
        """Bytes of a panel for each step of k."""
        return self.width * self.k_group * self.sizes[B]

    def ahead(self, tile: mk.Tile) -> Ahead:
        """What a tile fetches: `share` bytes in each step of k; where only the run knows how many they are,
        lines for all that a step has."""
        rows = self.product.m.size
        strip = rows // dims.number(self.strips.count) if isinstance(rows, int) else 0
        most = self.depth_bytes * min(1, tile.rows / max(1, strip))
        return Ahead("%ahead", "%share", math.ceil(most / LINE))

    def share(self, f: KernelFunction, tiles: tuple[str, str]) -> None:
        """Lets the rows of these tiles fetch the next panel together."""
        first, behind = (self.row_of(f, tile) for tile in tiles)
        self.shared_by = first, f.maximum(f.sub(behind, first), 1)

    def shares(self, f: KernelFunction, panel: str, row: str, height: int) -> tuple[str, str]:
        """The arguments %ahead and %share of the tile at a row of a panel: where its share begins, and the
        bytes of a step."""
        first, rows = self.shared_by
        steps = dims.ceil_divide(self.product.depth, self.k_group)
        each, _ = f.divide(f.size(steps * self.depth_bytes), rows)
        step, _ = f.divide(f.add(height * self.depth_bytes - 1, rows), rows)
        behind = self.panel_bytes() * (1 if self.tiling.order == "panels" else self.tiling.group)
        return f.offset(panel, f.add(f.size(behind), f.mul(f.sub(row, first), each))), step

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        over = tuple(self.extra)  # every element is in one tile, whose epilogue reads before it writes
        if self.tiling.source != "packed":
            return Code((self.product_step(),), (), over)
        return Code((self.packing_step(), self.product_step()), (self.packed_bytes,), over)

    @property
    def groups(self) -> Dimension:
        """Of panels."""
        group = self.tiling.group
        return 1 if group == ALL else dims.ceil_divide(self.panels, group)

    @cached_property
    def strips(self) -> Lines:
        """Of tiles: as many as let threads have rows of their own, where that pays, or as leave those of a
        block in the second-level cache; those of a block are gone through together."""
        block, tiles, fewest = self.tiling.block, self.tiles, self.fewest_tiles
        strips = Lines(tiles, max(fewest, self.least_tiles), equal=True)
        if block == ALL:
            return strips
        blocks = dims.ceil_divide(tiles, block)
        strips = replace(strips, least=blocks if fewest == 1 else dims.minimum(blocks, tiles // fewest))
        most = dims.floor_divide(block * strips.count, dims.maximum(1, tiles))
        return replace(strips, most=dims.maximum(1, most))

    @property
    def fewest_tiles(self) -> int:
        """Of a strip, if there are several, whatever caches hold: all, where each would pack a matrix."""
        return dims.typical(self.tiles) if self.packs and self.tiling.order == "rows" else 1

    @property
    def least_tiles(self) -> int:
        """Of a strip, if there are several, as long as caches hold them."""
        panels, rows = dims.typical(self.product.n.size) / self.width, self.tiling.rows
        row, nbytes = self.tile_time * (panels / rows), self.bytes_of_row
        return math.ceil(costs.strip_rows(row, self.panel_time * panels, nbytes) / rows)

    @cached_property
    def pieces(self) -> Dimension:
        """Of a strip: as many as make enough parts, if there are tiles; one where each would pack B."""
        if self.packs:
            return 1
        others = dims.typical(self.product.repeats * self.groups * self.strips.count)
        wanted = math.ceil(costs.parts_for(self.cost.total) / max(1, others))
        each = dims.floor_divide(self.tiles, self.strips.count)
        return dims.minimum(dims.maximum(each, 1), wanted)

    @property
    def bytes_of_row(self) -> int:
        """Of A, as tiles read it."""
        return dims.typical(self.product.depth) * self.sizes[A]

    @property
    def tile_time(self) -> Estimate:
        """To multiply a tile of full height by a panel."""
        step = mk.step_time(self.target, self.tiling.rows, self.tiling.vectors, 1, self.dot)
        return Estimate(compute=step * dims.typical(self.depth) / self.k_group)

    @property
    def panel_time(self) -> Estimate:
        """Until a panel is there."""
        nbytes = dims.typical(self.panel_bytes())
        if self.tiling.source == "constant":
            return Estimate(memory=costs.stored(self.target, nbytes).memory)
        return Estimate(memory=nbytes / costs.CROSSED)

    @property
    def packed_bytes(self) -> Dimension:
        """Of all matrices that are packed when it runs."""
        return self.panel_rows * self.columns * self.sizes[B]

    def packing(self) -> Estimate:
        """What the step before takes that packs them, if there is one."""
        if self.tiling.source != "packed":
            return Estimate()
        return packing(self.target, dims.typical(self.packed_bytes), self.k_group, self.sizes[B])

    @property
    def panel_rows(self) -> Dimension:
        """Rows of all packed matrices together."""
        axes = self.product.panels_axes
        return dims.product(axis.size for axis in axes) * self.depth

    def product_step(self) -> Step:
        k, scratch = KernelText(self.target), self.tile_scratch(self.heights)
        for name, vectors, columns in self.versions:
            for height in self.heights:
                self.emit_tile(k, f"{ENTRY}.{name}", self.tile(height, vectors), columns)
            if self.heights and not epilogues.in_registers(self.body):
                self.emit_done(k, f"{ENTRY}.{name}", self.tile(1, vectors), columns)
        with k.entry() as f:
            self.for_parts(f)
        work = costs.work(self.cost - self.packing(), self.multiply_adds())
        if self.tiling.copied:
            scratch += self.bytes_of_copy
        if self.packs:
            scratch += self.tiling.group * dims.number(self.panel_bytes())
        return k.step(self.parts, work, scratch, unit=1)

    def tile_scratch(self, heights: Iterable[int]) -> int:
        """Bytes of scratch memory, in whole lines, that tiles of these heights need themselves."""
        tiles = [self.tile(height, vectors) for height in heights for _, vectors, _ in self.versions]
        return padded(max([LINE, *(epilogues.scratch_bytes(tile, self.body) for tile in tiles)]), LINE)

    def multiply_adds(self) -> Dimension:
        p = expected(self.product)
        return p.repeats * p.m.size * p.n.size * p.depth

    def rows(self, f: KernelFunction) -> str:
        """How many the tiles of a part are cut of."""
        return f.size(self.product.m.size)

    @property
    def parts(self) -> Dimension:
        """By matrix, strip, group and piece."""
        each = self.strips.count * self.groups * self.pieces
        return 0 if self.tiles == 0 else self.product.repeats * each

    def for_parts(self, f: KernelFunction) -> None:
        """Parts %first..%last-1."""
        if self.parts == 1:
            every = "0", self.number_of_tiles(f)
            self.share(f, every)
            return self.emit_part(f, self.places(f, "0"), every, "0")
        pieces, planes = f.size(self.pieces), self.groups * self.pieces
        with shared_lines(f, self.strips, planes, self.product.repeats) as (matrix, plane, (first, behind)):
            group, piece = f.divide(plane, pieces)
            here, tiles = f.sub(behind, first), []
            for number in (piece, f.add(piece, 1)):
                tiles.append(f.add(first, f.divide(f.mul(number, here), pieces)[0]))
            self.share(f, (first, behind))
            self.emit_part(f, self.places(f, matrix), (tiles[0], tiles[1]), group)

    def places(self, f: KernelFunction, index: str) -> dict[int, str]:
        """The addresses of A, B, C and the epilogue's operands for an index of the outer axes."""
        p = self.product
        a, b = p.operands
        packed = self.tiling.source == "packed"
        base: dict[int, str] = {A: f.input(a), B: f.temporary(0) if packed else f.input(b), C: f.output()}
        base |= {extra + 1: f.input(extra) for extra in self.extra}
        matrix = self.panels_bytes()
        for axis in reversed(p.outer):
            index, here = f.divide(index, f.size(axis.size))
            for operand, pointer in base.items():
                step = self.step_of(axis, operand)
                if operand == B and not self.direct and not self.packs and axis in p.panels_axes:
                    step, matrix = matrix, matrix * axis.size
                base[operand] = f.offset(pointer, f.mul(here, f.size(step)))
        return base

    def emit_part(
        self, f: KernelFunction, places: dict[int, str], tiles: tuple[str, str], group: str
    ) -> None:
        """Tiles of a strip, from the first to the one behind the last, and the panels of a group, in the
        tiling's order."""

        def tile(height: int, row: str, name: str, panel: str, columns: str) -> None:
            copy = self.packed_panel(f, group, panel) if self.packs else None
            self.call_tile(f, places, height, row, name, panel, columns, copy)

        if self.packs:
            self.pack_group(f, places, group)
        if self.tiling.order == "panels":
            self.for_panels(
                f,
                group,
                lambda *panel: self.for_tiles(f, tiles, lambda height, row: tile(height, row, *panel)),
            )
        else:

            def panels(height: int, row: str) -> None:
                if self.tiling.copied:
                    self.copy_rows(f, places[A], height, row)
                self.for_panels(f, group, lambda *panel: tile(height, row, *panel))

            self.for_tiles(f, tiles, panels)

    def call_tile(
        self,
        f: KernelFunction,
        places: dict[int, str],
        height: int,
        row: str,
        name: str,
        panel: str,
        columns: str,
        b: str | None = None,
    ) -> None:
        """Calls the function of a kind of tile for the tile at a row and a panel; `b`: where the panel is, if
        not in B."""
        at = self.tile_places(f, places, row, panel)
        constant = self.panel_start(f, name, at[B])
        at[B] = b or constant
        if self.tiling.copied:
            at[A] = self.copied_rows(f)
        numbers = self.words.values(f)
        pointers = [*at, "%scratch"]
        if self.shared:
            ahead, share = self.shares(f, constant, row, height)
            pointers, numbers = [*pointers, ahead], [*numbers, share]
        arguments = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (*numbers, columns)]
        f.statement(f"call void @{ENTRY}.{name}{height}({', '.join(arguments)})")

    def panel_start(self, f: KernelFunction, name: str, panel: str) -> str:
        """The first step of a panel of a kind, which begins at `panel`."""
        return panel

    def tile_places(self, f: KernelFunction, places: dict[int, str], row: str, panel: str) -> list[str]:
        """The addresses of everything for the tile that begins at a row and a panel."""
        p, result = self.product, []
        for operand, pointer in places.items():
            down, across = self.step_of(p.m, operand), self.step_of(p.n, operand) * self.width
            if operand == B and not self.direct:
                across = self.panel_bytes()
            pointer = f.offset(pointer, f.mul(row, f.size(down)))
            result.append(f.offset(pointer, f.mul(panel, f.size(across))))
        return result

    def for_tiles(self, f: KernelFunction, tiles: tuple[str, str], body: Callable[[int, str], None]) -> None:
        """body(height, first row) for the tiles of a strip."""
        rows, most = self.rows(f), self.tiling.rows
        mk.for_equal_tiles(f, rows, most, lambda h, row, _: body(h, row), *tiles)

    def number_of_tiles(self, f: KernelFunction) -> str:
        most = self.tiling.rows
        return f.divide(f.add(self.rows(f), most - 1), most)[0]

    def row_of(self, f: KernelFunction, tile: str) -> str:
        """Where a tile begins."""
        low, extra = f.divide(self.rows(f), f.maximum(self.number_of_tiles(f), 1))
        return f.add(f.mul(low, tile), f.minimum(tile, extra))

    def for_panels(self, f: KernelFunction, group: str, body: Callable[[str, str, str], None]) -> None:
        """body(kind, panel, columns) for the panels of a group."""
        n, size = self.product.n.size, self.tiling.group
        first, panels = f.mul(group, size), f.size(self.panels)
        last = panels if size == ALL else f.minimum(f.add(first, size), panels)
        whole = f.size(dims.floor_divide(n, self.width))
        for name, _, _ in self.versions:
            start, stop = (first, f.minimum(last, whole))
            if name == "edge":
                start, stop = f.maximum(first, whole), last
            with f.loop(start, stop) as loop:
                body(name, loop.index, f.sub(f.size(n), f.mul(loop.index, self.width)))

    # Copying A -----------------------------------------------------------------------------------

    @property
    def copied_width(self) -> int:
        """Rows of a copy, of which each step of k has whole vectors."""
        return padded(self.tiling.rows, self.tiling.lanes)

    @property
    def copied_apart(self) -> tuple[int, int]:
        """Bytes of a copy from row to row, and from one step of k to the next."""
        return self.sizes[A], self.copied_width * self.sizes[A]

    @property
    def bytes_of_copy(self) -> int:
        return dims.number(self.product.depth) * self.copied_apart[1]

    def copied_rows(self, f: KernelFunction) -> str:
        """Where the copy of a tile's rows is: in scratch memory, behind what tiles need."""
        return f.offset("%scratch", self.tile_scratch(self.heights))

    def copy_rows(self, f: KernelFunction, a: str, height: int, row: str) -> None:
        """Brings the rows of a tile together, as panels are."""
        p, lanes = self.product, self.tiling.lanes
        source, apart = f.offset(a, f.mul(row, self.sizes[A])), f.size(self.step_of(p.k[0], A))
        vectors, depth = self.copied_width // lanes, f.size(p.depth)
        pack_panel(f, p.lhs, lanes, vectors, source, self.copied_rows(f), depth, apart, self.sizes[A], height)

    # Packing B at run time -----------------------------------------------------------------------

    def packed_panel(self, f: KernelFunction, group: str, panel: str) -> str:
        """A panel of a group, as a part packed it: in scratch memory, behind what tiles need."""
        here = f.mul(f.sub(panel, f.mul(group, self.tiling.group)), f.size(self.panel_bytes()))
        return f.offset("%scratch", f.add(self.tile_scratch(self.heights), here))

    def pack_group(self, f: KernelFunction, places: dict[int, str], group: str) -> None:
        """Packs the panels of a group."""
        across = f.size(self.step_of(self.product.n, B) * self.width)

        def pack(name: str, panel: str, left: str) -> None:
            source = f.offset(places[B], f.mul(panel, across))
            self.pack_kind(f, name, source, self.packed_panel(f, group, panel), left)

        self.for_panels(f, group, pack)

    def pack_kind(self, f: KernelFunction, name: str, source: str, target: str, left: str) -> None:
        """Packs a panel of a kind, from which on so many columns are left."""
        vectors, columns = {kind: (count, columns) for kind, count, columns in self.versions}[name]
        present = self.width if columns is None else left if columns == "%columns" else columns
        self.pack_nest(f, 0, source, target, vectors, present)

    def packing_step(self) -> Step:
        """Copies B into panels; a part is a panel."""
        k, p = KernelText(self.target), self.product
        size, n = self.sizes[B], p.n.size
        with k.entry() as f, f.loop("%first", "%last") as parts:
            index, panel = f.divide(parts.index, f.size(self.panels))
            source: str = f.input(p.operands[1])
            matrix, one = self.depth * self.columns * size, self.depth * (self.width * size)
            target = f.offset(f.temporary(0), f.mul(index, f.size(matrix)))
            target = f.offset(target, f.mul(panel, f.size(one)))
            for axis in reversed(p.panels_axes):
                index, here = f.divide(index, f.size(axis.size))
                source = f.offset(source, f.mul(here, f.size(self.step_of(axis, B))))
            across = self.step_of(p.n, B) * self.width
            source = f.offset(source, f.mul(panel, f.size(across)))
            left = f.sub(f.size(n), f.mul(panel, self.width))
            for name, _, _ in self.versions:
                whole = f.compare("sge", left, self.width)
                with f.when(whole if name == "tile" else f.invert(whole)):
                    self.pack_kind(f, name, source, target, left)
        parts_ = dims.product(axis.size for axis in p.panels_axes) * self.panels
        return k.step(parts_, costs.work(self.packing(), self.packed_bytes))

    def pack_nest(
        self, f: KernelFunction, level: int, source: str, target: str, vectors: int, columns: int | str
    ) -> str:
        """Packs the axes of k from `level` on; returns the address behind what it wrote."""
        p = self.product
        axis, step = p.k[level], f.size(self.step_of(p.k[level], B))
        if level == len(p.k) - 1:
            return pack_panel(
                f,
                p.rhs,
                self.tiling.lanes,
                vectors,
                source,
                target,
                f.size(axis.size),
                step,
                f.size(self.step_of(p.n, B)),
                columns,
                self.k_group,
                self.tiling.k_step,
            )
        with f.loop(0, f.size(axis.size), 1, [("ptr", target)]) as loop:
            inner = f.offset(source, f.mul(loop.index, step))
            loop.carry(self.pack_nest(f, level + 1, inner, loop.carried[0], vectors, columns))
        return loop.results[0]
