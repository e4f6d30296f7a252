"""Attention by products of bfloat16s on registers that hold matrices, where the op allows them.

    keys → panels [pairs along d][32 keys], values → panels [pairs of keys][32 columns], in scratch memory
    for each tile of up to 32 query rows:  weights [rows][keys] = Q K'      sums are float32
                                           weights = exp(weights - max)     float32, then bfloat16
                                           out = out * correction + weights V
Up to MOST_KEYS keys that are known make one block. Others are taken BLOCK by BLOCK, every row keeping its
running maximum and sum, as in `attention.py`. A part is one batch element and some rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ir import dims
from ...ir.graph import Node
from ...ir.ops import Attention
from ...records import dataclass
from ...target import Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Multiplied, Offer, as_it_is, offered, single
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
from ..tiles.words import Words
from .attention import BIAS, FLOAT, OUT, SIZE, K, Q, Shape, V, places_of, shape_of

MOST_KEYS = 1024  # whose weights for one tile the second-level cache holds beside keys and values
BLOCK = 512  # keys at a time where they are more, or only the run knows how many
PART_ROWS = 128  # query rows that pay for packing keys and values once more
NARROW = "bfloat16"


@dataclass(frozen=True)
class Tiling:
    """Tiles of at most `rows` queries; a part is `part` of them."""

    rows: int
    part: int


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """float32, rows of all operands contiguous. Numbers of queries and keys that only the run knows have to
    be the same: few queries of many keys read these where they are (`attention.py`)."""
    unit = target.matrix(NARROW, NARROW, FLOAT)
    if unit is None or not isinstance(node.op, Attention) or not node.op.narrow:
        return
    shape = shape_of(node)
    if shape is None or shape.stored != FLOAT or not _is_taken(shape) or unit.columns != target.lanes(FLOAT):
        return
    rows = matrix.HIGH * unit.rows
    if isinstance(shape.queries, int):
        rows = mk.equal_heights(shape.queries, rows)[0]
    tiling = Tiling(rows, max(1, PART_ROWS // rows))
    arithmetic = f"{NARROW} * {NARROW} -> {FLOAT}"
    yield Offer(estimate(shape, target, unit, tiling), tiling, arithmetic=arithmetic)


def multiplied(node: Node, choice: Choice, target: Target) -> Multiplied:
    return Multiplied(types=(NARROW, NARROW, FLOAT))


def _is_taken(shape: Shape) -> bool:
    known = isinstance(shape.queries, int) and isinstance(shape.keys, int)
    if not known and shape.queries != shape.keys:
        return False
    if known and not (dims.number(shape.queries) > 0 and dims.number(shape.keys) > 0):
        return False
    contiguous = all(shape.inner_steps[x] == SIZE for x in (Q, K)) or shape.depth == 1
    numbers = all(isinstance(step, int) for step in shape.inner_steps)
    return contiguous and numbers and shape.depth > 0 and shape.extent > 0


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
    found += costs.overhead(target, queries * costs.ATTENTION_ROW / 2)
    read = keys * (shape.depth + shape.extent) * SIZE
    return (found + costs.move(target, read, repeats * read)) * repeats + costs.step(target)


pack = as_it_is


def emit(node: Node[Attention], choice: Choice[Tiling], target: Target) -> Code:
    return _Attention(node, offered(shape_of(node), node), choice, target).code()


class _Attention:
    """Writes the one step; distances are in bytes."""

    def __init__(self, node: Node[Attention], shape: Shape, choice: Choice[Tiling], target: Target):
        self.shape, self.target, self.cost, self.op = shape, target, choice.cost, node.op
        self.unit = offered(target.matrix(NARROW, NARROW, FLOAT), node)
        self.tiling, self.lanes = choice.tiling, target.lanes(FLOAT)
        self.width = matrix.WIDE * self.unit.columns
        keys = shape.keys
        self.one_block = isinstance(keys, int) and keys <= MOST_KEYS
        #: Keys of a block, in the functions.
        self.count = str(keys) if self.one_block else "%count"
        #: Sizes in whole steps of k, and in whole panels.
        self.depth = padded(shape.depth, self.unit.depth)
        self.block = padded(dims.number(keys), self.width) if self.one_block else BLOCK
        self.extent = padded(shape.extent, self.width)
        self.line = self.width * SIZE  # of a panel: a pair of every column
        self.weights_row = self.block * SIZE + 64  # rows a multiple of 4 KiB apart share cache sets
        self.narrow_row = self.block * 2 + 64
        self.tiles = dims.ceil_divide(shape.queries, self.tiling.rows)
        self.words = Words(shape.row_steps)

    def scratch(self) -> dict[str, int]:
        """Where a thread's own memory holds what."""
        rows = matrix.HIGH * self.unit.rows
        sizes = {
            "rows": self.block * self.depth * 2,  # of keys, narrow
            "keys": self.block * self.depth * 2,
            "values": self.block * self.extent * 2,
            "query": rows * self.depth * 2,
            "weights": rows * self.weights_row,
            "narrow": rows * self.narrow_row,
            "sums": rows * self.line,
            "factors": rows * 2 * SIZE,
            "state": self.tiling.part * rows * 2 * SIZE,
        }
        places, total = {}, 0
        for name, size in sizes.items():
            places[name], total = total, total + padded(size, 64)
        return places | {"end": total}

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        k, shape = KernelText(self.target), self.shape
        bias_step = dims.number(shape.inner_steps[BIAS]) if shape.biased else None
        softmax = Softmax(self.lanes, self.count, self.op.scale, bias_step, self.one_block, self.op.defined)
        softmax.emit(k, f"{ENTRY}.softmax")
        for high in self.highs():
            self.emit_tile(k, high)
        groups = dims.ceil_divide(self.tiles, self.tiling.part)
        with k.entry() as f:
            with f.loop("%first", "%last") as parts:
                index, group = f.divide(parts.index, f.size(groups))
                self.emit_part(f, places_of(f, self.shape, index), group)
            matrix.release(f)
        work = costs.work(self.cost, shape.repeats * shape.queries * shape.keys)
        return single(k.step(shape.repeats * groups, work, self.scratch()["end"], unit=1))

    def highs(self) -> list[int]:
        """How many registers of rows the tiles have."""
        if not isinstance(self.shape.queries, int):
            return list(range(1, matrix.HIGH + 1))
        heights = mk.height_counts(self.shape.queries, self.tiling.rows)
        return sorted({1 + (height > self.unit.rows) for height in heights})

    def emit_part(self, f: KernelFunction, places: list[str], group: str) -> None:
        """Blocks of keys: keys and values into panels, then the tiles of query rows."""
        at = {name: f.offset("%scratch", place) for name, place in self.scratch().items()}
        step = [f.size(d) for d in self.shape.row_steps]
        keys, first = f.size(self.shape.keys), f.mul(group, self.tiling.part)
        last = f.minimum(f.add(first, self.tiling.part), f.size(self.tiles))
        ranges = list(self.ranges(f, first, last))
        with f.loop(0, "1" if self.one_block else f.divide(f.add(keys, BLOCK - 1), BLOCK)[0]) as loop:
            before = "0" if self.one_block else f.mul(loop.index, BLOCK)
            count = keys if self.one_block else f.minimum(f.sub(keys, before), BLOCK)
            numbers = [count, "1", "1"]  # and whether the block is the first, and the last
            if not self.one_block:
                begins = f.compare("eq", loop.index, 0)
                ends = f.compare("sge", f.add(before, BLOCK), keys)
                numbers[1:] = [f.cast("zext", x, "i64") for x in (begins, ends)]
            self.pack_keys(f, f.offset(places[K], f.mul(before, step[K])), at["rows"], at["keys"], count)
            self.pack_values(f, f.offset(places[V], f.mul(before, step[V])), at["values"], count)

            def tile(height: str, row: str, number: str) -> None:
                pointers = [f.offset(places[x], f.mul(row, step[x])) for x in (Q, OUT)]
                if self.shape.biased:
                    bias = f.offset(places[BIAS], f.mul(row, step[BIAS]))
                    inner = dims.number(self.shape.inner_steps[BIAS])
                    pointers.append(f.offset(bias, f.mul(before, inner)))
                state = f.offset(at["state"], f.mul(f.sub(number, first), self.tiling.rows * 2 * SIZE))
                words = [f"ptr {p}" for p in (*pointers, state, "%scratch")]
                words += [f"i64 {n}" for n in (height, *numbers, *self.words.values(f))]
                self.call_tile(f, height, words)

            for height, skipped, start, stop in ranges:
                with f.when(f.compare("slt", start, stop)):
                    matrix.set_rows(f, self.unit, height)
                    with f.loop(start, stop) as tiles:
                        tile(height, f.add(f.mul(tiles.index, height), skipped), tiles.index)

    def ranges(self, f: KernelFunction, first: str, last: str) -> Iterator[tuple[str, str, str, str]]:
        """The tiles of a part, nearly equally high: (height, rows before those, first, behind the last)."""
        low, extra = f.divide(f.size(self.shape.queries), f.maximum(f.size(self.tiles), 1))
        if extra != "0":  # the first `extra` tiles are a row higher
            yield f.add(low, 1), "0", first, f.minimum(last, extra)
        if low != "0":
            yield low, extra, f.maximum(first, extra), last

    def call_tile(self, f: KernelFunction, height: str, words: list[str]) -> None:
        """Calls the function that has as many registers of rows as the height needs."""
        for high in self.highs():
            if height.isdigit():
                if high == 1 + (int(height) > self.unit.rows):
                    f.run(f"@{ENTRY}.tile{high}", *words)
                continue
            with f.when(f.compare("sgt" if high > 1 else "sle", height, self.unit.rows)):
                f.run(f"@{ENTRY}.tile{high}", *words)

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

    def narrow_counted(self, f: Function, source: str, count: str, to: str, whole: str) -> None:
        """The same for so many columns."""
        if count.isdigit():
            self.narrow(f, source, int(count), to, int(whole))
            return
        v, lanes, kind = Vectors(f, NARROW, self.lanes), self.lanes, f"<{self.lanes} x i16>"
        with f.loop(0, whole, lanes) as loop:
            x = load_first(f, FLOAT, lanes, f.element(source, loop.index, SIZE), f.sub(count, loop.index))
            words = f.cast("bitcast", from_computed(v, x), kind)
            f.store(kind, words, f.element(to, loop.index, 2), 2 * lanes)

    def whole(self, f: Function, count: str) -> str:
        """So many keys in whole panels."""
        return f.round_down(f.add(count, self.width - 1), self.width)

    def pack_keys(self, f: KernelFunction, keys: str, rows: str, panels: str, count: str) -> None:
        """K' as panels; the last key stands for those behind it, whose weights are left out."""
        step, row, kind = f.size(self.shape.row_steps[K]), self.depth * 2, f"<{self.lanes} x i32>"
        with f.loop(0, count) as key:
            source, to = f.offset(keys, f.mul(key.index, step)), f.offset(rows, f.mul(key.index, row))
            self.narrow(f, source, self.shape.depth, to, self.depth)
        with f.loop(0, self.whole(f, count), self.lanes) as some:
            panel, inside = f.divide(some.index, self.width)
            to = f.offset(panels, f.mul(panel, self.depth // 2 * self.line))
            to = f.offset(to, f.mul(inside, SIZE))
            for pair in range(0, self.depth // 2, self.lanes):
                square = []
                for lane in range(self.lanes):
                    place = f.mul(f.minimum(f.add(some.index, lane), f.sub(count, 1)), row)
                    square.append(f.load(kind, f.offset(f.offset(rows, place), pair * SIZE), 64))
                for k, words in enumerate(transpose(f, square)):
                    f.store(kind, words, f.offset(to, (pair + k) * self.line), 64)

    def pack_values(self, f: KernelFunction, values: str, panels: str, count: str) -> None:
        """V as panels of pairs of keys, zeros behind the last key."""
        step, v = f.size(self.shape.row_steps[V]), Vectors(f, NARROW, self.lanes)
        words = f"<{self.lanes} x i32>"
        pairs, odd = f.divide(count, 2)

        def half(row: str, first: int) -> str:
            x = load_first(f, FLOAT, self.lanes, f.offset(row, first * SIZE), self.shape.extent - first)
            bits = f.cast("bitcast", from_computed(v, x), f"<{self.lanes} x i16>")
            return f.cast("zext", bits, words)

        def pair(index: int | str, here: int) -> None:
            """The pair of keys of a number, of which so many are."""
            row = f.offset(values, f.mul(f.mul(index, 2), step))
            for first in range(0, self.extent, self.lanes):
                found: str = "zeroinitializer"
                if here and first < self.shape.extent:
                    found = half(row, first)
                    if here > 1:
                        upper = half(f.offset(row, step), first)
                        found = f.binary("or", found, f.binary("shl", upper, "splat (i32 16)"))
                panel, inside = divmod(first, self.width)
                to = f.offset(panels, panel * (self.block // 2 * self.line) + inside * SIZE)
                f.store(words, found, f.offset(to, f.mul(index, self.line)), 64)

        with f.loop(0, pairs) as loop:
            pair(loop.index, 2)
        with f.loop(pairs, f.add(pairs, odd)) as loop:
            pair(loop.index, 1)
        with f.loop(f.add(pairs, odd), f.divide(self.whole(f, count), 2)[0]) as loop:
            pair(loop.index, 0)

    # A tile of rows ------------------------------------------------------------------------------

    def emit_tile(self, k: KernelText, high: int) -> None:
        """tile{high}: a block of keys for some rows, for which the registers have their sizes."""
        pointers = ["%q", "%out", *(["%bias"] if self.shape.biased else []), "%state", "%scratch"]
        numbers = ["%rows", "%count", "%begin", "%end", *self.words.names]
        parameters = [*(f"ptr {n}" for n in pointers), *(f"i64 {n}" for n in numbers)]
        with k.function(f"{ENTRY}.tile{high}", parameters, attributes="nounwind noinline") as f:
            at = {name: f.offset("%scratch", place) for name, place in self.scratch().items()}
            tile = MatrixTile(self.unit, matrix.WIDE, high)
            whole, query_row = self.whole(f, self.count), self.depth * 2
            with f.loop(0, "%rows") as row:
                source = f.offset("%q", f.mul(row.index, self.words.of(self.shape.row_steps[Q])))
                self.narrow(
                    f,
                    source,
                    self.shape.depth,
                    f.offset(at["query"], f.mul(row.index, query_row)),
                    self.depth,
                )
            steps = self.depth // self.unit.depth
            with f.loop(0, f.divide(whole, self.width)[0]) as loop:
                panel = f.offset(at["keys"], f.mul(loop.index, self.depth // 2 * self.line))
                to = f.offset(at["weights"], f.mul(loop.index, self.line))
                self.products(f, tile, at["query"], query_row, panel, steps, to, self.weights_row)
            with f.loop(0, "%rows") as row:
                self.weigh(f, at, row.index, whole)
            some = f.divide(whole, self.unit.depth)[0]
            for first in range(0, self.shape.extent, self.width):
                panel = f.offset(at["values"], first // self.width * (self.block // 2 * self.line))
                self.products(f, tile, at["narrow"], self.narrow_row, panel, some, at["sums"], self.line)
                self.finish(f, at["sums"], at["factors"], first)
            f.statement("ret void")

    def weigh(self, f: Function, at: dict[str, str], row: str, whole: str) -> None:
        """The weights of a row's scores, as bfloat16s."""
        weights = f.offset(at["weights"], f.mul(row, self.weights_row))
        words = [f"ptr {p}" for p in (weights, f.offset(at["factors"], f.mul(row, 2 * SIZE)))]
        words.append(f"ptr {f.offset('%state', f.mul(row, 2 * SIZE))}")
        if self.shape.biased:
            step = self.words.of(self.shape.row_steps[BIAS])
            words.append(f"ptr {f.offset('%bias', f.mul(row, step))}")
        f.run(f"@{ENTRY}.softmax", *words, f"i64 {self.count}", "i64 %begin", "i64 %end")
        to = f.offset(at["narrow"], f.mul(row, self.narrow_row))
        self.narrow_counted(f, weights, self.count, to, whole)

    def products(
        self,
        f: Function,
        tile: MatrixTile,
        rows: str,
        row: int,
        panel: str,
        steps: int | str,
        to: str,
        to_row: int,
    ) -> None:
        """to [rows][columns of the panel] = rows * panel, in so many steps of k"""
        below = self.unit.rows
        matrix.clear(f, tile)
        lhs = [f.offset(rows, i * below * row) for i in range(tile.high)]
        matrix.multiply_add(f, tile, lhs, row, self.unit.row_bytes, panel, steps)
        matrix.store(f, tile, [f.offset(to, i * below * to_row) for i in range(tile.high)], to_row)

    def finish(self, f: Function, sums: str, factors: str, first: int) -> None:
        """A panel's columns of the result: what was summed so far, for the row's new maximum, and these sums
        times the row's normaliser."""
        v, step = Vectors(f, FLOAT, self.lanes), self.words.of(self.shape.row_steps[OUT])
        begins = f.compare("ne", "%begin", 0)
        with f.loop(0, "%rows") as row:
            place = f.offset(factors, f.mul(row.index, 2 * SIZE))
            factor = v.broadcast(f.load("float", place, SIZE))
            out = f.offset(f.offset("%out", f.mul(row.index, step)), first * SIZE)
            for j in range(min(matrix.WIDE, -(-(self.shape.extent - first) // self.lanes))):
                source = f.offset(f.offset(sums, f.mul(row.index, self.line)), j * self.lanes * SIZE)
                count, to = self.shape.extent - first - j * self.lanes, f.offset(out, j * self.lanes * SIZE)
                total: str = f.load(v.type, source, 64)
                if not self.one_block:
                    correction = v.broadcast(f.load("float", f.offset(place, SIZE), SIZE))
                    old = v.mul(load_first(f, FLOAT, self.lanes, to, count), correction)
                    total = v.add(total, f.select(begins, v.type, v.constant(0), old))
                store_first(f, FLOAT, self.lanes, v.mul(total, factor), to, count)
