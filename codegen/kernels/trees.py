"""TreeEnsemble: several rows, or of one row several trees, go down step by step, none waiting for another.

    rows    for each tree: LANES * GROUPS rows at a time, whose sums lie in memory column by column
    a row   for each target: LANES * GROUPS of its trees at a time; what is left of a part's rows goes so
A step of a vector is three gathers: word and threshold of its entries (`tree_tables.py`), and a feature of
its rows. Where a target does not gather, the lanes are one and more groups take their turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import TreeEnsemble
from ...target import Ability, Target
from .. import costs
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, single
from ..nests.nest import ERROR_BYTES
from ..text.emitter import Reg, like, scalar_type, splat, type_of, vector_constant, vector_type
from ..text.memory import gather
from ..tiles.tree_tables import TreeTables, tree_tables

MOST_ROWS = 256  # of a part
UNROLLED = 8  # columns that are added without a loop

#: The operand in whose place each table lies.
PLACES = ("words", "thresholds", "values", "depths", "starts", "roots", "targets", "weights")


@dataclass(frozen=True)
class Tiling:
    """lanes of a vector, groups of them that walk at a time, rows of a part."""

    lanes: int
    groups: int
    rows: int

    @property
    def together(self) -> int:
        return self.lanes * self.groups


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    if not isinstance(node.op, TreeEnsemble) or any(v.constant is None for v in node.inputs[1:]):
        return
    if Ability.GATHER in target.abilities:
        lanes = target.lanes(node.inputs[0].dtype)
        yield _offer(node, target, lanes, 2, costs.WALKED_VECTOR / lanes)
    yield _offer(node, target, 1, 8, costs.WALKED)


def _offer(node: Node[TreeEnsemble], target: Target, lanes: int, groups: int, step: float) -> Offer[Tiling]:
    x, trees = node.inputs[0].tensor, dims.typical(node.inputs[6].tensor.count)
    row = max(1, dims.typical(x.shape[1])) * dtypes.itemsize(x.dtype)
    fitting = target.facts.level1_bytes // 2 // row
    together = lanes * groups
    rows = max(together, min(MOST_ROWS, fitting) // together * together)
    count = dims.typical(x.shape[0])
    idle = max(1.0, together / trees) if count < lanes else 1.0  # trees of nothing, for a row alone
    steps = count * trees * max(1, node.op.depth) * idle
    tables = sum(v.data.nbytes for v in node.inputs[1:])
    cost = costs.overhead(steps * step) + costs.stored(target, tables) + costs.step(target)
    return Offer(cost, Tiling(lanes, groups, rows), packed=tuple(range(1, 9)))


def pack(node: Node[TreeEnsemble], choice: Choice[Tiling], operand: int) -> Constant | None:
    table = getattr(tree_tables(node, choice.tiling.together), PLACES[operand - 1])
    return Constant.of(np.ascontiguousarray(table))


def emit(node: Node[TreeEnsemble], choice: Choice[Tiling], target: Target) -> Code:
    k, tiling = KernelText(target), choice.tiling
    x, columns = node.inputs[0].tensor, node.op.columns
    count, rows = x.shape[0], tiling.rows
    with k.entry() as f:
        walk = Walk(f, node, tiling)
        with f.loop("%first", "%last") as part:
            first = f.mul(part.index, rows)
            walk.part(first, f.minimum(rows, f.sub(f.size(count), first)))
    size = dtypes.itemsize(x.dtype)
    sums = max(columns * rows if columns > 1 else 0, columns * tiling.lanes) * size
    parts = dims.ceil_divide(count, rows)
    return single(k.step(parts, costs.work(choice.cost, count), ERROR_BYTES + sums))


class Walk:
    """The code of a part. `element` is the type of features, thresholds and weights."""

    def __init__(self, f: KernelFunction, node: Node[TreeEnsemble], tiling: Tiling):
        self.f, self.node, self.tiling = f, node, tiling
        self.tables: TreeTables = tree_tables(node, tiling.together)
        self.dtype = node.inputs[0].dtype
        self.element, self.size = scalar_type(self.dtype), dtypes.itemsize(self.dtype)
        self.vector = vector_type(self.element, tiling.lanes)
        self.places = vector_type("i32", tiling.lanes)
        self.width = f.size(node.inputs[0].shape[1])
        self.each = node.inputs[8].data.shape[1]  # columns of a leaf
        self.sums = f.offset("%scratch", ERROR_BYTES)
        neutral = {"sum": 0.0, "min": np.inf, "max": -np.inf}[node.op.aggregate]
        self.neutral = splat(neutral, self.dtype, tiling.lanes)

    def table(self, name: str) -> Reg:
        return self.f.input(1 + PLACES.index(name))

    def entry(self, name: str, index: str) -> Reg:
        """A number of a table of int32."""
        return self.f.load("i32", self.f.element(self.table(name), index, 4), 4)

    # Steps -----------------------------------------------------------------------------------------

    def step(self, places: Reg, rows: str, offsets: str | None) -> Reg:
        """The places after one step; of each lane `offsets` (none: 0) says how many elements behind `rows`
        its row begins."""
        f, t, lanes = self.f, self.tables, self.tiling.lanes
        word_type = f"i{8 * t.words.itemsize}"
        words = gather(f, word_type, self.table("words"), places)
        thresholds = gather(f, self.element, self.table("thresholds"), places)

        def masked(bits: int) -> Reg:
            return f.binary("and", words, splat(bits, f"int{8 * t.words.itemsize}", lanes))

        feature = masked((1 << t.bits) - 1)
        if offsets is not None:
            kind = type_of("add", offsets)
            if kind != feature.type:
                feature = f.cast("trunc" if word_type == "i64" else "zext", feature, kind)
            feature = f.binary("add", feature, offsets)
        values = gather(f, self.element, rows, feature)
        mask = vector_type("i1", lanes)
        right = f.value(f"fcmp ugt {self.vector} {values}, {thresholds}", mask)
        if t.mixed:
            nan = f.value(f"fcmp uno {self.vector} {values}, {values}", mask)
            goes_left = f.compare("ne", masked(1 << t.bits), "0" if lanes == 1 else "zeroinitializer")
            right = f.binary("and", right, f.invert(f.binary("and", nan, goes_left)))
        child = f.binary("ashr", words, splat(t.shift, f"int{8 * t.words.itemsize}", lanes))
        child = f.cast("trunc", child, self.places)
        return f.binary("sub", child, f.cast("sext", right, self.places))

    def walk(self, places: Sequence[str], rows: Sequence[str], offsets: str | None, steps: str) -> list[Reg]:
        """Where all groups are after so many steps, or once none moves any more."""
        f = self.f
        before, body, after = f.block, f.fresh_label("walk"), f.fresh_label("there")
        f.branch_if(f.compare("sgt", steps, 0), body, after)
        f.label(body)
        at, left = [f.name(self.places) for _ in places], f.name("i32")
        position = len(f.lines)
        f.lines.extend([""] * (len(places) + 1))
        following = [self.step(p, r, offsets) for p, r in zip(at, rows, strict=True)]
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

        def one(c: str | int) -> None:
            weights = gather(f, self.element, f.element(self.table("weights"), c, self.size), values)
            self._add(weights, f.element(column, f.mul(c, stride), self.size))

        if self.each <= UNROLLED:
            for c in range(self.each):
                one(c)
        else:
            with f.loop(0, self.each) as loop:
                one(loop.index)

    def _add(self, values: str, place: str) -> None:
        f = self.f
        before = f.load(self.vector, place, self.size)
        f.store(self.vector, self.combined(before, values, self.vector), place, self.size)

    def clear(self, place: str, count: str | int) -> None:
        """So many elements from there on become the aggregate of nothing."""
        f = self.f
        with f.loop(0, count, self.tiling.lanes) as loop:
            f.store(self.vector, self.neutral, f.element(place, loop.index, self.size), self.size)

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
        with f.loop(whole, count) as row:
            self.one(
                f.element(x, f.mul(row.index, self.width), self.size),
                f.element(out, f.mul(row.index, columns), self.size),
            )

    def many(self, x: str, out: str, count: str) -> None:
        """Rows as lanes; count is a multiple of them."""
        f, tiling, columns = self.f, self.tiling, self.node.op.columns
        sums, stride = (self.sums, tiling.rows) if columns > 1 else (out, 0)
        self.clear(sums, columns * tiling.rows if columns > 1 else count)
        offsets = self._offsets()
        with f.loop(0, self.tables.targets.size) as tree:
            root = f.broadcast("i32", self.entry("roots", tree.index), tiling.lanes)
            steps = self.entry("depths", tree.index)
            column = sums
            if self.each == 1 and columns > 1:
                target = f.cast("zext", self.entry("targets", tree.index), "i64")
                column = f.element(sums, f.mul(target, stride), self.size)
            together = f.round_down(count, tiling.together)
            for start, stop, groups in ((0, together, tiling.groups), (together, count, 1)):
                with f.loop(start, stop, groups * tiling.lanes) as block:
                    rows = [f.add(block.index, g * tiling.lanes) for g in range(groups)]
                    begins = [f.element(x, f.mul(row, self.width), self.size) for row in rows]
                    ends = self.walk([root] * groups, begins, offsets, steps)
                    for place, end in zip(rows, ends, strict=True):
                        self.add(end, f.element(column, place, self.size), stride)
        if columns > 1:
            with f.loop(0, count) as row, f.loop(0, columns) as c:
                value = f.load(
                    self.element,
                    f.element(sums, f.add(f.mul(c.index, stride), row.index), self.size),
                    self.size,
                )
                place = f.add(f.mul(row.index, columns), c.index)
                f.store(self.element, value, f.element(out, place, self.size), self.size)

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
        f, tiling, lanes = self.f, self.tiling, self.tiling.lanes
        trees = self.tables.targets.size
        with f.loop(0, self.tables.starts.size - 1) as target:
            first = f.cast("zext", self.entry("starts", target.index), "i64")
            last = f.cast("zext", self.entry("starts", f.add(target.index, 1)), "i64")
            self.clear(self.sums, self.each * lanes)
            with f.loop(first, last, tiling.together) as tree:
                start = f.add(tree.index, trees)
                group = f.binary("udiv", tree.index, tiling.together)
                places = [
                    f.load(self.places, f.element(self.table("roots"), f.add(start, g * lanes), 4), 4)
                    for g in range(tiling.groups)
                ]
                steps = self.entry("depths", f.add(group, trees))
                for end in self.walk(places, [x] * tiling.groups, None, steps):
                    self.add(end, self.sums, lanes)
            with f.loop(0, self.each) as c:
                column = f.element(self.sums, f.mul(c.index, lanes), self.size)
                total = self._folded(f.load(self.vector, column, self.size))
                place = f.add(target.index, c.index)
                f.store(self.element, total, f.element(out, place, self.size), self.size)

    def _folded(self, vector: Reg) -> str:
        """All lanes combined."""
        f, lanes = self.f, self.tiling.lanes
        while lanes > 2:
            lanes //= 2
            low, high = (f.shuffle(vector, vector, range(k * lanes, (k + 1) * lanes)) for k in range(2))
            vector = self.combined(low, high, low.type)
        if lanes == 1:
            return vector
        return self.combined(f.extract(vector, 0), f.extract(vector, 1), self.element)
