"""Matrix products on registers that hold matrices: the parts, panels and epilogues of `gemm.py`, other tiles.

A's rows are read as they are where they are whole steps of k, else a step of its own copies them with zeros
behind. The sums of a tile go to scratch memory, over which the epilogue walks. Tiles of all heights are one
function: the registers are told their rows before.

    for each panel:  for each run of its steps of k:  for each tile of rows:  sums += rows panel
Of many steps the first-level cache holds a run of the panel's while all tiles take them. Sums wait in scratch
memory then, and rows are copied to lie an odd number of lines apart: those that a tile reads together come
from all banks of a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import field

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.emitter import ENTRY, Text
from ..text.memory import load_first
from ..tiles import epilogue as epilogues
from ..tiles import gemm_tiling, matrix
from ..tiles.contraction import A, B, Product, product_of, tiled_product
from ..tiles.epilogue import Place
from ..tiles.matrix import MatrixTile
from ..tiles.panel_operand import Ahead
from .gemm import Gemm, pack_product

NEAR = 0.75  # of the first-level cache, for a run of steps
MANY = 16  # panels that pay for copying rows

# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling(gemm_tiling.Tiling):
    """That of `gemm`; each tile takes `run` steps of k of a panel, then the next `run`."""

    run: int = field(kw_only=True)


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """One tiling, where the processor has such registers and neighbours along k lie together in A."""
    product = tiled_product(node) if target.matrices else None
    unit = unit_of(product, target) if product is not None else None
    if product is None or unit is None:
        return
    vectors = min(matrix.WIDE, -(-dims.typical(product.n.size) // unit.columns)) or 1
    m = product.m.size
    rows = matrix.HIGH * unit.rows if not isinstance(m, int) else max(1, min(m, matrix.HIGH * unit.rows))
    steps = -(-dims.typical(product.depth) // unit.depth)
    time = steps * costs.matrix_step(target, unit, rows, vectors) + costs.cycles(target, costs.TILE)
    source: gemm_tiling.Source = "constant" if product.constant else "packed"
    order, block, group = gemm_tiling.parts_of_tiles(
        product, target, rows, vectors * unit.columns, time, by_rows=not product.constant
    )
    where = (order, block, group, source, unit.depth)
    width, typical_m = vectors * unit.columns, dims.typical(m)
    if order == "panels" and typical_m > rows and dims.typical(product.n.size) >= MANY * width:
        steps = equal_runs(steps, rows, width, (rows + width) * matrix.STEP_BYTES, target)
    tiling = Tiling(rows, vectors, unit.columns, *where, run=steps)
    packed = (product.operands[1],) if product.constant else ()
    yield Offer(estimate(node, product, tiling, unit, target), tiling, packed=packed)


def equal_runs(steps: int, rows: int, width: int, step_bytes: int, target: Target) -> int:
    """How many of the steps are a run: as many as leave the rows and columns of a tile, `step_bytes` a step,
    and its sums in the first-level cache; two at least, since sums are loaded and stored for each run."""
    room = NEAR * target.facts.level1_bytes - 4 * rows * width
    return -(-steps // -(-steps // max(2, int(room / step_bytes))))


def unit_of(product: Product, target: Target) -> Matrix | None:
    """The processor's instruction for these types, where neighbours along k lie together in A."""
    axis = product.k[0]
    together = len(product.k) == 1 and (axis.strides[A] == 1 or axis.size == 1)
    together = together and isinstance(axis.size, int) and axis.size > 0
    return target.matrix(product.lhs, product.rhs, product.accumulate) if together else None


def is_whole(product: Product, unit: Matrix) -> bool:
    """Whether A's rows are whole steps of k."""
    return dims.number(product.depth) % unit.depth == 0


