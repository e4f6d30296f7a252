"""The first of neighbouring lines, in order: lines whose elements lie side by side, or that lie one behind
another, are sorted at once, each in a lane of its own.

The first that are so far known stand in memory, a vector of keys and one of indices for each place. An
element goes behind those that are not greater, in every lane at once: from the last place up, each takes what
was before it where the element goes before that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dtypes
from ...records import dataclass
from ..text.emitter import Function, Reg, shape_of, splat, vector_constant, vector_type
from ..text.memory import Count, first_lanes, gather, load_first, store_first

LANES = 16
PLACE = LANES * 4  # bytes of a vector of indices
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}


def sort_key(f: Function, dtype: str, descending: bool, bits: Reg) -> Reg:
    """The unsigned numbers whose order is the one that is wanted, of elements as they are in memory."""
    type_ = bits.type
    word, lanes = shape_of(type_)
    sign = 1 << (8 * dtypes.itemsize(dtype) - 1)

    def all_(value: int) -> str:
        return str(value) if lanes == 1 else f"splat ({word} {value})"

    if dtype == "bool":
        bits = f.cast("zext", f.compare("ne", bits, all_(0)), type_)
    elif dtypes.is_signed(dtype):
        bits = f.binary("xor", bits, all_(-sign))
    elif dtype in INFINITY:
        magnitude = f.binary("and", bits, all_(sign - 1))
        negative = f.binary("ashr", bits, all_(8 * dtypes.itemsize(dtype) - 1))
        turned = f.binary("xor", bits, f.binary("or", negative, all_(-sign)))
        turned = f.select(f.compare("eq", magnitude, all_(0)), type_, all_(-sign), turned)
        nan = f.compare("ugt", magnitude, all_(INFINITY[dtype]))
        bits = f.select(nan, type_, all_(-1), turned)
    return f.binary("xor", bits, all_(-1)) if descending else bits


@dataclass(frozen=True)
class SortedLanes:
    """The lines whose first elements lie side by side at `x`, `live` of them; `n` elements each, `stride`
    elements apart. The first `count` of them go to `values` and `places`. memory: that many times
    `bytes_of` the dtype. behind: whether the lines lie one behind another instead, as their results do."""

    f: Function
    dtype: str
    descending: bool
    n: str
    count: str
    stride: str
    live: Count
    memory: str
    x: str
    values: str
    places: str
    behind: bool = False

    @property
    def _item(self) -> int:
        return dtypes.itemsize(self.dtype)

    @property
    def _word(self) -> str:
        return f"int{8 * self._item}"

    @property
    def _keys(self) -> str:
        return vector_type(f"i{8 * self._item}", LANES)

    def emit(self) -> None:
        f = self.f
        with f.loop(0, self.count) as first:
            self._put(first.index, splat(True, "bool", LANES), *self._element(first.index))
        last = f.sub(self.count, 1)
        with f.loop(self.count, self.n) as loop:
            key, index = self._element(loop.index)
            before = f.compare("ult", key, self._at(last)[0])
            if self.count == "1":  # is moved as soon as asked for
                self._put(last, before, key, index)
            else:
                some = f.compare("ne", f.cast("bitcast", before, f"i{LANES}"), 0)
                with f.when(some):
                    self._put(last, before, key, index)
        if self.behind:
            self._store_lines()
            return
        with f.loop(0, self.count) as loop:
            self._store(loop.index)

    def _element(self, index: str) -> tuple[Reg, Reg]:
        """Every line's element of that index: keys and indices."""
        f = self.f
        start = f.element(self.x, f.mul(index, self.stride), self._item)
        if self.behind:
            bits = gather(f, shape_of(self._keys)[0], start, self._lines())
        else:
            bits = load_first(f, self._word, LANES, start, self.live, 1)
        place = f.broadcast("i32", f.cast("trunc", index, "i32", "i64"), LANES)
        return sort_key(f, self.dtype, self.descending, bits), place

    def _lines(self) -> Reg:
        """Where the lines begin that lie one behind another: lanes without one have the last."""
        f, lanes = self.f, vector_constant("i64", range(LANES))
        if self.live is not None:
            last = f.broadcast("i64", f.sub(self.live, 1), LANES)
            lanes = f.select(f.compare("slt", lanes, last), last.type, lanes, last)
        return f.binary("mul", lanes, f.broadcast("i64", self.n, LANES))

    def _slots(self, place: str) -> tuple[str, str]:
        """Where the vectors of keys and of indices of a place are."""
        size = LANES * self._item
        start = self.f.element(self.memory, place, size + PLACE)
        return start, self.f.offset(start, size)

    def _at(self, place: str) -> tuple[Reg, Reg]:
        keys, places = self._slots(place)
        return self.f.load(self._keys, keys, 4), self.f.load(f"<{LANES} x i32>", places, 4)

    def _put(self, last: str, moves: Reg, key: Reg, index: Reg) -> None:
        """Puts an element among places 0 to `last`. moves: where what is at the last one drops out."""
        f = self.f

        def taken(place: str, moves: str, old: Sequence[Reg], new: Sequence[Reg]) -> None:
            for slot, was, now in zip(self._slots(place), old, new):
                f.store(now.type, f.select(moves, now.type, now, was), slot, 4)

        carried: list[tuple[str, str]] = [(moves.type, moves), *((v.type, v) for v in self._at(last))]
        with f.loop(0, last, carried=carried) as loop:
            mask, old = loop.carried[0], [Reg(v, t) for v, (t, _) in zip(loop.carried[1:], carried[1:])]
            place = f.sub(last, loop.index)
            above = self._at(f.sub(place, 1))
            before = f.compare("ult", key, above[0])
            taken(place, mask, old, [f.select(before, a.type, a, n) for a, n in zip(above, (key, index))])
            loop.carry(before, *above)
        mask, old = loop.results[0], [Reg(v, t) for v, (t, _) in zip(loop.results[1:], carried[1:])]
        taken("0", mask, old, (key, index))

    def _store(self, place: str) -> None:
        """Stores what is at a place; values are read again, for keys do not tell NaNs and zeros apart."""
        f = self.f
        wide = f"<{LANES} x i64>"
        index = f.cast("sext", self._at(place)[1], wide)
        offset = f.binary("mul", index, f.broadcast("i64", self.stride, LANES))
        lane = f.binary("add", offset, vector_constant("i64", range(LANES)))
        mask = None if self.live is None else first_lanes(f, self.live, LANES)
        values = gather(f, shape_of(self._keys)[0], self.x, lane, mask)
        at = f.mul(place, self.stride)
        store_first(f, self._word, LANES, values, f.element(self.values, at, self._item), self.live, 1)
        store_first(f, "int64", LANES, index, f.element(self.places, at, 8), self.live, 1)

    def _store_lines(self) -> None:
        """The same of lines that lie one behind another, line by line."""
        f, word = self.f, shape_of(self._keys)[0]
        with f.loop(0, LANES if self.live is None else self.live) as line, f.loop(0, self.count) as place:
            lane = f.element(self._slots(place.index)[1], line.index, PLACE // LANES)
            index = f.cast("sext", f.load("i32", lane, 4), "i64", "i32")
            of = f.element(self.x, f.add(f.mul(line.index, self.n), index), self._item)
            at = f.add(f.mul(line.index, self.count), place.index)
            f.store(word, f.load(word, of), f.element(self.values, at, self._item))
            f.store("i64", index, f.element(self.places, at, 8))


def bytes_of(dtype: str) -> int:
    """Memory for each of the elements that are wanted."""
    return LANES * dtypes.itemsize(dtype) + PLACE
