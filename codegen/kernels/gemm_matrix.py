"""Matrix products on registers that hold matrices: the parts, panels and epilogues of `gemm.py`, other tiles.

A's rows are read as they are where they are whole steps of k, else a step of its own copies them with zeros
behind. The sums of a tile go to scratch memory, over which the epilogue walks. Tiles of all heights are one
function: the registers are told their rows before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...target import Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.emitter import ENTRY, Text
from ..text.memory import load_first
from ..tiles import epilogue as epilogues
from ..tiles import matrix
from ..tiles.contraction import A, B, Product, product_of
from ..tiles.epilogue import Place
from ..tiles.matrix import MatrixTile
from ..tiles.panel import Ahead
from .gemm import Gemm, Tiling, pack_product, packing, parts_of_tiles

# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """One tiling, where the processor has such registers and neighbours along k lie together in A."""
    product = product_of(node) if target.matrices else None
    unit = unit_of(product, target) if product is not None else None
    if product is None or unit is None or node.op.rounded or not epilogues.supported(node.op.epilogue):
        return
    vectors = min(matrix.WIDE, -(-dims.typical(product.n.size) // unit.columns)) or 1
    m = product.m.size
    rows = matrix.HIGH * unit.rows if not isinstance(m, int) else max(1, min(m, matrix.HIGH * unit.rows))
    steps = -(-dims.typical(product.depth) // unit.depth)
    time = steps * costs.matrix_step(target, unit, rows, vectors) + costs.cycles(target, costs.TILE)
    source = "constant" if product.constant else "packed"
    order, block, group = parts_of_tiles(
        product, target, rows, vectors * unit.columns, time, by_rows=not product.constant
    )
    tiling = Tiling(rows, vectors, unit.columns, order, block, group, source, unit.depth)
    packed = (product.operands[1],) if product.constant else ()
    yield Offer(estimate(node, product, tiling, unit, target), tiling, packed=packed)


def unit_of(product: Product, target: Target) -> Matrix | None:
    """The processor's instruction for these types, where neighbours along k lie together in A."""
    axis = product.k[0]
    together = len(product.k) == 1 and (axis.strides[A] == 1 or axis.size == 1)
    together = together and isinstance(axis.size, int) and axis.size > 0
    return target.matrix(product.lhs, product.rhs, product.accumulate) if together else None


def is_whole(product: Product, unit: Matrix) -> bool:
    """Whether A's rows are whole steps of k."""
    return dims.number(product.depth) % unit.depth == 0


