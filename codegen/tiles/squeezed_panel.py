"""Panels of float32 weights in 28 bits each, without loss: what few rows multiply takes as long as it takes
to arrive, and the weights of a trained layer have few exponents.

    ┌────────┬────────┬─────────┬─────────┬─────┐  a panel: the scale of its columns, where its two lists
    │ scales │ places │ group 0 │ group 1 │ ... │  begin (int64), groups of 8 vectors, of one or more rows
    └────────┴────────┴─────────┴─────────┴─────┘
    group    [7 words][lanes]     word i, in each lane 32 bits:
             ┌──────┬────────┬──────┬──────────┐
             │ sign │ nibble │ code │ mantissa │   vector i = this as floats, without the nibbles, * scale
             └──────┴────────┴──────┴──────────┘   vector 7 is the seven nibbles: code, mantissa, sign
A code is an exponent less the one below 15 that most weights have; 0 stands for zero. Weights of other
exponents are exceptions: behind all panels, the first list has for each group how many of the panel's are
before it, the second has their places and numbers. A group with exceptions is decoded into memory and mended
there, so that all is multiplied by the weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from ...ir.graph import Constant
from ...ir.remembered import remembered
from ...records import dataclass
from ...target import LINE
from ..text.emitter import Function
from ..text.vectors import Vectors
from .microkernel import Rows, Tile, combined, far_ahead, fetched_ahead, row_address
from .panel_operand import prefetch_line
from .stored_form import WORD, Form

GROUP, WORDS, NIBBLE = 8, 7, 4  # vectors of a group, words that hold them, bits of the last vector in each
CODES = 15  # exponents that have a code
SIGN, MANTISSA, NIBBLES, NUMBER = 0x80000000, 0x007FFFFF, 0x78000000, 0x87FFFFFF  # bits of a word
EXPONENT, NIBBLES_AT = 23, 27  # the lowest bits
MOST = 127  # the exponent below those with a code at most, for a scale that is a float32
EXCEPTION = np.dtype([("place", np.int32), ("number", np.float32)])
SAMPLE = 1 << 20  # weights by which exponents are chosen
TOGETHER = 1 << 18  # weights that are looked at together
RARE = 1000  # of so many weights one is an exception at most: half of one in a group of 512


@dataclass(frozen=True)
class Squeezed(Form):
    """The form of panels of `vectors` vectors, 1, 2 or 4. `low`: the exponent whose code would be 0;
    `exceptions`: how many weights have none."""

    vectors: int = field(kw_only=True)
    low: int = field(kw_only=True)
    exceptions: int = field(kw_only=True)

    @property
    def group(self) -> int:
        return GROUP // self.vectors

    @property
    def groups(self) -> int:
        return self.padded_depth // self.group

    def parameter_bytes(self, width: int) -> int:
        return 2 * WORD * width

    def group_bytes(self, width: int) -> int:
        return WORDS * WORD * width // self.vectors

    @property
    def count(self) -> np.dtype:
        """The type of a number of exceptions."""
        return np.min_scalar_type(max(self.exceptions, 256))

    def packed_bytes(self, columns: int, lanes: int) -> int:
        """Of the panels of so many columns, and of their lists."""
        panels = -(-columns // (self.vectors * lanes))
        lists = panels * (self.groups + 1) * self.count.itemsize + self.exceptions * EXCEPTION.itemsize
        return panels * self.panel_bytes(self.vectors * lanes) + lists


# Packing -----------------------------------------------------------------------------------------


@remembered()
def exponents(constant: Constant) -> tuple[int, int]:
    """Of float32 weights the exponent below the 15 that most have, and how many have another and are not
    zero."""
    bits = constant.array.reshape(-1).view(np.uint32)
    sample = (bits[:: -(-bits.size // SAMPLE)] >> EXPONENT & 255).astype(np.uint8)
    before = np.concatenate([[0], np.cumsum(np.bincount(sample, minlength=256))])
    covered = before[CODES + 1 :][: MOST + 1] - before[1:][: MOST + 1]
    low, kept = int(covered.argmax()), 0
    for first in range(0, bits.size, TOGETHER):
        magnitude = bits[first : first + TOGETHER] & ~np.uint32(SIGN)
        kept += magnitude.size - int(np.count_nonzero(magnitude))
        magnitude -= np.uint32(low + 1 << EXPONENT)
        kept += int(np.count_nonzero(magnitude < CODES << EXPONENT))
    return low, bits.size - kept


def squeezed_forms(constant: Constant, depth: int) -> list[Squeezed]:
    """The forms of float32 weights with `depth` rows; none where exceptions are not rare."""
    low, exceptions = exponents(constant)
    if exceptions * RARE * WORD > constant.nbytes:
        return []
    return [Squeezed(depth, depth, vectors=v, low=low, exceptions=exceptions) for v in (1, 2, 4)]


def packed_squeezed(form: Squeezed, matrix: Callable[[], np.ndarray], columns: int, lanes: int) -> Constant:
    """What `pack_squeezed` makes, when it is needed."""
    nbytes = form.packed_bytes(columns, lanes)
    return Constant("uint8", (nbytes,), lambda: pack_squeezed(form, matrix(), lanes))


def pack_squeezed(form: Squeezed, weights: np.ndarray, lanes: int) -> np.ndarray:
    """Weights [depth, columns] in panels, zeros beside the last, and the lists, as bytes."""
    width, columns = form.vectors * lanes, weights.shape[1]
    panels, panel = -(-columns // width), form.panel_bytes(width)
    packed = np.zeros(form.packed_bytes(columns, lanes), np.uint8)
    counts = np.zeros((panels, form.groups + 1), form.count)
    counted, size = panels * panel, form.count.itemsize
    listed = counted + counts.size * size
    for number in range(panels):
        bits = np.zeros((form.padded_depth, width), np.uint32)
        some = weights[:, number * width : (number + 1) * width]
        bits[: some.shape[0], : some.shape[1]] = some.view(np.uint32)
        words, exceptions = _squeezed(form, bits, lanes)
        begin, groups = number * panel, exceptions["place"] // (GROUP * lanes)
        counts[number, 1:] = np.cumsum(np.bincount(groups, minlength=form.groups))
        scales, places, behind = (packed[begin + k * WORD * width :] for k in range(3))
        scales[: WORD * width].view(np.float32)[:] = np.ldexp(np.float32(1), form.low)
        here = counted + number * (form.groups + 1) * size, listed
        places[:16].view(np.int64)[:] = np.subtract(here, begin)
        behind[: words.nbytes] = words.view(np.uint8).reshape(-1)
        packed[listed:][: exceptions.nbytes] = exceptions.view(np.uint8)
        listed += exceptions.nbytes
    packed[counted:][: counts.nbytes] = counts.view(np.uint8).reshape(-1)
    return packed


def _squeezed(form: Squeezed, bits: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """The words of a panel's numbers, which are given by their bits, and its exceptions."""
    code = (bits >> EXPONENT & 255).astype(np.int32) - form.low
    has_none = (code < 1) | (code > CODES)
    places = np.flatnonzero(has_none & (bits << 1 != 0))
    exceptions = np.empty(places.size, EXCEPTION)
    exceptions["place"], exceptions["number"] = places, bits.reshape(-1)[places].view(np.float32)
    numbers = bits & (SIGN | MANTISSA) | code.astype(np.uint32) << EXPONENT
    groups = np.where(has_none, bits & SIGN, numbers).astype(np.uint32).reshape(-1, GROUP, lanes)
    words, last = groups[:, :WORDS].copy(), groups[:, WORDS]
    turned = last << 1 | last >> 31
    for k in range(WORDS):
        nibble = turned >> (NIBBLE * (WORDS - 1 - k)) & ((1 << NIBBLE) - 1)
        words[:, k] |= nibble << NIBBLES_AT
    return words, exceptions


