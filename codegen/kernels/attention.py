"""Attention without its matrix of weights: softmax(scale * Q K' + bias) V for a few rows at a time.

    for each block of keys:  K' → panels [d][NR] in scratch; V whose rows lie apart → panels [key][NR]
        for each tile of query rows:  weights [rows][keys] = Q K'   (first-level cache)
                                      weights = exp(weights - max)  row by row
                                      out = out * correction + weights V
Up to BLOCK keys make one block, fewer where heads are wide (`_block`). More are taken block by block, every
row keeping its running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018). A part is one batch element and some rows; those of an element that a thread has it computes
as one. FEW rows read the keys where they are, at the speed of memory. Keys behind the last one that a mask
lets any row of a tile see are left out. Keys and values that are stored in 16 bits are widened where they are
read, block by block for more rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

from ...ir import dims, dtypes, expr
from ...ir.dims import Dim, Dimension
from ...ir.graph import Node
from ...ir.ops import Attention
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, as_it_is, offered, single
from ..text.emitter import ENTRY, Function, Text
from ..text.memory import load_first
from ..text.shuffles import row_sums
from ..text.vectors import Vectors
from ..tiles import mask
from ..tiles import microkernel as mk
from ..tiles.contraction import steps_of
from ..tiles.lines import Lines, joined
from ..tiles.packing import pack_panel, padded
from ..tiles.panel_operand import Panel, widened
from ..tiles.softmax import Softmax
from ..tiles.strides import broadcast_stride, row_major
from ..tiles.words import Words

BLOCK = 512  # keys whose weights for one tile still fit the first-level cache
LEAST_BLOCK = 128  # keys that pay for correcting what was summed up before
PART_ROWS = 24  # query rows that pay for packing the keys, where a thread has no more
MANY = 64  # query rows that pay for copying the values
VECTORS = 2  # of a panel of keys and of a chunk of the output
MASKED = 64  # keys for which it pays to look which of them a mask hides
FEW = 2  # query rows that do not pay for packing the keys
AHEAD = 16  # keys whose rows are fetched before they are needed, for few queries
FLOAT, SIZE = "float32", 4
STORED = (FLOAT, *dtypes.HALVES)  # types of keys and values


@dataclass(frozen=True)
class Tiling:
    """Tiles of `rows` queries and vectors of `lanes`, `block` keys at a time; a part is `part` queries."""

    rows: int
    lanes: int
    block: int
    part: int


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """float32 with known depths; rows of V, of the output and of the bias must be contiguous."""
    shape = shape_of(node)
    if shape is None:
        return
    queries, keys, repeats = (dims.typical(d) for d in (shape.queries, shape.keys, shape.repeats))
    long = not isinstance(shape.keys, int) or keys > BLOCK // 2
    rows = min(8 if long else 14, mk.most_rows(target, VECTORS))
    if isinstance(shape.queries, int):
        rows = max(1, min(rows, shape.queries))
    lanes = target.lanes(FLOAT)
    sums = shape.depth * -(-keys // lanes) + keys * -(-shape.extent // lanes)
    exponentials = -(-keys // lanes) * costs.SOFTMAX
    cost = costs.products(target, queries * sums) + costs.compute(target, queries * exponentials)
    read = keys * (shape.depth + shape.extent) * shape.item
    cost += costs.move(target, read, repeats * read)
    if shape.stored != FLOAT:
        widening = costs.weight(target, expr.input_(0, shape.stored).cast(FLOAT))
        cost += costs.compute(target, widening * keys * (shape.depth + shape.extent) / lanes)
    if queries > FEW:
        cost += costs.move(target, 2 * keys * (shape.depth + shape.extent * shape.copied) * SIZE)
    tiling = Tiling(rows, lanes, _block(shape, target), PART_ROWS)
    yield Offer(cost * repeats + _begun_rows(shape, target) + costs.step(target), tiling)


def _block(shape: Shape, target: Target) -> int:
    """Keys whose rows and values take no more than half of the second-level cache."""
    block, key = BLOCK, (shape.depth + shape.extent) * SIZE
    while block > LEAST_BLOCK and 2 * block * key > target.facts.level2_bytes:
        block //= 2
    return block


def _begun_rows(shape: Shape, target: Target) -> Estimate:
    """What each query takes however many keys there are."""
    return costs.overhead(target, dims.typical(shape.repeats * shape.queries) * costs.ATTENTION_ROW)


pack = as_it_is


def emit(node: Node[Attention], choice: Choice[Tiling], target: Target) -> Code:
    return _Attention(node, offered(shape_of(node), node), choice, target).code()


# Shapes ------------------------------------------------------------------------------------------

Q, K, V, OUT, BIAS = range(5)


@dataclass(frozen=True)
class Shape:
    """Sizes, and strides in bytes: of each operand along the batch axes, the rows (of queries for Q,
    OUT and BIAS, of keys for K and V) and within a row."""

    batch: tuple[Dimension, ...]
    queries: Dimension
    keys: Dimension
    depth: int
    extent: int
    batch_steps: tuple[tuple[Dimension, ...], ...]  # [operand][batch axis]
    row_steps: tuple[Dimension, ...]
    inner_steps: tuple[Dimension, ...]
    stored: str  # the type of keys and values

    @property
    def item(self) -> int:
        """Bytes of an element of K or V."""
        return dtypes.itemsize(self.stored)

    @property
    def repeats(self) -> Dimension:
        return dims.product(self.batch)

    @property
    def biased(self) -> bool:
        return len(self.row_steps) > BIAS

    @property
    def copied(self) -> bool:
        """Whether rows of V are copied: widened, or, for many queries, as they lie apart, in few sets of the
        caches."""
        if self.stored != FLOAT:
            return True
        return self.row_steps[V] != self.extent * SIZE and dims.typical(self.queries) >= MANY

    @property
    def masked(self) -> bool:
        """Whether the bias may hide keys, and so many that one looks."""
        return self.biased and self.inner_steps[BIAS] == SIZE and dims.typical(self.keys) >= MASKED


def shape_of(node: Node) -> Shape | None:
    """The sizes and strides of an Attention by its labels; None where operands have types or layouts, or lie
    in a way, that the kernels do not read."""
    op = node.op
    if not isinstance(op, Attention):
        return None
    values = (*node.inputs[:3], node.outputs[0], *node.inputs[3:])
    types, stored = [v.dtype for v in values], values[K].dtype
    if any(v.tensor.layout is not None for v in values) or stored not in STORED:
        return None
    if types != [FLOAT, stored, stored, *[FLOAT] * (len(values) - OUT)]:
        return None
    batch = [label for label in op.q if label not in "qd"]
    names = [op.q, op.k, op.v, op.out]
    sizes: dict[str, Dimension] = {}
    for labels, value in zip(names, values, strict=False):
        for label, size in zip(labels, value.shape, strict=True):
            if label in op.repeated or not isinstance(sizes.get(label), int):
                sizes[label] = size
    if not set("qkde") <= set(sizes):
        return None
    depth, extent = sizes["d"], sizes["e"]
    if not isinstance(depth, int) or not isinstance(extent, int):
        return None
    strides = [
        dict(steps_of(op, labels, value.shape, sizes, dtypes.itemsize(value.dtype)))
        for labels, value in zip(names, values, strict=False)
    ]
    if len(values) > BIAS:
        axes, bias = [*batch, "q", "k"], values[BIAS].shape
        aligned = axes[len(axes) - len(bias) :]
        steps: dict[str, Dimension] = dict.fromkeys(axes, 0)
        for label, size, step in zip(aligned, bias, row_major(bias, SIZE), strict=True):
            steps[label] = broadcast_stride(step, size, sizes[label])
        strides.append(steps)
    rows, inner = "qkkqq", "ddeek"
    result = Shape(
        tuple(sizes[label] for label in batch),
        sizes["q"],
        sizes["k"],
        depth,
        extent,
        tuple(tuple(s.get(label, 0) for label in batch) for s in strides),
        tuple(s[label] for s, label in zip(strides, rows, strict=False)),
        tuple(s[label] for s, label in zip(strides, inner, strict=False)),
        stored,
    )
    contiguous = result.extent == 1 or result.inner_steps[V:BIAS] == (result.item, SIZE)
    if stored != FLOAT and result.inner_steps[K] != result.item:
        return None
    if result.biased:  # only the run may know whether the bias repeats along the keys
        step = result.inner_steps[BIAS]
        contiguous = contiguous and (isinstance(step, Dim) or step in (0, SIZE))
    return result if contiguous else None


# Emission ----------------------------------------------------------------------------------------


def places_of(f: KernelFunction, shape: Shape, index: str) -> list[str]:
    """The addresses of the operands for an index of the batch axes."""
    base: list[str] = [f.input(0), f.input(1), f.input(2), f.output()]
    base += [f.input(3)] if shape.biased else []
    for axis in reversed(range(len(shape.batch))):
        index, here = f.divide(index, f.size(shape.batch[axis]))
        for operand, steps in enumerate(shape.batch_steps):
            base[operand] = f.offset(base[operand], f.mul(here, f.size(steps[axis])))
    return base


class _Attention:
    """Writes the one step. Distances are in bytes, words as in matrix products: numbers stand in the
    code, what only the run knows is handed to the functions."""

    def __init__(self, node: Node[Attention], shape: Shape, choice: Choice[Tiling], target: Target):
        tiling = choice.tiling
        self.shape, self.target, self.op, self.cost = shape, target, node.op, choice.cost
        self.rows, self.lanes = tiling.rows, tiling.lanes
        self.width = VECTORS * self.lanes
        keys = shape.keys
        self.masked = shape.masked
        self.one_block, self.block = False, tiling.block
        if isinstance(keys, int) and keys <= tiling.block:
            self.one_block, self.block = True, padded(keys, self.width)
        self.weights_row = self.block * SIZE + 64  # rows a multiple of 4 KiB apart share cache sets
        self.tiles = dims.ceil_divide(shape.queries, self.rows)
        self.part = max(1, tiling.part // self.rows)
        needed = (*shape.row_steps, shape.inner_steps[Q], *shape.inner_steps[BIAS:])
        self.words = Words(needed)
        self.count = str(keys) if self.one_block and not self.masked else "%count"  # in the functions

    @property
    def few(self) -> bool | None:
        """Whether there are only FEW queries; None where the run tells."""
        contiguous = self.shape.inner_steps[: K + 1] == (SIZE, self.shape.item) or self.shape.depth == 1
        if not contiguous:
            return False
        return self.shape.queries <= FEW if isinstance(self.shape.queries, int) else None

    def softmaxes(self) -> dict[str, int | None]:
        """The functions of a row's weights, and how far the biases of two keys are apart."""
        step = self.shape.inner_steps[BIAS] if self.shape.biased else None
        if isinstance(step, Dim):
            return {f"{ENTRY}.softmax": SIZE, f"{ENTRY}.softmax.same": 0}
        return {f"{ENTRY}.softmax": step}

    def tile(self, height: int, vectors: int, rhs: str = FLOAT) -> mk.Tile:
        return mk.Tile(height, vectors, self.lanes, rhs=rhs)

    def load(self, f: Function, place: str, count: int) -> str:
        """The first `count` elements of keys or values, wide; the other lanes are 0."""
        stored = self.shape.stored
        return widened(f, load_first(f, stored, self.lanes, place, count), stored, FLOAT, self.lanes)

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        k, shape = KernelText(self.target), self.shape
        for name, step in self.softmaxes().items():
            Softmax(self.lanes, self.count, self.op.scale, step, self.one_block, self.op.defined).emit(
                k, name
            )
        if self.masked:
            mask.emit_seen(k, f"{ENTRY}.seen", self.lanes)
        heights: Iterable[int] = range(1, self.rows + 1)
        if isinstance(shape.queries, int):
            heights = sorted(mk.height_counts(shape.queries, self.rows))
        for height in heights:
            for kind in self.kinds(height):
                self.emit_tile(k, kind, height)
        lines = Lines(self.tiles, self.part)
        with k.entry() as f, joined(f, lines, "%first", "%last", shape.repeats) as (index, (first, last)):
            self.emit_part(f, places_of(f, self.shape, index), first, last)
        parts_ = shape.repeats * lines.count
        rows, begun = shape.repeats * shape.queries, _begun_rows(shape, self.target)
        work = costs.work(self.cost - begun, rows * shape.keys) + costs.work(begun, rows)
        return single(k.step(parts_, work, self.scratch_bytes, unit=1))

    @property
    def scratch(self) -> dict[str, int]:
        """Where a thread's own memory holds what, in bytes: packed keys, values, weights, the factors of a
        tile's rows, and, last, each row's running maximum and sum."""
        shape = self.shape
        sizes = {
            "panels": padded(self.block, self.width) * shape.depth * SIZE,
            "keys": self.block * self.key_row if shape.stored != FLOAT else 0,
            "values": self.block * padded(shape.extent, self.lanes) * SIZE if shape.copied else 0,
            "weights": self.rows * self.weights_row,
            "factors": padded(self.rows * 2 * SIZE, 64),
        }
        places, total = {}, 0
        for name, size in sizes.items():
            places[name], total = total, total + padded(size, 64)
        return places | {"state": total}

    @property
    def key_row(self) -> int:
        """Bytes from one widened key to the next."""
        return padded(self.shape.depth, self.lanes) * SIZE

    @property
    def scratch_bytes(self) -> Dimension:
        return self.scratch["state"] + self.tiles * (self.rows * 2 * SIZE)

    def emit_part(self, f: KernelFunction, places: list[str], first: str, last: str) -> None:
        """Blocks of keys, for each the tiles of query rows."""
        shape = self.shape
        keys = f.size(shape.keys)
        words = [f"i64 {word}" for word in self.words.values(f)]
        at = {name: f.offset("%scratch", place) for name, place in self.scratch.items()}
        step = [f.size(d) for d in shape.row_steps]
        blocks = "1"
        if not self.one_block:  # no keys at all make an empty block, whose sums are zeros
            blocks = f.maximum(f.divide(f.add(keys, self.block - 1), self.block)[0], 1)
        with f.loop(0, blocks) as loop:
            before = f.mul(loop.index, self.block) if not self.one_block else "0"
            count = f.minimum(f.sub(keys, before), self.block)
            if self.masked:
                row = f.mul(first, self.rows)
                rows = f.minimum(f.mul(f.sub(last, first), self.rows), f.sub(f.size(shape.queries), row))
                count = self.seen(f, places[BIAS], row, rows, before, count)
            key_rows = f.offset(places[K], f.mul(before, step[K]))
            value_rows = f.offset(places[V], f.mul(before, step[V]))
            few = f.compare("sle", f.size(shape.queries), FEW) if self.few is None else None
            if not self.few:
                with self.where(f, few, "rows"):
                    self.pack_keys(f, key_rows, at["keys"], at["panels"], count)
                    if self.shape.copied:
                        self.copy_values(f, value_rows, at["values"], count)
            begin, end = self.ends(f, loop.index, before, keys)

            def tile(height: int, row: str, number: str) -> None:
                seen = self.seen(f, places[BIAS], row, height, before, count) if self.masked else count
                with nullcontext() if self.one_block or not self.masked else f.when(wanted(seen)):
                    multiply(height, row, number, seen)

            def wanted(seen: str) -> str:
                """Some keys are seen, or the row's sums begin or end."""
                words = f.binary("or", f.binary("or", begin, end, "i64"), seen, "i64")
                return f.compare("ne", words, 0)

            def multiply(height: int, row: str, number: str, count: str) -> None:
                mine = f.mul(f.sub(number, first), self.rows * 2 * SIZE)
                pointers = [
                    f.offset(places[Q], f.mul(row, step[Q])),
                    key_rows,
                    at["panels"],
                    at["weights"],
                    at["factors"],
                    value_rows,
                    at["values"],
                    f.offset(places[OUT], f.mul(row, step[OUT])),
                    f.offset(at["state"], mine),
                ]
                if shape.biased:
                    bias = f.offset(places[BIAS], f.mul(row, step[BIAS]))
                    inner = f.size(shape.inner_steps[BIAS])
                    pointers.append(f.offset(bias, f.mul(before, inner)))
                numbers = [f"i64 {x}" for x in (count, begin, end)]
                arguments = [*(f"ptr {p}" for p in pointers), *numbers, *words]
                kinds = self.kinds(height)
                for kind in kinds:
                    with self.where(f, few if len(kinds) > 1 else None, kind):
                        f.run(f"@{ENTRY}.{kind}{height}", *arguments)

            mk.for_equal_tiles(f, f.size(shape.queries), self.rows, tile, first, last)

    def seen(self, f: KernelFunction, bias: str, row: str, rows: str | int, before: str, count: str) -> str:
        """Of `count` keys from `before` on those that rows from `row` on may see."""
        step = f.size(self.shape.row_steps[BIAS])
        words = [rows, step, before, count, f.size(self.shape.keys)]
        if str(step) == "0":  # all rows have the same mask
            words[0] = 1
        at = f.offset(bias, f.mul(row, step))
        return f.call("i64", f"@{ENTRY}.seen", f"ptr {at}", *(f"i64 {word}" for word in words))

    def kinds(self, height: int) -> tuple[str, ...]:
        """What runs tiles of that height: "few" reads the keys where they are, "rows" from panels."""
        if self.few or (self.few is None and height <= FEW):
            return ("few",) if self.few else ("few", "rows")
        return ("rows",)

    def where(self, f: Function, few: str | None, kind: str) -> AbstractContextManager[None]:
        """What follows runs where this kind does; `few` is the run's word where only it can tell."""
        if few is None:
            return nullcontext()
        return f.when(few if kind == "few" else f.invert(few))

    def ends(self, f: Function, block: str, before: str, keys: str) -> tuple[str, str]:
        """Whether a block of keys is the first, and the last, as numbers."""
        if self.one_block:
            return "1", "1"
        begin = f.cast("zext", f.compare("eq", block, 0), "i64")
        return begin, f.cast("zext", f.compare("sge", f.add(before, self.block), keys), "i64")

    def pack_keys(self, f: KernelFunction, keys: str, wide: str, panels: str, count: str) -> None:
        """K' of a block of keys as panels; `wide` is where they are widened."""
        shape = self.shape
        row, inner = f.size(shape.row_steps[K]), f.size(shape.inner_steps[K])
        if shape.stored != FLOAT:
            v = Vectors(f, FLOAT, self.lanes)
            with f.loop(0, count) as loop:
                here, to = (
                    f.offset(p, f.mul(loop.index, step)) for p, step in ((keys, row), (wide, self.key_row))
                )
                for d in range(0, shape.depth, self.lanes):
                    found = self.load(f, f.offset(here, d * shape.item), shape.depth - d)
                    f.store(v.type, found, f.offset(to, d * SIZE), SIZE)
            keys, row, inner = wide, str(self.key_row), str(SIZE)
        with f.loop(0, count, self.width) as loop:
            source = f.offset(keys, f.mul(loop.index, row))
            target = f.offset(panels, f.mul(loop.index, shape.depth * SIZE))
            left = f.sub(count, loop.index)
            pack_panel(f, FLOAT, self.lanes, VECTORS, source, target, shape.depth, inner, row, left)

    def copy_values(self, f: KernelFunction, values: str, target: str, count: str) -> None:
        """A block of values, the columns of a chunk behind those of the one before."""
        v, extent, step = Vectors(f, FLOAT, self.lanes), self.shape.extent, f.size(self.shape.row_steps[V])
        with f.loop(0, count) as loop:
            row = f.offset(values, f.mul(loop.index, step))
            for chunk, vectors in self.chunks(self.rows):
                width = vectors * self.lanes * SIZE
                place = f.offset(f.offset(target, chunk * self.block * SIZE), f.mul(loop.index, width))
                for first in range(chunk, min(extent, chunk + vectors * self.lanes), self.lanes):
                    found = self.load(f, f.offset(row, first * self.shape.item), extent - first)
                    f.store(v.type, found, f.offset(place, (first - chunk) * SIZE), SIZE)

    # A tile of rows ------------------------------------------------------------------------------

    def emit_tile(self, text: Text, name: str, height: int) -> None:
        """{name}{height}: weights of some query rows for a block of keys, and their share of the
        sum; "rows" reads the keys from panels, "few" where they are."""
        names = ["%q", "%keys", "%panels", "%weights", "%factors", "%v", "%values", "%out", "%state"]
        names += ["%bias"] if self.shape.biased else []
        numbers = ["%count", "%begin", "%end", *self.words.names]
        parameters = [f"ptr {n}" for n in names] + [f"i64 {n}" for n in numbers]
        with text.function(f"{ENTRY}.{name}{height}", parameters, attributes="nounwind noinline") as f:
            if name == "few":
                self.few_scores(f, height)
            else:
                self.scores(f, height)
            with f.loop(0, height) as loop:
                pointers = [
                    f.offset("%weights", f.mul(loop.index, self.weights_row)),
                    f.offset("%factors", f.mul(loop.index, 2 * SIZE)),
                    f.offset("%state", f.mul(loop.index, 2 * SIZE)),
                ]
                if self.shape.biased:
                    step = self.words.of(self.shape.row_steps[BIAS])
                    pointers.append(f.offset("%bias", f.mul(loop.index, step)))
                arguments = [f"ptr {p}" for p in pointers]
                arguments += [f"i64 {n}" for n in ("%count", "%begin", "%end")]
                functions = self.softmaxes()
                for function, apart in functions.items():
                    with nullcontext() if len(functions) == 1 else f.when(self.steps_by(f, apart)):
                        f.run(f"@{function}", *arguments)
            self.values(f, height, self.shape.copied and name == "rows")
            f.statement("ret void")

    def steps_by(self, f: Function, apart: int | None) -> str:
        """Whether the biases of two keys are so far apart."""
        return f.compare("eq", self.words.of(self.shape.inner_steps[BIAS]), apart or 0)

    def scores(self, f: Function, height: int) -> None:
        """weights[r, key] = sum over d of q[r, d] * panels[d, key]"""
        tile, shape = self.tile(height, VECTORS), self.shape
        step = self.words.of(shape.row_steps[Q])
        with f.loop(0, self.count, self.width) as loop:
            panel = f.offset("%panels", f.mul(loop.index, shape.depth * SIZE))
            place = f.offset("%weights", f.mul(loop.index, SIZE))
            rows = mk.strided_rows(f, "%q", step, height, self.words.of(shape.inner_steps[Q]))
            chains = mk.chains_for(self.target, height, VECTORS)
            sums = mk.multiply_add(f, tile, tile.zeros(), rows, Panel(panel), shape.depth, chains=chains)
            mk.store_tile(
                f, tile, sums, lambda r, j: f.offset(place, r * self.weights_row + j * self.lanes * SIZE)
            )

    def few_scores(self, f: Function, height: int) -> None:
        """weights[r, key] = q[r] . K[key], `lanes` keys at a time; in the last ones the last key
        stands for those beyond it."""
        lanes, count = self.lanes, self.count
        whole = f.round_down(count, lanes)
        last = f.sub(count, 1)
        with f.loop(0, whole, lanes) as loop:
            self.dots(f, height, loop.index, lambda lane: f.add(loop.index, lane))
        with f.loop(whole, count, lanes) as loop:
            self.dots(f, height, loop.index, lambda lane: f.minimum(f.add(loop.index, lane), last))

    def dots(self, f: Function, height: int, index: str, key: Callable[[int], str]) -> None:
        """The weights of `lanes` keys; the key of lane i is key(i)."""
        v, lanes = Vectors(f, FLOAT, self.lanes), self.lanes
        step, depth = self.words.of(self.shape.row_steps[K]), self.shape.depth
        products: list[list[str]] = [[] for _ in range(height)]
        for lane in range(lanes):
            row = f.offset("%keys", f.mul(key(lane), step))
            sums = [v.constant(0)] * height
            for d in range(0, depth, lanes):
                place = f.offset(row, d * self.shape.item)
                mk.prefetch_line(f, f.offset(place, f.mul(step, AHEAD)))
                k = self.load(f, place, depth - d)
                for r in range(height):
                    at = f.offset("%q", f.mul(self.words.of(self.shape.row_steps[Q]), r))
                    q = load_first(f, FLOAT, lanes, f.offset(at, d * SIZE), depth - d)
                    sums[r] = v.fma(q, k, sums[r])
            for r in range(height):
                products[r].append(sums[r])
        for r in range(height):
            place = f.offset(f.element("%weights", index, SIZE), r * self.weights_row)
            f.store(v.type, row_sums(v, products[r]), place, SIZE)

    def chunk(self, height: int) -> int:
        """Vectors of the output that the rows of a tile take at once."""
        vectors = VECTORS
        while vectors < 8 and mk.most_rows(self.target, 2 * vectors) >= height:
            vectors *= 2
        return vectors

    def chunks(self, height: int) -> Iterator[tuple[int, int]]:
        """(first column, vectors) of each chunk. A vector that would be left for the last one joins the chunk
        before it where there are registers for it."""
        first, left, most = 0, -(-self.shape.extent // self.lanes), self.chunk(height)
        while left > 0:
            joined = left == most + 1 and mk.most_rows(self.target, left) >= height
            vectors = left if joined else min(most, left)
            yield first, vectors
            first, left = first + vectors * self.lanes, left - vectors

    def values(self, f: Function, height: int, copied: bool) -> None:
        """out = (out * correction + weights V) * normaliser, a chunk of columns at a time."""
        extent, row_step = self.shape.extent, self.words.of(self.shape.row_steps[V])
        for first, vectors in self.chunks(self.rows if copied else height):
            values = f.offset("%v", first * self.shape.item)
            if copied:
                values, row_step = f.offset("%values", first * self.block * SIZE), vectors * self.lanes * SIZE
            tile = self.tile(height, vectors, FLOAT if copied else self.shape.stored)
            columns = min(extent - first, tile.columns)
            rows = mk.strided_rows(f, "%weights", self.weights_row, height, SIZE)
            out_step = self.words.of(self.shape.row_steps[OUT])

            def place(r: int, j: int, first: int = first, step: int | str = out_step) -> str:
                return f.offset(f.offset("%out", f.mul(step, r)), (first + j * self.lanes) * SIZE)

            start = tile.zeros() if self.one_block else self.corrected(f, tile, place, columns)
            ahead = f.mul(row_step, AHEAD) if height <= FEW else None
            sums = mk.multiply_add(
                f,
                tile,
                start,
                rows,
                Panel(values, row_step, columns, ahead),
                self.count,
                chains=mk.chains_for(self.target, height, self.chunk(height)),
            )
            v = Vectors(f, FLOAT, self.lanes)
            scaled = []
            for r in range(height):
                factor = v.broadcast(f.load("float", f.offset("%factors", 2 * SIZE * r), SIZE))
                scaled += [v.mul(x, factor) for x in sums[r * vectors : (r + 1) * vectors]]
            mk.store_tile(f, tile, scaled, place, columns)

    def corrected(
        self, f: Function, tile: mk.Tile, place: Callable[[int, int], str], columns: int
    ) -> list[str]:
        """The sums so far, for the row's new maximum; zeros in the first block."""
        v = Vectors(f, FLOAT, self.lanes)
        result: list[str] = []
        begin = f.compare("ne", "%begin", 0)
        for r, j in ((r, j) for r in range(tile.rows) for j in range(tile.vectors)):
            old = load_first(f, FLOAT, self.lanes, place(r, j), mk.lanes_left(f, tile, columns, j))
            factor = v.broadcast(f.load("float", f.offset("%factors", 2 * SIZE * r + SIZE), SIZE))
            result.append(f.select(begin, v.type, v.constant(0), v.mul(old, factor)))
        return result
