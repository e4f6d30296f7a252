"""Tiles that decode weights as they are stored in panels (`stored_form.py`): in registers where they have few
rows, or a panel at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...ir import dtypes
from ...records import dataclass
from ...target import LINE, Ability, Target
from ..text.emitter import Function, literal, memory_type, vector_constant, vector_type
from ..text.vectors import Vectors
from .microkernel import Rows, Tile, combined, far_ahead, frozen, product, row_address
from .panel_operand import Ahead, load_widened, prefetch_line, widened
from .stored_form import Form

ADDED = 1 << 23  # to a code that is put into the mantissa of this number, whose last bit counts 1
ADDED_BITS = 0x4B000000  # that number as a float32
DIGITS = 4  # of a float32, to base 256: rows of int8 that stand for a row
MOST_FEW = 8  # rows of a tile that decodes its panel in registers
BESIDE = 8  # of so many bytes one is of scales and zero points, at least, where these are fetched ahead
FEW_GROUPS, FEW_SUMS = 4, 4  # of a block, of a tile: written one after the other, without a loop


def few_rows(target: Target, vectors: int) -> int:
    """Rows of a tile that decodes its panel: registers hold sums of a block, of all blocks, and that."""
    return max(1, min(MOST_FEW, (target.vector_registers - vectors - 3) // (2 * vectors)))


def holds_digits(target: Target, vectors: int) -> bool:
    """Whether registers hold, for so many vectors of columns, the sums of a number's digits and of all
    blocks, what is stored and its codes. One more may lie in memory: tiles of many rows then are wider."""
    return (DIGITS + 3) * vectors + 3 <= target.vector_registers + 1


# Decoding ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """Reads a panel of `vectors` * `lanes` columns."""

    f: Function
    form: Form
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def number(self) -> Vectors:
        return Vectors(self.f, "float32", self.lanes)

    def fetched(self, at: str, nbytes: int) -> None:
        """Fetches what lies as far behind such bytes, which are read once, as memory asks for."""
        ahead = far_ahead(self.f.target)
        for byte in range(0, 0 if ahead is None else nbytes, LINE):
            prefetch_line(self.f, self.f.offset(at, byte + (ahead or 0)))

    def begun(self, block: str, stream: bool) -> None:
        """Begins a block: fetches behind its scales and zero points as behind its elements (`group`), where
        they are more than processors find by themselves in between: a core that reads 44 bytes a nanosecond
        for 32 where they are a fifth of all lines reads 40 for 46 where they are a ninth."""
        nbytes = self.form.parameter_bytes(self.width)
        if stream and BESIDE * nbytes > self.form.block_bytes(self.width):
            self.fetched(block, nbytes)

    def scales(self, block: str) -> list[str]:
        step = 4 * self.lanes
        found = [self.f.offset(block, j * step) for j in range(self.vectors)] if self.form.scaled else []
        return [self.f.load(self.number.type, at) for at in found]

    def zeros(self, block: str) -> list[str]:
        if not self.form.zeros:
            return []
        step = self.lanes * dtypes.itemsize(self.form.zeros)
        base = self.f.offset(block, 4 * self.width * self.form.scaled)
        places = [self.f.offset(base, j * step) for j in range(self.vectors)]
        return [load_widened(self.f, self.form.zeros, "float32", self.lanes, at) for at in places]

    def elements(self, block: str) -> str:
        """The address of a block's first group."""
        return self.f.offset(block, self.form.parameter_bytes(self.width))

    def group(self, at: str, stream: bool = False) -> list[str]:
        """What is stored of a group, of each vector. stream: it is read once, and what follows is fetched."""
        step = self.form.group_bytes(self.lanes)
        if stream:
            self.fetched(at, self.form.group_bytes(self.width))
        kind = "i32" if self.form.group > 1 else memory_type(self.form.half)
        return [
            self.f.load(vector_type(kind, self.lanes), self.f.offset(at, j * step))
            for j in range(self.vectors)
        ]

    def numbers(self, group: Sequence[str], k: int, zeros: Sequence[str]) -> list[str]:
        """(element - zero) of row k of a group, of each vector."""
        if self.form.half == "bfloat16":
            words = Vectors(self.f, "uint32", self.lanes)
            upper = [
                words.bit_and(x, words.constant(0xFFFF0000)) if k else words.shift_left(x, 16) for x in group
            ]
            return [self.number.from_bits(x) for x in upper]
        if not self.form.bits:
            return [widened(self.f, x, self.form.half, "float32", self.lanes) for x in group]
        shift = 8 * (k % 4) + self.form.bits * (k // 4)
        number = self._looked_up if self.looks_up else self._converted
        found = [number(x, shift) for x in group]
        return [self.number.sub(x, z) for x, z in zip(found, zeros)] if zeros else found

    def _converted(self, word: str, shift: int) -> str:
        words = Vectors(self.f, "uint32", self.lanes)
        code = words.shift_right(word, shift) if shift else word
        if shift + self.form.bits < 32:
            code = words.bit_and(code, words.constant((1 << self.form.bits) - 1))
        added = self.number.from_bits(words.bit_or(code, words.constant(ADDED_BITS)))
        zero = self.form.zero or 0.0
        exact = zero.is_integer() and abs(zero) < ADDED / 2
        found = self.number.sub(added, self.number.constant(ADDED + zero if exact else float(ADDED)))
        return found if exact else self.number.sub(found, self.number.constant(zero))

    @property
    def looks_up(self) -> bool:
        """Whether a register holds the numbers of all codes, of which an instruction picks one a lane."""
        return 0 < self.form.bits <= 4 and self.lanes == 16 and Ability.PERMUTE in self.f.target.abilities

    def _looked_up(self, word: str, shift: int) -> str:
        """By a permutation of the numbers of all codes, of which instructions read the four lowest bits."""
        codes = range(1 << self.form.bits)
        values = self.form.table or [code - (self.form.zero or 0.0) for code in codes]
        table = vector_constant("float", [literal(values[i % len(values)], "float32") for i in range(16)])
        words = Vectors(self.f, "uint32", self.lanes)
        place = words.shift_right(word, shift) if shift else word
        return self.number.permuted([table], place)

    def pairs(self, word: str, zeros: Sequence[str]) -> list[str]:
        """(code - zero) of a group, of one vector, as bfloat16s: two neighbours along k in a word."""
        if self.looks_up:
            return self._pairs_looked_up(word, zeros)
        words = Vectors(self.f, "uint32", self.lanes)
        bits = [self.number.bits(*self.numbers([word], k, zeros)) for k in range(self.form.group)]
        return [
            words.bit_or(words.shift_right(x, 16), words.bit_and(y, words.constant(0xFFFF0000)))
            for x, y in zip(bits[::2], bits[1::2])
        ]

    def _pairs_looked_up(self, word: str, zeros: Sequence[str]) -> list[str]:
        """By a permutation of the numbers of all codes, of which instructions read the five lowest bits. Each
        half gets a byte of the word, with a code in each of its fields."""
        f, bits = self.f, self.form.bits
        words, halves = Vectors(f, "uint32", self.lanes), Vectors(f, "uint16", 2 * self.lanes)
        numbers = [code % (1 << bits) - int(self.form.zero or 0) for code in range(32)]
        if zeros:  # places are differences
            numbers = [*range(16), *range(-16, 0)]
            zero = f.cast("fptoui", zeros[0], words.type, self.number.type)
            zero = f.cast("bitcast", words.bit_or(zero, words.shift_left(zero, 16)), halves.type, words.type)
        table = vector_constant("i16", [int(np.float32(x).view(np.uint32)) >> 16 for x in numbers])
        four = f.cast("bitcast", word, vector_type("i8", 4 * self.lanes), words.type)

        def pair(row: int) -> str:
            first, field = row % 4, row // 4
            picks = [p for n in range(self.lanes) for p in (4 * n + first, None, 4 * n + first + 1, None)]
            place: str = f.cast("bitcast", f.shuffle(four, "poison", picks), halves.type)
            place = halves.shift_right(place, field * bits) if field else place
            if zeros:
                place = halves.sub(halves.bit_and(place, halves.constant((1 << bits) - 1)), zero)
            return f.cast("bitcast", halves.permuted([table], place), words.type, halves.type)

        return [pair(row) for row in range(0, self.form.group, 2)]

    def codes(self, word: str, field: int) -> str:
        """The codes of four neighbours along k in the bytes of every lane."""
        words = Vectors(self.f, "uint32", self.lanes)
        shift = field * self.form.bits
        code = words.shift_right(word, shift) if shift else word
        if self.form.bits < 8:
            code = words.bit_and(code, words.constant(((1 << self.form.bits) - 1) * 0x01010101))
        return self.f.cast("bitcast", code, vector_type("i8", 4 * self.lanes), words.type)


def decode_panel(
    f: Function, form: Form, vectors: int, lanes: int, panel: str, out: str, stream: bool = True
) -> None:
    """Writes the numbers of a panel [depth][vectors][lanes] of float32. stream: it comes from memory."""
    reader = _Reader(f, form, vectors, lanes)
    row, v = 4 * reader.width, reader.number

    def block(index: int | str, size: int) -> None:
        at = f.offset(panel, f.mul(index, form.block_bytes(reader.width)))
        to = f.offset(out, f.mul(index, form.block * row))
        reader.begun(at, stream)
        scales, zeros, base = reader.scales(at), reader.zeros(at), reader.elements(at)

        def group(number: int | str, present: int) -> None:
            here = f.offset(base, f.mul(number, form.group_bytes(reader.width)))
            loaded = reader.group(here, stream)
            place = f.offset(to, f.mul(number, form.group * row))
            for k in range(present):
                found = reader.numbers(loaded, k, zeros)
                found = [v.mul(x, s) for x, s in zip(found, scales)] if scales else found
                for j, x in enumerate(found):
                    f.store(v.type, x, f.offset(place, k * row + 4 * j * lanes), 4 * lanes)

        whole, rest = divmod(size, form.group)
        if whole:
            with f.loop(0, whole) as loop:
                group(loop.index, form.group)
        if rest:
            group(whole, rest)

    _for_blocks(f, form, block)


def decode_pairs(
    f: Function, form: Form, vectors: int, lanes: int, panel: str, first: str, rows: str, out: str
) -> None:
    """Writes rows first..first+rows-1 of a panel, all of one block, as bfloat16s, not scaled:
    [rows / 2][vectors][lanes][2]."""
    reader = _Reader(f, form, vectors, lanes)
    words = Vectors(f, "uint32", lanes)
    line = 4 * reader.width
    block, inside = f.divide(first, form.block)
    at = f.offset(panel, f.mul(block, form.block_bytes(reader.width)))
    reader.begun(at, True)
    zeros = reader.zeros(at)
    group_bytes = form.group_bytes(reader.width)
    base = f.offset(reader.elements(at), f.mul(f.divide(inside, form.group)[0], group_bytes))
    with f.loop(0, f.divide(rows, form.group)[0]) as loop:
        loaded = reader.group(f.offset(base, f.mul(loop.index, group_bytes)), True)
        place = f.offset(out, f.mul(loop.index, form.group // 2 * line))
        for j, word in enumerate(loaded):
            for k, both in enumerate(reader.pairs(word, zeros[j : j + 1])):
                f.store(words.type, both, f.offset(place, k * line + 4 * j * lanes), LINE)


def _for_blocks(f: Function, form: Form, block: Callable[[int | str, int], None]) -> None:
    """block(index, rows) for every block."""
    whole, rest = divmod(form.depth, form.block)
    if whole == 1:
        block(0, form.block)
    elif whole:
        with f.loop(0, whole) as loop:
            block(loop.index, form.block)
    if rest:
        block(whole, rest)


# Tiles that decode -------------------------------------------------------------------------------


def multiply_add_decoded(
    f: Function, tile: Tile, rows: Rows, panel: str, form: Form, chains: int, stream: bool = True
) -> list[str]:
    """The sums over the panel of float32 rows, in which elements are decoded in registers; each block is
    summed by itself, in `chains` sums side by side, and then scaled. stream: the panel is read once, from
    memory."""
    sums = _DecodedSums(f, tile, rows, panel, form, chains, stream)
    return _over_blocks(f, form, sums.reader.number.type, tile.zeros(), sums.block)


class _DecodedSums:
    """Those of `multiply_add_decoded`. Loops carry where the rows and the panel are, then the sums of a block
    in all chains."""

    def __init__(
        self, f: Function, tile: Tile, rows: Rows, panel: str, form: Form, chains: int, stream: bool
    ):
        self.f, self.tile, self.rows, self.panel, self.form = f, tile, rows, panel, form
        self.chains, self.stream = chains, stream
        self.reader = _Reader(f, form, tile.vectors, tile.lanes)
        self.width = tile.rows * tile.vectors  # sums of a chain
        self.places = len(rows.pointers) + 1  # of rows and panel
        self.kinds = ["ptr"] * self.places + [self.reader.number.type] * (self.width * chains)

    def block(self, index: int | str, size: int, totals: Sequence[str]) -> list[str]:
        """totals and the scaled sums of a block of so many rows."""
        f, tile, reader = self.f, self.tile, self.reader
        at = f.offset(self.panel, f.mul(index, self.form.block_bytes(reader.width)))
        reader.begun(at, self.stream)
        scales, zeros = reader.scales(at), reader.zeros(at)
        begun = ["zeroinitializer" if scales else x for x in totals]
        begun += ["zeroinitializer"] * (self.width * (self.chains - 1))
        forward = f.mul(index, f.mul(self.rows.step, self.form.block))
        pointers = [f.offset(p, forward) for p in self.rows.pointers]
        values = self.groups([*pointers, reader.elements(at), *begun], size, zeros)
        sums = combined(f, tile, values[self.places :], self.chains)
        if not scales:
            return sums
        scaled = zip(sums, scales * tile.rows, totals, strict=True)
        return [reader.number.fma(x, scale, total) for x, scale, total in scaled]

    def groups(self, values: Sequence[str], size: int, zeros: Sequence[str]) -> Sequence[str]:
        """What loops carry behind so many rows of a block."""
        whole, rest = divmod(size, self.form.group)
        if whole <= FEW_GROUPS and self.width <= FEW_SUMS:
            values = self.unrolled(values, whole, zeros)
        else:
            values = self.looped(values, whole, zeros)
        return self.group(values, zeros, rest) if rest else values

    def looped(self, values: Sequence[str], count: int, zeros: Sequence[str]) -> Sequence[str]:
        """Behind so many whole groups, several in a turn."""
        unroll = max(1, 4 // self.form.group)
        with self.f.loop(0, count // unroll, 1, list(zip(self.kinds, values, strict=True))) as loop:
            loop.carry(*self.unrolled(loop.carried, unroll, zeros))
        return self.unrolled(loop.results, count % unroll, zeros)

    def unrolled(self, values: Sequence[str], count: int, zeros: Sequence[str]) -> Sequence[str]:
        """The same one after the other."""
        for number in range(count):
            values = self.group(values, zeros, self.form.group, number * self.form.group)
        return values

    def group(self, values: Sequence[str], zeros: Sequence[str], present: int, first: int = 0) -> list[str]:
        """Behind one group, of which so many rows are `present`; `first`: rows of its block before it."""
        f, form, reader = self.f, self.form, self.reader
        at, sums = values[: self.places], list(values[self.places :])
        loaded = reader.group(at[-1], self.stream)
        for k in range(present):
            numbers = reader.numbers(loaded, k, zeros)
            chain = (first + k) % self.chains * self.width
            there = slice(chain, chain + self.width)
            sums[there] = _added(f, self.tile, self.rows, at, k, numbers, sums[there])
        steps: list[int | str] = [f.mul(self.rows.step, form.group)] * len(self.rows.pointers)
        steps.append(form.group_bytes(reader.width))
        return [*(f.offset(p, step) for p, step in zip(at, steps)), *sums]


def _added(
    f: Function,
    tile: Tile,
    rows: Rows,
    at: Sequence[str],
    k: int,
    numbers: Sequence[str],
    sums: Sequence[str],
) -> list[str]:
    """sums and the products of element k of every row with a row of a panel."""
    v, found = Vectors(f, "float32", tile.lanes), list(sums)
    for r in range(tile.rows):
        a = f.broadcast("float", f.load("float", row_address(f, rows, at, r, k), 4), tile.lanes)
        for s, number in enumerate(numbers, r * tile.vectors):
            found[s] = v.fma(a, number, found[s])
    return found


def multiply_add_rounded(
    f: Function,
    tile: Tile,
    rows: Rows,
    panel: str,
    form: Form,
    begun: Sequence[str] = (),
    digits: bool = False,
) -> list[str]:
    """The sums over the panel of rows of int8 in blocks, `padded_depth` bytes, behind which for each block
    its step (float32) and what zero points add to its sums: -zero times the sum of the row's integers
    (int32), or, where columns have their own, minus that sum (float32). begun: integers to which sums of one
    block are added. digits: the rows are those of one row's numbers to base 256, whose sums they are."""
    sums = _RoundedSums(f, tile, rows, panel, form, begun, digits)
    totals = replace(tile, rows=1).zeros() if digits else tile.zeros()
    return _over_blocks(f, form, sums.reader.number.type, totals, sums.block)


class _RoundedSums:
    """Those of `multiply_add_rounded`. Loops carry where the rows and the panel are, then the integers that a
    block's products are added up in."""

    def __init__(
        self, f: Function, tile: Tile, rows: Rows, panel: str, form: Form, begun: Sequence[str], digits: bool
    ):
        self.f, self.tile, self.rows, self.panel, self.form = f, tile, rows, panel, form
        self.added, self.digits = begun, digits
        self.reader = _Reader(f, form, tile.vectors, tile.lanes)
        self.words = Vectors(f, "int32", tile.lanes)
        self.width = tile.rows * tile.vectors
        self.places = len(rows.pointers) + 1  # of rows and panel

    def block(self, index: int | str, size: int, totals: Sequence[str]) -> list[str]:
        """totals and the scaled sums of a block of so many rows."""
        f, tile, reader, v = self.f, self.tile, self.reader, self.reader.number
        at = f.offset(self.panel, f.mul(index, self.form.block_bytes(reader.width)))
        beside = [f.offset(p, f.add(f.mul(index, 8), self.form.padded_depth)) for p in self.rows.pointers]
        reader.begun(at, stream=True)
        begun = self.begun(beside)
        forward = f.mul(index, self.form.block)
        pointers = [f.offset(p, forward) for p in self.rows.pointers]
        values = self.groups([*pointers, reader.elements(at), *begun], -(-size // self.form.group))
        scales, zeros = reader.scales(at), reader.zeros(at)
        integers = values[self.places :]
        found = [
            self.numbers(integers[r * tile.vectors :][: tile.vectors], zeros, beside, r)
            for r in range(tile.rows)
        ]
        found = [self.joined(found)] if self.digits else found
        steps = [self.beside(beside, r, 0) for r in range(len(found))]
        return [
            v.fma(x, v.mul(scales[j], steps[r]), totals[r * tile.vectors + j])
            for r, row in enumerate(found)
            for j, x in enumerate(row)
        ]

    def begun(self, beside: Sequence[str]) -> list[str]:
        """What the integers of a block begin with."""
        f, tile, sums = self.f, self.tile, []
        for r in range(tile.rows):
            first = "zeroinitializer"
            if self.form.zero:
                word = f.load("i32", row_address(f, self.rows, beside, r, 4), 4)
                first = f.broadcast("i32", word, tile.lanes)
            sums += [first] * tile.vectors
        return [self.words.add(x, y) for x, y in zip(sums, self.added, strict=True)] if self.added else sums

    def beside(self, places: Sequence[str], row: int, byte: int) -> str:
        """A number that goes with a block, in every lane."""
        f = self.f
        at = row_address(f, self.rows, places, row, byte)
        return f.broadcast("float", f.load("float", at, 4), self.tile.lanes)

    def groups(self, values: Sequence[str], count: int) -> Sequence[str]:
        """What loops carry behind so many groups."""
        if count <= FEW_GROUPS and (self.digits or self.width <= FEW_SUMS):
            for _ in range(count):
                values = self.group(values)
            return values
        kinds = ["ptr"] * self.places + [self.words.type] * self.width
        with self.f.loop(0, count, 1, list(zip(kinds, values, strict=True))) as loop:
            loop.carry(*self.group(loop.carried))
        return loop.results

    def group(self, values: Sequence[str]) -> list[str]:
        """Behind one group, of which codes of four rows are one field."""
        f, tile, reader = self.f, self.tile, self.reader
        at, sums = values[: self.places], list(values[self.places :])
        loaded = reader.group(at[-1], stream=True)
        for field in range(8 // self.form.bits):
            codes = [reader.codes(word, field) for word in loaded]
            for r in range(tile.rows):
                a = self.four(at, r, 4 * field)
                for s, code in enumerate(codes, r * tile.vectors):
                    sums[s] = product(f, tile, a, code, sums[s])
        steps = [self.form.group] * len(self.rows.pointers) + [self.form.group_bytes(reader.width)]
        return [*(f.offset(p, step) for p, step in zip(at, steps)), *sums]

    def four(self, at: Sequence[str], row: int, k: int) -> str:
        """Elements k to k+3 of a row, in every lane."""
        f, lanes = self.f, self.tile.lanes
        word = f.broadcast("i32", f.load("i32", row_address(f, self.rows, at, row, k), 4), lanes)
        return f.cast("bitcast", word, vector_type("i8", 4 * lanes), self.words.type)

    def numbers(
        self, integers: Sequence[str], zeros: Sequence[str], beside: Sequence[str], row: int
    ) -> list[str]:
        """The sums of a row as float32, with what the columns' zero points add to them."""
        v = self.reader.number
        found: list[str] = [self.f.cast("sitofp", x, v.type, self.words.type) for x in integers]
        if zeros:
            minus = self.beside(beside, row, 4)
            found = [v.fma(minus, zero, x) for zero, x in zip(zeros, found)]
        return found

    def joined(self, digits: Sequence[Sequence[str]]) -> list[str]:
        """The sums of numbers from those of their digits, the lowest first."""
        v, found = self.reader.number, list(digits[-1])
        base = v.constant(256)
        for lower in reversed(digits[:-1]):
            found = [v.fma(x, base, y) for x, y in zip(found, lower)]
        return found


def multiply_add_kept(
    f: Function, tile: Tile, rows: Rows, panel: str, form: Form, numbers: str, ahead: Ahead | None
) -> list[str]:
    """The sums over a panel of `plain` halves, whose numbers are written as `decode_panel` writes them, while
    they are in registers: a processor that multiplies at its rate converts and stores besides."""
    reader = _Reader(f, form, tile.vectors, tile.lanes)
    v, row, sources = reader.number, 4 * reader.width, len(rows.pointers)
    begun = [*rows.pointers, panel, numbers, *([ahead.pointer] if ahead else [])]

    def group(values: Sequence[str], present: int) -> list[str]:
        at, sums = values[: len(begun)], list(values[len(begun) :])
        loaded, out = reader.group(at[sources]), at[sources + 1]
        for k in range(present):
            if ahead:
                replace(ahead, pointer=at[-1]).after(f, k).fetch(f)
            found = reader.numbers(loaded, k, [])
            for j, x in enumerate(found):
                f.store(v.type, x, f.offset(out, k * row + 4 * j * tile.lanes), 4 * tile.lanes)
            sums = _added(f, tile, rows, at, k, found, sums)
        steps = [f.mul(rows.step, form.group)] * sources + [form.group_bytes(reader.width), form.group * row]
        steps += [f.mul(ahead.step, form.group)] if ahead else []
        return [*(frozen(f, f.offset(p, step)) for p, step in zip(at, steps)), *sums]

    whole, rest = divmod(form.depth, form.group)
    values = [*begun, *tile.zeros()]
    kinds = ["ptr"] * len(begun) + [v.type] * (tile.rows * tile.vectors)
    with f.loop(0, whole, 1, list(zip(kinds, values, strict=True))) as loop:
        loop.carry(*group(loop.carried, form.group))
    values = list(loop.results)
    return (group(values, rest) if rest else values)[len(begun) :]


def _over_blocks(
    f: Function,
    form: Form,
    kind: str,
    totals: Sequence[str],
    block: Callable[[int | str, int, Sequence[str]], list[str]],
) -> list[str]:
    """totals after block(index, size, totals) of each block."""
    whole, rest = divmod(form.depth, form.block)
    found = list(totals)
    if whole == 1:
        found = block(0, form.block, found)
    elif whole:
        with f.loop(0, whole, 1, [(kind, x) for x in found]) as loop:
            loop.carry(*block(loop.index, form.block, loop.carried))
        found = list(loop.results)
    return block(whole, rest, found) if rest else found
