"""Products of float32 on registers that hold matrices of bfloat16: numbers are sums of three (`thirds.py`).

A step of its own splits A's rows; whoever multiplies a panel of B splits it into scratch memory, a run of
steps of k at a time: a share of every step goes with each tile of the run before (`parts_tile.py`).

    matrices               tiles of run 0     tiles of run 1     tiles of run 2, and of each its end
    vectors     split 0    split 1            split 2

Halves are read as they are stored, other forms decoded before. Where all steps leave the second-level cache,
sums wait in scratch memory while all panels of a part are multiplied by some steps of k, then by the next.

Six products of thirds make one of float32, whose sums lose no more than a chain of multiply-adds may; three
of two parts one of factors that stand for float16 numbers. Of a row's thirds and bfloat16s, or codes of few
bits, whose sums are scaled block by block (`codes_tile.py`), there are three. Parts of what is not finite, or
nearly too great, are no numbers: tiles with sums that are not finite are added up again on vectors.

Where the run tells how many rows there are, few are not split but multiplied on vectors, as by `gemm` or
`gemm_stored`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import partial

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Ability, Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import MORE, Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.emitter import ENTRY, Function, Text
from ..text.vectors import Vectors
from ..tiles import epilogue as epilogues
from ..tiles import gemm_tiling, matrix, stored_panel, thirds
from ..tiles import microkernel as mk
from ..tiles.codes_tile import CodesTile
from ..tiles.contraction import A, B, Product, product_of, tiled_product
from ..tiles.epilogue import Epilogue, Place
from ..tiles.matrix import MatrixTile
from ..tiles.panel_operand import Panel
from ..tiles.parts_tile import PartsTile, Share
from ..tiles.rounded_rows import digits_step, row_bytes
from ..tiles.stored_form import Form, packed_panels, stored_form, stored_operand
from ..tiles.stored_panel import DIGITS
from ..tiles.thirds import Parts
from . import gemm, gemm_matrix, gemm_stored
from .gemm_matrix import Matrices

MOST_ROWS = 640  # of a block, which splits its panels anew
WAITING = 8  # panels of a part whose sums wait
FEW = 80  # rows for which vectors are as fast, where the run tells how many there are
FEW_DECODED = 28  # the same where numbers are decoded before they are split
FEW_STORED = 14  # where what is stored is split
FEW_HALVES = 10  # where two parts are enough
FEW_WHOLE = 4  # where what is stored is not split
SHARES = 4  # tiles, at most, among which splitting a panel is divided
LEAST_DEPTH = 64  # of a sum whose error a chain of multiply-adds may have too
SPLITTING = ".splitting"  # behind the name of tiles that split a share of the next run's panel, too
ALONE = 1  # the temporary, behind that of split rows, in which a row's digits lie


# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling(gemm_matrix.Tiling):
    """That of `gemm_matrix`; `steps` of k are multiplied at a time, in runs. `form`: how panels are stored,
    where not as float32. `halves`: whether two parts of a number are enough (`Contract.halves`). `digits`:
    whether a row that is alone is multiplied as the digits of its numbers."""

    steps: int = field(kw_only=True)
    form: Form | None = field(kw_only=True, default=None)
    halves: bool = field(kw_only=True, default=False)
    digits: bool = field(kw_only=True, default=False)

    @property
    def codes(self) -> int:
        """Steps of k whose sums of codes are scaled together: of a block, or of a run where that is shorter;
        0 where there are none, or numbers are split."""
        form = self.form
        return (
            min(self.run, form.block // self.k_step) if form and form.bits and self.parts.beside == 1 else 0
        )

    @property
    def read(self) -> str:
        """The type of what is split: that of a panel of halves in whole steps, else of its numbers; bfloat16s
        are read as they are."""
        form = self.form
        return form.half if form is not None and form.plain and form.depth % self.k_step == 0 else "float32"

    @property
    def is_split(self) -> bool:
        """Whether there are parts of a panel besides what is stored."""
        return self.read != "bfloat16"

    @property
    def decodes(self) -> bool:
        """Whether numbers of a panel are written before they are split."""
        return self.form is not None and not self.codes and self.read == "float32"

    @property
    def parts(self) -> Parts:
        """What numbers are split into."""
        return _parts(self.form, self.halves, self.k_step)

    @property
    def few(self) -> int:
        """Rows that vectors multiply."""
        if self.parts.beside == 1 and not self.decodes:
            return FEW_WHOLE
        if self.halves:
            return FEW_HALVES
        if self.form is None:
            return FEW
        return FEW_DECODED if self.decodes else FEW_STORED


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """One tiling, where the processor has such registers, for products with a constant."""
    product = tiled_product(node) if target.matrices else None
    unit = unit_of(product, target) if product is not None else None
    if product is None or unit is None:
        return
    with dims.of_many(MORE):  # where a run usually has few rows, vectors multiply these
        tiling = _tiling(product, stored_form(node, product, target), node.op.halves, unit, target)
    if tiling.form is not None and not isinstance(product.m.size, int):
        digits = gemm_stored.reads_digits(node, product, tiling.form, tiling.vectors, target)
        tiling = replace(
            tiling, digits=digits and tiling.few <= stored_panel.few_rows(target, tiling.vectors)
        )
    cost, packed = estimate(node, product, tiling, unit, target), (product.operands[1],)
    yield Offer(cost, tiling, packed=packed, arithmetic=tiling.parts.arithmetic)


def _tiling(product: Product, form: Form | None, halves: bool, unit: Matrix, target: Target) -> Tiling:
    """As many rows and steps as leave what is split in the second-level cache; what is stored in few bits is
    decoded a panel at a time."""
    m, n, depth = (dims.typical(d) for d in (product.m.size, product.n.size, product.depth))
    known, rows = isinstance(product.m.size, int), matrix.HIGH * unit.rows
    vectors = min(matrix.WIDE, -(-n // unit.columns))
    rows, width = min(m, rows) if known else rows, vectors * unit.columns
    tiles, panels, steps = -(-m // rows), -(-n // width), -(-depth // unit.depth)
    block = -(-tiles // -(-m // MOST_ROWS)) if known else MOST_ROWS // rows
    parts = _parts(form, halves, unit.depth)
    fitting = max(1, target.facts.level2_bytes // 2 // parts.step_bytes(min(m, block * rows), width))
    at_a_time = steps if form is not None else -(-steps // -(-steps // fitting))
    each = steps * step_time(target, unit, parts, rows, vectors) * min(tiles, block)
    group = max(1, round(costs.PART_NS / (each + _splitting(product, parts, width, target).total)))
    if at_a_time < steps:
        group = -(-panels // -(-panels // max(group, WAITING)))
    run = at_a_time
    if tiles > 1:
        run = gemm_matrix.equal_runs(run, rows, width, parts.step_bytes(rows, width), target)
    if form is not None and form.bits and parts.beside == 1:
        run = _whole_blocks(run, form.block // unit.depth)
    return Tiling(
        *(rows, vectors, unit.columns, "panels", block, group, "constant", unit.depth),
        steps=at_a_time,
        run=run,
        form=form,
        halves=halves,
    )


def _parts(form: Form | None, halves: bool, depth: int) -> Parts:
    """What numbers are split into; what is stored as bfloat16s, or as codes that are, is not: codes in blocks
    of whole steps of so many rows."""
    whole = form is not None and (not form.bits or form.block % depth == form.depth % depth == 0)
    if form is not None and form.is_exact_in_bfloat16 and whole:
        return thirds.ONE_OF_TWO if halves else thirds.ONE
    if halves:
        return thirds.TWO
    is_half = form is not None and form.plain and form.half == "float16"
    return thirds.THIRDS_OF_HALVES if is_half else thirds.THIRDS


def _whole_blocks(run: int, together: int) -> int:
    """Steps of the longest run that is some blocks of `together` steps, or goes into one."""
    if run >= together:
        return run // together * together
    return max(steps for steps in range(1, run + 1) if together % steps == 0)


def unit_of(product: Product, target: Target) -> Matrix | None:
    """The processor's instruction for thirds, where neighbours along k lie together in A."""
    types = (product.lhs, product.rhs, product.accumulate)
    sizes = (product.n.size, product.depth)
    if types != ("float32",) * 3 or not product.constant or not dims.is_static(sizes):
        return None
    if 0 in (product.m.size, *sizes):
        return None
    if len(product.k) != 1 or product.k[0].strides[A] != 1 or dims.number(product.depth) < LEAST_DEPTH:
        return None
    found = target.matrix("bfloat16", "bfloat16", "float32")
    return found if Ability.CONVERT_BF16 in target.abilities else None


