"""Products of float32 on registers that hold matrices of bfloat16: numbers are sums of three (`thirds.py`).

A step of its own splits A's rows; a panel of B, float32 or what is stored in its place, is split into scratch
memory by whoever multiplies it, which many rows share. Six products of thirds make one, whose sums lose no
more than those of a chain of fused multiply-adds over as many products may. Thirds of what is not finite, or
nearly too great, are no numbers: rows of a tile with sums that are not finite are added up again on vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Ability, Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.emitter import ENTRY, Function, Text
from ..text.vectors import Vectors
from ..tiles import epilogue as epilogues
from ..tiles import matrix, stored_panel, thirds
from ..tiles import microkernel as mk
from ..tiles.contraction import A, B, Product, product_of
from ..tiles.epilogue import Epilogue, Place
from ..tiles.matrix import Ahead, MatrixTile
from ..tiles.panel import Panel
from ..tiles.stored_panel import Form, stored_form, stored_operand
from . import gemm
from .gemm_matrix import Matrices

LEAST_DEPTH = 64  # of a sum whose error a chain of multiply-adds may have too
ROWS = -1  # among the places of operands: A's rows as they are


# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling(gemm.Tiling):
    """That of `gemm`; `form`: how panels are stored, where not as float32."""

    form: Form | None = field(kw_only=True, default=None)


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """One tiling, where the processor has such registers, for products of a constant and known sizes."""
    product = product_of(node) if target.matrices else None
    unit = unit_of(product, target) if product is not None else None
    if product is None or unit is None or node.op.rounded or not epilogues.supported(node.op.epilogue):
        return
    vectors = min(matrix.WIDE, -(-dims.number(product.n.size) // unit.columns)) or 1
    m, width = dims.number(product.m.size), vectors * unit.columns
    rows = max(1, min(m, matrix.HIGH * unit.rows))
    panel = -(-dims.number(product.depth) // unit.depth) * _step(target, unit, rows, vectors) * -(-m // rows)
    group = max(1, round(costs.PART_NS / (panel + _splitting(product, width, target).total)))
    form = stored_form(node, product, target)
    tiling = Tiling(rows, vectors, unit.columns, "panels", gemm.ALL, group, "constant", unit.depth, form=form)
    yield Offer(estimate(node, product, tiling, unit, target), tiling, packed=(product.operands[1],))


def unit_of(product: Product, target: Target) -> Matrix | None:
    """The processor's instruction for thirds, where neighbours along k lie together in A."""
    types = (product.lhs, product.rhs, product.accumulate)
    sizes = (product.m.size, product.n.size, product.depth)
    if types != ("float32",) * 3 or not product.constant or not dims.is_static(sizes) or 0 in sizes:
        return None
    if len(product.k) != 1 or product.k[0].strides[A] != 1 or dims.number(product.depth) < LEAST_DEPTH:
        return None
    found = target.matrix("bfloat16", "bfloat16", "float32")
    return found if Ability.CONVERT_BF16 in target.abilities else None


def _step(target: Target, unit: Matrix, rows: float, vectors: int) -> float:
    """Nanoseconds of a step of k of a tile."""
    return costs.matrix_step(target, unit, rows, vectors, len(thirds.PRODUCTS), thirds.LOADS)


def _splitting(product: Product, columns: int, target: Target) -> Estimate:
    """Of so many columns of panels, once."""
    depth = dims.number(product.depth)
    return costs.compute(target, thirds.PANEL_SPLIT * depth * columns / target.lanes("float32"))