# Decoding ----------------------------------------------------------------------------------------


class _Reader:
    """Reads a panel."""

    def __init__(self, f: Function, form: Squeezed, lanes: int, panel: str):
        self.f, self.form, self.lanes = f, form, lanes
        self.width, self.vector = form.vectors * lanes, WORD * lanes  # bytes of a vector
        self.number, self.word = Vectors(f, "float32", lanes), Vectors(f, "uint32", lanes)
        self.groups = f.offset(panel, form.parameter_bytes(self.width))
        self.scale = f.load(self.number.type, panel, WORD)
        counts, exceptions = (f.load("i64", f.offset(panel, WORD * self.width + at), 8) for at in (0, 8))
        self.counts, self.exceptions = f.offset(panel, counts), f.offset(panel, exceptions)

    def group(self, index: int | str, ahead: int | None) -> list[str]:
        """The vectors of a group, 0 for exceptions, row by row. ahead: so many bytes further on memory is
        fetched."""
        f, w, v = self.f, self.word, self.number
        group = f.offset(self.groups, f.mul(index, WORDS * self.vector))
        for byte in range(0, 0 if ahead is None else WORDS * self.vector, LINE):
            prefetch_line(f, f.offset(group, byte + (ahead or 0)))
        words = [f.load(w.type, f.offset(group, k * self.vector), WORD) for k in range(WORDS)]
        nibbles = w.constant(NIBBLES)
        last = w.bit_and(words[-1], nibbles)
        for word in reversed(words[:-1]):
            last = w.bit_or(w.shift_right(last, NIBBLE), w.bit_and(word, nibbles))
        sign = w.bit_and(w.shift_left(words[-1], NIBBLE), w.constant(SIGN))
        bits = [w.bit_and(word, w.constant(NUMBER)) for word in words]
        bits.append(w.bit_or(w.shift_right(last, NIBBLE), sign))
        return [v.mul(v.from_bits(x), self.scale) for x in bits]

    def before(self, index: int | str) -> str:
        """How many exceptions the groups before one have."""
        size = self.form.count.itemsize
        at = self.f.offset(self.counts, self.f.mul(index, size))
        return self.f.cast("zext", self.f.load(f"i{8 * size}", at, size), "i64")

    def store(self, out: str, numbers: Sequence[str]) -> None:
        for k, number in enumerate(numbers):
            self.f.store(self.number.type, number, self.f.offset(out, k * self.vector), self.vector)

    def mend(self, out: str, first: str, behind: str, place: int | str) -> None:
        """Writes some exceptions to `out`, where the panel's numbers are from a place on."""
        f = self.f
        with f.loop(first, behind) as loop:
            exception = f.offset(self.exceptions, f.mul(loop.index, EXCEPTION.itemsize))
            there = f.cast("zext", f.load("i32", exception, WORD), "i64")
            number = f.load("float", f.offset(exception, WORD), WORD)
            f.store("float", number, f.offset(out, f.mul(f.sub(there, place), WORD)), WORD)