def step_time(target: Target, unit: Matrix, parts: Parts, rows: float, vectors: int) -> float:
    """Nanoseconds of a step of k of a tile, at the rate that a core sustains: vectors are as fast where it is
    far below the best."""
    facts = target.facts
    rate = min(facts.matrix_products, facts.matrix_sustained)
    sustained = replace(target, facts=replace(facts, matrix_products=rate))
    return costs.matrix_step(sustained, unit, rows, vectors, len(parts.products), parts.loads)


def _splitting(product: Product, parts: Parts, columns: int, target: Target) -> Estimate:
    """Of so many columns of panels, once."""
    depth = dims.number(product.depth)
    return costs.compute(target, parts.panel_split * depth * columns / target.lanes("float32"))


def _estimate_of_few(node: Node, product: Product, tiling: Tiling, form: Form, target: Target) -> Estimate:
    """On vectors, as `gemm_stored` multiplies them, behind a step that splits nothing."""
    rows = stored_panel.few_rows(target, tiling.vectors)
    stored = gemm_stored.Tiling(
        *(rows, tiling.vectors, tiling.lanes, "panels", tiling.block, tiling.group, "constant"),
        form=form,
        few=rows,
        integers=False,
        digits=tiling.digits,
    )
    return gemm_stored.estimate(node, product, stored, target) + costs.step(target)