def estimate(node: Node, product: Product, tiling: Tiling, unit: Matrix, target: Target) -> Estimate:
    """The steps of all tiles, the epilogue, reading and writing everything once, packing what must be."""
    m, n, depth, repeats = (
        dims.typical(d) for d in (product.m.size, product.n.size, product.depth, product.repeats)
    )
    size_a, size_b = dtypes.itemsize(product.lhs), dtypes.itemsize(product.rhs)
    steps, panels = -(-depth // unit.depth), -(-n // unit.columns) / tiling.vectors
    tiles = -(-m // tiling.rows)
    height = m / max(1, tiles)
    each = steps * costs.matrix_step(target, unit, height, tiling.vectors)
    each += costs.matrix_ends(target, unit, height, tiling.vectors)
    found = Estimate(compute=each * tiles * panels) + costs.overhead(target, costs.TILE * tiles * panels)
    panel = steps * unit.depth * tiling.vectors * unit.columns * size_b
    found += costs.again(target, panel, panel + depth * tiling.rows * size_a) * (tiles * panels)
    block = depth * min(m, tiling.block * tiling.rows) * size_a
    found += costs.again(target, m * depth * size_a, block) * max(0, panels - 1)
    if product.constant:
        found += costs.stored(target, panel * panels)
    else:
        found += packing(target, depth * n * size_b, unit.group, size_b)
    if not is_whole(product, unit):
        found += costs.move(target, 2 * m * depth * size_a)
    found = found * repeats + costs.epilogue(target, node, product.accumulate) + costs.traffic(target, node)
    steps_before = (not product.constant) + (not is_whole(product, unit))
    return found + costs.step(target, 1 + steps_before)


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    """B as [outer axes of B][panels], each whole steps long."""
    product = product_of(node)
    if product is None or not product.constant or operand != product.operands[1]:
        return None
    group = 4 // dtypes.itemsize(product.rhs)
    return pack_product(node, product, choice.tiling, group, choice.tiling.dot)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product = offered(product_of(node), node)
    unit = offered(unit_of(product, target), node)
    return Matrices(node, product, choice.tiling, choice.cost, target, unit).code()


class Matrices(Gemm):
    """Writes the steps of one product."""

    def __init__(
        self,
        node: Node[Contract],
        product: Product,
        tiling: Tiling,
        cost: Estimate,
        target: Target,
        unit: Matrix,
    ):
        super().__init__(node, product, tiling, cost, target)
        self.shared = False  # these tiles fetch by `fetched`
        self.unit, self.copied = unit, not is_whole(product, unit)
        self.group = unit.group
        self.lines = matrix.HIGH if tiling.rows > unit.rows else 1  # registers of rows

    @property
    def together(self) -> int:
        """The tiles that use a panel one after the other, most of the time."""
        return max(1, min(dims.typical(self.tiles), self.tiling.block))

    @property
    def part_tiles(self) -> int:
        return self.tiling.block  # each tile of it fetches a share of the next panel

    @property
    def fetched(self) -> bool:
        """Whether the tiles of a panel fetch the next one: constants come from far."""
        return self.product.constant and self.tiling.order == "panels"

    def bytes_ahead(self, vectors: int) -> int:
        return matrix.bytes_ahead(MatrixTile(self.unit, vectors), self.together)

    @property
    def row_bytes(self) -> Dimension:
        """From one row of A to the next, as tiles read it."""
        return self.depth * self.sizes[A] if self.copied else self.step_of(self.product.m, A)

    # Tiles ---------------------------------------------------------------------------------------

    def emit_matrix_tile(
        self, text: Text, name: str, lines: int, vectors: int, columns: int | str | None
    ) -> None:
        """The function of tiles of `lines` registers of rows: the sums over k, then the epilogue."""
        p, tile = self.product, MatrixTile(self.unit, vectors, lines)
        pointers, numbers = self.parameters()
        parameters = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (*numbers, "%rows")]
        parameters += ["ptr %ahead"]
        with text.function(f"{name}.{lines}", parameters, attributes="nounwind noinline") as f:
            row = self.word(self.row_bytes)
            below = self.unit.rows
            matrix.clear(f, tile)
            rows = [f.offset("%a", f.mul(row, i * below)) for i in range(lines)]
            steps = dims.number(self.depth) // self.unit.depth
            ahead = Ahead("%ahead", self.bytes_ahead(vectors)) if self.fetched else None
            matrix.multiply_add(f, tile, rows, row, self.unit.row_bytes, "%b", steps, ahead)
            out = self.out()
            plain = self.body is None and p.result == p.accumulate and columns is None
            raw = out if plain else Place("%scratch", p.accumulate, tile.line)
            places = [f.offset(raw.pointer, f.mul(raw.row, i * below)) for i in range(lines)]
            matrix.store(f, tile, places, raw.row)
            if not plain:
                width = self.tile(1, vectors)
                epilogues.finish_rows(f, width, "%rows", self.epilogue(), raw, out, columns)
            f.statement("ret void")

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        steps, temporaries = [], []
        if self.tiling.source == "packed":
            steps.append(self.packing_step())
            temporaries.append(self.panel_rows * self.columns * self.sizes[B])
        if self.copied:
            steps.append(self.copying_step(len(temporaries)))
            temporaries.append(self.copied_bytes)
        return Code((*steps, self.product_step()), tuple(temporaries), tuple(self.extra))

    @property
    def rows_of_a(self) -> Dimension:
        """Rows of all matrices A together."""
        return dims.product(axis.size for axis in (*self.outer_of_a, self.product.m))

    @property
    def copied_bytes(self) -> Dimension:
        """Of A's rows, where a step copies them."""
        return self.rows_of_a * self.row_bytes

    @property
    def outer_of_a(self) -> list:
        return [axis for axis in self.product.outer if axis.strides[A] != 0]

    def emit_functions(self, k: KernelText) -> None:
        """Those that the entry calls."""
        for name, vectors, columns in self.versions:
            for lines in range(1, self.lines + 1):
                self.emit_matrix_tile(k, f"{ENTRY}.{name}", lines, vectors, columns)

    def product_step(self) -> Step:
        k, p = KernelText(self.target), self.product
        self.emit_functions(k)
        blocks, groups = self.blocks_and_groups()
        with k.entry() as f:
            with f.loop("%first", "%last") as parts:
                rest, block = f.divide(parts.index, f.size(blocks))
                rest, group = f.divide(rest, f.size(groups))
                self.emit_part(f, self.places(f, rest), block, group)
            matrix.release(f)
        steps = p.repeats * p.m.size * p.n.size * p.depth
        scratch = self.lines * self.unit.rows * self.width * dtypes.itemsize(p.accumulate)
        return k.step(p.repeats * blocks * groups, costs.work(self.cost, steps), scratch)

    def places(self, f: KernelFunction, index: str) -> dict[int, str]:
        found = super().places(f, index)
        if self.copied:
            at: str = f.temporary(1 if self.tiling.source == "packed" else 0)
            before = self.product.m.size
            for axis in reversed(self.product.outer):
                index, here = f.divide(index, f.size(axis.size))
                if axis in self.outer_of_a:
                    at = f.offset(at, f.mul(here, f.size(before * self.row_bytes)))
                    before = before * axis.size
            found[A] = at
        return found

    def emit_part(self, f: KernelFunction, places: dict[int, str], block: str, group: str) -> None:
        words = [f"i64 {f.size(word)}" for word in self.words]
        steps = dims.number(self.depth) // self.unit.depth
        panel_bytes = self.depth * self.width * self.sizes[B]

        def tile(height: str, row: str, number: str, name: str, panel: str, columns: str) -> None:
            found = self.tile_places(f, places, row, panel)
            at = [f"ptr {x}" for x in (*found, "%scratch")]
            share = f.mul(
                f.sub(number, f.mul(block, self.tiling.block)), steps * self.bytes_ahead(self.tiling.vectors)
            )
            ahead = f.offset(found[1], f.add(f.size(panel_bytes), share)) if self.fetched else "null"
            arguments = ", ".join([*at, *words, f"i64 {columns}", f"i64 {height}", f"ptr {ahead}"])
            self.call_matrix_tile(f, name, height, arguments)

        ranges = list(self.ranges(f, block))
        if len(ranges) == 1:
            matrix.set_rows(f, self.unit, ranges[0][0])

        def tiles(body: Callable[[str, str, str], None]) -> None:
            self.for_matrix_tiles(f, ranges, body)

        if self.tiling.order == "panels":
            self.for_panels(f, group, lambda *panel: tiles(lambda *where: tile(*where, *panel)))
        else:
            tiles(lambda *where: self.for_panels(f, group, lambda *panel: tile(*where, *panel)))

    def call_matrix_tile(self, f: KernelFunction, name: str, height: str, arguments: str) -> None:
        """Calls the function of a kind of tile that has as many registers of rows as the height needs."""
        for lines in range(1, self.lines + 1):
            call = f"call void @{ENTRY}.{name}.{lines}({arguments})"
            if height.isdigit():
                if (int(height) > self.unit.rows) == (lines == 2):
                    f.statement(call)
                continue
            high = f.compare("sgt", height, self.unit.rows)
            with f.when(high if lines == 2 else f.invert(high)):
                f.statement(call)

    def for_matrix_tiles(
        self,
        f: KernelFunction,
        ranges: list[tuple[str, str, str, str]],
        body: Callable[[str, str, str], None],
        told: bool = True,
    ) -> None:
        """body(height, row, number) for the tiles of a block, whose registers are told their rows where these
        differ; not `told`: tiles may have more rows than their height."""
        for height, skipped, start, stop in ranges:
            with f.when(f.compare("slt", start, stop)):
                if told and len(ranges) > 1:
                    matrix.set_rows(f, self.unit, height)
                with f.loop(start, stop) as loop:
                    body(height, f.add(f.mul(loop.index, height), skipped), loop.index)

    def ranges(self, f: KernelFunction, block: str) -> Iterator[tuple[str, str, str, str]]:
        """The tiles of a block, nearly equally high: (height, rows before those, first, behind the last)."""
        rows, size = f.size(self.product.m.size), self.tiling.block
        first = f.mul(block, size)
        last = f.minimum(f.add(first, size), f.size(self.tiles))
        low, extra = f.divide(
            rows, f.maximum(f.size(self.tiles), 1)
        )  # the first `extra` tiles are a row higher
        if extra != "0":
            yield f.add(low, 1), "0", first, f.minimum(last, extra)
        if low != "0":
            yield low, extra, f.maximum(first, extra), last

    def tile_places(self, f: KernelFunction, places: dict[int, str], row: str, panel: str) -> list[str]:
        found = super().tile_places(f, places, "0", panel)
        steps = {A: self.row_bytes} | {k: self.step_of(self.product.m, k) for k in places if k not in (A, B)}
        return [f.offset(at, f.mul(row, f.size(steps.get(k, 0)))) for k, at in zip(places, found)]

    # A with zeros behind its rows ----------------------------------------------------------------

    def copying_step(self, buffer: int) -> Step:
        """Copies A's rows into whole steps of k; a part is a row."""
        k, p = KernelText(self.target), self.product
        nbytes = self.rows_of_a * self.row_bytes
        with k.entry() as f, f.loop("%first", "%last") as parts:
            index, here = f.divide(parts.index, f.size(p.m.size))
            source: str = f.offset(f.input(p.operands[0]), f.mul(here, f.size(self.step_of(p.m, A))))
            for axis in reversed(self.outer_of_a):
                index, here = f.divide(index, f.size(axis.size))
                source = f.offset(source, f.mul(here, f.size(self.step_of(axis, A))))
            to = f.offset(f.temporary(buffer), f.mul(parts.index, f.size(self.row_bytes)))
            self.copy_row(f, source, to)
        return k.step(self.rows_of_a, costs.work(costs.move(self.target, 2 * dims.typical(nbytes)), nbytes))

    def copy_row(self, f: KernelFunction, source: str, to: str) -> None:
        unit, depth = self.unit, dims.number(self.product.depth)
        element = f"int{8 * self.sizes[A]}"  # only moved
        kind = f"<{unit.depth} x i{8 * self.sizes[A]}>"
        with f.loop(0, depth // unit.depth) as loop:
            at = f.mul(loop.index, unit.row_bytes)
            f.store(kind, f.load(kind, f.offset(source, at)), f.offset(to, at), unit.row_bytes)
        whole = depth // unit.depth * unit.row_bytes
        rest = load_first(f, element, unit.depth, f.offset(source, whole), depth % unit.depth)
        f.store(kind, rest, f.offset(to, whole), unit.row_bytes)
