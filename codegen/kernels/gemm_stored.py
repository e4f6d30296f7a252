"""Matrix products with weights that stay as they are stored: codes with scales for blocks, or halves.

Panels are cut as those of `gemm`. Few rows stream through the weights: a tile decodes them in registers.
Where many tiles share a panel, it is decoded once into scratch memory, and they multiply as if it were
float32; numbers of plain halves the first tile writes while it multiplies. Where the product rounds its rows
to 8 bits (`Contract.rounded`), a step before writes them so; their products with codes are sums of integers
where the target has an instruction for them, scaled block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Dot, Target
from .. import costs
from ..costs import Estimate
from ..kernel import ALL, Choice, Code, KernelFunction, KernelText, Offer, Step, lasting, nearest, offered
from ..text.emitter import ENTRY, Function
from ..tiles import epilogue as epilogues
from ..tiles import gemm_tiling
from ..tiles import microkernel as mk
from ..tiles import stored_panel as panels
from ..tiles.contraction import A, Axis, B, Product, product_of
from ..tiles.rounded_rows import digits_step, rounding, rounding_step, row_bytes
from ..tiles.stored_form import Form, packed_panels, stored_form, stored_operand
from ..tiles.stored_panel import DIGITS
from .gemm import Gemm

# Kinds of tiles, in their names:
FEW, FIRST, OTHER = ".few", ".first", ""  # decode for themselves, for those that follow, read what is decoded
LONGER = (2, 4)  # blocks of rows, in which panels are decoded less often, and rows read from farther away
MOST_OF_STEP = 256  # neighbours of a row whose digits have a step in common
ROUNDED = ("int8", "uint8", "int32")  # rounded rows, codes, sums of their products


@dataclass(frozen=True)
class Tiling(gemm_tiling.Tiling):
    """That of `gemm`; `form`: how panels are stored. `few`: so many rows at most are multiplied by what is
    decoded in registers. `integers`: of rounded rows, whether they are integers. `digits`: whether a row that
    is alone is multiplied as the digits of its numbers."""

    form: Form = field(kw_only=True)
    few: int = field(kw_only=True)
    integers: bool = field(kw_only=True)
    digits: bool = field(kw_only=True)


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tiling by estimate, where B is stored in fewer bits than its numbers."""
    product = product_of(node)
    if product is None or not epilogues.supported(node.op.epilogue):
        return
    form = stored_form(node, product, target)
    if form is None or (node.op.rounded and not _rounds(product)):
        return
    timed = partial(estimate, node, product, target=target)
    found = sorted(tilings(node, product, form, target), key=lambda tiling: -tiling.rows)
    cost, tiling = lasting(product.m.size, nearest((timed(t), t) for t in found), timed)[0]
    arithmetic = "{} * {} -> {}".format(*ROUNDED) if tiling.integers else ""
    yield Offer(cost, tiling, packed=(product.operands[1],), arithmetic=arithmetic)


def _rounds(product: Product) -> bool:
    """Whether the rows of A lie one after the other, each contiguous."""
    steps = product.k[0].strides[A], product.m.strides[A]
    apart = product.m.size == 1 or dims.equal(steps[1], product.depth) is True
    return product.operands[0] == 0 and not product.outer and steps[0] == 1 and apart


def tilings(node: Node[Contract], product: Product, form: Form, target: Target) -> Iterator[Tiling]:
    """Some for each width of panels, with blocks of more and more tiles, each of which decodes them anew."""
    integers = node.op.rounded != 0 and _dot(form, node.op.rounded, target) is not None
    lanes, m = target.lanes("float32"), product.m.size
    for vectors in range(1, 5):
        if vectors > 1 and (vectors - 1) * lanes >= dims.typical(product.n.size):
            break
        few = panels.few_rows(target, vectors)
        most = few if integers else min(gemm_tiling.most_rows(product), mk.most_rows(target, vectors))
        rows = max(1, min(most, m)) if isinstance(m, int) else most
        tile_time = dims.typical(product.depth) * mk.step_time(target, rows, vectors) + costs.cycles(
            target, costs.TILE
        )
        order, block, group = gemm_tiling.parts_of_tiles(product, target, rows, lanes * vectors, tile_time)
        if order == "rows":  # each part would decode all panels
            block, group = ALL, 1
        longer = (1, *LONGER) if isinstance(m, int) else LONGER[:1]
        for tiles in dict.fromkeys(min(ALL, block * times) for times in longer):
            yield Tiling(
                *(rows, vectors, lanes, "panels", tiles, group, "constant"),
                form=form,
                few=few,
                integers=integers,
                digits=reads_digits(node, product, form, vectors, target),
            )


