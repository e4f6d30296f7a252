"""Attention by products of bfloat16s on registers that hold matrices, where the op allows them.

    keys → panels [pairs along d][32 keys], values → panels [pairs of keys][32 columns], in scratch memory
    for each tile of up to 32 query rows:  weights [rows][keys] = Q K'      sums are float32
                                           weights = exp(weights - max)     float32, then bfloat16
                                           out = weights V * normaliser     sums are float32
All keys make one block. A part is one batch element and some rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import dims
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.ops import Attention
from ...records import dataclass
from ...target import Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, offered, single
from ..text.conversion import from_computed
from ..text.emitter import ENTRY, Function
from ..text.memory import load_first, store_first
from ..text.shuffles import transpose
from ..text.vectors import Vectors
from ..tiles import matrix
from ..tiles import microkernel as mk
from ..tiles.matrix import MatrixTile
from ..tiles.packing import padded
from ..tiles.softmax import Softmax
from .attention import BIAS, FLOAT, OUT, SIZE, K, Q, Shape, V, places_of, shape_of

MOST_KEYS = 1024  # whose weights for one tile the second-level cache holds beside keys and values
PART_ROWS = 128  # query rows that pay for packing keys and values once more
NARROW = "bfloat16"


@dataclass(frozen=True)
class Tiling:
    """Tiles of at most `rows` queries; a part is `part` of them."""

    rows: int
    part: int


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """float32 with sizes that are known, rows of all operands contiguous."""
    unit = target.matrix(NARROW, NARROW, FLOAT)
    if unit is None or not isinstance(node.op, Attention) or not node.op.narrow:
        return
    shape = shape_of(node)
    if shape is None or not _is_known(shape) or unit.columns != target.lanes(FLOAT):
        return
    rows = mk.equal_heights(dims.number(shape.queries), matrix.HIGH * unit.rows)[0]
    tiling = Tiling(rows, max(1, PART_ROWS // rows))
    yield Offer(estimate(shape, target, unit, tiling), tiling)


def _is_known(shape: Shape) -> bool:
    sizes = (shape.queries, shape.keys, *shape.row_steps, *shape.inner_steps)
    if any(isinstance(size, Dim) for size in sizes) or not 0 < dims.number(shape.keys) <= MOST_KEYS:
        return False
    contiguous = all(shape.inner_steps[x] == SIZE for x in (Q, K)) or shape.depth == 1
    return contiguous and dims.number(shape.queries) > 0 and shape.depth > 0 and shape.extent > 0


def estimate(shape: Shape, target: Target, unit: Matrix, tiling: Tiling) -> Estimate:
    """The steps of both products, the exponentials, bringing keys and values into panels."""
    queries, keys, repeats = (dims.typical(d) for d in (shape.queries, shape.keys, shape.repeats))
    tiles = -(-queries // tiling.rows)
    columns, lanes = unit.columns * matrix.WIDE, target.lanes(FLOAT)
    steps = -(-keys // columns) * -(-shape.depth // unit.depth)
    steps += -(-shape.extent // columns) * -(-keys // unit.depth)
    each = steps * costs.matrix_step(target, unit, tiling.rows, matrix.WIDE)
    panels = -(-keys // columns) + -(-shape.extent // columns)
    each += panels * costs.matrix_ends(target, unit, tiling.rows, matrix.WIDE)
    packed = -(-tiles // tiling.part) * keys * (2 * shape.depth + shape.extent) / lanes
    vectors = queries * -(-keys // lanes) * (costs.SOFTMAX + costs.CONVERTED) + packed * costs.CONVERTED
    found = Estimate(compute=each * tiles) + costs.compute(target, vectors)
    found += costs.overhead(queries * costs.ATTENTION_ROW / 2)
    read = keys * (shape.depth + shape.extent) * SIZE
    return (found + costs.move(target, read, repeats * read)) * repeats + costs.step(target)


def pack(node: Node[Attention], choice: Choice[Tiling], operand: int) -> None:
    return None


def emit(node: Node[Attention], choice: Choice[Tiling], target: Target) -> Code:
    return _Attention(node, offered(shape_of(node), node), choice, target).code()


class _Attention:
    """Writes the one step; distances are in bytes."""

    def __init__(self, node: Node[Attention], shape: Shape, choice: Choice[Tiling], target: Target):
        self.shape, self.target, self.cost, self.scale = shape, target, choice.cost, node.op.scale
        self.unit = offered(target.matrix(NARROW, NARROW, FLOAT), node)
        self.tiling, self.lanes = choice.tiling, target.lanes(FLOAT)
        self.width = matrix.WIDE * self.unit.columns
        self.queries, self.keys = dims.number(shape.queries), dims.number(shape.keys)
        #: Sizes in whole steps of k, and in whole panels.
        self.depth = padded(shape.depth, self.unit.depth)
        self.whole_keys, self.extent = padded(self.keys, self.width), padded(shape.extent, self.width)
        self.line = self.width * SIZE  # of a panel: a pair of every column
        self.weights_row = self.whole_keys * SIZE + 64  # rows a multiple of 4 KiB apart share cache sets
        self.narrow_row = self.whole_keys * 2 + 64
        self.tiles = -(-self.queries // self.tiling.rows)

    def scratch(self) -> dict[str, int]:
        """Where a thread's own memory holds what."""
        rows = matrix.HIGH * self.unit.rows
        sizes = {
            "rows": self.whole_keys * self.depth * 2,  # of keys, narrow
            "keys": self.whole_keys * self.depth * 2,
            "values": self.whole_keys * self.extent * 2,
            "query": rows * self.depth * 2,
            "weights": rows * self.weights_row,
            "narrow": rows * self.narrow_row,
            "sums": rows * self.line,
            "factors": rows * 2 * SIZE,
            "state": rows * 2 * SIZE,
        }
        places, total = {}, 0
        for name, size in sizes.items():
            places[name], total = total, total + padded(size, 64)
        return places | {"end": total}

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        k, shape = KernelText(self.target), self.shape
        bias_step = dims.number(shape.inner_steps[BIAS]) if shape.biased else None
        Softmax(self.lanes, str(self.keys), self.scale, bias_step, True).emit(k, f"{ENTRY}.softmax")
        heights = mk.height_counts(self.queries, self.tiling.rows)
        for high in sorted({1 + (height > self.unit.rows) for height in heights}):
            self.emit_tile(k, high)
        groups = -(-self.tiles // self.tiling.part)
        with k.entry() as f:
            with f.loop("%first", "%last") as parts:
                index, group = f.divide(parts.index, groups)
                self.emit_part(f, places_of(f, self.shape, index), group)
            matrix.release(f)
        work = costs.work(self.cost, shape.repeats * self.queries)
        return single(k.step(shape.repeats * groups, work, self.scratch()["end"]))

    def emit_part(self, f: KernelFunction, places: list[str], group: str) -> None:
        """Keys and values into panels, then the tiles of query rows."""
        at = {name: f.offset("%scratch", place) for name, place in self.scratch().items()}
        step = [dims.number(d) for d in self.shape.row_steps]
        self.pack_keys(f, places[K], at["rows"], at["keys"])
        self.pack_values(f, places[V], at["values"])
        first = f.mul(group, self.tiling.part)
        last = f.minimum(f.add(first, self.tiling.part), self.tiles)

        def tile(height: int, row: str, number: str) -> None:
            matrix.set_rows(f, self.unit, height)
            pointers = [f.offset(places[x], f.mul(row, step[x])) for x in (Q, OUT)]
            pointers += [f.offset(places[BIAS], f.mul(row, step[BIAS]))] if self.shape.biased else []
            words = [*(f"ptr {p}" for p in (*pointers, "%scratch")), f"i64 {height}"]
            f.run(f"@{ENTRY}.tile{1 + (height > self.unit.rows)}", *words)

        mk.for_equal_tiles(f, self.queries, self.tiling.rows, tile, first, last)

    # Panels --------------------------------------------------------------------------------------

    def narrow(self, f: Function, source: str, columns: int, to: str, whole: int) -> None:
        """A row of float32 as bfloat16s, zeros behind them."""
        v, lanes = Vectors(f, NARROW, self.lanes), self.lanes
        for first in range(0, whole, lanes):
            words: str = "zeroinitializer"
            if first < columns:
                x = load_first(f, FLOAT, lanes, f.offset(source, first * SIZE), columns - first)
                words = f.cast("bitcast", from_computed(v, x), f"<{lanes} x i16>")
            f.store(f"<{lanes} x i16>", words, f.offset(to, first * 2), 2 * lanes)

    def pack_keys(self, f: KernelFunction, keys: str, rows: str, panels: str) -> None:
        """K' as panels; the last key stands for those behind it, whose weights are left out."""
        step, row, kind = dims.number(self.shape.row_steps[K]), self.depth * 2, f"<{self.lanes} x i32>"
        with f.loop(0, self.keys) as key:
            source, to = f.offset(keys, f.mul(key.index, step)), f.offset(rows, f.mul(key.index, row))
            self.narrow(f, source, self.shape.depth, to, self.depth)
        with f.loop(0, self.whole_keys, self.lanes) as some:
            panel, inside = f.divide(some.index, self.width)
            to = f.offset(panels, f.mul(panel, self.depth // 2 * self.line))
            to = f.offset(to, f.mul(inside, SIZE))
            for pair in range(0, self.depth // 2, self.lanes):
                square = []
                for lane in range(self.lanes):
                    place = f.mul(f.minimum(f.add(some.index, lane), self.keys - 1), row)
                    square.append(f.load(kind, f.offset(f.offset(rows, place), pair * SIZE), 64))
                for k, words in enumerate(transpose(f, square)):
                    f.store(kind, words, f.offset(to, (pair + k) * self.line), 64)

    def pack_values(self, f: KernelFunction, values: str, panels: str) -> None:
        """V as panels of pairs of keys, zeros behind the last key."""
        step, v = dims.number(self.shape.row_steps[V]), Vectors(f, NARROW, self.lanes)
        words = f"<{self.lanes} x i32>"

        def half(row: str, first: int) -> str:
            x = load_first(f, FLOAT, self.lanes, f.offset(row, first * SIZE), self.shape.extent - first)
            bits = f.cast("bitcast", from_computed(v, x), f"<{self.lanes} x i16>")
            return f.cast("zext", bits, words)

        def pair(index: int | str, both: bool) -> None:
            row = f.offset(values, f.mul(f.mul(index, 2), step))
            for first in range(0, self.extent, self.lanes):
                found: str = "zeroinitializer"
                if first < self.shape.extent:
                    found = half(row, first)
                    if both:
                        upper = half(f.offset(row, step), first)
                        found = f.binary("or", found, f.binary("shl", upper, "splat (i32 16)"))
                panel, inside = divmod(first, self.width)
                to = f.offset(panels, panel * (self.whole_keys // 2 * self.line) + inside * SIZE)
                f.store(words, found, f.offset(to, f.mul(index, self.line)), 64)

        with f.loop(0, self.keys // 2) as loop:
            pair(loop.index, True)
        if self.keys % 2:
            pair(self.keys // 2, False)
        with f.loop(-(-self.keys // 2), self.whole_keys // 2) as loop:
            for first in range(0, self.extent, self.lanes):
                panel, inside = divmod(first, self.width)
                to = f.offset(panels, panel * (self.whole_keys // 2 * self.line) + inside * SIZE)
                f.store(words, "zeroinitializer", f.offset(to, f.mul(loop.index, self.line)), 64)

    # A tile of rows ------------------------------------------------------------------------------

    def emit_tile(self, k: KernelText, high: int) -> None:
        """tile{high}(q, out, [bias,] scratch, rows), for which the registers have their sizes."""
        names = ["%q", "%out", *(["%bias"] if self.shape.biased else []), "%scratch"]
        parameters = [*(f"ptr {n}" for n in names), "i64 %rows"]
        with k.function(f"{ENTRY}.tile{high}", parameters, attributes="nounwind noinline") as f:
            at = {name: f.offset("%scratch", place) for name, place in self.scratch().items()}
            tile, step = (
                MatrixTile(self.unit, matrix.WIDE, high),
                [dims.number(d) for d in self.shape.row_steps],
            )
            with f.loop(0, "%rows") as row:
                source = f.offset("%q", f.mul(row.index, step[Q]))
                to = f.offset(at["query"], f.mul(row.index, self.depth * 2))
                self.narrow(f, source, self.shape.depth, to, self.depth)
            self.products(
                f,
                tile,
                at["query"],
                self.depth * 2,
                at["keys"],
                self.depth,
                self.whole_keys,
                at["weights"],
                self.weights_row,
            )
            with f.loop(0, "%rows") as row:
                weights = f.offset(at["weights"], f.mul(row.index, self.weights_row))
                factors = f.offset(at["factors"], f.mul(row.index, 2 * SIZE))
                state = f.offset(at["state"], f.mul(row.index, 2 * SIZE))
                words = [f"ptr {p}" for p in (weights, factors, state)]
                if self.shape.biased:
                    words.append(f"ptr {f.offset('%bias', f.mul(row.index, step[BIAS]))}")
                f.run(f"@{ENTRY}.softmax", *words, f"i64 {self.keys}", "i64 1", "i64 1")
                to = f.offset(at["narrow"], f.mul(row.index, self.narrow_row))
                self.narrow(f, weights, self.keys, to, self.whole_keys)
            for first in range(0, self.shape.extent, self.width):
                panel = f.offset(at["values"], first // self.width * (self.whole_keys // 2 * self.line))
                self.products(
                    f,
                    tile,
                    at["narrow"],
                    self.narrow_row,
                    panel,
                    self.whole_keys,
                    self.width,
                    at["sums"],
                    self.line,
                )
                self.finish(f, at["sums"], at["factors"], first)
            f.statement("ret void")

    def products(
        self,
        f: Function,
        tile: MatrixTile,
        rows: str,
        row: int,
        panels: str,
        depth: int,
        columns: int,
        to: str,
        to_row: int,
    ) -> None:
        """to [rows][columns] = rows [rows][depth] * panels"""
        below = self.unit.rows
        with f.loop(0, columns // self.width) as loop:
            matrix.clear(f, tile)
            lhs = [f.offset(rows, i * below * row) for i in range(tile.high)]
            panel = f.offset(panels, f.mul(loop.index, depth // 2 * self.line))
            matrix.multiply_add(f, tile, lhs, row, self.unit.row_bytes, panel, depth // self.unit.depth)
            out = f.offset(to, f.mul(loop.index, self.line))
            matrix.store(f, tile, [f.offset(out, i * below * to_row) for i in range(tile.high)], to_row)

    def finish(self, f: Function, sums: str, factors: str, first: int) -> None:
        """A panel's columns of the result: sums times each row's normaliser."""
        v, step = Vectors(f, FLOAT, self.lanes), dims.number(self.shape.row_steps[OUT])
        with f.loop(0, "%rows") as row:
            factor = v.broadcast(f.load("float", f.offset(factors, f.mul(row.index, 2 * SIZE)), SIZE))
            out = f.offset(f.offset("%out", f.mul(row.index, step)), first * SIZE)
            for j in range(min(matrix.WIDE, -(-(self.shape.extent - first) // self.lanes))):
                place = f.offset(f.offset(sums, f.mul(row.index, self.line)), j * self.lanes * SIZE)
                scaled = v.mul(f.load(v.type, place, 64), factor)
                count = self.shape.extent - first - j * self.lanes
                store_first(f, FLOAT, self.lanes, scaled, f.offset(out, j * self.lanes * SIZE), count)