# Tiles -------------------------------------------------------------------------------------------


def multiply_add_squeezed(
    f: Function, tile: Tile, rows: Rows, panel: str, form: Squeezed, chains: int, streams: int
) -> list[str]:
    """The sums over a panel of float32 rows, in `chains` sums side by side. The groups come from `streams`
    places of the panel in turns."""
    reader = _Reader(f, form, tile.lanes, panel)
    v, width = reader.number, tile.rows * tile.vectors
    memory = f.hoisted(f"alloca [{GROUP * reader.vector} x i8], align {LINE}", "ptr")
    ahead = fetched_ahead(streams) if streams > 1 else far_ahead(f.target)

    def added(sums: Sequence[str], at: Sequence[str], numbers: Sequence[str]) -> list[str]:
        sums = list(sums)
        for n, number in enumerate(numbers):
            k, j = divmod(n, tile.vectors)
            for r in range(tile.rows):
                a = f.broadcast("float", f.load("float", row_address(f, rows, at, r, k), WORD), tile.lanes)
                s = k % chains * width + r * tile.vectors + j
                sums[s] = v.fma(a, number, sums[s])
        return sums

    def group(index: int | str, sums: Sequence[str], present: int = form.group) -> Sequence[str]:
        at = [f.offset(p, f.mul(index, f.mul(rows.step, form.group))) for p in rows.pointers]
        numbers, count = reader.group(index, ahead), present * tile.vectors
        first, behind = reader.before(index), reader.before(f.add(index, 1))

        def mended() -> list[str]:
            reader.store(memory, numbers)
            reader.mend(memory, first, behind, f.mul(index, GROUP * tile.lanes))
            places = [f.offset(memory, k * reader.vector) for k in range(count)]
            return added(sums, at, [f.load(v.type, place, reader.vector) for place in places])

        return f.either(
            f.compare("slt", first, behind), v.type, mended, lambda: added(sums, at, numbers[:count])
        )

    whole, rest = divmod(form.depth, form.group)
    each = whole // streams
    sums: Sequence[str] = ["zeroinitializer"] * (width * chains)
    with f.loop(0, each, 1, [(v.type, x) for x in sums]) as outer:
        with f.loop(0, each * streams, max(1, each), [(v.type, x) for x in outer.carried]) as inner:
            inner.carry(*group(f.add(outer.index, inner.index), inner.carried))
        outer.carry(*inner.results)
    with f.loop(each * streams, whole, 1, [(v.type, x) for x in outer.results]) as loop:
        loop.carry(*group(loop.index, loop.carried))
    sums = loop.results
    if rest:
        sums = group(whole, sums, rest)
    return combined(f, tile, sums, chains)