def reads_digits(node: Node[Contract], product: Product, form: Form, vectors: int, target: Target) -> bool:
    """Whether a row that is alone is multiplied as the digits of its numbers."""
    m, dot = product.m.size, _dot(form, form.block, target)
    if dot is None or dot.words or not panels.holds_digits(target, vectors):
        return False  # four products would take more than decoding codes
    is_open = m == 1 or not isinstance(m, int)
    return is_open and not node.op.rounded and form.block <= MOST_OF_STEP and _rounds(product)


def _dot(form: Form, rounded: int, target: Target) -> Dot | None:
    """The processor's product of rounded rows and codes, where blocks of both agree. Two products of a code
    of less than 8 bits stay in 16."""
    agree = form.block == rounded or (form.blocks == 1 and form.depth <= rounded)
    whole = form.zero is None or form.zero.is_integer()  # or else added to sums of integers
    if not agree or not whole or not form.bits or form.table:
        return None
    return target.byte_dot(*ROUNDED, pairs=form.bits < 8)


def integer_sums(
    f: Function, tile: mk.Tile, rows: mk.Rows, panel: str, form: Form, target: Target, digits: bool = False
) -> list[str]:
    """The sums of rounded rows over a panel, or of those that are the digits of one."""
    lhs, rhs, accumulate = ROUNDED
    dot = _dot(form, form.block, target)
    integers = replace(tile, lhs=lhs, rhs=rhs, accumulate=accumulate, dot=dot)
    return panels.multiply_add_rounded(f, integers, rows, panel, form, digits=digits)


def digit_sums(f: Function, tile: mk.Tile, a: str, panel: str, form: Form, target: Target) -> list[str]:
    """The sums of a row that is alone, whose digits lie at `a`."""
    digits = mk.fixed_rows(a, [k * row_bytes(form, True) for k in range(DIGITS)], 1)
    return integer_sums(f, replace(tile, rows=DIGITS), digits, panel, form, target, digits=True)


