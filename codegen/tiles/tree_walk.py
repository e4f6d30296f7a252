"""Trees that walk: vectors of rows, or of a single row's trees, go down step by step (`kernels/trees.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...ir import dtypes
from ...ir.graph import Node
from ...ir.ops import TreeEnsemble
from ...ir.remembered import remembered
from ...records import dataclass
from ...target import LINE, PERMUTE, Ability, Target
from ..kernel import KernelFunction
from ..text.emitter import (
    Reg,
    like,
    mangled,
    scalar_type,
    shape_of,
    splat,
    type_of,
    vector_constant,
    vector_type,
)
from ..text.memory import gather, load_first
from .tree_bits import COMPARED_TOGETHER, lane_bits, tree_bits
from .tree_tables import BEHIND, TreeTables, tree_tables

MOST_ROWS = 256  # of a part
NEUTRAL = {"sum": 0.0, "min": np.inf, "max": -np.inf}  # what trees of nothing give
UNROLLED = 8  # columns that are added without a loop


@dataclass(frozen=True)
class Tiling:
    """lanes of a vector that walks, groups of them at a time, levels whose nodes a single row does not
    gather, rows of a part, the lanes of a vector of rows that are compared (None: they walk), and whether the
    trees of a single row are."""

    lanes: int
    groups: int
    levels: int
    rows: int
    compared: int | None = None
    single: bool = False

    @property
    def together(self) -> int:
        return self.lanes * self.groups


def feature_stride(dtype: str, target: Target) -> int:
    """Elements from a feature of rows to the next, which do not lie in the same sets of the cache."""
    return MOST_ROWS + target.lanes(dtype)


def fits_registers(node: Node[TreeEnsemble], target: Target, lanes: int) -> bool:
    """Whether two registers hold all features that trees look at, and lanes of them can be picked."""
    fits = node.inputs[0].dtype == "float32" and lanes > 1 and 0 < node.op.width <= 2 * lanes
    return fits and Ability.PERMUTE in target.abilities


@remembered(4)
def tables_of(node: Node[TreeEnsemble], tiling: Tiling) -> tuple[dict[str, int], np.ndarray]:
    """(where each table begins, all tables) as bytes."""
    walk = tree_tables(node, tiling.together, tiling.lanes, tiling.levels)
    names = ["values", "depths", "targets", "weights"]
    if not tiling.single:
        names += ["starts", "first_words", "first_thresholds"]
    found = {name: getattr(walk, name) for name in names}
    if walk.words.itemsize == walk.thresholds.itemsize == 4:  # read at once
        found["pairs"] = np.stack([walk.words, walk.thresholds.view(np.int32)], 1)
    else:
        found |= {"words": walk.words, "thresholds": walk.thresholds}
    bits = tree_bits(node) if tiling.compared or tiling.single else None
    if bits is not None:
        nothing = np.full((1, bits.weights.shape[1]), NEUTRAL[node.op.aggregate], bits.weights.dtype)
        found["bit_weights"] = np.concatenate([bits.weights, nothing])
    lanes = lane_bits(node, tiling.lanes, walk.bits) if tiling.single else None
    if lanes is not None:
        fields = ("starts", "firsts", "words", "thresholds", "masks", "leaves")
        found |= {f"lane_{name}": getattr(lanes, name) for name in fields}
    if bits is not None and tiling.compared:
        row = (MOST_ROWS + tiling.compared) * bits.thresholds.dtype.itemsize
        found["columns"] = (bits.features.astype(np.int64) * row).astype(np.int32)
        found |= {f"bit_{name}": getattr(bits, name) for name in ("thresholds", "masks", "lists", "firsts")}
        found["bit_leaves"] = bits.leaves
    offsets, parts, at = {}, [], 0
    for name, table in found.items():
        data = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        offsets[name] = at
        parts += [data, np.zeros(-len(data) % LINE, np.uint8)]
        at += len(data) + len(parts[-1])
    return offsets, np.concatenate(parts)


class Walk:
    """The code of a part, whose sums lie at `sums_at` in scratch memory. `element` is the type of features,
    thresholds and weights."""

    def __init__(self, f: KernelFunction, node: Node[TreeEnsemble], tiling: Tiling, sums_at: int):
        self.f, self.node, self.tiling = f, node, tiling
        self.tables: TreeTables = tree_tables(node, tiling.together, tiling.lanes, tiling.levels)
        self.dtype = node.inputs[0].dtype
        self.element, self.size = scalar_type(self.dtype), dtypes.itemsize(self.dtype)
        self.vector = vector_type(self.element, tiling.lanes)
        self.places = vector_type("i32", tiling.lanes)
        self.width = f.size(node.inputs[0].shape[1])
        self.each = node.inputs[8].data.shape[1]  # columns of a leaf
        self.sums = f.offset("%scratch", sums_at)
        self.stride = feature_stride(self.dtype, f.target) if tiling.compared else tiling.rows
        summed = node.op.aggregate == "sum"
        self.total = "float64" if summed else self.dtype
        self.total_type, self.total_size = scalar_type(self.total), dtypes.itemsize(self.total)
        totals = node.op.columns * self.stride * self.total_size
        self.rests = totals if summed and self.total == self.dtype else 0  # bytes from a total to its rest
        self.sums_bytes = totals + self.rests
        self.word_type = f"i{8 * self.tables.words.itemsize}"
        self.paired = "pairs" in tables_of(node, tiling)[0]
        self.row: tuple[str, str] | None = None  # the features of the row at work, if registers hold them
        self.nothing = NEUTRAL[node.op.aggregate]

    def table(self, name: str) -> str:
        at = tables_of(self.node, self.tiling)[0][name]
        return self.f.hoisted(f"getelementptr i8, ptr {self.f.input(1)}, i64 {at}", "ptr")

    def entry(self, name: str, index: str) -> Reg:
        """A number of a table of int32."""
        return self.f.load("i32", self.f.element(self.table(name), index, 4), 4)

    # Steps -----------------------------------------------------------------------------------------

    def entries(self, places: Reg) -> tuple[Reg, Reg]:
        """The words and thresholds there."""
        if self.paired:
            return self._parted(gather(self.f, "i64", self.table("pairs"), places))
        words = gather(self.f, self.word_type, self.table("words"), places)
        return words, gather(self.f, self.element, self.table("thresholds"), places)

    def _parted(self, pairs: Reg) -> tuple[Reg, Reg]:
        """The lower and the upper halves."""
        f, lanes = self.f, self.tiling.lanes
        halves = f.cast("bitcast", pairs, f"<{2 * lanes} x i32>")
        if lanes == 1:
            words, upper = (f.extract(halves, k) for k in range(2))
        else:
            words, upper = (f.shuffle(halves, halves, range(k, 2 * lanes, 2)) for k in range(2))
        return words, f.cast("bitcast", upper, self.vector)

    def step(self, words: Reg, thresholds: Reg, rows: str, offsets: str | None) -> Reg:
        """The places after one step from entries; of each lane `offsets` (none: 0) says how many elements
        behind `rows` its row begins."""
        f, t, lanes = self.f, self.tables, self.tiling.lanes
        right = self.goes_right(words, thresholds, rows, offsets)
        shift = splat(t.shift, f"int{8 * t.words.itemsize}", lanes)
        child = f.cast("trunc", f.binary("ashr", words, shift), self.places)
        return f.binary("sub", child, f.cast("sext", right, self.places))

    def goes_right(self, words: Reg, thresholds: Reg, rows: str, offsets: str | None) -> Reg:
        """The lanes that a step from entries takes right."""
        f, t, lanes = self.f, self.tables, self.tiling.lanes
        dtype = f"int{8 * t.words.itemsize}"
        values = self._features(words, rows, offsets)
        mask = vector_type("i1", lanes)
        right = f.value(f"fcmp ugt {self.vector} {values}, {thresholds}", mask)
        if t.mixed:
            nan = f.value(f"fcmp uno {self.vector} {values}, {values}", mask)
            flags = f.binary("and", words, splat(1 << t.bits, dtype, lanes))
            goes_left = f.compare("ne", flags, "0" if lanes == 1 else "zeroinitializer")
            right = f.binary("and", right, f.invert(f.binary("and", nan, goes_left)))
        return right

    def _features(self, words: Reg, rows: str, offsets: str | None) -> Reg:
        """What the words' features are."""
        f, t, lanes = self.f, self.tables, self.tiling.lanes
        if offsets is None and self.row is not None:
            function = f.text.declare(
                PERMUTE["float32"], self.vector, [self.vector, self.places, self.vector]
            )
            low, high = (f"{self.vector} {part}" for part in self.row)
            return f.call(self.vector, function, low, f.cast("trunc", words, self.places).typed, high)
        feature = f.binary("and", words, splat((1 << t.bits) - 1, f"int{8 * t.words.itemsize}", lanes))
        if offsets is not None:
            kind = type_of("add", offsets)
            if kind != feature.type:
                feature = f.cast("trunc" if self.word_type == "i64" else "zext", feature, kind)
            feature = f.binary("add", feature, offsets)
        return gather(f, self.element, rows, feature)

    def walk(self, places: Sequence[str], rows: Sequence[str], offsets: str | None, steps: str) -> list[Reg]:
        """Where all groups are after so many steps, or once none moves any more."""
        f = self.f
        before, body, after = f.block, f.fresh_label("walk"), f.fresh_label("there")
        f.branch_if(f.compare("sgt", steps, 0), body, after)
        f.label(body)
        at, left = [f.name(self.places) for _ in places], f.name("i32")
        position = len(f.lines)
        f.lines.extend([""] * (len(places) + 1))
        following = [self.step(*self.entries(p), r, offsets) for p, r in zip(at, rows, strict=True)]
        fewer = f.binary("sub", left, 1, "i32")
        moved = [f.compare("ne", a, b) for a, b in zip(at, following, strict=True)]
        some = moved[0]
        for other in moved[1:]:
            some = f.binary("or", some, other)
        if self.tiling.lanes > 1:
            word = f"i{self.tiling.lanes}"
            some = f.compare("ne", f.cast("bitcast", some, word), 0)
        going, latch = f.binary("and", some, f.compare("sgt", fewer, 0)), f.block
        phis = [(left, "i32", steps, fewer)]
        phis += [(a, self.places, p, n) for a, p, n in zip(at, places, following, strict=True)]
        for k, (name, type_, start, value) in enumerate(phis):
            f.lines[position + k] = f"  {name} = phi {type_} [{start}, %{before}], [{value}, %{latch}]"
        f.branch_if(going, body, after)
        f.label(after)
        return [f.phi(self.places, (p, before), (n, latch)) for p, n in zip(places, following, strict=True)]

    def combined(self, x: str, y: str, type_: str) -> Reg:
        """x + y, or the less or greater."""
        f, aggregate = self.f, self.node.op.aggregate
        if aggregate == "sum":
            return f.binary("fadd", x, y, type_)
        compare = "olt" if aggregate == "min" else "ogt"
        better = f.value(f"fcmp {compare} {type_} {y}, {x}", like(type_, "i1"))
        return f.select(better, type_, y, x)

    def add(self, places: Reg, column: str, stride: str | int) -> None:
        """Adds the weights of the leaves at places to the vectors at `column` and every `stride` elements
        behind."""
        f = self.f
        values = gather(f, self.element if self.each == 1 else "i32", self.table("values"), places)
        if self.each == 1:
            self._add(values, column)
            return

        self._add_weights(values, "weights", column, stride)

    def _add_weights(self, begins: Reg, table: str, column: str, stride: str | int) -> None:
        """Adds the weights that begin there in a table."""
        f = self.f

        def one(c: str | int) -> None:
            weights = gather(f, self.element, f.element(self.table(table), c, self.size), begins)
            self._add(weights, f.element(column, f.mul(c, stride), self.total_size))

        self.for_columns(one)

    def for_columns(self, one: Callable[[str | int], None]) -> None:
        """one(c) for each column of a leaf, few without a loop."""
        if self.each <= UNROLLED:
            for c in range(self.each):
                one(c)
        else:
            with self.f.loop(0, self.each) as loop:
                one(loop.index)

    def column(self, tree: str) -> str:
        """Where the first of the columns to which a tree adds begins, in sums that lie column by column."""
        if self.each > 1 or self.node.op.columns == 1:
            return self.sums
        target = self.f.cast("zext", self.entry("targets", tree), "i64")
        return self.f.element(self.sums, self.f.mul(target, self.stride), self.total_size)

    def lowest(self, bits: str, type_: str) -> Reg:
        """The number of the lowest bit of each word of a vector."""
        function = self.f.text.declare(f"llvm.cttz.{mangled(type_)}", type_, [type_, "i1"])
        return self.f.call(type_, function, f"{type_} {bits}", "i1 false")

    def _add(self, values: Reg, place: str) -> None:
        """Adds to the totals there."""
        f, size = self.f, self.total_size
        total, rest = self._totals(shape_of(values.type)[1], place)
        total, rest = self._added(total, rest, f.cast("fpext", values, total.type))
        f.store(total.type, total, place, size)
        if rest is not None:
            f.store(rest.type, rest, f.offset(place, self.rests), size)

    def _added(self, total: Reg, rest: Reg | None, more: Reg) -> tuple[Reg, Reg | None]:
        """A total and its rest with more in it."""
        f, following = self.f, self.combined(total, more, total.type)
        if rest is None:
            return following, None
        of_more = f.binary("fsub", following, total)  # what is rounded off, exactly: Knuth's sum of two
        of_total = f.binary("fsub", following, of_more)
        off = f.binary("fadd", f.binary("fsub", total, of_total), f.binary("fsub", more, of_more))
        return following, f.binary("fadd", rest, off)

    def _totals(self, lanes: int, place: str) -> tuple[Reg, Reg | None]:
        """The totals there and their rests."""
        f, type_, size = self.f, vector_type(self.total_type, lanes), self.total_size
        total = f.load(type_, place, size)
        return total, f.load(type_, f.offset(place, self.rests), size) if self.rests else None

    def _finished(self, total: Reg, rest: Reg | None) -> Reg:
        """The element that a total comes to; one that is not finite has no rest."""
        f = self.f
        if rest is not None:
            both = f.binary("fadd", total, rest)
            unknown = f.value(f"fcmp uno {both.typed}, {both}", "i1")
            total = f.select(unknown, total.type, total, both)
        return f.cast("fptrunc", total, self.element)

    def clear(self, count: str | int, lanes: int) -> None:
        """So many totals become the aggregate of nothing."""
        f, size, type_ = self.f, self.total_size, vector_type(self.total_type, lanes)
        with f.loop(0, count, lanes) as loop:
            place = f.element(self.sums, loop.index, size)
            f.store(type_, splat(self.nothing, self.total, lanes), place, size)
            if self.rests:
                f.store(type_, "zeroinitializer", f.offset(place, self.rests), size)

    # Rows ------------------------------------------------------------------------------------------

    def part(self, first: str, count: str) -> None:
        """Rows first .. first + count."""
        f, tiling = self.f, self.tiling
        columns = self.node.op.columns
        x = f.element(f.input(0), f.mul(first, self.width), self.size)
        out = f.element(f.output(), f.mul(first, columns), self.size)
        whole = f.round_down(count, tiling.lanes)
        if tiling.lanes > 1:
            with f.when(f.compare("sgt", whole, 0)):
                self.many(x, out, whole)
        else:  # few rows have no turns to take
            whole = f.select(f.compare("sge", count, tiling.groups), "i64", count, "0")
            with f.when(f.compare("sgt", whole, 0)):
                self.many(x, out, whole)
        self.others(x, out, whole, count)

    def others(self, x: str, out: str, start: str, stop: str) -> None:
        """Rows one by one."""
        f = self.f
        with f.loop(start, stop) as row:
            self.one(
                f.element(x, f.mul(row.index, self.width), self.size),
                f.element(out, f.mul(row.index, self.node.op.columns), self.size),
            )

    def many(self, x: str, out: str, count: str) -> None:
        """Rows as lanes; count is a multiple of them."""
        f, tiling, columns = self.f, self.tiling, self.node.op.columns
        self.clear(columns * self.stride if columns > 1 else count, tiling.lanes)
        offsets = self._offsets()
        with f.loop(0, self.tables.targets.size) as tree:
            number = f.cast("trunc", f.add(tree.index, self.tables.root), "i32", "i64")
            root = f.broadcast("i32", number, tiling.lanes)
            steps = self.entry("depths", tree.index)
            column = self.column(tree.index)
            together = f.round_down(count, tiling.together)
            for start, stop, groups in ((0, together, tiling.groups), (together, count, 1)):
                with f.loop(start, stop, groups * tiling.lanes) as block:
                    rows = [f.add(block.index, g * tiling.lanes) for g in range(groups)]
                    begins = [f.element(x, f.mul(row, self.width), self.size) for row in rows]
                    ends = self.walk([root] * groups, begins, offsets, steps)
                    for place, end in zip(rows, ends, strict=True):
                        self.add(end, f.element(column, place, self.total_size), self.stride)
        self.store(out, count)

    def store(self, out: str, count: str) -> None:
        """Totals that lie column by column become rows of results."""
        f, columns = self.f, self.node.op.columns
        with f.loop(0, count) as row, f.loop(0, columns) as c:
            at = f.element(self.sums, f.add(f.mul(c.index, self.stride), row.index), self.total_size)
            place = f.element(out, f.add(f.mul(row.index, columns), c.index), self.size)
            f.store(self.element, self._finished(*self._totals(1, at)), place, self.size)

    def _offsets(self) -> str | None:
        """Where the rows of lanes begin, in elements behind the first."""
        f, lanes = self.f, self.tiling.lanes
        if lanes == 1:
            return None
        if self.width.isdigit() and lanes * int(self.width) < 1 << 31:
            return vector_constant("i32", [k * int(self.width) for k in range(lanes)])
        return f.binary("mul", vector_constant("i64", range(lanes)), f.broadcast("i64", self.width, lanes))

    # A row -----------------------------------------------------------------------------------------

    def one(self, x: str, out: str) -> None:
        """Trees as lanes."""
        f, lanes = self.f, self.tiling.lanes
        self.row = self._in_registers(x)
        starts = "lane_starts" if self.tiling.single else "starts"
        with f.loop(0, self.tables.starts.size - 1) as target:
            first = f.cast("zext", self.entry(starts, target.index), "i64")
            last = f.cast("zext", self.entry(starts, f.add(target.index, 1)), "i64")
            self.clear(self.each * lanes, lanes)
            (self._compared_trees if self.tiling.single else self._walked_trees)(first, last, x)
            with f.loop(0, self.each) as c:
                column = f.element(self.sums, f.mul(c.index, lanes), self.total_size)
                total = self._folded(*self._totals(lanes, column))
                place = f.add(target.index, c.index)
                f.store(self.element, total, f.element(out, place, self.size), self.size)

    def _walked_trees(self, first: str, last: str, x: str) -> None:
        """Adds what trees first .. last give."""
        f, tiling, lanes = self.f, self.tiling, self.tiling.lanes
        with f.loop(first, last, tiling.together) as tree:
            group = f.binary("udiv", tree.index, tiling.together)
            steps = self.entry("depths", f.add(group, self.tables.targets.size))
            places = [self._after_first(f.add(tree.index, g * lanes), x) for g in range(tiling.groups)]
            fewer = f.binary("sub", steps, self.tables.levels)
            for end in self.walk(places, [x] * tiling.groups, None, fewer):
                self.add(end, self.sums, lanes)

    def _compared_trees(self, first: str, last: str, x: str) -> None:
        """Adds what the trees of vectors first .. last give."""
        f, lanes = self.f, self.tiling.lanes
        with f.loop(first, last) as vector:
            begin, end = (
                f.cast("zext", self.entry("lane_firsts", f.add(vector.index, k)), "i64") for k in range(2)
            )
            with f.loop(
                begin, end, COMPARED_TOGETHER, carried=[(self.places, splat(-1, "int32", lanes))]
            ) as loop:
                left = loop.carried[0]
                for k in range(COMPARED_TOGETHER):
                    left = self._cleared(left, f.mul(f.add(loop.index, k), lanes), x)
                loop.carry(left)
            leaf = self.lowest(loop.results[0], self.places)
            begins = f.load(self.places, f.element(self.table("lane_leaves"), f.mul(vector.index, lanes), 4))
            number = f.binary("add", leaf, begins)
            if self.each > 1:
                number = f.binary("mul", number, splat(self.each, "int32", lanes))
            self._add_weights(number, "bit_weights", self.sums, lanes)

    def _cleared(self, left: str, comparison: str, x: str) -> Reg:
        """The bits of leaves that are left of each tree after its comparison from there on."""
        f, lanes = self.f, self.tiling.lanes
        narrow = f.load(vector_type("i8", lanes), f.element(self.table("lane_words"), comparison, 1))
        words = f.cast("zext", narrow, vector_type(self.word_type, lanes))
        thresholds = f.load(self.vector, f.element(self.table("lane_thresholds"), comparison, self.size))
        masks = f.load(self.places, f.element(self.table("lane_masks"), comparison, self.size))
        right = self.goes_right(words, thresholds, x, None)
        return f.select(right, self.places, f.binary("and", left, masks, self.places), left)

    def _after_first(self, tree: str, x: str) -> Reg:
        """Where a row is behind the first levels of as many trees as there are lanes, from that tree on."""
        f, t, lanes = self.f, self.tables, self.tiling.lanes
        nodes = (1 << t.levels) - 1
        words = vector_type(f"i{8 * t.first_words.itemsize}", lanes)
        begin = f.mul(tree, nodes)
        before = f.cast("trunc", f.add(f.mul(tree, BEHIND << t.levels), t.below + 1), "i32", "i64")
        place = f.broadcast("i32", before, lanes)
        if lanes > 1:
            place = f.binary(
                "add", place, vector_constant("i32", [k * BEHIND << t.levels for k in range(lanes)])
            )
        rights: list[Reg] = []
        for level in range(t.levels):
            chosen = []
            for name, type_, size in (
                ("first_words", words, t.first_words.itemsize),
                ("first_thresholds", self.vector, self.size),
            ):
                start = f.element(self.table(name), begin, size)
                first = (1 << level) - 1
                of_level = [
                    f.load(type_, f.element(start, (first + k) * lanes, size)) for k in range(1 << level)
                ]
                chosen.append(self._chosen(of_level, rights))
            right = self.goes_right(
                f.cast("zext", chosen[0], vector_type(self.word_type, lanes)), chosen[1], x, None
            )
            behind = splat(BEHIND << t.levels - 1 - level, "int32", lanes)
            none = "0" if lanes == 1 else "zeroinitializer"
            place = f.binary("add", place, f.select(right, self.places, behind, none))
            rights.append(right)
        return place

    def _chosen(self, nodes: list[Reg], rights: Sequence[Reg]) -> Reg:
        """Of a level's nodes, those that these steps lead to."""
        for right in rights:
            half = len(nodes) // 2
            nodes = [
                self.f.select(right, b.type, b, a) for a, b in zip(nodes[:half], nodes[half:], strict=True)
            ]
        return nodes[0]

    def _in_registers(self, x: str) -> tuple[str, str] | None:
        """All features of a row that trees look at, where two registers hold them and lanes can be picked."""
        f, lanes, width = self.f, self.tiling.lanes, self.node.op.width
        if not fits_registers(self.node, f.target, lanes):
            return None
        low = load_first(f, self.dtype, lanes, x, min(width, lanes))
        if width <= lanes:
            return low, low
        return low, load_first(f, self.dtype, lanes, f.element(x, lanes, self.size), width - lanes)

    def _folded(self, total: Reg, rest: Reg | None) -> Reg:
        """What all lanes together come to."""
        lanes = self.tiling.lanes
        while lanes > 1:
            lanes //= 2
            low, high = self._halves(total)
            if rest is not None:
                rest = self.f.binary("fadd", *self._halves(rest))
            total, rest = self._added(low, rest, high)
        return self._finished(total, rest)

    def _halves(self, vector: Reg) -> list[Reg]:
        f, half = self.f, shape_of(vector.type)[1] // 2
        if half == 1:
            return [f.extract(vector, k) for k in range(2)]
        return [f.shuffle(vector, vector, range(k * half, (k + 1) * half)) for k in range(2)]