def estimate(node: Node, product: Product, tiling: Tiling, unit: Matrix, target: Target) -> Estimate:
    """The steps of all tiles, splitting both operands, the epilogue, reading and writing everything once."""
    is_few = not isinstance(product.m.size, int) and dims.typical(product.m.size) <= tiling.few
    if is_few and tiling.form is not None:
        return _estimate_of_few(node, product, tiling, tiling.form, target)
    m, n, depth = (dims.typical(d) for d in (product.m.size, product.n.size, product.depth))
    steps, panels = -(-depth // unit.depth), -(-n // unit.columns) / tiling.vectors
    tiles = -(-m // tiling.rows)
    blocks, times = -(-tiles // tiling.block), -(-steps // tiling.steps)
    each = steps * step_time(target, unit, tiling.parts, m / tiles, tiling.vectors)
    ends = 2 * -(-steps // tiling.codes) if tiling.codes else -(-steps // tiling.run)
    each += costs.matrix_ends(target, unit, m / tiles, tiling.vectors) * ends
    found = Estimate(compute=each * tiles * panels) + costs.overhead(target, costs.TILE * tiles * panels)
    columns, nbytes = round(panels * tiling.vectors * unit.columns), tiling.parts.bytes * depth
    found += _splitting(product, tiling.parts, columns, target) * blocks
    if tiling.decodes:
        found += costs.compute(target, blocks * costs.DECODED * depth * columns / target.lanes("float32"))
    found += costs.again(target, m * nbytes, m * nbytes / blocks / times) * panels
    run = tiling.run * tiling.parts.step_bytes(tiling.rows, tiling.vectors * unit.columns)
    found += costs.again(target, steps * tiling.parts.step_bytes(0, columns), run) * tiles
    if times > 1:
        found += costs.move(target, m * nbytes) * max(0.0, panels / tiling.group - 1)
    found += costs.stored(target, columns * depth * 4 if tiling.form is None else tiling.form.panel_bytes(n))
    found += costs.compute(target, tiling.parts.row_split * m * depth / target.lanes("float32"))
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
        return gemm.pack_product(node, product, tiling, 1, tiling.k_step)
    return packed_panels(
        tiling.form, offered(stored_operand(node, product), node), tiling.vectors * tiling.lanes, tiling.lanes
    )


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product = offered(product_of(node), node)
    unit = offered(unit_of(product, target), node)
    writer = _Codes if choice.tiling.codes else _Thirds
    return writer(node, product, choice.tiling, choice.cost, target, unit).code()


@dataclass(frozen=True)
class _Steps:
    """Some steps of k, from the first on, which a part multiplies by all its panels; where the parts of a run
    and decoded numbers lie meanwhile."""

    places: dict[int, str]
    part: tuple[str, str]
    group: str
    ranges: list[tuple[str, str, str, str]]  # of its tiles
    first: int
    count: int
    parts: str
    numbers: str


@dataclass(frozen=True)
class _SplitPanel:
    """A panel of B: as it is `stored`, and its `wide` numbers, of which a step has `width` bytes."""

    name: str
    number: str
    columns: str
    stored: str
    wide: str
    width: int
    following: str  # the next panel, where these steps of it begin


@dataclass(frozen=True)
class _Run:
    """A run of steps, whose parts are `here`. The next run has `left` steps, whose parts go `there`: as many
    tiles as are `sharing` split them."""

    index: str  # among the steps that are multiplied at a time
    begun: str
    count: str
    end: str
    left: str
    sharing: str
    here: str
    there: str
    is_last: str


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
        self.node, self.copied, self.k_group = node, True, 1
        self.unsplit = ""  # in the entry, where A's rows are as they are
        self.few = [] if isinstance(product.m.size, int) else self._few_heights()
        self.shared = bool(self.few) and tiling.form is None and mk.waits(target)  # by tiles of few rows

    @property
    def splitters(self) -> int:
        """Tiles among which splitting the next run of steps is divided."""
        return 1 << min(SHARES, self.together).bit_length() - 1

    @property
    def splits(self) -> int:
        """Pairs of neighbours along k of a step that each of them splits; 0 where that is done before."""
        if self.tiling.run >= self.tiling.steps or not self.tiling.is_split:
            return 0
        return thirds.pairs(MatrixTile(self.unit, 1)) // self.splitters

    @property
    def whole(self) -> int:
        """Steps of k, all together."""
        return dims.number(self.depth)

    @property
    def is_copied(self) -> dims.Dimension:
        """1 where a step splits A's rows: not where they are few."""
        return dims.compare("lt", self.tiling.few, self.product.m.size) if self.few else 1

    @property
    def step_bytes(self) -> int:
        """Of a row's parts in a step of k."""
        return self.tiling.parts.step_bytes(1, 0)

    @property
    def row_bytes(self) -> int:
        return self.step_bytes * self.steps | matrix.LINE

    def panel_bytes(self) -> int:
        form = self.tiling.form
        return 4 * self.whole * self.width if form is None else form.panel_bytes(self.width)

    def panels_bytes(self) -> dims.Dimension:
        return super().panels_bytes() if self.tiling.form is None else 0  # there is one

    def copy_row(self, f: KernelFunction, source: str, to: str) -> None:
        t = self.tiling
        thirds.split_row(f, t.parts, t.lanes, dims.number(self.product.depth), source, to)

    def bytes_ahead(self, vectors: int) -> int:
        """Of the next panel as it is stored."""
        return -(-self.panel_bytes() // (matrix.LINE * self.steps * self.together)) * matrix.LINE

    def _few_heights(self) -> list[int]:
        """Of the tiles on vectors that multiply few rows, from A's and the panel's own."""
        if self.tiling.form is not None:
            return list(range(1, stored_panel.few_rows(self.target, self.tiling.vectors) + 1))
        most = mk.most_rows(self.target, self.tiling.vectors)
        return list(range(1, min(gemm_tiling.most_rows(self.product), most) + 1))

    @property
    def blocks_of_depth(self) -> list[tuple[int, int]]:
        """(first step, steps) of those that are multiplied at a time."""
        most = self.tiling.steps
        return [(first, min(most, self.steps - first)) for first in range(0, self.steps, most)]

    # Tiles ---------------------------------------------------------------------------------------

    def parts_tile(self, vectors: int, lines: int) -> PartsTile:
        """Of `lines` registers of rows."""
        ahead = self.bytes_ahead(vectors) if self.fetched else 0
        return PartsTile(MatrixTile(self.unit, vectors, lines), self.tiling.parts, self.row_bytes, ahead)

    def emit_matrix_tile(
        self, text: Text, name: str, lines: int, vectors: int, columns: int | str | None
    ) -> None:
        """The functions of tiles of `lines` registers of rows: their sums, or these and what was there."""
        tile, t = self.parts_tile(vectors, lines), self.tiling
        tile.write(text, f"{name}.{lines}")
        if self.splits:
            tile.write(text, f"{name}{SPLITTING}.{lines}", Share(self.splits, t.lanes, t.read))

    def ending(self) -> list[str]:
        """The parameters of the function that ends a tile; %panel is in float32."""
        pointers, numbers = self.parameters()
        pointers = [*(x for x in pointers if x not in ("%b", "%ahead")), "%panel"]
        numbers = [*(x for x in numbers if x != "%share"), "%rows"]
        return [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in numbers]

    def emit_end(self, text: Text, name: str, vectors: int, columns: int | str | None) -> None:
        """Of tiles of any height: sums on vectors where they are not finite, the epilogue. Its %a are A's own
        rows, its %scratch the sums."""
        with text.function(f"{name}.end", self.ending(), attributes="nounwind noinline") as f:
            raw = Place("%scratch", self.product.accumulate, MatrixTile(self.unit, vectors).line)
            v = Vectors(f, "float32", self.tiling.lanes)
            with f.when(thirds.any_not_finite(v, "%scratch", "%rows", vectors)):
                self.add_on_vectors(f, vectors, raw)
            width = self.tile(1, vectors)
            epilogues.finish_rows(f, width, "%rows", self.epilogue(), raw, self.out(), columns)
            f.statement("ret void")

    def add_on_vectors(self, f: Function, vectors: int, raw: Place) -> None:
        """The sums of all rows, from A's and the panel's float32."""
        tile, step = self.tile(1, vectors), self.sizes[A]
        with f.loop(0, "%rows") as loop:
            row = f.offset("%a", f.mul(loop.index, self.words.of(self.step_of(self.product.m, A))))
            rows = mk.strided_rows(f, row, 0, 1, step)
            chains = mk.chains_for(self.target, 1, self.tiling.vectors)
            depth, form = dims.number(self.product.depth), self.tiling.form
            if form is not None and not self.tiling.decodes:
                sums = stored_panel.multiply_add_decoded(f, tile, rows, "%panel", form, chains)
            else:
                sums = mk.multiply_add(f, tile, tile.zeros(), rows, Panel("%panel"), depth, chains=chains)
            place = Place(f.offset(raw.pointer, f.mul(raw.row, loop.index)), raw.dtype, raw.row)
            epilogues.finish_in_registers(f, tile, sums, Epilogue(None, {}), place, None)

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        found, p, form = super().code(), self.product, self.tiling.form
        if not self.tiling.digits or form is None:
            return found
        step = digits_step(self.target, form, p.operands[0], ALONE, p.m.size)
        digits = DIGITS * row_bytes(form, True)
        return replace(found, steps=(step, *found.steps), temporaries=(*found.temporaries, digits))

    @property
    def parts_at(self) -> int:
        """Where the thirds of a panel lie in scratch memory, behind the sums of tiles."""
        waiting = self.tiling.block * (self.tiling.group if len(self.blocks_of_depth) > 1 else 1)
        return waiting * self.sums_bytes

    @property
    def numbers_at(self) -> int:
        """Where the numbers do of a panel that is decoded."""
        return self.parts_at + (2 if self.splits else 1) * self.run_bytes

    @property
    def numbers_bytes(self) -> int:
        return 4 * self.whole * self.width if self.tiling.decodes else 0

    @property
    def run_bytes(self) -> int:
        """Of the parts of a run of steps of a panel."""
        return self.tiling.is_split * self.tiling.run * self.tiling.parts.step_bytes(0, self.width)

    def product_step(self) -> Step:
        return replace(super().product_step(), scratch=self.numbers_at + self.numbers_bytes)

    def emit_functions(self, k: KernelText) -> None:
        super().emit_functions(k)
        for name, vectors, columns in self.versions:
            self.emit_end(k, f"{ENTRY}.{name}", vectors, columns)
            for height in self.few:
                self.emit_tile(k, f"{ENTRY}.{name}.few", self.tile(height, vectors), columns)
            if self.few and not epilogues.in_registers(self.body):
                self.emit_done(k, f"{ENTRY}.{name}.few", self.tile(1, vectors), columns)
            if self.tiling.decodes:
                with k.function(f"{ENTRY}.{name}.decode", ["ptr %stored", "ptr %numbers"]) as f:
                    self.decode(f, vectors, "%numbers")
                    f.statement("ret void")
            if self.tiling.is_split:
                parameters = ["ptr %panel", "ptr %parts", "i64 %first", "i64 %steps"]
                with k.function(f"{ENTRY}.{name}.split", parameters) as f:
                    self.split(f, vectors)
                    f.statement("ret void")

    def split(self, f: Function, vectors: int) -> None:
        """Of steps of a panel all pairs from the %first on."""
        tile, t = MatrixTile(self.unit, vectors), self.tiling
        thirds.split_panel(f, t.parts, tile, t.lanes, "%steps", "%panel", "%parts", "%first", t.read)

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
        form, p = self.tiling.form, self.product
        if form is None:
            return super().sums(f, tile, level, a, b, start, columns)
        if self.of_digits(tile.rows):
            return gemm_stored.digit_sums(f, tile, a, b, form, self.target)
        rows = mk.strided_rows(f, a, self.words.of(self.step_of(p.m, A)), tile.rows, self.sizes[A])
        chains = mk.chains_for(self.target, tile.rows, self.tiling.vectors)
        return stored_panel.multiply_add_decoded(f, tile, rows, b, form, chains)

    def of_digits(self, height: int) -> bool:
        """Whether tiles of so many rows on vectors read digits: a row that is alone."""
        return self.tiling.digits and height == 1

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
        found = super().places(f, index)
        self.unsplit = self.unpacked_places(f, index)[A]
        return found

    @property
    def fewest_tiles(self) -> int:
        few = -(-self.tiling.few // self.tiling.rows)  # multiplied as if there were no strips, so in one
        return few // 2 + 1 if self.few else 1

    @property
    def bytes_of_row(self) -> int:
        return self.row_bytes

    @property
    def tile_time(self) -> Estimate:
        t = self.tiling
        return Estimate(compute=self.steps * step_time(self.target, self.unit, t.parts, t.rows, t.vectors))

    @property
    def panel_time(self) -> Estimate:
        t, found = self.tiling, super().panel_time
        if t.decodes:
            found += costs.compute(self.target, costs.DECODED * self.whole * t.vectors)
        return found + _splitting(self.product, t.parts, self.width, self.target)

    def emit_part(self, f: KernelFunction, places: dict[int, str], part: tuple[str, str], group: str) -> None:
        """Many rows by thirds, few on vectors where the run tells how many there are."""
        if self.few:
            few = f.compare("sle", f.size(self.product.m.size), self.tiling.few, "i64")
            with f.when(few):
                self.emit_few(f, places, group)
            with f.when(f.invert(few)):
                self.emit_many(f, places, part, group)
        else:
            self.emit_many(f, places, part, group)

    def emit_few(self, f: KernelFunction, places: dict[int, str], group: str) -> None:
        operands = {**places, A: self.unsplit}
        words = self.words.values(f)

        def panel(name: str, number: str, columns: str) -> None:
            def tile(height: int, row: str, _: str) -> None:
                given = {**operands, A: f.temporary(ALONE)} if self.of_digits(height) else operands
                at = [*self.unpacked_tile_places(f, given, row, number), "%scratch"]
                ahead = self.shares(f, at[B], row, height) if self.shared else ()
                at, numbers = [*at, *ahead[:1]], [*words, *ahead[1:], columns]
                arguments = [*(f"ptr {x}" for x in at), *(f"i64 {x}" for x in numbers)]
                f.statement(f"call void @{ENTRY}.{name}.few{height}({', '.join(arguments)})")

            mk.for_equal_tiles(f, f.size(self.product.m.size), self.few[-1], tile)

        self.for_panels(f, group, panel)

    def emit_many(self, f: KernelFunction, places: dict[int, str], part: tuple[str, str], group: str) -> None:
        """Some steps of k in turn: panels in turn, each split and multiplied by all rows."""
        ranges = list(self.ranges(f, part))
        self.set_most_rows(f)
        for first, count in self.blocks_of_depth:
            parts, numbers = (f.offset("%scratch", at) for at in (self.parts_at, self.numbers_at))
            self.emit_steps(f, _Steps(places, part, group, ranges, first, count, parts, numbers))

    def emit_steps(self, f: KernelFunction, steps: _Steps) -> None:
        """Some steps of all panels in turn."""

        def panel(name: str, number: str, columns: str) -> None:
            stored = wide = self.tile_places(f, steps.places, "0", number)[B]
            if self.tiling.decodes:
                wide = steps.numbers
                f.run(f"@{ENTRY}.{name}.decode", f"ptr {stored}", f"ptr {wide}")
            lanes = self.vectors_of(name) * self.tiling.lanes
            width = dtypes.itemsize(self.tiling.read) * self.unit.depth * lanes
            following = f.offset(stored, steps.first * width + self.panel_bytes())
            self.emit_runs(f, steps, _SplitPanel(name, number, columns, stored, wide, width, following))

        self.for_panels(f, steps.group, panel)

    def emit_runs(self, f: KernelFunction, steps: _Steps, panel: _SplitPanel) -> None:
        """The runs of a panel; splitting one's steps is divided among the tiles of the run before."""
        most, parts = self.tiling.run, steps.parts
        buffers = [("ptr", f.offset(parts, k * self.run_bytes)) for k in range(2 if self.splits else 0)]
        if self.splits:
            self.call_split(f, panel, steps.first, min(most, steps.count), parts)
        with f.loop(0, steps.count, most, buffers) as loop:
            here, there = loop.carried if self.splits else (parts, "null")
            begun, count = f.add(loop.index, steps.first), f.minimum(f.sub(steps.count, loop.index), most)
            end = f.add(begun, count)
            left = f.minimum(f.sub(steps.first + steps.count, end), most)
            some = f.compare("sgt", left, 0, "i64")
            sharing = f.select(some, "i64", str(self.splitters), "0")
            if not self.tiling.is_split:
                here = f.offset(panel.stored, f.mul(begun, panel.width))
            elif not self.splits:
                self.call_split(f, panel, begun, count, here)
            is_last = f.compare("eq", end, self.steps)
            run = _Run(loop.index, begun, count, end, left, sharing, here, there, is_last)
            self.for_matrix_tiles(f, steps.ranges, partial(self.emit_run_tile, f, steps, panel, run), False)
            if self.splits:
                self.split_rest(f, steps, panel, run)
                loop.carry(there, here)

    def emit_run_tile(
        self,
        f: KernelFunction,
        steps: _Steps,
        panel: _SplitPanel,
        run: _Run,
        height: str,
        row: str,
        index: str,
    ) -> None:
        """A tile's products of a run; behind the last its end."""
        found = self.tile_places(f, steps.places, row, panel.number)
        waiting = own = f.sub(index, steps.part[0])
        if len(self.blocks_of_depth) > 1:
            before = f.mul(f.sub(panel.number, f.mul(steps.group, self.tiling.group)), self.tiling.block)
            waiting = f.add(before, own)
        sums = f.offset("%scratch", f.mul(waiting, self.sums_bytes))
        ahead = "null"
        if self.fetched:
            share = f.add(f.mul(own, steps.count), run.index)
            ahead = f.offset(panel.following, f.mul(share, self.bytes_ahead(self.tiling.vectors)))
        pointers = [f.offset(found[A], f.mul(run.begun, self.step_bytes)), run.here, sums]
        given = [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in (run.begun, run.count)]
        given += [f"ptr {ahead}", *self.others(panel.stored, steps.numbers, height)]
        splits = f.compare("slt", own, run.sharing, "i64")
        with f.when(f.invert(splits)) if self.splits else nullcontext():
            self.call_matrix_tile(f, panel.name, height, ", ".join(given))
        if self.splits:
            pointers = [f.offset(panel.wide, f.mul(run.end, panel.width)), run.there]
            words = [f.mul(own, self.splits), f.sub(run.left, 1)]
            given += [f"ptr {x}" for x in pointers] + [f"i64 {x}" for x in words]
            with f.when(splits):
                self.call_matrix_tile(f, panel.name + SPLITTING, height, ", ".join(given))
        if steps.first + steps.count < self.steps:
            return
        with f.when(run.is_last):
            rows = f.offset(self.unsplit, f.mul(row, f.size(self.step_of(self.product.m, A))))
            pointers = [rows, *found[B + 1 :], sums, panel.wide]
            words = [*self.words.values(f), panel.columns, height]
            arguments = [*(f"ptr {x}" for x in pointers), *(f"i64 {x}" for x in words)]
            f.statement(f"call void @{ENTRY}.{panel.name}.end({', '.join(arguments)})")

    def split_rest(self, f: KernelFunction, steps: _Steps, panel: _SplitPanel, run: _Run) -> None:
        """The shares of the next run that no tile took: there were too few."""
        done = f.minimum(f.sub(steps.part[1], steps.part[0]), self.splitters)
        with f.when(f.compare("slt", done, run.sharing, "i64")):
            self.call_split(f, panel, run.end, run.left, run.there, f.mul(done, self.splits))

    def call_split(
        self,
        f: KernelFunction,
        panel: _SplitPanel,
        step: int | str,
        count: int | str,
        to: str,
        pair: int | str = 0,
    ) -> None:
        """Splits so many steps of a panel, all pairs from one on."""
        source, begun = self.split_from(f, panel.wide, step, panel.width, pair)
        f.run(f"@{ENTRY}.{panel.name}.split", f"ptr {source}", f"ptr {to}", f"i64 {begun}", f"i64 {count}")

    def split_from(
        self, f: Function, panel: str, step: int | str, width: int, pair: int | str
    ) -> tuple[str, int | str]:
        """What the function `split` is given of a panel's step of so many bytes: its address, and what is the
        first."""
        return f.offset(panel, f.mul(step, width)), pair

    def others(self, stored: str, numbers: str, height: str) -> list[str]:
        """Other words for tiles."""
        return []


class _Codes(_Thirds):
    """The same over codes of few bits, which are not split (`codes_tile.py`)."""

    splits = 0

    @property
    def numbers_bytes(self) -> int:
        """Of sums of some steps."""
        return self.sums_bytes

    def codes_tile(self, vectors: int, lines: int = 1) -> CodesTile:
        tile, t = self.parts_tile(vectors, lines), self.tiling
        form = offered(t.form, self.node)
        return CodesTile(
            tile.registers, tile.parts, tile.row_bytes, tile.ahead, form=form, together=t.codes, lanes=t.lanes
        )

    def emit_matrix_tile(
        self, text: Text, name: str, lines: int, vectors: int, columns: int | str | None
    ) -> None:
        self.codes_tile(vectors, lines).write_scaled(text, f"{name}.{lines}")

    def split(self, f: Function, vectors: int) -> None:
        self.codes_tile(vectors).decode(f)

    def split_from(
        self, f: Function, panel: str, step: int | str, width: int, pair: int | str
    ) -> tuple[str, int | str]:
        return panel, step

    def others(self, stored: str, numbers: str, height: str) -> list[str]:
        return [f"ptr {stored}", f"ptr {numbers}", f"i64 {height}"]