def estimate(node: Node, product: Product, tiling: Tiling, target: Target) -> Estimate:
    """The products, decoding panels or making integers of rows, and reading weights as they are stored."""
    m, n = dims.typical(product.m.size), dims.typical(product.n.size)
    form, depth = tiling.form, tiling.form.depth
    vectors = n * depth / tiling.lanes
    alone = tiling.digits and m == 1
    if tiling.integers or alone:
        rows, dot = DIGITS if alone else m, _dot(form, form.block, target)
        four = 1 / costs.dot_rate(target, dot)
        made = four * costs.TO_WORDS if dot is not None and dot.words else 0
        broadcast, scaled = (costs.BYTES_BROADCAST + made) / 4, costs.BLOCK_SCALED / form.block
        inside = rows * vectors * (four / 4 + broadcast / tiling.vectors + scaled)
        inside += -(-m // tiling.rows) * vectors * (costs.CODES_LOADED + made) / 4
        found = costs.compute(target, inside) + costs.overhead(target, costs.TILE * -(-n // tiling.lanes))
        found += costs.epilogue(target, node, "float32") + costs.traffic(target, node) + costs.step(target)
    else:
        plain = replace(product, constant=False)
        found = gemm_tiling.estimate(node, plain, replace(tiling, source="constant"), target)
        times = 1 if m <= tiling.few else -(-m // (tiling.block * tiling.rows))
        found += costs.compute(target, times * vectors * costs.DECODED)
    if node.op.rounded:
        found += _rounding(target, product, node.op.rounded)
    elif alone:
        found += costs.compute(target, m * depth / tiling.lanes * costs.IN_DIGITS) + costs.step(target)
    return found + costs.stored(target, form.panel_bytes(n))


def _rounding(target: Target, product: Product, block: int) -> Estimate:
    """The step that rounds the rows, block by block."""
    rows, depth = dims.typical(product.m.size), dims.typical(product.depth)
    return rounding(target, depth, block) * rows + costs.step(target)


# Packing -----------------------------------------------------------------------------------------


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    product = product_of(node)
    if product is None or operand != product.operands[1]:
        return None
    tiling = choice.tiling
    found = offered(stored_operand(node, product), node)
    return packed_panels(tiling.form, found, tiling.vectors * tiling.lanes, tiling.lanes)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    return Stored(node, offered(product_of(node), node), choice.tiling, choice.cost, target).code()


class Stored(Gemm):
    """Writes the steps of one product. Rounded rows take the place of A."""

    tiling: Tiling

    def __init__(
        self, node: Node[Contract], product: Product, tiling: Tiling, cost: Estimate, target: Target
    ):
        self.plain, self.block, self.form = product, node.op.rounded, tiling.form
        self.kind = FEW  # of the tiles being written or called
        if self.block:
            product = _over_rounded(product, tiling.integers, self.row_bytes(tiling))
        super().__init__(node, product, tiling, cost, target)

    def row_bytes(self, tiling: Tiling) -> int:
        return row_bytes(tiling.form, tiling.integers)

    def panel_bytes(self) -> Dimension:
        return self.form.panel_bytes(self.width)

    def panels_bytes(self) -> Dimension:
        return 0  # there is one

    @property
    def pieces(self) -> Dimension:
        return 1  # each would decode a panel

    @property
    def fewest_tiles(self) -> int:
        few = -(-self.tiling.few // self.tiling.rows)  # multiplied as if there were no strips, so in one
        return few // 2 + 1

    @property
    def panel_time(self) -> Estimate:
        decoded = costs.DECODED * self.form.depth * self.tiling.vectors
        return super().panel_time + costs.compute(self.target, decoded)

    # The next panel ------------------------------------------------------------------------------

    @property
    def depth_bytes(self) -> int:
        return -(-self.form.panel_bytes(self.width) // self.form.depth)

    @property
    def shared(self) -> bool:
        """Whether each of the tiles that share a decoded panel fetches its share of the next one: nothing
        else would be done while that arrives to be decoded."""
        return self.kind != FEW and mk.waits(self.target)

    def streams(self, tile: mk.Tile, depth: Dimension) -> int:
        return 1  # a decoded panel is near

    # Tiles ---------------------------------------------------------------------------------------

    def tile(self, height: int, vectors: int) -> mk.Tile:
        return mk.Tile(height, vectors, self.tiling.lanes)

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
        if self.kind == OTHER:
            return super().sums(f, tile, level, a, b, start, columns)
        p = self.product
        step = self.words.of(self.step_of(p.k[0], A))
        rows = mk.strided_rows(f, a, self.words.of(self.step_of(p.m, A)), tile.rows, step)
        if self.kind == FIRST:
            ahead = self.ahead(tile) if self.shared else None
            return panels.multiply_add_kept(f, tile, rows, b, self.form, self.decoded(f), ahead)
        if self.tiling.integers:
            return integer_sums(f, tile, rows, b, self.form, self.target)
        if self.of_digits(tile.rows):
            return digit_sums(f, tile, a, b, self.form, self.target)
        return self.decoding_sums(
            f, tile, rows, b, mk.chains_for(self.target, tile.rows, self.tiling.vectors)
        )

    def decoding_sums(self, f: Function, tile: mk.Tile, rows: mk.Rows, panel: str, chains: int) -> list[str]:
        """The sums of rows over a panel that is decoded in registers."""
        return panels.multiply_add_decoded(f, tile, rows, panel, self.form, chains)

    def of_digits(self, height: int) -> bool:
        """Whether tiles of so many rows that decode their panels read digits: a row that is alone."""
        return self.tiling.digits and height == 1

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        over = tuple(self.extra) if epilogues.in_registers(self.body) else ()
        product = self.product_step()
        p, t = self.plain, self.tiling
        if t.digits:
            step = digits_step(self.target, t.form, p.operands[0], 0, p.m.size)
            return Code((step, product), (DIGITS * row_bytes(t.form, True),), over)
        if not self.block:
            return Code((product,), (), over)
        step = rounding_step(self.target, t.form, self.block, t.integers, p.operands[0], p.m.size)
        return Code((step, product), (p.m.size * self.row_bytes(t),), over)

    def places(self, f: KernelFunction, index: str) -> dict[int, str]:
        found = super().places(f, index)
        return {**found, A: f.temporary(0)} if self.block else found

    def few_heights(self) -> list[int]:
        """The heights of tiles that decode panels themselves."""
        m, few = self.product.m.size, self.tiling.few
        if self.tiling.integers:
            return self.heights
        return list(range(1, few + 1)) if not isinstance(m, int) else self.heights if m <= few else []

    def many_heights(self) -> list[int]:
        """The heights of tiles that read a panel after it is decoded."""
        m = self.product.m.size
        return [] if self.tiling.integers or (isinstance(m, int) and m <= self.tiling.few) else self.heights

    def heights_of(self) -> dict[str, list[int]]:
        """By the kind of tile."""
        many = self.many_heights()
        return {FEW: self.few_heights(), FIRST: many if self.form.plain else [], OTHER: many}

    @property
    def decoded_at(self) -> int:
        """Where scratch holds a decoded panel, behind what tiles need themselves."""
        return self.tile_scratch({h for found in self.heights_of().values() for h in found})

    def decoded(self, f: Function) -> str:
        return f.offset("%scratch", self.decoded_at)

    def product_step(self) -> Step:
        k, t = KernelText(self.target), self.tiling
        many, scratch = bool(self.many_heights()), self.decoded_at
        for name, vectors, columns in self.versions:
            for kind, heights in self.heights_of().items():
                self.kind, function = kind, f"{ENTRY}.{name}{kind}"
                for height in heights:
                    self.emit_tile(k, function, self.tile(height, vectors), columns)
                if heights and not epilogues.in_registers(self.body):
                    self.emit_done(k, function, self.tile(1, vectors), columns)
            if many and not self.form.plain:
                with k.function(f"{ENTRY}.{name}.decode", ["ptr %panel", "ptr %out"]) as f:
                    panels.decode_panel(f, self.form, vectors, t.lanes, "%panel", "%out", not self.shared)
                    f.statement("ret void")
        if many:
            scratch += 4 * self.form.depth * self.width
        with k.entry() as f:
            self.for_parts(f)
        before = _rounding(self.target, self.plain, self.block) if self.block else Estimate()
        work = costs.work(self.cost - before, self.multiply_adds())
        return k.step(self.parts, work, scratch, unit=1)

    def emit_part(self, f: KernelFunction, places: dict[int, str], part: tuple[str, str], group: str) -> None:
        """Panels in turn, each through all tiles of the part."""
        m, few, (first, last) = self.rows(f), self.tiling.few, part

        def streamed(name: str, panel: str, columns: str) -> None:
            self.kind = FEW

            def tile(height: int, row: str) -> None:
                at = {**places, A: f.temporary(0)} if self.of_digits(height) else places
                self.call_tile(f, at, height, row, f"{name}{FEW}", panel, columns)

            if self.tiling.integers:
                self.for_tiles(f, part, tile)
            else:
                mk.for_equal_tiles(f, m, few, lambda height, row, _: tile(height, row))

        def shared(name: str, panel: str, columns: str) -> None:
            numbers, second = self.decoded(f), f.add(first, 1)

            def tiles(kind: str, start: str, stop: str, b: str | None) -> None:
                self.kind = kind

                def tile(height: int, row: str) -> None:
                    self.call_tile(f, places, height, row, f"{name}{kind}", panel, columns, b)

                mk.for_equal_tiles(f, m, self.tiling.rows, lambda h, row, _: tile(h, row), start, stop)

            if self.form.plain:
                tiles(FIRST, first, second, None)
                return tiles(OTHER, second, last, numbers)
            stored = self.tile_places(f, places, "0", panel)[B]
            f.run(f"@{ENTRY}.{name}.decode", f"ptr {stored}", f"ptr {numbers}")
            tiles(OTHER, first, last, numbers)

        if self.few_heights() and self.many_heights():
            is_few = f.compare("sle", m, few, "i64")
            with f.when(is_few):
                self.for_panels(f, group, streamed)
            with f.when(f.invert(is_few)):
                self.for_panels(f, group, shared)
        else:
            self.for_panels(f, group, shared if self.many_heights() else streamed)


def _over_rounded(product: Product, integers: bool, row: int) -> Product:
    """The product with its rows as the rounding step writes them, so many bytes apart."""
    size = 1 if integers else 4

    def over(axis: Axis, step: int) -> Axis:
        return replace(axis, strides=(step, *axis.strides[1:]))

    return replace(
        product,
        lhs="int8" if integers else "float32",
        m=over(product.m, row // size),
        k=(over(product.k[0], 1),),
    )