def estimate(node: Node, product: Product, tiling: Tiling, unit: Matrix, target: Target) -> Estimate:
    """The steps of all tiles, splitting both operands, the epilogue, reading and writing everything once."""
    m, n, depth = (dims.number(d) for d in (product.m.size, product.n.size, product.depth))
    steps, panels = -(-depth // unit.depth), -(-n // unit.columns) / tiling.vectors
    tiles = -(-m // tiling.rows)
    each = steps * _step(target, unit, m / tiles, tiling.vectors)
    each += costs.matrix_ends(target, unit, m / tiles, tiling.vectors)
    found = Estimate(compute=each * tiles * panels, overhead=costs.TILE * tiles * panels)
    columns, nbytes = round(panels * tiling.vectors * unit.columns), thirds.ROW_BYTES * depth
    found += _splitting(product, columns, target)
    if tiling.form is not None:
        found += costs.compute(target, costs.DECODED * depth * columns / target.lanes("float32"))
    found += costs.again(target, m * nbytes, m * nbytes) * panels
    found += costs.again(target, columns * nbytes, columns * nbytes / panels) * tiles
    found += costs.stored(target, columns * depth * 4 if tiling.form is None else tiling.form.panel_bytes(n))
    found += costs.compute(target, thirds.ROW_SPLIT * m * depth / target.lanes("float32"))
    found += costs.move(target, m * (nbytes + 4 * depth))
    found = found * dims.typical(product.repeats)
    found += costs.epilogue(target, node, product.accumulate) + costs.traffic(target, node)
    return found + costs.step(target, 2)


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    """B as [outer axes of B][panels] of float32, each whole steps long, or as it is stored."""
    product = product_of(node)
    if product is None or operand != product.operands[1]:
        return None
    tiling = choice.tiling
    if tiling.form is None:
        return gemm.pack_product(node, product, tiling, 1, tiling.dot)
    return stored_panel.packed(
        tiling.form, offered(stored_operand(node, product), node), tiling.vectors * tiling.lanes, tiling.lanes
    )


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product = offered(product_of(node), node)
    unit = offered(unit_of(product, target), node)
    return _Thirds(node, product, choice.tiling, choice.cost, target, unit).code()


class _Thirds(Matrices):
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
        super().__init__(node, product, tiling, cost, target, unit)
        self.node, self.copied, self.group = node, True, 1
        self.sums_bytes = self.lines * unit.rows * self.width * dtypes.itemsize(product.accumulate)

    @property
    def whole(self) -> int:
        """Steps of k, all together."""
        return dims.number(self.depth)

    @property
    def row_bytes(self) -> int:
        return thirds.ROW_BYTES * self.whole

    def panel_bytes(self) -> int:
        form = self.tiling.form
        return 4 * self.whole * self.width if form is None else form.panel_bytes(self.width)

    def panels_bytes(self) -> dims.Dimension:
        return super().panels_bytes() if self.tiling.form is None else 0  # there is one

    def copy_row(self, f: KernelFunction, source: str, to: str) -> None:
        thirds.split_row(f, self.tiling.lanes, dims.number(self.product.depth), source, to)

    def lines_ahead(self, vectors: int) -> int:
        """Of the next panel as it is stored."""
        steps = self.whole // self.unit.depth
        return -(-self.panel_bytes() // (matrix.LINE * steps * self.together))

    # Tiles ---------------------------------------------------------------------------------------

    def parameters(self) -> tuple[list[str], list[str]]:
        pointers, numbers = super().parameters()
        return [*pointers, "%unsplit", "%panel"], numbers

    def emit_matrix_tile(
        self, text: Text, name: str, lines: int, vectors: int, columns: int | str | None
    ) -> None:
        """The function of tiles of `lines` registers of rows: sums, the same on vectors where they are not
        finite, the epilogue. Its %panel is the panel in float32."""
        tile = MatrixTile(self.unit, vectors, lines)
        pointers, numbers = self.parameters()
        parameters = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (*numbers, "%rows")]
        parameters += ["ptr %ahead"]
        with text.function(f"{name}.{lines}", parameters, attributes="nounwind noinline") as f:
            matrix.clear(f, tile)
            below = self.unit.rows * self.row_bytes
            ahead = Ahead("%ahead", self.lines_ahead(vectors)) if self.fetched else None
            rows = [f.offset("%a", i * below) for i in range(lines)]
            thirds.multiply_add(f, tile, rows, self.row_bytes, "%b", self.whole // self.unit.depth, ahead)
            raw = Place("%scratch", self.product.accumulate, tile.line)
            matrix.store(
                f,
                tile,
                [f.offset("%scratch", i * self.unit.rows * tile.line) for i in range(lines)],
                tile.line,
            )
            with f.when(self.any_not_finite(f, vectors)):
                self.add_on_vectors(f, vectors, raw)
            width = self.tile(1, vectors)
            epilogues.finish_rows(f, width, "%rows", self.epilogue(), raw, self.out(), columns)
            f.statement("ret void")

    def any_not_finite(self, f: Function, vectors: int) -> str:
        """Whether a sum in scratch memory is an infinity or no number: its product with 0 is not 0."""
        single = Vectors(f, "float32", self.tiling.lanes)
        words, zero = single.of("uint32"), single.constant(0.0)
        with f.loop(0, "%rows", 1, [(words.type, "zeroinitializer")]) as loop:
            found: str = loop.carried[0]
            for j in range(vectors):
                at = f.mul(loop.index, 4 * vectors * self.tiling.lanes)
                loaded = f.load(single.type, f.offset("%scratch", f.add(at, 4 * j * self.tiling.lanes)), 64)
                found = words.bit_or(found, single.bits(single.mul(loaded, zero)))
            loop.carry(found)
        magnitude = words.bit_and(loop.results[0], words.constant(0x7FFFFFFF))
        return words.any(words.compare("ne", magnitude, words.constant(0)))

    def add_on_vectors(self, f: Function, vectors: int, raw: Place) -> None:
        """The sums of all rows, from A's and the panel's float32."""
        tile, step = self.tile(1, vectors), self.sizes[A]
        with f.loop(0, "%rows") as loop:
            row = f.offset("%unsplit", f.mul(loop.index, self.word(self.step_of(self.product.m, A))))
            rows = mk.strided_rows(f, row, 0, 1, step)
            chains = mk.chains_for(self.target, 1, self.tiling.vectors)
            depth = dims.number(self.product.depth)
            sums = mk.multiply_add(f, tile, tile.zeros(), rows, Panel("%panel"), depth, chains=chains)
            place = Place(f.offset(raw.pointer, f.mul(raw.row, loop.index)), raw.dtype, raw.row)
            epilogues.finish_in_registers(f, tile, sums, Epilogue(None, {}), place, None)

    # The entry -----------------------------------------------------------------------------------

    def product_step(self) -> Step:
        step = super().product_step()
        decoded = 4 if self.tiling.form is not None else 0
        panel = self.whole * self.width * (thirds.ROW_BYTES + decoded)
        return replace(step, scratch=self.sums_bytes + panel)

    def emit_functions(self, k: KernelText) -> None:
        super().emit_functions(k)
        for name, vectors, _ in self.versions:
            with k.function(f"{ENTRY}.{name}.split", ["ptr %stored", "ptr %parts", "ptr %numbers"]) as f:
                panel = "%stored"
                if self.tiling.form is not None:
                    panel = "%numbers"
                    self.decode(f, vectors, panel)
                tile = MatrixTile(self.unit, vectors)
                thirds.split_panel(f, tile, self.tiling.lanes, self.whole, panel, "%parts")
                f.statement("ret void")

    def decode(self, f: Function, vectors: int, panel: str) -> None:
        """What is stored as float32, zeros behind it."""
        lanes, depth = self.tiling.lanes, dims.number(self.product.depth)
        form = offered(self.tiling.form, self.node)
        stored_panel.decode_panel(f, form, vectors, lanes, "%stored", panel)
        with f.loop(depth * vectors, self.whole * vectors) as loop:
            f.store(
                f"<{lanes} x float>", "zeroinitializer", f.offset(panel, f.mul(loop.index, 4 * lanes)), 64
            )

    def places(self, f: KernelFunction, index: str) -> dict[int, str]:
        return {**super().places(f, index), ROWS: gemm.Gemm.places(self, f, index)[A]}

    def tile_places(self, f: KernelFunction, places: dict[int, str], row: str, panel: str) -> list[str]:
        operands = {k: at for k, at in places.items() if k != ROWS}
        return super().tile_places(f, operands, row, panel)

    def emit_part(self, f: KernelFunction, places: dict[int, str], block: str, group: str) -> None:
        """Panels in turn, each split and multiplied by all rows."""
        parts = f.offset("%scratch", self.sums_bytes)
        numbers = f.offset(parts, self.whole * self.width * thirds.ROW_BYTES)
        down = self.step_of(self.product.m, A)
        ranges = list(self.ranges(f, block))
        if len(ranges) == 1:
            matrix.set_rows(f, self.unit, ranges[0][0])

        def panel(name: str, number: str, columns: str) -> None:
            stored = self.tile_places(f, places, "0", number)[B]
            f.run(f"@{ENTRY}.{name}.split", f"ptr {stored}", f"ptr {parts}", f"ptr {numbers}")
            following = f.offset(stored, self.panel_bytes())

            def tile(height: str, row: str, index: str) -> None:
                found = self.tile_places(f, places, row, number)
                found[B] = parts
                unsplit = f.offset(places[ROWS], f.mul(row, f.size(down)))
                wide = stored if self.tiling.form is None else numbers
                at = [f"ptr {x}" for x in (*found, "%scratch", unsplit, wide)]
                share = self.whole // self.unit.depth * self.lines_ahead(self.tiling.vectors) * matrix.LINE
                ahead = f.offset(following, f.mul(index, share)) if self.fetched else "null"
                words = [f"i64 {f.size(word)}" for word in self.words]
                arguments = ", ".join([*at, *words, f"i64 {columns}", f"i64 {height}", f"ptr {ahead}"])
                self.call_matrix_tile(f, name, height, arguments)

            self.for_matrix_tiles(f, ranges, tile)

        self.for_panels(f, group, panel)
