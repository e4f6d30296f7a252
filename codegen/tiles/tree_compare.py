"""Trees all of whose comparisons are made for vectors of rows (`kernels/trees.py`, `tree_bits.py`)."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops import TreeEnsemble
from ..kernel import KernelFunction
from ..text.emitter import splat, vector_type
from ..text.memory import gather
from .tree_bits import TreeBits, tree_bits
from .tree_walk import Tiling, Walk


class Compare(Walk):
    """Many rows clear bits; few still walk. Features of a part's rows are brought to lie along the rows."""

    def __init__(self, f: KernelFunction, node: Node[TreeEnsemble], tiling: Tiling, sums_at: int):
        super().__init__(f, node, tiling, sums_at)
        bits = tree_bits(node)
        if bits is None or not tiling.compared:
            raise TypeError(f"{node.op} has trees of too many leaves")
        self.bits: TreeBits = bits
        self.wide = tiling.compared
        self.groups = 4
        self.lanes_of = vector_type(self.element, self.wide)
        self.word = f"i{8 * self.size}"
        self.bit_vector = vector_type(self.word, self.wide)
        self.columns = f.offset(self.sums, self.sums_bytes)

    def part(self, first: str, count: str) -> None:
        f, columns = self.f, self.node.op.columns
        x = f.element(f.input(0), f.mul(first, self.width), self.size)
        out = f.element(f.output(), f.mul(first, columns), self.size)
        worth = f.compare("sge", count, max(2, self.wide // 4))
        with f.when(worth):
            self.compare(x, out, count)
        self.others(x, out, f.select(worth, "i64", count, "0"), count)

    def compare(self, x: str, out: str, count: str) -> None:
        """All rows, and what fills their last vector."""
        f, columns = self.f, self.node.op.columns
        width = self.node.op.width
        with f.loop(0, count) as row, f.loop(0, width) as feature:
            at = f.element(x, f.add(f.mul(row.index, self.width), feature.index), self.size)
            to = f.element(self.columns, f.add(f.mul(feature.index, self.stride), row.index), self.size)
            f.store(self.element, f.load(self.element, at, self.size), to, self.size)
        self.clear(columns * self.stride, self.wide)
        whole = f.round_down(f.add(count, self.wide - 1), self.wide)
        together = f.round_down(whole, self.wide * self.groups)
        with f.loop(0, self.tables.targets.size) as tree:
            column = self.column(tree.index)
            for start, stop, groups in ((0, together, self.groups), (together, whole, 1)):
                with f.loop(start, stop, groups * self.wide) as block:
                    for g, leaf in enumerate(self.leaves(tree.index, block.index, groups)):
                        vector = f.add(block.index, g * self.wide)
                        self.add_leaf(tree.index, leaf, f.element(column, vector, self.total_size))
        self.store(out, count)

    def leaves(self, tree: str, row: str, groups: int) -> list[str]:
        """The leaves of a tree, counted from its first, that vectors of rows reach."""
        f, kinds = self.f, self.bits.kinds
        begin = f.cast("zext", self.entry("bit_firsts", tree), "i64")
        if self.bits.words.max(initial=0) <= 1:
            return [self.lowest(v, self.bit_vector) for v in self.words(begin, row, groups)]
        end = f.cast("zext", self.entry("bit_firsts", f.add(tree, 1)), "i64")
        found = [(self.bit_vector, "zeroinitializer")] * groups
        with f.loop(begin, end, kinds, carried=found) as loop:  # the last word first
            behind = f.sub(loop.index, begin)
            word = f.sub(f.sub(end, kinds), behind)
            number = f.binary("udiv", f.sub(word, begin), kinds, "i64")
            base = f.cast("trunc", f.mul(number, 8 * self.size), self.word)
            following = []
            for v, before in zip(self.words(word, row, groups), loop.carried, strict=True):
                place = f.binary(
                    "add", self.lowest(v, self.bit_vector), f.broadcast(self.word, base, self.wide)
                )
                some = f.compare("ne", v, "zeroinitializer")
                following.append(f.select(some, self.bit_vector, place, before))
            loop.carry(*following)
        return loop.results

    def words(self, number: str, row: str, groups: int) -> list[str]:
        """The bits of one word of a tree that are left for vectors of rows."""
        f = self.f
        left: list[str] = [splat(-1, f"int{8 * self.size}", self.wide)] * groups
        rows = f.element(self.columns, row, self.size)
        for kind, less in enumerate(("ult", "olt")[: self.bits.kinds]):
            start, stop = (
                f.cast("zext", self.entry("bit_lists", f.add(number, kind + k)), "i64") for k in range(2)
            )
            with f.loop(start, stop, carried=[(self.bit_vector, v) for v in left]) as loop:
                column = f.cast("zext", self.entry("columns", loop.index), "i64")
                values = f.offset(rows, column)
                place = f.element(self.table("bit_thresholds"), loop.index, self.size)
                threshold = f.broadcast("", f.load(self.element, place, self.size), self.wide)
                place = f.element(self.table("bit_masks"), loop.index, self.size)
                mask = f.broadcast("", f.load(self.word, place, self.size), self.wide)
                following = []
                for g, v in enumerate(loop.carried):
                    x = f.load(self.lanes_of, f.element(values, g * self.wide, self.size), self.size)
                    right = f.value(f"fcmp {less} {threshold.typed}, {x}", vector_type("i1", self.wide))
                    following.append(
                        f.select(right, self.bit_vector, f.binary("and", v, mask, self.bit_vector), v)
                    )
                loop.carry(*following)
            left = loop.results
        return left

    def add_leaf(self, tree: str, leaf: str, column: str) -> None:
        """Adds the weights of a vector's leaves to the vector at `column` and those behind."""
        f = self.f
        base = f.cast("zext" if self.size == 8 else "trunc", self.entry("bit_leaves", tree), self.word)
        number = f.binary("add", leaf, f.broadcast(self.word, base, self.wide), self.bit_vector)
        if self.each > 1:
            number = f.binary("mul", number, splat(self.each, f"int{8 * self.size}", self.wide))

        def one(c: str | int) -> None:
            weights = gather(f, self.element, f.element(self.table("bit_weights"), c, self.size), number)
            place = f.element(column, f.mul(c, self.stride), self.total_size)
            self._add(weights, place)

        self.for_columns(one)