def copies(product: Product, tiling: Tiling, unit: Matrix) -> bool:
    """Whether a step copies A's rows."""
    return not is_whole(product, unit) or tiling.run * unit.depth < dims.number(product.depth)


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
    each += costs.matrix_ends(target, unit, height, tiling.vectors) * -(-steps // tiling.run)
    found = Estimate(compute=each * tiles * panels) + costs.overhead(target, costs.TILE * tiles * panels)
    panel = steps * unit.depth * tiling.vectors * unit.columns * size_b
    run = tiling.run / steps * (panel + depth * tiling.rows * size_a)
    found += costs.again(target, panel, run) * (tiles * panels)
    rows_together = tiling.rows if tiling.order == "rows" else min(m, tiling.block * tiling.rows)
    block = depth * rows_together * size_a
    found += costs.again(target, m * depth * size_a, block) * max(0, panels - 1)
    if product.constant:
        found += costs.stored(target, panel * panels)
    else:
        found += gemm_tiling.packing(target, depth * n * size_b, unit.group, size_b)
    if copies(product, tiling, unit):
        found += costs.move(target, 2 * m * depth * size_a)
    found = found * repeats + costs.epilogue(target, node, product.accumulate) + costs.traffic(target, node)
    steps_before = (not product.constant) + copies(product, tiling, unit)
    return found + costs.step(target, 1 + steps_before)


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    """B as [outer axes of B][panels], each whole steps long."""
    product = product_of(node)
    if product is None or not product.constant or operand != product.operands[1]:
        return None
    group = 4 // dtypes.itemsize(product.rhs)
    return pack_product(node, product, choice.tiling, group, choice.tiling.k_step)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product = offered(product_of(node), node)
    unit = offered(unit_of(product, target), node)
    return Matrices(node, product, choice.tiling, choice.cost, target, unit).code()


class Matrices(Gemm):
    """Writes the steps of one product."""

    tiling: Tiling

    def __init__(
        self,
        node: Node[Contract],
        product: Product,
        tiling: Tiling,
        cost: Estimate,
        target: Target,
        unit: Matrix,
    ):
        self.unit, self.copied = unit, copies(product, tiling, unit)
        super().__init__(node, product, tiling, cost, target)
        self.shared = False  # these tiles fetch by `fetched`
        self.k_group = unit.group
        self.lines = matrix.HIGH if tiling.rows > unit.rows else 1  # registers of rows
        self.sums_bytes = self.lines * unit.rows * self.width * dtypes.itemsize(product.accumulate)

    @property
    def steps(self) -> int:
        """Of k."""
        return dims.number(self.depth) // self.unit.depth

    @property
    def in_runs(self) -> bool:
        """Whether sums wait for the next run of steps."""
        return self.tiling.run < self.steps

    @property
    def together(self) -> int:
        """The tiles that use a panel one after the other, most of the time."""
        return max(1, min(dims.typical(self.tiles), self.tiling.block))

    @property
    def fetched(self) -> bool:
        """Whether the tiles of a panel fetch the next one: constants come from far."""
        return self.product.constant and self.tiling.order == "panels"

    def bytes_ahead(self, vectors: int) -> int:
        return matrix.bytes_ahead(MatrixTile(self.unit, vectors), self.together)

    @property
    def step_bytes(self) -> int:
        """Of a row in a step of k, as tiles read it."""
        return matrix.STEP_BYTES

    @property
    def row_bytes(self) -> Dimension:
        """From one row of A to the next, as tiles read it; of copies an odd number of lines."""
        own, apart = self.step_of(self.product.m, A), self.step_bytes * self.steps | matrix.LINE
        return own + (apart - own) * self.is_copied if self.copied else own

    @property
    def is_copied(self) -> Dimension:
        """1 where a step copies A's rows; whole rows of a single tile are read as they are."""
        alone = is_whole(self.product, self.unit) and not isinstance(self.product.m.size, int)
        return dims.compare("lt", self.tiling.rows, self.product.m.size) if alone else 1

    def _told(self) -> list[Dimension]:
        return [*super()._told(), self.row_bytes]

    # Tiles ---------------------------------------------------------------------------------------

    def emit_matrix_tile(
        self, text: Text, name: str, lines: int, vectors: int, columns: int | str | None
    ) -> None:
        """The function of tiles of `lines` registers of rows: the sums over k, then the epilogue."""
        p, tile = self.product, MatrixTile(self.unit, vectors, lines)
        pointers, numbers = self.parameters()
        parameters = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (*numbers, "%rows")]
        parameters += ["ptr %ahead", *(["i64 %begun", "i64 %steps"] if self.in_runs else [])]
        with text.function(f"{name}.{lines}", parameters, attributes="nounwind noinline") as f:
            row = self.words.of(self.row_bytes)
            below, out = self.unit.rows, self.out()
            plain = self.body is None and p.result == p.accumulate and columns is None and not self.in_runs
            raw = out if plain else Place("%scratch", p.accumulate, tile.line)
            sums = [f.offset(raw.pointer, f.mul(raw.row, i * below)) for i in range(lines)]
            if self.in_runs:
                matrix.clear_or_load(f, tile, f.compare("eq", "%begun", 0, "i64"), sums, raw.row)
            else:
                matrix.clear(f, tile)
            rows = [f.offset("%a", f.mul(row, i * below)) for i in range(lines)]
            steps = "%steps" if self.in_runs else self.steps
            ahead = Ahead("%ahead", self.bytes_ahead(vectors)) if self.fetched else None
            matrix.multiply_add(f, tile, rows, row, self.unit.row_bytes, "%b", steps, ahead)
            matrix.store(f, tile, sums, raw.row)
            if not plain:
                last = f.compare("eq", f.add("%begun", steps), self.steps) if self.in_runs else None
                with nullcontext() if last is None else f.when(last):
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
        """Of A's rows, where a step copies them, and one behind the last: tiles that are a row lower than
        the first may read one more."""
        return (self.rows_of_a + 1) * self.row_bytes * self.is_copied

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
        with k.entry() as f:
            self.for_parts(f)
            matrix.release(f)
        steps = p.repeats * p.m.size * p.n.size * p.depth
        scratch = self.sums_bytes * (self.tiling.block if self.in_runs else 1)
        return k.step(self.parts, costs.work(self.cost, steps), scratch)

    def places(self, f: KernelFunction, index: str) -> dict[int, str]:
        found = super().places(f, index)
        if self.copied:
            own = found[A]
            at: str = f.temporary(1 if self.tiling.source == "packed" else 0)
            before = self.product.m.size
            for axis in reversed(self.product.outer):
                index, here = f.divide(index, f.size(axis.size))
                if axis in self.outer_of_a:
                    at = f.offset(at, f.mul(here, f.size(before * self.row_bytes)))
                    before = before * axis.size
            found[A] = at
            if not isinstance(self.is_copied, int):
                found[A] = f.select(f.compare("ne", f.size(self.is_copied), 0, "i64"), "ptr", at, own)
        return found

    @property
    def pieces(self) -> Dimension:
        return 1 if self.tiling.order == "panels" else super().pieces  # of such tiles each fetches its share

    @property
    def tile_time(self) -> Estimate:
        step = costs.matrix_step(self.target, self.unit, self.tiling.rows, self.tiling.vectors)
        return Estimate(compute=step * self.steps)

    def emit_part(self, f: KernelFunction, places: dict[int, str], part: tuple[str, str], group: str) -> None:
        """The tiles of a part: panels in turn, each run of whose steps meets all rows, or for all rows the
        panels."""
        words = [f"i64 {word}" for word in self.words.values(f)]

        def tile(rows: tuple[str, str, str], panel: tuple[str, str, str], run: tuple[str, str]) -> None:
            (height, row, number), (name, index, columns), (begun, steps) = rows, panel, run
            a, b, *others = self.tile_places(f, places, row, index)
            here, each = f.sub(number, part[0]), self.bytes_ahead(self.tiling.vectors)
            share = f.mul(f.add(f.mul(here, self.steps), begun), each)
            ahead = f.offset(b, f.add(f.size(self.panel_bytes()), share)) if self.fetched else "null"
            sums = f.offset("%scratch", f.mul(here, self.sums_bytes)) if self.in_runs else "%scratch"
            a = f.offset(a, f.mul(begun, self.step_bytes))
            b = f.offset(b, f.mul(begun, MatrixTile(self.unit, self.vectors_of(name)).panel_step))
            at = [f"ptr {x}" for x in (a, b, *others, sums)]
            arguments = [*at, *words, f"i64 {columns}", f"i64 {height}", f"ptr {ahead}"]
            arguments += [f"i64 {begun}", f"i64 {steps}"] if self.in_runs else []
            self.call_matrix_tile(f, name, height, ", ".join(arguments))

        ranges = list(self.ranges(f, part))
        if len(ranges) == 1 or self.in_runs:
            self.set_most_rows(f)

        def tiles(body: Callable[[str, str, str], None]) -> None:
            self.for_matrix_tiles(f, ranges, body, not self.in_runs)

        def all_runs(body: Callable[[tuple[str, str]], None]) -> None:
            if not self.in_runs:
                body(("0", str(self.steps)))
                return
            run = str(self.tiling.run)
            if not isinstance(self.tiles, int):
                one = f.compare("eq", f.size(self.tiles), 1, "i64")  # which has each panel to itself
                run = f.select(one, "i64", str(self.steps), run)
            with f.loop(0, self.steps, run) as loop:
                body((loop.index, f.minimum(f.sub(self.steps, loop.index), run)))

        if self.tiling.order == "panels":
            self.for_panels(
                f, group, lambda *panel: all_runs(lambda run: tiles(lambda *rows: tile(rows, panel, run)))
            )
        else:
            whole = ("0", str(self.steps))
            tiles(lambda *rows: self.for_panels(f, group, lambda *panel: tile(rows, panel, whole)))

    def vectors_of(self, name: str) -> int:
        """Of a panel of a kind."""
        return {kind: vectors for kind, vectors, _ in self.versions}[name]

    def set_most_rows(self, f: KernelFunction) -> None:
        """Tells the registers the rows of the highest tiles."""
        tiles = f.maximum(f.size(self.tiles), 1)
        rounded = f.add(f.size(self.product.m.size), f.sub(tiles, 1))
        matrix.set_rows(f, self.unit, f.divide(rounded, tiles)[0])

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
        told: bool,
    ) -> None:
        """body(height, row, number) for the tiles of a part, whose registers are told their rows where these
        differ; not `told`: tiles may have more rows than their height."""
        for height, skipped, start, stop in ranges:
            with f.when(f.compare("slt", start, stop)):
                if told and len(ranges) > 1:
                    matrix.set_rows(f, self.unit, height)
                with f.loop(start, stop) as loop:
                    body(height, f.add(f.mul(loop.index, height), skipped), loop.index)

    def ranges(self, f: KernelFunction, part: tuple[str, str]) -> Iterator[tuple[str, str, str, str]]:
        """The tiles of a part, nearly equally high: (height, rows before those, first, behind the last)."""
        rows, (first, last) = f.size(self.product.m.size), part
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

    def unpacked_places(self, f: KernelFunction, index: str) -> dict[int, str]:
        """`places` with A's rows as they are, for tiles on vectors."""
        return super().places(f, index)

    def unpacked_tile_places(
        self, f: KernelFunction, places: dict[int, str], row: str, panel: str
    ) -> list[str]:
        """`tile_places` of such."""
        return super().tile_places(f, places, row, panel)

    # A with zeros behind its rows ----------------------------------------------------------------

    def copying_step(self, buffer: int) -> Step:
        """Copies A's rows into whole steps of k; a part is a row."""
        k, p = KernelText(self.target), self.product
        rows = self.rows_of_a * self.is_copied
        nbytes = rows * self.row_bytes
        with k.entry() as f, f.loop("%first", "%last") as parts:
            index, here = f.divide(parts.index, f.size(p.m.size))
            source: str = f.offset(f.input(p.operands[0]), f.mul(here, f.size(self.step_of(p.m, A))))
            for axis in reversed(self.outer_of_a):
                index, here = f.divide(index, f.size(axis.size))
                source = f.offset(source, f.mul(here, f.size(self.step_of(axis, A))))
            to = f.offset(f.temporary(buffer), f.mul(parts.index, f.size(self.row_bytes)))
            self.copy_row(f, source, to)
        return k.step(rows, costs.work(costs.move(self.target, 2 * dims.typical(nbytes)), nbytes))

    def copy_row(self, f: KernelFunction, source: str, to: str) -> None:
        unit, depth = self.unit, dims.number(self.product.depth)
        element = f"int{8 * self.sizes[A]}"  # only moved
        kind = f"<{unit.depth} x i{8 * self.sizes[A]}>"
        with f.loop(0, depth // unit.depth) as loop:
            at = f.mul(loop.index, unit.row_bytes)
            f.store(kind, f.load(kind, f.offset(source, at)), f.offset(to, at), unit.row_bytes)
        if depth % unit.depth:
            whole = depth // unit.depth * unit.row_bytes
            rest = load_first(f, element, unit.depth, f.offset(source, whole), depth % unit.depth)
            f.store(kind, rest, f.offset(to, whole), unit.row_bytes)
