"""Sort: lines by a radix sort of keys whose unsigned order is the order wanted; short ones by rank, and a few
elements of longer ones by a sorted vector of those that are first so far.

    key      a float's bits, all turned over when negative, else with the sign set; -0 is 0, NaN the
             greatest; for a descending order all bits turned over
    digits   of 8 bits, from the lowest: counted, the counts added up, then (key, index) moved to where
             they say, in order, so that equal keys stay in order
A digit that is the same everywhere is skipped. Where only the first `count` are wanted, others are left
behind before: all keys are compared with a bound that is searched between the least and the greatest, half of
them at a time, until not many more than those are below it. A few elements of neighbouring lines are found
in all of these at once (`codegen/tiles/sorted_lanes.py`). Every line, or vector of lines, is a part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...ir.ops import Sort
from ...records import dataclass
from ...target import Ability, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelText, Offer, as_it_is, single
from ..nests.nest import ERROR_BYTES, displaced
from ..text.emitter import Function, Reg, mangled, vector_constant, vector_type
from ..text.memory import Count
from ..tiles.packing import padded
from ..tiles.sorted_lanes import LANES, SortedLanes, bytes_of, sort_key

SHORT = 64  # elements of a line that are ranked by comparing each with each
SHORTEST = 16  # the same, where only a few are wanted of it
LONGEST = 1 << 31  # elements of a line whose vectors have indices of 32 bits
TOGETHER = 4  # lines, at least, that lie one behind another and are sorted side by side
LENGTHS = [1 << n for n in range(3, 13)]  # of lines of which the run tells how long they are
FEW = 64  # elements that are wanted of a line and fit in vectors
LEFT = 0.3  # of a line, about, when a bound has ruled out what cannot be among a few
DIGITS = 256
KEYED = (*dtypes.FLOATS, *dtypes.SIGNED, *dtypes.UNSIGNED, "bool")


def candidates(node: Node, target: Target) -> Iterable[Offer[None]]:
    if isinstance(node.op, Sort) and node.inputs[0].tensor.layout is None and node.inputs[0].dtype in KEYED:
        yield Offer(_cost(node, target), None)


pack = as_it_is


def _cost(node: Node[Sort], target: Target) -> Estimate:
    """Short lines compare each element with each, long ones move it once a digit and run through the
    counts."""
    x, few = node.inputs[0], _few(node)
    length, digits = dims.typical(x.shape[node.op.axis]) if x.rank else 1, dtypes.itemsize(x.dtype)
    lines = dims.typical(dims.product(x.shape[: node.op.axis])) if x.rank else 1
    if few is not None and _lines(node, target) > 1:
        each = _beside(few, length)
    elif few is not None and length <= _longest_behind(node, target) and lines >= TOGETHER:
        each = _behind(target, few, length, lines)
    elif few is not None or length <= SHORT:
        each = _alone(few, length)
    else:
        wanted = 1.0 if node.op.count is None else dims.typical(node.op.count) / length
        kept = max(LEFT, wanted) if wanted < 1 else 1.0
        each = costs.KEY + digits * (kept * costs.DIGIT + costs.COUNTED * DIGITS / length)
    return costs.overhead(target, each * dims.typical(x.tensor.count)) + costs.step(target)


def _alone(few: int | None, length: int) -> float:
    """Cycles of an element of a line that is ranked, or of which a few are found, by itself."""
    if few is None or length <= _ranked(few):
        return costs.RANK + costs.COMPARED * length / LANES
    filled = -(-few // LANES) * LANES
    put = costs.INSERTED * (filled + (length - filled) % LANES)  # those that are not compared as a vector
    found = costs.FOUND * few * math.log(length / filled)
    return costs.COMPARED * 3 / LANES + (costs.FEW_OF_LINE + put + found) / length


def _beside(few: int, length: int) -> float:
    """The same of lines side by side."""
    put = min(1.0, 2 * LANES * few / length)  # of all elements: those that come among the first of any line
    return costs.BESIDE + put * few * costs.MOVED_UP


def _behind(target: Target, few: int, length: int, lines: int) -> float:
    """The same of so many lines that lie one behind another."""
    gathered = costs.BEHIND if Ability.GATHER in target.abilities else costs.GATHERED
    return padded(lines, LANES) / lines * (gathered + _beside(few, length))


def _longest_behind(node: Node[Sort], target: Target) -> int:
    """How long lines that lie one behind another may be to be sorted side by side, where a few elements of
    each are wanted: 0 where that takes longer than to look at them one by one."""
    x, few, axis = node.inputs[0], _few(node), node.op.axis
    if few is None or dims.product(x.shape[axis + 1 :]) != 1:
        return 0
    length, outer = x.shape[axis], dims.product(x.shape[:axis])
    lengths = (length,) if isinstance(length, int) else LENGTHS
    lines = outer if isinstance(outer, int) else LANES
    if lines < TOGETHER:
        return 0
    return max((n for n in lengths if n and _behind(target, few, n, lines) < _alone(few, n)), default=0)


def _few(node: Node[Sort]) -> int | None:
    """How many are wanted of each line, where vectors hold them: the number itself, or the less of it and a
    length that only the run knows."""
    count = node.op.count
    if count is None or node.inputs[0].rank == 0:
        return None
    most = count if isinstance(count, int) else dims.bounds(count)[1]
    if most is None or not 0 < most <= min(FEW, SHORT):
        return None
    least = dims.minimum(node.inputs[0].shape[node.op.axis], most)
    return most if isinstance(count, int) or dims.equal(count, least) is True else None


def _ranked(few: int | None) -> int:
    """How long a line may be that is ranked, of which `few` are wanted."""
    return SHORT if few is None else min(SHORT, max(SHORTEST, 2 * few - 1))


def _lines(node: Node[Sort], target: Target) -> int:
    """How many neighbouring lines are sorted together where there are several: vectors of them where a few
    elements are wanted and vectors fit whole, or masks cost nothing."""
    x = node.inputs[0]
    inner = dims.product(x.shape[node.op.axis + 1 :]) if x.rank else 1
    fits = inner > 1 and (target.masked or inner >= LANES) if isinstance(inner, int) else target.masked
    return LANES if fits and _few(node) is not None else 1


def emit(node: Node[Sort], choice: Choice[None], target: Target) -> Code:
    return _Sorting(node, target).code(choice)


class _Sorting:
    """The lines of a node: one by one, or some together that lie side by side or one behind another."""

    def __init__(self, node: Node[Sort], target: Target):
        (x,), axis = node.inputs, node.op.axis
        self.node, self.dtype, self.descending = node, x.dtype, node.op.descending
        self.item = dtypes.itemsize(x.dtype)
        self.length = x.shape[axis] if x.rank else 1
        self.outer, self.inner = (dims.product(s) for s in (x.shape[:axis], x.shape[axis + 1 :]))
        self.longest = _longest_behind(node, target)
        self.blocks = dims.ceil_divide(self.inner, _lines(node, target))
        self.k = KernelText(target)

    def code(self, choice: Choice[None]) -> Code:
        with self.k.entry() as self.f:
            f = self.f
            self.n, self.stride = f.size(self.length), f.size(self.inner)
            self.count = self.n if self.node.op.count is None else f.size(self.node.op.count)
            self.memory = Memory.at(f, self.n, self.item)
            with f.loop("%first", "%last") as part:
                self.part(part.index)
        counted = self.item * DIGITS * 8
        if self.blocks != self.inner or self.longest:
            counted = max(counted, SHORT * bytes_of(self.dtype))
        scratch = ERROR_BYTES + counted + (self.length + LANES) * (2 * self.item + 16)
        lines = self.outer * self.blocks
        parts = dims.ceil_divide(self.outer, LANES) if self.longest else lines
        return single(self.k.step(parts, costs.work(choice.cost, lines * self.length), scratch))

    def part(self, part: str) -> None:
        """A line, or several: together where the run finds that they are short enough and many."""
        f, is_known = self.f, isinstance(self.length, int)
        outer, block = f.divide(part, 1 if self.longest else f.size(self.blocks))
        if not self.longest and self.blocks == self.inner:
            return self.one(outer, block)
        first, lines = (outer, self.outer) if self.longest else (block, self.inner)
        first = f.mul(first, LANES)
        live, together = f.minimum(f.sub(f.size(lines), first), LANES), []
        if self.longest:
            together += [] if is_known else [f.compare("sle", self.n, self.longest)]
            together += [] if isinstance(self.outer, int) else [f.compare("sge", live, TOGETHER)]
        elif not (is_known and isinstance(self.inner, int) and dims.number(self.length) < LONGEST):
            together = [f.compare("sgt", self.stride, 1), f.compare("slt", self.n, LONGEST)]
        several = f.all_of(*together)
        with f.when(several) if together else nullcontext():
            if self.longest:
                self.together(first, "0", live)
            elif isinstance(self.inner, int) and self.inner >= LANES:
                # the last has some of those before, too
                self.together(outer, f.minimum(first, self.inner - LANES), None)
            else:
                self.together(outer, first, live)
        if together:
            with f.when(f.invert(several)), f.loop(first, f.add(first, live)) as line:
                self.one(*((line.index, "0") if self.longest else (outer, line.index)))

    def places(self, outer: str, lane: str) -> tuple[str, str, str]:
        """A line's elements and results."""
        f = self.f
        of, to = (f.add(f.mul(outer, f.mul(size, self.stride)), lane) for size in (self.n, self.count))
        values, indices = (displaced(f, f.output(i), to, size) for i, size in enumerate((self.item, 8)))
        return displaced(f, f.input(0), of, self.item), values, indices

    def one(self, outer: str, lane: str) -> None:
        sizes, found = (self.n, self.count, self.stride), self.places(outer, lane)
        line = Line(self.f, self.dtype, self.descending, *sizes, self.memory, *found)
        line.emit(isinstance(self.length, int), _few(self.node), self.inner == 1)

    def together(self, outer: str, lane: str, live: Count) -> None:
        """Those from one on that are `live`."""
        sizes, (x, values, places) = (self.n, self.count, self.stride), self.places(outer, lane)
        memory, behind = self.memory.counts, self.longest > 0
        lines = self.f, self.dtype, self.descending, *sizes, live, memory, x, values, places, behind
        SortedLanes(*lines).emit()


@dataclass(frozen=True)
class Memory:
    """Where a thread keeps its counts (a row of DIGITS for each byte of the key), or vectors of lines, and
    two arrays each of keys and indices."""

    counts: str
    keys: tuple[str, str]
    indices: tuple[str, str]

    @staticmethod
    def at(f: Function, n: str, item: int) -> Memory:
        room = f.add(n, LANES)
        counts = f.offset("%scratch", ERROR_BYTES)
        first = f.offset(counts, item * DIGITS * 8)
        indices = first, f.offset(first, f.mul(room, 8))
        key = f.offset(indices[1], f.mul(room, 8))
        return Memory(counts, (key, f.offset(key, f.mul(room, item))), indices)


class Line:
    """One line being sorted: `x`, its `n` elements, and `values` and `places`, the `count` results; `stride`
    elements lie between two."""

    def __init__(
        self,
        f: Function,
        dtype: str,
        descending: bool,
        n: str,
        count: str,
        stride: str,
        memory: Memory,
        x: str,
        values: str,
        places: str,
    ):
        self.f, self.dtype, self.descending = f, dtype, descending
        self.n, self.count, self.stride, self.memory = n, count, stride, memory
        self.x, self.values, self.places = x, values, places
        self.item = dtypes.itemsize(dtype)
        self.word = f"i{8 * self.item}"
        self.stored = False  # whether keys are in memory, as they lie apart in the line

    def emit(self, known: bool, few: int | None, dense: bool) -> None:
        """known: how long the line is. few: how many are wanted, if vectors hold them. dense: elements lie
        side by side."""
        ranked = _ranked(few)

        def long() -> None:
            self._by_radix() if few is None else self._first_few(few, dense)

        if known:
            self._by_rank() if int(self.n) <= ranked else long()
            return
        short = self.f.compare("sle", self.n, ranked)
        with self.f.when(short):
            self._by_rank()
        with self.f.when(self.f.invert(short)):
            long()

    # Keys --------------------------------------------------------------------------------------

    def _element(self, index: str) -> str:
        return displaced(self.f, self.x, self.f.mul(index, self.stride), self.item)

    def _key(self, index: str) -> str:
        """The unsigned number that stands for an element."""
        return self._keys(index, 1)

    def _keys(self, index: str, lanes: int) -> str:
        """The keys of elements side by side."""
        f, type_ = self.f, vector_type(self.word, lanes)
        if self.stored:
            return f.load(type_, displaced(f, self.memory.keys[0], index, self.item))
        return sort_key(f, self.dtype, self.descending, f.load(type_, self._element(index)))

    def _store_result(self, index: str, place: str) -> None:
        """Element `index` of the line at `place` of the sorted one."""
        f, at = self.f, self.f.mul(place, self.stride)
        f.store(self.word, f.load(self.word, self._element(index)), displaced(f, self.values, at, self.item))
        f.store("i64", index, displaced(f, self.places, at, 8))

    # Short lines -------------------------------------------------------------------------------

    def _by_rank(self) -> None:
        """An element's place is how many are less, or equal and before it."""
        f, keys = self.f, self.memory.keys[0]
        with f.loop(0, self.n) as loop:
            f.store(self.word, self._key(loop.index), displaced(f, keys, loop.index, self.item))
        vector = f"<{LANES} x {self.word}>"
        # the greatest, and after all
        f.store(vector, "splat (" + self.word + " -1)", displaced(f, keys, self.n, self.item))
        with f.loop(0, self.n) as one:
            own = f.broadcast(self.word, f.load(self.word, displaced(f, keys, one.index, self.item)), LANES)
            number = f.broadcast("i64", one.index, LANES)
            with f.loop(0, self.n, LANES, carried=[("i64", "0")]) as loop:
                others = f.load(vector, displaced(f, keys, loop.index, self.item))
                numbers = f.binary(
                    "add", f.broadcast("i64", loop.index, LANES), vector_constant("i64", range(LANES))
                )
                equal, before = f.compare("eq", others, own), f.compare("slt", numbers, number)
                both = f.binary("and", equal, before)
                mask = f.binary("or", f.compare("ult", others, own), both)
                count = f.intrinsic("ctpop", f"i{LANES}", f.cast("bitcast", mask, f"i{LANES}"))
                loop.carry(f.add(loop.carried[0], f.cast("zext", count, "i64")))
            if self.count == self.n:
                self._store_result(one.index, loop.results[0])
            else:
                with f.when(f.compare("slt", loop.results[0], self.count)):
                    self._store_result(one.index, loop.results[0])

    # A few of a long line ----------------------------------------------------------------------

    def _first_few(self, count: int, dense: bool) -> None:
        """The keys that are first so far stand in order in vectors, with their indices: a key goes behind
        those that are not greater, and the last drops out. Of a vector of elements only those are looked at
        that come before the last that is wanted."""
        f = self.f
        lanes = max(4, 1 << (count - 1).bit_length())
        kinds = [vector_type(self.word, lanes), vector_type("i64", lanes)]
        start = [f"splat ({self.word} -1)", "splat (i64 -1)"]
        if not dense:  # as keys they are
            self._stored_keys(self.memory.keys[0])
            self.stored = True
        filled = f.minimum(-(-count // LANES) * LANES, self.n)
        best = self._inserted("0", filled, kinds, start, lanes)
        best, done = self._looked_through(count, filled, kinds, best, lanes)
        _, places = self._inserted(done, self.n, kinds, best, lanes)
        for place in range(count):
            self._store_result(f.extract(places, place, kinds[1]), str(place))

    def _looked_through(
        self, count: int, start: str, kinds: list[str], best: Sequence[str], lanes: int
    ) -> tuple[Sequence[str], str]:
        """The first `count` so far after whole vectors of elements from `start` on, and where these end."""
        f = self.f
        whole = f.binary("and", f.sub(self.n, start), -LANES, "i64")
        done = f.add(start, whole)
        with f.loop(start, done, LANES, carried=list(zip(kinds, best))) as loop:
            keys, last = self._keys(loop.index, LANES), f.extract(loop.carried[0], count - 1, kinds[0])
            before = f.compare("ult", keys, f.broadcast(self.word, last, LANES))
            mask = f.cast("zext", f.cast("bitcast", before, f"i{LANES}"), "i64")
            carried = [("i64", mask), *zip(kinds, loop.carried)]
            with f.loop(0, f.intrinsic("ctpop", "i64", mask), carried=carried) as inner:
                bits, *known = inner.carried
                trailing = f.text.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
                lane = f.call("i64", trailing, f"i64 {bits}", "i1 true")
                inner.carry(
                    f.binary("and", bits, f.sub(bits, 1)),
                    *self._insert(f.add(loop.index, lane), known, kinds, lanes),
                )
            loop.carry(*inner.results[1:])
        return loop.results, done

    def _inserted(
        self, start: str, stop: str, kinds: list[str], best: Sequence[str], lanes: int
    ) -> Sequence[str]:
        """The first so far after the elements of a range, one by one."""
        with self.f.loop(start, stop, carried=list(zip(kinds, best))) as loop:
            loop.carry(*self._insert(loop.index, loop.carried, kinds, lanes))
        return loop.results

    def _insert(self, index: str, best: Sequence[str], kinds: list[str], lanes: int) -> list[str]:
        """The first so far with one more element; the index -1 is where there is none yet."""
        f, (keys, places) = self.f, best
        own = f.broadcast(self.word, self._key(index), lanes)
        there = f.compare("sge", places, "zeroinitializer", kinds[1])
        equal = f.binary("and", f.compare("eq", keys, own, kinds[0]), there)
        stays = f.binary("or", f.compare("ult", keys, own, kinds[0]), equal)
        shift = [lanes, *range(lanes - 1)]
        after = f.shuffle(stays, "splat (i1 true)", shift, vector_type("i1", lanes))

        def placed(old: str, new: str, type_: str) -> str:
            moved = f.shuffle(old, new, shift, type_)
            return f.select(stays, type_, old, f.select(after, type_, new, moved))

        return [placed(keys, own, kinds[0]), placed(places, f.broadcast("i64", index, lanes), kinds[1])]

    # Long lines --------------------------------------------------------------------------------

    def _digit(self, key: str, byte: int) -> str:
        f = self.f
        shifted = key if byte == 0 else f.binary("lshr", key, 8 * byte)
        if self.item == 1:
            return f.cast("zext", shifted, "i64")
        low = f.binary("and", shifted, 255)
        return f.cast("zext", low, "i64")

    def _count(self, byte: int, digit: str) -> str:
        """The address of a digit's count."""
        return displaced(self.f, self.f.offset(self.memory.counts, byte * DIGITS * 8), digit, 8)

    def _by_radix(self) -> None:
        f, memory, n = self.f, self.memory, self.n
        source, to = [memory.keys[0], memory.indices[0]], [memory.keys[1], memory.indices[1]]
        if self.count != self.n:
            n = self._first_by_bound(source, to)
            source, to = to, source
        self._clear_counts()
        with f.loop(0, n) as loop:
            key: str
            if self.count != self.n:
                key = f.load(self.word, displaced(f, source[0], loop.index, self.item))
            else:
                key = self._key(loop.index)
                f.store(self.word, key, displaced(f, source[0], loop.index, self.item))
                f.store("i64", loop.index, displaced(f, source[1], loop.index, 8))
            for byte in range(self.item):
                self._add_one(self._count(byte, self._digit(key, byte)))
        for byte in range(self.item):
            source, to = self._pass(byte, n, source, to)
        with f.loop(0, self.count) as loop:
            self._store_result(f.load("i64", displaced(f, source[1], loop.index, 8)), loop.index)

    def _clear_counts(self) -> None:
        with self.f.loop(0, self.item * DIGITS * 8, 64) as loop:
            self.f.store("<64 x i8>", "zeroinitializer", self.f.offset(self.memory.counts, loop.index), 8)

    def _add_one(self, count: str) -> None:
        self.f.store("i64", self.f.add(self.f.load("i64", count, 8), 1), count, 8)

    def _first_by_bound(self, keys: list[str], to: list[str]) -> str:
        """Keys and indices of the first that are wanted, and of not many more or of what equals their last,
        in order; their number."""
        f, vector = self.f, vector_type(self.word, LANES)
        ends = self._stored_keys(keys[0])
        bound = self._bound(keys[0], *ends)
        every = f.broadcast(self.word, bound, LANES)
        with f.loop(0, self.n, LANES, carried=[("i64", "0")]) as loop:
            found = f.load(vector, displaced(f, keys[0], loop.index, self.item))
            before = f.cast("bitcast", f.compare("ule", found, every), f"i{LANES}")
            left = f.minimum(f.sub(self.n, loop.index), LANES)
            real = f.sub(f.binary("shl", "1", left, "i64"), 1)  # what fills the last vector is none
            mask = f.binary("and", f.cast("zext", before, "i64"), real)
            carried = [("i64", mask), ("i64", loop.carried[0])]
            with f.loop(0, f.intrinsic("ctpop", "i64", mask), carried=carried) as inner:
                bits, place = inner.carried
                trailing = f.text.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
                index = f.add(loop.index, f.call("i64", trailing, f"i64 {bits}", "i1 true"))
                key = f.load(self.word, displaced(f, keys[0], index, self.item))
                f.store(self.word, key, displaced(f, to[0], place, self.item))
                f.store("i64", index, displaced(f, to[1], place, 8))
                inner.carry(f.binary("and", bits, f.sub(bits, 1)), f.add(place, 1))
            loop.carry(inner.results[1])
        return loop.results[0]

    def _stored_keys(self, keys: str) -> tuple[str, str]:
        """Stores all keys, and behind them what is last of all until a vector is full; the least and the
        greatest."""
        f, vector = self.f, vector_type(self.word, LANES)
        whole = f.round_down(self.n, LANES) if self.stride == "1" else "0"
        start = [(vector, f"splat ({self.word} -1)"), (vector, "zeroinitializer")]
        with f.loop(0, whole, LANES, carried=start) as loop:
            found = self._keys(loop.index, LANES)
            f.store(vector, found, displaced(f, keys, loop.index, self.item))
            least, greatest = loop.carried
            loop.carry(
                f.intrinsic("umin", vector, found, least), f.intrinsic("umax", vector, found, greatest)
            )
        ends = [self._reduced(name, keys, self.word) for name, keys in zip(("umin", "umax"), loop.results)]
        with f.loop(whole, self.n, carried=[(self.word, v) for v in ends]) as loop:
            key = self._key(loop.index)
            f.store(self.word, key, displaced(f, keys, loop.index, self.item))
            least, greatest = loop.carried
            loop.carry(
                f.intrinsic("umin", self.word, key, least), f.intrinsic("umax", self.word, key, greatest)
            )
        f.store(vector, f"splat ({self.word} -1)", displaced(f, keys, self.n, self.item))
        return loop.results[0], loop.results[1]

    def _reduced(self, name: str, lanes: str, word: str) -> Reg:
        """All lanes of a vector of such words as one."""
        vector = vector_type(word, LANES)
        function = self.f.text.declare(f"llvm.vector.reduce.{name}.{mangled(vector)}", word, [vector])
        return self.f.call(word, function, f"{vector} {lanes}")

    def _bound(self, keys: str, least: str, greatest: str) -> str:
        """A key that at least `count` keys are not greater than: the first found of which not many more are
        so, else that of the last wanted. Each half of what is between the least and the greatest that it may
        be is ruled out by counting."""
        f, bits, word = self.f, 8 * self.item, self.word
        count = f"i{max(32, bits)}"
        vector, counts = vector_type(word, LANES), vector_type(count, LANES)
        limit = f.add(self.count, f.add(f.divide(self.count, 4)[0], SHORT))
        zeros = f.text.declare(f"llvm.ctlz.{word}", word, [word, "i1"])
        alike = f.call(word, zeros, f"{word} {f.sub(greatest, least, word)}", "i1 false")
        halvings = f.sub(bits, f.cast("zext", alike, "i64"))
        carried = [(word, least), (word, greatest), ("i64", self.n)]
        with f.loop(0, halvings, carried=carried) as loop:
            low, high, within = loop.carried
            half = f.binary("lshr", f.sub(high, low, word), 1, word)
            tried = f.add(low, half, word)
            many = f.compare("sgt", within, limit)
            every = f.broadcast(word, tried, LANES)
            stop = f.select(many, "i64", self.n, "0")
            with f.loop(0, stop, LANES, carried=[(counts, "zeroinitializer")]) as counting:
                keys_there = f.load(vector, displaced(f, keys, counting.index, self.item))
                below = f.cast("sext", f.compare("ule", keys_there, every), counts)
                counting.carry(f.binary("sub", counting.carried[0], below))
            total = f.cast("zext", self._reduced("add", counting.results[0], count), "i64")
            enough = f.compare("sge", total, self.count)
            loop.carry(
                f.select(f.binary("or", enough, f.invert(many)), word, low, f.add(tried, 1, word)),
                f.select(f.binary("and", enough, many), word, tried, high),
                f.select(f.binary("and", enough, many), "i64", total, within),
            )
        return loop.results[1]

    def _pass(self, byte: int, n: str, source: list[str], to: list[str]) -> tuple[list[str], list[str]]:
        """Sorts n elements by one digit unless all have the same; gives (keys, indices) as they are then, and
        the other two arrays."""
        f = self.f
        first = f.load("i64", self._count(byte, self._digit(f.load(self.word, source[0]), byte)), 8)
        differ = f.compare("ne", first, n)
        with f.loop(0, f.select(differ, "i64", str(DIGITS), "0"), carried=[("i64", "0")]) as loop:
            count = self._count(byte, loop.index)
            following = f.add(loop.carried[0], f.load("i64", count, 8))
            f.store("i64", loop.carried[0], count, 8)
            loop.carry(following)
        with f.loop(0, f.select(differ, "i64", n, "0")) as loop:
            key = f.load(self.word, displaced(f, source[0], loop.index, self.item))
            count = self._count(byte, self._digit(key, byte))
            place = f.load("i64", count, 8)
            f.store("i64", f.add(place, 1), count, 8)
            f.store(self.word, key, displaced(f, to[0], place, self.item))
            f.store(
                "i64", f.load("i64", displaced(f, source[1], loop.index, 8)), displaced(f, to[1], place, 8)
            )
        moved: list[str] = [f.select(differ, "ptr", a, b) for a, b in zip(to, source)]
        return moved, [f.select(differ, "ptr", b, a) for a, b in zip(to, source)]
